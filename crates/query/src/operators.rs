//! Rules and operators that bound what passes through a plan.

pub(crate) mod collected;
pub(crate) mod cooperation;
pub(crate) mod first_pieces;
pub(crate) mod guard;
pub(crate) mod inlined;
pub(crate) mod limits_apart;
pub(crate) mod membership;
pub(crate) mod multiplied;
pub(crate) mod narrow;
pub(crate) mod selective;
pub(crate) mod serial;
pub(crate) mod sorted;
pub(crate) mod sorts_kept;
pub(crate) mod stored_order;
pub(crate) mod subquery;
pub(crate) mod totalled;

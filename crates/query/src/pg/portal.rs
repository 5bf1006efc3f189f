//! State of a connection between messages: parsed statements, and statements with their values.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;

use super::result::Running;
use crate::query::Plan;
use crate::sql::footprint::Footprint;
use crate::wire::message::Formats;

/// A parsed statement.
pub(super) struct PreparedStatement {
    pub(super) sql: String,
    /// Parsed statement; `None` for an empty text.
    pub(super) statement: Option<Arc<Statement>>,
    pub(super) footprint: Footprint,
    /// Plan, for statements that return rows.
    pub(super) plan: Option<Arc<Plan>>,
    /// Parameter types given by the client; 0 for those it left open.
    pub(super) given: Vec<u32>,
}

impl PreparedStatement {
    /// Returns the parameter type that the client gave, if it gave one.
    pub(super) fn given(&self, at: usize) -> Option<u32> {
        self.given.get(at).copied().filter(|oid| *oid != 0)
    }

    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let plan = self.plan.as_ref().map_or(4_096 + self.footprint.tree_bytes, |plan| plan.weight);
        self.sql.len() + self.given.len() * 4 + plan
    }
}

/// A statement with its values.
pub(super) struct Portal {
    pub(super) prepared: Arc<PreparedStatement>,
    pub(super) plan: Option<Arc<Plan>>,
    pub(super) values: Vec<ScalarValue>,
    pub(super) formats: Formats,
    pub(super) running: Option<Running>,
    pub(super) finished: bool,
}

impl Portal {
    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        1_024 + self.values.iter().map(ScalarValue::size).sum::<usize>()
    }
}

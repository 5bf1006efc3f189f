//! Counters of a source, defined in a single table, from which the columns of `strongback.sources`, the output of
//! `/api/sources` and the metrics are made.

/// Defines [`SourceCounters`] from the names and meanings of its counters.
macro_rules! source_counters {
    ($($name:ident: $about:literal,)*) => {
        /// Counters of a source since the start of the server.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct SourceCounters {
            $(#[doc = $about] pub $name: u64,)*
        }

        impl SourceCounters {
            /// Name and meaning of each counter.
            pub const ALL: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $about)),*];

            /// Returns the counts, in the order of [`SourceCounters::ALL`].
            pub fn values(&self) -> [u64; SourceCounters::ALL.len()] {
                [$(self.$name),*]
            }
        }
    };
}

source_counters! {
    received: "Frames received, and datagrams and lines that made none.",
    stored: "Frames stored.",
    duplicate: "Frames seen before, not stored again.",
    rejected: "Frames, datagrams and lines refused.",
    lost: "Frames found missing.",
    filled: "Missing frames that came late after all.",
    late: "Frames that came after a later one.",
    restarts: "Restarts of the source.",
    future: "Stored frames whose time was more than max_future_s ahead of their reception.",
    kernel_drops: "Datagrams dropped by the kernel.",
    type_conflicts: "Values that went to a second column because their type did not fit the first.",
}

//! State that readers share with the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::append::stream_slot::SlotTable;
use crate::catalog::Catalog;
use crate::model::clock::Paces;
use crate::model::excluded::Excluded;
use crate::segment::directory::{Residents, SegmentList};

/// Max time for which a view may pin open memory, in seconds.
pub(crate) const VIEW_S_MAX: i64 = 60;

/// State that readers share with the writer.
pub(crate) struct Shared {
    pub(crate) slots: Arc<SlotTable>,
    /// Wall-clock time and elapsed time as reported by callers.
    pub(crate) paces: Paces,
    pub(crate) max_future_ns: i64,
    pub(crate) max_view_ns: i64,
    /// Base of generations: a segment's generation is this plus its number.
    pub(crate) generation_base: u64,
    pub(crate) catalog_version: Arc<AtomicU64>,
    /// Current segments.
    pub(crate) segments: ArcSwap<SegmentList>,
    /// Values that new views leave out.
    pub(crate) excluded: ArcSwap<Excluded>,
    /// Indices and files of sealed segments.
    pub(crate) residents: Residents,
    /// Number of blocks decoded for readers.
    pub(crate) blocks_decoded: AtomicU64,
    cached: ArcSwap<Catalog>,
}

impl Shared {
    pub(crate) fn new(
        slots: Arc<SlotTable>,
        catalog_version: Arc<AtomicU64>,
        generation_base: u64,
        now: i64,
        max_future_ns: i64,
    ) -> Shared {
        Shared {
            slots,
            paces: Paces::new(now),
            max_future_ns,
            max_view_ns: VIEW_S_MAX * 1_000_000_000,
            generation_base,
            catalog_version,
            segments: ArcSwap::default(),
            excluded: ArcSwap::default(),
            residents: Residents::default(),
            blocks_decoded: AtomicU64::new(0),
            cached: ArcSwap::default(),
        }
    }

    /// Returns the current catalog; rebuilt, after a change, from the changed parts.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let version = self.catalog_version.load(Ordering::Acquire);
        let cached = self.cached.load_full();
        if cached.version == version {
            return cached;
        }
        let streams = self.slots.list(&cached.streams);
        let catalog = Arc::new(Catalog { version, streams });
        self.cached.store(catalog.clone());
        catalog
    }
}

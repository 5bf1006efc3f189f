//! The side of a join that it collects before it reads the other.
//!
//! A join counts the values it has collected. It does not count what each batch takes beside its values, which is most of
//! it where batches are small; nor the copy when it joins them all to one. Both are counted here until the other side is
//! read.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use parking_lot::Mutex;

/// Memory of a batch beside its columns, in bytes: its entry in a list that doubles, and its list of columns.
const BATCH_BYTES: usize = 192;
/// Memory of a column of a batch beside its values, in bytes: the array, and what counts who holds its buffers.
const COLUMN_BYTES: usize = 256;

/// What a join has collected, beyond what it counts itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected(Arc<Mutex<Option<MemoryReservation>>>);

impl Collected {
    /// Returns `None` for an operator that does not collect its first input as a whole.
    pub(crate) fn by(node: &dyn ExecutionPlan) -> Option<Collected> {
        let collects = node.is::<CrossJoinExec>() || node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>();
        collects.then(Collected::default)
    }

    /// Counts a batch of the first side, of `bytes` of values.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn add(&self, batch: &RecordBatch, bytes: usize, context: &TaskContext) -> Result<()> {
        let beside = BATCH_BYTES + batch.num_columns() * COLUMN_BYTES;
        let mut reservation = self.0.lock();
        let register = || MemoryConsumer::new("a join that collects rows").register(context.memory_pool());
        reservation.get_or_insert_with(register).try_grow(bytes.saturating_add(beside))
    }

    /// Gives the memory back: the second side is read, or the first is collected again.
    pub(crate) fn free(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    use super::*;

    #[test]
    fn many_small_batches_are_counted_as_what_they_take() {
        let pool = Arc::new(GreedyMemoryPool::new(1 << 20));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc().unwrap();
        let context = TaskContext::default().with_runtime(runtime);
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let collected = Collected::default();
        let taken = (0..10_000).take_while(|_| collected.add(&batch, 8, &context).is_ok()).count();
        // With their values alone, all of them would fit.
        assert_eq!(taken, (1 << 20) / (8 + BATCH_BYTES + COLUMN_BYTES));
        collected.free();
        assert!(collected.add(&batch, 8, &context).is_ok());
    }
}

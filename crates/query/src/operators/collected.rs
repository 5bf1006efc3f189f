//! Memory of the join side that is collected before the other is read.
//!
//! A join counts the values it has collected. It counts neither the overhead of each batch, which dominates if batches
//! are small, nor the copy made when it concatenates them. Both are counted here until the other side is read.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use parking_lot::Mutex;

/// Overhead of a batch without its columns, in bytes: its entry in a doubling list, and its list of columns.
const BATCH_BYTES: usize = 192;
/// Overhead of a column in a batch, in bytes: the array, and the reference counts of its buffers.
const COLUMN_BYTES: usize = 256;

/// Memory that a join has collected, beyond what it counts itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected(Arc<Mutex<Option<MemoryReservation>>>);

impl Collected {
    /// Returns `None` for an operator that does not collect its first input as a whole.
    pub(crate) fn by(node: &dyn ExecutionPlan) -> Option<Collected> {
        let collects = node.is::<CrossJoinExec>() || node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>();
        collects.then(Collected::default)
    }

    /// Counts a batch of the first side with `bytes` bytes of values.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn add(&self, batch: &RecordBatch, bytes: usize, context: &TaskContext) -> Result<()> {
        let beside = BATCH_BYTES + batch.num_columns() * COLUMN_BYTES;
        let mut reservation = self.0.lock();
        let register = || MemoryConsumer::new("a join that collects rows").register(context.memory_pool());
        reservation.get_or_insert_with(register).try_grow(bytes.saturating_add(beside))
    }

    /// Releases the memory, because the second side is read or the first is collected again.
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
        // By their values alone, all of them would fit.
        assert_eq!(taken, (1 << 20) / (8 + BATCH_BYTES + COLUMN_BYTES));
        collected.free();
        assert!(collected.add(&batch, 8, &context).is_ok());
    }
}

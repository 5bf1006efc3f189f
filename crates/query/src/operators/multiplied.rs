//! Limits rows multiplied by a join or an unnest: how wide they may be, and how many are passed on at a time.
//!
//! A join combines a row of one side with many of the other; an unnest repeats a row for each element of its lists.
//! Both make a batch before it can be counted, so its size is estimated from their input.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;

use crate::operators::collected::Collected;
use crate::operators::narrow::NARROW_ROWS;
use crate::running::size::Size;

/// Maximum bytes that a join makes at a time, as far as its input decides that.
pub(crate) const MADE_BYTES: usize = 16 << 20;
/// Maximum pairs of rows that a join compares at a time, about a second of work.
const PAIRS: usize = 1 << 27;
/// Maximum pairs of rows for a join that looks up equal keys.
const PAIRS_HASHED: usize = 1 << 30;

/// Multiplication of rows by an operator, for one of its inputs.
#[derive(Clone, Debug)]
pub(crate) enum Multiplied {
    /// Join: rows of both sides are combined.
    Joined {
        /// Widest row of each side so far, in bytes.
        widest: Arc<[AtomicUsize; 2]>,
        /// Number of rows of the first side, which a join collects.
        first_rows: Arc<AtomicUsize>,
        /// Maximum pairs of rows that it compares without yielding.
        pairs_max: usize,
        side: usize,
        /// Whether a batch of the second side is combined with each row of the first as a whole.
        whole: bool,
        /// Memory collected of the first side, if that is collected.
        collected: Option<Collected>,
    },
    /// Unnest: a row is repeated for each element of its lists.
    Unnested {
        /// Columns of the lists.
        lists: Vec<usize>,
        /// Whether nested lists are unnested down to their elements.
        nested: bool,
    },
}

/// Limits and estimate for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Maximum rows to pass on at a time.
    pub(crate) rows: usize,
    /// Bytes made from these rows.
    pub(crate) bytes: usize,
}

impl Multiplied {
    /// Returns the multiplication of each input of an operator, or `None` if it does not multiply rows.
    pub(crate) fn by(node: &Arc<dyn ExecutionPlan>) -> Option<Vec<Multiplied>> {
        if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
            let columns = unnest.list_column_indices();
            let lists: Vec<usize> = columns.iter().map(|list| list.index_in_input_schema).collect();
            let nested = columns.iter().any(|list| list.depth > 1);
            return (!lists.is_empty()).then(|| vec![Multiplied::Unnested { lists, nested }]);
        }
        if !is_join(node.as_ref()) || node.children().len() != 2 {
            return None;
        }
        let (widest, whole) = (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), node.is::<CrossJoinExec>());
        let first_rows = Arc::new(AtomicUsize::new(0));
        let pairs_max = match node.is::<HashJoinExec>() {
            // It returns one batch at a time.
            _ if whole => usize::MAX,
            // It compares all pairs only if all keys are equal.
            true => PAIRS_HASHED,
            false => PAIRS,
        };
        let collected = Collected::by(node.as_ref());
        let of_side = |side| {
            let (widest, first_rows, collected) = (widest.clone(), first_rows.clone(), collected.clone());
            Multiplied::Joined { widest, first_rows, pairs_max, side, whole, collected }
        };
        Some((0..2).map(of_side).collect())
    }

    /// Returns its name for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Multiplied::Joined { .. } => "a join",
            Multiplied::Unnested { .. } => "unnest",
        }
    }

    /// Restarts from the first row, because a recursive query runs it repeatedly.
    pub(crate) fn begin(&self) {
        if let Multiplied::Joined { first_rows, side: 0, collected, .. } = self {
            first_rows.store(0, Ordering::Relaxed);
            collected.iter().for_each(Collected::free);
        }
    }

    /// Counts the memory for a batch that a join collects.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn collect(&self, batch: &RecordBatch, bytes: usize, context: &TaskContext) -> Result<()> {
        match self {
            Multiplied::Joined { side: 0, collected: Some(collected), .. } => collected.add(batch, bytes, context),
            Multiplied::Joined { collected: Some(collected), .. } => {
                collected.free();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Measures an input batch.
    pub(crate) fn measure(&self, batch: &RecordBatch) -> Made {
        match self {
            Multiplied::Joined { widest, first_rows, pairs_max, side, whole, .. } => {
                if *side == 0 {
                    first_rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                }
                let own = Size::of_batch(batch).widest;
                widest[*side].fetch_max(own, Ordering::Relaxed);
                let both: usize = widest.iter().map(|side| side.load(Ordering::Relaxed)).sum();
                let mut rows = (MADE_BYTES / both.max(1)).max(1);
                if *side == 1 {
                    rows = rows.min(pairs_max / first_rows.load(Ordering::Relaxed).max(1)).max(1);
                }
                // It evaluates a condition for as many rows as it returns.
                let bytes = if *whole { both.saturating_mul(2) } else { own.saturating_mul(2 * NARROW_ROWS) };
                Made { rows, bytes }
            }
            Multiplied::Unnested { lists, nested } => {
                let (mut longest, mut others, mut elements) = (1_usize, 0_usize, 0_usize);
                for (at, column) in batch.columns().iter().enumerate() {
                    let size = Size::of(column);
                    match lists.contains(&at) {
                        false => others = others.saturating_add(size.widest),
                        true if *nested => {
                            longest = longest.saturating_mul(size.elements.max(1));
                            others = others.saturating_add(size.widest);
                        }
                        true => {
                            longest = longest.max(longest_list(column));
                            elements = elements.saturating_add(size.total);
                        }
                    }
                }
                let row = longest.saturating_mul(others);
                let rows = (MADE_BYTES / row.max(1)).max(1);
                Made { rows, bytes: row.saturating_mul(rows.min(batch.num_rows())).saturating_add(elements) }
            }
        }
    }
}

/// Reports whether an operator is a join.
pub(crate) fn is_join(node: &dyn ExecutionPlan) -> bool {
    node.name().contains("Join")
}

fn longest_list(lists: &ArrayRef) -> usize {
    fn longest<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
        offsets.lengths().max().unwrap_or(0)
    }
    match lists.data_type() {
        DataType::List(_) => longest(lists.as_list::<i32>().offsets()),
        DataType::LargeList(_) => longest(lists.as_list::<i64>().offsets()),
        _ => Size::of(lists).elements,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn a_join_takes_fewer_rows_the_wider_both_sides_are() {
        let (widest, first_rows) = (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), Arc::default());
        let sides = [0, 1].map(|side| Multiplied::Joined {
            widest: widest.clone(),
            first_rows: Arc::clone(&first_rows),
            pairs_max: PAIRS,
            side,
            collected: None,
            whole: true,
        });
        let wide = batch(vec![("text", Arc::new(StringArray::from(vec!["x".repeat((1 << 20) - 8)])))]);
        let narrow = batch(vec![("number", Arc::new(Int64Array::from(vec![1; 100])))]);
        assert_eq!(sides[1].measure(&narrow), Made { rows: (16 << 20) / 8, bytes: 16 });
        assert_eq!(sides[0].measure(&wide).rows, 15);
        assert_eq!(sides[1].measure(&narrow).rows, 15);
    }

    #[test]
    fn a_join_takes_fewer_rows_the_more_it_compares_them_with() {
        let first_rows = Arc::default();
        let sides = [0, 1].map(|side| Multiplied::Joined {
            widest: Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]),
            first_rows: Arc::clone(&first_rows),
            pairs_max: 1_000,
            side,
            collected: None,
            whole: false,
        });
        let rows = |count| batch(vec![("number", Arc::new(Int64Array::from(vec![1; count])) as ArrayRef)]);
        sides[0].measure(&rows(60));
        sides[0].measure(&rows(40));
        assert_eq!(sides[1].measure(&rows(100)).rows, 10);
        sides[0].measure(&rows(10_000));
        assert_eq!(sides[1].measure(&rows(100)).rows, 1);
    }

    #[test]
    fn an_unnest_counts_the_longest_list_for_the_widest_row() {
        let lists =
            ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1); 3]), Some(vec![Some(1); 40])]);
        let texts = StringArray::from(vec!["x".repeat(92), String::new()]);
        let both = batch(vec![("list", Arc::new(lists)), ("text", Arc::new(texts))]);
        let unnested = Multiplied::Unnested { lists: vec![0], nested: false };
        let made = unnested.measure(&both);
        assert_eq!(made.rows, (16 << 20) / (40 * 100));
        assert!(made.bytes >= 2 * 40 * 100 + 43 * 8, "{made:?}");
    }
}

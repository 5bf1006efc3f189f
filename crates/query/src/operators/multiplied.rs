//! Rows that a join or an unnest makes many of: how wide they may be, and how many are handed to it at a time.
//!
//! A join puts a row of one side beside many of the other, an unnest repeats a row for each element of its lists. Both
//! make a batch before anybody has counted it, so what it may come to is worked out from what they read.

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

/// What a join makes at a time, in bytes, as far as its input decides that.
pub(crate) const MADE_BYTES: usize = 16 << 20;
/// Pairs of rows that a join compares at a time: about a second of work.
const PAIRS: usize = 1 << 27;
/// The same of a join that looks for equal keys.
const PAIRS_HASHED: usize = 1 << 30;

/// What an operator makes of the rows of one of its inputs.
#[derive(Clone, Debug)]
pub(crate) enum Multiplied {
    /// Rows of both sides beside each other.
    Joined {
        /// The widest row of each side so far, in bytes.
        widest: Arc<[AtomicUsize; 2]>,
        /// Rows of the first side, which a join collects.
        first_rows: Arc<AtomicUsize>,
        /// Most pairs of rows that it compares without letting others run.
        pairs_max: usize,
        side: usize,
        /// Whether a batch of the second side is put beside each row of the first as it is.
        whole: bool,
        /// What it has collected of the first side, if it collects that.
        collected: Option<Collected>,
    },
    /// The row once for each element of its lists.
    Unnested {
        /// Where the lists are.
        lists: Vec<usize>,
        /// Whether lists of lists are unnested to their elements.
        nested: bool,
    },
}

/// What a batch may come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Most rows to hand on at a time.
    pub(crate) rows: usize,
    /// What is made of these, in bytes.
    pub(crate) bytes: usize,
}

impl Multiplied {
    /// What an operator makes of each of its inputs; none if it does not multiply them.
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
            // It gives a batch at a time.
            _ if whole => usize::MAX,
            // It compares all pairs only where all keys are equal.
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

    /// What it is called in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Multiplied::Joined { .. } => "a join",
            Multiplied::Unnested { .. } => "unnest",
        }
    }

    /// Begins from its first row: a recursive query runs it again and again.
    pub(crate) fn begin(&self) {
        if let Multiplied::Joined { first_rows, side: 0, collected, .. } = self {
            first_rows.store(0, Ordering::Relaxed);
            collected.iter().for_each(Collected::free);
        }
    }

    /// Counts what a join takes for a batch that it collects.
    ///
    /// # Errors
    /// If there is no memory for it.
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

    /// Measures a batch that goes into the operator.
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
                // It works out a condition for as many rows as it hands on.
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

/// Whether an operator puts rows beside each other.
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

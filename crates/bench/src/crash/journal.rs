//! Record of what was acknowledged to a writer, and the values that its rows must have.

use std::ops::Range;

/// Nanoseconds between two rows of a connection.
pub(super) const ROW_PERIOD_NS: i64 = 1_000;

/// Values of row `n` of a connection. They depend only on these two numbers, so every row read back can be checked on
/// its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowValues {
    /// 32 bits that depend on connection and row number.
    pub(super) check: i64,
    /// A float that depends on `check`.
    pub(super) x: f64,
}

impl RowValues {
    /// Returns the values of row `n` of `connection`.
    pub(super) fn of(connection: usize, n: u64) -> Self {
        // splitmix64's finaliser, so that neighbours are unrelated
        let mut z = n.wrapping_add((connection as u64) << 56).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let check = ((z ^ (z >> 31)) >> 32) as i64;
        RowValues { check, x: check as f64 / 64.0 - 1e6 }
    }
}

/// Numbers in ascending order, as ranges. The position of a number among them is the row its frame must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// Ranges, and the number of numbers before each.
    ranges: Vec<(Range<u64>, u64)>,
}

impl Numbers {
    /// Appends a range that lies wholly above all others.
    pub(super) fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.len();
        match self.ranges.last_mut() {
            Some((last, _)) if last.end == range.start => last.end = range.end,
            Some((last, _)) => {
                assert!(last.end < range.start, "{range:?} after {last:?}");
                self.ranges.push((range, before));
            }
            None => self.ranges.push((range, before)),
        }
    }

    /// Returns how many numbers there are.
    pub(super) fn len(&self) -> u64 {
        self.ranges.last().map_or(0, |(range, before)| before + range.end - range.start)
    }

    /// Returns one more than the max.
    pub(super) fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |(range, _)| range.end)
    }

    /// Returns the number at a position.
    pub(super) fn nth(&self, position: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|(_, before)| *before <= position).checked_sub(1)?;
        let (range, before) = &self.ranges[at];
        let n = range.start + (position - before);
        (n < range.end).then_some(n)
    }

    /// Returns the numbers within a range, ascending.
    pub(super) fn within(&self, wanted: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let from = self.ranges.partition_point(|(range, _)| range.end <= wanted.start);
        self.ranges[from..]
            .iter()
            .take_while(move |(range, _)| range.start < wanted.end)
            .flat_map(move |(range, _)| range.start.max(wanted.start)..range.end.min(wanted.end))
    }
}

/// Record of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    /// Numbers known to be stored: acknowledged, or found after a crash.
    pub(super) stored: Numbers,
    /// Number of stored rows that were acknowledged.
    pub(super) acknowledged: u64,
    /// Rows sent without an answer: any first part of them may be stored.
    pub(super) in_flight: Option<Range<u64>>,
    /// First number that was never sent.
    pub(super) next: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_numbers_with_holes() {
        let mut numbers = Numbers::default();
        numbers.push(0..10);
        numbers.push(10..12);
        numbers.push(20..25);
        numbers.push(25..25);
        assert_eq!(numbers.len(), 17);
        assert_eq!(
            (numbers.nth(11), numbers.nth(12), numbers.nth(16), numbers.nth(17)),
            (Some(11), Some(20), Some(24), None)
        );
        assert_eq!(numbers.within(8..22).collect::<Vec<_>>(), [8, 9, 10, 11, 20, 21]);
        assert_eq!(numbers.within(12..20).count(), 0);
        assert_eq!(numbers.end(), 25);
    }

    #[test]
    fn neighbours_have_other_values() {
        assert_ne!(RowValues::of(0, 1), RowValues::of(0, 2));
        assert_ne!(RowValues::of(0, 1), RowValues::of(1, 1));
        assert!((0..1 << 32).contains(&RowValues::of(3, 77).check));
    }
}

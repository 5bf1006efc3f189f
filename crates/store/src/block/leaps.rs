//! Leaps: rows before which frames are missing, found from the sequences of the rows and of the row before them.

use crate::block::Block;
use crate::bytes::FormatError;
use crate::codec::stats::ColumnStatistics;
use crate::model::batch::{Batch, OptionalTimes};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::Layout;

/// Session and highest sequence up to a row.
type Newest = Option<(u32, i64)>;

/// Returns the rows before which frames are known missing: where a session begins or the sequence leaps. If
/// `reduced`, lossy channels leave frames out, so a leap of the sequence is ignored. `newest` is the state before the
/// first row.
pub(crate) fn gap_rows(batch: &Batch, mut newest: Newest, reduced: bool) -> Vec<u32> {
    match (&batch.sequence, &batch.session) {
        (Some(sequence), Some(session)) => rows_of(sequence, session, &mut newest, reduced),
        _ => Vec::new(),
    }
}

fn rows_of(sequence: &OptionalTimes, session: &[u32], newest: &mut Newest, reduced: bool) -> Vec<u32> {
    let mut rows = Vec::new();
    for (row, &session) in session.iter().enumerate() {
        let Some(sequence) = sequence.get(row) else { continue };
        let (before, highest) = newest.unwrap_or((session, sequence));
        if session != before || !reduced && sequence > highest.saturating_add(1) {
            rows.push(row as u32);
        }
        *newest = Some(if session == before { (session, sequence.max(highest)) } else { (session, sequence) });
    }
    rows
}

/// Leaps in a block's rows, relative to the rows that a reader saw before them.
pub(crate) struct Leaps {
    /// Whether frames are missing before the first row.
    pub(crate) at_start: bool,
    /// Further rows before which frames are missing.
    inside: Vec<u32>,
    /// Session and highest sequence up to its last row.
    pub(crate) newest: Newest,
}

impl Leaps {
    /// Finds the leaps of a block that follows rows up to `newest`. If `newest` is `None`, the header decides whether
    /// frames are missing before the first row. Returns `None` if some of the rows have no sequence.
    ///
    /// # Errors
    /// When the bytes do not match the directory.
    pub(crate) fn of(block: &Block<'_>, mut newest: Newest, reduced: bool) -> Result<Option<Leaps>, FormatError> {
        let said = newest.is_none() && block.header().gap_before;
        let Some((sequence, session)) = block.sequences()? else {
            return Ok(Some(Leaps { at_start: said, inside: Vec::new(), newest }));
        };
        if sequence.valid.is_some() {
            return Ok(None);
        }
        let mut inside = rows_of(&sequence, &session, &mut newest, reduced);
        let at_start = inside.first() == Some(&0);
        inside.drain(..usize::from(at_start));
        Ok(Some(Leaps { at_start: at_start || said, inside, newest }))
    }

    /// Returns whether statistics of a channel, all of whose values are finite, leave out exactly the time over these
    /// leaps.
    ///
    /// The rows before the block when it was written may differ from those that a reader in time order finds before
    /// it. A frame that is missing before a row without the channel cuts the time between values that may lie in
    /// other blocks.
    ///
    /// # Errors
    /// When the bytes do not match the directory.
    pub(crate) fn agree(&self, block: &Block<'_>, statistics: &ColumnStatistics) -> Result<bool, FormatError> {
        let (Some(first), Some(last), Some(integral)) = (statistics.first, statistics.last, statistics.integral) else {
            return Ok(false);
        };
        let ends_valued = last.time == block.header().time.1;
        if mutant::is_active(Mutant::BelieveStatistics) || mutant::is_active(Mutant::BelieveEnds) && ends_valued {
            return Ok(true);
        }
        let mut known_ns = last.time.abs_diff(first.time);
        if !self.inside.is_empty() {
            if statistics.nulls() > 0 {
                return Ok(false);
            }
            let times = block.decode(&Layout::of_types(&[]), &[])?.times();
            let over = |row: &u32| times[*row as usize].abs_diff(times[*row as usize - 1]);
            known_ns = known_ns.saturating_sub(self.inside.iter().map(over).sum());
        }
        Ok(integral.known_ns == known_ns)
    }
}

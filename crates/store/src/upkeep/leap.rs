//! Leaps of the clock, as the log and the checkpoint record them.

use std::io;

use crate::engine::Engine;
use crate::model::mutant::{self, Mutant};
use crate::upkeep::sealer::Sealer;

impl Sealer {
    /// Records durably, after an opening and after a leap of the clock, that data stored since, or counted as such, is
    /// no older than that. The next opening has only instants to go by, and earlier ones may be of a wrong clock.
    pub(crate) fn note_leap(&mut self, engine: &Engine, now: i64) -> io::Result<()> {
        let not_before = self.ages.clock.not_before();
        let is_noted = self.ages.noted_leap == Some(not_before);
        if is_noted && !self.ages.mark_due || mutant::is_active(Mutant::ForgetLeap) {
            return Ok(());
        }
        if is_noted {
            self.ages.mark_due = !engine.mark_log(now)?;
            return Ok(());
        }
        let list = engine.shared.segments.load_full();
        for segment in list.iter() {
            if !self.ages.is_filled(segment) {
                continue;
            }
            segment.state.lock().not_before = not_before;
            self.checkpoints.note_segment(segment.clone());
        }
        if self.ages.clock.state().newest.is_some() {
            // Rows that are in the log alone are no older than its newest unit, wherever they are sealed. A full log is
            // marked when it has room.
            self.ages.mark_due = !engine.mark_log(now)?;
        }
        self.write_checkpoint(engine, None)?;
        self.ages.noted_leap = Some(not_before);
        Ok(())
    }
}

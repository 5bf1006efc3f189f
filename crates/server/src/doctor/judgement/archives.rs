//! Archives: what waits, and what is left out.

use strongback_archive::State;

use super::super::{ArchiveFacts, Cause, Facts, Finding};
use super::span;
use crate::text::plural::many;

/// Lag above which an archive that delivers is too slow, in seconds, after the time for which frames gather.
const LAG_S: f64 = 30.0;

/// Judges all archives. They are about now, and about no channel in particular.
pub(super) fn judge(facts: &Facts, found: &mut Vec<Finding>) {
    for archive in &facts.archives {
        of_archive(archive, found);
    }
}

fn of_archive(archive: &ArchiveFacts, found: &mut Vec<Finding>) {
    let status = &archive.status;
    let name = format!("archive {:?} ({})", archive.name, archive.address);
    let waiting = match status.behind_frames {
        0 => "nothing waits".to_owned(),
        frames => {
            let age = span((archive.lag_s * 1e9) as i64);
            format!("{} wait, the oldest for {age}", many(frames, "frame"))
        }
    };
    let error = status.last_error.as_ref().map_or_else(String::new, |(error, _)| format!(": {error}"));
    let finding = |text: String| Finding::new(Cause::Archive, text).count(status.behind_frames);
    match status.state {
        State::Stopped => found.push(
            finding(format!("{name} does not run{error}")).advise("mend what its configuration names, and start again"),
        ),
        State::Retrying => found.push(
            finding(format!("{name} delivers nothing{error}; {waiting}"))
                .advise("it tries again for ever; mend the target, then `strongback archive resume` tries at once"),
        ),
        State::Paused => found.push(
            finding(format!("{name} is paused; {waiting}"))
                .harmless()
                .advise(format!("`strongback archive resume {}` lets it continue", archive.name)),
        ),
        State::Following if status.suspended_streams > 0 => {
            let streams = many(status.suspended_streams, "stream");
            found.push(
                finding(format!("{name} delivers nothing of {streams}{error}; {waiting}"))
                    .advise("mend their tables there; the other streams go on"),
            );
        }
        State::Following if archive.lag_s > LAG_S + status.gather_s => found.push(
            finding(format!("{name} is late: {waiting}, {:.0} frames/s are delivered", status.frames_per_s))
                .advise("the target or max_bytes_per_s is too slow, or it catches up after an outage"),
        ),
        State::Starting | State::Following => {}
    }
    if status.rejected_frames > 0 {
        let frames = many(status.rejected_frames, "frame");
        let text = format!("{name} left out {frames} that the target rejects");
        let advice = format!("followers/{}.rejected.jsonl beside the store names them with the reasons", archive.name);
        found.push(Finding::new(Cause::Archive, text).count(status.rejected_frames).advise(advice));
    }
    if status.skipped_frames > 0 {
        let frames = many(status.skipped_frames, "frame");
        let text = format!("{name} missed {frames}, which expired or were damaged before they were delivered");
        let advice = "raise store.max_gib, so that frames outlast the outages of the target";
        found.push(Finding::new(Cause::Archive, text).count(status.skipped_frames).advise(advice));
    }
}

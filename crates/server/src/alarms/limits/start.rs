//! Start of the limits after a restart: frames recorded but not judged yet are judged, and the newest earlier value
//! of each channel is loaded.

use std::collections::HashMap;
use std::sync::Arc;

use strongback_store::{ChannelIndex, Scan, ScanError, Stream, StreamId, View};

use super::book::{AlarmStep, BothClocks, StepKind};
use super::history::Mark;
use super::judge::LimitFrame;
use super::{CATCH_UP_ROWS, LimitThread, Limits};
use crate::ingest::Ingest;
use crate::reception::replay;
use crate::reception::value::{FromValue as _, LimitValue};

/// Max delay with which frames may have been appended after others of their time were judged, nanoseconds.
const BEFORE_NS: i64 = 2_000_000_000;
/// Max rows of a stream searched for the mark, in the first search and in total.
const LOOK_ROWS: u64 = 1_024;
const LOOK_ROWS_MAX: u64 = 1 << 20;

/// State in which an earlier opening of the store left off.
#[derive(Debug)]
pub(super) struct LeftOff {
    /// Receive time before which everything was judged, also what arrived late.
    cut: i64,
    /// Receive time up to which everything that had arrived was judged.
    judged_until: i64,
    /// Receive time of the newest change reported since, by channel and limit.
    told: HashMap<(Arc<str>, Arc<str>), i64>,
}

impl LeftOff {
    /// Creates the state from the newest mark. Frames from shortly before it are judged again, in case some arrived
    /// late.
    pub(super) fn at(mark: Mark) -> LeftOff {
        let cut = mark.judged_until.saturating_sub(BEFORE_NS).max(mark.since);
        LeftOff { cut, judged_until: mark.judged_until, told: HashMap::new() }
    }

    /// Notes a recorded step; calls must be in recorded order.
    pub(super) fn note(&mut self, step: &AlarmStep) {
        if step.receive_time >= self.cut && matches!(step.kind, StepKind::Level { .. }) {
            self.told.insert((step.channel.clone(), step.rule.clone()), step.receive_time);
        }
    }
}

/// Stream, its wanted channels, and how many of them were wanted before.
pub(super) type AddedChannels = (Arc<Stream>, Vec<ChannelIndex>, usize);

/// Returns the frames of a stream received from `cut` on, and how many more were not read.
fn since(
    view: &View,
    stream: StreamId,
    channels: &[ChannelIndex],
    cut: i64,
) -> Result<(Vec<LimitFrame>, u64), ScanError> {
    let next = view.next_row(stream);
    let (mut frames, mut unjudged, mut end, mut most) = (Vec::new(), 0, next, LOOK_ROWS);
    loop {
        let looked = next - end;
        let is_read = looked < CATCH_UP_ROWS;
        let rows = end.saturating_sub(if is_read { most.min(CATCH_UP_ROWS - looked) } else { most })..end;
        if rows.is_empty() || looked >= LOOK_ROWS_MAX {
            return Ok((frames, unjudged));
        }
        (end, most) = (rows.start, most * 2);
        let mut is_passed = false;
        let mut part = Vec::new();
        for batch in view.scan(Scan { rows, ..Scan::all(stream, channels.to_vec()) }) {
            let batch = batch?;
            is_passed |= batch.receive_time.iter().any(|received| *received < cut);
            let new = replay::sightings(&batch, channels).filter(|frame: &LimitFrame| frame.receive_time >= cut);
            match is_read {
                true => part.extend(new),
                false => unjudged += new.count() as u64,
            }
        }
        part.append(&mut frames);
        frames = part;
        if is_passed {
            return Ok((frames, unjudged));
        }
    }
}

impl Limits {
    /// Continues at a start, from what `view` has of these streams.
    pub(super) fn go_on(
        &self,
        work: &mut LimitThread,
        ingest: &Ingest,
        (view, found): (&View, &[AddedChannels]),
        clocks: BothClocks,
    ) {
        let now = clocks.0;
        let left = self.left.lock().take();
        // Limits that never ran before judge from now on.
        let cut = left.as_ref().map_or(i64::MAX, |left| left.cut);
        let mut primed = Vec::new();
        for (stream, channels, _) in found {
            work.seen.insert(stream.id, view.next_row(stream.id));
            let new = match left.is_some() {
                true => since(view, stream.id, channels, cut),
                false => Ok(Default::default()),
            };
            let (frames, unjudged) = new.unwrap_or_else(|error| {
                tracing::error!(%error, "rows of {} were not judged", stream.key);
                Default::default()
            });
            self.count_unjudged(work, unjudged);
            let cells = match frames.iter().map(|frame| frame.time).min() {
                Some(first) => view.state_at(stream.id, first.saturating_sub(1), channels),
                // A time after everything was judged is that of a clock that ran ahead, and may be right since.
                None => view.latest(stream.id, now, cut.min(now), channels),
            };
            let cells = cells.unwrap_or_else(|error| {
                tracing::error!(%error, "the newest values of {} are not known to limits", stream.key);
                Vec::new()
            });
            for (channel, cell) in channels.iter().zip(cells) {
                let Some(cell) = cell else { continue };
                let value = cell.value.as_ref().map(|value| value.as_value());
                let Some(reading) = value.and_then(LimitValue::from_value) else { continue };
                let at = cell.receive_time.max(cut).min(now);
                let by = at.saturating_sub(cell.receive_time);
                primed.push((stream.id, *channel, (cell.time.saturating_add(by), at), reading));
            }
            frames.into_iter().for_each(|frame| self.hold(work, frame, now));
        }
        work.judge.prime(&primed);
        self.judge_all(work);
        // What is judged again comes to where it was left: a value that became too old is not new.
        let mut verdicts = match &left {
            Some(left) => work.judge.pass(left.judged_until),
            None => work.judge.take(),
        };
        if let Some(left) = left {
            let newest = |rule: &Arc<str>, channel: &Arc<str>| left.told.get(&(channel.clone(), rule.clone())).copied();
            verdicts.retain(|of| newest(&of.rule, &of.channel).is_none_or(|told| of.change.receive_time > told));
        }
        self.tell(ingest, verdicts, clocks);
        {
            let book = self.book.lock();
            work.judge.go_on(now, |rule, channel| book.told(rule, channel));
        }
        let verdicts = work.judge.take();
        self.tell(ingest, verdicts, clocks);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use strongback_store::{FaultDisk, Value};

    use super::super::MARK_IDLE_NS;
    use super::super::tests::{MS, RULES, Rig, S};

    /// Restarts an hour after a kill; what was appended until then is durable.
    fn start_again(rig: Rig) -> Rig {
        rig.ingest.store().commit(rig.now()).expect("committed");
        let disk = rig.disk.after_kill();
        let (steady, text) = (rig.steady + 3_600 * S, rig.text);
        drop(rig);
        Rig::on(text, disk, steady)
    }

    #[test]
    fn silence_counts_from_a_start_and_a_channel_that_does_not_come_again_is_stale() {
        let mut rig = Rig::new();
        rig.pass(S, Some(1.0));
        let mut rig = start_again(rig);
        rig.pass(900 * MS, None);
        assert_eq!(rig.alarms(), [""; 0]);
        rig.pass(200 * MS, None);
        assert_eq!(rig.alarms(), ["stale"]);
    }

    #[test]
    fn a_clock_that_was_set_right_before_a_start_is_not_the_newest() {
        let mut rig = Rig::new();
        rig.pass(100 * MS, Some(1.0));
        let stamped = |rig: &Rig, ahead: i64, value: f64| {
            let stream = rig.ingest.store().catalog().streams.iter().find(|s| s.key.table == "a").expect("a").id;
            let mut batch = strongback_store::FrameBatch::new();
            let receive_time = rig.now();
            batch.begin(strongback_store::FrameHead {
                stream,
                receive_time,
                source_time: Some(receive_time + ahead),
                sequence: None,
            });
            batch.push(strongback_store::ChannelIndex(0), Value::F64(value));
            batch.end();
            let _ = strongback_sources::Sink::accept(&*rig.ingest, &batch);
        };
        stamped(&rig, 1_800 * S, 99.0);
        rig.pass(100 * MS, None);
        assert_eq!(rig.alarms(), ["high"]);
        stamped(&rig, 0, 1.0);
        // Until it is recorded that both were judged.
        rig.pass(MARK_IDLE_NS + 3 * S, None);
        assert_eq!(rig.alarms(), ["stale"]);
        let mut rig = start_again(rig);
        rig.pass(100 * MS, None);
        assert_eq!(rig.alarms(), ["stale"]);
    }

    const RATE: &str = "[[limit]]\nname = \"rate\"\nchannels = [\"a.x\"]\nwarning = { high = 10 }\n\
                        rate_hz = { low = 40 }\nrate_window_ms = 500";

    #[test]
    fn the_time_without_a_server_is_no_low_rate() {
        let mut rig = Rig::on(RATE, FaultDisk::new(1), 0);
        rig.pass(3 * S, Some(1.0));
        let mut rig = start_again(rig);
        let steps = rig.limits.steps.lock().next_number();
        // Its first value arrives some time after the start.
        rig.pass(300 * MS, None);
        rig.pass(3 * S, Some(1.0));
        assert_eq!((rig.alarms(), rig.limits.steps.lock().next_number()), (vec![], steps));
        // A channel that stays silent is slow after a window, and remains so after a restart until it is well for a
        // window.
        let mut rig = start_again(rig);
        rig.pass(400 * MS, None);
        assert_eq!(rig.alarms(), [""; 0]);
        rig.pass(300 * MS, None);
        assert_eq!(rig.alarms(), ["rate"]);
        let mut rig = start_again(rig);
        rig.pass(400 * MS, Some(1.0));
        assert_eq!(rig.alarms(), ["rate"]);
        rig.pass(2 * S, Some(1.0));
        assert_eq!(rig.alarms(), [""; 0]);
    }

    #[test]
    fn a_context_that_was_said_once_holds_after_a_start() {
        let text = "[[limit]]\nname = \"high\"\nchannels = [\"a.x\"]\nwarning = { high = 10 }\n\
                    while = { channel = \"m.state\", is = [\"RUN\"] }";
        let mut rig = Rig::on(text, FaultDisk::new(1), 0);
        rig.send("m", "state", Value::String("RUN"));
        rig.pass(5 * S, Some(1.0));
        let mut rig = start_again(rig);
        rig.pass(100 * MS, Some(99.0));
        assert_eq!(rig.alarms(), ["high"]);
        let mut rig = start_again(rig);
        rig.pass(100 * MS, Some(99.0));
        assert_eq!(rig.alarms(), ["high"]);
        rig.send("m", "state", Value::String("SAFE"));
        rig.pass(100 * MS, Some(99.0));
        assert_eq!(rig.alarms(), [""; 0]);
    }

    #[test]
    fn what_was_recorded_and_not_judged_before_a_kill_is_judged_at_the_start_and_told_once() {
        let mut rig = Rig::new();
        rig.pass(S, Some(1.0));
        // A spike of one sample, and a kill before the limits' next turn.
        rig.send("a", "x", Value::F64(99.0));
        rig.send("a", "x", Value::F64(1.0));
        let mut rig = start_again(rig);
        let states = |rig: &Rig| rig.limits.alarms().iter().map(|alarm| alarm.state).collect::<Vec<_>>();
        assert_eq!(states(&rig), ["cleared"]);
        rig.pass(20 * MS, Some(1.0));
        let steps = rig.limits.steps.lock().next_number();
        assert_eq!(steps, 2, "raised and cleared");
        // Killed again at once, with everything still after the mark: nothing is reported twice.
        let mut rig = start_again(rig);
        assert_eq!(states(&rig), ["cleared"]);
        rig.pass(100 * MS, Some(1.0));
        assert_eq!(rig.limits.steps.lock().next_number(), steps);
        assert_eq!(rig.limits.counters.unjudged.load(Relaxed), 0);
    }

    #[test]
    fn a_value_that_was_too_old_before_a_kill_is_not_new_after_it() {
        for (wait, kills) in [(1_200 * MS, 1), (2 * S, 2), (12 * S, 3)] {
            let mut rig = Rig::new();
            rig.send("a", "x", Value::F64(1.0));
            rig.pass(wait, None);
            assert_eq!(rig.alarms(), ["stale"]);
            let steps = rig.limits.steps.lock().next_number();
            for _ in 0..kills {
                rig = start_again(rig);
                rig.pass(100 * MS, None);
                assert_eq!((rig.alarms(), rig.limits.steps.lock().next_number()), (vec!["stale".to_owned()], steps));
            }
            rig.pass(100 * MS, Some(1.0));
            assert_eq!(rig.alarms(), [""; 0]);
        }
    }

    #[test]
    fn what_was_put_aside_and_what_is_known_lives_through_a_failing_disk() {
        let mut rig = Rig::new();
        rig.pass(S, Some(1.0));
        rig.pass(300 * MS, Some(99.0));
        assert_eq!(rig.alarms(), ["high"]);
        // Not judged yet when the store is reopened, and not in it.
        rig.send("b", "x", Value::F64(99.0));
        rig.pass(10 * MS, Some(99.0));
        rig.disk.fail_syncs("log", 1);
        rig.send("a", "x", Value::F64(99.0));
        let (ingest, mut reopened) = (rig.ingest.clone(), rig.ingest.reopened());
        let commits = std::thread::spawn(move || ingest.run_commits(Duration::from_millis(1)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(reopened.changed()).expect("opened again");
        rig.ingest.stop();
        commits.join().expect("ended");
        // After the reopening, and before the limits' turn.
        rig.send("a", "x", Value::F64(99.0));
        rig.pass(300 * MS, Some(99.0));
        // Values that persisted across the reopening count; the stream that lost its only frame is still monitored.
        assert_eq!(rig.alarms(), ["high", "high b", "persists"]);
        rig.pass(2 * S, None);
        assert_eq!(rig.alarms(), ["high", "high b", "persists", "stale", "stale b"]);
        assert_eq!(rig.limits.counters.unjudged.load(Relaxed), 0);
        // Steps that were appended before the disk failed are in the reopened store, each once.
        let mut raised = Vec::new();
        crate::alarms::limits::history::steps(&rig.ingest.store().view(), |step| raised.push(step.rule.clone()))
            .expect("read");
        raised.sort_unstable();
        assert_eq!(raised.iter().map(|rule| &**rule).collect::<Vec<_>>(), rig.alarms());
    }

    #[test]
    fn rows_of_a_new_stream_that_are_too_many_are_counted() {
        let mut rig = Rig::on(RULES, FaultDisk::new(1), 0);
        let rows = super::CATCH_UP_ROWS + 7;
        rig.send_all("a", "x", (0..rows).map(|at| Value::F64(at as f64 / 1e6)));
        rig.pass(10 * MS, None);
        assert_eq!(rig.limits.counters.unjudged.load(Relaxed), 7);
    }
}

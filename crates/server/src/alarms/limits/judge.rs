//! All limits over all their channels: takes frames in the order of reception, and returns changes of level.
//!
//! Pure: live, in replay and over the past it gets frames in the same order (see [`crate::reception::order`]), and
//! gives the same results.

use std::collections::HashMap;
use std::sync::Arc;

use strongback_store::{Channel, ChannelId, ChannelIndex, Pattern, Stream, StreamId};

use super::machine::{LevelChange, LimitState};
use super::rule::{Context, Level, Rule, Why};
use crate::reception;
use crate::reception::value::LimitValue;

/// Max channels under limits, counted once per limit: about 450 bytes each.
pub const MACHINES_MAX: usize = 200_000;

/// Frame as limits see it.
pub type LimitFrame = reception::TappedFrame<LimitValue>;

/// Change of a channel under a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Name of the limit.
    pub rule: Arc<str>,
    /// Full name of the channel.
    pub channel: Arc<str>,
    /// Change of level.
    pub change: LevelChange,
}

#[derive(Debug)]
struct Judged {
    rule: usize,
    name: Arc<str>,
    machine: LimitState,
}

/// Channel that decides whether limits apply.
#[derive(Debug)]
struct Switch {
    channel: String,
    /// Newest reading, and its receive time.
    reading: Option<(LimitValue, i64)>,
    /// Indexes of what is judged only while it allows it.
    judged: Vec<usize>,
}

impl Switch {
    /// Switches off, or on, what a reading switches off, or on. Returns the changes that it causes.
    fn turn(
        &self,
        (reading, receive_time): (&LimitValue, i64),
        on: bool,
        rules: &[Rule],
        judged: &mut [Judged],
    ) -> Vec<(usize, LevelChange)> {
        let (mut found, mut changes) = (Vec::new(), Vec::new());
        if self.reading.as_ref().is_some_and(|(before, _)| before == reading) {
            return found;
        }
        for &at in &self.judged {
            let Judged { rule, machine, .. } = &mut judged[at];
            let rule = &rules[*rule];
            if rule.context.as_ref().is_some_and(|context| context.holds(reading)) == on {
                machine.context(rule, on, receive_time, &mut changes);
                found.extend(changes.drain(..).map(|change| (at, change)));
            }
        }
        found
    }

    /// Notes a reading as the newest.
    fn note(&mut self, reading: &LimitValue, receive_time: i64) {
        if self.reading.as_ref().is_none_or(|(before, _)| before != reading) {
            self.reading = Some((reading.clone(), receive_time));
        }
    }
}

/// Uses of a channel's readings.
#[derive(Debug)]
struct Uses {
    channel: ChannelIndex,
    judged: Vec<usize>,
    switch: Option<usize>,
}

/// All limits with their state.
#[derive(Debug)]
pub struct Judge {
    rules: Arc<[Rule]>,
    names: Vec<Arc<str>>,
    judged: Vec<Judged>,
    switches: Vec<Switch>,
    streams: HashMap<StreamId, Vec<Uses>>,
    /// Number of channels of each stream that were adopted.
    known: HashMap<StreamId, usize>,
    /// Full names of channels under limits, each with the first channel of that name.
    named: HashMap<String, ChannelId>,
    /// Indexes of what was judged before the store was reopened and numbers changed, by limit and name.
    kept: HashMap<(usize, Arc<str>), usize>,
    left_out: u64,
    changes: Vec<LevelChange>,
    verdicts: Vec<(usize, LevelChange)>,
}

impl Judge {
    /// Creates a judge of these rules, without streams.
    pub fn new(rules: Arc<[Rule]>) -> Self {
        let mut switches: Vec<Switch> = Vec::new();
        for context in rules.iter().filter_map(|rule| rule.context.as_ref()) {
            if switches.iter().all(|switch| switch.channel != context.channel) {
                switches.push(Switch { channel: context.channel.clone(), reading: None, judged: Vec::new() });
            }
        }
        Judge {
            names: rules.iter().map(|rule| Arc::from(rule.name.as_str())).collect(),
            rules,
            judged: Vec::new(),
            switches,
            streams: HashMap::new(),
            known: HashMap::new(),
            named: HashMap::new(),
            kept: HashMap::new(),
            left_out: 0,
            changes: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Notes the names of a stream's new channels. Call it for all existing streams before any is adopted, so that
    /// the owner of a name does not depend on their order.
    pub fn note(&mut self, stream: &Stream) {
        let known = self.known.get(&stream.id).copied().unwrap_or(0);
        for channel in stream.layout.channels.iter().skip(known) {
            let is_judged = |pattern: &Pattern| pattern.matches(&stream.key, &channel.name);
            if self.rules.iter().any(|rule| rule.channels.iter().any(is_judged)) {
                let first = self.named.entry(stream.key.channel_name(&channel.name)).or_insert(channel.id);
                *first = channel.id.min(*first);
            }
        }
    }

    /// Returns the name of a channel in alarms: its full name. If an older channel has the same full name (`p` of
    /// `engine.lox`, and `lox.p` of `engine`), its own name is put in quotes.
    fn label(&self, stream: &Stream, channel: &Channel) -> String {
        let full = stream.key.channel_name(&channel.name);
        match self.named.get(&full) {
            Some(first) if *first != channel.id => stream.key.quoted_channel_name(&channel.name),
            _ => full,
        }
    }

    /// Adopts a stream that is new, or has new channels, after [`Judge::note`]. `told` returns the level at which a
    /// limit left a channel before a restart. If more channels are wanted now, returns all wanted ones, and how many
    /// of them were wanted before.
    pub fn adopt(
        &mut self,
        stream: &Stream,
        told: impl Fn(&str, &str) -> Option<(Level, Option<Why>)>,
    ) -> Option<(Vec<ChannelIndex>, usize)> {
        let before = self.streams.get(&stream.id).map_or(0, Vec::len);
        let known = self.known.insert(stream.id, stream.layout.channels.len()).unwrap_or(0);
        let rules = self.rules.clone();
        for (at, channel) in stream.layout.channels.iter().enumerate().skip(known) {
            let full = self.label(stream, channel);
            let mut judged = Vec::new();
            for (number, rule) in rules.iter().enumerate() {
                if !rule.channels.iter().any(|pattern| pattern.matches(&stream.key, &channel.name)) {
                    continue;
                }
                if let Some(at) = self.kept.remove(&(number, Arc::from(full.as_str()))) {
                    judged.push(at);
                    continue;
                }
                if self.judged.len() >= MACHINES_MAX {
                    self.left_out += 1;
                    continue;
                }
                let mut machine = LimitState::new(rule);
                if let Some((level, why)) = told(&rule.name, &full) {
                    machine.resume(rule, level, why);
                }
                judged.push(self.judged.len());
                self.judged.push(Judged { rule: number, name: full.as_str().into(), machine });
                if let Some(context) = &rule.context {
                    self.switch(self.judged.len() - 1, context);
                }
            }
            let switch = self.switches.iter().position(|switch| switch.channel == full);
            if switch.is_some() || !judged.is_empty() {
                let uses = Uses { channel: ChannelIndex(at as u16), judged, switch };
                self.streams.entry(stream.id).or_default().push(uses);
            }
        }
        let wanted = self.streams.get(&stream.id).filter(|uses| uses.len() > before)?;
        Some((wanted.iter().map(|uses| uses.channel).collect(), before))
    }

    /// Registers an entry with the channel that decides whether its limit applies.
    fn switch(&mut self, judged: usize, context: &Context) {
        for switch in self.switches.iter_mut().filter(|switch| switch.channel == context.channel) {
            switch.judged.push(judged);
            // Without a value of that channel it is not known.
            let Some((reading, received)) = &switch.reading else { continue };
            let Judged { rule, machine, .. } = &mut self.judged[judged];
            machine.context(&self.rules[*rule], context.holds(reading), *received, &mut self.changes);
            self.verdicts.extend(self.changes.drain(..).map(|change| (judged, change)));
        }
    }

    /// Takes the newest readings recorded before the judge began, each with its stream and times. Readings that
    /// decide whether limits apply are taken first.
    pub fn prime(&mut self, newest: &[(StreamId, ChannelIndex, (i64, i64), LimitValue)]) {
        for of_switches in [true, false] {
            for (stream, channel, times, reading) in newest {
                let uses = self.streams.get(stream).and_then(|uses| uses.iter().find(|uses| uses.channel == *channel));
                let Some(Uses { judged, switch, .. }) = uses else { continue };
                if of_switches {
                    if let Some(at) = *switch {
                        let switch = &mut self.switches[at];
                        for on in [false, true] {
                            self.verdicts.extend(switch.turn((reading, times.1), on, &self.rules, &mut self.judged));
                        }
                        switch.note(reading, times.1);
                    }
                    continue;
                }
                for &at in judged {
                    let Judged { rule, machine, .. } = &mut self.judged[at];
                    machine.prime(&self.rules[*rule], *times, reading.clone(), &mut self.changes);
                    self.verdicts.extend(self.changes.drain(..).map(|change| (at, change)));
                }
            }
        }
    }

    /// Continues at an instant of reception, after stored data: see [`LimitState::go_on`]. `told` returns the level
    /// in the alarm list.
    pub fn go_on(&mut self, receive_time: i64, told: impl Fn(&str, &str) -> Option<(Level, Option<Why>)>) {
        for (at, Judged { rule, name, machine }) in self.judged.iter_mut().enumerate() {
            let rule = &self.rules[*rule];
            let told = told(&rule.name, name).unwrap_or_default();
            machine.go_on(rule, receive_time, told, &mut self.changes);
            self.verdicts.extend(self.changes.drain(..).map(|change| (at, change)));
        }
    }

    /// Handles a reopened store: drops the numbers of streams and channels, but keeps their state.
    pub fn forget_numbers(&mut self) {
        self.streams.clear();
        self.known.clear();
        self.named.clear();
        let kept = self.judged.iter().enumerate();
        self.kept = kept.map(|(at, judged)| ((judged.rule, judged.name.clone()), at)).collect();
    }

    /// Takes a frame; calls must be in the order of reception. Whether limits apply is decided by the frame as a whole,
    /// whatever the order of its channels.
    pub fn frame(&mut self, frame: &LimitFrame) {
        let Some(uses) = self.streams.get(&frame.stream) else { return };
        let uses_of = |channel| uses.iter().find(|uses: &&Uses| uses.channel == channel);
        let switch_of = |channel| uses_of(channel).and_then(|uses| uses.switch);
        let switched = || frame.readings.iter().filter_map(|(channel, of)| Some((switch_of(*channel)?, of)));
        // What no longer applies does not judge the frame, and what applies from it on judges none of before.
        for (at, reading) in switched() {
            let reading = (reading, frame.receive_time);
            self.verdicts.extend(self.switches[at].turn(reading, false, &self.rules, &mut self.judged));
        }
        for (channel, reading) in &frame.readings {
            for &at in uses_of(*channel).map_or(&[][..], |uses| &uses.judged) {
                let Judged { rule, machine, .. } = &mut self.judged[at];
                let times = (frame.time, frame.receive_time);
                machine.value(&self.rules[*rule], times, reading.clone(), &mut self.changes);
                self.verdicts.extend(self.changes.drain(..).map(|change| (at, change)));
            }
        }
        for (at, reading) in switched() {
            let now = (reading, frame.receive_time);
            self.verdicts.extend(self.switches[at].turn(now, true, &self.rules, &mut self.judged));
            self.switches[at].note(reading, frame.receive_time);
        }
    }

    /// Shifts all instants of reception by `by_ns`, because the clock was set by that much after the latest frame.
    pub fn leap(&mut self, by_ns: i64) {
        for Judged { rule, machine, .. } in &mut self.judged {
            machine.leap(&self.rules[*rule], by_ns);
        }
    }

    /// Advances the clock; everything received before `receive_time` must have been passed in. Returns all changes
    /// since the last call, including those due until then, in order.
    pub fn pass(&mut self, receive_time: i64) -> Vec<Verdict> {
        for (at, Judged { rule, machine, .. }) in self.judged.iter_mut().enumerate() {
            machine.pass(&self.rules[*rule], receive_time, &mut self.changes);
            self.verdicts.extend(self.changes.drain(..).map(|change| (at, change)));
        }
        self.take()
    }

    /// Returns all changes since the last call, in order.
    pub fn take(&mut self) -> Vec<Verdict> {
        // Changes of one channel under one limit are in order already.
        let judged = &self.judged;
        let key = |(at, change): &(usize, LevelChange)| (change.receive_time, &judged[*at].name, judged[*at].rule);
        self.verdicts.sort_by(|a, b| key(a).cmp(&key(b)));
        let named = |(at, change): (usize, LevelChange)| {
            let Judged { rule, name, .. } = &self.judged[at];
            Verdict { rule: self.names[*rule].clone(), channel: name.clone(), change }
        };
        self.verdicts.drain(..).map(named).collect()
    }

    /// Returns the number of channels under limits, counted once per limit, and how many did not fit.
    pub fn counts(&self) -> (usize, u64) {
        (self.judged.len(), self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::all;
    use super::*;
    use crate::reception::order::Order;
    use strongback_store::{ChannelType, Clock, Interpolation, Layout, Reduction, StreamKey};

    const MS: i64 = 1_000_000;

    fn stream(id: u32, table: &str, channels: &[&str]) -> Stream {
        let channel = |(at, name): (usize, &&str)| Channel {
            id: ChannelId(id * 100 + at as u32),
            name: (*name).to_owned(),
            source_name: (*name).to_owned(),
            channel_type: ChannelType::F64,
            unit: String::new(),
            description: String::new(),
            interpolation: Interpolation::Linear,
            reduction: Reduction::None,
        };
        Stream {
            id: StreamId(id),
            key: StreamKey::new(table, []),
            source: "s".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            layout: Arc::new(Layout { version: 1, channels: channels.iter().enumerate().map(channel).collect() }),
        }
    }

    fn judge() -> Judge {
        let text = r#"
            [[limit]]
            channels = ["a.*"]
            watch = { high = 10 }
            critical = { high = 20 }
            persist_ms = 3
            stale_ms = 15
            [[limit]]
            name = "while it runs"
            channels = ["a.x"]
            warning = { low = 0 }
            rate_hz = { low = 200 }
            rate_window_ms = 20
            while = { channel = "b.state", is = [1] }
            [[limit]]
            name = "rate"
            channels = ["a.*"]
            rate_hz = { low = 150, high = 400 }
            rate_window_ms = 25
            persist_ms = 2
            stale_ms = 30
            stale = "watch"
            critical = { high = 22 }
        "#;
        let mut judge = Judge::new(all(text));
        let wanted = |judge: &mut Judge, stream: Stream| judge.adopt(&stream, |_, _| None);
        let (x, y) = (ChannelIndex(0), ChannelIndex(1));
        assert_eq!(wanted(&mut judge, stream(1, "a", &["x"])), Some((vec![x], 0)));
        assert_eq!(wanted(&mut judge, stream(1, "a", &["x", "y"])), Some((vec![x, y], 1)));
        assert_eq!(wanted(&mut judge, stream(1, "a", &["x", "y"])), None);
        assert_eq!(wanted(&mut judge, stream(2, "b", &["state", "z"])), Some((vec![x], 0)));
        assert_eq!(wanted(&mut judge, stream(3, "c", &["x"])), None);
        assert_eq!(judge.counts(), (5, 0));
        judge
    }

    #[test]
    fn channels_with_one_printed_name_have_alarms_of_their_own() {
        let (older, newer) = (stream(1, "engine", &["lox.p"]), stream(2, "engine.lox", &["p"]));
        for order in [[&older, &newer], [&newer, &older]] {
            let mut judge = Judge::new(all("[[limit]]\nchannels = [\"engine*\"]\nwarning = { high = 10 }"));
            order.iter().for_each(|stream| judge.note(stream));
            order.iter().for_each(|stream| _ = judge.adopt(stream, |_, _| None));
            let reading = vec![(ChannelIndex(0), LimitValue::Number(99.0))];
            for id in [1, 2] {
                let stream = StreamId(id);
                judge.frame(&LimitFrame { stream, row: Some(0), time: 5, receive_time: 5, readings: reading.clone() });
            }
            let names: Vec<Arc<str>> = judge.pass(6).into_iter().map(|verdict| verdict.channel).collect();
            assert_eq!(names, [r#"engine.lox."p""#.into(), "engine.lox.p".into()] as [Arc<str>; 2]);
        }
    }

    #[test]
    fn a_frame_that_switches_a_limit_off_is_not_judged_by_it_whatever_the_order_of_its_channels() {
        let rules = "[[limit]]\nchannels = [\"e.x\"]\nwarning = { high = 10 }\n\
                     while = { channel = \"e.state\", is = [1] }";
        let (x, state) = (ChannelIndex(0), ChannelIndex(1));
        for order in [[x, state], [state, x]] {
            let mut judge = Judge::new(all(rules));
            judge.adopt(&stream(1, "e", &["x", "state"]), |_, _| None);
            let mut at = 0;
            let mut frame = |judge: &mut Judge, value: f64, mode: f64| {
                at += MS;
                let of = |channel| LimitValue::Number(if channel == x { value } else { mode });
                let readings = order.iter().map(|channel| (*channel, of(*channel))).collect();
                judge.frame(&LimitFrame { stream: StreamId(1), row: Some(0), time: at, receive_time: at, readings });
                judge.take().len()
            };
            let changes = [(1.0, 1.0), (99.0, 0.0), (1.0, 1.0), (99.0, 1.0), (99.0, 0.0)];
            let found: Vec<usize> = changes.iter().map(|(value, mode)| frame(&mut judge, *value, *mode)).collect();
            // Raised while it applied, and cleared when it no longer did.
            assert_eq!(found, [0, 0, 0, 1, 1], "{order:?}");
        }
    }

    /// Frames with jitter between reception and arrival; those past their turn are judged late in both.
    #[test]
    fn live_and_the_past_say_the_same_however_the_clock_ticks() {
        let (mut told, mut late, mut slow, mut fast) = (0, 0, 0, 0);
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut frames = Vec::new();
            let (mut at, mut x) = (0, 0.0_f64);
            for row in 0..200 {
                let most = if random.u8(0..30) == 0 { 40 } else { 4 };
                at += random.i64(0..most) * MS;
                x = (x + f64::from(random.i8(-6..=6))).clamp(-5.0, 25.0);
                let (stream, reading) = match random.u8(0..8) {
                    0 => (2, LimitValue::Number(f64::from(random.u8(0..2)))),
                    _ => (1, LimitValue::Number(x)),
                };
                let readings = vec![(ChannelIndex(if stream == 1 { random.u16(0..2) } else { 0 }), reading)];
                let time = at - random.i64(0..3) * MS;
                frames.push(LimitFrame { stream: StreamId(stream), row: Some(row), time, receive_time: at, readings });
            }
            let mut arrivals: Vec<(i64, LimitFrame)> =
                frames.iter().map(|frame| (frame.receive_time + random.i64(0..14) * MS, frame.clone())).collect();
            arrivals.sort_by_key(|(arrival, _)| *arrival);
            // Rows of a stream are numbered in the order of arrival.
            let (mut live, mut order, mut verdicts) = (judge(), Order::default(), Vec::new());
            let mut stored: Vec<LimitFrame> = Vec::new();
            for (row, (now, mut frame)) in arrivals.into_iter().enumerate() {
                frame.row = Some(row as u64);
                let turn = order.turn(frame.receive_time);
                late += u64::from(turn > frame.receive_time);
                frame.receive_time = turn;
                stored.push(frame.clone());
                order.push(turn, frame.stream, frame.row, frame);
                if random.bool() {
                    while let Some(frame) = order.pop_before(now - 10 * MS) {
                        live.frame(&frame);
                    }
                    verdicts.extend(live.pass(now - 10 * MS));
                }
            }
            while let Some(frame) = order.pop_before(i64::MAX) {
                live.frame(&frame);
            }
            verdicts.extend(live.pass(at + 100 * MS));

            let mut past = judge();
            stored.sort_by_key(|frame| (frame.receive_time, frame.stream.0, frame.row));
            stored.iter().for_each(|frame| past.frame(frame));
            assert_eq!(verdicts, past.pass(at + 100 * MS), "seed {seed}");
            told += verdicts.len();
            let why = |why| verdicts.iter().filter(|verdict| verdict.change.why == Some(why)).count();
            (slow, fast) = (slow + why(Why::Slow), fast + why(Why::Fast));
        }
        assert!(told > 1_000 && late > 1_000, "{told} {late}");
        assert!(slow > 100 && fast > 100, "{slow} {fast}");
    }

    /// The same values, with a clock that is set at some moment: the reports are the same, by the new clock.
    #[test]
    fn a_clock_that_is_set_changes_no_verdict() {
        const S: i64 = 1_000_000_000;
        let mut told = 0;
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let by = S * [-7_200, 7_200, -1, 31 * 86_400][random.usize(0..4)];
            let (mut steady, mut set) = (judge(), judge());
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            let (mut at, mut x, mut shift, leaps_at) = (100_000 * S, 0.0_f64, 0, random.u64(0..200));
            for row in 0..200 {
                let most = if random.u8(0..30) == 0 { 40 } else { 4 };
                at += random.i64(0..most) * MS;
                x = (x + f64::from(random.i8(-6..=6))).clamp(-5.0, 25.0);
                expected.extend(steady.pass(at));
                let mut passed = set.pass(at + shift);
                passed.iter_mut().for_each(|verdict| {
                    verdict.change.time -= shift;
                    verdict.change.receive_time -= shift;
                });
                found.extend(passed);
                if row == leaps_at {
                    shift = by;
                    set.leap(by);
                }
                let reading = vec![(ChannelIndex(random.u16(0..2)), LimitValue::Number(x))];
                let frame = |at: i64| LimitFrame {
                    stream: StreamId(1),
                    row: Some(row),
                    time: at,
                    receive_time: at,
                    readings: reading.clone(),
                };
                steady.frame(&frame(at));
                set.frame(&frame(at + shift));
            }
            assert_eq!(found, expected, "seed {seed}, set by {by} at {leaps_at}");
            told += found.len();
        }
        assert!(told > 1_000, "{told}");
    }
}

//! List of alarms: raised, acknowledged, cleared, shelved. Every step is a row of `strongback.alarms`, and the rows
//! alone reproduce the list.
//!
//! A shelf ends at its time by the wall clock, or when it has lasted for its duration by the steady clock. However
//! the wall clock is set, no alarm is silent for longer than requested while the server runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::judge::Verdict;
use super::rule::{Level, Why};
use crate::text::json::Big;

/// Max bytes of the name and of the note of a person who acts on an alarm.
pub const WORDS_MAX: usize = 1024;

/// One step of an alarm: a row of `strongback.alarms`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmStep {
    /// Time of the step, nanoseconds since 1970 UTC.
    pub time: i64,
    /// Same instant by the clock of reception, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Name of the limit.
    pub rule: Arc<str>,
    /// Full name of the channel.
    pub channel: Arc<str>,
    /// Kind of the step.
    pub kind: StepKind,
}

/// Kind of a step of an alarm.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// Change of level or reason; to normal if it cleared.
    Level {
        /// Level before.
        from: Level,
        /// Level now.
        to: Level,
        /// Reason, unless it cleared.
        why: Option<Why>,
        /// Deciding value as a number.
        value: Option<f64>,
        /// Deciding value as text.
        text: String,
        /// Bound that was passed.
        bound: Option<f64>,
    },
    /// Acknowledgement by a person.
    Acknowledged {
        /// Name of the person.
        by: String,
        /// Note of the person.
        note: String,
    },
    /// Shelving: the alarm is silent for a while.
    Shelved {
        /// Name of the person.
        by: String,
        /// Note of the person.
        note: String,
        /// End of the shelf, nanoseconds since 1970 UTC.
        until: i64,
    },
    /// End of the shelving by a person.
    Unshelved {
        /// Name of the person.
        by: String,
    },
}

impl StepKind {
    /// Returns the name of the step, as stored.
    pub fn name(&self) -> &'static str {
        match self {
            StepKind::Level { to: Level::Normal, .. } => "cleared",
            StepKind::Level { from: Level::Normal, .. } => "raised",
            StepKind::Level { from, to, .. } if to > from => "worse",
            StepKind::Level { from, to, .. } if to < from => "better",
            StepKind::Level { .. } => "changed",
            StepKind::Acknowledged { .. } => "acknowledged",
            StepKind::Shelved { .. } => "shelved",
            StepKind::Unshelved { .. } => "unshelved",
        }
    }
}

impl AlarmStep {
    /// Creates the step of a verdict.
    pub fn of(verdict: Verdict) -> Self {
        let Verdict { rule, channel, change } = verdict;
        let value = match &change.value {
            Some(crate::reception::value::LimitValue::Number(number)) => Some(*number),
            _ => None,
        };
        let text = change.value.as_ref().map(ToString::to_string).unwrap_or_default();
        let super::machine::LevelChange { time, receive_time, from, to, why, bound, .. } = change;
        AlarmStep { time, receive_time, rule, channel, kind: StepKind::Level { from, to, why, value, text, bound } }
    }
}

/// Alarm as the API returns it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    #[serde(rename = "limit")]
    rule: Arc<str>,
    channel: Arc<str>,
    /// State: `raised`, `acknowledged`, or `cleared` (but not acknowledged).
    pub state: &'static str,
    /// Current level.
    pub level: &'static str,
    /// Worst level since it was raised.
    worst: &'static str,
    why: Option<&'static str>,
    value: Option<f64>,
    /// Deciding value as text.
    pub text: String,
    bound: Option<f64>,
    /// Time at which it was raised.
    raised: Big<i64>,
    /// Time of its last change of level.
    changed: Big<i64>,
    acknowledged: Option<Acknowledgement>,
    shelved: Option<Shelf>,
    #[serde(skip)]
    levels: (Level, Level),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Acknowledgement {
    by: String,
    note: String,
    time: Big<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Shelf {
    by: String,
    note: String,
    until: Big<i64>,
    /// Requested duration.
    #[serde(skip)]
    span: Duration,
    /// End by the steady clock.
    #[serde(skip)]
    end: Duration,
}

impl Shelf {
    fn is_over(&self, (now, steady): BothClocks) -> bool {
        self.until.0 <= now || self.end <= steady
    }
}

/// Wall clock, nanoseconds since 1970 UTC, and steady clock, at one instant.
pub type BothClocks = (i64, Duration);

/// Reason why an action on an alarm is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// No such alarm.
    #[error("there is no alarm of {channel} under limit {rule:?}")]
    NotFound {
        /// Name of the limit.
        rule: String,
        /// Full name of the channel.
        channel: String,
    },
    /// Alarm that is acknowledged already, and has not become worse since.
    #[error("already acknowledged by {by}")]
    Already {
        /// Name of the person who acknowledged it.
        by: String,
    },
    /// Alarm that is not shelved.
    #[error("not shelved")]
    NotShelved,
    /// Missing name, or a name or note that is too long.
    #[error("{what} has {size_bytes} bytes, must have {least} to {WORDS_MAX}")]
    Words {
        /// Text concerned: name or note.
        what: &'static str,
        /// Size of the text, bytes.
        size_bytes: usize,
        /// Min size, bytes.
        least: usize,
    },
    /// Duration that is too short or too long.
    #[error("the time must be between 1 s and 30 days")]
    Until,
}

/// Effect of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTaken {
    /// Whether to alert people: the alarm is new or worse, and not shelved.
    pub is_heard: bool,
    /// Whether the alarm is shelved.
    pub is_shelved: bool,
    /// Worst level of the alarm since it was raised.
    pub worst: Level,
}

/// All alarms that are not over. An alarm is over once it is cleared and acknowledged, and not shelved.
#[derive(Debug, Default)]
pub struct AlarmList {
    alarms: BTreeMap<(Arc<str>, Arc<str>), Alarm>,
}

impl AlarmList {
    /// Applies a recorded step, by the clock at its recording. Call [`AlarmList::go_on`] after the last one.
    pub fn take(&mut self, step: &AlarmStep) -> StepTaken {
        self.take_at(step, (step.receive_time, Duration::ZERO))
    }

    /// Applies a step at an instant. The step may have another time, from a clock that has been set since; whether
    /// the alarm is shelved is decided at this instant.
    pub fn take_at(&mut self, step: &AlarmStep, clocks: BothClocks) -> StepTaken {
        let key = (step.channel.clone(), step.rule.clone());
        if let Some(alarm) = self.alarms.get_mut(&key) {
            // An ended shelf must not return if the clock is set back.
            alarm.shelved.take_if(|shelf| shelf.is_over(clocks));
        }
        let worst = self.alarms.get(&key).map_or(Level::Normal, |alarm| alarm.levels.1);
        let mut taken = StepTaken { is_heard: false, is_shelved: false, worst };
        match &step.kind {
            StepKind::Level { from, to, why, value, text, bound } => {
                let alarm = self.alarms.entry(key.clone()).or_insert_with(|| Alarm {
                    rule: step.rule.clone(),
                    channel: step.channel.clone(),
                    state: "raised",
                    level: "",
                    worst: "",
                    why: None,
                    value: None,
                    text: String::new(),
                    bound: None,
                    raised: Big(step.time),
                    changed: Big(step.time),
                    acknowledged: None,
                    shelved: None,
                    levels: (Level::Normal, Level::Normal),
                });
                let is_worse = *to > alarm.levels.0;
                let is_worst = *to > alarm.levels.1;
                alarm.levels = (*to, alarm.levels.1.max(*to));
                // A person who acknowledged a warning has not seen it become critical, or return.
                if is_worst || *from == Level::Normal {
                    alarm.acknowledged = None;
                }
                (alarm.level, alarm.worst) = (to.name(), alarm.levels.1.name());
                (alarm.changed, alarm.why) = (Big(step.time), why.map(Why::name));
                (alarm.value, alarm.bound) = (*value, *bound);
                alarm.text.clone_from(text);
                let (is_shelved, worst) = (alarm.shelved.is_some(), alarm.levels.1);
                taken = StepTaken { is_heard: is_worse && !is_shelved, is_shelved, worst };
                self.tidy(&key);
            }
            StepKind::Acknowledged { by, note } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    let time = Big(step.time);
                    alarm.acknowledged = Some(Acknowledgement { by: by.clone(), note: note.clone(), time });
                }
                self.tidy(&key);
            }
            StepKind::Shelved { by, note, until } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    let span = duration(until.saturating_sub(step.receive_time));
                    let (by, note, end) = (by.clone(), note.clone(), clocks.1.saturating_add(span));
                    alarm.shelved = Some(Shelf { by, note, until: Big(*until), span, end });
                }
            }
            StepKind::Unshelved { .. } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    alarm.shelved = None;
                }
                self.tidy(&key);
            }
        }
        taken
    }

    /// Updates the state of an alarm, or removes it if it is over.
    fn tidy(&mut self, key: &(Arc<str>, Arc<str>)) {
        let Some(alarm) = self.alarms.get_mut(key) else { return };
        alarm.state = match (alarm.levels.0, &alarm.acknowledged) {
            (Level::Normal, Some(_)) if alarm.shelved.is_none() => {
                self.alarms.remove(key);
                return;
            }
            (Level::Normal, _) => "cleared",
            (_, Some(_)) => "acknowledged",
            (_, None) => "raised",
        };
    }

    /// Creates the step by which a person acknowledges an alarm.
    ///
    /// # Errors
    /// Returns an error if there is no such alarm, or it is acknowledged already.
    pub fn acknowledge(
        &self,
        (rule, channel): (&str, &str),
        (by, note): (&str, &str),
        now: i64,
    ) -> Result<AlarmStep, ActError> {
        words(by, note)?;
        let alarm = self.find(rule, channel)?;
        if let Some(acknowledged) = &alarm.acknowledged {
            return Err(ActError::Already { by: acknowledged.by.clone() });
        }
        Ok(alarm.step(now, StepKind::Acknowledged { by: by.to_owned(), note: note.to_owned() }))
    }

    /// Creates the step by which a person shelves an alarm for `span_ns`.
    ///
    /// # Errors
    /// Returns an error if there is no such alarm, or the duration is not allowed.
    pub fn shelve(
        &self,
        (rule, channel): (&str, &str),
        (by, note): (&str, &str),
        span_ns: i64,
        now: i64,
    ) -> Result<AlarmStep, ActError> {
        words(by, note)?;
        let alarm = self.find(rule, channel)?;
        if !(1_000_000_000..=30 * 86_400_000_000_000).contains(&span_ns) {
            return Err(ActError::Until);
        }
        let until = now.saturating_add(span_ns);
        Ok(alarm.step(now, StepKind::Shelved { by: by.to_owned(), note: note.to_owned(), until }))
    }

    /// Creates the step by which a person unshelves an alarm.
    ///
    /// # Errors
    /// Returns an error if there is no such alarm, or it is not shelved.
    pub fn unshelve(&self, (rule, channel): (&str, &str), by: &str, now: i64) -> Result<AlarmStep, ActError> {
        words(by, "")?;
        let alarm = self.find(rule, channel)?;
        match alarm.shelved {
            Some(_) => Ok(alarm.step(now, StepKind::Unshelved { by: by.to_owned() })),
            None => Err(ActError::NotShelved),
        }
    }

    fn find(&self, rule: &str, channel: &str) -> Result<&Alarm, ActError> {
        let missing = || ActError::NotFound { rule: rule.to_owned(), channel: channel.to_owned() };
        self.alarms.get(&(Arc::from(channel), Arc::from(rule))).ok_or_else(missing)
    }

    /// Returns an alarm, or `None` if there is none or it is over.
    pub fn get(&self, rule: &str, channel: &str) -> Option<&Alarm> {
        self.find(rule, channel).ok()
    }

    /// Returns the level of an alarm and the reason, from which a limit resumes after a restart.
    pub fn told(&self, rule: &str, channel: &str) -> Option<(Level, Option<Why>)> {
        let alarm = self.find(rule, channel).ok()?;
        Some((alarm.levels.0, alarm.why.and_then(Why::from_name)))
    }

    /// Continues at a start, after the recorded steps were applied: removes ended shelves, and lets the others last
    /// no longer than requested, even if the clock is behind.
    pub fn go_on(&mut self, (now, steady): BothClocks) {
        for shelf in self.alarms.values_mut().filter_map(|alarm| alarm.shelved.as_mut()) {
            let left = duration(shelf.until.0.saturating_sub(now)).min(shelf.span);
            shelf.end = steady.saturating_add(left);
        }
        self.pass((now, steady));
    }

    /// Removes ended shelves. Returns the channels and limits of those that ended before their time by the wall
    /// clock, which was set back.
    pub fn pass(&mut self, clocks: BothClocks) -> Vec<(Arc<str>, Arc<str>)> {
        let over = |alarm: &Alarm| alarm.shelved.as_ref().is_some_and(|shelf| shelf.is_over(clocks));
        let keys: Vec<_> = self.alarms.iter().filter(|(_, alarm)| over(alarm)).map(|(key, _)| key.clone()).collect();
        let mut early = Vec::new();
        for key in keys {
            let shelf = self.alarms.get_mut(&key).and_then(|alarm| alarm.shelved.take());
            self.tidy(&key);
            if shelf.is_some_and(|shelf| shelf.until.0 > clocks.0) {
                early.push(key);
            }
        }
        early
    }

    /// Returns all alarms: those in need of action first, then by worst level, then newest first.
    pub fn list(&self) -> Vec<Alarm> {
        let mut alarms: Vec<Alarm> = self.alarms.values().cloned().collect();
        let key = |alarm: &Alarm| {
            let rank = (alarm.shelved.is_some(), alarm.levels.0 == Level::Normal, alarm.acknowledged.is_some());
            (rank, std::cmp::Reverse(alarm.levels.0.max(alarm.levels.1)), std::cmp::Reverse(alarm.changed.0))
        };
        alarms.sort_by_key(key);
        alarms
    }
}

impl Alarm {
    fn step(&self, now: i64, kind: StepKind) -> AlarmStep {
        AlarmStep { time: now, receive_time: now, rule: self.rule.clone(), channel: self.channel.clone(), kind }
    }
}

/// Converts nanoseconds to a duration; negative values become zero.
fn duration(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

fn words(by: &str, note: &str) -> Result<(), ActError> {
    if !(1..=WORDS_MAX).contains(&by.len()) {
        return Err(ActError::Words { what: "a name", size_bytes: by.len(), least: 1 });
    }
    if note.len() > WORDS_MAX {
        return Err(ActError::Words { what: "a note", size_bytes: note.len(), least: 0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn level(time: i64, from: Level, to: Level) -> AlarmStep {
        let why = (to != Level::Normal).then_some(Why::High);
        let kind = StepKind::Level { from, to, why, value: Some(time as f64), text: time.to_string(), bound: None };
        AlarmStep { time, receive_time: time, rule: "r".into(), channel: "a.b".into(), kind }
    }

    fn states(book: &AlarmList) -> Vec<(&'static str, &'static str, &'static str, i64)> {
        book.list().iter().map(|alarm| (alarm.state, alarm.level, alarm.worst, alarm.raised.0)).collect()
    }

    #[test]
    fn an_alarm_lives_until_it_is_cleared_and_someone_knows() {
        use Level::{Critical, Normal, Warning};
        let mut book = AlarmList::default();
        assert!(book.take(&level(1, Normal, Warning)).is_heard);
        assert_eq!(states(&book), [("raised", "warning", "warning", 1)]);
        let known = book.acknowledge(("r", "a.b"), ("Ada", "seen"), 2).expect("acknowledged");
        assert!(!book.take(&known).is_heard);
        assert_eq!(states(&book), [("acknowledged", "warning", "warning", 1)]);
        let again = book.acknowledge(("r", "a.b"), ("Bob", ""), 3);
        assert_eq!(again, Err(ActError::Already { by: "Ada".into() }));
        // Worse than what was acknowledged, so it needs another acknowledgement.
        assert!(book.take(&level(4, Warning, Critical)).is_heard);
        assert_eq!(states(&book), [("raised", "critical", "critical", 1)]);
        assert!(!book.take(&level(5, Critical, Normal)).is_heard);
        assert_eq!(states(&book), [("cleared", "normal", "critical", 1)]);
        // Raised again before it was acknowledged: the same alarm.
        assert!(book.take(&level(6, Normal, Warning)).is_heard);
        assert_eq!(states(&book), [("raised", "warning", "critical", 1)]);
        assert!(!book.take(&level(7, Warning, Normal)).is_heard);
        book.take(&book.acknowledge(("r", "a.b"), ("Ada", ""), 8).expect("acknowledged"));
        assert_eq!(states(&book), []);
        assert!(matches!(book.acknowledge(("r", "a.b"), ("Ada", ""), 9), Err(ActError::NotFound { .. })));
    }

    #[test]
    fn a_shelved_alarm_is_not_heard_until_its_time_is_over() {
        use Level::{Normal, Warning};
        let mut book = AlarmList::default();
        book.take(&level(1, Normal, Warning));
        let shelve = |book: &AlarmList, span| book.shelve(("r", "a.b"), ("Ada", ""), span, 2);
        assert_eq!(shelve(&book, S - 1), Err(ActError::Until));
        assert_eq!(book.unshelve(("r", "a.b"), "Ada", 2), Err(ActError::NotShelved));
        book.take(&shelve(&book, 10 * S).expect("shelved"));
        book.take(&level(3, Warning, Normal));
        assert!(!book.take(&level(4, Normal, Warning)).is_heard, "shelved");
        book.pass((2 + 10 * S - 1, Duration::ZERO));
        assert!(book.list()[0].shelved.is_some());
        book.pass((2 + 10 * S, Duration::ZERO));
        assert!(book.list()[0].shelved.is_none());
        book.take(&level(12 * S, Warning, Normal));
        assert!(book.take(&level(13 * S, Normal, Warning)).is_heard);
        let long = "x".repeat(WORDS_MAX + 1);
        assert!(matches!(book.acknowledge(("r", "a.b"), ("", ""), 1), Err(ActError::Words { what: "a name", .. })));
        assert!(matches!(
            book.acknowledge(("r", "a.b"), ("Ada", &long), 1),
            Err(ActError::Words { what: "a note", .. })
        ));
    }

    /// Returns a list with an alarm that was shelved at 100 s for 60 s, when the steady clock was at 500 s.
    fn shelved() -> AlarmList {
        let mut book = AlarmList::default();
        book.take(&level(100 * S, Level::Normal, Level::Warning));
        let step = book.shelve(("r", "a.b"), ("Ada", ""), 60 * S, 100 * S).expect("shelved");
        book.take_at(&step, at(100, 500));
        book
    }

    fn at(now_s: i64, steady_s: u64) -> BothClocks {
        (now_s * S, Duration::from_secs(steady_s))
    }

    fn is_shelved(book: &AlarmList) -> bool {
        book.list().iter().any(|alarm| alarm.shelved.is_some())
    }

    #[test]
    fn a_shelf_is_over_by_whichever_clock_says_so_first() {
        // The clock is set back: the shelf lasts for its duration.
        let mut book = shelved();
        assert!(book.pass(at(10, 501)).is_empty() && book.pass(at(68, 559)).is_empty() && is_shelved(&book));
        let of: (Arc<str>, Arc<str>) = ("a.b".into(), "r".into());
        assert_eq!(book.pass(at(69, 560)), [of]);
        assert!(!is_shelved(&book));
        // The clock is set forward: the shelf ends.
        let mut book = shelved();
        assert!(book.pass(at(159, 501)).is_empty() && is_shelved(&book));
        assert!(book.pass(at(160, 501)).is_empty() && !is_shelved(&book));
    }

    #[test]
    fn a_shelf_lasts_no_longer_than_was_said_after_a_start_by_whatever_clock() {
        // Wall clock at the start, and the last second by the steady clock at which it is still shelved.
        for (now, last) in [(110, 49), (100, 59), (10, 59), (-1_000, 59)] {
            let mut book = shelved();
            book.go_on(at(now, 7));
            assert!(is_shelved(&book), "{now}");
            // The wall clock stays behind, so only the steady clock counts.
            book.pass(at(now.min(20), 7 + last));
            assert!(is_shelved(&book), "{now}");
            book.pass(at(now.min(20), 7 + last + 1));
            assert!(!is_shelved(&book), "{now}");
        }
        let mut book = shelved();
        book.go_on(at(10, 7));
        // The clock is corrected.
        book.pass(at(160, 8));
        assert!(!is_shelved(&book));
        let mut book = shelved();
        book.go_on(at(160, 7));
        assert!(!is_shelved(&book));
    }

    #[test]
    fn what_is_told_is_shelved_or_heard_by_the_instant_at_which_it_is_told() {
        use Level::{Critical, Warning};
        // Judged by a clock that was ahead and has been set back: shelved, though the step's own time is after the
        // end.
        let mut book = shelved();
        let taken = book.take_at(&level(7_300 * S, Warning, Critical), at(101, 501));
        assert!(taken.is_shelved && !taken.is_heard && is_shelved(&book));
        // The clock was set back, and the duration is over: alerted, though the clock is before the end.
        let mut book = shelved();
        let taken = book.take_at(&level(70 * S, Warning, Critical), at(70, 560));
        assert!(!taken.is_shelved && taken.is_heard);
        // An ended shelf stays ended when the rows are read again, by a clock that was ahead and is set back.
        let mut book = shelved();
        book.take(&level(7_300 * S, Warning, Critical));
        book.take(&level(101 * S, Critical, Warning));
        book.go_on(at(102, 0));
        assert!(!is_shelved(&book));
    }
}

//! The alarms there are: raised, acknowledged by someone, cleared, shelved. Every step is a row of `strongback.alarms`;
//! the rows alone give the same book again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::judge::Verdict;
use super::rule::{Level, Why};
use crate::json::Big;

/// Longest name and note of someone who acts on an alarm, in bytes.
pub const WORDS_MAX: usize = 1024;

/// One step in the life of an alarm: a row of `strongback.alarms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, nanoseconds since 1970 UTC.
    pub time: i64,
    /// When by the clock of reception, nanoseconds since 1970 UTC.
    pub receive_time: i64,
    /// Name of the limit.
    pub rule: Arc<str>,
    /// Full name of the channel.
    pub channel: Arc<str>,
    /// What happened.
    pub kind: StepKind,
}

/// What happened to an alarm.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// Its level or its reason changed; normal: it cleared.
    Level {
        /// The level before.
        from: Level,
        /// The level now.
        to: Level,
        /// Why, unless it cleared.
        why: Option<Why>,
        /// The deciding value as a number.
        value: Option<f64>,
        /// The deciding value as text.
        text: String,
        /// The bound that was passed.
        bound: Option<f64>,
    },
    /// Someone knows of it.
    Acknowledged {
        /// Who.
        by: String,
        /// What they said.
        note: String,
    },
    /// Someone does not want to hear of it for a while.
    Shelved {
        /// Who.
        by: String,
        /// What they said.
        note: String,
        /// Until when, nanoseconds since 1970 UTC.
        until: i64,
    },
    /// Someone wants to hear of it again.
    Unshelved {
        /// Who.
        by: String,
    },
}

impl StepKind {
    /// As it is written.
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

impl Step {
    /// Of what limits say.
    pub fn of(verdict: Verdict) -> Self {
        let Verdict { rule, channel, change } = verdict;
        let value = match &change.value {
            Some(super::rule::Reading::Number(number)) => Some(*number),
            _ => None,
        };
        let text = change.value.as_ref().map(ToString::to_string).unwrap_or_default();
        let super::machine::Change { time, receive_time, from, to, why, bound, .. } = change;
        Step { time, receive_time, rule, channel, kind: StepKind::Level { from, to, why, value, text, bound } }
    }
}

/// An alarm as the interface writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    #[serde(rename = "limit")]
    rule: Arc<str>,
    channel: Arc<str>,
    /// `raised`, `acknowledged`, `cleared` (and not acknowledged).
    pub state: &'static str,
    /// Its level now.
    pub level: &'static str,
    /// The worst since it was raised.
    worst: &'static str,
    why: Option<&'static str>,
    value: Option<f64>,
    /// The deciding value as text.
    pub text: String,
    bound: Option<f64>,
    /// When it was raised.
    raised: Big<i64>,
    /// When its level changed last.
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
}

/// Why someone cannot act on an alarm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// There is none.
    #[error("there is no alarm of {channel} under limit {rule:?}")]
    NotFound {
        /// Name of the limit.
        rule: String,
        /// Full name of the channel.
        channel: String,
    },
    /// It was acknowledged, and nothing got worse since.
    #[error("it was acknowledged already, by {by}")]
    Already {
        /// By whom.
        by: String,
    },
    /// It is not shelved.
    #[error("it is not shelved")]
    NotShelved,
    /// No name, or too many words.
    #[error("{what} of {size_bytes} bytes; {least} to {WORDS_MAX} are right")]
    Words {
        /// Name or note.
        what: &'static str,
        /// Its size.
        size_bytes: usize,
        /// Least size.
        least: usize,
    },
    /// The time is over already, or too far.
    #[error("it can be shelved for 1 s to 30 days")]
    Until,
}

/// What a step was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Somebody should hear of it: it is new or worse, and not shelved.
    pub is_heard: bool,
    /// Nobody wants to hear of the alarm now.
    pub is_shelved: bool,
    /// The worst level of the alarm since it was raised.
    pub worst: Level,
}

/// All alarms that are not over: cleared and acknowledged ones are.
#[derive(Debug, Default)]
pub struct Book {
    alarms: BTreeMap<(Arc<str>, Arc<str>), Alarm>,
}

impl Book {
    /// Takes a step.
    pub fn take(&mut self, step: &Step) -> Taken {
        let key = (step.channel.clone(), step.rule.clone());
        let worst = self.alarms.get(&key).map_or(Level::Normal, |alarm| alarm.levels.1);
        let mut taken = Taken { is_heard: false, is_shelved: false, worst };
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
                // Whoever acknowledged a warning has not seen that it became critical, or came back.
                if is_worst || *from == Level::Normal {
                    alarm.acknowledged = None;
                }
                (alarm.level, alarm.worst) = (to.name(), alarm.levels.1.name());
                (alarm.changed, alarm.why) = (Big(step.time), why.map(Why::name));
                (alarm.value, alarm.bound) = (*value, *bound);
                alarm.text.clone_from(text);
                let is_shelved = alarm.shelved.as_ref().is_some_and(|shelf| shelf.until.0 > step.receive_time);
                let worst = alarm.levels.1;
                taken = Taken { is_heard: is_worse && !is_shelved, is_shelved, worst };
                self.tidy(&key, step.receive_time);
            }
            StepKind::Acknowledged { by, note } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    let time = Big(step.time);
                    alarm.acknowledged = Some(Acknowledgement { by: by.clone(), note: note.clone(), time });
                }
                self.tidy(&key, step.receive_time);
            }
            StepKind::Shelved { by, note, until } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    alarm.shelved = Some(Shelf { by: by.clone(), note: note.clone(), until: Big(*until) });
                }
            }
            StepKind::Unshelved { .. } => {
                if let Some(alarm) = self.alarms.get_mut(&key) {
                    alarm.shelved = None;
                }
                self.tidy(&key, step.receive_time);
            }
        }
        taken
    }

    /// Names the state of an alarm, or forgets it if it is over.
    fn tidy(&mut self, key: &(Arc<str>, Arc<str>), now: i64) {
        let Some(alarm) = self.alarms.get_mut(key) else { return };
        let is_shelved = alarm.shelved.as_ref().is_some_and(|shelf| shelf.until.0 > now);
        alarm.state = match (alarm.levels.0, &alarm.acknowledged) {
            (Level::Normal, Some(_)) if !is_shelved => {
                self.alarms.remove(key);
                return;
            }
            (Level::Normal, _) => "cleared",
            (_, Some(_)) => "acknowledged",
            (_, None) => "raised",
        };
    }

    /// The step by which someone acknowledges an alarm.
    ///
    /// # Errors
    /// There is none, or it was already.
    pub fn acknowledge(
        &self,
        (rule, channel): (&str, &str),
        (by, note): (&str, &str),
        now: i64,
    ) -> Result<Step, ActError> {
        words(by, note)?;
        let alarm = self.find(rule, channel)?;
        if let Some(acknowledged) = &alarm.acknowledged {
            return Err(ActError::Already { by: acknowledged.by.clone() });
        }
        Ok(alarm.step(now, StepKind::Acknowledged { by: by.to_owned(), note: note.to_owned() }))
    }

    /// The step by which someone shelves an alarm for `span_ns`.
    ///
    /// # Errors
    /// There is none, or the time makes no sense.
    pub fn shelve(
        &self,
        (rule, channel): (&str, &str),
        (by, note): (&str, &str),
        span_ns: i64,
        now: i64,
    ) -> Result<Step, ActError> {
        words(by, note)?;
        let alarm = self.find(rule, channel)?;
        if !(1_000_000_000..=30 * 86_400_000_000_000).contains(&span_ns) {
            return Err(ActError::Until);
        }
        let until = now.saturating_add(span_ns);
        Ok(alarm.step(now, StepKind::Shelved { by: by.to_owned(), note: note.to_owned(), until }))
    }

    /// The step by which someone takes it down again.
    ///
    /// # Errors
    /// There is none, or it is not shelved.
    pub fn unshelve(&self, (rule, channel): (&str, &str), by: &str, now: i64) -> Result<Step, ActError> {
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

    /// An alarm that is not over.
    pub fn get(&self, rule: &str, channel: &str) -> Option<&Alarm> {
        self.find(rule, channel).ok()
    }

    /// Level of an alarm, and why: what a limit goes on from after a restart.
    pub fn told(&self, rule: &str, channel: &str) -> Option<(Level, Option<Why>)> {
        let alarm = self.find(rule, channel).ok()?;
        Some((alarm.levels.0, alarm.why.and_then(Why::from_name)))
    }

    /// Shelves whose time is over go.
    pub fn pass(&mut self, now: i64) {
        let over = |alarm: &Alarm| alarm.shelved.as_ref().is_some_and(|shelf| shelf.until.0 <= now);
        let keys: Vec<_> = self.alarms.iter().filter(|(_, alarm)| over(alarm)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(alarm) = self.alarms.get_mut(&key) {
                alarm.shelved = None;
            }
            self.tidy(&key, now);
        }
    }

    /// All, worst first, then newest.
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
    fn step(&self, now: i64, kind: StepKind) -> Step {
        Step { time: now, receive_time: now, rule: self.rule.clone(), channel: self.channel.clone(), kind }
    }
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

    fn level(time: i64, from: Level, to: Level) -> Step {
        let why = (to != Level::Normal).then_some(Why::High);
        let kind = StepKind::Level { from, to, why, value: Some(time as f64), text: time.to_string(), bound: None };
        Step { time, receive_time: time, rule: "r".into(), channel: "a.b".into(), kind }
    }

    fn states(book: &Book) -> Vec<(&'static str, &'static str, &'static str, i64)> {
        book.list().iter().map(|alarm| (alarm.state, alarm.level, alarm.worst, alarm.raised.0)).collect()
    }

    #[test]
    fn an_alarm_lives_until_it_is_cleared_and_someone_knows() {
        use Level::{Critical, Normal, Warning};
        let mut book = Book::default();
        assert!(book.take(&level(1, Normal, Warning)).is_heard);
        assert_eq!(states(&book), [("raised", "warning", "warning", 1)]);
        let known = book.acknowledge(("r", "a.b"), ("Ada", "seen"), 2).expect("acknowledged");
        assert!(!book.take(&known).is_heard);
        assert_eq!(states(&book), [("acknowledged", "warning", "warning", 1)]);
        let again = book.acknowledge(("r", "a.b"), ("Bob", ""), 3);
        assert_eq!(again, Err(ActError::Already { by: "Ada".into() }));
        // Worse than what was acknowledged: it wants to be known again.
        assert!(book.take(&level(4, Warning, Critical)).is_heard);
        assert_eq!(states(&book), [("raised", "critical", "critical", 1)]);
        assert!(!book.take(&level(5, Critical, Normal)).is_heard);
        assert_eq!(states(&book), [("cleared", "normal", "critical", 1)]);
        // Again before anybody knew: the same alarm.
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
        let mut book = Book::default();
        book.take(&level(1, Normal, Warning));
        let shelve = |book: &Book, span| book.shelve(("r", "a.b"), ("Ada", ""), span, 2);
        assert_eq!(shelve(&book, S - 1), Err(ActError::Until));
        assert_eq!(book.unshelve(("r", "a.b"), "Ada", 2), Err(ActError::NotShelved));
        book.take(&shelve(&book, 10 * S).expect("shelved"));
        book.take(&level(3, Warning, Normal));
        assert!(!book.take(&level(4, Normal, Warning)).is_heard, "shelved");
        book.pass(2 + 10 * S - 1);
        assert!(book.list()[0].shelved.is_some());
        book.pass(2 + 10 * S);
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
}

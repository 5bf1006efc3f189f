//! Steps of alarms as one line for people and as JSON for programs, and events of the limits.

use serde_json::{Value, json};
use strongback_query::{EventOrigin, EventRow};
use strongback_sources::instant;

use super::book::{AlarmStep, StepKind};
use super::rule::{Level, Why};

/// Returns an event of the limits.
pub(super) fn event(time_ns: i64, level: &str, text: String) -> EventRow {
    EventRow { time_ns, level: level.to_owned(), source: "limits".to_owned(), text, origin: EventOrigin::Server }
}

impl std::fmt::Display for AlarmStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let channel = &self.channel;
        match &self.kind {
            StepKind::Level { from, to: Level::Normal, text, .. } => {
                write!(f, "cleared (was {}): {channel} is {text}", from.name())
            }
            StepKind::Level { from, to, why, value, text, bound } => {
                f.write_str(to.name())?;
                if *from != Level::Normal && from != to {
                    write!(f, " (was {})", from.name())?;
                }
                write!(f, ": {channel}")?;
                match (why, bound) {
                    (Some(Why::Stale), _) => write!(f, " has no new value; the last was {text}"),
                    (Some(Why::Slow), Some(bound)) => write!(f, " comes {text} times a second, below {bound}"),
                    (Some(Why::Fast), Some(bound)) => write!(f, " comes {text} times a second, above {bound}"),
                    // Within the hysteresis a value that is back keeps its level.
                    (Some(Why::High), Some(bound)) if value.is_some_and(|value| value <= *bound) => {
                        write!(f, " is {text}, still within the hysteresis below {bound}")
                    }
                    (Some(Why::Low), Some(bound)) if value.is_some_and(|value| value >= *bound) => {
                        write!(f, " is {text}, still within the hysteresis above {bound}")
                    }
                    (Some(Why::High), Some(bound)) => write!(f, " is {text}, above {bound}"),
                    (Some(Why::Low), Some(bound)) => write!(f, " is {text}, below {bound}"),
                    _ => write!(f, " is {text}"),
                }
            }
            StepKind::Acknowledged { by, note } => write!(f, "acknowledged by {by}: {channel}{}", After(note)),
            StepKind::Shelved { by, note, until } => {
                write!(f, "shelved by {by} until {}: {channel}{}", instant::format(*until), After(note))
            }
            StepKind::Unshelved { by } => write!(f, "unshelved by {by}: {channel}"),
        }
    }
}

/// Note with a leading colon, or nothing if it is empty.
struct After<'a>(&'a str);

impl std::fmt::Display for After<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

impl AlarmStep {
    /// Returns the step as JSON, with the channel names of `strongback.alarms`.
    pub fn card(&self) -> Value {
        let mut card = json!({
            "limit": self.rule,
            "channel": self.channel,
            "step": self.kind.name(),
            "time": self.time.to_string(),
            "receive_time": self.receive_time.to_string(),
        });
        let more = match &self.kind {
            StepKind::Level { from, to, why, value, text, bound } => json!({
                "before": from.name(),
                "level": to.name(),
                "why": why.map(Why::name),
                "value": value,
                "text": text,
                "bound": bound,
            }),
            StepKind::Acknowledged { by, note } => json!({ "by": by, "note": note }),
            StepKind::Shelved { by, note, until } => json!({ "by": by, "note": note, "until": until.to_string() }),
            StepKind::Unshelved { by } => json!({ "by": by }),
        };
        if let (Value::Object(card), Value::Object(more)) = (&mut card, more) {
            card.extend(more);
        }
        card
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_one_clear_line() {
        let line = |kind| {
            let (rule, channel) = ("pressure".into(), "tank.p".into());
            AlarmStep { time: 1, receive_time: 2, rule, channel, kind }.to_string()
        };
        let level = |from, to, why, text: &str, bound| {
            line(StepKind::Level { from, to, why, value: None, text: text.into(), bound })
        };
        use Level::{Critical, Normal, Warning, Watch};
        let high = Some(Why::High);
        assert_eq!(level(Normal, Watch, high, "6", Some(5.0)), "watch: tank.p is 6, above 5");
        assert_eq!(level(Watch, Critical, high, "9.5", Some(9.0)), "critical (was watch): tank.p is 9.5, above 9");
        let within = |why, to, value: f64, bound| {
            let text = value.to_string();
            line(StepKind::Level { from: Critical, to, why: Some(why), value: Some(value), text, bound: Some(bound) })
        };
        let back = within(Why::High, Warning, 8.95, 9.0);
        assert_eq!(back, "warning (was critical): tank.p is 8.95, still within the hysteresis below 9");
        let back = within(Why::Low, Warning, 1.5, 1.5);
        assert_eq!(back, "warning (was critical): tank.p is 1.5, still within the hysteresis above 1.5");
        assert_eq!(within(Why::High, Warning, 9.25, 9.0), "warning (was critical): tank.p is 9.25, above 9");
        let stale = level(Warning, Warning, Some(Why::Stale), "3", None);
        assert_eq!(stale, "warning: tank.p has no new value; the last was 3");
        let slow = level(Normal, Warning, Some(Why::Slow), "42", Some(90.0));
        assert_eq!(slow, "warning: tank.p comes 42 times a second, below 90");
        assert_eq!(level(Normal, Warning, Some(Why::State), "FAULT", None), "warning: tank.p is FAULT");
        assert_eq!(level(Critical, Normal, None, "1", None), "cleared (was critical): tank.p is 1");
        let (by, note) = ("Ada".to_owned(), "looking".to_owned());
        let known = line(StepKind::Acknowledged { by: by.clone(), note: note.clone() });
        assert_eq!(known, "acknowledged by Ada: tank.p: looking");
        let shelved = line(StepKind::Shelved { by: by.clone(), note: String::new(), until: 0 });
        assert_eq!(shelved, "shelved by Ada until 1970-01-01T00:00:00.000000000Z: tank.p");
        assert_eq!(line(StepKind::Unshelved { by }), "unshelved by Ada: tank.p");
    }
}

//! What receivers are sent: a step in the life of an alarm, and the alarm as it is after it.

use serde_json::{Value, json};
use strongback_sources::instant;

use crate::alarms::limits::book::{Alarm, AlarmStep};

/// Longest text of a value, in bytes: it may be a whole line of a log.
const TEXT_MAX: usize = 1024;

/// A step with its alarm, on its way to a receiver.
#[derive(Clone, Debug)]
pub struct WebhookMessage {
    /// Names the step for ever: whoever gets it twice can tell.
    pub id: String,
    step: AlarmStep,
    alarm: Option<Alarm>,
}

impl WebhookMessage {
    /// Of a step; `alarm`: as it is after it, unless it is over.
    pub fn new(id: String, step: &AlarmStep, alarm: Option<&Alarm>) -> Self {
        let (mut step, mut alarm) = (step.clone(), alarm.cloned());
        if let crate::alarms::limits::book::StepKind::Level { text, .. } = &mut step.kind {
            cut(text);
        }
        if let Some(alarm) = &mut alarm {
            cut(&mut alarm.text);
        }
        WebhookMessage { id, step, alarm }
    }

    /// Its JSON; `number` is its place among all that this receiver was to be sent, `dropped` how many of those were not.
    pub fn body(&self, webhook: &str, number: u64, dropped: u64) -> String {
        let mut body = self.step.card();
        if let Value::Object(body) = &mut body {
            body.extend(
                [
                    ("id", json!(self.id)),
                    ("webhook", json!(webhook)),
                    ("number", json!(number)),
                    ("dropped", json!(dropped)),
                    ("utc", json!(instant::format(self.step.time))),
                    ("summary", json!(self.step.to_string())),
                    ("alarm", json!(self.alarm)),
                ]
                .map(|(key, value)| (key.to_owned(), value)),
            );
        }
        body.to_string()
    }

    /// The step in words.
    pub fn summary(&self) -> String {
        self.step.to_string()
    }
}

fn cut(text: &mut String) {
    let mut size_bytes = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(size_bytes) {
        size_bytes -= 1;
    }
    text.truncate(size_bytes);
}

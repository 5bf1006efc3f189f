//! Messages to receivers: a step of an alarm, and the alarm after it.

use serde_json::{Value, json};
use strongback_sources::instant;

use crate::alarms::limits::book::{Alarm, AlarmStep};

/// Max bytes of a text value, which may be a whole log line.
const TEXT_MAX: usize = 1024;

/// Step with its alarm, on its way to a receiver.
#[derive(Clone, Debug)]
pub struct WebhookMessage {
    /// Permanent id of the step, by which receivers detect duplicates.
    pub id: String,
    step: AlarmStep,
    alarm: Option<Alarm>,
}

impl WebhookMessage {
    /// Creates the message of a step. `alarm` is the alarm after it, or `None` if it is over.
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

    /// Returns the JSON body. `number` counts the steps for this receiver, and `dropped` those of them that were
    /// dropped.
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

    /// Describes the step in words.
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

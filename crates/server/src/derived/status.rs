//! How a derived channel does, as `/api/derived` says it.

use serde::Serialize;

use super::instance::{Counts, Instance};

/// Trouble is news for so long, in nanoseconds.
const NEWS_NS: i64 = 60_000_000_000;
/// Reasons to wait that are said.
const WAITS_MAX: usize = 8;

/// How a derived channel does.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Its version.
    pub version: u32,
    /// Its evaluations, one for each stream that triggers it.
    pub evaluations: Vec<Evaluation>,
    /// What it waits for.
    pub waits: Vec<String>,
}

/// How one evaluation does.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// The stream that triggers it.
    pub trigger: String,
    /// How `strongback.late` names it.
    pub label: String,
    /// `live`, `catching up`, or that it waits for its first frame.
    pub state: &'static str,
    /// `time` of the newest frame that had its turn, nanoseconds since 1970 UTC, as text.
    pub at: Option<String>,
    /// Since the server started.
    #[serde(flatten)]
    pub counts: Counts,
    /// The newest thing that went wrong.
    pub trouble: Option<String>,
    /// When, nanoseconds since 1970 UTC, as text.
    pub trouble_at: Option<String>,
    #[serde(skip)]
    trouble_ns: i64,
}

impl Status {
    /// Of a version without evaluations.
    pub fn new(version: u32) -> Status {
        Status { version, ..Status::default() }
    }

    /// Adds an evaluation.
    pub fn add(&mut self, instance: &Instance) {
        let (trouble_ns, trouble) = instance.trouble.clone().map_or((i64::MIN, None), |(at, why)| (at, Some(why)));
        self.evaluations.push(Evaluation {
            trigger: instance.trigger.key.to_string(),
            label: instance.label.clone(),
            state: instance.state(),
            at: (instance.released.0 > i64::MIN).then(|| instance.released.0.to_string()),
            counts: instance.counts,
            trouble_at: trouble.is_some().then(|| trouble_ns.to_string()),
            trouble,
            trouble_ns,
        });
    }

    /// Adds something that it waits for.
    pub fn waits(&mut self, why: &str) {
        if self.waits.len() < WAITS_MAX {
            self.waits.push(why.to_owned());
        }
    }

    /// `live`, `catching up`, `waiting` or `failing`.
    pub fn state(&self, now: i64) -> &'static str {
        if self.trouble(now).is_some() {
            "failing"
        } else if self.evaluations.iter().any(|of| of.state == "catching up") {
            "catching up"
        } else if self.evaluations.iter().any(|of| of.state == "live") {
            "live"
        } else {
            "waiting"
        }
    }

    /// What went wrong within the last minute.
    pub fn trouble(&self, now: i64) -> Option<String> {
        let recent = self.evaluations.iter().filter(|of| now.saturating_sub(of.trouble_ns) < NEWS_NS);
        recent.max_by_key(|of| of.trouble_ns)?.trouble.clone()
    }
}

//! How a derived channel does, as `/api/derived` says it.

use serde::Serialize;

use super::instance::{Counts, Instance};

/// Trouble is news for so long, in nanoseconds.
const NEWS_NS: i64 = 60_000_000_000;
/// Reasons to wait that are said.
const WAITS_MAX: usize = 8;

/// How a derived channel does.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DerivedStatus {
    /// Its version.
    pub version: u32,
    /// Its evaluations, one for each stream that triggers it.
    pub evaluations: Vec<Evaluation>,
    /// What it waits for.
    pub waits: Vec<String>,
    /// Why it cannot be evaluated as it is written, whatever comes.
    #[serde(skip)]
    unfit: Option<String>,
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

impl DerivedStatus {
    /// Of a version without evaluations.
    pub fn new(version: u32) -> DerivedStatus {
        DerivedStatus { version, ..DerivedStatus::default() }
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

    /// Notes that it cannot be evaluated as it is written.
    pub fn never(&mut self, why: &str) {
        self.unfit.get_or_insert_with(|| why.to_owned());
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

    /// What went wrong within the last minute, or why it never can be right.
    pub fn trouble(&self, now: i64) -> Option<String> {
        self.news(now).or_else(|| self.unfit.clone())
    }

    /// What went wrong within the last minute.
    pub fn news(&self, now: i64) -> Option<String> {
        let recent = self.evaluations.iter().filter(|of| now.saturating_sub(of.trouble_ns) < NEWS_NS);
        recent.max_by_key(|of| of.trouble_ns)?.trouble.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_be_evaluated_is_failing_and_not_waiting() {
        let mut status = DerivedStatus::new(1);
        status.waits("there is no channel \"a.b\" (yet)");
        assert_eq!((status.state(0), status.trouble(0)), ("waiting", None));
        status.never("types do not go together");
        assert_eq!(status.state(0), "failing");
        assert_eq!(status.trouble(0).as_deref(), Some("types do not go together"));
        assert_eq!(status.news(0), None, "it is told as an event each minute");
    }
}

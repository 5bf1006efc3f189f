//! Status of a derived channel, as returned by `/api/derived`.

use serde::Serialize;

use super::instance::{Counts, Instance};

/// Time for which a problem counts as recent, nanoseconds.
const NEWS_NS: i64 = 60_000_000_000;
/// Max reasons for waiting that are listed.
const WAITS_MAX: usize = 8;

/// Status of a derived channel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DerivedStatus {
    /// Version of the derived channel.
    pub version: u32,
    /// Evaluations, one for each trigger stream.
    pub evaluations: Vec<Evaluation>,
    /// Reasons for waiting.
    pub waits: Vec<String>,
    /// Reason why it can never be evaluated as written.
    #[serde(skip)]
    unfit: Option<String>,
}

/// Status of one evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Trigger stream.
    pub trigger: String,
    /// Name of the evaluation in `strongback.late`.
    pub label: String,
    /// State: `live`, `catching up`, or waiting for its first frame.
    pub state: &'static str,
    /// `time` of the newest frame that had its turn, nanoseconds since 1970 UTC, as text.
    pub at: Option<String>,
    /// Counters since the server started.
    #[serde(flatten)]
    pub counts: Counts,
    /// Latest problem.
    pub trouble: Option<String>,
    /// Time of the latest problem, nanoseconds since 1970 UTC, as text.
    pub trouble_at: Option<String>,
    #[serde(skip)]
    trouble_ns: i64,
}

impl DerivedStatus {
    /// Creates the status of a version without evaluations.
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

    /// Adds a reason for waiting.
    pub fn waits(&mut self, why: &str) {
        if self.waits.len() < WAITS_MAX {
            self.waits.push(why.to_owned());
        }
    }

    /// Notes why it can never be evaluated as written.
    pub fn never(&mut self, why: &str) {
        self.unfit.get_or_insert_with(|| why.to_owned());
    }

    /// Returns the state: `live`, `catching up`, `waiting` or `failing`.
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

    /// Returns the problem of the last minute, or why it can never be evaluated.
    pub fn trouble(&self, now: i64) -> Option<String> {
        self.news(now).or_else(|| self.unfit.clone())
    }

    /// Returns the latest problem of the last minute.
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

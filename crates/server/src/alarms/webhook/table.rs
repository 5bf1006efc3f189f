//! Receivers of alarms over HTTP: `[[webhook]]` of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::alarms::limits::rule::Level;

/// Max receivers; each has a thread.
const RECEIVERS_MAX: usize = 16;
/// Max headers of a receiver.
const HEADERS_MAX: usize = 32;
/// Headers that only the sender sets.
const OWN_HEADERS: [&str; 7] =
    ["host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "idempotency-key"];

/// Names of the steps of an alarm.
pub const STEPS: [&str; 8] =
    ["raised", "worse", "better", "changed", "cleared", "acknowledged", "shelved", "unshelved"];

/// Table `[[webhook]]` of the configuration.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookTable {
    /// Name in the log, in events and in metrics. Default: host and port of the URL.
    pub name: Option<String>,
    /// URL to which steps are posted: `http://…` or `https://…`. Redirects are not followed.
    pub url: String,
    /// Min level, compared with the worst since an alarm was raised: `watch`, `warning` or `critical`. Default
    /// `watch`: all.
    pub level: Option<Level>,
    /// Steps to send, of `raised`, `worse`, `better`, `changed`, `cleared`, `acknowledged`, `shelved`, `unshelved`.
    /// Default: all.
    pub steps: Option<Vec<String>>,
    /// Additional headers: `{ X-Room = "3" }`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// File with a token that is sent as `Authorization: Bearer …`.
    pub token_file: Option<PathBuf>,
    /// File with the root certificates (PEM) for an https receiver. Default: those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Max total time of one post, in milliseconds, 100 to 60,000. Default 5,000.
    pub timeout_ms: Option<u64>,
    /// Time from the first failed post to the next, in milliseconds, 10 to 30,000; it doubles up to 30 s. Default
    /// 500.
    pub retry_ms: Option<u64>,
    /// Time for which a step is retried, in seconds, 0 (once) to 604,800. Default 3,600.
    pub retry_for_s: Option<u64>,
    /// Max pending steps, 1 to 100,000; if exceeded, the oldest is dropped and counted. Default 1,000.
    pub queue: Option<usize>,
}

/// Debug output without the URL and headers, which may hold secrets.
impl std::fmt::Debug for WebhookTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookTable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Checked receiver.
#[derive(Clone)]
pub struct Receiver {
    /// Name of the receiver.
    pub name: String,
    /// URL to post to.
    pub url: Uri,
    /// Headers of each post, without those from `token_file`.
    pub headers: HeaderMap,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// File with root certificates.
    pub ca_file: Option<PathBuf>,
    /// Min level of an alarm.
    pub level: Level,
    /// Names of the steps to send.
    pub steps: Vec<String>,
    /// Max time of one post.
    pub timeout: Duration,
    /// Time from the first failed post to the next.
    pub retry: Duration,
    /// Time for which a step is retried.
    pub retry_for: Duration,
    /// Max pending steps.
    pub queue: usize,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("name", &self.name).finish_non_exhaustive()
    }
}

impl WebhookTable {
    /// Checks the table and converts it.
    ///
    /// # Errors
    /// Returns what is wrong, in words, never including a possible secret.
    pub fn receiver(&self) -> Result<Receiver, String> {
        let named = self.name.as_deref().map(|name| format!("webhook {name:?}: ")).unwrap_or_default();
        let wrong = |what: String| format!("{named}{what}");
        let url: Uri = self.url.parse().map_err(|error| wrong(format!("url: {error}")))?;
        let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(wrong("url must begin with http:// or https:// and a host".into()));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("url: a name and a password belong into headers or token_file".into()));
        }
        if authority.host().is_empty() {
            return Err(wrong("url has no host".into()));
        }
        let name = self.name.clone().unwrap_or_else(|| authority.as_str().to_owned());
        if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
            return Err(wrong("name must have 1 to 100 characters".into()));
        }
        let wrong = |what: String| format!("webhook {name:?}: {what}");
        if self.ca_file.is_some() && url.scheme_str() == Some("http") {
            return Err(wrong("ca_file is for https alone".into()));
        }
        let within = |key: &str, value: Option<u64>, default: u64, (least, most): (u64, u64)| {
            let value = value.unwrap_or(default);
            match (least..=most).contains(&value) {
                true => Ok(value),
                false => Err(wrong(format!("{key} = {value} is not within {least} to {most}"))),
            }
        };
        if self.headers.len() > HEADERS_MAX {
            return Err(wrong(format!("{} headers; {HEADERS_MAX} at most", self.headers.len())));
        }
        let mut headers = HeaderMap::new();
        for (key, value) in &self.headers {
            let header: HeaderName =
                key.parse().map_err(|_| wrong(format!("headers: {key:?} is not a valid header name")))?;
            if OWN_HEADERS.contains(&header.as_str()) {
                return Err(wrong(format!("headers: {key} is not yours to set")));
            }
            if header.as_str() == "authorization" && self.token_file.is_some() {
                return Err(wrong("headers: Authorization and token_file are one too many".into()));
            }
            let mut value: HeaderValue = value
                .parse()
                .map_err(|_| wrong(format!("headers: the value of {key} has characters that cannot be")))?;
            value.set_sensitive(true);
            if headers.insert(header, value).is_some() {
                return Err(wrong(format!("headers: {key} is there twice")));
            }
        }
        let level = match self.level {
            Some(Level::Normal) => return Err(wrong("level is watch, warning or critical".into())),
            level => level.unwrap_or(Level::Watch),
        };
        let steps = self.steps.clone().unwrap_or_else(|| STEPS.map(str::to_owned).to_vec());
        if let Some(step) = steps.iter().find(|step| !STEPS.contains(&step.as_str())) {
            return Err(wrong(format!("steps: {step:?} is none of {}", STEPS.join(", "))));
        }
        if steps.is_empty() {
            return Err(wrong("steps is empty: nothing would ever be sent".into()));
        }
        let ms = |key, value, default, range| within(key, value, default, range).map(Duration::from_millis);
        Ok(Receiver {
            headers,
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            level,
            steps,
            timeout: ms("timeout_ms", self.timeout_ms, 5_000, (100, 60_000))?,
            retry: ms("retry_ms", self.retry_ms, 500, (10, 30_000))?,
            retry_for: Duration::from_secs(within("retry_for_s", self.retry_for_s, 3_600, (0, 604_800))?),
            queue: within("queue", self.queue.map(|queue| queue as u64), 1_000, (1, 100_000))? as usize,
            url,
            name,
        })
    }
}

/// Checks and converts all receivers.
///
/// # Errors
/// Returns the first error in words, including two receivers with one name, or too many.
pub fn receivers(tables: &[WebhookTable]) -> Result<Vec<Receiver>, String> {
    if tables.len() > RECEIVERS_MAX {
        return Err(format!("{} webhooks; {RECEIVERS_MAX} at most", tables.len()));
    }
    let receivers = tables.iter().map(WebhookTable::receiver).collect::<Result<Vec<_>, _>>()?;
    for (at, receiver) in receivers.iter().enumerate() {
        if receivers[..at].iter().any(|other| other.name == receiver.name) {
            return Err(format!("webhook {:?}: two have this name", receiver.name));
        }
    }
    Ok(receivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(keys: &str) -> Result<Receiver, String> {
        toml::from_str::<WebhookTable>(keys).map_err(|error| error.to_string())?.receiver()
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words_without_secrets() {
        let url = "url = \"https://ops.example/hook/s3cret\"";
        for (keys, says) in [
            ("url = \"ops.example\"", "url must begin with http:// or https:// and a host"),
            ("url = \"ftp://ops.example/s3cret\"", "url must begin with http:// or https:// and a host"),
            ("url = \"http://a b/s3cret\"", "url: invalid"),
            ("url = \"https://me:s3cret@ops.example\"", "belong into headers or token_file"),
            (&format!("{url}\nlevel = \"normal\""), "level is watch, warning or critical"),
            (&format!("{url}\nlevel = \"bad\""), "unknown variant `bad`"),
            (&format!("{url}\nsteps = [\"raised\", \"rise\"]"), "steps: \"rise\" is none of raised, worse"),
            (&format!("{url}\nsteps = []"), "steps is empty"),
            (&format!("{url}\ntimeout_ms = 99"), "timeout_ms = 99 is not within 100 to 60000"),
            (&format!("{url}\nretry_ms = 9"), "retry_ms = 9 is not within 10 to 30000"),
            (&format!("{url}\nretry_for_s = 700000"), "retry_for_s = 700000 is not within 0 to 604800"),
            (&format!("{url}\nqueue = 0"), "queue = 0 is not within 1 to 100000"),
            (&format!("{url}\nheaders = {{ Host = \"s3cret\" }}"), "headers: Host is not yours to set"),
            (&format!("{url}\nheaders = {{ \"a b\" = \"s3cret\" }}"), "headers: \"a b\" is not a valid header name"),
            (&format!("{url}\nheaders = {{ A = \"s3cret\\n\" }}"), "the value of A has characters that cannot be"),
            (&format!("{url}\nheaders = {{ A = \"1\", a = \"2\" }}"), "headers: a is there twice"),
            (
                &format!("{url}\ntoken_file = \"t\"\nheaders = {{ authorization = \"s3cret\" }}"),
                "Authorization and token_file are one too many",
            ),
            ("url = \"http://ops.example\"\nca_file = \"ca.pem\"", "ca_file is for https alone"),
            (&format!("{url}\nname = \"\""), "name must have 1 to 100 characters"),
            (&format!("{url}\nretries = 3"), "unknown field `retries`"),
        ] {
            let error = receiver(keys).expect_err(keys);
            assert!(error.contains(says), "{keys}: {error}");
            // An unknown key is shown with its line, as everywhere in the configuration.
            assert!(!error.contains("s3cret") || error.contains("TOML"), "{error}");
        }
        let right =
            receiver(&format!("{url}\nlevel = \"warning\"\nheaders = {{ X-Room = \"s3cret\" }}")).expect("right");
        assert_eq!((right.name.as_str(), right.level, right.steps.len()), ("ops.example", Level::Warning, 8));
        assert_eq!((right.timeout.as_millis(), right.retry_for.as_secs(), right.queue), (5_000, 3_600, 1_000));
        assert!(!format!("{right:?}").contains("s3cret"));
        let two = [WebhookTable::clone(&toml::from_str(url).expect("a table")), toml::from_str(url).expect("a table")];
        assert!(receivers(&two).expect_err("two").contains("two have this name"));
    }
}

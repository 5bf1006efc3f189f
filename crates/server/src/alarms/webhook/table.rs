//! Receivers of alarms over HTTP: `[[webhook]]` of the configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use strongback_sources::KeyError;
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

/// Compiled receiver.
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

/// Parses the URL of a receiver.
///
/// # Errors
/// Returns what is wrong, never including a possible secret.
fn parse_url(text: &str) -> Result<Uri, KeyError> {
    let url: Uri = text.parse().map_err(|error| KeyError::new("url", format!("{error}")))?;
    let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return KeyError::wrong("url", "it must begin with http:// or https:// and a host");
    };
    if authority.as_str().contains('@') {
        return KeyError::wrong("url", "a name and a password belong into headers or token_file");
    }
    if authority.host().is_empty() {
        return KeyError::wrong("url", "it has no host");
    }
    let port = authority.as_str().get(authority.host().len()..).and_then(|rest| rest.strip_prefix(':'));
    if let Some(port) = port.filter(|port| !port.is_empty() && port.parse::<u16>().is_err()) {
        return KeyError::wrong("url", format!("port {port} is not within 0 to 65535"));
    }
    Ok(url)
}

impl WebhookTable {
    /// Returns the name of the receiver: host and port of its URL if it has none. Returns `None` if the URL is invalid
    /// too.
    fn name(&self) -> Option<String> {
        let of_url = || Some(parse_url(&self.url).ok()?.authority()?.as_str().to_owned());
        self.name.clone().or_else(of_url)
    }

    /// Checks the table and converts it.
    ///
    /// # Errors
    /// Returns the first invalid key, with its path in the table and a reason that never includes a possible secret.
    pub fn compile(self) -> Result<Receiver, KeyError> {
        let url = parse_url(&self.url)?;
        let name = self.name().unwrap_or_default();
        if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
            return KeyError::wrong("name", "it must have 1 to 100 characters");
        }
        if self.ca_file.is_some() && url.scheme_str() == Some("http") {
            return KeyError::wrong("ca_file", "it is for https alone");
        }
        let headers = self.compile_headers()?;
        let level = match self.level {
            Some(Level::Normal) => return KeyError::wrong("level", "it is watch, warning or critical"),
            level => level.unwrap_or(Level::Watch),
        };
        let steps = self.steps.unwrap_or_else(|| STEPS.map(str::to_owned).to_vec());
        if let Some((at, step)) = steps.iter().enumerate().find(|(_, step)| !STEPS.contains(&step.as_str())) {
            return KeyError::wrong(format!("steps[{at}]"), format!("{step:?} is none of {}", STEPS.join(", ")));
        }
        if steps.is_empty() {
            return KeyError::wrong("steps", "it is empty: nothing would ever be sent");
        }
        let within = |key, value: Option<u64>, default: u64, range: RangeInclusive<u64>| {
            let value = value.unwrap_or(default);
            match range.contains(&value) {
                true => Ok(value),
                false => KeyError::wrong(key, format!("{value} is not within {} to {}", range.start(), range.end())),
            }
        };
        let ms = |key, value, default, range| within(key, value, default, range).map(Duration::from_millis);
        Ok(Receiver {
            headers,
            token_file: self.token_file,
            ca_file: self.ca_file,
            level,
            steps,
            timeout: ms("timeout_ms", self.timeout_ms, 5_000, 100..=60_000)?,
            retry: ms("retry_ms", self.retry_ms, 500, 10..=30_000)?,
            retry_for: Duration::from_secs(within("retry_for_s", self.retry_for_s, 3_600, 0..=604_800)?),
            queue: within("queue", self.queue.map(|queue| queue as u64), 1_000, 1..=100_000)? as usize,
            url,
            name,
        })
    }

    fn compile_headers(&self) -> Result<HeaderMap, KeyError> {
        KeyError::check_count("headers", self.headers.len(), HEADERS_MAX, "headers")?;
        let mut headers = HeaderMap::new();
        for (key, value) in &self.headers {
            let path = format!("headers.{key}");
            let Ok(header) = key.parse::<HeaderName>() else {
                return KeyError::wrong(path, format!("{key:?} is not a valid header name"));
            };
            if OWN_HEADERS.contains(&header.as_str()) {
                return KeyError::wrong(path, format!("{key} is not yours to set"));
            }
            if header.as_str() == "authorization" && self.token_file.is_some() {
                return KeyError::wrong(path, "Authorization and token_file are one too many");
            }
            let Ok(mut value) = value.parse::<HeaderValue>() else {
                return KeyError::wrong(path, format!("the value of {key} has characters that cannot be"));
            };
            value.set_sensitive(true);
            if headers.insert(header, value).is_some() {
                return KeyError::wrong(path, format!("{key} is there twice"));
            }
        }
        Ok(headers)
    }
}

/// Compiles all receivers.
///
/// # Errors
/// Returns the first invalid key, such as `webhook[2].url`, including the name of a second receiver of this name, or
/// the list if it is too long.
pub fn compile(tables: Vec<WebhookTable>) -> Result<Vec<Receiver>, KeyError> {
    KeyError::check_count("webhook", tables.len(), RECEIVERS_MAX, "webhooks")?;
    let mut receivers: Vec<Receiver> = Vec::with_capacity(tables.len());
    for (at, table) in tables.into_iter().enumerate() {
        let path = format!("webhook[{at}]");
        let name = table.name();
        let receiver =
            table.compile().and_then(|receiver| match receivers.iter().any(|other| other.name == receiver.name) {
                true => KeyError::wrong("name", "two have this name"),
                false => Ok(receiver),
            });
        let of_table = |error: KeyError| match &name {
            Some(name) => error.about(&format!("webhook {name:?}")).below(&path),
            None => error.below(&path),
        };
        receivers.push(receiver.map_err(of_table)?);
    }
    Ok(receivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(keys: &str) -> Result<Receiver, String> {
        toml::from_str::<WebhookTable>(keys)
            .map_err(|error| error.to_string())?
            .compile()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words_without_secrets() {
        let url = "url = \"https://ops.example/hook/s3cret\"";
        for (keys, says) in [
            ("url = \"ops.example\"", "url: it must begin with http:// or https:// and a host"),
            ("url = \"ftp://ops.example/s3cret\"", "url: it must begin with http:// or https:// and a host"),
            ("url = \"http://a b/s3cret\"", "url: invalid"),
            ("url = \"http://ops.example:70000/s3cret\"", "url: port 70000 is not within 0 to 65535"),
            ("url = \"https://me:s3cret@ops.example\"", "belong into headers or token_file"),
            (&format!("{url}\nlevel = \"normal\""), "level: it is watch, warning or critical"),
            (&format!("{url}\nlevel = \"bad\""), "unknown variant `bad`"),
            (&format!("{url}\nsteps = [\"raised\", \"rise\"]"), "steps[1]: \"rise\" is none of raised, worse"),
            (&format!("{url}\nsteps = []"), "steps: it is empty"),
            (&format!("{url}\ntimeout_ms = 99"), "timeout_ms: 99 is not within 100 to 60000"),
            (&format!("{url}\nretry_ms = 9"), "retry_ms: 9 is not within 10 to 30000"),
            (&format!("{url}\nretry_for_s = 700000"), "retry_for_s: 700000 is not within 0 to 604800"),
            (&format!("{url}\nqueue = 0"), "queue: 0 is not within 1 to 100000"),
            (&format!("{url}\nheaders = {{ Host = \"s3cret\" }}"), "headers.Host: Host is not yours to set"),
            (
                &format!("{url}\nheaders = {{ \"a b\" = \"s3cret\" }}"),
                "headers.a b: \"a b\" is not a valid header name",
            ),
            (&format!("{url}\nheaders = {{ A = \"s3cret\\n\" }}"), "the value of A has characters that cannot be"),
            (&format!("{url}\nheaders = {{ A = \"1\", a = \"2\" }}"), "headers.a: a is there twice"),
            (
                &format!("{url}\ntoken_file = \"t\"\nheaders = {{ authorization = \"s3cret\" }}"),
                "Authorization and token_file are one too many",
            ),
            ("url = \"http://ops.example\"\nca_file = \"ca.pem\"", "ca_file: it is for https alone"),
            (&format!("{url}\nname = \"\""), "name: it must have 1 to 100 characters"),
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
        let table = || toml::from_str::<WebhookTable>(url).expect("a table");
        let two = compile(vec![table(), table()]).expect_err("two");
        assert_eq!(two, KeyError::new("webhook[1].name", "webhook \"ops.example\": two have this name"));
    }
}

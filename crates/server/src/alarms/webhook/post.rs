//! A single POST over HTTP or HTTPS, bounded in time and size whatever the server does.

use std::io::Read as _;

use strongback_archive::http;
use ureq::Agent;
use ureq::http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::table::Receiver;

/// Max bytes read of a response body, and only if the response is an error.
const SAID_MAX: u64 = 200;

/// Reason why a POST failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    /// Failure that may not recur later.
    Again(String),
    /// Refusal by the receiver.
    Refused(String),
}

/// HTTP client of one receiver.
pub struct Poster {
    agent: Agent,
    url: Uri,
    headers: HeaderMap,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

impl Poster {
    /// Reads the files that the receiver names.
    ///
    /// # Errors
    /// Returns an error in words if a file cannot be read or has no usable content.
    pub fn new(receiver: &Receiver) -> Result<Self, String> {
        let wrong = |what: String| format!("webhook {:?}: {what}", receiver.name);
        let mut headers = receiver.headers.clone();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        if let Some(file) = &receiver.token_file {
            let token = http::read(file).map_err(|error| wrong(format!("token_file: {error}")))?;
            let token = std::str::from_utf8(&token).unwrap_or_default().trim();
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty());
            let Some(mut bearer) = bearer else {
                return Err(wrong(format!("token_file: {} holds no token", file.display())));
            };
            bearer.set_sensitive(true);
            headers.insert("authorization", bearer);
        }
        // Alarms are rare, so a kept connection would often be dead when it is needed.
        let mut config = http::bounded(Agent::config_builder(), receiver.timeout).max_idle_connections(0);
        if receiver.url.scheme_str() == Some("https") {
            config = config.tls_config(http::tls(receiver.ca_file.as_deref()).map_err(wrong)?);
        }
        Ok(Poster { agent: config.build().new_agent(), url: receiver.url.clone(), headers })
    }

    /// Posts a body; `id` is the same for each attempt.
    ///
    /// # Errors
    /// Returns an error if it did not arrive, or the response was an error.
    pub fn post(&self, id: &str, body: &str) -> Result<(), PostError> {
        let mut request = self.agent.post(&self.url).header("idempotency-key", id);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let mut answer = request.send(body).map_err(|error| PostError::Again(http::words(&error)))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let mut said = Vec::new();
        // The body is only for people, so ignore read errors.
        let _ = answer.body_mut().as_reader().take(SAID_MAX).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        let said = if said.trim().is_empty() { String::new() } else { format!(": {:?}", said.trim()) };
        let may_go_better = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        Err(match may_go_better {
            true => PostError::Again(format!("HTTP {status}{said}")),
            false if status.is_redirection() => {
                PostError::Refused(format!("HTTP {status}: redirects are not followed; give the final URL"))
            }
            false => PostError::Refused(format!("HTTP {status}{said}")),
        })
    }
}

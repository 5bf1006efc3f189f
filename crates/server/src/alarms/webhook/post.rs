//! A single POST over HTTP or HTTPS, bounded in time and size whatever the server does.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use ureq::Agent;
use ureq::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use super::table::Receiver;

/// Max bytes of a response head.
const HEAD_MAX: usize = 16 * 1024;
/// Max bytes read of a response body, and only if the response is an error.
const SAID_MAX: u64 = 200;
/// Max size of a file with certificates or a token, bytes.
const FILE_MAX: u64 = 4 << 20;

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
            let token = read(file).map_err(|error| wrong(format!("token_file: {error}")))?;
            let token = std::str::from_utf8(&token).unwrap_or_default().trim();
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty());
            let Some(mut bearer) = bearer else {
                return Err(wrong(format!("token_file: {} holds no token", file.display())));
            };
            bearer.set_sensitive(true);
            headers.insert("authorization", bearer);
        }
        let mut config = Agent::config_builder()
            .user_agent(concat!("Strongback/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(receiver.timeout))
            .max_response_header_size(HEAD_MAX)
            .http_status_as_error(false)
            // Post only to the configured URL, whatever a response or the environment says.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            // Alarms are rare, so a kept connection would often be dead when it is needed.
            .max_idle_connections(0);
        if receiver.url.scheme_str() == Some("https") {
            let roots = roots(receiver.ca_file.as_deref()).map_err(wrong)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = TlsConfig::builder().root_certs(roots).unversioned_rustls_crypto_provider(provider);
            config = config.tls_config(tls.build());
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
        let mut answer = request.send(body).map_err(|error| PostError::Again(words(&error)))?;
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

/// Returns an error with its causes, as one sentence.
fn words(error: &ureq::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| format!("{shown}: {error}"))?;
    opened.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("{shown}: {error}"))?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(format!("{shown} is larger than {FILE_MAX} bytes")),
        false => Ok(bytes),
    }
}

/// Returns the trusted root certificates: those of a file, or those of this machine.
fn roots(file: Option<&Path>) -> Result<RootCerts, String> {
    let roots: Vec<Certificate<'static>> = match file {
        Some(file) => {
            let pem = read(file).map_err(|error| format!("ca_file: {error}"))?;
            let mut roots = Vec::new();
            for item in ureq::tls::parse_pem(&pem) {
                if let PemItem::Certificate(root) = item.map_err(|e| format!("ca_file: {}: {e}", file.display()))? {
                    roots.push(root);
                }
            }
            if roots.is_empty() {
                return Err(format!("ca_file: {} holds no certificate", file.display()));
            }
            roots
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
                return Err(format!("this machine has no certificates to check https with{why}; give a ca_file"));
            }
            found.certs.iter().map(|root| Certificate::from_der(root).to_owned()).collect()
        }
    };
    Ok(RootCerts::new_with_certs(&roots))
}

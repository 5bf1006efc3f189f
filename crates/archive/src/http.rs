//! HTTP and HTTPS to servers, bounded in time and size whatever they do.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ureq::config::ConfigBuilder;
use ureq::http::{HeaderValue, Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::typestate::{AgentScope, WithBody};
use ureq::{Agent, RequestBuilder};

/// Max bytes of a response head.
const HEAD_MAX: usize = 16 * 1024;
/// Max bytes of a response body.
const BODY_MAX: u64 = 16 << 20;
/// Max size of a file with certificates or a secret, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// A server, and how to identify to it.
#[derive(Clone)]
pub struct HttpOptions {
    /// URL below which all requests are.
    pub url: Uri,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Token of `Authorization`, after its scheme, such as `("Bearer", "…")`.
    pub token: Option<(&'static str, String)>,
    /// File with the root certificates (PEM) for https. Default: those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Max total time of a request.
    pub timeout: Duration,
}

/// HTTP client of one server.
pub struct Http {
    agent: Agent,
    base: String,
    authorization: Option<HeaderValue>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Body as text, up to 16 MiB.
    pub body: String,
}

impl Answer {
    /// Returns whether the request succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Http {
    /// Prepares the client. Nothing is connected.
    ///
    /// # Errors
    /// Returns an error in words if a certificate or secret cannot be used.
    pub fn new(options: &HttpOptions) -> Result<Http, String> {
        let mut config = bounded(Agent::config_builder(), options.timeout).max_idle_connections(1);
        if options.url.scheme_str() == Some("https") {
            config = config.tls_config(tls(options.ca_file.as_deref())?);
        }
        let text = match (&options.token, &options.user) {
            (Some((scheme, token)), _) => Some(format!("{scheme} {token}")),
            (None, Some((user, password))) => Some(format!("Basic {}", BASE64.encode(format!("{user}:{password}")))),
            (None, None) => None,
        };
        let authorization = match text {
            None => None,
            Some(text) => {
                let header = HeaderValue::from_str(&text);
                let mut header = header.map_err(|_| "the token or password has a control character".to_owned())?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        let base = options.url.to_string().trim_end_matches('/').to_owned();
        Ok(Http { agent: config.build().new_agent(), base, authorization })
    }

    /// Ends the connection, so that the next request has a new one.
    pub fn reconnect(&mut self) {
        self.agent = self.agent.config().new_agent();
    }

    /// Gets a path with parameters.
    ///
    /// # Errors
    /// Returns an error in words if there is no whole answer.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Answer, String> {
        answer(self.complete(self.agent.get(format!("{}{path}", self.base)), parameters).call())
    }

    /// Posts a body to a path with parameters.
    ///
    /// # Errors
    /// Returns an error in words if there is no whole answer.
    pub fn post(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        self.send(self.agent.post(format!("{}{path}", self.base)), parameters, content_type, body)
    }

    /// Puts a body to a path.
    ///
    /// # Errors
    /// Returns an error in words if there is no whole answer.
    pub fn put(&self, path: &str, content_type: &str, body: &[u8]) -> Result<Answer, String> {
        self.send(self.agent.put(format!("{}{path}", self.base)), &[], content_type, body)
    }

    fn send(
        &self,
        request: RequestBuilder<WithBody>,
        parameters: &[(&str, &str)],
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        answer(self.complete(request, parameters).header("content-type", content_type).send(body))
    }

    /// Adds what all requests have.
    fn complete<Body>(&self, mut request: RequestBuilder<Body>, parameters: &[(&str, &str)]) -> RequestBuilder<Body> {
        for (key, value) in parameters {
            request = request.query(key, value);
        }
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }
}

fn answer(response: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, String> {
    let mut response = response.map_err(|error| words(&error))?;
    let mut body = Vec::new();
    let read = response.body_mut().as_reader().take(BODY_MAX).read_to_end(&mut body);
    read.map_err(|error| error.to_string())?;
    Ok(Answer { status: response.status().as_u16(), body: String::from_utf8_lossy(&body).into_owned() })
}

/// Returns the configuration of a client that talks to the configured server alone, whatever a response or the
/// environment says.
pub fn bounded(config: ConfigBuilder<AgentScope>, timeout: Duration) -> ConfigBuilder<AgentScope> {
    config
        .user_agent(concat!("Strongback/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(timeout))
        .max_response_header_size(HEAD_MAX)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
}

/// Returns a URL of HTTP or HTTPS, and the user in it.
///
/// # Errors
/// Returns what is wrong, in words.
pub fn parse_url(text: &str) -> Result<(Uri, Option<String>), String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it must begin with http:// or https://".to_owned());
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err("it names no host".to_owned());
    };
    if uri.query().is_some() {
        return Err("it must have no parameters".to_owned());
    }
    let (user, host) = match authority.as_str().rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err("the password belongs into password_file".to_owned()),
        Some((user, host)) => (Some(user.to_owned()), host.to_owned()),
        None => (None, authority.as_str().to_owned()),
    };
    let scheme = uri.scheme_str().unwrap_or("http");
    let plain = format!("{scheme}://{host}{}", uri.path()).parse().map_err(|error| format!("{error}"))?;
    Ok((plain, user))
}

/// Returns an error with its causes, as one sentence.
pub fn words(error: &ureq::Error) -> String {
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

/// Reads a file of at most 4 MiB.
///
/// # Errors
/// Returns an error in words that names the file.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| format!("{shown}: {error}"))?;
    opened.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("{shown}: {error}"))?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(format!("{shown} is larger than {FILE_MAX} bytes")),
        false => Ok(bytes),
    }
}

/// Reads a file with a password or token, without the line end.
///
/// # Errors
/// Returns an error in words that names the file.
pub fn secret(file: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(file)?).map_err(|_| format!("{} is no text", file.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", file.display())),
        secret => Ok(secret.to_owned()),
    }
}

/// Returns the settings of TLS with the root certificates of a file, or those of this machine.
///
/// # Errors
/// Returns an error in words if there are no usable certificates.
pub fn tls(ca_file: Option<&Path>) -> Result<TlsConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder().root_certs(roots(ca_file)?).unversioned_rustls_crypto_provider(provider).build())
}

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

//! Access control: Host, Origin and token.
//!
//! Host: a page of a foreign site whose name was rebound to this machine sends its own name, so only IP addresses,
//! `localhost` and configured names pass. Origin: browsers send it with WebSockets and writes; only the server's own
//! pages and configured ones pass. Token: Bearer, `Token` (InfluxDB), the password of Basic, `p` (InfluxDB 1), and for
//! the WebSocket `access_token`, because browsers cannot set its headers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use strongback_query::shows_token;
use subtle::ConstantTimeEq;

use super::answer::Failure;
use crate::server::Server;

/// Passes a request on, or refuses it.
pub(super) async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let host = match host_of(uri, headers) {
        Ok(host) => host,
        Err(failure) => return failure.into_response(),
    };
    if !host_passes(&host, &server.config.http.hosts) {
        return Failure {
            status: StatusCode::MISDIRECTED_REQUEST,
            code: "wrong_host",
            message: format!("this server does not answer to the name {host:?}; add it to http.hosts"),
        }
        .into_response();
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let live = matches!(uri.path(), "/api/live" | "/api/sql/live");
    if (!reads || live || uri.path() == "/query")
        && let Err(failure) = check_origin(headers, &host, &server.config.http.origins)
    {
        return failure.into_response();
    }
    if let Some(token) = &server.token
        && !is_open(uri.path())
        && !shows(uri, headers, token)
    {
        let failure = Failure {
            status: StatusCode::UNAUTHORIZED,
            code: "unauthorized",
            message: "this server wants its token: Authorization: Bearer TOKEN (for commands --auth-token-file FILE)"
                .to_owned(),
        };
        let mut response = failure.into_response();
        // The page asks for the token itself; with `Basic` the browser would ask first.
        let scheme = if uri.path().starts_with("/api/") { "Bearer" } else { "Basic realm=\"strongback\"" };
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        return response;
    }
    next.run(request).await
}

/// Returns whether a path needs no token: probes, and the page's own files, which contain no telemetry and ask for the
/// token.
fn is_open(path: &str) -> bool {
    matches!(path, "/ping" | "/health" | "/" | "/index.html" | "/favicon.ico" | "/icon.svg")
        || path.starts_with("/assets/")
}

/// Returns the name and port by which the client addresses the server.
fn host_of(uri: &Uri, headers: &HeaderMap) -> Result<String, Failure> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (uri.authority(), hosts.next(), hosts.next()) {
        (Some(authority), _, None) => Some(authority.as_str().to_owned()),
        (None, Some(host), None) => host.to_str().ok().map(str::to_owned),
        _ => None,
    };
    host.ok_or_else(|| Failure::bad_request("exactly one Host header is required"))
}

/// Returns the host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn host_passes(host: &str, names: &[String]) -> bool {
    let name = name_of(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn check_origin(headers: &HeaderMap, host: &str, origins: &[String]) -> Result<(), Failure> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let own = origin
        .split_once("://")
        .is_some_and(|(scheme, authority)| matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host));
    if own || origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    Err(Failure {
        status: StatusCode::FORBIDDEN,
        code: "wrong_origin",
        message: format!("pages of {origin:?} may not do this; add it to http.origins"),
    })
}

/// Returns whether a request presents the token.
fn shows(uri: &Uri, headers: &HeaderMap, token: &str) -> bool {
    let same = |shown: &str| bool::from(shown.as_bytes().ct_eq(token.as_bytes()));
    if let Some(value) = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
        return shows_token(value, token);
    }
    let name = match uri.path() {
        "/api/live" | "/api/sql/live" => "access_token",
        "/write" | "/query" => "p",
        _ => return false,
    };
    let query: Vec<(String, String)> = axum::extract::Query::try_from_uri(uri).map(|q| q.0).unwrap_or_default();
    query.iter().any(|(key, value)| key == name && same(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_rebound_do_not_pass() {
        for host in ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "10.1.2.3", "pad.example:80"] {
            assert!(host_passes(host, &["pad.example".to_owned()]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "", "127.0.0.1.evil.example", "[evil]:1"] {
            assert!(!host_passes(host, &["pad.example".to_owned()]), "{host}");
        }
    }

    #[test]
    fn only_own_and_named_origins_write() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            check_origin(&headers, "127.0.0.1:8080", &["https://screen.example".to_owned()]).is_ok()
        };
        assert!(check("http://127.0.0.1:8080"));
        assert!(check("https://screen.example"));
        for origin in ["http://127.0.0.1:8081", "null", "http://evil.example", "file://127.0.0.1:8080", ""] {
            assert!(!check(origin), "{origin}");
        }
    }

    #[test]
    fn the_token_is_shown_in_every_way_that_clients_have() {
        let token = "0123456789abcdef";
        let with = |uri: &str, value: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            }
            shows(&uri.parse().unwrap(), &headers, token)
        };
        assert!(with("/", Some("Bearer 0123456789abcdef")));
        assert!(with("/", Some("Token 0123456789abcdef")));
        assert!(with("/", Some("Token me:0123456789abcdef")));
        assert!(with("/", Some("Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==")));
        assert!(with("/api/live?access_token=0123456789abcdef", None));
        assert!(with("/api/sql/live?sql=x&access_token=0123456789abcdef", None));
        assert!(with("/write?u=me&p=0123456789abcdef", None));
        assert!(!with("/api/sql?access_token=0123456789abcdef", None));
        assert!(!with("/", Some("Bearer 0123456789abcdeg")));
        assert!(!with("/", Some("Bearer")));
        assert!(!with("/", None));
    }
}

//! Who may talk to the server, and what it says to those who may not.

use std::time::Duration;

use serde_json::json;
use strongback_server::commands::serve::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{LiveClient, PATIENCE, TestServer, config};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_origins_are_refused() {
    let server = TestServer::start().await;
    for (host, status) in
        [("evil.example", 421), ("127.0.0.1.evil.example", 421), ("pad.example", 200), ("[::1]:1", 200)]
    {
        let answer = server.request("GET", "/api/health", &format!("Host: {host}\r\n"), b"").await;
        assert_eq!(answer.status, status, "{host}");
    }
    let two = server.request("GET", "/api/health", "Host: localhost\r\nHost: evil.example\r\n", b"").await;
    assert_eq!(two.status, 400);
    for (origin, status) in [("http://evil.example", 403), ("null", 403), ("https://screen.example", 204)] {
        let answer = server.request("POST", "/write", &format!("Origin: {origin}\r\n"), b"t a=1").await;
        assert_eq!(answer.status, status, "{origin}");
    }
    let own = format!("http://{}", server.http);
    assert!(LiveClient::connect(server.http, Some(("origin", &own))).await.is_ok());
    assert!(LiveClient::connect(server.http, Some(("origin", "http://evil.example"))).await.is_err());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_nothing_but_probes_and_the_page_goes_without() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let server = TestServer::with(&format!("auth_token_file = {:?}", file.display().to_string())).await;
    for path in ["/api/health", "/api/channels", "/metrics", "/api/live", "/nothing"] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
    }
    for path in ["/", "/health", "/icon.svg", "/ping"] {
        assert!(server.get(path).await.status < 300, "{path}");
    }
    for header in [
        "Authorization: Bearer 0123456789abcdef",
        "Authorization: Token 0123456789abcdef",
        "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==",
    ] {
        let answer = server.request("POST", "/write", &format!("{header}\r\n"), b"t a=1").await;
        assert_eq!(answer.status, 204, "{header}");
    }
    let wrong = server.request("POST", "/write", "Authorization: Bearer 0123456789abcdeF\r\n", b"t a=1").await;
    assert_eq!(wrong.status, 401);
    assert!(LiveClient::connect(server.http, None).await.is_err());
    assert!(LiveClient::connect(server.http, Some(("authorization", "Bearer 0123456789abcdef"))).await.is_ok());
    let url = format!("ws://{}/api/live?access_token=0123456789abcdef", server.http);
    assert!(tokio_tungstenite::connect_async(url).await.is_ok());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_are_answered_in_json() {
    let server = TestServer::start().await;
    for path in ["/settings", "/api", "/api/nothing", "/assets/none.js", "/none.ico", "/a/b.html", "/api/v2/query"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("not_found")), "{path}");
    }
    let answer = server.get("/api/sql").await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (405, Some("method_not_allowed")));
    let v4 = server.get("/api/v4/write").await;
    assert_eq!(v4.status, 404);
    assert!(v4.text().contains("http::"));
    assert_eq!(server.get("/api/live").await.status, 400);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    let second = Running::start(config(folder.path(), "")).await;
    let error = second.err().expect("two servers on one folder").to_string();
    assert!(error.contains("in use"), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_and_large_headers_hold_nobody_up() {
    let server = TestServer::start().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        stream.write_all(b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nt a=").await.unwrap();
        idle.push(stream);
    }
    assert_eq!(server.get("/api/health").await.status, 200);
    let mut stream = TcpStream::connect(server.http).await.unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\n").await;
    let line = format!("X-Filler: {}\r\n", "x".repeat(8000));
    for _ in 0..20 {
        if stream.write_all(line.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("endless headers are read");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    // Connections in the middle of a body do not keep the server from stopping.
    tokio::time::timeout(Duration::from_secs(20), server.stop()).await.expect("it does not stop");
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_parameters_and_bodies_is_said_in_json() {
    let server = TestServer::start().await;
    for path in ["/api/export?chanels=a", "/api/channels?patern=a", "/api/live?channels=a&rate=5", "/api/state?when=1"]
    {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_request")), "{path}");
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("unknown field"), "{path}: {error}");
    }
    let large = format!("{{\"sql\": \"{}\"}}", "x".repeat(2 << 20));
    for (body, status, code, said) in [
        ("", 400, "bad_request", "missing field `sql`"),
        ("[", 400, "bad_request", "invalid body: EOF"),
        ("{\"sql\": \"select 1\", \"limits\": 1}", 400, "bad_request", "unknown field `limits`"),
        (large.as_str(), 413, "too_large", "larger than 2 MiB"),
    ] {
        let answer = server.post("/api/sql", body).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{body:.40}");
        assert!(answer.json()["error"].as_str().unwrap().contains(said), "{}", answer.text());
    }
    server.stop().await;
}

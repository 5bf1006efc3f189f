//! Line protocol over HTTP, as real clients need it answered.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::client::TestServer;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_as_clients_expect() {
    let server = TestServer::start().await;
    let ping = server.get("/ping").await;
    assert_eq!(ping.status, 204);
    assert!(ping.head.contains("x-influxdb-version: 1."), "{}", ping.head);
    assert_eq!(server.request("HEAD", "/ping", "", b"").await.status, 204);
    let health = server.json("/health").await;
    assert_eq!((&health["name"], &health["status"]), (&json!("strongback"), &json!("pass")));
    let created = server.post("/query?q=CREATE%20DATABASE%20%22telegraf%22", "").await;
    assert_eq!((created.status, created.json()), (200, json!({ "results": [{ "statement_id": 0 }] })));
    let form = server
        .request("POST", "/query", "Content-Type: application/x-www-form-urlencoded\r\n", b"q=CREATE+DATABASE+telegraf")
        .await;
    assert_eq!(form.status, 200, "{}", form.text());
    assert_eq!(server.post("/query?q=SELECT%201", "").await.status, 400);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn precisions_count_in_their_unit() {
    let server = TestServer::start().await;
    for (path, time) in [
        ("/write?precision=n", 1_000_000_000u64),
        ("/write?precision=ms", 2_000),
        ("/write?precision=s&db=x&rp=y", 3),
        ("/write?precision=m", 1),
        ("/write?precision=h", 1),
        ("/api/v2/write?precision=us&bucket=x&org=y", 4_000_000),
        ("/api/v2/write", 5_000_000_000),
    ] {
        let answer = server.post(path, format!("t a=1 {time}")).await;
        assert_eq!(answer.status, 204, "{path}: {}", answer.text());
    }
    let times = server.sql("select time_ns from t order by time_ns").await;
    let seconds: Vec<u64> = times["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r[0].as_str().unwrap().parse::<u64>().unwrap() / 1_000_000_000)
        .collect();
    assert_eq!(seconds, [1, 2, 3, 4, 5, 60, 3600]);
    for path in ["/write?precision=fortnight", "/api/v2/write?precision=h"] {
        assert_eq!(server.post(path, "t a=1 1").await.status, 400, "{path}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_is_named_and_the_good_ones_are_kept() {
    let server = TestServer::start().await;
    let answer = server.post("/write", "t a=1 1\nt a=\nt a=3 3\n").await;
    assert_eq!(answer.status, 400);
    assert!(answer.head.contains("content-type: application/json"));
    let body = answer.json();
    assert_eq!((&body["code"], &body["line"]), (&json!("invalid"), &json!(2)));
    assert_eq!((&body["accepted"], &body["rejected"]), (&json!(2), &json!(1)));
    assert!(body["error"].as_str().unwrap().starts_with("partial write: "), "{body}");
    let none = server.post("/write", "garbage").await.json();
    assert!(none["message"].as_str().unwrap().starts_with("unable to parse: "), "{none}");
    // A retried write is stored once.
    server.write("t a=1 1\nt a=3 3").await;
    assert_eq!(server.sql("select count(*) from t").await["rows"][0][0], "2");
    let sources = server.json("/api/sources").await;
    assert_eq!(sources["sources"][0]["name"], "ilp");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_conflict_goes_to_a_second_column() {
    let server = TestServer::start().await;
    server.write("t a=1.5 1").await;
    server.write("t a=\"text\" 2").await;
    let rows = server.sql("select a, a_string from t order by time_ns").await;
    assert_eq!(rows["rows"], json!([[1.5, null], [null, "text"]]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded_before_and_after_decompression() {
    let server = TestServer::start().await;
    let gzipped = gzip(b"t a=1 1\nt a=2 2\n");
    let answer = server.request("POST", "/write", "Content-Encoding: gzip\r\n", &gzipped).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(server.sql("select count(*) from t").await["rows"][0][0], "2");
    let bomb = gzip(&vec![b'\n'; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    let answer = server.request("POST", "/write", "Content-Encoding: gzip\r\n", &bomb).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    let answer = server.post("/write", vec![b'\n'; (1 << 20) + 1]).await;
    assert_eq!(answer.status, 413);
    let answer = server.request("POST", "/write", "Content-Encoding: gzip\r\n", b"no gzip").await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = server.request("POST", "/write", "Content-Encoding: br\r\n", b"x").await;
    assert_eq!(answer.status, 415);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_sources_and_metrics_tell_the_same() {
    let server = TestServer::start().await;
    server.write("a,k=1 x=1,y=2\na,k=2 x=3\nb z=4").await;
    let page = server.json("/api/channels?pattern=a.*&limit=2&offset=1").await;
    assert_eq!(page["total"], 3);
    let names: Vec<&str> = page["channels"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.y{k=1}", "a.x{k=2}"]);
    assert_eq!(server.get("/api/channels?pattern=").await.status, 400);
    assert_eq!(server.get("/api/history?channels=a.*&from=soon").await.status, 400);
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200, "{}", metrics.text());
    for family in [
        "strongback_source_stored_total",
        "strongback_commit_latency_seconds_count",
        "strongback_queue_depth",
        "strongback_live_dropped_total",
        "strongback_segments",
        "strongback_resident_memory_bytes",
    ] {
        assert!(metrics.text().contains(family), "{family}");
    }
    let wrong = server.post("/api/sql", r#"{"sql":"select nope from a"}"#).await;
    assert_eq!((wrong.status, wrong.json()["sqlstate"].as_str()), (400, Some("42703")), "{}", wrong.text());
    server.stop().await;
}

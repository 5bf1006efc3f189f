//! The page's layouts: saved, shared, and never written over unseen.

use super::client::TestServer;

const TEXT: &str = r#"{"version":2,"title":"Pad","root":null,"panels":[]}"#;

fn tag(head: &str) -> String {
    let line = head.lines().find(|line| line.starts_with("etag: ")).unwrap();
    line["etag: ".len()..].trim_start_matches("w/").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layout_is_saved_read_changed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    assert_eq!(server.json("/api/layouts").await["layouts"], serde_json::json!([]));
    let saved = server.request("PUT", "/api/layouts/Launch%20day", "If-None-Match: *\r\n", TEXT.as_bytes()).await;
    assert_eq!(saved.status, 201, "{}", saved.text());
    let first = tag(&saved.head);
    // A long one comes compressed to who asks so, and its tag still is the one to give back.
    let long = format!("{}{}", TEXT, " ".repeat(5000));
    let changed =
        server.request("PUT", "/api/layouts/Launch%20day", &format!("If-Match: {first}\r\n"), long.as_bytes()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let got = server.request("GET", "/api/layouts/Launch%20day", "Accept-Encoding: gzip\r\n", b"").await;
    assert_eq!(tag(&got.head), tag(&changed.head));
    let unseen =
        server.request("PUT", "/api/layouts/Launch%20day", &format!("If-Match: {first}\r\n"), TEXT.as_bytes()).await;
    assert_eq!((unseen.status, unseen.json()["code"].as_str()), (412, Some("conflict")), "{}", unseen.text());
    server.stop().await;

    // It lies in a file, and is there after a restart.
    assert_eq!(std::fs::read_to_string(folder.path().join("layouts/Launch day.json")).unwrap(), long);
    let server = TestServer::on(folder.path(), "").await;
    let list = server.json("/api/layouts").await;
    assert_eq!((&list["layouts"][0]["name"], &list["layouts"][0]["title"]), (&"Launch day".into(), &"Pad".into()));
    assert_eq!(server.request("DELETE", "/api/layouts/Launch%20day", "", b"").await.status, 200);
    assert_eq!(server.get("/api/layouts/Launch%20day").await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_layout_is_refused_with_the_reason() {
    let server = TestServer::start().await;
    let long = "x".repeat(300_000);
    for (path, headers, body, status, why) in [
        ("/api/layouts/..%2F..%2Fstrongback", "", TEXT, 400, "is not a valid layout name"),
        ("/api/layouts/%2Fetc%2Fx", "", TEXT, 400, "is not a valid layout name"),
        ("/api/layouts/a", "", "{\"version\":99}", 422, "version 99 of layouts is newer than this server"),
        ("/api/layouts/a", "", "nonsense", 422, "no layout: expected ident at line 1 column 2"),
        ("/api/layouts/a", "", &long, 413, "at most 262144 bytes"),
        ("/api/layouts/a", "If-Match: *\r\n", TEXT, 400, "If-Match"),
        ("/api/layouts/a", "If-Match: \"x\"\r\nIf-None-Match: *\r\n", TEXT, 400, "If-Match"),
        ("/api/layouts/a", "If-Match: \"x\"\r\n", TEXT, 412, "deleted meanwhile"),
        ("/api/layouts/a", "Origin: http://evil.example\r\n", TEXT, 403, "evil.example"),
    ] {
        let answer = server.request("PUT", path, headers, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{path} {headers}: {}", answer.text());
        assert!(answer.json()["error"].as_str().unwrap().contains(why), "{}", answer.text());
    }
    assert_eq!(server.json("/api/layouts").await["layouts"], serde_json::json!([]));
    assert_eq!(server.get("/api/layouts/none").await.json()["code"], "not_found");
    server.stop().await;
}

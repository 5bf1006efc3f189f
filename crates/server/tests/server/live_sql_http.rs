//! Live SQL as events and over a WebSocket.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{LiveClient, PATIENCE, TestServer};

/// Reads a stream of events.
struct Events {
    stream: tokio::net::TcpStream,
    /// Bytes of the body that were received and not read.
    text: String,
    raw: Vec<u8>,
}

impl Events {
    async fn open(server: &TestServer, sql: &str, more: &str, header: &str) -> Events {
        use tokio::io::AsyncWriteExt;
        let encoded: String = sql.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
        let head = format!("GET /api/sql/live?sql={encoded}{more} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut events = Events { stream, text: String::new(), raw: Vec::new() };
        let end = loop {
            if let Some(end) = events.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            events.receive().await;
        };
        let head = String::from_utf8(events.raw.drain(..end + 4).collect()).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
        events
    }

    async fn receive(&mut self) {
        use tokio::io::AsyncReadExt;
        let count =
            tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.raw)).await.expect("nothing").unwrap();
        assert!(count > 0, "closed");
    }

    /// The next event but for heartbeats: its name, id and data.
    async fn next(&mut self) -> (String, Option<String>, Value) {
        loop {
            while let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).unwrap(), 16).unwrap();
                if self.raw.len() < line + 4 + size {
                    break;
                }
                self.text += std::str::from_utf8(&self.raw[line + 2..line + 2 + size]).unwrap();
                self.raw.drain(..line + 4 + size);
            }
            let Some(end) = self.text.find("\n\n") else {
                self.receive().await;
                continue;
            };
            let event: String = self.text.drain(..end + 2).collect();
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            match field("event: ") {
                None => assert!(event.starts_with("retry: "), "{event}"),
                Some(name) if name == "heartbeat" => {}
                Some(name) => {
                    let data = serde_json::from_str(&field("data: ").unwrap()).unwrap();
                    return (name, field("id: "), data);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_continue_where_a_client_stood() {
    let server = TestServer::start().await;
    server.write("tank,bay=a p=1,n=1i 1795132800000000000\ntank,bay=b p=2,n=2i 1795132800000000000").await;
    let sql = "select n, p, bay, time from tank where p < 5 or p > 6";
    let mut events = Events::open(&server, sql, "&interval_ms=20", "").await;
    let (name, id, columns) = events.next().await;
    assert_eq!(
        (name.as_str(), id, &columns["class"], &columns["interval_ms"]),
        ("columns", None, &json!("rows"), &json!(20))
    );
    let plain = server.sql(sql).await;
    assert_eq!(columns["columns"], plain["columns"]);
    let (name, id, rows) = events.next().await;
    assert_eq!((name.as_str(), &rows["snapshot"]), ("rows", &json!(true)));
    let sorted = |of: &Value| of["rows"].as_array().unwrap().iter().map(Value::to_string).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&rows), sorted(&plain));
    assert!(id.is_some_and(|id| !id.is_empty()));
    server.write("tank,bay=a p=7.5,n=3i 1795132801000000000").await;
    let (_, id, rows) = events.next().await;
    assert_eq!(rows["rows"], json!([["3", 7.5, "a", "2026-11-20T00:00:01Z"]]));
    drop(events);
    server.write("tank,bay=c p=8,n=4i 1795132802000000000\ntank,bay=a p=5.5,n=5i 1795132802000000000").await;
    let mut events = Events::open(&server, sql, "", &format!("Last-Event-ID: {}\r\n", id.unwrap())).await;
    assert_eq!(events.next().await.2["resumed"], true);
    let (_, _, rows) = events.next().await;
    assert_eq!(rows["rows"], json!([["4", 8, "c", "2026-11-20T00:00:02Z"]]));
    for (wrong, status) in [
        ("", 400),
        ("?sql=select+1", 400),
        ("?sql=select+n+from+tank&interval_ms=1", 400),
        ("?sql=select+n+from+tank&interval_s=1", 400),
        ("?sql=select+n+from+tank&format=xml", 400),
        ("?sql=select+n+from+tank&resume=here", 400),
    ] {
        let answer = server.get(&format!("/api/sql/live{wrong}")).await;
        assert_eq!((answer.status, answer.json()["error"].is_string()), (status, true), "{wrong}: {}", answer.text());
    }
    // An open stream does not keep the server from stopping.
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_carries_several_subscriptions() {
    let server = TestServer::start().await;
    server.write("tank,bay=a p=1,n=1i 1795132800000000000").await;
    let connecting = tokio_tungstenite::connect_async(format!("ws://{}/api/sql/live", server.http));
    let mut client = LiveClient { socket: connecting.await.unwrap().0, protocol: None };
    let subscribe = |id: i64, sql: &str| json!({ "type": "subscribe", "id": id, "sql": sql, "interval_ms": 10 });
    client.send(subscribe(1, "select n from tank")).await;
    let snapshot = client.next_of("rows").await;
    assert_eq!((&snapshot["id"], &snapshot["rows"]), (&json!(1), &json!([["1"]])));
    client.send(subscribe(2, "select count(*) as c from tank")).await;
    assert_eq!(client.next_of("result").await["rows"], json!([["1"]]));
    server.write("tank,bay=a p=1,n=2i 1795132801000000000").await;
    let (mut rows, mut result, mut position) = (json!(null), json!(null), json!(null));
    while rows.is_null() || result.is_null() {
        let message = client.next().await;
        match (message["id"].as_i64(), message["type"].as_str()) {
            (Some(1), Some("rows")) => (rows, position) = (message["rows"].clone(), message["position"].clone()),
            (Some(2), Some("result")) => result = message["rows"].clone(),
            (_, Some("heartbeat")) => {}
            _ => panic!("{message}"),
        }
    }
    assert_eq!((rows, result), (json!([["2"]]), json!([["2"]])));
    client.send(json!({ "type": "unsubscribe", "id": 2 })).await;
    client.send(json!({ "type": "unsubscribe", "id": 2 })).await;
    assert_eq!(client.next_of("error").await["id"], 2);
    // Another statement takes the place of one with its id, here at a position.
    let mut again = subscribe(1, "select n + 10 as m from tank");
    again["resume"] = position;
    client.send(again).await;
    server.write("tank,bay=a p=1,n=3i 1795132802000000000").await;
    loop {
        let message = client.next_of("rows").await;
        if message["rows"] == json!([["13"]]) {
            break;
        }
        assert_eq!(message["rows"], json!([["3"]]), "of the statement before, until it was replaced");
    }
    for (wrong, code, reason) in [
        (json!({ "type": "subscribe", "id": 3, "sql": "select 1" }), "sql", "reads no table"),
        (
            json!({ "type": "subscribe", "id": 3, "sql": "select n from tank", "interval": 5 }),
            "bad_request",
            "interval",
        ),
        (json!({ "type": "subscribe", "sql": "select n from tank" }), "bad_request", "id"),
        (json!({ "type": "shout" }), "bad_request", "shout"),
    ] {
        client.send(wrong.clone()).await;
        let error = client.next_of("error").await;
        assert_eq!(error["code"], code, "{wrong}: {error}");
        assert!(error["error"].as_str().unwrap().contains(reason), "{wrong}: {error}");
    }
    for id in 0..70 {
        client.send(subscribe(100 + id, "select n from tank")).await;
    }
    let error = client.next_of("error").await;
    assert_eq!((&error["code"], &error["id"]), (&json!("too_many_subscriptions"), &json!(163)), "{error}");
    futures::SinkExt::send(&mut client.socket, Message::binary(vec![1])).await.unwrap();
    while client.next_of("error").await["error"] != "messages are JSON text" {}
    server.stop().await;
}

//! What clients make the server hold, and how long they may keep it waiting.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use strongback_server::PLAYBACK_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{LiveClient, TestServer};
use crate::faults::until;

const BASE: u64 = 1_780_000_000_000_000_000;
/// Rows of the table `wide`, which has eight channels.
const ROWS: u64 = 20_000;

/// A connection from an address of this machine, with a receive buffer that is soon full.
async fn from(last: u8, http: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
    socket.connect(http).await.unwrap()
}

async fn send(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).await.unwrap();
}

/// One request from an address of this machine; the status of its answer.
async fn status(last: u8, http: SocketAddr, request: &str) -> u16 {
    let mut stream = from(last, http).await;
    send(&mut stream, request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text:?}"))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    let size = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n{body}")
}

async fn small() -> TestServer {
    TestServer::with_config(|config| {
        (config.limits.client_memory_mib, config.limits.client_memory_per_address_mib) = (32, 16);
    })
    .await
}

fn held(server: &TestServer) -> usize {
    server.running.as_ref().unwrap().server.budget.held()
}

async fn fill(server: &TestServer) {
    let cells: String = (0..8).map(|c| format!("c{c}=%,")).collect();
    let cells = cells.trim_end_matches(',');
    for part in 0..ROWS / 2000 {
        let line = |n: u64| format!("wide {} {}\n", cells.replace('%', &format!("{n}.25")), BASE + n * 1_000_000);
        let lines: String = (part * 2000..(part + 1) * 2000).map(line).collect();
        server.write(&lines).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_wait_for_their_clients_keep_nobody_out() {
    let server = TestServer::with_config(|config| {
        (config.http.max_connections, config.http.max_connections_per_address) = (60, 40);
    })
    .await;
    let mut silent = Vec::new();
    for n in 0..200 {
        let mut stream = from(1, server.http).await;
        let begun = match n % 4 {
            0 => "",
            1 => "GET /ping HTTP/1.1\r\nHo",
            2 => "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"sql\"",
            _ => "POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nt a=",
        };
        let _ = stream.write_all(begun.as_bytes()).await;
        silent.push(stream);
        if n % 20 == 19 {
            // Of the same client, and of another.
            for last in [1, 2] {
                assert_eq!(status(last, server.http, &get("/ping")).await, 204);
                assert_eq!(status(last, server.http, &post("/api/sql", "{\"sql\":\"select 1\"}")).await, 200);
                assert_eq!(status(last, server.http, &post("/write", "t a=1")).await, 204);
            }
        }
    }
    assert!(server.running.as_ref().unwrap().server.connections.len() <= 60);
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("strongback_http_connections_ended_total{reason=\"refused\"} 0"), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_http_is_told_so_and_counted() {
    let server = small().await;
    let others = ["t a=1\n", "\0\0\0\x08\x04\u{16}", "\x16\x03\x01\x02\0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    for other in others {
        assert_eq!(status(1, server.http, other).await, 400, "{other:?}");
    }
    // In pieces, too.
    let mut stream = from(1, server.http).await;
    send(&mut stream, "GET /ping HT").await;
    send(&mut stream, "ML\r\n\r\n").await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"code\":\"bad_request\""), "{answer}");
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("strongback_http_connections_ended_total{reason=\"not_http\"} 5"), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_end_are_held_within_the_share_of_their_client() {
    let server = small().await;
    let head = "POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    let part = "x".repeat(900_000);
    let mut unfinished = Vec::new();
    for _ in 0..40 {
        let mut stream = from(1, server.http).await;
        // Refused ones may be closed before all was sent.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(part.as_bytes()).await;
        unfinished.push(stream);
        assert!(held(&server) <= 16 << 20, "{}", held(&server));
    }
    until(async || if held(&server) > 15 << 20 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    // Its own further bodies are refused with a reason, those of others are not.
    let large = post("/write", &format!("t s=\"{}\"", "y".repeat(900_000)));
    until(async || match status(1, server.http, &large).await {
        429 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    assert_eq!(status(2, server.http, &large).await, 204);
    assert_eq!(status(2, server.http, &get("/ping")).await, 204);
    drop(unfinished);
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    assert_eq!(status(1, server.http, &large).await, 204);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_are_held_within_the_share_of_their_client() {
    let server = small().await;
    fill(&server).await;
    let history = format!("/api/history?channels=wide.*&points=20000&from={BASE}&to={}", BASE + ROWS * 1_000_000);
    let sql = json!({ "sql": "select * from wide", "limit": 20_000 }).to_string();
    let mut unread = Vec::new();
    for n in 0..30 {
        let mut stream = from(1, server.http).await;
        let request = if n % 2 == 0 { get(&history) } else { post("/api/sql", &sql) };
        send(&mut stream, request).await;
        unread.push(stream);
        assert!(held(&server) <= 16 << 20, "{}", held(&server));
    }
    until(async || match status(1, server.http, &get(&history)).await {
        429 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    assert!(held(&server) <= 16 << 20, "{}", held(&server));
    assert_eq!(status(2, server.http, &get(&history)).await, 200);
    assert_eq!(status(1, server.http, &get("/ping")).await, 204);
    drop(unread);
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    let answer = server.get(&history).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["series"].as_array().unwrap().len(), 8);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_that_live_clients_do_not_read_are_held_within_their_share() {
    let server = small().await;
    fill(&server).await;
    let seconds = (strongback_server::now_ns() as u64 - BASE) / 1_000_000_000 + 60;
    let subscribe = json!({
        "type": "subscribe", "id": 1, "channels": ["wide.*"], "history_s": seconds, "history_points": 20_000,
    });
    let mut unread = Vec::new();
    for _ in 0..20 {
        let mut live = LiveClient::on(from(1, server.http).await, server.http).await.unwrap();
        live.send(subscribe.clone()).await;
        unread.push(live);
        assert!(held(&server) <= 16 << 20, "{}", held(&server));
    }
    // One that reads gets all of it, in parts.
    let mut live = LiveClient::on(from(2, server.http).await, server.http).await.unwrap();
    live.send(subscribe).await;
    live.next_of("subscribed").await;
    let (mut channels, mut buckets) = (0, 0);
    while channels < 8 {
        let history = live.next_of("history").await;
        for series in history["series"].as_array().unwrap() {
            channels += 1;
            buckets += series["buckets"].as_array().unwrap().iter().map(|b| b[1].as_u64().unwrap()).sum::<u64>();
        }
    }
    assert_eq!((channels, buckets), (8, 8 * ROWS));
    // What comes then is not held back.
    server.write(&format!("wide c0=1.5 {}", strongback_server::now_ns())).await;
    live.next_of("update").await;
    drop((unread, live));
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_are_not_read_make_room_for_others() {
    let server = TestServer::start().await;
    fill(&server).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        for last in [1, 2, 3] {
            let mut stream = from(last, server.http).await;
            send(&mut stream, get("/api/export?channels=wide.*&format=jsonl")).await;
            unread.push(stream);
        }
    }
    until(async || match status(1, server.http, &get("/api/export?channels=wide.c0&format=csv")).await {
        200 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    drop(unread);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn playbacks_count_against_the_share_of_their_client() {
    let server = small().await;
    server.write(&format!("t a=1 {BASE}")).await;
    let start =
        post("/api/playbacks", &json!({ "from": BASE.to_string(), "to": (BASE + 1000).to_string() }).to_string());
    for client in [1, 2] {
        for _ in 0..(16 << 20) / PLAYBACK_BYTES {
            assert_eq!(status(client, server.http, &start).await, 201);
        }
        assert_eq!(status(client, server.http, &start).await, 429);
    }
    assert_eq!(status(3, server.http, &start).await, 503, "all clients together have their share");
    server.stop().await;
}

/// A subscription of these channels as an answer, and what it says until that is made or refused.
async fn watch(http: SocketAddr, channels: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(http).await.unwrap();
    send(&mut stream, get(&format!("/api/live?channels={channels}&format=jsonl"))).await;
    let mut said = Vec::new();
    let is_said = |said: &[u8], words: &str| said.windows(words.len()).any(|window| window == words.as_bytes());
    loop {
        let before = said.len().saturating_sub(64);
        if stream.read_buf(&mut said).await.unwrap() == 0
            || ["\"unmatched\":", "\"type\":\"error\""].iter().any(|words| is_said(&said[before..], words))
        {
            return (stream, String::from_utf8_lossy(&said).into_owned());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_without_a_websocket_count_against_the_share_of_their_client() {
    let server = small().await;
    let patterns: Vec<String> = (0..1000).map(|n| format!("none{n}.a")).collect();
    let (named, said) = watch(server.http, &patterns.join(",")).await;
    assert!(said.contains("unmatched"), "{said}");
    assert!(held(&server) > 20_000, "its patterns: {}", held(&server));
    drop(named);
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    let cells: Vec<String> = (0..2500).map(|c| format!("c{c}=1")).collect();
    for part in 0..4 {
        server.write(&format!("many,part={part} {}", cells.join(","))).await;
    }
    let mut watching = Vec::new();
    let (mut refused, said) = loop {
        let (stream, said) = watch(server.http, "many.*").await;
        if said.contains("\"type\":\"error\"") {
            break (stream, said);
        }
        watching.push(stream);
        assert!(held(&server) >= watching.len() * 1_500_000, "{} of {}", held(&server), watching.len());
        assert!(watching.len() < 16, "none is refused");
    };
    assert!(watching.len() > 2, "{}", watching.len());
    assert!(said.contains("limits.client_memory_per_address_mib"), "{said}");
    // What is refused ends, and another client has its own share.
    refused.read_to_end(&mut Vec::new()).await.unwrap();
    let mut live = LiveClient::on(from(2, server.http).await, server.http).await.unwrap();
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["many.c7"] })).await;
    assert_eq!(live.next_of("subscribed").await["channels"].as_array().unwrap().len(), 4);
    drop((watching, live));
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_that_come_later_count_against_the_share_of_their_client() {
    let server = small().await;
    let mut live = server.live().await;
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["many.*"] })).await;
    live.next_of("subscribed").await;
    assert_eq!(held(&server), 0);
    let cells: Vec<String> = (0..2500).map(|c| format!("c{c}=1")).collect();
    server.write(&format!("many {}", cells.join(","))).await;
    assert_eq!(live.next_of("channels").await["channels"].as_array().unwrap().len(), 2500);
    // Its window, and its place in it.
    let channel_bytes = 160 + 4;
    until(async || if held(&server) == 2500 * channel_bytes { Ok(()) } else { Err(held(&server).to_string()) }).await;
    // One more is counted, too.
    server.write("many,part=2 c=1").await;
    until(async || if held(&server) == 2501 * channel_bytes { Ok(()) } else { Err(held(&server).to_string()) }).await;
    drop(live);
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_do_not_end_are_held_within_the_share_of_their_client() {
    let server = small().await;
    let upgrade = "GET /api/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // Of a text of half a million bytes the header, its mask and the first part.
    let mut part = vec![0x81, 0xff];
    part.extend_from_slice(&500_000_u64.to_be_bytes());
    part.extend_from_slice(&[0; 4]);
    part.resize(400_000, b'x');
    let mut unfinished = Vec::new();
    for _ in 0..60 {
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        send(&mut stream, upgrade).await;
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 101");
        // One that is refused may be closed before all was sent.
        let _ = stream.write_all(&part).await;
        unfinished.push(stream);
        assert!(held(&server) <= 16 << 20, "{}", held(&server));
    }
    until(async || if held(&server) > 15 << 20 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    // Another client has its own share.
    let mut live = LiveClient::on(from(2, server.http).await, server.http).await.unwrap();
    let patterns: Vec<String> = (0..9_000).map(|n| format!("none{n}.{}", "a".repeat(30))).collect();
    live.send(json!({ "type": "subscribe", "id": 1, "channels": patterns })).await;
    assert_eq!(live.next_of("subscribed").await["unmatched"].as_array().unwrap().len(), 9_000);
    drop((unfinished, live));
    until(async || if held(&server) == 0 { Ok(()) } else { Err(held(&server).to_string()) }).await;
    server.stop().await;
}

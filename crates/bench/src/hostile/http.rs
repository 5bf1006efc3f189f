//! Hostile HTTP: almost valid requests, bodies that never end, unread answers.

use std::io::Write;
use std::time::Duration;

use fastrand::Rng;

use super::socket::{connect, many, read_some, spoil, trickle};
use super::target::Target;

/// Paths with their methods; `#` stands for a number.
const PATHS: [(&str, &str); 26] = [
    ("GET", "/api/history?channels=*&points=#&from=now-#d"),
    ("GET", "/api/history?channels=m*.x&points=20000&from=1970-01-01T00:00:00Z"),
    ("GET", "/api/state?channels=*"),
    ("GET", "/api/state?at=#&channels=*"),
    ("GET", "/api/channels?limit=#"),
    ("GET", "/api/gaps?limit=#"),
    ("GET", "/api/events?limit=#"),
    ("GET", "/api/export?format=csv"),
    ("GET", "/api/export?format=parquet&channels=m*.*"),
    ("GET", "/api/limits/past?limit=#"),
    ("GET", "/api/doctor?channel=m.x"),
    ("GET", "/api/live?channels=*&history_s=#&history_points=#"),
    ("GET", "/metrics"),
    ("GET", "/api/layouts/%2e%2e"),
    ("POST", "/api/sql"),
    ("POST", "/write"),
    ("POST", "/write?precision=#"),
    ("POST", "/api/v2/write"),
    ("POST", "/query?q=create%20database%20a"),
    ("POST", "/api/events"),
    ("POST", "/api/playbacks"),
    ("POST", "/api/runs/hostile/start?channels=*"),
    ("POST", "/api/alarms/acknowledge"),
    ("PUT", "/api/layouts/hostile"),
    ("PUT", "/api/derived/hostile"),
    ("DELETE", "/api/playbacks/#"),
];

/// Bodies; `#` stands for a number.
const BODIES: [&str; 10] = [
    "{\"sql\":\"select * from m\",\"limit\":#}",
    "{\"sql\":\"select count(*) from m\"}",
    "{\"text\":\"server started (epoch #): nothing was recorded since 2026-01-01T00:00:00Z, 3 s before\"}",
    "{\"from\":\"#\",\"to\":\"#\",\"speed\":1000}",
    "{\"version\":3,\"panels\":[[[[[[[[[[#]]]]]]]]]]}",
    "strongback.events text=\"forged\",source=\"strongback\" #\n",
    "hostile,n=# v=#\n",
    "\u{1f}\u{8b}\u{8}",
    "{\"trigger\":\"m\",\"expression\":\"x + # * (y - #)\"}",
    "",
];

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..6);
    let request = request(&mut rng);
    let shown = String::from_utf8_lossy(&request).into_owned();
    target.strike("http", seed, &format!("way {way}: {shown}"), || match way {
        0 => asked(target, request),
        1 => spoilt(target, request, &mut rng),
        2 => trickled(target, &request, &mut rng),
        3 => unread(target, &request, &mut rng),
        4 => unfinished(target, &mut rng),
        _ => pipelined(target, &request, &mut rng),
    });
}

fn numbers(text: &str, rng: &mut Rng) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match (c, rng.u32(..6)) {
            ('#', 0) => out.push_str(["-1", "NaN", "9223372036854775808", "0"][rng.usize(..4)]),
            ('#', _) => out.push_str(&(10f64.powf(rng.f64() * 7.0) as u64).to_string()),
            _ => out.push(c),
        }
    }
    out
}

/// Returns a well-formed request.
fn request(rng: &mut Rng) -> Vec<u8> {
    let (method, path) = PATHS[rng.usize(..PATHS.len())];
    let path = numbers(path, rng);
    let mut body = if method == "GET" { String::new() } else { numbers(BODIES[rng.usize(..BODIES.len())], rng) };
    if method != "GET" && rng.u32(..8) == 0 {
        body = body.repeat(rng.usize(1..2000));
    }
    let encoding = if rng.u32(..6) == 0 { "Content-Encoding: gzip\r\n" } else { "" };
    let accept = if rng.bool() { "Accept-Encoding: gzip\r\n" } else { "" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{encoding}{accept}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

fn asked(target: &Target, request: Vec<u8>) {
    let Ok(mut stream) = connect(target.http, false) else { return };
    if stream.write_all(&request).is_ok() {
        read_some(&mut stream, 8 << 20);
    }
}

fn spoilt(target: &Target, mut request: Vec<u8>, rng: &mut Rng) {
    spoil(&mut request, rng);
    asked(target, request);
}

/// Sends a request a few bytes at a time.
fn trickled(target: &Target, request: &[u8], rng: &mut Rng) {
    let Ok(stream) = connect(target.http, false) else { return };
    trickle(stream, request, rng, Duration::from_secs(5));
}

/// Requests many answers without reading them.
fn unread(target: &Target, request: &[u8], rng: &mut Rng) {
    let streams = many(target.http, rng.usize(1..60), |_| request.to_vec());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..5_000)));
    drop(streams);
}

/// Sends many incomplete bodies.
fn unfinished(target: &Target, rng: &mut Rng) {
    let (path, part) = (["/write", "/api/sql", "/api/events"][rng.usize(..3)], rng.usize(..2 << 20));
    let chunked = rng.bool();
    let mut begun = match chunked {
        true => {
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", 48 << 20)
        }
        false => format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 48 << 20),
    }
    .into_bytes();
    begun.resize(begun.len() + part, b'x');
    let streams = many(target.http, rng.usize(1..40), |_| begun.clone());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..5_000)));
    drop(streams);
}

/// Sends many requests at once on one connection.
fn pipelined(target: &Target, request: &[u8], rng: &mut Rng) {
    asked(target, request.repeat(rng.usize(1..100).min((4 << 20) / request.len().max(1) + 1)));
}

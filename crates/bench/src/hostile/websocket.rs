//! Hostile WebSockets: almost valid frames, floods, subscriptions with long histories that are not read.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::socket::{connect, read_some, spoil};
use super::target::Target;
use crate::http::HttpConnection;

/// Max number of clients in a strike.
const CLIENTS_MAX: usize = 60;
/// Max time for a playback to begin.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..6);
    target.strike("websocket", seed, &format!("way {way}"), || match way {
        0 | 1 => histories(target, None, &mut rng),
        2 => playback(target, &mut rng),
        3 => frames(target, &mut rng),
        4 => flood(target, &mut rng),
        _ => handshakes(target, &mut rng),
    });
}

fn handshake(path: &str, is_binary: bool) -> Vec<u8> {
    let protocol = if is_binary { "Sec-WebSocket-Protocol: strongback.live.v1\r\n" } else { "" };
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
    )
    .into_bytes()
}

/// Returns a frame as clients send it: masked, with an opcode.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        size @ ..126 => frame.push(0x80 | size as u8),
        size @ ..65536 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(size as u16).to_be_bytes());
        }
        size => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    // A mask of zeros is valid, too.
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn subscribe(id: i64, rng: &mut Rng) -> Vec<u8> {
    let patterns = ["*", "m*", "*.x", "m{rig=A}.*", "strongback.*", "*.*", "m.x"];
    let channels: Vec<&str> = (0..rng.usize(1..8)).map(|_| patterns[rng.usize(..patterns.len())]).collect();
    let rate_hz = [0.001, 10.0, 1000.0][rng.usize(..3)];
    let message = json!({
        "type": "subscribe",
        "id": id,
        "channels": channels,
        "max_rate_hz": rate_hz,
        "history_s": 10f64.powf(rng.f64() * 9.0),
        "history_points": rng.usize(1..50_000),
    });
    frame(1, message.to_string().as_bytes())
}

fn open(target: &Target, playback: Option<&str>, rng: &mut Rng) -> Option<TcpStream> {
    let path = playback.map_or_else(|| "/api/live".to_owned(), |id| format!("/api/live?playback={id}"));
    let mut stream = connect(target.http, true).ok()?;
    stream.write_all(&handshake(&path, rng.bool())).ok()?;
    Some(stream)
}

/// Requests long histories without reading them.
fn histories(target: &Target, playback: Option<&str>, rng: &mut Rng) {
    let mut streams = Vec::new();
    for _ in 0..rng.usize(1..CLIENTS_MAX) {
        let Some(mut stream) = open(target, playback, rng) else { break };
        for id in 0..rng.i64(1..80) {
            if stream.write_all(&subscribe(id, rng)).is_err() {
                break;
            }
        }
        streams.push(stream);
    }
    std::thread::park_timeout(Duration::from_millis(rng.u64(..6_000)));
    drop(streams);
}

/// Starts a playback at the highest speed whose viewers do not read.
fn playback(target: &Target, rng: &mut Rng) {
    let begin = json!({ "from": "2026-11-18T00:00:00Z", "to": "2026-11-20T00:00:00Z", "speed": 1000.0, "loop": true });
    let begun = HttpConnection::open(target.http, PATIENCE)
        .and_then(|mut http| http.post("/api/playbacks", begin.to_string().as_bytes()));
    let id = begun.ok().and_then(|answer| serde_json::from_str::<serde_json::Value>(&answer.body).ok());
    let id = id.and_then(|state| state["id"].as_str().map(str::to_owned));
    histories(target, id.as_deref(), rng);
}

/// Sends frames of any kind with any bytes.
fn frames(target: &Target, rng: &mut Rng) {
    let Some(mut stream) = open(target, None, rng) else { return };
    for _ in 0..rng.usize(1..100) {
        let payload: Vec<u8> = match rng.u32(..5) {
            0 => (0..rng.usize(..300)).map(|_| rng.u8(..)).collect(),
            1 => "[".repeat(rng.usize(1..200_000)).into_bytes(),
            2 => json!({ "type": "unsubscribe", "id": rng.i64(..) }).to_string().into_bytes(),
            3 => vec![b'x'; rng.usize(1 << 20..2 << 20)],
            _ => json!({ "type": "subscribe", "id": 1, "channels": vec!["*a*b*c*d*"; rng.usize(1..9000)] })
                .to_string()
                .into_bytes(),
        };
        let mut bytes = frame(rng.u8(..16), &payload);
        if rng.bool() {
            spoil(&mut bytes, rng);
        }
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
    read_some(&mut stream, 1 << 20);
}

/// Repeats the same subscription many times.
fn flood(target: &Target, rng: &mut Rng) {
    let Some(mut stream) = open(target, None, rng) else { return };
    for _ in 0..rng.usize(1..2000) {
        if stream.write_all(&subscribe(rng.i64(..70), rng)).is_err() {
            return;
        }
    }
}

/// Sends almost valid handshakes.
fn handshakes(target: &Target, rng: &mut Rng) {
    for _ in 0..rng.usize(1..50) {
        let mut bytes = handshake("/api/live", rng.bool());
        spoil(&mut bytes, rng);
        let Ok(mut stream) = connect(target.http, false) else { return };
        let _ = stream.write_all(&bytes);
    }
}

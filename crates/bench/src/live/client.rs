//! A live client that measures the age of updates once they are decoded, and the regularity of their arrival.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::clock::now_ns;

/// Max time without a message from the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Subprotocol of the binary form.
const PROTOCOL: &str = "strongback.live.1";
/// Layout of a binary message with windows: its kind, bytes of its head, and offset of the last frame's time in a
/// window.
const UPDATE: u8 = 1;
const HEAD: usize = 36;
const WINDOW_LAST: usize = 48;
const WINDOW_MIN: usize = 64;

/// Encoding of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Binary,
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Json => "JSON",
            Form::Binary => "binary",
        }
    }
}

/// Request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(super) channels: Vec<String>,
    pub(super) max_rate_hz: Option<f64>,
    pub(super) form: Form,
}

/// Observations of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Time of each window, from the stamp of its newest frame until it was decoded.
    pub(crate) fresh_ms: Vec<f64>,
    /// Time between two updates.
    pub(super) intervals_ms: Vec<f64>,
    pub(super) updates: u64,
    pub(crate) windows: u64,
    /// Number of channel windows decoded; only for JSON.
    pub(super) values: u64,
    pub(super) bytes: u64,
    pub(super) conflated: u64,
    pub(crate) dropped: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Seen) {
        self.fresh_ms.extend(other.fresh_ms);
        self.intervals_ms.extend(other.intervals_ms);
        self.updates += other.updates;
        self.windows += other.windows;
        self.values += other.values;
        self.bytes += other.bytes;
        self.conflated += other.conflated;
        self.dropped += other.dropped;
    }
}

/// Parsed part of an update: stamps of its windows' newest frames, nanoseconds since 1970 UTC.
#[derive(Debug, Default, PartialEq)]
struct Update {
    newest: Vec<i64>,
    values: u64,
    conflated: u64,
    dropped: u64,
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    streams: Vec<TextWindow>,
    #[serde(default)]
    conflated: u64,
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct TextWindow {
    time: [String; 2],
    channels: Vec<serde_json::Value>,
}

impl Client {
    /// Returns a client that receives every frame of the channels.
    pub(crate) fn of(patterns: &[&str], form: Form) -> Client {
        let channels = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        Client { channels, max_rate_hz: None, form }
    }

    /// Connects, waits for the others at `ready`, and records observations until it is dropped.
    ///
    /// # Errors
    /// The client is refused, or receives nothing.
    pub(super) async fn run(self, url: String, ready: Arc<Barrier>, seen: Arc<Mutex<Seen>>) -> anyhow::Result<()> {
        let mut socket = self.connect(&url).await?;
        // Keep receiving updates while the others connect.
        let meet = ready.wait();
        tokio::pin!(meet);
        loop {
            tokio::select! {
                _ = &mut meet => break,
                message = next(&mut socket) => { decode(message?)?; }
            }
        }
        let mut before: Option<Instant> = None;
        loop {
            let message = next(&mut socket).await?;
            let bytes = message.len() as u64;
            let Some(update) = decode(message)? else { continue };
            let now_ns = now_ns();
            let now = Instant::now();
            let mut seen = seen.lock();
            if let Some(before) = before.replace(now) {
                seen.intervals_ms.push((now - before).as_secs_f64() * 1e3);
            }
            seen.fresh_ms.extend(update.newest.iter().map(|newest| (now_ns - newest) as f64 / 1e6));
            seen.updates += 1;
            seen.windows += update.newest.len() as u64;
            seen.values += update.values;
            seen.bytes += bytes;
            seen.conflated += update.conflated;
            seen.dropped += update.dropped;
        }
    }

    async fn connect(&self, url: &str) -> anyhow::Result<WebSocketStream<MaybeTlsStream<TcpStream>>> {
        let mut request = url.into_client_request()?;
        if self.form == Form::Binary {
            request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(PROTOCOL));
        }
        // Small buffers, since there may be a thousand of these in this process.
        let config = WebSocketConfig::default().read_buffer_size(4096);
        let (mut socket, _) =
            tokio_tungstenite::connect_async_with_config(request, Some(config), true).await.context("/api/live")?;
        let asked = json!({ "type": "subscribe", "id": 1, "channels": self.channels, "max_rate_hz": self.max_rate_hz });
        socket.send(Message::text(asked.to_string())).await?;
        while decode(next(&mut socket).await?)?.is_none() {}
        Ok(socket)
    }
}

async fn next(socket: &mut WebSocketStream<MaybeTlsStream<TcpStream>>) -> anyhow::Result<Message> {
    match tokio::time::timeout(PATIENCE, socket.next()).await {
        Ok(Some(Ok(Message::Close(frame)))) => bail!("the server closed the connection: {frame:?}"),
        Ok(Some(message)) => Ok(message?),
        Ok(None) => bail!("the server closed the connection"),
        Err(_) => bail!("the server said nothing for {PATIENCE:?}"),
    }
}

/// Decodes the update in a message, if it is one.
fn decode(message: Message) -> anyhow::Result<Option<Update>> {
    match message {
        Message::Text(text) => {
            let said: Text = serde_json::from_str(&text).with_context(|| text.chars().take(200).collect::<String>())?;
            match said.kind.as_str() {
                "error" => bail!("the server refused the subscription: {}", said.message),
                "update" => {}
                _ => return Ok(None),
            }
            let mut update = Update { conflated: said.conflated, dropped: said.dropped, ..Update::default() };
            for window in &said.streams {
                update.newest.push(window.time[1].parse().context("time of a window")?);
                update.values += window.channels.len() as u64;
            }
            Ok(Some(update))
        }
        Message::Binary(bytes) if bytes.first() == Some(&UPDATE) => {
            binary(&bytes).context("a message cut off").map(Some)
        }
        _ => Ok(None),
    }
}

/// Decodes the windows of a binary update: `docs/format/live.md`.
fn binary(bytes: &[u8]) -> Option<Update> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let mut update = Update { conflated: u32_at(24)?.into(), dropped: u32_at(28)?.into(), ..Update::default() };
    let mut at = HEAD;
    for _ in 0..u32_at(32)? {
        let length = u32_at(at)? as usize;
        let window = bytes.get(at..at.checked_add(length)?).filter(|window| window.len() >= WINDOW_MIN)?;
        update.newest.push(i64::from_le_bytes(window[WINDOW_LAST..WINDOW_LAST + 8].try_into().ok()?));
        at += length;
    }
    Some(update)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_both_forms_have_their_newest_stamp() {
        let mut bytes = vec![0; HEAD + 2 * WINDOW_MIN];
        (bytes[0], bytes[24], bytes[28], bytes[32]) = (UPDATE, 3, 4, 2);
        for (i, newest) in [(0, 5_i64), (1, -7)] {
            let at = HEAD + i * WINDOW_MIN;
            bytes[at] = WINDOW_MIN as u8;
            bytes[at + WINDOW_LAST..at + WINDOW_LAST + 8].copy_from_slice(&newest.to_le_bytes());
        }
        let expected = Update { newest: vec![5, -7], values: 0, conflated: 3, dropped: 4 };
        assert_eq!(binary(&bytes), Some(expected));
        for length in 0..bytes.len() {
            assert_eq!(binary(&bytes[..length]), None, "{length}");
        }
        let text = r#"{"type":"update","streams":[{"time":["1","5"],"channels":[[1,2]]}],"conflated":3}"#;
        let expected = Update { newest: vec![5], values: 1, conflated: 3, dropped: 0 };
        assert_eq!(decode(Message::text(text)).unwrap(), Some(expected));
        assert!(decode(Message::text(r#"{"type":"error","message":"no"}"#)).is_err());
    }
}

//! A live subscriber that is connected while the server is killed. It trusts only what the protocol guarantees: rows
//! below `committed` are final; rows above are provisional and become void with their epoch.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, anyhow, bail};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::journal::Numbers;

/// Window of one connection's channel `n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// First row.
    pub(super) from_row: u64,
    /// Row after its last.
    pub(super) to_row: u64,
    /// Number of values.
    pub(super) count: u64,
    /// First value.
    pub(super) first: i64,
    /// Last value.
    pub(super) last: i64,
    /// Min value.
    pub(super) min: i64,
    /// Max value.
    pub(super) max: i64,
}

/// Observations of one connection's stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Next row after the snapshot, with which live updates continue.
    pub(super) snapshot_row: Option<u64>,
    /// Windows in order.
    pub(super) windows: Vec<Window>,
    /// Max committed position received.
    pub(super) committed: u64,
    /// Next expected row.
    next_row: Option<u64>,
}

/// Observations of one subscription in one epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Sighting {
    /// Epoch of the greeting.
    pub(super) epoch: u64,
    /// Origin of the greeting.
    pub(super) origin: String,
    /// Observations by connection.
    pub(super) streams: BTreeMap<usize, Seen>,
    /// Number of windows that the server reported as dropped.
    pub(super) dropped: u64,
    /// Connections by the id of their channel `n`.
    channels: BTreeMap<u64, usize>,
    /// Connections by stream id.
    stream_ids: BTreeMap<u64, usize>,
}

/// Open subscription.
pub(super) struct Subscriber {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    sighting: Sighting,
}

impl Subscriber {
    /// Connects, subscribes, and waits for the snapshot.
    pub(super) async fn connect(http: SocketAddr) -> anyhow::Result<Self> {
        let (socket, _) =
            tokio_tungstenite::connect_async(format!("ws://{http}/api/live")).await.context("/api/live")?;
        let mut subscriber = Subscriber { socket, sighting: Sighting::default() };
        let hello = subscriber.next().await?.ok_or_else(|| anyhow!("the server closed before its greeting"))?;
        if hello["type"] != "hello" {
            bail!("expected a greeting, got {hello}");
        }
        subscriber.sighting.epoch = integer(&hello["epoch"]).context("epoch of the greeting")? as u64;
        subscriber.sighting.origin = hello["origin"].to_string();
        let subscribe = json!({
            "type": "subscribe", "id": 1, "channels": ["crash.n"], "max_rate_hz": 50,
            "history_s": 1, "history_points": 10,
        });
        subscriber.socket.send(Message::text(subscribe.to_string())).await?;
        let mut history = false;
        while !history {
            let message = subscriber.next().await?.ok_or_else(|| anyhow!("the server closed before its snapshot"))?;
            history = message["type"] == "history";
            subscriber.sighting.take(&message)?;
        }
        Ok(subscriber)
    }

    /// Returns the observations of the snapshot.
    pub(super) fn snapshot(&self) -> &Sighting {
        &self.sighting
    }

    /// Receives updates until the connection ends.
    pub(super) async fn follow(mut self) -> anyhow::Result<Sighting> {
        while let Some(message) = self.next().await? {
            self.sighting.take(&message)?;
        }
        Ok(self.sighting)
    }

    /// Returns the next message, or `None` once the connection is closed.
    async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).map(Some).with_context(|| format!("message {text}"));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(None),
                Some(Ok(_)) => {}
            }
        }
    }
}

impl Sighting {
    fn take(&mut self, message: &Value) -> anyhow::Result<()> {
        let told = || format!("message {message}");
        match message["type"].as_str() {
            Some("subscribed" | "channels") => {
                for channel in list(&message["channels"]) {
                    let connection: usize =
                        channel["tags"]["conn"].as_str().and_then(|conn| conn.parse().ok()).with_context(told)?;
                    self.channels.insert(integer(&channel["id"]).with_context(told)? as u64, connection);
                    self.stream_ids.insert(integer(&channel["stream"]).with_context(told)? as u64, connection);
                }
            }
            Some("history") => {
                for (stream, row) in message["rows"].as_object().with_context(told)? {
                    let connection = self.stream_ids.get(&stream.parse()?).copied().with_context(told)?;
                    let row = integer(row).with_context(told)? as u64;
                    let seen = self.streams.entry(connection).or_default();
                    seen.snapshot_row = Some(row);
                    seen.next_row = Some(row);
                }
            }
            Some("update") => self.update(message).with_context(told)?,
            Some("rewound") => bail!("told to rewind inside an epoch: {message}"),
            Some("error") => bail!("the server answered {message}"),
            _ => {}
        }
        Ok(())
    }

    fn update(&mut self, message: &Value) -> anyhow::Result<()> {
        if integer(&message["epoch"])? as u64 != self.epoch {
            bail!("an update of another epoch than the greeting's {}", self.epoch);
        }
        let dropped = integer(&message["dropped"])? as u64;
        self.dropped += dropped;
        for stream in list(&message["streams"]) {
            let id = integer(&stream["stream"])? as u64;
            let connection = *self.stream_ids.get(&id).context("a stream that was never announced")?;
            let seen = self.streams.entry(connection).or_default();
            let (from_row, to_row) = (integer(&stream["from_row"])? as u64, integer(&stream["to_row"])? as u64);
            if let Some(next) = seen.next_row
                && (from_row < next || (from_row > next && self.dropped == 0))
            {
                bail!("rows {from_row}..{to_row} after row {next}");
            }
            seen.next_row = Some(to_row);
            seen.committed = seen.committed.max(integer(&stream["committed"])? as u64);
            for window in list(&stream["channels"]) {
                let at = |index: usize| integer(&window[index]);
                if self.channels.get(&(at(0)? as u64)) != Some(&connection) {
                    bail!("a channel of another stream");
                }
                let (first, last, min, max) = (at(2)?, at(3)?, at(4)?, at(5)?);
                seen.windows.push(Window { from_row, to_row, count: at(1)? as u64, first, last, min, max });
            }
        }
        Ok(())
    }
}

/// Result of comparing windows with the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Agreement {
    /// Number of windows below the committed position: compared and equal.
    pub(super) final_windows: u64,
    /// Number of windows above it whose rows the store kept nevertheless: compared and equal.
    pub(super) kept_windows: u64,
    /// Number of windows above it whose rows were lost with their epoch.
    pub(super) void_windows: u64,
}

/// Compares the observations of one connection with the rows stored after recovery.
pub(super) fn agree(connection: usize, seen: &Seen, stored: &Numbers) -> anyhow::Result<Agreement> {
    if seen.committed > stored.len() {
        bail!(
            "connection {connection}: the subscriber was told that {} rows are committed, {} are stored",
            seen.committed,
            stored.len()
        );
    }
    let mut agreement = Agreement::default();
    for window in &seen.windows {
        if window.to_row > stored.len() {
            agreement.void_windows += 1;
            continue;
        }
        let nth = |row: u64| stored.nth(row).map(|n| n as i64);
        let (first, last) = (nth(window.from_row), nth(window.to_row.saturating_sub(1)));
        let equal = window.count == window.to_row - window.from_row
            && first == Some(window.first)
            && last == Some(window.last)
            && first == Some(window.min)
            && last == Some(window.max);
        if !equal {
            bail!("connection {connection}: seen {window:?}, stored {first:?} to {last:?}");
        }
        if window.to_row <= seen.committed {
            agreement.final_windows += 1;
        } else {
            agreement.kept_windows += 1;
        }
    }
    Ok(agreement)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Reads an integer from a JSON number or, for 64 bits, a decimal string.
fn integer(value: &Value) -> anyhow::Result<i64> {
    value
        .as_i64()
        .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
        .ok_or_else(|| anyhow!("{value} is no integer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted() -> Sighting {
        let mut sighting = Sighting { epoch: 3, ..Sighting::default() };
        let channel = json!({"id": 17, "stream": 5, "tags": {"conn": "2"}});
        sighting.take(&json!({"type": "subscribed", "id": 1, "channels": [channel]})).expect("a channel");
        sighting.take(&json!({"type": "history", "id": 1, "series": [], "rows": {"5": "10"}})).expect("a snapshot");
        sighting
    }

    fn update(from: u64, to: u64, committed: u64) -> Value {
        json!({"type": "update", "id": 1, "epoch": 3, "dropped": 0, "streams": [{
            "stream": 5, "from_row": from.to_string(), "to_row": to.to_string(), "committed": committed.to_string(),
            "channels": [[17, to - from, from.to_string(), (to - 1).to_string(), from.to_string(), (to - 1).to_string(), 0.5]],
        }]})
    }

    #[test]
    fn windows_join_the_snapshot() {
        let mut sighting = greeted();
        sighting.take(&update(10, 12, 10)).expect("the tail begins at the snapshot's row");
        sighting.take(&update(12, 20, 12)).expect("and goes on");
        assert!(sighting.take(&update(21, 22, 12)).is_err(), "a hole");
        assert!(sighting.take(&update(19, 22, 12)).is_err(), "a row twice");
    }

    #[test]
    fn disagreement_is_found() {
        let mut sighting = greeted();
        sighting.take(&update(10, 12, 12)).expect("an update");
        sighting.take(&update(12, 20, 12)).expect("an update");
        let seen = &sighting.streams[&2];
        let stored = |first_part: u64, second_part: std::ops::Range<u64>| {
            let mut numbers = Numbers::default();
            numbers.push(0..first_part);
            numbers.push(second_part);
            numbers
        };
        let fine = agree(2, seen, &stored(15, 15..15)).expect("the second window was provisional");
        assert_eq!(fine, Agreement { final_windows: 1, kept_windows: 0, void_windows: 1 });
        assert!(agree(2, seen, &stored(11, 11..11)).is_err(), "a committed row is gone");
        assert!(agree(2, seen, &stored(11, 12..40)).is_err(), "another value at a committed row");
    }
}

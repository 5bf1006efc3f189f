//! A well-behaved client that writes and watches: acknowledged rows must be stored in the end, and appear on its
//! screen at once.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::target::Target;
use crate::http::HttpConnection;

/// Time between two writes.
const PERIOD: Duration = Duration::from_millis(50);
/// Max time for a write or an update; exceeding it is a failure.
const PATIENCE: Duration = Duration::from_secs(5);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Observations of the witness.
#[derive(Clone, Debug, Default)]
pub(super) struct Witnessed {
    /// Numbers whose write was acknowledged.
    pub(super) acknowledged: Vec<u64>,
    /// Times from the beginning of a write to its update.
    pub(super) waits: Vec<Duration>,
}

/// Writes and watches until the time is over.
pub(super) fn watch(target: &Target) -> Witnessed {
    let mut seen = Witnessed::default();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return seen };
    while !target.is_over() {
        // Reconnect after a broken connection; acknowledged numbers are kept.
        if let Err(error) = runtime.block_on(go_on(target, &mut seen))
            && !target.is_over()
        {
            target.fail(&format!("the client that writes and watches: {error:#}"));
            std::thread::park_timeout(PERIOD);
        }
    }
    seen
}

async fn go_on(target: &Target, seen: &mut Witnessed) -> anyhow::Result<()> {
    let mut socket = subscribe(target).await?;
    while !target.is_over() {
        let number = seen.acknowledged.last().map_or(0, |last| last + 1);
        let begin = Instant::now();
        let line = format!("witness n={number}i");
        let mut connection = HttpConnection::open(target.http, PATIENCE)?;
        let connected = begin.elapsed();
        let answer = connection.post("/write", line.as_bytes())?;
        let acknowledged = begin.elapsed();
        ensure!(answer.status == 204, "/write: {} {}", answer.status, answer.body);
        seen.acknowledged.push(number);
        tokio::time::timeout(PATIENCE, shown(&mut socket, number)).await.context("no update")??;
        let shown = begin.elapsed();
        seen.waits.push(shown);
        target.slow(shown, || format!("connected {connected:?}, acknowledged {acknowledged:?}, shown {shown:?}"));
        tokio::time::sleep(PERIOD.saturating_sub(begin.elapsed())).await;
    }
    Ok(())
}

async fn subscribe(target: &Target) -> anyhow::Result<Socket> {
    let connecting = tokio_tungstenite::connect_async(format!("ws://{}/api/live", target.http));
    let (mut socket, _) = tokio::time::timeout(PATIENCE, connecting).await.context("no WebSocket")??;
    let message = json!({ "type": "subscribe", "id": 1, "channels": ["witness.n"] });
    socket.send(Message::text(message.to_string())).await?;
    tokio::time::timeout(PATIENCE, async {
        while next(&mut socket).await?["type"] != "subscribed" {}
        anyhow::Ok(())
    })
    .await
    .context("no answer to a subscription")??;
    Ok(socket)
}

async fn next(socket: &mut Socket) -> anyhow::Result<Value> {
    loop {
        match socket.next().await.context("the server closed the WebSocket")?? {
            Message::Text(text) => return Ok(serde_json::from_str(&text)?),
            Message::Close(_) => bail!("the server closed the WebSocket"),
            _ => {}
        }
    }
}

/// Waits for the update with a number, or for one into which it was merged.
async fn shown(socket: &mut Socket, number: u64) -> anyhow::Result<()> {
    loop {
        let message = next(socket).await?;
        let newest = |window: &Value| window["channels"][0][3].as_str().and_then(|last| last.parse::<u64>().ok());
        let windows = message["streams"].as_array().map_or(&[][..], Vec::as_slice);
        if message["type"] == "update" && windows.iter().filter_map(newest).any(|last| last >= number) {
            return Ok(());
        }
    }
}

impl Witnessed {
    /// Checks that all acknowledged rows are stored.
    pub(super) fn check(&self, target: &Target) -> anyhow::Result<()> {
        if self.acknowledged.is_empty() {
            return Ok(());
        }
        let sql = "select count(distinct n) from witness";
        let row = HttpConnection::open(target.http, PATIENCE)?.sql_row(sql)?;
        let wanted = self.acknowledged.len() as u64;
        ensure!(row.first().is_some_and(|found| *found >= wanted), "{row:?} of {wanted} acknowledged rows are there");
        Ok(())
    }

    /// Returns the 99th percentile of the waits.
    pub(super) fn p99(&self) -> Duration {
        p99(&self.waits)
    }
}

/// Returns the 99th percentile.
pub(super) fn p99(waits: &[Duration]) -> Duration {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

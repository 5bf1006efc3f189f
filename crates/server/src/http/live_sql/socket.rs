//! Several subscriptions over one WebSocket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::stream::{BoxStream, SelectAll, SplitSink};
use futures::{FutureExt, SinkExt, StreamExt, stream};
use serde::Deserialize;
use strongback_query::{LiveMessage, QueryError};
use tokio::sync::oneshot;

use super::Subscribe;
use crate::http::answer::Failure;
use crate::live::outlet::{End, patiently};
use crate::live::seats::Seat;
use crate::process::budget::Reservation;
use crate::process::connections::Connection;
use crate::server::{Server, stopped};

/// Max size of a client's message. As much is reserved for each connection.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes read at once from a client.
const READ_BYTES: usize = 4096;
/// Max number of subscriptions of a connection.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Max time for the closing handshake.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// A message of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Request {
    Subscribe(Subscribe),
    Unsubscribe { id: i64 },
}

/// A message for a client.
enum Told {
    Message(LiveMessage),
    /// The reason why a subscription did not begin.
    Refusal(QueryError),
    /// A subscription has ended.
    End,
}

/// Upgrades to a WebSocket.
pub(super) fn answer(
    upgrade: WebSocketUpgrade,
    server: Arc<Server>,
    connection: Arc<Connection>,
    seat: Seat,
) -> Result<Response, Failure> {
    let held = server.budget.take(connection.address().ip(), MESSAGE_BYTES_MAX)?;
    let upgrade =
        upgrade.read_buffer_size(READ_BYTES).max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let serving = server.clone();
        server.viewers.spawn(async move {
            let (sink, messages) = socket.split();
            let mut client = Client {
                sink,
                server: serving,
                connection,
                running: SelectAll::new(),
                ends: HashMap::new(),
                begun: 0,
                _held: held,
                _seat: seat,
            };
            if client.serve(messages).await == Err(End::Stuck) {
                client.connection.abandon();
            } else {
                let _ = tokio::time::timeout(CLOSE_PATIENCE, client.sink.close()).await;
            }
        });
    }))
}

/// A client and its subscriptions.
struct Client {
    sink: SplitSink<WebSocket, Message>,
    server: Arc<Server>,
    connection: Arc<Connection>,
    /// Messages of all subscriptions, by id and number.
    running: SelectAll<BoxStream<'static, ((i64, u64), Told)>>,
    /// Number of each subscription, and what ends it when it is dropped.
    ends: HashMap<i64, (u64, oneshot::Sender<()>)>,
    /// Subscriptions begun so far.
    begun: u64,
    _held: Reservation,
    _seat: Seat,
}

impl Client {
    /// Serves a client until it leaves or the server stops.
    async fn serve(&mut self, mut messages: stream::SplitStream<WebSocket>) -> Result<(), End> {
        let mut stopping = self.server.stopping.subscribe();
        loop {
            tokio::select! {
                () = stopped(&mut stopping) => return Ok(()),
                message = messages.next() => match message {
                    Some(Ok(Message::Text(text))) => self.take(&text).await?,
                    Some(Ok(Message::Binary(_))) => self.complain(None, "bad_request", "messages are JSON text").await?,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    None | Some(Ok(Message::Close(_)) | Err(_)) => return Ok(()),
                },
                Some((of, told)) = self.running.next() => self.tell(of, told).await?,
            }
        }
    }

    async fn take(&mut self, text: &str) -> Result<(), End> {
        match serde_json::from_str::<Request>(text) {
            Ok(Request::Subscribe(wanted)) => self.subscribe(wanted).await,
            Ok(Request::Unsubscribe { id }) => match self.ends.remove(&id) {
                Some(_) => Ok(()),
                None => self.complain(Some(id), "bad_request", "there is no such subscription").await,
            },
            Err(error) => self.complain(None, "bad_request", &error.to_string()).await,
        }
    }

    /// Begins a subscription. One with the same id ends.
    async fn subscribe(&mut self, wanted: Subscribe) -> Result<(), End> {
        let id = wanted.id;
        self.ends.remove(&id);
        if self.ends.len() >= SUBSCRIPTIONS_MAX {
            let text = format!("a connection has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return self.complain(Some(id), "too_many_subscriptions", &text).await;
        }
        self.begun += 1;
        let of = (id, self.begun);
        let (end, ended) = oneshot::channel();
        self.ends.insert(id, (self.begun, end));
        let request = wanted.request(&self.server, self.connection.address().ip());
        let begin = self.server.query.now().subscribe(request, Some(id));
        let messages = begin.map(|begun| match begun {
            Ok(messages) => messages.map(Told::Message).left_stream(),
            Err(error) => stream::iter([Told::Refusal(error)]).right_stream(),
        });
        let messages = messages.flatten_stream().chain(stream::iter([Told::End]));
        // The sender is only dropped.
        let messages = messages.take_until(ended).map(move |told| (of, told));
        self.running.push(messages.boxed());
        Ok(())
    }

    /// Sends a message of a subscription, unless it has ended.
    async fn tell(&mut self, (id, number): (i64, u64), told: Told) -> Result<(), End> {
        if self.ends.get(&id).is_none_or(|(of, _)| *of != number) {
            return Ok(());
        }
        match told {
            Told::Message(message) => {
                let text = Utf8Bytes::from(message.body.as_str());
                self.send(text).await
            }
            Told::Refusal(error) => {
                self.ends.remove(&id);
                let mut body = serde_json::json!({
                    "type": "error", "id": id, "error": error.to_string(), "code": "sql", "sqlstate": error.sqlstate,
                });
                if let Some(hint) = &error.hint {
                    body["hint"] = hint.as_str().into();
                }
                self.send(body.to_string().into()).await
            }
            Told::End => {
                self.ends.remove(&id);
                Ok(())
            }
        }
    }

    async fn complain(&mut self, id: Option<i64>, code: &str, error: &str) -> Result<(), End> {
        let mut body = serde_json::json!({ "type": "error", "error": error, "code": code });
        if let Some(id) = id {
            body["id"] = id.into();
        }
        self.send(body.to_string().into()).await
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), End> {
        patiently(self.sink.send(Message::Text(text))).await
    }
}

//! `/api/live` over a WebSocket: JSON by default, or the binary form.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt, stream};

use crate::http::live::scene::Scene;
use crate::http::live::subscriber;
use crate::http::live::subscriber::Said;
use crate::live::heartbeat::Beat;
use crate::live::outgoing::{Form, Outgoing};
use crate::live::outlet::{End, Outlet, patiently};
use crate::process::budget::{Over, Reservation};
use crate::process::connections::Connection;
use crate::server::Server;

/// Max size of a client's message: ten thousand names of channels. The received part of an unfinished message is held
/// and counts against the client's memory.
pub const MESSAGE_BYTES_MAX: usize = 512 << 10;
/// Bytes of a part that are not counted; the number of connections is bounded.
const SMALL_PART_BYTES: u64 = 16 << 10;
/// Max header bytes of a client's ping or pong.
const CONTROL_HEAD_BYTES: usize = 6;
/// Max time for the closing handshake.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Serves a client until it leaves or the server stops.
pub async fn serve(socket: WebSocket, server: Arc<Server>, scene: Scene, (form, connection): (Form, Arc<Connection>)) {
    let address = connection.address().ip();
    let (sink, mut messages) = socket.split();
    let mut part = Part::new(server.clone(), connection);
    let said = stream::poll_fn(move |context| {
        let message = messages.poll_next_unpin(context);
        Poll::Ready(Some(match message {
            Poll::Pending => match part.is_held() {
                Ok(()) => return Poll::Pending,
                Err(over) => Said::TooMuch(over),
            },
            Poll::Ready(Some(Ok(Message::Ping(bytes) | Message::Pong(bytes)))) => {
                part.passed(bytes.len());
                Said::Nothing
            }
            Poll::Ready(Some(Ok(Message::Text(text)))) => {
                part.ended();
                Said::Text(text)
            }
            Poll::Ready(Some(Ok(Message::Binary(_)))) => {
                part.ended();
                Said::Bytes
            }
            Poll::Ready(None | Some(Ok(Message::Close(_)) | Err(_))) => Said::Leave,
        }))
    });
    subscriber::serve(SocketOutlet { sink, form }, said, server, scene, address).await;
}

/// Received bytes of an unfinished message, and the memory reserved for them. Bytes of a message that arrived together
/// with the end of the previous one are not counted.
struct Part {
    server: Arc<Server>,
    connection: Arc<Connection>,
    /// Bytes of the connection that came before the message.
    before: u64,
    held: Option<Reservation>,
}

impl Part {
    fn new(server: Arc<Server>, connection: Arc<Connection>) -> Part {
        Part { server, before: connection.received_bytes(), connection, held: None }
    }

    /// Resets the part when a message ends.
    fn ended(&mut self) {
        (self.before, self.held) = (self.connection.received_bytes(), None);
    }

    /// Excludes a ping or pong, which may come between the parts of a message.
    fn passed(&mut self, bytes: usize) {
        self.before = (self.before + (bytes + CONTROL_HEAD_BYTES) as u64).min(self.connection.received_bytes());
    }

    /// Reserves memory for the part, unless it is small.
    fn is_held(&mut self) -> Result<(), Over> {
        let bytes = self.connection.received_bytes() - self.before;
        if bytes <= SMALL_PART_BYTES {
            return Ok(());
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match &mut self.held {
            Some(held) => held.resize(bytes),
            None => {
                self.held = Some(self.server.budget.take(self.connection.address().ip(), bytes)?);
                Ok(())
            }
        }
    }
}

struct SocketOutlet {
    sink: SplitSink<WebSocket, Message>,
    form: Form,
}

impl Outlet for SocketOutlet {
    fn form(&self) -> Form {
        self.form
    }

    fn is_single(&self) -> bool {
        false
    }

    async fn send(&mut self, told: Outgoing) -> Result<(), End> {
        let message = match told {
            Outgoing::Text(text) => Message::Text(text),
            Outgoing::Binary(bytes) => Message::Binary(bytes),
        };
        patiently(self.sink.send(message)).await
    }

    async fn heartbeat(&mut self, beat: Beat) -> Result<(), End> {
        self.send(match self.form {
            Form::Json => Outgoing::Text(beat.text),
            Form::Binary => Outgoing::Binary(beat.bytes),
        })
        .await
    }

    async fn close(&mut self) {
        let _ = tokio::time::timeout(CLOSE_PATIENCE, self.sink.close()).await;
    }

    // The socket is dropped with the task.
    fn abandon(&mut self) {}
}

//! `/api/live` over a WebSocket: JSON for those who ask for nothing else, or the binary form.

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

/// Largest message of a client: ten thousand names of channels. A part of one is held for as long as it does not end,
/// and counts against the memory of its client then.
pub const MESSAGE_BYTES_MAX: usize = 512 << 10;
/// Bytes of a part that are not counted: connections are bounded in number.
const SMALL_PART_BYTES: u64 = 16 << 10;
/// Bytes of the header of a ping or pong of a client, which is never longer.
const CONTROL_HEAD_BYTES: usize = 6;
/// How long a good-bye may take.
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

/// What came of a message that has not ended, and the memory that is reserved for it. Of the next message, what came
/// together with the end of one is not counted.
struct Part {
    server: Arc<Server>,
    connection: Arc<Connection>,
    /// Bytes of the connection that are not of it.
    before: u64,
    held: Option<Reservation>,
}

impl Part {
    fn new(server: Arc<Server>, connection: Arc<Connection>) -> Part {
        Part { server, before: connection.received_bytes(), connection, held: None }
    }

    /// The message ended.
    fn ended(&mut self) {
        (self.before, self.held) = (self.connection.received_bytes(), None);
    }

    /// Leaves out a ping or pong, which may stand between the parts of a message.
    fn passed(&mut self, bytes: usize) {
        self.before = (self.before + (bytes + CONTROL_HEAD_BYTES) as u64).min(self.connection.received_bytes());
    }

    /// Reserves memory for it, unless it is small.
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

    // The socket goes with the task.
    fn abandon(&mut self) {}
}

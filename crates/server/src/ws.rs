//! `/api/live` over a WebSocket: JSON for those who ask for nothing else, or the binary form.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};

use crate::live::heartbeat::Beat;
use crate::live::outlet::{End, Form, Outlet, Told, patiently};
use crate::live::scene::Scene;
use crate::live::subscriber::{self, Said};
use crate::server::Server;

/// Largest message of a client.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a good-bye may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Serves a client until it leaves or the server stops.
pub async fn serve(socket: WebSocket, server: Arc<Server>, scene: Scene, (form, address): (Form, IpAddr)) {
    let (sink, stream) = socket.split();
    let said = stream.map(|message| match message {
        Ok(Message::Text(text)) => Said::Text(text),
        Ok(Message::Binary(_)) => Said::Bytes,
        Ok(Message::Close(_)) | Err(_) => Said::Leave,
        Ok(Message::Ping(_) | Message::Pong(_)) => Said::Nothing,
    });
    subscriber::serve(SocketOutlet { sink, form }, said, server, scene, address).await;
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

    async fn send(&mut self, told: Told) -> Result<(), End> {
        let message = match told {
            Told::Text(text) => Message::Text(text),
            Told::Binary(bytes) => Message::Binary(bytes),
        };
        patiently(self.sink.send(message)).await
    }

    async fn heartbeat(&mut self, beat: Beat) -> Result<(), End> {
        self.send(match self.form {
            Form::Json => Told::Text(beat.text),
            Form::Binary => Told::Binary(beat.bytes),
        })
        .await
    }

    async fn close(&mut self) {
        let _ = tokio::time::timeout(CLOSE_PATIENCE, self.sink.close()).await;
    }

    // The socket goes with the task.
    fn abandon(&mut self) {}
}

//! A live subscription as the body of an HTTP answer: server-sent events, or JSON lines.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::mpsc;

use super::begin::SubscribeRequest;
use super::scene::Scene;
use super::subscriber::{self, Said};
use crate::live::heartbeat::Beat;
use crate::live::outgoing::{Form, Outgoing};
use crate::live::outlet::{End, Outlet, patiently};
use crate::process::budget::Reservation;
use crate::process::connections::Connection;
use crate::server::Server;

/// Framing of the messages in the body; each is the same JSON as over the WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `text/event-stream`; heartbeats are comments, `id` is a position to resume at.
    Events,
    /// One message a line.
    Lines,
}

impl Framing {
    /// Parses the value of the parameter `format`.
    pub fn from_name(name: &str) -> Option<Framing> {
        match name {
            "sse" => Some(Framing::Events),
            "jsonl" => Some(Framing::Lines),
            _ => None,
        }
    }

    /// Chooses the framing from an `Accept` header; `None` if it names neither.
    pub fn from_accept(accept: &str) -> Option<Framing> {
        let mut kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
        kinds.find_map(|kind| {
            [Framing::Events, Framing::Lines].into_iter().find(|f| kind.eq_ignore_ascii_case(f.content_type()))
        })
    }

    /// Returns the content type of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Framing::Events => "text/event-stream",
            Framing::Lines => "application/x-ndjson",
        }
    }
}

/// Serves one subscription until the client leaves or the server stops, then drops `seat`. Returns the pieces of the
/// body in order. Ends the connection if the client blocks an orderly end.
pub fn serve<S: Send + 'static>(
    wanted: SubscribeRequest,
    framing: Framing,
    (server, scene): (Arc<Server>, Scene),
    connection: Arc<Connection>,
    seat: S,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let address = connection.address().ip();
    let (outlet, pieces) = BodyOutlet::new(framing, move || connection.abandon());
    let gone = outlet.pieces.clone();
    let leave = async move {
        gone.closed().await;
        Said::Leave
    };
    let said = stream::iter([Said::Subscribe(Box::new(wanted))]).chain(leave.boxed().into_stream());
    let serving = server.clone();
    server.viewers.spawn(async move {
        subscriber::serve(outlet, said, serving, scene, address).await;
        drop(seat);
    });
    stream::unfold(pieces, |mut pieces| async move { pieces.recv().await.map(|piece| (piece, pieces)) })
}

struct BodyOutlet {
    framing: Framing,
    /// Queue of one piece, because data that waits here gets old.
    pieces: mpsc::Sender<Bytes>,
    /// Position sent with the next message.
    mark: Option<String>,
    /// Memory of the message being sent.
    held: Option<Arc<Reservation>>,
    /// Ends the connection.
    abandon: Box<dyn Fn() + Send + Sync>,
}

/// A piece of the body with its memory, which is returned once the connection took the piece.
struct HeldPiece {
    piece: Vec<u8>,
    _reserved: Arc<Reservation>,
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl BodyOutlet {
    fn new(framing: Framing, abandon: impl Fn() + Send + Sync + 'static) -> (BodyOutlet, mpsc::Receiver<Bytes>) {
        let (pieces, received) = mpsc::channel(1);
        (BodyOutlet { framing, pieces, mark: None, held: None, abandon: Box::new(abandon) }, received)
    }

    /// Sends a message, as an event preceded by `before` or as a line.
    async fn push(&mut self, before: &str, text: &str) -> Result<(), End> {
        let mut piece = Vec::with_capacity(text.len() + 64);
        if self.framing == Framing::Events {
            if let Some(mark) = self.mark.take() {
                piece.extend_from_slice(b"id: ");
                piece.extend_from_slice(mark.as_bytes());
                piece.push(b'\n');
            }
            piece.extend_from_slice(before.as_bytes());
        }
        // JSON written here contains no line ends.
        piece.extend_from_slice(text.as_bytes());
        piece.extend_from_slice(if self.framing == Framing::Events { b"\n\n" } else { b"\n" });
        let piece = match self.held.clone() {
            None => Bytes::from(piece),
            Some(reserved) => Bytes::from_owner(HeldPiece { piece, _reserved: reserved }),
        };
        patiently(self.pieces.send(piece)).await
    }
}

impl Outlet for BodyOutlet {
    fn form(&self) -> Form {
        Form::Json
    }

    fn is_single(&self) -> bool {
        true
    }

    fn hold(&mut self, reserved: Option<Arc<Reservation>>) {
        self.held = reserved;
    }

    // A comment line is not an event, so the client does not see it.
    fn reads_heartbeats(&self) -> bool {
        self.framing != Framing::Events
    }

    fn takes_marks(&self) -> bool {
        self.framing == Framing::Events
    }

    fn mark(&mut self, position: String) {
        self.mark = Some(position);
    }

    async fn send(&mut self, told: Outgoing) -> Result<(), End> {
        match told {
            Outgoing::Text(text) => self.push("data: ", &text).await,
            Outgoing::Binary(_) => unreachable!("it is told in JSON"),
        }
    }

    async fn heartbeat(&mut self, beat: Beat) -> Result<(), End> {
        self.push(": ", &beat.text).await
    }

    async fn close(&mut self) {}

    fn abandon(&mut self) {
        (self.abandon)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::budget::Budget;

    fn text(told: &str) -> Outgoing {
        Outgoing::Text(told.into())
    }

    #[tokio::test]
    async fn events_have_positions_and_heartbeats_are_comments() {
        let (mut outlet, mut pieces) = BodyOutlet::new(Framing::Events, || {});
        let beat = Beat { text: "{\"b\":1}".into(), bytes: Bytes::new() };
        let mut seen = String::new();
        for step in 0..4 {
            match step {
                0 => outlet.send(text("{\"a\":1}")).await.unwrap(),
                1 => {
                    outlet.mark("old".into());
                    outlet.mark("new".into());
                    outlet.send(text("{\"a\":2}")).await.unwrap();
                }
                2 => outlet.heartbeat(beat.clone()).await.unwrap(),
                _ => {
                    outlet.mark("newest".into());
                    outlet.heartbeat(beat.clone()).await.unwrap();
                }
            }
            seen += std::str::from_utf8(&pieces.recv().await.unwrap()).unwrap();
        }
        assert_eq!(seen, "data: {\"a\":1}\n\nid: new\ndata: {\"a\":2}\n\n: {\"b\":1}\n\nid: newest\n: {\"b\":1}\n\n");
        drop(pieces);
        assert_eq!(outlet.send(text("{}")).await, Err(End::Gone));
    }

    #[tokio::test]
    async fn lines_are_the_messages_and_nothing_else() {
        let (mut outlet, mut pieces) = BodyOutlet::new(Framing::Lines, || {});
        outlet.send(text("{\"a\":1}")).await.unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "{\"a\":1}\n");
        outlet.heartbeat(Beat { text: "{\"b\":1}".into(), bytes: Bytes::new() }).await.unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "{\"b\":1}\n");
    }

    #[tokio::test]
    async fn memory_is_held_until_the_connection_took_what_it_is_for() {
        let budget = Budget::new(1_000, 1_000);
        let (mut outlet, mut pieces) = BodyOutlet::new(Framing::Lines, || {});
        outlet.hold(Some(Arc::new(budget.take([127, 0, 0, 1].into(), 100).unwrap())));
        outlet.send(text("{\"a\":1}")).await.unwrap();
        outlet.hold(None);
        assert_eq!(budget.held(), 100, "it waits for the connection");
        let piece = pieces.recv().await.unwrap();
        assert_eq!((&piece[..], budget.held()), (&b"{\"a\":1}\n"[..], 100));
        drop(piece);
        assert_eq!(budget.held(), 0);
        outlet.send(text("{\"a\":2}")).await.unwrap();
        assert_eq!(pieces.recv().await.unwrap(), "{\"a\":2}\n");
    }

    #[test]
    fn what_a_client_accepts_says_the_framing() {
        let accept = Framing::from_accept;
        assert_eq!(accept("text/html, text/event-stream;q=0.9"), Some(Framing::Events));
        assert_eq!(accept("Application/X-NDJSON"), Some(Framing::Lines));
        assert_eq!((accept("*/*"), accept("")), (None, None));
        assert_eq!((Framing::from_name("sse"), Framing::from_name("xml")), (Some(Framing::Events), None));
    }
}

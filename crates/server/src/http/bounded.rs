//! Bounded bodies: requests in size, memory and time; answers in memory until their clients have read them.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::answer::Failure;
use crate::process::budget::{Budget, Over, Reservation};
use crate::process::connections::Connection;
use crate::server::Server;

/// Max time between two pieces of a body.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);
/// Time allowed for a body in addition to that of its bytes at [`BYTES_PER_S_MIN`].
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Min rate of a body; a slower one would hold a connection slot and memory for nothing.
const BYTES_PER_S_MIN: u64 = 512;
/// Bytes of each body and answer that are not counted; the number of connections bounds them. Small requests are thus
/// answered even if another client of the same address holds all its memory.
const SMALL_BYTES: usize = 16 << 10;
/// Size of the pieces in which a large answer is sent, so that the bytes taken by the client are known.
const PIECE_BYTES: usize = 64 << 10;
/// Number of pieces after which other connections get a turn.
const PIECES_A_TURN: u32 = 8;

/// Reason why a body was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trip {
    Over(Over),
    Slow,
}

impl From<Over> for Failure {
    fn from(over: Over) -> Failure {
        let status = match over {
            Over::All { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Over::Client { .. } => StatusCode::TOO_MANY_REQUESTS,
        };
        Failure { status, code: "memory", message: over.to_string() }
    }
}

impl From<Trip> for Failure {
    fn from(trip: Trip) -> Failure {
        match trip {
            Trip::Over(over) => over.into(),
            Trip::Slow => Failure {
                status: StatusCode::REQUEST_TIMEOUT,
                code: "timeout",
                message: format!(
                    "the body came too slowly: at least {BYTES_PER_S_MIN} bytes a second, a piece every {} s",
                    PIECE_PATIENCE.as_secs()
                ),
            },
        }
    }
}

/// Memory held for a request's body until the request is answered.
#[derive(Debug)]
pub(super) struct Intake {
    reservation: Mutex<Reservation>,
    trip: OnceLock<Trip>,
}

impl Intake {
    /// Makes an empty reservation for a client.
    pub(super) fn new(budget: &Arc<Budget>, address: IpAddr) -> Result<Arc<Intake>, Over> {
        let reservation = budget.take(address, 0)?;
        Ok(Arc::new(Intake { reservation: Mutex::new(reservation), trip: OnceLock::new() }))
    }

    /// Reserves `more` bytes. If that fails, the request is answered with the failure, whatever its handler returns.
    pub(super) fn grow(&self, more: usize) -> Result<(), Over> {
        self.reservation.lock().grow(more).inspect_err(|over| _ = self.trip.set(Trip::Over(*over)))
    }

    /// Returns the answer to a refused body, or `None` if the body was not refused.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.trip.get().map(|trip| Failure::from(*trip))
    }
}

/// The body of a request, counted as it arrives.
pub(super) struct Bounded {
    body: Incoming,
    intake: Arc<Intake>,
    connection: Arc<Connection>,
    /// Time of the first wait for a piece.
    begun: Option<Instant>,
    received: u64,
    /// Timer of the wait for the next piece.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    pub(super) fn new(body: Incoming, intake: Arc<Intake>, connection: Arc<Connection>) -> Bounded {
        Bounded { body, intake, connection, begun: None, received: 0, patience: None }
    }

    /// Returns the bytes that count against the client's memory.
    fn counted(&self) -> usize {
        usize::try_from(self.received).unwrap_or(usize::MAX).saturating_sub(SMALL_BYTES)
    }

    /// Returns the time until which to wait for the next piece.
    fn deadline(&self, begun: Instant) -> Instant {
        let by_rate = begun + BODY_PATIENCE + Duration::from_secs(self.received / BYTES_PER_S_MIN);
        by_rate.min(Instant::now() + PIECE_PATIENCE)
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let size = frame.data_ref().map_or(0, Bytes::len);
                let before = self.counted();
                self.received += size as u64;
                self.patience = None;
                self.connection.works();
                let more = self.counted() - before;
                let grown = self.intake.grow(more).map(|()| frame).map_err(axum::Error::new);
                Poll::Ready(Some(grown))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(axum::Error::new(error)))),
            Poll::Ready(None) => {
                self.connection.works();
                Poll::Ready(None)
            }
            Poll::Pending => {
                self.connection.waits_for_body();
                let begun = *self.begun.get_or_insert_with(Instant::now);
                if self.patience.is_none() {
                    let until = self.deadline(begun);
                    self.patience = Some(Box::pin(tokio::time::sleep_until(until.into())));
                }
                match self.patience.as_mut().map(|patience| patience.as_mut().poll(cx)) {
                    Some(Poll::Ready(())) => {
                        let _ = self.intake.trip.set(Trip::Slow);
                        Poll::Ready(Some(Err(axum::Error::new(Failure::from(Trip::Slow).message))))
                    }
                    _ => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts a complete answer against its client's memory until it is sent, and sends it in pieces.
pub(super) async fn count(State(server): State<Arc<Server>>, request: Request, next: Next) -> axum::response::Response {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let mut response = next.run(request).await;
    let Some(size) = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok()) else {
        return response;
    };
    let Some(connection) = connection.filter(|_| size > SMALL_BYTES) else { return response };
    let reserved = response.extensions_mut().remove::<HeldMemory>().and_then(|held| Arc::try_unwrap(held.0).ok());
    let reserved = match reserved {
        Some(mut reserved) => reserved.resize(size).map(|()| reserved),
        None => server.budget.take(connection.address().ip(), size),
    };
    match reserved {
        Ok(reserved) => response.map(|body| Body::new(Pieces::new(body, reserved))),
        Err(over) => Failure::from(over).into_response(),
    }
}

/// Memory reserved while an answer was made, attached to that answer.
#[derive(Clone, Debug)]
pub(super) struct HeldMemory(Arc<Reservation>);

impl HeldMemory {
    /// Attaches a reservation to an answer.
    pub(super) fn with<B>(mut response: Response<B>, reserved: Reservation) -> Response<B> {
        response.extensions_mut().insert(HeldMemory(Arc::new(reserved)));
        response
    }
}

/// Bytes and their reservation, shared by all pieces of them.
struct Owned {
    bytes: Bytes,
    _reserved: Option<Reservation>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A complete body, sent in pieces.
struct Pieces {
    body: Body,
    rest: Bytes,
    turn: u32,
    reserved: Option<Reservation>,
}

impl Pieces {
    fn new(body: Body, reserved: Reservation) -> Pieces {
        Pieces { body, rest: Bytes::new(), turn: 0, reserved: Some(reserved) }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.turn += 1;
        if self.turn.is_multiple_of(PIECES_A_TURN) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => self.rest = Bytes::from_owner(Owned { bytes, _reserved: self.reserved.take() }),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return other,
            }
        }
        let size = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(size);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(exact) = hint.exact() {
            hint.set_exact(exact + rest);
        }
        hint
    }
}

/// The body of an answer; reports when it is dropped, that is sent or given up.
pub(super) struct Leaving {
    body: Body,
    connection: Arc<Connection>,
}

impl Leaving {
    pub(super) fn new(body: Body, connection: Arc<Connection>) -> Leaving {
        Leaving { body, connection }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.connection.answered();
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

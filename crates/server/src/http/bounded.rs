//! Bodies within bounds: of requests in size, memory and time, of answers in memory as long as they are not read.

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

/// Longest time between two pieces of a body.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);
/// What a body may take beside its bytes at [`BYTES_PER_S_MIN`].
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Slowest rate of a body: one that comes slower holds a place and memory for nothing.
const BYTES_PER_S_MIN: u64 = 512;
/// Bodies and answers are not counted up to this: connections are bounded, and so are these. Who writes or asks for
/// little is answered although another client of the same address holds all that it may.
const SMALL_BYTES: usize = 16 << 10;
/// Pieces in which a large answer leaves, so that it is known how much of it was taken.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces after which other connections have their turn.
const PIECES_A_TURN: u32 = 8;

/// Why a body was not taken.
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

/// What a request's body makes the server hold, until it is answered.
#[derive(Debug)]
pub(super) struct Intake {
    reservation: Mutex<Reservation>,
    trip: OnceLock<Trip>,
}

impl Intake {
    /// Nothing yet, of a client.
    pub(super) fn new(budget: &Arc<Budget>, address: IpAddr) -> Result<Arc<Intake>, Over> {
        let reservation = budget.take(address, 0)?;
        Ok(Arc::new(Intake { reservation: Mutex::new(reservation), trip: OnceLock::new() }))
    }

    /// Reserves more. Where it cannot be had the request is answered so, whatever is made of it.
    pub(super) fn grow(&self, more: usize) -> Result<(), Over> {
        self.reservation.lock().grow(more).inspect_err(|over| _ = self.trip.set(Trip::Over(*over)))
    }

    /// The answer to a body that was not taken.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.trip.get().map(|trip| Failure::from(*trip))
    }
}

/// The body of a request, counted as it comes.
pub(super) struct Bounded {
    body: Incoming,
    intake: Arc<Intake>,
    connection: Arc<Connection>,
    /// When it was first waited for.
    begun: Option<Instant>,
    received: u64,
    /// Until when the next piece is waited for.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    pub(super) fn new(body: Incoming, intake: Arc<Intake>, connection: Arc<Connection>) -> Bounded {
        Bounded { body, intake, connection, begun: None, received: 0, patience: None }
    }

    /// Bytes that count against the memory of the client.
    fn counted(&self) -> usize {
        usize::try_from(self.received).unwrap_or(usize::MAX).saturating_sub(SMALL_BYTES)
    }

    /// When waiting for the next piece ends.
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

/// Counts an answer that is there whole against the memory of its client until it was taken. It leaves in pieces.
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

/// What was reserved for an answer while it was made, on its way with it.
#[derive(Clone, Debug)]
pub(super) struct HeldMemory(Arc<Reservation>);

impl HeldMemory {
    /// Goes with an answer.
    pub(super) fn with<B>(mut response: Response<B>, reserved: Reservation) -> Response<B> {
        response.extensions_mut().insert(HeldMemory(Arc::new(reserved)));
        response
    }
}

/// Bytes with what was reserved for them: pieces of them share both.
struct Owned {
    bytes: Bytes,
    _reserved: Option<Reservation>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is there whole, in pieces.
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

/// The body of an answer, which says when it has left.
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

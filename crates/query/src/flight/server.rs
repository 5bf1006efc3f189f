//! Accepts connections of Flight SQL clients, and authenticates their calls.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::auth::{FlightAuth, shows_token};
use super::ingest::BulkSink;
use super::running::RunningStatements;
use super::service::Service;
use super::status::status;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::running::doors::{DoorPlace, Doors, Entry};
use crate::running::listener::{STARTUP_TIMEOUT, accept};

/// Maximum calls of a connection at a time. Further ones wait at the client.
const CALLS_MAX: u32 = 32;
/// Maximum batches of bulk writes that are handed over at a time. Further ones wait.
const WRITERS_MAX: usize = 16;
/// Maximum size of a message from a client, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum size of the headers of a call, in bytes.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Bytes that a client may send of a call, and in a connection, before they are read.
const CALL_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Maximum bytes of a call's answer between its stream and the socket.
const SEND_BYTES: usize = 256 << 10;
/// Interval between signs of life from a client, and maximum wait for one.
const ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for the calls of a connection to end when the server stops.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of the Flight SQL server.
#[derive(Clone)]
pub struct FlightOptions {
    /// Authentication of calls.
    pub auth: FlightAuth,
    /// Maximum connections. Further ones are refused.
    pub connections_max: usize,
    /// Destination of bulk writes; `None` if nothing may be written.
    pub sink: Option<Arc<dyn BulkSink>>,
}

impl Query {
    /// Serves Flight SQL clients on a listener until `shutdown` is ready. Open connections are then notified and ended.
    /// Connections run on the engine's own threads.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn serve_flight(
        &self,
        listener: std::net::TcpListener,
        options: FlightOptions,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, io::Result<()>> {
        let query = self.clone();
        let serving = self.inner.wire.handle().spawn(serve(query, listener, options, shutdown));
        Box::pin(async move { serving.await.map_err(io::Error::other)? })
    }
}

async fn serve(
    query: Query,
    listener: std::net::TcpListener,
    options: FlightOptions,
    shutdown: BoxFuture<'static, ()>,
) -> io::Result<()> {
    let doors = Arc::new(Doors::new(options.connections_max));
    let running = Arc::new(RunningStatements::default());
    let writers = Arc::new(Semaphore::new(WRITERS_MAX));
    let serve = |socket, start: Entry, stopped: watch::Receiver<bool>| {
        let service = Service {
            session: Arc::new(query.session()),
            peer: start.place.peer,
            auth: options.auth.clone(),
            running: running.clone(),
            sink: options.sink.clone(),
            writers: writers.clone(),
            stopped: stopped.clone(),
        };
        let gate = Gate {
            auth: options.auth.clone(),
            doors: doors.clone(),
            peer: start.place.peer,
            seat: Mutex::default(),
            seated: watch::Sender::new(false),
        };
        connection(socket, start, Arc::new(gate), service, stopped)
    };
    accept(listener, &doors, shutdown, serve).await
}

/// Admits the calls of one connection.
struct Gate {
    auth: FlightAuth,
    doors: Arc<Doors>,
    peer: IpAddr,
    /// Seat of the connection after its first authenticated call.
    seat: Mutex<Option<DoorPlace>>,
    seated: watch::Sender<bool>,
}

impl Gate {
    /// Checks that a call may be served. The first such call takes a seat for its connection.
    async fn admit(&self, request: &Request<Incoming>) -> Result<(), QueryError> {
        if let FlightAuth::Token(token) = &self.auth {
            let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
            let Some(shown) = shown else {
                let text = "no token: the header authorization must be \"Bearer TOKEN\"";
                return Err(QueryError::new(sqlstate::INVALID_PASSWORD, text));
            };
            if !shows_token(shown, token) {
                tokio::time::sleep(self.doors.penalty(self.peer)).await;
                return Err(QueryError::new(sqlstate::INVALID_PASSWORD, "wrong token"));
            }
        }
        let mut seat = self.seat.lock();
        if seat.is_none() {
            let Some(mut entry) = self.doors.seat(self.peer) else {
                return Err(QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
            };
            // It has asked, so it does not have to leave for others.
            entry.place.spare();
            self.doors.forgive(self.peer);
            *seat = Some(entry.place);
            self.seated.send_replace(true);
        }
        Ok(())
    }
}

/// Serves a connection until its client leaves or the server stops.
async fn connection(
    socket: TcpStream,
    mut start: Entry,
    gate: Arc<Gate>,
    service: Service,
    mut stopped: watch::Receiver<bool>,
) {
    let mut seated = gate.seated.subscribe();
    let service = FlightServiceServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (gate, mut service) = (gate.clone(), service.clone());
        async move {
            let response: Response<Body> = match gate.admit(&request).await {
                Ok(()) => service.call(request).await?,
                Err(error) => status(error).into_http(),
            };
            Ok::<_, Infallible>(response)
        }
    });
    // Small messages are not held back. Without this the connection still works.
    let _ = socket.set_nodelay(true);
    let mut serving = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(CALLS_MAX)
            .max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BYTES)
            .keep_alive_interval(ALIVE_INTERVAL)
            .keep_alive_timeout(ALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(socket), answer)
    );
    tokio::select! {
        ended = &mut serving => return said(ended),
        begun = tokio::time::timeout(STARTUP_TIMEOUT, seated.wait_for(|seated| *seated)) => {
            if begun.is_err() {
                return;
            }
        }
        // Others that want to start need the room.
        _ = &mut start.leave => return,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    }
    drop(start);
    tokio::select! {
        ended = &mut serving => return said(ended),
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    serving.as_mut().graceful_shutdown();
    if let Ok(ended) = tokio::time::timeout(END_TIMEOUT, serving).await {
        said(ended);
    }
}

/// Logs the end of a connection. A client that disconnects in the middle is not worth a warning.
fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a Flight SQL connection ended");
    }
}

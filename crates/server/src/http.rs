//! HTTP: REST, WebSocket, line protocol, metrics and the page, on one port.
//!
//! Every request passes [`guard`] first (Host, Origin, token). Connections are bounded in number ([`connections`]), in
//! header bytes, in the time they may take to send a header or a piece of a body, and with their answers in memory
//! ([`bounded`]). An unknown path is a 404 in JSON, never the page: clients probe paths to learn what they talk to.

mod alarms;
pub mod answer;
mod bounded;
mod catalog;
mod derived;
mod doctor;
mod door;
mod export;
mod followers;
mod guard;
mod health;
mod layouts;
pub(crate) mod live;
mod live_sql;
mod marks;
mod metrics;
mod notes;
mod page;
mod playbacks;
mod reading;
mod runs;
mod socket;
mod source;
mod sql;
mod write;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::MissedTickBehavior;
use tower::ServiceExt;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use self::answer::Failure;
use self::bounded::{Bounded, Intake, Leaving};
use self::door::Door;
use self::socket::Socket;
use crate::process::connections::{Connection, ConnectionPlace, Connections, EndReason};
use crate::server::{Server, stopped};

pub use reading::{patterns as split_patterns, range};

/// Time between two sweeps for connections that have waited too long for their clients.
const SWEEP: Duration = Duration::from_millis(500);
/// Pause before the next accept if no file descriptor is free.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);
/// Number of waiting connections closed if no file descriptor is free.
const SHED: usize = 8;
/// Response to a client for which there is no free connection slot.
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: application/json\r\nContent-Length: 63\r\n\r\n\
    {\"error\":\"the server has no place left\",\"code\":\"connections\"}\n\n";
/// Max bytes of a request's header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a connection's send buffer in the kernel; small, so that a slow live client lags by kilobytes only.
const SEND_BUFFER_BYTES: u32 = 256 << 10;
/// Max number of connections waiting to be accepted.
const BACKLOG: u32 = 4096;
/// Max time for requests under way once the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Binds the HTTP port.
///
/// # Errors
/// If the address cannot be bound.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit these options. Updates are small and must not wait for an earlier acknowledgement.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns the router of all paths.
pub fn router(server: Arc<Server>) -> Router {
    let compress = CompressionLayer::new().gzip(true).compress_when(
        SizeAbove::new(1024)
            .and(NotForContentType::new("application/vnd.apache.parquet"))
            .and(NotForContentType::IMAGES),
    );
    let read = Router::new()
        .route("/api/health", get(health::health))
        .route("/api/channels", get(catalog::channels))
        .route("/api/sources", get(catalog::sources))
        .route("/api/sources/{name}", get(source::source))
        .route("/api/view", get(catalog::view))
        .route("/api/layouts", get(layouts::list))
        .route("/api/layouts/{name}", get(layouts::get).put(layouts::put).delete(layouts::delete))
        .route("/api/gaps", get(notes::gaps))
        .route("/api/events", get(notes::events).post(notes::add_event))
        .route("/api/history", get(reading::history))
        .route("/api/state", get(reading::state))
        .route("/api/doctor", get(doctor::doctor))
        .route("/api/alarms", get(alarms::list))
        .route("/api/alarms/acknowledge", post(alarms::acknowledge))
        .route("/api/alarms/shelve", post(alarms::shelve))
        .route("/api/alarms/unshelve", post(alarms::unshelve))
        .route("/api/limits", get(alarms::limits))
        .route("/api/limits/past", get(alarms::past))
        .route("/api/derived", get(derived::list))
        .route("/api/derived/{name}", get(derived::one).put(derived::put).delete(derived::remove))
        .route("/api/derived/{name}/backfill", post(derived::backfill))
        .route("/api/derived/{name}/past", get(derived::past))
        .route("/api/marks", get(marks::list).post(marks::add))
        .route("/api/runs", get(runs::list))
        .route("/api/runs/{name}/release", post(runs::release))
        .route("/api/runs/{name}/{step}", post(runs::step))
        .route("/api/followers", get(followers::list))
        .route("/api/followers/{name}", put(followers::add).delete(followers::remove))
        .route("/api/followers/{name}/backfill", post(followers::backfill))
        .route("/api/followers/{name}/pause", post(followers::pause))
        .route("/api/followers/{name}/resume", post(followers::resume))
        .route("/api/playbacks", get(playbacks::list).post(playbacks::start))
        .route("/api/playbacks/{id}", get(playbacks::state).post(playbacks::control).delete(playbacks::end))
        .route("/api/export", get(export::export))
        .route("/api/sql", post(sql::sql))
        .route("/metrics", get(metrics::metrics))
        .route("/", get(page::index))
        .route("/index.html", get(page::index))
        .route("/assets/{*path}", get(page::asset))
        .layer(axum::middleware::from_fn_with_state(server.clone(), bounded::count))
        .layer(compress);
    Router::new()
        .merge(read)
        .route("/api/live", get(live::live))
        .route("/api/sql/live", get(live_sql::live))
        .route("/health", get(health::influx_health))
        .route("/ping", get(health::ping))
        .route("/query", any(write::query))
        .route("/write", post(write::v1))
        .route("/api/v2/write", post(write::v2))
        .route("/api/v4/write", any(write::v4))
        .fallback(page::other)
        .method_not_allowed_fallback(answer::wrong_method)
        .layer(axum::middleware::from_fn_with_state(server.clone(), notes::allow))
        .layer(axum::middleware::from_fn_with_state(server.clone(), guard::guard))
        .layer(axum::middleware::map_response(answer::harden))
        .with_state(server)
}

/// Serves connections until the server stops, then waits a moment for the open ones.
///
/// # Errors
/// If the closing thread cannot be started.
pub fn serve(listener: TcpListener, server: Arc<Server>) -> std::io::Result<impl Future<Output = ()> + Send> {
    let door = Arc::new(Door::open(server.connections.clone())?);
    Ok(accept_all(listener, door, server))
}

async fn accept_all(listener: TcpListener, door: Arc<Door>, server: Arc<Server>) {
    let router = router(server.clone());
    let mut stopping = server.stopping.subscribe();
    let connections = server.connections.clone();
    let sweeping = tokio::spawn(sweep(connections.clone()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, address)) => match connections.admit(address) {
                Some(place) => drop(tokio::spawn(attend(stream, place, router.clone(), server.clone(), door.clone()))),
                // Written only if the socket has room for it; a client that does not read it just sees the end.
                None => _ = stream.try_write(REFUSED),
            },
            Err(error) if is_peers(&error) => {}
            Err(error) => {
                // Out of file descriptors: close connections that wait for their clients.
                connections.count(EndReason::NoDescriptor);
                let shed = connections.shed(SHED);
                tracing::warn!(%error, shed, "a connection could not be accepted");
                tokio::time::sleep(DESCRIPTOR_PAUSE).await;
            }
        }
    }
    sweeping.abort();
    drop(listener);
    let _ = tokio::time::timeout(STOP_PATIENCE, connections.all_left()).await;
}

/// Returns whether a connection could not be accepted because its peer has already gone.
fn is_peers(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Periodically ends connections that have waited too long for their clients.
async fn sweep(connections: Arc<Connections>) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        connections.sweep();
    }
}

/// Serves one connection.
async fn attend(stream: TcpStream, place: ConnectionPlace, router: Router, server: Arc<Server>, door: Arc<Door>) {
    if let Some(socket) = door.pass(stream, place, &mut server.stopping.subscribe()).await {
        // The future is large, and most of the thousands of idle connections never need it.
        Box::pin(answer_all(socket, router, server)).await;
    }
}

/// Answers the requests of a connection until it ends.
async fn answer_all(socket: Socket, router: Router, server: Arc<Server>) {
    let mut stopping = server.stopping.subscribe();
    let from = socket.connection().clone();
    let requests = from.clone();
    let service = hyper::service::service_fn(move |request| {
        answer_one(request, requests.clone(), router.clone(), server.clone())
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // The sweep watches the times of connections instead.
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // The way a connection ends is its client's affair.
    tokio::select! {
        _ = &mut connection => {}
        () = from.ended() => {}
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(STOP_PATIENCE, connection).await;
        }
    }
}

/// Answers a request. Its body is counted while it arrives, and its answer until it has been sent.
async fn answer_one(
    request: Request<Incoming>,
    connection: Arc<Connection>,
    router: Router,
    server: Arc<Server>,
) -> Result<Response, Infallible> {
    connection.works();
    let response = match Intake::new(&server.budget, connection.address().ip()) {
        Err(over) => Failure::from(over).into_response(),
        Ok(intake) => {
            let (parts, body) = request.into_parts();
            let body = Body::new(Bounded::new(body, intake.clone(), connection.clone()));
            let mut request = Request::from_parts(parts, body);
            request.extensions_mut().insert(connection.clone());
            request.extensions_mut().insert(intake.clone());
            let Ok(response) = router.oneshot(request).await;
            // A refused body is answered with its own reason, whatever the router made of its end.
            intake.failure().map_or(response, Failure::into_response)
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        connection.upgrades();
        return Ok(response);
    }
    connection.answers();
    Ok(response.map(|body| Body::new(Leaving::new(body, connection))))
}

//! HTTP: REST, WebSocket, line protocol, metrics and the page, on one port.
//!
//! Every request passes [`guard`] first (Host, Origin, token). Connections are bounded in number, in header
//! bytes and in the time they may take to send a header or a piece of a body. An unknown path is a 404 in JSON,
//! never the page: clients probe paths to learn what they talk to.

mod alarms;
pub mod answer;
mod catalog;
mod derived;
mod doctor;
mod export;
mod guard;
mod health;
mod layouts;
mod live;
mod metrics;
mod notes;
mod page;
mod playbacks;
mod reading;
mod runs;
mod source;
mod sql;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::{any, get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::server::{Server, stopped};

pub use notes::range;
pub use reading::patterns as split_patterns;

/// Longest time a connection may take to send a header: idle connections are closed then.
const HEADER_PATIENCE: Duration = Duration::from_secs(75);
/// Most bytes of a request's header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a connection's send buffer in the kernel: a slow live client shall be behind by kilobytes.
const SEND_BUFFER_BYTES: u32 = 256 << 10;
/// Connections waiting to be accepted.
const BACKLOG: u32 = 1024;
/// How long requests under way may take once the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// The connection that a request came by.
#[derive(Clone, Debug)]
struct Connection {
    /// Of the client.
    address: SocketAddr,
    /// Ends it at once, with what it has not taken.
    abandon: Arc<Notify>,
}

/// Binds the HTTP port.
///
/// # Errors
/// Where it cannot be had.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// All paths.
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
        .route("/api/runs", get(runs::list))
        .route("/api/runs/{name}/release", post(runs::release))
        .route("/api/runs/{name}/{step}", post(runs::step))
        .route("/api/playbacks", get(playbacks::list).post(playbacks::start))
        .route("/api/playbacks/{id}", get(playbacks::state).post(playbacks::control).delete(playbacks::end))
        .route("/api/export", get(export::export))
        .route("/api/sql", post(sql::sql))
        .route("/metrics", get(metrics::metrics))
        .route("/", get(page::index))
        .route("/index.html", get(page::index))
        .route("/assets/{*path}", get(page::asset))
        .layer(compress);
    Router::new()
        .merge(read)
        .route("/api/live", get(live::live))
        .route("/health", get(health::influx_health))
        .route("/ping", get(health::ping))
        .route("/query", any(write::query))
        .route("/write", post(write::v1))
        .route("/api/v2/write", post(write::v2))
        .route("/api/v4/write", any(write::v4))
        .fallback(page::other)
        .method_not_allowed_fallback(answer::wrong_method)
        .layer(axum::middleware::from_fn_with_state(server.clone(), guard::guard))
        .layer(axum::middleware::map_response(answer::harden))
        .with_state(server)
}

/// Serves connections until the server stops, and then those that are open for a moment longer.
pub async fn serve(listener: TcpListener, server: Arc<Server>) {
    let router = router(server.clone());
    let mut stopping = server.stopping.subscribe();
    let connections = Arc::new(Semaphore::new(server.config.http.max_connections));
    let whole = server.config.http.max_connections as u32;
    loop {
        let permit = tokio::select! {
            permit = connections.clone().acquire_owned() => permit,
            () = stopped(&mut stopping) => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the peer has gone already: the next may do better.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Updates are small and must not wait for an acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let mut stopping = server.stopping.subscribe();
        let from = Connection { address, abandon: Arc::new(Notify::new()) };
        tokio::spawn(async move {
            let abandon = from.abandon.clone();
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(from.clone());
                router.clone().oneshot(request)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_PATIENCE)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let mut connection = std::pin::pin!(connection);
            // How a connection ends is its client's affair.
            tokio::select! {
                _ = &mut connection => {}
                () = abandon.notified() => {}
                () = stopped(&mut stopping) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(STOP_PATIENCE, connection).await;
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    // All permits back: all connections done.
    let _ = tokio::time::timeout(STOP_PATIENCE, connections.acquire_many(whole)).await;
}

//! `/api/health`, and the probes of InfluxDB clients.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use strongback_store::inspect::Damage;

use super::answer;
use crate::server::Server;

/// Version reported to InfluxDB 1 clients, which require at least 1.x.
const INFLUX_VERSION: &str = concat!("1.8.10-strongback-", env!("CARGO_PKG_VERSION"));

/// Max number of damaged places listed.
const DAMAGED_MAX: usize = 20;

fn status(server: &Server) -> (StatusCode, &'static str, String) {
    match server.ingest.refusal() {
        None | Some(strongback_store::Refusal::LogFull) => {
            let damaged = match server.ingest.store().recovery().damaged.len() {
                0 => String::new(),
                places => format!(
                    "; what lies in {places} damaged places of the store is gone: store.damaged, `strongback store verify`"
                ),
            };
            (StatusCode::OK, "pass", format!("ready for queries and writes{damaged}"))
        }
        Some(refusal) => (StatusCode::SERVICE_UNAVAILABLE, "fail", format!("not recording: {refusal}")),
    }
}

/// Answers `GET /api/health`.
pub(super) async fn health(State(server): State<Arc<Server>>) -> Response {
    let (code, status, message) = status(&server);
    let store = server.ingest.store();
    let stats = store.stats();
    let recovery = store.recovery();
    let damage =
        |damage: &Damage| json!({ "file": damage.file, "offset": damage.offset.to_string(), "reason": damage.reason });
    let latency = server.ingest.commit_latency().quantiles();
    let live = server.ingest.live().counters();
    let body = json!({
        "name": "strongback",
        "status": status,
        "message": message,
        "version": env!("CARGO_PKG_VERSION"),
        "origin": server.origin(),
        "epoch": store.epoch(),
        "uptime_s": server.started.elapsed().as_secs_f64(),
        "store": {
            "path": server.ingest.dir().display().to_string(),
            "recording": code == StatusCode::OK,
            "refusal": server.ingest.refusal().map(|r| r.to_string()),
            "damaged": recovery.damaged.iter().take(DAMAGED_MAX).map(damage).collect::<Vec<_>>(),
            "damaged_places": recovery.damaged.len(),
            "lost_rows": recovery.lost_rows.to_string(),
            "disk_bytes": stats.disk_bytes.to_string(),
            "segments": stats.segments.to_string(),
            "streams": stats.streams.to_string(),
            "channels": stats.channels.to_string(),
            "open_bytes": stats.open_bytes.to_string(),
            "log_used_bytes": stats.log_used_bytes.to_string(),
            "log_bytes": stats.log_bytes.to_string(),
            "commits": stats.commits.to_string(),
        },
        "commit_latency_ms": { "p50": latency.p50, "p99": latency.p99, "max": latency.max },
        "derived": { "failing": server.derived.troubles().iter().map(|(name, why)| json!({ "name": name, "why": why })).collect::<Vec<_>>() },
        "http": {
            "connections": server.connections.len(),
            "client_memory_bytes": server.budget.held().to_string(),
            "client_memory_max_bytes": server.budget.max().to_string(),
        },
        "live": { "clients": live.clients.load(std::sync::atomic::Ordering::Relaxed) },
    });
    let mut response = answer::json(&body);
    *response.status_mut() = code;
    response
}

/// Answers `GET /health`, the probe of InfluxDB 2 clients.
pub(super) async fn influx_health(State(server): State<Arc<Server>>) -> Response {
    let (code, status, message) = status(&server);
    let body = json!({
        "name": "strongback",
        "status": status,
        "message": message,
        "checks": [],
        "version": INFLUX_VERSION,
    });
    let mut response = answer::json(&body);
    *response.status_mut() = code;
    response
}

/// Answers `GET /ping` and `HEAD /ping`.
pub(super) async fn ping() -> Response {
    let headers = [
        (HeaderName::from_static("x-influxdb-version"), INFLUX_VERSION),
        (HeaderName::from_static("x-influxdb-build"), "OSS"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

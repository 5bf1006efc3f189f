//! `/api/playbacks`: sessions that play stored data, and their directors.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use strongback_sources::instant;

use super::answer::{self, Failure, JsonBody, Parameters};
use crate::live::heartbeat::PlaybackState;
use crate::playback::session::PlaybackHost;
use crate::playback::{
    ControlCommand, NAME_BYTES_MAX, PLAYBACK_BYTES, Playback, PlaybackRequest, Refused, STEP_FRAMES_MAX, STEP_MS_MAX,
    check_interval, check_speed,
};
use crate::process::budget::Reservation;
use crate::process::clock::now_ns;
use crate::process::connections::Connection;
use crate::server::Server;

/// Converts a refusal into the error clients see.
pub(super) fn failure(refused: Refused) -> Failure {
    let message = refused.to_string();
    match refused {
        Refused::Unknown(_) => Failure::not_found(message),
        Refused::Bad(_) => Failure::bad_request(message),
        Refused::NotDirector => Failure { status: StatusCode::FORBIDDEN, code: "not_director", message },
        Refused::TooMany | Refused::Busy(_) => Failure::unavailable(message),
    }
}

/// Body of the request that starts a playback.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    from: Option<String>,
    to: Option<String>,
    run: Option<String>,
    speed: Option<f64>,
    #[serde(rename = "loop", default)]
    looped: bool,
    at: Option<String>,
    #[serde(default)]
    paused: bool,
    name: Option<String>,
}

/// Body of a director's command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Control {
    #[serde(default)]
    director: String,
    #[serde(rename = "do")]
    word: String,
    at: Option<String>,
    speed: Option<f64>,
    #[serde(rename = "loop")]
    looped: Option<bool>,
    frames: Option<u64>,
    ms: Option<f64>,
    from: Option<String>,
    to: Option<String>,
}

/// Body of the request that ends a playback.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndRequest {
    director: Option<String>,
}

fn time(field: &str, text: Option<&str>) -> Result<Option<i64>, Failure> {
    let parse = |text| instant::parse(text, now_ns()).map_err(|why| Failure::bad_request(format!("{field}: {why}")));
    text.map(parse).transpose()
}

/// Answers `POST /api/playbacks`.
pub(super) async fn start(
    State(server): State<Arc<Server>>,
    Extension(connection): Extension<Arc<Connection>>,
    JsonBody(asked): JsonBody<Start>,
) -> Result<Response, Failure> {
    let starting = server.clone();
    let reserved = server.budget.take(connection.address().ip(), PLAYBACK_BYTES)?;
    // On a reader thread, because runs are read from the store.
    let started = server.readers.spawn(move || begin(&starting, &asked, reserved));
    let (playback, director) = started.await.map_err(Failure::internal)??;
    let mut state = playback.state().json();
    state["director"] = director.into();
    Ok((StatusCode::CREATED, answer::json(&state)).into_response())
}

fn begin(server: &Arc<Server>, asked: &Start, reserved: Reservation) -> Result<(Arc<Playback>, String), Failure> {
    let interval = match (&asked.run, time("from", asked.from.as_deref())?, time("to", asked.to.as_deref())?) {
        (None, Some(from), Some(to)) => from..to,
        (None, ..) => return Err(Failure::bad_request("from and to, or run, say what to play")),
        (Some(run), from, to) => {
            let known = interval_of(server, run)?;
            from.unwrap_or(known.start)..to.unwrap_or(known.end)
        }
    };
    check_interval(&interval).map_err(failure)?;
    let at = time("at", asked.at.as_deref())?.unwrap_or(interval.start);
    if !(interval.start..=interval.end).contains(&at) {
        return Err(Failure::bad_request(format!(
            "at is {at}, outside of the interval from {} to {}",
            interval.start, interval.end
        )));
    }
    let name = asked.name.clone().or_else(|| asked.run.clone()).unwrap_or_default();
    if name.len() > NAME_BYTES_MAX {
        return Err(Failure::bad_request(format!("name has {} bytes, at most {NAME_BYTES_MAX}", name.len())));
    }
    let speed = check_speed(asked.speed.unwrap_or(1.0)).map_err(failure)?;
    let wanted = PlaybackRequest { interval, at, speed, looped: asked.looped, paused: asked.paused, name };
    server.playbacks.start(host(server), &wanted, reserved).map_err(failure)
}

/// Returns the parts of the server that a playback needs.
fn host(server: &Server) -> PlaybackHost {
    PlaybackHost {
        ingest: server.ingest.clone(),
        ledger: server.ledger.clone(),
        heartbeat: Duration::from_millis(server.config.live.heartbeat_ms),
        stopping: server.stopping.subscribe(),
    }
}

/// Returns the interval of a run: that of its data, or else of its clock.
fn interval_of(server: &Server, name: &str) -> Result<std::ops::Range<i64>, Failure> {
    let of_data = server.ingest.store().runs().into_iter().find(|run| run.name == name).and_then(|run| run.time);
    if let Some((first, last)) = of_data {
        return Ok(first..last.saturating_add(1));
    }
    match server.runs.runs().get(name) {
        Some(run) => Ok(run.clock.started..run.clock.stopped.unwrap_or_else(now_ns)),
        None => Err(Failure::not_found(format!("there is no run {name:?} with a clock or with data"))),
    }
}

/// Answers `GET /api/playbacks`.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    let states: Vec<_> = server.playbacks.states().iter().map(PlaybackState::json).collect();
    answer::json(&json!({ "playbacks": states }))
}

/// Answers `GET /api/playbacks/{id}`.
pub(super) async fn state(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Result<Response, Failure> {
    Ok(answer::json(&server.playbacks.get(&id).map_err(failure)?.state().json()))
}

/// Answers `POST /api/playbacks/{id}`.
pub(super) async fn control(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    JsonBody(asked): JsonBody<Control>,
) -> Result<Response, Failure> {
    let playback = server.playbacks.get(&id).map_err(failure)?;
    if asked.word == "take" {
        let director = playback.take().map_err(failure)?;
        let mut state = playback.state().json();
        state["director"] = director.into();
        return Ok(answer::json(&state));
    }
    let wish = wish_of(&asked)?;
    playback.check_director(&asked.director).map_err(failure)?;
    let state = playback.wish(wish).await.map_err(failure)?;
    Ok(answer::json(&state.json()))
}

/// Converts a director's command.
fn wish_of(asked: &Control) -> Result<ControlCommand, Failure> {
    let needs = |field: &str| Failure::bad_request(format!("{} needs {field}", asked.word));
    Ok(match asked.word.as_str() {
        "play" => ControlCommand::Play,
        "pause" => ControlCommand::Pause,
        "step" => match (asked.frames, asked.ms) {
            (Some(frames), None) if (1..=STEP_FRAMES_MAX).contains(&frames) => ControlCommand::StepFrames(frames),
            (None, Some(ms)) if ms > 0.0 && ms <= STEP_MS_MAX => ControlCommand::StepTime((ms * 1e6) as i64),
            _ => {
                let least = format!("frames, 1 to {STEP_FRAMES_MAX}, or ms, above 0, at most {STEP_MS_MAX}");
                return Err(needs(&least));
            }
        },
        "seek" => ControlCommand::Seek(time("at", asked.at.as_deref())?.ok_or_else(|| needs("at"))?),
        "speed" => ControlCommand::Speed(check_speed(asked.speed.ok_or_else(|| needs("speed"))?).map_err(failure)?),
        "loop" => ControlCommand::Loop(asked.looped.ok_or_else(|| needs("loop"))?),
        "interval" => {
            let (from, to) = (time("from", asked.from.as_deref())?, time("to", asked.to.as_deref())?);
            if from.is_none() && to.is_none() {
                return Err(needs("from or to"));
            }
            ControlCommand::Interval(from, to)
        }
        other => {
            return Err(Failure::bad_request(format!(
                "do is {other:?}, none of play, pause, step, seek, speed, loop, interval, take"
            )));
        }
    })
}

/// Answers `DELETE /api/playbacks/{id}`.
pub(super) async fn end(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    Parameters(query): Parameters<EndRequest>,
    JsonBody(asked): JsonBody<EndRequest>,
) -> Result<Response, Failure> {
    let playback = server.playbacks.get(&id).map_err(failure)?;
    let director = query.director.or(asked.director).unwrap_or_default();
    playback.check_director(&director).map_err(failure)?;
    let ending = server.clone();
    let ended = server.readers.spawn(move || ending.playbacks.end(&id, "its director ended it"));
    ended.await.map_err(Failure::internal)?;
    Ok(answer::json(&playback.state().json()))
}

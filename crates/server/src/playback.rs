//! Playback of any interval of stored data, through the same subscriptions as live, with a clock.
//!
//! ```text
//!  store ─> Replay (one order) ─> [Deck: the clock] ─> its own Fanout ─> Subscription windows ─> viewers
//!                                             ^ commands of the director
//! ```
//! A playback has its own fan-out, so that nothing of it can reach limits, alarms or stored data, and its viewers are
//! ordinary clients. Read first: [`deck::Deck`] (the player), [`replay::Replay`] (the order of frames).
//!
//! Invariants:
//! - every frame of the interval reaches the windows once in a round, at any speed;
//! - a snapshot and the windows after it split stored data at a [`strongback_store::FramePosition`];
//! - only its own thread waits for its reads.

pub mod deck;
pub mod replay;
pub mod session;

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::{oneshot, watch};

use crate::live::Live;
use crate::live::heartbeat::{Beat, PlaybackState};

/// Max simultaneous playbacks.
pub const PLAYBACKS_MAX: usize = 32;
/// Approximate memory of a playback: frames read ahead, of as many channels as it may show. [`PLAYBACKS_MAX`] of them
/// are within the share of one client.
pub const PLAYBACK_BYTES: usize = 3 << 20;
/// Max frames of a step.
pub const STEP_FRAMES_MAX: u64 = 10_000;
/// Max time of a step, in milliseconds.
pub const STEP_MS_MAX: f64 = 86_400_000.0;
/// Allowed speeds.
pub const SPEEDS: RangeInclusive<f64> = 0.1..=1000.0;
/// Max bytes of a name.
pub const NAME_BYTES_MAX: usize = 200;
/// Max pending commands.
const ORDERS: usize = 64;

/// Command of the director.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ControlCommand {
    /// Start of the clock.
    Play,
    /// Stop of the clock.
    Pause,
    /// Step by a number of frames.
    StepFrames(u64),
    /// Step by a time, nanoseconds.
    StepTime(i64),
    /// Jump to a `time`, nanoseconds since 1970 UTC.
    Seek(i64),
    /// Speed to play at.
    Speed(f64),
    /// Whether to restart at the end.
    Loop(bool),
    /// Start and end of the interval of `time`; `None` keeps the current one.
    Interval(Option<i64>, Option<i64>),
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Unknown playback.
    #[error("there is no playback {0:?}; it may have ended")]
    Unknown(String),
    /// Invalid request.
    #[error("{0}")]
    Bad(String),
    /// Missing or wrong token of the director.
    #[error("not the token of the playback's director; use do=take to become the director")]
    NotDirector,
    /// Too many playbacks.
    #[error("there are already {PLAYBACKS_MAX} playbacks, the limit; end one first")]
    TooMany,
    /// Thread that cannot keep up or cannot be started.
    #[error("{0}")]
    Busy(String),
}

/// Request to start a playback.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackRequest {
    /// Interval of `time`, nanoseconds since 1970 UTC.
    pub interval: Range<i64>,
    /// Time at which to begin.
    pub at: i64,
    /// Speed.
    pub speed: f64,
    /// Whether to restart at the end.
    pub looped: bool,
    /// Whether to start paused.
    pub paused: bool,
    /// Name for display.
    pub name: String,
}

/// Checks whether an interval can be played.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check_interval(interval: &Range<i64>) -> Result<(), Refused> {
    let Range { start, end } = *interval;
    // The extreme 64-bit values mean "without end" elsewhere.
    if start <= i64::MIN + 1 || end == i64::MAX {
        return Err(Refused::Bad("an interval has a beginning and an end".to_owned()));
    }
    if start >= end {
        return Err(Refused::Bad(format!("from is {start} and to is {end}: an interval ends after it begins")));
    }
    Ok(())
}

/// Checks a speed, and returns it.
///
/// # Errors
/// Returns an error if it is not within [`SPEEDS`].
pub fn check_speed(speed: f64) -> Result<f64, Refused> {
    // NaN is in no range.
    if SPEEDS.contains(&speed) {
        return Ok(speed);
    }
    Err(Refused::Bad(format!("speed is {speed}, not within {} to {}", SPEEDS.start(), SPEEDS.end())))
}

/// Message to the playback's thread.
enum Control {
    /// Command, with the sender of its result.
    Wish(ControlCommand, oneshot::Sender<Result<PlaybackState, Refused>>),
    /// Request to publish the state: viewers came or left, or the director changed.
    Tell,
    /// End of the playback, with the reason.
    End(String),
}

/// Playback, as its viewers and its director see it.
pub struct Playback {
    id: String,
    live: Arc<Live>,
    heartbeat: watch::Sender<Beat>,
    state: Mutex<PlaybackState>,
    at: AtomicI64,
    viewers: AtomicU32,
    director: Mutex<String>,
    orders: SyncSender<Control>,
}

impl Playback {
    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the fan-out of its viewers.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns the `time` up to which everything was played, nanoseconds since 1970 UTC.
    pub fn at(&self) -> i64 {
        self.at.load(Ordering::Acquire)
    }

    /// Returns a receiver of its heartbeats.
    pub fn heartbeats(&self) -> watch::Receiver<Beat> {
        self.heartbeat.subscribe()
    }

    /// Returns its state.
    pub fn state(&self) -> PlaybackState {
        PlaybackState { viewers: self.viewers.load(Ordering::Relaxed), ..self.state.lock().clone() }
    }

    /// Checks that a token is the director's.
    ///
    /// # Errors
    /// Returns an error if it is not.
    pub fn check_director(&self, token: &str) -> Result<(), Refused> {
        let director = self.director.lock();
        if bool::from(director.as_bytes().ct_eq(token.as_bytes())) { Ok(()) } else { Err(Refused::NotDirector) }
    }

    /// Replaces the director, and returns the new token.
    ///
    /// # Errors
    /// Returns an error if the system has no randomness.
    pub fn take(&self) -> Result<String, Refused> {
        let token = token::<16>()?;
        self.director.lock().clone_from(&token);
        let _ = self.orders.try_send(Control::Tell);
        Ok(token)
    }

    /// Executes a command of the director; completes when it is done.
    ///
    /// # Errors
    /// Returns why the command is refused.
    pub async fn wish(&self, wish: ControlCommand) -> Result<PlaybackState, Refused> {
        let (answer, answered) = oneshot::channel();
        self.orders.try_send(Control::Wish(wish, answer)).map_err(|error| match error {
            TrySendError::Full(_) => Refused::Busy(format!("{ORDERS} commands wait already")),
            TrySendError::Disconnected(_) => Refused::Unknown(self.id.clone()),
        })?;
        answered.await.unwrap_or_else(|_| Err(Refused::Unknown(self.id.clone())))
    }
}

impl std::fmt::Debug for Playback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Playback").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Viewer of a playback, counted until dropped.
#[derive(Debug)]
pub struct Viewer(Arc<Playback>);

impl Viewer {
    /// Adds a viewer to a playback.
    pub fn of(playback: &Arc<Playback>) -> Viewer {
        playback.viewers.fetch_add(1, Ordering::Relaxed);
        let _ = playback.orders.try_send(Control::Tell);
        Viewer(playback.clone())
    }

    /// Returns the playback that is watched.
    pub fn playback(&self) -> &Playback {
        &self.0
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
        let _ = self.0.orders.try_send(Control::Tell);
    }
}

/// Playbacks of a server.
#[derive(Debug, Default)]
pub struct Playbacks {
    sessions: Arc<Mutex<BTreeMap<String, Session>>>,
}

#[derive(Debug)]
struct Session {
    playback: Arc<Playback>,
    thread: JoinHandle<()>,
}

impl Session {
    fn end(self, why: &str) {
        // If the thread does not receive it, it has ended already.
        let _ = self.playback.orders.send(Control::End(why.to_owned()));
        if self.thread.join().is_err() {
            tracing::error!("a playback ended by a defect");
        }
    }
}

impl Playbacks {
    /// Returns a playback by its id.
    ///
    /// # Errors
    /// Returns an error if there is no playback with this id.
    pub fn get(&self, id: &str) -> Result<Arc<Playback>, Refused> {
        let sessions = self.sessions.lock();
        sessions.get(id).map(|session| session.playback.clone()).ok_or_else(|| Refused::Unknown(id.to_owned()))
    }

    /// Returns the states of all playbacks.
    pub fn states(&self) -> Vec<PlaybackState> {
        self.sessions.lock().values().map(|session| session.playback.state()).collect()
    }

    /// Ends a playback, if it exists, and waits for its thread.
    pub fn end(&self, id: &str, why: &str) {
        let session = self.sessions.lock().remove(id);
        session.into_iter().for_each(|session| session.end(why));
    }

    /// Ends all playbacks, and waits for their threads.
    pub fn stop(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
        sessions.into_values().for_each(|session| session.end("the server stops"));
    }
}

/// Returns a random, unguessable token of `N` bytes, in hex.
fn token<const N: usize>() -> Result<String, Refused> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Refused::Busy(format!("the system has no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

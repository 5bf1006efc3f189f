//! Playback: any interval of the record through the same subscriptions as live, with a clock.
//!
//! ```text
//!  store ─> Replay (one order) ─> [Deck: the clock] ─> Fanout of its own ─> Subscription windows ─> viewers
//!                                             ^ Wish of the director
//! ```
//! A playback has a fan-out of its own, so that nothing of it can reach limits, alarms or the record, and its viewers
//! are clients like all others. Read first: [`deck::Deck`] (what turns), [`replay::Replay`] (the order of frames).
//!
//! Invariants:
//! - every frame of the interval reaches the windows once in a round, at any speed;
//! - a snapshot and the windows behind it divide the record at a [`strongback_store::FramePosition`];
//! - no thread but its own waits for its reads.

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

/// Playbacks at once.
pub const PLAYBACKS_MAX: usize = 32;
/// Bytes that a playback holds, about: frames that are read ahead, of as many channels as it may show. [`PLAYBACKS_MAX`]
/// of them are within the share of one client.
pub const PLAYBACK_BYTES: usize = 3 << 20;
/// Frames of a step.
pub const STEP_FRAMES_MAX: u64 = 10_000;
/// Time of a step, in milliseconds.
pub const STEP_MS_MAX: f64 = 86_400_000.0;
/// Speeds.
pub const SPEEDS: RangeInclusive<f64> = 0.1..=1000.0;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 200;
/// Orders that wait.
const ORDERS: usize = 64;

/// What the director wishes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ControlCommand {
    /// The clock runs.
    Play,
    /// It stands.
    Pause,
    /// So many frames.
    StepFrames(u64),
    /// So much time, nanoseconds.
    StepTime(i64),
    /// To a time.
    Seek(i64),
    /// How fast.
    Speed(f64),
    /// Whether to begin again at the end.
    Loop(bool),
    /// Another interval of `time`; none: as before.
    Interval(Option<i64>, Option<i64>),
}

/// Why something cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// There is no such playback.
    #[error("there is no playback {0:?}; it may have ended")]
    Unknown(String),
    /// It is asked for wrongly.
    #[error("{0}")]
    Bad(String),
    /// By somebody who is not the director.
    #[error("not the token of the playback's director; use do=take to become the director")]
    NotDirector,
    /// There are too many.
    #[error("there are already {PLAYBACKS_MAX} playbacks, the limit; end one first")]
    TooMany,
    /// Its thread does not keep up, or cannot be had.
    #[error("{0}")]
    Busy(String),
}

/// What is to be played.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackRequest {
    /// Its interval of `time`, nanoseconds since 1970 UTC.
    pub interval: Range<i64>,
    /// Where to begin.
    pub at: i64,
    /// How fast.
    pub speed: f64,
    /// Whether to begin again at the end.
    pub looped: bool,
    /// Whether to wait for the director.
    pub paused: bool,
    /// A name for people.
    pub name: String,
}

/// Whether an interval can be played.
///
/// # Errors
/// What is wrong with it.
pub fn check_interval(interval: &Range<i64>) -> Result<(), Refused> {
    let Range { start, end } = *interval;
    // The ends of what 64 bits hold stand for "without end" elsewhere.
    if start <= i64::MIN + 1 || end == i64::MAX {
        return Err(Refused::Bad("an interval has a beginning and an end".to_owned()));
    }
    if start >= end {
        return Err(Refused::Bad(format!("from is {start} and to is {end}: an interval ends after it begins")));
    }
    Ok(())
}

/// Whether it can be played so fast.
///
/// # Errors
/// It cannot.
pub fn check_speed(speed: f64) -> Result<f64, Refused> {
    // Not a number is in no range.
    if SPEEDS.contains(&speed) {
        return Ok(speed);
    }
    Err(Refused::Bad(format!("speed is {speed}, not within {} to {}", SPEEDS.start(), SPEEDS.end())))
}

/// What its thread is told.
enum Control {
    /// To do as the director wishes, and to answer.
    Wish(ControlCommand, oneshot::Sender<Result<PlaybackState, Refused>>),
    /// To say what it is doing: viewers came or went, or the director is another.
    Tell,
    /// To end.
    End(String),
}

/// A playback, as its viewers and its director see it.
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
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who hands frames to its viewers.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// `time` up to which all was played, nanoseconds since 1970 UTC.
    pub fn at(&self) -> i64 {
        self.at.load(Ordering::Acquire)
    }

    /// Its heartbeats.
    pub fn heartbeats(&self) -> watch::Receiver<Beat> {
        self.heartbeat.subscribe()
    }

    /// What it is doing.
    pub fn state(&self) -> PlaybackState {
        PlaybackState { viewers: self.viewers.load(Ordering::Relaxed), ..self.state.lock().clone() }
    }

    /// Whether a token is the director's.
    ///
    /// # Errors
    /// It is not.
    pub fn check_director(&self, token: &str) -> Result<(), Refused> {
        let director = self.director.lock();
        if bool::from(director.as_bytes().ct_eq(token.as_bytes())) { Ok(()) } else { Err(Refused::NotDirector) }
    }

    /// Makes somebody else the director: answers the token.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn take(&self) -> Result<String, Refused> {
        let token = token::<16>()?;
        self.director.lock().clone_from(&token);
        let _ = self.orders.try_send(Control::Tell);
        Ok(token)
    }

    /// Does what the director wishes; answered when it is done.
    ///
    /// # Errors
    /// It cannot be.
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

/// Who watches a playback, as long as it is there.
#[derive(Debug)]
pub struct Viewer(Arc<Playback>);

impl Viewer {
    /// One more.
    pub fn of(playback: &Arc<Playback>) -> Viewer {
        playback.viewers.fetch_add(1, Ordering::Relaxed);
        let _ = playback.orders.try_send(Control::Tell);
        Viewer(playback.clone())
    }

    /// What is watched.
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

/// The playbacks of a server.
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
        // Who does not hear it has ended.
        let _ = self.playback.orders.send(Control::End(why.to_owned()));
        if self.thread.join().is_err() {
            tracing::error!("a playback ended by a defect");
        }
    }
}

impl Playbacks {
    /// One of them.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn get(&self, id: &str) -> Result<Arc<Playback>, Refused> {
        let sessions = self.sessions.lock();
        sessions.get(id).map(|session| session.playback.clone()).ok_or_else(|| Refused::Unknown(id.to_owned()))
    }

    /// What they are doing.
    pub fn states(&self) -> Vec<PlaybackState> {
        self.sessions.lock().values().map(|session| session.playback.state()).collect()
    }

    /// Ends one, if it is there, and waits until it has.
    pub fn end(&self, id: &str, why: &str) {
        let session = self.sessions.lock().remove(id);
        session.into_iter().for_each(|session| session.end(why));
    }

    /// Ends all, and waits until they have.
    pub fn stop(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
        sessions.into_values().for_each(|session| session.end("the server stops"));
    }
}

/// A random text that cannot be guessed, of so many bytes.
fn token<const N: usize>() -> Result<String, Refused> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Refused::Busy(format!("the system has no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

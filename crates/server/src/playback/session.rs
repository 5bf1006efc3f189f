//! The thread of a playback: runs the deck, executes the director's commands and informs the viewers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::deck::{Deck, DeckHost, Now};
use super::{
    Control, ControlCommand, ORDERS, PLAYBACKS_MAX, Playback, PlaybackRequest, Playbacks, Refused, Session, token,
};
use crate::ingest::Ingest;
use crate::live::heartbeat::{Beat, PlaybackBeat, PlaybackState};
use crate::process::budget::Reservation;
use crate::process::clock::now_ns;
use crate::process::readers::{NICENESS, lower_priority};
use crate::sources::ledger::Ledger;

/// Time after which a playback without viewers and commands is ended.
pub const IDLE: Duration = Duration::from_secs(300);

/// Services of the server that a playback uses.
#[derive(Clone, Debug)]
pub struct PlaybackHost {
    /// Stored data.
    pub ingest: Arc<Ingest>,
    /// Gaps, for its viewers.
    pub ledger: Arc<Ledger>,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Whether the server is stopping.
    pub stopping: watch::Receiver<bool>,
}

impl Playbacks {
    /// Starts a playback with the memory reserved for it. Returns it with the token of its director.
    ///
    /// # Errors
    /// Returns an error if there are too many playbacks, or no thread can be started.
    pub fn start(
        &self,
        host: PlaybackHost,
        wanted: &PlaybackRequest,
        reserved: Reservation,
    ) -> Result<(Arc<Playback>, String), Refused> {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= PLAYBACKS_MAX {
            return Err(Refused::TooMany);
        }
        let (id, director) = (token::<6>()?, token::<16>()?);
        let (machine, ingest) = (machine(&host), host.ingest.clone());
        let mut deck = Deck::new(machine, ingest.live(), wanted.interval.clone(), wanted.at);
        for wish in [ControlCommand::Speed(wanted.speed), ControlCommand::Loop(wanted.looped)] {
            deck.obey(&wish)?;
        }
        if wanted.paused {
            deck.obey(&ControlCommand::Pause)?;
        }
        let (orders, received) = sync_channel(ORDERS);
        let playback = Arc::new(Playback {
            id: id.clone(),
            live: deck.live().clone(),
            heartbeat: watch::Sender::new(Beat::default()),
            state: Mutex::new(state_of(&deck, &id, &wanted.name)),
            at: AtomicI64::new(deck.at()),
            viewers: AtomicU32::new(0),
            director: Mutex::new(director.clone()),
            orders,
        });
        let turning =
            Turning { host, playback: playback.clone(), name: wanted.name.clone(), deck, received, waiting: None };
        let known = self.sessions.clone();
        let own = id.clone();
        let turn = move || {
            // Use the same priority as other readers.
            lower_priority(NICENESS, "playbacks");
            let why = turning.run();
            drop(reserved);
            known.lock().remove(&own);
            tracing::info!(playback = own, "ended: {why}");
        };
        let thread = std::thread::Builder::new()
            .name("playback".into())
            .spawn(turn)
            .map_err(|error| Refused::Busy(format!("no thread for a playback: {error}")))?;
        sessions.insert(id, Session { playback: playback.clone(), thread });
        Ok((playback, director))
    }
}

/// Creates the host of a deck.
fn machine(host: &PlaybackHost) -> DeckHost {
    let began = Instant::now();
    let now = move || Now { steady: i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX), wall: now_ns() };
    let (ingest, ledger) = (host.ingest.clone(), host.ledger.clone());
    DeckHost {
        now: Box::new(now),
        store: Box::new(move || ingest.store()),
        gaps: Box::new(move |time| ledger.open_ends(time)),
    }
}

fn state_of(deck: &Deck, id: &str, name: &str) -> PlaybackState {
    let (speed, paused, looped) = deck.mode();
    PlaybackState {
        id: id.to_owned(),
        name: name.to_owned(),
        from: deck.interval().start,
        to: deck.interval().end,
        at: deck.at(),
        speed,
        paused,
        looped,
        ended: deck.is_ended(),
        viewers: 0,
        behind: deck.is_behind(),
        round: deck.round(),
        wall_ns: deck.now().wall,
    }
}

/// Timer that ends an unused playback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Steady clock when it was last watched or directed.
    needed: i64,
}

impl Patience {
    pub(super) fn new(now: i64) -> Patience {
        Patience { needed: now }
    }

    /// Returns whether the playback should end at `now` of the steady clock. `needed` tells whether it has viewers or
    /// got a command.
    pub(super) fn is_over(&mut self, needed: bool, now: i64) -> bool {
        if needed {
            self.needed = now;
        }
        now - self.needed >= i64::try_from(IDLE.as_nanos()).unwrap_or(i64::MAX)
    }
}

struct Turning {
    host: PlaybackHost,
    playback: Arc<Playback>,
    name: String,
    deck: Deck,
    received: Receiver<Control>,
    /// Receiver of the result when the step is done.
    waiting: Option<oneshot::Sender<Result<PlaybackState, Refused>>>,
}

impl Turning {
    /// Runs until the playback ends; returns the reason.
    fn run(mut self) -> String {
        let beat_every = self.host.heartbeat;
        let mut beat_at = Instant::now();
        let mut patience = Patience::new(self.deck.now().steady);
        let mut said = true;
        let mut told = (false, false, 0);
        let why = loop {
            let pause = self.deck.pump();
            if !self.deck.is_stepping()
                && let Some(waiting) = self.waiting.take()
            {
                said = true;
                let _ = waiting.send(Ok(self.note()));
            }
            let state = self.note();
            let news = (state.ended, state.behind, state.round);
            if said || news != told || Instant::now() >= beat_at {
                told = news;
                beat_at = Instant::now() + beat_every;
                self.beat(&state);
            }
            for text in self.deck.take_told() {
                self.tell(&text);
            }
            if patience.is_over(said || state.viewers > 0, self.deck.now().steady) {
                break format!("nobody watched or directed it for {} s", IDLE.as_secs());
            }
            if *self.host.stopping.borrow() {
                break "the server stops".to_owned();
            }
            said = false;
            let order = match self.received.recv_timeout(pause.min(beat_at.saturating_duration_since(Instant::now()))) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break "the server stops".to_owned(),
            };
            said = true;
            match order {
                Control::Tell => {}
                Control::End(why) => break why,
                Control::Wish(wish, answer) => self.obey(&wish, answer),
            }
        };
        self.playback.live.end(&format!("the playback ended: {why}"));
        why
    }

    fn obey(&mut self, wish: &ControlCommand, answer: oneshot::Sender<Result<PlaybackState, Refused>>) {
        // A command ends the step in progress.
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.send(Ok(self.note()));
        }
        let obeyed = self.deck.obey(wish);
        if obeyed.is_ok() && self.deck.is_stepping() {
            self.waiting = Some(answer);
            return;
        }
        let state = self.note();
        let _ = answer.send(obeyed.map(|()| state));
    }

    /// Publishes the current state, and returns it.
    fn note(&self) -> PlaybackState {
        let state = state_of(&self.deck, &self.playback.id, &self.name);
        self.playback.at.store(state.at, Ordering::Release);
        self.playback.state.lock().clone_from(&state);
        PlaybackState { viewers: self.playback.viewers.load(Ordering::Relaxed), ..state }
    }

    fn beat(&self, state: &PlaybackState) {
        let epoch = self.host.ingest.store().epoch();
        let beat = PlaybackBeat { epoch, store: self.host.ingest.recording(), state }.beat();
        self.playback.heartbeat.send_replace(beat);
    }

    fn tell(&self, text: &str) {
        tracing::warn!(playback = self.playback.id, "{text}");
        let event = serde_json::json!({
            "type": "event",
            "time": self.deck.at().to_string(),
            "level": "warning",
            "source": "playback",
            "text": text,
        });
        self.playback.live.notify(event.to_string());
    }
}

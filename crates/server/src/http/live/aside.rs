//! Everything sent to a live client besides frames and replies: heartbeats, events, new channels, the end.

use tokio::sync::{broadcast, watch};

use super::scene::Scene;
use crate::live::Notice;
use crate::live::heartbeat::Beat;
use crate::live::round::Round;
use crate::server::{Server, stopped};

/// A message to a live client, or a reason to end it.
#[derive(Debug)]
pub enum Aside {
    /// A heartbeat; empty before the first one.
    Beat(Beat),
    /// An event or a gap.
    Notice(Notice),
    /// Number of notices this client lost.
    NoticesLost(u64),
    /// New channels in the catalog.
    Grown,
    /// A jump of a playback.
    Jumped(Round),
    /// End of a playback, with its reason.
    Over(String),
    /// Shutdown of the server.
    Stopping,
    /// Loss of a sender of these messages.
    Gone,
}

/// The receivers of these messages.
#[derive(Debug)]
pub struct Asides {
    heartbeats: watch::Receiver<Beat>,
    notices: broadcast::Receiver<Notice>,
    catalog: watch::Receiver<u64>,
    rounds: watch::Receiver<Round>,
    over: watch::Receiver<Option<String>>,
    stopping: watch::Receiver<bool>,
}

impl Asides {
    /// Subscribes from now on; the newest heartbeat is delivered at once.
    pub fn of(server: &Server, scene: &Scene) -> Asides {
        let mut asides = Asides {
            heartbeats: scene.heartbeats(server),
            notices: scene.live.notices(),
            // Channels are created only in the store, whatever is watched.
            catalog: server.ingest.live().catalog(),
            rounds: scene.live.rounds(),
            over: scene.live.over(),
            stopping: server.stopping.subscribe(),
        };
        asides.rounds.mark_unchanged();
        asides.heartbeats.mark_changed();
        asides
    }

    /// Returns the newest jump of a playback.
    pub fn round(&self) -> Round {
        *self.rounds.borrow()
    }

    /// Waits for the next message and returns it with the receivers.
    pub async fn next(mut self) -> (Asides, Aside) {
        let aside = tokio::select! {
            changed = self.heartbeats.changed() => match changed {
                Ok(()) => Aside::Beat(self.heartbeats.borrow_and_update().clone()),
                Err(_) => Aside::Gone,
            },
            notice = self.notices.recv() => match notice {
                Ok(notice) => Aside::Notice(notice),
                Err(broadcast::error::RecvError::Lagged(n)) => Aside::NoticesLost(n),
                Err(broadcast::error::RecvError::Closed) => Aside::Gone,
            },
            changed = self.catalog.changed() => match changed {
                Ok(()) => Aside::Grown,
                Err(_) => Aside::Gone,
            },
            changed = self.rounds.changed() => match changed {
                Ok(()) => Aside::Jumped(*self.rounds.borrow_and_update()),
                Err(_) => Aside::Gone,
            },
            why = ended(&mut self.over) => Aside::Over(why),
            () = stopped(&mut self.stopping) => Aside::Stopping,
        };
        (self, aside)
    }
}

/// Waits for the end of a playback and returns its reason.
async fn ended(over: &mut watch::Receiver<Option<String>>) -> String {
    let why = over.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    match why {
        Some(why) => why,
        // The sender lives as long as the object it belongs to, so this end is not reported here.
        None => std::future::pending().await,
    }
}

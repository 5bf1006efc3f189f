//! What reaches a live client beside frames and its own messages: heartbeats, events, a grown catalog, the end.

use tokio::sync::{broadcast, watch};

use super::scene::Scene;
use crate::live::Notice;
use crate::live::heartbeat::Beat;
use crate::live::round::Round;
use crate::server::{Server, stopped};

/// What happened.
#[derive(Debug)]
pub enum Aside {
    /// A heartbeat; empty before the first.
    Beat(Beat),
    /// An event or a gap.
    Notice(Notice),
    /// So many of them were lost to the client.
    NoticesLost(u64),
    /// There are new channels.
    Grown,
    /// A playback jumped.
    Jumped(Round),
    /// A playback ended; why.
    Over(String),
    /// The server stops.
    Stopping,
    /// What would tell is gone.
    Gone,
}

/// Where a client hears of it all.
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
    /// From now on; the newest heartbeat at once.
    pub fn of(server: &Server, scene: &Scene) -> Asides {
        let mut asides = Asides {
            heartbeats: scene.heartbeats(server),
            notices: scene.live.notices(),
            // Channels come into being in the store alone, whatever is watched.
            catalog: server.ingest.live().catalog(),
            rounds: scene.live.rounds(),
            over: scene.live.over(),
            stopping: server.stopping.subscribe(),
        };
        asides.rounds.mark_unchanged();
        asides.heartbeats.mark_changed();
        asides
    }

    /// Of a playback: what it jumped to last.
    pub fn round(&self) -> Round {
        *self.rounds.borrow()
    }

    /// What happens next, and where to hear of what comes after it.
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

/// Completes when a playback ends; says why.
async fn ended(over: &mut watch::Receiver<Option<String>>) -> String {
    let why = over.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    match why {
        Some(why) => why,
        // Its sender lives as long as what it is a part of.
        None => std::future::pending().await,
    }
}

//! What a client watches: what comes, or a playback.

use std::sync::Arc;

use tokio::sync::watch;

use crate::live::Live;
use crate::live::heartbeat::Beat;
use crate::playback::{Playback, Viewer};
use crate::process::clock::now_ns;
use crate::server::Server;

/// What a client watches.
#[derive(Debug)]
pub struct Scene {
    /// Who hands it frames.
    pub live: Arc<Live>,
    /// Its place among the viewers of a playback.
    viewer: Option<Viewer>,
}

impl Scene {
    /// What comes.
    pub fn live(server: &Server) -> Scene {
        Scene { live: server.ingest.live().clone(), viewer: None }
    }

    /// A playback, of which the client is a viewer from now on.
    pub fn of(playback: &Arc<Playback>) -> Scene {
        Scene { live: playback.live().clone(), viewer: Some(Viewer::of(playback)) }
    }

    /// The playback, if it is one.
    pub fn playback(&self) -> Option<&Playback> {
        self.viewer.as_ref().map(Viewer::playback)
    }

    /// Its time, nanoseconds since 1970 UTC.
    pub fn now(&self) -> i64 {
        self.playback().map_or_else(now_ns, Playback::at)
    }

    /// Its heartbeats.
    pub fn heartbeats(&self, server: &Server) -> watch::Receiver<Beat> {
        match self.playback() {
            Some(playback) => playback.heartbeats(),
            None => server.heartbeat.subscribe(),
        }
    }
}

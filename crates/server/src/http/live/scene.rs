//! The feed a client watches: live data or a playback.

use std::sync::Arc;

use tokio::sync::watch;

use crate::live::Live;
use crate::live::heartbeat::Beat;
use crate::playback::{Playback, Viewer};
use crate::process::clock::now_ns;
use crate::server::Server;

/// The feed a client watches.
#[derive(Debug)]
pub struct Scene {
    /// Distributor of its frames.
    pub live: Arc<Live>,
    /// Registration as a viewer of a playback.
    viewer: Option<Viewer>,
}

impl Scene {
    /// Watches live data.
    pub fn live(server: &Server) -> Scene {
        Scene { live: server.ingest.live().clone(), viewer: None }
    }

    /// Watches a playback; the client counts as a viewer from now on.
    pub fn of(playback: &Arc<Playback>) -> Scene {
        Scene { live: playback.live().clone(), viewer: Some(Viewer::of(playback)) }
    }

    /// Returns the playback, or `None` for live data.
    pub fn playback(&self) -> Option<&Playback> {
        self.viewer.as_ref().map(Viewer::playback)
    }

    /// Returns the time of the feed, nanoseconds since 1970 UTC.
    pub fn now(&self) -> i64 {
        self.playback().map_or_else(now_ns, Playback::at)
    }

    /// Returns the heartbeats of the feed.
    pub fn heartbeats(&self, server: &Server) -> watch::Receiver<Beat> {
        match self.playback() {
            Some(playback) => playback.heartbeats(),
            None => server.heartbeat.subscribe(),
        }
    }
}

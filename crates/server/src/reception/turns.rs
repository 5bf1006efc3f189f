//! Thread that periodically processes received frames, for derived channels and limits.

use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

/// Time between two turns.
const TURN: Duration = Duration::from_millis(10);

/// Starts a thread that calls `turn` periodically until `stopping` is true. The last call gets `true`.
pub fn start(
    name: &str,
    stopping: watch::Receiver<bool>,
    mut turn: impl FnMut(bool) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        loop {
            let stop = *stopping.borrow();
            turn(stop);
            if stop {
                return;
            }
            std::thread::sleep(TURN);
        }
    })
}

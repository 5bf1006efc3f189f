//! Accepts connections of clients until the server stops, as far as there is room for them.

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::running::doors::{Doors, Entry};

/// Maximum connections waiting to be accepted.
const BACKLOG: i32 = 1024;
/// Wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time for connections to end on their own when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time from a connection to its first authenticated request.
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown` is ready, and starts a task with `serve` for each. The tasks are then notified,
/// and waited for.
///
/// # Errors
/// If the listener cannot be used.
pub(crate) async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: std::net::TcpListener,
    doors: &Doors,
    mut shutdown: BoxFuture<'static, ()>,
    serve: impl Fn(TcpStream, Entry, watch::Receiver<bool>) -> F,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // A second `listen` only changes the backlog.
    rustix::net::listen(&listener, BACKLOG)?;
    let listener = TcpListener::from_std(listener)?;
    let (stop, stopped) = watch::channel(false);
    loop {
        let (socket, peer) = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => (socket, peer.ip().to_canonical()),
                Err(error) => {
                    // For example, out of file descriptors. Other connections continue, and the condition passes.
                    tracing::warn!(%error, "a connection for SQL was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // While earlier connections are still about to start, this one waits, and so do those after it.
        let start = tokio::select! {
            () = &mut shutdown => break,
            start = doors.start(peer) => start,
        };
        tokio::spawn(serve(socket, start, stopped.clone()));
    }
    drop(listener);
    stop.send_replace(true);
    // Each connection holds a receiver. When all receivers are dropped, all connections have ended.
    drop(stopped);
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, stop.closed()).await;
    Ok(())
}

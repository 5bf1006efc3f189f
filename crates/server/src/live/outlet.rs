//! Where the messages of a live client go: a WebSocket in JSON or binary, or the body of an HTTP answer.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::Beat;
use super::outgoing::{Form, Outgoing};
use crate::process::budget::Reservation;

/// A client that takes no byte for so long is let go.
pub const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client closed it, or is gone.
    Gone,
    /// It took no byte for [`SEND_PATIENCE`].
    Stuck,
}

/// One client's end of the connection. What it is given waits until the client can take it.
pub trait Outlet: Send {
    /// The form it wants.
    fn form(&self) -> Form;

    /// Whether it has one subscription and ends where that cannot be made.
    fn is_single(&self) -> bool;

    /// Sends a message.
    ///
    /// # Errors
    /// The connection has ended, or must.
    fn send(&mut self, told: Outgoing) -> impl Future<Output = Result<(), End>> + Send;

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// As [`Outlet::send`].
    fn heartbeat(&mut self, beat: Beat) -> impl Future<Output = Result<(), End>> + Send;

    /// The memory of what is sent from now on, which an outlet keeps that does not wait in [`Outlet::send`] until the
    /// client took it.
    fn hold(&mut self, _reserved: Option<Arc<Reservation>>) {}

    /// Whether the client reads heartbeats as it does other messages.
    fn reads_heartbeats(&self) -> bool {
        true
    }

    /// Whether it is to be told where the client stands.
    fn takes_marks(&self) -> bool {
        false
    }

    /// Where the client stands once it has the next message: a position to resume at, empty if there is none.
    fn mark(&mut self, _position: String) {}

    /// Says good-bye.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends the connection without waiting for the client.
    fn abandon(&mut self);
}

/// Waits for a send, at most [`SEND_PATIENCE`].
///
/// # Errors
/// The client is gone, or stuck.
pub async fn patiently<E>(sending: impl Future<Output = Result<(), E>>) -> Result<(), End> {
    match tokio::time::timeout(SEND_PATIENCE, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::Stuck),
    }
}

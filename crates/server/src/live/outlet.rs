//! Destinations of a live client's messages: a WebSocket in JSON or binary, or the body of an HTTP response.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::Beat;
use super::outgoing::{Form, Outgoing};
use crate::process::budget::Reservation;

/// Time without progress after which a client is disconnected.
pub const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Connection closed or lost by the client.
    Gone,
    /// Client that accepted no byte for [`SEND_PATIENCE`].
    Stuck,
}

/// Server side of one client's connection. Messages wait until the client can take them.
pub trait Outlet: Send {
    /// Returns the form that the client wants.
    fn form(&self) -> Form;

    /// Returns whether it carries one subscription only, and ends if that fails.
    fn is_single(&self) -> bool;

    /// Sends a message.
    ///
    /// # Errors
    /// Returns why the connection has ended, or must end.
    fn send(&mut self, told: Outgoing) -> impl Future<Output = Result<(), End>> + Send;

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// Returns the errors of [`Outlet::send`].
    fn heartbeat(&mut self, beat: Beat) -> impl Future<Output = Result<(), End>> + Send;

    /// Hands over the memory reservation of what is sent from now on. Kept by outlets that do not wait in
    /// [`Outlet::send`] until the client has taken the message.
    fn hold(&mut self, _reserved: Option<Arc<Reservation>>) {}

    /// Returns whether heartbeats reach the client as messages; a comment line in an event stream does not.
    fn reads_heartbeats(&self) -> bool {
        true
    }

    /// Returns whether it wants the client's position, see [`Outlet::mark`].
    fn takes_marks(&self) -> bool {
        false
    }

    /// Sets the client's position after the next message, to resume from; empty if there is none.
    fn mark(&mut self, _position: String) {}

    /// Closes the connection in an orderly way.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends the connection without waiting for the client.
    fn abandon(&mut self);
}

/// Waits for a send, at most [`SEND_PATIENCE`].
///
/// # Errors
/// Returns an error if the client is gone or stuck.
pub async fn patiently<E>(sending: impl Future<Output = Result<(), E>>) -> Result<(), End> {
    match tokio::time::timeout(SEND_PATIENCE, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::Stuck),
    }
}

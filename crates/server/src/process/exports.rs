//! Exports under way. Only a few run at once, and one that its client does not read cannot block others.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::process::budget::client_of;
use crate::process::connections::Connection;

/// Max number of exports at once.
const EXPORTS_MAX: usize = 4;
/// Max number of exports of one client.
const EXPORTS_OF_CLIENT_MAX: usize = 2;
/// Time without progress after which an export makes room for another.
const STALL: Duration = Duration::from_secs(5);

/// The exports under way.
#[derive(Debug, Default)]
pub struct Exports {
    open: Mutex<Vec<Arc<Connection>>>,
}

/// An export under way, registered until it is dropped.
#[derive(Debug)]
pub struct Export {
    exports: Arc<Exports>,
    connection: Arc<Connection>,
}

impl Exports {
    /// Registers an export, if necessary in place of a stalled one.
    ///
    /// # Errors
    /// A message for the client, if no export may begin now.
    pub fn begin(self: &Arc<Self>, connection: &Arc<Connection>) -> Result<Export, String> {
        let client = client_of(connection.address().ip());
        let mut open = self.open.lock();
        let of = |other: &Arc<Connection>| client_of(other.address().ip()) == client;
        if open.iter().filter(|other| of(other)).count() >= EXPORTS_OF_CLIENT_MAX
            && !end_stalled(&mut open, Some(client))
        {
            return Err(format!(
                "{EXPORTS_OF_CLIENT_MAX} exports of this client are under way: try again when one has ended"
            ));
        }
        if open.len() >= EXPORTS_MAX && !end_stalled(&mut open, None) {
            return Err("other exports are under way: try again when one has ended".to_owned());
        }
        open.push(connection.clone());
        Ok(Export { exports: self.clone(), connection: connection.clone() })
    }
}

/// Ends the export that stalled for longest. Returns whether there was a stalled one.
fn end_stalled(open: &mut Vec<Arc<Connection>>, client: Option<IpAddr>) -> bool {
    let of = |other: &Arc<Connection>| client.is_none_or(|client| client_of(other.address().ip()) == client);
    let stalled = (0..open.len()).filter(|at| of(&open[*at]) && open[*at].stalled() >= STALL);
    let Some(longest) = stalled.max_by_key(|at| open[*at].stalled()) else { return false };
    open.swap_remove(longest).abandon();
    true
}

impl Drop for Export {
    fn drop(&mut self) {
        let mut open = self.exports.open.lock();
        if let Some(at) = open.iter().position(|other| Arc::ptr_eq(other, &self.connection)) {
            open.swap_remove(at);
        }
    }
}

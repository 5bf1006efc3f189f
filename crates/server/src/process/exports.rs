//! Exports under way: few at once, and none that its client does not read keeps others out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::process::budget::client_of;
use crate::process::connections::Connection;

/// Exports at once at most.
const EXPORTS_MAX: usize = 4;
/// Of one client.
const EXPORTS_OF_CLIENT_MAX: usize = 2;
/// An export whose client took nothing for so long makes room for another.
const STALL: Duration = Duration::from_secs(5);

/// Exports under way.
#[derive(Debug, Default)]
pub struct Exports {
    open: Mutex<Vec<Arc<Connection>>>,
}

/// An export under way, until it is dropped.
#[derive(Debug)]
pub struct Export {
    exports: Arc<Exports>,
    connection: Arc<Connection>,
}

impl Exports {
    /// Begins one; if need be in the place of one that is not read.
    ///
    /// # Errors
    /// Why it cannot begin now.
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

/// Ends the export that was not read for longest, if one was not for long; whether there was one.
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

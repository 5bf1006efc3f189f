//! Open files: a server that may have thousands of clients must not run out of them when its store needs one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Files that are open beside those of clients: segments, sources, SQL.
const OTHERS: usize = 1024;

/// Allows this process as many open files as it may have, and says so if they are too few for that many clients.
pub fn allow(clients: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    // None is no limit.
    let Some(may) = limit.maximum else { return };
    if limit.current.is_some_and(|now| now < may) {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays where it is");
            return;
        }
    }
    let wanted = (clients + OTHERS) as u64;
    if may < wanted {
        tracing::warn!("{wanted} files may be needed with every client that may connect, {may} may be open: ulimit -n");
    }
}

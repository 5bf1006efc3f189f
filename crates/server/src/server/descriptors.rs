//! Open files: a server with thousands of clients must not run out of them when its store needs one.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Files reserved for the server: segments (at most 256 open), sources, threads.
const OWN: u64 = 512;

/// Numbers of connections allowed by the limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// HTTP connections, including live clients.
    pub http: usize,
    /// Connections of line protocol over TCP.
    pub ilp: usize,
    /// Connections of the PostgreSQL wire.
    pub pg: usize,
    /// Connections of Flight SQL.
    pub flight: usize,
}

/// Raises the limit of open files to the max allowed, and divides what the server leaves of it among the connections
/// that the configuration asks for.
pub fn allow(config: &Config) -> Allowed {
    let wanted = Allowed {
        http: config.http.max_connections,
        ilp: config.ilp.max_connections,
        pg: config.pg.max_connections,
        flight: config.flight.max_connections,
    };
    let mut limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    if limit.current.is_some() && limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays where it is");
            limit.current = before;
        }
    }
    let allowed = divide(wanted, limit.current);
    if allowed != wanted {
        tracing::warn!(
            "{} files may be open: {} connections of HTTP, {} of line protocol, {} of PostgreSQL and {} of Flight SQL \
             are taken, fewer than configured: ulimit -n",
            limit.current.unwrap_or(u64::MAX),
            allowed.http,
            allowed.ilp,
            allowed.pg,
            allowed.flight
        );
    }
    allowed
}

/// Divides `files`: first the server's own, then a proportional part for each kind of connection.
fn divide(wanted: Allowed, files: Option<u64>) -> Allowed {
    // A line protocol connection has two descriptors of its socket.
    let needed = (wanted.http + 2 * wanted.ilp + wanted.pg + wanted.flight) as u64;
    let Some(files) = files else { return wanted };
    let for_clients = files - OWN.min(files - files / 4);
    if needed <= for_clients {
        return wanted;
    }
    let part = |count: usize| ((count as u64 * for_clients / needed) as usize).max(1);
    Allowed { http: part(wanted.http), ilp: part(wanted.ilp), pg: part(wanted.pg), flight: part(wanted.flight) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_files_come_first() {
        let wanted = Allowed { http: 2048, ilp: 256, pg: 100, flight: 100 };
        assert_eq!(divide(wanted, None), wanted);
        assert_eq!(divide(wanted, Some(1 << 20)), wanted);
        for files in [16, 64, 256, 1024, 2048, 3000] {
            let given = divide(wanted, Some(files));
            let used = (given.http + 2 * given.ilp + given.pg + given.flight) as u64;
            assert!(used + OWN.min(files - files / 4) <= files + 4, "{files}: {given:?}");
            assert!(given.http >= 1 && given.ilp >= 1 && given.pg >= 1 && given.flight >= 1, "{files}: {given:?}");
        }
        let given = divide(wanted, Some(1024));
        assert!(given.http > 350 && given.ilp > 40 && given.pg > 15, "{given:?}");
    }
}

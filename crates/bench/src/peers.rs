//! Rival servers, started by the recipes in `peers/`. One that is not available is left out, and the reason printed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Location of the recipes.
#[derive(Clone, Debug, clap::Args)]
pub struct PeerRecipes {
    /// Folder with the recipes that start QuestDB, InfluxDB and PostgreSQL [default: `peers` if it exists]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}

/// Rival server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// QuestDB 9.3.
    QuestDb,
    /// InfluxDB 1.6.
    InfluxDb,
    /// PostgreSQL as installed on the system.
    Postgres,
}

impl Peer {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::QuestDb => "QuestDB 9.3.4",
            Peer::InfluxDb => "InfluxDB 1.6",
            Peer::Postgres => "PostgreSQL 15",
        }
    }

    fn recipe(self) -> &'static str {
        match self {
            Peer::QuestDb => "questdb",
            Peer::InfluxDb => "influxdb",
            Peer::Postgres => "postgres",
        }
    }

    /// Returns the address of its line protocol over HTTP.
    pub fn http(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, if self == Peer::QuestDb { 19000 } else { 18086 }).into()
    }

    /// Returns the address of its line protocol over TCP (QuestDB).
    pub fn ilp(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 19009).into()
    }

    /// Returns the connection string of its PostgreSQL wire.
    pub fn postgres(self) -> &'static str {
        match self {
            Peer::QuestDb => "host=127.0.0.1 port=18812 user=admin password=quest dbname=qdb",
            _ => "host=127.0.0.1 port=15455 user=postgres dbname=postgres",
        }
    }

    /// Returns the durability of an acknowledged write.
    pub fn durability(self) -> &'static str {
        match self {
            Peer::QuestDb => "not synced (its default)",
            Peer::InfluxDb => "write-ahead log synced before the answer",
            Peer::Postgres => "every commit synced",
        }
    }
}

/// Running rival; ended when dropped.
pub struct RunningPeer {
    /// Rival that runs.
    pub peer: Peer,
    stop: PathBuf,
}

impl PeerRecipes {
    /// Starts a rival, or prints why it is left out.
    pub fn start(&self, peer: Peer) -> Option<RunningPeer> {
        let folder = self.peers.clone().unwrap_or_else(|| Path::new("peers").to_owned());
        let script = folder.join(peer.recipe()).with_extension("sh");
        if !script.is_file() {
            println!("{} left out: no recipe {}", peer.name(), script.display());
            return None;
        }
        match Command::new(&script).output() {
            Ok(out) if out.status.success() => Some(RunningPeer { peer, stop: folder.join("stop.sh") }),
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr);
                println!("{} left out: {}", peer.name(), said.trim().lines().last().unwrap_or("its recipe failed"));
                None
            }
            Err(error) => {
                println!("{} left out: {}: {error}", peer.name(), script.display());
                None
            }
        }
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        if let Err(error) = Command::new(&self.stop).arg(self.peer.recipe()).status() {
            eprintln!("{} still runs: {}: {error}", self.peer.name(), self.stop.display());
        }
    }
}

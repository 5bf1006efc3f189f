//! Rival servers, started by the recipes in `peers/`. One that is not available is left out, and the reason printed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

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

    /// Returns its ports, as its recipe reads them.
    fn ports(self) -> &'static str {
        match self {
            Peer::QuestDb => "http=19000\npostgres=18812\nhealth=19003\nline=19009\n",
            Peer::InfluxDb => "http=18086\nbackup=18088\n",
            Peer::Postgres => "postgres=15455\n",
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
    _process: NamedPeer,
}

/// Running server of a recipe; ended when dropped, with its data removed.
pub struct NamedPeer {
    name: &'static str,
    program: PathBuf,
    folder: PathBuf,
}

impl PeerRecipes {
    /// Starts a rival without data, or prints why it is left out.
    pub fn start(&self, peer: Peer) -> Option<RunningPeer> {
        let process = self.start_at(peer.recipe(), peer.name(), &[("ports", peer.ports())])?;
        Some(RunningPeer { peer, _process: process })
    }

    /// Starts the server of a recipe without data, with further configuration if its recipe reads any, or prints why the
    /// one of this name in tables is left out.
    pub fn start_named(&self, recipe: &'static str, name: &str, configuration: &str) -> Option<NamedPeer> {
        self.start_at(recipe, name, &[("extra.conf", configuration)])
    }

    /// Starts a server with files in its folder.
    fn start_at(&self, recipe: &'static str, name: &str, files: &[(&str, &str)]) -> Option<NamedPeer> {
        let program = self.peers.clone().unwrap_or_else(|| Path::new("peers").to_owned()).join("peer");
        let absent = |why: String| {
            println!("{name} left out: {why}");
            None
        };
        if !program.is_file() {
            return absent(format!("there is no {}", program.display()));
        }
        let program = match std::path::absolute(&program) {
            Ok(program) => program,
            Err(error) => return absent(format!("{}: {error}", program.display())),
        };
        let Some(cache) = cache() else { return absent("there is no HOME".to_owned()) };
        let folder = cache.join("run").join(recipe);
        let running = NamedPeer { name: recipe, program, folder };
        // One that an interrupted run left behind.
        running.stop();
        let made = std::fs::create_dir_all(&running.folder)
            .and_then(|()| files.iter().try_for_each(|(file, text)| std::fs::write(running.folder.join(file), text)));
        if let Err(error) = made {
            return absent(format!("{}: {error}", running.folder.display()));
        }
        match Command::new(&running.program).arg("start").arg(recipe).arg(&running.folder).output() {
            Ok(out) if out.status.success() => Some(running),
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr);
                absent(said.trim().lines().last().unwrap_or("its recipe failed").to_owned())
            }
            Err(error) => absent(format!("{}: {error}", running.program.display())),
        }
    }
}

/// Returns the folder of the rivals, which is not in memory as temporary ones may be.
fn cache() -> Option<PathBuf> {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")));
    given("PEERS_HOME").or_else(|| Some(of_user()?.join("strongback-peers")))
}

impl NamedPeer {
    /// Returns one of its ports.
    ///
    /// # Errors
    /// It has no port of this name.
    pub fn port(&self, name: &str) -> anyhow::Result<u16> {
        let ports = std::fs::read_to_string(self.folder.join("ports"))?;
        let port = ports.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        port.with_context(|| format!("{} has no port {name}", self.name))
    }

    /// Runs a program that comes with it, and returns what it prints.
    ///
    /// # Errors
    /// The program fails; the end of what it says is in the message.
    pub fn tool(&self, words: &[&str]) -> anyhow::Result<String> {
        let done = Command::new(&self.program).args(["tool", self.name]).args(words).output()?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let last = said.trim().lines().last().unwrap_or_default();
        ensure!(done.status.success(), "{}: {}: {last}", self.name, words.first().copied().unwrap_or_default());
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Ends it, and removes its data.
    fn stop(&self) {
        if self.folder.exists() {
            if let Err(error) = Command::new(&self.program).arg("stop").arg(&self.folder).status() {
                eprintln!("{} still runs: {}: {error}", self.name, self.program.display());
            }
            // What is left is removed at the next start.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Drop for NamedPeer {
    fn drop(&mut self) {
        self.stop();
    }
}

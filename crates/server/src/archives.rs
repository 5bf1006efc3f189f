//! Followers: copies of stored frames in other databases, as `[[archive]]` describes them.
//!
//! A follower reads committed frames on its own thread, so a slow or dead target delays nobody. Its positions are in
//! the folder `followers` beside the store. When the store is reopened after a disk failure, followers are started again
//! with the new one.

mod added;
mod lake;
pub mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde_json::{Map, Value};
use strongback_archive::elasticsearch::{self, Elasticsearch};
use strongback_archive::http::{self, Http, HttpOptions};
use strongback_archive::influxdb::{self, Influxdb};
#[cfg(feature = "kafka")]
use strongback_archive::kafka::{Kafka, KafkaOptions};
use strongback_archive::mariadb::{Mariadb, MariadbOptions};
use strongback_archive::postgres::{Postgres, PostgresOptions};
use strongback_archive::questdb::{self, Questdb};
use strongback_archive::{Follower, FollowerOptions, Note, Pauses, State, Status, Target};
use strongback_query::{FollowerRow, LakeHistory, LakePlace};
use strongback_store::Store;
use ureq::http::Uri;

use crate::ingest::Ingest;
use crate::process::clock::now_ns;
use crate::sources::ledger::Ledger;
use crate::sources::report::report;

pub use added::AddError;
use added::Added;
use lake::Lake;
use table::{ARCHIVES_MAX, Archive, TargetKind, TargetSettings};

/// Folder of the followers' files, beside the store.
const FOLDER: &str = "followers";
/// Approximate max size of a delivery in memory, in bytes, and that of a lake.
const DELIVERY_BYTES: usize = 16 << 20;
const LAKE_BYTES: usize = 64 << 20;
/// Max time that a stop waits for deliveries under way.
const STOP: Duration = Duration::from_secs(5);
/// Source of the events.
const SOURCE: &str = "archive";

/// All followers.
#[derive(Debug)]
pub struct Archives {
    folder: PathBuf,
    all: RwLock<Vec<Arc<Entry>>>,
    /// Lake that SQL reads older frames from.
    history: Option<Arc<LakeHistory>>,
    /// Those that were added while the server ran, or the reason why none can be.
    added: Mutex<Result<Added, String>>,
}

#[derive(Debug)]
struct Entry {
    archive: Archive,
    /// Whether the configuration has it.
    is_configured: bool,
    running: Mutex<Running>,
}

/// A follower, or the reason why there is none.
#[derive(Debug, Default)]
struct Running {
    follower: Option<Follower>,
    error: Option<String>,
    is_paused: bool,
}

/// A follower for `/api/followers`.
#[derive(Clone, Debug, Serialize)]
pub struct FollowerCard {
    /// Name.
    pub name: String,
    /// Kind of the target.
    pub target: &'static str,
    /// Address of the target, without secrets.
    pub address: String,
    /// Patterns of its channels.
    pub channels: Vec<String>,
    /// Whether the configuration has it; otherwise it was added while the server ran.
    pub configured: bool,
    /// Age of the oldest frame that is not delivered, in seconds since it was received; 0 if all are.
    pub lag_s: f64,
    /// State and counters.
    #[serde(flatten)]
    pub status: Status,
}

impl Archives {
    /// Prepares the followers of a store of this origin. Nothing runs before [`Archives::start`].
    pub fn new(archives: Vec<Archive>, data_dir: &Path, origin: u128) -> Archives {
        let history = archives.iter().find(|archive| archive.is_history()).and_then(|archive| {
            let TargetSettings::Lake { place, .. } = &archive.target else { return None };
            // Without its secrets it is never opened, which queries for older frames then tell.
            let place = archive.with_secrets(place).unwrap_or_else(|_| place.as_ref().clone());
            Some(Arc::new(LakeHistory::new(place, origin)))
        });
        let folder = data_dir.join(FOLDER);
        let added = Added::open(data_dir, &folder).inspect_err(|why| tracing::error!("archives: {why}"));
        let mut all: Vec<Arc<Entry>> = archives.into_iter().map(|archive| Entry::new(archive, true, &folder)).collect();
        for archive in added.iter().flat_map(Added::archives) {
            if all.iter().any(|other| other.archive.name == archive.name) || all.len() >= ARCHIVES_MAX {
                tracing::error!("archive {:?}, which was added, is not in force beside the others", archive.name);
                continue;
            }
            all.push(Entry::new(archive, false, &folder));
        }
        Archives { all: RwLock::new(all), history, added: Mutex::new(added), folder }
    }

    /// Returns the lake that SQL reads frames from that are no longer in the store.
    pub fn history(&self) -> Option<Arc<LakeHistory>> {
        self.history.clone()
    }

    fn all(&self) -> Vec<Arc<Entry>> {
        self.all.read().clone()
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        self.all.read().iter().find(|entry| entry.archive.name == name).cloned()
    }

    /// Starts all followers, or starts them again with a store that was reopened. One that cannot be started is
    /// reported, and the others run.
    pub fn start(&self, ingest: &Arc<Ingest>, ledger: &Arc<Ledger>) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        if let Err(error) = fs::create_dir_all(&self.folder) {
            tracing::error!("{}: {error}", self.folder.display());
        }
        let history = self.history.as_deref();
        all.iter().for_each(|entry| entry.start(&self.folder, history, (ingest, ledger)));
    }

    /// Adds an archive and starts it: the keys of `[[archive]]` without the name and the files, and `password`, `token`
    /// and `ca` with their contents. It is kept beyond a restart.
    ///
    /// # Errors
    /// Returns an error if a key is invalid, the name is taken, or it cannot be kept.
    pub fn add(
        &self,
        name: &str,
        keys: Map<String, Value>,
        ingest: &Arc<Ingest>,
        ledger: &Arc<Ledger>,
    ) -> Result<(), AddError> {
        let mut added = self.added.lock();
        let added = added.as_mut().map_err(|why| AddError::Conflict(why.clone()))?;
        match self.find(name) {
            Some(_) => return Err(AddError::Conflict(format!("there is an archive {name:?}; remove it first"))),
            // It is not in force.
            None if added.has(name) => added.remove(name)?,
            None => {}
        }
        if self.all.read().len() >= ARCHIVES_MAX {
            return Err(AddError::Conflict(format!("there are {ARCHIVES_MAX} archives, and no more are possible")));
        }
        let entry = Entry::new(added.add(name, keys)?, false, &self.folder);
        self.all.write().push(entry.clone());
        entry.start(&self.folder, None, (ingest, ledger));
        report(
            ingest,
            ledger,
            SOURCE,
            "info",
            format!("archive {name:?} was added: {}", entry.archive.target.address()),
        );
        Ok(())
    }

    /// Removes an archive that was added, with its position. What it delivered stays there.
    ///
    /// # Errors
    /// Returns an error if there is none, the configuration has it, or its files cannot be removed.
    pub fn remove(&self, name: &str, ingest: &Arc<Ingest>, ledger: &Arc<Ledger>) -> Result<(), AddError> {
        let mut added = self.added.lock();
        let added = added.as_mut().map_err(|why| AddError::Conflict(why.clone()))?;
        if let Some(entry) = self.find(name) {
            if entry.is_configured {
                return Err(AddError::Conflict(format!("archive {name:?} is of the configuration: remove it there")));
            }
            self.all.write().retain(|other| other.archive.name != name);
            if let Some(follower) = &mut entry.running.lock().follower {
                follower.stop(STOP);
            }
        }
        added.remove(name)?;
        report(ingest, ledger, SOURCE, "info", format!("archive {name:?} was removed"));
        Ok(())
    }

    /// Stops all followers. Each ends after the delivery under way, or is left behind if its target does not answer.
    pub fn stop(&self) {
        let all = self.all();
        let mut running: Vec<_> = all.iter().map(|entry| entry.running.lock()).collect();
        let followers = || running.iter().filter_map(|running| running.follower.as_ref());
        followers().for_each(Follower::request_stop);
        for running in &mut running {
            if let Some(follower) = &mut running.follower {
                follower.stop(STOP);
            }
        }
    }

    /// Returns all followers.
    pub fn cards(&self) -> Vec<FollowerCard> {
        let now = now_ns();
        self.all().iter().map(|entry| entry.card(now)).collect()
    }

    /// Returns all followers as rows of `strongback.followers`.
    pub fn rows(&self) -> Vec<FollowerRow> {
        let row = |card: FollowerCard| {
            let FollowerCard { name, target, address, channels, configured: _, lag_s, status } = card;
            let (last_error, last_error_ns) = status.last_error.unzip();
            FollowerRow {
                name,
                target: target.to_owned(),
                address,
                channels,
                state: status.state.name().to_owned(),
                lag_s,
                frames_per_s: status.frames_per_s,
                counters: [
                    status.streams,
                    status.delivered_frames,
                    status.behind_frames,
                    status.rejected_frames,
                    status.skipped_frames,
                    status.altered_values,
                    status.sent_bytes,
                    status.deliveries,
                    status.failed_attempts,
                    status.suspended_streams,
                ],
                last_error,
                last_error_ns,
            }
        };
        self.cards().into_iter().map(row).collect()
    }

    /// Pauses a follower, also beyond a restart. Returns `None` if there is none of this name.
    ///
    /// # Errors
    /// Returns an error if this cannot be kept for the next start.
    pub fn pause(&self, name: &str) -> Option<io::Result<()>> {
        self.set_paused(name, true)
    }

    /// Lets a paused follower continue, and one that waits for its next attempt try at once. Returns `None` if there is
    /// none of this name.
    ///
    /// # Errors
    /// Returns an error if this cannot be kept for the next start.
    pub fn resume(&self, name: &str) -> Option<io::Result<()>> {
        self.set_paused(name, false)
    }

    /// Lets a follower deliver again what is stored, from the first frame of each stream with this `time` or a later one.
    /// Returns `None` if there is none of this name.
    ///
    /// # Errors
    /// Returns an error in words if it does not run, or its target would have these frames twice.
    pub fn backfill(&self, name: &str, time: i64) -> Option<Result<(), String>> {
        let entry = self.find(name)?;
        let running = entry.running.lock();
        Some(match &running.follower {
            None => Err("it does not run".to_owned()),
            Some(_) if running.is_paused => Err("it is paused; resume it first".to_owned()),
            Some(follower) if follower.backfill(time) => Ok(()),
            Some(_) => {
                let kind = entry.archive.target.kind().name();
                Err(format!(
                    "a target of kind {kind:?} keeps the positions itself, and would have frames twice; remove there \
                     what is to be delivered again, positions and frames"
                ))
            }
        })
    }

    fn set_paused(&self, name: &str, is_paused: bool) -> Option<io::Result<()>> {
        let entry = self.find(name)?;
        let file = paused_file(&self.folder, name);
        let kept = match is_paused {
            true => fs::write(&file, ""),
            false => match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        let mut running = entry.running.lock();
        running.is_paused = is_paused;
        if let Some(follower) = &running.follower {
            if is_paused { follower.pause() } else { follower.resume() }
        }
        Some(kept)
    }
}

fn paused_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.paused"))
}

impl Entry {
    fn new(archive: Archive, is_configured: bool, folder: &Path) -> Arc<Entry> {
        let is_paused = paused_file(folder, &archive.name).exists();
        Arc::new(Entry { archive, is_configured, running: Mutex::new(Running { is_paused, ..Running::default() }) })
    }

    /// Starts the follower, also again, or reports why it does not run.
    fn start(&self, folder: &Path, history: Option<&LakeHistory>, (ingest, ledger): (&Arc<Ingest>, &Arc<Ledger>)) {
        let mut running = self.running.lock();
        if let Some(follower) = &mut running.follower {
            follower.stop(STOP);
        }
        running.follower = None;
        running.error =
            match self.archive.start(&ingest.store(), folder, (running.is_paused, history), (ingest, ledger)) {
                Ok(follower) => {
                    running.follower = Some(follower);
                    None
                }
                Err(why) => {
                    let text = format!("archive {:?} does not run: {why}", self.archive.name);
                    report(ingest, ledger, SOURCE, "warning", text);
                    Some(why)
                }
            };
    }

    fn card(&self, now: i64) -> FollowerCard {
        let running = self.running.lock();
        let mut status = running.follower.as_ref().map(Follower::status).unwrap_or_default();
        if let Some(error) = &running.error {
            (status.state, status.last_error) = (State::Stopped, Some((error.clone(), now)));
        }
        let lag_s = status.oldest_undelivered_ns.map_or(0.0, |oldest| now.saturating_sub(oldest).max(0) as f64 / 1e9);
        FollowerCard {
            name: self.archive.name.clone(),
            target: self.archive.target.kind().name(),
            address: self.archive.target.address(),
            channels: self.archive.channels.clone(),
            configured: self.is_configured,
            lag_s,
            status,
        }
    }
}

impl Archive {
    fn start(
        &self,
        store: &Store,
        folder: &Path,
        (is_paused, history): (bool, Option<&LakeHistory>),
        (ingest, ledger): (&Arc<Ingest>, &Arc<Ledger>),
    ) -> Result<Follower, String> {
        let options = FollowerOptions {
            name: self.name.clone(),
            patterns: self.patterns.clone(),
            folder: folder.to_owned(),
            from_now: self.from == table::From::Now,
            delivery_frames: self.delivery_frames,
            delivery_bytes: if self.target.kind() == TargetKind::Lake { LAKE_BYTES } else { DELIVERY_BYTES },
            interval: self.interval,
            gather: self.gather,
            max_bytes_per_s: self.max_bytes_per_s,
            pauses: Pauses::default(),
            is_paused,
        };
        let (ingest, ledger, name, named) = (ingest.clone(), ledger.clone(), self.name.clone(), store.clone());
        let rejected = AtomicU64::new(0);
        let notes = move |note| {
            // A flood of these is told at 1, 2, 4, 8 … frames.
            let is_told = match &note {
                Note::Rejected { .. } => (rejected.fetch_add(1, Relaxed) + 1).is_power_of_two(),
                _ => true,
            };
            let (level, what) = in_words(&named, note);
            if is_told {
                report(&ingest, &ledger, SOURCE, level, format!("archive {name:?} {what}"));
            }
        };
        let target = self.target(store.origin(), history.filter(|_| self.is_history()))?;
        Follower::start(store.clone(), target, options, Arc::new(notes)).map_err(|error| error.to_string())
    }

    /// Prepares the target, and reads the files that it names. If it is the lake that SQL reads, it is the `history`.
    ///
    /// # Errors
    /// Returns an error in words if a file cannot be used.
    pub fn target(&self, origin: u128, history: Option<&LakeHistory>) -> Result<Box<dyn Target>, String> {
        match &self.target {
            TargetSettings::Postgres { config, schema } => {
                let mut config = config.as_ref().clone();
                if let Some(password) = secret("password_file", &self.password_file)? {
                    config.password(password);
                }
                let (schema, follower) = (schema.clone(), self.name.clone());
                let target = Postgres::new(PostgresOptions { config, schema, follower, origin });
                Ok(Box::new(target.map_err(|error| error.to_string())?))
            }
            TargetSettings::Mariadb { address } => {
                let password = secret("password_file", &self.password_file)?;
                let (address, follower) = (address.clone(), self.name.clone());
                let target = Mariadb::new(MariadbOptions { address, password, follower, origin });
                Ok(Box::new(target.map_err(|error| error.to_string())?))
            }
            TargetSettings::Questdb { url, user } => {
                let http = self.http(url, user, "Bearer", questdb::TIMEOUT)?;
                Ok(Box::new(Questdb::new(http, origin)))
            }
            TargetSettings::Influxdb { url, user, database, organization } => {
                let scheme = if organization.is_some() { "Token" } else { "Bearer" };
                let http = self.http(url, user, scheme, influxdb::TIMEOUT)?;
                Ok(Box::new(Influxdb::new(http, database.clone(), organization.clone(), origin)))
            }
            TargetSettings::Elasticsearch { url, user, index_prefix } => {
                let http = self.http(url, user, "ApiKey", elasticsearch::TIMEOUT)?;
                Ok(Box::new(Elasticsearch::new(http, index_prefix.clone(), origin)))
            }
            TargetSettings::Lake { place, .. } => Ok(Box::new(Lake::new(self.with_secrets(place)?, origin, history)?)),
            #[cfg(feature = "kafka")]
            TargetSettings::Kafka { brokers, user, topic_prefix, partitions, replicas, properties } => {
                let mut properties = properties.clone();
                if let (Some(user), Some(password)) = (user, secret("password_file", &self.password_file)?) {
                    properties.entry("sasl.mechanism".to_owned()).or_insert_with(|| "PLAIN".to_owned());
                    properties.entry("security.protocol".to_owned()).or_insert_with(|| "sasl_plaintext".to_owned());
                    properties.insert("sasl.username".to_owned(), user.clone());
                    properties.insert("sasl.password".to_owned(), password);
                }
                let options = KafkaOptions {
                    brokers: brokers.clone(),
                    topic_prefix: topic_prefix.clone(),
                    partitions: *partitions,
                    replicas: *replicas,
                    properties,
                    follower: self.name.clone(),
                    origin,
                };
                Ok(Box::new(Kafka::new(options)?))
            }
            #[cfg(not(feature = "kafka"))]
            TargetSettings::Kafka { .. } => Err("this program was built without Kafka".to_owned()),
        }
    }

    /// Returns the place of a lake with the secrets.
    fn with_secrets(&self, place: &LakePlace) -> Result<LakePlace, String> {
        let read = |file: &PathBuf| fs::read(file).map_err(|error| format!("ca_file: {}: {error}", file.display()));
        let ca = self.ca_file.as_ref().map(read).transpose()?;
        Ok(LakePlace { secret: secret("password_file", &self.password_file)?, ca, ..place.clone() })
    }

    /// Prepares the client of an HTTP server, whose tokens have a scheme.
    fn http(&self, url: &Uri, user: &Option<String>, scheme: &'static str, timeout: Duration) -> Result<Http, String> {
        let password = secret("password_file", &self.password_file)?;
        Http::new(&HttpOptions {
            url: url.clone(),
            user: user.clone().map(|user| (user, password.unwrap_or_default())),
            token: secret("token_file", &self.token_file)?.map(|token| (scheme, token)),
            ca_file: self.ca_file.clone(),
            timeout,
        })
    }
}

/// Reads the file that a key names.
fn secret(key: &str, file: &Option<PathBuf>) -> Result<Option<String>, String> {
    file.as_deref().map(http::secret).transpose().map_err(|why| format!("{key}: {why}"))
}

/// Returns the level and the text of a note.
fn in_words(store: &Store, note: Note) -> (&'static str, String) {
    let named = |stream| match store.catalog().stream(stream) {
        Some(stream) => stream.key.to_string(),
        None => format!("stream {}", stream.0),
    };
    match note {
        Note::Skipped(skipped) => {
            let cause = if skipped.is_damaged { "are damaged" } else { "expired" };
            let (rows, stream) = (skipped.rows, named(skipped.stream));
            let count = rows.end - rows.start;
            (
                "warning",
                format!("skips {count} frames of {stream}, rows {} to {}: they {cause}", rows.start, rows.end - 1),
            )
        }
        Note::Rejected { stream, row, reason } => {
            ("warning", format!("leaves out row {row} of {}, which its target rejects: {reason}", named(stream)))
        }
        Note::Failing { stream: None, reason } => ("warning", format!("delivers nothing: {reason}")),
        Note::Failing { stream: Some(stream), reason } => {
            ("warning", format!("delivers nothing of {}: {reason}", named(stream)))
        }
        Note::Recovered { stream: None } => ("info", "delivers again".to_owned()),
        Note::Recovered { stream: Some(stream) } => ("info", format!("delivers {} again", named(stream))),
    }
}

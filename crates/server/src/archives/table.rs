//! Followers: `[[archive]]` of the configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strongback_archive::http;
use strongback_archive::mariadb::MariadbAddress;
use strongback_archive::postgres::{Config as PostgresConfig, PostgresOptions};
use strongback_query::LakePlace;
use strongback_sources::KeyError;
use strongback_store::Pattern;
use ureq::http::Uri;

/// Max followers; each has a thread.
pub(super) const ARCHIVES_MAX: usize = 32;
/// Max bytes of a name, which is part of file names.
const NAME_MAX: usize = 64;
/// Default times and numbers of frames of deliveries, and those of a lake, which is better off with large files.
const INTERVAL_MS: u64 = 200;
const FRAMES: u64 = 50_000;
const LAKE_INTERVAL_MS: u64 = 3_600_000;
const LAKE_FRAMES: u64 = 1_000_000;
/// What a name must be.
pub(super) const NAME_RULE: &str = "it must have 1 to 64 letters, digits, '-', '_' and '.', and no '.' first";

/// Table `[[archive]]` of the configuration.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveTable {
    /// Name in the log, in events, in metrics and in the target. A follower that is renamed begins again.
    pub name: String,
    /// Kind of the target: `postgres`, `mariadb`, `questdb`, `influxdb`, `kafka`, `elasticsearch`, `lake`.
    pub target: TargetKind,
    /// Address: `postgresql://user@host:5432/database`, `mariadb://user@host:3306/database`, `http://user@host:9000`,
    /// `kafka://host:9092,host:9092`, `http://user@host:9200`, `s3://bucket/prefix`, `file:///folder`.
    pub url: String,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// File with a token instead. For targets with HTTP.
    pub token_file: Option<PathBuf>,
    /// File with the root certificates (PEM) for https. Default: those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Database of `influxdb`, or bucket of an organization.
    pub database: Option<String>,
    /// Organization of an InfluxDB 2.
    pub organization: Option<String>,
    /// Schema of the tables of `postgres`, created if missing. Default `strongback`.
    pub schema: Option<String>,
    /// Beginning of the names of topics of `kafka`. Default `strongback.`.
    pub topic_prefix: Option<String>,
    /// Beginning of the names of indices of `elasticsearch`. Default `strongback-`.
    pub index_prefix: Option<String>,
    /// Partitions of a new topic of `kafka`, 1 to 10,000. Default: that of the brokers.
    pub partitions: Option<i32>,
    /// Replicas of a new topic of `kafka`, 1 to 100. Default: that of the brokers.
    pub replicas: Option<i32>,
    /// Further properties of librdkafka for `kafka`, `{ "message.max.bytes" = "5000000" }`, and those of S3 for `lake`,
    /// `{ aws_endpoint = "https://host:9000", aws_access_key_id = "key" }`.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Whether SQL reads frames from this `lake` that are no longer in the store. Default `true`; of several lakes, all but
    /// one need `false`.
    pub history: Option<bool>,
    /// Patterns of the channels. Default `["*"]`: all but those of `strongback.*`.
    pub channels: Option<Vec<String>>,
    /// What a new follower delivers: frames from the `start` of the stored data, or those received from `now` on.
    /// Default `start`.
    #[serde(default)]
    pub from: From,
    /// Min time between two deliveries in milliseconds, 0 to 86,400,000, unless it is behind. Default 200. For `lake`: max
    /// time for which frames wait for a file, unless they fill one. Default 3,600,000.
    pub interval_ms: Option<u64>,
    /// Max frames in a delivery, 1 to 1,000,000. Default 50,000, and 1,000,000 for `lake`.
    pub delivery_frames: Option<usize>,
    /// Max bytes sent per second. Default: no limit.
    pub max_bytes_per_s: Option<u64>,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// PostgreSQL, and databases with its protocol and COPY.
    Postgres,
    /// MariaDB and MySQL.
    Mariadb,
    /// QuestDB 9.1 or newer.
    Questdb,
    /// InfluxDB.
    Influxdb,
    /// Kafka.
    Kafka,
    /// Elasticsearch and OpenSearch.
    Elasticsearch,
    /// Parquet files on S3-compatible storage or in a folder.
    Lake,
}

impl TargetKind {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            TargetKind::Postgres => "postgres",
            TargetKind::Mariadb => "mariadb",
            TargetKind::Questdb => "questdb",
            TargetKind::Influxdb => "influxdb",
            TargetKind::Kafka => "kafka",
            TargetKind::Elasticsearch => "elasticsearch",
            TargetKind::Lake => "lake",
        }
    }
}

/// Where a new follower begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// With the oldest stored frame.
    #[default]
    Start,
    /// With the next frame.
    Now,
}

/// Debug output without the address, which may hold secrets.
impl std::fmt::Debug for ArchiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveTable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Compiled follower.
#[derive(Clone)]
pub struct Archive {
    /// Name of the follower.
    pub name: String,
    /// Target.
    pub target: TargetSettings,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// File with a token instead.
    pub token_file: Option<PathBuf>,
    /// File with the root certificates.
    pub ca_file: Option<PathBuf>,
    /// Patterns as written.
    pub channels: Vec<String>,
    /// Patterns of the channels.
    pub patterns: Vec<Pattern>,
    /// Where it begins if it is new.
    pub from: From,
    /// Min time between two deliveries.
    pub interval: Duration,
    /// Max time for which frames wait for a delivery to fill.
    pub gather: Duration,
    /// Max frames in a delivery.
    pub delivery_frames: usize,
    /// Max bytes sent per second.
    pub max_bytes_per_s: Option<u64>,
}

/// Compiled target.
#[derive(Clone)]
pub enum TargetSettings {
    /// A PostgreSQL database.
    Postgres {
        /// Address, user and database.
        config: Box<PostgresConfig>,
        /// Schema of the tables.
        schema: String,
    },
    /// A MariaDB or MySQL database.
    Mariadb {
        /// Address, user and database.
        address: MariadbAddress,
    },
    /// A QuestDB.
    Questdb {
        /// Address of its HTTP server.
        url: Uri,
        /// User of the password.
        user: Option<String>,
    },
    /// Measurements of an InfluxDB.
    Influxdb {
        /// Address of its HTTP server.
        url: Uri,
        /// User of the password.
        user: Option<String>,
        /// Database or bucket.
        database: String,
        /// Organization of an InfluxDB 2.
        organization: Option<String>,
    },
    /// Indices of an Elasticsearch.
    Elasticsearch {
        /// Address of its HTTP server.
        url: Uri,
        /// User of the password.
        user: Option<String>,
        /// Beginning of the names of indices.
        index_prefix: String,
    },
    /// Parquet files on S3-compatible storage or in a folder.
    Lake {
        /// Where, without the secrets.
        place: Box<LakePlace>,
        /// Whether SQL reads older frames from it.
        history: bool,
    },
    /// Topics of a Kafka.
    Kafka {
        /// Addresses of brokers, separated by commas.
        brokers: String,
        /// User of the password.
        user: Option<String>,
        /// Beginning of the names of topics.
        topic_prefix: String,
        /// Partitions of a new topic, or -1.
        partitions: i32,
        /// Replicas of a new topic, or -1.
        replicas: i32,
        /// Further properties of librdkafka.
        properties: BTreeMap<String, String>,
    },
}

impl TargetSettings {
    /// Returns the kind of the target.
    pub fn kind(&self) -> TargetKind {
        match self {
            TargetSettings::Postgres { .. } => TargetKind::Postgres,
            TargetSettings::Mariadb { .. } => TargetKind::Mariadb,
            TargetSettings::Questdb { .. } => TargetKind::Questdb,
            TargetSettings::Influxdb { .. } => TargetKind::Influxdb,
            TargetSettings::Lake { .. } => TargetKind::Lake,
            TargetSettings::Kafka { .. } => TargetKind::Kafka,
            TargetSettings::Elasticsearch { .. } => TargetKind::Elasticsearch,
        }
    }

    /// Returns the address for people, without secrets.
    pub fn address(&self) -> String {
        match self {
            TargetSettings::Postgres { config, schema } => PostgresOptions::shown(config, schema),
            TargetSettings::Mariadb { address } => address.to_string(),
            TargetSettings::Questdb { url, .. } => url.to_string(),
            TargetSettings::Influxdb { url, database, .. } => format!("{url} database {database}"),
            TargetSettings::Elasticsearch { url, index_prefix, .. } => format!("{url} indices {index_prefix}*"),
            TargetSettings::Lake { place, .. } => place.url.clone(),
            TargetSettings::Kafka { brokers, topic_prefix, .. } => format!("kafka://{brokers} topics {topic_prefix}*"),
        }
    }
}

impl Archive {
    /// Returns whether SQL reads frames from it that are no longer in the store.
    pub(super) fn is_history(&self) -> bool {
        matches!(self.target, TargetSettings::Lake { history: true, .. })
    }
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ArchiveTable {
    /// Checks the table and converts it.
    ///
    /// # Errors
    /// The first invalid key, relative to the table.
    pub(super) fn compile(self) -> Result<Archive, KeyError> {
        if !is_name(&self.name) {
            return KeyError::wrong("name", NAME_RULE);
        }
        let channels = self.channels.clone().unwrap_or_else(|| vec!["*".to_owned()]);
        let mut patterns = Vec::with_capacity(channels.len());
        for (at, pattern) in channels.iter().enumerate() {
            let parsed = Pattern::parse(pattern);
            patterns.push(parsed.map_err(|error| KeyError::new(format!("channels[{at}]"), error.to_string()))?);
        }
        if patterns.is_empty() {
            return KeyError::wrong("channels", "it is empty: nothing would ever be delivered");
        }
        let within = |key, value: u64, range: RangeInclusive<u64>| match range.contains(&value) {
            true => Ok(value),
            false => KeyError::wrong(key, format!("{value} is not within {} to {}", range.start(), range.end())),
        };
        let target = self.target()?;
        if let Some(most) = self.max_bytes_per_s {
            within("max_bytes_per_s", most, 1_000..=1 << 40)?;
        }
        let is_lake = self.target == TargetKind::Lake;
        let (interval_ms, frames) = if is_lake { (LAKE_INTERVAL_MS, LAKE_FRAMES) } else { (INTERVAL_MS, FRAMES) };
        let frames =
            within("delivery_frames", self.delivery_frames.map_or(frames, |frames| frames as u64), 1..=1_000_000)?;
        let interval_ms = within("interval_ms", self.interval_ms.unwrap_or(interval_ms), 0..=86_400_000)?;
        let interval = Duration::from_millis(interval_ms);
        let (interval, gather) = if is_lake { (Duration::ZERO, interval) } else { (interval, Duration::ZERO) };
        Ok(Archive {
            interval,
            gather,
            delivery_frames: frames as usize,
            target,
            name: self.name,
            password_file: self.password_file,
            token_file: self.token_file,
            ca_file: self.ca_file,
            channels,
            patterns,
            from: self.from,
            max_bytes_per_s: self.max_bytes_per_s,
        })
    }

    /// Checks the address and the keys of the target.
    fn target(&self) -> Result<TargetSettings, KeyError> {
        use TargetKind::{Elasticsearch, Influxdb, Kafka, Lake, Mariadb, Postgres, Questdb};
        let of_some: [(&str, bool, &[TargetKind]); 11] = [
            ("token_file", self.token_file.is_some(), &[Questdb, Influxdb, Elasticsearch]),
            ("ca_file", self.ca_file.is_some(), &[Questdb, Influxdb, Elasticsearch, Lake]),
            ("database", self.database.is_some(), &[Influxdb]),
            ("organization", self.organization.is_some(), &[Influxdb]),
            ("index_prefix", self.index_prefix.is_some(), &[Elasticsearch]),
            ("schema", self.schema.is_some(), &[Postgres]),
            ("topic_prefix", self.topic_prefix.is_some(), &[Kafka]),
            ("partitions", self.partitions.is_some(), &[Kafka]),
            ("replicas", self.replicas.is_some(), &[Kafka]),
            ("history", self.history.is_some(), &[Lake]),
            ("properties", !self.properties.is_empty(), &[Kafka, Lake]),
        ];
        if let Some((key, ..)) = of_some.iter().find(|(_, is_given, of)| *is_given && !of.contains(&self.target)) {
            return KeyError::wrong(*key, format!("target {:?} has no such key", self.target.name()));
        }
        let wrong_url = |why: String| KeyError::new("url", why);
        match self.target {
            Postgres => {
                let config = PostgresOptions::parse(&self.url).map_err(wrong_url)?;
                let schema = self.schema.clone().unwrap_or_else(|| "strongback".to_owned());
                if !(1..=63).contains(&schema.len()) || schema.contains('\0') {
                    return KeyError::wrong("schema", "it must have 1 to 63 bytes");
                }
                Ok(TargetSettings::Postgres { config: Box::new(config), schema })
            }
            Mariadb => {
                let address = MariadbAddress::parse(&self.url).map_err(wrong_url)?;
                Ok(TargetSettings::Mariadb { address })
            }
            Questdb => {
                let (url, user) = self.http("http://user@host:9000")?;
                Ok(TargetSettings::Questdb { url, user })
            }
            Influxdb => {
                let (url, user) = self.http("http://user@host:8086")?;
                let Some(database) = self.database.clone().filter(|database| !database.is_empty()) else {
                    return KeyError::wrong(
                        "database",
                        "it is missing: the database, or the bucket of an organization",
                    );
                };
                Ok(TargetSettings::Influxdb { url, user, database, organization: self.organization.clone() })
            }
            Elasticsearch => {
                let (url, user) = self.http("http://user@host:9200")?;
                let index_prefix = self.index_prefix.clone().unwrap_or_else(|| "strongback-".to_owned());
                Ok(TargetSettings::Elasticsearch { url, user, index_prefix })
            }
            Lake => {
                let place =
                    LakePlace { url: self.url.clone(), properties: self.properties.clone(), ..LakePlace::default() };
                place.check().map_err(|(key, why)| KeyError::new(key, why))?;
                if place.has_key() != self.password_file.is_some() {
                    let why = "aws_access_key_id in properties and the secret key in a password_file belong together";
                    return KeyError::wrong(if place.has_key() { "properties" } else { "password_file" }, why);
                }
                Ok(TargetSettings::Lake { place: Box::new(place), history: self.history.unwrap_or(true) })
            }
            Kafka => {
                if !cfg!(feature = "kafka") {
                    return KeyError::wrong("target", "this program was built without Kafka");
                }
                let address = self.url.strip_prefix("kafka://").filter(|rest| !rest.is_empty());
                let address = address.ok_or_else(|| wrong_url("it must be as in kafka://host:9092".to_owned()))?;
                let (user, brokers) = match address.rsplit_once('@') {
                    Some((user, _)) if user.contains(':') => {
                        return KeyError::wrong("url", "the password belongs into password_file");
                    }
                    Some((user, brokers)) => (Some(user.to_owned()), brokers),
                    None => (None, address),
                };
                self.check_user(&user, "kafka://user@host:9092")?;
                for (key, value, most) in [("partitions", self.partitions, 10_000), ("replicas", self.replicas, 100)] {
                    if value.is_some_and(|value| !(1..=most).contains(&value)) {
                        return KeyError::wrong(key, format!("it is not within 1 to {most}"));
                    }
                }
                Ok(TargetSettings::Kafka {
                    brokers: brokers.trim_end_matches('/').to_owned(),
                    user,
                    topic_prefix: self.topic_prefix.clone().unwrap_or_else(|| "strongback.".to_owned()),
                    partitions: self.partitions.unwrap_or(-1),
                    replicas: self.replicas.unwrap_or(-1),
                    properties: self.properties.clone(),
                })
            }
        }
    }

    /// Checks the address of an HTTP server, and returns it and the user.
    fn http(&self, example: &str) -> Result<(Uri, Option<String>), KeyError> {
        let (url, user) = http::parse_url(&self.url).map_err(|why| KeyError::new("url", why))?;
        self.check_user(&user, example)?;
        if self.token_file.is_some() && user.is_some() {
            return KeyError::wrong("token_file", "a token and a password are one too many");
        }
        if self.ca_file.is_some() && url.scheme_str() != Some("https") {
            return KeyError::wrong("ca_file", "url is not https");
        }
        Ok((url, user))
    }

    /// Checks that a user has a password, and the reverse.
    fn check_user(&self, user: &Option<String>, example: &str) -> Result<(), KeyError> {
        match self.password_file.is_some() == user.is_some() {
            true => Ok(()),
            false => {
                let why = format!("a user in url and a password_file belong together, as in {example}");
                KeyError::wrong(if user.is_some() { "url" } else { "password_file" }, why)
            }
        }
    }
}

/// Returns whether a text can be a name.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(is_plain) && !text.starts_with('.')
}

/// Compiles all followers.
///
/// # Errors
/// Returns the first invalid key, such as `archive[2].url`, including the name of a second follower of this name.
pub fn compile(tables: Vec<ArchiveTable>) -> Result<Vec<Archive>, KeyError> {
    KeyError::check_count("archive", tables.len(), ARCHIVES_MAX, "archives")?;
    let mut all: Vec<Archive> = Vec::with_capacity(tables.len());
    for (at, table) in tables.into_iter().enumerate() {
        let name = table.name.clone();
        let archive = table.compile().and_then(|archive| match &archive {
            Archive { name, .. } if all.iter().any(|other| other.name == *name) => {
                KeyError::wrong("name", "two have this name")
            }
            _ if archive.is_history() && all.iter().any(Archive::is_history) => {
                KeyError::wrong("history", "SQL reads older frames from another lake: set it to false")
            }
            _ => Ok(archive),
        });
        let of_table = |error: KeyError| error.about(&format!("archive {name:?}")).below(&format!("archive[{at}]"));
        all.push(archive.map_err(of_table)?);
    }
    Ok(all)
}

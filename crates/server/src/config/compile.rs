//! Compiles a configuration file: checks its values and converts its tables, once.

use std::ops::RangeInclusive;

use strongback_sources::KeyError;
use strongback_sources::layout::{self, Layouts, check_text};
use strongback_store::Pattern;

use super::Config;
use super::file::{ChannelTable, ConfigFile, View};
use crate::alarms::limits::rule;
use crate::alarms::webhook::table as webhook;
use crate::archives::table as archive;
use crate::derived::definition;
use crate::ingest::{ChannelNote, retention};

/// Max size or number, where no other is meant.
const NUMBER_MAX: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Self {
        Config::with_settings(&ConfigFile::default())
    }
}

impl Config {
    /// Returns a configuration with the settings of a file, and without its lists.
    fn with_settings(file: &ConfigFile) -> Config {
        Config {
            data_dir: file.data_dir.clone(),
            commit_interval_ms: file.commit_interval_ms,
            auth_token_file: file.auth_token_file.clone(),
            insecure_listen: file.insecure_listen,
            http: file.http.clone(),
            ilp: file.ilp.clone(),
            pg: file.pg.clone(),
            flight: file.flight.clone(),
            store: file.store.clone(),
            retention: Vec::new(),
            live: file.live.clone(),
            query: file.query.clone(),
            limits: file.limits.clone(),
            source: Layouts::default(),
            channel: Vec::new(),
            limit: Vec::new(),
            webhook: Vec::new(),
            archive: Vec::new(),
            derived: Vec::new(),
            view: file.view.clone(),
        }
    }
}

impl ConfigFile {
    /// Checks all values and converts all tables.
    ///
    /// # Errors
    /// The first invalid key.
    pub(super) fn compile(self) -> Result<Config, KeyError> {
        self.check_ranges()?;
        let settings = Config::with_settings(&self);
        let config = Config {
            retention: retention::compile(self.retention)?,
            source: layout::compile_all(&self.source)?,
            channel: notes(self.channel)?,
            limit: rule::compile(self.limit)?,
            webhook: webhook::compile(self.webhook)?,
            archive: archive::compile(self.archive)?,
            derived: definition::compile(self.derived)?,
            ..settings
        };
        // The groups are valid, so this is about the size of the store.
        config.store_options().check().map_err(|error| KeyError::new("store.max_gib", error))?;
        config.view.as_ref().map_or(Ok(()), View::check)?;
        Ok(config)
    }

    /// Checks the numbers outside of lists.
    fn check_ranges(&self) -> Result<(), KeyError> {
        let (http, ilp, live, limits) = (&self.http, &self.ilp, &self.live, &self.limits);
        let ranges: [(&str, u64, RangeInclusive<u64>); 15] = [
            ("commit_interval_ms", self.commit_interval_ms, 1..=10_000),
            ("live.heartbeat_ms", live.heartbeat_ms, 50..=1000),
            ("http.max_body_mib", http.max_body_mib.into(), 1..=1024),
            ("store.log_mib", self.store.log_mib, 4..=65_536),
            ("store.open_mib", self.store.open_mib as u64, 1..=NUMBER_MAX),
            ("query.memory_mib", self.query.memory_mib as u64, 16..=NUMBER_MAX),
            ("limits.client_memory_mib", limits.client_memory_mib as u64, 16..=NUMBER_MAX),
            ("http.max_connections", http.max_connections as u64, 1..=NUMBER_MAX),
            ("http.max_connections_per_address", http.max_connections_per_address as u64, 1..=NUMBER_MAX),
            ("ilp.max_connections", ilp.max_connections as u64, 1..=NUMBER_MAX),
            ("ilp.max_connections_per_address", ilp.max_connections_per_address as u64, 1..=NUMBER_MAX),
            ("pg.max_connections", self.pg.max_connections as u64, 1..=NUMBER_MAX),
            ("flight.max_connections", self.flight.max_connections as u64, 1..=NUMBER_MAX),
            ("live.max_clients", live.max_clients as u64, 1..=NUMBER_MAX),
            ("live.max_clients_per_address", live.max_clients_per_address as u64, 1..=NUMBER_MAX),
        ];
        for (key, value, range) in ranges {
            if !range.contains(&value) {
                return Err(KeyError::new(key, format!("{value} is not within {} to {}", range.start(), range.end())));
            }
        }
        let (all, each) = (limits.client_memory_mib, limits.client_memory_per_address_mib);
        if !(16..=all).contains(&each) {
            let why = format!("{each} is not within 16 to client_memory_mib = {all}");
            return Err(KeyError::new("limits.client_memory_per_address_mib", why));
        }
        check_positive(self.store.max_gib, "store.max_gib")?;
        check_positive(self.store.max_age_days, "store.max_age_days")
    }
}

fn check_positive(value: Option<f64>, path: &str) -> Result<(), KeyError> {
    match value.is_none_or(|value| value > 0.0 && value.is_finite()) {
        true => Ok(()),
        false => Err(KeyError::new(path, "must be above 0")),
    }
}

/// Compiles the notes on channels.
fn notes(tables: Vec<ChannelTable>) -> Result<Vec<ChannelNote>, KeyError> {
    let note = |(at, table): (usize, ChannelTable)| {
        let path = |key: &str| format!("channel[{at}].{key}");
        let pattern = Pattern::parse(&table.pattern);
        let pattern = pattern.map_err(|error| KeyError::new(path("pattern"), error.to_string()))?;
        check_positive(table.expected_period_ms, &path("expected_period_ms"))?;
        check_text(&table.unit, &path("unit"))?;
        check_text(&table.description, &path("description"))?;
        Ok(ChannelNote {
            pattern,
            unit: table.unit,
            description: table.description,
            expected_period_ns: table.expected_period_ms.map(|ms| (ms * 1e6) as i64),
        })
    };
    tables.into_iter().enumerate().map(note).collect()
}

impl View {
    /// Checks what the page parses.
    fn check(&self) -> Result<(), KeyError> {
        if let Some(t0) = self.run.as_ref().and_then(|run| run.t0.as_ref())
            && t0.parse::<i64>().is_err()
        {
            return Err(KeyError::new("view.run.t0", format!("{t0:?} is not nanoseconds since 1970 UTC")));
        }
        for (p, panel) in self.panels.iter().enumerate() {
            for (c, pattern) in panel.channels.iter().enumerate() {
                if let Err(error) = Pattern::parse(pattern) {
                    return Err(KeyError::new(format!("view.panels[{p}].channels[{c}]"), error.to_string()));
                }
            }
        }
        Ok(())
    }
}

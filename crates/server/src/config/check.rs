//! Checks whether the values of a configuration are valid.

use strongback_store::Pattern;

use super::Config;
use crate::alarms::limits::rule;
use crate::alarms::webhook::table as webhook;
use crate::derived::definition;

/// An invalid value.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Path of its key, such as `source[0].stream[2].table`.
    pub(super) path: String,
    /// Description of the mistake.
    pub(super) message: String,
}

impl Config {
    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let wrong = |path: String, message: String| Err(Wrong { path, message });
        if !(1..=10_000).contains(&self.commit_interval_ms) {
            return wrong("commit_interval_ms".into(), format!("{} is not within 1 to 10000", self.commit_interval_ms));
        }
        if !(50..=1000).contains(&self.live.heartbeat_ms) {
            return wrong("live.heartbeat_ms".into(), format!("{} is not within 50 to 1000", self.live.heartbeat_ms));
        }
        if !(1..=1024).contains(&self.http.max_body_mib) {
            return wrong("http.max_body_mib".into(), format!("{} is not within 1 to 1024", self.http.max_body_mib));
        }
        if !(4..=65_536).contains(&self.store.log_mib) {
            return wrong("store.log_mib".into(), format!("{} is not within 4 to 65536", self.store.log_mib));
        }
        if !(1..=1 << 20).contains(&self.store.open_mib) {
            return wrong("store.open_mib".into(), format!("{} is not within 1 to 1048576", self.store.open_mib));
        }
        if !(16..=1 << 20).contains(&self.query.memory_mib) {
            return wrong("query.memory_mib".into(), format!("{} is not within 16 to 1048576", self.query.memory_mib));
        }
        if !(16..=1 << 20).contains(&self.limits.client_memory_mib) {
            let message = format!("{} is not within 16 to 1048576", self.limits.client_memory_mib);
            return wrong("limits.client_memory_mib".into(), message);
        }
        if !(16..=self.limits.client_memory_mib).contains(&self.limits.client_memory_per_address_mib) {
            let message = format!(
                "{} is not within 16 to client_memory_mib = {}",
                self.limits.client_memory_per_address_mib, self.limits.client_memory_mib
            );
            return wrong("limits.client_memory_per_address_mib".into(), message);
        }
        for (key, count) in [
            ("http.max_connections", self.http.max_connections),
            ("http.max_connections_per_address", self.http.max_connections_per_address),
            ("ilp.max_connections", self.ilp.max_connections),
            ("ilp.max_connections_per_address", self.ilp.max_connections_per_address),
            ("pg.max_connections", self.pg.max_connections),
            ("live.max_clients", self.live.max_clients),
            ("live.max_clients_per_address", self.live.max_clients_per_address),
        ] {
            if !(1..=1 << 20).contains(&count) {
                return wrong(key.into(), format!("{count} is not within 1 to 1048576"));
            }
        }
        let positive = |v: Option<f64>| v.is_none_or(|v| v > 0.0 && v.is_finite());
        if !positive(self.store.max_gib) {
            return wrong("store.max_gib".into(), "must be above 0".into());
        }
        if !positive(self.store.max_age_days) {
            return wrong("store.max_age_days".into(), "must be above 0".into());
        }
        check_each("retention", &self.retention, |tables| {
            tables.iter().find_map(|table| table.group().err()).map_or(Ok(()), Err)
        })?;
        if let Err(error) = self.store_options().check() {
            return wrong(if self.retention.is_empty() { "store" } else { "retention" }.into(), error);
        }
        if let Err(error) = strongback_sources::layout::compile_all(&self.source) {
            return wrong(error.path, error.reason);
        }
        for (i, channel) in self.channel.iter().enumerate() {
            if let Err(error) = Pattern::parse(&channel.pattern) {
                return wrong(format!("channel[{i}].pattern"), error.to_string());
            }
            if !positive(channel.expected_period_ms) {
                return wrong(format!("channel[{i}].expected_period_ms"), "must be above 0".into());
            }
        }
        check_each("limit", &self.limit, |tables| rule::rules(tables).map(drop))?;
        check_each("webhook", &self.webhook, |tables| webhook::receivers(tables).map(drop))?;
        check_each("derived", &self.derived, |tables| definition::definitions(tables).map(drop))?;
        for (i, table) in self.derived.iter().enumerate() {
            if let Err(error) = table.check_functions() {
                return wrong(format!("derived[{i}].expression"), error);
            }
        }
        if let Some(view) = &self.view {
            if let Some(t0) = view.run.as_ref().and_then(|r| r.t0.as_ref())
                && t0.parse::<i64>().is_err()
            {
                return wrong("view.run.t0".into(), format!("{t0:?} is not nanoseconds since 1970 UTC"));
            }
            for (i, panel) in view.panels.iter().enumerate() {
                if let Some(error) = panel.channels.iter().find_map(|pattern| Pattern::parse(pattern).err()) {
                    return wrong(format!("view.panels[{i}].channels"), error.to_string());
                }
            }
        }
        Ok(())
    }
}

/// Checks tables of one kind, each together with those before it, so that the wrong one is known.
fn check_each<T>(name: &str, tables: &[T], check: impl Fn(&[T]) -> Result<(), String>) -> Result<(), Wrong> {
    let Err(all) = check(tables) else { return Ok(()) };
    let first = (1..tables.len()).find_map(|count| check(&tables[..count]).err().map(|message| (count - 1, message)));
    let (at, message) = first.unwrap_or((tables.len().saturating_sub(1), all));
    Err(Wrong { path: format!("{name}[{at}]"), message })
}

//! QuestDB 9.1 or newer, by line protocol over HTTP.
//!
//! Each table of the store becomes a table with `time`, `receive_time`, `source_time` (nanoseconds), `sequence`, the
//! tags, the channels, `strongback_stream` and `strongback_row`. QuestDB has no transaction that could move a position
//! too, so it recognises frames that come again: tables have deduplication by time, stream and row.
//!
//! Protocol: QuestDB documentation, "InfluxDB Line Protocol", version 2 with binary numbers and arrays; "REST API".

mod column;
mod lines;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use column::QuestdbColumns;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value as Json;
use strongback_store::StreamId;

use crate::delivery::{Delivery, StreamFrames};
use crate::http::{Answer, Http};
use crate::target::{Delivered, TableError, Target, TargetError};
use table::Table;

/// Max total time of a request.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A QuestDB.
pub struct Questdb {
    http: Http,
    origin: u128,
    /// Tables as the database has them, by their keys there.
    tables: HashMap<String, Table>,
}

impl Questdb {
    /// Prepares the target for the frames of a store of this origin.
    pub fn new(http: Http, origin: u128) -> Questdb {
        Questdb { http, origin, tables: HashMap::new() }
    }

    /// Asks in SQL, and returns the rows.
    fn ask(&self, sql: &str) -> Result<Vec<Vec<Json>>, TableError> {
        let answer = self.http.get("/exec", &[("query", sql), ("nm", "true")]);
        let answer = answer.map_err(|error| TableError::Away(TargetError::Unavailable(error)))?;
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        if let Some(error) = json["error"].as_str() {
            return Err(TableError::Unfit(error.to_owned()));
        }
        if !answer.is_success() || !json.is_object() {
            return Err(TableError::Away(unavailable(&answer)));
        }
        let row = |row: &Json| row.as_array().cloned().unwrap_or_default();
        Ok(json["dataset"].as_array().map(|rows| rows.iter().map(row).collect()).unwrap_or_default())
    }

    /// Forgets tables that were dropped, made again or changed, and reports those that take nothing. A column that is
    /// dropped would otherwise take no more values, without an error.
    fn look(&mut self, groups: &BTreeMap<String, Vec<&StreamFrames>>) -> Result<(), TargetError> {
        let names: Vec<&str> = groups.keys().map(String::as_str).collect();
        let there = table::look(self, &names).map_err(|error| match error {
            TableError::Away(error) => error,
            TableError::Unfit(reason) => TargetError::Unavailable(format!("the list of tables: {reason}")),
        })?;
        for (key, parts) in groups {
            let seen = there.get(key);
            if let Some(name) = seen.and_then(|seen| seen.is_suspended.then_some(&seen.name)) {
                let reason = format!("table {name:?} is suspended; see wal_tables(), then ALTER TABLE … RESUME WAL");
                return Err(TargetError::of(parts, reason));
            }
            if self.tables.get(key).is_some_and(|known| !seen.is_some_and(|seen| known.is_as(seen))) {
                // The writer of a connection goes on with the columns that there were, and their values would be lost.
                self.http.reconnect();
                self.tables.remove(key);
            }
        }
        Ok(())
    }

    /// Brings frames into a table.
    fn write(&mut self, key: &str, parts: &[&StreamFrames], again: bool) -> Result<Delivered, TargetError> {
        let was_known = self.tables.contains_key(key);
        let mut known = match self.tables.remove(key) {
            Some(known) => known,
            None => Table::read(self, &parts[0].stream.key.table).map_err(|error| error.into_error(parts))?,
        };
        let plans = known.fit(self, parts).map_err(|error| error.into_error(parts))?;
        let (lines, altered_values) = lines::write(known.name(), parts, &plans, self.origin)?;
        let answer = self.http.post("/write", &[("precision", "n")], "text/plain", &lines);
        let answer = answer.map_err(TargetError::Unavailable)?;
        match answer.status {
            200..300 => {
                self.tables.insert(key.to_owned(), known);
                Ok(Delivered { bytes: lines.len() as u64, altered_values })
            }
            // Somebody may have changed the table since it was read.
            400 if was_known && !again => self.write(key, parts, true),
            400 => Err(refused(&answer, parts)),
            413 => Err(TargetError::Rejected("it is too large for the HTTP server of QuestDB".to_owned())),
            _ => Err(unavailable(&answer)),
        }
    }
}

impl Target for Questdb {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.tables.clear();
        let answer = self.http.get("/settings", &[]).map_err(TargetError::Unavailable)?;
        if !answer.is_success() && answer.status != 404 {
            return Err(unavailable(&answer));
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        let versions = json["config"]["line.proto.support.versions"].as_array();
        if !versions.is_some_and(|versions| versions.iter().any(|version| version.as_i64() == Some(2))) {
            let text = "the server is no QuestDB of version 9.1 or newer: its /settings have no line protocol 2";
            return Err(TargetError::Unavailable(text.to_owned()));
        }
        Ok(None)
    }

    fn recognises_frames(&self) -> bool {
        true
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let groups = delivery.by_table(|table| table::key(&table::table_name(table)));
        self.look(&groups)?;
        let mut sum = Delivered::default();
        for (key, parts) in &groups {
            sum += self.write(key, parts, false)?;
        }
        Ok(sum)
    }
}

fn unavailable(answer: &Answer) -> TargetError {
    let said: String = answer.body.trim().chars().take(200).collect();
    TargetError::Unavailable(match answer.status {
        401 | 403 => format!("HTTP {}: the user, password or token is refused", answer.status),
        status if said.is_empty() => format!("HTTP {status}"),
        status => format!("HTTP {status}: {said}"),
    })
}

/// Returns what a refused write means. Only what no later attempt can mend leaves frames out.
fn refused(answer: &Answer, parts: &[&StreamFrames]) -> TargetError {
    let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
    let said = json["message"].as_str().unwrap_or(&answer.body);
    let said = said.rsplit("error in line ").next().unwrap_or(said).trim().to_owned();
    match said.contains("designated timestamp") {
        true => TargetError::Rejected(said),
        false => TargetError::of(parts, said),
    }
}

//! InfluxDB 1, and newer ones by the same interfaces: line protocol over HTTP.
//!
//! Each table of the store becomes a measurement, and a frame a point. A point is known by its measurement, tags and
//! time, so that one that comes again replaces itself. Frames of one stream with the same time would do so, too: from
//! the second on they have a tag of their own, `strongback_repeat`, with the number of frames before them.
//!
//! Protocol: InfluxDB 1.8 and 2.7 documentation, "Write API", "Line protocol", "InfluxQL schema exploration".

mod column;
mod points;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value as Json;
use strongback_store::StreamId;

use crate::columns::{self, Columns, Dialect as _, Have, plan_all};
use crate::delivery::{Delivery, StreamFrames};
use crate::http::{Answer, Http};
use crate::target::{Delivered, TableError, Target, TargetError};
pub(crate) use column::InfluxdbColumns;
use column::{InfluxdbType, name_there};

/// Max total time of a request.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Size from which points are sent, in bytes.
const REQUEST_BYTES: usize = 4 << 20;

type Place = columns::Place<InfluxdbColumns>;

/// An InfluxDB.
pub struct Influxdb {
    http: Http,
    database: String,
    /// Organization of InfluxDB 2.
    organization: Option<String>,
    origin: u128,
    /// Fields and tags of measurements as the server has them.
    measurements: HashMap<String, Columns<InfluxdbColumns>>,
}

impl Influxdb {
    /// Prepares the target for the frames of a store of this origin: a database, or a bucket of an organization.
    pub fn new(http: Http, database: String, organization: Option<String>, origin: u128) -> Influxdb {
        Influxdb { http, database, organization, origin, measurements: HashMap::new() }
    }

    /// Asks in InfluxQL, and returns the values of the first series.
    fn ask(&self, query: &str) -> Result<Vec<Vec<Json>>, TableError> {
        let answer = self.http.get("/query", &[("db", self.database.as_str()), ("q", query)]);
        let answer = answer.map_err(|error| TableError::Away(TargetError::Unavailable(error)))?;
        if !answer.is_success() {
            return Err(TableError::Away(unavailable(&answer)));
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        if let Some(error) = json["results"][0]["error"].as_str() {
            return Err(TableError::Away(TargetError::Unavailable(error.to_owned())));
        }
        let values = json["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
        Ok(values.into_iter().filter_map(|row| row.as_array().cloned()).collect())
    }

    /// Reads the fields and tags of a measurement.
    fn read(&self, measurement: &str) -> Result<Columns<InfluxdbColumns>, TableError> {
        let quoted = format!("\"{}\"", measurement.replace('\\', "\\\\").replace('"', "\\\""));
        let mut columns = BTreeMap::new();
        for (what, is_tag) in [("field", false), ("tag", true)] {
            for row in self.ask(&format!("show {what} keys from {quoted}"))? {
                let text = |at: usize| row.get(at).and_then(Json::as_str).unwrap_or_default().to_owned();
                let name = text(0);
                let column_type = if is_tag { Some(InfluxdbType::Tag) } else { InfluxdbType::named(&text(1)) };
                // Two types of one field: it had another one in an earlier span of time.
                let is_other = columns.get(&name).is_some_and(|have: &Have<_>| have.column_type != column_type);
                let column_type = column_type.filter(|_| !is_other);
                // Tags of every point are no tags of a stream.
                let is_tag = is_tag && !InfluxdbColumns::FIXED.iter().any(|(fixed, ..)| *fixed == name);
                columns.insert(InfluxdbColumns::key(&name), Have { name, column_type, is_tag });
            }
        }
        Ok(columns)
    }

    fn write(&mut self, measurement: &str, parts: &[&StreamFrames], again: bool) -> Result<Delivered, TargetError> {
        let was_known = self.measurements.contains_key(measurement);
        let mut columns = match self.measurements.remove(measurement) {
            Some(columns) => columns,
            None => self.read(measurement).map_err(|error| error.into_error(parts))?,
        };
        let (plans, _) = plan_all::<InfluxdbColumns>(parts, &mut columns)
            .map_err(|reason| TargetError::of(parts, format!("measurement {measurement:?}: {reason}")))?;
        let (mut delivered, mut body) = (Delivered::default(), Vec::new());
        for (number, (part, places)) in parts.iter().zip(&plans).enumerate() {
            let writer = points::Writer::new(measurement, part, places, self.origin);
            let frames = part.batch.len();
            for at in 0..frames {
                delivered.altered_values += writer.write(&mut body, at);
                let is_last = number + 1 == parts.len() && at + 1 == frames;
                if body.len() < REQUEST_BYTES && !is_last {
                    continue;
                }
                delivered.bytes += body.len() as u64;
                match self.send(&std::mem::take(&mut body))? {
                    Sent::Written => {}
                    // Somebody may have changed the measurement since it was read.
                    Sent::Conflict(_) if was_known && !again => return self.write(measurement, parts, true),
                    Sent::Conflict(reason) => return Err(TargetError::of(parts, reason)),
                }
            }
        }
        self.measurements.insert(measurement.to_owned(), columns);
        Ok(delivered)
    }

    fn send(&self, body: &[u8]) -> Result<Sent, TargetError> {
        let (path, parameters) = match &self.organization {
            Some(organization) => {
                ("/api/v2/write", vec![("org", organization.as_str()), ("bucket", &self.database), ("precision", "ns")])
            }
            None => ("/write", vec![("db", self.database.as_str()), ("precision", "ns")]),
        };
        let answer = self.http.post(path, &parameters, "text/plain; charset=utf-8", body);
        let answer = answer.map_err(TargetError::Unavailable)?;
        let said = said(&answer);
        match answer.status {
            200..300 => Ok(Sent::Written),
            400 | 422 if said.contains("conflict") => Ok(Sent::Conflict(said)),
            400 | 422 => Err(TargetError::Rejected(said)),
            413 => Err(TargetError::Rejected("it is larger than max-body-size there".to_owned())),
            _ => Err(unavailable(&answer)),
        }
    }
}

/// What became of points.
enum Sent {
    Written,
    /// A field has another type there.
    Conflict(String),
}

impl Target for Influxdb {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.measurements.clear();
        let answer = self.http.get("/ping", &[]).map_err(TargetError::Unavailable)?;
        if !answer.is_success() {
            return Err(unavailable(&answer));
        }
        // Also whether there is such a database, and we may read it.
        self.ask("show measurements limit 1").map_err(|error| error.into_error(&[]))?;
        Ok(None)
    }

    fn recognises_frames(&self) -> bool {
        true
    }

    fn counts_repeats(&self) -> bool {
        true
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let groups = delivery.by_table(name_there);
        let mut sum = Delivered::default();
        for (measurement, parts) in &groups {
            sum += self.write(measurement, parts, false)?;
        }
        Ok(sum)
    }
}

/// Returns what an answer that is an error says.
fn said(answer: &Answer) -> String {
    let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
    let said = json["error"].as_str().or(json["message"].as_str()).unwrap_or(&answer.body);
    said.trim().chars().take(200).collect()
}

fn unavailable(answer: &Answer) -> TargetError {
    TargetError::Unavailable(match (answer.status, said(answer)) {
        (status, said) if said.is_empty() => format!("HTTP {status}"),
        (status, said) => format!("HTTP {status}: {said}"),
    })
}

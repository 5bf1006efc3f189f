//! Elasticsearch 7.10 and newer, and OpenSearch, by their bulk interface.
//!
//! Each table of the store becomes an index behind an alias, and a frame a document whose id is its stream and row, so a
//! frame that comes again replaces itself. Documents go to aliases only, so that an index that was deleted is not made
//! by the server with types that it guesses.
//!
//! Protocol: Elasticsearch reference, "Bulk API", "Create index API", "Update mapping API".

mod column;
mod document;
mod index;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use column::Fields;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value as Json;
use strongback_store::StreamId;

use crate::delivery::{Delivery, StreamFrames};
use crate::http::{Answer, Http};
use crate::target::{Delivered, TableError, Target, TargetError};
use index::Index;

/// Max total time of a request.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Size from which documents are sent, in bytes.
const REQUEST_BYTES: usize = 5 << 20;

/// An Elasticsearch.
pub struct Elasticsearch {
    http: Http,
    index_prefix: String,
    origin: u128,
    /// Indices as the server has them, by their aliases.
    indices: HashMap<String, Index>,
}

impl Elasticsearch {
    /// Prepares the target for the frames of a store of this origin, in indices whose names begin alike.
    pub fn new(http: Http, index_prefix: String, origin: u128) -> Elasticsearch {
        Elasticsearch { http, index_prefix, origin, indices: HashMap::new() }
    }

    fn write(&mut self, alias: &str, parts: &[&StreamFrames], again: bool) -> Result<Delivered, TargetError> {
        let failed = |error: TableError| error.into_error(parts);
        let was_known = self.indices.contains_key(alias);
        let mut index = match self.indices.remove(alias) {
            Some(index) => index,
            None => Index::read(self, alias.to_owned()).map_err(failed)?,
        };
        let plans = index.fit(self, parts).map_err(failed)?;
        let mut delivered = Delivered::default();
        let mut body = Vec::new();
        for (part, places) in parts.iter().zip(&plans) {
            let writer = document::Writer::new(index.alias(), part, places, self.origin);
            for at in 0..part.batch.len() {
                delivered.altered_values += writer.write(&mut body, at)?;
                if body.len() >= REQUEST_BYTES {
                    delivered.bytes += body.len() as u64;
                    if let Some(reason) = self.send(&std::mem::take(&mut body))? {
                        return self.write_again(alias, parts, was_known && !again, reason);
                    }
                }
            }
        }
        if !body.is_empty() {
            delivered.bytes += body.len() as u64;
            if let Some(reason) = self.send(&body)? {
                return self.write_again(alias, parts, was_known && !again, reason);
            }
        }
        self.indices.insert(alias.to_owned(), index);
        Ok(delivered)
    }

    /// Writes again after documents were refused, if somebody may have changed the index since it was read.
    fn write_again(
        &mut self,
        alias: &str,
        parts: &[&StreamFrames],
        may_help: bool,
        reason: String,
    ) -> Result<Delivered, TargetError> {
        match may_help {
            true => self.write(alias, parts, true),
            false => Err(TargetError::of(parts, format!("index {alias:?}: {reason}"))),
        }
    }

    /// Sends documents, and returns why one was refused, if any was.
    fn send(&self, body: &[u8]) -> Result<Option<String>, TargetError> {
        let parameters = [("require_alias", "true"), ("filter_path", "errors,items.*.status,items.*.error")];
        let answer = self.http.post("/_bulk", &parameters, "application/x-ndjson", body);
        let answer = answer.map_err(TargetError::Unavailable)?;
        match answer.status {
            200..300 => {}
            413 => return Err(TargetError::Rejected("it is larger than http.max_content_length there".to_owned())),
            _ => return Err(unavailable(&answer)),
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        match json["errors"].as_bool() {
            Some(false) => return Ok(None),
            Some(true) => {}
            None => {
                return Err(TargetError::Unavailable("the answer to a bulk request has no errors field".to_owned()));
            }
        }
        let mut refused = None;
        for item in json["items"].as_array().into_iter().flatten() {
            let (status, error) = (item["index"]["status"].as_u64(), &item["index"]["error"]);
            let reason = || in_words(error);
            match status {
                Some(200..300) => {}
                Some(400 | 404) => refused = refused.or_else(|| Some(reason())),
                // Full, read-only, or too busy: none of the documents is at fault.
                _ => return Err(TargetError::Unavailable(reason())),
            }
        }
        Ok(Some(refused.unwrap_or_else(|| "a document was refused without a reason".to_owned())))
    }
}

impl Target for Elasticsearch {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.indices.clear();
        let answer = self.http.get("/", &[]).map_err(TargetError::Unavailable)?;
        if !answer.is_success() {
            return Err(unavailable(&answer));
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        match json["version"]["lucene_version"].is_string() {
            true => Ok(None),
            false => Err(TargetError::Unavailable("the server is no Elasticsearch or OpenSearch".to_owned())),
        }
    }

    fn recognises_frames(&self) -> bool {
        true
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let groups = delivery.by_table(|table| column::alias(&self.index_prefix, table));
        let mut sum = Delivered::default();
        for (alias, parts) in &groups {
            sum += self.write(alias, parts, false)?;
        }
        Ok(sum)
    }
}

/// Returns what an answer that is an error says.
fn said(answer: &Answer) -> String {
    let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
    match json["error"].is_object() {
        true => in_words(&json["error"]),
        false => answer.body.trim().chars().take(200).collect(),
    }
}

fn in_words(error: &Json) -> String {
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    let cause = error["caused_by"]["reason"].as_str().map(|cause| format!(" ({cause})")).unwrap_or_default();
    format!("{}: {}{cause}", text("type"), text("reason"))
}

fn unavailable(answer: &Answer) -> TargetError {
    TargetError::Unavailable(match answer.status {
        401 | 403 => format!("HTTP {}: {}", answer.status, said(answer)),
        status if answer.body.trim().is_empty() => format!("HTTP {status}"),
        status => format!("HTTP {status}: {}", said(answer)),
    })
}

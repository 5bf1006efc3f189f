//! The index of one table.

use serde_json::{Map, Value as Json, json};

use super::column::{FieldType, Fields};
use super::{Elasticsearch, said, unavailable};
use crate::columns::{self, Change, Columns, Dialect, Have, plan_all};
use crate::delivery::StreamFrames;
use crate::target::{TableError, TargetError};

/// Max fields of an index; the default of 1,000 is less than some tables have.
const FIELDS_MAX: u32 = 20_000;
/// Max characters of a text that is found by its value; longer ones are only kept. Lucene takes 32,766 bytes.
const TEXT_MAX: u32 = 8_191;

/// Name, content, and type of a field.
pub(super) type Place = columns::Place<Fields>;

/// An index as the server has it.
pub(super) struct Index {
    alias: String,
    exists: bool,
    fields: Columns<Fields>,
}

impl Index {
    pub(super) fn alias(&self) -> &str {
        &self.alias
    }

    /// Reads the fields that the server has.
    ///
    /// # Errors
    /// Returns an error if it does not answer.
    pub(super) fn read(server: &Elasticsearch, alias: String) -> Result<Index, TableError> {
        let answer = server.http.get(&format!("/{}/_mapping", path(&alias)), &[]);
        let answer = answer.map_err(|error| TableError::Away(TargetError::Unavailable(error)))?;
        let mut fields = Columns::<Fields>::new();
        if answer.status == 404 {
            return Ok(Index { alias, exists: false, fields });
        }
        if !answer.is_success() {
            return Err(TableError::Away(unavailable(&answer)));
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        // Of several, the newest is written to.
        let newest = json.as_object().and_then(|indices| indices.values().next_back());
        let properties = newest.and_then(|index| index["mappings"]["properties"].as_object());
        for (name, property) in properties.into_iter().flatten() {
            let column_type = property["type"].as_str().and_then(FieldType::of_name);
            let is_tag = property["meta"]["strongback"].as_str() == Some("tag");
            fields.insert(name.clone(), Have { name: name.clone(), column_type, is_tag });
        }
        Ok(Index { alias, exists: true, fields })
    }

    /// Makes the index and its fields as frames need them, and returns the field and content of each place.
    ///
    /// # Errors
    /// Returns an error if the server refuses, or a field cannot be had.
    pub(super) fn fit(
        &mut self,
        server: &Elasticsearch,
        parts: &[&StreamFrames],
    ) -> Result<Vec<Vec<Place>>, TableError> {
        let (plans, changes) = plan_all::<Fields>(parts, &mut self.fields)
            .map_err(|reason| TableError::Unfit(format!("index {:?}: {reason}", self.alias)))?;
        let mut properties = Map::new();
        for change in changes {
            if let Change::Add { name, column_type, is_tag } = change {
                properties.insert(name, property(column_type, is_tag));
            }
        }
        let alias = &self.alias;
        if !self.exists {
            let index = json!({
                "aliases": { alias: { "is_write_index": true } },
                // Fields that somebody adds to a frame elsewhere are kept, and never refused.
                "mappings": { "dynamic": false, "properties": properties },
                "settings": { "index.mapping.total_fields.limit": FIELDS_MAX },
            });
            put(server, &format!("/{}", path(&format!("{alias}-1"))), &index)?;
            self.exists = true;
        } else if !properties.is_empty() {
            put(server, &format!("/{}/_mapping", path(alias)), &json!({ "properties": properties }))?;
        }
        Ok(plans)
    }
}

fn property(field_type: FieldType, is_tag: bool) -> Json {
    let mut property = json!({ "type": Fields::type_name(field_type) });
    if field_type == FieldType::Keyword {
        property["ignore_above"] = TEXT_MAX.into();
    }
    if is_tag {
        property["meta"] = json!({ "strongback": "tag" });
    }
    property
}

fn put(server: &Elasticsearch, path: &str, body: &Json) -> Result<(), TableError> {
    let answer = server.http.put(path, "application/json", body.to_string().as_bytes());
    let answer = answer.map_err(|error| TableError::Away(TargetError::Unavailable(error)))?;
    match answer.status {
        200..300 => Ok(()),
        400 => Err(TableError::Unfit(said(&answer))),
        _ => Err(TableError::Away(unavailable(&answer))),
    }
}

/// Returns a name as part of a path.
fn path(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => path.push(byte.into()),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

//! `[[retention]]`: groups of streams with their own share of the store, so that other data does not displace them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use strongback_sources::KeyError;
use strongback_store::model::limits::GROUPS_MAX;
use strongback_store::{Keep, Pattern, RetentionGroup};

use crate::instant;

/// `[[retention]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionTable {
    /// Name of the group: letters, digits, `_`, `-`, `.`. `data` is the group of all other streams.
    pub name: String,
    /// Streams of the group, assigned when first seen: a glob over table and tags, as in `plc.*{unit=3}`. If several
    /// groups match, the first one applies. Only `data` has none.
    pub streams: Option<String>,
    /// Guaranteed minimum: `"10%"` of the store's space, or `"20 GiB"`. While the group holds no more than that, its
    /// data is not removed to make space. Default 0.
    #[serde(default)]
    pub keep: KeepText,
    /// Max age of data since it was stored, such as `"90d"`, regardless of `keep`. Default: `store.max_age_days`.
    pub max_age: Option<String>,
}

/// Part of the store's space, as configured.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum KeepText {
    /// Bytes.
    Bytes(u64),
    /// `"10%"`, `"20 GiB"`.
    Text(String),
}

impl Default for KeepText {
    fn default() -> Self {
        KeepText::Bytes(0)
    }
}

impl KeepText {
    fn parse(&self) -> Result<Keep, String> {
        let text = match self {
            KeepText::Bytes(bytes) => return Ok(Keep::Bytes(*bytes)),
            KeepText::Text(text) => text.trim(),
        };
        let wrong =
            || format!("{text:?} is neither a share of the space, such as \"10%\", nor a size, such as \"20 GiB\"");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
        let unit = match text[digits..].trim() {
            "%" => return Ok(Keep::Share(number / 100.0)),
            // A number alone may be meant as a share.
            "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            "TiB" => 1_099_511_627_776.0,
            _ => return Err(wrong()),
        };
        Ok(Keep::Bytes((number * unit) as u64))
    }
}

/// Compiled retention group.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Table as configured.
    table: RetentionTable,
    /// Group of the store.
    pub group: RetentionGroup,
}

impl RetentionTable {
    /// Checks the table and converts it for the store.
    ///
    /// # Errors
    /// Returns the first invalid key, with its path in the table.
    fn compile(self) -> Result<Retention, KeyError> {
        let streams = self.streams.as_deref().map(Pattern::parse).transpose();
        let age = |text: &String| match instant::span_ns(text).filter(|ns| *ns > 0) {
            Some(ns) => Ok(Duration::from_nanos(ns.unsigned_abs())),
            None => Err(KeyError::new("max_age", format!("{text:?} is not a time; \"90d\" and \"12h\" are"))),
        };
        let group = RetentionGroup {
            name: self.name.clone(),
            streams: streams.map_err(|error| KeyError::new("streams", error.to_string()))?,
            keep: self.keep.parse().map_err(|error| KeyError::new("keep", error))?,
            max_age: self.max_age.as_ref().map(age).transpose()?,
        };
        Ok(Retention { table: self, group })
    }
}

/// Compiles all retention groups.
///
/// # Errors
/// Returns the first invalid key, such as `retention[2].keep`, or the first group that is invalid together with those
/// before it, or the list if it is too long.
pub fn compile(tables: Vec<RetentionTable>) -> Result<Vec<Retention>, KeyError> {
    KeyError::check_count("retention", tables.len(), GROUPS_MAX, "groups")?;
    let mut all: Vec<Retention> = Vec::with_capacity(tables.len());
    let mut groups: Vec<RetentionGroup> = Vec::with_capacity(tables.len());
    for (at, table) in tables.into_iter().enumerate() {
        let (path, name) = (format!("retention[{at}]"), format!("group {:?}", table.name));
        let compiled = table.compile().map_err(|error| error.about(&name).below(&path))?;
        groups.push(compiled.group.clone());
        // The store's sentence names the group.
        RetentionGroup::check_all(&groups).map_err(|error| KeyError::new(&path, error))?;
        all.push(compiled);
    }
    Ok(all)
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl fmt::Display for RetentionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "retention group {}: ", self.name)?;
        match &self.streams {
            Some(streams) => write!(f, "streams {streams}")?,
            None => write!(f, "all other streams")?,
        }
        match &self.keep {
            KeepText::Bytes(0) => {}
            KeepText::Bytes(bytes) => write!(f, ", keeps {bytes} bytes at least")?,
            KeepText::Text(text) => write!(f, ", keeps {text} at least")?,
        }
        match &self.max_age {
            Some(age) => write!(f, ", {age} at most"),
            None => Ok(()),
        }
    }
}

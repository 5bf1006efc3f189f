//! Definition of a derived channel: `[[derived]]` of the configuration, or the body of a PUT.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strongback_query::{Cell, Expression, Kind};
use strongback_sources::KeyError;
use strongback_store::{ChannelType, Pattern, StreamKey, Value};

/// Default time for which frames are held back where streams are joined, milliseconds.
pub const ALIGN_MS: u32 = 20;
/// Max time for which frames may be held back, milliseconds.
const ALIGN_MS_MAX: u32 = 10_000;
/// Max derived channels.
const DERIVED_MAX: usize = 256;
/// Max bytes of a name, a unit or a description.
const TEXT_BYTES_MAX: usize = 1024;

/// Derived channel as configured.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedTable {
    /// Name under which the results are stored: `table.channel`, or `table.channel{tag=value}`. The tags of the
    /// trigger and `version` are added.
    pub name: String,
    /// Streams whose frames trigger an evaluation, as in `tank` or `avionics.*{acu=*}`; each has its own results.
    pub trigger: String,
    /// Scalar SQL expression over channels in double quotes, with functions that look back.
    pub expression: String,
    /// Unit of the results.
    #[serde(default)]
    pub unit: String,
    /// Description of the results.
    #[serde(default)]
    pub description: String,
    /// Time for which frames are held back, in milliseconds, so that streams are joined in the order of their times.
    /// Default 20; 0 if all channels are of one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align_ms: Option<u32>,
}

/// Compiled derived channel. Whether its channels exist is not known yet.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Table as configured.
    pub table: DerivedTable,
    /// Table and tags of the results, without the tags of the trigger.
    pub key: StreamKey,
    /// Channel name of the results.
    pub channel: String,
    /// Parsed expression.
    pub expression: Expression,
    trigger: Pattern,
    /// Table of the trigger, if it is written without wildcards.
    trigger_table: Option<String>,
}

/// Splits `table.channel{tag=value}` into its parts.
fn parts(name: &str) -> Result<(StreamKey, String), String> {
    let (path, tags) = StreamKey::split_name(name);
    if path.contains('{') {
        return Err("its braces are to hold tag=value, and to be closed".to_owned());
    }
    let (table, channel) = path.rsplit_once('.').ok_or("expected table.channel")?;
    if table.is_empty() || channel.is_empty() {
        return Err("expected table.channel".to_owned());
    }
    // SQL finds tables regardless of case.
    if table.split('.').next().is_some_and(|schema| schema.eq_ignore_ascii_case("strongback")) {
        return Err("tables named strongback are the store's own".to_owned());
    }
    if tags.iter().any(|(tag, _)| tag == VERSION) {
        return Err("the tag version is given to it".to_owned());
    }
    Ok((StreamKey::new(table, tags), channel.to_owned()))
}

/// Tag with the version of the expression that produced a result.
pub const VERSION: &str = "version";

impl DerivedTable {
    /// Checks the definition alone, its functions included, and parses it.
    ///
    /// # Errors
    /// Returns the first invalid key, with its path in the table.
    pub fn compile(self) -> Result<Definition, KeyError> {
        let definition = self.parse()?;
        definition.expression.check().map_err(|error| KeyError::new("expression", error.to_string()))?;
        Ok(definition)
    }

    /// Parses a definition that was compiled before it was saved, so its functions are not checked again.
    ///
    /// # Errors
    /// Returns the first invalid key, with its path in the table.
    pub fn parse(self) -> Result<Definition, KeyError> {
        let wrong = |key: &str, why: String| KeyError::new(key, why);
        for (key, text) in [("name", &self.name), ("unit", &self.unit), ("description", &self.description)] {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                return Err(wrong(key, format!("longer than {TEXT_BYTES_MAX} bytes, or with control characters")));
            }
        }
        let (key, channel) = parts(&self.name).map_err(|why| wrong("name", why))?;
        let trigger = Pattern::parse(&self.trigger).map_err(|error| wrong("trigger", error.to_string()))?;
        let path = self.trigger.split('{').next().unwrap_or_default();
        let trigger_table = (!path.contains(['*', '?', '\\'])).then(|| path.to_owned());
        if self.align_ms.is_some_and(|align_ms| align_ms > ALIGN_MS_MAX) {
            return Err(wrong("align_ms", format!("at most {ALIGN_MS_MAX}")));
        }
        let expression = Expression::parse(&self.expression).map_err(|error| wrong("expression", error.to_string()))?;
        let definition = Definition { table: self, key, channel, expression, trigger, trigger_table };
        if definition.trigger_table.as_ref() == Some(&definition.key.table) {
            return Err(wrong("trigger", "it is the table of the results: give them another".to_owned()));
        }
        if definition.needs(&definition) {
            return Err(wrong("expression", "it refers to itself".to_owned()));
        }
        Ok(definition)
    }

    /// Returns whether another definition gives different results.
    pub fn differs(&self, other: &DerivedTable) -> bool {
        (&self.expression, &self.trigger, self.align_ms) != (&other.expression, &other.trigger, other.align_ms)
    }
}

impl Definition {
    /// Returns `table.channel`, its name in expressions.
    pub fn path(&self) -> String {
        format!("{}.{}", self.key.table, self.channel)
    }

    /// Returns whether a stream triggers it. Wildcards match received streams only, never derived ones.
    pub fn is_trigger(&self, key: &StreamKey, is_derived: bool) -> bool {
        (!is_derived || self.trigger_table.is_some()) && self.trigger.matches_stream(key)
    }

    /// Returns whether it depends on the results of another.
    pub fn needs(&self, other: &Definition) -> bool {
        let is_result = |name: &str| {
            let rest = name.strip_prefix(other.key.table.as_str()).and_then(|rest| rest.strip_prefix('.'));
            rest == Some(other.channel.as_str())
        };
        let mut names = self.expression.channels().iter().map(|named| base(&named.name));
        names.any(is_result) || self.trigger_table.as_ref() == Some(&other.key.table)
    }

    /// Returns the key of the result stream for a trigger with this key.
    pub fn output(&self, trigger: &StreamKey, version: &str) -> StreamKey {
        let mut tags: Vec<(String, String)> = trigger.tags.iter().filter(|(tag, _)| tag != VERSION).cloned().collect();
        tags.extend(self.key.tags.iter().cloned());
        tags.push((VERSION.to_owned(), version.to_owned()));
        StreamKey::new(self.key.table.clone(), tags)
    }
}

/// Returns a channel's name without its tags.
pub fn base(name: &str) -> &str {
    name.split('{').next().unwrap_or_default()
}

/// Reason why definitions are invalid together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct ClashError {
    /// Index of the definition that is invalid with those before it.
    pub at: usize,
    /// Its invalid key.
    pub error: KeyError,
}

/// Checks definitions together, and returns them in an order in which each comes after those it depends on.
///
/// # Errors
/// Returns an error if there are too many, two of them are one channel, or some depend on each other in a circle.
pub fn in_order(definitions: &[Arc<Definition>]) -> Result<Vec<Arc<Definition>>, ClashError> {
    let clash = |at: usize, key: &str, why: String| Err(ClashError { at, error: KeyError::new(key, why) });
    if definitions.len() > DERIVED_MAX {
        return clash(DERIVED_MAX, "", format!("there are {DERIVED_MAX} derived channels, and can be no more"));
    }
    let mut named = HashMap::new();
    for (at, definition) in definitions.iter().enumerate() {
        if let Some(other) = named.insert((&definition.key.table, &definition.channel), &definition.table.name) {
            return clash(at, "name", format!("{other:?} is that channel already"));
        }
    }
    let needs: Vec<Vec<usize>> = definitions
        .iter()
        .map(|of| (0..definitions.len()).filter(|other| of.needs(&definitions[*other])).collect())
        .collect();
    let (mut order, mut done) = (Vec::new(), vec![false; definitions.len()]);
    while order.len() < definitions.len() {
        let ready = |at: &usize| !done[*at] && needs[*at].iter().all(|other| done[*other]);
        let Some(next) = (0..definitions.len()).find(ready) else {
            let circle = circle(&needs, &done);
            let names: Vec<&str> = circle.iter().map(|at| definitions[*at].table.name.as_str()).collect();
            let why = format!("these refer to each other in a circle: {}", names.join(", "));
            return clash(circle.last().copied().unwrap_or_default(), "expression", why);
        };
        done[next] = true;
        order.push(definitions[next].clone());
    }
    Ok(order)
}

/// Returns the members of a circle, in ascending order, if each definition that is not done needs another that is not
/// done.
fn circle(needs: &[Vec<usize>], done: &[bool]) -> Vec<usize> {
    let mut path: Vec<usize> = Vec::new();
    let mut next = done.iter().position(|done| !done);
    while let Some(at) = next {
        if let Some(first) = path.iter().position(|on| *on == at) {
            path.drain(..first);
            break;
        }
        path.push(at);
        next = needs[at].iter().copied().find(|other| !done[*other]);
    }
    path.sort_unstable();
    path
}

/// Compiles all derived channels of a configuration.
///
/// # Errors
/// Returns the first invalid key, such as `derived[2].expression`, of one alone or of one together with those before
/// it, or the list if it is too long.
pub fn compile(tables: Vec<DerivedTable>) -> Result<Vec<Arc<Definition>>, KeyError> {
    let of =
        |at: usize, name: &str, error: KeyError| error.about(&format!("{name:?}")).below(&format!("derived[{at}]"));
    KeyError::check_count("derived", tables.len(), DERIVED_MAX, "derived channels")?;
    let mut all = Vec::with_capacity(tables.len());
    for (at, table) in tables.into_iter().enumerate() {
        let name = table.name.clone();
        all.push(Arc::new(table.compile().map_err(|error| of(at, &name, error))?));
    }
    in_order(&all).map_err(|clash| of(clash.at, &all[clash.at].table.name, clash.error))
}

/// Returns the type with which results of a kind are stored.
pub fn type_of(kind: Kind) -> ChannelType {
    match kind {
        Kind::Bool => ChannelType::Bool,
        Kind::I64 => ChannelType::I64,
        Kind::U64 => ChannelType::U64,
        Kind::F64 => ChannelType::F64,
        Kind::Text => ChannelType::String,
    }
}

/// Returns a result in the form in which it is stored.
pub fn value_of(cell: &Cell) -> Value<'_> {
    match cell {
        Cell::Bool(value) => Value::Bool(*value),
        Cell::I64(value) => Value::I64(*value),
        Cell::U64(value) => Value::U64(*value),
        Cell::F64(value) => Value::F64(*value),
        Cell::Text(text) => Value::String(text),
    }
}

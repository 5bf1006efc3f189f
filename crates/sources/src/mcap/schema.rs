//! Parses schemas in ROS message definitions (`ros1msg`, `ros2msg`) into types. Pure.
//!
//! ```text
//!  std_msgs/Header header      a field: type, name, perhaps a default or a comment
//!  float64[9] covariance       an array: of fixed length, [] of any, [<=9] of any up to nine
//!  uint8 STATUS_OK=0           a constant, which is no part of a message
//!  ================
//!  MSG: std_msgs/Header        another type begins
//! ```

use std::collections::HashMap;

use super::value::Primitive;

/// Maximum types of a schema.
const STRUCTS_MAX: usize = 1_024;
/// Maximum fields over all types of a schema.
const FIELDS_MAX: usize = 16_384;
/// Maximum nesting of types.
const DEPTH_MAX: usize = 32;

/// Message definition language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `ros1msg`
    Ros1,
    /// `ros2msg`
    Ros2,
}

/// Error in a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Invalid UTF-8.
    #[error("the schema is not valid UTF-8")]
    NoText,
    /// A line that is not a field.
    #[error("line {line} of the schema, {text:?}, is not a field")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// Beginning of the line.
        text: String,
    },
    /// A type that is not in the schema.
    #[error("the type {of:?} of the field {field:?} is not in the schema")]
    UnknownType {
        /// Type.
        of: String,
        /// Field.
        field: String,
    },
    /// A type without a single wire format.
    #[error("the field {field:?} is a wstring, whose encoding differs between writers")]
    WideText {
        /// Field.
        field: String,
    },
    /// A type that contains itself, or is nested too deep.
    #[error("the type {name:?} contains itself, or is nested deeper than {DEPTH_MAX} types")]
    TooDeep {
        /// Type.
        name: String,
    },
    /// Too many types or fields.
    #[error("the schema has more than {STRUCTS_MAX} types or {FIELDS_MAX} fields, or expands to too many")]
    TooLarge,
}

/// Type of a field or of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Plain(Primitive),
    /// Index of a type of the schema.
    Struct(usize),
}

/// Number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arity {
    One,
    Fixed(usize),
    Variable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaField {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    pub(super) arity: Arity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Struct {
    /// `package/Name`
    pub(super) name: String,
    pub(super) fields: Vec<SchemaField>,
    /// Minimum size of a value on the wire, in bytes.
    pub(super) least_bytes: usize,
}

/// Types, where the first is that of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) dialect: Dialect,
    pub(super) structs: Vec<Struct>,
}

/// A field with an unresolved type.
struct Draft<'t> {
    base: &'t str,
    name: &'t str,
    arity: Arity,
}

impl Schema {
    /// Parses a schema, where `name` is the type of messages, such as `sensor_msgs/Imu`.
    pub(super) fn parse(dialect: Dialect, name: &str, text: &[u8]) -> Result<Schema, SchemaError> {
        let text = std::str::from_utf8(text).map_err(|_| SchemaError::NoText)?;
        let mut drafts: Vec<(String, Vec<Draft<'_>>)> = vec![(plain_name(name), Vec::new())];
        let mut fields = 0;
        // After a line of equals signs, the name of the next type must follow.
        let mut name_due = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.len() >= 3 && line.bytes().all(|b| b == b'=') {
                name_due = true;
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || SchemaError::Line { line: number + 1, text: line.chars().take(60).collect() };
            if std::mem::take(&mut name_due) {
                let name = line.strip_prefix("MSG:").ok_or_else(wrong)?;
                drafts.push((plain_name(name.trim()), Vec::new()));
                continue;
            }
            if let Some(draft) = field(line).ok_or_else(wrong)?
                && let Some((_, of)) = drafts.last_mut()
            {
                of.push(draft);
                fields += 1;
            }
            if drafts.len() > STRUCTS_MAX || fields > FIELDS_MAX {
                return Err(SchemaError::TooLarge);
            }
        }
        let mut schema = Schema { dialect, structs: resolve(dialect, &drafts)? };
        let mut known = vec![None; schema.structs.len()];
        for index in 0..schema.structs.len() {
            schema.measure(index, 0, &mut known)?;
        }
        for (of, (least, _)) in schema.structs.iter_mut().zip(known.into_iter().flatten()) {
            of.least_bytes = least;
        }
        Ok(schema)
    }

    /// Returns the minimum size of a type in bytes and its nesting depth. Fails if the type contains itself.
    fn measure(
        &self,
        index: usize,
        depth: usize,
        known: &mut [Option<(usize, usize)>],
    ) -> Result<(usize, usize), SchemaError> {
        let of = &self.structs[index];
        let height_known = known[index].map_or(0, |(_, height)| height);
        if depth + height_known > DEPTH_MAX {
            return Err(SchemaError::TooDeep { name: of.name.clone() });
        }
        if let Some(found) = known[index] {
            return Ok(found);
        }
        let (mut least, mut height) = (0_usize, 0);
        for field in &of.fields {
            let one = match field.kind {
                FieldKind::Plain(kind) => kind.least_bytes(),
                FieldKind::Struct(inner) => {
                    let (one, below) = self.measure(inner, depth + 1, known)?;
                    height = height.max(below + 1);
                    one
                }
            };
            let bytes = match field.arity {
                Arity::One => one,
                Arity::Fixed(count) => one.saturating_mul(count),
                // The number of elements.
                Arity::Variable => 4,
            };
            least = least.saturating_add(bytes);
        }
        known[index] = Some((least, height));
        Ok((least, height))
    }

    /// Returns the minimum size of one value of a kind, in bytes.
    pub(super) fn least_bytes(&self, kind: FieldKind) -> usize {
        match kind {
            FieldKind::Plain(kind) => kind.least_bytes(),
            FieldKind::Struct(index) => self.structs[index].least_bytes,
        }
    }
}

/// Converts `package/msg/Name` to `package/Name`.
fn plain_name(name: &str) -> String {
    name.replacen("/msg/", "/", 1)
}

/// Parses the field of a line. Returns `Some(None)` for a constant, and `None` if the line is invalid.
fn field(line: &str) -> Option<Option<Draft<'_>>> {
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    if name.is_empty() {
        return None;
    }
    if behind.trim_start().starts_with('=') {
        return Some(None);
    }
    let (base, arity) = match kind.split_once('[') {
        None => (kind, Arity::One),
        Some((base, count)) => {
            let count = count.strip_suffix(']')?;
            match count {
                "" => (base, Arity::Variable),
                _ if count.starts_with("<=") => (base, Arity::Variable),
                _ => (base, Arity::Fixed(count.parse().ok()?)),
            }
        }
    };
    let base = base.split_once("<=").map_or(base, |(base, _)| base);
    Some(Some(Draft { base, name, arity }))
}

fn resolve(dialect: Dialect, drafts: &[(String, Vec<Draft<'_>>)]) -> Result<Vec<Struct>, SchemaError> {
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for (index, (name, _)) in drafts.iter().enumerate() {
        by_name.entry(name).or_insert(index);
    }
    drafts
        .iter()
        .map(|(name, fields)| {
            let package = name.rsplit_once('/').map_or("", |(package, _)| package);
            let mut found: Vec<SchemaField> = fields
                .iter()
                .map(|draft| {
                    let kind = kind_of(dialect, package, draft, &by_name)?;
                    Ok(SchemaField { name: draft.name.to_owned(), kind, arity: draft.arity })
                })
                .collect::<Result<_, SchemaError>>()?;
            if dialect == Dialect::Ros2 && found.is_empty() {
                // On the wire, a structure without members has this one.
                let name = "structure_needs_at_least_one_member".to_owned();
                found.push(SchemaField { name, kind: FieldKind::Plain(Primitive::U8), arity: Arity::One });
            }
            Ok(Struct { name: name.clone(), fields: found, least_bytes: 0 })
        })
        .collect()
}

fn kind_of(
    dialect: Dialect,
    package: &str,
    draft: &Draft<'_>,
    by_name: &HashMap<&str, usize>,
) -> Result<FieldKind, SchemaError> {
    let field = || draft.name.to_owned();
    if draft.base == "wstring" {
        return Err(SchemaError::WideText { field: field() });
    }
    if let Some(plain) = Primitive::of(dialect, draft.base) {
        return Ok(FieldKind::Plain(plain));
    }
    let name = plain_name(draft.base);
    if let Some(plain) = Primitive::of_interface(dialect, &name) {
        return Ok(FieldKind::Plain(plain));
    }
    let in_package = format!("{package}/{name}");
    if let Some(plain) = Primitive::of_interface(dialect, &in_package) {
        return Ok(FieldKind::Plain(plain));
    }
    let header = (name == "Header").then_some("std_msgs/Header");
    [Some(name.as_str()).filter(|name| name.contains('/')), Some(in_package.as_str()), header, Some(name.as_str())]
        .into_iter()
        .flatten()
        .find_map(|name| by_name.get(name))
        .map(|index| FieldKind::Struct(*index))
        .ok_or_else(|| SchemaError::UnknownType { of: draft.base.to_owned(), field: field() })
}

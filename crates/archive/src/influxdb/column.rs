//! Fields, tags and their names.

use strongback_store::ChannelType;

use crate::columns::{Dialect, Field, with_checksum};

/// Max bytes of a name.
const NAME_MAX: usize = 200;

/// Type of a field, or a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InfluxdbType {
    Boolean,
    Integer,
    Float,
    Text,
    Tag,
}

impl InfluxdbType {
    /// Returns the type of a field as the server names it, or `None` for one that the archive does not write.
    pub(super) fn named(name: &str) -> Option<InfluxdbType> {
        Some(match name {
            "boolean" => InfluxdbType::Boolean,
            "integer" => InfluxdbType::Integer,
            "float" => InfluxdbType::Float,
            "string" => InfluxdbType::Text,
            _ => return None,
        })
    }
}

/// Fields and tags of InfluxDB.
pub(crate) struct InfluxdbColumns;

impl Dialect for InfluxdbColumns {
    type Type = InfluxdbType;

    const FIXED: &'static [(&'static str, Field, InfluxdbType)] = &[
        // The time of a point, which no field may have as its name.
        ("time", Field::Time, InfluxdbType::Integer),
        ("receive_time_ns", Field::ReceiveTimeNs, InfluxdbType::Integer),
        ("source_time_ns", Field::SourceTimeNs, InfluxdbType::Integer),
        ("sequence", Field::Sequence, InfluxdbType::Integer),
        ("strongback_stream", Field::Stream, InfluxdbType::Tag),
        ("strongback_repeat", Field::Repeat, InfluxdbType::Tag),
        ("strongback_row", Field::Row, InfluxdbType::Integer),
    ];
    const TAG: InfluxdbType = InfluxdbType::Tag;
    /// The type of a field never changes there.
    const WIDENS: bool = false;

    fn of_channel(channel: ChannelType) -> InfluxdbType {
        match channel {
            ChannelType::Bool => InfluxdbType::Boolean,
            ChannelType::F32 | ChannelType::F64 => InfluxdbType::Float,
            ChannelType::String | ChannelType::Blob | ChannelType::Array(_) => InfluxdbType::Text,
            _ => InfluxdbType::Integer,
        }
    }

    fn holds(wide: InfluxdbType, narrow: InfluxdbType) -> bool {
        wide == narrow
    }

    fn suffix(column_type: InfluxdbType) -> &'static str {
        match column_type {
            InfluxdbType::Boolean => "bool",
            InfluxdbType::Integer => "i64",
            InfluxdbType::Float => "f64",
            InfluxdbType::Text | InfluxdbType::Tag => "string",
        }
    }

    fn type_name(column_type: InfluxdbType) -> String {
        format!("{column_type:?}").to_lowercase()
    }

    fn column_name(name: &str) -> String {
        name_there(name)
    }
}

/// Returns the name that a measurement, tag or field has there; one that must be altered gets a checksum of the whole.
///
/// Rules: InfluxDB documentation, "Line protocol", "Naming restrictions": no line ends, none begins with `_`, and a line
/// that begins with `#` is a comment. A `\` at the end would escape what follows.
pub(super) fn name_there(name: &str) -> String {
    let is_refused = |c: char| c.is_control() || c == '\\';
    let is_kept =
        !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['_', '#']) && !name.contains(is_refused);
    if is_kept {
        return name.to_owned();
    }
    let plain: String = name.chars().map(|c| if is_refused(c) { '_' } else { c }).collect();
    let start = plain.trim_start_matches(['_', '#']);
    with_checksum(if start.is_empty() { "x" } else { start }, name, NAME_MAX)
}

//! Types and names of fields.

use strongback_store::ChannelType;

use crate::columns::{Dialect, Field, with_checksum};

/// Max bytes of the name of an index.
const INDEX_MAX: usize = 200;

/// Type of a field; each can hold arrays of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Boolean,
    Long,
    Float,
    Double,
    Keyword,
    DateNanos,
}

impl FieldType {
    const ALL: [(FieldType, &'static str); 6] = [
        (FieldType::Boolean, "boolean"),
        (FieldType::Long, "long"),
        (FieldType::Float, "float"),
        (FieldType::Double, "double"),
        (FieldType::Keyword, "keyword"),
        (FieldType::DateNanos, "date_nanos"),
    ];

    /// Returns the type of a name, or `None` for one that the archive does not write.
    pub(super) fn of_name(name: &str) -> Option<FieldType> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(field_type, _)| *field_type)
    }
}

/// Elasticsearch's fields.
pub(crate) struct Fields;

impl Dialect for Fields {
    type Type = FieldType;

    const FIXED: &'static [(&'static str, Field, FieldType)] = &[
        ("time", Field::Time, FieldType::DateNanos),
        ("time_ns", Field::TimeNs, FieldType::Long),
        ("receive_time_ns", Field::ReceiveTimeNs, FieldType::Long),
        ("source_time_ns", Field::SourceTimeNs, FieldType::Long),
        ("sequence", Field::Sequence, FieldType::Long),
        ("strongback_stream", Field::Stream, FieldType::Keyword),
        ("strongback_row", Field::Row, FieldType::Long),
    ];
    const TAG: FieldType = FieldType::Keyword;
    const WIDENS: bool = false;

    fn of_channel(channel: ChannelType) -> FieldType {
        match channel {
            ChannelType::Bool => FieldType::Boolean,
            ChannelType::I8
            | ChannelType::U8
            | ChannelType::I16
            | ChannelType::U16
            | ChannelType::I32
            | ChannelType::U32
            | ChannelType::I64
            | ChannelType::U64 => FieldType::Long,
            ChannelType::F32 => FieldType::Float,
            ChannelType::F64 => FieldType::Double,
            ChannelType::String | ChannelType::Blob => FieldType::Keyword,
            ChannelType::Array(array) => FieldType::of_channel(array.element().channel_type()),
        }
    }

    fn holds(wide: FieldType, narrow: FieldType) -> bool {
        wide == narrow || (wide == FieldType::Double && narrow == FieldType::Float)
    }

    fn suffix(field_type: FieldType) -> &'static str {
        match field_type {
            FieldType::Boolean => "bool",
            FieldType::Long | FieldType::DateNanos => "i64",
            FieldType::Float => "f32",
            FieldType::Double => "f64",
            FieldType::Keyword => "string",
        }
    }

    fn type_name(field_type: FieldType) -> String {
        FieldType::ALL.iter().find(|(known, _)| *known == field_type).map_or("", |(_, name)| name).to_owned()
    }

    /// A dot would make an object of the part before it.
    fn column_name(name: &str) -> String {
        let plain = name.replace('.', "_");
        match plain.trim().is_empty() || plain.starts_with('_') {
            true => format!("field{plain}"),
            false => plain,
        }
    }
}

impl FieldType {
    fn of_channel(channel: ChannelType) -> FieldType {
        Fields::of_channel(channel)
    }
}

/// Returns the name of the alias of a table. One that is altered ends with a checksum.
pub(super) fn alias(prefix: &str, table: &str) -> String {
    let is_plain = |c: char| !c.is_uppercase() && !c.is_control() && !" \\/*?\"<>|,#:".contains(c);
    let name = format!("{prefix}{table}");
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let plain = plain.trim_start_matches(['-', '_', '+', '.']);
    if plain == name && name.len() <= INDEX_MAX { name } else { with_checksum(plain, &name, INDEX_MAX) }
}

//! Types and names of columns.

use strongback_store::ChannelType;

use crate::columns::{Dialect, Field, with_checksum};

/// Max characters of a name.
const NAME_MAX: usize = 64;

/// Type of a column. Those of integers are ordered by width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MariadbType {
    Bool,
    SmallInt,
    Int,
    BigInt,
    BigIntUnsigned,
    Double,
    /// Value of a tag.
    Tag,
    Text,
    /// Array as JSON.
    Array,
    Instant,
}

impl MariadbType {
    const ALL: [(MariadbType, &'static str); 10] = [
        (MariadbType::Bool, "tinyint(1)"),
        (MariadbType::SmallInt, "smallint"),
        (MariadbType::Int, "int"),
        (MariadbType::BigInt, "bigint"),
        (MariadbType::BigIntUnsigned, "bigint unsigned"),
        (MariadbType::Double, "double"),
        (MariadbType::Tag, "text"),
        (MariadbType::Text, "mediumtext"),
        (MariadbType::Array, "longtext"),
        (MariadbType::Instant, "datetime(6)"),
    ];

    /// Returns the type of a column as the server names it, or `None` for one that the archive does not write.
    pub(super) fn named(name: &str) -> Option<MariadbType> {
        // `int(11)` and `bigint(20) unsigned`: the width of what clients print is no part of the type.
        let plain = match (name.starts_with("tinyint") || name.starts_with("datetime"), name.split_once('(')) {
            (false, Some((start, rest))) => format!("{start}{}", rest.split_once(')').map_or("", |(_, end)| end)),
            _ => name.to_owned(),
        };
        Self::ALL.iter().find(|(_, of)| *of == plain).map(|(column_type, _)| *column_type)
    }

    /// Returns the name in SQL.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(column_type, _)| *column_type == self).map_or("longtext", |(_, name)| name)
    }
}

/// Columns of MariaDB and MySQL.
pub(crate) struct MariadbColumns;

impl Dialect for MariadbColumns {
    type Type = MariadbType;

    const FIXED: &'static [(&'static str, Field, MariadbType)] = &[
        ("time", Field::Time, MariadbType::Instant),
        ("time_ns", Field::TimeNs, MariadbType::BigInt),
        ("receive_time", Field::ReceiveTime, MariadbType::Instant),
        ("receive_time_ns", Field::ReceiveTimeNs, MariadbType::BigInt),
        ("source_time", Field::SourceTime, MariadbType::Instant),
        ("source_time_ns", Field::SourceTimeNs, MariadbType::BigInt),
        ("sequence", Field::Sequence, MariadbType::BigInt),
        ("strongback_row", Field::Row, MariadbType::BigInt),
    ];
    const TAG: MariadbType = MariadbType::Tag;

    fn of_channel(channel: ChannelType) -> MariadbType {
        match channel {
            ChannelType::Bool => MariadbType::Bool,
            ChannelType::I8 | ChannelType::U8 | ChannelType::I16 => MariadbType::SmallInt,
            ChannelType::U16 | ChannelType::I32 => MariadbType::Int,
            ChannelType::U32 | ChannelType::I64 => MariadbType::BigInt,
            ChannelType::U64 => MariadbType::BigIntUnsigned,
            // What a FLOAT holds is printed there with six digits.
            ChannelType::F32 | ChannelType::F64 => MariadbType::Double,
            ChannelType::String | ChannelType::Blob => MariadbType::Text,
            ChannelType::Array(_) => MariadbType::Array,
        }
    }

    fn holds(wide: MariadbType, narrow: MariadbType) -> bool {
        use MariadbType::{BigInt, Double, Int, SmallInt};
        wide == narrow || matches!((wide, narrow), (Int, SmallInt) | (BigInt | Double, SmallInt | Int))
    }

    fn suffix(column_type: MariadbType) -> &'static str {
        match column_type {
            MariadbType::Bool => "bool",
            MariadbType::SmallInt | MariadbType::Int | MariadbType::BigInt => "i64",
            MariadbType::BigIntUnsigned => "u64",
            MariadbType::Double => "f64",
            MariadbType::Tag | MariadbType::Text | MariadbType::Instant => "string",
            MariadbType::Array => "array",
        }
    }

    fn type_name(column_type: MariadbType) -> String {
        column_type.name().to_owned()
    }

    fn column_name(name: &str) -> String {
        name_there(name)
    }

    /// Names are the same there but for case, letter by letter: also `ſ` and `s`, `ı` and `i`, `K` (kelvin) and `k`.
    fn key(name: &str) -> String {
        let folded = |c: char| c.to_uppercase().next()?.to_lowercase().next();
        name.chars().filter_map(folded).collect()
    }
}

/// Returns the name that a table or column has there; one that must be altered gets a checksum of the whole.
///
/// Rules: MariaDB documentation, "Identifier Names": 64 characters, none beyond U+FFFF, no space at the end.
pub(super) fn name_there(name: &str) -> String {
    let is_allowed = |c: &char| ('\u{1}'..='\u{ffff}').contains(c);
    if name.chars().all(|c| is_allowed(&c)) && name.chars().count() <= NAME_MAX && !name.ends_with(' ') {
        return name.to_owned();
    }
    let start: String = name.chars().map(|c| if is_allowed(&c) { c } else { '_' }).take(NAME_MAX - 9).collect();
    with_checksum(&start, name, usize::MAX)
}

//! Types and names of columns.

use strongback_store::ChannelType;

use crate::columns::{Dialect, Field, with_checksum};

/// Max bytes of a name. QuestDB makes files of it, whose names have at most 255 bytes.
const NAME_MAX: usize = 120;

/// Type of a column. There are smaller integers, but they have no NULL; neither has BOOLEAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestdbType {
    Int,
    Long,
    Float,
    Double,
    Varchar,
    Symbol,
    TimestampNs,
    DoubleArray,
}

impl QuestdbType {
    const ALL: [(QuestdbType, &'static str); 8] = [
        (QuestdbType::Int, "INT"),
        (QuestdbType::Long, "LONG"),
        (QuestdbType::Float, "FLOAT"),
        (QuestdbType::Double, "DOUBLE"),
        (QuestdbType::Varchar, "VARCHAR"),
        (QuestdbType::Symbol, "SYMBOL"),
        (QuestdbType::TimestampNs, "TIMESTAMP_NS"),
        (QuestdbType::DoubleArray, "DOUBLE[]"),
    ];

    /// Returns the type of a name, or `None` for one that the archive does not write.
    pub(super) fn of_name(name: &str) -> Option<QuestdbType> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(column_type, _)| *column_type)
    }
}

/// QuestDB's columns.
pub(crate) struct QuestdbColumns;

impl Dialect for QuestdbColumns {
    type Type = QuestdbType;

    const FIXED: &'static [(&'static str, Field, QuestdbType)] = &[
        ("time", Field::Time, QuestdbType::TimestampNs),
        ("strongback_stream", Field::Stream, QuestdbType::Symbol),
        ("strongback_row", Field::Row, QuestdbType::Long),
        ("receive_time", Field::ReceiveTime, QuestdbType::TimestampNs),
        ("source_time", Field::SourceTime, QuestdbType::TimestampNs),
        ("sequence", Field::Sequence, QuestdbType::Long),
    ];
    const TAG: QuestdbType = QuestdbType::Symbol;

    fn of_channel(channel: ChannelType) -> QuestdbType {
        match channel {
            ChannelType::Bool | ChannelType::I8 | ChannelType::U8 | ChannelType::I16 | ChannelType::U16 => {
                QuestdbType::Int
            }
            // The least value of a type is NULL.
            ChannelType::I32 | ChannelType::U32 | ChannelType::I64 | ChannelType::U64 => QuestdbType::Long,
            ChannelType::F32 => QuestdbType::Float,
            ChannelType::F64 => QuestdbType::Double,
            ChannelType::String | ChannelType::Blob => QuestdbType::Varchar,
            ChannelType::Array(_) => QuestdbType::DoubleArray,
        }
    }

    fn holds(wide: QuestdbType, narrow: QuestdbType) -> bool {
        use QuestdbType::{Double, Float, Int, Long};
        wide == narrow || matches!((wide, narrow), (Long, Int) | (Double, Int | Float))
    }

    fn suffix(column_type: QuestdbType) -> &'static str {
        match column_type {
            QuestdbType::Int | QuestdbType::Long | QuestdbType::TimestampNs => "i64",
            QuestdbType::Float | QuestdbType::Double => "f64",
            QuestdbType::Varchar | QuestdbType::Symbol => "string",
            QuestdbType::DoubleArray => "array",
        }
    }

    fn type_name(column_type: QuestdbType) -> String {
        QuestdbType::ALL.iter().find(|(known, _)| *known == column_type).map_or("", |(_, name)| name).to_owned()
    }

    fn column_name(name: &str) -> String {
        let is_refused = |c: char| c.is_control() || c == '\u{feff}' || "?.,'\"\\/:)(+-*%~".contains(c);
        let plain: String = name.chars().map(|c| if is_refused(c) { '_' } else { c }).collect();
        if plain.len() <= NAME_MAX { plain } else { with_checksum(&plain, name, NAME_MAX) }
    }

    /// Names are the same there but for case, letter by letter: also `İ` and `i`.
    fn key(name: &str) -> String {
        name.chars().filter_map(|c| c.to_lowercase().next()).collect()
    }
}

/// Returns the name of a table there. One that is altered ends with a checksum, so that it stays apart from others.
pub(super) fn table_name(name: &str) -> String {
    let is_refused = |c: char| c.is_control() || c == '\u{feff}' || "?,'\"\\/:)(+*%~".contains(c);
    let mut plain: String = name.chars().map(|c| if is_refused(c) { '_' } else { c }).collect();
    while plain.contains("..") {
        plain = plain.replace("..", "_.");
    }
    let ends = |c: char| c == '.' || c.is_whitespace();
    let plain = format!("{}{}", if plain.starts_with(ends) { "_" } else { "" }, plain.trim_matches(ends));
    if plain == name && name.len() <= NAME_MAX { plain } else { with_checksum(&plain, name, NAME_MAX) }
}

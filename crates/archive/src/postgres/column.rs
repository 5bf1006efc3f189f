//! Types and names of columns.

use strongback_store::ChannelType;

use crate::columns::{Dialect, Field, with_checksum};

/// Max bytes of a name; PostgreSQL cuts longer ones.
const NAME_MAX: usize = 63;

/// Type of a column, or of the elements of its arrays. Those of numbers are ordered by width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PgType {
    Bool,
    Int2,
    Int4,
    Int8,
    Numeric,
    Float4,
    Float8,
    Text,
    TimestampTz,
}

impl PgType {
    const ALL: [(PgType, &'static str, u32, u32); 9] = [
        (PgType::Bool, "boolean", 16, 1000),
        (PgType::Int2, "smallint", 21, 1005),
        (PgType::Int4, "integer", 23, 1007),
        (PgType::Int8, "bigint", 20, 1016),
        (PgType::Numeric, "numeric", 1700, 1231),
        (PgType::Float4, "real", 700, 1021),
        (PgType::Float8, "double precision", 701, 1022),
        (PgType::Text, "text", 25, 1009),
        (PgType::TimestampTz, "timestamp with time zone", 1184, 1185),
    ];

    fn entry(self) -> &'static (PgType, &'static str, u32, u32) {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).unwrap_or(&Self::ALL[7])
    }

    /// Returns the number of the type in `pg_type`.
    pub(super) fn oid(self) -> u32 {
        self.entry().2
    }

    /// Returns the types whose values a column of this type can hold without loss.
    fn holds(self, narrower: PgType) -> bool {
        use PgType::{Float4, Float8, Int2, Int4, Int8, Numeric};
        self == narrower
            || matches!(
                (self, narrower),
                (Int4, Int2) | (Int8, Int2 | Int4) | (Numeric, Int2 | Int4 | Int8) | (Float8, Float4 | Int2 | Int4)
            )
    }

    /// Returns the suffix of a column for values that another column of the name cannot hold.
    fn suffix(self) -> &'static str {
        match self {
            PgType::Bool => "bool",
            PgType::Int2 | PgType::Int4 | PgType::Int8 => "i64",
            PgType::Numeric => "u64",
            PgType::Float4 | PgType::Float8 => "f64",
            PgType::Text | PgType::TimestampTz => "string",
        }
    }
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(super) base: PgType,
    pub(super) is_array: bool,
}

impl ColumnType {
    pub(super) const fn of(base: PgType) -> ColumnType {
        ColumnType { base, is_array: false }
    }

    pub(super) fn of_channel(channel: ChannelType) -> ColumnType {
        let base = match channel {
            ChannelType::Bool => PgType::Bool,
            ChannelType::I8 | ChannelType::U8 | ChannelType::I16 => PgType::Int2,
            ChannelType::U16 | ChannelType::I32 => PgType::Int4,
            ChannelType::U32 | ChannelType::I64 => PgType::Int8,
            ChannelType::U64 => PgType::Numeric,
            ChannelType::F32 => PgType::Float4,
            ChannelType::F64 => PgType::Float8,
            ChannelType::String | ChannelType::Blob => PgType::Text,
            ChannelType::Array(array) => {
                let element = ColumnType::of_channel(array.element().channel_type());
                return ColumnType { is_array: true, ..element };
            }
        };
        ColumnType::of(base)
    }

    /// Returns the type of a number in `pg_type`, or `None` for one that the archive does not write.
    pub(super) fn of_oid(oid: u32) -> Option<ColumnType> {
        let text = if oid == 1043 { 25 } else { oid };
        PgType::ALL.iter().find_map(|(base, _, single, array)| match text {
            _ if text == *single => Some(ColumnType { base: *base, is_array: false }),
            _ if text == *array => Some(ColumnType { base: *base, is_array: true }),
            _ => None,
        })
    }

    /// Returns the name in SQL.
    pub(super) fn name(self) -> String {
        format!("{}{}", self.base.entry().1, if self.is_array { "[]" } else { "" })
    }

    fn holds(self, narrower: ColumnType) -> bool {
        self.is_array == narrower.is_array && self.base.holds(narrower.base)
    }
}

/// PostgreSQL's columns.
pub(crate) struct PostgresColumns;

impl Dialect for PostgresColumns {
    type Type = ColumnType;

    const FIXED: &'static [(&'static str, Field, ColumnType)] = &[
        ("time", Field::Time, ColumnType::of(PgType::TimestampTz)),
        ("time_ns", Field::TimeNs, ColumnType::of(PgType::Int8)),
        ("receive_time", Field::ReceiveTime, ColumnType::of(PgType::TimestampTz)),
        ("receive_time_ns", Field::ReceiveTimeNs, ColumnType::of(PgType::Int8)),
        ("source_time", Field::SourceTime, ColumnType::of(PgType::TimestampTz)),
        ("source_time_ns", Field::SourceTimeNs, ColumnType::of(PgType::Int8)),
        ("sequence", Field::Sequence, ColumnType::of(PgType::Int8)),
        ("strongback_row", Field::Row, ColumnType::of(PgType::Int8)),
    ];
    const TAG: ColumnType = ColumnType::of(PgType::Text);

    fn of_channel(channel: ChannelType) -> ColumnType {
        ColumnType::of_channel(channel)
    }

    fn holds(wide: ColumnType, narrow: ColumnType) -> bool {
        wide.holds(narrow)
    }

    fn suffix(column_type: ColumnType) -> &'static str {
        if column_type.is_array { "array" } else { column_type.base.suffix() }
    }

    fn type_name(column_type: ColumnType) -> String {
        column_type.name()
    }

    fn column_name(name: &str) -> String {
        short_name(name)
    }
}

/// Returns a name of at most 63 bytes; a longer one is cut and gets a checksum of the whole.
pub(super) fn short_name(name: &str) -> String {
    if name.len() <= NAME_MAX { name.to_owned() } else { with_checksum(name, name, NAME_MAX) }
}

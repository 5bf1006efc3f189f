//! Columns of a table of the archive: which there must be for a stream, and where its values go.

use std::collections::{BTreeMap, HashSet};

use strongback_store::ChannelType;

use crate::delivery::StreamFrames;

/// Max bytes of a name; PostgreSQL cuts longer ones.
const NAME_MAX: usize = 63;

/// Type of a column, or of the elements of its arrays. Those of numbers are ordered by width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PgType {
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
pub(super) struct ColumnType {
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

/// Origin of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Time,
    TimeNs,
    ReceiveTime,
    ReceiveTimeNs,
    SourceTime,
    SourceTimeNs,
    Sequence,
    Row,
    Tag(String),
    /// Column of the batch.
    Channel(usize),
    /// No value: the column belongs to other streams.
    Nothing,
}

/// Columns of every table.
pub(super) const FIXED: [(&str, Field, PgType); 8] = [
    ("time", Field::Time, PgType::TimestampTz),
    ("time_ns", Field::TimeNs, PgType::Int8),
    ("receive_time", Field::ReceiveTime, PgType::TimestampTz),
    ("receive_time_ns", Field::ReceiveTimeNs, PgType::Int8),
    ("source_time", Field::SourceTime, PgType::TimestampTz),
    ("source_time_ns", Field::SourceTimeNs, PgType::Int8),
    ("sequence", Field::Sequence, PgType::Int8),
    ("strongback_row", Field::Row, PgType::Int8),
];

/// A column as it is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PgColumn {
    /// Type, or `None` for one that the archive does not write.
    pub(super) column_type: Option<ColumnType>,
    /// Whether it holds a tag.
    pub(super) is_tag: bool,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add { name: String, column_type: ColumnType, is_tag: bool },
    Widen { name: String, column_type: ColumnType },
}

/// Where the values of a stream go.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Column, and what goes there.
    pub(super) places: Vec<(String, Field)>,
    /// Changes that the table needs.
    pub(super) changes: Vec<Change>,
    /// Names of the places.
    taken: HashSet<String>,
}

/// Returns a name of at most 63 bytes; a longer one is cut and gets a checksum of the whole.
pub(super) fn short_name(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    let end = (0..=NAME_MAX - 9).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    format!("{}_{:08x}", &name[..end], crc32c::crc32c(name.as_bytes()))
}

/// Plans the columns of frames in a table, and notes in `columns` what it will then have.
///
/// # Errors
/// Returns an error in words if a column cannot hold its values under any name.
pub(super) fn plan(frames: &StreamFrames, columns: &mut BTreeMap<String, PgColumn>) -> Result<Plan, String> {
    let mut plan = Plan::default();
    for (name, source, base) in FIXED {
        plan.place(columns, (name.to_owned(), vec![]), source, ColumnType::of(base))?;
    }
    for (key, _) in &frames.stream.key.tags {
        let source = Field::Tag(key.clone());
        plan.place(columns, (key.clone(), vec![format!("{key}_tag")]), source, ColumnType::of(PgType::Text))?;
    }
    for (at, index) in frames.channels.iter().enumerate() {
        let channel = &frames.stream.layout.channels[index.0 as usize];
        // The batch may be wider than the layout, if the channel was widened in between.
        let column_type = ColumnType::of_channel(frames.batch.columns[at].values.channel_type());
        let suffix = if column_type.is_array { "array" } else { column_type.base.suffix() };
        let others = vec![format!("{}_{suffix}", channel.name), format!("{}_field", channel.name)];
        plan.place(columns, (channel.name.clone(), others), Field::Channel(at), column_type)?;
    }
    Ok(plan)
}

impl Plan {
    /// Finds a column for values: that of the name, or of one of the other names.
    fn place(
        &mut self,
        columns: &mut BTreeMap<String, PgColumn>,
        (name, others): (String, Vec<String>),
        source: Field,
        wanted: ColumnType,
    ) -> Result<(), String> {
        let is_tag = matches!(source, Field::Tag(_));
        for name in std::iter::once(&name).chain(&others) {
            let name = short_name(name);
            let is_of_all = FIXED.iter().any(|(fixed, of, _)| *fixed == name && *of != source);
            if is_of_all || self.taken.contains(&name) {
                continue;
            }
            match columns.get_mut(&name) {
                None => {
                    columns.insert(name.clone(), PgColumn { column_type: Some(wanted), is_tag });
                    self.changes.push(Change::Add { name: name.clone(), column_type: wanted, is_tag });
                }
                Some(PgColumn { column_type: Some(have), is_tag: tag }) if *tag == is_tag => {
                    if !have.holds(wanted) {
                        if !wanted.holds(*have) {
                            continue;
                        }
                        *have = wanted;
                        self.changes.push(Change::Widen { name: name.clone(), column_type: wanted });
                    }
                }
                Some(_) => continue,
            }
            self.taken.insert(name.clone());
            self.places.push((name, source));
            return Ok(());
        }
        let have = columns.get(&name).and_then(|column| column.column_type).map(ColumnType::name);
        let have = have.unwrap_or_else(|| "another type".to_owned());
        Err(format!("column {name:?} is {have} and cannot hold {}", wanted.name()))
    }
}

//! Tables of the schema `strongback`: channels, sources, gaps, events, runs, marks, followers, segments.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use strongback_store::{Channel, Interpolation, Store, Stream};

use crate::system::{FollowerRow, SourceCounters, SystemRows, rows_read};
use crate::table::column::{UTC, floor_micros, timestamp_type};
use crate::table::filter::ALL_TIMES;
use crate::table::planned;

/// Name of a system table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemTableName {
    Channels,
    Sources,
    Gaps,
    Events,
    Runs,
    Marks,
    Followers,
    Segments,
}

/// All system tables.
pub(crate) const SYSTEM_TABLES: [SystemTableName; 8] = [
    SystemTableName::Channels,
    SystemTableName::Sources,
    SystemTableName::Gaps,
    SystemTableName::Events,
    SystemTableName::Runs,
    SystemTableName::Marks,
    SystemTableName::Followers,
    SystemTableName::Segments,
];

impl SystemTableName {
    /// Returns its name within the schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SystemTableName::Channels => "channels",
            SystemTableName::Sources => "sources",
            SystemTableName::Gaps => "gaps",
            SystemTableName::Events => "events",
            SystemTableName::Runs => "runs",
            SystemTableName::Marks => "marks",
            SystemTableName::Followers => "followers",
            SystemTableName::Segments => "segments",
        }
    }

    fn schema(self) -> SchemaRef {
        let text = DataType::Utf8;
        let (int8, int4) = (DataType::Int64, DataType::Int32);
        let fields: Vec<(&str, DataType)> = match self {
            SystemTableName::Channels => vec![
                ("id", int8.clone()),
                ("name", text.clone()),
                ("table_name", text.clone()),
                ("channel", text.clone()),
                ("tags", text.clone()),
                ("stream", int4),
                ("type", text.clone()),
                ("unit", text.clone()),
                ("description", text.clone()),
                ("source", text.clone()),
                ("expected_period_ns", int8),
                ("interpolation", text),
            ],
            SystemTableName::Sources => {
                let counters = SourceCounters::ALL.iter().map(|(name, _)| (*name, int8.clone()));
                ["name", "kind", "address", "status"]
                    .map(|name| (name, text.clone()))
                    .into_iter()
                    .chain([("streams", int8.clone())])
                    .chain(counters)
                    .chain([("last_receive_time", timestamp_type()), ("last_receive_time_ns", int8.clone())])
                    .collect()
            }
            SystemTableName::Gaps => vec![
                ("id", int8.clone()),
                ("stream", int4),
                ("stream_name", text.clone()),
                ("source", text.clone()),
                ("from_time", timestamp_type()),
                ("from_time_ns", int8.clone()),
                ("to_time", timestamp_type()),
                ("to_time_ns", int8.clone()),
                ("from_sequence", int8.clone()),
                ("to_sequence", int8.clone()),
                ("count", int8.clone()),
                ("open", int8),
                ("cause", text.clone()),
                ("words", text),
            ],
            SystemTableName::Events => vec![
                ("time", timestamp_type()),
                ("time_ns", int8),
                ("level", text.clone()),
                ("source", text.clone()),
                ("text", text.clone()),
                ("origin", text),
            ],
            SystemTableName::Runs => vec![
                ("name", text.clone()),
                ("state", text.clone()),
                ("t0", timestamp_type()),
                ("t0_ns", int8.clone()),
                ("t0_now", timestamp_type()),
                ("t0_now_ns", int8.clone()),
                ("t_ns", int8.clone()),
                ("started", timestamp_type()),
                ("started_ns", int8.clone()),
                ("stopped", timestamp_type()),
                ("stopped_ns", int8.clone()),
                ("channels", text),
                ("protected", DataType::Boolean),
                ("streams", int8.clone()),
                ("size_bytes", int8),
            ],
            SystemTableName::Marks => vec![
                ("id", int8.clone()),
                ("time", timestamp_type()),
                ("time_ns", int8.clone()),
                ("stream", text.clone()),
                ("channel", text.clone()),
                ("from_time", timestamp_type()),
                ("from_time_ns", int8.clone()),
                ("to_time", timestamp_type()),
                ("to_time_ns", int8),
                ("quality", text.clone()),
                ("by", text.clone()),
                ("reason", text),
            ],
            SystemTableName::Followers => ["name", "target", "address", "channels", "state"]
                .map(|name| (name, text.clone()))
                .into_iter()
                .chain([("lag_s", DataType::Float64), ("frames_per_s", DataType::Float64)])
                .chain(FollowerRow::COUNTERS.map(|name| (name, int8.clone())))
                .chain([("last_error", text), ("last_error_time", timestamp_type()), ("last_error_time_ns", int8)])
                .collect(),
            SystemTableName::Segments => vec![
                ("id", int8.clone()),
                ("sealed", DataType::Boolean),
                ("retention_group", text),
                ("size_bytes", int8.clone()),
                ("blocks", int8.clone()),
                ("first_time", timestamp_type()),
                ("first_time_ns", int8.clone()),
                ("last_time", timestamp_type()),
                ("last_time_ns", int8.clone()),
                ("first_stored_ns", int8.clone()),
                ("last_stored_ns", int8),
            ],
        };
        Arc::new(Schema::new(fields.into_iter().map(|(name, kind)| Field::new(name, kind, true)).collect::<Vec<_>>()))
    }
}

/// A system table, whose rows are read when a query scans it.
pub(crate) struct SystemTable {
    table: SystemTableName,
    store: Store,
    system: Arc<dyn SystemRows>,
    schema: SchemaRef,
}

impl fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemTable").field(&self.table).finish()
    }
}

impl SystemTable {
    pub(crate) fn new(table: SystemTableName, store: Store, system: Arc<dyn SystemRows>) -> Self {
        SystemTable { table, store, system, schema: table.schema() }
    }

    fn columns(&self) -> Vec<ArrayRef> {
        match self.table {
            SystemTableName::Channels => self.channels(),
            SystemTableName::Sources => self.sources(),
            SystemTableName::Gaps => self.gaps(),
            SystemTableName::Events => self.events(),
            SystemTableName::Runs => self.runs(),
            SystemTableName::Marks => self.marks(),
            SystemTableName::Followers => self.followers(),
            SystemTableName::Segments => self.segments(),
        }
    }

    fn channels(&self) -> Vec<ArrayRef> {
        let catalog = self.store.catalog();
        let rows: Vec<(&Stream, &Channel)> =
            catalog.streams.iter().flat_map(|s| s.layout.channels.iter().map(move |c| (s.as_ref(), c))).collect();
        vec![
            int8(rows.iter().map(|(_, c)| Some(c.id.0 as i64))),
            text(rows.iter().map(|(s, c)| s.key.channel_name(&c.name))),
            text(rows.iter().map(|(s, _)| s.key.table.as_str())),
            text(rows.iter().map(|(_, c)| c.name.as_str())),
            text(
                rows.iter()
                    .map(|(s, _)| s.key.tags.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")),
            ),
            Arc::new(Int32Array::from_iter(rows.iter().map(|(s, _)| i32::try_from(s.id.0).ok()))),
            text(rows.iter().map(|(_, c)| c.channel_type.name())),
            text(rows.iter().map(|(_, c)| c.unit.as_str())),
            text(rows.iter().map(|(_, c)| c.description.as_str())),
            text(rows.iter().map(|(s, _)| s.source.as_str())),
            int8(rows.iter().map(|(s, _)| s.expected_period_ns)),
            text(rows.iter().map(|(_, c)| interpolation_name(c.interpolation))),
        ]
    }

    fn sources(&self) -> Vec<ArrayRef> {
        let rows = self.system.sources();
        let mut columns = vec![
            text(rows.iter().map(|r| r.name.as_str())),
            text(rows.iter().map(|r| r.kind.as_str())),
            text(rows.iter().map(|r| r.address.as_str())),
            text(rows.iter().map(|r| r.status.as_str())),
            count(rows.iter().map(|r| r.streams)),
        ];
        columns.extend((0..SourceCounters::ALL.len()).map(|at| count(rows.iter().map(|r| r.counters.values()[at]))));
        columns.push(micros(rows.iter().map(|r| r.last_receive_time_ns)));
        columns.push(int8(rows.iter().map(|r| r.last_receive_time_ns)));
        columns
    }

    fn gaps(&self) -> Vec<ArrayRef> {
        let rows = self.system.gaps(ALL_TIMES);
        vec![
            count(rows.iter().map(|r| r.id)),
            Arc::new(Int32Array::from_iter(rows.iter().map(|r| r.stream.and_then(|s| i32::try_from(s.0).ok())))),
            text(rows.iter().map(|r| r.stream_name.as_str())),
            text(rows.iter().map(|r| r.source.as_str())),
            micros(rows.iter().map(|r| Some(r.from_time_ns))),
            int8(rows.iter().map(|r| Some(r.from_time_ns))),
            micros(rows.iter().map(|r| Some(r.to_time_ns))),
            int8(rows.iter().map(|r| Some(r.to_time_ns))),
            int8(rows.iter().map(|r| r.from_sequence)),
            int8(rows.iter().map(|r| r.to_sequence)),
            count(rows.iter().map(|r| r.count)),
            count(rows.iter().map(|r| r.open)),
            text(rows.iter().map(|r| r.cause.as_str())),
            text(rows.iter().map(|r| r.words.as_str())),
        ]
    }

    fn events(&self) -> Vec<ArrayRef> {
        let rows = self.system.events(ALL_TIMES);
        vec![
            micros(rows.iter().map(|r| Some(r.time_ns))),
            int8(rows.iter().map(|r| Some(r.time_ns))),
            text(rows.iter().map(|r| r.level.as_str())),
            text(rows.iter().map(|r| r.source.as_str())),
            text(rows.iter().map(|r| r.text.as_str())),
            text(rows.iter().map(|r| r.origin.name())),
        ]
    }

    fn runs(&self) -> Vec<ArrayRef> {
        let rows = self.system.runs();
        vec![
            text(rows.iter().map(|r| r.name.as_str())),
            Arc::new(StringArray::from_iter(rows.iter().map(|r| r.state.as_deref()))),
            micros(rows.iter().map(|r| r.t0_ns)),
            int8(rows.iter().map(|r| r.t0_ns)),
            micros(rows.iter().map(|r| r.t0_now_ns)),
            int8(rows.iter().map(|r| r.t0_now_ns)),
            int8(rows.iter().map(|r| r.t_ns)),
            micros(rows.iter().map(|r| r.started_ns)),
            int8(rows.iter().map(|r| r.started_ns)),
            micros(rows.iter().map(|r| r.stopped_ns)),
            int8(rows.iter().map(|r| r.stopped_ns)),
            text(rows.iter().map(|r| r.channels.join(","))),
            Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(r.protected)))),
            count(rows.iter().map(|r| r.streams)),
            count(rows.iter().map(|r| r.size_bytes)),
        ]
    }

    fn marks(&self) -> Vec<ArrayRef> {
        let rows = self.system.marks();
        vec![
            count(rows.iter().map(|r| r.id)),
            micros(rows.iter().map(|r| Some(r.time_ns))),
            int8(rows.iter().map(|r| Some(r.time_ns))),
            text(rows.iter().map(|r| r.stream.as_str())),
            text(rows.iter().map(|r| r.channel.as_str())),
            micros(rows.iter().map(|r| Some(r.from_ns))),
            int8(rows.iter().map(|r| Some(r.from_ns))),
            micros(rows.iter().map(|r| Some(r.to_ns))),
            int8(rows.iter().map(|r| Some(r.to_ns))),
            text(rows.iter().map(|r| r.quality.name())),
            text(rows.iter().map(|r| r.by.as_str())),
            text(rows.iter().map(|r| r.reason.as_str())),
        ]
    }

    fn followers(&self) -> Vec<ArrayRef> {
        let rows = self.system.followers();
        let mut columns = vec![
            text(rows.iter().map(|r| r.name.as_str())),
            text(rows.iter().map(|r| r.target.as_str())),
            text(rows.iter().map(|r| r.address.as_str())),
            text(rows.iter().map(|r| r.channels.join(","))),
            text(rows.iter().map(|r| r.state.as_str())),
            Arc::new(Float64Array::from_iter(rows.iter().map(|r| Some(r.lag_s)))),
            Arc::new(Float64Array::from_iter(rows.iter().map(|r| Some(r.frames_per_s)))),
        ];
        columns.extend((0..FollowerRow::COUNTERS.len()).map(|at| count(rows.iter().map(|r| r.counters[at]))));
        columns.extend([
            Arc::new(StringArray::from_iter(rows.iter().map(|r| r.last_error.as_deref()))) as ArrayRef,
            micros(rows.iter().map(|r| r.last_error_ns)),
            int8(rows.iter().map(|r| r.last_error_ns)),
        ]);
        columns
    }

    fn segments(&self) -> Vec<ArrayRef> {
        let rows = self.store.segments();
        vec![
            count(rows.iter().map(|r| r.id)),
            Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(r.sealed)))),
            text(rows.iter().map(|r| r.group.as_str())),
            count(rows.iter().map(|r| r.size_bytes)),
            count(rows.iter().map(|r| r.blocks)),
            micros(rows.iter().map(|r| r.time.map(|t| t.0))),
            int8(rows.iter().map(|r| r.time.map(|t| t.0))),
            micros(rows.iter().map(|r| r.time.map(|t| t.1))),
            int8(rows.iter().map(|r| r.time.map(|t| t.1))),
            int8(rows.iter().map(|r| r.stored.map(|t| t.0))),
            int8(rows.iter().map(|r| r.stored.map(|t| t.1))),
        ]
    }
}

impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn scan<'s, 'a, 'b, 'c, 'f>(
        &'s self,
        session: &'a dyn Session,
        projection: Option<&'b Vec<usize>>,
        _filters: &'c [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'a: 'f,
        'b: 'f,
        'c: 'f,
    {
        let (name, columns) = (format!("strongback.{}", self.table.name()), || Ok(self.columns()));
        planned(rows_read::scan(session, name, (&self.schema, projection), columns))
    }
}

/// Returns `hold` or `linear`.
pub(crate) fn interpolation_name(interpolation: Interpolation) -> &'static str {
    match interpolation {
        Interpolation::Hold => "hold",
        Interpolation::Linear => "linear",
    }
}

/// Builds a text column.
pub(crate) fn text<S: AsRef<str>>(values: impl Iterator<Item = S>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// Builds an int8 column.
pub(crate) fn int8(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values))
}

/// Builds a timestamptz column from nanoseconds.
pub(crate) fn micros(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter(values.map(|v| v.map(floor_micros))).with_timezone(UTC))
}

/// Builds an int8 column from counters. Values above 2⁶³ − 1 are capped.
fn count(values: impl Iterator<Item = u64>) -> ArrayRef {
    int8(values.map(|v| Some(i64::try_from(v).unwrap_or(i64::MAX))))
}

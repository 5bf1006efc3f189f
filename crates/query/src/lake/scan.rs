//! The scan of files of the lake for DataFusion.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{CastOptions, cast_with_options, filter_record_batch, is_not_null, nullif};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use crate::error::{QueryError, sqlstate};
use crate::lake::book::Book;
use crate::lake::folder::Folder;
use crate::lake::frames::{ROW, STREAM};
use crate::lake::log::LakeFile;
use crate::table::column::TableColumn;

/// Bytes at the end of a file that are read first: its metadata, unless it has very many columns.
const FOOTER_BYTES: usize = 64 << 10;
/// Column with the exact time.
const TIME_NS: &str = "time_ns";

/// What is wanted of a stream.
#[derive(Debug)]
pub(crate) struct OfStream {
    /// Row from which on frames are in the store.
    pub(crate) end: u64,
    /// Columns of the result, and spans of time in which their values are left out.
    pub(crate) left_out: Vec<(usize, Vec<Range<i64>>)>,
}

/// Streams by their names in the files.
type Streams = HashMap<String, OfStream>;

/// Scan of files.
pub(crate) struct LakeScan {
    folder: Folder,
    files: Vec<LakeFile>,
    wanted: Arc<Wanted>,
    partitions: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Rows and columns that are wanted.
struct Wanted {
    streams: Streams,
    /// `time` from (inclusive) to (exclusive).
    time: Range<i64>,
    columns: Arc<Vec<TableColumn>>,
    schema: SchemaRef,
    book: Book,
}

impl LakeScan {
    pub(crate) fn new(
        folder: Folder,
        (files, book): (Vec<LakeFile>, Book),
        streams: Streams,
        time: Range<i64>,
        (columns, schema): (Arc<Vec<TableColumn>>, SchemaRef),
        partitions: usize,
    ) -> LakeScan {
        let partitions = partitions.clamp(1, files.len().max(1));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let wanted = Arc::new(Wanted { streams, time, columns, schema, book });
        LakeScan { folder, files, wanted, partitions, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl fmt::Debug for LakeScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeScan").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl DisplayAs for LakeScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.wanted.columns.iter().map(|c| c.name.as_str()).collect();
        write!(
            f,
            "LakeScan: files={}, partitions={}, columns=[{}]",
            self.files.len(),
            self.partitions,
            names.join(", ")
        )
    }
}

impl ExecutionPlan for LakeScan {
    fn name(&self) -> &'static str {
        "LakeScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let files: Vec<LakeFile> = self.files.iter().skip(partition).step_by(self.partitions).cloned().collect();
        let (folder, wanted) = (self.folder.clone(), self.wanted.clone());
        let rows = context.session_config().batch_size();
        let counter = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let counters = Counters { files: counter("files_read"), rows: counter("rows_read") };
        let batches = futures::stream::iter(files).then(move |file| {
            let (folder, wanted, counters) = (folder.clone(), wanted.clone(), counters.clone());
            async move { read(folder, file, wanted, rows, counters).await }
        });
        let batches = batches.try_flatten().map_err(QueryError::into_datafusion);
        let schema = self.wanted.schema.clone();
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What is read.
#[derive(Clone)]
struct Counters {
    files: Count,
    rows: Count,
}

/// A file as the Parquet reader sees it.
struct Object {
    folder: Folder,
    path: Path,
    bytes: u64,
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        Box::pin(async move { Ok(self.folder.objects.get_range(&self.path, range).await?) })
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        Box::pin(async move { Ok(self.folder.objects.get_ranges(&self.path, &ranges).await?) })
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        Box::pin(async move {
            let bytes = self.bytes;
            let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_BYTES));
            Ok(Arc::new(reader.load_and_finish(self, bytes).await?))
        })
    }
}

/// Reads a file.
async fn read(
    folder: Folder,
    file: LakeFile,
    wanted: Arc<Wanted>,
    rows: usize,
    counters: Counters,
) -> Result<impl futures::Stream<Item = Result<RecordBatch, QueryError>>, QueryError> {
    let failed =
        |path: &str, why: String| QueryError::new(sqlstate::IO_ERROR, format!("file {path:?} of the lake: {why}"));
    let path = Path::parse(&file.path).map_err(|error| failed(&file.path, error.to_string()))?;
    let opened = ParquetRecordBatchStreamBuilder::new(Object { folder, path, bytes: file.bytes }).await;
    let builder = opened.map_err(|error| failed(&file.path, error.to_string()))?;
    counters.files.add(1);
    let schema = builder.schema().clone();
    let is_needed = |name: &str| [STREAM, ROW, TIME_NS].contains(&name) || wanted.places(name).next().is_some();
    let needed: Vec<usize> =
        schema.fields().iter().enumerate().filter(|(_, field)| is_needed(field.name())).map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), needed);
    let groups = builder.metadata().row_groups().iter().enumerate();
    let groups: Vec<usize> = groups.filter(|(_, group)| wanted.overlaps(group)).map(|(at, _)| at).collect();
    let stream = builder.with_projection(mask).with_row_groups(groups).with_batch_size(rows).build();
    let stream = stream.map_err(|error| failed(&file.path, error.to_string()))?;
    Ok(stream.map(move |batch| {
        let batch = batch.map_err(|error| failed(&file.path, error.to_string()))?;
        counters.rows.add(batch.num_rows());
        wanted.convert(batch).map_err(|error| failed(&file.path, error.to_string()))
    }))
}

impl Wanted {
    /// Returns the columns of the result that get values of a column of files.
    fn places(&self, name: &str) -> impl Iterator<Item = usize> {
        let of = self.book.columns().iter().find(|column| column.name == name).map(|column| column.column.as_str());
        self.columns.iter().enumerate().filter(move |(_, column)| Some(column.name.as_str()) == of).map(|(at, _)| at)
    }

    /// Reports whether a row group can have rows in the span of time, by its statistics.
    fn overlaps(&self, group: &RowGroupMetaData) -> bool {
        let time = group.columns().iter().find(|column| column.column_path().string() == TIME_NS);
        let Some(Statistics::Int64(times)) = time.and_then(|column| column.statistics()) else { return true };
        let (min, max) = (times.min_opt().copied(), times.max_opt().copied());
        min.is_none_or(|min| min < self.time.end) && max.is_none_or(|max| max >= self.time.start)
    }

    /// Returns the wanted rows of a batch as columns of SQL.
    fn convert(&self, batch: RecordBatch) -> Result<RecordBatch, DataFusionError> {
        let missing = |name: &str| DataFusionError::Execution(format!("it has no column {name:?}"));
        let streams = batch.column_by_name(STREAM).ok_or_else(|| missing(STREAM))?;
        let streams = streams.as_string_opt::<i32>().ok_or_else(|| missing(STREAM))?;
        let number = |name: &str| {
            let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
            column.ok_or_else(|| missing(name))
        };
        let (rows, times) = (number(ROW)?, number(TIME_NS)?);
        let mut keep = BooleanBufferBuilder::new(batch.num_rows());
        let mut current: Option<(&str, Option<&OfStream>)> = None;
        let mut left_out: HashMap<usize, BooleanBufferBuilder> = HashMap::new();
        for at in 0..batch.num_rows() {
            let name = streams.value(at);
            let of = match current {
                Some((same, of)) if same == name => of,
                _ => {
                    let of = self.streams.get(name);
                    current = Some((name, of));
                    of
                }
            };
            let time = times.value(at);
            let is_wanted = of.is_some_and(|of| (rows.value(at) as u64) < of.end) && self.time.contains(&time);
            keep.append(is_wanted);
            for (column, spans) in of.into_iter().filter(|_| is_wanted).flat_map(|of| &of.left_out) {
                if spans.iter().any(|span| span.contains(&time)) {
                    let mask = left_out.entry(*column).or_insert_with(|| BooleanBufferBuilder::new(batch.num_rows()));
                    mask.append_n(at - mask.len(), false);
                    mask.append(true);
                }
            }
        }
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let mut array = self.column(&batch, column)?;
            if let Some(mut mask) = left_out.remove(&at) {
                mask.append_n(batch.num_rows() - mask.len(), false);
                array = nullif(&array, &BooleanArray::new(mask.finish(), None))?;
            }
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        Ok(filter_record_batch(&batch, &BooleanArray::new(keep.finish(), None))?)
    }

    /// Returns a column of SQL, whose values can be in several columns of a file.
    fn column(&self, batch: &RecordBatch, column: &TableColumn) -> Result<ArrayRef, DataFusionError> {
        let data_type = column.data_type();
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        let mut found: Option<ArrayRef> = None;
        for of in self.book.columns().iter().filter(|of| of.column == column.name) {
            let Some(array) = batch.column_by_name(&of.name) else { continue };
            let array = cast_with_options(array, &data_type, &exact)?;
            found = Some(match found {
                None => array,
                Some(before) => zip(&is_not_null(&before)?, &before, &array)?,
            });
        }
        Ok(found.unwrap_or_else(|| new_null_array(&data_type, batch.num_rows())))
    }
}

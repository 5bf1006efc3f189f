//! Fast path for the query that user interfaces send: columns of one table in a time range, optionally for some tags,
//! in order of time, or limited. DataFusion plans and checks the statement once per catalog version. After that, each
//! execution reads the store and writes rows without it.
//!
//! Anything not recognised here, or not known to give the same rows, uses DataFusion.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};
use strongback_store::{Scan, Stream, View};

use crate::error::QueryError;
use crate::sql::value::cast_time;
use crate::system::catalog::Tables;
use crate::table::StoreTable;
use crate::table::column::{ColumnSource, TableColumn, floor_micros, timestamp_type};
use crate::table::filter;
use crate::table::filter::{ALL_TIMES, NO_TIME};
use crate::table::merge::{Found, Merge, Prepare, StoredRows, TimeOrder, Wanted};
use crate::wire::message::RowForm;
use crate::wire::template::RowTemplate;

/// Maximum streams merged by time on the fast path without a limit.
const MERGED_STREAMS_MAX: usize = 16;
/// Maximum rows for which more streams than that are merged on the fast path.
const MERGED_ROWS_MAX: usize = 10_000;
/// Maximum rows skipped for OFFSET before yielding.
const SKIPPED_ROWS: usize = 10_000;

/// A statement of the recognised form.
pub(crate) struct DirectPlan {
    table: Arc<StoreTable>,
    columns: Arc<Vec<TableColumn>>,
    conditions: Vec<Condition>,
    order: Option<TimeOrder>,
    skip: Option<Count>,
    fetch: Option<Count>,
}

#[derive(Debug)]
enum Condition {
    /// Comparison of `time` (in microseconds) or `time_ns` with an instant.
    Time { micros: bool, op: Operator, instant: Instant },
    /// Tag that equals one of some texts.
    Tag { tag: String, any_of: Vec<Word> },
}

#[derive(Debug)]
enum Instant {
    /// Constant in the unit of its column.
    Literal(i64),
    Parameter(usize),
    /// Start of the query plus microseconds.
    Now {
        plus_us: i64,
    },
}

#[derive(Debug)]
enum Word {
    Literal(String),
    Parameter(usize),
}

#[derive(Debug)]
enum Count {
    Literal(usize),
    Parameter(usize),
}

/// Transformation of a table's columns by a plan's nodes, from the scan upwards.
struct Shape {
    table: Arc<StoreTable>,
    /// For each output column, the index of the table's column.
    outputs: Vec<usize>,
    conditions: Vec<Condition>,
    order: Option<TimeOrder>,
    limit: Option<(Option<Count>, Option<Count>)>,
}

/// Reports whether streams have this many rows in a span of time.
fn has_rows(view: &View, streams: &[Arc<Stream>], time: &Range<i64>, most: usize) -> bool {
    let mut rows = 0;
    streams.iter().any(|stream| {
        let mut scan = Scan::all(stream.id, Vec::new());
        (scan.time, scan.newest_first) = (time.clone(), true);
        view.scan(scan).map_while(Result::ok).any(|batch| {
            rows += batch.len();
            rows >= most
        })
    })
}

impl DirectPlan {
    /// Recognises a plan that DataFusion made from SQL, before optimisation.
    pub(crate) fn recognise(plan: &LogicalPlan, tables: &Tables) -> Option<DirectPlan> {
        let shape = walk(plan, tables)?;
        let columns = Arc::new(shape.outputs.iter().map(|at| shape.table.columns[*at].clone()).collect());
        let (skip, fetch) = shape.limit.unwrap_or((None, None));
        Some(DirectPlan { table: shape.table, columns, conditions: shape.conditions, order: shape.order, skip, fetch })
    }

    /// Opens the rows of one execution. Returns `None` if it has to use DataFusion after all.
    ///
    /// # Errors
    /// If a value does not fit its place.
    pub(crate) fn open(
        &self,
        view: &View,
        values: &[ScalarValue],
        now_ns: i64,
    ) -> Result<Option<DirectRows>, QueryError> {
        let mut time = ALL_TIMES;
        let mut streams: Vec<Arc<Stream>> = self.table.streams.clone();
        for condition in &self.conditions {
            match condition {
                Condition::Time { micros, op, instant } => {
                    let range = match instant.value(*micros, values, now_ns) {
                        Known::Value(value) => filter::comparison_range(*micros, *op, value),
                        Known::Null => Some(NO_TIME),
                        Known::Otherwise => return Ok(None),
                    };
                    let Some(range) = range else { return Ok(None) };
                    time = filter::intersect(time, range);
                }
                Condition::Tag { tag, any_of } => {
                    let mut wanted = Vec::with_capacity(any_of.len());
                    for word in any_of {
                        match word {
                            Word::Literal(text) => wanted.push(text.as_str()),
                            Word::Parameter(at) => match values.get(*at).and_then(ScalarValue::try_as_str) {
                                Some(Some(text)) => wanted.push(text),
                                Some(None) => {}
                                None => return Ok(None),
                            },
                        }
                    }
                    streams.retain(|s| s.key.tag(tag).is_some_and(|value| wanted.contains(&value)));
                }
            }
        }
        let count = |count: &Option<Count>| match count {
            None => Some(None),
            Some(Count::Literal(rows)) => Some(Some(*rows)),
            Some(Count::Parameter(at)) => match values.get(*at) {
                Some(ScalarValue::Int64(Some(rows))) => usize::try_from(*rows).ok().map(Some),
                _ => None,
            },
        };
        let (Some(skip), Some(fetch)) = (count(&self.skip), count(&self.fetch)) else { return Ok(None) };
        let older = self.table.newest_older(view, &streams, &time)?;
        streams.retain(|s| view.time_range(s.id).is_some_and(|(first, last)| first < time.end && last >= time.start));
        let skip = skip.unwrap_or(0);
        if self.order.is_some()
            && (streams.len() > MERGED_STREAMS_MAX && fetch.is_none_or(|rows| rows > MERGED_ROWS_MAX)
                || !streams.iter().all(|s| view.time_sorted(s.id)))
        {
            return Ok(None);
        }
        let left = fetch.unwrap_or(usize::MAX);
        let most = skip.saturating_add(left);
        if let Some(older) = older {
            // The newest rows are all here if enough of them are newer than what is elsewhere.
            time.start = time.start.max(older.saturating_add(1));
            let is_newest = self.order == Some(TimeOrder::Descending) && most <= MERGED_ROWS_MAX;
            if !is_newest || !has_rows(view, &streams, &time, most) {
                return Ok(None);
            }
        }
        let wanted =
            Wanted { columns: self.columns.clone(), time, order: self.order, most, conditions: Arc::default() };
        Ok(Some(DirectRows { merge: Merge::new(view.clone(), streams, wanted), skip, left }))
    }

    /// Appends the next rows as messages: at most `most`, and few enough to stay near `full` bytes of output. Returns
    /// their number, which is 0 while OFFSET has rows left to skip, or `None` at the end.
    ///
    /// # Errors
    /// If the store cannot be read, or the catalog changed so that a value no longer fits its column.
    pub(crate) fn put_rows(
        &self,
        out: &mut BytesMut,
        rows: &mut DirectRows,
        form: &RowForm,
        (most, full): (usize, usize),
    ) -> Result<Option<usize>, QueryError> {
        let asked = Asked { form: Some(form), room: full.saturating_sub(out.len()) };
        if !rows.pass_by(&asked)? {
            return Ok(Some(0));
        }
        let Some((head, run)) = rows.next(&asked, most)? else { return Ok(None) };
        match head.stored(&self.columns) {
            // The form of earlier rows of the batch may have been another one.
            Some((from, Some(template))) if template.form == *form => template.put(out, from, &run),
            Some((from, _)) => from.put_rows(out, &run, form)?,
            None => {}
        }
        Ok(Some(run.rows.len()))
    }

    /// Appends the cells of the next row as text, each with its length. Returns the number of rows like
    /// [`DirectPlan::put_rows`].
    ///
    /// # Errors
    /// Same as [`DirectPlan::put_rows`].
    pub(crate) fn put_cells(&self, out: &mut BytesMut, rows: &mut DirectRows) -> Result<Option<usize>, QueryError> {
        let asked = Asked { form: None, room: 0 };
        if !rows.pass_by(&asked)? {
            return Ok(Some(0));
        }
        let Some((head, run)) = rows.next(&asked, 1)? else { return Ok(None) };
        if let Some((from, _)) = head.stored(&self.columns) {
            from.put_cells(out, run.rows.start, |_| false)?;
        }
        Ok(Some(1))
    }
}

/// Requested form of rows.
struct Asked<'a> {
    /// Form of the messages; `None` to encode cell by cell.
    form: Option<&'a RowForm>,
    /// Maximum bytes of the rows, as far as that is known.
    room: usize,
}

/// Preparation of a row template, once per batch, if its cells have fixed sizes.
impl Prepare for Asked<'_> {
    type Made = Option<RowTemplate>;

    fn prepare(&self, from: StoredRows<'_>) -> Result<Option<RowTemplate>, QueryError> {
        Ok(self.form.and_then(|form| RowTemplate::of(from, form)))
    }

    fn most(&self, template: &Option<RowTemplate>) -> usize {
        template.as_ref().map_or(1, |template| self.room / template.row_bytes())
    }
}

/// A value known when the statement runs.
enum Known {
    Value(i64),
    Null,
    /// A value of a type that only DataFusion compares.
    Otherwise,
}

impl Instant {
    fn value(&self, micros: bool, values: &[ScalarValue], now_ns: i64) -> Known {
        match self {
            Instant::Literal(value) => Known::Value(*value),
            Instant::Now { plus_us } => Known::Value(floor_micros(now_ns).saturating_add(*plus_us)),
            Instant::Parameter(at) => match values.get(*at) {
                Some(ScalarValue::TimestampMicrosecond(Some(value), Some(_))) if micros => Known::Value(*value),
                Some(ScalarValue::Int64(Some(value))) if !micros => Known::Value(*value),
                Some(value) if value.is_null() => Known::Null,
                _ => Known::Otherwise,
            },
        }
    }
}

/// Rows of one execution.
pub(crate) struct DirectRows {
    merge: Merge<Option<RowTemplate>>,
    skip: usize,
    left: usize,
}

impl DirectRows {
    /// Skips rows for OFFSET, a portion at a time. Returns whether all are skipped.
    fn pass_by(&mut self, asked: &Asked<'_>) -> Result<bool, QueryError> {
        let mut portion = SKIPPED_ROWS;
        while self.skip > 0 && portion > 0 {
            let Some((_, run)) = self.merge.next(asked, self.skip.min(portion))? else {
                (self.skip, self.left) = (0, 0);
                break;
            };
            self.skip -= run.rows.len();
            portion -= run.rows.len();
        }
        Ok(self.skip == 0)
    }

    /// Takes the next rows without writing them, at most `most`. Returns their number like [`DirectPlan::put_rows`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn pass(&mut self, form: &RowForm, most: usize) -> Result<Option<usize>, QueryError> {
        let asked = Asked { form: Some(form), room: usize::MAX };
        if !self.pass_by(&asked)? {
            return Ok(Some(0));
        }
        Ok(self.next(&asked, most)?.map(|(_, run)| run.rows.len()))
    }

    /// Returns the next rows, at least one, after all rows to skip.
    fn next(&mut self, asked: &Asked<'_>, most: usize) -> Result<Found<'_, Option<RowTemplate>>, QueryError> {
        if self.left == 0 {
            return Ok(None);
        }
        let next = self.merge.next(asked, most.min(self.left))?;
        if let Some((_, run)) = &next {
            self.left -= run.rows.len();
        }
        Ok(next)
    }
}

fn walk(plan: &LogicalPlan, tables: &Tables) -> Option<Shape> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok()?;
            let name = provider.downcast_ref::<StoreTable>()?.name.clone();
            if scan.projection.is_some() || !scan.filters.is_empty() || scan.fetch.is_some() {
                return None;
            }
            let table = tables.table(&name)?;
            let outputs = (0..table.columns.len()).collect();
            Some(Shape { table, outputs, conditions: Vec::new(), order: None, limit: None })
        }
        LogicalPlan::SubqueryAlias(alias) => walk(&alias.input, tables),
        LogicalPlan::Projection(projection) => {
            let mut shape = walk(&projection.input, tables)?;
            shape.outputs = projection
                .expr
                .iter()
                .map(|expr| match expr {
                    Expr::Alias(alias) => output(&alias.expr, &projection.input, &shape),
                    other => output(other, &projection.input, &shape),
                })
                .collect::<Option<_>>()?;
            Some(shape)
        }
        LogicalPlan::Filter(filter) => {
            let mut shape = walk(&filter.input, tables).filter(|s| s.limit.is_none())?;
            for part in split_conjunction(&filter.predicate) {
                conditions(part, &filter.input, &mut shape)?;
            }
            Some(shape)
        }
        LogicalPlan::Sort(sort) => {
            let mut shape = walk(&sort.input, tables).filter(|s| s.limit.is_none() && s.order.is_none())?;
            let [key] = sort.expr.as_slice() else { return None };
            if sort.fetch.is_some() {
                return None;
            }
            let at = output(&key.expr, &sort.input, &shape)?;
            filter::time_column(&shape.table.columns[at])?;
            shape.order = Some(if key.asc { TimeOrder::Ascending } else { TimeOrder::Descending });
            Some(shape)
        }
        LogicalPlan::Limit(limit) => {
            let mut shape = walk(&limit.input, tables).filter(|s| s.limit.is_none())?;
            let count = |expr: &Option<Box<Expr>>| match expr.as_deref() {
                None => Some(None),
                Some(expr) => row_count(expr).map(Some),
            };
            shape.limit = Some((count(&limit.skip)?, count(&limit.fetch)?));
            Some(shape)
        }
        _ => None,
    }
}

fn row_count(expr: &Expr) -> Option<Count> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(rows)), _) => usize::try_from(*rows).ok().map(Count::Literal),
        Expr::Placeholder(placeholder) => parameter(&placeholder.id).map(Count::Parameter),
        _ => None,
    }
}

fn parameter(id: &str) -> Option<usize> {
    id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Returns the table's column that an expression over a node's input stands for.
fn output(expr: &Expr, input: &LogicalPlan, shape: &Shape) -> Option<usize> {
    let Expr::Column(column) = expr else { return None };
    table_column(column, input, shape)
}

fn table_column(column: &Column, input: &LogicalPlan, shape: &Shape) -> Option<usize> {
    let at = input.schema().maybe_index_of_column(column)?;
    shape.outputs.get(at).copied()
}

fn conditions(expr: &Expr, input: &LogicalPlan, shape: &mut Shape) -> Option<()> {
    let column = |expr: &Expr| {
        let at = output(expr, input, shape)?;
        Some(&shape.table.columns[at])
    };
    let found = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, op, value) = match (column(left), column(right)) {
                (Some(column), None) => (column, *op, right),
                (None, Some(column)) => (column, filter::flipped(*op)?, left),
                _ => return None,
            };
            match (&column.source, filter::time_column(column)) {
                (_, Some(micros)) => {
                    filter::comparison_range(micros, op, 0)?;
                    vec![Condition::Time { micros, op, instant: instant(value, micros)? }]
                }
                (ColumnSource::Tag(tag), _) if op == Operator::Eq => {
                    vec![Condition::Tag { tag: tag.clone(), any_of: vec![word(value)?] }]
                }
                _ => return None,
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let micros = filter::time_column(column(expr)?)?;
            vec![
                Condition::Time { micros, op: Operator::GtEq, instant: instant(low, micros)? },
                Condition::Time { micros, op: Operator::LtEq, instant: instant(high, micros)? },
            ]
        }
        Expr::InList(list) if !list.negated => match &column(&list.expr)?.source {
            ColumnSource::Tag(tag) => {
                let any_of = list.list.iter().map(word).collect::<Option<Vec<_>>>()?;
                vec![Condition::Tag { tag: tag.clone(), any_of }]
            }
            _ => return None,
        },
        _ => return None,
    };
    shape.conditions.extend(found);
    Some(())
}

fn word(expr: &Expr) -> Option<Word> {
    match expr {
        Expr::Literal(value, _) => Some(Word::Literal(value.try_as_str()??.to_owned())),
        Expr::Placeholder(placeholder) => parameter(&placeholder.id).map(Word::Parameter),
        _ => None,
    }
}

fn instant(expr: &Expr, micros: bool) -> Option<Instant> {
    match expr {
        Expr::Placeholder(placeholder) => parameter(&placeholder.id).map(Instant::Parameter),
        Expr::Literal(ScalarValue::Int64(Some(value)), _) if !micros => Some(Instant::Literal(*value)),
        Expr::Literal(value, _) if micros && is_time_text(value) => literal_micros(value),
        // `timestamptz '…'`: a cast of text to the type of the column.
        Expr::Cast(cast) if micros && *cast.field.data_type() == timestamp_type() => match cast.expr.as_ref() {
            Expr::Literal(value, _) if is_time_text(value) => literal_micros(value),
            _ => None,
        },
        Expr::ScalarFunction(function) if micros && function.func.name() == "now" => Some(Instant::Now { plus_us: 0 }),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) if micros => {
            let Instant::Now { plus_us } = instant(left, micros)? else { return None };
            let shift_us = interval_us(right)?;
            let plus_us = match op {
                Operator::Plus => plus_us.checked_add(shift_us)?,
                _ => plus_us.checked_sub(shift_us)?,
            };
            Some(Instant::Now { plus_us })
        }
        _ => None,
    }
}

fn is_time_text(value: &ScalarValue) -> bool {
    matches!(
        value,
        ScalarValue::Utf8(Some(_))
            | ScalarValue::Utf8View(Some(_))
            | ScalarValue::TimestampMicrosecond(Some(_), Some(_))
    )
}

fn literal_micros(value: &ScalarValue) -> Option<Instant> {
    match cast_time(value, &timestamp_type()).ok()? {
        ScalarValue::TimestampMicrosecond(Some(value), _) => Some(Instant::Literal(value)),
        _ => None,
    }
}

/// Returns the length of an interval without months. Days always have 24 hours in UTC.
fn interval_us(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _)
            if interval.months == 0 && interval.nanoseconds % 1_000 == 0 =>
        {
            i64::from(interval.days).checked_mul(86_400_000_000)?.checked_add(interval.nanoseconds / 1_000)
        }
        _ => None,
    }
}

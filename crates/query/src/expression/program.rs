//! Evaluates an expression: takes moments, returns results.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array, UInt64Array,
};
use datafusion::arrow::compute::{cast, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ScalarUDF, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;

use crate::error::QueryError;
use crate::functions;
use crate::functions::float::Float;
use crate::functions::large::LargeCalls;
use crate::functions::text::with_checked_casts;
use crate::functions::zero::with_both_zeros;
use crate::running::memory::SharedMemory;
use crate::sql::constant;

use super::node::{LookBack, Memory};
use super::parse::Expression;
use super::zero::{NONZERO, Nonzero};
use super::{Cell, ExpressionError, Fault, Kind, WINDOW_SAMPLES_MAX};

/// Maximum moments evaluated in one batch.
const BATCH_MOMENTS: usize = 1024;
/// Max estimate of one function call, in bytes for each row: enough for any function of texts of 1,024 bytes, as
/// channels have them. Work counts like the bytes whose making would take as long.
const ROW_BYTES_MAX: usize = 128 << 10;
/// Max concurrent calls with large results, of all expressions.
const CALLS_AT_A_TIME: usize = 8;
/// Max memory of such results, in bytes.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Version of the format of [`Program::memory`].
const MEMORY_VERSION: u8 = 1;

/// A frame as seen by a program. Moments are in order; their times never decrease.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// `time` of the frame, in nanoseconds since 1970 UTC.
    pub time: i64,
    /// Whether it yields a result.
    pub is_trigger: bool,
    /// Updated values, each with the index of the channel in [`Expression::channels`]. Others are unchanged.
    pub cells: Vec<(usize, Cell)>,
}

/// Newest value of a channel with its time, if it had one.
type NewestValue = Option<(Cell, i64)>;

/// Result of a trigger; `None` if it is null or failed.
pub type Outcome = Option<Cell>;

/// Problems in a call. None of them stops a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Troubles {
    /// Divisors that were 0.
    pub zero_divisors: u64,
    /// Moments at which the expression or one of its arguments could not be evaluated.
    pub failed: u64,
    /// Cause of the first such failure.
    pub why: Option<String>,
    /// Samples dropped from full windows.
    pub left_out: u64,
}

impl Troubles {
    fn fail(&mut self, error: DataFusionError) {
        self.failed += 1;
        self.why.get_or_insert_with(|| words(error).chars().take(500).collect());
    }
}

/// An expression over channels of known types, with its state.
#[derive(Debug)]
pub struct Program {
    kinds: Vec<Kind>,
    looks: Vec<At>,
    rest: Scalar,
    kind: Kind,
    schema: SchemaRef,
    /// Newest value of each channel, with its time.
    cells: Vec<NewestValue>,
    zeros: Arc<AtomicU64>,
    /// Maximum samples of a window.
    room: usize,
    span_ns: i64,
}

/// A function that looks back.
#[derive(Debug)]
struct At {
    look: LookBack,
    /// Channels whose frames it samples.
    channels: Vec<usize>,
    argument: Scalar,
    memory: Memory,
    /// Whether another function samples it, so that its value is needed at each of its frames.
    is_used: bool,
}

/// A part evaluated by DataFusion.
#[derive(Debug)]
enum Scalar {
    /// A plain column.
    Column(usize),
    Physical(Arc<dyn PhysicalExpr>),
}

fn type_of(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::I64 => DataType::Int64,
        Kind::U64 => DataType::UInt64,
        Kind::F64 => DataType::Float64,
        Kind::Text => DataType::Utf8,
    }
}

fn kind_of(data_type: &DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::UInt64 => Kind::U64,
        other if other.is_integer() => Kind::I64,
        other if other.is_numeric() => Kind::F64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
        _ => return None,
    })
}

/// Bounds of the functions of all expressions. No one waits for an evaluation and could stop it, so what one row may
/// cost is bounded instead.
static LARGE_CALLS: LazyLock<LargeCalls> = LazyLock::new(|| {
    LargeCalls::with_row_bytes_max(CALLS_AT_A_TIME, SharedMemory::new(MEMORY_BYTES_MAX), ROW_BYTES_MAX)
});

/// Creates a session with the functions of expressions, which counts zero divisors in `zeros`.
fn session(zeros: Arc<AtomicU64>) -> Result<SessionState, ExpressionError> {
    let nonzero = Arc::new(ScalarUDF::new_from_impl(Nonzero::new(zeros)));
    let mut session = SessionStateBuilder::new_with_default_features().build();
    FunctionRegistry::register_udf(&mut session, nonzero)
        .and_then(|_| functions::bound(&mut session, &LARGE_CALLS))
        .map_err(|error| ExpressionError::new(Fault::Function, None, words(error)))?;
    Ok(session)
}

/// Returns an error's message for people.
fn words(error: DataFusionError) -> String {
    QueryError::from(error).message
}

/// Rewords the planner's message about an unknown function.
fn unknown_function(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Invalid function '")?;
    let (name, _) = rest.split_once('\'')?;
    Some(format!("there is no function {name}()"))
}

/// Planner of the parts of an expression.
struct Planner<'a> {
    session: &'a SessionState,
    fields: Vec<Field>,
}

impl Planner<'_> {
    fn add(&mut self, name: String, kind: Kind) {
        self.fields.push(Field::new(name, type_of(kind), true));
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    /// Resolves the functions of a part, and checks that they are allowed in an expression.
    fn logical(&self, sql: &str, of: &DFSchema) -> Result<Expr, (Fault, String)> {
        let expr = self.session.create_logical_expr(sql, of).map_err(|error| {
            let message = error.strip_backtrace();
            match unknown_function(&message) {
                Some(unknown) => (Fault::Function, unknown),
                None => (Fault::Type, message),
            }
        })?;
        check(&expr).map_err(|refused| (Fault::Function, refused))?;
        Ok(expr)
    }

    /// Plans a part. Returns it ready for evaluation, with the type of its values.
    fn plan(&self, sql: &str) -> Result<(Scalar, Kind), (Fault, String)> {
        let words = |error: DataFusionError| (Fault::Type, words(error));
        let schema = self.schema();
        if let Some(at) = self.fields.iter().position(|field| format!("\"{}\"", field.name()) == sql) {
            let kind = kind_of(self.fields[at].data_type()).ok_or_else(|| (Fault::Type, "no type".to_owned()))?;
            return Ok((Scalar::Column(at), kind));
        }
        let of = DFSchema::try_from(schema.clone()).map_err(words)?;
        let mut expr = self.logical(sql, &of)?;
        // Bounds functions and checks integers.
        for rewrite in self.session.analyzer().function_rewrites() {
            let rewritten = expr.transform_up(|part| rewrite.rewrite(part, &of, self.session.config_options()));
            expr = rewritten.map_err(words)?.data;
        }
        // Some functions can only be evaluated in their simplified form.
        let context = SimplifyContext::builder().with_schema(Arc::new(of.clone()));
        let context = context.with_config_options(self.session.config_options().clone()).build();
        let simplifier = ExprSimplifier::new(context);
        let simplify = || {
            let coerced = simplifier.coerce(expr, &of)?;
            let simplified = simplifier.simplify(with_checked_casts(coerced, &of)?.data)?;
            Ok(with_both_zeros(simplified)?.data)
        };
        let expr = constant::planning(simplify).map_err(words)?;
        let physical = self.session.create_physical_expr(expr, &of).map_err(words)?;
        let data_type = physical.data_type(&schema).map_err(words)?;
        let kind = kind_of(&data_type).ok_or_else(|| {
            let message = match data_type {
                DataType::Null => "it is always null".to_owned(),
                other => format!("its values would be {other}: a channel has numbers, truth values or text"),
            };
            (Fault::Type, message)
        })?;
        Ok((Scalar::Physical(physical), kind))
    }
}

/// Rejects anything other than a scalar expression, and functions that are not deterministic.
fn check(expr: &Expr) -> Result<(), String> {
    let mut refused = None;
    let _ = expr.apply(|part| {
        let what = match part {
            Expr::ScalarFunction(call)
                if call.func.signature().volatility != Volatility::Immutable && call.func.name() != NONZERO =>
            {
                Some(format!("{}() is not the same each time: an expression must be", call.func.name()))
            }
            Expr::AggregateFunction(call) => {
                Some(format!("{}() is over rows of a table: use moving_average and the like", call.func.name()))
            }
            Expr::WindowFunction(_) => Some("OVER is for rows of a table: use moving_average and the like".to_owned()),
            Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Placeholder(_)
            | Expr::GroupingSet(_)
            | Expr::Unnest(_) => Some("not a scalar expression over channels".to_owned()),
            _ => None,
        };
        Ok(match what {
            Some(what) => {
                refused = Some(what);
                TreeNodeRecursion::Stop
            }
            None => TreeNodeRecursion::Continue,
        })
    });
    refused.map_or(Ok(()), Err)
}

impl Expression {
    /// Checks what does not depend on channel types: that its functions exist and are allowed here.
    ///
    /// # Errors
    /// If a function is unknown, an aggregate, or not deterministic.
    pub fn check(&self) -> Result<(), ExpressionError> {
        static SESSION: LazyLock<Result<SessionState, ExpressionError>> = LazyLock::new(|| session(Arc::default()));
        let session = SESSION.as_ref().map_err(Clone::clone)?;
        let looks = self.looks.iter().map(|spec| (spec.argument.as_str(), Some(spec.position)));
        for (sql, position) in looks.chain([(self.rest.as_str(), None)]) {
            // A type error may stop the planner before it reaches a function, so try several types.
            for kind in [Kind::F64, Kind::Text, Kind::Bool] {
                let mut planner = Planner { session, fields: Vec::new() };
                (0..self.channels().len()).for_each(|at| planner.add(format!("c{at}"), kind));
                let looked = self.looks.iter().enumerate();
                looked.for_each(|(number, spec)| planner.add(format!("w{number}"), spec.look.kind(kind)));
                let Ok(of) = DFSchema::try_from(planner.schema()) else { continue };
                match planner.logical(sql, &of) {
                    Err((Fault::Function, message)) => {
                        return Err(ExpressionError::new(Fault::Function, position, self.in_words(&message)));
                    }
                    Err(_) => {}
                    Ok(_) => break,
                }
            }
        }
        Ok(())
    }

    /// Compiles an expression for channels of these types, in the order of [`Expression::channels`].
    ///
    /// # Errors
    /// If types are incompatible, or functions are unknown or not allowed here.
    pub fn compile(&self, kinds: &[Kind]) -> Result<Program, ExpressionError> {
        debug_assert_eq!(kinds.len(), self.channels().len());
        let zeros = Arc::new(AtomicU64::new(0));
        let session = session(zeros.clone())?;
        let mut planner = Planner { session: &session, fields: Vec::new() };
        for (at, kind) in kinds.iter().enumerate() {
            planner.add(format!("c{at}"), *kind);
        }
        let mut looks: Vec<At> = Vec::new();
        for (number, spec) in self.looks.iter().enumerate() {
            let wrong =
                |fault, message: String| ExpressionError::new(fault, Some(spec.position), self.in_words(&message));
            let (argument, kind) = planner.plan(&spec.argument).map_err(|(fault, message)| wrong(fault, message))?;
            if kind == Kind::Text && !spec.look.is_as_of() {
                return Err(wrong(Fault::Type, format!("{} takes a number, not text", spec.name)));
            }
            planner.add(format!("w{number}"), spec.look.kind(kind));
            looks.push(At {
                look: spec.look,
                channels: spec.channels.clone(),
                argument,
                memory: Memory::default(),
                is_used: self.looks.iter().any(|other| other.uses.contains(&number)),
            });
        }
        let (rest, kind) = planner
            .plan(&self.rest)
            .map_err(|(fault, message)| ExpressionError::new(fault, None, self.in_words(&message)))?;
        let windows = looks.iter().filter(|at| at.look.has_window()).count();
        Ok(Program {
            kinds: kinds.to_vec(),
            looks,
            rest,
            kind,
            schema: planner.schema(),
            cells: vec![None; kinds.len()],
            zeros,
            room: WINDOW_SAMPLES_MAX / windows.max(1),
            span_ns: self.span_ns(),
        })
    }

    /// Replaces placeholders in a planner message by the names of channels and functions.
    fn in_words(&self, message: &str) -> String {
        let mut text = message.to_owned();
        for (at, spec) in self.looks.iter().enumerate().rev() {
            text = text
                .replace(&format!("\"w{at}\""), &format!("{}(…)", spec.name))
                .replace(&format!("w{at}"), &spec.name);
        }
        for (at, channel) in self.channels().iter().enumerate().rev() {
            text = text.replace(&format!("\"c{at}\""), &format!("\"{}\"", channel.name));
        }
        text
    }
}

impl Program {
    /// Returns how far it looks back, in nanoseconds, as far as that is bounded.
    pub fn span_ns(&self) -> i64 {
        self.span_ns
    }

    /// Returns the type of its results.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Sets a channel's value before the first moment, with its time.
    pub fn begin(&mut self, channel: usize, cell: Cell, time: i64) {
        self.cells[channel] = Some((cell, time));
    }

    /// Evaluates moments and appends a result to `results` for each trigger.
    pub fn evaluate(&mut self, moments: &[Moment], results: &mut Vec<Outcome>) -> Troubles {
        let mut troubles = Troubles::default();
        for batch in moments.chunks(BATCH_MOMENTS) {
            self.zeros.store(0, Relaxed);
            self.evaluate_batch(batch, results, &mut troubles);
            troubles.zero_divisors += self.zeros.load(Relaxed);
        }
        troubles
    }

    fn evaluate_batch(&mut self, moments: &[Moment], results: &mut Vec<Outcome>, troubles: &mut Troubles) {
        let (channels, len) = (self.kinds.len(), moments.len());
        // For each channel, its value at each moment: from a moment, or from before all of them.
        let mut newest: Vec<Vec<Option<(&Cell, i64)>>> = Vec::with_capacity(channels);
        let mut touched = vec![vec![false; len]; channels];
        let before = std::mem::take(&mut self.cells);
        for cell in &before {
            newest.push(vec![cell.as_ref().map(|(cell, time)| (cell, *time)); len]);
        }
        for (row, moment) in moments.iter().enumerate() {
            for (channel, cell) in &moment.cells {
                newest[*channel][row] = Some((cell, moment.time));
                touched[*channel][row] = true;
            }
        }
        for (channel, newest) in newest.iter_mut().enumerate() {
            for row in 1..len {
                if !touched[channel][row] {
                    newest[row] = newest[row - 1];
                }
            }
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (kind, cells) in self.kinds.iter().zip(&newest) {
            columns.push(column(*kind, cells.iter().map(|cell| cell.map(|(cell, _)| cell))));
        }
        for at in &mut self.looks {
            if let LookBack::AsOf { span_ns } = at.look {
                let (channel, kind) = (at.channels[0], self.kinds[at.channels[0]]);
                let fresh = newest[channel].iter().zip(moments).map(|(cell, moment)| {
                    let cell = cell.filter(|(_, time)| moment.time.saturating_sub(*time) <= span_ns);
                    cell.map(|(cell, _)| cell)
                });
                columns.push(column(kind, fresh));
                continue;
            }
            let rows: Vec<u32> = (0..len as u32)
                .filter(|row| at.channels.iter().any(|channel| touched[*channel][*row as usize]))
                .collect();
            let samples = numbers(&at.argument.evaluate(&self.schema, &columns, &rows, troubles));
            let mut values: Vec<Option<f64>> = Vec::with_capacity(len);
            let (mut next, mut fresh) = (0, true);
            let mut value = None;
            for (row, moment) in moments.iter().enumerate() {
                let is_sampled = rows.get(next) == Some(&(row as u32));
                if is_sampled {
                    if let Some(sample) = samples[next].filter(|sample| !sample.is_nan()) {
                        troubles.left_out += at.memory.sample(&at.look, self.room, moment.time, sample);
                        fresh = true;
                    }
                    next += 1;
                }
                // Summing a window takes time, so do it only when the value is needed.
                if fresh && (moment.is_trigger || at.is_used && is_sampled) {
                    (value, fresh) = (at.memory.value(&at.look), false);
                }
                values.push(value);
            }
            columns.push(match at.look {
                LookBack::Hysteresis { .. } => {
                    Arc::new(BooleanArray::from_iter(values.iter().map(|v| v.map(|v| v != 0.0))))
                }
                _ => Arc::new(Float64Array::from_iter(values.iter().map(|v| v.map(Float::with_one_nan)))) as ArrayRef,
            });
        }
        let triggers: Vec<u32> = (0..len as u32).filter(|row| moments[*row as usize].is_trigger).collect();
        if !triggers.is_empty() {
            let found = self.rest.evaluate(&self.schema, &columns, &triggers, troubles);
            results.extend(outcomes(self.kind, &found));
        }
        self.cells = newest.iter().map(|cells| cells.last()?.map(|(cell, time)| (cell.clone(), time))).collect();
    }

    /// Serializes the state for [`Program::resume`]: values of channels and samples of windows.
    pub fn memory(&self) -> Vec<u8> {
        let mut out = vec![MEMORY_VERSION];
        for cell in &self.cells {
            match cell {
                None => out.push(0),
                Some((cell, time)) => {
                    let (tag, bits) = match cell {
                        Cell::Bool(value) => (1, u64::from(*value)),
                        Cell::I64(value) => (2, *value as u64),
                        Cell::U64(value) => (3, *value),
                        Cell::F64(value) => (4, value.to_bits()),
                        Cell::Text(text) => (5, text.len() as u64),
                    };
                    out.push(tag);
                    out.extend(time.to_le_bytes());
                    out.extend(bits.to_le_bytes());
                    if let Cell::Text(text) = cell {
                        out.extend(text.as_bytes());
                    }
                }
            }
        }
        for At { memory, .. } in &self.looks {
            out.push(u8::from(memory.last.is_some()) | u8::from(memory.value.is_some()) << 1);
            let (time, last) = memory.last.unwrap_or_default();
            out.extend(time.to_le_bytes());
            for number in [last, memory.value.unwrap_or_default(), memory.lost] {
                out.extend(number.to_bits().to_le_bytes());
            }
            out.extend((memory.window.len() as u32).to_le_bytes());
            for (time, value) in &memory.window {
                out.extend(time.to_le_bytes());
                out.extend(value.to_bits().to_le_bytes());
            }
        }
        out
    }

    /// Restores the state from [`Program::memory`] of the same expression. Returns `false` and changes nothing if the
    /// bytes are not such a state.
    pub fn resume(&mut self, memory: &[u8]) -> bool {
        let Some((cells, memories)) = self.read(memory) else { return false };
        self.cells = cells;
        for (at, memory) in self.looks.iter_mut().zip(memories) {
            at.memory = memory;
        }
        true
    }

    fn read(&self, memory: &[u8]) -> Option<(Vec<NewestValue>, Vec<Memory>)> {
        let mut rest = memory;
        let byte = |rest: &mut &[u8]| rest.split_off_first().copied();
        let word = |rest: &mut &[u8]| Some(u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?));
        if byte(&mut rest)? != MEMORY_VERSION {
            return None;
        }
        let mut cells = Vec::with_capacity(self.kinds.len());
        for kind in &self.kinds {
            let tag = byte(&mut rest)?;
            if tag == 0 {
                cells.push(None);
                continue;
            }
            let (time, bits) = (word(&mut rest)? as i64, word(&mut rest)?);
            let cell = match (tag, kind) {
                (1, Kind::Bool) => Cell::Bool(bits != 0),
                (2, Kind::I64) => Cell::I64(bits as i64),
                (3, Kind::U64) => Cell::U64(bits),
                (4, Kind::F64) => Cell::F64(f64::from_bits(bits)),
                (5, Kind::Text) => {
                    let bytes = rest.split_off(..usize::try_from(bits).ok()?)?;
                    Cell::Text(std::str::from_utf8(bytes).ok()?.into())
                }
                _ => return None,
            };
            cells.push(Some((cell, time)));
        }
        let mut memories = Vec::with_capacity(self.looks.len());
        for _ in &self.looks {
            let flags = byte(&mut rest)?;
            let time = word(&mut rest)? as i64;
            let [last, value, lost] = [word(&mut rest)?, word(&mut rest)?, word(&mut rest)?].map(f64::from_bits);
            let count = u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?) as usize;
            if count > self.room {
                return None;
            }
            let mut window = std::collections::VecDeque::with_capacity(count);
            for _ in 0..count {
                window.push_back((word(&mut rest)? as i64, f64::from_bits(word(&mut rest)?)));
            }
            memories.push(Memory {
                last: (flags & 1 != 0).then_some((time, last)),
                value: (flags & 2 != 0).then_some(value),
                lost,
                window,
            });
        }
        rest.is_empty().then_some((cells, memories))
    }
}

impl Scalar {
    /// Evaluates the part at some rows of the columns so far. If evaluation fails, each row is tried separately, and
    /// only those that fail are null.
    fn evaluate(&self, schema: &SchemaRef, columns: &[ArrayRef], rows: &[u32], troubles: &mut Troubles) -> ArrayRef {
        let evaluated = (|| {
            let fields: Vec<Field> =
                schema.fields()[..columns.len()].iter().map(|field| field.as_ref().clone()).collect();
            let options = RecordBatchOptions::new().with_row_count(columns.first().map(|column| column.len()));
            let whole = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns.to_vec(), &options)?;
            let batch = take_record_batch(&whole, &UInt32Array::from(rows.to_vec()))?;
            let physical = match self {
                Scalar::Column(at) => return Ok(batch.column(*at).clone()),
                Scalar::Physical(physical) => physical,
            };
            let of = |batch: &RecordBatch| physical.evaluate(batch)?.into_array(batch.num_rows());
            if let Ok(values) = of(&batch) {
                return Ok(values);
            }
            let data_type = physical.data_type(batch.schema_ref())?;
            let mut pieces: Vec<ArrayRef> = Vec::with_capacity(rows.len());
            for row in 0..rows.len() {
                pieces.push(of(&batch.slice(row, 1)).unwrap_or_else(|error| {
                    troubles.fail(error);
                    datafusion::arrow::array::new_null_array(&data_type, 1)
                }));
            }
            let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
            Ok(datafusion::arrow::compute::concat(&pieces)?)
        })();
        evaluated.unwrap_or_else(|error: DataFusionError| {
            troubles.fail(error);
            datafusion::arrow::array::new_null_array(&DataType::Null, rows.len())
        })
    }
}

/// Builds a column of cells.
fn column<'a>(kind: Kind, cells: impl Iterator<Item = Option<&'a Cell>>) -> ArrayRef {
    macro_rules! array {
        ($array:ty, $variant:ident) => {
            Arc::new(<$array>::from_iter(cells.map(|cell| match cell {
                Some(Cell::$variant(value)) => Some(*value),
                _ => None,
            })))
        };
    }
    match kind {
        Kind::Bool => array!(BooleanArray, Bool),
        Kind::I64 => array!(Int64Array, I64),
        Kind::U64 => array!(UInt64Array, U64),
        Kind::F64 => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
            Some(Cell::F64(value)) => Some(value.with_one_nan()),
            _ => None,
        }))),
        Kind::Text => Arc::new(StringArray::from_iter(cells.map(|cell| match cell {
            Some(Cell::Text(text)) => Some(&**text),
            _ => None,
        }))),
    }
}

fn numbers(values: &ArrayRef) -> Vec<Option<f64>> {
    match cast(values, &DataType::Float64) {
        Ok(values) => values.as_primitive::<Float64Type>().iter().collect(),
        Err(_) => vec![None; values.len()],
    }
}

fn outcomes(kind: Kind, values: &ArrayRef) -> Vec<Outcome> {
    let Ok(values) = cast(values, &type_of(kind)) else { return vec![None; values.len()] };
    match kind {
        Kind::Bool => values.as_boolean().iter().map(|value| value.map(Cell::Bool)).collect(),
        Kind::I64 => values.as_primitive::<Int64Type>().iter().map(|value| value.map(Cell::I64)).collect(),
        Kind::U64 => values.as_primitive::<UInt64Type>().iter().map(|value| value.map(Cell::U64)).collect(),
        Kind::F64 => values.as_primitive::<Float64Type>().iter().map(|value| value.map(Cell::F64)).collect(),
        Kind::Text => values.as_string::<i32>().iter().map(|value| value.map(Cell::text)).collect(),
    }
}

//! Table functions `latest('pattern')` and `state_at(t, 'pattern')`, and scalar functions that PostgreSQL clients
//! expect.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableType,
    TypeSignature, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use strongback_store::{Pattern, Store};

use crate::error::{QueryError, sqlstate};
use crate::functions::float::Float;
use crate::functions::large::LARGE_BYTES;
use crate::running::clock::{now_ns, statement_now_us};
use crate::running::stopped::Stopped;
use crate::sql::setting::SharedSettings;
use crate::sql::value::cast_time;
use crate::system::state::{StateRow, state};
use crate::system::tables::{int8, micros, text};
use crate::system::{SystemRows, rows_read};
use crate::table::column::{UTC, timestamp_type};
use crate::table::{PinnedView, planned};

/// Maximum time by which a source clock may run ahead for its frames to be included in `latest`.
pub(crate) const LATEST_AHEAD_NS: i64 = 86_400_000_000_000;

/// The table function `latest('pattern')` or `state_at(t, 'pattern')`.
pub(crate) struct StateFunction {
    /// Whether it takes a time.
    pub(crate) timed: bool,
    pub(crate) store: Store,
    pub(crate) system: Arc<dyn SystemRows>,
}

impl fmt::Debug for StateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.timed { "state_at" } else { "latest" })
    }
}

impl TableFunctionImpl for StateFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (time, pattern) = match (self.timed, args.exprs()) {
            (true, [time, pattern]) => (Some(time), pattern),
            (false, [pattern]) => (None, pattern),
            (true, _) => {
                return plan_err!("state_at takes a time and a channel pattern: function state_at(t, 'pattern')");
            }
            (false, _) => return plan_err!("latest takes a channel pattern: function latest('pattern')"),
        };
        let arguments = match (time, pattern) {
            // A statement that is only being described has no parameter values yet.
            (_, Expr::Literal(value, _)) if value.is_null() => None,
            (Some(Expr::Literal(value, _)), _) if value.is_null() => None,
            (time, Expr::Literal(pattern, _)) => {
                let Some(Some(pattern)) = pattern.try_as_str() else {
                    return plan_err!("the channel pattern of a table function must be text, its type is not");
                };
                let pattern = Pattern::parse(pattern).map_err(|e| QueryError::from(e).into_datafusion())?;
                let time_ns = time.map(literal_time_ns).transpose()?;
                Some((time_ns, pattern))
            }
            _ => {
                return plan_err!(
                    "the arguments of a table function must be constants, parameters or queries in brackets"
                );
            }
        };
        Ok(Arc::new(StateTable {
            arguments,
            store: self.store.clone(),
            system: self.system.clone(),
            schema: state_schema(),
        }))
    }
}

fn literal_time_ns(expr: &Expr) -> Result<i64> {
    let Expr::Literal(value, _) = expr else {
        return plan_err!("the time of state_at must be a constant, a parameter, or a query in brackets");
    };
    let out_of_range =
        || QueryError::new(sqlstate::INVALID_DATETIME, format!("time {value} is out of range")).into_datafusion();
    match value {
        ScalarValue::Int64(Some(time_ns)) => Ok(*time_ns),
        ScalarValue::TimestampNanosecond(Some(time_ns), _) => Ok(*time_ns),
        other => match cast_time(other, &timestamp_type())? {
            // Includes the whole microsecond: a time read from SQL is floored, and its frame must be included.
            ScalarValue::TimestampMicrosecond(Some(time_us), _) => {
                time_us.checked_mul(1_000).and_then(|t| t.checked_add(999)).ok_or_else(out_of_range)
            }
            _ => Err(out_of_range()),
        },
    }
}

fn state_schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        field("channel", DataType::Utf8),
        field("value", DataType::Utf8),
        field("number", DataType::Float64),
        field("unit", DataType::Utf8),
        field("time", timestamp_type()),
        field("time_ns", DataType::Int64),
        field("receive_time", timestamp_type()),
        field("receive_time_ns", DataType::Int64),
        field("age", DataType::Interval(IntervalUnit::MonthDayNano)),
        field("age_ns", DataType::Int64),
        field("status", DataType::Utf8),
    ]))
}

/// Rows of a state function, read when the query runs.
pub(crate) struct StateTable {
    /// Time (`None` for now) and pattern; `None` if the statement's parameters have no values.
    arguments: Option<(Option<i64>, Pattern)>,
    store: Store,
    system: Arc<dyn SystemRows>,
    schema: SchemaRef,
}

impl fmt::Debug for StateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateTable").field("arguments", &self.arguments).finish()
    }
}

impl TableProvider for StateTable {
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
        planned(self.plan_scan(session, projection))
    }
}

impl StateTable {
    fn plan_scan(&self, session: &dyn Session, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = || match &self.arguments {
            None => Ok(Vec::new()),
            Some((time_ns, pattern)) => {
                let view = match session.config().get_extension::<PinnedView>() {
                    Some(pinned) => pinned.0.clone(),
                    None => self.store.view(),
                };
                let at = time_ns.unwrap_or_else(now_ns);
                let until = if time_ns.is_some() { at } else { at.saturating_add(LATEST_AHEAD_NS) };
                let stopped = Stopped::of(session.config_options());
                let has_left = || stopped.check().is_err();
                state(&view, self.system.as_ref(), (until, at), std::slice::from_ref(pattern), &has_left)
                    .map_err(QueryError::into_datafusion)
            }
        };
        let name = match &self.arguments {
            Some((Some(time_ns), pattern)) => format!("state_at({time_ns}, '{}')", pattern.as_str()),
            Some((None, pattern)) => format!("latest('{}')", pattern.as_str()),
            None => "latest".to_owned(),
        };
        rows_read::scan(session, name, (&self.schema, projection), || Ok(state_columns(&rows()?)))
    }
}

fn state_columns(rows: &[StateRow]) -> Vec<ArrayRef> {
    let age = |r: &StateRow| r.age_ns.map(|age_ns| IntervalMonthDayNano::new(0, 0, age_ns));
    vec![
        text(rows.iter().map(StateRow::name)),
        Arc::new(StringArray::from_iter(rows.iter().map(StateRow::text))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.number().map(Float::with_one_nan)))),
        text(rows.iter().map(|r| r.stream.layout.channel(r.channel).unit.as_str())),
        micros(rows.iter().map(|r| r.time_ns)),
        int8(rows.iter().map(|r| r.time_ns)),
        micros(rows.iter().map(|r| r.receive_time_ns)),
        int8(rows.iter().map(|r| r.receive_time_ns)),
        Arc::new(IntervalMonthDayNanoArray::from_iter(rows.iter().map(age))),
        int8(rows.iter().map(|r| r.age_ns)),
        text(rows.iter().map(|r| r.status.name())),
    ]
}

/// The function `now()`: the start of the query in microseconds, as in PostgreSQL, so that results of arithmetic with
/// it compare with `time` without conversion.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Now {
    signature: Signature,
    aliases: Vec<String>,
}

impl Now {
    pub(crate) fn new() -> Self {
        let aliases = ["current_timestamp", "transaction_timestamp", "statement_timestamp", "localtimestamp"];
        Now { signature: Signature::nullary(Volatility::Stable), aliases: aliases.map(str::to_owned).to_vec() }
    }
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(timestamp_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new("now", timestamp_type(), false)))
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(start) = context.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let value = ScalarValue::TimestampMicrosecond(Some(start.timestamp_micros()), Some(UTC.into()));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = ScalarValue::TimestampMicrosecond(Some(statement_now_us()), Some(UTC.into()));
        Ok(ColumnarValue::Scalar(value))
    }
}

/// The function `current_setting(name [, missing_ok])` of one session.
#[derive(Debug)]
pub(crate) struct CurrentSetting {
    signature: Signature,
    settings: SharedSettings,
}

impl CurrentSetting {
    pub(crate) fn new(settings: SharedSettings) -> Self {
        let signature = Signature::one_of(
            vec![
                TypeSignature::Exact(vec![DataType::Utf8]),
                TypeSignature::Exact(vec![DataType::Utf8, DataType::Boolean]),
            ],
            Volatility::Volatile,
        );
        CurrentSetting { signature, settings }
    }

    fn value(&self, name: &str, missing_ok: bool) -> Result<Option<String>> {
        match self.settings.lock().get(name) {
            None if !missing_ok => {
                let text = format!("unrecognized configuration parameter \"{name}\"");
                Err(QueryError::new(sqlstate::UNDEFINED_OBJECT, text).into_datafusion())
            }
            value => Ok(value),
        }
    }
}

impl PartialEq for CurrentSetting {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings)
    }
}
impl Eq for CurrentSetting {}
impl std::hash::Hash for CurrentSetting {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.settings).hash(state);
    }
}

impl ScalarUDFImpl for CurrentSetting {
    fn name(&self) -> &str {
        "current_setting"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let missing_ok = match args.args.get(1) {
            Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(ok)))) => *ok,
            _ => false,
        };
        let names = match &args.args[0] {
            ColumnarValue::Scalar(name) => {
                let name = name.try_as_str().flatten();
                let value = name.map(|name| self.value(name, missing_ok)).transpose()?.flatten();
                return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value)));
            }
            ColumnarValue::Array(names) => names,
        };
        let mut values = StringBuilder::new();
        for name in names.as_string::<i32>() {
            let value = name.map(|name| self.value(name, missing_ok)).transpose()?.flatten();
            values.append_option(value);
            if values.values_slice().len() > LARGE_BYTES {
                let text =
                    format!("current_setting: the settings of a batch of rows take more than {LARGE_BYTES} bytes");
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion());
            }
        }
        Ok(ColumnarValue::Array(Arc::new(values.finish())))
    }

    /// Folds to a constant, so that its size is counted where it is copied into rows.
    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let value = match args.as_slice() {
            [Expr::Literal(name, _)] => name.try_as_str().flatten().and_then(|name| self.settings.lock().get(name)),
            _ => None,
        };
        Ok(match value {
            Some(value) => ExprSimplifyResult::Simplified(Expr::Literal(ScalarValue::Utf8(Some(value)), None)),
            None => ExprSimplifyResult::Original(args),
        })
    }
}

/// A function that always returns the same value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Constant {
    name: String,
    aliases: Vec<String>,
    signature: Signature,
    value: ScalarValue,
}

impl Constant {
    /// Creates a function without arguments.
    pub(crate) fn of_none(name: &str, aliases: &[&str], value: ScalarValue) -> ScalarUDF {
        Self::with_signature(name, aliases, Signature::nullary(Volatility::Stable), value)
    }

    /// Creates a function with any arguments.
    pub(crate) fn of_any(name: &str, value: ScalarValue) -> ScalarUDF {
        let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        Self::with_signature(name, &[], Signature::one_of(any, Volatility::Stable), value)
    }

    fn with_signature(name: &str, aliases: &[&str], signature: Signature, value: ScalarValue) -> ScalarUDF {
        let aliases = aliases.iter().map(|a| (*a).to_owned()).collect();
        ScalarUDF::from(Constant { name: name.to_owned(), aliases, signature, value })
    }
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

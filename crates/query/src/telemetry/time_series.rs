//! `generate_series` of times, as PostgreSQL has it. DataFusion has it of integers, and of times in nanoseconds.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use strongback_store::Store;

use crate::error::{QueryError, sqlstate};
use crate::sql::value::cast_time;
use crate::table::column::UTC;
use crate::telemetry::scan::{Call, CallTable, Open, Opening, Reader, Step, schema};

/// Name of the function.
pub(crate) const NAME: &str = "generate_series";
/// Name of its column, as DataFusion has it.
const COLUMN: &str = "value";

/// The function, which passes calls on that are not of times.
pub(crate) struct SeriesFunction {
    pub(crate) of_others: Arc<dyn TableFunctionImpl>,
    pub(crate) store: Store,
}

impl fmt::Debug for SeriesFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl TableFunctionImpl for SeriesFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let [Expr::Literal(from, _), Expr::Literal(to, _), Expr::Literal(step, _)] = args.exprs() else {
            return self.of_others.call_with_args(args);
        };
        let kind = match from.data_type() {
            DataType::Timestamp(_, None) | DataType::Date32 => DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            // A text, or a parameter without a value yet.
            DataType::Null | DataType::Utf8 if matches!(step.data_type(), DataType::Interval(_)) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
            }
            _ => return self.of_others.call_with_args(args),
        };
        let series = Series::of(from, to, step, &kind).map_err(QueryError::into_datafusion)?;
        let schema = schema([(COLUMN, kind.clone())]);
        let open = move |opening| -> Result<Box<dyn Reader>, QueryError> {
            Ok(Box::new(SeriesReader { opening, kind: kind.clone(), series: series.clone() }))
        };
        let open: Box<Open> = Box::new(open);
        let call = Call { schema, ascending: &[], open: Ok(open) };
        Ok(Arc::new(CallTable::new(NAME, call, self.store.clone())))
    }
}

/// What is left of a series of times in microseconds; `None` if it has ended.
#[derive(Clone, Debug)]
struct Series {
    next: Option<i64>,
    to: i64,
    step: IntervalMonthDayNano,
    ascends: bool,
}

impl Series {
    fn of(from: &ScalarValue, to: &ScalarValue, step: &ScalarValue, kind: &DataType) -> Result<Series, QueryError> {
        let time = |value: &ScalarValue| -> Result<Option<i64>, QueryError> {
            match cast_time(value, kind)? {
                ScalarValue::TimestampMicrosecond(time, _) => Ok(time),
                _ => Ok(None),
            }
        };
        let interval = step.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano));
        let (Some(from), Some(to), Ok(ScalarValue::IntervalMonthDayNano(Some(step)))) =
            (time(from)?, time(to)?, interval)
        else {
            if from.is_null() || to.is_null() || step.is_null() {
                return Ok(Series { next: None, to: 0, step: IntervalMonthDayNano::new(0, 0, 0), ascends: true });
            }
            let text = format!("the step of {NAME} must be an interval");
            return Err(QueryError::new(sqlstate::INVALID_PARAMETER, text));
        };
        // Of what is left of a microsecond nothing is added.
        let step = IntervalMonthDayNano::new(step.months, step.days, step.nanoseconds / 1_000 * 1_000);
        let second = after(from, step).ok_or_else(out_of_range)?;
        if second == from {
            return Err(QueryError::new(sqlstate::INVALID_PARAMETER, "step size cannot equal zero"));
        }
        let ascends = second > from;
        Ok(Series { next: Some(from), to, step, ascends }.within())
    }

    fn within(mut self) -> Series {
        let (to, ascends) = (self.to, self.ascends);
        self.next = self.next.filter(|next| if ascends { *next <= to } else { *next >= to });
        self
    }
}

/// Returns the time an interval later.
fn after(time_us: i64, step: IntervalMonthDayNano) -> Option<i64> {
    let utc: Tz = UTC.parse().ok()?;
    TimestampMicrosecondType::add_month_day_nano(time_us, step, utc)
}

fn out_of_range() -> QueryError {
    QueryError::new(sqlstate::DATETIME_OVERFLOW, "timestamp out of range")
}

struct SeriesReader {
    opening: Opening,
    kind: DataType,
    series: Series,
}

impl Reader for SeriesReader {
    fn step(&mut self) -> Result<Step, QueryError> {
        self.opening.check()?;
        let mut times = Vec::new();
        while times.len() < self.opening.batch_rows
            && let Some(time) = self.series.next
        {
            times.push(time);
            self.series.next = after(time, self.series.step);
            self.series = self.series.clone().within();
        }
        if times.is_empty() {
            return Ok(Step::End);
        }
        let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times).with_data_type(self.kind.clone()));
        Ok(Step::Rows(vec![array]))
    }
}

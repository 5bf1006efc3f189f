//! Table functions for telemetry: `resample`, `asof`, `states` and others, which read the store themselves.
//!
//! ```text
//! arguments ─> Call: columns, and how to open its reader ─> CallTable ─> CallScan ─> batches, step by step
//! ```
//! A call is resolved when a statement is planned: its channels, and with them its columns, are those of the catalog.
//! A reader reads the view of the running statement. What each function returns is defined in
//! `docs/sql-telemetry.md`.

mod arguments;
mod crossings;
mod frames;
mod grid;
mod histogram;
mod lockstep;
mod marks;
mod number;
pub(crate) mod scan;
mod series;
mod spans;
mod summary;
mod threads;
pub(crate) mod time_series;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;
use strongback_store::Store;

use crate::error::{QueryError, nearest};
use crate::system::SystemRows;
use crate::system::listed_functions::{TABLE_FUNCTIONS, name_of};
use crate::table::column::timestamp_type;
use crate::telemetry::arguments::Arguments;
use crate::telemetry::scan::{Call, CallTable};

/// A function for telemetry, in the order of [`TABLE_FUNCTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Samples,
    Resample,
    ResampleRuns,
    Asof,
    Summary,
    States,
    Intervals,
    Crossings,
    Histogram,
    Correlation,
    Spectrum,
    Marks,
}

/// All of them.
pub(crate) const FUNCTIONS: [Function; 12] = [
    Function::Samples,
    Function::Resample,
    Function::ResampleRuns,
    Function::Asof,
    Function::Summary,
    Function::States,
    Function::Intervals,
    Function::Crossings,
    Function::Histogram,
    Function::Correlation,
    Function::Spectrum,
    Function::Marks,
];

impl Function {
    /// Returns the call with the names of its arguments.
    fn usage(self) -> &'static str {
        TABLE_FUNCTIONS[self as usize]
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        name_of(self.usage())
    }
}

/// Returns the type with which a parameter of a function is announced, if it is one of these.
pub(crate) fn parameter_type(function: &str, position: usize) -> Option<DataType> {
    let function = FUNCTIONS.iter().find(|known| known.name() == function)?;
    let is_time = match function {
        Function::ResampleRuns => false,
        Function::Asof | Function::Crossings | Function::Correlation => (2..=3).contains(&position),
        _ => (1..=2).contains(&position),
    };
    Some(match (function, position) {
        _ if is_time => timestamp_type(),
        (Function::Crossings, 1) | (Function::Histogram, 4..=5) => DataType::Float64,
        (Function::Histogram, 3) | (Function::Spectrum, 4) => DataType::Int64,
        _ => DataType::Utf8,
    })
}

/// Adds to an error about an unknown function what was probably meant.
pub(crate) fn with_meant(error: QueryError) -> QueryError {
    let usage = |name: &str| FUNCTIONS.iter().find(|known| known.name() == name).map(|known| known.usage());
    let quoted = |rest: &str| rest.split_once('\'').map(|(name, _)| name.to_lowercase());
    if let Some(name) = error.message.strip_prefix("table function '").and_then(quoted) {
        let meant = nearest(&name, FUNCTIONS.iter().map(|known| known.name())).and_then(usage);
        return match meant {
            Some(usage) => error.with_hint(format!("Did you mean {usage}?")),
            None => error,
        };
    }
    let Some(name) = error.message.strip_prefix("Invalid function '").and_then(quoted) else { return error };
    if let Some(usage) = usage(&name) {
        let text = format!("{name} is a table function");
        return QueryError::new(error.sqlstate, text)
            .with_hint(format!("Write it behind FROM: select * from {usage}."));
    }
    // The planner suggests its nearest function, however far that is.
    let suggested = error.message.split_once("Did you mean '").and_then(|(_, rest)| quoted(rest));
    let is_far = |other: &String| strsim::damerau_levenshtein(&name, other) > 1.max(name.chars().count() / 3);
    match suggested.filter(is_far) {
        Some(_) => QueryError::new(error.sqlstate, format!("Invalid function '{name}'.")),
        None => error,
    }
}

/// A function as the planner calls it.
pub(crate) struct TelemetryFunction {
    pub(crate) function: Function,
    pub(crate) store: Store,
    pub(crate) system: Arc<dyn SystemRows>,
}

impl fmt::Debug for TelemetryFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name())
    }
}

impl TelemetryFunction {
    fn call(&self, args: &TableFunctionArgs) -> Result<Call, QueryError> {
        let arguments = Arguments::new(self.function.usage(), args.exprs(), &self.store)?;
        let call = match self.function {
            Function::Samples => frames::samples(&arguments),
            Function::Resample => grid::resample(&arguments)?,
            Function::ResampleRuns => grid::resample_runs(&arguments, &self.system)?,
            Function::Asof => frames::asof(&arguments)?,
            Function::Summary => summary::summary(&arguments),
            Function::States => spans::states(&arguments),
            Function::Intervals => spans::intervals(&arguments, &self.store.view()),
            Function::Crossings => crossings::crossings(&arguments),
            Function::Histogram => histogram::histogram(&arguments),
            Function::Correlation => series::correlation(&arguments),
            Function::Spectrum => series::spectrum(&arguments),
            Function::Marks => marks::marks(&arguments, &self.system),
        };
        match call.open {
            // While a statement is only described, its parameters are NULL. Run with them, it fails.
            Err(error) if error.sqlstate != crate::error::sqlstate::NULL_NOT_ALLOWED => Err(error),
            _ => Ok(call),
        }
    }
}

impl TableFunctionImpl for TelemetryFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let call = self.call(&args).map_err(QueryError::into_datafusion)?;
        Ok(Arc::new(CallTable::new(self.function.name(), call, self.store.clone())))
    }
}

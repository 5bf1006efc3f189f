//! Table functions as `pg_proc` lists them, so that clients find them.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float32Array, Int16Array, Int32Array, RecordBatch, StringArray, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use pgwire::api::Type;

/// Calls of all table functions, with the names of their arguments; those behind a square bracket may be left out.
pub(crate) const TABLE_FUNCTIONS: [&str; 14] = [
    "samples(channels, from, to)",
    "resample(channels, from, to, step, method [, tolerance])",
    "resample_runs(channels, runs, from, to, step, method [, tolerance])",
    "asof(channels, others, from, to [, tolerance])",
    "summary(channels, from, to [, step, tolerance])",
    "states(channels, from, to [, tolerance])",
    "intervals(condition, from, to [, tolerance])",
    "crossings(channels, level, from, to [, tolerance])",
    "histogram(channels, from, to, bins [, low, high])",
    "correlation(channel, other, from, to, step, lag_max [, tolerance])",
    "spectrum(channels, from, to, step [, segment, tolerance])",
    "marks(channels, from, to)",
    "latest(pattern)",
    "state_at(time, pattern)",
];

/// Number of the first of them. PostgreSQL gives numbers from 16384 on to functions of users.
const FIRST_OID: i32 = 70_000;
/// Number of the role that owns everything in the catalog.
const OWNER_OID: i32 = 10;
/// Number of the language of internal functions.
const INTERNAL_OID: i32 = 12;

/// Returns the name of a function from its call.
pub(crate) fn name_of(call: &str) -> &str {
    call.split_once('(').map_or(call, |(name, _)| name)
}

/// Returns the names of the arguments of a function from its call.
pub(crate) fn names_of(call: &str) -> impl Iterator<Item = &str> {
    let names = call.split_once('(').map_or("", |(_, names)| names);
    names.split([',', '[', ']', ')', ' ']).filter(|name| !name.is_empty())
}

/// Returns how many arguments must be there.
pub(crate) fn required(call: &str) -> usize {
    names_of(call.split('[').next().unwrap_or(call)).count()
}

fn type_of(call: &str, argument: &str) -> Type {
    match argument {
        "from" | "to" if name_of(call) == "resample_runs" => Type::INTERVAL,
        "from" | "to" | "time" => Type::TIMESTAMPTZ,
        "step" | "tolerance" | "lag_max" => Type::INTERVAL,
        "level" | "low" | "high" => Type::FLOAT8,
        "bins" | "segment" => Type::INT8,
        _ => Type::TEXT,
    }
}

/// Returns the arguments of a function as `pg_get_function_arguments` does.
fn arguments(call: &str) -> String {
    let required = required(call);
    let argument = |(at, name): (usize, &str)| {
        let kind = match type_of(call, name) {
            Type::TIMESTAMPTZ => "timestamp with time zone",
            Type::INTERVAL => "interval",
            Type::FLOAT8 => "double precision",
            Type::INT8 => "bigint",
            _ => "text",
        };
        let name = if matches!(name, "from" | "to") { format!("\"{name}\"") } else { name.to_owned() };
        format!("{name} {kind}{}", if at < required { "" } else { " DEFAULT NULL" })
    };
    names_of(call).enumerate().map(argument).collect::<Vec<_>>().join(", ")
}

/// Returns the rows of the functions for a table with the columns of `pg_proc`. Their namespace is NULL.
///
/// # Errors
/// If a column has a type that has no such value.
pub(crate) fn rows(schema: &SchemaRef) -> Result<RecordBatch> {
    let count = TABLE_FUNCTIONS.len();
    let texts = |of: &dyn Fn(&str) -> String| -> ArrayRef {
        Arc::new(TABLE_FUNCTIONS.iter().map(|call| Some(of(call))).collect::<StringArray>())
    };
    let text = |value: &str| texts(&|_| value.to_owned());
    let numbers = |of: &dyn Fn(usize) -> i32| -> ArrayRef { Arc::new((0..count).map(of).collect::<Int32Array>()) };
    let types = |call: &str| names_of(call).map(|name| type_of(call, name).oid().to_string()).collect::<Vec<_>>();
    let column = |name: &str, kind: &DataType| -> ArrayRef {
        match name {
            "oid" => numbers(&|at| FIRST_OID + at as i32),
            "proname" | "prosrc" => texts(&|call| name_of(call).to_owned()),
            "proowner" => numbers(&|_| OWNER_OID),
            "prolang" => numbers(&|_| INTERNAL_OID),
            "prorows" => Arc::new(Float32Array::from(vec![1_000.0; count])),
            "prokind" => text("f"),
            "provolatile" | "proparallel" => text("s"),
            "prosupport" => text("-"),
            "proretset" => Arc::new(BooleanArray::from(vec![true; count])),
            "pronargs" => numbers(&|at| names_of(TABLE_FUNCTIONS[at]).count() as i32),
            "pronargdefaults" => {
                numbers(&|at| (names_of(TABLE_FUNCTIONS[at]).count() - required(TABLE_FUNCTIONS[at])) as i32)
            }
            "prorettype" => numbers(&|_| Type::RECORD.oid() as i32),
            "proargtypes" => texts(&|call| types(call).join(" ")),
            "proargnames" => texts(&|call| format!("{{{}}}", names_of(call).collect::<Vec<_>>().join(","))),
            _ => match kind {
                DataType::Boolean => Arc::new(BooleanArray::from(vec![false; count])),
                DataType::Float32 => Arc::new(Float32Array::from(vec![1.0; count])),
                DataType::Int16 => Arc::new(Int16Array::from(vec![0; count])),
                DataType::Int32 => numbers(&|_| 0),
                kind => new_null_array(kind, count),
            },
        }
    };
    let fields = schema.fields().iter();
    let columns = fields.map(|field| cast(&column(field.name(), field.data_type()), field.data_type()));
    Ok(RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)?)
}

/// Functions about a function of the catalog, given by its number.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct FunctionText {
    name: &'static str,
    signature: Signature,
}

impl FunctionText {
    /// Names of the functions that return the arguments, with and without their defaults.
    pub(crate) const ARGUMENTS: [&'static str; 2] = ["pg_get_function_arguments", "pg_get_function_identity_arguments"];
    /// Name of the function that returns the type of the result.
    pub(crate) const RESULT: &'static str = "pg_get_function_result";

    pub(crate) fn new(name: &'static str) -> FunctionText {
        FunctionText { name, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for FunctionText {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let oids = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Int64)?;
        let text = |oid: Option<i64>| {
            let call = TABLE_FUNCTIONS.get(usize::try_from(oid? - i64::from(FIRST_OID)).ok()?)?;
            Some(match self.name {
                FunctionText::RESULT => "SETOF record".to_owned(),
                name if name == FunctionText::ARGUMENTS[0] => arguments(call),
                _ => arguments(call).replace(" DEFAULT NULL", ""),
            })
        };
        let texts: StringArray = oids.as_primitive::<Int64Type>().iter().map(text).collect();
        Ok(ColumnarValue::Array(Arc::new(texts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_call() {
        let of = |name: &str| arguments(TABLE_FUNCTIONS.iter().find(|call| name_of(call) == name).unwrap());
        assert_eq!(of("latest"), "pattern text");
        assert_eq!(
            of("summary"),
            "channels text, \"from\" timestamp with time zone, \"to\" timestamp with time zone, \
             step interval DEFAULT NULL, tolerance interval DEFAULT NULL"
        );
    }
}

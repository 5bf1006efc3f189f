//! Bounds the result of one call of each function whose result can be much larger than its arguments.
//!
//! A failed allocation ends the process, and functions allocate before the memory is counted. Therefore an upper bound
//! of the result's size is estimated first. If the estimate exceeds the limit, rows are processed in parts, and the
//! parts are counted.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::compute::{cast, concat, max, min};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Documentation, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::error::{QueryError, sqlstate};
use crate::functions::large::{LARGE_BYTES, LargeCalls};
use crate::functions::like::LikeFunction;
use crate::functions::pattern;
use crate::running::size::Size;
use crate::running::stopped::Stopped;
use crate::sql::constant;

/// Maximum result of one call for one batch of rows, in bytes.
const RESULT_BYTES_MAX: usize = 32 << 20;
/// Maximum result of a call with constants, which is evaluated during planning, in bytes.
const CONSTANT_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a constant list whose values become expressions.
const LISTED_MAX: usize = 10_000;
/// Overhead of a value, in bytes.
const VALUE_BYTES: usize = 24;
/// Overhead of a repeated element in bytes: its source index, twice.
const ELEMENT_BYTES: usize = 16;

/// Growth of a function's result with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// All arguments, multiplied by a constant.
    Times(usize),
    /// First argument, repeated by the second.
    Repeat,
    /// List of the first argument repeated by the second, with the source index of each element.
    RepeatElement,
    /// A text for each group of the pattern, which is the second argument.
    Captures,
    /// Second argument, in characters.
    Pad,
    /// Third argument, for each character of the first.
    Replace,
    /// First argument, between all others.
    Separator,
    /// Second argument, between the elements of the first.
    Join,
    /// Number of elements between two numbers or times.
    Range,
    /// Third argument, repeated by the second.
    Resize,
    /// A pattern for each value, whose characters expand to words.
    Format,
    /// Time rather than size: each byte of one value is compared with each of another, `at_a_time` bytes per step.
    Product { at_a_time: usize },
    /// Rest of the first argument. Also time: each of its characters is compared with each of the second.
    Trim,
    /// Time rather than size: each element of the first list is searched in the second.
    Elements,
}

/// Functions by growth.
const FUNCTIONS: [(Growth, &[&str]); 15] = [
    (
        Growth::Times(2),
        &[
            "concat",
            "make_array",
            "array_concat",
            "array_append",
            "array_prepend",
            "array_remove",
            "array_remove_n",
            "array_remove_all",
            "array_sort",
            "array_reverse",
            "array_slice",
            "array_has",
            "array_pop_back",
            "array_pop_front",
            "flatten",
            "arrays_zip",
            "overlay",
            "encode",
            "decode",
            "left",
            "right",
            "substr",
            "substr_index",
            "reverse",
            "split_part",
            "initcap",
            "quote_ident",
        ],
    ),
    (Growth::Times(4), &["upper", "lower", "translate", "to_hex", "chr"]),
    // Each element is also stored in a table, encoded as a row.
    (Growth::Times(8), &["array_union", "array_intersect", "array_except", "array_distinct"]),
    // The keys are also stored in a table, as values of any type.
    (Growth::Times(24), &["string_to_array", "map"]),
    // The list, each part of it, and a table of the parts.
    (Growth::Times(64), &["find_in_set"]),
    (Growth::Captures, &["regexp_match"]),
    (Growth::Times(0), &["regexp_like", "regexp_count", "regexp_instr"]),
    (Growth::Repeat, &["repeat"]),
    (Growth::RepeatElement, &["array_repeat"]),
    (Growth::Pad, &["lpad", "rpad"]),
    (Growth::Replace, &["replace", "regexp_replace", "array_replace", "array_replace_n", "array_replace_all"]),
    (Growth::Separator, &["concat_ws"]),
    (Growth::Join, &["array_to_string"]),
    (Growth::Range, &["range", "generate_series"]),
    (Growth::Resize, &["array_resize"]),
];
/// Further functions, whose pattern or product decides.
const MORE_FUNCTIONS: [(Growth, &[&str]); 5] = [
    (Growth::Format, &["to_char"]),
    (Growth::Product { at_a_time: 16 }, &["levenshtein"]),
    (Growth::Trim, &["btrim", "ltrim", "rtrim"]),
    // Bytes are compared 32 at a time.
    (Growth::Product { at_a_time: 512 }, &["strpos", "array_position", "array_positions"]),
    (Growth::Elements, &["array_has_any", "array_has_all"]),
];

fn growth_of(name: &str) -> Option<Growth> {
    FUNCTIONS.iter().chain(&MORE_FUNCTIONS).find(|(_, names)| names.contains(&name)).map(|(growth, _)| *growth)
}

/// Bounds all growing functions of a session, including those that planners use without a name.
///
/// # Errors
/// If a function cannot be registered.
pub(super) fn bound_functions(state: &mut SessionState, large: &LargeCalls) -> Result<()> {
    let functions: Vec<Arc<ScalarUDF>> = state.scalar_functions().values().cloned().collect();
    for function in functions {
        if let Some(bounded) = bounded(&function, large) {
            state.register_udf(bounded)?;
        }
    }
    let concatenation = Arc::new(ScalarUDF::from(Concat::new(large.clone())));
    let regexp_like = state.udf("regexp_like")?;
    state.register_function_rewrite(Arc::new(BoundFunctions { concatenation, regexp_like, large: large.clone() }))
}

/// Wraps a function in a bound, if it needs one and has none.
fn bounded(function: &Arc<ScalarUDF>, large: &LargeCalls) -> Option<Arc<ScalarUDF>> {
    let growth = growth_of(function.name())?;
    let inner: &dyn Any = function.inner().as_ref();
    if inner.is::<Bounded>() {
        return None;
    }
    Some(Arc::new(ScalarUDF::from(Bounded { inner: function.clone(), growth, large: large.clone() })))
}

/// Rewrite that substitutes bounded functions for others and for the operator `||`.
#[derive(Debug)]
struct BoundFunctions {
    concatenation: Arc<ScalarUDF>,
    regexp_like: Arc<ScalarUDF>,
    large: LargeCalls,
}

impl BoundFunctions {
    /// Merges a chain of `||` into one call. As a tree, it would be inspected again at each of its levels.
    fn concatenation(&self, left: Expr, right: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let mut args = match left {
            Expr::ScalarFunction(chain) if chain.func.name() == CONCATENATION => chain.args,
            left if is_text(&right, schema) || is_text(&left, schema) => vec![left],
            left => {
                let binary = BinaryExpr { left: Box::new(left), op: Operator::StringConcat, right: Box::new(right) };
                return Transformed::no(Expr::BinaryExpr(binary));
            }
        };
        args.push(right);
        Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: self.concatenation.clone(), args }))
    }

    /// Builds a call with bounded patterns for a text that is matched against a pattern.
    fn matched(&self, text: Expr, pattern: Expr, of_like: bool, negated: bool, ignores_case: bool) -> Expr {
        let mut args = vec![text, pattern];
        if ignores_case && !of_like {
            args.push(lit("i"));
        }
        let func = if of_like { LikeFunction::shared(ignores_case) } else { self.regexp_like.clone() };
        let found = Expr::ScalarFunction(ScalarFunction { func, args });
        if negated { Expr::Not(Box::new(found)) } else { found }
    }
}

impl FunctionRewrite for BoundFunctions {
    fn name(&self) -> &str {
        "bound_functions"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, options: &ConfigOptions) -> Result<Transformed<Expr>> {
        // Weighing a pattern takes milliseconds, and a statement may have many.
        Stopped::of(options).check()?;
        match expr {
            Expr::ScalarFunction(function) => Ok(match bounded(&function.func, &self.large) {
                Some(func) => Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: function.args })),
                None => Transformed::no(Expr::ScalarFunction(function)),
            }),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                Ok(self.concatenation(*left, *right, schema))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => Ok(match matches(op) {
                Some((of_like, negated, ignores_case)) if !is_light(&right, of_like, ignores_case) => {
                    Transformed::yes(self.matched(*left, *right, of_like, negated, ignores_case))
                }
                _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }),
            Expr::SimilarTo(like)
                if like.escape_char.is_none() && !is_light(&like.pattern, false, like.case_insensitive) =>
            {
                Ok(Transformed::yes(self.matched(
                    *like.expr,
                    *like.pattern,
                    false,
                    like.negated,
                    like.case_insensitive,
                )))
            }
            Expr::Like(like)
                if like.escape_char.is_none_or(|escape| escape == '\\')
                    && !is_light(&like.pattern, true, like.case_insensitive) =>
            {
                Ok(Transformed::yes(self.matched(*like.expr, *like.pattern, true, like.negated, like.case_insensitive)))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Reports whether a pattern is constant and cheap enough to compile for each batch of rows.
fn is_light(pattern: &Expr, of_like: bool, ignores_case: bool) -> bool {
    match pattern {
        Expr::Literal(value, _) => {
            let pattern = value.try_as_str().flatten();
            pattern.is_none_or(|pattern| !pattern::is_heavy_constant(pattern, of_like, ignores_case))
        }
        Expr::Placeholder(_) => true,
        Expr::Cast(cast) => is_light(&cast.expr, of_like, ignores_case),
        _ => false,
    }
}

/// Returns, for an operator that matches a pattern: whether it is a form of `LIKE`, is negated, and ignores case.
fn matches(op: Operator) -> Option<(bool, bool, bool)> {
    Some(match op {
        Operator::RegexMatch => (false, false, false),
        Operator::RegexIMatch => (false, false, true),
        Operator::RegexNotMatch => (false, true, false),
        Operator::RegexNotIMatch => (false, true, true),
        Operator::LikeMatch => (true, false, false),
        Operator::ILikeMatch => (true, false, true),
        Operator::NotLikeMatch => (true, true, false),
        Operator::NotILikeMatch => (true, true, true),
        _ => return None,
    })
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    let text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match expr.get_type(schema) {
        Ok(DataType::Dictionary(_, value)) => text(&value),
        Ok(kind) => text(&kind),
        Err(_) => false,
    }
}

/// Reports whether a call may become an operator: one with a constant light pattern, or with a short constant list.
fn simplifies(name: &str, args: &[Expr]) -> bool {
    match (name, args) {
        ("regexp_like", [_, constants @ ..]) if constants.iter().all(|arg| matches!(arg, Expr::Literal(..))) => {
            constants.first().is_some_and(|pattern| is_light(pattern, false, false))
        }
        ("array_has", [Expr::Literal(list, _), _]) => {
            size(&ColumnarValue::Scalar(list.clone()), 1).elements <= LISTED_MAX
        }
        _ => false,
    }
}

/// A function with a bound on its result.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    large: LargeCalls,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if simplifies(self.name(), &args) {
            self.inner.inner().simplify(args, context)
        } else {
            Ok(ExprSimplifyResult::Original(args))
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let (Growth::Pad, Some(length)) = (self.growth, args.args.get_mut(1)) {
            make_natural(length);
        }
        let call = |args| self.inner.inner().invoke_with_args(args);
        let in_parts = |args| pattern::call_in_parts(self.name(), &self.large, args, &call);
        let call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue> =
            if pattern::takes_pattern(self.name()) { &in_parts } else { &call };
        bounded_call(self.name(), self.growth, &self.large, args, call)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

/// Name of the function for `||`. No statement can call it by this name.
const CONCATENATION: &str = "||";

/// The operator `||` on texts. The result is NULL if any argument is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concat {
    signature: Signature,
    large: LargeCalls,
}

impl Concat {
    fn new(large: LargeCalls) -> Concat {
        Concat { signature: Signature::user_defined(Volatility::Immutable), large }
    }
}

impl ScalarUDFImpl for Concat {
    fn name(&self) -> &str {
        CONCATENATION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(kind) = arg_types.iter().find(|kind| kind.is_nested() || matches!(kind, DataType::Binary)) {
            return Err(DataFusionError::Plan(format!("text || {kind} is not offered: no type coercion")));
        }
        Ok(vec![DataType::Utf8; arg_types.len()])
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        bounded_call(CONCATENATION, Growth::Times(1), &self.large, args, &|args| {
            let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
            let arrays = ColumnarValue::values_to_arrays(&args.args)?;
            let texts: Vec<&StringArray> = arrays.iter().map(|array| array.as_string::<i32>()).collect();
            let rows = texts.first().map_or(0, |text| text.len());
            let bytes: usize = texts.iter().map(|text| text.value_data().len()).sum();
            let mut joined = StringBuilder::with_capacity(rows, bytes.min(RESULT_BYTES_MAX));
            let mut whole = String::new();
            for row in 0..rows {
                whole.clear();
                if texts.iter().any(|text| text.is_null(row)) {
                    joined.append_null();
                    continue;
                }
                texts.iter().for_each(|text| whole.push_str(text.value(row)));
                joined.append_value(&whole);
            }
            let joined: ArrayRef = Arc::new(joined.finish());
            Ok(if scalar {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)
            } else {
                ColumnarValue::Array(joined)
            })
        })
    }
}

/// Raises negative lengths to 0, as `rpad` treats them anyway. Otherwise `rpad` would reserve 2^64 bytes for them.
fn make_natural(length: &mut ColumnarValue) {
    match length {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(length))) => *length = (*length).max(0),
        ColumnarValue::Array(lengths) => {
            if let Some(known) = lengths.as_primitive_opt::<Int64Type>() {
                *lengths = Arc::new(known.unary::<_, Int64Type>(|length| length.max(0)));
            }
        }
        ColumnarValue::Scalar(_) => {}
    }
}

fn too_large(name: &str, bytes: usize, most: usize) -> DataFusionError {
    let text = format!("the result of {name} takes {bytes} bytes at a time, at most {most}");
    QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion()
}

/// Calls a function in parts, with as many rows at a time as its estimate allows.
fn bounded_call(
    name: &str,
    growth: Growth,
    large: &LargeCalls,
    args: ScalarFunctionArgs,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
        let one = growth.estimate(&args.args, 1)?;
        let most = CONSTANT_BYTES_MAX.min(large.bytes_max(1));
        if one > most {
            return Err(too_large(name, one, most));
        }
        constant::check_folded(name, one, args.return_field.data_type())?;
        // Some functions put constants into all rows first. Here they are measured again when that is done.
        return call(ScalarFunctionArgs { number_rows: 1, ..args }).and_then(super::constant_of);
    }
    let all = growth.estimate(&args.args, args.number_rows)?;
    if all > large.bytes_max(args.number_rows) {
        return Err(too_large(name, all, large.bytes_max(args.number_rows)));
    }
    if all <= LARGE_BYTES {
        return call(args);
    }
    let stopped = Stopped::of(&args.config_options);
    large.run(&stopped, || large_call(name, growth, large, all, args, call, &stopped))
}

/// Does the same for a call with a result that may be large, estimated at `all` bytes.
fn large_call(
    name: &str,
    growth: Growth,
    large: &LargeCalls,
    all: usize,
    args: ScalarFunctionArgs,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
    stopped: &Stopped,
) -> Result<ColumnarValue> {
    let mut room = large.room(name);
    if all <= RESULT_BYTES_MAX {
        room.resize(all)?;
        let rows = args.number_rows;
        return Ok(ColumnarValue::Array(room.keep(call(args)?.into_array(rows)?)?));
    }
    let (mut results, mut bytes, mut row): (Vec<ArrayRef>, usize, _) = (Vec::new(), 0, 0);
    while row < args.number_rows {
        stopped.check()?;
        let mut rows = (args.number_rows - row).min((args.number_rows * (RESULT_BYTES_MAX / 8) / all).max(1));
        let (part, estimate) = loop {
            let part = part_of(&args, row, rows);
            let estimate = growth.estimate(&part.args, rows)?;
            if estimate <= RESULT_BYTES_MAX {
                break (part, estimate);
            }
            if rows == 1 {
                return Err(too_large(name, estimate, RESULT_BYTES_MAX));
            }
            rows /= 2;
        };
        room.resize(bytes.saturating_add(estimate))?;
        let result = call(part)?.into_array(rows)?;
        bytes += Size::of(&result).total;
        if bytes > RESULT_BYTES_MAX {
            return Err(too_large(name, bytes, RESULT_BYTES_MAX));
        }
        results.push(result);
        row += rows;
    }
    // The parts, plus their concatenation.
    room.resize(2 * bytes)?;
    let parts: Vec<&dyn Array> = results.iter().map(AsRef::as_ref).collect();
    let result = concat(&parts)?;
    drop(results);
    Ok(ColumnarValue::Array(room.keep(result)?))
}

/// Returns the arguments of a range of rows.
pub(crate) fn part_of(args: &ScalarFunctionArgs, row: usize, rows: usize) -> ScalarFunctionArgs {
    let slice = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(row, rows)),
        scalar => scalar.clone(),
    };
    ScalarFunctionArgs { args: args.args.iter().map(slice).collect(), number_rows: rows, ..args.clone() }
}

fn size(value: &ColumnarValue, rows: usize) -> Size {
    match value {
        ColumnarValue::Array(array) => Size::of(array),
        ColumnarValue::Scalar(scalar) => {
            let widest = match scalar {
                ScalarValue::List(list) => Size::of(list.as_ref()),
                ScalarValue::LargeList(list) => Size::of(list.as_ref()),
                ScalarValue::FixedSizeList(list) => Size::of(list.as_ref()),
                other => {
                    let bytes = other.try_as_str().flatten().map_or(VALUE_BYTES, str::len);
                    Size { total: bytes, widest: bytes, elements: 0 }
                }
            };
            let elements = widest.elements.saturating_mul(rows);
            Size { total: widest.total.saturating_mul(rows), widest: widest.total, elements }
        }
    }
}

/// Returns the min and max of a value's numbers as 64 bits, or `None` if it has no numbers.
fn numbers(value: &ColumnarValue) -> Result<Option<(i64, i64)>> {
    let array = value.to_array(1)?;
    let Ok(array) = cast(&array, &DataType::Int64) else { return Ok(None) };
    let array = array.as_primitive::<Int64Type>();
    Ok(min(array).zip(max(array)))
}

impl Growth {
    /// Estimates an upper bound of the result's size, in bytes.
    fn estimate(self, args: &[ColumnarValue], rows: usize) -> Result<usize> {
        let sizes: Vec<Size> = args.iter().map(|arg| size(arg, rows)).collect();
        let size = |at: usize| sizes.get(at).copied().unwrap_or_default();
        let count = |at: usize| -> Result<usize> {
            let greatest = args.get(at).map(numbers).transpose()?.flatten().map_or(0, |(_, greatest)| greatest);
            Ok(usize::try_from(greatest).unwrap_or(0))
        };
        let all = sizes.iter().fold(0_usize, |sum, size| sum.saturating_add(size.total));
        let values = rows.saturating_mul(VALUE_BYTES);
        Ok(match self {
            Growth::Times(times) => all.saturating_mul(times).saturating_add(values),
            Growth::Repeat => size(0).total.max(rows).saturating_mul(count(1)?),
            Growth::RepeatElement => {
                let elements = rows.saturating_mul(ELEMENT_BYTES);
                size(0).total.saturating_add(elements).saturating_mul(count(1)?)
            }
            Growth::Captures => {
                let groups = args.get(1).map(pattern::groups).transpose()?.unwrap_or(0);
                let each = size(0).total.saturating_add(values);
                all.saturating_mul(24).saturating_add(values).max(each.saturating_mul(groups + 1).saturating_mul(2))
            }
            Growth::Trim => {
                let compared = size(0).total.saturating_mul(size(1).widest) / 16;
                all.saturating_mul(2).saturating_add(values).max(compared)
            }
            Growth::Pad => rows.saturating_mul(count(1)?).saturating_mul(4).saturating_add(all),
            Growth::Replace => {
                let places = size(0).total.saturating_add(rows);
                places.saturating_mul(size(2).widest.saturating_add(1)).saturating_add(all)
            }
            Growth::Separator => {
                let between = size(0).total.saturating_mul(args.len());
                all.saturating_add(between).saturating_add(values)
            }
            Growth::Join => {
                let each = size(1).widest.saturating_add(size(2).widest).saturating_add(VALUE_BYTES);
                all.saturating_add(size(0).elements.saturating_mul(each))
            }
            Growth::Range => rows.saturating_mul(elements(args)?).saturating_mul(16),
            Growth::Resize if args.get(1).map(numbers).transpose()?.flatten().is_some_and(|(least, _)| least < 0) => {
                return Err(DataFusionError::Execution("array_resize: the size is negative".to_owned()));
            }
            Growth::Resize => {
                let each = size(2).widest.saturating_add(8);
                all.saturating_add(rows.saturating_mul(count(1)?).saturating_mul(each))
            }
            Growth::Format => rows.saturating_mul(size(1).widest.saturating_mul(12).saturating_add(64)),
            // A second of work counts like the maximum result.
            Growth::Product { at_a_time } => size(0).total.saturating_mul(size(1).widest) / at_a_time,
            Growth::Elements => size(0).elements.saturating_mul(size(1).widest) / 16,
        })
    }
}

/// Returns the maximum number of range elements in any row.
fn elements(args: &[ColumnarValue]) -> Result<usize> {
    let (start, stop, step) = match args {
        [stop] => (None, stop, None),
        [start, stop] => (Some(start), stop, None),
        [start, stop, step, ..] => (Some(start), stop, Some(step)),
        [] => return Ok(0),
    };
    let unit_ns = |value: &ColumnarValue| match value.data_type() {
        DataType::Date32 => 86_400_000_000_000_i128,
        DataType::Timestamp(unit, _) => match unit {
            datafusion::arrow::datatypes::TimeUnit::Second => 1_000_000_000,
            datafusion::arrow::datatypes::TimeUnit::Millisecond => 1_000_000,
            datafusion::arrow::datatypes::TimeUnit::Microsecond => 1_000,
            datafusion::arrow::datatypes::TimeUnit::Nanosecond => 1,
        },
        _ => 1,
    };
    let ends = |value: &ColumnarValue| -> Result<Option<(i128, i128)>> {
        let unit = unit_ns(value);
        Ok(numbers(value)?.map(|(least, most)| (i128::from(least) * unit, i128::from(most) * unit)))
    };
    let start = start.map_or(Ok(Some((0, 0))), ends)?;
    let (Some((first, first_most)), Some((last, last_most))) = (start, ends(stop)?) else { return Ok(0) };
    let span = (last_most - first).max(first_most - last).max(0);
    let step = match step {
        None => 1,
        Some(step) => match interval_ns(step)? {
            Some(step) => step,
            None => numbers(step)?.map_or(1, |(least, most)| {
                // If there are steps of both signs, the smallest may lie between them.
                if least > 0 || most < 0 { i128::from(least.unsigned_abs().min(most.unsigned_abs())) } else { 1 }
            }),
        },
    };
    Ok(usize::try_from(span / step.max(1) + 1).unwrap_or(usize::MAX))
}

/// Returns the length of a single interval, or 1 if there are several.
fn interval_ns(value: &ColumnarValue) -> Result<Option<i128>> {
    if !matches!(value.data_type(), DataType::Interval(_)) {
        return Ok(None);
    }
    let ColumnarValue::Scalar(scalar) = value else { return Ok(Some(1)) };
    let kind = DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano);
    Ok(Some(match scalar.cast_to(&kind)? {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let days = i128::from(interval.months) * 28 + i128::from(interval.days);
            (days * 86_400_000_000_000 + i128::from(interval.nanoseconds)).abs()
        }
        _ => i128::MAX,
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::running::memory::SharedMemory;

    fn call(sql: &str) -> std::result::Result<String, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut state = SessionContext::new().state();
            let large = LargeCalls::new(1, SharedMemory::new(256 << 20));
            bound_functions(&mut state, &large).unwrap();
            let context = SessionContext::new_with_state(state);
            let run = async { context.sql(sql).await?.collect().await };
            let batches = run.await.map_err(|error| QueryError::from(error).to_string())?;
            let shown = if sql.starts_with("explain") { 1 } else { 0 };
            let text = datafusion::arrow::util::display::array_value_to_string(batches[0].column(shown), 0);
            text.map_err(|error| error.to_string())
        })
    }

    #[test]
    fn results_are_as_without_a_bound() {
        for (sql, result) in [
            ("select repeat('ab', 3)", "ababab"),
            ("select lpad('a', 3, 'x') || rpad('b', 3, 'y')", "xxabyy"),
            ("select lpad('a', -1, 'x') || rpad(x, -5, x) || lpad(x, y, x) from (values ('b', -7)) v(x, y)", ""),
            ("select 'a' || null || 'b'", ""),
            ("select lpad(repeat('x', 9000000), 2, 'y') || x from (values (1)) v(x) limit 1", "xx1"),
            ("select 'a' || 1 || 'b' || x from (values (2)) v(x)", "a1b2"),
            ("select array_to_string(array_repeat('a', 2) || make_array('b'), '-')", "a-a-b"),
            ("select array_length(range(0, 10, 3))", "4"),
            ("select concat_ws('-', 'a', 'b'), upper('x')", "a-b"),
            ("select sum(length(repeat(x, 100))) from (values ('a'), ('bc'), (null)) v(x)", "300"),
            ("select regexp_replace('abc', '[ab]', 'xx', 'g')", "xxxxc"),
            ("select count(*) from (values ('ab', '^a'), ('AB', '^a'), ('ab', null)) v(x, p) where x ~ p", "1"),
            ("select count(*) from (values ('ab', '^a'), ('AB', '^a'), ('ab', null)) v(x, p) where x ~* p", "2"),
            ("select count(*) from (values ('ab', '^a'), ('AB', '^a'), ('ab', null)) v(x, p) where x !~ p", "1"),
            ("select count(*) from (values ('ab', '^a'), ('AB', 'x'), ('ab', null)) v(x, p) where x !~* p", "1"),
            ("select count(*) from (values ('ab', 'a%'), ('AB', 'a_'), ('ab', null)) v(x, p) where x like p", "1"),
            ("select count(*) from (values ('ab', 'a%'), ('AB', 'a_'), ('ab', null)) v(x, p) where x ilike p", "2"),
            ("select count(*) from (values ('ab', 'a%'), ('AB', 'a_'), ('ab', null)) v(x, p) where x not like p", "1"),
            ("select count(*) from (values ('a'), ('ab'), (null)) v(p) where 'ab' like p || '%' and 'a' !~~* p", "1"),
            ("select count(*) from (values (repeat('ab', 900)), ('a')) v(x) where x like repeat('a_', 900)", "1"),
            ("select count(*) from generate_series(1, 200) v(x) where x::text like ('_%' || x::text)", "0"),
            ("select count(*) from generate_series(1, 2000) v(x) where x::text ~ ('^' || x::text || '$')", "2000"),
            ("select strpos('héllo', 'l'), strpos('a', 'b')", "3"),
            ("select array_has_any(make_array(1, 2), make_array(2, 3))", "true"),
            // Above the limit by estimate, but not by result.
            (
                "select sum(length(replace(repeat(x, 1000000), 'a', repeat('y', 30)))) from (values ('b'), ('c')) v(x)",
                "2000000",
            ),
        ] {
            assert_eq!(call(sql).as_deref(), Ok(result), "{sql}");
        }
    }

    #[test]
    fn constant_patterns_and_lists_become_operators() {
        let plan = |sql: &str| call(&format!("explain {sql}")).unwrap();
        let values = "from (values ('ab', 1)) v(x, n)";
        for (condition, operator) in [
            ("regexp_like(x, '^a')", "LIKE"),
            ("regexp_like(x, '^a.*b', 'i')", "~*"),
            ("array_has(make_array(1, 2, 3), n)", "column2 = Int64(1)"),
        ] {
            let plan = plan(&format!("select count(*) {values} where {condition}"));
            assert!(plan.contains(operator), "{condition}: {plan}");
        }
        let plan = plan(&format!("select count(*) {values} where array_has(range(0, 100000), n)"));
        assert!(plan.contains("array_has"), "{plan}");
        let large = call(&format!("select count(*) {values} where regexp_like(x, '\\w{{150}}')"));
        assert!(large.unwrap_err().contains("takes more than"));
    }

    #[test]
    fn what_is_larger_than_the_bound_is_an_error() {
        for sql in [
            "select repeat('x', 1000000000)",
            "select lpad('x', 1000000000, 'y')",
            "select array_repeat(1, 1000000000)",
            "select range(0, 10000000000)",
            "select generate_series(timestamp '1970-01-01', timestamp '2030-01-01', interval '1 microsecond')",
            "select array_resize(make_array(1), 1000000000, 2)",
            "select sum(length(repeat(x::text, 1000000))) from generate_series(1, 100000) v(x)",
            "select array_to_string(array_repeat('a', 1000000), repeat('b', 1000000))",
            "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
            "select strpos(repeat('a', 10000000), repeat('a', 5000000) || 'b')",
            "select array_has_any(range(0, 100000), range(100000, 200000))",
            "select concat_ws(repeat('x', 30000000), 'a', 'b', 'c', 'd')",
            "select repeat('x', 60000000) || repeat('x', 60000000)",
        ] {
            let error = call(sql).unwrap_err();
            assert!(error.contains("bytes at a time, at most"), "{sql}: {error}");
        }
    }

    #[test]
    fn patterns_that_take_too_much_are_errors() {
        let long = |part: &str| format!("'{}'", part.repeat(60_000));
        for matched in [
            "'a' || x::text ~ '\\w{150}'".to_owned(),
            "'a' || x::text similar to '\\w{150}'".to_owned(),
            format!("'a' || x::text like {}", long("_a")),
            format!("'a' || x::text not ilike {}", long("_a")),
            "'a' || x::text like repeat('_', 60000) || 'a'".to_owned(),
            "'a' like repeat('_', 60000) || x::text".to_owned(),
        ] {
            let error = call(&format!("select count(*) from generate_series(1, 3) v(x) where {matched}")).unwrap_err();
            assert!(error.contains("takes more than 4194304 bytes"), "{matched:.60}: {error}");
        }
    }

    #[test]
    fn rows_beyond_the_bound_together_are_worked_out_in_parts() {
        let counts: ArrayRef = Arc::new(Int64Array::from((0..200).map(|n| n * 100).collect::<Vec<i64>>()));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(40); 200]));
        let args = [ColumnarValue::Array(texts), ColumnarValue::Array(counts)];
        // The estimate from the maximum count is 159 MB, half of which is made.
        assert!(Growth::Repeat.estimate(&args, 200).unwrap() > RESULT_BYTES_MAX);
        let sum = "select sum(length(repeat(repeat('x', 10), n * 100))) from generate_series(0, 199) v(n)";
        assert_eq!(call(sum).as_deref(), Ok("19900000"));
    }
}

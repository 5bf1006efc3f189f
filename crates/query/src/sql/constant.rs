//! Shares long constants of a statement: one value, however often it is used.
//!
//! The planner copies an expression, with the constants in it, to wherever it is used: a text of a mebibyte that a
//! query selects a thousand times took a gibibyte before anything ran. A long text is therefore replaced by a parameter
//! when a statement is planned, and a parameter's long value by a call without arguments, whose copies share it. Such
//! calls, and those of functions with long results, are not evaluated during planning, but when the statement runs.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{
    self, CastKind, Expr as AstExpr, FunctionArg, FunctionArgExpr, Statement, TableFactor, Value, ValueWithSpan,
};

use crate::error::{QueryError, sqlstate};
use crate::sql::walk::{Step, Visitor, walk};

/// Minimum size of a long text or byte string, in bytes.
const LONG_BYTES: usize = 4 << 10;
/// Minimum size of a long list, in bytes. Copies of a list share its contents.
const LONG_LIST_BYTES: usize = 1 << 20;
/// Maximum total size of the constant results evaluated while one statement is planned, in bytes.
const FOLDED_BYTES_MAX: usize = 16 << 20;
/// Prefix for the names of parameters that replace long texts. No client can write a name with a space.
const NAME: &str = "$long text ";

/// Reports whether a value is long.
fn is_long(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) => bytes.len() >= LONG_BYTES,
        other => other.try_as_str().flatten().is_some_and(|text| text.len() >= LONG_BYTES),
    }
}

/// Reports whether a parameter replaces a long text of the statement itself.
pub(crate) fn is_text(parameter: &str) -> bool {
    parameter.starts_with(NAME)
}

thread_local! {
    /// Total size of constant results so far, while a statement is being planned.
    static FOLDED: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether its expressions are no longer moved or copied.
    static OPTIMIZED: Cell<bool> = const { Cell::new(false) };
}

/// Runs planning, during which functions of constants are evaluated if their results are short.
pub(crate) fn planning<T>(plan: impl FnOnce() -> T) -> T {
    struct Planned;
    impl Drop for Planned {
        fn drop(&mut self) {
            FOLDED.set(None);
        }
    }
    FOLDED.set(Some(0));
    OPTIMIZED.set(false);
    let _planned = Planned;
    plan()
}

/// Marks the plan as optimised. Results evaluated from now on are used in a single place, such as a row of `VALUES`, so
/// only their total is limited.
pub(crate) fn optimized() {
    OPTIMIZED.set(true);
}

/// Checks that a function of constants may be evaluated during planning, with a result of at most `bytes` bytes.
///
/// # Errors
/// If the result is too long, so that evaluation must wait until the statement runs.
pub(crate) fn check_folded(name: &str, bytes: usize, result: &DataType) -> Result<()> {
    let Some(before) = FOLDED.get() else { return Ok(()) };
    let folded = before.saturating_add(bytes);
    let most = match result.is_nested() {
        _ if OPTIMIZED.get() => FOLDED_BYTES_MAX,
        true => LONG_LIST_BYTES,
        false => LONG_BYTES,
    };
    if bytes > most || folded > FOLDED_BYTES_MAX {
        let text = format!("the result of {name} takes {bytes} bytes, at most {most} in a constant");
        return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion());
    }
    FOLDED.set(Some(folded));
    Ok(())
}

/// Long texts of a statement, by the names of the parameters that replace them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongTexts(HashMap<String, Long>);

/// A long value, with the function that returns it.
#[derive(Clone, Debug)]
struct Long {
    value: Arc<ScalarValue>,
    function: Arc<ScalarUDF>,
}

impl LongTexts {
    /// Replaces the long texts of a statement by parameters.
    ///
    /// # Errors
    /// Passes on errors of the walk, and adds none.
    pub(crate) fn take(statement: &mut Statement) -> Result<LongTexts, QueryError> {
        let mut take = Take::default();
        walk(statement, &mut take)?;
        if take.texts.is_empty() {
            return Ok(LongTexts::default());
        }
        // Table functions take constants.
        walk(statement, &mut PutBack(&take.texts))?;
        let shared = |(at, text): (usize, String)| (name_of(at), Shared::long(ScalarValue::from(text)));
        Ok(LongTexts(take.texts.into_iter().enumerate().map(shared).collect()))
    }

    /// Reports whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces parameters in a plan by the long texts, and by the long values among `values`.
    ///
    /// # Errors
    /// If the plan cannot be rebuilt.
    pub(crate) fn bind(&self, plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let long = values.iter().enumerate().filter(|(_, value)| is_long(value));
        let long = long.map(|(at, value)| (format!("${}", at + 1), Shared::long(value.clone())));
        let all: HashMap<String, Long> = self.0.iter().map(|(n, l)| (n.clone(), l.clone())).chain(long).collect();
        if all.is_empty() {
            return Ok(plan);
        }
        let bound = plan.transform_up_with_subqueries(|node| {
            // A value in VALUES is not copied.
            let alone = matches!(node, LogicalPlan::Values(_));
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let (name, sets) = (names.save(&expr), matches!(expr, Expr::GroupingSet(_)));
                let bound = expr.transform_down(|expr| bind_in(expr, &all, alone))?;
                Ok(if sets { bound } else { bound.update_data(|expr| name.restore(expr)) })
            })
        });
        bound.data()
    }
}

/// Replaces parameters by long values: as literals if each is used `alone`, or if a function accepts only a literal.
fn bind_in(expr: Expr, all: &HashMap<String, Long>, alone: bool) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Placeholder(parameter) => match all.get(&parameter.id) {
            Some(long) if alone => Transformed::yes(Expr::Literal(long.value.as_ref().clone(), None)),
            Some(long) => {
                let (func, args) = (long.function.clone(), Vec::new());
                Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
            }
            None => Transformed::no(Expr::Placeholder(parameter)),
        },
        Expr::AggregateFunction(mut call) => {
            call.params.args.iter_mut().for_each(|argument| make_literal(argument, all));
            Transformed::yes(Expr::AggregateFunction(call))
        }
        Expr::WindowFunction(mut call) => {
            call.params.args.iter_mut().for_each(|argument| make_literal(argument, all));
            Transformed::yes(Expr::WindowFunction(call))
        }
        other => Transformed::no(other),
    })
}

/// Makes an argument such as a delimiter or a default a literal.
fn make_literal(argument: &mut Expr, all: &HashMap<String, Long>) {
    let inner = match argument {
        Expr::Cast(cast) => cast.expr.as_mut(),
        other => other,
    };
    if let Expr::Placeholder(parameter) = inner
        && let Some(long) = all.get(&parameter.id)
    {
        *inner = Expr::Literal(long.value.as_ref().clone(), None);
    }
}

fn name_of(at: usize) -> String {
    format!("{NAME}{at}")
}

/// Visitor that takes long texts out.
#[derive(Default)]
struct Take {
    texts: Vec<String>,
    /// Index of each text. Equal texts share one, because expressions are compared.
    places: HashMap<String, usize>,
}

impl Take {
    /// Returns the parameter for a value, cast to text, or `None` if the value is short or not text.
    fn parameter(&mut self, value: &mut Value) -> Option<AstExpr> {
        let text = match value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => text,
            Value::DollarQuotedString(quoted) => &mut quoted.value,
            _ => return None,
        };
        if text.len() < LONG_BYTES {
            return None;
        }
        let next = self.texts.len();
        let at = *self.places.entry(text.clone()).or_insert(next);
        if at == next {
            self.texts.push(std::mem::take(text));
        }
        let placeholder = AstExpr::Value(Value::Placeholder(name_of(at)).with_empty_span());
        Some(cast(placeholder, ast::DataType::Text))
    }
}

fn cast(expr: AstExpr, data_type: ast::DataType) -> AstExpr {
    AstExpr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

impl Visitor for Take {
    fn expr(&mut self, expr: &mut AstExpr) -> Step {
        match expr {
            AstExpr::Value(ValueWithSpan { value, .. }) => {
                if let Some(parameter) = self.parameter(value) {
                    *expr = parameter;
                }
            }
            AstExpr::TypedString(typed) => {
                if let Some(parameter) = self.parameter(&mut typed.value.value) {
                    *expr = cast(parameter, typed.data_type.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Visitor that puts back texts that are arguments of table functions.
struct PutBack<'a>(&'a [String]);

impl Visitor for PutBack<'_> {
    fn table(&mut self, table: &mut TableFactor) -> Step {
        let TableFactor::Table { args: Some(args), .. } = table else { return ControlFlow::Continue(()) };
        for arg in &mut args.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else { continue };
            let AstExpr::Cast { expr: inner, .. } = expr else { continue };
            let AstExpr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) = inner.as_ref() else {
                continue;
            };
            let text = name.strip_prefix(NAME).and_then(|at| self.0.get(at.parse::<usize>().ok()?));
            if let Some(text) = text {
                *expr = AstExpr::Value(Value::SingleQuotedString(text.clone()).with_empty_span());
            }
        }
        ControlFlow::Continue(())
    }
}

/// A function without arguments that returns a value shared by all its copies.
struct Shared {
    value: Arc<ScalarValue>,
    signature: Signature,
}

impl Shared {
    fn long(value: ScalarValue) -> Long {
        let (value, signature) = (Arc::new(value), Signature::nullary(Volatility::Immutable));
        let function = Arc::new(ScalarUDF::from(Shared { value: value.clone(), signature }));
        Long { value, function }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a constant of {} bytes", self.value.size())
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl Eq for Shared {}

impl std::hash::Hash for Shared {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.value).hash(state);
    }
}

impl ScalarUDFImpl for Shared {
    fn name(&self) -> &str {
        "long_constant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), self.value.data_type(), false)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check_folded(self.name(), self.value.size(), &self.value.data_type())?;
        Ok(ColumnarValue::Scalar(self.value.as_ref().clone()))
    }
}

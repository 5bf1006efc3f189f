//! Arguments of table functions, which the planner needs as constants: parameters and subqueries inside them are
//! replaced by their values.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Cte, DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, Query, Statement,
    TableFactor, TimezoneInfo, Value, With,
};

use crate::error::QueryError;
use crate::plan::parameter::{number, placeholder_of};
use crate::sql::walk::{Step, Visitor, walk, walk_expr, walk_own, walk_query};
use crate::table::column::timestamp_type;
use crate::telemetry::parameter_type;

/// Words in calls of functions whose values change with the time.
const CLOCKS: [&str; 7] = ["now(", "current_", "localtime", "_timestamp(", "timeofday", "random(", "'now"];

/// Type of intervals.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Table functions of a statement.
#[derive(Default)]
pub(crate) struct TableFunctions {
    /// Whether there are any. They take constants, so a plan with them can be used only once.
    pub(crate) any: bool,
    /// Whether an argument may be another one at another time.
    pub(crate) follow_time: bool,
    /// Whether there are subqueries in arguments.
    pub(crate) have_subqueries: bool,
    /// Numbers and types of the parameters inside them.
    pub(crate) parameters: Vec<(usize, DataType)>,
}

impl Visitor for TableFunctions {
    fn table(&mut self, factor: &mut TableFactor) -> Step {
        self.any |= matches!(factor, TableFactor::Table { args: Some(_), .. } | TableFactor::TableFunction { .. });
        if let TableFactor::Table { args: Some(args), .. } = factor {
            let text = args.args.iter().map(|arg| arg.to_string().to_lowercase()).collect::<String>();
            self.follow_time |= CLOCKS.iter().any(|clock| text.contains(clock));
        }
        let parameters = &mut self.parameters;
        each_parameter(factor, &mut |Parameter { number, kind, .. }| {
            if parameters.iter().all(|(known, _)| *known != number) {
                parameters.push((number, kind.clone()));
            }
        })?;
        let mut find = Subqueries(&mut |query| {
            self.have_subqueries = true;
            Expr::Subquery(Box::new(query))
        });
        // The clone is changed, not the statement.
        find.table(&mut factor.clone())
    }
}

/// Finds the table functions of a statement, without changing it.
pub(crate) fn table_functions(statement: &mut Statement) -> Result<TableFunctions, QueryError> {
    let mut found = TableFunctions::default();
    walk(statement, &mut found)?;
    Ok(found)
}

/// Replaces parameters inside table functions by values, or by NULL if there is no value yet.
pub(crate) fn bind_in_table_functions(statement: &mut Statement, values: &[ScalarValue]) -> Result<(), QueryError> {
    struct Bind<'a>(&'a [ScalarValue]);
    impl Visitor for Bind<'_> {
        fn table(&mut self, factor: &mut TableFactor) -> Step {
            each_parameter(factor, &mut |Parameter { expr, number, kind, is_argument }| {
                *expr = match self.0.get(number - 1) {
                    // The function reads texts itself.
                    value if is_argument => Expr::Value(value.map_or(Value::Null, literal).into()),
                    Some(value) => constant(value, Some(kind)),
                    None => null(kind),
                };
            })
        }
    }
    walk(statement, &mut Bind(values))
}

/// A parameter in an argument of a table function.
struct Parameter<'a> {
    expr: &'a mut Expr,
    number: usize,
    /// Type with which it is announced.
    kind: &'a DataType,
    /// Whether it is the argument itself, not a part of it.
    is_argument: bool,
}

/// Calls a function with each parameter in the arguments of a table function.
fn each_parameter(factor: &mut TableFactor, act: &mut dyn FnMut(Parameter<'_>)) -> Step {
    let TableFactor::Table { name, args: Some(args), .. } = factor else { return ControlFlow::Continue(()) };
    let function = name.to_string().to_lowercase();
    for (position, arg) in args.args.iter_mut().enumerate() {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else { continue };
        let kind = match (function.as_str(), position) {
            ("state_at", 0) => timestamp_type(),
            ("state_at" | "latest", _) => DataType::Utf8,
            _ => parameter_type(&function, position).or_else(|| type_of_cast(expr)).unwrap_or(DataType::Int64),
        };
        let within = match placeholder_of(expr) {
            Some(number) => {
                act(Parameter { expr, number, kind: &kind, is_argument: true });
                Ok(())
            }
            None => walk_expr(expr, &mut Within { kind, act, queries: 0 }),
        };
        if let Err(error) = within {
            return ControlFlow::Break(error);
        }
    }
    ControlFlow::Continue(())
}

/// Visitor of the parameters inside an argument.
struct Within<'a> {
    /// Type of the argument.
    kind: DataType,
    act: &'a mut dyn FnMut(Parameter<'_>),
    /// Subqueries around the expression.
    queries: usize,
}

impl Within<'_> {
    fn found(&mut self, expr: &mut Expr, number: usize, kind: &DataType) {
        (self.act)(Parameter { expr, number, kind, is_argument: false });
    }
}

impl Visitor for Within<'_> {
    fn query(&mut self, _: &mut Query) -> Step {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn after_query(&mut self, _: &mut Query) -> Step {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn expr(&mut self, expr: &mut Expr) -> Step {
        match expr {
            Expr::Cast { expr: inner, data_type, .. } => {
                if let Some(number) = placeholder_of(inner) {
                    let kind = cast_type(data_type).unwrap_or(DataType::Utf8);
                    self.found(inner, number, &kind);
                }
            }
            Expr::BinaryOp { left, op, right } if self.queries == 0 => {
                let of_left = if is_interval(right) { self.kind.clone() } else { INTERVAL };
                let of_right = if is_interval(left) { self.kind.clone() } else { INTERVAL };
                for (side, kind) in [(left, of_left), (right, of_right)] {
                    let kind = match op {
                        BinaryOperator::Plus | BinaryOperator::Minus if self.kind == timestamp_type() => kind,
                        BinaryOperator::Multiply | BinaryOperator::Divide => DataType::Float64,
                        _ => self.kind.clone(),
                    };
                    if let Some(number) = placeholder_of(side) {
                        self.found(side, number, &kind);
                    }
                }
            }
            Expr::Value(value) => {
                if let Value::Placeholder(name) = &value.value
                    && let Ok(number) = number(name)
                {
                    let kind = if self.queries == 0 { self.kind.clone() } else { DataType::Utf8 };
                    self.found(expr, number, &kind);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, SqlType::Interval { .. }),
        Expr::TypedString(text) => matches!(text.data_type, SqlType::Interval { .. }),
        Expr::Nested(inner) => is_interval(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Multiply | BinaryOperator::Divide, right } => {
            is_interval(left) || is_interval(right)
        }
        _ => false,
    }
}

/// Returns the type of an expression that is a cast.
fn type_of_cast(expr: &Expr) -> Option<DataType> {
    match expr {
        Expr::Cast { data_type, .. } => cast_type(data_type),
        Expr::Nested(inner) => type_of_cast(inner),
        _ => None,
    }
}

/// Returns the type of a parameter that is cast to a type of SQL.
fn cast_type(kind: &SqlType) -> Option<DataType> {
    Some(match kind {
        SqlType::Timestamp(..) => timestamp_type(),
        SqlType::Interval { .. } => INTERVAL,
        SqlType::BigInt(_) | SqlType::Integer(_) | SqlType::Int(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::DoublePrecision | SqlType::Double(_) | SqlType::Float8 => DataType::Float64,
        _ => return None,
    })
}

/// Returns the type of SQL as which a constant must be written, so that it is not taken for a text.
fn written_type(kind: &DataType) -> Option<SqlType> {
    Some(match kind {
        DataType::Timestamp(_, None) => SqlType::Timestamp(None, TimezoneInfo::None),
        DataType::Timestamp(..) => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
        DataType::Interval(_) => SqlType::Interval { fields: None, precision: None },
        DataType::Date32 => SqlType::Date,
        _ => return None,
    })
}

fn cast(value: Value, data_type: SqlType) -> Expr {
    let expr = Box::new(Expr::Value(value.into()));
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn null(kind: &DataType) -> Expr {
    match written_type(kind) {
        Some(data_type) => cast(Value::Null, data_type),
        None => Expr::Value(Value::Null.into()),
    }
}

/// Returns a value as a constant of SQL. A text for which another type is announced is written as one of that type.
fn constant(value: &ScalarValue, announced: Option<&DataType>) -> Expr {
    let kind = value.data_type();
    if value.is_null() {
        return null(announced.unwrap_or(&kind));
    }
    let literal = literal(value);
    let is_number = matches!(literal, Value::Number(..));
    let written =
        written_type(&kind).or_else(|| announced.filter(|_| value.try_as_str().is_some()).and_then(written_type));
    match written.filter(|_| !is_number) {
        Some(data_type) => cast(literal, data_type),
        None => Expr::Value(literal.into()),
    }
}

fn literal(value: &ScalarValue) -> Value {
    if value.is_null() {
        return Value::Null;
    }
    match value {
        ScalarValue::Int16(Some(v)) => Value::Number(v.to_string(), false),
        ScalarValue::Int32(Some(v)) => Value::Number(v.to_string(), false),
        ScalarValue::Int64(Some(v)) => Value::Number(v.to_string(), false),
        ScalarValue::TimestampNanosecond(Some(v), _) => Value::Number(v.to_string(), false),
        ScalarValue::Float64(Some(v)) if v.is_finite() => Value::Number(format!("{v:?}"), false),
        ScalarValue::IntervalMonthDayNano(Some(v)) => {
            Value::SingleQuotedString(format!("{} months {} days {} nanoseconds", v.months, v.days, v.nanoseconds))
        }
        ScalarValue::TimestampMicrosecond(Some(time_us), _) => {
            Value::SingleQuotedString(crate::wire::encode::timestamp_text(*time_us, true))
        }
        number if number.data_type().is_numeric() => match number.cast_to(&DataType::Utf8) {
            Ok(text) => Value::Number(text.try_as_str().flatten().unwrap_or("0").to_owned(), false),
            Err(_) => Value::Null,
        },
        other => match other.try_as_str() {
            Some(Some(text)) => Value::SingleQuotedString(text.to_owned()),
            _ => Value::SingleQuotedString(other.to_string()),
        },
    }
}

/// Replaces each subquery of a table function's arguments, in the order of the statement.
struct Subqueries<'a>(&'a mut dyn FnMut(Query) -> Expr);

impl Visitor for Subqueries<'_> {
    fn table(&mut self, factor: &mut TableFactor) -> Step {
        let TableFactor::Table { args: Some(args), .. } = factor else { return ControlFlow::Continue(()) };
        for arg in &mut args.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else { continue };
            // Those inside others are replaced with them.
            walk_own(expr, &mut |part| {
                if let Expr::Subquery(query) = part {
                    *part = (self.0)(query.as_ref().clone());
                }
            });
        }
        ControlFlow::Continue(())
    }
}

/// Returns the subqueries in the arguments of table functions, in the order of the statement, each with the common
/// table expressions before it if it names one.
pub(crate) fn subqueries(statement: &Statement) -> Result<Vec<Statement>, QueryError> {
    let Statement::Query(query) = statement else { return Ok(Vec::new()) };
    let mut query = query.as_ref().clone();
    let with = query.with.take();
    let tables = with.as_ref().map_or(&[][..], |with| with.cte_tables.as_slice());
    let mut found = Vec::new();
    let parts: Vec<Query> = tables.iter().map(|table| table.query.as_ref().clone()).chain([query]).collect();
    for (at, mut part) in parts.into_iter().enumerate() {
        let before = &tables[..at.min(tables.len())];
        let mut collect = |mut query: Query| {
            let text = query.to_string().to_lowercase();
            let is_named = |table: &Cte| text.contains(&table.alias.name.value.to_lowercase());
            if query.with.is_none() && before.iter().any(is_named) {
                query.with = with.clone().map(|with| With { cte_tables: before.to_vec(), ..with });
            }
            found.push(Statement::Query(Box::new(query)));
            Expr::Value(Value::Null.into())
        };
        walk_query(&mut part, &mut Subqueries(&mut collect))?;
    }
    Ok(found)
}

/// Replaces the subqueries in the arguments of table functions by their values, in the order of [`subqueries`].
pub(crate) fn put_values(statement: &mut Statement, values: &[ScalarValue]) -> Result<(), QueryError> {
    let mut values = values.iter();
    let mut put = |_| values.next().map_or_else(|| Expr::Value(Value::Null.into()), |value| constant(value, None));
    walk(statement, &mut Subqueries(&mut put))
}

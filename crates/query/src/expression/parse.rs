//! Parses text into channels, windowed functions and the scalar rest.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    UnaryOperator, Value, visit_expressions, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::sql::dialect::BoundedDialect;
use crate::sql::signs;

use super::node::LookBack;
use super::zero::NONZERO;
use super::{EXPRESSION_BYTES_MAX, EXPRESSION_CHANNELS_MAX, ExpressionError, FUNCTIONS_MAX, Fault, TOKENS_MAX};

/// Maximum span that a function looks back, in nanoseconds.
const SPAN_MAX_NS: i64 = 3_600_000_000_000;

/// A channel named in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `table.channel{tag=value}`.
    pub name: String,
    /// Column of its first character in the expression, from 1.
    pub position: usize,
}

/// A windowed function of an expression.
#[derive(Clone, Debug)]
pub(super) struct LookSpec {
    pub(super) look: LookBack,
    /// Argument as SQL over the columns `c0`, `c1`, … (channels) and `w0`, … (functions before it).
    pub(super) argument: String,
    /// Channels whose frames it samples: those in its argument.
    pub(super) channels: Vec<usize>,
    /// Functions used in its argument.
    pub(super) uses: Vec<usize>,
    /// Column in the expression.
    pub(super) position: usize,
    /// Name as written.
    pub(super) name: String,
}

/// A parsed expression. It becomes a [`super::Program`] once the types of its channels are known.
#[derive(Clone, Debug)]
pub struct Expression {
    channels: Vec<Named>,
    pub(super) looks: Vec<LookSpec>,
    /// Remaining expression, as SQL over the same columns.
    pub(super) rest: String,
}

/// A column of the batches on which an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Channel(usize),
    Look(usize),
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// If it is invalid, with the position.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            let message = format!("an expression of {} bytes; at most {EXPRESSION_BYTES_MAX}", text.len());
            return Err(ExpressionError::new(Fault::Size, None, message));
        }
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().map_err(|error| {
            let (position, message) = (error.location.column as usize, error.message);
            ExpressionError::new(Fault::Syntax, Some(position), message)
        })?;
        let count = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
        if count > TOKENS_MAX {
            let message = format!("an expression of {count} words and signs; at most {TOKENS_MAX}");
            return Err(ExpressionError::new(Fault::Size, None, message));
        }
        let apart = |TokenWithSpan { token, span }| {
            signs::apart(token).into_iter().map(move |token| TokenWithSpan { token, span })
        };
        let tokens = tokens.into_iter().flat_map(apart).collect();
        let dialect = BoundedDialect::new(count, Arc::default());
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
        let mut expr = parser.parse_expr().map_err(syntax)?;
        let after = parser.peek_token();
        if after.token != Token::EOF {
            let position = Some(after.span.start.column as usize);
            return Err(ExpressionError::new(Fault::Syntax, position, format!("{} is not expected here", after.token)));
        }
        let mut reading = Reading { channels: Vec::new(), looks: Vec::new() };
        let walked = visit_expressions_mut(&mut expr, |expr| match reading.visit(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        if let ControlFlow::Break(error) = walked {
            return Err(error);
        }
        if reading.channels.is_empty() {
            let message = "an expression needs a channel, in double quotes, as in \"tank.pressure{n=1}\"";
            return Err(ExpressionError::new(Fault::Channel, None, message));
        }
        Ok(Expression { channels: reading.channels, looks: reading.looks, rest: expr.to_string() })
    }

    /// Returns the channels in it, each once.
    pub fn channels(&self) -> &[Named] {
        &self.channels
    }

    /// Returns how far it looks back, in nanoseconds, as far as that is bounded.
    pub fn span_ns(&self) -> i64 {
        self.looks.iter().map(|look| look.look.span_ns()).fold(0, i64::saturating_add)
    }
}

fn syntax(error: ParserError) -> ExpressionError {
    match error {
        ParserError::RecursionLimitExceeded => ExpressionError::new(Fault::Size, None, "the expression is too deep"),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            let (message, position) = match message.rsplit_once(" at Line: ") {
                Some((message, place)) => {
                    let column = place.split_once("Column: ").and_then(|(_, column)| column.parse().ok());
                    (message.to_owned(), column)
                }
                None => (message, None),
            };
            ExpressionError::new(Fault::Syntax, position, message)
        }
    }
}

struct Reading {
    channels: Vec<Named>,
    looks: Vec<LookSpec>,
}

impl Reading {
    /// Visits each part after its own parts.
    fn visit(&mut self, expr: &mut Expr) -> Result<(), ExpressionError> {
        match expr {
            Expr::Identifier(name) => {
                let position = name.span.start.column as usize;
                if name.quote_style != Some('"') {
                    return Err(unquoted(&name.value, position));
                }
                let at = self.channel(std::mem::take(&mut name.value), position)?;
                *expr = Expr::Identifier(Ident::with_quote('"', format!("c{at}")));
            }
            Expr::CompoundIdentifier(names) => {
                let position = names.first().map_or(1, |name| name.span.start.column as usize);
                let whole: Vec<&str> = names.iter().map(|name| name.value.as_str()).collect();
                return Err(unquoted(&whole.join("."), position));
            }
            Expr::BinaryOp { op: BinaryOperator::Divide | BinaryOperator::Modulo, right, .. }
                if !is_nonzero_number(right) =>
            {
                let divisor = std::mem::replace(&mut **right, Expr::Value(Value::Null.into()));
                **right = call(NONZERO, divisor);
            }
            // Brackets for those that bind differently when the text is read again, without the dialect.
            Expr::BinaryOp { op: BinaryOperator::PGExp | BinaryOperator::BitwiseXor, left, .. }
                if matches!(**left, Expr::UnaryOp { .. }) =>
            {
                let signed = std::mem::replace(&mut **left, Expr::Value(Value::Null.into()));
                **left = Expr::Nested(Box::new(signed));
            }
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {
                let comparison = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                *expr = Expr::Nested(Box::new(comparison));
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                let message = "an expression reads channels, not tables: it has no queries in it";
                return Err(ExpressionError::new(Fault::Function, None, message));
            }
            Expr::Function(function) => {
                if let Some(spec) = self.look(function)? {
                    if self.looks.len() == FUNCTIONS_MAX {
                        let message = format!("more than {FUNCTIONS_MAX} functions that look back");
                        return Err(ExpressionError::new(Fault::Size, Some(spec.position), message));
                    }
                    self.looks.push(spec);
                    *expr = Expr::Identifier(Ident::with_quote('"', format!("w{}", self.looks.len() - 1)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn channel(&mut self, name: String, position: usize) -> Result<usize, ExpressionError> {
        if let Some(at) = self.channels.iter().position(|known| known.name == name) {
            return Ok(at);
        }
        if self.channels.len() == EXPRESSION_CHANNELS_MAX {
            let message = format!("more than {EXPRESSION_CHANNELS_MAX} channels");
            return Err(ExpressionError::new(Fault::Size, Some(position), message));
        }
        self.channels.push(Named { name, position });
        Ok(self.channels.len() - 1)
    }

    /// Parses a call as a function that looks back, if it is one.
    fn look(&self, function: &Function) -> Result<Option<LookSpec>, ExpressionError> {
        let [ObjectNamePart::Identifier(ident)] = function.name.0.as_slice() else { return Ok(None) };
        let (name, position) = (ident.value.to_ascii_lowercase(), ident.span.start.column as usize);
        let Some(usage) = LookBack::usage(&name) else { return Ok(None) };
        let wrong = |message: String| ExpressionError::new(Fault::Function, Some(position), message);
        if function.over.is_some() || function.filter.is_some() {
            return Err(wrong(format!("{name} has neither OVER nor FILTER: {usage}")));
        }
        let FunctionArguments::List(list) = &function.args else { return Err(wrong(usage.to_owned())) };
        let plain = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        };
        let arguments: Option<Vec<Expr>> = list.args.iter().map(plain).collect();
        let Some((argument, constants)) = arguments.as_deref().and_then(<[Expr]>::split_first) else {
            return Err(wrong(usage.to_owned()));
        };
        let (spans, numbers): (Vec<_>, Vec<_>) =
            (constants.iter().filter_map(span_ns).collect(), constants.iter().filter_map(number).collect());
        let Some(look) = LookBack::new(&name, constants.len(), &spans, &numbers) else {
            return Err(wrong(usage.to_owned()));
        };
        let (mut channels, mut uses) = (Vec::new(), Vec::new());
        for column in columns(argument) {
            match column {
                Column::Channel(at) => channels.push(at),
                Column::Look(at) => {
                    uses.push(at);
                    channels.extend(&self.looks[at].channels);
                }
            }
        }
        channels.sort_unstable();
        channels.dedup();
        let is_channel = matches!(argument, Expr::Identifier(_)) && uses.is_empty();
        if channels.is_empty() || look.is_as_of() && !is_channel {
            return Err(wrong(usage.to_owned()));
        }
        Ok(Some(LookSpec { look, argument: argument.to_string(), channels, uses, position, name }))
    }
}

fn unquoted(name: &str, position: usize) -> ExpressionError {
    let message = format!("{name}: channels stand in double quotes, as in \"{name}\"");
    ExpressionError::new(Fault::Channel, Some(position), message)
}

/// Returns the columns used in a part.
fn columns(expr: &Expr) -> Vec<Column> {
    let mut found = Vec::new();
    let _ = visit_expressions(expr, |expr| {
        if let Expr::Identifier(name) = expr {
            let at = name.value.get(1..).and_then(|digits| digits.parse().ok());
            match (name.value.as_bytes().first(), at) {
                (Some(b'c'), Some(at)) => found.push(Column::Channel(at)),
                (Some(b'w'), Some(at)) => found.push(Column::Look(at)),
                _ => {}
            }
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Builds the call `name(argument)`.
fn call(name: &str, argument: Expr) -> Expr {
    use datafusion::sql::sqlparser::ast::FunctionArgumentList;
    let args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))];
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Parses a constant number.
fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|number| -number),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } | Expr::Nested(expr) => number(expr),
        _ => None,
    }
}

/// Parses a constant span such as `'500ms'`, in nanoseconds: above 0, and at most an hour.
fn span_ns(expr: &Expr) -> Option<i64> {
    let Expr::Value(value) = expr else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let text = text.trim();
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let unit = match text[digits..].trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let span = text[..digits].trim().parse::<f64>().ok()? * unit;
    (1.0..=SPAN_MAX_NS as f64).contains(&span).then_some(span as i64)
}

/// Reports whether an expression is a constant number other than 0.
fn is_nonzero_number(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_nonzero_number(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse::<f64>().is_ok_and(|number| number != 0.0),
            _ => false,
        },
        _ => false,
    }
}

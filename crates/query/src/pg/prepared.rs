//! `PREPARE` and `EXECUTE`. Statements prepared in SQL and by the protocol share their names.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr, Statement, UnaryOperator, Value};

use super::connection::{Connection, NAMES_MAX, columns_of, no_statement};
use super::portal::{Bound, PreparedStatement};
use super::watched::Failure;
use crate::error::{QueryError, sqlstate};
use crate::query::Plan;
use crate::running::clock::now_ns;
use crate::sql::footprint::Footprint;
use crate::sql::statement;
use crate::sql::statement::Request;
use crate::wire::encode;
use crate::wire::message;
use crate::wire::message::{Body, Formats, ResultColumn};

impl Connection {
    /// Checks that another statement can be prepared under a name.
    ///
    /// # Errors
    /// If the name is in use, or there are too many.
    pub(super) fn check_name(&self, name: &str) -> Result<(), QueryError> {
        if self.statements.contains_key(name) {
            let text = format!("prepared statement \"{name}\" already exists");
            return Err(QueryError::new(sqlstate::DUPLICATE_STATEMENT, text));
        }
        if self.statements.len() >= NAMES_MAX {
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many prepared statements"));
        }
        Ok(())
    }

    /// Prepares a query under a name.
    pub(super) async fn prepare(
        &mut self,
        name: String,
        types: &[SqlType],
        statement: Statement,
        footprint: Footprint,
    ) -> Result<(), Failure> {
        self.check_name(&name)?;
        match statement::request(&statement) {
            Request::Rows if matches!(statement, Statement::Query(_)) => {}
            Request::Refused(error) => return Err(error.into()),
            _ => return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "PREPARE is only for queries").into()),
        }
        let mut given = Vec::with_capacity(types.len());
        if !types.is_empty() {
            // The planner knows the names of types.
            let casts = types.iter().map(|kind| format!("CAST(NULL AS {kind})")).collect::<Vec<_>>().join(", ");
            let plan = self.select(&casts).await?;
            given.extend(columns_of(&plan)?.iter().map(|column| column.kind.oid()));
        }
        let (statement, plan) = self.planned_as_given(&Arc::new(statement), footprint, &given).await?;
        let (statement, plan) = (Some(statement), Some(plan));
        let mut prepared = PreparedStatement {
            sql: None,
            statement,
            footprint,
            plan,
            given,
            cursor: None,
            from_sql: true,
            created_us: now_ns().div_euclid(1_000),
        };
        self.give_types(&mut prepared).await?;
        self.hold(prepared.bytes())?;
        self.statements.insert(name, Arc::new(prepared));
        Ok(())
    }

    /// Plans a SELECT of expressions without parameters.
    async fn select(&mut self, expressions: &str) -> Result<Arc<Plan>, Failure> {
        let (mut statements, footprint) = self.parsed(&format!("SELECT {expressions}")).await?;
        let statement = statements.pop().ok_or_else(|| QueryError::new(sqlstate::SYNTAX_ERROR, "no expression"))?;
        let plan = self.planned(&Arc::new(statement), footprint).await?;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        Ok(plan)
    }

    /// Runs a prepared statement and sends its result.
    pub(super) async fn execute_prepared(
        &mut self,
        name: &str,
        arguments: &[Expr],
        describe: bool,
    ) -> Result<(), Failure> {
        let bound = self.bind_arguments(name, arguments).await?;
        let Some(plan) = &bound.plan else {
            let Some(statement) = &bound.prepared.statement else {
                message::put(&mut self.client.output, b'I', |_| {});
                return Ok(());
            };
            let request = statement::request(statement);
            return Box::pin(self.command(request, bound.prepared.footprint, describe)).await;
        };
        if let Some(cursor) = &bound.prepared.cursor {
            return self.declare(cursor.clone(), bound).await;
        }
        if describe {
            message::put_row_description(&mut self.client.output, &columns_of(plan)?, |_| false);
        }
        let deadline = self.session.deadline();
        let running = self.start_bound(&bound, Formats::default(), deadline).await?;
        self.finish(running, deadline).await
    }

    /// Returns a prepared statement with the values of its parameters.
    pub(super) async fn bind_arguments(&mut self, name: &str, arguments: &[Expr]) -> Result<Bound, Failure> {
        let prepared = self.statements.get(name).cloned().ok_or_else(|| no_statement(name))?;
        let plan = self.fresh_plan(&prepared).await?;
        let wanted = plan.as_ref().map_or(0, |plan| plan.parameters.len()).max(prepared.given.len());
        if arguments.len() != wanted {
            let text = format!(
                "wrong number of parameters for prepared statement \"{name}\": expected {wanted} but got {}",
                arguments.len()
            );
            return Err(QueryError::new(sqlstate::SYNTAX_ERROR, text).into());
        }
        let texts = match arguments.iter().map(constant_text).collect::<Option<Vec<_>>>() {
            Some(texts) => texts,
            None => self.texts_of(arguments).await?,
        };
        let mut values = Vec::with_capacity(texts.len());
        // A type may be given for a parameter that is not used.
        let used = plan.as_ref().map_or(0, |plan| plan.parameters.len());
        for (at, text) in texts.iter().take(used).enumerate() {
            values.push(prepared.decode(at, text.as_deref().map(str::as_bytes), false, plan.as_deref())?);
        }
        Ok(Bound { prepared, plan, values })
    }

    /// Evaluates expressions to texts, as a client would send them.
    async fn texts_of(&mut self, expressions: &[Expr]) -> Result<Vec<Option<String>>, Failure> {
        let list = expressions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let plan = self.select(&list).await?;
        let deadline = self.session.deadline();
        let (watched, session) = (self.watch(deadline), &self.session);
        let row = async {
            let mut rows = session.run(&plan, Vec::new()).await?;
            rows.next().await.transpose()
        };
        let row = watched.run(&self.client.socket, row).await??;
        let row = row.ok_or_else(|| QueryError::new(sqlstate::INTERNAL_ERROR, "arguments without values"))?;
        let mut texts = Vec::with_capacity(row.num_columns());
        for (array, field) in row.columns().iter().zip(plan.schema.fields()) {
            let mut cell = BytesMut::new();
            encode::put_arrow(&mut cell, array, 0, field, &encode::wire_type(field)?, false)?;
            texts.push(Body(&cell).sized()?.map(|text| String::from_utf8_lossy(text).into_owned()));
        }
        Ok(texts)
    }

    /// Returns the columns that an EXECUTE statement sends.
    pub(super) fn columns_of_prepared(&self, name: &str) -> Result<Vec<ResultColumn>, QueryError> {
        let prepared = self.statements.get(name).ok_or_else(|| no_statement(name))?;
        match prepared.plan.as_ref().filter(|_| prepared.cursor.is_none()) {
            Some(plan) => columns_of(plan),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns the text of a constant, with `None` inside for NULL, or `None` for any other expression.
fn constant_text(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => Some(Some(text.clone())),
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Some(text.clone())),
            Value::Boolean(value) => Some(Some(value.to_string())),
            Value::Null => Some(None),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(text, _) => Some(Some(format!("-{text}"))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

//! The extended protocol: statements are parsed, bound to values, described and executed in separate messages.

use std::sync::Arc;
use std::time::Instant;

use bytes::BufMut;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::Statement;
use pgwire::api::Type;

use super::connection::{Connection, NAMES_MAX, columns_of, no_portal, no_statement, show_columns, violation};
use super::portal::{Bound, Portal, PortalState, PreparedStatement};
use super::result::Running;
use super::watched::Failure;
use crate::error::{QueryError, sqlstate};
use crate::plan::parameter;
use crate::query::Plan;
use crate::query::cache::CachedPlan;
use crate::running::clock::now_ns;
use crate::sql::footprint::Footprint;
use crate::sql::statement;
use crate::sql::statement::Request;
use crate::wire::message;
use crate::wire::message::{Body, Formats};

impl Connection {
    pub(super) async fn parse(&mut self, mut fields: Body<'_>) -> Result<(), Failure> {
        let (name, sql) = (fields.text()?.to_owned(), fields.text()?);
        let count = fields.count()?;
        let mut given = (0..count).map(|_| fields.i32().map(|oid| oid as u32)).collect::<Result<Vec<_>, _>>()?;
        if !name.is_empty() {
            self.check_name(&name)?;
        }
        self.begin();
        let prepared = match self.session.cached(sql) {
            Some(CachedPlan { statement, plan }) => {
                self.in_transaction(&Request::Rows)?;
                let footprint = plan.footprint;
                if sql.contains("oid") {
                    parameter::give_numbers(&mut statement.as_ref().clone(), &mut given)?;
                }
                let (sql, statement, plan) = (Some(sql.to_owned()), Some(statement), Some(plan));
                let mut prepared = PreparedStatement {
                    sql,
                    statement,
                    footprint,
                    plan,
                    given,
                    cursor: None,
                    from_sql: false,
                    created_us: now_ns().div_euclid(1_000),
                };
                self.give_types(&mut prepared).await?;
                prepared
            }
            None => {
                let (mut statements, footprint) = self.parsed(sql).await?;
                if statements.len() > 1 {
                    return Err(QueryError::new(
                        sqlstate::SYNTAX_ERROR,
                        "cannot insert multiple commands into a prepared statement",
                    )
                    .into());
                }
                if let Some(statement) = statements.first_mut() {
                    parameter::give_numbers(statement, &mut given)?;
                }
                let mut prepared = PreparedStatement {
                    sql: Some(sql.to_owned()),
                    statement: statements.pop().map(Arc::new),
                    footprint,
                    plan: None,
                    given,
                    cursor: None,
                    from_sql: false,
                    created_us: now_ns().div_euclid(1_000),
                };
                if let Some(statement) = prepared.statement.clone() {
                    let request = statement::request(&statement);
                    self.in_transaction(&request)?;
                    match request {
                        Request::Rows => {
                            let (planned, made) = self.planned_as_given(&statement, footprint, &prepared.given).await?;
                            prepared.plan = Some(made.clone());
                            if Arc::ptr_eq(&planned, &statement) {
                                self.session.query.inner.plans.put(sql, &statement, &made);
                                self.give_types(&mut prepared).await?;
                            } else {
                                (prepared.sql, prepared.statement) = (None, Some(planned));
                            }
                        }
                        Request::Declare(cursor, query) => {
                            let query = Arc::new(Statement::Query(query));
                            prepared.plan = Some(self.planned(&query, footprint).await?);
                            prepared.statement = Some(query);
                            (prepared.sql, prepared.cursor) = (None, Some(cursor));
                        }
                        // Before its parameters are counted.
                        Request::Refused(error) => return Err(error.into()),
                        _ => {}
                    }
                }
                prepared
            }
        };
        self.statements.remove(&name);
        self.hold(prepared.bytes())?;
        self.statements.insert(name, Arc::new(prepared));
        message::put(&mut self.client.output, b'1', |_| {});
        Ok(())
    }

    /// Plans a statement, or, if that fails, the statement with the types that its client gave for parameters. Returns
    /// what was planned.
    pub(super) async fn planned_as_given(
        &mut self,
        statement: &Arc<Statement>,
        footprint: Footprint,
        given: &[u32],
    ) -> Result<(Arc<Statement>, Arc<Plan>), Failure> {
        let failure = match self.planned(statement, footprint).await {
            Ok(plan) => return Ok((statement.clone(), plan)),
            Err(failure) => failure,
        };
        let mut typed = statement.as_ref().clone();
        if !parameter::cast_given(&mut typed, (&[], &|_| false), given)? {
            return Err(failure);
        }
        let typed = Arc::new(typed);
        match self.planned(&typed, footprint).await {
            Ok(plan) => Ok((typed, plan)),
            Err(_) => Err(failure),
        }
    }

    /// Plans a statement again with the types that its client gave for parameters, if its columns then have other types
    /// than those that the planner inferred, or it inferred none for a parameter.
    pub(super) async fn give_types(&mut self, prepared: &mut PreparedStatement) -> Result<(), Failure> {
        let (Some(plan), Some(statement)) = (&prepared.plan, &prepared.statement) else { return Ok(()) };
        let mut typed = statement.as_ref().clone();
        let is_argument = |at| plan.is_argument(at);
        if !parameter::cast_given(&mut typed, (&plan.parameters, &is_argument), &prepared.given)? {
            return Ok(());
        }
        let typed = Arc::new(typed);
        // What cannot be planned so is run as the planner understood it.
        let Ok(made) = self.planned(&typed, prepared.footprint).await else { return Ok(()) };
        let types = |plan: &Plan| -> Vec<Type> {
            plan.schema.fields().iter().map(|field| parameter::wire_type(Some(field.data_type()))).collect()
        };
        let differs = |(kind, oid): (&Option<DataType>, &u32)| match kind {
            None => *oid != 0,
            // Beside a time, the planner takes an interval for another time.
            Some(kind) => *oid == Type::INTERVAL.oid() && !matches!(kind, DataType::Interval(_)),
        };
        let any_differs = plan.parameters.iter().zip(&prepared.given).any(differs);
        if any_differs || types(&made) != types(plan) {
            (prepared.sql, prepared.statement, prepared.plan) = (None, Some(typed), Some(made));
        }
        Ok(())
    }

    pub(super) async fn bind(&mut self, mut fields: Body<'_>) -> Result<(), Failure> {
        let (portal, name) = (fields.text()?.to_owned(), fields.text()?);
        let prepared = self.statements.get(name).cloned().ok_or_else(|| no_statement(name))?;
        if self.portals.len() >= NAMES_MAX {
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many portals").into());
        }
        let count = fields.count()?;
        let formats = (0..count).map(|_| fields.i16().map(|f| f == 1)).collect::<Result<Vec<_>, _>>()?;
        let formats = Formats(formats);
        self.begin();
        let plan = self.fresh_plan(&prepared).await?;
        let wanted = plan.as_ref().map_or(0, |plan| plan.parameters.len());
        let count = fields.count()?;
        if count != wanted {
            let text = format!(
                "bind message supplies {count} parameters, but prepared statement \"{name}\" requires {wanted}"
            );
            return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text).into());
        }
        let mut values = Vec::with_capacity(count);
        for at in 0..count {
            let bytes = fields.sized()?;
            values.push(prepared.decode(at, bytes, formats.binary(at), plan.as_deref())?);
        }
        let count = fields.count()?;
        let formats = (0..count).map(|_| fields.i16().map(|f| f == 1)).collect::<Result<Vec<_>, _>>()?;
        let formats = Formats(formats);
        let made = Portal {
            bound: Bound { prepared, plan, values },
            formats,
            state: PortalState::Ready,
            is_cursor: false,
            number: self.transaction.next_portal(),
            position: 0,
            created_us: now_ns().div_euclid(1_000),
        };
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            let text = format!("cursor \"{portal}\" already exists");
            return Err(QueryError::new(sqlstate::DUPLICATE_CURSOR, text).into());
        }
        self.portals.remove(&portal);
        self.hold(made.bytes())?;
        self.portals.insert(portal, made);
        message::put(&mut self.client.output, b'2', |_| {});
        Ok(())
    }

    /// Returns a plan of a statement for the current catalog.
    pub(super) async fn fresh_plan(&mut self, prepared: &PreparedStatement) -> Result<Option<Arc<Plan>>, Failure> {
        let (Some(plan), Some(statement)) = (&prepared.plan, &prepared.statement) else { return Ok(None) };
        if plan.version == self.session.query.inner.store.catalog_version() {
            return Ok(Some(plan.clone()));
        }
        let cached = prepared.sql.as_deref().and_then(|sql| self.session.cached(sql));
        let fresh = match cached {
            Some(cached) => cached.plan,
            None => {
                let fresh = self.planned(statement, prepared.footprint).await?;
                if let Some(sql) = &prepared.sql {
                    self.session.query.inner.plans.put(sql, statement, &fresh);
                }
                fresh
            }
        };
        if !fresh.has_columns_of(plan) {
            return Err(plan_changed().into());
        }
        Ok(Some(fresh))
    }

    pub(super) fn describe(&mut self, mut fields: Body<'_>) -> Result<(), Failure> {
        let (kind, name) = (fields.u8()?, fields.text()?);
        let mut is_declaration = true;
        let (prepared, plan, formats) = match kind {
            b'S' => {
                let prepared = self.statements.get(name).cloned().ok_or_else(|| no_statement(name))?;
                let plan = prepared.plan.clone();
                (prepared, plan, Formats::default())
            }
            b'P' => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                let Bound { prepared, plan, .. } = &portal.bound;
                // What declares a cursor sends no rows; the cursor does.
                is_declaration &= !portal.is_cursor;
                (prepared.clone(), plan.clone(), portal.formats.clone())
            }
            _ => return Err(violation("Describe of neither statement nor portal").into()),
        };
        is_declaration &= prepared.cursor.is_some();
        let out = &mut self.client.output;
        if kind == b'S' {
            let count = plan.as_ref().map_or(0, |plan| plan.parameters.len());
            let type_of = |at| plan.as_ref().and_then(|plan| plan.parameter(at, false));
            message::put(out, b't', |out| {
                out.put_i16(count as i16);
                for at in 0..count {
                    out.put_u32(prepared.given(at).unwrap_or_else(|| parameter::wire_type(type_of(at)).oid()));
                }
            });
        }
        let mut sends_rows = plan.is_some() && !is_declaration;
        let columns = match (&plan, &prepared.statement) {
            (_, _) if is_declaration => Vec::new(),
            (Some(plan), _) => columns_of(plan)?,
            (None, Some(statement)) => match statement::request(statement) {
                Request::Show(name) => show_columns(name.as_deref()),
                Request::Fetch(fetch) => self.columns_of_fetch(&fetch)?,
                Request::Execute { name, .. } => self.columns_of_prepared(&name)?,
                _ => Vec::new(),
            },
            (None, None) => Vec::new(),
        };
        sends_rows |= !columns.is_empty();
        if sends_rows {
            message::put_row_description(&mut self.client.output, &columns, |at| formats.binary(at));
        } else {
            message::put(&mut self.client.output, b'n', |_| {});
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, mut fields: Body<'_>) -> Result<(), Failure> {
        let (name, most) = (fields.text()?.to_owned(), fields.i32()?);
        let most = usize::try_from(most).unwrap_or(0);
        let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
        let (prepared, has_plan) = (portal.bound.prepared.clone(), portal.bound.plan.is_some());
        let (formats, is_cursor) = (portal.formats.clone(), portal.is_cursor);
        let Some(statement) = &prepared.statement else {
            message::put(&mut self.client.output, b'I', |_| {});
            return Ok(());
        };
        let request = if has_plan { Request::Rows } else { statement::request(statement) };
        self.in_transaction(&request)?;
        self.begin();
        match request {
            Request::Rows => {}
            Request::Fetch(fetch) => return self.fetch(&fetch, Some(&formats)).await,
            Request::Execute { name: executed, arguments } => {
                let bound = self.bind_arguments(&executed, &arguments).await?;
                let is_rows = bound.plan.is_some() && bound.prepared.cursor.is_none();
                match self.portals.get_mut(&name) {
                    Some(portal) if is_rows => portal.bound = bound,
                    _ => return self.execute_prepared(&executed, &arguments, false).await,
                }
            }
            request => return self.command(request, prepared.footprint, false).await,
        }
        let deadline = self.session.deadline();
        let state = self.take_running(&name);
        let mut running = match state {
            PortalState::Running(running) => running,
            PortalState::Complete => {
                message::put_complete(&mut self.client.output, "SELECT 0");
                return Ok(());
            }
            PortalState::Ready => {
                let Some(portal) = self.portals.get_mut(&name) else { return Err(no_portal(&name).into()) };
                let Bound { prepared, plan, values } = &mut portal.bound;
                let (prepared, plan, values) = (prepared.clone(), plan.clone(), std::mem::take(values));
                let cursor = prepared.cursor.clone().filter(|_| !is_cursor);
                let bound = Bound { prepared, plan, values };
                if let Some(cursor) = cursor {
                    return self.declare(cursor, bound).await;
                }
                Box::new(self.start_bound(&bound, formats, deadline).await?)
            }
            PortalState::Failed => {
                let text = format!("portal \"{name}\" cannot be run");
                return Err(QueryError::new(sqlstate::NOT_IN_STATE, text).into());
            }
        };
        let progress = self.pump(&mut running, most, deadline).await?;
        running.put_end(&mut self.client.output, progress);
        let sent = running.sent();
        self.put_back(&name, running, progress, sent);
        Ok(())
    }

    /// Starts a bound statement that returns rows.
    pub(super) async fn start_bound(
        &mut self,
        bound: &Bound,
        formats: Formats,
        deadline: Option<Instant>,
    ) -> Result<Running, Failure> {
        let Bound { prepared, plan, values } = bound;
        let (Some(plan), Some(statement)) = (plan, &prepared.statement) else {
            return Err(QueryError::new(sqlstate::NOT_IN_STATE, "the statement returns no rows").into());
        };
        if !plan.depends_on(values) {
            return self.start(plan, values, formats, deadline).await;
        }
        let (watched, session) = (self.watch(self.session.deadline()), &self.session);
        let replanned = session.replan(statement, prepared.footprint, values);
        let described = plan;
        let plan = watched.run(&self.client.socket, replanned).await??;
        if values.is_empty() && !plan.has_columns_of(described) {
            return Err(plan_changed().into());
        }
        let values = if plan.parameters.is_empty() { &[] } else { values.as_slice() };
        self.start(&plan, values, formats, deadline).await
    }
}

/// Returns the error for described columns that are outdated. Clients prepare again on it.
fn plan_changed() -> QueryError {
    QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, message::PLAN_CHANGED)
        .with_hint("Channels were added or widened. Prepare the statement again.")
}

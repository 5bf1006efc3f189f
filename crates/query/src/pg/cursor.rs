//! Cursors in SQL. A cursor is a portal: the protocol can describe and execute it as well, and `FETCH` reads any portal.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Query as SqlQuery, Statement};

use super::connection::{Connection, NAMES_MAX, columns_of};
use super::portal::{Bound, Portal, PortalState, PreparedStatement};
use super::result::{Progress, Running};
use super::watched::Failure;
use crate::error::{QueryError, sqlstate};
use crate::running::clock::now_ns;
use crate::sql::cursor::{Cursor, Fetch, Reach};
use crate::sql::footprint::Footprint;
use crate::system::session::type_text;
use crate::system::session_tables::{CursorRow, PreparedRow, SessionRows};
use crate::wire::message;
use crate::wire::message::{Formats, ResultColumn, RowForm};

impl Connection {
    /// Declares a cursor over a query without parameters.
    pub(super) async fn declare_query(
        &mut self,
        cursor: Cursor,
        query: SqlQuery,
        footprint: Footprint,
    ) -> Result<(), Failure> {
        self.check_declaration(&cursor)?;
        let statement = Arc::new(Statement::Query(Box::new(query)));
        let plan = self.planned(&statement, footprint).await?;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        let statement = Some(statement);
        let (plan, given) = (Some(plan), Vec::new());
        let prepared = PreparedStatement {
            sql: None,
            statement,
            footprint,
            plan: plan.clone(),
            given,
            cursor: None,
            from_sql: false,
            created_us: now_ns().div_euclid(1_000),
        };
        self.declare(cursor, Bound { prepared: Arc::new(prepared), plan, values: Vec::new() }).await
    }

    fn check_declaration(&self, cursor: &Cursor) -> Result<(), QueryError> {
        self.require_transaction("DECLARE CURSOR")?;
        if self.portals.contains_key(&cursor.name) {
            let text = format!("cursor \"{}\" already exists", cursor.name);
            return Err(QueryError::new(sqlstate::DUPLICATE_CURSOR, text));
        }
        if self.portals.len() >= NAMES_MAX {
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many cursors"));
        }
        Ok(())
    }

    /// Declares a cursor over a bound query. Its rows are those at this moment.
    pub(super) async fn declare(&mut self, cursor: Cursor, bound: Bound) -> Result<(), Failure> {
        self.check_declaration(&cursor)?;
        let deadline = self.session.deadline();
        let running = self.start_bound(&bound, Formats::default(), deadline).await?;
        let portal = Portal {
            bound: Bound { values: Vec::new(), ..bound },
            formats: if cursor.binary { Formats(vec![true]) } else { Formats::default() },
            state: PortalState::Running(Box::new(running)),
            is_cursor: true,
            number: self.transaction.next_portal(),
            position: 0,
            created_us: now_ns().div_euclid(1_000),
        };
        self.hold(portal.bytes())?;
        self.portals.insert(cursor.name, portal);
        message::put_complete(&mut self.client.output, "DECLARE CURSOR");
        Ok(())
    }

    /// Sends or passes rows of a cursor: in its own form after a description, or in the given formats.
    pub(super) async fn fetch(&mut self, fetch: &Fetch, formats: Option<&Formats>) -> Result<(), Failure> {
        let verb = if fetch.moves { "MOVE" } else { "FETCH" };
        let portal = self.portals.get(&fetch.name).ok_or_else(|| no_cursor(&fetch.name))?;
        let cannot_run = || {
            let text = format!("portal \"{}\" cannot be run", fetch.name);
            QueryError::new(sqlstate::NOT_IN_STATE, text)
        };
        let plan = portal.bound.plan.clone().ok_or_else(cannot_run)?;
        let columns = columns_of(&plan)?;
        let part = Part::of(fetch, portal)?;
        let own = if portal.is_cursor { portal.formats.clone() } else { Formats::default() };
        if formats.is_none() && !fetch.moves {
            message::put_row_description(&mut self.client.output, &columns, |at| own.binary(at));
        }
        let form = RowForm::data(formats.cloned().unwrap_or(own));
        let (passed, count) = match part {
            Part::Rows { passed, count } => (passed, count),
            Part::Nothing { count } => {
                message::put_complete(&mut self.client.output, &format!("{verb} {count}"));
                return Ok(());
            }
        };
        let deadline = self.session.deadline();
        let mut running = match self.take_running(&fetch.name) {
            PortalState::Running(running) => running,
            PortalState::Ready => {
                let bound = self.portals.get_mut(&fetch.name).map(|portal| Bound {
                    prepared: portal.bound.prepared.clone(),
                    plan: portal.bound.plan.clone(),
                    values: std::mem::take(&mut portal.bound.values),
                });
                let bound = bound.ok_or_else(cannot_run)?;
                Box::new(self.start_bound(&bound, form.formats.clone(), deadline).await?)
            }
            PortalState::Complete | PortalState::Failed => return Err(cannot_run().into()),
        };
        running.set_form(form);
        let mut position = 0;
        let mut progress = Progress::Suspended;
        if passed > 0 {
            running.set_passing(true);
            progress = self.pump(&mut running, passed, deadline).await?;
            position += running.sent();
        }
        let mut sent = 0;
        if progress == Progress::Suspended {
            running.set_passing(fetch.moves);
            progress = self.pump(&mut running, count, deadline).await?;
            sent = running.sent();
        }
        running.set_passing(false);
        self.put_back(&fetch.name, running, progress, position + sent);
        message::put_complete(&mut self.client.output, &format!("{verb} {sent}"));
        Ok(())
    }

    /// Tells the session about its cursors and prepared statements, before a statement starts that reads them.
    pub(super) fn list_session(&self) {
        let text = |prepared: &PreparedStatement| match (&prepared.sql, &prepared.statement) {
            (Some(sql), _) => sql.clone(),
            (None, statement) => statement.as_ref().map_or_else(String::new, ToString::to_string),
        };
        let cursor = |(name, portal): (&String, &Portal)| CursorRow {
            name: name.clone(),
            statement: text(&portal.bound.prepared),
            binary: portal.formats.binary(0),
            created_us: portal.created_us,
        };
        let prepared = |(name, prepared): (&String, &Arc<PreparedStatement>)| PreparedRow {
            name: name.clone(),
            statement: text(prepared),
            parameters: prepared.parameter_types().iter().map(type_text).collect(),
            columns: prepared
                .plan
                .as_ref()
                .and_then(|plan| columns_of(plan).ok())
                .map(|columns| columns.iter().map(|column| type_text(&column.kind)).collect()),
            from_sql: prepared.from_sql,
            created_us: prepared.created_us,
        };
        let cursors = self.portals.iter().filter(|(_, portal)| portal.is_cursor).map(cursor).collect();
        let named = self.statements.iter().filter(|(name, _)| !name.is_empty());
        let settings = self.session.settings.clone();
        *self.session.rows.lock() =
            Arc::new(SessionRows { cursors, prepared: named.map(prepared).collect(), settings });
    }

    /// Takes the running statement of a portal. Until it is put back, the portal counts as failed.
    pub(super) fn take_running(&mut self, name: &str) -> PortalState {
        match self.portals.get_mut(name) {
            Some(portal) if matches!(portal.state, PortalState::Complete) => PortalState::Complete,
            Some(portal) => std::mem::replace(&mut portal.state, PortalState::Failed),
            None => PortalState::Failed,
        }
    }

    /// Puts back the statement of a portal after a portion of rows.
    pub(super) fn put_back(&mut self, name: &str, running: Box<Running>, progress: Progress, rows: u64) {
        if let Some(portal) = self.portals.get_mut(name) {
            portal.position += rows;
            portal.state = match progress {
                Progress::Suspended => PortalState::Running(running),
                Progress::Complete => PortalState::Complete,
            };
        }
    }

    /// Closes a cursor, or all of them. Returns the command tag.
    ///
    /// # Errors
    /// If there is no such cursor.
    pub(super) fn close(&mut self, name: Option<&str>) -> Result<&'static str, QueryError> {
        match name {
            None => {
                self.portals.clear();
                Ok("CLOSE CURSOR ALL")
            }
            Some(name) => {
                self.portals.remove(name).ok_or_else(|| no_cursor(name))?;
                Ok("CLOSE CURSOR")
            }
        }
    }

    /// Returns the columns that a FETCH statement sends, or none if there is no such cursor yet.
    pub(super) fn columns_of_fetch(&self, fetch: &Fetch) -> Result<Vec<ResultColumn>, QueryError> {
        let portal = self.portals.get(&fetch.name).filter(|_| !fetch.moves);
        match portal.and_then(|portal| portal.bound.plan.as_ref()) {
            Some(plan) => columns_of(plan),
            None => Ok(Vec::new()),
        }
    }
}

/// Part of a cursor's rows that a statement reads.
enum Part {
    /// Rows to pass, then rows to send (0 for all).
    Rows { passed: usize, count: usize },
    /// No rows, but a count of them to report.
    Nothing { count: u64 },
}

impl Part {
    fn of(fetch: &Fetch, portal: &Portal) -> Result<Part, QueryError> {
        let is_complete = matches!(portal.state, PortalState::Complete);
        if matches!(portal.state, PortalState::Failed) {
            let text = format!("portal \"{}\" cannot be run", fetch.name);
            return Err(QueryError::new(sqlstate::NOT_IN_STATE, text));
        }
        let backward = || {
            let error = QueryError::new(sqlstate::NOT_IN_STATE, "cursor can only scan forward");
            Err(error.with_hint("A cursor reads its rows once, in order. Declare another one to read them again."))
        };
        let is_on_row = portal.position > 0 && !is_complete;
        let rows = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
        let (passed, count) = match fetch.reach {
            Reach::Next(Some(0)) | Reach::Ahead(0) if fetch.moves => {
                return Ok(Part::Nothing { count: is_on_row.into() });
            }
            Reach::Next(Some(0)) | Reach::Ahead(0) if is_on_row => return backward(),
            Reach::Next(Some(0)) | Reach::Ahead(0) => return Ok(Part::Nothing { count: 0 }),
            Reach::At(0) if portal.position == 0 && !is_complete => return Ok(Part::Nothing { count: 0 }),
            Reach::Next(None) => (0, 0),
            Reach::Next(Some(count)) => (0, rows(count)),
            Reach::Ahead(count) if count > 0 => (rows(count - 1), 1),
            Reach::At(number) if number > 0 && !is_complete && number as u64 > portal.position => {
                (rows(number - 1) - portal.position as usize, 1)
            }
            Reach::At(_) | Reach::Ahead(_) | Reach::Back => return backward(),
        };
        if is_complete {
            return Ok(Part::Nothing { count: 0 });
        }
        Ok(Part::Rows { passed, count })
    }
}

fn no_cursor(name: &str) -> QueryError {
    QueryError::new(sqlstate::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

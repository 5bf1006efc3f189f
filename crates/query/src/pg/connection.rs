//! Serves one client after its startup: reads messages, keeps its prepared statements, portals and transaction, and
//! runs statements so that cancellation, timeout, shutdown and disconnection stop them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use pgwire::api::Type;
use tokio::sync::watch;

use super::client::{Client, Startup};
use super::portal::{Portal, PreparedStatement};
use super::result::{Progress, Running};
use super::transaction::Transaction;
use super::watched::{Failure, Watched, no_seat, stopping};
use crate::error::{QueryError, sqlstate};
use crate::query::Plan;
use crate::query::session::Session;
use crate::running::doors::Entry;
use crate::running::memory::Share;
use crate::sql::footprint::Footprint;
use crate::sql::setting::REPORTED;
use crate::sql::statement;
use crate::sql::statement::Request;
use crate::wire::encode;
use crate::wire::message;
use crate::wire::message::{Body, Formats, ResultColumn};

/// Maximum prepared statements, maximum portals, and maximum savepoints, of a connection.
pub(super) const NAMES_MAX: usize = 10_000;
/// Bytes of a connection's statements and portals that do not count as session memory.
const NAMES_BYTES_FREE: usize = 1 << 20;
/// Maximum columns of a result (the wire counts them in 16 bits).
const COLUMNS_MAX: usize = i16::MAX as usize;
/// Size of the output, in bytes, at which it is sent before more rows are made.
const OUTPUT_BYTES: usize = 64 << 10;

/// A client's connection.
pub(crate) struct Connection {
    pub(super) client: Client,
    pub(super) session: Session,
    pub(super) statements: HashMap<String, Arc<PreparedStatement>>,
    pub(super) portals: HashMap<String, Portal>,
    /// Memory for statements and portals.
    held: Share,
    pub(super) transaction: Transaction,
    /// Flag set by cancel requests.
    cancel: watch::Sender<bool>,
    seat: Entry,
    stopped: watch::Receiver<bool>,
    /// Whether messages are skipped until the next Sync, after an error of the extended protocol.
    skipping: bool,
}

impl Connection {
    pub(crate) fn new(
        client: Client,
        session: Session,
        cancel: watch::Sender<bool>,
        seat: Entry,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let held = Share::new(session.query.inner.sessions.clone(), NAMES_BYTES_FREE);
        Connection {
            client,
            held,
            session,
            statements: HashMap::new(),
            portals: HashMap::new(),
            transaction: Transaction::default(),
            cancel,
            seat,
            stopped,
            skipping: false,
        }
    }

    /// Serves until the client disconnects, the server stops, or the socket fails.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            let next = tokio::select! {
                biased;
                next = self.client.message() => Ok(next),
                _ = self.stopped.wait_for(|stopped| *stopped) => Err(stopping()),
                _ = &mut self.seat.leave => Err(no_seat()),
            };
            let next = match next {
                Ok(next) => next,
                Err(error) => return self.end(error).await,
            };
            let (tag, body) = match next {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(()),
                Err(Startup::Io(error)) => return Err(error),
                Err(Startup::Refused(error)) => return self.end(error).await,
            };
            if tag == b'X' {
                return Ok(());
            }
            if !self.seat.place.spare() {
                return self.end(no_seat()).await;
            }
            if self.skipping && tag != b'S' {
                continue;
            }
            match self.serve(tag, &body).await {
                Ok(()) => {}
                Err(Failure::Io(error)) => return Err(error),
                Err(Failure::Fatal(error)) => return self.end(error).await,
                Err(Failure::Error(error)) => {
                    message::put_error(&mut self.client.output, &error, false);
                    self.transaction.fail();
                    if tag == b'Q' {
                        self.ready();
                    } else {
                        self.skipping = true;
                    }
                    self.client.flush().await?;
                }
            }
            drop(body);
            self.client.served();
        }
    }

    /// Reserves memory for a statement or portal of `bytes` bytes.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.recount();
        if self.held.try_resize(self.held.bytes() + bytes) {
            return Ok(());
        }
        let text = format!("no room for a prepared statement of {bytes} bytes beside those of all sessions");
        Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).with_hint("Deallocate statements that are not needed."))
    }

    /// Recounts statements and portals after some were removed.
    pub(super) fn recount(&mut self) {
        let statements: usize = self.statements.values().map(|prepared| prepared.bytes()).sum();
        let portals: usize = self.portals.values().map(Portal::bytes).sum();
        // Shrinking always succeeds.
        let _ = self.held.try_resize((statements + portals).min(self.held.bytes()));
    }

    async fn end(mut self, error: QueryError) -> io::Result<()> {
        message::put_error(&mut self.client.output, &error, true);
        tokio::time::timeout(Duration::from_secs(1), self.client.flush()).await.unwrap_or(Ok(()))
    }

    fn ready(&mut self) {
        let status = self.transaction.status();
        message::put(&mut self.client.output, b'Z', |out| out.put_u8(status));
    }

    async fn serve(&mut self, tag: u8, body: &[u8]) -> Result<(), Failure> {
        let mut fields = Body(body);
        match tag {
            b'Q' => {
                let sql = fields.text()?;
                self.simple(sql).await?;
                self.ready();
                self.client.flush().await?;
            }
            b'P' => self.parse(fields).await?,
            b'B' => self.bind(fields).await?,
            b'D' => self.describe(fields)?,
            b'E' => self.execute(fields).await?,
            b'C' => {
                let (kind, name) = (fields.u8()?, fields.text()?);
                match kind {
                    b'S' => drop(self.statements.remove(name)),
                    b'P' => drop(self.portals.remove(name)),
                    _ => return Err(violation("Close of neither statement nor portal").into()),
                }
                message::put(&mut self.client.output, b'3', |_| {});
            }
            b'S' => {
                self.skipping = false;
                if !self.transaction.is_open() && !self.portals.is_empty() {
                    self.portals.clear();
                }
                self.ready();
                self.client.flush().await?;
            }
            b'H' => self.client.flush().await?,
            // Copy data left over from a failed COPY.
            b'd' | b'c' | b'f' => {}
            b'F' => {
                return Err(QueryError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "function calls by number are not offered",
                )
                .into());
            }
            other => return Err(Failure::Fatal(violation(&format!("unknown type {:?}", other as char)))),
        }
        if self.client.output.len() > OUTPUT_BYTES {
            self.client.flush().await?;
        }
        Ok(())
    }

    async fn simple(&mut self, sql: &str) -> Result<(), Failure> {
        self.begin();
        if let Some(cached) = self.session.cached(sql) {
            self.in_transaction(&Request::Rows)?;
            return self.rows(&cached.plan, true).await;
        }
        let (statements, footprint) = self.parsed(sql).await?;
        // They are kept while the client reads the rows of the first.
        self.hold(footprint.tree_bytes)?;
        let ended = self.each(sql, statements, footprint).await;
        self.recount();
        ended
    }

    /// Runs the statements of a text, one after the other.
    async fn each(&mut self, sql: &str, statements: Vec<Statement>, footprint: Footprint) -> Result<(), Failure> {
        if statements.is_empty() {
            message::put(&mut self.client.output, b'I', |_| {});
        }
        let single = statements.len() == 1;
        for statement in statements {
            let request = statement::request(&statement);
            self.in_transaction(&request)?;
            match request {
                Request::Rows => {
                    let statement = Arc::new(statement);
                    let plan = self.planned(&statement, footprint).await?;
                    if !plan.parameters.is_empty() {
                        return Err(QueryError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1").into());
                    }
                    if single {
                        self.session.query.inner.plans.put(sql, &statement, &plan);
                    }
                    drop(statement);
                    self.rows(&plan, true).await?;
                }
                other => self.command(other, footprint, true).await?,
            }
        }
        Ok(())
    }

    /// Parses a text, unless stopped.
    pub(super) async fn parsed(&mut self, sql: &str) -> Result<(Vec<Statement>, Footprint), Failure> {
        let (watched, session) = (self.watch(self.session.deadline()), &self.session);
        Ok(watched.run(&self.client.socket, session.parse(sql)).await??)
    }

    /// Plans a statement, unless stopped.
    pub(super) async fn planned(
        &mut self,
        statement: &Arc<Statement>,
        footprint: Footprint,
    ) -> Result<Arc<Plan>, Failure> {
        let (watched, session) = (self.watch(self.session.deadline()), &self.session);
        Ok(watched.run(&self.client.socket, session.plan(statement.clone(), footprint)).await??)
    }

    pub(super) fn watch(&self, deadline: Option<Instant>) -> Watched {
        Watched { cancel: self.cancel.subscribe(), stopped: self.stopped.clone(), deadline }
    }

    /// Rejects any request but the end of the transaction, if the transaction has failed.
    pub(super) fn in_transaction(&self, request: &Request) -> Result<(), QueryError> {
        let ends = matches!(request, Request::End { .. } | Request::RollbackTo(_));
        if self.transaction.has_failed() && !ends {
            return Err(QueryError::new(
                sqlstate::IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    /// Runs a plan without parameters to its end.
    pub(super) async fn rows(&mut self, plan: &Arc<Plan>, describe: bool) -> Result<(), Failure> {
        let columns = columns_of(plan)?;
        if describe {
            message::put_row_description(&mut self.client.output, &columns, |_| false);
        }
        let deadline = self.session.deadline();
        let running = self.start(plan, &[], Formats::default(), deadline).await?;
        self.finish(running, deadline).await
    }

    /// Sends all rows of a running statement, and its end.
    pub(super) async fn finish(&mut self, mut running: Running, deadline: Option<Instant>) -> Result<(), Failure> {
        let progress = self.pump(&mut running, 0, deadline).await?;
        running.put_end(&mut self.client.output, progress);
        Ok(())
    }

    /// Runs a statement that does not return rows of tables.
    pub(super) async fn command(
        &mut self,
        request: Request,
        footprint: Footprint,
        describe: bool,
    ) -> Result<(), Failure> {
        let tag = match request {
            Request::Rows => return Ok(()),
            Request::CopyOut(query, form) => {
                return self.copy_out(Arc::new(Statement::Query(query)), footprint, form).await;
            }
            Request::Set(settings, tag) => {
                for (name, value) in settings {
                    self.session.settings.lock().set(&name, value.as_deref())?;
                    self.report(&name);
                }
                tag
            }
            Request::Show(name) => return self.show(name, describe).await,
            Request::Begin => self.begin_transaction(),
            Request::End { commit, chain } => self.end_transaction(commit, chain)?,
            Request::Savepoint(name) => self.savepoint(name)?,
            Request::Release(name) => self.release(&name)?,
            Request::RollbackTo(name) => self.rollback_to(&name)?,
            Request::Declare(cursor, query) => {
                return self.declare_query(cursor, *query, footprint).await;
            }
            Request::Fetch(fetch) => return self.fetch(&fetch, None).await,
            Request::Close(name) => self.close(name.as_deref())?,
            Request::Prepare { name, types, statement } => {
                self.prepare(name, &types, *statement, footprint).await?;
                "PREPARE"
            }
            Request::Execute { name, arguments } => {
                return self.execute_prepared(&name, &arguments, describe).await;
            }
            Request::Deallocate(name) => match name {
                None => {
                    self.statements.clear();
                    "DEALLOCATE ALL"
                }
                Some(name) => {
                    self.statements.remove(&name).ok_or_else(|| no_statement(&name))?;
                    "DEALLOCATE"
                }
            },
            Request::Discard => {
                if self.transaction.is_open() {
                    let text = "DISCARD ALL cannot run inside a transaction block";
                    return Err(QueryError::new(sqlstate::ACTIVE_TRANSACTION, text).into());
                }
                self.statements.clear();
                self.portals.clear();
                self.session.settings.lock().reset();
                "DISCARD ALL"
            }
            Request::ResetAll => {
                self.session.settings.lock().reset();
                "RESET"
            }
            Request::Nothing(tag) => tag,
            Request::Refused(error) => return Err(error.into()),
        };
        message::put_complete(&mut self.client.output, tag);
        Ok(())
    }

    /// Reports a setting whose value clients expect to be notified of.
    fn report(&mut self, name: &str) {
        if let Some(spelled) = REPORTED.iter().find(|r| r.eq_ignore_ascii_case(name)) {
            let value = self.session.settings.lock().get(name).unwrap_or_default();
            message::put_parameter_status(&mut self.client.output, spelled, &value);
        }
    }

    pub(super) async fn show(&mut self, name: Option<String>, describe: bool) -> Result<(), Failure> {
        let columns = show_columns(name.as_deref());
        let rows = match &name {
            None => self.session.settings.lock().all().into_iter().map(|(k, v)| vec![k, v]).collect(),
            Some(name) => {
                let value = self.session.settings.lock().get(name).ok_or_else(|| {
                    QueryError::new(
                        sqlstate::UNDEFINED_OBJECT,
                        format!("unrecognized configuration parameter \"{name}\""),
                    )
                })?;
                vec![vec![value]]
            }
        };
        if describe {
            message::put_row_description(&mut self.client.output, &columns, |_| false);
        }
        for row in rows {
            message::put(&mut self.client.output, b'D', |out| {
                out.put_i16(row.len() as i16);
                for text in row {
                    out.put_i32(text.len() as i32);
                    out.put_slice(text.as_bytes());
                }
            });
        }
        message::put_complete(&mut self.client.output, "SHOW");
        Ok(())
    }

    /// Starts work on a message. Resets a cancel request that came too late for the one before.
    pub(super) fn begin(&mut self) {
        if *self.cancel.borrow() {
            self.cancel.send_replace(false);
        }
    }

    pub(super) async fn start(
        &mut self,
        plan: &Arc<Plan>,
        values: &[ScalarValue],
        formats: Formats,
        deadline: Option<Instant>,
    ) -> Result<Running, Failure> {
        if let Some(direct) = &plan.direct {
            let view = self.session.view();
            if let Some(rows) = direct.open(&view, values, crate::running::clock::now_ns())? {
                return Ok(Running::direct(plan.clone(), rows, formats));
            }
        }
        if plan.reads_session {
            self.list_session();
        }
        // The wait for a turn can be long, and may be interrupted like a running query.
        let watched = self.watch(deadline);
        let session = &self.session;
        let rows = watched.run(&self.client.socket, session.run(plan, values.to_vec())).await??;
        Ok(Running::batches(plan, rows, formats)?)
    }

    /// Sends up to `most` rows (0 for all), or passes them. Returns how the portion ended.
    pub(super) async fn pump(
        &mut self,
        running: &mut Running,
        most: usize,
        deadline: Option<Instant>,
    ) -> Result<Progress, Failure> {
        let watched = self.watch(deadline);
        running.portion(most);
        loop {
            // A short read returns its rows at once. Wait for and watch a long one, or one by DataFusion.
            if running.needs_batch() {
                watched.run(&self.client.socket, running.fetch()).await??;
            } else if *self.cancel.borrow() {
                return Err(QueryError::cancelled().into());
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(QueryError::timed_out().into());
            }
            let Client { output, room, .. } = &mut self.client;
            let progress = running.put_rows(output, OUTPUT_BYTES, room)?;
            if self.client.output.len() >= OUTPUT_BYTES {
                self.send_watched(&watched).await?;
            }
            if let Some(progress) = progress {
                return Ok(progress);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends the output, unless the statement is stopped first, so that a client that does not read blocks nothing.
    async fn send_watched(&mut self, watched: &Watched) -> Result<(), Failure> {
        let Client { socket, output, .. } = &mut self.client;
        while !output.is_empty() {
            let mut cancel = watched.cancel.clone();
            let mut stopped = watched.stopped.clone();
            tokio::select! {
                biased;
                ready = socket.writable() => {
                    ready?;
                    match socket.try_write(output) {
                        Ok(0) => return Err(Failure::Io(io::ErrorKind::WriteZero.into())),
                        Ok(written) => output.advance(written),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                _ = cancel.wait_for(|cancelled| *cancelled) => return Err(QueryError::cancelled().into()),
                () = watched.expired() => return Err(QueryError::timed_out().into()),
                _ = stopped.wait_for(|stopped| *stopped) => return Err(Failure::Fatal(stopping())),
            }
        }
        self.client.sent();
        Ok(())
    }
}

pub(super) fn violation(what: &str) -> QueryError {
    QueryError::new(sqlstate::PROTOCOL_VIOLATION, format!("invalid message: {what}"))
}

pub(super) fn no_statement(name: &str) -> QueryError {
    QueryError::new(sqlstate::INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}

pub(super) fn no_portal(name: &str) -> QueryError {
    QueryError::new(sqlstate::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

pub(super) fn show_columns(name: Option<&str>) -> Vec<ResultColumn> {
    let column = |name: &str| ResultColumn { name: name.to_owned(), kind: Type::TEXT, modifier: -1 };
    match name {
        Some(name) => vec![column(name)],
        None => vec![column("name"), column("setting")],
    }
}

/// Returns the columns of a plan's result.
pub(super) fn columns_of(plan: &Plan) -> Result<Vec<ResultColumn>, QueryError> {
    use datafusion::arrow::datatypes::DataType;
    if plan.schema.fields().len() > COLUMNS_MAX {
        let text = format!("a result of {} columns, at most {COLUMNS_MAX}", plan.schema.fields().len());
        return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
    }
    plan.schema
        .fields()
        .iter()
        .map(|field| {
            let modifier = match field.data_type() {
                DataType::Decimal128(precision, scale) if *scale >= 0 => {
                    (i32::from(*precision) << 16 | i32::from(*scale)) + 4
                }
                _ => -1,
            };
            Ok(ResultColumn { name: field.name().clone(), kind: encode::wire_type(field)?, modifier })
        })
        .collect()
}

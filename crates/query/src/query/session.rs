//! A client's SQL session: parses, plans and runs its statements.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::ScalarValue;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;
use strongback_store::View;
use tokio::sync::mpsc;

use crate::error::{QueryError, sqlstate};
use crate::plan::argument;
use crate::query::cache::CachedPlan;
use crate::query::step::StepView;
use crate::query::{BATCHES_IN_FLIGHT, Made, Plan, Query, Rows, produce};
use crate::running::fair::Account;
use crate::running::stopped::Stopped;
use crate::sql::footprint::Footprint;
use crate::sql::parser::Tokens;
use crate::sql::setting::SharedSettings;
use crate::sql::statement;
use crate::sql::statement::Request;
use crate::sql::subscribe;
use crate::system::function::Constant;
use crate::system::session_tables::SessionRows;

/// Maximum table functions inside the arguments of each other, with subqueries.
const SUBQUERIES_DEPTH_MAX: usize = 4;

/// A client's SQL session.
pub(crate) struct Session {
    pub(crate) query: Query,
    pub(super) state: Arc<SessionState>,
    pub(crate) settings: SharedSettings,
    /// What its statements see of it.
    pub(crate) rows: Mutex<Arc<SessionRows>>,
    /// Record of its planning and running time.
    pub(super) account: Arc<Account>,
}

impl Session {
    /// Gives the session the number that `pg_backend_pid()` returns, by which its client cancels statements.
    pub(crate) fn set_process(&mut self, pid: i32) {
        let function = Constant::of_none("pg_backend_pid", &[], ScalarValue::from(pid));
        if let Err(error) = Arc::make_mut(&mut self.state).register_udf(Arc::new(function)) {
            tracing::warn!(%error, "a session goes without pg_backend_pid");
        }
    }

    /// Parses SQL into statements, with the rewrites that PostgreSQL clients need. Returns them with the memory of the
    /// largest.
    pub(crate) async fn parse(&self, sql: &str) -> Result<(Vec<Statement>, Footprint), QueryError> {
        subscribe::refuse(sql)?;
        let (inner, text) = (self.query.inner.clone(), Arc::<str>::from(sql));
        let (planning, split) = (&self.query.inner.planning, text.clone());
        let tokens = planning.run(&self.account, Footprint::of_text(sql.len()), move |_| Tokens::of(&split)).await?;
        let footprint = tokens.footprint;
        let parse = move |stopped: &_| {
            let tables = inner.database.tables();
            inner.parser.parse(&text, tokens, &|name| tables.columns_of(name), stopped)
        };
        planning.run(&self.account, footprint, parse).await
    }

    /// Plans a read-only statement.
    pub(crate) async fn plan(&self, statement: Arc<Statement>, footprint: Footprint) -> Result<Arc<Plan>, QueryError> {
        self.plan_within(statement, footprint, 0).await
    }

    /// Plans a statement, after running the subqueries in arguments of its table functions. `depth` is the number of
    /// subqueries that it is itself inside of.
    async fn plan_within(
        &self,
        statement: Arc<Statement>,
        footprint: Footprint,
        depth: usize,
    ) -> Result<Arc<Plan>, QueryError> {
        let planning = &self.query.inner.planning;
        let step = |values: Option<Vec<ScalarValue>>| {
            let (inner, state, statement) = (self.query.inner.clone(), self.state.clone(), statement.clone());
            planning
                .run(&self.account, footprint, move |_| inner.plan(&state, &statement, footprint, values.as_deref()))
        };
        let subqueries = match step(None).await? {
            Made::Plan(plan) => return Ok(plan),
            Made::Subqueries(subqueries) => subqueries,
        };
        if depth == SUBQUERIES_DEPTH_MAX {
            let text =
                format!("more than {SUBQUERIES_DEPTH_MAX} subqueries inside each other in arguments of functions");
            return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
        }
        let mut values = Vec::with_capacity(subqueries.len());
        for subquery in subqueries {
            values.push(Box::pin(self.single_value(Arc::new(subquery), footprint, depth + 1)).await?);
        }
        match step(Some(values)).await? {
            Made::Plan(plan) => Ok(plan),
            Made::Subqueries(_) => Err(QueryError::new(sqlstate::INTERNAL_ERROR, "a subquery of an argument is left")),
        }
    }

    /// Returns the only value of a query, or NULL if it has no row.
    async fn single_value(
        &self,
        statement: Arc<Statement>,
        footprint: Footprint,
        depth: usize,
    ) -> Result<ScalarValue, QueryError> {
        let plan = self.plan_within(statement, footprint, depth).await?;
        let [column] = plan.schema.fields().as_ref() else {
            return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let mut found = None;
        let mut rows = self.run(&plan, Vec::new()).await?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            for row in 0..batch.num_rows() {
                if found.replace(ScalarValue::try_from_array(batch.column(0), row)?).is_some() {
                    let text = "more than one row returned by a subquery used as an expression";
                    return Err(QueryError::new(sqlstate::CARDINALITY_VIOLATION, text));
                }
            }
        }
        Ok(match found {
            Some(value) => value,
            None => ScalarValue::try_from(column.data_type())?,
        })
    }

    /// Plans a statement again for values that its plan depends on (see [`Plan::depends_on`]).
    pub(crate) async fn replan(
        &self,
        statement: &Statement,
        footprint: Footprint,
        values: &[ScalarValue],
    ) -> Result<Arc<Plan>, QueryError> {
        // Table functions take their arguments during planning.
        let mut filled = statement.clone();
        argument::bind_in_table_functions(&mut filled, values)?;
        self.plan(Arc::new(filled), footprint).await
    }

    /// Plans the single statement of a text, which must return rows. Plans are cached.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<CachedPlan, QueryError> {
        if let Some(cached) = self.cached(sql) {
            return Ok(cached);
        }
        let (mut statements, footprint) = self.parse(sql).await?;
        let statement = match (statements.pop(), statements.is_empty()) {
            (Some(statement), true) => statement,
            (None, _) => return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "there is no statement")),
            (Some(_), false) => return Err(QueryError::new(sqlstate::SYNTAX_ERROR, "one statement at a time")),
        };
        if !matches!(statement::request(&statement), Request::Rows) {
            return Err(statement::refusal(&statement));
        }
        let statement = Arc::new(statement);
        let plan = self.plan(statement.clone(), footprint).await?;
        self.query.inner.plans.put(sql, &statement, &plan);
        Ok(CachedPlan { statement, plan })
    }

    /// Returns the cached plan of a text, if there is one for the current catalog.
    pub(crate) fn cached(&self, sql: &str) -> Option<CachedPlan> {
        let inner = &self.query.inner;
        inner.plans.get(sql, inner.store.catalog_version())
    }

    /// Runs a plan with values for its parameters, after waiting for a turn.
    pub(crate) async fn run(&self, plan: &Arc<Plan>, values: Vec<ScalarValue>) -> Result<Rows, QueryError> {
        self.run_step(plan, values, None).await
    }

    /// Runs a plan like [`Session::run`], as a step of a subscription.
    pub(crate) async fn run_step(
        &self,
        plan: &Arc<Plan>,
        values: Vec<ScalarValue>,
        step: Option<StepView>,
    ) -> Result<Rows, QueryError> {
        let (inner, account) = (&self.query.inner, &self.account);
        let marks = self.settings.lock().marks();
        let reused = match step {
            None => inner.reused(&self.state, plan, marks)?,
            Some(_) => None,
        };
        // Plan before taking a turn, so that waiting for the planner keeps no one else from running.
        let planned = match reused {
            Some(planned) => planned,
            None => {
                let (planner, state, logical) = (inner.clone(), self.state.clone(), plan.clone());
                let rows = self.rows.lock().clone();
                let make = move |stopped: &_| {
                    planner.physical(&state, &logical, values, (rows, marks), (Stopped::by(stopped), step))
                };
                inner.planning.run(account, plan.footprint, make).await?
            }
        };
        let (stopped, types) = (planned.stopped.clone(), planned.physical.schema());
        let turn = inner.turns.begin(account).await;
        let (sender, receiver) = mpsc::channel(BATCHES_IN_FLIGHT);
        let task = inner.heavy.handle().spawn(produce(planned, sender, turn));
        Ok(Rows { schema: plan.schema.clone(), types, receiver, task: Some(task), stopped, under_way: None })
    }

    /// Returns the deadline of a statement that starts now.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.settings.lock().statement_timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Returns a view of the store as it is now.
    pub(crate) fn view(&self) -> View {
        self.query.inner.view(self.settings.lock().marks())
    }
}

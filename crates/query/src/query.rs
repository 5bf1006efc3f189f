//! The query engine of a server: plans SQL over the store, runs it on its own threads within a memory limit, and
//! answers the server's queries about state and exports.

pub(crate) mod answer;
pub(crate) mod cache;
pub(crate) mod reused;
pub(crate) mod session;
pub(crate) mod step;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableFunctionImpl;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::config::ConfigNonZeroUsize;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DataFusionStatement;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::format_type::create_format_type_udf;
use futures::StreamExt;
use parking_lot::Mutex;
use strongback_store::{Pattern, Store, View};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::error::{QueryError, sqlstate};
use crate::functions;
use crate::functions::kept::ConditionsKept;
use crate::functions::large::LargeCalls;
use crate::functions::operator::OperatorFunction;
use crate::functions::part::PartFunction;
use crate::functions::text::CheckCasts;
use crate::functions::zero::{BothZeros, OneZeroInKeys};
use crate::lake::LakeHistory;
use crate::operators::cooperation::Cooperation;
use crate::operators::first_pieces::FirstPieces;
use crate::operators::guard;
use crate::operators::inlined;
use crate::operators::limits_apart::LimitsApart;
use crate::operators::membership::{CheckMemberships, DistinctMembers};
use crate::operators::selective::SelectiveScan;
use crate::operators::serial::SerialUnions;
use crate::operators::sorted::SortedScan;
use crate::operators::sorts_kept::{self, SortsKept};
use crate::operators::stored_order::StoredOrder;
use crate::operators::totalled::Totalled;
use crate::plan::argument;
use crate::plan::fixed::is_fixed;
use crate::plan::labels::Labels;
use crate::plan::names;
use crate::plan::parameter;
use crate::plan::planning::Planning;
use crate::plan::repeated::Repeated;
use crate::plan::types::Types;
use crate::plan::unsupported;
use crate::query::cache::PlanCache;
use crate::query::reused::ReusedPlan;
use crate::query::session::Session;
use crate::query::step::StepView;
use crate::running::clock::{FixedNow, now_ns};
use crate::running::commits::Commits;
use crate::running::memory::{QueryMemory, SharedMemory};
use crate::running::runtime::Threads;
use crate::running::size::Size;
use crate::running::stopped::Stopped;
use crate::running::subscribers::Subscribers;
use crate::running::turn::{OVERDUE_MAX, SHORT_TURNS, Turn, Turns};
use crate::sql::constant;
use crate::sql::constant::LongTexts;
use crate::sql::extent;
use crate::sql::footprint::Footprint;
use crate::sql::operator;
use crate::sql::parser::Parser;
use crate::sql::setting::{MarkUse, SERVER_VERSION, Settings};
use crate::sql::sized;
use crate::sql::value;
use crate::system::SystemRows;
use crate::system::as_text::TextsOfValues;
use crate::system::catalog::{DATABASE, Database, DatabaseRef, PUBLIC};
use crate::system::function::{Constant, CurrentSetting, LATEST_AHEAD_NS, Now, StateFunction};
use crate::system::listed_functions::FunctionText;
use crate::system::pg_catalog;
use crate::system::pg_catalog::FormatType;
use crate::system::rows_read::SystemRowsRead;
use crate::system::session::{OfText, OidOf, SetConfig, SizePretty, TypeOf};
use crate::system::session_tables::SessionRows;
use crate::system::state;
use crate::system::state::StateRow;
use crate::table::PinnedView;
use crate::table::history::History;
use crate::telemetry::time_series::{self, SeriesFunction};
use crate::telemetry::{FUNCTIONS, TelemetryFunction, with_meant};

/// Maximum batches buffered between a running query and its client.
const BATCHES_IN_FLIGHT: usize = 2;
/// Maximum concurrent queries over HTTP. Further ones wait.
const QUESTIONS_MAX: usize = 128;
/// Maximum time that a client may leave rows of a query unread.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Number of plans of a statement held at a time: as written, as optimised, and as run.
const PLANS_HELD: usize = 3;
/// Minimum size of buffered rows to be counted, in bytes.
const COUNTED_BYTES: usize = 256 << 10;

/// Limits of the query engine.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Concurrent parts of a query, and threads that serve connections.
    pub threads: usize,
    /// Memory of all running queries together, in bytes; best below a power of two (`docs/decisions/0018`). Half as
    /// much again is for unread answers, and a quarter for prepared statements.
    pub memory_bytes: usize,
    /// Maximum long queries that run concurrently, in turns. Further ones wait after a short turn.
    pub queries_max: usize,
    /// Maximum connections. Further ones are refused.
    pub connections_max: usize,
    /// Default and upper limit of `statement_timeout`; `None` for no limit.
    pub statement_timeout: Option<Duration>,
    /// Niceness of the threads that run queries (0 to 19). Threads that serve connections have half of it.
    pub niceness: i32,
    /// Whether aggregates are computed from the store's statistics where they suffice. Without them every row is read,
    /// for comparison.
    pub by_statistics: bool,
    /// Lake with frames that are no longer in the store.
    pub history: Option<Arc<LakeHistory>>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            threads: 2,
            memory_bytes: 176 << 20,
            queries_max: 2,
            connections_max: 100,
            statement_timeout: None,
            niceness: 10,
            by_statistics: true,
            history: None,
        }
    }
}

/// The query engine. Clones share it.
#[derive(Clone)]
pub struct Query {
    pub(crate) inner: Arc<Inner>,
    /// How values that are marked bad are treated, unless a session sets it otherwise.
    marks: MarkUse,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) system: Arc<dyn SystemRows>,
    pub(crate) database: Arc<Database>,
    pub(crate) options: QueryOptions,
    pub(crate) plans: PlanCache,
    /// Session state that is cloned for each session.
    template: SessionState,
    parser: Parser,
    planning: Planning,
    turns: Arc<Turns>,
    /// Memory of running queries.
    memory: Arc<SharedMemory>,
    /// Permits for queries over HTTP.
    pub(crate) questions: Semaphore,
    /// Memory of answers until they are sent.
    pub(crate) answers: Arc<SharedMemory>,
    /// Memory of sessions between statements.
    pub(crate) sessions: Arc<SharedMemory>,
    /// Subscriptions that run.
    pub(crate) subscribers: Arc<Subscribers>,
    /// Commits of the store, for subscriptions.
    pub(crate) commits: Commits,
    /// Threads that run plans.
    heavy: Threads,
    /// Threads that serve connections and short reads.
    pub(crate) wire: Threads,
}

impl Query {
    /// Creates a query engine over a store, with its own threads.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(store: Store, system: Arc<dyn SystemRows>, options: QueryOptions) -> io::Result<Query> {
        // One thread for each part that may run, so that no query waits for another to yield.
        let running = SHORT_TURNS + OVERDUE_MAX + options.queries_max * options.threads;
        let heavy = Threads::start("sql", running, options.niceness)?;
        let wire = Threads::start("sql-wire", options.threads, options.niceness / 2)?;
        let history = options.history.clone().map(|history| history as Arc<dyn History>);
        let database = Arc::new(Database::new(store.clone(), history, system.clone()));
        let memory = SharedMemory::new(options.memory_bytes);
        let template = template(&store, &system, &database, &options, &memory).map_err(io::Error::other)?;
        let inner = Inner {
            plans: PlanCache::default(),
            parser: Parser::new(),
            planning: Planning::new(options.niceness, memory.clone()),
            turns: Arc::new(Turns::new(options.queries_max)),
            memory,
            questions: Semaphore::new(QUESTIONS_MAX),
            answers: SharedMemory::new(options.memory_bytes / 2),
            sessions: SharedMemory::new(options.memory_bytes / 4),
            subscribers: Arc::default(),
            commits: Commits::new(store.clone()),
            store,
            system,
            database,
            options,
            template,
            heavy,
            wire,
        };
        inner.heavy.handle().spawn(Turns::watch(Arc::downgrade(&inner.turns)));
        Ok(Query { inner: Arc::new(inner), marks: MarkUse::default() })
    }

    /// Returns the engine for callers that treat values marked bad in this way.
    pub fn with_marks(&self, marks: MarkUse) -> Query {
        Query { inner: self.inner.clone(), marks }
    }

    /// Returns the state of all channels that match any of the patterns, at an instant (nanoseconds since 1970 UTC) or
    /// now. Reads the store on the calling thread, and ends early once `has_left` says that no one waits for it.
    ///
    /// # Errors
    /// If the store cannot be read, or no one waits any more.
    pub fn state(
        &self,
        at_ns: Option<i64>,
        patterns: &[Pattern],
        has_left: impl Fn() -> bool,
    ) -> Result<Vec<StateRow>, QueryError> {
        let at = at_ns.unwrap_or_else(now_ns);
        let until = if at_ns.is_some() { at } else { at.saturating_add(LATEST_AHEAD_NS) };
        state::state(&self.inner.view(self.marks), self.inner.system.as_ref(), (until, at), patterns, &has_left)
    }

    pub(crate) fn session(&self) -> Session {
        let settings = Settings::new(self.inner.options.statement_timeout, self.marks).shared();
        let mut state = self.inner.template.clone();
        for function in
            [ScalarUDF::from(CurrentSetting::new(settings.clone())), ScalarUDF::from(SetConfig::new(settings.clone()))]
        {
            if let Err(error) = state.register_udf(Arc::new(function)) {
                tracing::warn!(%error, "sessions go without a function of their settings");
            }
        }
        let rows = SessionRows { cursors: Vec::new(), prepared: Vec::new(), settings: settings.clone() };
        let rows = Mutex::new(Arc::new(rows));
        Session { query: self.clone(), state: Arc::new(state), settings, rows, account: Arc::default() }
    }
}

impl Inner {
    /// Returns a view of the store as it is now.
    pub(crate) fn view(&self, marks: MarkUse) -> View {
        with_marks(self.store.view(), marks)
    }

    /// Runs a future on the query threads.
    pub(crate) fn spawn_heavy<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.heavy.handle().spawn(work)
    }
}

/// Returns a view that treats values marked bad in one way.
fn with_marks(view: View, marks: MarkUse) -> View {
    match marks {
        MarkUse::Apply => view,
        MarkUse::Ignore => view.with_excluded(),
    }
}

/// Creates the SQL state from which every session starts.
fn template(
    store: &Store,
    system: &Arc<dyn SystemRows>,
    database: &Arc<Database>,
    options: &QueryOptions,
    memory: &Arc<SharedMemory>,
) -> datafusion::error::Result<SessionState> {
    let mut config = SessionConfig::new()
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(DATABASE, PUBLIC)
        .with_target_partitions(options.threads.max(1));
    let settings = config.options_mut();
    settings.execution.time_zone = Some(crate::table::column::UTC.to_owned());
    // Rows that are dealt out among threads come back in any order. Long streams are divided by the scan itself.
    settings.optimizer.enable_round_robin_repartition = false;
    // Done by `SortedScan` instead.
    settings.optimizer.enable_sort_pushdown = false;
    // A dynamic filter would be pushed through all queries below, and double with each that uses a column twice.
    settings.optimizer.enable_dynamic_filter_pushdown = false;
    settings.optimizer.enable_topk_dynamic_filter_pushdown = false;
    settings.optimizer.enable_join_dynamic_filter_pushdown = false;
    settings.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // This optimisation allocates as many groups as LIMIT states, without counting them.
    settings.optimizer.enable_topk_aggregation = false;
    // Operators that collect views count the views, not the bytes they refer to.
    settings.sql_parser.map_string_types_to_utf8view = false;
    settings.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    // Each query gets its own memory pool when it runs.
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.register_catalog(DATABASE, Arc::new(DatabaseRef(database.clone())));
    datafusion_pg_catalog::setup_pg_catalog(&context, DATABASE, EmptyContextProvider).map_err(|e| *e)?;
    for timed in [false, true] {
        let function = StateFunction { timed, store: store.clone(), system: system.clone() };
        let name = format!("{function:?}");
        context.register_udtf(&name, Arc::new(function) as Arc<dyn TableFunctionImpl>);
    }
    for function in FUNCTIONS {
        let of = TelemetryFunction { function, store: store.clone(), system: system.clone() };
        context.register_udtf(function.name(), Arc::new(of) as Arc<dyn TableFunctionImpl>);
    }
    if let Ok(of_others) = context.table_function(time_series::NAME) {
        let of_times = SeriesFunction { of_others: of_others.function().clone(), store: store.clone() };
        context.register_udtf(time_series::NAME, Arc::new(of_times));
    }
    context.register_udf(ScalarUDF::from(Now::new()));
    for function in [
        ScalarUDF::from(TypeOf::new()),
        ScalarUDF::from(SizePretty::new()),
        ScalarUDF::from(OfText::ToRegtype),
        ScalarUDF::from(OfText::Regtype),
        ScalarUDF::from(OidOf::new()),
        ScalarUDF::from(OfText::QuoteLiteral),
        ScalarUDF::from(PartFunction::DatePart),
        ScalarUDF::from(PartFunction::Extract),
        ScalarUDF::from(OperatorFunction::TimeZone),
        ScalarUDF::from(OperatorFunction::Times),
        ScalarUDF::from(OperatorFunction::LikeEscape),
    ] {
        context.register_udf(function);
    }
    let version = format!("PostgreSQL {SERVER_VERSION} (Strongback {})", env!("CARGO_PKG_VERSION"));
    let user = ScalarValue::from("strongback");
    for function in [
        Constant::of_none("version", &[], ScalarValue::from(version)),
        Constant::of_none("current_user", &["user", "current_role"], user),
        Constant::of_none("pg_is_in_recovery", &[], ScalarValue::from(false)),
        Constant::of_any("obj_description", ScalarValue::Utf8(None)),
        Constant::of_any("col_description", ScalarValue::Utf8(None)),
        Constant::of_any("shobj_description", ScalarValue::Utf8(None)),
        Constant::of_any("pg_get_serial_sequence", ScalarValue::Utf8(None)),
    ] {
        context.register_udf(function);
    }
    for name in FunctionText::ARGUMENTS.into_iter().chain([FunctionText::RESULT]) {
        context.register_udf(ScalarUDF::from(FunctionText::new(name)));
    }
    for (name, value) in pg_catalog::constants() {
        context.register_udf(Constant::of_any(name, value));
    }
    context.register_udf(ScalarUDF::from(FormatType(Arc::new(create_format_type_udf()))));
    let mut state = context.state();
    functions::bound(&mut state, &LargeCalls::new(options.queries_max, memory.clone()))?;
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
        vec![Arc::new(SerialUnions), Arc::new(StoredOrder), Arc::new(LimitsApart)];
    // The rule for filters takes columns of both sides of a join for those of one, by their names. The logical plan has
    // them where they belong already.
    let takes_part = |rule: &&Arc<dyn PhysicalOptimizerRule + Send + Sync>| !rule.name().starts_with("FilterPushdown");
    for rule in state.physical_optimizers().iter().filter(takes_part) {
        let is_first =
            rule.name() == sorts_kept::AFTER && rules.iter().all(|before| before.name() != sorts_kept::AFTER);
        rules.push(rule.clone());
        if is_first {
            rules.push(Arc::new(SortsKept));
        }
    }
    rules.push(Arc::new(SortedScan));
    if options.by_statistics {
        rules.push(Arc::new(Totalled));
        rules.push(Arc::new(FirstPieces));
        rules.push(Arc::new(SelectiveScan));
    }
    rules.push(Arc::new(Cooperation));
    Ok(SessionStateBuilder::new_from_existing(state)
        .with_physical_optimizer_rules(rules)
        .with_type_planner(Arc::new(Types))
        .with_analyzer_rule(Arc::new(CheckCasts))
        .with_analyzer_rule(Arc::new(TextsOfValues))
        .with_analyzer_rule(Arc::new(OneZeroInKeys))
        .with_analyzer_rule(Arc::new(CheckMemberships))
        .with_analyzer_rule(Arc::new(ConditionsKept))
        .with_optimizer_rule(Arc::new(DistinctMembers))
        .with_optimizer_rule(Arc::new(BothZeros))
        .build())
}

/// A statement planned for one version of the catalog.
pub(crate) struct Plan {
    /// Catalog version of the store for which it was planned.
    pub(crate) version: u64,
    /// Logical plan with placeholders, not yet optimised.
    pub(crate) logical: LogicalPlan,
    /// Long texts of the statement, replaced by parameters.
    texts: LongTexts,
    /// Columns of the result.
    pub(crate) schema: SchemaRef,
    /// Types of `$1`, `$2`, …, as far as they are known.
    pub(crate) parameters: Vec<Option<DataType>>,
    /// Types to which the others are cast.
    casts: Vec<Option<DataType>>,
    /// Numbers of the parameters that are arguments of table functions only, which take values of several types.
    arguments: Vec<usize>,
    /// Whether it may be reused, which it may not if a table function fixed its arguments.
    pub(crate) reusable: bool,
    /// Whether it calls table functions. Planning evaluates their arguments and chooses their channels and runs.
    pub(crate) calls_functions: bool,
    /// Whether it calls table functions with arguments that change with the time.
    pub(crate) follows_time: bool,
    /// Whether it reads the cursors or prepared statements of its session.
    pub(crate) reads_session: bool,
    /// What its first run made of it; `None` if each run may make another.
    fixed: Option<Fixed>,
    /// Plan for running it without DataFusion, if it is simple enough.
    pub(crate) direct: Option<crate::plan::direct::DirectPlan>,
    /// Memory of the statement.
    pub(crate) footprint: Footprint,
    /// Approximate memory with its statement, in bytes.
    pub(crate) weight: usize,
}

impl Inner {
    /// Plans a statement, given the values of the subqueries in arguments of its table functions. Returns these first.
    fn plan(
        &self,
        state: &SessionState,
        statement: &Statement,
        footprint: Footprint,
        values: Option<&[ScalarValue]>,
    ) -> Result<Made, QueryError> {
        let tables = self.database.tables();
        let mut statement = statement.clone();
        value::check(&mut statement)?;
        unsupported::check_statement(&mut statement)?;
        let functions = argument::table_functions(&mut statement)?;
        if !functions.parameters.is_empty() {
            argument::bind_in_table_functions(&mut statement, &[])?;
        }
        match values {
            Some(values) => argument::put_values(&mut statement, values)?,
            None if functions.have_subqueries => return Ok(Made::Subqueries(argument::subqueries(&statement)?)),
            None => {}
        }
        let texts = LongTexts::take(&mut statement)?;
        // A plan with a session's own functions belongs to the session.
        let text = statement.to_string().to_ascii_lowercase();
        let reusable =
            !functions.any && !["current_setting", "set_config", "pg_backend_pid"].iter().any(|own| text.contains(own));
        let reads_session = ["pg_cursors", "pg_prepared_statements"].iter().any(|table| text.contains(table));
        let columns = names::resolve(&mut statement, &tables)?;
        extent::check_joins(&mut statement, columns)?;
        let labels = Labels::of(&statement);
        operator::rewrite(&mut statement)?;
        let repeated = Repeated::rename(&mut statement, &tables)?;
        let statement = DataFusionStatement::Statement(Box::new(statement));
        // Arguments of table functions are evaluated here, all at one time.
        let now = FixedNow::new(Some(now_ns().div_euclid(1_000)));
        let logical = self.heavy.handle().block_on(state.statement_to_plan(statement));
        drop(now);
        let logical = logical.map_err(|error| with_meant(tables.with_nearest(repeated.named(error.into()))))?;
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&logical)?;
        unsupported::check_plan(&logical)?;
        sized::check(&logical)?;
        inlined::check(&logical)?;
        let mut parameters = parameter::types(&logical)?;
        let mut arguments = Vec::new();
        for (number, kind) in functions.parameters {
            if parameters.len() < number {
                parameters.resize(number, None);
            }
            if parameters[number - 1].is_none() {
                arguments.push(number);
            }
            parameters[number - 1].get_or_insert(kind);
        }
        let casts = parameter::cast_types(&logical, &parameters)?;
        let schema = labels.shown(with_types_of_run(state, &logical, repeated.shown(&logical)?));
        let direct = crate::plan::direct::DirectPlan::recognise(&logical, &tables);
        let weight = extent::weight(&logical, footprint.tree_bytes)?;
        let version = tables.version;
        let fixed = (reusable && texts.is_empty() && is_fixed(&logical)?).then(Fixed::default);
        Ok(Made::Plan(Arc::new(Plan {
            version,
            logical,
            texts,
            schema,
            parameters,
            casts,
            arguments,
            reusable,
            calls_functions: functions.any,
            follows_time: functions.follow_time,
            reads_session,
            fixed,
            direct,
            footprint,
            weight,
        })))
    }

    fn physical(
        &self,
        state: &SessionState,
        plan: &Plan,
        values: Vec<ScalarValue>,
        (rows, marks): (Arc<SessionRows>, MarkUse),
        (stopped, step): (Stopped, Option<StepView>),
    ) -> Result<Planned, QueryError> {
        let mut state = state.clone();
        let view = step.as_ref().map_or_else(|| self.store.view(), |step| step.view.clone());
        let view = with_marks(view, marks);
        state.config_mut().set_extension(Arc::new(PinnedView(view)));
        state.config_mut().set_extension(rows);
        state.config_mut().set_extension(Arc::new(SystemRowsRead::new(self.memory.clone())));
        state.config_mut().options_mut().extensions.insert(stopped.clone());
        state.mark_start_execution();
        let is_step = step.is_some();
        // One time for the whole statement, whichever rule evaluates it.
        let _now = match step {
            Some(step) => step.pin(&mut state),
            None => FixedNow::new(state.execution_props().query_execution_start_time.map(|at| at.timestamp_micros())),
        };
        let logical = plan.optimised(&state, values)?;
        constant::optimized();
        let rows = guard::batch_rows(&logical, state.config().batch_size())?;
        state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(rows)?;
        let planner = state.query_planner().clone();
        let physical = self.heavy.handle().block_on(planner.create_physical_plan(&logical, &state))?;
        let physical = guard::guard(physical, rows)?;
        if let Some(fixed) = plan.fixed.as_ref().filter(|_| !is_step) {
            *fixed.reused.lock() = ReusedPlan::of(&physical, &logical, state.config())?.map(Arc::new);
        }
        self.planned(plan, physical, state.config().clone(), stopped)
    }

    /// Binds the plan that an earlier run made to the store as it is now, if it would be made alike.
    fn reused(&self, state: &SessionState, plan: &Plan, marks: MarkUse) -> Result<Option<Planned>, QueryError> {
        let Some(reused) = plan.fixed.as_ref().and_then(|fixed| fixed.reused.lock().clone()) else { return Ok(None) };
        let Some(physical) = reused.bound(&self.view(marks))? else { return Ok(None) };
        let config = state.config().clone().with_batch_size(reused.batch_rows());
        self.planned(plan, physical, config, Stopped::default()).map(Some)
    }

    /// Puts a plan together with what it runs in.
    fn planned(
        &self,
        plan: &Plan,
        physical: Arc<dyn ExecutionPlan>,
        config: SessionConfig,
        stopped: Stopped,
    ) -> Result<Planned, QueryError> {
        let memory_pool = Arc::new(QueryMemory::new(self.memory.clone()));
        let runtime = RuntimeEnv { memory_pool, ..self.template.runtime_env().as_ref().clone() };
        // Functions are in the plan; those of the context would be for plans that come from elsewhere.
        let functions = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let (scalar, higher_order, aggregate, window) = functions;
        let session = self.template.session_id().to_owned();
        let context =
            TaskContext::new(None, session, config, scalar, higher_order, aggregate, window, Arc::new(runtime));
        let memory = MemoryConsumer::new("plan").register(context.memory_pool());
        memory.try_grow(plan.weight.saturating_mul(PLANS_HELD))?;
        Ok(Planned { physical, context: Arc::new(context), stopped, _memory: memory })
    }
}

/// What the first run of a statement made of its plan, for further runs.
#[derive(Default)]
struct Fixed {
    optimised: OnceLock<LogicalPlan>,
    /// Physical plan, if it can be used again.
    reused: Mutex<Option<Arc<ReusedPlan>>>,
}

impl Plan {
    /// Reports whether it must be made again for a run with these values, as it fixed what depends on them, or on the
    /// time at which a table function was planned.
    pub(crate) fn depends_on(&self, values: &[ScalarValue]) -> bool {
        self.calls_functions || !self.reusable && !values.is_empty()
    }

    /// Reports whether the columns of its result are those of another plan.
    pub(crate) fn has_columns_of(&self, other: &Plan) -> bool {
        let (own, others) = (self.schema.fields(), other.schema.fields());
        let is_same = |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && a.data_type() == b.data_type();
        own.len() == others.len() && own.iter().zip(others).all(is_same)
    }

    /// Returns the optimised plan for values of its parameters.
    fn optimised(&self, state: &SessionState, values: Vec<ScalarValue>) -> Result<LogicalPlan, QueryError> {
        if let Some(optimised) = self.fixed.as_ref().and_then(|fixed| fixed.optimised.get()) {
            return Ok(optimised.clone());
        }
        let mut logical = self.texts.bind(self.logical.clone(), &values)?;
        if !values.is_empty() {
            let values = ParamValues::List(values.into_iter().map(Into::into).collect());
            logical = logical.with_param_values(values)?;
        }
        guard::check_explained(&logical, state)?;
        let optimised = state.optimize(&logical)?;
        sized::check(&optimised)?;
        if let Some(kept) = &self.fixed {
            return Ok(kept.optimised.get_or_init(|| optimised).clone());
        }
        Ok(optimised)
    }

    /// Reports whether the parameter at a position from 0 is an argument of a table function only.
    pub(crate) fn is_argument(&self, at: usize) -> bool {
        self.arguments.contains(&(at + 1))
    }

    /// Returns the type of the parameter at a position from 0, if it is known. `is_given` says whether the client named
    /// one; otherwise the type to which it is cast counts. An argument of a table function keeps the type that the
    /// client named.
    pub(crate) fn parameter(&self, at: usize, is_given: bool) -> Option<&DataType> {
        if is_given && self.is_argument(at) {
            return None;
        }
        let known = self.parameters.get(at)?.as_ref();
        known.or_else(|| self.casts.get(at)?.as_ref().filter(|_| !is_given))
    }
}

/// Gives columns the types that they have when the plan runs: its analysis widens numbers, and times at a time zone are
/// local. A plan that cannot be analysed before its parameters are known keeps the types that it has.
fn with_types_of_run(state: &SessionState, logical: &LogicalPlan, shown: SchemaRef) -> SchemaRef {
    let analysed = state.analyzer().execute_and_check(logical.clone(), state.config_options(), |_, _| {});
    let Ok(analysed) = analysed else { return shown };
    let made = analysed.schema().fields();
    let is_same = |(field, made): (&FieldRef, &FieldRef)| field.data_type() == made.data_type();
    if made.len() != shown.fields().len() || shown.fields().iter().zip(made).all(is_same) {
        return shown;
    }
    let typed = |(field, made): (&FieldRef, &FieldRef)| field.as_ref().clone().with_data_type(made.data_type().clone());
    let fields: Vec<Field> = shown.fields().iter().zip(made).map(typed).collect();
    Arc::new(Schema::new_with_metadata(fields, shown.metadata().clone()))
}

/// What planning a statement makes.
enum Made {
    Plan(Arc<Plan>),
    /// Subqueries in the arguments of table functions, whose values it needs.
    Subqueries(Vec<Statement>),
}

/// A physical plan ready to run, with its memory.
struct Planned {
    physical: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    stopped: Stopped,
    /// Memory of the plan itself.
    _memory: MemoryReservation,
}

/// Rows on their way to a client, with their memory.
type UnderWay = Result<(RecordBatch, MemoryReservation), QueryError>;

async fn produce(planned: Planned, sender: mpsc::Sender<UnderWay>, turn: Turn) {
    let run = async {
        let context = &planned.context;
        let mut batches = execute_stream(planned.physical.clone(), context.clone())?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let held = MemoryConsumer::new("rows under way").register(context.memory_pool());
            let bytes = Size::of_batch(&batch).total;
            held.try_grow(if bytes > COUNTED_BYTES { bytes } else { 0 })?;
            match sender.try_send(Ok((batch, held))) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => break,
                Err(mpsc::error::TrySendError::Full(batch)) => {
                    // Let others run while the client does not read.
                    turn.give_up();
                    match tokio::time::timeout(UNREAD_TIMEOUT, sender.send(batch)).await {
                        Ok(Ok(())) => turn.take().await,
                        Ok(Err(_)) => break,
                        Err(_) => return Err(QueryError::unread().into_datafusion()),
                    }
                }
            }
        }
        Ok::<(), datafusion::error::DataFusionError>(())
    };
    if let Err(error) = turn.run(run).await {
        // A client that has disconnected needs no error.
        let _ = sender.send(Err(error.into())).await;
    }
}

/// Result of a running query. Dropping it stops the query at its next yield.
pub(crate) struct Rows {
    /// Columns as announced.
    pub(crate) schema: SchemaRef,
    /// Columns of every batch. Values of parameters can have changed their types.
    pub(crate) types: SchemaRef,
    receiver: mpsc::Receiver<UnderWay>,
    task: Option<JoinHandle<()>>,
    stopped: Stopped,
    /// Memory of the rows returned last.
    under_way: Option<MemoryReservation>,
}

impl Rows {
    /// Returns the next batch, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch, QueryError>> {
        self.under_way = None;
        if let Some(batch) = self.receiver.recv().await {
            return Some(batch.map(|(batch, held)| {
                self.under_way = Some(held);
                batch
            }));
        }
        match self.task.take()?.await {
            Err(error) if error.is_panic() => {
                tracing::error!(%error, "a query ended by a defect");
                Some(Err(QueryError::new(sqlstate::INTERNAL_ERROR, "the query ended by a defect of the server")))
            }
            _ => None,
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            self.stopped.stop();
            task.abort();
        }
    }
}

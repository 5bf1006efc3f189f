//! One subscription: waits for commits, runs steps, and gives their rows to a client that takes them when it can.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use strongback_store::{Store, StreamId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{QueryError, sqlstate};
use crate::query::session::Session;
use crate::query::step::StepView;
use crate::query::{Plan, Query, Rows};
use crate::running::clock::now_ns;
use crate::running::commits::Committed;
use crate::running::memory::Share;
use crate::running::runtime::apart;
use crate::running::subscribers::SubscriberPlace;
use crate::subscription::class::{Class, Followed};
use crate::subscription::position::Position;
use crate::subscription::results::{Collected, ResultProgress, collect};
use crate::subscription::rows::RowsProgress;
use crate::subscription::settings::SubscribeRequest;
use crate::subscription::windows::{WindowRun, WindowsProgress};
use crate::table::PinnedPart;
use crate::table::column::floor_micros;
use crate::table::filter::ALL_TIMES;

/// Time without any event after which a client is told that the subscription still runs.
const QUIET: Duration = Duration::from_secs(5);
/// Interval at which results that change with the time alone are made.
const REFRESH: Duration = Duration::from_secs(1);

/// Event of a subscription.
#[derive(Debug)]
pub(crate) enum Event {
    /// Columns of the rows from here on.
    Columns(SchemaRef),
    /// Beginning of a step. If the one before has no end, it is void.
    Begin,
    /// Rows of the step.
    Rows(RecordBatch),
    /// End of the step.
    End,
    /// Nothing has happened for a while.
    Quiet,
}

/// Content of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Rows of the class `rows`.
    Rows {
        /// Whether it is the whole result so far.
        is_snapshot: bool,
        /// Rows that expired before they were read.
        expired: u64,
    },
    /// Windows of the class `windows`.
    Windows {
        run: WindowRun,
        /// Rows that came too late for a correction since the beginning.
        missed: u64,
    },
    /// The whole result of the class `result`.
    Result,
}

/// A step that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Number, counted from 1.
    pub(crate) number: u64,
    pub(crate) kind: StepKind,
}

enum Progress {
    Rows(RowsProgress),
    Windows(WindowsProgress),
    Result(ResultProgress),
}

/// A statement of the current step that runs.
struct Running {
    rows: Rows,
    /// Rows of its result that the client has.
    skip: u64,
    /// Time left for its work.
    left: Duration,
}

/// A subscription. Dropping it ends its work.
pub(crate) struct Subscription {
    session: Session,
    request: SubscribeRequest,
    plan: Arc<Plan>,
    followed: Followed,
    commits: watch::Receiver<Committed>,
    /// Value of `now()` for rows and windows, in microseconds.
    start_us: i64,
    /// Whether it continues at the position of the request.
    is_resumed: bool,
    is_begun: bool,
    step: Step,
    progress: Progress,
    running: Option<Running>,
    /// Rows of the current step that were given, and those that the client had before.
    sent: u64,
    skipped: u64,
    /// Events to give before anything else.
    events: VecDeque<Event>,
    /// Memory of those events.
    held: Option<Share>,
    next_at: Instant,
    /// Memory of the plan.
    _plan: Share,
    _place: SubscriberPlace,
}

impl Subscription {
    /// Plans a statement, and finds how its result is followed. Nothing is read yet.
    ///
    /// # Errors
    /// If the request is invalid, the statement cannot be followed, or there are too many subscriptions.
    pub(crate) async fn begin(query: Query, request: SubscribeRequest) -> Result<Subscription, QueryError> {
        request.check()?;
        let inner = &query.inner;
        let place = inner.subscribers.take(request.address)?;
        let session = query.session();
        let plan = within(request.timeout, session.prepare(&request.sql)).await??.plan;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::INDETERMINATE_DATATYPE, "parameters have no values here"));
        }
        let followed = Followed::of(&plan)?;
        let mut share = Share::new(inner.sessions.clone(), 0);
        if !share.try_resize(plan.weight) {
            let text = "no room to keep the statement beside those of other sessions";
            return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text));
        }
        let no_thread =
            |error| QueryError::new(sqlstate::OUT_OF_MEMORY, format!("no thread to wait for rows: {error}"));
        let commits = inner.commits.follow().map_err(no_thread)?;
        let (mut start_us, mut is_resumed) = (floor_micros(now_ns()), false);
        let progress = match (&followed.class, &request.resume) {
            (Class::Rows, Some(text)) => {
                let position = Position::parse(text)?;
                match apart(|| RowsProgress::resume(&position, &inner.store))? {
                    Some(rows) => {
                        (start_us, is_resumed) = (position.start_us, true);
                        Progress::Rows(rows)
                    }
                    None => Progress::Rows(RowsProgress::new()),
                }
            }
            (Class::Rows, None) => Progress::Rows(RowsProgress::new()),
            (Class::Windows(windows), _) => {
                Progress::Windows(WindowsProgress::new(*windows, request.lateness, request.idle))
            }
            (Class::Result { .. }, _) => Progress::Result(ResultProgress::default()),
        };
        let kind = StepKind::Result;
        Ok(Subscription {
            events: VecDeque::from([Event::Columns(plan.schema.clone())]),
            session,
            request,
            plan,
            followed,
            commits,
            start_us,
            is_resumed,
            is_begun: false,
            step: Step { number: 0, kind },
            progress,
            running: None,
            sent: 0,
            skipped: 0,
            held: None,
            next_at: Instant::now(),
            _plan: share,
            _place: place,
        })
    }

    fn store(&self) -> &Store {
        &self.session.query.inner.store
    }

    fn streams(&self) -> &[StreamId] {
        self.followed.streams.as_deref().unwrap_or_default()
    }

    /// Returns the query engine that runs it.
    pub(crate) fn query(&self) -> &Query {
        &self.session.query
    }

    /// Returns its request.
    pub(crate) fn request(&self) -> &SubscribeRequest {
        &self.request
    }

    /// Returns the class of its statement.
    pub(crate) fn class(&self) -> &Class {
        &self.followed.class
    }

    /// Reports whether it continues at the position of the request.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns the current step, or the last one.
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Returns the rows of the current step that the client had before it began.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the position of a client that has `sent` rows of the current step, if it could continue there.
    pub(crate) fn position(&self, sent: u64) -> Option<String> {
        let Progress::Rows(rows) = &self.progress else { return None };
        Some(rows.position(self.store().origin(), self.start_us, sent)?.to_string())
    }

    /// Waits for the next event. What happens until the client calls again becomes part of a later step.
    ///
    /// # Errors
    /// If a step fails, or the store is closed. The subscription has then ended.
    pub(crate) async fn next(&mut self) -> Result<Event, QueryError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.held = None;
            if self.running.is_some() {
                if let Some(event) = self.read().await? {
                    return Ok(event);
                }
            } else if self.has_runs() || self.wait().await? {
                self.begin_step().await?;
            } else {
                return Ok(Event::Quiet);
            }
        }
    }

    /// Reports whether the current step has more to run.
    fn has_runs(&self) -> bool {
        matches!(&self.progress, Progress::Windows(windows) if windows.has_runs())
    }

    /// Waits until a step is due. Returns `false` if nothing happened for a while.
    async fn wait(&mut self) -> Result<bool, QueryError> {
        let quiet_at = Instant::now() + QUIET;
        loop {
            let ended = self.commits.borrow_and_update().ended.clone();
            if let Some(reason) = ended {
                return Err(has_ended(&reason));
            }
            let due_at = self.due_at();
            let due = async {
                match due_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => return Ok(true),
                changed = self.commits.changed() => changed.map_err(|_| has_ended("the engine ended"))?,
                () = tokio::time::sleep_until(quiet_at) => return Ok(false),
            }
        }
    }

    /// Returns when the next step is due, as far as that is known.
    fn due_at(&self) -> Option<Instant> {
        let (store, streams) = (self.store(), self.streams());
        let (has_changes, by_clock) = match &self.progress {
            Progress::Rows(rows) => (rows.has_changes(store, streams), None),
            Progress::Windows(windows) => (windows.has_changes(store, streams), windows.idle_at()),
            Progress::Result(result) => {
                let follows_time = matches!(self.followed.class, Class::Result { follows_time: true, .. });
                let refresh_at = result.made_at.filter(|_| follows_time).map(|at| at + REFRESH);
                (result.has_changes(store, self.followed.streams.as_deref()), refresh_at)
            }
        };
        // A stream may have been added to a table.
        let is_outdated = self.followed.streams.is_some() && self.plan.version != store.catalog_version();
        if has_changes || is_outdated || !self.is_begun {
            return Some(self.next_at);
        }
        by_clock.map(|at| at.max(self.next_at))
    }

    /// Plans the statement again if the catalog changed: its tables may have more streams and columns. One that calls
    /// table functions is planned for each step, as their arguments may have changed with the time.
    async fn replan(&mut self) -> Result<(), QueryError> {
        if self.plan.version == self.store().catalog_version() && !self.plan.calls_functions {
            return Ok(());
        }
        let plan = within(self.request.timeout, self.session.prepare(&self.request.sql)).await??.plan;
        let followed = Followed::of(&plan)?;
        if followed.class.name() != self.followed.class.name() {
            let text = "the tables changed so that the statement is of another class: subscribe again";
            return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        if plan.schema != self.plan.schema {
            self.events.push_back(Event::Columns(plan.schema.clone()));
        }
        (self.plan, self.followed) = (plan, followed);
        Ok(())
    }

    /// Begins a step, or the next run of it.
    async fn begin_step(&mut self) -> Result<(), QueryError> {
        if !self.has_runs() {
            self.is_begun = true;
            self.next_at = Instant::now() + self.request.interval;
            self.replan().await?;
        }
        match &mut self.progress {
            Progress::Rows(_) => self.begin_rows().await,
            Progress::Windows(_) => self.begin_windows().await,
            Progress::Result(_) => self.make_result().await,
        }
    }

    async fn begin_rows(&mut self) -> Result<(), QueryError> {
        let store = self.store().clone();
        let Progress::Rows(rows) = &mut self.progress else { return Ok(()) };
        let streams = self.followed.streams.as_deref().unwrap_or_default();
        let Some((view, skip)) = apart(|| rows.begin(&store, streams, self.start_us))? else { return Ok(()) };
        let kind = StepKind::Rows { is_snapshot: rows.is_snapshot(), expired: rows.expired() };
        self.start(view, skip, kind).await
    }

    async fn begin_windows(&mut self) -> Result<(), QueryError> {
        let store = self.store().clone();
        let Progress::Windows(windows) = &mut self.progress else { return Ok(()) };
        let streams = self.followed.streams.as_deref().unwrap_or_default();
        if !windows.has_runs() {
            apart(|| windows.begin(&store.view(), streams))?;
        }
        let Some((run, view)) = windows.next_run() else { return Ok(()) };
        let kind = StepKind::Windows { run, missed: windows.missed() };
        self.start(run.view(view, self.start_us), 0, kind).await
    }

    /// Starts the statement of a step.
    async fn start(&mut self, view: StepView, skip: u64, kind: StepKind) -> Result<(), QueryError> {
        self.step = Step { number: self.step.number + 1, kind };
        self.events.push_back(Event::Begin);
        (self.sent, self.skipped) = (skip, skip);
        self.run(view, skip).await
    }

    async fn run(&mut self, view: StepView, skip: u64) -> Result<(), QueryError> {
        let begun = Instant::now();
        let run = self.session.run_step(&self.plan, Vec::new(), Some(view));
        let rows = within(self.request.timeout, run).await??;
        self.running = Some(Running { rows, skip, left: self.request.timeout.saturating_sub(begun.elapsed()) });
        Ok(())
    }

    /// Reads rows of the step that runs. Returns `None` if there is no event yet.
    async fn read(&mut self) -> Result<Option<Event>, QueryError> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let begun = Instant::now();
        let next = within(running.left, running.rows.next()).await?;
        running.left = running.left.saturating_sub(begun.elapsed());
        match next {
            Some(Ok(batch)) => {
                let skipped = usize::try_from(running.skip).unwrap_or(usize::MAX).min(batch.num_rows());
                running.skip -= skipped as u64;
                let batch = batch.slice(skipped, batch.num_rows() - skipped);
                self.sent += batch.num_rows() as u64;
                Ok((batch.num_rows() > 0).then_some(Event::Rows(batch)))
            }
            // The client read so slowly that the view of the step became too old.
            Some(Err(error)) if error.sqlstate == sqlstate::SNAPSHOT_TOO_OLD || error == QueryError::unread() => {
                self.running = None;
                self.run_again(error).await?;
                Ok(None)
            }
            Some(Err(error)) => Err(error),
            None => {
                self.running = None;
                Ok(self.end().then_some(Event::End))
            }
        }
    }

    /// Continues the current step over a newer view, or fails with the error if it might have another result.
    async fn run_again(&mut self, error: QueryError) -> Result<(), QueryError> {
        let store = self.store().clone();
        match (&self.progress, self.step.kind) {
            (Progress::Rows(rows), _) => match apart(|| rows.again(&store, self.start_us))? {
                Some(view) => self.run(view, self.sent).await,
                None => Err(error.with_hint("Read faster, or bound the time of the rows, and subscribe again.")),
            },
            (Progress::Windows(_), kind @ StepKind::Windows { run, .. }) => {
                self.start(run.view(store.view(), self.start_us), 0, kind).await
            }
            _ => Err(error),
        }
    }

    /// Ends the current step. Returns whether the client is to know of it.
    fn end(&mut self) -> bool {
        let Progress::Rows(rows) = &mut self.progress else { return true };
        let is_seen = self.sent > self.skipped || rows.is_snapshot() || rows.expired() > 0;
        rows.end();
        // Numbers of steps without rows are given again.
        self.step.number -= u64::from(!is_seen);
        is_seen
    }

    async fn make_result(&mut self) -> Result<(), QueryError> {
        let inner = self.session.query.inner.clone();
        // Before the view: rows that are committed in between make the next result.
        let state = ResultProgress::state(&inner.store, self.followed.streams.as_deref());
        let view = inner.store.view();
        let step = StepView { view, part: PinnedPart { time: ALL_TIMES, rows: None }, now_us: None };
        let is_ordered = matches!(self.followed.class, Class::Result { is_ordered: true, .. });
        let make = async {
            let rows = self.session.run_step(&self.plan, Vec::new(), Some(step)).await?;
            collect(rows, is_ordered, inner.answers.clone()).await
        };
        let Collected { batches, digest, share } = within(self.request.timeout, make).await??;
        let Progress::Result(result) = &mut self.progress else { return Ok(()) };
        result.begin(state);
        if result.differs(digest) {
            self.step = Step { number: self.step.number + 1, kind: StepKind::Result };
            self.events.push_back(Event::Begin);
            self.events.extend(batches.into_iter().map(Event::Rows));
            self.events.push_back(Event::End);
            self.held = Some(share);
        }
        Ok(())
    }
}

/// Waits for work, at most for a time.
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Result<T, QueryError> {
    tokio::time::timeout(time, work).await.map_err(|_| QueryError::timed_out())
}

fn has_ended(reason: &str) -> QueryError {
    let text = format!("the store that the subscription reads ended: {reason}");
    let hint = "Subscribe again. Rows continue at the last position; windows and results are sent anew.";
    QueryError::new(sqlstate::CANNOT_CONNECT_NOW, text).with_hint(hint)
}

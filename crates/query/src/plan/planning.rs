//! Runs parsing and planning on threads with large stacks, a few at a time, and abandons threads that do not finish.
//!
//! Parsers and planners never yield, and their trees nest. They therefore never run where others wait, and have a stack
//! for the deepest tree within the limits. A client whose statement is stopped is answered at once; the thread then
//! ends when it next checks the flag, or when it is done.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::let_run;
use tokio::sync::oneshot;

use crate::error::{QueryError, sqlstate};
use crate::running::fair::{Account, Place, Places};
use crate::running::memory::{Share, SharedMemory};
use crate::sql::constant;
use crate::sql::footprint::Footprint;

/// Stack size of a planning thread, in bytes. Only the used part takes memory.
const STACK_BYTES: usize = 256 << 20;
/// Maximum small statements planned concurrently.
const SMALL_TURNS: usize = 8;
/// Maximum large statements planned concurrently.
const LARGE_TURNS: usize = 2;
/// Maximum concurrent small steps that took longer than [`SHORT_TIME`]. Further ones keep their place.
const LONG_TURNS: usize = 3;
/// Time after which a small step counts as long and gives up its place.
const SHORT_TIME: Duration = Duration::from_millis(25);
/// Maximum memory of planning a small statement, in bytes. That of larger ones counts as memory of queries.
const SMALL_BYTES: usize = 8 << 20;
/// Maximum share of the memory of queries that planning counts, so that the largest statement can be planned.
const MEMORY_SHARE: usize = 3;
/// Maximum time for one step of parsing or planning.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum abandoned threads that gave up their turn. Further ones keep it.
const LEFT_BEHIND_MAX: usize = 4;
/// Maximum idle threads kept for the next statement.
const IDLE_MAX: usize = 3;
/// Time for which an idle thread is kept.
const IDLE_TIME: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Runner of parsing and planning steps.
pub(crate) struct Planning {
    small: Arc<Places>,
    large: Arc<Places>,
    long: Arc<Places>,
    memory: Arc<SharedMemory>,
    workers: Arc<Workers>,
}

struct Workers {
    niceness: i32,
    next: AtomicU64,
    idle: Mutex<Vec<(u64, mpsc::Sender<Job>)>>,
    left_behind: Mutex<usize>,
}

impl Planning {
    /// Creates a runner whose threads have this niceness, and whose memory counts as that of queries.
    pub(crate) fn new(niceness: i32, memory: Arc<SharedMemory>) -> Planning {
        let workers =
            Workers { niceness, next: AtomicU64::new(0), idle: Mutex::default(), left_behind: Mutex::default() };
        Planning {
            small: Places::new(SMALL_TURNS),
            large: Places::new(LARGE_TURNS),
            long: Places::new(LONG_TURNS),
            memory,
            workers: Arc::new(workers),
        }
    }

    /// Runs one step of a session for a statement. Dropping the future raises the flag passed to the step.
    ///
    /// # Errors
    /// If the step fails, takes too long or panics, or there is not enough memory for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        account: &Arc<Account>,
        footprint: Footprint,
        step: impl FnOnce(&Arc<AtomicBool>) -> Result<T, QueryError> + Send + 'static,
    ) -> Result<T, QueryError> {
        let is_small = footprint.working_bytes <= SMALL_BYTES;
        let mut share = Share::new(self.memory.clone(), if is_small { usize::MAX } else { 0 });
        self.hold(&mut share, footprint.tree_bytes)?;
        let lane = if is_small { &self.small } else { &self.large };
        let place = lane.take(account).await;
        self.hold(&mut share, footprint.tree_bytes.saturating_add(footprint.working_bytes))?;
        let turn = Arc::new(PlanningTurn { place: Mutex::new(Some(place)), is_small, workers: self.workers.clone() });
        let stopped = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = oneshot::channel();
        let (held, flag) = (turn.clone(), stopped.clone());
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(|| constant::planning(|| step(&flag))));
            drop(share);
            held.done();
            // A client that has disconnected needs no answer.
            let _ = sender.send(result);
        };
        self.workers
            .start(Box::new(job), is_small)
            .map_err(|e| QueryError::new(sqlstate::OUT_OF_MEMORY, format!("no thread to plan the statement: {e}")))?;
        let mut waiting = PlanRequest { stopped, turn, done: false };
        let result = tokio::time::timeout(STEP_TIMEOUT, async {
            let mut receiver = receiver;
            let become_long = async {
                tokio::time::sleep(SHORT_TIME).await;
                self.long.take(account).await
            };
            tokio::select! {
                biased;
                result = &mut receiver => return result,
                place = become_long, if is_small => waiting.turn.change(place),
            }
            receiver.await
        })
        .await;
        waiting.done = result.is_ok();
        match result {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(_)) | Err(_)) => Err(defect()),
            Err(_) => Err(QueryError::new(
                sqlstate::QUERY_CANCELED,
                format!("planning the statement took longer than {} s", STEP_TIMEOUT.as_secs()),
            )),
        }
    }

    fn hold(&self, share: &mut Share, bytes: usize) -> Result<(), QueryError> {
        let counted = bytes.min(self.memory.bytes_max() / MEMORY_SHARE);
        if share.try_resize(counted) { Ok(()) } else { Err(no_memory(bytes)) }
    }
}

fn no_memory(bytes: usize) -> QueryError {
    let text = format!("no room to plan a statement of about {} MiB beside what other queries hold", bytes >> 20);
    QueryError::new(sqlstate::OUT_OF_MEMORY, text).with_hint("Try again, or ask a shorter question.")
}

fn defect() -> QueryError {
    tracing::error!("planning a statement ended by a defect");
    QueryError::new(sqlstate::INTERNAL_ERROR, "planning the statement ended by a defect of the server")
}

/// A turn to plan, held by the thread, or given up when the thread is abandoned.
struct PlanningTurn {
    place: Mutex<Option<Place>>,
    is_small: bool,
    workers: Arc<Workers>,
}

impl PlanningTurn {
    /// Releases the turn when the thread is done.
    fn done(&self) {
        let place = self.place.lock().take();
        if place.is_none() {
            *self.workers.left_behind.lock() -= 1;
        }
    }

    /// Moves to another place and releases the previous one, unless the thread is done.
    fn change(&self, place: Place) {
        let mut held = self.place.lock();
        let before = if held.is_some() { held.replace(place) } else { Some(place) };
        drop(held);
        drop(before);
    }

    /// Releases the turn of an abandoned thread, unless there are too many such threads or its statement is large.
    fn leave_behind(&self) {
        if !self.is_small {
            return;
        }
        let (mut held, mut left_behind) = (self.place.lock(), self.workers.left_behind.lock());
        let place = if *left_behind < LEFT_BEHIND_MAX { held.take() } else { None };
        *left_behind += usize::from(place.is_some());
        drop((held, left_behind));
        drop(place);
    }
}

/// A client waiting for its step.
struct PlanRequest {
    stopped: Arc<AtomicBool>,
    turn: Arc<PlanningTurn>,
    done: bool,
}

impl Drop for PlanRequest {
    fn drop(&mut self) {
        if !self.done {
            self.stopped.store(true, Ordering::Relaxed);
            self.turn.leave_behind();
        }
    }
}

impl Workers {
    fn start(self: &Arc<Self>, mut job: Job, keep: bool) -> io::Result<()> {
        loop {
            let Some((_, idle)) = self.idle.lock().pop() else { break };
            match idle.send(job) {
                Ok(()) => return Ok(()),
                // It was about to end.
                Err(mpsc::SendError(back)) => job = back,
            }
        }
        let workers = self.clone();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        std::thread::Builder::new()
            .name("sql-plan".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || workers.work(id, job, keep))
            .map(let_run)
    }

    /// Runs jobs. After a large statement the thread ends, which frees its stack.
    fn work(&self, id: u64, mut job: Job, keep: bool) {
        crate::running::runtime::be_nice(self.niceness);
        loop {
            job();
            if !keep {
                return;
            }
            let (sender, receiver) = mpsc::channel();
            {
                let mut idle = self.idle.lock();
                if idle.len() >= IDLE_MAX {
                    return;
                }
                idle.push((id, sender));
            }
            job = match receiver.recv_timeout(IDLE_TIME) {
                Ok(job) => job,
                Err(_) => {
                    self.idle.lock().retain(|(other, _)| *other != id);
                    return;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Footprint = Footprint { tree_bytes: 1, working_bytes: 1 };

    #[tokio::test]
    async fn a_step_that_panics_is_an_error_and_the_next_one_runs() {
        let (planning, account) = (Planning::new(0, SharedMemory::new(16 << 20)), Arc::new(Account::default()));
        let panicked = planning.run::<()>(&account, SMALL, |_| panic!("a defect")).await;
        assert_eq!(panicked.unwrap_err().sqlstate, "XX000");
        assert_eq!(planning.run(&account, SMALL, |_| Ok(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn steps_that_nobody_waits_for_are_stopped_and_do_not_keep_others_out() {
        let (planning, account) = (Planning::new(0, SharedMemory::new(16 << 20)), Arc::new(Account::default()));
        let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..LEFT_BEHIND_MAX {
            let (begun, mut begin) = tokio::sync::mpsc::unbounded_channel();
            let ended = ended.clone();
            let step = planning.run(&account, SMALL, move |stopped| {
                let _ = begun.send(());
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let _ = ended.send(());
                Ok(())
            });
            tokio::select! {
                _ = step => panic!("it ends only when stopped"),
                _ = begin.recv() => {}
            }
        }
        assert_eq!(planning.run(&account, SMALL, |_| Ok(1)).await, Ok(1));
        for _ in 0..LEFT_BEHIND_MAX {
            ends.recv().await.unwrap();
        }
        assert_eq!(planning.run(&account, SMALL, |_| Ok(2)).await, Ok(2));
    }

    #[tokio::test]
    async fn long_steps_do_not_keep_short_ones_out() {
        let (planning, account) =
            (Arc::new(Planning::new(0, SharedMemory::new(16 << 20))), Arc::new(Account::default()));
        let end = Arc::new(AtomicBool::new(false));
        let long: Vec<_> = (0..LONG_TURNS)
            .map(|_| {
                let (planning, account, end) = (planning.clone(), account.clone(), end.clone());
                tokio::spawn(async move {
                    let step = move |_: &Arc<AtomicBool>| {
                        while !end.load(Ordering::Relaxed) {
                            std::thread::park_timeout(Duration::from_millis(1));
                        }
                        Ok(())
                    };
                    planning.run(&account, SMALL, step).await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let modest = Arc::new(Account::default());
        assert_eq!(planning.run(&modest, SMALL, |_| Ok(1)).await, Ok(1));
        end.store(true, Ordering::Relaxed);
        for one in long {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert_eq!(planning.run(&modest, SMALL, |_| Ok(2)).await, Ok(2));
    }

    #[tokio::test]
    async fn few_large_statements_are_planned_at_once_and_they_count() {
        let memory = SharedMemory::new(60 << 20);
        let (planning, account) = (Arc::new(Planning::new(0, memory.clone())), Arc::new(Account::default()));
        let large = Footprint { tree_bytes: 1 << 20, working_bytes: 100 << 20 };
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let run = |step: Box<dyn FnOnce() -> Result<(), QueryError> + Send>| {
            let (planning, account) = (planning.clone(), account.clone());
            tokio::spawn(async move { planning.run(&account, large, move |_| step()).await })
        };
        let mut finish = Vec::new();
        for n in 0..LARGE_TURNS {
            let (sender, finished) = std::sync::mpsc::channel::<()>();
            let began = began.clone();
            let step = run(Box::new(move || {
                let _ = began.send(n);
                let _ = finished.recv();
                Ok(())
            }));
            assert_eq!(begun.recv().await, Some(n));
            finish.push(sender);
            // Nobody waits for it any more.
            step.abort();
        }
        // A part of the memory each.
        let counted = LARGE_TURNS * (60 << 20) / MEMORY_SHARE;
        assert!(!memory.try_grow((60 << 20) - counted + 1));
        let last = run(Box::new(move || {
            let _ = began.send(usize::MAX);
            Ok(())
        }));
        // A small one does not wait for them, another large one does.
        assert_eq!(planning.run(&account, SMALL, |_| Ok(3)).await, Ok(3));
        assert!(begun.try_recv().is_err());
        finish.into_iter().for_each(|finish| finish.send(()).unwrap());
        assert_eq!(last.await.unwrap(), Ok(()));
        assert_eq!(begun.recv().await, Some(usize::MAX));
        while !memory.try_grow(60 << 20) {
            tokio::task::yield_now().await;
        }
        let error = planning.run(&account, large, |_| Ok(4)).await.unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::OUT_OF_MEMORY);
        assert_eq!(planning.run(&account, SMALL, |_| Ok(5)).await, Ok(5));
    }
}

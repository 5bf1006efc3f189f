//! Turns of running queries: every query begins soon, and long ones share what is left.
//!
//! A query begins with a short turn. When that is over, the query is suspended until it gets one of the long turns,
//! which end as well; it then queues again behind all others. While its client does not read its rows, it holds no
//! turn. So neither long queries nor clients that do not read keep others from starting or finishing. Among those that
//! wait, clients that had little come first: see [`crate::running::fair`].
//!
//! A query works on a batch of rows at a time and cannot be stopped within one. If a batch takes longer than its turn,
//! [`Turns::watch`] meanwhile gives its place to others, for a few queries at a time; each keeps its own thread.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::running::fair::{Account, Place, Places};

/// Maximum concurrent short turns.
pub(crate) const SHORT_TURNS: usize = 4;
/// Length of a short turn.
const SHORT_TIME: Duration = Duration::from_millis(50);
/// Length of a long turn: short enough that a query finishes in time behind twenty others, and long compared with the
/// cost of changing turns.
const LONG_TIME: Duration = Duration::from_millis(100);
/// Maximum queries that continue a batch beyond their turn after giving up their place.
pub(crate) const OVERDUE_MAX: usize = 8;
/// Time after the end of a turn at which its place goes to others, if the query has not released it.
const GRACE: Duration = Duration::from_millis(10);
/// Interval between checks of turns.
const LOOK: Duration = Duration::from_millis(25);
/// Consecutive checks without any turn, after which checking pauses until one begins.
const QUIET_LOOKS: u32 = 40;

/// Turns of an engine.
pub(crate) struct Turns {
    short: Arc<Places>,
    long: Arc<Places>,
    overdue: Arc<Semaphore>,
    /// Current turns.
    held: Mutex<Vec<Weak<HeldTurn>>>,
    /// Whether overdue turns are being checked. If not, the next turn to begin resumes the checks.
    looking: AtomicBool,
    begun: Notify,
}

impl Turns {
    /// Creates the turns of an engine, with this number of long ones.
    pub(crate) fn new(long: usize) -> Turns {
        Turns {
            short: Places::new(SHORT_TURNS),
            long: Places::new(long.max(1)),
            overdue: Arc::new(Semaphore::new(OVERDUE_MAX)),
            held: Mutex::default(),
            looking: AtomicBool::new(false),
            begun: Notify::new(),
        }
    }

    /// Waits for a short turn of a session.
    pub(crate) async fn begin(self: &Arc<Self>, account: &Arc<Account>) -> Turn {
        let held = Arc::new(HeldTurn { has: Mutex::default(), over: watch::Sender::new(None) });
        let turn = Turn { turns: self.clone(), account: account.clone(), held };
        turn.take().await;
        self.held.lock().push(Arc::downgrade(&turn.held));
        if !self.looking.swap(true, Ordering::SeqCst) {
            self.begun.notify_one();
        }
        turn
    }

    /// Gives the places of overdue queries to others, until the turns are dropped.
    pub(crate) async fn watch(turns: Weak<Turns>) {
        let mut quiet = 0;
        while let Some(turns) = turns.upgrade() {
            // A turn not seen by this check begins after it, and notifies.
            turns.looking.store(quiet < QUIET_LOOKS, Ordering::SeqCst);
            if turns.look(Instant::now()) {
                quiet = 0;
            } else if quiet < QUIET_LOOKS {
                quiet += 1;
            } else {
                turns.begun.notified().await;
                quiet = 0;
            }
            drop(turns);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Gives the places of overdue queries to others. Returns whether there are any turns.
    fn look(&self, now: Instant) -> bool {
        let mut all = self.held.lock();
        all.retain(|held| {
            let Some(held) = held.upgrade() else { return false };
            held.let_go(&self.overdue, now);
            true
        });
        !all.is_empty()
    }
}

/// State of a turn.
struct HeldTurn {
    has: Mutex<Has>,
    /// End of the turn, if it has one.
    over: watch::Sender<Option<Instant>>,
}

/// A place, or permission to continue for a while without one.
#[derive(Default)]
struct Has {
    place: Option<Place>,
    /// Permit and start of the time without a place.
    overdue: Option<(OwnedSemaphorePermit, Instant)>,
}

impl HeldTurn {
    /// Sets a place that ends after a time.
    fn set(&self, place: Place, time: Duration) {
        let mut has = self.has.lock();
        *has = Has { place: Some(place), overdue: None };
        self.over.send_replace(Some(Instant::now() + time));
    }

    /// Gives its place to others if it is overdue, unless too many are.
    fn let_go(&self, overdue: &Arc<Semaphore>, now: Instant) {
        let mut has = self.has.lock();
        let is_overdue = self.over.borrow().is_some_and(|over| over + GRACE <= now);
        if !is_overdue || has.place.is_none() {
            return;
        }
        let Ok(leave) = overdue.clone().try_acquire_owned() else { return };
        has.overdue = Some((leave, now));
        let place = has.place.take();
        drop(has);
        drop(place);
    }
}

/// Turn of one query.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    account: Arc<Account>,
    held: Arc<HeldTurn>,
}

impl Turn {
    /// Waits for a short turn.
    pub(crate) async fn take(&self) {
        let place = self.turns.short.take(&self.account).await;
        self.held.set(place, SHORT_TIME);
    }

    /// Releases the turn.
    pub(crate) fn give_up(&self) {
        let has = {
            let mut has = self.held.has.lock();
            self.held.over.send_replace(None);
            std::mem::take(&mut *has)
        };
        if let Some((_, since)) = &has.overdue {
            self.account.charge(since.elapsed(), std::time::Instant::now());
        }
        drop(has);
    }

    async fn is_over(&self) {
        let mut over = self.held.over.subscribe();
        loop {
            let until = *over.borrow_and_update();
            tokio::select! {
                () = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                } => return,
                changed = over.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Runs a query in its turns.
    pub(crate) async fn run<T>(&self, query: impl Future<Output = T>) -> T {
        let mut query = pin!(query);
        loop {
            tokio::select! {
                biased;
                () = self.is_over() => {
                    self.give_up();
                    // The query is not polled meanwhile, so it is suspended.
                    let place = self.turns.long.take(&self.account).await;
                    self.held.set(place, LONG_TIME);
                }
                done = &mut query => {
                    self.give_up();
                    return done;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queries_begin_beside_any_number_of_long_ones() {
        let (turns, account) = (Arc::new(Turns::new(2)), Arc::new(Account::default()));
        let long: Vec<_> = (0..20)
            .map(|_| {
                let (turns, account) = (turns.clone(), account.clone());
                tokio::spawn(async move { turns.begin(&account).await.run(std::future::pending::<()>()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(turns.begin(&account).await.run(async { 7 }).await, 7);
        long.iter().for_each(|query| query.abort());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn queries_begin_beside_those_that_do_not_end_their_turns() {
        let (turns, account) = (Arc::new(Turns::new(1)), Arc::new(Account::default()));
        tokio::spawn(Turns::watch(Arc::downgrade(&turns)));
        let mut endless = Vec::new();
        for _ in 0..SHORT_TURNS {
            let (turns, account) = (turns.clone(), account.clone());
            let ((begun, has_begun), (end, ended)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
            let query = async move {
                begun.send(()).unwrap();
                // Blocks its thread.
                let _ = ended.recv();
            };
            let query = tokio::spawn(async move { turns.begin(&account).await.run(query).await });
            has_begun.recv().unwrap();
            endless.push((query, end));
        }
        assert_eq!(turns.begin(&account).await.run(async { 7 }).await, 7);
        for (query, end) in endless {
            drop(end);
            query.await.unwrap();
        }
        let mut places = Vec::new();
        for _ in 0..SHORT_TURNS {
            places.push(turns.short.take(&account).await);
        }
        assert_eq!(turns.overdue.available_permits(), OVERDUE_MAX);
    }

    #[tokio::test]
    async fn a_query_of_several_turns_ends_beside_any_number_of_endless_ones() {
        let turns = Arc::new(Turns::new(1));
        let endless = async || {
            loop {
                tokio::task::yield_now().await;
            }
        };
        let long: Vec<_> = (0..4)
            .map(|_| {
                let turns = turns.clone();
                let account = Arc::new(Account::default());
                tokio::spawn(async move { turns.begin(&account).await.run(endless()).await })
            })
            .collect();
        let (turn, mut polls) = (turns.begin(&Arc::new(Account::default())).await, 0);
        let of_turns = async {
            let mut ends = Vec::new();
            // Each of its turns has another end.
            while ends.len() < 3 {
                let over = *turn.held.over.borrow();
                if ends.last() != Some(&over) {
                    ends.push(over);
                }
                polls += 1;
                tokio::task::yield_now().await;
            }
        };
        turn.run(of_turns).await;
        assert!(polls >= 3);
        long.iter().for_each(|query| query.abort());
    }

    #[tokio::test]
    async fn a_query_without_a_turn_stands_still_and_goes_on_with_the_next() {
        let (turns, account) = (Arc::new(Turns::new(1)), Arc::new(Account::default()));
        let (first, second) = (turns.begin(&account).await, turns.begin(&account).await);
        let taken = turns.long.take(&account).await;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let runs = tokio::spawn(async move { first.run(receiver).await });
        // Its short turn is over when others can have it.
        let mut rest = Vec::new();
        for _ in 0..SHORT_TURNS - 1 {
            rest.push(turns.short.take(&account).await);
        }
        sender.send(7).unwrap();
        assert!(!runs.is_finished());
        drop(taken);
        assert_eq!(runs.await.unwrap(), Ok(7));
        assert_eq!(second.run(async { 8 }).await, 8);
    }
}

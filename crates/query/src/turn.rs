//! Turns of running queries: every query begins soon, and those that take long share what is left.
//!
//! A query begins with a short turn. When that is over it waits, without running, for one of the long turns, which
//! end as well: it then waits behind all that wait already. While its client does not take its rows it holds no turn
//! at all. So neither long queries nor clients that do not read keep others from beginning or from ending. Of those
//! that wait, clients that had little come first: [`crate::fair`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::fair::{Account, Place, Places};

/// Queries that have a short turn at a time.
pub(crate) const SHORT_TURNS: usize = 4;
/// A short turn.
const SHORT_TIME: Duration = Duration::from_millis(50);
/// A long turn: short enough that one query ends in time behind twenty others, and long beside the change of turns.
const LONG_TIME: Duration = Duration::from_millis(100);

/// The turns of an engine.
pub(crate) struct Turns {
    short: Arc<Places>,
    long: Arc<Places>,
}

impl Turns {
    /// Makes the turns of an engine, with a number of long ones.
    pub(crate) fn new(long: usize) -> Turns {
        Turns { short: Places::new(SHORT_TURNS), long: Places::new(long.max(1)) }
    }

    /// Waits for a short turn of a session.
    pub(crate) async fn begin(self: &Arc<Self>, account: &Arc<Account>) -> Turn {
        let (account, place) = (account.clone(), Mutex::new(None));
        let turn = Turn { turns: self.clone(), account, place, over: watch::Sender::new(None) };
        turn.take().await;
        turn
    }
}

/// The turn of one query.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    account: Arc<Account>,
    place: Mutex<Option<Place>>,
    /// When the turn is over, if it has one.
    over: watch::Sender<Option<Instant>>,
}

impl Turn {
    /// Waits for a short turn.
    pub(crate) async fn take(&self) {
        let place = self.turns.short.take(&self.account).await;
        *self.place.lock() = Some(place);
        self.over.send_replace(Some(Instant::now() + SHORT_TIME));
    }

    /// Lets others have it.
    pub(crate) fn give_up(&self) {
        self.over.send_replace(None);
        let place = self.place.lock().take();
        drop(place);
    }

    async fn is_over(&self) {
        let mut over = self.over.subscribe();
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
                    // Not polled meanwhile: it stands still.
                    let place = self.turns.long.take(&self.account).await;
                    *self.place.lock() = Some(place);
                    self.over.send_replace(Some(Instant::now() + LONG_TIME));
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
                let over = *turn.over.borrow();
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

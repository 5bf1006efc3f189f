//! Limited places, given first to sessions that had least recently.
//!
//! Each session has an [`Account`] of the time for which it held places. In the queue, a session is set back by ten
//! times its time of the last minute. A client that asks for little gets in soon, regardless of how many others ask for
//! much, and no one waits forever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Half-life of the recorded time.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// Factor by which the recorded time sets a session back in the queue.
const FACTOR: f64 = 10.0;
/// Maximum setback.
const BACK_MAX: Duration = Duration::from_secs(30);

/// Decaying record of the time for which a session held places.
#[derive(Debug)]
pub(crate) struct Account(Mutex<(Duration, Instant)>);

impl Default for Account {
    fn default() -> Self {
        Account(Mutex::new((Duration::ZERO, Instant::now())))
    }
}

impl Account {
    /// Adds time for which the session held a place, or an equivalent.
    pub(crate) fn charge(&self, time: Duration, now: Instant) {
        let mut had = self.0.lock();
        *had = (had.0.mul_f64(kept(now.saturating_duration_since(had.1))) + time, now);
    }

    /// Returns the session's setback in a queue.
    fn back(&self, now: Instant) -> Duration {
        let (had, at) = *self.0.lock();
        had.mul_f64(kept(now.saturating_duration_since(at)) * FACTOR).min(BACK_MAX)
    }
}

/// Returns the share that is kept after some time.
fn kept(after: Duration) -> f64 {
    0.5_f64.powf(after.as_secs_f64() / HALF_LIFE.as_secs_f64())
}

/// A limited number of places, with a queue.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    free: usize,
    next: u64,
    /// Waiting requests, by arrival plus setback.
    waiting: BTreeMap<(Instant, u64), (oneshot::Sender<Place>, Arc<Account>)>,
}

/// A place, returned when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Option<Arc<Places>>,
    account: Arc<Account>,
    since: Instant,
}

impl Places {
    /// Creates this number of places.
    pub(crate) fn new(number: usize) -> Arc<Places> {
        Arc::new(Places(Mutex::new(Queue { free: number, ..Queue::default() })))
    }

    /// Waits for a place.
    pub(crate) async fn take(self: &Arc<Self>, account: &Arc<Account>) -> Place {
        loop {
            let (place, come) = oneshot::channel();
            let key = {
                let mut queue = self.0.lock();
                let now = Instant::now();
                if queue.free > 0 {
                    queue.free -= 1;
                    return Place { places: Some(self.clone()), account: account.clone(), since: now };
                }
                queue.next += 1;
                let key = (now + account.back(now), queue.next);
                queue.waiting.insert(key, (place, account.clone()));
                key
            };
            let _waiting = PlaceRequest { places: self, key };
            // The sender is only dropped without a place if the queue dropped it.
            if let Ok(place) = come.await {
                return place;
            }
        }
    }

    /// Passes a place to the next in the queue.
    fn give(self: &Arc<Self>) {
        loop {
            let mut queue = self.0.lock();
            let Some((_, (next, account))) = queue.waiting.pop_first() else {
                queue.free += 1;
                return;
            };
            drop(queue);
            let place = Place { places: Some(self.clone()), account, since: Instant::now() };
            match next.send(place) {
                Ok(()) => return,
                // The requester has disconnected: try the next.
                Err(mut place) => place.places = None,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            let now = Instant::now();
            self.account.charge(now.saturating_duration_since(self.since), now);
            places.give();
        }
    }
}

/// A request waiting for a place.
struct PlaceRequest<'a> {
    places: &'a Places,
    key: (Instant, u64),
}

impl Drop for PlaceRequest<'_> {
    fn drop(&mut self) {
        self.places.0.lock().waiting.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_had_little_is_before_any_number_of_those_who_had_much() {
        let places = Places::new(1);
        let (greedy, modest) = (Arc::new(Account::default()), Arc::new(Account::default()));
        greedy.charge(Duration::from_secs(2), Instant::now());
        let held = places.take(&modest).await;
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut all = Vec::new();
        for (name, account) in (0..50).map(|_| ("greedy", &greedy)).chain([("modest", &modest)]) {
            let (places, account, told) = (places.clone(), account.clone(), told.clone());
            all.push(tokio::spawn(async move {
                let _place = places.take(&account).await;
                let _ = told.send(name);
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        assert_eq!(order.recv().await, Some("modest"));
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(places.0.lock().free, 1);
    }

    #[tokio::test]
    async fn places_of_those_who_leave_are_not_lost() {
        let places = Places::new(2);
        let account = Arc::new(Account::default());
        let (first, second) = (places.take(&account).await, places.take(&account).await);
        let gone: Vec<_> = (0..5)
            .map(|_| {
                let (places, account) = (places.clone(), account.clone());
                tokio::spawn(async move { drop(places.take(&account).await) })
            })
            .collect();
        tokio::task::yield_now().await;
        gone[..4].iter().for_each(|one| one.abort());
        drop((first, second));
        for one in gone {
            let _ = one.await;
        }
        let queue = places.0.lock();
        assert!(queue.waiting.is_empty() && queue.free == 2, "{queue:?}");
    }

    #[test]
    fn what_was_had_is_forgotten() {
        let account = Account::default();
        let now = Instant::now();
        account.charge(Duration::from_secs(1), now);
        assert_eq!(account.back(now), Duration::from_secs(10));
        let later = account.back(now + HALF_LIFE);
        assert!((4.9..5.1).contains(&later.as_secs_f64()), "{later:?}");
        account.charge(Duration::from_secs(60), now);
        assert_eq!(account.back(now), BACK_MAX);
    }
}

//! Places that few have at a time, given first to those who had least of late.
//!
//! Each session has an [`Account`] of how long it had places. Who waits goes behind those that come later, by ten times
//! what it had in the last minute: a client that asks for little is soon in, whatever number of others ask for much, and
//! nobody waits for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// After this time half of what a session had is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// How far a session goes back in the queue for the time that it had a place.
const FACTOR: f64 = 10.0;
/// How far at most.
const BACK_MAX: Duration = Duration::from_secs(30);

/// How long a session had places of late.
#[derive(Debug)]
pub(crate) struct Account(Mutex<(Duration, Instant)>);

impl Default for Account {
    fn default() -> Self {
        Account(Mutex::new((Duration::ZERO, Instant::now())))
    }
}

impl Account {
    /// Counts a time that it had a place, or what is as good as one.
    pub(crate) fn charge(&self, time: Duration, now: Instant) {
        let mut had = self.0.lock();
        *had = (had.0.mul_f64(kept(now.saturating_duration_since(had.1))) + time, now);
    }

    /// How far it goes back in a queue.
    fn back(&self, now: Instant) -> Duration {
        let (had, at) = *self.0.lock();
        had.mul_f64(kept(now.saturating_duration_since(at)) * FACTOR).min(BACK_MAX)
    }
}

/// The part of a time that is not forgotten after another.
fn kept(after: Duration) -> f64 {
    0.5_f64.powf(after.as_secs_f64() / HALF_LIFE.as_secs_f64())
}

/// A number of places.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    free: usize,
    next: u64,
    /// By when it would be the turn of each, had it come then.
    waiting: BTreeMap<(Instant, u64), (oneshot::Sender<Place>, Arc<Account>)>,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Option<Arc<Places>>,
    account: Arc<Account>,
    since: Instant,
}

impl Places {
    /// Makes places.
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
            // It ends without one only if the queue let go of it.
            if let Ok(place) = come.await {
                return place;
            }
        }
    }

    /// Hands a place on to whose turn it is.
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
                // It has gone: the next.
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

/// Somebody who waits for a place.
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

//! Rate limit for clients that have something recorded for long: events, actions on alarms, steps of runs, layouts,
//! derived channels.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::process::budget::client_of;

/// Number of requests a client may make at once.
const BURST: f64 = 200.0;
/// Requests a second it may make after that.
const RATE_HZ: f64 = 10.0;
/// Number of requests all clients together may make at once, and in a second after that.
const ALL_BURST: f64 = 1_000.0;
const ALL_RATE_HZ: f64 = 50.0;
/// Max number of clients remembered; those with a full burst are forgotten first.
const CLIENTS_MAX: usize = 10_000;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(burst: f64, now: Instant) -> Bucket {
        Bucket { left: burst, at: now }
    }

    fn fill(&mut self, burst: f64, rate_hz: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate_hz).min(burst);
        self.at = now;
    }
}

/// The remaining allowance of all clients.
#[derive(Debug)]
pub struct Allowance {
    buckets: Mutex<(Bucket, HashMap<IpAddr, Bucket>)>,
}

/// A refusal for too many requests, with the time until the next one is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many writes of this kind from this client: at most {RATE_HZ} per second; try again in {} s", .0.as_secs().max(1))]
pub struct TooOften(pub Duration);

impl Allowance {
    /// Makes a full allowance.
    pub fn new(now: Instant) -> Allowance {
        Allowance { buckets: Mutex::new((Bucket::full(ALL_BURST, now), HashMap::new())) }
    }

    /// Takes one request of a client's allowance.
    ///
    /// # Errors
    /// If the client, or all clients together, must wait.
    pub fn take(&self, address: IpAddr, now: Instant) -> Result<(), TooOften> {
        let mut buckets = self.buckets.lock();
        let (all, clients) = &mut *buckets;
        all.fill(ALL_BURST, ALL_RATE_HZ, now);
        let client = client_of(address);
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&client) {
            clients.retain(|_, bucket| {
                bucket.fill(BURST, RATE_HZ, now);
                bucket.left < BURST
            });
            if clients.len() >= CLIENTS_MAX {
                return Err(TooOften(Duration::from_secs(1)));
            }
        }
        let mine = clients.entry(client).or_insert_with(|| Bucket::full(BURST, now));
        mine.fill(BURST, RATE_HZ, now);
        let missing = |bucket: &Bucket, rate_hz: f64| Duration::from_secs_f64((1.0 - bucket.left).max(0.0) / rate_hz);
        let wait = missing(mine, RATE_HZ).max(missing(all, ALL_RATE_HZ));
        if !wait.is_zero() {
            return Err(TooOften(wait));
        }
        mine.left -= 1.0;
        all.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_burst_then_a_rate_and_others_their_own() {
        let start = Instant::now();
        let allowance = Allowance::new(start);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let taken = |address, now| (0..1_000).filter(|_| allowance.take(address, now).is_ok()).count();
        assert_eq!(taken(one, start), 200);
        assert_eq!(taken(two, start), 200);
        assert_eq!(taken(one, start + Duration::from_secs(2)), 20);
        assert_eq!(taken(one, start + Duration::from_secs(3600)), 200);
    }

    #[test]
    fn all_clients_together_are_bounded_too() {
        let start = Instant::now();
        let allowance = Allowance::new(start);
        let address = |i: u8| IpAddr::from([10, 0, 0, i]);
        let taken =
            (0..250).flat_map(|i| (0..200).map(move |_| i)).filter(|i| allowance.take(address(*i), start).is_ok());
        assert_eq!(taken.count(), 1_000);
    }
}

//! Memory held for clients: bodies on their way in, answers on their way out, histories, playbacks.
//!
//! ```text
//!  write body ┐                    ┌ share of one client
//!  answer     ├─> Budget::take ──> │
//!  history    ┘      │             └ all clients together, a part of it kept for this machine
//!                    └─> Over: 503 or 429, before the memory is taken
//! ```
//! A client is an IP address, or for IPv6 its /64 network. Held memory is a [`Reservation`], which returns its bytes
//! when dropped.
//!
//! Invariants:
//! - the bytes of all reservations never exceed the total, nor those of one client its share;
//! - clients of other machines leave an eighth of the total to those of this one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Divisor of the total that only clients of this machine may use.
const LOCAL_PART: usize = 8;

/// Reason why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The total for all clients is used up.
    #[error("out of memory for clients: {held} of {max} bytes are in use (limits.client_memory_mib)")]
    All {
        /// Bytes held.
        held: usize,
        /// Max bytes for all clients.
        max: usize,
    },
    /// The share of this client is used up.
    #[error(
        "the server holds {held} bytes for {client} already and is asked for {asked}, at most {max}: \
         limits.client_memory_per_address_mib"
    )]
    Client {
        /// The client.
        client: IpAddr,
        /// Bytes held for it.
        held: usize,
        /// Bytes asked for.
        asked: usize,
        /// Max bytes for one client.
        max: usize,
    },
}

/// The bytes that may be held for clients.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    max_per_client: usize,
    held: Mutex<HeldBytes>,
    /// Notified when bytes are returned.
    freed: Notify,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// Returns the client an address belongs to.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

impl Budget {
    /// Makes a budget of `max` bytes, of which one client may use `max_per_client`.
    pub fn new(max: usize, max_per_client: usize) -> Arc<Budget> {
        Arc::new(Budget {
            max,
            max_per_client: max_per_client.min(max),
            held: Mutex::default(),
            freed: Notify::new(),
            refused: AtomicU64::new(0),
        })
    }

    /// Reserves bytes for a client; 0 bytes can be grown later.
    ///
    /// # Errors
    /// If the client, or all clients together, would hold too much.
    pub fn take(self: &Arc<Self>, address: IpAddr, bytes: usize) -> Result<Reservation, Over> {
        let mut reservation = Reservation { budget: self.clone(), client: client_of(address), bytes: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Reserves bytes for a client, waiting for them up to `patience`.
    ///
    /// # Errors
    /// If the bytes exceed the share of a client, or are not free in time.
    pub async fn take_patiently(
        self: &Arc<Self>,
        address: IpAddr,
        bytes: usize,
        patience: Duration,
    ) -> Result<Reservation, Over> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before the attempt, so that bytes returned in between are not missed.
            freed.as_mut().enable();
            let over = match self.take(address, bytes) {
                Ok(reservation) => return Ok(reservation),
                Err(over) if bytes > self.max_per_client => return Err(over),
                Err(over) => over,
            };
            if tokio::time::timeout_at(until, freed).await.is_err() {
                return Err(over);
            }
        }
    }

    /// Returns the bytes held now.
    pub fn held(&self) -> usize {
        self.held.lock().all
    }

    /// Returns the max bytes for all clients.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the max bytes for one client.
    pub fn max_per_client(&self) -> usize {
        self.max_per_client
    }

    /// Returns how often bytes were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn add(&self, client: IpAddr, bytes: usize) -> Result<(), Over> {
        let max = if client.is_loopback() { self.max } else { self.max - self.max / LOCAL_PART };
        let mut held = self.held.lock();
        let mine = held.by_client.get(&client).copied().unwrap_or(0);
        let over = if mine.saturating_add(bytes) > self.max_per_client {
            Some(Over::Client { client, held: mine, asked: bytes, max: self.max_per_client })
        } else if held.all.saturating_add(bytes) > max {
            Some(Over::All { held: held.all, max })
        } else {
            None
        };
        if let Some(over) = over {
            self.refused.fetch_add(1, Relaxed);
            return Err(over);
        }
        held.all += bytes;
        *held.by_client.entry(client).or_default() += bytes;
        Ok(())
    }

    fn give_back(&self, client: IpAddr, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut held = self.held.lock();
        held.all -= bytes;
        if let Some(mine) = held.by_client.get_mut(&client) {
            *mine -= bytes;
            if *mine == 0 {
                held.by_client.remove(&client);
            }
        }
        drop(held);
        self.freed.notify_waiters();
    }
}

/// Bytes held for a client, returned when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    client: IpAddr,
    bytes: usize,
}

impl Reservation {
    /// Returns the number of bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `more` bytes in addition.
    ///
    /// # Errors
    /// If they are refused; the bytes held stay held.
    pub fn grow(&mut self, more: usize) -> Result<(), Over> {
        if more > 0 {
            self.budget.add(self.client, more)?;
            self.bytes += more;
        }
        Ok(())
    }

    /// Makes a separate reservation for the same client.
    ///
    /// # Errors
    /// As [`Reservation::grow`].
    pub fn beside(&self, bytes: usize) -> Result<Reservation, Over> {
        self.budget.take(self.client, bytes)
    }

    /// Takes over the bytes of another reservation of the same client.
    pub fn join(&mut self, mut other: Reservation) {
        debug_assert_eq!(self.client, other.client);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Grows or shrinks the reservation to `bytes`.
    ///
    /// # Errors
    /// As [`Reservation::grow`].
    pub fn resize(&mut self, bytes: usize) -> Result<(), Over> {
        if bytes >= self.bytes {
            return self.grow(bytes - self.bytes);
        }
        self.budget.give_back(self.client, self.bytes - bytes);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.client, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_its_share_and_all_have_the_whole() {
        let budget = Budget::new(800, 300);
        let [one, two, three, here] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "127.0.0.1"].map(address);
        let mut first = budget.take(one, 200).unwrap();
        assert_eq!(first.grow(101), Err(Over::Client { client: one, held: 200, asked: 101, max: 300 }));
        first.grow(100).unwrap();
        assert!(budget.take(address("::ffff:10.0.0.1"), 1).is_err(), "the same client in another notation");
        let second = budget.take(two, 300).unwrap();
        assert_eq!(budget.take(three, 101).unwrap_err(), Over::All { held: 600, max: 700 });
        let third = budget.take(three, 100).unwrap();
        let local = budget.take(here, 100).expect("a part is kept for this machine");
        assert_eq!((budget.held(), budget.refused()), (800, 3));
        first.resize(50).unwrap();
        assert_eq!(budget.held(), 550);
        assert!(first.beside(251).is_err(), "more than the client may have");
        first.join(first.beside(30).unwrap());
        assert_eq!((first.bytes(), budget.held()), (80, 580));
        drop((first, second, third, local));
        assert_eq!(budget.held(), 0);
        assert!(budget.held.lock().by_client.is_empty(), "clients that hold nothing are forgotten");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(client_of(address("2001:db8:1:2:3::4")), client_of(address("2001:db8:1:2::9")));
        assert_ne!(client_of(address("2001:db8:1:2::")), client_of(address("2001:db8:1:3::")));
        assert_eq!(client_of(address("::1")), address("::1"));
    }

    #[tokio::test]
    async fn who_waits_gets_what_another_gives_back() {
        let budget = Budget::new(100, 100);
        let held = budget.take(address("127.0.0.1"), 80).unwrap();
        let waiting = {
            let budget = budget.clone();
            tokio::spawn(async move { budget.take_patiently(address("127.0.0.1"), 50, Duration::from_secs(5)).await })
        };
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap().bytes(), 50);
        let _held = budget.take(address("127.0.0.1"), 80).unwrap();
        assert!(budget.take_patiently(address("127.0.0.1"), 50, Duration::from_millis(1)).await.is_err(), "in time");
        assert!(budget.take_patiently(address("127.0.0.1"), 101, Duration::from_secs(5)).await.is_err(), "never");
    }
}

//! Limits on the number of live clients, in total and per address. An IPv6 network of 64 bits counts as one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::process::budget::client_of;

/// Connection slots for live clients.
#[derive(Debug)]
pub struct Seats {
    max: usize,
    max_per_address: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// Reason why a client is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Total limit reached.
    #[error("too many live clients: {max} are connected (live.max_clients)")]
    All {
        /// Total limit.
        max: usize,
    },
    /// Limit of one address reached.
    #[error("too many live clients from {address}: {max} are connected (live.max_clients_per_address)")]
    Address {
        /// Address of the client.
        address: IpAddr,
        /// Limit per address.
        max: usize,
    },
}

/// Connection slot, freed when dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    address: IpAddr,
}

impl Seats {
    /// Creates `max` slots, of which one address may take `max_per_address`.
    pub fn new(max: usize, max_per_address: usize) -> Arc<Seats> {
        Arc::new(Seats { max, max_per_address, taken: Mutex::default() })
    }

    /// Takes a slot for a client at `address`.
    ///
    /// # Errors
    /// Returns which limit is reached.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Full> {
        let address = client_of(address);
        let mut taken = self.taken.lock();
        if taken.values().sum::<usize>() >= self.max {
            return Err(Full::All { max: self.max });
        }
        let mine = taken.get(&address).copied().unwrap_or(0);
        if mine >= self.max_per_address {
            return Err(Full::Address { address, max: self.max_per_address });
        }
        taken.insert(address, mine + 1);
        Ok(Seat { seats: self.clone(), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        if let Some(mine) = taken.get_mut(&self.address) {
            *mine -= 1;
            if *mine == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_share_and_gives_it_back() {
        let seats = Seats::new(3, 2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (one, two) = (address("10.0.0.1"), address("::1"));
        let first = seats.take(one).unwrap();
        // The same address, in the form that a dual-stack socket reports.
        let second = seats.take(address("::ffff:10.0.0.1")).unwrap();
        assert_eq!(seats.take(one).unwrap_err(), Full::Address { address: one, max: 2 });
        let third = seats.take(two).unwrap();
        assert_eq!(seats.take(two).unwrap_err(), Full::All { max: 3 });
        drop(first);
        let again = seats.take(one).unwrap();
        drop((second, third, again));
        assert!(seats.taken.lock().is_empty(), "addresses without clients are forgotten");
        // A host has all addresses of its network.
        let network = ["2001:db8:1:2::3", "2001:db8:1:2::4", "2001:db8:1:2::5"];
        let taken: Vec<_> = network.iter().map(|text| seats.take(address(text)).is_ok()).collect();
        assert_eq!(taken, [true, true, true], "given back at once");
        let held: Vec<_> = network.iter().filter_map(|text| seats.take(address(text)).ok()).collect();
        assert_eq!(held.len(), 2);
    }
}

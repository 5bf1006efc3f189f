//! Limits on the number of subscriptions, in total and per address. An IPv6 network of 64 bits counts as one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{QueryError, sqlstate};

/// Maximum subscriptions of all clients.
const ALL_MAX: usize = 1_024;
/// Maximum subscriptions of one address. Clients of this machine may have all but those kept for others.
const ADDRESS_MAX: usize = 256;
/// Subscriptions that clients of this machine leave to others.
const KEPT_FOR_OTHERS: usize = 256;

/// Subscriptions that run, by address.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Mutex<HashMap<IpAddr, usize>>);

/// Place of a subscription, given up when dropped.
#[derive(Debug)]
pub(crate) struct SubscriberPlace {
    all: Arc<Subscribers>,
    client: IpAddr,
}

/// Returns the client that an address belongs to.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

impl Subscribers {
    /// Takes a place for a subscription of an address.
    ///
    /// # Errors
    /// If the address, or all together, have too many.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<SubscriberPlace, QueryError> {
        let client = client_of(address);
        let most = if client.is_loopback() { ALL_MAX - KEPT_FOR_OTHERS } else { ADDRESS_MAX };
        let mut taken = self.0.lock();
        let text = if taken.values().sum::<usize>() >= ALL_MAX {
            format!("too many subscriptions: {ALL_MAX} run")
        } else if taken.get(&client).is_some_and(|own| *own >= most) {
            format!("too many subscriptions from {client}: {most} run")
        } else {
            *taken.entry(client).or_default() += 1;
            return Ok(SubscriberPlace { all: self.clone(), client });
        };
        Err(QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, text).with_hint("End those that are not needed."))
    }
}

impl Drop for SubscriberPlace {
    fn drop(&mut self) {
        let mut taken = self.all.0.lock();
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_share_and_gives_it_back() {
        let all = Arc::new(Subscribers::default());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str, most: usize| (0..most).map_while(|_| all.take(address(text)).ok()).collect::<Vec<_>>();
        let here = take("127.0.0.1", ALL_MAX);
        assert_eq!(here.len(), ALL_MAX - KEPT_FOR_OTHERS);
        let other = take("2001:db8:1:2::3", ALL_MAX);
        assert_eq!(other.len(), ADDRESS_MAX);
        // The same network, and no room at all.
        assert!(all.take(address("2001:db8:1:2::4")).unwrap_err().message.contains("too many"));
        assert_eq!(all.take(address("10.0.0.1")).unwrap_err().message, "too many subscriptions: 1024 run");
        drop(here);
        let error = all.take(address("2001:db8:1:2::4")).unwrap_err();
        assert_eq!((error.sqlstate, error.message.contains("2001:db8:1:2::: 256")), ("53300", true), "{error}");
        assert_eq!(take("10.0.0.1", 300).len(), ADDRESS_MAX);
        drop(other);
        assert!(all.0.lock().is_empty());
    }
}

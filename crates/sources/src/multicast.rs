//! Joins multicast groups on an interface and keeps them joined. When an interface disappears and returns, as USB and
//! tunnel interfaces do, it loses its memberships.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socket};

use crate::udp::{Listen, SocketError};

/// Membership in a group, for as long as its interface exists.
///
/// The kernel delivers a group's datagrams to every socket bound to the group, regardless of which socket joined it.
/// Each membership therefore has a dedicated socket, so that the kernel's state for a vanished interface goes away with
/// it.
#[derive(Debug)]
pub struct Membership {
    listen: Listen,
    holder: Option<UdpSocket>,
    /// Index of the interface it was joined on, if configured by name.
    index: Option<u32>,
}

/// Change in a membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Loss of the interface.
    Gone,
    /// Successful rejoin.
    Back,
}

impl Membership {
    /// Joins the group of an address. Returns `None` if the address is not multicast.
    ///
    /// # Errors
    /// If the interface does not exist or the group cannot be joined.
    pub fn join(listen: &Listen) -> Result<Option<Membership>, SocketError> {
        if !listen.address.ip().is_multicast() {
            return Ok(None);
        }
        let mut membership = Membership { listen: listen.clone(), holder: None, index: None };
        membership.join_anew()?;
        Ok(Some(membership))
    }

    /// Returns the group's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen.address
    }

    /// Returns the index that the configured interface had when it was joined, or `None` if none is configured. For a
    /// vanished interface, returns 0, which no interface has.
    pub(crate) fn interface_index(&self) -> Option<u32> {
        let interface = self.listen.interface.as_deref()?;
        let index = self.index.or_else(|| index_of(self.listen.address, interface).ok());
        Some(index.unwrap_or(0))
    }

    /// Formats the group and its interface for people.
    pub fn words(&self) -> String {
        match &self.listen.interface {
            Some(interface) => format!("{} on {interface}", self.listen.address.ip()),
            None => self.listen.address.ip().to_string(),
        }
    }

    /// Checks the membership, and joins again if it was lost.
    pub fn look(&mut self) -> Option<Change> {
        let was_joined = self.holder.is_some();
        let (holds, error) = match (&self.holder, self.named_index()) {
            // For an interface given by name, compare indexes.
            (Some(_), Some(index)) if index.is_some() => (index == self.index, None),
            (Some(_), Some(_)) => (false, None),
            // Joining again fails if the group is joined already.
            (Some(holder), None) => match self.join_on(holder) {
                Err(SocketError::Socket { source, .. }) if is_errno(&source, Errno::EADDRINUSE) => (true, None),
                Ok(()) => (false, None),
                Err(error) => (false, Some(error)),
            },
            (None, _) => (false, None),
        };
        if holds {
            return None;
        }
        if error.is_none() && self.join_anew().is_ok() {
            return Some(Change::Back);
        }
        (self.holder, self.index) = (None, None);
        was_joined.then_some(Change::Gone)
    }

    /// Returns the index of an interface given by name, or `Some(None)` if it does not exist.
    fn named_index(&self) -> Option<Option<u32>> {
        let name = self.listen.interface.as_deref().filter(|name| name.parse::<IpAddr>().is_err())?;
        Some(if_nametoindex(name).ok())
    }

    fn join_anew(&mut self) -> Result<(), SocketError> {
        let address = self.listen.address;
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let holder = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|errno| SocketError::Socket { address, doing: "cannot make a socket", source: errno.into() })?;
        let holder = UdpSocket::from(holder);
        // Read the index first. If the interface changes in between, the next check detects it.
        let index = self.named_index().flatten();
        self.join_on(&holder)?;
        (self.holder, self.index) = (Some(holder), index);
        Ok(())
    }

    fn join_on(&self, holder: &UdpSocket) -> Result<(), SocketError> {
        let (address, interface) = (self.listen.address, self.listen.interface.as_deref());
        let joined = match address.ip() {
            IpAddr::V4(group) => {
                let on = interface.map_or(Ok(Ipv4Addr::UNSPECIFIED), |name| ipv4_of(address, name))?;
                holder.join_multicast_v4(&group, &on)
            }
            IpAddr::V6(group) => {
                let on = interface.map_or(Ok(0), |name| index_of(address, name))?;
                holder.join_multicast_v6(&group, on)
            }
        };
        joined.map_err(|source| SocketError::Socket { address, doing: "cannot join the group", source })
    }
}

fn is_errno(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn no_interface(address: SocketAddr, interface: &str) -> SocketError {
    let mut known: Vec<String> = getifaddrs().into_iter().flatten().map(|i| i.interface_name).collect();
    known.sort();
    known.dedup();
    SocketError::NoInterface { address, interface: interface.to_owned(), known: known.join(", ") }
}

/// Returns the IPv4 address of an interface given by name or address.
fn ipv4_of(address: SocketAddr, interface: &str) -> Result<Ipv4Addr, SocketError> {
    if let Ok(ip) = interface.parse() {
        return Ok(ip);
    }
    getifaddrs()
        .into_iter()
        .flatten()
        .filter(|i| i.interface_name == interface)
        .find_map(|i| i.address.and_then(|a| a.as_sockaddr_in().map(|v4| v4.ip())))
        .ok_or_else(|| no_interface(address, interface))
}

/// Checks that this machine has the interface to listen on.
///
/// # Errors
/// If it does not exist. The error lists the existing ones.
pub fn check_interface(listen: &Listen) -> Result<(), SocketError> {
    listen.interface.as_deref().map_or(Ok(()), |interface| index_of(listen.address, interface).map(drop))
}

/// Returns the index of an interface given by name or address.
fn index_of(address: SocketAddr, interface: &str) -> Result<u32, SocketError> {
    let name = match interface.parse::<IpAddr>() {
        Err(_) => interface.to_owned(),
        Ok(ip) => getifaddrs()
            .into_iter()
            .flatten()
            .find(|i| i.address.as_ref().and_then(ip_of) == Some(ip))
            .map(|i| i.interface_name)
            .ok_or_else(|| no_interface(address, interface))?,
    };
    if_nametoindex(name.as_str()).map_err(|_| no_interface(address, interface))
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(interface: &str) -> Listen {
        Listen { address: "239.192.7.9:4440".parse().unwrap(), interface: Some(interface.to_owned()) }
    }

    #[test]
    fn a_membership_that_was_lost_is_joined_again() {
        for interface in ["lo", "127.0.0.1"] {
            let mut membership = Membership::join(&listen(interface)).unwrap().unwrap();
            assert_eq!(membership.look(), None);
            // Leave the group, as the kernel does when the interface disappears.
            let group = Ipv4Addr::new(239, 192, 7, 9);
            membership.holder.as_ref().unwrap().leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
            membership.index = membership.index.map(|_| u32::MAX);
            assert_eq!(membership.look(), Some(Change::Back), "{interface}");
            assert_eq!(membership.look(), None);
        }
    }

    #[test]
    fn an_interface_that_is_gone_is_told_once() {
        for (there, gone) in [("lo", "nosuch0"), ("127.0.0.1", "192.0.2.77")] {
            let mut membership = Membership::join(&listen(there)).unwrap().unwrap();
            membership.listen.interface = Some(gone.to_owned());
            assert_eq!(membership.look(), Some(Change::Gone), "{gone}");
            assert_eq!(membership.look(), None);
            membership.listen.interface = Some(there.to_owned());
            assert_eq!(membership.look(), Some(Change::Back));
            assert_eq!(membership.look(), None);
        }
        assert!(Membership::join(&listen("nosuch0")).is_err());
        let single = Listen { address: "127.0.0.1:4440".parse().unwrap(), interface: None };
        assert!(Membership::join(&single).unwrap().is_none());
    }
}

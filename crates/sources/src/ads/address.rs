//! AMS addresses: the six bytes that name a device, and the port that names a program in it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Name of a device in the AMS network, such as `5.12.82.20.1.1`. Not an IP address, even where it looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetId(pub [u8; 6]);

/// Error for a text that is not a NetId.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an AMS NetId: expected six numbers from 0 to 255, such as 5.12.82.20.1.1")]
pub struct NetIdError(String);

impl NetId {
    /// Returns TwinCAT's default NetId for an IPv4 address: its four bytes, then 1.1. Returns `None` for IPv6.
    pub fn of_ip(ip: IpAddr) -> Option<NetId> {
        let v4 = match ip {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(v6) => v6.to_ipv4_mapped()?,
        };
        let [a, b, c, d] = v4.octets();
        Some(NetId([a, b, c, d, 1, 1]))
    }
}

impl FromStr for NetId {
    type Err = NetIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NetIdError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split('.');
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(wrong)?;
            // `parse` would also accept a sign.
            if !part.bytes().all(|b| b.is_ascii_digit()) {
                return Err(wrong());
            }
            *byte = part.parse().map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(NetId(bytes)) }
    }
}

impl fmt::Display for NetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a}.{b}.{c}.{d}.{e}.{g}")
    }
}

/// A program in a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AmsAddress {
    /// The device.
    pub net_id: NetId,
    /// The program: 851 is the first PLC of TwinCAT 3, 801 that of TwinCAT 2.
    pub port: u16,
}

impl fmt::Display for AmsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.net_id, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_ids_are_six_numbers() {
        let id: NetId = "5.12.82.20.1.1".parse().unwrap();
        assert_eq!(id, NetId([5, 12, 82, 20, 1, 1]));
        assert_eq!(id.to_string(), "5.12.82.20.1.1");
        for wrong in
            ["", "5.12.82.20.1", "5.12.82.20.1.1.1", "5.12.82.20.1.256", "5.12.82.20.1.+1", "a.b.c.d.e.f", "1.2.3.4.5."]
        {
            assert!(wrong.parse::<NetId>().is_err(), "{wrong}");
        }
        assert_eq!(NetId::of_ip("10.1.2.3".parse().unwrap()), Some(NetId([10, 1, 2, 3, 1, 1])));
        assert_eq!(NetId::of_ip("::ffff:10.1.2.3".parse().unwrap()), Some(NetId([10, 1, 2, 3, 1, 1])));
        assert_eq!(NetId::of_ip("fe80::1".parse().unwrap()), None);
    }
}

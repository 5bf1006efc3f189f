//! Addresses to listen on.

use std::net::SocketAddr;

use serde::Deserialize;

/// Address to listen on, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and port; port 0 takes a free one.
    At(SocketAddr),
    /// No listening.
    Off,
}

impl Listen {
    /// Returns the address, or `None` if off.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Listen::At(address) => Some(address),
            Listen::Off => None,
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        address(text).map(Listen::At).map_err(|why| format!("{why}, nor \"off\""))
    }
}

/// Parses an address and port, `localhost` and a port, or the port alone, on loopback.
///
/// # Errors
/// If the text is not an address; the message has examples.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("{text:?} is not an address and port such as \"127.0.0.1:8080\", \"localhost:8080\" or \"[::1]:8080\"")
    })
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Deserializes an address that cannot be off.
///
/// # Errors
/// If the text is not an address.
pub(super) fn listened_address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    address(&text).map_err(serde::de::Error::custom)
}

//! Common parts of all relays: their ends, their clock, and waiting.

use std::net::SocketAddr;
use std::time::Instant;

use nix::poll::PollTimeout;

use super::report::RelayReport;

/// Protocol that a relay carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// iNET-X packets over UDP.
    Inetx,
    /// Line protocol over TCP.
    Lines,
    /// ADS over TCP.
    Ads,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Inetx => "inetx",
            Kind::Lines => "lines",
            Kind::Ads => "ads",
        }
    }
}

/// Ends of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) kind: Kind,
    pub(crate) listen: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// Clock of the time since the start, independent of the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now_ns(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}

/// Returns the timeout of a wait, in whole milliseconds, rounded up so that no turn is too early.
pub(crate) fn wait_for(ns: i64) -> PollTimeout {
    let ms = ns.max(0).saturating_add(999_999) / 1_000_000;
    PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
}

/// Relay of messages, on a thread of its own.
pub(crate) trait Relay: Send {
    /// Returns its ends, with the actual port.
    fn ends(&self) -> Ends;

    /// Receives what is available, forwards what is due, and waits for more, at most until `until_ns`.
    fn turn(&mut self, clock: &Clock, until_ns: i64);

    /// Receives what is still available, and forwards everything that waits.
    fn finish(&mut self, clock: &Clock);

    /// Returns the report so far.
    fn report(&self) -> RelayReport;
}

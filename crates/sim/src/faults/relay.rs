//! What all relays have: their ends, their clock, how they wait.

use std::net::SocketAddr;
use std::time::Instant;

use nix::poll::PollTimeout;

use super::report::RelayReport;

/// What a relay carries.
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

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) kind: Kind,
    pub(crate) listen: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// Time since the start, whatever happens to the time of day.
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

/// The timeout of a wait, in whole milliseconds, rounded up: never a turn too early.
pub(crate) fn wait_for(ns: i64) -> PollTimeout {
    let ms = ns.max(0).saturating_add(999_999) / 1_000_000;
    PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
}

/// What hands on from where to where, on a thread of its own.
pub(crate) trait Relay: Send {
    /// Its ends, with the port that it got.
    fn ends(&self) -> Ends;

    /// Takes what is there, hands on what is due, and waits for more, not past `until_ns`.
    fn turn(&mut self, clock: &Clock, until_ns: i64);

    /// Takes what is still there, and hands on all that waits.
    fn finish(&mut self, clock: &Clock);

    /// What it did so far.
    fn report(&self) -> RelayReport;
}

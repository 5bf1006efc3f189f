//! Counts of what happened to messages, as the relay made them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Add;

use super::relay::Ends;

/// Fate of the units of a flow: packets, lines, or samples of a notification.
///
/// `taken = delivered + lost + silenced + garbled + cut_off`. Copies are counted in `duplicates` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Units received from the sender.
    pub taken: u64,
    /// Units forwarded intact, not counting copies.
    pub delivered: u64,
    /// Units dropped by chance.
    pub lost: u64,
    /// Units dropped during a silence.
    pub silenced: u64,
    /// Units forwarded garbled.
    pub garbled: u64,
    /// Units that waited when their connection was cut.
    pub cut_off: u64,
    /// Units of copies forwarded.
    pub duplicates: u64,
    /// Units forwarded after later ones of their flow.
    pub reordered: u64,
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            taken: self.taken + other.taken,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            silenced: self.silenced + other.silenced,
            garbled: self.garbled + other.garbled,
            cut_off: self.cut_off + other.cut_off,
            duplicates: self.duplicates + other.duplicates,
            reordered: self.reordered + other.reordered,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taken, {} delivered", self.taken, self.delivered)?;
        let more = [
            (self.lost, "lost"),
            (self.silenced, "silenced"),
            (self.garbled, "garbled"),
            (self.cut_off, "cut off"),
            (self.duplicates, "twice"),
            (self.reordered, "out of order"),
        ];
        more.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}

/// Report of one relay.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RelayReport {
    /// `inetx`, `lines`, `ads`.
    pub kind: &'static str,
    /// Address it listens on.
    pub listen: SocketAddr,
    /// Address it sends to.
    pub to: SocketAddr,
    /// Sum over all flows.
    pub all: Tally,
    /// Counts of each flow: stream id, measurement with tags, or connection and handle.
    pub flows: BTreeMap<String, Tally>,
    /// Number of times the source's clock was set, forward or back.
    pub clock_jumps: u64,
    /// Number of connections accepted.
    pub connections: u64,
    /// Number of connections whose receiver could not be reached.
    pub unreachable: u64,
    /// Number of connections cut on purpose.
    pub cuts: u64,
    /// Number of messages that could not be sent to the network.
    pub send_errors: u64,
}

impl RelayReport {
    /// Returns the report of a relay; connections and errors are added by the relay.
    pub(crate) fn new(ends: Ends, flows: BTreeMap<String, Tally>, clock_jumps: u64) -> RelayReport {
        RelayReport {
            kind: ends.kind.name(),
            listen: ends.listen,
            to: ends.to,
            all: flows.values().fold(Tally::default(), |all, one| all + *one),
            flows,
            clock_jumps,
            connections: 0,
            unreachable: 0,
            cuts: 0,
            send_errors: 0,
        }
    }
}

/// Report of all relays.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FaultsReport {
    /// Seed of the random faults.
    pub seed: u64,
    /// Time they ran, in seconds.
    pub duration_s: f64,
    /// Report of each relay.
    pub relays: Vec<RelayReport>,
}

impl fmt::Display for FaultsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.duration_s)?;
        for relay in &self.relays {
            write!(f, "\n{} {} → {}: {}", relay.kind, relay.listen, relay.to, relay.all)?;
            let more = [
                (relay.clock_jumps, "clock jumps"),
                (relay.connections, "connections"),
                (relay.unreachable, "unreachable"),
                (relay.cuts, "cut"),
                (relay.send_errors, "not sent"),
            ];
            more.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))?;
        }
        Ok(())
    }
}

//! What was done to messages, by the count of the one who did it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Add;

use super::relay::Ends;

/// What became of the units of a flow: packets, lines, or samples of a notification.
///
/// `taken = delivered + lost + silenced + garbled + cut_off`. Copies are counted in `duplicates` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Came from the sender.
    pub taken: u64,
    /// Went on whole, once.
    pub delivered: u64,
    /// Left out by chance.
    pub lost: u64,
    /// Left out in a silence.
    pub silenced: u64,
    /// Went on spoilt.
    pub garbled: u64,
    /// Waited when their connection was cut.
    pub cut_off: u64,
    /// Went on once more.
    pub duplicates: u64,
    /// Went on after later ones of their flow.
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

/// What one relay did.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RelayReport {
    /// `inetx`, `lines`, `ads`.
    pub kind: &'static str,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it sends.
    pub to: SocketAddr,
    /// All flows together.
    pub all: Tally,
    /// Each flow: stream id, measurement with tags, or connection and handle.
    pub flows: BTreeMap<String, Tally>,
    /// Times the source's clock was set, forward or back.
    pub clock_jumps: u64,
    /// Connections taken.
    pub connections: u64,
    /// Of them, those whose receiver could not be reached.
    pub unreachable: u64,
    /// Connections cut on purpose.
    pub cuts: u64,
    /// Messages that could not be handed to the network.
    pub send_errors: u64,
}

impl RelayReport {
    /// Of what passed between two ends; connections and errors are the relay's to add.
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

/// What all relays did.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FaultsReport {
    /// Seed of the chances.
    pub seed: u64,
    /// How long they ran.
    pub duration_s: f64,
    /// Each relay.
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

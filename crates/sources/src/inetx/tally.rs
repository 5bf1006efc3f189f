//! Counts the properties stated in the packets of each stream, and notes when trouble begins.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use strongback_store::{Clock, StreamKey};

use super::decoder::{Decoded, Stamp};
use crate::counts::add;
use crate::layout::SourceLayout;
use crate::notes::{Note, Notes};
use crate::throttle::Throttle;

/// Time without a trouble, in nanoseconds, after which it is reported as new.
const QUIET_NS: i64 = 60_000_000_000;
/// Maximum notes of one source per minute. Further ones are counted.
const NOTES_A_MINUTE: u32 = 6;

/// Counters of one stream id.
#[derive(Debug, Default)]
pub struct Tally {
    /// Stream id on the wire.
    pub id: u32,
    /// Streams of the store that the id feeds.
    pub keys: Vec<StreamKey>,
    /// Packets whose chassis marked the payload as erroneous.
    pub payload_errors: AtomicU64,
    /// Messages lost according to the chassis.
    pub chassis_lost: AtomicU64,
    /// Packets sent by a timeout of the chassis.
    pub timeouts: AtomicU64,
    /// Packets with an invalid PTP timestamp.
    pub bad_ptp: AtomicU64,
    /// Packets with a PTP timestamp from a clock that was never set.
    pub never_set: AtomicU64,
    /// Blocks of parser-aligned payloads.
    pub blocks: AtomicU64,
    /// Blocks with an error.
    pub block_errors: AtomicU64,
    /// Blocks of a bus without an entry in the layout.
    pub unmapped_blocks: AtomicU64,
    /// While the clock is not set: offset of the newest timestamp from reception, in nanoseconds; otherwise 0.
    pub off_ns: AtomicI64,
    /// Time of the clock's latest change of state, in nanoseconds since 1970 UTC; 0 before the first packet.
    pub since: AtomicI64,
}

/// State of one stream id between packets.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPast {
    /// Whether its clock was set.
    is_set: Option<bool>,
    /// Time of each trouble's latest occurrence.
    seen: [Option<i64>; 5],
}

/// Counter of packet properties and writer of notes.
#[derive(Debug)]
pub(crate) struct PacketTally {
    past: Vec<StreamPast>,
    /// Whether frames should use the packets' time.
    wants_source_time: bool,
    log: Throttle,
}

impl PacketTally {
    pub(crate) fn new(layout: &SourceLayout) -> (PacketTally, Vec<Tally>) {
        let tallies = layout.streams.iter().map(|stream| Tally {
            id: stream.id,
            keys: stream.tables.iter().map(|table| table.spec.key.clone()).collect(),
            ..Tally::default()
        });
        let watch = PacketTally {
            past: vec![StreamPast::default(); layout.streams.len()],
            wants_source_time: layout.clock == Clock::Source,
            log: Throttle::new(NOTES_A_MINUTE, 60_000_000_000),
        };
        (watch, tallies.collect())
    }

    /// Counts the properties of a packet.
    pub(crate) fn packet(&mut self, decoded: &Decoded, receive_time: i64, tally: &Tally, notes: &Notes) {
        let Some(past) = self.past.get_mut(decoded.layout) else { return };
        add(&tally.blocks, decoded.blocks.into());
        add(&tally.unmapped_blocks, decoded.unmapped_blocks.into());
        let troubles = [
            (&tally.payload_errors, u64::from(decoded.payload_error)),
            (&tally.chassis_lost, decoded.chassis_lost.into()),
            (&tally.timeouts, decoded.timeout.into()),
            (&tally.block_errors, decoded.block_errors.into()),
            (&tally.bad_ptp, u64::from(decoded.stamp == Stamp::Bad)),
        ];
        let mut say = |level, text: String| {
            if let Some(held) = self.log.pass(receive_time) {
                let stream = tally.keys.first().map(StreamKey::to_string).unwrap_or_default();
                let more =
                    if held > 0 { format!("; {held} notes before this one were held back") } else { String::new() };
                let text = format!("{stream} (stream {:#010x}): {text}{more}", tally.id);
                notes.add(Note { time: receive_time, level, text });
            }
        };
        for (at, (counter, count)) in troubles.into_iter().enumerate() {
            if count == 0 {
                continue;
            }
            add(counter, count);
            let before = past.seen[at].replace(receive_time);
            if before.is_some_and(|before| receive_time.saturating_sub(before) < QUIET_NS) {
                continue;
            }
            match at {
                0 => say("warning", "the chassis marks payloads as erroneous".to_owned()),
                1 => say("warning", format!("the chassis says that it lost {count} messages before its packet")),
                2 => say("info", "the chassis sends packets that are not full, because their time is over".to_owned()),
                3 => say("watch", "the bus monitor marks messages as erroneous".to_owned()),
                _ => say("warning", "PTP stamps with a second and more of nanoseconds: frames get none".to_owned()),
            }
        }
        let is_set = match decoded.stamp {
            Stamp::Set => true,
            Stamp::NeverSet => false,
            Stamp::Bad => return,
        };
        if !is_set {
            add(&tally.never_set, 1);
            tally.off_ns.store(decoded.stamp_ns.saturating_sub(receive_time), Relaxed);
        }
        let before = past.is_set.replace(is_set);
        if before == Some(is_set) {
            return;
        }
        tally.since.store(receive_time, Relaxed);
        let stamp_s = decoded.stamp_ns as f64 / 1e9;
        let instead = if self.wants_source_time { "; `time` is that of reception until it is set" } else { "" };
        match (before, is_set) {
            (_, false) => {
                say("warning", format!("its clock was never set: its stamp is {stamp_s:.3} s since 1970{instead}"))
            }
            (Some(false), true) => {
                tally.off_ns.store(0, Relaxed);
                say("info", "its clock is set now".to_owned());
            }
            (_, true) => {}
        }
    }
}

//! An iNET-X source with its socket, thread, decoder and counters.

use std::net::SocketAddr;
use std::sync::Arc;

use strongback_store::Outcome;

use super::append::Frames;
use super::decoder::{DecodeError, Decoder};
use super::packet::PacketError;
use super::tally::PacketTally;
use crate::clock::Now;
use crate::counts::{self, PacketCounts, RejectedSample};
use crate::layout::SourceLayout;
use crate::sink::Sink;
use crate::start::StartError;
use crate::throttle::{Throttle, hex_sample};
use crate::udp::{Datagrams, Peer, Receiver, Sockets};

/// Starter of iNET-X sources.
#[derive(Debug)]
pub struct InetxSource;

impl InetxSource {
    /// Resolves the layout's streams, opens the socket and starts receiving.
    ///
    /// # Errors
    /// If a stream cannot be resolved, or the socket or the thread cannot be created.
    pub fn start(layout: SourceLayout, sink: Arc<dyn Sink>, now: Now) -> Result<RunningReceiver, StartError> {
        let name = layout.name.clone();
        let (listen, receive_buffer_bytes) = (layout.listen.clone(), layout.receive_buffer_bytes);
        let decoder =
            Decoder::bind(layout, sink.as_ref()).map_err(|source| StartError::Stream { name: name.clone(), source })?;
        let sockets = Sockets::open(&listen, receive_buffer_bytes)
            .map_err(|source| StartError::Socket { name: name.clone(), source })?;
        let addresses = sockets.local_addrs().map_err(|source| StartError::Thread { name: name.clone(), source })?;
        let counts = Arc::new(PacketCounts::default());
        let intake = PacketReceiver::new(name.clone(), decoder, sink, Arc::clone(&counts), Arc::clone(&now));
        let receiver = Receiver::start(&name, sockets, Arc::clone(&counts), now, intake)
            .map_err(|source| StartError::Thread { name: name.clone(), source })?;
        tracing::info!(source = name, ?addresses, "receiving iNET-X");
        Ok(RunningReceiver { name, addresses, counts, receiver })
    }
}

/// A running source. Dropping it stops it.
#[derive(Debug)]
pub struct RunningReceiver {
    /// Name of the source.
    pub name: String,
    /// Local addresses.
    pub addresses: Vec<SocketAddr>,
    /// Counters.
    pub counts: Arc<PacketCounts>,
    receiver: Receiver,
}

impl RunningReceiver {
    /// Processes the datagrams that the kernel still holds, then ends.
    pub fn stop(&mut self) {
        self.receiver.stop();
    }
}

/// Decoder of datagrams, which counts the outcomes and hands the frames of each batch to the sink.
pub(crate) struct PacketReceiver {
    name: String,
    decoder: Decoder,
    sink: Arc<dyn Sink>,
    counts: Arc<PacketCounts>,
    now: Now,
    frames: Frames,
    /// Receive time of the newest datagram.
    newest: i64,
    log: Throttle,
    watch: PacketTally,
}

impl PacketReceiver {
    pub(crate) fn new(
        name: String,
        decoder: Decoder,
        sink: Arc<dyn Sink>,
        counts: Arc<PacketCounts>,
        now: Now,
    ) -> Self {
        // Two rejected datagrams every ten seconds suffice to identify the problem. The counters have the rest.
        let log = Throttle::new(2, 10_000_000_000);
        let (watch, tallies) = PacketTally::new(decoder.layout());
        // Cannot fail: the counters belong to this source alone.
        let _ = counts.tallies.set(tallies);
        PacketReceiver { name, decoder, sink, counts, now, frames: Frames::default(), newest: 0, log, watch }
    }

    fn refuse(&mut self, error: &DecodeError, bytes: &[u8], receive_time: i64, peer: &Peer) {
        // Count the id before the reason, so that anyone who sees the reason also finds the id.
        let is_new = match error {
            DecodeError::UnknownStream { stream_id } => self.counts.unknown_streams.add(*stream_id),
            _ => false,
        };
        let sample = || RejectedSample::new(error, bytes).sent_by(peer.address());
        self.counts.rejected.add(reason(error), 1, receive_time, sample);
        match error {
            DecodeError::UnknownStream { .. } => {
                if is_new && let Some(held) = self.log.pass((self.now)()) {
                    tracing::warn!(source = self.name, held, sample = hex_sample(bytes), "{error}");
                }
                return;
            }
            // A rejected datagram counts once, for its first table, even if it would have fed several. The blocks it
            // would have had are unknown.
            DecodeError::ShortPayload { layout, .. } | DecodeError::Block { layout, .. } => {
                for stream in self.decoder.streams_of(*layout).take(1) {
                    self.sink.count_rejected(stream, 1);
                }
            }
            DecodeError::Packet(_) => {}
        }
        if let Some(held) = self.log.pass((self.now)()) {
            tracing::warn!(source = self.name, held, sample = hex_sample(bytes), "rejected: {error}");
        }
    }
}

/// Returns the label of an error in metrics.
pub(crate) fn reason(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::Packet(PacketError::Truncated { .. }) => "truncated",
        DecodeError::Packet(PacketError::Version { .. }) => "version",
        DecodeError::Packet(PacketError::Length { .. }) => "length",
        DecodeError::UnknownStream { .. } => "unknown_stream",
        DecodeError::ShortPayload { .. } => "short_payload",
        DecodeError::Block { .. } => "bad_block",
    }
}

/// Adds the outcomes of frames to the counters.
pub(crate) fn count_outcomes(counts: &PacketCounts, outcomes: &[Outcome], now: i64) {
    let (mut stored, mut duplicate) = (0, 0);
    for outcome in outcomes {
        match outcome {
            Outcome::Stored { .. } | Outcome::Reduced { .. } => stored += 1,
            Outcome::Duplicate => duplicate += 1,
            Outcome::Rejected(reject) => {
                counts.rejected.add(reject.reason(), 1, now, || RejectedSample::new(reject, b""));
            }
        }
    }
    counts::add(&counts.stored, stored);
    counts::add(&counts.duplicate, duplicate);
}

impl Datagrams for PacketReceiver {
    fn datagram(&mut self, bytes: &[u8], receive_time: i64, peer: &Peer) {
        self.newest = receive_time;
        match self.decoder.decode(bytes, receive_time, &mut self.frames.batch) {
            Ok(decoded) => {
                self.frames.note(&decoded);
                if let Some(tally) = self.counts.tallies().get(decoded.layout) {
                    self.watch.packet(&decoded, receive_time, tally, &self.counts.notes);
                }
            }
            Err(error) => self.refuse(&error, bytes, receive_time, peer),
        }
    }

    fn batch_end(&mut self) {
        if self.frames.batch.is_empty() {
            return;
        }
        let (counts, newest) = (&self.counts, self.newest);
        self.frames.hand_over(
            self.sink.as_ref(),
            |batch| self.sink.accept(batch),
            |batch, appended| {
                counts::add(&counts.frames, batch.len() as u64);
                count_outcomes(counts, &appended.outcomes, newest);
            },
        );
        if let Err(error) = self.decoder.rebind_if_stale(self.sink.as_ref())
            && let Some(held) = self.log.pass((self.now)())
        {
            tracing::error!(
                source = self.name,
                held,
                "streams cannot be resolved after the store was reopened: {error}"
            );
        }
    }
}

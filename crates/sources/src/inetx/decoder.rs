//! iNET-X packets to frames: pure, by a layout whose streams are bound to those of a store.

use strongback_store::{ChannelIndex, FrameBatch, FrameHead, Reject, StreamId};

use super::packet::{Packet, PacketError};
use crate::config::PtpScale;
use crate::layout::{SourceLayout, StreamLayout, TableLayout};
use crate::leap;
use crate::sink::Sink;

/// Why a datagram made no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No layout knows its stream id.
    #[error("stream {stream_id:#010x}, offset 4: no layout has this stream id")]
    UnknownStream {
        /// The stream id.
        stream_id: u32,
    },
    /// Its payload ends before the last channel of its layout.
    #[error(
        "stream {stream_id:#010x}, offset {offset}: the payload has {found_bytes} bytes, its layout needs {needed_bytes}"
    )]
    ShortPayload {
        /// The stream id.
        stream_id: u32,
        /// Index of the stream in the layout.
        layout: usize,
        /// Where the payload ended in the datagram.
        offset: usize,
        /// Bytes of payload.
        found_bytes: usize,
        /// Bytes that the layout reaches.
        needed_bytes: usize,
    },
}

/// What a decoded packet said of itself beside its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Frames added to the batch.
    pub frames: u32,
    /// The chassis marked the payload as erroneous.
    pub payload_error: bool,
    /// Messages the chassis says it lost.
    pub chassis_lost: u8,
    /// The packet was sent by a timeout of the chassis.
    pub timeout: bool,
    /// Its nanoseconds were a second or more: the frames have no `source_time`.
    pub bad_ptp: bool,
}

/// Where the frames of one table go.
#[derive(Clone, Debug)]
struct Bound {
    stream: StreamId,
    channels: Vec<ChannelIndex>,
}

/// A layout bound to the streams of a store.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: SourceLayout,
    /// For each stream of the layout, one for each of its tables.
    bound: Vec<Vec<Bound>>,
    generation: u64,
}

impl Decoder {
    /// Makes the layout's streams known to the sink.
    ///
    /// # Errors
    /// The first stream that the sink refuses.
    pub fn bind(layout: SourceLayout, sink: &dyn Sink) -> Result<Decoder, Reject> {
        let generation = sink.generation();
        let mut bound = Vec::with_capacity(layout.streams.len());
        for stream in &layout.streams {
            let mut tables = Vec::with_capacity(stream.tables.len());
            for table in &stream.tables {
                let (stream, channels) = sink.resolve(&table.spec)?;
                tables.push(Bound { stream: stream.id, channels });
            }
            bound.push(tables);
        }
        Ok(Decoder { layout, bound, generation })
    }

    /// Binds the layout anew if the sink's numbers changed since.
    ///
    /// # Errors
    /// The first stream that the sink refuses; the decoder keeps its old numbers then.
    pub fn rebind_if_stale(&mut self, sink: &dyn Sink) -> Result<(), Reject> {
        if sink.generation() != self.generation {
            *self = Decoder::bind(self.layout.clone(), sink)?;
        }
        Ok(())
    }

    /// The layout it reads by.
    pub fn layout(&self) -> &SourceLayout {
        &self.layout
    }

    /// Whether the layout has a stream id.
    pub fn knows(&self, stream_id: u32) -> bool {
        self.layout.index_of(stream_id).is_some()
    }

    /// The store's streams that a stream of the layout feeds.
    pub fn streams_of(&self, layout: usize) -> impl Iterator<Item = StreamId> + '_ {
        self.bound.get(layout).into_iter().flatten().map(|b| b.stream)
    }

    /// Decodes a datagram and appends its frames to `batch`.
    ///
    /// # Errors
    /// Where it makes no frame; `batch` is as before.
    #[inline]
    pub fn decode(&self, datagram: &[u8], receive_time: i64, batch: &mut FrameBatch) -> Result<Decoded, DecodeError> {
        self.decode_packet(&Packet::parse(datagram)?, receive_time, batch)
    }

    /// Appends the frames of a packet to `batch`.
    ///
    /// # Errors
    /// Where it makes no frame; `batch` is as before.
    pub fn decode_packet(
        &self,
        packet: &Packet<'_>,
        receive_time: i64,
        batch: &mut FrameBatch,
    ) -> Result<Decoded, DecodeError> {
        let stream_id = packet.stream_id;
        let layout = self.layout.index_of(stream_id).ok_or(DecodeError::UnknownStream { stream_id })?;
        let stream: &StreamLayout = &self.layout.streams[layout];
        if packet.payload.len() < stream.payload_bytes {
            return Err(DecodeError::ShortPayload {
                stream_id,
                layout,
                offset: packet.packet_bytes as usize,
                found_bytes: packet.payload.len(),
                needed_bytes: stream.payload_bytes,
            });
        }
        let source_time = self.source_time(packet);
        let mut decoded = Decoded { bad_ptp: source_time.is_none(), ..Decoded::default() };
        if let Some(pif) = packet.payload_information {
            decoded.payload_error = pif.error();
            decoded.chassis_lost = pif.lost_count();
            decoded.timeout = pif.timeout();
        }
        for (table, bound) in stream.tables.iter().zip(&self.bound[layout]) {
            append_table(table, bound, packet, receive_time, source_time, batch);
            decoded.frames += table.samples;
        }
        Ok(decoded)
    }

    /// Nanoseconds since 1970 UTC of the packet's PTP stamp; none if it is no time.
    fn source_time(&self, packet: &Packet<'_>) -> Option<i64> {
        if packet.ptp_ns >= 1_000_000_000 {
            return None;
        }
        let s = match self.layout.ptp_scale {
            PtpScale::Utc => packet.ptp_s as i64,
            PtpScale::Tai => leap::tai_to_utc(packet.ptp_s as i64),
        };
        Some(s * 1_000_000_000 + packet.ptp_ns as i64)
    }
}

/// Appends the frames that a packet makes in one table. Sample i of n was taken i periods after the packet's
/// stamp, and the last of them right before the packet was sent: so `source_time` counts forwards from the
/// stamp, `receive_time` backwards from the reception, and neither is ever in the future.
#[inline]
fn append_table(
    table: &TableLayout,
    bound: &Bound,
    packet: &Packet<'_>,
    receive_time: i64,
    source_time: Option<i64>,
    batch: &mut FrameBatch,
) {
    let samples = table.samples as usize;
    for sample in 0..samples {
        let after = sample as i64 * table.sample_period_ns;
        let before = (samples - 1 - sample) as i64 * table.sample_period_ns;
        batch.begin(FrameHead {
            stream: bound.stream,
            receive_time: receive_time.saturating_sub(before),
            source_time: source_time.map(|t| t.saturating_add(after)),
            sequence: Some(packet.sequence as u64 * samples as u64 + sample as u64),
        });
        for (field, channel) in table.fields.iter().zip(&bound.channels) {
            // The payload's length was checked against the layout: every word lies within.
            if let Some(value) = field.value(packet.payload, sample) {
                batch.push(*channel, value);
            }
        }
        batch.end();
    }
}

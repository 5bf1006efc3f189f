//! Decodes iNET-X packets into frames. Pure; uses a layout bound to the streams of a store.

use strongback_store::{ChannelIndex, Clock, FrameBatch, FrameHead, Reject, StreamId, Value};

use super::blocks::{Block, BlockError, Blocks};
use super::packet::{Packet, PacketError};
use crate::clock::is_never_set;
use crate::config::{BlockHeader, PtpScale};
use crate::layout::{BlockLayout, SourceLayout, StreamLayout, TableLayout};
use crate::leap;
use crate::sink::Sink;

/// Reason why a datagram made no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An invalid packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A stream id without a layout.
    #[error("stream {stream_id:#010x}, offset 4: stream id is not configured")]
    UnknownStream {
        /// The stream id.
        stream_id: u32,
    },
    /// A payload that ends before the last channel of its layout.
    #[error(
        "stream {stream_id:#010x}, offset {offset}: the payload has {found_bytes} bytes, its layout needs {needed_bytes}"
    )]
    ShortPayload {
        /// The stream id.
        stream_id: u32,
        /// Index of the stream in the layout.
        layout: usize,
        /// Offset in the datagram where the payload ended.
        offset: usize,
        /// Size of the payload in bytes.
        found_bytes: usize,
        /// Bytes that the layout requires.
        needed_bytes: usize,
    },
    /// An invalid parser-aligned payload.
    #[error("stream {stream_id:#010x}, offset {offset}: {source}")]
    Block {
        /// The stream id.
        stream_id: u32,
        /// Index of the stream in the layout.
        layout: usize,
        /// Offset of the block in the datagram.
        offset: usize,
        /// Error in the block.
        source: BlockError,
    },
}

/// State of the source's clock according to a packet's timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// A clock that was set.
    #[default]
    Set,
    /// A clock that runs but was never set. `time` is then the time of reception, regardless of the source's `clock`.
    NeverSet,
    /// An invalid timestamp with a second or more of nanoseconds. The frames have no `source_time`.
    Bad,
}

/// Properties of a decoded packet, besides its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Index of the stream in the layout.
    pub layout: usize,
    /// Frames added to the batch.
    pub frames: u32,
    /// Frames of blocks, after the frame of their packet. They should be stored only if the packet's frame was, because
    /// a copy of a packet has the same blocks and the store cannot tell them apart.
    pub block_frames: u32,
    /// Whether the chassis marked the payload as erroneous.
    pub payload_error: bool,
    /// Messages lost according to the chassis.
    pub chassis_lost: u8,
    /// Whether the packet was sent by a timeout of the chassis.
    pub timeout: bool,
    /// State of the source's clock.
    pub stamp: Stamp,
    /// Timestamp in nanoseconds since 1970 UTC; 0 if it is invalid.
    pub stamp_ns: i64,
    /// Blocks of a parser-aligned payload.
    pub blocks: u32,
    /// Blocks with an error.
    pub block_errors: u32,
    /// Blocks of a bus without an entry in the layout. They made no frame.
    pub unmapped_blocks: u32,
}

/// Destination for the frames of one table.
#[derive(Clone, Debug)]
struct Bound {
    stream: StreamId,
    channels: Vec<ChannelIndex>,
}

/// A layout bound to the streams of a store.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: SourceLayout,
    /// For each stream of the layout, a destination for each of its tables.
    bound: Vec<Vec<Bound>>,
    generation: u64,
}

impl Decoder {
    /// Resolves the layout's streams with the sink.
    ///
    /// # Errors
    /// If the sink refuses a stream.
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

    /// Resolves the streams again if the sink's numbers have changed since.
    ///
    /// # Errors
    /// If the sink refuses a stream. The decoder then keeps its old numbers.
    pub fn rebind_if_stale(&mut self, sink: &dyn Sink) -> Result<(), Reject> {
        if sink.generation() != self.generation {
            *self = Decoder::bind(self.layout.clone(), sink)?;
        }
        Ok(())
    }

    /// Returns the layout.
    pub fn layout(&self) -> &SourceLayout {
        &self.layout
    }

    /// Reports whether the layout has a stream id.
    pub fn knows(&self, stream_id: u32) -> bool {
        self.layout.index_of(stream_id).is_some()
    }

    /// Iterates over the store's streams that a stream of the layout feeds.
    pub fn streams_of(&self, layout: usize) -> impl Iterator<Item = StreamId> + '_ {
        self.bound.get(layout).into_iter().flatten().map(|b| b.stream)
    }

    /// Decodes a datagram and appends its frames to `batch`.
    ///
    /// # Errors
    /// If the datagram makes no frame. `batch` is then unchanged.
    #[inline]
    pub fn decode(
        &mut self,
        datagram: &[u8],
        receive_time: i64,
        batch: &mut FrameBatch,
    ) -> Result<Decoded, DecodeError> {
        self.decode_packet(&Packet::parse(datagram)?, receive_time, batch)
    }

    /// Appends the frames of a packet to `batch`.
    ///
    /// # Errors
    /// If the packet makes no frame. `batch` is then unchanged.
    pub fn decode_packet(
        &mut self,
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
        let mut decoded = Decoded { layout, ..Decoded::default() };
        let source_time = self.source_time(packet, receive_time, &mut decoded);
        if let Some(pif) = packet.payload_information {
            decoded.payload_error = pif.error();
            decoded.chassis_lost = pif.lost_count();
            decoded.timeout = pif.timeout();
        }
        let bound = &self.bound[layout];
        if let Some(blocks) = &stream.blocks {
            let error = |source: BlockError| {
                let header_bytes = packet.packet_bytes as usize - packet.payload.len();
                DecodeError::Block { stream_id, layout, offset: header_bytes + source.offset(), source }
            };
            append_blocks(stream, blocks, bound, packet, receive_time, source_time, &mut decoded, batch)
                .map_err(error)?;
            return Ok(decoded);
        }
        for (table, bound) in stream.tables.iter().zip(bound) {
            append_table(table, bound, packet, receive_time, source_time, batch);
            decoded.frames += table.samples;
        }
        Ok(decoded)
    }

    /// Returns the `source_time` of the frames, in nanoseconds since 1970 UTC, from the packet's PTP timestamp. Returns
    /// `None` if the timestamp is invalid, or if it would be used as `time` and the clock was never set.
    fn source_time(&self, packet: &Packet<'_>, receive_time: i64, decoded: &mut Decoded) -> Option<i64> {
        if packet.ptp_ns >= 1_000_000_000 {
            decoded.stamp = Stamp::Bad;
            return None;
        }
        let s = match self.layout.ptp_scale {
            PtpScale::Utc => packet.ptp_s as i64,
            PtpScale::Tai => leap::tai_to_utc(packet.ptp_s as i64),
        };
        let stamp = s * 1_000_000_000 + packet.ptp_ns as i64;
        decoded.stamp_ns = stamp;
        if is_never_set(stamp, receive_time) {
            decoded.stamp = Stamp::NeverSet;
            if self.layout.clock == Clock::Source {
                return None;
            }
        }
        Some(stamp)
    }
}

/// Appends the frames of a parser-aligned packet: one for the packet, then one for each block in order.
#[expect(clippy::too_many_arguments, reason = "all of them belong to one packet")]
fn append_blocks(
    stream: &StreamLayout,
    blocks: &BlockLayout,
    bound: &[Bound],
    packet: &Packet<'_>,
    receive_time: i64,
    source_time: Option<i64>,
    decoded: &mut Decoded,
    batch: &mut FrameBatch,
) -> Result<(), BlockError> {
    // Check all blocks first: a packet is taken as a whole or not at all.
    let mut last_ns = 0;
    for block in Blocks::new(packet.payload) {
        let block = block?;
        decoded.blocks += 1;
        decoded.block_errors += u32::from(block.error);
        last_ns = last_ns.max(block.elapsed_ns);
    }
    let head = |stream, source_time, receive_time, sequence| FrameHead { stream, receive_time, source_time, sequence };
    let [packets, ..] = bound else { return Ok(()) };
    batch.begin(head(packets.stream, source_time, receive_time, Some(packet.sequence as u64)));
    for (channel, count) in packets.channels.iter().zip([decoded.blocks, decoded.block_errors]) {
        batch.push(*channel, Value::U16(count as u16));
    }
    batch.end();
    decoded.frames += 1;
    for block in Blocks::new(packet.payload) {
        let block = block?;
        let Some(at) = blocks.table_of_bus[usize::from(block.bus_id)] else {
            decoded.unmapped_blocks += 1;
            continue;
        };
        let (table, bound) = (&stream.tables[at], &bound[at]);
        // As with samples, the last message was seen right before the packet was sent.
        let received = receive_time.saturating_sub(i64::from(last_ns - block.elapsed_ns));
        let seen_at = source_time.map(|t| t.saturating_add(i64::from(block.elapsed_ns)));
        batch.begin(head(bound.stream, seen_at, received, None));
        let (of_fields, of_headers) = bound.channels.split_at(table.fields.len());
        for (field, channel) in table.fields.iter().zip(of_fields) {
            if let Some(value) = field.value(block.message, 0) {
                batch.push(*channel, value);
            }
        }
        for (header, channel) in blocks.headers[at].iter().zip(of_headers) {
            batch.push(*channel, header_value(*header, &block));
        }
        batch.end();
        decoded.frames += 1;
        decoded.block_frames += 1;
    }
    Ok(())
}

fn header_value(header: BlockHeader, block: &Block<'_>) -> Value<'static> {
    match header {
        BlockHeader::Error => Value::Bool(block.error),
        BlockHeader::ErrorCode => Value::U8(block.error_code),
        BlockHeader::MessageCount => Value::U8(block.message_count),
        BlockHeader::BusId => Value::U8(block.bus_id),
        BlockHeader::ElapsedNs => Value::U32(block.elapsed_ns),
        BlockHeader::SizeBytes => Value::U16(block.message.len() as u16),
    }
}

/// Appends the frames that a packet makes in one table. Sample i of n was taken i periods after the packet's timestamp,
/// and the last one right before the packet was sent. So `source_time` counts forwards from the timestamp,
/// `receive_time` counts backwards from reception, and neither is ever in the future.
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
            // The payload's length was checked against the layout, so every word is within it.
            if let Some(value) = field.value(packet.payload, sample) {
                batch.push(*channel, value);
            }
        }
        batch.end();
    }
}

//! iNET-X packets to frames: pure, by a layout whose streams are bound to those of a store.

use strongback_store::{ChannelIndex, Clock, FrameBatch, FrameHead, Reject, StreamId, Value};

use super::blocks::{Block, BlockError, Blocks};
use super::packet::{Packet, PacketError};
use crate::clock::is_never_set;
use crate::config::{BlockHeader, PtpScale};
use crate::layout::{BlockLayout, SourceLayout, StreamLayout, TableLayout};
use crate::leap;
use crate::sink::Sink;

/// Why a datagram made no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No layout knows its stream id.
    #[error("stream {stream_id:#010x}, offset 4: stream id is not configured")]
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
    /// Its payload is to be parser-aligned, and is no run of blocks.
    #[error("stream {stream_id:#010x}, offset {offset}: {source}")]
    Block {
        /// The stream id.
        stream_id: u32,
        /// Index of the stream in the layout.
        layout: usize,
        /// Where in the datagram the block begins.
        offset: usize,
        /// What is wrong with it.
        source: BlockError,
    },
}

/// What a packet's stamp says of the source's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// It was set.
    #[default]
    Set,
    /// It runs, and was never set: `time` is that of reception whatever the source's `clock`.
    NeverSet,
    /// Its nanoseconds are a second or more: the frames have no `source_time`.
    Bad,
}

/// What a decoded packet said of itself beside its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Index of the stream in the layout.
    pub layout: usize,
    /// Frames added to the batch.
    pub frames: u32,
    /// Those of blocks, behind that of their packet: copies of a packet have them too, and nothing in them tells copies
    /// apart. They are to be stored only if the packet's frame was.
    pub block_frames: u32,
    /// The chassis marked the payload as erroneous.
    pub payload_error: bool,
    /// Messages the chassis says it lost.
    pub chassis_lost: u8,
    /// The packet was sent by a timeout of the chassis.
    pub timeout: bool,
    /// What its stamp says of the source's clock.
    pub stamp: Stamp,
    /// The stamp, nanoseconds since 1970 UTC; 0 if it is no time.
    pub stamp_ns: i64,
    /// Blocks of a parser-aligned payload.
    pub blocks: u32,
    /// Those with an error.
    pub block_errors: u32,
    /// Those of a bus that the layout has no entry for: they made no frame.
    pub unmapped_blocks: u32,
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
    /// Where it makes no frame; `batch` is as before.
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

    /// The frames' `source_time`, nanoseconds since 1970 UTC, by the packet's PTP stamp: none if it is no time, nor where
    /// `time` would be it and the clock was never set.
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

/// Appends the frames of a parser-aligned packet: one of the packet, then one for each block in their order.
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
    // All of them first: a packet is taken whole or not at all.
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
        // The last message was seen right before the packet was sent, as with samples.
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

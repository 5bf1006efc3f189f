//! Encoding of a batch as the bytes of a block.

use super::front::BlockBody;
use super::{
    BlockHeader, HAS_PARAMETERS, HAS_STATES, HEADER_BYTES, SECTION_DIRECTORY, SECTION_STATISTICS, SECTION_VALUES,
    SYSTEM_COLUMNS, put_header,
};
use crate::bytes::{FormatError, check_limit, malformed, put_varint};
use crate::codec::stats::{self, ColumnStatistics};
use crate::codec::tiles::{self, Arrays};
use crate::codec::{self, Codec, CodecMemory, Effort, Encoded, Scratch, integer};
use crate::model::batch::{Batch, Column, ColumnValues, OptionalTimes};
use crate::model::limits::{
    BLOCK_ALIGN_BYTES, BLOCK_BYTES_MAX, BLOCK_CELLS_MAX, BLOCK_ROWS_MAX, CHANNELS_MAX, PARTED_BYTES, PARTED_CHANNELS,
    STATISTICS_MIN_ROWS,
};
use crate::model::stream::{Interpolation, Layout};
use crate::model::value::{CellState, ChannelType};

/// Properties of a block that its batch does not hold.
#[derive(Clone, Copy, Debug)]
pub struct BlockMeta<'a> {
    /// Node that received the frames.
    pub origin: u128,
    /// Opening of the store that received the frames.
    pub epoch: u32,
    /// First and last instant at which the frames were stored.
    pub stored: (i64, i64),
    /// Whether some `time` is not after every `time` of the stream's earlier blocks.
    pub overlaps_previous: bool,
    /// Indices of rows (0 is the first of the batch) before which frames are known missing, ascending. The integral
    /// does not run across them.
    pub gaps: &'a [u32],
    /// Max time in ns by which a row's `time` may be after its reception. Integrals leave out rows beyond it, so a
    /// block that has any gets no integrals.
    pub max_future_ns: i64,
    /// Compression effort.
    pub effort: Effort,
}

/// Encoder of blocks; reuses its scratch space from block to block.
#[derive(Debug, Default)]
pub struct Encoder {
    scratch: Scratch,
    directory: Vec<u8>,
    values: Vec<u8>,
    /// End of the system columns, and then of each channel, in the values.
    ends: Vec<usize>,
    tiles: Vec<u8>,
    statistics: Vec<u8>,
    integers: Vec<i64>,
    times: stats::Times,
    /// State of the current block: smallest and largest `time`, whether it ascends, whether the block gets
    /// statistics, and the number of channels added so far.
    time: (i64, i64),
    sorted: bool,
    with_statistics: bool,
    added: usize,
}

impl Encoder {
    /// Returns an encoder without scratch space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one block to `out` and returns its header. `batch.columns` are the layout's channels in order, with
    /// the types they have there; a layout that grew may have more. Rows are consecutive.
    ///
    /// # Errors
    /// When the batch is empty, contradicts the layout, or exceeds a limit; `out` is then unchanged.
    pub fn encode(
        &mut self,
        meta: &BlockMeta<'_>,
        batch: &Batch,
        layout: &Layout,
        memory: &mut CodecMemory,
        out: &mut Vec<u8>,
    ) -> Result<BlockHeader, FormatError> {
        check_columns(batch, layout)?;
        self.begin(meta, batch, batch.columns.len())?;
        for (column, channel) in batch.columns.iter().zip(&layout.channels) {
            self.add(column, channel.interpolation, meta.effort, memory)?;
        }
        self.end(meta, batch, layout.version, out)
    }

    /// Begins a block of the rows of `batch` and ignores its columns. The caller adds each of the `channels` with
    /// [`Encoder::add`], in order, and then calls [`Encoder::end`].
    ///
    /// # Errors
    /// When the batch is empty, contradicts itself, or exceeds a limit.
    pub(crate) fn begin(&mut self, meta: &BlockMeta<'_>, batch: &Batch, channels: usize) -> Result<(), FormatError> {
        check_rows(batch, channels)?;
        self.directory.clear();
        self.values.clear();
        self.tiles.clear();
        self.statistics.clear();
        self.added = 0;
        put_varint(&mut self.directory, channels as u64);
        self.system_columns(batch);
        self.ends.clear();
        self.ends.push(self.values.len());
        self.with_statistics = batch.len() >= STATISTICS_MIN_ROWS;
        let times = batch.times();
        self.sorted = times.is_sorted();
        self.time = times.iter().fold((i64::MAX, i64::MIN), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
        if self.with_statistics {
            let ahead = times.iter().zip(&batch.receive_time).any(|(t, r)| t.saturating_sub(*r) > meta.max_future_ns);
            self.times.set(&times, self.sorted && !ahead, meta.gaps);
        }
        Ok(())
    }

    /// Adds the next channel, with one cell per row. Returns its statistics if the block has any.
    ///
    /// # Errors
    /// When the channel exceeds a limit.
    pub(crate) fn add(
        &mut self,
        column: &Column,
        interpolation: Interpolation,
        effort: Effort,
        memory: &mut CodecMemory,
    ) -> Result<Option<ColumnStatistics>, FormatError> {
        self.channel(self.added, column, effort, memory)?;
        self.ends.push(self.values.len());
        self.added += 1;
        if !self.with_statistics {
            return Ok(None);
        }
        let statistics = ColumnStatistics::of(column, interpolation, &self.times);
        statistics.put(&self.times, &mut self.statistics);
        Ok(Some(statistics))
    }

    /// Appends the current block to `out` and returns its header.
    ///
    /// # Errors
    /// When the block exceeds a limit; `out` is then unchanged.
    pub(crate) fn end(
        &mut self,
        meta: &BlockMeta<'_>,
        batch: &Batch,
        layout_version: u32,
        out: &mut Vec<u8>,
    ) -> Result<BlockHeader, FormatError> {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let statistics = self.with_statistics.then_some(self.statistics.as_slice());
        let wide = self.added >= PARTED_CHANNELS && self.values.len() + self.statistics.len() >= PARTED_BYTES;
        if wide || !self.tiles.is_empty() {
            let Encoder { directory, values, ends, tiles, .. } = self;
            BlockBody { directory, values, ends, statistics, tiles }.put(start, out);
        } else {
            put_section(SECTION_DIRECTORY, &self.directory, out);
            if let Some(statistics) = statistics {
                put_section(SECTION_STATISTICS, statistics, out);
            }
            put_section(SECTION_VALUES, &self.values, out);
        }
        let header = BlockHeader {
            length_bytes: 0,
            origin: meta.origin,
            epoch: meta.epoch,
            stream: batch.stream,
            layout_version,
            rows: batch.len(),
            first_row: batch.rows[0],
            time: self.time,
            stored: meta.stored,
            time_sorted: self.sorted,
            overlaps_previous: meta.overlaps_previous,
            source_clock: batch.source_clock,
            gap_before: meta.gaps.contains(&0),
            mixed: false,
        };
        finish(header, start, out)
    }

    fn system_columns(&mut self, batch: &Batch) {
        // The time column with fewer bytes is stored as it is, the other one relative to it.
        let receive = &batch.receive_time;
        match &batch.source_time {
            None => {
                self.times_column(receive);
                put_entry(&mut self.directory, ChannelType::I64, Encoded::plainly(Codec::None), 0, 0);
            }
            Some(source) if source.valid.is_some() => {
                self.times_column(receive);
                self.optional_times(source, Some(receive));
            }
            Some(source) if source.values == *receive => {
                self.times_column(receive);
                put_entry(&mut self.directory, ChannelType::I64, Encoded::plainly(Codec::SameTime), 0, 0);
            }
            Some(source) => {
                let delay: Vec<i64> = receive.iter().zip(&source.values).map(|(r, s)| r.wrapping_sub(*s)).collect();
                let of_delay = integer::estimate_len(&delay);
                let (of_receive, of_source) = (integer::estimate_len(receive), integer::estimate_len(&source.values));
                if of_source < of_receive && of_delay < of_receive {
                    self.integer_column(ChannelType::I64, Codec::TimeDifference, &delay);
                    self.times_column(&source.values);
                } else {
                    self.times_column(receive);
                    if of_delay < of_source {
                        let lead: Vec<i64> = delay.iter().map(|d| d.wrapping_neg()).collect();
                        self.integer_column(ChannelType::I64, Codec::TimeDifference, &lead);
                    } else {
                        self.times_column(&source.values);
                    }
                }
            }
        }
        match &batch.sequence {
            None => put_entry(&mut self.directory, ChannelType::I64, Encoded::plainly(Codec::None), 0, 0),
            Some(sequence) => self.optional_times(sequence, None),
        }
        match &batch.session {
            None => put_entry(&mut self.directory, ChannelType::U32, Encoded::plainly(Codec::None), 0, 0),
            Some(session) => {
                let session: Vec<i64> = session.iter().map(|s| i64::from(*s)).collect();
                self.integer_column(ChannelType::U32, Codec::Integer, &session);
            }
        }
    }

    fn times_column(&mut self, times: &[i64]) {
        self.integer_column(ChannelType::I64, Codec::Integer, times);
    }

    fn integer_column(&mut self, kind: ChannelType, codec: Codec, values: &[i64]) {
        let start = self.values.len();
        if kind == ChannelType::I64 {
            integer::encode_times(values, &mut self.values);
        } else {
            integer::encode(values, &mut self.values);
        }
        put_entry(&mut self.directory, kind, Encoded::plainly(codec), 0, self.values.len() - start);
    }

    /// Encodes a nullable column: cell states, then the valid values, relative to `base` if it is given and the
    /// result is smaller.
    fn optional_times(&mut self, times: &OptionalTimes, base: Option<&[i64]>) {
        let start = self.values.len();
        if let Some(valid) = &times.valid {
            self.integers.clear();
            self.integers.extend(valid.iter().map(|v| if *v { 0 } else { CellState::Absent as i64 }));
            integer::encode(&self.integers, &mut self.values);
        }
        let states_len = self.values.len() - start;
        let valid = |row: &usize| times.valid.as_ref().is_none_or(|v| v[*row]);
        let values: Vec<i64> = (0..times.values.len()).filter(valid).map(|row| times.values[row]).collect();
        let mut encoded = Encoded::plainly(Codec::Integer);
        if values.is_empty() {
            encoded = Encoded::plainly(Codec::None);
        }
        let against: Option<Vec<i64>> = base.map(|base| {
            (0..values.len().max(base.len()))
                .filter(valid)
                .map(|row| times.values[row].wrapping_sub(base[row]))
                .collect()
        });
        match against {
            Some(lead) if integer::estimate_len(&lead) < integer::estimate_len(&values) => {
                encoded.codec = Codec::TimeDifference;
                integer::encode(&lead, &mut self.values);
            }
            _ => integer::encode(&values, &mut self.values),
        }
        let values_len = self.values.len() - start - states_len;
        put_entry(&mut self.directory, ChannelType::I64, encoded, states_len, values_len);
    }

    fn channel(
        &mut self,
        index: usize,
        column: &Column,
        effort: Effort,
        memory: &mut CodecMemory,
    ) -> Result<(), FormatError> {
        let start = self.values.len();
        let compact = column.states.as_ref().filter(|s| s.iter().any(|s| *s != CellState::Value)).map(|states| {
            self.integers.clear();
            self.integers.extend(states.iter().map(|s| *s as i64));
            integer::encode(&self.integers, &mut self.values);
            gather(&column.values, states)
        });
        let states_len = self.values.len() - start;
        let values = compact.as_ref().unwrap_or(&column.values);
        let memory = memory.channel(index);
        let encoded = match values {
            ColumnValues::Array { kind, offsets, bytes } => {
                let arrays = Arrays { kind: *kind, offsets, bytes };
                let out = (&mut self.values, &mut self.tiles);
                tiles::encode(arrays, memory, effort, &mut self.scratch, out)?
            }
            values => codec::encode(values, memory, effort, &mut self.scratch, &mut self.values),
        };
        let values_len = self.values.len() - start - states_len;
        put_entry(&mut self.directory, values.channel_type(), encoded, states_len, values_len);
        Ok(())
    }
}

/// Checks the rows of a batch, and the number of channels, against the encoder's limits.
fn check_rows(batch: &Batch, channels: usize) -> Result<(), FormatError> {
    let rows = batch.len();
    if rows == 0 {
        return Err(malformed("a block of no rows"));
    }
    check_limit("rows of a block", rows as u64, BLOCK_ROWS_MAX)?;
    check_limit("channels of a block", channels as u64, CHANNELS_MAX)?;
    check_limit("cells of a block", (rows * (channels + SYSTEM_COLUMNS)) as u64, BLOCK_CELLS_MAX)?;
    let first = batch.rows[0];
    if first.checked_add(rows as u64).is_none() || batch.rows.iter().zip(first..).any(|(row, want)| *row != want) {
        return Err(malformed("rows are not consecutive"));
    }
    let fits = |times: &OptionalTimes| {
        times.values.len() == rows && times.valid.as_ref().is_none_or(|valid| valid.len() == rows)
    };
    if batch.receive_time.len() != rows
        || !batch.source_time.as_ref().is_none_or(fits)
        || !batch.sequence.as_ref().is_none_or(fits)
        || batch.session.as_ref().is_some_and(|s| s.len() != rows)
    {
        return Err(malformed("columns of different lengths"));
    }
    Ok(())
}

/// Checks that the columns of a batch are those of a layout.
fn check_columns(batch: &Batch, layout: &Layout) -> Result<(), FormatError> {
    let rows = batch.len();
    if batch.columns.len() > layout.channels.len() {
        return Err(malformed("more columns than the layout has channels"));
    }
    for (column, channel) in batch.columns.iter().zip(&layout.channels) {
        if column.values.len() != rows || column.states.as_ref().is_some_and(|s| s.len() != rows) {
            return Err(malformed("columns of different lengths"));
        }
        if column.values.channel_type() != channel.channel_type {
            return Err(malformed("a column of another type than its channel"));
        }
    }
    Ok(())
}

/// Returns the values of those cells that have one.
fn gather(values: &ColumnValues, states: &[CellState]) -> ColumnValues {
    values.pick((0..states.len()).filter(|&row| states[row] == CellState::Value))
}

/// Pads the block that begins at `start` and writes its header.
pub(crate) fn finish(mut header: BlockHeader, start: usize, out: &mut Vec<u8>) -> Result<BlockHeader, FormatError> {
    header.length_bytes = (out.len() - start).next_multiple_of(BLOCK_ALIGN_BYTES);
    let bounds = if header.time.0 > header.time.1 || header.stored.0 > header.stored.1 {
        Err(malformed("time range of a block"))
    } else {
        check_limit("bytes of a block", header.length_bytes as u64, BLOCK_BYTES_MAX)
    };
    if let Err(error) = bounds {
        out.truncate(start);
        return Err(error);
    }
    out.resize(start + header.length_bytes, 0);
    let body_crc = crc32c::crc32c(&out[start + HEADER_BYTES..]);
    let bytes = put_header(&header, body_crc);
    out[start..start + HEADER_BYTES].copy_from_slice(&bytes);
    Ok(header)
}

pub(crate) fn put_section(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Encoded {
    fn plainly(codec: Codec) -> Self {
        Encoded { codec, parameter_bytes: 0 }
    }
}

/// Writes a directory entry; `values_len` includes the parameters.
fn put_entry(out: &mut Vec<u8>, kind: ChannelType, encoded: Encoded, states_len: usize, values_len: usize) {
    let mut codec = encoded.codec as u8;
    if encoded.parameter_bytes > 0 {
        codec |= HAS_PARAMETERS;
    }
    if states_len > 0 {
        codec |= HAS_STATES;
    }
    kind.put(out);
    out.push(codec);
    if encoded.parameter_bytes > 0 {
        put_varint(out, encoded.parameter_bytes as u64);
    }
    if states_len > 0 {
        put_varint(out, states_len as u64);
    }
    put_varint(out, (values_len - encoded.parameter_bytes) as u64);
}

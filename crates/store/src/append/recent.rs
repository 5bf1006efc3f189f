//! Recently received rows of a stream: finds frames that a client sent twice, for streams whose `time` is the source
//! time. It costs nothing while `time` ascends. A frame whose `time` is not new is compared by value with the rows in
//! memory, and by hash (64 bits) with those sealed recently.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::StreamWriter;
use crate::append::chunk::Chunk;
use crate::append::stream_slot::OpenRows;
use crate::model::row::{RowScratch, RowShape, head_of, mask};
use crate::model::value::{CellState, ChannelType, Value, text_at};

/// Max bytes of hashes of recently sealed rows, over all streams.
pub(crate) const RECENT_BYTES_MAX: usize = 16 << 20;

/// Max frames of a stream that a new one is compared with.
pub(crate) const FRAMES_MAX: usize = 65_536;

/// Max rows in memory of the same `time` that a frame is compared with by value, newest first. More have hashes
/// ([`crate::append::same_time`]) unless too many clocks stand still; then a frame beyond is stored again.
const COMPARED_MAX: usize = 4096;

/// Max rows of a list that takes further hashes.
const LIST_ROWS: usize = 1024;
/// Bytes of memory that a list takes beside its hashes.
const LIST_BYTES: usize = 80;

/// Hashes of sealed rows of one shape.
#[derive(Debug)]
struct SealedHashes {
    /// Place in the order of all streams' lists.
    serial: u64,
    time: (i64, i64),
    shape: Arc<RowShape>,
    hashes: Vec<u64>,
}

impl SealedHashes {
    fn bytes(&self) -> usize {
        LIST_BYTES + self.hashes.capacity() * 8
    }
}

/// Hashes of recently sealed rows, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentRows {
    lists: VecDeque<SealedHashes>,
    rows: usize,
    bytes: usize,
}

impl RecentRows {
    /// Remembers a chunk that is leaving memory.
    fn keep(&mut self, chunk: &Chunk, serial: u64) {
        let Some(time) = chunk.time_range() else { return };
        let hashes = (0..chunk.len()).map(|row| hash_stored(chunk, row));
        self.add(time, &chunk.shape, hashes, serial);
        self.forget_beyond(FRAMES_MAX);
    }

    /// Remembers a row of the log that is in a segment already. `source_clock`: its `time` is its source_time.
    pub(crate) fn keep_row(&mut self, shape: &Arc<RowShape>, source_clock: bool, words: &[u64], text: &[u8]) {
        let time = head_of(words).time(source_clock);
        let hash = hash_row(shape, time, |w| words[w], text);
        self.add((time, time), shape, std::iter::once(hash), 0);
        self.forget_beyond(FRAMES_MAX);
    }

    /// Adds hashes to the newest list if they fit there, otherwise as a new list.
    fn add(
        &mut self,
        time: (i64, i64),
        shape: &Arc<RowShape>,
        hashes: impl ExactSizeIterator<Item = u64>,
        serial: u64,
    ) {
        let more = hashes.len();
        let joins = |list: &SealedHashes| Arc::ptr_eq(&list.shape, shape) && list.hashes.len() + more <= LIST_ROWS;
        self.rows += more;
        match self.lists.back_mut().filter(|list| joins(list)) {
            Some(list) => {
                self.bytes -= list.bytes();
                list.serial = serial;
                list.time = (list.time.0.min(time.0), list.time.1.max(time.1));
                list.hashes.extend(hashes);
                self.bytes += list.bytes();
            }
            None => {
                let list = SealedHashes { serial, time, shape: shape.clone(), hashes: hashes.collect() };
                self.bytes += list.bytes();
                self.lists.push_back(list);
            }
        }
    }

    fn forget_beyond(&mut self, rows: usize) {
        while self.rows > rows {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(list) = self.lists.pop_front() {
            self.rows -= list.hashes.len();
            self.bytes -= list.bytes();
        }
    }

    /// Iterates over its lists, oldest first: range of `time`, shape, hashes.
    pub(crate) fn lists(&self) -> impl Iterator<Item = ((i64, i64), &RowShape, &[u64])> {
        self.lists.iter().map(|list| (list.time, &*list.shape, list.hashes.as_slice()))
    }

    /// Puts remembered lists back, ahead of the present ones.
    pub(crate) fn put_back(&mut self, lists: Vec<RecentList>) {
        for RecentList { time, shape, hashes } in lists.into_iter().rev() {
            self.rows += hashes.len();
            let list = SealedHashes { serial: 0, time, shape, hashes };
            self.bytes += list.bytes();
            self.lists.push_front(list);
        }
        self.forget_beyond(FRAMES_MAX);
    }

    fn holds(&self, time: i64, row: &RowScratch, shape: &RowShape) -> bool {
        // Hash of the row in the shape of the list before: nearly always there is only one shape.
        let mut hashed: Option<(&Arc<RowShape>, Option<u64>)> = None;
        self.lists.iter().filter(|l| (l.time.0..=l.time.1).contains(&time)).any(|list| {
            let hash = match hashed {
                Some((of, hash)) if Arc::ptr_eq(of, &list.shape) => hash,
                _ => words_in(&list.shape, row, shape).map(|w| hash_row(&list.shape, time, |i| w[i], &row.text)),
            };
            hashed = Some((&list.shape, hash));
            hash.is_some_and(|hash| list.hashes.contains(&hash))
        })
    }
}

/// Hashes of rows of one shape, as a file keeps them.
pub(crate) struct RecentList {
    pub(crate) time: (i64, i64),
    pub(crate) shape: Arc<RowShape>,
    pub(crate) hashes: Vec<u64>,
}

/// Lists of all streams in the order of sealing, within bounds: each stream keeps its newest [`FRAMES_MAX`] rows, and
/// the oldest lists go first if all together take too many bytes.
#[derive(Debug, Default)]
pub(crate) struct RecentOrder {
    /// Stream and serial of lists, oldest first; some lists are gone or were joined since.
    order: VecDeque<(u32, u64)>,
    lists: usize,
    bytes: usize,
    next: u64,
}

impl RecentOrder {
    /// Remembers a chunk of a stream that is leaving memory.
    pub(crate) fn keep(&mut self, (stream, chunk): (u32, &Chunk), most_bytes: usize, streams: &mut [StreamWriter]) {
        let Some(writer) = streams.get_mut(stream as usize) else { return };
        let recent = writer.recent.get_or_insert_default();
        let before = (recent.lists.len(), recent.bytes);
        recent.keep(chunk, self.next);
        self.account(before, recent);
        self.order.push_back((stream, self.next));
        self.next += 1;
        while self.bytes > most_bytes
            && let Some((stream, serial)) = self.order.pop_front()
        {
            let Some(recent) = streams[stream as usize].recent.as_deref_mut() else { continue };
            if recent.lists.front().is_some_and(|list| list.serial == serial) {
                let before = (recent.lists.len(), recent.bytes);
                recent.forget_oldest();
                self.account(before, recent);
            }
        }
        if self.order.len() > 2 * self.lists + 1024 {
            // A list exists if it is not older than the oldest of its stream; the entries of joined lists are kept with
            // it.
            let oldest = |stream: u32| streams[stream as usize].recent.as_deref().and_then(|r| r.lists.front());
            self.order.retain(|(stream, serial)| oldest(*stream).is_some_and(|list| list.serial <= *serial));
        }
    }

    /// Returns the bytes of all hashes, the number of entries in the order, and the number of lists.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.bytes, self.order.len(), self.lists)
    }

    fn account(&mut self, (lists, bytes): (usize, usize), now: &RecentRows) {
        self.lists = self.lists + now.lists.len() - lists;
        self.bytes = self.bytes + now.bytes - bytes;
    }

    /// Takes in the lists that streams have after recovery, in the order of the newest `time` of each.
    pub(crate) fn begin(&mut self, streams: &mut [StreamWriter]) {
        let mut found: Vec<(i64, u32, usize)> = Vec::new();
        for (id, stream) in streams.iter().enumerate() {
            let Some(recent) = stream.recent.as_deref() else { continue };
            // Lists of one stream keep their order.
            let mut newest = i64::MIN;
            for (n, list) in recent.lists.iter().enumerate() {
                newest = newest.max(list.time.1);
                found.push((newest, id as u32, n));
            }
            (self.lists, self.bytes) = (self.lists + recent.lists.len(), self.bytes + recent.bytes);
        }
        found.sort_unstable();
        for (_, stream, n) in found {
            if let Some(recent) = streams[stream as usize].recent.as_deref_mut() {
                recent.lists[n].serial = self.next;
            }
            self.order.push_back((stream, self.next));
            self.next += 1;
        }
    }
}

/// Rows that a frame of a stream is compared with: the newest [`FRAMES_MAX`] in memory and, if that is all of them, those
/// sealed recently.
pub(crate) struct ComparedRows<'a> {
    chunks: &'a [Arc<Chunk>],
    sealed: Option<&'a RecentRows>,
}

impl<'a> ComparedRows<'a> {
    pub(crate) fn new(open: &'a OpenRows, recent: Option<&'a RecentRows>) -> ComparedRows<'a> {
        let mut left = FRAMES_MAX;
        let newest = open.chunks.iter().rev().take_while(|chunk| {
            let len = chunk.len();
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        });
        let beyond = open.chunks.len() - newest.count();
        ComparedRows { chunks: &open.chunks[beyond..], sealed: recent.filter(|_| beyond == 0) }
    }

    /// Iterates over the chunks that may have rows of a `time`, newest first.
    pub(crate) fn chunks_of(&self, time: i64) -> impl Iterator<Item = &'a Chunk> {
        let holds = move |chunk: &&Arc<Chunk>| chunk.time_range().is_some_and(|(min, max)| min <= time && time <= max);
        self.chunks.iter().rev().filter(holds).map(|chunk| &**chunk)
    }

    /// Iterates over shape and hashes of sealed rows of which any may have this `time`.
    pub(crate) fn sealed_of(&self, time: i64) -> impl Iterator<Item = (&'a RowShape, &'a [u64])> {
        let lists = self.sealed.into_iter().flat_map(RecentRows::lists);
        lists.filter(move |((min, max), ..)| (*min..=*max).contains(&time)).map(|(_, shape, hashes)| (shape, hashes))
    }

    /// Counts the rows that may have a `time`.
    pub(crate) fn count_of(&self, time: i64) -> usize {
        let in_memory: usize = self.chunks_of(time).map(Chunk::len).sum();
        in_memory + self.sealed_of(time).map(|(_, hashes)| hashes.len()).sum::<usize>()
    }

    /// Compares a row in `time` and all values. Returns `None` if it is equal to one of them, otherwise with how many
    /// rows in memory it was compared.
    pub(crate) fn compare(&self, row: &RowScratch, shape: &RowShape, time: i64) -> Option<usize> {
        let mut compared = 0;
        for chunk in self.chunks_of(time) {
            for at in chunk.rows_of(time).take(COMPARED_MAX - compared) {
                if values_equal(row, shape, chunk, at) {
                    return None;
                }
                compared += 1;
            }
            if compared == COMPARED_MAX {
                break;
            }
        }
        let is_sealed = self.sealed.is_some_and(|recent| recent.holds(time, row, shape));
        (!is_sealed).then_some(compared)
    }
}

fn values_equal(row: &RowScratch, shape: &RowShape, chunk: &Chunk, at: usize) -> bool {
    let channels = shape.fields.len().max(chunk.shape.fields.len());
    (0..channels).all(|channel| {
        let state = state_of(shape, &|w| row.words[w], channel);
        if state != chunk.state(at, channel) {
            return false;
        }
        if state != CellState::Value {
            return true;
        }
        let field = shape.fields[channel];
        let bits = row.words[field.word as usize] >> field.shift & mask(field.kind);
        match (field.kind, chunk.value(at, channel)) {
            (ChannelType::String, Value::String(text)) => text_at(&row.text, bits) == text.as_bytes(),
            (ChannelType::Array(_), Value::Array(array)) => text_at(&row.text, bits) == array.bytes(),
            (ChannelType::Blob, Value::Blob(blob)) => text_at(&row.text, bits) == blob.bytes(),
            (ChannelType::String | ChannelType::Blob | ChannelType::Array(_), _) => false,
            (kind, value) => same_number((kind, bits), (value.channel_type(), value.bits())),
        }
    })
}

fn state_of(shape: &RowShape, word: &impl Fn(usize) -> u64, channel: usize) -> CellState {
    if channel >= shape.fields.len() {
        return CellState::Absent;
    }
    let bits = word(shape.states + channel / 32) >> (channel % 32 * 2);
    CellState::from_code(bits as u8 & 3).unwrap_or(CellState::Absent)
}

/// Returns whether two numbers are equal bit for bit in the type of either: a channel may have been widened since.
fn same_number((kind, bits): (ChannelType, u64), (other, of_other): (ChannelType, u64)) -> bool {
    retyped(other, kind, of_other) == Some(bits) || retyped(kind, other, bits) == Some(of_other)
}

/// Returns the words of a row in another shape of its stream, without its times, or `None` if that shape cannot hold
/// it, so that it is in no row of that shape.
fn words_in(to: &RowShape, row: &RowScratch, shape: &RowShape) -> Option<Vec<u64>> {
    let mut words = to.template().to_vec();
    for channel in 0..shape.fields.len().max(to.fields.len()) {
        let state = state_of(shape, &|w| row.words[w], channel);
        if state == CellState::Absent {
            continue;
        }
        let target = to.fields.get(channel)?;
        let (word, shift) = (to.states + channel / 32, channel % 32 * 2);
        words[word] = words[word] & !(3 << shift) | (state as u64) << shift;
        if state == CellState::Value {
            let field = shape.fields[channel];
            let bits = row.words[field.word as usize] >> field.shift & mask(field.kind);
            words[target.word as usize] |= retyped(field.kind, target.kind, bits)? << target.shift;
        }
    }
    Some(words)
}

/// Returns the bits of a number in another type, or `None` if that type cannot hold it.
fn retyped(from: ChannelType, to: ChannelType, bits: u64) -> Option<u64> {
    if from == to {
        return Some(bits);
    }
    if let (ChannelType::Array(from), ChannelType::Array(to)) = (from, to) {
        // For an array of another length, the word states the bytes.
        return (from.element() == to.element()).then_some(bits);
    }
    if !from.is_scalar() || !to.is_scalar() {
        return None;
    }
    let value = Value::from_bits(from, bits);
    if let Some(wider) = value.convert(to) {
        return Some(wider.bits());
    }
    // Narrow a value that was widened since.
    let Value::F64(number) = value else { return None };
    let narrow = match to {
        ChannelType::F32 => Value::F32(number as f32),
        _ => Value::I64(number as i64).convert(to)?,
    };
    let again = narrow.convert(ChannelType::F64)?;
    (again.bits() == bits).then(|| narrow.bits())
}

/// Returns the initial value for hashes of a store's rows. No other store has it, and no sender knows it.
pub(crate) fn hash_key(origin: u128) -> u64 {
    spread(origin as u64 ^ spread((origin >> 64) as u64))
}

/// Hashes a row of a chunk, like [`hash_row`].
pub(crate) fn hash_stored(chunk: &Chunk, row: usize) -> u64 {
    let words = chunk.row_words(row);
    hash_row(&chunk.shape, chunk.time(row), |w| words[w].load(Ordering::Relaxed), chunk.row_text(row))
}

/// Hashes a row's time, states, values and text, as its shape has them.
pub(crate) fn hash_row(shape: &RowShape, time: i64, word: impl Fn(usize) -> u64, text: &[u8]) -> u64 {
    let key = shape.hash_key;
    if !shape.has_text {
        return hash_words(key, time, shape.states..shape.words(), word);
    }
    // Where a text or array stands among the others depends on the order of the frame's cells; its length does not.
    let mut words: Vec<u64> = (0..shape.words()).map(word).collect();
    let mut hash = key;
    for field in shape.fields.iter().filter(|f| !f.kind.is_scalar()) {
        for piece in text_at(text, words[field.word as usize]).chunks(8) {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            hash = mix(hash ^ 1, u64::from_le_bytes(bytes));
        }
        words[field.word as usize] &= u64::from(u32::MAX);
    }
    mix(hash, hash_words(key, time, shape.states..shape.words(), |w| words[w]))
}

fn hash_words(key: u64, time: i64, words: Range<usize>, word: impl Fn(usize) -> u64) -> u64 {
    // Four lanes, as each step waits for the one before.
    let mut lanes = [key, 0x9e37_79b9_7f4a_7c15, 0xff51_afd7_ed55_8ccd, 0xc2b2_ae3d_27d4_eb4f];
    let whole = words.start + words.len() / 4 * 4;
    for at in (words.start..whole).step_by(4) {
        for (lane, hash) in lanes.iter_mut().enumerate() {
            *hash = mix(*hash, word(at + lane));
        }
    }
    let hash = (whole..words.end).fold(spread(key ^ time as u64), |hash, at| mix(hash, word(at)));
    lanes.into_iter().fold(hash, mix)
}

/// Spreads each bit of `word` over the result (the finalizer of MurmurHash3). Times of frames differ in a few low bits,
/// and so do their states and small numbers: without it, the differences could cancel out.
fn spread(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

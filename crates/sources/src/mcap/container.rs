//! Reads the container: records, mostly in compressed chunks, that contain schemas, channels and messages. Pure apart
//! from reading.
//!
//! ```text
//!  magic | header | chunk | index | chunk | index | … | data end | summary | footer | magic
//!  record: u8 opcode, u64 length, body; all little-endian
//! ```
//! A chunk is taken as a whole: if its bytes or checksum are wrong, it is skipped, its offset is reported, and reading
//! continues after it. Of a chunk that is cut off by the end of the file or was never closed by its writer, everything
//! present is returned. Chunks of more than 64 MiB are not buffered: their records are returned as they are read, and a
//! wrong checksum is reported afterwards.
//!
//! Bounds: a record has at most 64 MiB, zstd's window 128 MiB. Anything longer is skipped and counted.

use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

/// Bytes at the start and end of a file.
pub const MAGIC: [u8; 8] = *b"\x89MCAP0\r\n";

/// Maximum bytes of a record, and of a chunk taken as a whole.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Maximum bytes of a schema or a channel description.
const DEFINITION_BYTES_MAX: u64 = 1 << 20;
/// Size of a record's opcode and length.
const HEAD_BYTES: usize = 9;
/// Size of a chunk record's fixed part, before the name of its compression.
const CHUNK_HEAD_BYTES: u64 = 32;
/// Maximum bytes of a compression's name.
const COMPRESSION_BYTES_MAX: u64 = 64;
/// Placeholder for a length not yet known to the writer.
const NOT_CLOSED: u64 = u64::MAX;
/// Base-2 logarithm of the largest zstd window.
const WINDOW_LOG_MAX: u32 = 27;

const FOOTER: u8 = 0x02;
const SCHEMA: u8 = 0x03;
const CHANNEL: u8 = 0x04;
const MESSAGE: u8 = 0x05;
const CHUNK: u8 = 0x06;
const ATTACHMENT: u8 = 0x09;
const DATA_END: u8 = 0x0F;

/// Entry of a file, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordEntry<'a> {
    /// A schema of messages.
    Schema {
        /// Id, from 1.
        id: u16,
        /// Name, such as `sensor_msgs/Imu`.
        name: &'a str,
        /// Encoding, such as `ros1msg`.
        encoding: &'a str,
        /// Contents.
        text: &'a [u8],
    },
    /// A channel: a topic of one sender.
    Channel {
        /// Id.
        id: u16,
        /// Id of its schema; 0 for none.
        schema: u16,
        /// Topic name.
        topic: &'a str,
        /// Encoding of its messages, such as `ros1`.
        encoding: &'a str,
    },
    /// A message.
    Message(RecordedMessage<'a>),
    /// An attached file, which is skipped.
    Attachment,
    /// A message over the size limit.
    TooLarge,
    /// Invalid bytes. Reading continues after them.
    Damage(Damage),
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedMessage<'a> {
    /// Id of its channel.
    pub channel: u16,
    /// Sequence number. Its meaning depends on the writer of the file.
    pub sequence: u32,
    /// Time of recording, in nanoseconds since 1970 UTC.
    pub log_time: u64,
    /// Time of sending, in nanoseconds since 1970 UTC.
    pub publish_time: u64,
    /// Contents.
    pub data: &'a [u8],
}

/// Damage in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Cause.
    pub what: String,
}

/// End of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// A regular end.
    Whole,
    /// A premature end, or bytes after which nothing can be found, with the place.
    Cut(Damage),
    /// A stop requested by the caller.
    Stopped,
}

/// Reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A file without the MCAP magic.
    #[error("not an MCAP file: it does not start with the bytes 89 4d 43 41 50 30 0d 0a")]
    NotMcap,
    /// A read error.
    #[error("at byte {offset}: {source}")]
    Io {
        /// Offset reached.
        offset: u64,
        /// Cause.
        source: io::Error,
    },
}

/// Input file with its current offset.
struct Input<R> {
    inner: BufReader<R>,
    offset: u64,
    /// Whether a read returned no bytes.
    ended: bool,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.inner.read(buffer) {
                Ok(bytes) => {
                    self.ended |= bytes == 0;
                    self.offset += bytes as u64;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    self.failed = Some(error);
                    return Err(kind.into());
                }
            }
        }
    }
}

/// Callback for entries, with the number of bytes of the file read so far.
type Each<'e> = dyn FnMut(RecordEntry<'_>, u64) -> ControlFlow<()> + 'e;

/// Extent to which a sequence of records was read.
enum Walked {
    All,
    /// An end in the middle of a record.
    Short,
    Stopped,
}

/// Reads a file entry by entry. Calls `each` with every entry and the number of bytes read so far.
///
/// # Errors
/// If the file is not MCAP or cannot be read. Entries before the error have been passed on.
pub fn read(
    input: impl Read,
    mut each: impl FnMut(RecordEntry<'_>, u64) -> ControlFlow<()>,
) -> Result<FileEnd, ContainerError> {
    let inner = BufReader::with_capacity(256 << 10, input);
    let mut input = Input { inner, offset: 0, ended: false, failed: None };
    let end = walk(&mut input, &mut each);
    match input.failed {
        Some(source) => Err(ContainerError::Io { offset: input.offset, source }),
        None => end,
    }
}

fn walk<R: Read>(input: &mut Input<R>, each: &mut Each<'_>) -> Result<FileEnd, ContainerError> {
    let mut magic = [0; MAGIC.len()];
    if !fill(input, &mut magic) || magic != MAGIC {
        return Err(ContainerError::NotMcap);
    }
    let mut body = Vec::new();
    let mut is_summary = false;
    loop {
        let begin = input.offset;
        let cut = |input: &Input<R>, what: &str| {
            let offset = input.offset;
            Ok(FileEnd::Cut(Damage { offset, what: format!("the file ends in {what} that begins at byte {begin}") }))
        };
        let mut head = [0; HEAD_BYTES];
        if !fill(input, &mut head) {
            let what =
                if input.offset == begin { "the file ends without a footer" } else { "the file ends in a record" };
            return Ok(FileEnd::Cut(Damage { offset: input.offset, what: what.to_owned() }));
        }
        let (opcode, length) = (head[0], le_u64(&head[1..]));
        let flow = match opcode {
            0 => {
                let what = "bytes that are no record: nothing behind them can be found".to_owned();
                return Ok(FileEnd::Cut(Damage { offset: begin, what }));
            }
            FOOTER => {
                if !skip(input, length) || !fill(input, &mut magic) {
                    return cut(input, "the footer");
                }
                if magic != MAGIC {
                    let what = "no magic behind the footer".to_owned();
                    return Ok(FileEnd::Cut(Damage { offset: begin, what }));
                }
                return Ok(FileEnd::Whole);
            }
            // The summary repeats schemas and channels.
            _ if is_summary => skipped(input, length, ControlFlow::Continue(())),
            CHUNK => match chunk(input, begin, length, &mut body, each) {
                Chunked::Taken => Some(ControlFlow::Continue(())),
                Chunked::Stopped => Some(ControlFlow::Break(())),
                Chunked::Cut => None,
            },
            SCHEMA | CHANNEL | MESSAGE => {
                let most = if opcode == MESSAGE { RECORD_BYTES_MAX } else { DEFINITION_BYTES_MAX };
                if length > most {
                    let entry = too_large(opcode, length, begin);
                    if !skip(input, length) {
                        return cut(input, "a record");
                    }
                    Some(each(entry, input.offset))
                } else if !read_body(input, &mut body, length) {
                    None
                } else {
                    Some(each(entry(opcode, &body, begin), input.offset))
                }
            }
            ATTACHMENT => match skip(input, length) {
                true => Some(each(RecordEntry::Attachment, input.offset)),
                false => None,
            },
            other => {
                is_summary = other == DATA_END;
                skipped(input, length, ControlFlow::Continue(()))
            }
        };
        match flow {
            Some(ControlFlow::Continue(())) => {}
            Some(ControlFlow::Break(())) => return Ok(FileEnd::Stopped),
            None => return cut(input, if opcode == CHUNK { "the chunk" } else { "a record" }),
        }
    }
}

/// Outcome of a chunk.
enum Chunked {
    Taken,
    Stopped,
    /// A chunk in which the file ends.
    Cut,
}

fn chunk<R: Read>(input: &mut Input<R>, begin: u64, length: u64, body: &mut Vec<u8>, each: &mut Each<'_>) -> Chunked {
    let end = input.offset.saturating_add(length);
    let wrong = |what| Damage { offset: begin, what };
    let mut head = [0; CHUNK_HEAD_BYTES as usize];
    if length < CHUNK_HEAD_BYTES + 8 {
        return damaged(input, each, wrong(format!("a chunk of {length} bytes is too short")), end);
    }
    if !fill(input, &mut head) {
        return Chunked::Cut;
    }
    let (plain_bytes, crc) = (le_u64(&head[16..]), le_u32(&head[24..]));
    let name_bytes = u64::from(le_u32(&head[28..]));
    if name_bytes > COMPRESSION_BYTES_MAX || CHUNK_HEAD_BYTES + name_bytes + 8 > length {
        return damaged(input, each, wrong(format!("a compression with a name of {name_bytes} bytes")), end);
    }
    let mut name = vec![0; name_bytes as usize];
    let mut size = [0; 8];
    if !fill(input, &mut name) || !fill(input, &mut size) {
        return Chunked::Cut;
    }
    let is_closed = length != NOT_CLOSED && le_u64(&size) != NOT_CLOSED;
    let room = end - input.offset;
    let packed_bytes = if is_closed { le_u64(&size) } else { room };
    if packed_bytes > room {
        let what = format!("a chunk of {length} bytes with {packed_bytes} bytes of records");
        return damaged(input, each, wrong(what), end);
    }
    let crc = if is_closed { crc } else { 0 };
    let whole_bytes = (is_closed && plain_bytes <= RECORD_BYTES_MAX).then_some(plain_bytes);
    let at = input.offset;
    let unpacked =
        unpack(&name, (&mut *input).take(packed_bytes), whole_bytes, |plain| records(plain, body, begin, at, each));
    let what = match unpacked {
        Unpacked::Streamed(Walked::Stopped, _) => return Chunked::Stopped,
        Unpacked::Streamed(..) if input.ended => return Chunked::Cut,
        Unpacked::Streamed(Walked::All, found) if !is_closed || crc == 0 || crc == found => return after(input, end),
        Unpacked::Streamed(Walked::All, found) => {
            format!("a chunk with the checksum {found:08x}, {crc:08x} expected: it was too large to leave it out")
        }
        Unpacked::Streamed(Walked::Short, _) => "a chunk that ends in the middle of a record".to_owned(),
        Unpacked::Whole(whole, _) if input.ended => {
            // These bytes are only known to have been written. The missing part is reported as the end of the file.
            let _ = records(&mut whole.as_slice(), body, begin, at, each);
            return Chunked::Cut;
        }
        Unpacked::Not(error) | Unpacked::Whole(_, Some(error)) => format!("a chunk that cannot be unpacked: {error}"),
        Unpacked::Whole(whole, None) if whole.len() as u64 != plain_bytes => {
            format!("a chunk of {plain_bytes} bytes that unpacks to {} or more", whole.len())
        }
        Unpacked::Whole(whole, None) => match crc32fast::hash(&whole) {
            found if crc != 0 && crc != found => format!("a chunk with the checksum {found:08x}, {crc:08x} expected"),
            _ => match records(&mut whole.as_slice(), body, begin, at, each) {
                Walked::All => return after(input, end),
                Walked::Stopped => return Chunked::Stopped,
                Walked::Short => "a chunk that ends in the middle of a record".to_owned(),
            },
        },
    };
    damaged(input, each, wrong(what), end)
}

/// Result of decompressing a chunk.
enum Unpacked {
    /// Failure, with the cause.
    Not(String),
    /// Records passed on as they were read, with the checksum.
    Streamed(Walked, u32),
    /// Decompressed bytes up to an error, if any.
    Whole(Vec<u8>, Option<String>),
}

/// Decompresses a chunk of a known size. For `None`, when it is too large or not known to end, passes the bytes to
/// `take` as they are read.
fn unpack(
    compression: &[u8],
    packed: impl Read,
    whole_bytes: Option<u64>,
    take: impl FnOnce(&mut dyn Read) -> Walked,
) -> Unpacked {
    let mut plain: Box<dyn Read + '_> = match compression {
        b"" => Box::new(packed),
        b"lz4" => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        b"zstd" => match zstd_decoder(packed) {
            Ok(decoder) => decoder,
            Err(error) => return Unpacked::Not(error.to_string()),
        },
        other => return Unpacked::Not(format!("the compression {:?} is not known", String::from_utf8_lossy(other))),
    };
    let Some(whole_bytes) = whole_bytes else {
        let mut hashed = Hashed { inner: plain, crc: crc32fast::Hasher::new() };
        let walked = take(&mut hashed);
        return Unpacked::Streamed(walked, hashed.crc.finalize());
    };
    let mut whole = Vec::new();
    // Read one more byte than stated, to detect excess.
    let read = plain.by_ref().take(whole_bytes + 1).read_to_end(&mut whole);
    Unpacked::Whole(whole, read.err().map(|error| error.to_string()))
}

fn zstd_decoder<'r>(packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut decoder = zstd::stream::read::Decoder::new(packed)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(Box::new(decoder))
}

/// Reports damage in a chunk and continues after it.
fn damaged<R: Read>(input: &mut Input<R>, each: &mut Each<'_>, damage: Damage, end: u64) -> Chunked {
    match each(RecordEntry::Damage(damage), input.offset) {
        ControlFlow::Break(()) => Chunked::Stopped,
        ControlFlow::Continue(()) => after(input, end),
    }
}

/// Continues after a chunk.
fn after<R: Read>(input: &mut Input<R>, end: u64) -> Chunked {
    match skip(input, end - input.offset) {
        true => Chunked::Taken,
        false => Chunked::Cut,
    }
}

/// Reads the records of a chunk that begins at `begin`, where the file has been read up to `at`.
fn records(plain: &mut dyn Read, body: &mut Vec<u8>, begin: u64, at: u64, each: &mut Each<'_>) -> Walked {
    loop {
        let mut head = [0; HEAD_BYTES];
        match fill_some(plain, &mut head) {
            0 => return Walked::All,
            HEAD_BYTES => {}
            _ => return Walked::Short,
        }
        let (opcode, length) = (head[0], le_u64(&head[1..]));
        let most = if opcode == MESSAGE { RECORD_BYTES_MAX } else { DEFINITION_BYTES_MAX };
        let flow = if !matches!(opcode, SCHEMA | CHANNEL | MESSAGE) || length > most {
            if !skip(plain, length) {
                return Walked::Short;
            }
            match opcode {
                SCHEMA | CHANNEL | MESSAGE => each(too_large(opcode, length, begin), at),
                _ => ControlFlow::Continue(()),
            }
        } else if read_body(plain, body, length) {
            each(entry(opcode, body, begin), at)
        } else {
            return Walked::Short;
        };
        if flow.is_break() {
            return Walked::Stopped;
        }
    }
}

fn too_large(opcode: u8, length: u64, offset: u64) -> RecordEntry<'static> {
    match opcode {
        MESSAGE => RecordEntry::TooLarge,
        _ => RecordEntry::Damage(Damage { offset, what: format!("a schema or channel of {length} bytes") }),
    }
}

/// Parses the entry of a record. `offset` is that of the record or of its chunk.
fn entry(opcode: u8, body: &[u8], offset: u64) -> RecordEntry<'_> {
    let mut fields = RecordFields { rest: body };
    let entry = match opcode {
        SCHEMA => fields.schema(),
        CHANNEL => fields.channel(),
        _ => fields.message(),
    };
    let name = match opcode {
        SCHEMA => "schema",
        CHANNEL => "channel",
        _ => "message",
    };
    entry.unwrap_or_else(|| {
        let what = format!("a {name} of {} bytes whose parts do not fit into it", body.len());
        RecordEntry::Damage(Damage { offset, what })
    })
}

/// Parser of a record's fields.
struct RecordFields<'a> {
    rest: &'a [u8],
}

impl<'a> RecordFields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(le_u32)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(le_u64)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn schema(&mut self) -> Option<RecordEntry<'a>> {
        let (id, name, encoding) = (self.u16()?, self.text()?, self.text()?);
        let length = self.u32()? as usize;
        Some(RecordEntry::Schema { id, name, encoding, text: self.bytes(length)? })
    }

    fn channel(&mut self) -> Option<RecordEntry<'a>> {
        Some(RecordEntry::Channel { id: self.u16()?, schema: self.u16()?, topic: self.text()?, encoding: self.text()? })
    }

    fn message(&mut self) -> Option<RecordEntry<'a>> {
        let (channel, sequence) = (self.u16()?, self.u32()?);
        let (log_time, publish_time) = (self.u64()?, self.u64()?);
        Some(RecordEntry::Message(RecordedMessage { channel, sequence, log_time, publish_time, data: self.rest }))
    }
}

/// Reader that computes a checksum.
struct Hashed<'r> {
    inner: Box<dyn Read + 'r>,
    crc: crc32fast::Hasher,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.crc.update(&buffer[..bytes]);
        Ok(bytes)
    }
}

fn le_u64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

fn le_u32(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

/// Reads up to the size of the buffer. Returns the number of bytes read.
fn fill_some(input: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}

/// Fills the buffer. Returns `false` if the input ends before.
fn fill(input: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> bool {
    fill_some(input, buffer) == buffer.len()
}

/// Reads a record's body, growing memory as bytes arrive. Returns `false` if the input ends before.
fn read_body(input: &mut (impl Read + ?Sized), body: &mut Vec<u8>, length: u64) -> bool {
    body.clear();
    input.take(length).read_to_end(body).is_ok_and(|bytes| bytes as u64 == length)
}

/// Skips bytes. Returns `false` if the input ends before.
fn skip(input: &mut (impl Read + ?Sized), bytes: u64) -> bool {
    io::copy(&mut input.take(bytes), &mut io::sink()).is_ok_and(|passed| passed == bytes)
}

/// Skips bytes. Returns `None` if the input ends before.
fn skipped(input: &mut impl Read, bytes: u64, flow: ControlFlow<()>) -> Option<ControlFlow<()>> {
    skip(input, bytes).then_some(flow)
}

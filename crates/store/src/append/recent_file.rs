//! The file `recent`: hashes of recently received rows, kept over a clean end. A frame that was sealed before it is
//! still recognized when its sender, who got no answer, sends it again after.
//!
//! ```text
//! 0 4 magic "SBRC" · 4 4 which hash: 1 · 8 8 number of the commit that ended the run cleanly · 16 8 bytes of entries
//! 24 4 CRC32C of the entries · 28 4 CRC32C of bytes 0 to 28 · entries · zeros to 4 KiB
//! entry: u32 stream, u8 whether its rows have a sequence, u16 channels, a type of each, u32 n, i64 time min,
//!        i64 time max, n × u64 hash of a row of these types (crate::append::recent)
//! ```
//! The hash is that of [`crate::append::recent`]; hashes of another kind (0: differences of times and states could
//! cancel out) are not compared.
//! The file is valid as long as the log continues from that commit, also after a kill: rows received since are in the
//! log, or forgotten with the part of it that was sealed. If it is damaged, or of a commit that recovery did not find,
//! it is ignored.

use std::collections::BTreeMap;
use std::io;

use crate::append::Writer;
use crate::append::recent::RECENT_BYTES_MAX;
use crate::append::recent::RecentList;
use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError};
use crate::disk::names;
use crate::disk::{Access, Disk, PAGE_BYTES, Pages, read_exact};
use crate::model::damage::Damage;
use crate::model::value::ChannelType;

const MAGIC: u32 = u32::from_le_bytes(*b"SBRC");
/// Number of the hash function.
const HASH: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Max bytes of the entries: the hashes of all streams, and the heads of their lists.
const BYTES_MAX: u64 = 4 * RECENT_BYTES_MAX as u64;

/// Saves the hashes of recently received rows for the opening that follows the clean end `commit`.
pub(crate) fn save(disk: &dyn Disk, commit: u64, writer: &Writer) -> io::Result<()> {
    let mut entries = Put::default();
    for (id, stream) in writer.streams.iter() {
        for (time, shape, hashes) in stream.recent.iter().flat_map(|recent| recent.lists()) {
            entries.u32(id);
            entries.u8(shape.has_sequence as u8);
            entries.u16(shape.fields.len() as u16);
            shape.fields.iter().for_each(|field| field.kind.put(&mut entries.0));
            entries.u32(hashes.len() as u32);
            entries.i64(time.0);
            entries.i64(time.1);
            hashes.iter().for_each(|&hash| entries.u64(hash));
        }
    }
    if entries.0.is_empty() || entries.0.len() as u64 > BYTES_MAX {
        return Ok(());
    }
    let mut p = Put::default();
    p.u32(MAGIC);
    p.u32(HASH);
    p.u64(commit);
    p.u64(entries.0.len() as u64);
    p.u32(crc32c::crc32c(&entries.0));
    let crc = crc32c::crc32c(&p.0);
    p.u32(crc);
    p.0.extend_from_slice(&entries.0);
    let size = p.0.len().next_multiple_of(PAGE_BYTES);
    let file = disk.create(names::RECENT, size as u64, Access::Buffered)?;
    for (n, piece) in p.0.chunks(1 << 20).enumerate() {
        file.write_at(&Pages::of(piece), (n << 20) as u64)?;
    }
    file.sync()?;
    disk.sync()
}

/// Loads the file if the log, which ends with `commit`, has the clean end that it belongs to. Erases one of a later
/// commit, as numbers of lost commits are used again. Erases one that cannot be read, too, and returns its damage.
pub(crate) fn load(disk: &dyn Disk, commit: u64, writer: &mut Writer) -> io::Result<Option<Damage>> {
    let file = match disk.open(names::RECENT, Access::Buffered) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = file.size()?;
    if size < HEADER_BYTES as u64 || size > BYTES_MAX + PAGE_BYTES as u64 {
        return Ok(None);
    }
    let go = || {
        file.write_at(&Pages::of(&[0; HEADER_BYTES]), 0)?;
        file.sync()
    };
    let bytes = match read_exact(&*file, 0, size as usize) {
        Ok(bytes) => bytes,
        Err(error) => {
            // A later opening that can read it could take it for one of a commit yet to come.
            go()?;
            let reason = format!("what was received before the last end cannot be read: {error}");
            return Ok(Some(Damage { file: names::RECENT.to_owned(), offset: 0, reason }));
        }
    };
    let Some((of, entries)) = entries_of(&bytes) else { return Ok(None) };
    if of > commit {
        go()?;
        return Ok(None);
    }
    let mut found: BTreeMap<u32, Vec<RecentList>> = BTreeMap::new();
    let mut damage = None;
    let mut t = Cursor::at(HEADER_BYTES as u64, entries);
    while t.remaining() > 0 {
        let offset = t.offset();
        let list = match List::read(&mut t) {
            Ok(list) => list,
            Err(error) => {
                let reason = format!("what was received before the last end is known in part: {error}");
                damage = Some(Damage { file: names::RECENT.to_owned(), offset, reason });
                break;
            }
        };
        let shape = writer.streams.shape_with(list.has_sequence, list.kinds);
        found.entry(list.stream).or_default().push(RecentList { time: list.time, shape, hashes: list.hashes });
    }
    for (stream, lists) in found {
        if let Some(stream) = writer.streams.get_mut(stream) {
            stream.recent.get_or_insert_default().put_back(lists);
        }
    }
    Ok(damage)
}

/// Reads a file after making its checksums fit, for tests that attack the code behind them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_forged(bytes: &[u8]) -> Option<usize> {
    let mut bytes = bytes.to_vec();
    let entries = bytes.get(HEADER_BYTES..)?.len() as u64;
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&HASH.to_le_bytes());
    bytes[8..16].copy_from_slice(&1u64.to_le_bytes());
    bytes[16..24].copy_from_slice(&entries.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let mut t = Cursor::new(entries_of(&bytes)?.1);
    Some(std::iter::from_fn(|| List::read(&mut t).ok()).map(|list| list.hashes.len()).sum())
}

/// One entry of the file.
struct List {
    stream: u32,
    has_sequence: bool,
    kinds: Vec<ChannelType>,
    time: (i64, i64),
    hashes: Vec<u64>,
}

impl List {
    fn read(t: &mut Cursor<'_>) -> Result<List, FormatError> {
        let (stream, has_sequence) = (t.u32("stream")?, t.flag("mark of a sequence")?);
        let channels = t.u16("number of channels")?;
        let kinds = (0..channels).map(|_| t.channel_type("channel type")).collect::<Result<_, _>>()?;
        let (count, time) = (t.u32("number of hashes")?, (t.i64("time min")?, t.i64("time max")?));
        let hashes = t.take((count as usize).saturating_mul(8), "hashes")?;
        let hashes = hashes.as_chunks::<8>().0.iter().map(|&h| u64::from_le_bytes(h)).collect();
        Ok(List { stream, has_sequence, kinds, time, hashes })
    }
}

/// Returns the commit and the entries, or `None` if the header or a checksum is wrong.
fn entries_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut t = Cursor::new(bytes);
    let header = t.take(HEADER_BYTES, "header").ok()?;
    let mut fields = Cursor::new(header);
    let (magic, hash) = (fields.u32("magic").ok()?, fields.u32("hash function").ok()?);
    let (of, len) = (fields.u64("commit").ok()?, fields.u64("bytes of entries").ok()?);
    let (crc, header_crc) = (fields.u32("checksum of the entries").ok()?, fields.u32("checksum of the header").ok()?);
    if magic != MAGIC || hash != HASH || header_crc != crc32c::crc32c(&header[..28]) {
        return None;
    }
    let entries = t.take(usize::try_from(len).ok()?, "entries").ok()?;
    (crc32c::crc32c(entries) == crc).then_some((of, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_cut_or_invalid_names_the_field_and_its_offset() {
        let mut p = Put::default();
        p.u32(7);
        p.u8(1);
        p.u16(2);
        ChannelType::F64.put(&mut p.0);
        ChannelType::String.put(&mut p.0);
        p.u32(2);
        (0..4).for_each(|n| p.u64(n));
        let bytes = p.0;
        let read = |bytes: &[u8]| List::read(&mut Cursor::new(bytes)).map(|list| list.hashes);
        assert_eq!(read(&bytes), Ok(vec![2, 3]));
        for cut in 0..bytes.len() {
            let error = read(&bytes[..cut]).expect_err("cut");
            let FormatError::Truncated { what, offset, .. } = error else { panic!("cut at {cut}: {error}") };
            assert!(!what.is_empty() && offset <= cut as u64, "cut at {cut}: {error}");
        }
        let mut bad = bytes.clone();
        bad[8] = 0xff;
        assert_eq!(read(&bad), Err(FormatError::Unknown { what: "channel type", offset: 8, found: 0xff }));
        bad = bytes;
        bad[9..13].fill(0xff);
        let needed = u32::MAX as usize * 8;
        assert_eq!(read(&bad), Err(FormatError::Truncated { what: "hashes", offset: 29, needed, had: 16 }));
    }
}

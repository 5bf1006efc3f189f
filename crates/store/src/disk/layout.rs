//! First two pages of a store of a fixed size: the offsets of all its regions. Both pages are equal and are written
//! once, as the last step of creating the store; either one is enough to open it.
//!
//! ```text
//! offset size field
//! 0      8    magic "STRBKFIX"
//! 8      4    version of this page: 1
//! 12     4    incompatible features: an unknown bit refuses
//! 16     4    compatible features: unknown bits are ignored
//! 20     4    slots for segments
//! 24     8    size_bytes of the whole store
//! 32     8    bytes of a slot
//! 40     8    offset of the superblock, 8 KiB
//! 48     8    offset of the log
//! 56     8    bytes of the log's ring
//! 64     8    offset of checkpoint A; B follows it
//! 72     8    bytes of each checkpoint
//! 80     8    offset of `recent`
//! 88     8    bytes of `recent`; 0: there is none
//! 96     8    offset of the first slot; the others follow it
//! 104    8    generation: that of a segment is this plus its number
//! 112    4    max_streams
//! 116    4    max_channels
//! 120    2    retention groups, then of each: text name, u8 1 and text pattern of its streams, or 0; u8 1 and u64
//!             bytes, or 2 and f64 share that it keeps; u8 1 and u64 max_age in nanoseconds, or 0
//! 4092   4    CRC32C of bytes 0 to 4092
//! ```
//! Every offset and length is a multiple of 4,096; a text is its length (u16) and UTF-8.

use std::time::Duration;

use crate::bytes::fields::Put;
use crate::bytes::{Cursor, FormatError, check_crc};
use crate::disk::PAGE_BYTES;
use crate::disk::names;
use crate::model::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::model::options::{Keep, RetentionGroup};
use crate::model::pattern::Pattern;

const MAGIC: &[u8; 8] = b"STRBKFIX";
const VERSION: u32 = 1;
const KNOWN_INCOMPATIBLE: u32 = 0;
const CRC_AT: usize = PAGE_BYTES - 4;
/// Offsets of the two pages.
pub(crate) const COPIES: [u64; 2] = [0, PAGE_BYTES as u64];

/// Offsets and sizes of all regions in a store of a fixed size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Regions {
    pub(crate) slots: u32,
    /// Size of the whole store.
    pub(crate) size_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) superblock_offset: u64,
    pub(crate) log_offset: u64,
    pub(crate) log_bytes: u64,
    pub(crate) checkpoint_offset: u64,
    /// Size of each of the two checkpoints.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) recent_offset: u64,
    /// Size of `recent`; 0 if there is none.
    pub(crate) recent_bytes: u64,
    pub(crate) slots_offset: u64,
    /// Generation of the store. That of a segment is this plus its number, so that remains of another store in the same
    /// place are recognised.
    pub(crate) generation: u64,
    pub(crate) max_streams: u32,
    pub(crate) max_channels: u32,
    /// Retention groups for an opening that specifies none.
    pub(crate) groups: Vec<RetentionGroup>,
}

/// Name of a first page in a list of damage.
pub(crate) const FIRST_PAGE: &str = "first page";

/// Result of reading a page.
#[derive(Debug, PartialEq)]
pub(crate) enum FirstPageState {
    Valid(Regions),
    /// Page of a later version; names what is newer.
    Newer(String),
    /// Page with the magic number but invalid contents, and why.
    Damaged(String),
    /// Page without the magic number.
    Nothing,
}

/// Returns the versions and features that this program knows, for messages.
pub(crate) fn known() -> String {
    format!("layout version {VERSION}, features {KNOWN_INCOMPATIBLE:#x}")
}

impl Regions {
    /// Encodes the regions as a page. Returns `None` if the groups do not fit.
    pub(crate) fn page(&self) -> Option<Vec<u8>> {
        let mut p = Put::default();
        p.0.extend_from_slice(MAGIC);
        p.u32(VERSION);
        p.u32(0);
        p.u32(0);
        p.u32(self.slots);
        for field in [
            self.size_bytes,
            self.segment_bytes,
            self.superblock_offset,
            self.log_offset,
            self.log_bytes,
            self.checkpoint_offset,
            self.checkpoint_bytes,
            self.recent_offset,
            self.recent_bytes,
            self.slots_offset,
            self.generation,
        ] {
            p.u64(field);
        }
        p.u32(self.max_streams);
        p.u32(self.max_channels);
        p.u16(self.groups.len() as u16);
        self.groups.iter().for_each(|group| put_group(&mut p, group));
        if p.0.len() > CRC_AT {
            return None;
        }
        p.0.resize(CRC_AT, 0);
        let crc = crc32c::crc32c(&p.0);
        p.u32(crc);
        Some(p.0)
    }

    /// Decodes a page. Bytes after it are ignored.
    pub(crate) fn read(page: &[u8]) -> FirstPageState {
        let Some(page) = page.get(..PAGE_BYTES) else { return FirstPageState::Nothing };
        if !page.starts_with(MAGIC) {
            return FirstPageState::Nothing;
        }
        Regions::read_page(page).unwrap_or_else(|error| FirstPageState::Damaged(error.to_string()))
    }

    fn read_page(page: &[u8]) -> Result<FirstPageState, FormatError> {
        let (checked, crc) = page.split_at(CRC_AT);
        let mut t = Cursor::new(checked);
        t.take(MAGIC.len(), "magic")?;
        let version = t.u32("version")?;
        // The magic, the version and the checksum of the page keep their offsets in every later version, so that a bit that
        // flips in the version is damage.
        check_crc("first page", Cursor::at(CRC_AT as u64, crc).u32("checksum")?, checked)?;
        if version > VERSION {
            return Ok(FirstPageState::Newer(format!("layout version {version}")));
        }
        let incompatible = t.u32("incompatible features")?;
        if incompatible & !KNOWN_INCOMPATIBLE != 0 {
            return Ok(FirstPageState::Newer(format!("layout features {incompatible:#x}")));
        }
        let layout = Regions::read_fields(&mut t)?;
        Ok(match layout.contradiction() {
            None => FirstPageState::Valid(layout),
            Some(reason) => FirstPageState::Damaged(reason),
        })
    }

    fn read_fields(t: &mut Cursor<'_>) -> Result<Regions, FormatError> {
        t.u32("compatible features")?;
        let slots = t.u32("slots")?;
        let mut layout = Regions {
            slots,
            size_bytes: t.u64("size of the store")?,
            segment_bytes: t.u64("bytes of a slot")?,
            superblock_offset: t.u64("offset of the superblock")?,
            log_offset: t.u64("offset of the log")?,
            log_bytes: t.u64("bytes of the log")?,
            checkpoint_offset: t.u64("offset of the checkpoints")?,
            checkpoint_bytes: t.u64("bytes of a checkpoint")?,
            recent_offset: t.u64("offset of recent")?,
            recent_bytes: t.u64("bytes of recent")?,
            slots_offset: t.u64("offset of the slots")?,
            generation: t.u64("generation")?,
            max_streams: t.u32("max_streams")?,
            max_channels: t.u32("max_channels")?,
            groups: Vec::new(),
        };
        for _ in 0..t.u16("number of retention groups")? {
            layout.groups.push(read_group(t)?);
        }
        Ok(layout)
    }

    /// Returns the offset and size of a file that has a permanent region.
    pub(crate) fn region(&self, name: &str) -> Option<(u64, u64)> {
        let (a, bytes) = (self.checkpoint_offset, self.checkpoint_bytes);
        let found = match name {
            names::SUPERBLOCK => (self.superblock_offset, names::SUPERBLOCK_BYTES),
            names::LOG => (self.log_offset, self.log_bytes),
            name if name == names::CHECKPOINTS[0] => (a, bytes),
            name if name == names::CHECKPOINTS[1] => (a + bytes, bytes),
            names::RECENT => (self.recent_offset, self.recent_bytes),
            _ => return None,
        };
        (found.1 > 0).then_some(found)
    }

    /// Returns how the fields contradict each other, or `None` if the regions are in order, do not overlap, consist of
    /// whole pages and are within the store.
    fn contradiction(&self) -> Option<String> {
        let regions = [
            ("first pages", 0, COPIES.len() as u64 * PAGE_BYTES as u64),
            ("superblock", self.superblock_offset, names::SUPERBLOCK_BYTES),
            ("log", self.log_offset, self.log_bytes),
            ("checkpoint A", self.checkpoint_offset, self.checkpoint_bytes),
            ("checkpoint B", self.checkpoint_offset.saturating_add(self.checkpoint_bytes), self.checkpoint_bytes),
            ("recent", self.recent_offset, self.recent_bytes),
            ("slots", self.slots_offset, self.segment_bytes.saturating_mul(self.slots.into())),
        ];
        let (mut end, page, size) = (0, PAGE_BYTES as u64, self.size_bytes);
        for (name, offset, bytes) in regions {
            let fits = offset >= end && offset.is_multiple_of(page) && bytes.is_multiple_of(page);
            let begin = end;
            end = offset.saturating_add(bytes);
            if !fits || end > size {
                return Some(format!(
                    "region {name}: {bytes} bytes at offset {offset} are not whole pages between {begin} and {size}"
                ));
            }
        }
        let sizes = [
            ("slots", u64::from(self.slots), 1..=u64::MAX),
            ("bytes of the log", self.log_bytes, 1..=u64::MAX),
            ("bytes of a checkpoint", self.checkpoint_bytes, 1..=u64::MAX),
            ("bytes of a slot", self.segment_bytes, SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX),
            ("size of the store", self.size_bytes, 0..=i64::MAX as u64),
        ];
        let wrong = sizes.into_iter().find(|(_, found, valid)| !valid.contains(found));
        wrong.map(|(name, found, valid)| format!("{name}: {found}, not from {} to {}", valid.start(), valid.end()))
    }
}

fn put_group(p: &mut Put, group: &RetentionGroup) {
    p.text(&group.name);
    p.u8(group.streams.is_some() as u8);
    if let Some(streams) = &group.streams {
        p.text(streams.as_str());
    }
    match group.keep {
        Keep::Bytes(bytes) => {
            p.u8(1);
            p.u64(bytes);
        }
        Keep::Share(share) => {
            p.u8(2);
            p.u64(share.to_bits());
        }
    }
    p.optional(group.max_age.map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)));
}

fn read_group(t: &mut Cursor<'_>) -> Result<RetentionGroup, FormatError> {
    let name = t.short_text("name of a retention group")?.to_owned();
    let streams = match t.zero_or_one("mark of a group's streams")? {
        true => {
            let begin = *t;
            let pattern = Pattern::parse(t.short_text("streams of a group")?);
            Some(pattern.map_err(|_| begin.invalid("streams of a group", "no pattern"))?)
        }
        false => None,
    };
    let is_share = t.code("unit of what a group keeps", |code| match code {
        1 => Some(false),
        2 => Some(true),
        _ => None,
    })?;
    let keep = match is_share {
        true => {
            let begin = *t;
            let share = Some(t.f64("share that a group keeps")?).filter(|share| (0.0..=1.0).contains(share));
            Keep::Share(share.ok_or_else(|| begin.invalid("share that a group keeps", "not from 0 to 1"))?)
        }
        false => Keep::Bytes(t.u64("bytes that a group keeps")?),
    };
    let max_age = t.optional("max age of a group")?.map(Duration::from_nanos);
    Ok(RetentionGroup { name, streams, keep, max_age })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Regions {
        let page = PAGE_BYTES as u64;
        Regions {
            slots: 5,
            size_bytes: 50 * page,
            segment_bytes: 8 * page,
            superblock_offset: 2 * page,
            log_offset: 4 * page,
            log_bytes: 4 * page,
            checkpoint_offset: 8 * page,
            checkpoint_bytes: page,
            recent_offset: 10 * page,
            recent_bytes: 0,
            slots_offset: 10 * page,
            generation: 0x1234_5678_9abc_def0,
            max_streams: 3,
            max_channels: 5,
            groups: vec![
                RetentionGroup {
                    name: "slow".into(),
                    streams: Some(Pattern::parse("plc.*").expect("a pattern")),
                    keep: Keep::Share(0.1),
                    max_age: None,
                },
                RetentionGroup {
                    name: "data".into(),
                    streams: None,
                    keep: Keep::Bytes(65_536),
                    max_age: Some(Duration::from_secs(5)),
                },
            ],
        }
    }

    #[test]
    fn a_page_says_what_was_written() {
        let page = layout().page().expect("a page");
        assert_eq!(page.len(), PAGE_BYTES);
        assert_eq!(Regions::read(&page), FirstPageState::Valid(layout()));
        assert_eq!(&page[..24], b"STRBKFIX\x01\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0");
        assert_eq!(Regions::read(&page[1..]), FirstPageState::Nothing);
        assert_eq!(Regions::read(&[0; PAGE_BYTES]), FirstPageState::Nothing);
    }

    #[test]
    fn fields_that_are_cut_or_invalid_are_named_with_their_offset() {
        let page = layout().page().expect("a page");
        let begin = 16;
        let read = |end: usize| Regions::read_fields(&mut Cursor::at(begin as u64, &page[begin..end]));
        let end = (begin..CRC_AT).find(|end| read(*end).is_ok()).expect("fields");
        for cut in begin..end {
            let error = read(cut).expect_err("cut");
            let FormatError::Truncated { what, offset, .. } = error else { panic!("cut at {cut}: {error}") };
            assert!(!what.is_empty() && offset <= cut as u64, "cut at {cut}: {error}");
        }
        let reason = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut page = page.clone();
            change(&mut page);
            let crc = crc32c::crc32c(&page[..CRC_AT]);
            page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            match Regions::read(&page) {
                FirstPageState::Damaged(reason) => reason,
                other => panic!("{other:?}"),
            }
        };
        // The first group begins at 122, with a text of 4 bytes, 1, a text of 5 bytes, 2, and a share.
        let unknown = "0x3 is not known to this program";
        assert_eq!(reason(&|page| page[128] = 3), format!("mark of a group's streams at offset 128: {unknown}"));
        assert_eq!(reason(&|page| page[136] = 3), format!("unit of what a group keeps at offset 136: {unknown}"));
        assert_eq!(reason(&|page| page[144] = 0x7f), "share that a group keeps at offset 137: not from 0 to 1");
        let region = "region log: 16384 bytes at offset 606208 are not whole pages between 16384 and 204800";
        assert_eq!(reason(&|page| page[50] = 9), region);
        assert_eq!(reason(&|page| page[20] = 0), format!("slots: 0, not from 1 to {}", u64::MAX));
    }

    #[test]
    fn no_changed_byte_goes_unseen_and_none_panics() {
        let page = layout().page().expect("a page");
        for at in 0..PAGE_BYTES {
            let mut changed = page.clone();
            changed[at] ^= 0x40;
            assert!(!matches!(Regions::read(&changed), FirstPageState::Valid(_)), "byte {at}");
        }
        let mut newer = page.clone();
        newer[8] = 2;
        let crc = crc32c::crc32c(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Regions::read(&newer), FirstPageState::Newer("layout version 2".into()));
        // With a valid checksum, whatever the fields say.
        let mut random = fastrand::Rng::with_seed(5);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut changed = page.clone();
            for _ in 0..random.usize(1..4) {
                changed[random.usize(12..200)] = random.u8(..);
            }
            let crc = crc32c::crc32c(&changed[..CRC_AT]);
            changed[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            match Regions::read(&changed) {
                FirstPageState::Valid(layout) => assert_eq!(layout.contradiction(), None),
                _ => refused += 1,
            }
        }
        assert!(refused > 1_000);
        let mut unknown = page.clone();
        unknown[12] = 4;
        let crc = crc32c::crc32c(&unknown[..CRC_AT]);
        unknown[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Regions::read(&unknown), FirstPageState::Newer("layout features 0x4".into()));
    }
}

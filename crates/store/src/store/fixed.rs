//! Stores of a fixed size: their options, and the layout of their regions.
//!
//! ```text
//!  | first page, twice | superblock | log | checkpoint A | B | recent | slot | slot | … | slot |
//! ```
//! Nothing grows and nothing is cut: segments take slots in turn, and a new one overwrites the oldest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::fixed::FixedDisk;
use crate::disk::layout::{COPIES, Regions};
use crate::disk::names;
use crate::disk::real::RealDisk;
use crate::disk::volume::{FileVolume, MemoryRegion, Volume, allocate, is_device};
use crate::disk::{Disk, PAGE_BYTES};
use crate::log::checkpoint::SLOT_BYTES;
use crate::model::limits::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::model::options::RetentionGroup;
use crate::open::create;
use crate::store::Store;
use crate::upkeep::room::slots_needed;
use crate::{OpenError, StoreOptions};

const PAGE: u64 = PAGE_BYTES as u64;
/// Min bytes of the log: it holds a commit that waits to be sealed, the next one, and room for their streams'
/// definitions.
const LOG_BYTES_MIN: u64 = 4 * PAGE;
/// Max bytes of the log.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Max bytes of the region for the hashes of recently received frames.
const RECENT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a checkpoint for a stream with names of about 60 bytes in all, and for a channel with about 24.
const STREAM_BYTES: u64 = 224;
const CHANNEL_BYTES: u64 = 56;
/// Bytes of a checkpoint for headers and the store's own tables.
const OWN_BYTES: u64 = 2_048;
/// Bytes of a checkpoint for a retention group.
const GROUP_BYTES: u64 = 80;
/// Max slots; each checkpoint grows with their number.
const SLOTS_MAX: u64 = 1 << 20;

/// Options of a store of a fixed size, for [`Store::create_fixed`] or [`Store::in_memory`].
#[derive(Clone, Debug, PartialEq)]
pub struct FixedOptions {
    /// Bytes of the whole store, which never change; 0 on a block device means all of it.
    pub size_bytes: u64,
    /// Max streams, which bounds the checkpoints.
    pub max_streams: u32,
    /// Channels of all streams together for which checkpoints have room, with names and units of about 24 bytes each.
    pub max_channels: u32,
    /// Bytes of a segment, the unit in which the oldest data is overwritten: a power of two from 32 KiB to 64 MiB.
    /// `None` means the one next below a 128th of the size.
    pub segment_bytes: Option<u64>,
    /// Bytes of the commit log, at least 16 KiB; `None` means a sixteenth of the size, at most 64 MiB. A frame takes up
    /// to a quarter of it. Rows of small commits that it cannot hold are sealed early, in smaller blocks.
    pub log_bytes: Option<u64>,
    /// Retention groups, and what each keeps of the space for segments. They are written into the store, for openings
    /// that name none.
    pub groups: Vec<RetentionGroup>,
    /// Whether the content of an existing file or device may be destroyed.
    pub overwrite: bool,
}

impl FixedOptions {
    /// Makes options for a store of this many bytes, with as many streams, of 4 channels each, as a 64th of it has room
    /// for, from 3 to 100,000.
    pub fn new(size_bytes: u64) -> FixedOptions {
        let room = (size_bytes / 64).saturating_sub(OWN_BYTES);
        let streams = (room / (STREAM_BYTES + 4 * CHANNEL_BYTES)).clamp(3, 100_000);
        FixedOptions {
            size_bytes,
            max_streams: streams as u32,
            max_channels: (4 * streams) as u32,
            segment_bytes: None,
            log_bytes: None,
            groups: Vec::new(),
            overwrite: false,
        }
    }

    /// Returns the min size in bytes that works with these limits and groups, and with the sizes that are given.
    ///
    /// # Errors
    /// A message if the options are invalid at any size.
    pub fn least_bytes(&self) -> Result<u64, String> {
        self.check()?;
        let segment = self.segment_bytes.unwrap_or(SEGMENT_BYTES_MIN);
        let mut slots = 0;
        loop {
            let needed = slots_needed(&self.groups, slots, segment);
            if needed > SLOTS_MAX {
                return Err("what the groups keep leaves no size that holds them all".to_owned());
            }
            if needed <= slots {
                break;
            }
            slots = needed;
        }
        let log = self.log_bytes.unwrap_or(LOG_BYTES_MIN);
        Ok(before_checkpoints(log) + 2 * self.checkpoint_bytes(slots) + slots * segment)
    }

    /// Returns the number of segments, and the bytes of each.
    ///
    /// # Errors
    /// A message if the size is too small, with the min that works, or if the options are invalid.
    pub fn segments(&self) -> Result<(u64, u64), String> {
        self.layout(0).map(|layout| (layout.slots.into(), layout.segment_bytes))
    }

    fn check(&self) -> Result<(), String> {
        RetentionGroup::check_all(&self.groups)?;
        if let Some(bytes) = self.segment_bytes
            && !(bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes))
        {
            return Err(format!("segments of {bytes} bytes: a power of two from 32 KiB to 64 MiB is wanted"));
        }
        if let Some(bytes) = self.log_bytes
            && !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&bytes)
        {
            return Err(format!("a log of {bytes} bytes: 16 KiB to 64 MiB are wanted"));
        }
        if self.max_streams == 0 || self.max_channels == 0 {
            return Err("max_streams and max_channels must be above 0".to_owned());
        }
        Ok(())
    }

    /// Returns the bytes of a checkpoint with the max streams, channels and slots.
    fn checkpoint_bytes(&self, slots: u64) -> u64 {
        let streams = u64::from(self.max_streams) * STREAM_BYTES + u64::from(self.max_channels) * CHANNEL_BYTES;
        let bytes = OWN_BYTES + streams + slots * SLOT_BYTES + self.groups.len() as u64 * GROUP_BYTES;
        bytes.next_multiple_of(PAGE)
    }

    /// Returns the layout of the regions, or a message if there is none.
    pub(crate) fn layout(&self, generation: u64) -> Result<Regions, String> {
        let least = self.least_bytes()?;
        let size = self.size_bytes / PAGE * PAGE;
        let too_small = || {
            format!(
                "{} bytes are too small: the log, the checkpoints of {} streams and {} channels, and two segments of \
                 each retention group, more where it keeps more, take {least}",
                self.size_bytes, self.max_streams, self.max_channels
            )
        };
        if size < least {
            return Err(too_small());
        }
        if size > i64::MAX as u64 {
            return Err(format!("{} bytes are more than a store can have", self.size_bytes));
        }
        let wanted = 1 << (size / 128).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).ilog2();
        // Smaller segments, a smaller log and no room for hashes, if nothing else fits.
        let mut segment = self.segment_bytes.unwrap_or(wanted);
        loop {
            for generous in [true, false] {
                let small = |bytes: u64, most: u64| (bytes / PAGE * PAGE).min(most);
                let log = match self.log_bytes {
                    Some(bytes) => bytes / PAGE * PAGE,
                    None if generous => small(size / 16, LOG_BYTES_MAX).max(LOG_BYTES_MIN),
                    None => LOG_BYTES_MIN,
                };
                let recent = if generous && size >= 16 << 20 { small(size / 64, RECENT_BYTES_MAX) } else { 0 };
                if let Some(layout) = self.fitted(size, segment, (log, recent, generous), generation) {
                    return Ok(layout);
                }
            }
            if self.segment_bytes.is_some() || segment == SEGMENT_BYTES_MIN {
                return Err(too_small());
            }
            segment /= 2;
        }
    }

    /// Returns a layout with these sizes, or `None` if they do not hold what must be held.
    fn fitted(
        &self,
        size: u64,
        segment: u64,
        (log, recent, generous): (u64, u64, bool),
        generation: u64,
    ) -> Option<Regions> {
        let checkpoint_offset = before_checkpoints(log);
        let space = size.checked_sub(checkpoint_offset + recent)?;
        // Twice the size, if that is little: room for the changes between two whole checkpoints.
        let checkpoint_of = |slots| {
            let bytes = self.checkpoint_bytes(slots);
            if generous && 4 * bytes <= size / 32 { 2 * bytes } else { bytes }
        };
        let mut slots = (space / segment).min(SLOTS_MAX);
        while slots > 0
            && (2 * checkpoint_of(slots) + slots * segment > space
                || slots_needed(&self.groups, slots, segment) > slots)
        {
            slots -= 1;
        }
        if slots == 0 {
            return None;
        }
        let checkpoint = checkpoint_of(slots);
        let before_slots = checkpoint_offset + 2 * checkpoint + recent;
        Some(Regions {
            slots: slots as u32,
            size_bytes: self.size_bytes,
            segment_bytes: segment,
            superblock_offset: COPIES.len() as u64 * PAGE,
            log_offset: checkpoint_offset - log,
            log_bytes: log,
            checkpoint_offset,
            checkpoint_bytes: checkpoint,
            recent_offset: checkpoint_offset + 2 * checkpoint,
            recent_bytes: recent,
            slots_offset: before_slots,
            generation,
            max_streams: self.max_streams,
            max_channels: self.max_channels,
            groups: self.groups.clone(),
        })
    }
}

/// Returns the bytes of the first pages, superblock and log.
fn before_checkpoints(log: u64) -> u64 {
    COPIES.len() as u64 * PAGE + names::SUPERBLOCK_BYTES + log / PAGE * PAGE
}

/// Returns the disk of a path: a folder, which is created if nothing is there, or a file or block device with a store
/// in it.
pub(crate) fn disk_of(path: &Path) -> Result<Arc<dyn Disk>, OpenError> {
    let fails = |source| OpenError::Io { path: path.display().to_string(), source };
    match std::fs::metadata(path) {
        Ok(about) if !about.is_dir() => Ok(Arc::new(FixedDisk::open(Arc::new(FileVolume::new(path)))?)),
        _ => Ok(Arc::new(RealDisk::new(path).map_err(fails)?)),
    }
}

impl Store {
    /// Creates a store of a fixed size and opens it: one file of exactly that many bytes, allocated at once, or a block
    /// device. It never grows, is never cut, and deletes nothing: the newest segment overwrites the oldest one of a
    /// group that keeps its minimum without it. A power cut during creation leaves no store; create it again.
    ///
    /// [`Store::open`] opens it later, with the limits and groups it was created with; `log_bytes`, `max_bytes` and
    /// `segment_bytes` of `options` are ignored. `now` is nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`OpenError::Options`]: the size is too small, and the message gives the min; the groups are invalid; a file or
    /// device has content that may not be destroyed. Otherwise as [`Store::open`].
    pub fn create_fixed(
        path: &Path,
        fixed: &FixedOptions,
        options: StoreOptions,
        now: i64,
    ) -> Result<Store, OpenError> {
        let name = || path.display().to_string();
        let fails = |source| OpenError::Io { path: name(), source };
        let refused = |reason| OpenError::Options { path: name(), reason };
        if path.exists() && is_device(path).map_err(fails)? {
            let volume = FileVolume::new(path);
            let device_bytes = volume.size().map_err(fails)?;
            let size_bytes = if fixed.size_bytes == 0 { device_bytes } else { fixed.size_bytes };
            if size_bytes > device_bytes {
                return Err(refused(format!("{size_bytes} bytes are wanted, and the device has {device_bytes}")));
            }
            let fixed = FixedOptions { size_bytes, ..fixed.clone() };
            if !fixed.overwrite && !is_blank(&volume).map_err(fails)? {
                return Err(refused(
                    "the device holds something: choose another, or say that it may be destroyed".to_owned(),
                ));
            }
            make(Arc::new(volume), &fixed)?;
        } else {
            // Checked before the first byte of the disk is taken.
            fixed.layout(0).map_err(refused)?;
            if path.exists() && !fixed.overwrite {
                return Err(refused(
                    "it is there already: choose another name, or say that it may be destroyed".into(),
                ));
            }
            // Under another name until it is complete.
            let making = PathBuf::from(format!("{}.making", path.display()));
            let made = allocate(&making, fixed.size_bytes)
                .map_err(fails)
                .and_then(|()| make(Arc::new(FileVolume::new(&making)), fixed))
                .and_then(|()| std::fs::rename(&making, path).map_err(fails));
            if let Err(error) = made {
                // Leftovers are of no use; the caller must see the first error.
                let _ = std::fs::remove_file(&making);
                return Err(error);
            }
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(fails)?;
        }
        Store::open(path, options, now)
    }

    /// Opens the store in a region of memory, or creates one if every byte is 0. Its size is that of the region, not
    /// `fixed.size_bytes`. Committed data lasts as long as the region.
    ///
    /// # Errors
    /// As [`Store::create_fixed`] and [`Store::open`].
    pub fn in_memory(
        region: &MemoryRegion,
        fixed: &FixedOptions,
        options: StoreOptions,
        now: i64,
    ) -> Result<Store, OpenError> {
        if region.is_blank() {
            make(Arc::new(region.clone()), &FixedOptions { size_bytes: region.size_bytes(), ..fixed.clone() })?;
        }
        Store::open_on(Arc::new(FixedDisk::open(Arc::new(region.clone()))?), options, now)
    }
}

/// Creates the store of a volume.
pub(crate) fn make(volume: Arc<dyn Volume>, fixed: &FixedOptions) -> Result<(), OpenError> {
    let path = volume.path();
    let fails = |source| OpenError::Io { path: path.clone(), source };
    let refused = |reason| OpenError::Options { path: path.clone(), reason };
    let lock = volume.lock().map_err(fails)?;
    let Some(_lock) = lock else { return Err(OpenError::InUse { path }) };
    // Random, so that segments that another store left in slots have another one, and low enough never to wrap.
    let generation = (volume.random().map_err(fails)? as u64) >> 1;
    let layout = fixed.layout(generation).map_err(refused)?;
    if layout.page().is_none() {
        return Err(refused("the names and patterns of the groups are too long for the first page".to_owned()));
    }
    let log_bytes = layout.log_bytes;
    let disk = FixedDisk::begin(volume.clone(), layout).map_err(fails)?;
    create::create(&disk, log_bytes)?;
    disk.finish().map_err(fails)
}

/// Returns whether the beginning of a volume is all zeros: it holds neither a store nor anything else.
fn is_blank(volume: &dyn Volume) -> std::io::Result<bool> {
    let mut bytes = vec![0; 128 << 10];
    let read = volume.open(crate::disk::Access::Buffered)?.read_at(&mut bytes, 0)?;
    Ok(bytes[..read].iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::Keep;
    use crate::model::pattern::Pattern;

    fn group(name: &str, keep: Keep) -> RetentionGroup {
        RetentionGroup {
            name: name.into(),
            streams: Some(Pattern::parse(name).expect("a pattern")),
            keep,
            max_age: None,
        }
    }

    /// Every size from the min on has a layout; a smaller one has none, and its error names the min.
    #[test]
    fn the_smallest_size_works_and_one_page_less_does_not() {
        for groups in [
            vec![],
            vec![group("slow", Keep::Share(0.1))],
            vec![group("a", Keep::Share(0.4)), group("b", Keep::Share(0.4))],
            vec![group("a", Keep::Bytes(1 << 20)), group("b", Keep::Share(0.25))],
        ] {
            for (streams, channels) in [(3, 5), (100, 1_000), (10_000, 40_000)] {
                for segment_bytes in [None, Some(64 << 10)] {
                    let mut fixed = FixedOptions {
                        max_streams: streams,
                        max_channels: channels,
                        segment_bytes,
                        groups: groups.clone(),
                        ..FixedOptions::new(0)
                    };
                    let least = fixed.least_bytes().expect("a size");
                    fixed.size_bytes = least - 1;
                    let error = fixed.layout(0).expect_err("too small");
                    assert!(error.contains(&format!("take {least}")), "{error}");
                    for more in [0, 1, 4095, 4096, 100_000, 1 << 20, 10 << 20, 1 << 30, 1 << 36] {
                        fixed.size_bytes = least + more;
                        let layout = fixed.layout(9).unwrap_or_else(|e| panic!("{least} + {more}: {e}"));
                        let page = layout.page().expect("a page");
                        assert_eq!(Regions::read(&page), crate::disk::layout::FirstPageState::Valid(layout.clone()));
                        assert!(layout.log_bytes <= (fixed.size_bytes / 16).max(LOG_BYTES_MIN));
                        let needed = slots_needed(&groups, layout.slots.into(), layout.segment_bytes);
                        assert!(needed <= layout.slots.into());
                        let end = layout.slots_offset + u64::from(layout.slots) * layout.segment_bytes;
                        assert!(end <= fixed.size_bytes && layout.size_bytes == fixed.size_bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn a_small_store_and_a_usual_one() {
        let small = FixedOptions { max_streams: 3, max_channels: 5, ..FixedOptions::new(204_800) };
        assert_eq!(small.least_bytes(), Ok(204_800), "what RealDB's example has");
        let layout = small.layout(0).expect("a layout");
        assert_eq!((layout.slots, layout.segment_bytes, layout.log_bytes), (5, 32 << 10, 16 << 10));
        assert_eq!(FixedOptions::new(204_800).segments(), Ok((5, 32 << 10)));
        let layout = FixedOptions::new(64 << 20).layout(0).expect("a layout");
        assert_eq!((layout.segment_bytes, layout.log_bytes), (512 << 10, 4 << 20));
        assert!(layout.slots >= 110, "{}", layout.slots);
        let large = FixedOptions::new(1 << 40).layout(0).expect("a layout");
        assert_eq!((large.segment_bytes, large.log_bytes), (64 << 20, 64 << 20));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |fixed: FixedOptions| fixed.layout(0).expect_err("refused");
        let new = FixedOptions::new(64 << 20);
        let error = refused(FixedOptions { segment_bytes: Some(100_000), ..new.clone() });
        assert!(error.contains("segments of 100000 bytes"), "{error}");
        let error = refused(FixedOptions { log_bytes: Some(4096), ..new.clone() });
        assert!(error.contains("a log of 4096 bytes"), "{error}");
        let error = refused(FixedOptions { max_streams: 0, ..new.clone() });
        assert!(error.contains("above 0"), "{error}");
        let error = refused(FixedOptions { groups: vec![group("a", Keep::Bytes(64 << 20))], ..new.clone() });
        assert!(error.contains("too small"), "{error}");
        let thirds = vec![group("a", Keep::Share(0.5)), group("b", Keep::Share(0.499))];
        let error = refused(FixedOptions { groups: thirds, ..new });
        assert!(error.contains("keep"), "{error}");
    }
}

//! Stores of a fixed size on real files and devices.

mod kit;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kit::*;
use strongback_store::inspect::{Depth, inspect};
use strongback_store::*;

const SMALL: u64 = 204_800;

fn small() -> FixedOptions {
    FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(SMALL) }
}

fn create(path: &Path, fixed: &FixedOptions) -> Result<Store, OpenError> {
    Store::create_fixed(path, fixed, StoreOptions::default(), T0)
}

fn try_open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, StoreOptions::default(), T0)
}

/// Opens a store that was just dropped. A child that another test starts holds copies of its files until it runs its
/// own program, and the lock with them.
fn open_again(path: &Path) -> Store {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match try_open(path) {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.expect("opened again"),
        }
    }
}

fn stream(store: &Store, name: &str, channels: usize) -> StreamId {
    store.stream(&spec(name, (0..channels).map(|n| (format!("c{n}"), ChannelType::U64))))
}

/// What a cell holds: 8 bytes that no codec makes smaller, and that say where they belong.
fn cell(row: u64, channel: usize) -> u64 {
    (row * 64 + channel as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Appends rows of cells, as many at a time as the log takes.
fn send(store: &Store, stream: StreamId, channels: usize, rows: std::ops::Range<u64>) {
    let (mut at, mut batch) = (rows.start, FrameBatch::new());
    while at < rows.end {
        batch.clear();
        // About as many as the log takes with one commit.
        let most = if channels < 16 { 512 } else { 6_000 };
        for row in at..rows.end.min(at + most) {
            batch.begin(head(stream, T0 + row as i64));
            (0..channels).for_each(|c| batch.push(ChannelIndex(c as u16), Value::U64(cell(row, c))));
            batch.end();
        }
        let outcomes = store.offer(&batch, T0 + at as i64).outcomes;
        at += outcomes.iter().take_while(|o| matches!(o, Outcome::Stored { .. })).count() as u64;
        store.upkeep(T0);
        assert_eq!(store.refusal(), None);
    }
}

/// The rows that are there: without a hole, every cell as it was sent, up to the newest.
fn rows(store: &Store, stream: StreamId, channels: usize) -> std::ops::Range<u64> {
    let (view, mut found) = (store.view(), None::<std::ops::Range<u64>>);
    let columns = (0..channels as u16).map(ChannelIndex).collect();
    for batch in view.scan(Scan::all(stream, columns)) {
        let batch = batch.expect("reads");
        for i in 0..batch.len() {
            let row = batch.rows[i];
            for (c, column) in batch.columns.iter().enumerate() {
                assert_eq!(column.cell(i), Ok(Value::U64(cell(row, c))), "row {row}");
            }
            assert!(found.as_ref().is_none_or(|f| f.end == row), "row {row} after {found:?}");
            found = Some(found.map_or(row, |f| f.start)..row + 1);
        }
    }
    let next = view.next_row(stream);
    let found = found.unwrap_or(next..next);
    assert_eq!(found.end, next);
    found
}

fn size_of(path: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(path).expect("a file");
    (about.len(), about.blocks() * 512)
}

/// Feeds a file a multiple of its size in bytes that cannot be made smaller, and looks at it on the way.
fn goes_round(size_bytes: u64, channels: usize, times: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.sbf");
    let fixed = FixedOptions { max_streams: 3, max_channels: 4 * channels as u32, ..FixedOptions::new(size_bytes) };
    let mut store = create(&path, &fixed).expect("a new store");
    let (slots, slot_bytes) = fixed.segments().expect("slots");
    let (s, kept) = (stream(&store, "busy", channels), stream(&store, "quiet", 1));
    send(&store, kept, 1, 0..10);
    let allocated = size_of(&path);
    assert!(allocated.0 == size_bytes && allocated.1 >= size_bytes / 4096 * 4096, "{allocated:?}");
    let (mut next, mut first, end) = (0, 0, size_bytes * times / (8 * channels as u64));
    let mut laps = 0;
    while next < end {
        let to = end.min(next + (end / 6).max(1));
        send(&store, s, channels, next..to);
        next = to;
        laps += 1;
        if laps % 2 == 0 {
            // A cut: everything that was acknowledged is there.
            drop(store);
            store = open_again(&path);
            assert!(!store.recovery().clean && store.recovery().torn_bytes == 0);
        }
        let present = rows(&store, s, channels);
        assert!(present.start >= first && present.end == next);
        first = present.start;
        let now = size_of(&path);
        assert!(now.0 == size_bytes && now.1 >= allocated.1, "neither longer nor shorter, nor with holes: {now:?}");
        let ids: Vec<u64> = store.segments().iter().map(|s| s.id).collect();
        assert!(ids.len() as u64 <= slots && ids.windows(2).all(|w| w[1] == w[0] + 1), "{ids:?}");
    }
    let bytes = (next - first) * 8 * channels as u64;
    println!(
        "{size_bytes} bytes: {slots} slots of {slot_bytes}, {bytes} of data kept, {} written",
        store.stats().written_bytes
    );
    assert!(bytes * 100 > size_bytes * if size_bytes > 1 << 20 { 50 } else { 20 }, "{bytes} of {size_bytes}");
    store.close(T0).expect("closed");
    let found = inspect(&path, Depth::Everything).expect("inspected");
    assert_eq!(found.damage, []);
    let fixed_use = found.fixed.as_ref().expect("a fixed size");
    // From 16 slots on one is kept for settle.
    let taken = if slots >= 16 { slots - 1 } else { slots };
    assert_eq!((fixed_use.size_bytes, fixed_use.slots, fixed_use.taken), (size_bytes, slots, taken));
    let counted: u64 = found.streams.values().filter(|s| s.name == "busy").map(|s| s.rows).sum();
    assert!(counted <= next - first && counted * 10 > (next - first) * 8, "{counted} of {}", next - first);
    assert!(found.to_string().contains("slots of"), "{found}");
    // What the close sealed may have needed a slot.
    let present = rows(&open_again(&path), s, channels);
    assert!(
        present.end == next && (present.start - first) * 8 * (channels as u64) <= slot_bytes,
        "{present:?}, {first}"
    );
}

#[test]
fn two_hundred_kilobytes_fed_many_times_their_size() {
    // Each commit is a sync: a few rounds here, a hundred of them in memory.
    goes_round(SMALL, 2, if std::env::var_os("FIXED_FULL").is_some() { 100 } else { 4 });
}

#[test]
fn sixty_four_megabytes_fed_more_than_their_size() {
    goes_round(64 << 20, 16, if std::env::var_os("FIXED_FULL").is_some() { 100 } else { 2 });
}

/// A small store that is closed, with a few rows.
fn closed(folder: &Path) -> (PathBuf, StreamId) {
    let path = folder.join("store");
    let store = create(&path, &small()).expect("a new store");
    let s = stream(&store, "t", 2);
    send(&store, s, 2, 0..3_000);
    store.close(T0).expect("closed");
    (path, s)
}

#[test]
fn a_file_that_cannot_be_its_store_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, s) = closed(folder.path());
    let error = create(&path, &small()).err().expect("there already").to_string();
    assert!(error.contains("there already"), "{error}");

    let store = try_open(&path).expect("opened");
    let error = try_open(&path).err().expect("in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let origin = store.origin();
    store.close(T0).expect("closed");

    // A copy has another inode.
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).expect("copied");
    let error = try_open(&copy).err().expect("a copy");
    assert!(matches!(error, OpenError::Copied { origin: o, .. } if o == origin), "{error}");
    let adopted = Store::adopt(&copy).expect("adopted");
    let store = try_open(&copy).expect("a store of its own");
    assert!(store.origin() == adopted && adopted != origin);
    send(&store, s, 2, 3_000..12_000);
    assert_eq!(rows(&store, s, 2).end, 12_000);
    drop(store);
    assert_eq!(rows(&try_open(&copy).expect("opened"), s, 2).end, 12_000);

    // One damaged first page is survived, told by `verify`, and mended by the next opening.
    let good = std::fs::read(&path).expect("read");
    let with = |changed: &[u8]| {
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        file.write_all_at(changed, 0).expect("written");
        file.set_len(changed.len() as u64).expect("cut");
    };
    for copy in [0, 4096] {
        let mut damaged = good.clone();
        damaged[copy + 40] ^= 1;
        with(&damaged);
        let found = inspect(&path, Depth::Footers).expect("inspected");
        assert!(found.damage.iter().any(|d| d.offset == copy as u64 && d.file == "first page"), "{found}");
        let store = try_open(&path).expect("the other copy");
        assert_eq!(rows(&store, s, 2).end, 3_000);
        store.close(T0).expect("closed");
        let mended = std::fs::read(&path).expect("read");
        assert!(mended[..8192] == good[..8192], "the copy at {copy}");
        assert!(inspect(&path, Depth::Footers).expect("inspected").damage.is_empty());
    }
    with(&good);
    let damaged = |offset: usize| {
        let mut bytes = good.clone();
        bytes[40] ^= 1;
        bytes[4096 + offset] ^= 1;
        with(&bytes);
        try_open(&path).err().expect("both copies are damaged")
    };
    let error = damaged(40);
    let text = error.to_string();
    assert!(matches!(error, OpenError::Damaged { .. }) && text.contains("neither copy of its first page"), "{text}");
    let crc = "first page: checksum 0x";
    assert!(text.contains(&format!("offset 0: {crc}")) && text.contains(&format!("offset 4096: {crc}")), "{text}");
    assert!(inspect(&path, Depth::Footers).is_err());

    // A newer version, by number and by feature.
    let with_checksum = |change: &dyn Fn(&mut [u8])| {
        let mut newer = good.clone();
        for page in newer[..8192].chunks_mut(4096) {
            change(page);
            let crc = crc32c::crc32c(&page[..4092]);
            page[4092..].copy_from_slice(&crc.to_le_bytes());
        }
        newer
    };
    with(&with_checksum(&|page| page[8] = 9));
    let error = try_open(&path).err().expect("newer");
    assert!(matches!(&error, OpenError::Newer { found, .. } if found.contains('9')), "{error}");
    // A version that flipped is not one: the other copy counts.
    let mut flipped = good.clone();
    flipped[8] = 9;
    with(&flipped);
    assert!(try_open(&path).is_ok());
    let newer = with_checksum(&|page| page[12] = 0x80);
    with(&newer);
    let error = try_open(&path).err().expect("newer");
    assert!(matches!(&error, OpenError::Newer { found, .. } if found.contains("0x80")), "{error}");

    // Cut short: by a byte, by half, to nothing.
    for len in [SMALL - 1, SMALL / 2, 4096, 100, 0] {
        with(&good[..len as usize]);
        let error = try_open(&path).err().expect("cut short");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        let text = error.to_string();
        let made_with = len >= 4096;
        assert_eq!(text.contains(&format!("made with {SMALL} bytes, and only {len} are there")), made_with, "{text}");
    }
    with(&good);
    assert_eq!(rows(&try_open(&path).expect("as before"), s, 2).end, 3_000);
    // Something else is not taken for one, nor written to.
    std::fs::write(&copy, b"a letter").expect("written");
    let error = try_open(&copy).err().expect("no store").to_string();
    assert!(error.contains("not a store of a fixed size"), "{error}");
    assert_eq!(std::fs::read(&copy).expect("read"), b"a letter");
    // With leave it is.
    let store = create(&copy, &FixedOptions { overwrite: true, ..small() }).expect("made in its place");
    store.close(T0).expect("closed");
}

#[test]
fn sizes_that_do_not_work_are_refused_before_a_byte_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let least = small().least_bytes().expect("a size");
    let error = create(&path, &FixedOptions { size_bytes: least - 1, ..small() }).err().expect("too small");
    assert!(matches!(error, OpenError::Options { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("too small") && text.contains(&least.to_string()), "{text}");
    assert!(!path.exists());
    let error = create(&folder.path().join("no/such/folder"), &small()).err().expect("no folder");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    // More than the disk has is not half made.
    let error = create(&path, &FixedOptions::new(1 << 46)).err().expect("too large");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn damage_in_a_slot_is_named_and_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, s) = closed(folder.path());
    let store = try_open(&path).expect("opened");
    send(&store, s, 2, 3_000..20_000);
    let whole = rows(&store, s, 2);
    store.close(T0).expect("closed");
    assert!(inspect(&path, Depth::Everything).expect("inspected").is_sound());
    // The second page of the first slot: a write group.
    let slots = SMALL - 5 * (32 << 10);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, slots + 4096 + 500).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], slots + 4096 + 500).expect("written");
    let found = inspect(&path, Depth::Everything).expect("inspected");
    assert!(!found.is_sound() && found.damage.iter().all(|d| d.file.starts_with("segment-")), "{found}");
    let store = try_open(&path).expect("opened");
    let scanned: Vec<_> = store.view().scan(Scan::all(s, vec![ChannelIndex(0)])).collect();
    let read: u64 = scanned.iter().flatten().map(|b| b.len() as u64).sum();
    assert!(read < whole.end - whole.start && read * 2 > whole.end - whole.start);
    assert!(scanned.iter().any(|b| matches!(b, Err(ScanError::Damaged { .. }))) || store.recovery().lost_rows > 0);
}

/// A loop device over a file; none where this machine has none to give.
struct LoopDevice {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    fn new(size_bytes: u64) -> Option<LoopDevice> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("backing");
        std::fs::File::create(&file).and_then(|f| f.set_len(size_bytes)).expect("a file");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match made {
            Ok(out) if out.status.success() => {
                let path = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
                Some(LoopDevice { path, _folder: folder })
            }
            other => {
                eprintln!("no loop device here, so none is tested: {other:?}");
                None
            }
        }
    }

    /// Sets its size; what a smaller one cut off is there again in a larger one, as on a device that was not all given out.
    fn resize(&self, size_bytes: u64) {
        let (file, whole) = (self._folder.path().join("backing"), self._folder.path().join("whole"));
        if !whole.exists() {
            std::fs::copy(&file, &whole).expect("kept");
        }
        let bytes = std::fs::read(&whole).expect("what was there");
        let part = &bytes[..bytes.len().min(size_bytes as usize)];
        OpenOptions::new().write(true).open(&file).and_then(|f| f.set_len(size_bytes)).expect("resized");
        OpenOptions::new().write(true).open(&file).and_then(|f| f.write_all_at(part, 0)).expect("as it was");
        let done = Command::new("losetup").arg("--set-capacity").arg(&self.path).status().expect("losetup");
        assert!(done.success());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A leftover device must not hide why the test failed.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

#[test]
fn a_block_device_is_a_store() {
    let Some(device) = LoopDevice::new(1 << 20) else { return };
    let path = &device.path;
    let error = create(path, &FixedOptions::new(2 << 20)).err().expect("too large").to_string();
    assert!(error.contains("the device has 1048576"), "{error}");
    // All of it.
    let store = create(path, &FixedOptions { size_bytes: 0, ..FixedOptions::new(1 << 20) }).expect("a new store");
    let s = stream(&store, "t", 4);
    assert!(matches!(try_open(path), Err(OpenError::InUse { .. })));
    send(&store, s, 4, 0..200_000);
    let kept = rows(&store, s, 4);
    assert!(kept.start > 0 && store.stats().disk_bytes == 1 << 20);
    drop(store);
    let store = try_open(path).expect("opened after a cut");
    assert_eq!(rows(&store, s, 4), kept);
    store.close(T0).expect("closed");
    let found = inspect(path, Depth::Everything).expect("inspected");
    assert!(found.is_sound(), "{found}");
    let error = create(path, &FixedOptions::new(0)).err().expect("it holds a store").to_string();
    assert!(error.contains("holds something"), "{error}");
    device.resize(900 << 10);
    let error = try_open(path).err().expect("smaller than before").to_string();
    assert!(error.contains("made with 1048576 bytes, and only 921600 are there"), "{error}");
    device.resize(1 << 20);
    let store = try_open(path).expect("as before");
    // What was in the log became a block at the close, for which the oldest segment may have gone.
    let left = rows(&store, s, 4);
    assert!(
        left.start >= kept.start && left.start - kept.start < 1_500 && left.end == kept.end,
        "{left:?} of {kept:?}"
    );
    store.close(T0).expect("closed");
    // Another in its place: of the first nothing is left.
    let fixed = FixedOptions { size_bytes: 0, overwrite: true, ..FixedOptions::new(1 << 20) };
    let store = create(path, &fixed).expect("a new store");
    assert_eq!((store.catalog().streams.len(), store.segments().len()), (0, 0));
    let s = stream(&store, "other", 4);
    send(&store, s, 4, 0..30_000);
    drop(store);
    assert_eq!(rows(&try_open(path).expect("opened"), s, 4).end, 30_000);
}

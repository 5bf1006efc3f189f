//! Repair of a store with an unreadable page.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::source::Source;
use super::*;
use crate::disk::unreadable::ReadBy;
use crate::disk::{DiskFile, PAGE_BYTES};
use crate::repair::overlay::ReadFiles;
use crate::tests::kit::*;
use crate::{ChannelType, FrameBatch};

const ROWS: u64 = 30_000;

/// Folder with an unreadable page in one of its files.
struct BadPage {
    folder: ReadFolder,
    file: String,
    page: u64,
}

impl ReadFiles for BadPage {
    fn path(&self) -> String {
        self.folder.path()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.folder.lock()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.folder.open(name)?;
        if name != self.file {
            return Ok(file);
        }
        let page = self.page..self.page + PAGE_BYTES as u64;
        let read = move |file: &dyn DiskFile, buffer: &mut [u8], offset: u64| {
            if offset < page.end && offset + buffer.len() as u64 > page.start {
                return Err(io::Error::from_raw_os_error(5));
            }
            file.read_at(buffer, offset)
        };
        Ok(Arc::new(ReadBy { file, read }))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.folder.list()
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        self.folder.space()
    }
}

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 1 << 20, segment_bytes: 256 << 10, settle: false, ..StoreOptions::default() }
}

fn fill(path: &Path) {
    let store = Store::open(path, options(), T0).expect("made");
    let stream = store.stream(&spec("t", [("x", ChannelType::F64)]));
    let mut random = fastrand::Rng::with_seed(7);
    for first in (0..ROWS).step_by(500) {
        let mut batch = FrameBatch::new();
        for row in first..first + 500 {
            let receive_time = T0 + row as i64 * 1_000_000;
            batch.put(head(stream, receive_time), [Value::F64(random.f64())]);
        }
        store.append(&batch, T0);
        store.upkeep(T0);
    }
    store.close(T0).expect("closed");
}

#[test]
fn a_page_that_cannot_be_read_costs_what_is_in_it() {
    let from = tempfile::tempdir().expect("a folder");
    fill(from.path());
    let folder = || ReadFolder(from.path().to_owned());
    for (file, bytes) in folder().list().expect("files") {
        for page in (0..bytes / PAGE_BYTES as u64).filter(|page| *page < 4 || page % 7 == 3) {
            let case = format!("{file}, page {page}");
            let bad = BadPage { folder: folder(), file: file.clone(), page: page * PAGE_BYTES as u64 };
            let into = tempfile::tempdir().expect("a folder");
            let target: Arc<dyn Disk> = Arc::new(RealDisk::new(into.path()).expect("a folder"));
            let built = build::build(&Source::of(Arc::new(bad)), &target, true);
            let (report, _) = built.unwrap_or_else(|error| panic!("{case}: {error}"));
            let is_told = report.damage.iter().any(|d| d.file == file && d.reason.starts_with("cannot be read"));
            let store = Store::open_on(target, options(), T0).unwrap_or_else(|error| panic!("{case}: {error}"));
            let rows: usize = store
                .view()
                .scan(Scan::all(StreamId(0), vec![ChannelIndex(0)]))
                .map(|batch| batch.unwrap_or_else(|error| panic!("{case}: {error}")).len())
                .sum();
            let least = if file.starts_with("segment-") { ROWS - 4_096 } else { ROWS };
            assert!(rows as u64 >= least, "{case}: {rows} rows are left");
            assert!(is_told || rows as u64 == ROWS, "{case}: {rows} rows are left, and {:?}", report.damage);
        }
    }
}

//! Values that look like parts of the log: what is in a record never decides what recovery does.

use fastrand::Rng;

use crate::disk::fault::FaultDisk;
use crate::disk::{Access, Disk, read_exact};
use crate::log::{LogPosition, UnitHeader};
use crate::tests::kit::*;
use crate::*;

const RING: u64 = 1 << 20;
const PAGE: usize = 4096;

fn options() -> StoreOptions {
    StoreOptions { open_bytes: 0, ..sized(RING, 4 << 20) }
}

/// Where the newest unit of the log ends.
fn end_of_log(disk: &FaultDisk) -> LogPosition {
    let file = disk.open("log", Access::Log).expect("a log");
    let bytes = read_exact(&*file, 0, RING as usize).expect("reads");
    let headers = bytes.chunks(PAGE).filter_map(UnitHeader::decode);
    let headers = headers.filter(|header| header.position < LogPosition::new(1 << 40));
    headers.map(|header| header.link().position).max().unwrap_or_default()
}

/// A header of a far later lap whose bytes are all ASCII; some places have none.
fn forge(position: LogPosition, commit: u64) -> Option<[u8; 64]> {
    (0..20_000u64).find_map(|n| {
        let previous = n & 0x7f | (n >> 7 & 0x7f) << 8 | (n >> 14 & 0x7f) << 16;
        let header = UnitHeader { epoch: 1, commit, position, previous, len: 8, flags: 0, instant: 0, crc: 0 };
        Some(header.encode()).filter(|bytes| bytes.is_ascii())
    })
}

#[test]
fn texts_like_headers_of_the_log_do_not_keep_a_store_shut() {
    for seed in 0..6 {
        let mut random = Rng::with_seed(seed);
        let disk = FaultDisk::new(seed);
        let store = open(&disk, options());
        let spec = spec("chat", [("text", ChannelType::String)]);
        let (s, columns) = store.resolve(&spec, T0).expect("resolved");
        store.commit(T0).expect("committed");
        let (mut forged, mut sent) = (0, Vec::new());
        let mut send = |text: Vec<u8>, upkeep: bool| {
            let text = String::from_utf8(text).expect("ASCII");
            let mut batch = FrameBatch::new();
            batch.put_at(head(s.id, T0), [(columns[0], Value::String(&text))]);
            assert!(matches!(store.append(&batch, T0).outcomes[0], Outcome::Stored { .. }));
            store.commit(T0).expect("committed");
            while upkeep && store.maintain(T0).expect("maintained") {}
            sent.push(text);
        };
        for _ in 0..12 {
            let end = end_of_log(&disk);
            let mut text = vec![b'x'; 180_000];
            for page in 1..44u64 {
                let at = page as usize * PAGE - 112;
                let offset = (end + page * PAGE as u64).offset(RING);
                let lap = LogPosition::new(offset + RING * (1 << random.u64(17..21)));
                // The first can be no commit of any lap, the other one could.
                let commit = random.choice([0x7f00_0000, 0x7f_0000]).unwrap_or(0);
                if let Some(header) = forge(lap, commit) {
                    text[at..at + 64].copy_from_slice(&header);
                    forged += 1;
                }
            }
            send(text, true);
        }
        for _ in 0..random.usize(0..3) {
            send(b"hello".to_vec(), random.bool());
        }
        assert!(forged > 100, "{forged}");
        drop(store);
        let store = disk.after_cut().open_store(options(), T0).expect("opened");
        let report = store.recovery();
        assert!(report.damaged.is_empty() && report.lost_rows == 0, "{report:?}");
        let view = store.view();
        let scan = view.scan(Scan::all(s.id, columns.clone()));
        let texts = scan.flat_map(|batch| {
            let batch = batch.expect("reads");
            let text = |row| match batch.columns[0].cell(row) {
                Ok(Value::String(text)) => text.to_owned(),
                other => panic!("{other:?}"),
            };
            (0..batch.len()).map(text).collect::<Vec<_>>()
        });
        assert!(texts.eq(sent), "seed {seed}");
    }
}

//! Seals: the rows of a stream leave memory in their order, whatever else is sealed with them.

use std::sync::atomic::Ordering;

use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

/// Memory is always short, so that few rows go into mixed blocks.
fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(64 << 20),
        open_bytes: 0,
        settle: false,
        ..StoreOptions::default()
    }
}

fn of_clock(clock: Clock) -> StreamSpec {
    spec("t", [("x", ChannelType::F64)]).clock(clock)
}

/// Appends few rows, too few for a block of their own, and many, which another clock puts into another block. Returns
/// the next row, or `None` if the power is cut.
fn few_and_many(store: &Store, from: u64) -> Option<u64> {
    let mut row = from;
    for (clock, rows) in [(Clock::Receive, 5), (Clock::Source, 300)] {
        let (stream, columns) = store.resolve(&of_clock(clock), T0).ok()?;
        let mut batch = FrameBatch::new();
        for _ in 0..rows {
            let at = T0 + row as i64;
            let value = f64::from_bits(row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
            batch.put_at(head(stream.id, at).sampled(Some(at)), [(columns[0], Value::F64(value))]);
            row += 1;
        }
        store.append(&batch, T0);
    }
    Some(row)
}

fn rows_of(store: &Store) -> Vec<u64> {
    let (stream, columns) = store.resolve(&of_clock(Clock::Source), T0).expect("resolved");
    let batches = store.view().scan(Scan::all(stream.id, columns));
    batches.flat_map(|batch| batch.expect("read").rows).collect()
}

#[test]
fn few_rows_before_many_are_sealed_before_them() {
    let mut cuts = 0;
    for cut in 20..200 {
        let mut disk = FaultDisk::new(cut);
        let mut durable = 0;
        {
            let store = open(&disk, options());
            disk.faults.writes_left.store(cut, Ordering::Relaxed);
            let mut next = 0;
            for _ in 0..30 {
                let Some(appended) = few_and_many(&store, next) else { break };
                next = appended;
                if store.commit(T0).is_err() {
                    break;
                }
                durable = next;
                while store.maintain(T0).is_ok_and(|more| more) {}
                if !disk.is_cut() {
                    assert_eq!(rows_of(&store), (0..next).collect::<Vec<_>>(), "cut at write {cut}");
                }
            }
            if cut % 2 == 0 {
                drop(store.close(T0));
            }
        }
        if disk.is_cut() {
            cuts += 1;
            disk = disk.after_cut();
        }
        disk.faults.writes_left.store(u64::MAX, Ordering::Relaxed);
        let store = open(&disk, options());
        let rows = rows_of(&store);
        assert!(rows.len() as u64 >= durable, "cut at write {cut}: {} of {durable} rows", rows.len());
        assert_eq!(rows, (0..rows.len() as u64).collect::<Vec<_>>(), "cut at write {cut}");
    }
    assert!(cuts > 50, "{cuts} cuts");
}

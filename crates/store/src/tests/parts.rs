//! Few columns of a wide block are read without the others.

use fastrand::Rng;

use super::pyramid::counted;
use crate::disk::fault::FaultDisk;
use crate::segment::directory::file_name;
use crate::tests::kit::*;
use crate::*;

const CHANNELS: usize = 60;
const ROWS: usize = 2_000;

fn options() -> StoreOptions {
    StoreOptions { log_bytes: 4 << 20, max_bytes: Some(1 << 30), ..StoreOptions::default() }
}

/// A sealed store of one stream; each channel is of another kind, has holes, or is there in some frames only.
fn wide(disk: &FaultDisk) -> (Store, StreamId) {
    let store = open(disk, options());
    let kinds = [ChannelType::F32, ChannelType::F64, ChannelType::I16, ChannelType::String, ChannelType::Bool];
    let channels = (0..CHANNELS).map(|c| (format!("c{c}"), kinds[c % kinds.len()]));
    let id = store.stream(&spec("wide", channels).clock(Clock::Source).modulus(Some(1 << 32)));
    let (mut random, mut batch) = (Rng::with_seed(3), FrameBatch::new());
    for row in 0..ROWS as i64 {
        let receive_time = T0 + row * 40_000_000;
        let source_time = Some(receive_time - random.i64(0..9_000_000));
        batch.begin(head(id, receive_time).sampled(source_time).numbered(Some(row as u64)));
        for c in 0..CHANNELS {
            let index = ChannelIndex(c as u16);
            match (c % 7, random.u8(0..20)) {
                (3, 0..10) => {}
                (4, 0) => batch.push_state(index, CellState::Unknown),
                _ => match kinds[c % kinds.len()] {
                    ChannelType::F32 => batch.push(index, Value::F32(random.u16(0..4096) as f32 * 0.25)),
                    ChannelType::F64 => batch.push(index, Value::F64(random.f64())),
                    ChannelType::I16 => batch.push(index, Value::I16(random.i16(-500..500))),
                    ChannelType::String => batch.push(index, Value::String(["on", "off", "?"][random.usize(..3)])),
                    _ => batch.push(index, Value::Bool(random.bool())),
                },
            }
        }
        batch.end();
    }
    store.append(&batch, T0);
    store.close(T0).expect("closed");
    (open(disk, options()), id)
}

fn scan(store: &Store, id: StreamId, columns: &[usize]) -> Result<Vec<Batch>, ScanError> {
    let columns = columns.iter().map(|c| ChannelIndex(*c as u16)).collect();
    store.view().scan(Scan::all(id, columns)).collect()
}

#[test]
fn few_columns_read_few_bytes_and_the_same_cells() {
    let disk = FaultDisk::new(1);
    let (store, id) = wide(&disk);
    let all: Vec<usize> = (0..CHANNELS).collect();
    let (whole, (whole_reads, whole_bytes)) = counted(&disk, || scan(&store, id, &all).expect("reads"));
    assert_eq!(whole.iter().map(Batch::len).sum::<usize>(), ROWS);
    for columns in [vec![0], vec![59], vec![17, 3], vec![8, 9, 10], vec![], vec![4, 30, 31, 55]] {
        let (found, (reads, bytes)) = counted(&disk, || scan(&store, id, &columns).expect("reads"));
        println!("{columns:?}: {bytes} of {whole_bytes} bytes, {reads} of {whole_reads} reads");
        assert!(bytes * 3 < whole_bytes && reads <= whole_reads * (2 + columns.len() as u64), "{columns:?}");
        assert_eq!(found.len(), whole.len());
        for (few, batch) in found.iter().zip(&whole) {
            assert_eq!((&few.rows, &few.receive_time), (&batch.rows, &batch.receive_time));
            assert_eq!((&few.source_time, &few.sequence), (&batch.source_time, &batch.sequence));
            for (found, column) in few.columns.iter().zip(&columns) {
                for row in 0..few.len() {
                    let wanted = format!("{:?}", batch.columns[*column].cell(row));
                    assert_eq!(format!("{:?}", found.cell(row)), wanted, "channel {column}, row {row}");
                }
            }
        }
    }
    // Statistics without the columns.
    let reduce = || store.view().reduce(id, ChannelIndex(1), i64::MIN..i64::MAX, 1).expect("reduced");
    let (_, (_, bytes)) = counted(&disk, reduce);
    assert!(bytes * 3 < whole_bytes, "{bytes} of {whole_bytes} bytes");
}

/// A bit that flips concerns the columns that it is in, the front of the block, or nothing but a reader of all.
#[test]
fn a_damaged_column_hides_no_other() {
    let disk = FaultDisk::new(2);
    let (store, id) = wide(&disk);
    let expected = |column: usize| format!("{:?}", scan(&store, id, &[column]).expect("reads"));
    let columns = [5, 21];
    let expected = columns.map(expected);
    let all: Vec<usize> = (0..CHANNELS).collect();
    let segment = store.segments().into_iter().find(|s| s.group == "data").expect("one");
    let (name, mut random) = (file_name(segment.id), Rng::with_seed(2));
    let (mut told, mut read) = (0, 0);
    for _ in 0..300 {
        // Of the first block.
        let (at, bit) = (4_096 + 40 + random.usize(..20_000), 1 << random.u8(0..8));
        disk.rot(&name, at, bit);
        assert!(matches!(scan(&store, id, &all), Err(ScanError::Damaged { .. })), "offset {at}");
        for (column, expected) in columns.iter().zip(&expected) {
            match scan(&store, id, &[*column]) {
                Ok(found) => {
                    assert_eq!(format!("{found:?}"), *expected, "offset {at}, channel {column}");
                    read += 1;
                }
                Err(ScanError::Damaged { file, offset, .. }) => {
                    assert!(file.ends_with(&name) && offset <= at as u64, "{file} {offset}: {at}");
                    told += 1;
                }
                Err(other) => panic!("offset {at}: {other}"),
            }
        }
        disk.rot(&name, at, bit);
    }
    println!("{told} told, {read} not concerned");
    assert!(told > 20 && read > 300, "{told} told, {read} read");
}

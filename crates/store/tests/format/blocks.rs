use proptest::prelude::*;
use strongback_store::block::{self, Block, BlockMeta, Encoder};
use strongback_store::codec::{CodecMemory, Effort};
use strongback_store::*;

use crate::series::{all, batches, layout, said};

pub(crate) fn meta(effort: Effort) -> BlockMeta<'static> {
    BlockMeta {
        origin: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        epoch: 3,
        stored: (1_700_000_000_000_000_000, 1_700_000_001_000_000_000),
        overlaps_previous: false,
        gaps: &[],
        max_future_ns: i64::MAX,
        effort,
    }
}

pub(crate) fn encode(layout: &Layout, batch: &Batch, effort: Effort) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new().encode(&meta(effort), batch, layout, &mut CodecMemory::new(), &mut out).expect("a block");
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_went_in_comes_out(((layout, batch), settle) in (batches(), any::<bool>())) {
        let effort = if settle { Effort::Settle } else { Effort::Seal };
        let bytes = encode(&layout, &batch, effort);
        prop_assert_eq!(bytes.len() % 8, 0);
        let header = block::read_header(&bytes).unwrap();
        prop_assert_eq!((header.length_bytes, header.rows, header.first_row), (bytes.len(), batch.len(), batch.rows[0]));
        let times = batch.times();
        prop_assert_eq!(header.time, (*times.iter().min().unwrap(), *times.iter().max().unwrap()));
        prop_assert_eq!(header.time_sorted, times.is_sorted());
        let got = block::decode(&bytes, &layout, &all(&layout)).unwrap();
        prop_assert_eq!(said(&got), said(&batch));
        // One column alone, without the others.
        for channel in all(&layout) {
            let one = block::decode(&bytes, &layout, &[channel]).unwrap();
            for row in 0..batch.len() {
                let (a, b) = (one.columns[0].cell(row), batch.columns[channel.0 as usize].cell(row));
                prop_assert_eq!(a.map(|v| (v.bits(), format!("{v:?}"))), b.map(|v| (v.bits(), format!("{v:?}"))));
            }
        }
    }

    #[test]
    fn statistics_are_those_of_a_naive_model((layout, batch) in batches()) {
        let bytes = encode(&layout, &batch, Effort::Seal);
        let Some(all) = Block::read(&bytes).unwrap().statistics().unwrap() else {
            prop_assert!(batch.len() < 64);
            return Ok(());
        };
        for (column, got) in batch.columns.iter().zip(all) {
            let cells: Vec<_> = (0..batch.len()).map(|row| (row, column.cell(row))).collect();
            let count = |state| cells.iter().filter(|(_, c)| *c == Err(state)).count() as u64;
            prop_assert_eq!(got.rows, batch.len() as u64);
            prop_assert_eq!(got.absent, count(CellState::Absent));
            prop_assert_eq!(got.unchanged, count(CellState::Unchanged));
            prop_assert_eq!(got.unknowns, count(CellState::Unknown));
            if !column.values.channel_type().is_scalar() {
                continue;
            }
            let values: Vec<(usize, f64)> = cells.iter().filter_map(|(r, c)| Some((*r, c.as_ref().ok()?.as_f64()?))).collect();
            let at = |row: usize| Some((batch.time(row), column.values.value(row).bits()));
            let said = |s: Option<codec::stats::Sample>| s.map(|s| (s.time, s.value.bits()));
            prop_assert_eq!(said(got.first), values.first().and_then(|(r, _)| at(*r)));
            prop_assert_eq!(said(got.last), values.last().and_then(|(r, _)| at(*r)));
            prop_assert_eq!(got.nans, values.iter().filter(|(_, v)| v.is_nan()).count() as u64);
            prop_assert_eq!(got.infinities, values.iter().filter(|(_, v)| v.is_infinite()).count() as u64);
            let numbers: Vec<_> = values.iter().filter(|(_, v)| !v.is_nan()).collect();
            let least = numbers.iter().map(|(_, v)| *v).fold(f64::INFINITY, f64::min);
            let most = numbers.iter().map(|(_, v)| *v).fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(got.min.and_then(|s| s.value.as_f64()), (!numbers.is_empty()).then_some(least));
            prop_assert_eq!(got.max.and_then(|s| s.value.as_f64()), (!numbers.is_empty()).then_some(most));
        }
    }

    #[test]
    fn damage_is_refused_and_never_a_panic(((layout, batch), seed) in (batches(), any::<u64>())) {
        let bytes = encode(&layout, &batch, Effort::Settle);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..30 {
            let at = random.usize(..bytes.len());
            prop_assert!(block::decode(&bytes[..at], &layout, &all(&layout)).is_err());
            let mut bad = bytes.clone();
            bad[at] ^= 1 << random.u8(..8);
            prop_assert!(block::decode(&bad, &layout, &all(&layout)).is_err(), "flip at {}", at);
            // The same with checksums that hold: whoever wrote it, no panic and no wrong length.
            if at >= block::HEADER_BYTES {
                block::forge_checksums(&mut bad);
                if let Ok(got) = block::decode(&bad, &layout, &all(&layout)) {
                    prop_assert_eq!(got.len(), batch.len());
                }
                let _ = Block::read(&bad).and_then(|b| b.statistics());
            }
        }
    }
}

#[test]
fn a_layout_that_grew_and_widened_reads_old_blocks() {
    let old = layout(&[ChannelType::I16, ChannelType::F32]);
    let batch = Batch {
        stream: StreamId(1),
        rows: vec![5, 6],
        receive_time: vec![1, 2],
        source_time: None,
        sequence: None,
        session: None,
        source_clock: false,
        columns: vec![
            Column { values: ColumnValues::I16(vec![-3, i16::MAX]), states: None },
            Column { values: ColumnValues::F32(vec![0.1, f32::MIN_POSITIVE]), states: None },
        ],
    };
    let bytes = encode(&old, &batch, Effort::Seal);
    let new = layout(&[ChannelType::I64, ChannelType::F64, ChannelType::String, ChannelType::U8]);
    let got = block::decode(&bytes, &new, &[3, 0, 1, 2].map(ChannelIndex)).unwrap();
    assert_eq!(got.columns[1].values, ColumnValues::I64(vec![-3, i64::from(i16::MAX)]));
    assert_eq!(got.columns[2].values, ColumnValues::F64(vec![f64::from(0.1f32), f64::from(f32::MIN_POSITIVE)]));
    for (column, kind) in [(0, ChannelType::U8), (3, ChannelType::String)] {
        assert_eq!(got.columns[column].values.channel_type(), kind);
        assert_eq!(got.columns[column].cell(1), Err(CellState::Absent));
    }
    assert!(block::decode(&bytes, &new, &[ChannelIndex(9)]).is_err());
    let narrowed = layout(&[ChannelType::I8, ChannelType::F32]);
    assert!(block::decode(&bytes, &narrowed, &[ChannelIndex(0)]).is_err());
}

#[test]
fn equal_times_cost_nothing_and_what_contradicts_is_refused() {
    let layout = layout(&[]);
    let times: Vec<i64> = (0..1_024).map(|i| 1_700_000_000_000_000_000 + i * 1_000_000 + i * 7_919 % 50_000).collect();
    let mut batch = Batch {
        stream: StreamId(1),
        rows: (0..1_024).collect(),
        receive_time: times.clone(),
        source_time: None,
        sequence: None,
        session: None,
        source_clock: true,
        columns: vec![],
    };
    let alone = encode(&layout, &batch, Effort::Seal).len();
    batch.source_time = Some(OptionalTimes { values: times, valid: None });
    assert_eq!(encode(&layout, &batch, Effort::Seal).len(), alone);

    let mut out = vec![1, 2, 3];
    let mut refuse = |batch: &Batch| {
        let got = Encoder::new().encode(&meta(Effort::Seal), batch, &layout, &mut CodecMemory::new(), &mut out);
        assert!(got.is_err());
        assert_eq!(out, [1, 2, 3]);
    };
    let mut holed = batch.clone();
    holed.rows[3] = 9;
    refuse(&holed);
    let mut short = batch.clone();
    short.receive_time.pop();
    refuse(&short);
    let mut empty = batch.clone();
    empty.rows.clear();
    refuse(&empty);
}

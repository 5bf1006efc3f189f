//! Totals of pieces of time: statistics say what the rows say.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use fastrand::Rng;

use super::pyramid::fed;
use crate::disk::fault::FaultDisk;
use crate::tests::kit::*;
use crate::*;

/// What a naive reader finds in a piece of a channel.
#[derive(Clone, Debug, Default)]
struct Naive {
    values: u64,
    nans: u64,
    min: Option<f64>,
    max: Option<f64>,
    sum: f64,
}

fn request(stream: StreamId, time: Range<i64>, columns: &[ChannelIndex], pieces: Option<EqualPieces>) -> TotalsRequest {
    TotalsRequest { stream, time, columns: columns.to_vec(), conditions: Vec::new(), pieces, by_statistics: true }
}

/// Totals, and the rows that were decoded for them.
fn totals(view: &View, request: TotalsRequest) -> (Vec<(i128, PieceTotals)>, u64) {
    let mut reader = view.totals(request);
    while reader.step().expect("reads") {}
    let decoded = reader.decoded_rows();
    (reader.finish().collect(), decoded)
}

/// Rows of each piece, and what is in them.
fn naive(view: &View, request: &TotalsRequest) -> BTreeMap<i128, (u64, Vec<Naive>)> {
    let mut found: BTreeMap<i128, (u64, Vec<Naive>)> = BTreeMap::new();
    let mut columns = request.columns.clone();
    columns.extend(request.conditions.iter().map(|condition| condition.channel));
    let scan = Scan { time: request.time.clone(), ..Scan::all(request.stream, columns) };
    for batch in view.scan(scan) {
        let batch = batch.expect("reads");
        for row in 0..batch.len() {
            let time = batch.time(row);
            let holds = |of: &Condition| {
                let column = &batch.columns[request.columns.len()..]
                    [request.conditions.iter().position(|condition| condition == of).expect("its own")];
                let Some(number) = column.cell(row).ok().and_then(|value| value.as_f64()) else { return false };
                let above = match of.low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => number.is_nan() || number >= low.as_f64().expect("a number"),
                    Bound::Excluded(low) => number.is_nan() || number > low.as_f64().expect("a number"),
                };
                let below = match of.high {
                    Bound::Unbounded => true,
                    Bound::Included(high) => number <= high.as_f64().expect("a number"),
                    Bound::Excluded(high) => number < high.as_f64().expect("a number"),
                };
                above && below
            };
            if !request.time.contains(&time) || !request.conditions.iter().all(holds) {
                continue;
            }
            let piece = request
                .pieces
                .map_or(0, |grid| (i128::from(time) - i128::from(grid.origin)).div_euclid(i128::from(grid.width_ns)));
            let (rows, columns) =
                found.entry(piece).or_insert_with(|| (0, vec![Naive::default(); request.columns.len()]));
            *rows += 1;
            for (naive, column) in columns.iter_mut().zip(&batch.columns) {
                let Ok(value) = column.cell(row) else { continue };
                naive.values += 1;
                let Some(number) = value.as_f64().filter(|_| !matches!(value, Value::Bool(_))) else { continue };
                if number.is_nan() {
                    naive.nans += 1;
                    continue;
                }
                naive.min = Some(naive.min.map_or(number, |least| least.min(number)));
                naive.max = Some(naive.max.map_or(number, |most| most.max(number)));
                naive.sum += number;
            }
        }
    }
    found
}

fn compare(view: &View, request: TotalsRequest, what: &str) -> u64 {
    let expected = naive(view, &request);
    let (by_rows, _) = totals(view, TotalsRequest { by_statistics: false, ..request.clone() });
    let (found, decoded) = totals(view, request);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (((piece, totals), (same, of_rows)), (expected_piece, (rows, columns))) in
        found.iter().zip(&by_rows).zip(&expected)
    {
        assert_eq!((piece, same, totals.rows, of_rows.rows), (expected_piece, expected_piece, *rows, *rows), "{what}");
        for (at, ((by_statistics, by_rows), naive)) in
            totals.columns.iter().zip(&of_rows.columns).zip(columns).enumerate()
        {
            for found in [by_statistics, by_rows] {
                let what = format!("{what}, piece {piece}, column {at}: {found:?}, {naive:?}");
                assert_eq!((found.values, found.nans), (naive.values, naive.nans), "{what}");
                let number = |value: Option<Value<'static>>| value.and_then(|value| value.as_f64());
                assert_eq!((number(found.min), number(found.max)), (naive.min, naive.max), "{what}");
                let (sum, wanted) = (found.float_sum(), if naive.nans > 0 { f64::NAN } else { naive.sum });
                let near = (sum - wanted).abs() <= 1e-9 * (1.0 + wanted.abs());
                assert!(near || sum == wanted || sum.is_nan() && wanted.is_nan(), "{what}: {sum}, not {wanted}");
            }
            assert_eq!(by_statistics.integer_sum(), by_rows.integer_sum(), "{what}, column {at}");
        }
    }
    decoded
}

/// A condition that few, many or all cells fulfil, in a channel of floats, integers that were widened, or sparse ones.
fn condition(random: &mut Rng) -> Condition {
    let channel = random.u16(0..4);
    let bound = |random: &mut Rng| {
        let value = match channel {
            0 => Value::F64(random.f64() * 4.0 - 1.5),
            1 => Value::F64(f64::from(random.i32(-7..7))),
            2 => Value::I64(random.i64(-120..120)),
            _ => Value::I64(random.i64(-1 << 31..1 << 33)),
        };
        match random.u8(0..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(value),
            _ => Bound::Excluded(value),
        }
    };
    Condition { channel: ChannelIndex(channel), low: bound(random), high: bound(random) }
}

#[test]
fn totals_by_statistics_are_those_of_the_rows() {
    for (seed, late) in [(1, false), (2, true), (3, true)] {
        let disk = FaultDisk::new(seed);
        let (store, id, mut now) = fed(&disk, seed, late);
        let mut random = Rng::with_seed(seed);
        let view = store.view();
        let (first, last) = view.time_range(id).expect("rows");
        let columns = [0, 1, 2, 3, 4, 8, 30].map(ChannelIndex);
        let compare_all = |view: &View, random: &mut Rng, what: &str| {
            for lap in 0..40 {
                let (a, b) = (random.i64(first - 9..last + 9), random.i64(first - 9..last + 9));
                let time = if lap % 4 == 0 { i64::MIN..i64::MAX } else { a.min(b)..a.max(b) + 1 };
                let width_ns = random.u64(1..=last.abs_diff(first)) / [1, 7, 200][random.usize(..3)] + 1;
                let grid = EqualPieces { origin: random.i64(-9..first), width_ns };
                let grid = (lap % 3 > 0).then_some(grid);
                let columns = &columns[random.usize(..columns.len())..];
                let conditions: Vec<Condition> = (0..random.usize(0..3)).map(|_| condition(random)).collect();
                let what = format!("{what}, {time:?}, {grid:?}, {conditions:?}");
                compare(view, TotalsRequest { conditions, ..request(id, time, columns, grid) }, &what);
            }
        };
        compare_all(&view, &mut random, "sealed");
        // Statistics suffice for all that is in one piece.
        let sealed = request(id, i64::MIN..i64::MAX, &columns[..1], None);
        assert_eq!(compare(&view, sealed.clone(), "as a whole"), 0, "rows decoded");
        for low in [Value::F64(-2.0), Value::F64(2.0)] {
            let conditions =
                vec![Condition { channel: ChannelIndex(0), low: Bound::Excluded(low), high: Bound::Unbounded }];
            let filtered = TotalsRequest { conditions, ..sealed.clone() };
            assert_eq!(compare(&view, filtered, "filtered"), 0, "rows decoded");
        }
        store.settle(now).expect("settled");
        compare_all(&store.view(), &mut random, "settled");
        // Rows that are not in segments.
        let mut batch = FrameBatch::new();
        for n in 0..200 {
            now += 1_000;
            batch.put(head(id, now), [Value::F64(f64::from(n))]);
        }
        assert!(store.append(&batch, now).outcomes.iter().all(is_stored));
        compare_all(&store.view(), &mut random, "with open rows");
    }
}

#[test]
fn sums_are_exact_at_the_ends_of_what_a_channel_holds() {
    let disk = FaultDisk::new(1);
    let store = open(&disk, StoreOptions { open_bytes: 1, ..StoreOptions::default() });
    let channels = [("least", ChannelType::I64), ("most", ChannelType::U64), ("wide", ChannelType::F64)];
    let id = store.stream(&spec("t", channels));
    let mut batch = FrameBatch::new();
    for n in 0..600 {
        let wide = if n % 2 == 0 { f64::MAX } else { -f64::MAX };
        batch.put(head(id, T0 + n), [Value::I64(i64::MIN), Value::U64(u64::MAX), Value::F64(wide)]);
    }
    assert!(store.append(&batch, T0).outcomes.iter().all(is_stored));
    store.upkeep(T0 + 600);
    let columns = [0, 1, 2].map(ChannelIndex);
    for by_statistics in [true, false] {
        let all = TotalsRequest { by_statistics, ..request(id, i64::MIN..i64::MAX, &columns, None) };
        let (found, _) = totals(&store.view(), all);
        let [(0, piece)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(piece.columns[0].integer_sum(), 600 * i128::from(i64::MIN));
        assert_eq!(piece.columns[1].integer_sum(), 600 * i128::from(u64::MAX));
        assert_eq!(piece.columns[1].max.and_then(|max| max.as_f64()), Some(u64::MAX as f64));
        assert_eq!(piece.columns[2].float_sum(), 0.0);
    }
}

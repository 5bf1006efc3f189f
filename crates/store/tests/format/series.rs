//! Batches to encode: generated, comparable bit by bit.

use proptest::prelude::*;
use strongback_store::*;

/// A layout whose channels have these types.
pub(crate) fn layout(types: &[ChannelType]) -> Layout {
    let channels = types
        .iter()
        .enumerate()
        .map(|(i, t)| Channel {
            id: ChannelId(i as u32),
            name: format!("c{i}"),
            source_name: format!("c{i}"),
            channel_type: *t,
            unit: String::new(),
            description: String::new(),
            interpolation: if t.is_float() { Interpolation::Linear } else { Interpolation::Hold },
            reduction: Reduction::None,
        })
        .collect();
    Layout { version: 1, channels }
}

/// All channels of a layout.
pub(crate) fn all(layout: &Layout) -> Vec<ChannelIndex> {
    (0..layout.channels.len() as u16).map(ChannelIndex).collect()
}

/// Everything that a batch says, values by bit pattern, cells that are no value without one.
pub(crate) fn said(batch: &Batch) -> Vec<String> {
    (0..batch.len())
        .map(|row| {
            let cells: Vec<String> = batch
                .columns
                .iter()
                .map(|c| match c.cell(row) {
                    Ok(Value::String(text)) => format!("{text:?}"),
                    Ok(Value::Array(array)) => format!("{array:?}"),
                    Ok(Value::Blob(blob)) => format!("{blob:?}"),
                    Ok(value) => format!("{}:{:x}", value.channel_type().name(), value.bits()),
                    Err(state) => format!("{state:?}"),
                })
                .collect();
            format!(
                "{} {} {:?} {:?} {:?} {} {cells:?}",
                batch.rows[row],
                batch.receive_time[row],
                batch.source_time.as_ref().map(|t| t.get(row)),
                batch.sequence.as_ref().map(|t| t.get(row)),
                batch.session.as_ref().map(|s| s[row]),
                batch.source_clock,
            )
        })
        .collect()
}

fn integers(rows: usize) -> impl Strategy<Value = Vec<i64>> {
    let random = proptest::collection::vec(any::<i64>(), rows);
    let small = (any::<i64>(), 1i64..5_000, 1i64..2_000).prop_flat_map(move |(base, range, step)| {
        proptest::collection::vec(0..range, rows)
            .prop_map(move |v| v.into_iter().map(|x| base.wrapping_add(x * step)).collect())
    });
    let ramp = (any::<i64>(), -1_000_000i64..1_000_000)
        .prop_map(move |(base, step)| (0..rows as i64).map(|i| base.wrapping_add(step.wrapping_mul(i))).collect());
    let runs = (1usize..90, any::<u64>()).prop_map(move |(dwell, seed)| {
        (0..rows).map(|i| (seed.rotate_left((i / dwell % 64) as u32) % 7) as i64).collect()
    });
    let outliers =
        proptest::collection::vec(prop_oneof![40 => 0i64..100, 1 => any::<i64>(), 1 => 0i64..1_000_000_000], rows);
    prop_oneof![random, small, ramp, runs, outliers]
}

fn floats(rows: usize) -> impl Strategy<Value = Vec<f64>> {
    let odd = prop_oneof![
        Just(f64::NAN),
        Just(f64::from_bits(0x7ff8_dead_beef_0001)),
        Just(f64::from_bits(0xfff0_0000_0000_0001)),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
        Just(0.0),
        Just(f64::from_bits(1)),
        Just(f64::MAX),
        Just(1e-310),
    ];
    let random = proptest::collection::vec(any::<u64>().prop_map(f64::from_bits), rows);
    let odd = proptest::collection::vec(odd, rows);
    let quantised = (
        prop_oneof![Just(0.0), -1e3..1e3, Just(-200.0)],
        prop_oneof![Just(0.1), Just(0.0625), Just(0.0076), 1e-6..1.0, Just(1e-7)],
        1i64..100_000,
    )
        .prop_flat_map(move |(offset, lsb, range)| {
            proptest::collection::vec(0..range, rows)
                .prop_map(move |v| v.into_iter().map(|k| offset + k as f64 * lsb).collect::<Vec<_>>())
        });
    let decimal = (1i64..1_000_000, 0i32..6).prop_flat_map(move |(range, digits)| {
        proptest::collection::vec(-range..range, rows)
            .prop_map(move |v| v.into_iter().map(|k| k as f64 / 10f64.powi(digits)).collect::<Vec<_>>())
    });
    let mixed = proptest::collection::vec(
        prop_oneof![30 => (0i64..4_096).prop_map(|k| k as f64 * 0.5), 1 => Just(f64::NAN), 1 => Just(-0.0)],
        rows,
    );
    prop_oneof![random, odd, quantised, decimal, mixed]
}

/// Values of a type for this many rows.
pub(crate) fn values(kind: ChannelType, rows: usize) -> BoxedStrategy<ColumnValues> {
    macro_rules! cast {
        ($variant:ident, $type:ty) => {
            integers(rows).prop_map(|v| ColumnValues::$variant(v.into_iter().map(|v| v as $type).collect())).boxed()
        };
    }
    match kind {
        ChannelType::Bool => {
            integers(rows).prop_map(|v| ColumnValues::Bool(v.into_iter().map(|v| v % 3 == 0).collect())).boxed()
        }
        ChannelType::I8 => cast!(I8, i8),
        ChannelType::I16 => cast!(I16, i16),
        ChannelType::I32 => cast!(I32, i32),
        ChannelType::I64 => cast!(I64, i64),
        ChannelType::U8 => cast!(U8, u8),
        ChannelType::U16 => cast!(U16, u16),
        ChannelType::U32 => cast!(U32, u32),
        ChannelType::U64 => cast!(U64, u64),
        ChannelType::F32 => prop_oneof![
            proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), rows).prop_map(ColumnValues::F32),
            floats(rows).prop_map(|v| ColumnValues::F32(v.into_iter().map(|v| v as f32).collect())),
        ]
        .boxed(),
        ChannelType::F64 => floats(rows).prop_map(ColumnValues::F64).boxed(),
        ChannelType::String => {
            let text = prop_oneof![3 => "[a-c]{0,2}", 1 => "\\PC{0,12}"];
            proptest::collection::vec(text, rows)
                .prop_map(|texts| {
                    let (mut offsets, mut bytes) = (vec![0], Vec::new());
                    for text in texts {
                        bytes.extend_from_slice(text.as_bytes());
                        offsets.push(bytes.len() as u32);
                    }
                    ColumnValues::String { offsets, bytes }
                })
                .boxed()
        }
        ChannelType::Blob => proptest::collection::vec(any::<[u8; 16]>(), rows)
            .prop_map(|references| {
                let mut values = ColumnValues::empty(ChannelType::Blob);
                let ColumnValues::Array { offsets, bytes, .. } = &mut values else { unreachable!("references") };
                for reference in references {
                    bytes.extend(reference);
                    offsets.push(bytes.len() as u32);
                }
                values
            })
            .boxed(),
        ChannelType::Array(array) => {
            let size = array.element().size_bytes();
            let length = array.length();
            let lengths = proptest::collection::vec(prop_oneof![0usize..5, 0usize..40], rows)
                .prop_map(move |lengths| lengths.into_iter().map(|n| length.unwrap_or(n)).collect::<Vec<_>>());
            // A pool of elements of all kinds of series, from which each array takes its own.
            (lengths, values(array.element().channel_type(), 300), 0usize..300)
                .prop_map(move |(lengths, pool, step)| {
                    let (mut offsets, mut bytes, mut at) = (vec![0], Vec::new(), 0);
                    for n in lengths {
                        for _ in 0..n {
                            bytes.extend_from_slice(&pool.value(at % 300).bits().to_le_bytes()[..size]);
                            at += 1;
                        }
                        at += step;
                        offsets.push(bytes.len() as u32);
                    }
                    ColumnValues::Array { kind: array, offsets, bytes }
                })
                .boxed()
        }
    }
}

/// Single values, references to blobs, and arrays of both kinds.
fn kinds() -> Vec<ChannelType> {
    let fixed = [1, 7, 16].into_iter().zip([ElementType::F64, ElementType::I16, ElementType::F32]);
    let fixed = fixed.filter_map(|(length, element)| ArrayType::fixed(element, length));
    let variable = ElementType::ALL.into_iter().step_by(2).map(ArrayType::variable);
    let arrays = fixed.chain(variable).map(ChannelType::Array);
    ChannelType::ALL.into_iter().chain([ChannelType::Blob]).chain(arrays).collect()
}

fn states(rows: usize) -> impl Strategy<Value = Option<Vec<CellState>>> {
    let state = prop_oneof![
        8 => Just(CellState::Value),
        1 => Just(CellState::Absent),
        1 => Just(CellState::Unchanged),
        1 => Just(CellState::Unknown),
    ];
    prop_oneof![
        2 => Just(None),
        1 => proptest::collection::vec(state, rows).prop_map(Some),
        1 => Just(Some(vec![CellState::Absent; rows])),
        1 => (0..=rows).prop_map(move |n| {
            Some((0..rows).map(|i| if i < n { CellState::Absent } else { CellState::Value }).collect())
        }),
    ]
}

fn optional(rows: usize) -> impl Strategy<Value = Option<OptionalTimes>> {
    prop_oneof![
        1 => Just(None),
        2 => integers(rows).prop_map(|values| Some(OptionalTimes { values, valid: None })),
        1 => (integers(rows), proptest::collection::vec(any::<bool>(), rows))
            .prop_map(|(values, valid)| Some(OptionalTimes { values, valid: Some(valid) })),
    ]
}

/// How source_time relates to receive_time.
#[derive(Clone, Debug)]
enum Source {
    Own(Option<OptionalTimes>),
    Equal,
    Delayed(Vec<i64>, Option<Vec<bool>>),
}

/// Any batch that the encoder takes, and its layout.
pub(crate) fn batches() -> impl Strategy<Value = (Layout, Batch)> {
    let types = proptest::collection::vec(proptest::sample::select(kinds()), 0..6);
    let rows = prop_oneof![1usize..8, 50usize..80, 1_020usize..1_030, 1usize..2_100];
    (types, rows, 0u64..=u64::MAX - 3_000).prop_flat_map(|(types, rows, first)| {
        let columns: Vec<_> = types
            .iter()
            .map(|t| (values(*t, rows), states(rows)).prop_map(|(values, states)| Column { values, states }))
            .collect();
        let source = prop_oneof![
            optional(rows).prop_map(Source::Own),
            Just(Source::Equal),
            (
                proptest::collection::vec(0i64..5_000_000, rows),
                proptest::option::of(proptest::collection::vec(any::<bool>(), rows))
            )
                .prop_map(|(d, v)| Source::Delayed(d, v)),
        ];
        let session = proptest::option::of((0u32..4, any::<u32>()));
        (columns, integers(rows), source, optional(rows), session, any::<bool>()).prop_map(
            move |(columns, receive_time, source, sequence, session, source_clock)| {
                let source_time = match source {
                    Source::Own(times) => times,
                    Source::Equal => Some(OptionalTimes { values: receive_time.clone(), valid: None }),
                    Source::Delayed(delays, valid) => Some(OptionalTimes {
                        values: receive_time.iter().zip(delays).map(|(r, d)| r.wrapping_sub(d)).collect(),
                        valid,
                    }),
                };
                let batch = Batch {
                    stream: StreamId(7),
                    rows: (first..first + rows as u64).collect(),
                    receive_time,
                    source_time,
                    sequence,
                    session: session.map(|(every, base)| {
                        (0..rows as u32).map(|i| base.wrapping_add(i.checked_div(every).unwrap_or(0))).collect()
                    }),
                    source_clock,
                    columns,
                };
                (layout(&types), batch)
            },
        )
    })
}

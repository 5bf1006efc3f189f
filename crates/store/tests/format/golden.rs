//! The golden segment: made once by `make_the_golden_segment`, read ever after by this crate and by a second
//! implementation in Python.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use strongback_store::block::mixed::{self, MixedBlock, MixedPart};
use strongback_store::block::{self, Block, BlockHeader, BlockMeta, Encoder};
use strongback_store::codec::stats::{ColumnStatistics, Sample, Sum};
use strongback_store::codec::{Codec, CodecMemory, Effort};
use strongback_store::model::limits::PAGE_BYTES;
use strongback_store::segment::{self, Builder, Footer, GroupHeader, SegmentHeader};
use strongback_store::*;

const START: i64 = 1_763_600_000_000_000_000;

pub(super) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

pub(super) fn said(value: Value<'_>) -> Json {
    match value {
        Value::Bool(v) => json!(v.to_string()),
        Value::String(v) => json!(v),
        Value::F32(v) => json!(format!("{:#x}", v.to_bits())),
        Value::F64(v) => json!(format!("{:#x}", v.to_bits())),
        Value::I8(v) => json!(v.to_string()),
        Value::I16(v) => json!(v.to_string()),
        Value::I32(v) => json!(v.to_string()),
        Value::I64(v) => json!(v.to_string()),
        Value::Array(array) => array.iter().map(said).collect(),
        Value::Blob(blob) => {
            json!(format!("{}:{}:{}:{:08x}", blob.segment(), blob.offset(), blob.length_bytes(), blob.crc()))
        }
        unsigned => json!(unsigned.bits().to_string()),
    }
}

fn frames(header: &BlockHeader, batch: &Batch, codecs: &[&str], statistics: Json) -> Json {
    let nullable =
        |times: &OptionalTimes| (0..batch.len()).map(|r| times.get(r).map(|v| v.to_string())).collect::<Vec<_>>();
    let columns: Vec<Json> = batch
        .columns
        .iter()
        .zip(codecs)
        .map(|(column, codec)| {
            let cells: Vec<Json> =
                (0..batch.len()).map(|row| column.cell(row).map_or_else(|state| json!(state as u8), said)).collect();
            json!({ "type": column.values.channel_type().name(), "codec": codec, "cells": cells })
        })
        .collect();
    let flags = [header.time_sorted, header.overlaps_previous, header.source_clock, header.gap_before, header.mixed];
    json!({
        "flags": flags.iter().enumerate().map(|(i, set)| u32::from(*set) << i).sum::<u32>(),
        "origin": header.origin.to_string(),
        "epoch": header.epoch,
        "stream": header.stream.0,
        "layout_version": header.layout_version,
        "rows": header.rows,
        "first_row": header.first_row.to_string(),
        "time": [header.time.0.to_string(), header.time.1.to_string()],
        "stored": [header.stored.0.to_string(), header.stored.1.to_string()],
        "statistics": statistics,
        "receive_time": batch.receive_time.iter().map(|t| t.to_string()).collect::<Vec<_>>(),
        "source_time": batch.source_time.as_ref().map(nullable),
        "sequence": batch.sequence.as_ref().map(nullable),
        "session": batch.session,
        "columns": columns,
    })
}

fn statistics(all: &[ColumnStatistics]) -> Json {
    let sample = |s: &Option<Sample>| s.map(|s| json!([said(s.value), s.time.to_string()]));
    let of = |s: &ColumnStatistics| {
        json!({
            "absent": s.absent, "unchanged": s.unchanged, "unknowns": s.unknowns,
            "nans": s.nans, "infinities": s.infinities,
            "first": sample(&s.first), "last": sample(&s.last), "min": sample(&s.min), "max": sample(&s.max),
            "sum": s.sum.map(|sum| match sum {
                Sum::Integer(v) => v.to_string(),
                Sum::Float(v) => format!("{:#x}", v.to_bits()),
            }),
            "integral": s.integral.map(|i| json!([format!("{:#x}", i.value_ns.to_bits()), i.known_ns.to_string()])),
        })
    };
    Json::Array(all.iter().map(of).collect())
}

/// Everything that a sealed segment says.
fn describe(image: &[u8]) -> Json {
    let header = SegmentHeader::read(image).unwrap();
    let trailer = segment::read_trailer(&image[image.len() - PAGE_BYTES..]).unwrap();
    let footer: Footer = segment::read_footer(&image[trailer.footer_offset as usize..], &trailer).unwrap();
    let mut at = PAGE_BYTES;
    while at < trailer.footer_offset as usize {
        let group = GroupHeader::read(&image[at..]).unwrap();
        assert_eq!(block::headers(group.body(&image[at..]).unwrap()).filter(|b| b.is_ok()).count(), group.blocks);
        at += group.padded_bytes();
    }
    let blocks: Vec<Json> = footer
        .entries
        .iter()
        .map(|entry| {
            let bytes = &image[entry.offset as usize..entry.offset as usize + entry.length_bytes];
            let layout = &footer.stream(entry.header.stream).unwrap().layout;
            let all: Vec<ChannelIndex> = (0..layout.channels.len() as u16).map(ChannelIndex).collect();
            match entry.part {
                Some(part) => {
                    let mixed = MixedBlock::read(bytes).unwrap();
                    let batch = mixed.decode(part as usize, layout, &all).unwrap();
                    frames(&entry.header, &batch, &vec!["row"; all.len()], Json::Null)
                }
                None => {
                    let block = Block::read(bytes).unwrap();
                    assert_eq!(block.header(), &entry.header);
                    let codecs: Vec<&str> = block.columns().iter().map(|c| c.codec.name()).collect();
                    let known = block.statistics().unwrap().map_or(Json::Null, |all| statistics(&all));
                    frames(&entry.header, &block.decode(layout, &all).unwrap(), &codecs, known)
                }
            }
        })
        .collect();
    let streams: Vec<Json> = footer
        .streams
        .iter()
        .map(|s| {
            let channels: Vec<Json> = s
                .layout
                .channels
                .iter()
                .map(|c| {
                    json!({
                        "id": c.id.0, "type": c.channel_type.name(), "name": c.name, "source_name": c.source_name,
                        "interpolation": if c.interpolation == Interpolation::Hold { "hold" } else { "linear" },
                        "unit": c.unit, "description": c.description,
                    })
                })
                .collect();
            json!({
                "id": s.id.0, "table": s.key.table, "source": s.source,
                "tags": s.key.tags.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                "clock": if s.clock == Clock::Receive { "receive" } else { "source" },
                "expected_period_ns": s.expected_period_ns.map(|p| p.to_string()),
                "sequence_modulus": s.sequence_modulus.map(|m| m.to_string()),
                "layout_version": s.layout.version, "channels": channels,
            })
        })
        .collect();
    json!({
        "origin": header.origin.to_string(), "id": header.id, "generation": header.generation,
        "size_bytes": header.size_bytes, "created": header.created.to_string(), "group": header.group,
        "streams": streams, "blocks": blocks,
    })
}

fn stream(id: u32, table: &str, channels: &[(&str, ChannelType, &str)]) -> Arc<Stream> {
    let channels = channels
        .iter()
        .enumerate()
        .map(|(i, (name, kind, unit))| Channel {
            id: ChannelId(id * 100 + i as u32),
            name: (*name).into(),
            source_name: if *name == "time_field" { "time".into() } else { (*name).into() },
            channel_type: *kind,
            unit: (*unit).into(),
            description: if i == 0 { "the first channel".into() } else { String::new() },
            interpolation: if kind.is_float() { Interpolation::Linear } else { Interpolation::Hold },
            reduction: Reduction::None,
        })
        .collect();
    Arc::new(Stream {
        id: StreamId(id),
        key: StreamKey::new(table, [("acu".into(), id.to_string()), ("ort".into(), "Süd".into())]),
        source: "golden".into(),
        clock: if id == 1 { Clock::Source } else { Clock::Receive },
        expected_period_ns: (id == 1).then_some(1_000_000),
        sequence_modulus: (id == 1).then_some(1 << 32),
        layout: Arc::new(Layout { version: id + 4, channels }),
    })
}

fn text(values: impl Iterator<Item = String>) -> ColumnValues {
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for value in values {
        bytes.extend_from_slice(value.as_bytes());
        offsets.push(bytes.len() as u32);
    }
    ColumnValues::String { offsets, bytes }
}

fn whole(values: ColumnValues) -> Column {
    Column { values, states: None }
}

/// 1,100 rows: one packed chunk and a tail, every codec, every width of word, every state.
fn wide() -> (Arc<Stream>, Batch) {
    use ChannelType as T;
    let rows = 1_100usize;
    let mut random = fastrand::Rng::with_seed(2026);
    let codes: Vec<f64> = (0..rows).map(|i| (2_000 + i / 10 + random.usize(..9)) as f64).collect();
    let receive: Vec<i64> = (0..rows as i64).map(|i| START + i * 1_000_000 + random.i64(0..50_000)).collect();
    let states: Vec<CellState> =
        (0..rows).map(|i| CellState::from_code(if i % 50 < 40 { 0 } else { (i % 4) as u8 }).unwrap()).collect();
    let mut odd: Vec<f64> = codes.iter().map(|c| c * 0.5).collect();
    for (row, bits) in [(5, 0x7ff8_0000_dead_beef), (6, 0xfff0_0000_0000_0000), (7, 1u64 << 63), (8, 1)] {
        odd[row] = f64::from_bits(bits);
    }
    let columns = vec![
        whole(ColumnValues::F32(codes.iter().map(|c| (c * 0.061_035_156_25 - 3.5) as f32).collect())),
        whole(ColumnValues::F64(codes.iter().map(|c| c / 10.0).collect())),
        whole(ColumnValues::F64(codes.iter().map(|c| if *c == 2_050.0 { -0.0 } else { c * 0.003_7 }).collect())),
        Column { values: ColumnValues::F64(codes.iter().map(|c| c * 0.25).collect()), states: Some(states) },
        whole(ColumnValues::F64(odd)),
        whole(ColumnValues::F32(vec![f32::MIN_POSITIVE; rows])),
        whole(ColumnValues::Bool((0..rows).map(|i| i / 90 % 2 == 0).collect())),
        whole(ColumnValues::I8((0..rows).map(|i| (i % 251) as u8 as i8).collect())),
        whole(ColumnValues::U8((0..rows).map(|_| random.u8(..)).collect())),
        whole(ColumnValues::U16((0..rows).map(|i| if i == 600 { u16::MAX } else { random.u16(..40) }).collect())),
        whole(ColumnValues::I16((0..rows).map(|_| random.i16(-3_000..3_000)).collect())),
        whole(ColumnValues::I32((0..rows).map(|_| random.i32(-500_000..500_000)).collect())),
        whole(ColumnValues::U32((0..rows as u32).map(|i| u32::MAX - 7 * i).collect())),
        whole(ColumnValues::I64((0..rows).map(|_| random.i64(-(1 << 39)..1 << 39)).map(|v| v * 3).collect())),
        whole(ColumnValues::U64((0..rows as u64).map(|i| if i % 2 == 0 { u64::MAX } else { (1 << 53) + 1 }).collect())),
        whole(text((0..rows).map(|i| ["IDLE", "FILL", "PRÊT"][i / 70 % 3].into()))),
        whole(text((0..rows).map(|i| format!("{i}: {}", random.u16(..))))),
    ];
    let names = [
        ("p_lox", T::F32, "bar"),
        ("t_lox", T::F64, "°C"),
        ("corrected", T::F64, ""),
        ("states", T::F64, ""),
        ("odd", T::F64, ""),
        ("constant", T::F32, ""),
        ("valve", T::Bool, ""),
        ("i8", T::I8, ""),
        ("u8", T::U8, ""),
        ("patched", T::U16, ""),
        ("i16", T::I16, ""),
        ("i32", T::I32, ""),
        ("counter", T::U32, ""),
        ("i64", T::I64, ""),
        ("u64", T::U64, ""),
        ("state", T::String, ""),
        ("time_field", T::String, ""),
    ];
    let batch = Batch {
        stream: StreamId(1),
        rows: (1 << 40..(1 << 40) + rows as u64).collect(),
        source_time: Some(OptionalTimes {
            values: (0..rows as i64).map(|i| START - 250_000 + i * 1_000_000).collect(),
            valid: None,
        }),
        receive_time: receive,
        sequence: Some(OptionalTimes { values: (0..rows as i64).map(|i| (1 << 32) - 500 + i).collect(), valid: None }),
        session: Some((0..rows as u32).map(|i| 1 + i / 800).collect()),
        source_clock: true,
        columns,
    };
    (stream(1, "golden.wide", &names), batch)
}

/// 20 rows: no statistics, nulls in the times, times that fall.
fn small(id: u32, seed: u64) -> (Arc<Stream>, Batch) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rows = 20usize;
    let receive: Vec<i64> = (0..rows as i64).map(|i| START + i % 7 * 40_000_000 + random.i64(..1_000)).collect();
    let every = |n: usize| (0..rows).map(|i| i % n != 1).collect::<Vec<bool>>();
    let batch = Batch {
        stream: StreamId(id),
        rows: (seed..seed + rows as u64).collect(),
        source_time: Some(OptionalTimes { values: receive.iter().map(|t| t - 5_000).collect(), valid: Some(every(3)) }),
        receive_time: receive,
        sequence: (id != 3)
            .then(|| OptionalTimes { values: (0..rows as i64).map(|i| i * 2 - 9).collect(), valid: Some(every(4)) }),
        session: (id != 3).then(|| vec![9; rows]),
        source_clock: false,
        columns: vec![
            whole(ColumnValues::F64((0..rows).map(|_| f64::from_bits(random.u64(..) & !(1 << 62))).collect())),
            Column {
                values: text((0..rows).map(|i| if i % 3 == 2 { String::new() } else { format!("größe {i}") })),
                states: Some(
                    (0..rows).map(|i| if i % 3 == 2 { CellState::Unknown } else { CellState::Value }).collect(),
                ),
            },
            Column { values: ColumnValues::U8(vec![0; rows]), states: Some(vec![CellState::Absent; rows]) },
            whole(ColumnValues::I64((0..rows).map(|_| random.i64(..)).collect())),
        ],
    };
    let names = [
        ("x", ChannelType::F64, "m"),
        ("text", ChannelType::String, ""),
        ("never", ChannelType::U8, ""),
        ("n", ChannelType::I64, ""),
    ];
    (stream(id, "golden.small", &names), batch)
}

/// 1,024 rows whose differences are packed as a chunk that lacks one or two values.
fn steady(id: u32) -> (Arc<Stream>, Batch) {
    let mut random = fastrand::Rng::with_seed(8);
    let rows = 1_024i64;
    let receive: Vec<i64> = (0..rows).map(|i| START + i * 1_000_000).collect();
    let mut climb = |step: i64| -> Vec<i64> {
        let steps = (0..rows).map(|_| random.i64(0..step));
        steps.scan(0, |at, step| Some(std::mem::replace(at, *at + step))).collect()
    };
    let columns = vec![
        whole(ColumnValues::F64(climb(12).into_iter().map(|k| k as f64 / 100.0).collect())),
        whole(ColumnValues::I64(climb(1 << 40))),
        whole(ColumnValues::I32((0..rows as i32).map(|i| i * i * 3 + i % 2).collect())),
    ];
    let batch = Batch {
        stream: StreamId(id),
        rows: (0..rows as u64).collect(),
        source_time: None,
        receive_time: receive,
        sequence: None,
        session: None,
        source_clock: false,
        columns,
    };
    let names =
        [("level", ChannelType::F64, "m"), ("odometer", ChannelType::I64, ""), ("square", ChannelType::I32, "")];
    (stream(id, "golden.steady", &names), batch)
}

/// Arrays of one type, elements by row.
fn arrays<T: Copy>(kind: ArrayType, rows: &[Vec<T>], put: impl Fn(T, &mut Vec<u8>)) -> ColumnValues {
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for row in rows {
        row.iter().for_each(|element| put(*element, &mut bytes));
        offsets.push(bytes.len() as u32);
    }
    ColumnValues::Array { kind, offsets, bytes }
}

/// References to blobs, one behind the other; every fourth frame has none.
fn references(rows: usize) -> ColumnValues {
    let mut values = ColumnValues::empty(ChannelType::Blob);
    let ColumnValues::Array { offsets, bytes, .. } = &mut values else { panic!("no references") };
    for row in 0..rows as u64 {
        if row % 4 != 3 {
            bytes.extend(((7 + row / 50) << 16 | (1 + row % 50 * 33)).to_le_bytes());
            bytes.extend((100_000 + row as u32 * 7_919).to_le_bytes());
            bytes.extend((row as u32).wrapping_mul(2_654_435_761).to_le_bytes());
        }
        offsets.push(bytes.len() as u32);
    }
    values
}

fn absent_of_four(row: usize) -> CellState {
    if row % 4 == 3 { CellState::Absent } else { CellState::Value }
}

/// Spectra and waveforms: tiles in both orders, fixed and variable lengths, empty arrays, every state.
fn waves(id: u32, rows: usize, seed: u64) -> (Arc<Stream>, Batch) {
    use ElementType as E;
    let mut random = fastrand::Rng::with_seed(seed);
    let fixed = |element, length| ArrayType::fixed(element, length).unwrap();
    let spectra: Vec<Vec<f32>> = (0..rows)
        .map(|row| (0..200).map(|k| (900 - 4 * k + row / 3 + random.usize(..4)) as f32 * 0.125).collect())
        .collect();
    let steady: Vec<Vec<i64>> = (0..rows).map(|_| (0..64).map(|k| (1 << 40) + k * k * 7_919).collect()).collect();
    let odd = [f64::NAN, f64::from_bits(0x7ff8_0000_dead_beef), -0.0, f64::NEG_INFINITY, 0.1];
    let mut noise = |k: usize| if k % 40 < 5 { odd[k % 40] } else { f64::from_bits(random.u64(..)) };
    let waves: Vec<Vec<f64>> =
        (0..rows).map(|row| (0..[0, 3, 70, 1][row % 4]).map(|k| noise(k + row)).collect()).collect();
    let flags: Vec<Vec<u8>> = (0..rows).map(|row| (0..row % 9).map(|k| u8::from(k % 3 == 0)).collect()).collect();
    let states = (0..rows).map(|i| CellState::from_code(if i % 7 < 4 { 0 } else { (i % 4) as u8 }).unwrap()).collect();
    let columns = vec![
        whole(ColumnValues::U32((0..rows as u32).collect())),
        whole(arrays(fixed(E::F32, 200), &spectra, |v, out| out.extend(v.to_le_bytes()))),
        whole(arrays(fixed(E::I64, 64), &steady, |v, out| out.extend(v.to_le_bytes()))),
        Column {
            values: arrays(ArrayType::variable(E::F64), &waves, |v, out| out.extend(v.to_le_bytes())),
            states: Some(states),
        },
        whole(arrays(ArrayType::variable(E::Bool), &flags, |v, out| out.push(v))),
        Column {
            values: arrays(ArrayType::variable(E::U8), &vec![Vec::<u8>::new(); rows], |v, out| out.push(v)),
            states: Some(vec![CellState::Absent; rows]),
        },
        Column { values: references(rows), states: Some((0..rows).map(absent_of_four).collect()) },
    ];
    let kinds = [fixed(E::F32, 200), fixed(E::I64, 64)].into_iter();
    let kinds = kinds.chain([E::F64, E::Bool, E::U8].map(ArrayType::variable)).map(ChannelType::Array);
    let kinds = [ChannelType::U32].into_iter().chain(kinds).chain([ChannelType::Blob]);
    let names = ["shot", "spectrum", "steady", "wave", "flags", "never", "image"];
    let channels: Vec<_> = names.into_iter().zip(kinds).map(|(n, kind)| (n, kind, "V")).collect();
    let batch = Batch {
        stream: StreamId(id),
        rows: (seed..seed + rows as u64).collect(),
        source_time: None,
        receive_time: (0..rows as i64).map(|i| START + i * 40_000_000).collect(),
        sequence: None,
        session: None,
        source_clock: false,
        columns,
    };
    (stream(id, "golden.waves", &channels), batch)
}

fn make() -> Vec<u8> {
    let header = SegmentHeader {
        origin: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
        id: 7,
        generation: 2,
        size_bytes: 256 << 10,
        created: START,
        group: "default".into(),
        blobs: false,
    };
    let meta = |gaps: &'static [u32]| BlockMeta {
        origin: header.origin,
        epoch: 3,
        stored: (START + 1, START + 2_000_000_000),
        overlaps_previous: true,
        gaps,
        max_future_ns: i64::MAX,
        effort: Effort::Seal,
    };
    let mut image = header.page().unwrap();
    let mut builder = Builder::new(header.clone());
    let mut flush = |builder: &mut Builder| image.extend(builder.take_group().unwrap().bytes);
    let (wide_stream, wide) = wide();
    let (small_stream, small_batch) = small(2, 77);
    let (mut encoder, mut memory, mut bytes) = (Encoder::new(), CodecMemory::new(), Vec::new());
    encoder.encode(&meta(&[0, 500]), &wide, &wide_stream.layout, &mut memory, &mut bytes).unwrap();
    builder.push(&bytes, [&wide_stream]).unwrap();
    flush(&mut builder);
    bytes.clear();
    encoder.encode(&meta(&[]), &small_batch, &small_stream.layout, &mut CodecMemory::new(), &mut bytes).unwrap();
    builder.push(&bytes, [&small_stream]).unwrap();
    bytes.clear();
    let (quiet_stream, quiet) = small(3, 5);
    let (_, more) = small(2, 97);
    let part =
        |batch, version| MixedPart { batch, layout_version: version, overlaps_previous: false, gap_before: true };
    mixed::encode(&meta(&[]), &[part(&quiet, 7), part(&more, 6)], &mut bytes).unwrap();
    builder.push(&bytes, [&quiet_stream, &small_stream]).unwrap();
    flush(&mut builder);
    bytes.clear();
    let (steady_stream, steady) = steady(4);
    encoder.encode(&meta(&[]), &steady, &steady_stream.layout, &mut CodecMemory::new(), &mut bytes).unwrap();
    builder.push(&bytes, [&steady_stream]).unwrap();
    flush(&mut builder);
    bytes.clear();
    let (waves_stream, batch) = waves(5, 90, 1_000);
    encoder.encode(&meta(&[]), &batch, &waves_stream.layout, &mut CodecMemory::new(), &mut bytes).unwrap();
    builder.push(&bytes, [&waves_stream]).unwrap();
    bytes.clear();
    let (_, few) = waves(5, 5, 1_090);
    mixed::encode(&meta(&[]), &[part(&few, 9)], &mut bytes).unwrap();
    builder.push(&bytes, [&waves_stream]).unwrap();
    flush(&mut builder);
    let sealed = builder.seal().unwrap();
    image.extend(sealed.footer);
    image.extend(sealed.trailer);
    image
}

/// Run by hand, for a new version alone: `cargo test -p strongback-store --test format -- --ignored golden`.
#[test]
#[ignore = "writes the golden files"]
fn make_the_golden_segment() {
    let image = make();
    std::fs::write(golden("v1.segment"), &image).unwrap();
    std::fs::write(golden("v1.json"), serde_json::to_string(&describe(&image)).unwrap()).unwrap();
}

fn expected() -> Json {
    serde_json::from_slice(&std::fs::read(golden("v1.json")).unwrap()).unwrap()
}

/// A readable first difference instead of a megabyte.
pub(super) fn assert_same(got: &Json, want: &Json, path: &str) {
    match (got, want) {
        (Json::Object(a), Json::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{path}");
            a.iter().for_each(|(key, value)| assert_same(value, &b[key], &format!("{path}.{key}")));
        }
        (Json::Array(a), Json::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| assert_same(a, b, &format!("{path}[{i}]")));
        }
        (a, b) => assert_eq!(a, b, "{path}"),
    }
}

#[test]
fn the_golden_segment_reads_as_it_always_did() {
    let image = std::fs::read(golden("v1.segment")).unwrap();
    assert_same(&describe(&image), &expected(), "");
    // What was put in, not only what came out when it was made.
    let cells = |of: &Json| -> Vec<Json> {
        of["blocks"][0]["columns"].as_array().unwrap().iter().map(|c| c["cells"].clone()).collect()
    };
    assert_same(&Json::Array(cells(&describe(&make()))), &Json::Array(cells(&expected())), "made anew");
    let codecs: Vec<Json> = expected()["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|b| b["columns"].as_array().unwrap().clone())
        .map(|c| c["codec"].clone())
        .collect();
    for codec in [
        Codec::None,
        Codec::Plain,
        Codec::Constant,
        Codec::Integer,
        Codec::Quantised,
        Codec::Pco,
        Codec::Dictionary,
        Codec::Tiles,
    ] {
        assert!(codecs.contains(&json!(codec.name())), "no column of codec {}", codec.name());
    }
}

/// A segment as the second implementation reads it.
pub(super) fn read_by_python(segment: &Path) -> Json {
    let mut python = Command::new(std::env::var("PYTHON").unwrap_or("python3".into()));
    let output = python.arg(golden("read_segment.py")).arg(segment).output().expect("python3 runs");
    assert!(output.status.success(), "{}: {}", segment.display(), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_second_implementation_reads_the_same() {
    let got = read_by_python(&golden("v1.segment"));
    let mut want = expected();
    for block in want["blocks"].as_array_mut().unwrap() {
        for column in block["columns"].as_array_mut().unwrap() {
            if column["codec"] == "pco" {
                column["cells"] = Json::Null;
            }
        }
    }
    assert_same(&got, &want, "");
}

#[test]
fn a_damaged_golden_segment_is_refused_at_every_byte_that_counts() {
    let image = std::fs::read(golden("v1.segment")).unwrap();
    let trailer = segment::read_trailer(&image[image.len() - PAGE_BYTES..]).unwrap();
    let footer = segment::read_footer(&image[trailer.footer_offset as usize..], &trailer).unwrap();
    for entry in &footer.entries {
        let bytes = &image[entry.offset as usize..entry.offset as usize + entry.length_bytes];
        for at in (0..bytes.len()).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[at] ^= 0x10;
            assert!(Block::read(&bad).is_err() && MixedBlock::read(&bad).is_err(), "offset {at}");
            assert!(Block::read(&bytes[..at]).is_err() && MixedBlock::read(&bytes[..at]).is_err());
            // Behind checksums that hold: never a panic.
            if at >= block::HEADER_BYTES {
                block::forge_checksums(&mut bad);
                let layout = &footer.stream(entry.header.stream).unwrap().layout;
                let all: Vec<ChannelIndex> = (0..layout.channels.len() as u16).map(ChannelIndex).collect();
                let _ = block::decode(&bad, layout, &all);
                let _ = Block::read(&bad).and_then(|b| b.statistics());
                let _ = MixedBlock::read(&bad).and_then(|m| m.decode(0, layout, &all));
            }
        }
    }
}

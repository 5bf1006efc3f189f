//! Every codec at every effort gives back each bit, of hostile mixes of values too.

use fastrand::Rng;

use crate::ChannelType;
use crate::ColumnValues;
use crate::codec::{self, ChannelMemory, Codec, Effort, Scratch};

/// A float of a kind; `n` is the divisor of those on a grid.
fn float(random: &mut Rng, kind: u8, n: f64) -> f64 {
    let k = random.i32(-5_000..5_000);
    match kind {
        // On a grid, near and far: the far ones take wide integers.
        0..=5 => f64::from(k) / n,
        6 => f64::from(random.i32(i32::MIN..i32::MAX)) / n,
        7 => f64::from(1u32 << random.u32(28..32)) / n,
        8 => -0.0,
        9 => 0.0,
        10 => f64::from_bits(random.u64(1..1 << 20)),
        11 => -f64::from_bits(random.u64(1..1 << 52)),
        12 => f64::INFINITY,
        13 => f64::NEG_INFINITY,
        14 => f64::from_bits(0x7ff0_0000_0000_0000 | random.u64(1..1 << 52)),
        15 => f64::from_bits(0xfff0_0000_0000_0000 | random.u64(1..1 << 52)),
        16 => f64::MAX,
        17 => f64::MIN_POSITIVE,
        _ => f64::from_bits(random.u64(..)),
    }
}

/// The same as single precision, with payloads of its own.
fn single(random: &mut Rng, kind: u8, n: f64) -> f32 {
    match kind {
        10 => f32::from_bits(random.u32(1..1 << 23)),
        14 => f32::from_bits(0x7f80_0000 | random.u32(1..1 << 23)),
        15 => f32::from_bits(0xff80_0000 | random.u32(1..1 << 23)),
        16 => f32::MAX,
        17 => f32::MIN_POSITIVE,
        18.. => f32::from_bits(random.u32(..)),
        kind => float(random, kind, n) as f32,
    }
}

fn integer(random: &mut Rng, kind: u8) -> i64 {
    match kind {
        0..=6 => random.i64(-100..100),
        7 => i64::MIN,
        8 => i64::MAX,
        9 => -1,
        10 => i64::MIN + 1,
        11 => random.i64(..) >> random.u32(0..63),
        _ => random.i64(..),
    }
}

/// A column of a type: a few kinds of values in it, in proportions by chance.
fn column(random: &mut Rng, kind: ChannelType, rows: usize) -> ColumnValues {
    let n = random.choice([1.0, 10.0, 1e3, 1e6, 1e7, 1e9, 16.0, 3.0]).unwrap_or(1.0);
    let kinds: Vec<u8> = (0..random.usize(1..5)).map(|_| random.u8(0..20)).collect();
    let common = random.u8(0..6);
    let rare = random.u32(1..40);
    let of = |random: &mut Rng| {
        let kind = if random.u32(0..rare) == 0 { random.choice(&kinds).copied() } else { None };
        kind.unwrap_or(common)
    };
    macro_rules! integers {
        ($variant:ident, $type:ty) => {
            ColumnValues::$variant(
                (0..rows)
                    .map(|_| {
                        let kind = of(random);
                        integer(random, kind) as $type
                    })
                    .collect(),
            )
        };
    }
    match kind {
        ChannelType::Bool => ColumnValues::Bool((0..rows).map(|_| random.bool()).collect()),
        ChannelType::I8 => integers!(I8, i8),
        ChannelType::I16 => integers!(I16, i16),
        ChannelType::I32 => integers!(I32, i32),
        ChannelType::I64 => integers!(I64, i64),
        ChannelType::U8 => integers!(U8, u8),
        ChannelType::U16 => integers!(U16, u16),
        ChannelType::U32 => integers!(U32, u32),
        ChannelType::U64 => integers!(U64, u64),
        ChannelType::F32 => ColumnValues::F32(
            (0..rows)
                .map(|_| {
                    let kind = of(random);
                    single(random, kind, n)
                })
                .collect(),
        ),
        _ => ColumnValues::F64(
            (0..rows)
                .map(|_| {
                    let kind = of(random);
                    float(random, kind, n)
                })
                .collect(),
        ),
    }
}

fn bits(values: &ColumnValues) -> Vec<u64> {
    match values {
        ColumnValues::F32(v) => v.iter().map(|v| v.to_bits().into()).collect(),
        ColumnValues::F64(v) => v.iter().map(|v| v.to_bits()).collect(),
        other => (0..other.len()).map(|row| other.value(row).bits()).collect(),
    }
}

#[test]
fn every_bit_comes_back() {
    let kinds = [
        ChannelType::F64,
        ChannelType::F32,
        ChannelType::F64,
        ChannelType::I64,
        ChannelType::U64,
        ChannelType::I32,
        ChannelType::U32,
        ChannelType::I16,
        ChannelType::U16,
        ChannelType::I8,
        ChannelType::U8,
        ChannelType::Bool,
    ];
    let mut random = Rng::with_seed(7);
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    let mut scratch = Scratch::default();
    for round in 0..1_500 {
        let kind = kinds[round % kinds.len()];
        // What was learned of blocks before is used for others, which it may not fit.
        let mut memory = ChannelMemory::default();
        for block in 0..random.usize(1..4) {
            let rows = random.choice([1, 2, 7, 64, 300, 1_024]).unwrap_or(1);
            let values = column(&mut random, kind, rows);
            let effort = if random.bool() { Effort::Seal } else { Effort::Settle };
            let mut out = Vec::new();
            let encoded = codec::encode(&values, &mut memory, effort, &mut scratch, &mut out);
            let (parameters, bytes) = out.split_at(encoded.parameter_bytes);
            let got = codec::decode(kind, encoded.codec, parameters, bytes, rows).expect("decodes");
            assert_eq!(
                bits(&got),
                bits(&values),
                "round {round}, block {block}: {kind:?} {:?} {effort:?}",
                encoded.codec
            );
            *seen.entry(encoded.codec.name()).or_default() += 1;
        }
    }
    for codec in [Codec::Plain, Codec::Constant, Codec::Integer, Codec::Quantised, Codec::Pco] {
        assert!(seen.get(codec.name()).is_some_and(|times| *times > 10), "{seen:?}");
    }
}

/// Each grid that an encoder can be given, with negative zeros among values near and far.
#[test]
fn negative_zeros_come_back_from_every_grid() {
    let mut random = Rng::with_seed(8);
    for n in [1.0, 10.0, 100.0, 1e3, 1e6, 1e7, 1e9, 3.0, 4_096.0] {
        for far in [1.0, 1e3, f64::from(1u32 << 28), f64::from(1u32 << 29), f64::from(1u32 << 30)] {
            let values: Vec<f64> = (0..400)
                .map(|_| match random.u8(0..8) {
                    0 => -0.0,
                    1 => 0.0,
                    2 => far / n,
                    _ => f64::from(random.i32(-2_000..2_000)) / n,
                })
                .collect();
            let values = ColumnValues::F64(values);
            for effort in [Effort::Seal, Effort::Settle] {
                let (mut memory, mut out) = (ChannelMemory::default(), Vec::new());
                let encoded = codec::encode(&values, &mut memory, effort, &mut Scratch::default(), &mut out);
                let (parameters, bytes) = out.split_at(encoded.parameter_bytes);
                let got = codec::decode(ChannelType::F64, encoded.codec, parameters, bytes, 400).expect("decodes");
                assert_eq!(bits(&got), bits(&values), "{n} {far} {:?}", encoded.codec);
            }
        }
    }
}

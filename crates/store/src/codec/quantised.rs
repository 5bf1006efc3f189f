//! Quantised frame of reference: floats that are scaled integers.
//!
//! A value is rebuilt as `offset + k · lsb` or as `k / n` (with the offset included in k), in IEEE f64, with one
//! rounding an operation and no fused operations, and then rounded to the column's type. The remaining error is a
//! *correction*: the distance in neighbouring floats, which is nearly always zero and then not stored.
//!
//! ```text
//! parameters: form u8   bits 0-1  0 lsb f64, 1 lsb f32, 2 n varint
//!                       bits 2-3  offset: 0 none, 1 f32, 2 f64
//!                       bit 4     corrections follow k
//!             lsb or n, [offset]
//! values:     k (integer stream), [corrections (integer stream)]
//! ```

use crate::bytes::{Cursor, FormatError, malformed, put_varint};
use crate::codec::float::Float;
use crate::codec::integer::{self, NARROW};
use crate::model::mutant::{self, Mutant};

const FORM_F64: u8 = 0;
const FORM_F32: u8 = 1;
const FORM_DIVIDE: u8 = 2;
const OFFSET_NONE: u8 = 0;
const OFFSET_F32: u8 = 1 << 2;
const OFFSET_F64: u8 = 2 << 2;
const CORRECTED: u8 = 1 << 4;

/// Rounding constant 1.5 · 2⁵²: adding it leaves the nearest integer in the low bits of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Largest |k|: above it, a float would hardly be quantised.
const K_MAX: f64 = (1u64 << 31) as f64;

/// Largest correction: above it, the deviation is not due to rounding but to a wrong grid.
const CORRECTION_MAX: i64 = 1 << 20;

/// Grid of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueGrid {
    /// Values `offset + k · lsb`.
    Multiply { offset: f64, lsb: f64 },
    /// Values `k / n`.
    Divide { n: f64 },
}

impl ValueGrid {
    #[inline(always)]
    fn rebuild<F: Float>(self, k: f64) -> F {
        F::narrow(match self {
            ValueGrid::Multiply { offset, lsb } => offset + k * lsb,
            ValueGrid::Divide { n } => k / n,
        })
    }

    /// Returns `(v − offset) / lsb`, approximately.
    #[inline(always)]
    fn position(self, value: f64) -> f64 {
        match self {
            ValueGrid::Multiply { offset, lsb } => (value - offset) / lsb,
            ValueGrid::Divide { n } => value * n,
        }
    }

    /// Returns whether a value is rebuilt exactly.
    pub(crate) fn rebuilds<F: Float>(self, value: F) -> bool {
        let k = self.position(value.wide()).round();
        k.abs() < K_MAX && self.rebuild::<F>(k as i64 as f64).pattern() == value.pattern()
    }
}

/// Quality of the fit of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Number of values that needed a correction.
    pub(crate) corrected: usize,
    /// Bytes of parameters at the start of the output.
    pub(crate) parameter_bytes: usize,
}

/// Buffers reused between columns.
#[derive(Debug, Default)]
pub(crate) struct QuantisedScratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
}

/// Appends values on a grid. Returns `None` and appends nothing if a value is not finite or too far from the grid.
pub(crate) fn encode<F: Float>(
    values: &[F],
    grid: ValueGrid,
    scratch: &mut QuantisedScratch,
    out: &mut Vec<u8>,
) -> Option<Fit> {
    let start = out.len();
    put_parameters(grid, out);
    let parameter_bytes = out.len() - start;
    let fitted = match narrow_k(values, grid, &mut scratch.narrow) {
        Some(exact) => {
            integer::encode_lanes(&scratch.narrow, out);
            exact || {
                scratch.wide.clear();
                scratch.wide.extend(scratch.narrow.iter().map(|k| i64::from(*k)));
                false
            }
        }
        None => match wide_k(values, grid, &mut scratch.wide) {
            Some(exact) => {
                integer::encode(&scratch.wide, out);
                exact
            }
            None => {
                out.truncate(start);
                return None;
            }
        },
    };
    if fitted {
        return Some(Fit { corrected: 0, parameter_bytes });
    }
    let mut corrected = 0;
    for (slot, value) in scratch.wide.iter_mut().zip(values) {
        let rebuilt: F = grid.rebuild(*slot as f64);
        let correction = value.ordered().wrapping_sub(rebuilt.ordered());
        if !(-CORRECTION_MAX..=CORRECTION_MAX).contains(&correction) {
            out.truncate(start);
            return None;
        }
        corrected += usize::from(correction != 0);
        *slot = correction;
    }
    out[start] |= CORRECTED;
    integer::encode(&scratch.wide, out);
    Some(Fit { corrected, parameter_bytes })
}

/// Computes all k as i32. Returns whether every value is rebuilt exactly, or `None` if a k is too large.
fn narrow_k<F: Float>(values: &[F], grid: ValueGrid, out: &mut Vec<i32>) -> Option<bool> {
    out.resize(values.len(), 0);
    match grid {
        ValueGrid::Multiply { offset, lsb } => {
            let inverse = 1.0 / lsb;
            round_all(values, out, |v| (v - offset) * inverse, |k| F::narrow(offset + k * lsb))
        }
        ValueGrid::Divide { n } => round_all(values, out, |v| v * n, |k| F::narrow(k / n)),
    }
}

/// Computes k and rebuilds the values. Sealing spends its time in this loop, which has no branches so that it is
/// vectorised.
#[inline(always)]
fn round_all<F: Float>(
    values: &[F],
    out: &mut [i32],
    position: impl Fn(f64) -> f64,
    rebuild: impl Fn(f64) -> F,
) -> Option<bool> {
    let (mut inside, mut differing) = (0u32, 0u32);
    for (slot, value) in out.iter_mut().zip(values) {
        let x = position(value.wide());
        // NaN compares false, so it does not count as inside.
        inside += u32::from(x.abs() < (NARROW - 1) as f64);
        let rounded = x + ROUNDER;
        *slot = rounded.to_bits() as i32;
        differing += u32::from(rebuild(rounded - ROUNDER).pattern() != value.pattern());
    }
    (inside as usize == values.len()).then_some(differing == 0)
}

fn wide_k<F: Float>(values: &[F], grid: ValueGrid, out: &mut Vec<i64>) -> Option<bool> {
    out.clear();
    let mut exact = true;
    for value in values {
        let k = grid.position(value.wide()).round();
        if k.is_nan() || k.abs() >= K_MAX {
            return None;
        }
        // Convert from the integer, as the decoder does: it has no negative zero.
        let integer = k as i64;
        let k = if mutant::is_active(Mutant::NegativeZero) { k } else { integer as f64 };
        exact &= grid.rebuild::<F>(k).pattern() == value.pattern();
        out.push(integer);
    }
    Some(exact)
}

fn put_parameters(grid: ValueGrid, out: &mut Vec<u8>) {
    match grid {
        ValueGrid::Multiply { offset, lsb } => {
            let single = |v: f64| f64::from(v as f32).to_bits() == v.to_bits();
            let lsb_form = if single(lsb) { FORM_F32 } else { FORM_F64 };
            let offset_form = match offset {
                o if o.to_bits() == 0 => OFFSET_NONE,
                o if single(o) => OFFSET_F32,
                _ => OFFSET_F64,
            };
            out.push(lsb_form | offset_form);
            let mut put = |v: f64, as_single: bool| match as_single {
                true => (v as f32).put(out),
                false => v.put(out),
            };
            put(lsb, lsb_form == FORM_F32);
            if offset_form != OFFSET_NONE {
                put(offset, offset_form == OFFSET_F32);
            }
        }
        ValueGrid::Divide { n } => {
            out.push(FORM_DIVIDE);
            put_varint(out, n as u64);
        }
    }
}

/// Reads as many values as `out` has slots. `parameters` are just the parameter bytes; `cursor` starts after them.
///
/// # Errors
/// If the bytes end too early or contradict themselves.
pub(crate) fn decode<F: Float>(parameters: &[u8], cursor: &mut Cursor<'_>, out: &mut [F]) -> Result<(), FormatError> {
    let mut fields = Cursor::new(parameters);
    let form = fields.u8("quantised form")?;
    let grid = match form & 0b11 {
        FORM_DIVIDE if form & 0b1100 == 0 => ValueGrid::Divide { n: fields.varint("quantised divisor")? as f64 },
        FORM_DIVIDE => return Err(malformed("offset beside a quantised divisor")),
        lsb_form => {
            let lsb = match lsb_form {
                FORM_F64 => fields.f64("quantised lsb")?,
                FORM_F32 => f64::from(fields.f32("quantised lsb")?),
                _ => return Err(FormatError::Unsupported { what: "quantised form", found: form.into() }),
            };
            let offset = match form & 0b1100 {
                OFFSET_NONE => 0.0,
                OFFSET_F32 => f64::from(fields.f32("quantised offset")?),
                OFFSET_F64 => fields.f64("quantised offset")?,
                _ => return Err(FormatError::Unsupported { what: "quantised form", found: form.into() }),
            };
            ValueGrid::Multiply { offset, lsb }
        }
    };
    if form & !0b1_1111 != 0 {
        return Err(FormatError::Unsupported { what: "quantised form", found: form.into() });
    }
    match grid {
        ValueGrid::Multiply { offset, lsb } => {
            let (narrow, wide) =
                (|k: i32| F::narrow(offset + f64::from(k) * lsb), |k: i64| F::narrow(offset + k as f64 * lsb));
            integer::decode_mapped(cursor, out, narrow, wide)?;
        }
        ValueGrid::Divide { n } => {
            integer::decode_mapped(cursor, out, |k| F::narrow(f64::from(k) / n), |k| F::narrow(k as f64 / n))?;
        }
    }
    if form & CORRECTED != 0 {
        let mut corrections = vec![0i64; out.len()];
        integer::decode(cursor, &mut corrections, |c| c)?;
        for (slot, correction) in out.iter_mut().zip(corrections) {
            *slot = F::from_ordered(slot.ordered().wrapping_add(correction));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<F: Float + std::fmt::Debug>(values: &[F], grid: ValueGrid) -> Option<(usize, Fit)> {
        let mut out = Vec::new();
        let fit = encode(values, grid, &mut QuantisedScratch::default(), &mut out)?;
        let mut got = vec![F::narrow(0.0); values.len()];
        let (parameters, body) = out.split_at(fit.parameter_bytes);
        let mut cursor = Cursor::new(body);
        decode(parameters, &mut cursor, &mut got).unwrap();
        assert_eq!(cursor.remaining(), 0);
        for (a, b) in got.iter().zip(values) {
            assert_eq!(a.pattern(), b.pattern(), "{a:?} {b:?}");
        }
        Some((out.len(), fit))
    }

    #[test]
    fn both_forms_and_corrections_come_back() {
        let codes: Vec<f64> = (0..2_100).map(|i| f64::from(i * 7_919 % 4_096)).collect();
        let decimal: Vec<f64> = codes.iter().map(|c| c / 10.0).collect();
        let (_, fit) = round_trip(&decimal, ValueGrid::Divide { n: 10.0 }).unwrap();
        assert_eq!(fit.corrected, 0);
        // The product misses some decimals, which is why there are two forms.
        let (_, fit) = round_trip(&decimal, ValueGrid::Multiply { offset: 0.0, lsb: 0.1 }).unwrap();
        assert!(fit.corrected > 100, "{fit:?}");
        let single: Vec<f32> = codes.iter().map(|c| (c * 0.061 - 3.5) as f32).collect();
        let (len, fit) = round_trip(&single, ValueGrid::Multiply { offset: -3.5, lsb: 0.061 }).unwrap();
        assert_eq!(fit.corrected, 0);
        assert!(len < 2_100 * 12 / 8 + 60);
        let far: Vec<f64> = codes.iter().map(|c| (c * 400_000.0) / 1e7).collect();
        assert_eq!(round_trip(&far, ValueGrid::Divide { n: 1e7 }).unwrap().1.corrected, 0);
    }

    #[test]
    fn negative_zero_is_a_correction_and_what_is_no_number_is_declined() {
        let grid = ValueGrid::Multiply { offset: 0.0, lsb: 0.5 };
        assert_eq!(round_trip(&[1.0f32, -0.0, 0.0, -1.5], grid).unwrap().1.corrected, 1);
        // Encode as wide integers too: one k is out of range for the narrow ones.
        for n in [10.0, 1e3, 1e6, 1e7] {
            let far = f64::from(1u32 << 30) / n;
            assert_eq!(
                round_trip(&[1.0, -0.0, far, 0.0, -1.5], ValueGrid::Divide { n }).unwrap().1.corrected,
                1,
                "{n}"
            );
        }
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(round_trip(&[1.0, odd], grid).is_none());
        }
        // Denormals are within rounding of zero in the grid, but far from it in floats.
        assert!(round_trip(&[1.0, 1e-310], grid).is_none());
        assert!(round_trip(&[1.0, f64::NAN], ValueGrid::Divide { n: 10.0 }).is_none());
    }
}

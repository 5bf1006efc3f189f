//! Integer codec: differences, frame of reference and common divisor, or run lengths.
//!
//! All integers of a block use this codec: integer and boolean channels, times, sequences, cell states, text lengths,
//! dictionary indices, and the `k` of quantised floats. Arithmetic is modulo 2⁶⁴, so every `i64` and `u64` is restored
//! whatever the differences are.
//!
//! ```text
//! mode u8: bits 0-2  0 values, 1 first differences, 2 second differences, 3 run lengths, 4 about a line
//!          bit 3     a divisor follows            bit 4  patches follow the packed values
//! modes 0-2: width u8, seed…, minimum, [divisor], packed residuals, [patches]
//! mode 3:    run count, lengths − 1 (modes 0-2), values (modes 0-2)
//! mode 4:    first value, slope (2⁻¹⁶ a row), then the distances from the line (modes 0-2):
//!            value = first + ⌊row · slope / 2¹⁶⌋ + distance
//! ```
//! An empty column takes no bytes.

use crate::bytes::{Cursor, FormatError, malformed, put_signed, put_varint, varint_len};
use crate::codec::pack::{self, Word};

const MODE_RUNS: u8 = 3;
const MODE_LINE: u8 = 4;
const MODE_MASK: u8 = 0b111;
const HAS_DIVISOR: u8 = 1 << 3;
const HAS_PATCHES: u8 = 1 << 4;

/// Machine integer in which differences are computed, modulo its width. Values that fit `i32` together with their
/// second differences take half the memory and twice the vector lanes.
pub(crate) trait DeltaLane: Copy + Ord {
    type Unsigned: Word;
    const ZERO: Self;
    const LEAST: Self;
    const MOST: Self;
    fn minus(self, other: Self) -> Self;
    fn wide(self) -> i64;
    /// Returns `self − least` as an unsigned number; `least` must not be above `self` modulo the width.
    fn above(self, least: Self) -> Self::Unsigned;
}

macro_rules! lane {
    ($signed:ty, $unsigned:ty) => {
        impl DeltaLane for $signed {
            type Unsigned = $unsigned;
            const ZERO: Self = 0;
            const LEAST: Self = <$signed>::MIN;
            const MOST: Self = <$signed>::MAX;
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn wide(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn above(self, least: Self) -> $unsigned {
                self.wrapping_sub(least) as $unsigned
            }
        }
    };
}
lane!(i32, u32);
lane!(i64, u64);

/// Magnitude below which values may be encoded as `i32`: their second differences still fit.
pub(crate) const NARROW: i64 = 1 << 29;

/// Appends the encoded values.
pub(crate) fn encode(values: &[i64], out: &mut Vec<u8>) {
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for value in values {
        least = least.min(*value);
        most = most.max(*value);
    }
    if !values.is_empty() && least > -NARROW && most < NARROW {
        let narrow: Vec<i32> = values.iter().map(|v| *v as i32).collect();
        encode_lanes(&narrow, out);
    } else {
        encode_lanes(values, out);
    }
}

/// Appends timestamps, like [`encode`] or relative to a line if that is smaller. The jitter of a timestamp from a
/// steady source affects two differences to neighbours but only one distance from the line, and a late one does not
/// affect the next.
pub(crate) fn encode_times(values: &[i64], out: &mut Vec<u8>) {
    let start = out.len();
    encode(values, out);
    let plain_len = out.len() - start;
    if plain_len * 2 < values.len() || values.len() < 16 {
        return;
    }
    let Some(slope) = slope(values) else { return };
    let distances: Vec<i64> =
        values.iter().enumerate().map(|(row, v)| v.wrapping_sub(values[0]).wrapping_sub(along(slope, row))).collect();
    let middle = out.len();
    out.push(MODE_LINE);
    put_signed(out, values[0]);
    put_signed(out, slope);
    encode_packed(&distances, &Survey::of(&distances), out);
    if out.len() - middle < plain_len {
        out.drain(start..middle);
    } else {
        out.truncate(middle);
    }
}

/// Returns the slope in steps of 2⁻¹⁶ a row, from the medians of the outer quarters, so that a few late values do not
/// affect it.
fn slope(values: &[i64]) -> Option<i64> {
    let quarter = values.len() / 4;
    let run = (values.len() - quarter) as i128;
    // The median distance between the same places of the first and the last quarter.
    let mut rises: Vec<i64> = values[..quarter]
        .iter()
        .zip(&values[values.len() - quarter..])
        .map(|(a, b)| b.checked_sub(*a))
        .collect::<Option<_>>()?;
    let (_, median, _) = rises.select_nth_unstable(quarter / 2);
    i64::try_from((i128::from(*median) << 16) / run).ok()
}

/// Returns the rise of the line at a row.
#[inline(always)]
fn along(slope: i64, row: usize) -> i64 {
    ((i128::from(slope) * row as i128) >> 16) as i64
}

/// Appends the encoded values. For `i32`, all must be within ±[`NARROW`].
pub(crate) fn encode_lanes<L: DeltaLane>(values: &[L], out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    let survey = Survey::of(values);
    if survey.runs_pay(values.len()) {
        let start = out.len();
        encode_runs(values, survey.runs, out);
        let runs_len = out.len() - start;
        if runs_len <= survey.packed_len_bound(values.len()) {
            return;
        }
        encode_packed(values, &survey, out);
        // Both encodings are present: keep the shorter one.
        if out.len() - start - runs_len < runs_len {
            out.drain(start..start + runs_len);
        } else {
            out.truncate(start + runs_len);
        }
        return;
    }
    encode_packed(values, &survey, out);
}

/// Ranges of values, first and second differences, and the number of runs of equal values.
struct Survey<L> {
    least: [L; 3],
    range: [u64; 3],
    runs: usize,
}

impl<L: DeltaLane> Survey<L> {
    fn of(values: &[L]) -> Self {
        let bounds = |(low, high): (L, L), v: L| (low.min(v), high.max(v));
        let nothing = (L::MOST, L::LEAST);
        let (mut zeroth, mut first, mut second) = (nothing, nothing, nothing);
        let mut changes = 0u32;
        for value in values {
            zeroth = bounds(zeroth, *value);
        }
        let next = values.get(1..).unwrap_or_default();
        for (before, now) in values.iter().zip(next) {
            let step = now.minus(*before);
            changes += u32::from(step != L::ZERO);
            first = bounds(first, step);
        }
        let range_of = |(low, high): (L, L), order: usize| match values.len() > order {
            true => high.above(low).wide(),
            false => 0,
        };
        // If differences have a larger range than values, second differences have an even larger one.
        let steady = pack::width_of(range_of(first, 1)) <= pack::width_of(range_of(zeroth, 0));
        let after = values.get(2..).filter(|_| steady).unwrap_or_default();
        for ((a, b), c) in values.iter().zip(next).zip(after) {
            second = bounds(second, c.minus(*b).minus(b.minus(*a)));
        }
        let all = [zeroth, first, second];
        let mut range = std::array::from_fn(|n| range_of(all[n], n));
        if !steady {
            range[2] = u64::MAX;
        }
        Survey { least: all.map(|(low, _)| low), range, runs: changes as usize + 1 }
    }

    /// Returns the order of differences with the smallest range; the lowest one if several are equal.
    fn order(&self, count: usize) -> usize {
        let mut best = 0;
        for order in 1..3.min(count) {
            if pack::width_of(self.range[order]) < pack::width_of(self.range[best]) {
                best = order;
            }
        }
        best
    }

    /// Returns an upper bound for the packed size in bytes, without divisor and patches.
    fn packed_len_bound(&self, count: usize) -> usize {
        pack::packed_len(count, pack::width_of(self.range[self.order(count)]))
    }

    /// Returns whether run lengths are worth trying.
    fn runs_pay(&self, count: usize) -> bool {
        let width = pack::width_of(self.range[self.order(count)]) as usize;
        let of_value = pack::width_of(self.range[0]) as usize;
        let of_length = pack::width_of((count / self.runs) as u64) as usize + 1;
        self.runs * 2 < count && 32 + self.runs * (of_value + of_length) < width * count
    }
}

fn encode_runs<L: DeltaLane>(values: &[L], runs: usize, out: &mut Vec<u8>) {
    let (mut lengths, mut heads) = (Vec::with_capacity(runs), Vec::with_capacity(runs));
    for run in values.chunk_by(|a, b| a == b) {
        lengths.push(run.len() as i64 - 1);
        heads.push(run[0]);
    }
    out.push(MODE_RUNS);
    put_varint(out, runs as u64);
    encode_packed(&lengths, &Survey::of(&lengths), out);
    encode_packed(&heads, &Survey::of(&heads), out);
}

fn encode_packed<L: DeltaLane>(values: &[L], survey: &Survey<L>, out: &mut Vec<u8>) {
    let order = survey.order(values.len());
    let (least, range) = (survey.least[order], survey.range[order]);
    let next = values.get(1..).unwrap_or_default();
    let after = values.get(2..).unwrap_or_default();
    let mut residuals: Vec<L::Unsigned> = match order {
        0 => values.iter().map(|v| v.above(least)).collect(),
        1 => values.iter().zip(next).map(|(a, b)| b.minus(*a).above(least)).collect(),
        _ => {
            let pairs = values.iter().zip(next).zip(after);
            pairs.map(|((a, b), c)| c.minus(*b).minus(b.minus(*a)).above(least)).collect()
        }
    };
    let divisor = common_divisor(&residuals, range);
    if divisor > 1 {
        let by = Divisor::new(divisor);
        for residual in &mut residuals {
            *residual = Word::narrow(by.quotient(residual.wide()));
        }
    }
    let full = pack::width_of(range / divisor);
    let patched = patched_width(&residuals, full);
    let mut mode = order as u8;
    if divisor > 1 {
        mode |= HAS_DIVISOR;
    }
    if patched < full {
        mode |= HAS_PATCHES;
    }
    out.extend_from_slice(&[mode, patched as u8]);
    if order > 0 {
        put_signed(out, values[0].wide());
    }
    if order > 1 {
        put_signed(out, values[1].minus(values[0]).wide());
    }
    put_signed(out, if residuals.is_empty() { 0 } else { least.wide() });
    if divisor > 1 {
        put_varint(out, divisor);
    }
    if patched < full {
        let mask = (1u64 << patched) - 1;
        let low: Vec<L::Unsigned> = residuals.iter().map(|r| Word::narrow(r.wide() & mask)).collect();
        pack::pack(&low, patched, out);
        encode_patches(&residuals, patched, out);
    } else {
        pack::pack(&residuals, full, out);
    }
}

/// Returns the greatest common divisor of all residuals. Stops early once it is 1.
fn common_divisor<W: Word>(residuals: &[W], range: u64) -> u64 {
    let mut divisor = range;
    let mut rest = residuals.iter();
    while divisor > 1 {
        let by = Divisor::new(divisor);
        let Some(other) = rest.find(|r| !by.divides(r.wide())) else { break };
        let (mut a, mut b) = (divisor, other.wide());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        divisor = a;
    }
    divisor.max(1)
}

/// Divisor that tests for multiples and divides them by one multiplication, with its inverse modulo 2⁶⁴ (Warren,
/// Hacker's Delight, 10-17).
#[derive(Clone, Copy)]
struct Divisor {
    /// Number of trailing zeros; the remaining factor is odd and has an inverse.
    shift: u32,
    inverse: u64,
    largest_quotient: u64,
}

impl Divisor {
    /// Prepares a divisor, which must be above 0.
    fn new(divisor: u64) -> Self {
        let shift = divisor.trailing_zeros();
        let odd = divisor >> shift;
        // Newton iteration: each step doubles the number of correct bits, of which the first guess has 3.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Divisor { shift, inverse, largest_quotient: u64::MAX / odd }
    }

    #[inline(always)]
    fn divides(self, number: u64) -> bool {
        number & !(u64::MAX << self.shift) == 0 && self.quotient(number) <= self.largest_quotient
    }

    /// Returns the quotient of a multiple.
    #[inline(always)]
    fn quotient(self, multiple: u64) -> u64 {
        (multiple >> self.shift).wrapping_mul(self.inverse)
    }
}

/// Returns the width to pack in if the few residuals that need more bits become patches: a late datagram must not widen
/// a thousand others. Returns `full` if that saves less than an eighth.
fn patched_width<W: Word>(residuals: &[W], full: u32) -> u32 {
    let count = residuals.len();
    if count < 128 || full < 4 {
        return full;
    }
    // Patches pay only if few residuals use the upper bits. Rule out most series here.
    let large = W::narrow(1 << (full - 2));
    let few = count / 24;
    if residuals.iter().map(|r| u32::from(*r >= large)).sum::<u32>() as usize > few {
        return full;
    }
    let mut of_width = [0usize; 65];
    for residual in residuals {
        of_width[pack::width_of(residual.wide()) as usize] += 1;
    }
    let cost = |width: u32, patches: usize| {
        let high = width_bytes(full - width);
        pack::packed_len(count, width) + patches * (1 + high) + if patches > 0 { 2 } else { 0 }
    };
    let plain = cost(full, 0);
    let (mut best, mut best_cost) = (full, plain - plain / 8);
    let mut patches = 0;
    for width in (1..full).rev() {
        patches += of_width[width as usize + 1];
        if patches > count / 8 {
            break;
        }
        let bytes = cost(width, patches);
        if bytes < best_cost {
            (best, best_cost) = (width, bytes);
        }
    }
    best
}

fn width_bytes(bits: u32) -> usize {
    bits.div_ceil(7) as usize
}

fn encode_patches<W: Word>(residuals: &[W], width: u32, out: &mut Vec<u8>) {
    let patches = || residuals.iter().enumerate().map(|(i, r)| (i, r.wide() >> width)).filter(|(_, high)| *high != 0);
    put_varint(out, patches().count() as u64);
    let mut next = 0;
    for (index, high) in patches() {
        put_varint(out, (index - next) as u64);
        put_varint(out, high);
        next = index + 1;
    }
}

/// Reads as many values as `out` has slots, and passes each through `map`.
///
/// # Errors
/// If the bytes end too early or contradict themselves.
pub(crate) fn decode<T: Copy>(
    cursor: &mut Cursor<'_>,
    out: &mut [T],
    map: impl Fn(i64) -> T,
) -> Result<(), FormatError> {
    if out.is_empty() {
        return Ok(());
    }
    let mode = cursor.u8("integer mode")?;
    if mode == MODE_LINE {
        let first = cursor.signed("first value")?;
        let slope = cursor.signed("slope")?;
        let mode = cursor.u8("integer mode")?;
        let mut distances = vec![0i64; out.len()];
        decode_packed(mode, cursor, &mut distances, |v| v)?;
        for (row, (slot, distance)) in out.iter_mut().zip(distances).enumerate() {
            *slot = map(first.wrapping_add(along(slope, row)).wrapping_add(distance));
        }
        return Ok(());
    }
    if mode != MODE_RUNS {
        return decode_packed(mode, cursor, out, map);
    }
    let runs = cursor.count("runs", out.len())?;
    let mut lengths = vec![0i64; runs];
    let mut heads = vec![0i64; runs];
    for values in [&mut lengths, &mut heads] {
        if runs > 0 {
            let mode = cursor.u8("integer mode")?;
            decode_packed(mode, cursor, values, |v| v)?;
        }
    }
    let mut rest = out;
    for (length, head) in lengths.iter().zip(heads) {
        let length = usize::try_from(*length).ok().and_then(|l| l.checked_add(1));
        let Some((run, after)) = length.and_then(|l| rest.split_at_mut_checked(l)) else {
            return Err(malformed("runs longer than the column"));
        };
        run.fill(map(head));
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(malformed("runs shorter than the column")) }
}

/// Reads values like [`decode`], for maps that are faster on i32. `narrow` and `wide` must agree on every number.
///
/// # Errors
/// Same as [`decode`].
pub(crate) fn decode_mapped<T: Copy>(
    cursor: &mut Cursor<'_>,
    out: &mut [T],
    narrow: impl Fn(i32) -> T,
    wide: impl Fn(i64) -> T,
) -> Result<(), FormatError> {
    let mut ahead = *cursor;
    let Some((order, width, first, least)) = narrow_fields(&mut ahead, out.len()) else {
        return decode(cursor, out, wide);
    };
    *cursor = ahead;
    let mut numbers = vec![0i32; out.len()];
    let (seeds, rest) = numbers.split_at_mut(order);
    seeds.fill(first);
    if order == 0 {
        pack::unpack(cursor, width, rest, |r| least + r as i32)?;
    } else {
        let mut value = first;
        pack::unpack(cursor, width, rest, |r| {
            value += least + r as i32;
            value
        })?;
    }
    for (slot, number) in out.iter_mut().zip(&numbers) {
        *slot = narrow(*number);
    }
    Ok(())
}

/// Returns order, width, first value and minimum of packed values, if all values fit i32 whatever the residuals are.
fn narrow_fields(cursor: &mut Cursor<'_>, count: usize) -> Option<(usize, u32, i32, i32)> {
    let order = usize::from(cursor.u8("integer mode").ok()?);
    let width = u32::from(cursor.u8("packed width").ok()?);
    if order > 1 || width > 29 || count < order {
        return None;
    }
    let first = if order > 0 { cursor.signed("first value").ok()? } else { 0 };
    let least = cursor.signed("minimum").ok()?;
    let largest_step = least.unsigned_abs().checked_add(1 << width)?;
    let steps = if order > 0 { count as u64 } else { 1 };
    let reach = largest_step.checked_mul(steps)?.checked_add(first.unsigned_abs())?;
    (reach < 1 << 31).then_some((order, width, first as i32, least as i32))
}

fn decode_packed<T: Copy>(
    mode: u8,
    cursor: &mut Cursor<'_>,
    out: &mut [T],
    map: impl Fn(i64) -> T,
) -> Result<(), FormatError> {
    let order = usize::from(mode & MODE_MASK);
    if order > 2 || mode & !(MODE_MASK | HAS_DIVISOR | HAS_PATCHES) != 0 {
        return Err(FormatError::Unsupported { what: "integer mode", found: mode.into() });
    }
    if order > out.len() {
        return Err(malformed("differences of too few values"));
    }
    let width = u32::from(cursor.u8("packed width")?);
    let mut value = if order > 0 { cursor.signed("first value")? } else { 0 };
    let mut step = if order > 1 { cursor.signed("first difference")? } else { 0 };
    let least = cursor.signed("minimum")?;
    let divisor = if mode & HAS_DIVISOR != 0 { cursor.varint("divisor")? } else { 1 };
    let (seeds, rest) = out.split_at_mut(order);
    if let Some(seed) = seeds.first_mut() {
        *seed = map(value);
    }
    if let Some(seed) = seeds.get_mut(1) {
        value = value.wrapping_add(step);
        *seed = map(value);
    }
    if mode & HAS_PATCHES != 0 {
        let mut residuals = vec![0u64; rest.len()];
        pack::unpack(cursor, width, &mut residuals, |r| r)?;
        apply_patches(cursor, width, &mut residuals)?;
        for (slot, r) in rest.iter_mut().zip(residuals) {
            let d = least.wrapping_add(r.wrapping_mul(divisor) as i64);
            let v = match order {
                0 => d,
                1 => value.wrapping_add(d),
                _ => {
                    step = step.wrapping_add(d);
                    value.wrapping_add(step)
                }
            };
            value = v;
            *slot = map(v);
        }
        return Ok(());
    }
    match (order, divisor) {
        (0, 1) => pack::unpack(cursor, width, rest, |r| map(least.wrapping_add(r as i64))),
        (0, _) => pack::unpack(cursor, width, rest, |r| map(least.wrapping_add(r.wrapping_mul(divisor) as i64))),
        (1, 1) => pack::unpack(cursor, width, rest, |r| {
            value = value.wrapping_add(least.wrapping_add(r as i64));
            map(value)
        }),
        (1, _) => pack::unpack(cursor, width, rest, |r| {
            value = value.wrapping_add(least.wrapping_add(r.wrapping_mul(divisor) as i64));
            map(value)
        }),
        _ => pack::unpack(cursor, width, rest, |r| {
            step = step.wrapping_add(least.wrapping_add(r.wrapping_mul(divisor) as i64));
            value = value.wrapping_add(step);
            map(value)
        }),
    }
}

fn apply_patches(cursor: &mut Cursor<'_>, width: u32, residuals: &mut [u64]) -> Result<(), FormatError> {
    if width >= 64 {
        return Err(malformed("patches above 64 bits"));
    }
    let patches = cursor.count("patches", residuals.len())?;
    let mut next = 0usize;
    for _ in 0..patches {
        let skip = cursor.count("patch distance", residuals.len())?;
        let high = cursor.varint("patch")?;
        let slot = residuals.get_mut(next + skip).ok_or(malformed("patch beyond the column"))?;
        *slot |= high << width;
        next += skip + 1;
    }
    Ok(())
}

/// Returns a lower bound for the bytes that [`encode`] takes for `values`, to compare encodings without writing them.
pub(crate) fn estimate_len(values: &[i64]) -> usize {
    if values.is_empty() {
        return 0;
    }
    let survey = Survey::of(values);
    let packed = survey.packed_len_bound(values.len());
    let of_run =
        pack::width_of(survey.range[0]) as usize + pack::width_of((values.len() / survey.runs) as u64) as usize;
    packed.min(survey.runs * of_run / 8 + 4) + varint_len(values[0].unsigned_abs()) + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[i64]) -> usize {
        let mut out = Vec::new();
        encode(values, &mut out);
        let mut got = vec![0i64; values.len()];
        let mut cursor = Cursor::new(&out);
        decode(&mut cursor, &mut got, |v| v).unwrap();
        assert_eq!(got, values);
        assert_eq!(cursor.remaining(), 0);
        out.len()
    }

    #[test]
    fn extremes_come_back() {
        round_trip(&[]);
        for v in [0, -1, i64::MIN, i64::MAX] {
            round_trip(&[v]);
        }
        round_trip(&[i64::MIN, i64::MAX]);
        round_trip(&[i64::MAX, i64::MIN, i64::MAX, 0, -1, 1]);
        round_trip(&(0..3_000).map(|i| if i % 2 == 0 { i64::MIN } else { i64::MAX }).collect::<Vec<_>>());
        round_trip(&[NARROW - 1, 1 - NARROW, NARROW - 1, 1 - NARROW]);
    }

    #[test]
    fn multiples_are_told_and_divided() {
        let mut random = fastrand::Rng::with_seed(4);
        let some = (0..2_000).map(|_| random.u64(1..) >> random.u32(0..64)).filter(|d| *d > 0);
        for divisor in (1..50).chain(some.collect::<Vec<_>>()).chain([u64::MAX, 1 << 63]) {
            let by = Divisor::new(divisor);
            for _ in 0..50 {
                let number = random.u64(..) >> random.u32(0..64);
                assert_eq!(by.divides(number), number.checked_rem(divisor) == Some(0), "{number} / {divisor}");
                let multiple = number / divisor * divisor;
                assert!(by.divides(multiple), "{multiple} / {divisor}");
                assert_eq!(by.quotient(multiple), multiple / divisor);
            }
        }
    }

    #[test]
    fn series_take_the_form_that_is_small() {
        let counter: Vec<i64> = (0..1_024).map(|i| 1_000_000 + 3 * i).collect();
        assert!(round_trip(&counter) < 12);
        let ramp: Vec<i64> = (0..1_024).map(|i| i * i * 1_000).collect();
        assert!(round_trip(&ramp) < 16);
        let microseconds: Vec<i64> =
            (0..1_024).map(|i| 1_700_000_000_000_000_000 + i * 1_000_000 + i % 7 * 1_000).collect();
        assert!(round_trip(&microseconds) < 560);
        let states: Vec<i64> = (0..1_024).map(|i| i / 300).collect();
        assert!(round_trip(&states) < 24);
        let noise: Vec<i64> = (0..1_024).map(|i| i * 7_919 % 1_024).collect();
        assert!(round_trip(&noise) < 1_300);
    }

    #[test]
    fn one_late_datagram_does_not_widen_the_others() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut jitter: Vec<i64> = (0..1_024).map(|_| random.i64(0..1_000)).collect();
        jitter[100] = 5_000_000_000;
        jitter[900] = 40_000_000;
        assert!(round_trip(&jitter) < 1_350);
    }

    #[test]
    fn steady_stamps_lie_about_a_line() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut stamps: Vec<i64> =
            (0..1_024).map(|i| 1_763_600_000_000_000_000 + i * 20_000_000 + random.i64(0..30_000)).collect();
        stamps[500] += 15_000_000;
        let mut out = Vec::new();
        encode_times(&stamps, &mut out);
        assert_eq!(out[0], MODE_LINE);
        assert!(out.len() < 1_024 * 15 / 8 + 60, "{}", out.len());
        for extreme in
            [vec![i64::MIN; 40], (0..40).map(|i| if i % 2 == 0 { i64::MIN } else { i64::MAX }).collect(), stamps]
        {
            let mut out = Vec::new();
            encode_times(&extreme, &mut out);
            let mut got = vec![0; extreme.len()];
            decode(&mut Cursor::new(&out), &mut got, |v| v).unwrap();
            assert_eq!(got, extreme);
        }
    }

    #[test]
    fn damage_is_an_error_or_other_values_never_a_panic() {
        let mut random = fastrand::Rng::with_seed(5);
        let series: [Vec<i64>; 4] = [
            (0..1_500).map(|_| random.i64(..)).collect(),
            (0..1_500).map(|i| i / 200).collect(),
            (0..1_500).map(|i| if i == 700 { 1 << 40 } else { i % 50 }).collect(),
            (0..40).map(|i| i * 1_000).collect(),
        ];
        for values in series {
            let mut out = Vec::new();
            encode(&values, &mut out);
            let mut got = vec![0i64; values.len()];
            for _ in 0..2_000 {
                let mut bad = out.clone();
                let at = random.usize(..bad.len());
                bad[at] ^= 1 << random.u8(..8);
                let _ = decode(&mut Cursor::new(&bad), &mut got, |v| v);
                let _ = decode(&mut Cursor::new(&bad[..at]), &mut got, |v| v);
            }
        }
    }
}

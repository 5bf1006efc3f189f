//! Bit packing of unsigned residuals of one width: 1,024 at a time by `fastlanes`, the rest bit by bit.
//!
//! The order of bits is part of the format. A full chunk of 1,024 values of width W is packed in words of T bits, where
//! T is the smallest of 8, 16, 32, 64 that is ≥ W. `docs/format/store.md` specifies the order, and the tests contain a
//! second decoder that follows the document instead of this file. The last n mod 1,024 values are padded with zeros to
//! a full chunk if there are at least 960, as with the 1,023 differences of a block. Fewer are stored one after the
//! other, least significant bit first.

use fastlanes::BitPacking;

use crate::bytes::{Cursor, FormatError, malformed};

/// Number of values packed together.
pub(crate) const CHUNK: usize = 1_024;

/// Minimum number of remaining values that are packed as a full chunk: it wastes at most a fifteenth.
const FILLED: usize = 960;

/// Unsigned integer that can be packed.
pub(crate) trait Word: Copy + Default + Ord {
    /// Returns the value zero-extended.
    fn wide(self) -> u64;
    /// Returns the low bits of a value.
    fn narrow(wide: u64) -> Self;
}

macro_rules! word {
    ($type:ty) => {
        impl Word for $type {
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn narrow(wide: u64) -> Self {
                wide as $type
            }
        }
    };
}
word!(u32);
word!(u64);

/// Returns the number of bits that a value needs: 0 for 0.
pub(crate) fn width_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// Returns the bytes that `count` values of `width` bits take.
pub(crate) fn packed_len(count: usize, width: u32) -> usize {
    let (chunks, rest) = chunks_of(count);
    chunks * (CHUNK / 8) * width as usize + (rest * width as usize).div_ceil(8)
}

/// Returns the number of chunks for `count` values, and how many values follow them individually.
fn chunks_of(count: usize) -> (usize, usize) {
    let (chunks, rest) = (count / CHUNK, count % CHUNK);
    if rest >= FILLED { (chunks + 1, 0) } else { (chunks, rest) }
}

macro_rules! chunk_codec {
    ($pack:ident, $unpack:ident, $word:ty, $($width:literal)*) => {
        fn $pack(width: u32, input: &[$word; CHUNK], out: &mut Vec<u8>) {
            match width {
                $($width => {
                    const WORDS: usize = CHUNK * $width / <$word>::BITS as usize;
                    let mut packed = [0; WORDS];
                    <$word>::pack::<$width, WORDS>(input, &mut packed);
                    let start = out.len();
                    out.resize(start + WORDS * size_of::<$word>(), 0);
                    for (bytes, word) in out[start..].chunks_exact_mut(size_of::<$word>()).zip(packed) {
                        bytes.copy_from_slice(&word.to_le_bytes());
                    }
                })*
                _ => debug_assert_eq!(width, 0),
            }
        }

        /// Unpacks a chunk; `input` must have exactly the length of a chunk of `width`.
        fn $unpack(width: u32, input: &[u8], output: &mut [$word; CHUNK]) {
            match width {
                $($width => {
                    const WORDS: usize = CHUNK * $width / <$word>::BITS as usize;
                    let mut packed = [0; WORDS];
                    for (word, bytes) in packed.iter_mut().zip(input.as_chunks().0) {
                        *word = <$word>::from_le_bytes(*bytes);
                    }
                    <$word>::unpack::<$width, WORDS>(&packed, output);
                })*
                _ => output.fill(0),
            }
        }
    };
}

chunk_codec!(pack_u8, unpack_u8, u8, 1 2 3 4 5 6 7 8);
chunk_codec!(pack_u16, unpack_u16, u16, 9 10 11 12 13 14 15 16);
chunk_codec!(pack_u32, unpack_u32, u32, 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
chunk_codec!(pack_u64, unpack_u64, u64,
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);

/// Appends packed values, all of which must fit in `width` bits.
pub(crate) fn pack<W: Word>(values: &[W], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    out.reserve(packed_len(values.len(), width));
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    for chunk in chunks {
        pack_chunk(chunk, width, out);
    }
    if rest.len() >= FILLED {
        let mut filled = [W::default(); CHUNK];
        filled[..rest.len()].copy_from_slice(rest);
        pack_chunk(&filled, width, out);
    } else {
        pack_rest(rest, width, out);
    }
}

fn pack_chunk<W: Word>(values: &[W; CHUNK], width: u32, out: &mut Vec<u8>) {
    macro_rules! narrowed {
        ($word:ty, $pack:ident) => {{
            let mut words = [0 as $word; CHUNK];
            for (word, value) in words.iter_mut().zip(values) {
                *word = value.wide() as $word;
            }
            $pack(width, &words, out);
        }};
    }
    match width {
        1..=8 => narrowed!(u8, pack_u8),
        9..=16 => narrowed!(u16, pack_u16),
        17..=32 => narrowed!(u32, pack_u32),
        _ => narrowed!(u64, pack_u64),
    }
}

fn pack_rest<W: Word>(values: &[W], width: u32, out: &mut Vec<u8>) {
    let (mut held, mut bits) = (0u128, 0u32);
    for value in values {
        held |= u128::from(value.wide()) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            bits -= 64;
        }
    }
    let bytes = bits.div_ceil(8) as usize;
    out.extend_from_slice(&(held as u64).to_le_bytes()[..bytes]);
}

/// Unpacks as many values as `out` has slots, and passes each through `map` in order.
///
/// # Errors
/// If the bytes end too early, or the width is over 64.
pub(crate) fn unpack<T>(
    cursor: &mut Cursor<'_>,
    width: u32,
    out: &mut [T],
    mut map: impl FnMut(u64) -> T,
) -> Result<(), FormatError> {
    if width > 64 {
        return Err(malformed("packed width over 64 bits"));
    }
    let bytes = cursor.take(packed_len(out.len(), width), "packed values")?;
    if width == 0 {
        out.iter_mut().for_each(|slot| *slot = map(0));
        return Ok(());
    }
    let chunk_len = CHUNK / 8 * width as usize;
    let (chunks, rest) = chunks_of(out.len());
    let (packed, packed_rest) = bytes.split_at(chunks * chunk_len);
    let in_chunks = out.len() - rest;
    let (slots, tail) = out.split_at_mut(in_chunks);
    // The last chunk may have fewer slots than values.
    let pairs = slots.chunks_mut(CHUNK).zip(packed.chunks_exact(chunk_len));
    macro_rules! each_chunk {
        ($word:ty, $unpack:ident) => {{
            let mut words = [0 as $word; CHUNK];
            for (slots, packed) in pairs {
                $unpack(width, packed, &mut words);
                for (slot, word) in slots.iter_mut().zip(&words) {
                    *slot = map(u64::from(*word));
                }
            }
        }};
    }
    match width {
        1..=8 => each_chunk!(u8, unpack_u8),
        9..=16 => each_chunk!(u16, unpack_u16),
        17..=32 => each_chunk!(u32, unpack_u32),
        _ => each_chunk!(u64, unpack_u64),
    }
    unpack_tail(packed_rest, width, tail, map);
    Ok(())
}

fn unpack_tail<T>(bytes: &[u8], width: u32, out: &mut [T], mut map: impl FnMut(u64) -> T) {
    let mask = u64::MAX >> (64 - width);
    for (index, slot) in out.iter_mut().enumerate() {
        let bit = index * width as usize;
        let (byte, shift) = (bit / 8, bit % 8);
        let value = match bytes.get(byte..).and_then(|b| b.first_chunk::<8>()) {
            Some(eight) if width <= 56 => u64::from_le_bytes(*eight) >> shift,
            _ => {
                let mut padded = [0u8; 16];
                let end = bytes.len().min(byte + 9);
                padded[..end - byte].copy_from_slice(&bytes[byte..end]);
                (u128::from_le_bytes(padded) >> shift) as u64
            }
        };
        *slot = map(value & mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unpacks in the order specified in `docs/format/store.md`, bit by bit.
    fn reference_unpack(bytes: &[u8], count: usize, width: usize) -> Vec<u64> {
        let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
        let word = [8, 16, 32, 64].into_iter().find(|t| width <= *t).unwrap();
        let lanes = CHUNK / word;
        let order = [0, 4, 2, 6, 1, 5, 3, 7];
        let rest = if count % CHUNK >= 960 { 0 } else { count % CHUNK };
        let mut values = vec![0u64; (count - rest).next_multiple_of(CHUNK) + rest];
        let whole = values.len() - rest;
        for chunk in 0..whole / CHUNK {
            for lane in 0..lanes {
                for row in 0..word {
                    let index = chunk * CHUNK + order[row / 8] * 16 + row % 8 * 128 + lane;
                    for b in 0..width {
                        let in_lane = row * width + b;
                        let at = (in_lane / word * lanes + lane) * word + in_lane % word;
                        values[index] |= bit(chunk * CHUNK * width + at) << b;
                    }
                }
            }
        }
        for (index, value) in values[whole..].iter_mut().enumerate() {
            for b in 0..width {
                *value |= bit(whole * width + index * width + b) << b;
            }
        }
        if rest == 0 {
            assert!(values[count..].iter().all(|v| *v == 0), "what fills a chunk up is zero");
            values.truncate(count);
        }
        values
    }

    #[test]
    fn every_width_comes_back_and_agrees_with_the_documents_decoder() {
        let mut random = fastrand::Rng::with_seed(7);
        for width in 0..=64u32 {
            for count in [0, 1, 7, 63, 959, 960, 1_023, 1_024, 1_025, 2_046, 2_200] {
                let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
                let values: Vec<u64> = (0..count).map(|_| random.u64(..) & mask).collect();
                let mut out = Vec::new();
                pack(&values, width, &mut out);
                if width <= 32 {
                    let (narrow, mut same) = (values.iter().map(|v| *v as u32).collect::<Vec<_>>(), Vec::new());
                    pack(&narrow, width, &mut same);
                    assert_eq!(same, out);
                }
                assert_eq!(out.len(), packed_len(count, width));
                let mut got = vec![0; count];
                unpack(&mut Cursor::new(&out), width, &mut got, |v| v).unwrap();
                assert_eq!(got, values, "width {width} count {count}");
                if width > 0 {
                    assert_eq!(reference_unpack(&out, count, width as usize), values, "width {width} count {count}");
                }
                if !out.is_empty() {
                    assert!(unpack(&mut Cursor::new(&out[..out.len() - 1]), width, &mut got, |v| v).is_err());
                }
            }
        }
        assert!(unpack(&mut Cursor::new(&[0; 100]), 65, &mut [0], |v| v).is_err());
    }
}

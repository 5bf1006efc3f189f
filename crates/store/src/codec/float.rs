//! Abstraction of `f32` and `f64` for the float codecs.

use crate::bytes::{Cursor, FormatError};

/// Float type: `f32` or `f64`.
pub(crate) trait Float: Copy + PartialOrd + crate::codec::pcodec::PcoNumber {
    /// Size of a value in bytes.
    const SIZE: usize;
    /// Bits of the fraction, without the implicit leading one.
    const FRACTION_BITS: i32;
    fn wide(self) -> f64;
    /// Rounds to the type: to nearest, ties to even.
    fn narrow(value: f64) -> Self;
    /// Returns the bit pattern, zero-extended.
    fn pattern(self) -> u64;
    /// Returns an integer that increases with the value, by one from each float to the next.
    fn ordered(self) -> i64;
    /// Inverts [`Float::ordered`], modulo the type's width.
    fn from_ordered(ordered: i64) -> Self;
    fn put(self, out: &mut Vec<u8>);
    fn get(cursor: &mut Cursor<'_>) -> Result<Self, FormatError>;

    /// Returns the distance between neighbouring floats at a magnitude.
    fn ulp(magnitude: f64) -> f64 {
        let exponent = ((magnitude.to_bits() >> 52 & 0x7ff) as i32 - 1_023).max(-900);
        2f64.powi(exponent - Self::FRACTION_BITS)
    }
}

impl Float for f32 {
    const SIZE: usize = 4;
    const FRACTION_BITS: i32 = 23;
    #[inline(always)]
    fn wide(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn pattern(self) -> u64 {
        self.to_bits() as u64
    }
    #[inline(always)]
    fn ordered(self) -> i64 {
        let bits = self.to_bits() as i32;
        i64::from(bits ^ ((bits >> 31) as u32 >> 1) as i32)
    }
    #[inline(always)]
    fn from_ordered(ordered: i64) -> Self {
        let bits = ordered as i32;
        f32::from_bits((bits ^ ((bits >> 31) as u32 >> 1) as i32) as u32)
    }
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn get(cursor: &mut Cursor<'_>) -> Result<Self, FormatError> {
        cursor.f32("f32")
    }
}

impl Float for f64 {
    const SIZE: usize = 8;
    const FRACTION_BITS: i32 = 52;
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn pattern(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn ordered(self) -> i64 {
        let bits = self.to_bits() as i64;
        bits ^ ((bits >> 63) as u64 >> 1) as i64
    }
    #[inline(always)]
    fn from_ordered(ordered: i64) -> Self {
        f64::from_bits((ordered ^ ((ordered >> 63) as u64 >> 1) as i64) as u64)
    }
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn get(cursor: &mut Cursor<'_>) -> Result<Self, FormatError> {
        cursor.f64("f64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_patterns_is_the_order_of_values() {
        let ascending = [f64::NEG_INFINITY, -1.0, -f64::from_bits(1), -0.0, 0.0, f64::from_bits(1), 1.0, f64::INFINITY];
        for pair in ascending.windows(2) {
            assert!(pair[0].ordered() < pair[1].ordered(), "{pair:?}");
        }
        assert_eq!((-0.0f64).ordered(), -1);
        for bits in [0, 1, 0x8000_0000_0000_0000, u64::MAX, 0x7ff8_0000_0000_0001, 0xfff0_0000_0000_0001] {
            assert_eq!(f64::from_ordered(f64::from_bits(bits).ordered()).to_bits(), bits);
        }
        for bits in [0, 1, 0x8000_0000, u32::MAX, 0x7fc0_0001, 0xff80_0001] {
            assert_eq!(f32::from_ordered(f32::from_bits(bits).ordered()).to_bits(), bits);
        }
    }
}

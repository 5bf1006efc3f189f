//! Parses numbers of the line protocol from bytes, without copying.

/// Powers of ten that a double holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Value of a numeric token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// No suffix, or `d` for a decimal: the nearest double.
    F64(f64),
    /// `i`.
    I64(i64),
    /// `u`.
    U64(u64),
    /// `t` (microseconds) or `n` (nanoseconds): nanoseconds since 1970.
    Time(i64),
}

/// Reason why a token is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    /// A malformed token.
    Malformed,
    /// An integer out of its type's range.
    OutOfRange,
    /// A number beyond the range of a double.
    TooLarge,
}

/// Returns the length of the token at the start of `bytes`, up to a comma or space.
#[inline]
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|b| matches!(b, b',' | b' ')).unwrap_or(bytes.len())
}

/// Parses the number at the start of `bytes`, up to a comma, a space or the end. Returns it with its length.
///
/// A mantissa of up to 2⁵³ over a power of ten of up to 22 is divided once, which rounds correctly (Clinger 1990).
/// Everything else is left to the standard library.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> Result<(Number, usize), NotANumber> {
    let negative = bytes.first() == Some(&b'-');
    let mut at = negative as usize;
    let mut mantissa = 0_u64;
    let first = at;
    while let Some(d) = digit(bytes, at) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(d);
        at += 1;
    }
    let whole = at - first;
    let mut fraction = 0;
    if whole > 0 && bytes.get(at) == Some(&b'.') {
        at += 1;
        let point = at;
        while let Some(d) = digit(bytes, at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(d);
            at += 1;
        }
        fraction = at - point;
    }
    // 19 digits never overflow 64 bits.
    let exact = whole > 0 && whole + fraction <= 19;
    match bytes.get(at) {
        None | Some(b',' | b' ') if exact && mantissa <= 1 << 53 && fraction < POWERS_OF_TEN.len() => {
            let magnitude = mantissa as f64 / POWERS_OF_TEN[fraction];
            Ok((Number::F64(if negative { -magnitude } else { magnitude }), at))
        }
        Some(suffix @ (b'i' | b'u' | b't' | b'n')) if whole > 0 && bytes[at - 1] != b'.' && fraction == 0 => {
            if !matches!(bytes.get(at + 1), None | Some(b',' | b' ')) {
                return Err(NotANumber::Malformed);
            }
            let digits = &bytes[first..at];
            let n = match suffix {
                b'u' if negative => return Err(NotANumber::OutOfRange),
                b'u' => Number::U64(unsigned(digits)?),
                b'i' => Number::I64(signed(digits, negative)?),
                b'n' => Number::Time(signed(digits, negative)?),
                _ => Number::Time(signed(digits, negative)?.checked_mul(1_000).ok_or(NotANumber::OutOfRange)?),
            };
            Ok((n, at + 1))
        }
        _ => {
            let len = token_len(bytes);
            let token = std::str::from_utf8(&bytes[..len]).map_err(|_| NotANumber::Malformed)?;
            let is_decimal = |digits: &&str| digits.ends_with(|c: char| c.is_ascii_digit() || c == '.');
            let digits = token.strip_suffix('d').filter(is_decimal).unwrap_or(token);
            Ok((Number::F64(double(digits)?), len))
        }
    }
}

/// Parses a double. A number written in digits is never infinite.
fn double(text: &str) -> Result<f64, NotANumber> {
    let value: f64 = text.parse().map_err(|_| NotANumber::Malformed)?;
    if is_overflow(value, text) { Err(NotANumber::TooLarge) } else { Ok(value) }
}

/// Reports whether a number written in digits was parsed as infinite.
pub(crate) fn is_overflow(value: f64, text: &str) -> bool {
    value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Parses a whole token as a time: an integer in `unit_ns`, or with suffix `t` (µs) or `n` (ns).
pub(crate) fn timestamp(token: &[u8], unit_ns: i64) -> Result<i64, NotANumber> {
    let (token, unit_ns) = match token {
        [digits @ .., b'n'] => (digits, 1),
        [digits @ .., b't'] => (digits, 1_000),
        digits => (digits, unit_ns),
    };
    let (digits, negative) = match token {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    signed(digits, negative)?.checked_mul(unit_ns).ok_or(NotANumber::OutOfRange)
}

#[inline]
fn digit(bytes: &[u8], at: usize) -> Option<u64> {
    let d = bytes.get(at)?.wrapping_sub(b'0');
    (d < 10).then_some(d as u64)
}

#[inline]
fn unsigned(digits: &[u8]) -> Result<u64, NotANumber> {
    if digits.is_empty() {
        return Err(NotANumber::Malformed);
    }
    let mut n = 0_u64;
    for (i, byte) in digits.iter().enumerate() {
        let d = byte.wrapping_sub(b'0');
        if d > 9 {
            return Err(NotANumber::Malformed);
        }
        n = if i < 18 {
            n * 10 + d as u64
        } else {
            n.checked_mul(10).and_then(|n| n.checked_add(d as u64)).ok_or(NotANumber::OutOfRange)?
        };
    }
    Ok(n)
}

#[inline]
fn signed(digits: &[u8], negative: bool) -> Result<i64, NotANumber> {
    let magnitude = unsigned(digits)?;
    if negative {
        0_i64.checked_sub_unsigned(magnitude).ok_or(NotANumber::OutOfRange)
    } else {
        i64::try_from(magnitude).map_err(|_| NotANumber::OutOfRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Number, NotANumber> {
        let (n, len) = number(text.as_bytes())?;
        assert_eq!(len, text.len(), "{text}");
        Ok(n)
    }

    #[test]
    fn doubles_equal_those_of_the_standard_library() {
        for text in [
            "0",
            "-0",
            "1",
            "1.0",
            "1.5",
            "-1.5",
            "64.2",
            "0.1",
            "123456789.123456789",
            "9007199254740992",
            "9007199254740993",
            "0.000001",
            "1e100",
            "1E+100",
            "-1e-6",
            "5e-324",
            "1.7976931348623157e308",
            "1.",
            "0.30000000000000004",
            "12345678901234567890.5",
            "3.4028235e38",
            ".5",
            "+1.25",
            "0.0000000000000000000000001",
            "18446744073709551617",
            "1844674407370955161.7",
        ] {
            let want: f64 = text.parse().unwrap();
            match one(text) {
                Ok(Number::F64(v)) => assert_eq!(v.to_bits(), want.to_bits(), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_a_double_cannot_hold_is_refused() {
        let digits = "9".repeat(400);
        for text in ["1e400", "-1e309", "1.8e308", "1e99999999999999999999", &digits, "1e400d"] {
            assert_eq!(one(text), Err(NotANumber::TooLarge), "{text}");
        }
        assert_eq!(one("1e-400"), Ok(Number::F64(0.0)));
    }

    #[test]
    fn decimals_are_the_nearest_double() {
        for text in ["123.00d", "0d", "-0.1d", "1.d", ".5d", "+1.25d", "1e3d", "12345678901234567890.123456789d"] {
            let want: f64 = text.trim_end_matches('d').parse().unwrap();
            match one(text) {
                Ok(Number::F64(v)) => assert_eq!(v.to_bits(), want.to_bits(), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["d", "-d", ".d", "1dd", "1id", "NaNd", "infd", "1ed"] {
            assert_eq!(number(text.as_bytes()), Err(NotANumber::Malformed), "{text:?}");
        }
    }

    #[test]
    fn every_spelling_of_what_is_no_finite_number_is_taken() {
        for text in ["NaN", "nan", "-NaN"] {
            assert!(matches!(one(text), Ok(Number::F64(v)) if v.is_nan()), "{text}");
        }
        for (text, want) in [("inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY), ("+Inf", f64::INFINITY)] {
            assert_eq!(one(text), Ok(Number::F64(want)), "{text}");
        }
    }

    #[test]
    fn integers_reach_their_limits_and_no_further() {
        assert_eq!(one("9223372036854775807i"), Ok(Number::I64(i64::MAX)));
        assert_eq!(one("-9223372036854775808i"), Ok(Number::I64(i64::MIN)));
        assert_eq!(one("9223372036854775808i"), Err(NotANumber::OutOfRange));
        assert_eq!(one("-9223372036854775809i"), Err(NotANumber::OutOfRange));
        assert_eq!(one("18446744073709551615u"), Ok(Number::U64(u64::MAX)));
        assert_eq!(one("18446744073709551616u"), Err(NotANumber::OutOfRange));
        assert_eq!(one("-1u"), Err(NotANumber::OutOfRange));
        assert_eq!(one("0000000000000000000000000000007i"), Ok(Number::I64(7)));
        assert_eq!(one("5t"), Ok(Number::Time(5_000)));
        assert_eq!(one("-5n"), Ok(Number::Time(-5)));
        assert_eq!(one("9223372036854775807t"), Err(NotANumber::OutOfRange));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "-", "i", "-i", "1.5i", "1.i", "1ii", "1x", "0x10i", "1e", "--1", "1-", "1_000", "e5", "n", "t5"]
        {
            assert_eq!(number(text.as_bytes()), Err(NotANumber::Malformed), "{text:?}");
        }
    }

    #[test]
    fn times_take_their_unit_or_a_suffix() {
        assert_eq!(timestamp(b"5", 1_000_000), Ok(5_000_000));
        assert_eq!(timestamp(b"5t", 1), Ok(5_000));
        assert_eq!(timestamp(b"-5n", 3_600_000_000_000), Ok(-5));
        assert_eq!(timestamp(b"9223372036854775807", 1), Ok(i64::MAX));
        assert_eq!(timestamp(b"9223372036854775807", 1_000), Err(NotANumber::OutOfRange));
        for bad in [&b""[..], b"-", b"n", b"1.5", b"1x", b"+-1"] {
            assert_eq!(timestamp(bad, 1), Err(NotANumber::Malformed));
        }
    }
}

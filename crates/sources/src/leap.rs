//! Converts TAI to UTC with the whole-second offsets since 1972, from IERS Bulletin C.

/// First second of UTC (since 1970, as POSIX counts) of each value of TAI − UTC. Rows are those of the IERS leap second
/// list; none was announced after 2017.
const OFFSETS: [(i64, i64); 28] = [
    (63_072_000, 10),    // 1972-01-01
    (78_796_800, 11),    // 1972-07-01
    (94_694_400, 12),    // 1973-01-01
    (126_230_400, 13),   // 1974-01-01
    (157_766_400, 14),   // 1975-01-01
    (189_302_400, 15),   // 1976-01-01
    (220_924_800, 16),   // 1977-01-01
    (252_460_800, 17),   // 1978-01-01
    (283_996_800, 18),   // 1979-01-01
    (315_532_800, 19),   // 1980-01-01
    (362_793_600, 20),   // 1981-07-01
    (394_329_600, 21),   // 1982-07-01
    (425_865_600, 22),   // 1983-07-01
    (489_024_000, 23),   // 1985-07-01
    (567_993_600, 24),   // 1988-01-01
    (631_152_000, 25),   // 1990-01-01
    (662_688_000, 26),   // 1991-01-01
    (709_948_800, 27),   // 1992-07-01
    (741_484_800, 28),   // 1993-07-01
    (773_020_800, 29),   // 1994-07-01
    (820_454_400, 30),   // 1996-01-01
    (867_715_200, 31),   // 1997-07-01
    (915_148_800, 32),   // 1999-01-01
    (1_136_073_600, 33), // 2006-01-01
    (1_230_768_000, 34), // 2009-01-01
    (1_341_100_800, 35), // 2012-07-01
    (1_435_708_800, 36), // 2015-07-01
    (1_483_228_800, 37), // 2017-01-01
];

/// Returns TAI − UTC in seconds at a TAI instant (seconds since 1970-01-01T00:00:00 TAI). Before 1972, when the offset
/// was not a whole number, returns that of 1972; only clocks that were never set show such times.
pub fn tai_minus_utc(tai_s: i64) -> i64 {
    // On the TAI scale, a row begins at its UTC second plus the new offset.
    let rows = OFFSETS.partition_point(|(utc_s, offset)| utc_s + offset <= tai_s);
    OFFSETS[rows.saturating_sub(1)].1
}

/// Converts a TAI second to UTC seconds since 1970 (as POSIX counts). The inserted leap second itself becomes the first
/// second of the next day, as on POSIX clocks that step back.
pub fn tai_to_utc(tai_s: i64) -> i64 {
    tai_s - tai_minus_utc(tai_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_change_at_the_right_tai_second() {
        // 2017-01-01T00:00:00 UTC is TAI 1483228837; the leap second before it is 1483228836.
        assert_eq!(tai_to_utc(1_483_228_837), 1_483_228_800);
        assert_eq!(tai_to_utc(1_483_228_836), 1_483_228_800);
        assert_eq!(tai_to_utc(1_483_228_835), 1_483_228_799);
        // 1999-01-01T00:00:00 UTC, offset 32.
        assert_eq!(tai_to_utc(915_148_832), 915_148_800);
        assert_eq!(tai_to_utc(915_148_829), 915_148_798);
        // Today, and before 1972.
        assert_eq!(tai_minus_utc(1_800_000_000), 37);
        assert_eq!(tai_minus_utc(755), 10);
        assert_eq!(tai_minus_utc(63_072_010), 10);
    }

    #[test]
    fn offsets_rise_by_one() {
        for pair in OFFSETS.windows(2) {
            assert_eq!(pair[0].1 + 1, pair[1].1);
            assert!(pair[0].0 < pair[1].0);
            assert_eq!(pair[1].0 % 86_400, 0);
        }
    }
}

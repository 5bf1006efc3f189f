//! Texts of intervals, as PostgreSQL reads them: `1 day 02:03:04`, `90`, `1-2`, `P1DT2H`, `1 hour ago`.
//!
//! Source: PostgreSQL documentation, section 8.5.4, "Interval Input".

use std::borrow::Cow;

/// Returns the text of an interval with a unit behind each number, and the others unchanged. A number without a unit is in
/// seconds, or in days before a time of day.
pub(crate) fn interval_text(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    if let Some(words) = iso(trimmed) {
        return Cow::Owned(words);
    }
    let mut words: Vec<&str> = trimmed.split_whitespace().collect();
    let is_ago = words.len() > 1 && words.last().is_some_and(|last| last.eq_ignore_ascii_case("ago"));
    if is_ago {
        words.pop();
    }
    if words.len() > 1 && words[0] == "@" {
        words.remove(0);
    }
    let mut parts: Vec<String> = Vec::with_capacity(words.len());
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1);
        let is_unit = |next: &&&str| next.starts_with(|first: char| first.is_ascii_alphabetic());
        let number = word.strip_prefix('+').unwrap_or(word);
        parts.push(match (clock(word), years(word)) {
            (Some(clock), _) => clock,
            (None, Some(years)) => years,
            (None, None) if !is_number(number) || next.filter(is_unit).is_some() => number.to_owned(),
            (None, None) if next.is_none() => format!("{number} seconds"),
            (None, None) if next.is_some_and(|next| clock(next).is_some()) => format!("{number} days"),
            (None, None) => number.to_owned(),
        });
    }
    let mut words = parts.join(" ");
    if is_ago {
        words = negated(&words);
    }
    if words == text { Cow::Borrowed(text) } else { Cow::Owned(words) }
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok() && word.ends_with(|last: char| last.is_ascii_digit())
}

/// Negates each number of a text.
fn negated(words: &str) -> String {
    let negate = |word: &str| match word.strip_prefix('-') {
        _ if !is_number(word) => word.to_owned(),
        Some(positive) => positive.to_owned(),
        None => format!("-{word}"),
    };
    words.split(' ').map(negate).collect::<Vec<_>>().join(" ")
}

fn is_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the sign of a word, as it is written before numbers, and what follows it.
fn signed(word: &str) -> (&'static str, &str) {
    match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    }
}

/// Returns years and months, as in `1-2`, in words.
fn years(word: &str) -> Option<String> {
    let (sign, digits) = signed(word);
    let (years, months) = digits.split_once('-')?;
    let is_it = is_digits(years) && is_digits(months) && months.parse::<u32>().is_ok_and(|months| months < 12);
    is_it.then(|| format!("{sign}{years} years {sign}{months} months"))
}

/// Returns a time of day in words, each with its sign. Two numbers are hours and minutes, or minutes and seconds if there
/// is a fraction.
fn clock(word: &str) -> Option<String> {
    let (sign, digits) = signed(word);
    let parts: Vec<&str> = digits.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] if seconds.contains('.') => ("0", *minutes, *seconds),
        [hours, minutes] => (*hours, *minutes, "0"),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if ![hours, minutes, whole, fraction].into_iter().all(is_digits) {
        return None;
    }
    let is_below_60 = |part: &str| part.parse::<u32>().is_ok_and(|part| part < 60);
    let is_clock = (is_below_60(minutes) || hours == "0") && is_below_60(whole);
    is_clock.then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

/// Returns an interval of ISO 8601, such as `P1Y2M3DT4H5M6.5S`, in words.
fn iso(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('P').filter(|rest| !rest.is_empty())?;
    let mut is_time = false;
    let mut words = Vec::new();
    while !rest.is_empty() {
        if !is_time && let Some(time) = rest.strip_prefix('T').filter(|time| !time.is_empty()) {
            (is_time, rest) = (true, time);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at(end);
        let number = number.strip_prefix('+').unwrap_or(number);
        if !is_number(number) {
            return None;
        }
        let name = match (unit.as_bytes()[0], is_time) {
            (b'Y', false) => "years",
            (b'M', false) => "months",
            (b'W', false) => "weeks",
            (b'D', false) => "days",
            (b'H', true) => "hours",
            (b'M', true) => "minutes",
            (b'S', true) => "seconds",
            _ => return None,
        };
        words.push(format!("{number} {name}"));
        rest = &unit[1..];
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_gets_its_unit() {
        for (written, read) in [
            ("1 day", "1 day"),
            ("90", "90 seconds"),
            ("-1.5", "-1.5 seconds"),
            ("+1 day +2 h", "1 day 2 h"),
            ("  3  days  ", "3 days"),
            ("1 day -02:03:04.5", "1 day -02 hours -03 minutes -04.5 seconds"),
            ("3 04:05", "3 days 04 hours 05 minutes 0 seconds"),
            ("1:30.5", "0 hours 1 minutes 30.5 seconds"),
            ("-1-2", "-1 years -2 months"),
            ("@ 1 minute", "1 minute"),
            ("1 h -2 min ago", "-1 h 2 min"),
            ("90 ago", "-90 seconds"),
            ("P1Y2M3DT4H5M6.5S", "1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds"),
            ("PT-1.5H", "-1.5 hours"),
            ("P2W", "2 weeks"),
            // Not read, so that the error names them as they are written.
            ("1:60", "1:60"),
            ("5 1 day", "5 1 day"),
            ("P", "P"),
            ("PT", "PT"),
            ("P1", "P1"),
            ("P1H", "P1H"),
            ("Pünï", "Pünï"),
            ("ago", "ago"),
            ("1-13", "1-13"),
            ("", ""),
        ] {
            assert_eq!(interval_text(written), read, "{written}");
        }
    }
}

//! The statement `SUBSCRIBE [EVERY '100 ms'] [LATENESS '1 s'] [IDLE '5 s'] SELECT …` of Flight SQL.

use std::time::Duration;

use crate::error::{QueryError, sqlstate};

/// Keyword of the statement.
const KEYWORD: &str = "SUBSCRIBE";

/// A subscription as its statement states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscribe<'a> {
    /// Statement whose result is followed.
    pub(crate) select: &'a str,
    /// Minimum time between two steps.
    pub(crate) every: Option<Duration>,
    /// Time for which a window waits for late frames.
    pub(crate) lateness: Option<Duration>,
    /// Time without frames after which windows are closed by the clock.
    pub(crate) idle: Option<Duration>,
}

/// Returns the text after a keyword, or `None` if it begins with another word.
fn after<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    let text = text.trim_start();
    let (word, rest) = text.split_at_checked(keyword.len())?;
    let ends = !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    (ends && word.eq_ignore_ascii_case(keyword)).then_some(rest)
}

/// Parses the text of a subscription. Returns `None` if it is another statement.
///
/// # Errors
/// If an option has no valid time.
pub(crate) fn parse(sql: &str) -> Result<Option<Subscribe<'_>>, QueryError> {
    let Some(select) = after(sql, KEYWORD) else { return Ok(None) };
    let mut subscribe = Subscribe { select, every: None, lateness: None, idle: None };
    loop {
        let (name, rest, option) = if let Some(rest) = after(subscribe.select, "EVERY") {
            ("EVERY", rest, &mut subscribe.every)
        } else if let Some(rest) = after(subscribe.select, "LATENESS") {
            ("LATENESS", rest, &mut subscribe.lateness)
        } else if let Some(rest) = after(subscribe.select, "IDLE") {
            ("IDLE", rest, &mut subscribe.idle)
        } else {
            return Ok(Some(subscribe));
        };
        let quoted = rest.trim_start().strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        let time = quoted.and_then(|(text, rest)| Some((duration(text)?, rest)));
        let Some((time, rest)) = time else {
            let text = format!("{name} of SUBSCRIBE needs a time, such as {name} '100 ms'");
            return Err(QueryError::new(sqlstate::SYNTAX_ERROR, text).with_hint("The units are ms, s and min."));
        };
        *option = Some(time);
        subscribe.select = rest;
    }
}

/// Parses a time such as `100 ms`.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let count: u64 = text[..unit].parse().ok()?;
    let unit_ms = match text[unit..].trim() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "second" | "seconds" => 1_000,
        "min" | "minute" | "minutes" => 60_000,
        _ => return None,
    };
    Some(Duration::from_millis(count.checked_mul(unit_ms)?))
}

/// Checks that a statement is no subscription.
///
/// # Errors
/// If it is one, where results have an end.
pub(crate) fn refuse(sql: &str) -> Result<(), QueryError> {
    if after(sql, KEYWORD).is_none() {
        return Ok(());
    }
    let text = "SUBSCRIBE is not offered here, where every result has an end";
    let hint = "Subscribe over GET /api/sql/live (events or WebSocket), or over Arrow Flight SQL.";
    Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_before_the_statement_in_any_order() {
        let ms = Duration::from_millis;
        let parsed = parse("  subscribe idle'5 s' EVERY '250ms' Lateness '0 ms' select 'every', x from t").unwrap();
        let wanted = Subscribe {
            select: " select 'every', x from t",
            every: Some(ms(250)),
            lateness: Some(ms(0)),
            idle: Some(ms(5_000)),
        };
        assert_eq!(parsed, Some(wanted));
        assert_eq!(parse("SUBSCRIBE\nSELECT 1").unwrap().unwrap().select, "\nSELECT 1");
        for other in ["select 1", "subscribers", "subscribe_t", "", "é"] {
            assert_eq!(parse(other), Ok(None), "{other}");
            assert_eq!(refuse(other), Ok(()));
        }
        assert_eq!(refuse("\n Subscribe select 1").unwrap_err().sqlstate, "0A000");
    }

    #[test]
    fn times_need_a_number_and_a_unit() {
        for wrong in ["every select 1", "every '1' select 1", "every 'ms'", "idle '1 h'", "every '-1 s'", "every '1 s"]
        {
            assert_eq!(parse(&format!("subscribe {wrong}")).unwrap_err().sqlstate, "42601", "{wrong}");
        }
        assert_eq!(duration("99999999999999999999 s"), None);
        assert_eq!(duration("18446744073709551615 s"), None);
        assert_eq!(duration(" 2 min "), Some(Duration::from_secs(120)));
    }
}

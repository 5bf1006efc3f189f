//! Position of a client in a subscription of the class `rows`, as a text that it returns to continue there.
//!
//! `origin;start;skip;stream:next,stream:from:to,…`: the store, the time that is `now()`, in microseconds, and for each
//! stream the next row. Within a step, streams have the rows of that step, and `skip` is the number of rows of its
//! result that the client has. A step gives the same rows in the same order each time, because committed rows never
//! change.

use std::fmt;

use strongback_store::StreamId;

use crate::error::{QueryError, sqlstate};

/// Maximum streams in a position, which is sent with every message.
pub(crate) const STREAMS_MAX: usize = 256;

/// Position of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Origin of the store.
    pub(crate) origin: u128,
    /// Value of `now()`, in microseconds since 1970 UTC.
    pub(crate) start_us: i64,
    /// Rows of the result of the current step that the client has.
    pub(crate) skip: u64,
    /// For each stream the rows of the current step; none left if the step is over.
    pub(crate) rows: Vec<(StreamId, u64, u64)>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x};{};{};", self.origin, self.start_us, self.skip)?;
        for (at, (stream, from, to)) in self.rows.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if from == to {
                write!(f, "{comma}{}:{to}", stream.0)?;
            } else {
                write!(f, "{comma}{}:{from}:{to}", stream.0)?;
            }
        }
        Ok(())
    }
}

impl Position {
    /// Parses the text of a position.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(text: &str) -> Result<Position, QueryError> {
        let error = || QueryError::new(sqlstate::INVALID_PARAMETER, "the text is not a position of this server");
        Position::read(text).filter(Position::is_valid).ok_or_else(error)
    }

    fn read(text: &str) -> Option<Position> {
        let mut parts = text.split(';');
        let (origin, start, skip, rows) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let row = |text: &str| {
            let mut numbers = text.split(':');
            let (stream, from) = (StreamId(numbers.next()?.parse().ok()?), numbers.next()?.parse().ok()?);
            let to = numbers.next().map_or(Some(from), |to| to.parse().ok())?;
            numbers.next().is_none().then_some((stream, from, to))
        };
        let rows = rows.split(',').filter(|row| !row.is_empty()).map(row).collect::<Option<_>>()?;
        let origin = u128::from_str_radix(origin, 16).ok()?;
        let position = Position { origin, start_us: start.parse().ok()?, skip: skip.parse().ok()?, rows };
        parts.next().is_none().then_some(position)
    }

    /// Reports whether its streams ascend and its rows are in order.
    fn is_valid(&self) -> bool {
        let ascend = self.rows.is_sorted_by(|(a, ..), (b, ..)| a < b);
        ascend && self.rows.len() <= STREAMS_MAX && self.rows.iter().all(|(_, from, to)| from <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_back_and_others_are_not() {
        let position = Position {
            origin: 0x7c1e,
            start_us: -5,
            skip: 4_096,
            rows: vec![(StreamId(0), 7, 7), (StreamId(3), 12, 1 << 60)],
        };
        let text = position.to_string();
        assert_eq!(text, "00000000000000000000000000007c1e;-5;4096;0:7,3:12:1152921504606846976");
        assert_eq!(Position::parse(&text), Ok(position));
        assert_eq!(Position::parse("0;0;0;").unwrap().rows, []);
        for wrong in [
            "",
            ";;;",
            "0;0;0",
            "0;0;0;;",
            "0;0;-1;",
            "0;0;0;1",
            "0;0;0;1:2:1",
            "0;0;0;1:2:3:4",
            "0;0;0;2:1,1:1",
            "0;0;0;1:1,1:1",
            "0;9223372036854775808;0;",
            "g;0;0;",
            "0;0;0;4294967296:0",
        ] {
            assert_eq!(Position::parse(wrong).unwrap_err().sqlstate, "22023", "{wrong}");
        }
    }
}

//! Resume tokens: the position of a reconnecting client, and how much of it is still valid.
//!
//! A row is final once committed; before that it is provisional and is lost with its epoch. A token beyond what its
//! epoch committed is answered with `rewound`, never silently.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use strongback_store::{Store, StreamId, View};

use super::outgoing::Outgoing;
use super::subscription::Subscription;

/// Position of a reconnecting client, from its last `hello`, `update` and `rewound`.
#[derive(Debug, Deserialize)]
pub struct Resume {
    origin: String,
    epoch: u32,
    /// `to_row` and `committed` of the last window of each stream, in decimal digits, by stream number.
    rows: BTreeMap<String, (String, String)>,
    /// Whether streams that it does not name are newer than it.
    #[serde(skip)]
    is_whole: bool,
}

/// Row at which each stream of a reconnecting client resumes.
#[derive(Debug)]
pub struct Resumed {
    rows: HashMap<StreamId, u64>,
    is_whole: bool,
}

impl Resumed {
    /// Returns the row at which a stream resumes, or `None` if the client was not told of it.
    pub fn row(&self, stream: StreamId) -> Option<u64> {
        self.rows.get(&stream).copied().or(self.is_whole.then_some(0))
    }
}

/// Max streams in a position, which is sent with every event.
const POSITION_STREAMS_MAX: usize = 256;

/// Position of a client, as a text that it returns: `origin;epoch;stream:row:committed,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    origin: u128,
    epoch: u32,
    rows: Vec<(StreamId, u64, u64)>,
}

impl Position {
    /// Returns the position of a subscription's client, or `None` if it has too many streams.
    pub fn of(subscription: &Subscription, store: &Store) -> Option<Position> {
        let (epoch, rows) = subscription.position();
        if rows.len() > POSITION_STREAMS_MAX {
            return None;
        }
        let rows = rows.into_iter().map(|(stream, row)| (stream, row, store.committed_row(stream).min(row)));
        Some(Position { origin: store.origin(), epoch, rows: rows.collect() })
    }

    /// Parses the text form of a [`Position`].
    pub fn parse(text: &str) -> Option<Position> {
        let mut parts = text.split(';');
        let (origin, epoch, rows) = (parts.next()?, parts.next()?, parts.next()?);
        let row = |text: &str| {
            let mut numbers = text.splitn(3, ':');
            let stream = StreamId(numbers.next()?.parse().ok()?);
            Some((stream, numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        };
        let rows = rows.split(',').filter(|row| !row.is_empty()).map(row).collect::<Option<_>>()?;
        let origin = u128::from_str_radix(origin, 16).ok()?;
        parts.next().is_none().then_some(Position { origin, epoch: epoch.parse().ok()?, rows })
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x};{};", self.origin, self.epoch)?;
        for (i, (stream, row, committed)) in self.rows.iter().enumerate() {
            write!(f, "{}{}:{row}:{committed}", if i > 0 { "," } else { "" }, stream.0)?;
        }
        Ok(())
    }
}

impl From<Position> for Resume {
    fn from(position: Position) -> Resume {
        let row = |(stream, row, committed): (StreamId, u64, u64)| {
            (stream.0.to_string(), (row.to_string(), committed.to_string()))
        };
        Resume {
            origin: format!("{:032x}", position.origin),
            epoch: position.epoch,
            rows: position.rows.into_iter().map(row).collect(),
            is_whole: true,
        }
    }
}

impl Resume {
    /// Returns the row at which each stream resumes. Appends a `rewound` message for each stream that went back.
    /// `view` is one of `store`.
    pub fn check(&self, store: &Store, view: &View, id: i64, messages: &mut Vec<Outgoing>) -> Resumed {
        let mut resumed = HashMap::with_capacity(self.rows.len());
        for (stream, (row, committed)) in &self.rows {
            let Ok(number) = stream.parse() else { continue };
            let stream = StreamId(number);
            // Anything that is not a number is not one of our rows.
            let row = row.parse().unwrap_or(u64::MAX);
            let kept = self.kept(store, view, stream, committed.parse().unwrap_or(0));
            if row > kept {
                messages.push(rewound(id, stream, store.epoch(), kept));
            }
            resumed.insert(stream, row.min(kept));
        }
        Resumed { rows: resumed, is_whole: self.is_whole }
    }

    /// Returns the row below which everything that the client was told is still valid.
    fn kept(&self, store: &Store, view: &View, stream: StreamId, committed: u64) -> u64 {
        let next = view.next_row(stream);
        if self.origin != format!("{:032x}", store.origin()) || self.epoch > store.epoch() {
            return 0;
        }
        match store.epoch() - self.epoch {
            0 => next,
            1 => store.opened_row(stream).min(next),
            // The last rows of older epochs are not known, only what they reported durable.
            _ => committed.min(next),
        }
    }
}

/// Creates the message that tells which row a stream went back to.
pub fn rewound(id: i64, stream: StreamId, epoch: u32, row: u64) -> Outgoing {
    let message = serde_json::json!({
        "type": "rewound", "id": id, "stream": stream.0, "epoch": epoch, "row": row.to_string(),
    });
    Outgoing::Text(message.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_as_it_went() {
        for rows in [vec![], vec![(StreamId(3), 1205, 1180)], vec![(StreamId(3), 5, 0), (StreamId(4), u64::MAX, 7)]] {
            let position = Position { origin: 0xabc, epoch: 9, rows };
            assert_eq!(Position::parse(&position.to_string()), Some(position));
        }
        for text in ["", ";", "x;1;", "a;1", "a;-1;", "a;1;3", "a;1;3:4", "a;1;3:4:5:6", "a;1;3:4:5,x", "a;1;;"] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}

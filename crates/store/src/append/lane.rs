//! Lossy append of one channel: decides which of the offered values must be stored.
//!
//! ```text
//!  stored ·───────────────────────· stored          deadband: │value − stored│ ≤ bound, read back by holding
//!         ╲ ░░░░░ the door ░░░░░ ╱
//!  from ·──▸ every slope that passes all values       swinging door: the next stored value ends the line within it
//!            since `from` within the bound
//! ```

use crate::model::reduction::Reduction;
use crate::model::row::{Field, RowShape, mask};
use crate::model::value::{CellState, ChannelType, Value};

/// Rows after which a channel within its bound is stored all the same, so that a reader that looks back for its value
/// finds it within this many rows.
pub(crate) const KEY_ROWS: u64 = 512;

/// Content of a frame for one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Offer<'a> {
    /// No content.
    Absent,
    /// An explicitly unknown value.
    Unknown,
    /// A value: its bits, or its bytes if it is a text or array.
    Value(u64, &'a [u8]),
}

impl<'a> Offer<'a> {
    /// Returns the content of a row for the channel at `field`.
    pub(crate) fn of(shape: &RowShape, words: &[u64], text: &'a [u8], channel: usize, field: Field) -> Offer<'a> {
        match words[shape.states + channel / 32] >> (channel % 32 * 2) & 3 {
            state if state == CellState::Value as u64 => {
                let bits = words[field.word as usize] >> field.shift & mask(field.kind);
                let (offset, len) = ((bits >> 32) as usize, bits as u32 as usize);
                match field.kind.is_scalar() {
                    true => Offer::Value(bits, &[]),
                    false => Offer::Value(0, text.get(offset..offset + len).unwrap_or_default()),
                }
            }
            state if state == CellState::Unknown as u64 => Offer::Unknown,
            _ => Offer::Absent,
        }
    }
}

/// Last stored content of a channel.
#[derive(Clone, Debug, PartialEq)]
enum Stored {
    Nothing,
    Unknown,
    Bits(u64),
    Text(Box<[u8]>),
}

/// Range of slopes, in value per nanosecond, of the lines from the last stored value that pass every value since.
#[derive(Clone, Copy, Debug)]
struct Door {
    from: (i64, f64),
    low: f64,
    high: f64,
}

/// A channel with a reduction.
#[derive(Debug)]
pub(crate) struct LossyChannel {
    /// Index of the channel.
    pub(crate) channel: usize,
    pub(crate) field: Field,
    reduction: Reduction,
    stored: Stored,
    /// Row in which `stored` was stored.
    row: u64,
    /// Door of a swinging door, if the stored value can begin a line.
    door: Option<Door>,
    /// Whether a value was left out since; the line then needs the newest such value when the door closes.
    open: bool,
}

impl LossyChannel {
    pub(crate) fn new(channel: usize, field: Field, reduction: Reduction) -> LossyChannel {
        LossyChannel { channel, field, reduction, stored: Stored::Nothing, row: 0, door: None, open: false }
    }

    /// Returns whether the held frame must be stored ahead of the frame with this offer, because its value ends a line.
    pub(crate) fn needs_held(&self, offer: Offer<'_>, time: i64) -> bool {
        self.open
            && match offer {
                Offer::Absent | Offer::Unknown => true,
                Offer::Value(bits, _) => !self.passes(bits, time),
            }
    }

    /// Returns whether an offer can be left out. Narrows a swinging door by a value that passes it.
    pub(crate) fn leaves_out(&mut self, offer: Offer<'_>, time: i64) -> bool {
        match (offer, &self.stored) {
            (Offer::Absent, _) => true,
            (Offer::Unknown, stored) => *stored == Stored::Unknown,
            (Offer::Value(_, text), Stored::Text(last)) => text == &**last,
            (Offer::Value(bits, _), &Stored::Bits(last)) => match self.reduction {
                Reduction::Deadband { bound } => bits == last || within(self.field.kind, last, bits, bound),
                Reduction::SwingingDoor { bound } if self.door.is_some() => {
                    let passes = self.passes(bits, time);
                    if passes {
                        self.narrow(bits, time, bound);
                    }
                    passes
                }
                _ => bits == last,
            },
            (Offer::Value(..), _) => false,
        }
    }

    /// Returns whether a value that could be left out is stored because its frame gets a row for another channel. A
    /// swinging door's always is: otherwise the frame would have no value to end the line when the door closes later.
    pub(crate) fn joins(&self, row: u64) -> bool {
        matches!(self.reduction, Reduction::SwingingDoor { .. }) || self.is_old(row)
    }

    /// Returns whether it was last stored at least [`KEY_ROWS`] rows ago.
    pub(crate) fn is_old(&self, row: u64) -> bool {
        row.saturating_sub(self.row) >= KEY_ROWS
    }

    /// Notes that an offer is stored in `row`.
    pub(crate) fn store(&mut self, offer: Offer<'_>, time: i64, row: u64) {
        self.stored = match offer {
            Offer::Absent => return,
            Offer::Unknown => Stored::Unknown,
            Offer::Value(_, text) if !self.field.kind.is_scalar() => Stored::Text(text.into()),
            Offer::Value(bits, _) => Stored::Bits(bits),
        };
        (self.row, self.open, self.door) = (row, false, None);
        if let (Offer::Value(bits, _), Reduction::SwingingDoor { .. }) = (offer, self.reduction)
            && let Some(value) = point(Value::from_bits(self.field.kind, bits))
        {
            self.door = Some(Door { from: (time, value), low: f64::NEG_INFINITY, high: f64::INFINITY });
        }
    }

    /// Returns whether the line to a value lies within the door.
    fn passes(&self, bits: u64, time: i64) -> bool {
        let (Some(door), Some(value), Some(bound)) =
            (self.door, point(Value::from_bits(self.field.kind, bits)), self.reduction.bound())
        else {
            return false;
        };
        if time <= door.from.0 {
            // No line leads there; the value at that instant is the stored one.
            return (value - door.from.1).abs() <= self.room(bound, value, door.from.1);
        }
        let slope = (value - door.from.1) / time.abs_diff(door.from.0) as f64;
        slope.is_finite() && door.low <= slope && slope <= door.high
    }

    /// Narrows the door by a value that passes it and is left out.
    fn narrow(&mut self, bits: u64, time: i64, bound: f64) {
        let (Some(door), Some(value)) = (self.door, point(Value::from_bits(self.field.kind, bits))) else { return };
        self.open = true;
        if time > door.from.0 {
            let room = self.room(bound, value, door.from.1);
            let duration = time.abs_diff(door.from.0) as f64;
            let slope = |to: f64| (to - door.from.1) / duration;
            self.door =
                Some(Door { low: door.low.max(slope(value - room)), high: door.high.min(slope(value + room)), ..door });
        }
    }

    /// Returns the bound less the max error of computing slopes, of reading back, and of rounding to the channel's
    /// type. If it is negative, no line is accurate enough.
    fn room(&self, bound: f64, a: f64, b: f64) -> f64 {
        let scale = a.abs() + b.abs() + bound;
        let (bound, rounding) = match self.field.kind {
            ChannelType::F64 => (bound, 0.0),
            ChannelType::F32 => (bound, 0.51 * f64::from(f32::EPSILON)),
            // Rounding the value read back to a whole number loses nothing of a whole bound.
            _ => (bound.floor(), 0.0),
        };
        bound - scale * (16.0 * f64::EPSILON + rounding)
    }
}

/// Returns a value as a point of a line, or `None` if it is not finite or not exact as f64.
pub(crate) fn point(value: Value<'_>) -> Option<f64> {
    let exact = match value {
        Value::I64(v) => v.unsigned_abs() <= 1 << 53,
        Value::U64(v) => v <= 1 << 53,
        _ => true,
    };
    value.as_f64().filter(|v| exact && v.is_finite())
}

/// Returns whether two numbers differ by at most a bound; false if either is not finite.
fn within(kind: ChannelType, a: u64, b: u64, bound: f64) -> bool {
    let (a, b) = (Value::from_bits(kind, a), Value::from_bits(kind, b));
    match (a, b) {
        (Value::I64(a), Value::I64(b)) => a.abs_diff(b) <= bound as u64,
        (Value::U64(a), Value::U64(b)) => a.abs_diff(b) <= bound as u64,
        // All others are exact as f64, and so are the differences of integers of 32 bits.
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if a.is_finite() && b.is_finite() => (a - b).abs() <= bound,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_for_the_ends_of_every_type() {
        let near = |kind, a: Value<'_>, b: Value<'_>, bound| within(kind, a.bits(), b.bits(), bound);
        use ChannelType::*;
        assert!(near(U64, Value::U64(u64::MAX), Value::U64(u64::MAX - 1), 1.0));
        assert!(!near(U64, Value::U64(u64::MAX), Value::U64(u64::MAX - 2), 1.9));
        assert!(!near(U64, Value::U64(0), Value::U64(u64::MAX), 1e19));
        assert!(near(U64, Value::U64(0), Value::U64(u64::MAX), 1e30));
        assert!(!near(I64, Value::I64(i64::MIN), Value::I64(i64::MAX), 9.3e18));
        assert!(near(I8, Value::I8(-128), Value::I8(127), 255.0));
        assert!(near(F64, Value::F64(0.0), Value::F64(-0.0), 0.0));
        assert!(!near(F64, Value::F64(f64::MAX), Value::F64(f64::MIN), f64::MAX));
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!near(F64, Value::F64(odd), Value::F64(1.0), f64::MAX));
            assert!(!near(F64, Value::F64(1.0), Value::F64(odd), f64::MAX));
        }
    }

    #[test]
    fn what_is_no_number_is_stored_when_it_comes_and_when_it_goes() {
        let field = Field::new(0, 0, ChannelType::F64);
        for reduction in [Reduction::Step, Reduction::Deadband { bound: 1e300 }, Reduction::SwingingDoor { bound: 9.0 }]
        {
            let mut lane = LossyChannel::new(0, field, reduction);
            let values = [1.0, f64::NAN, f64::NAN, f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, 1.0];
            let mut stored = Vec::new();
            for (time, value) in values.into_iter().enumerate() {
                let offer = Offer::Value(value.to_bits(), &[]);
                if !lane.leaves_out(offer, time as i64) {
                    lane.store(offer, time as i64, time as u64);
                    stored.push(time);
                }
            }
            assert_eq!(stored, [0, 1, 3, 5, 6], "{reduction}");
            for (time, leaves_out) in [(7, false), (8, true)] {
                assert_eq!(lane.leaves_out(Offer::Unknown, time), leaves_out, "{reduction}");
                lane.store(Offer::Unknown, time, time as u64);
            }
            assert!(!lane.leaves_out(Offer::Value(1f64.to_bits(), &[]), 9), "{reduction}");
        }
    }

    #[test]
    fn a_door_is_as_long_as_time_goes() {
        let mut lane =
            LossyChannel::new(0, Field::new(0, 0, ChannelType::F64), Reduction::SwingingDoor { bound: 0.01 });
        let (from, year) = (i64::MIN / 2, 365 * 86_400 * 1_000_000_000i64);
        lane.store(Offer::Value(0f64.to_bits(), &[]), from, 0);
        for years in [100, 250, 300, 400, 430] {
            let time = from.saturating_add(290 * year).saturating_add((years - 290) * year);
            let value = years as f64;
            assert!(lane.leaves_out(Offer::Value(value.to_bits(), &[]), time), "after {years} years");
        }
    }

    #[test]
    fn a_step_tells_minus_zero_from_zero() {
        let mut lane = LossyChannel::new(0, Field::new(0, 0, ChannelType::F64), Reduction::Step);
        lane.store(Offer::Value(0f64.to_bits(), &[]), 0, 0);
        assert!(lane.leaves_out(Offer::Value(0f64.to_bits(), &[]), 1));
        assert!(!lane.leaves_out(Offer::Value((-0f64).to_bits(), &[]), 2));
    }
}

//! Reductions: optional lossy storage of a channel, within an error bound that is stored with it.
//!
//! A channel with a reduction guarantees, for every frame that arrived in the order of `time`:
//!
//! - **Bound.** The value read back for an instant differs from the value offered by no more than the bound; `step`
//!   returns it exactly. A value that is stored is stored exactly.
//! - **Extremes.** Within any span, the largest value stored or read back was offered (or lies between two that were),
//!   and no value offered exceeds it by more than the bound. The true maximum is therefore known to within the bound,
//!   and at the time reported for it the channel was within the bound of it. The same holds for the minimum.
//! - **Discontinuities.** Each transition known → unknown → known is stored, as is each change to or from NaN and the
//!   infinities; none of them is ever within a bound.
//! - **Order.** A reduction only looks forward. The values of a late frame (its `time` is before that of an earlier
//!   frame of the stream) are all stored exactly, in separate channels: `name_late`.
//!
//! A value within the bound becomes an `unchanged` cell. A frame with no other cells gets no row and is counted as
//! reduced.

use std::fmt;

use crate::model::stream::Interpolation;
use crate::model::value::ChannelType;

/// Reduction of a channel. Bounds are in the channel's unit, finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reduction {
    /// No reduction: every value is stored.
    #[default]
    None,
    /// Leaves out a value that equals the last stored one bit for bit. For every type. Read back by holding the last
    /// value.
    Step,
    /// Leaves out a value within `bound` of the last stored one. For numbers. Read back by holding the last value.
    Deadband {
        /// Maximum deviation of a value left out.
        bound: f64,
    },
    /// Leaves out a value within `bound` of the straight line between the stored values around it. For numbers. Read
    /// back by interpolating that line. If a frame is stored because of another channel, this channel's value is stored
    /// too.
    SwingingDoor {
        /// Maximum deviation of a value left out.
        bound: f64,
    },
}

/// Position of the reduction's code in catalog records and footers: the upper half of the byte that holds the
/// interpolation in its lower half.
const CODE_SHIFT: u8 = 4;

impl Reduction {
    /// Returns the maximum deviation of a value read back from the value offered, in the channel's unit. Returns `None`
    /// without a reduction.
    pub fn bound(self) -> Option<f64> {
        match self {
            Reduction::None => None,
            Reduction::Step => Some(0.0),
            Reduction::Deadband { bound } | Reduction::SwingingDoor { bound } => Some(bound),
        }
    }

    /// Checks whether a channel of a type can have the reduction.
    ///
    /// # Errors
    /// A phrase that says what is wrong with it.
    pub fn check(self, kind: ChannelType) -> Result<(), String> {
        let (Reduction::Deadband { bound } | Reduction::SwingingDoor { bound }) = self else { return Ok(()) };
        if kind == ChannelType::Bool || !kind.is_scalar() {
            return Err(format!("{self} needs numbers, not {}: step is for every type", kind.name()));
        }
        if !bound.is_finite() || bound.is_sign_negative() && bound != 0.0 {
            return Err(format!("{self}: the bound must be a finite number, zero or more"));
        }
        Ok(())
    }

    /// Returns how values are interpolated between stored ones when read back.
    pub(crate) fn interpolation(self, kind: ChannelType) -> Interpolation {
        match self {
            Reduction::None if kind.is_float() => Interpolation::Linear,
            Reduction::SwingingDoor { .. } => Interpolation::Linear,
            _ => Interpolation::Hold,
        }
    }

    /// Encodes the byte shared with the interpolation, and the bound that follows it in the format.
    pub(crate) fn encode(self, interpolation: Interpolation) -> (u8, Option<f64>) {
        let (code, bound) = match self {
            Reduction::None => (0, None),
            Reduction::Step => (1, None),
            Reduction::Deadband { bound } => (2, Some(bound)),
            Reduction::SwingingDoor { bound } => (3, Some(bound)),
        };
        (interpolation as u8 | code << CODE_SHIFT, bound)
    }

    /// Decodes what [`Reduction::encode`] encoded; `bound` reads the bound that follows. Returns `None` for unknown
    /// codes or an invalid bound.
    pub(crate) fn decode(byte: u8, bound: impl FnOnce() -> Option<f64>) -> Option<(Interpolation, Reduction)> {
        let interpolation = match byte & 15 {
            0 => Interpolation::Hold,
            1 => Interpolation::Linear,
            _ => return None,
        };
        let valid = |bound: f64| (bound.is_finite() && bound >= 0.0).then_some(bound);
        let reduction = match byte >> CODE_SHIFT {
            0 => Reduction::None,
            1 => Reduction::Step,
            2 => Reduction::Deadband { bound: bound().and_then(valid)? },
            3 => Reduction::SwingingDoor { bound: bound().and_then(valid)? },
            _ => return None,
        };
        Some((interpolation, reduction))
    }
}

/// Writes `none`, `step`, `deadband(50)` or `swinging_door(0.5)`.
impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reduction::None => f.write_str("none"),
            Reduction::Step => f.write_str("step"),
            Reduction::Deadband { bound } => write!(f, "deadband({bound})"),
            Reduction::SwingingDoor { bound } => write!(f, "swinging_door({bound})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_cannot_be_meant_are_refused() {
        for bound in [f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY] {
            for reduction in [Reduction::Deadband { bound }, Reduction::SwingingDoor { bound }] {
                let error = reduction.check(ChannelType::F64).expect_err("no bound");
                assert!(error.contains("finite"), "{error}");
            }
        }
        for kind in [ChannelType::Bool, ChannelType::String] {
            let error = Reduction::Deadband { bound: 1.0 }.check(kind).expect_err("no number");
            assert!(error.contains(&*kind.name()), "{error}");
            assert_eq!(Reduction::Step.check(kind), Ok(()));
        }
        assert_eq!(Reduction::Deadband { bound: 0.0 }.check(ChannelType::I8), Ok(()));
    }

    #[test]
    fn bytes_give_it_back_and_others_are_not_known() {
        let all = [
            Reduction::None,
            Reduction::Step,
            Reduction::Deadband { bound: 50.0 },
            Reduction::SwingingDoor { bound: f64::MIN_POSITIVE },
        ];
        for reduction in all {
            for interpolation in [Interpolation::Hold, Interpolation::Linear] {
                let (byte, bound) = reduction.encode(interpolation);
                assert_eq!(Reduction::decode(byte, || bound), Some((interpolation, reduction)));
            }
        }
        assert_eq!(Reduction::decode(0x40, || Some(1.0)), None);
        assert_eq!(Reduction::decode(2, || Some(1.0)), None);
        for bound in [Some(f64::NAN), Some(-1.0), None] {
            assert_eq!(Reduction::decode(0x20, || bound), None);
        }
    }
}

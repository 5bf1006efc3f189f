//! Reductions: what a channel leaves out of what it is offered, on request, within a bound that is stored with it.
//!
//! What is promised of a channel with a reduction, for every frame that came in the order of `time`:
//!
//! - **Bound.** The value read back for its instant differs from the value offered by no more than the bound; `step`
//!   gives it back exactly. A value that is stored is stored exactly.
//! - **Extremes.** Of any span, the largest value stored or read back within it was offered (or lies between two that
//!   were) and no value offered within the span is more than the bound above it; so the true maximum is known to within
//!   the bound, and at the time told for it the channel was within the bound of it. The same for the minimum.
//! - **Discontinuities.** Known → unknown → known is stored at each transition, as is each change to or from NaN and the
//!   infinities; none of them is ever within a bound.
//! - **Order.** A reduction looks forward only. The values of a frame that comes late (its `time` before that of one the
//!   stream took already) are stored, all and exactly, in channels of their own beside: `name_late`.
//!
//! What lies within its bound is a cell `unchanged`; a frame with nothing else gets no row and is counted as reduced.

use std::fmt;

use crate::model::stream::Interpolation;
use crate::model::value::ChannelType;

/// What a channel leaves out. Bounds are in the channel's unit, finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reduction {
    /// Nothing: every value is stored.
    #[default]
    None,
    /// A value that is the one stored last, bit for bit. For every type. Read back by holding.
    Step,
    /// A value within `bound` of the one stored last. For numbers. Read back by holding.
    Deadband {
        /// Most that a value left out may differ.
        bound: f64,
    },
    /// A value within `bound` of the straight line between the stored values around it. For numbers. Read back by that
    /// line. A frame that is stored for another channel's sake stores the channel's value too.
    SwingingDoor {
        /// Most that a value left out may differ.
        bound: f64,
    },
}

/// Its codes in catalog records and footers; the upper half of the byte whose lower half is the interpolation.
const CODE_SHIFT: u8 = 4;

impl Reduction {
    /// Most that what is read back may differ from what was offered, in the channel's unit; none without reduction.
    pub fn bound(self) -> Option<f64> {
        match self {
            Reduction::None => None,
            Reduction::Step => Some(0.0),
            Reduction::Deadband { bound } | Reduction::SwingingDoor { bound } => Some(bound),
        }
    }

    /// Whether a channel of a type can have it.
    ///
    /// # Errors
    /// What is wrong with it, as one phrase.
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

    /// How values with it are read back between those stored.
    pub(crate) fn interpolation(self, kind: ChannelType) -> Interpolation {
        match self {
            Reduction::None if kind.is_float() => Interpolation::Linear,
            Reduction::SwingingDoor { .. } => Interpolation::Linear,
            _ => Interpolation::Hold,
        }
    }

    /// The byte that it shares with the interpolation, and the bound that follows it in the format.
    pub(crate) fn encode(self, interpolation: Interpolation) -> (u8, Option<f64>) {
        let (code, bound) = match self {
            Reduction::None => (0, None),
            Reduction::Step => (1, None),
            Reduction::Deadband { bound } => (2, Some(bound)),
            Reduction::SwingingDoor { bound } => (3, Some(bound)),
        };
        (interpolation as u8 | code << CODE_SHIFT, bound)
    }

    /// The inverse of [`Reduction::encode`]; `bound` reads what follows. None for what this version does not know.
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

/// `none`, `step`, `deadband(50)`, `swinging_door(0.5)`.
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

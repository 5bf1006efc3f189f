//! Functions that look back: their state of earlier samples, and their current value.
//!
//! A sample is a value of the argument at a frame that updates one of its channels; null and NaN are skipped. All
//! arithmetic is plain f64 in the order of the samples, rounded once per operation. Windows are summed from scratch
//! each time, so their value depends only on the samples in them, not on where the evaluation began.

use std::collections::VecDeque;

use super::Kind;

/// A function that looks back, with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LookBack {
    /// Change per second, between the two newest samples.
    Rate,
    /// Change between the two newest samples.
    Delta,
    /// Trapezoidal integral over the samples, in seconds.
    Integral,
    /// Mean of the samples in the span that ends with the newest.
    Average { span_ns: i64 },
    /// Minimum of those samples.
    Min { span_ns: i64 },
    /// Maximum of those samples.
    Max { span_ns: i64 },
    /// True from `high` upwards, false from `low` downwards, and unchanged in between.
    Hysteresis { low: f64, high: f64 },
    /// Newest value of a channel, unless it is older than the span.
    AsOf { span_ns: i64 },
}

impl LookBack {
    /// Returns the usage of a function, if the name is one of these.
    pub(super) fn usage(name: &str) -> Option<&'static str> {
        Some(match name {
            "rate" => "rate(x) takes an expression over channels",
            "delta" => "delta(x) takes an expression over channels",
            "integral" => "integral(x) takes an expression over channels",
            "moving_average" => "moving_average(x, '1s') takes an expression over channels and a span up to an hour",
            "moving_min" => "moving_min(x, '1s') takes an expression over channels and a span up to an hour",
            "moving_max" => "moving_max(x, '1s') takes an expression over channels and a span up to an hour",
            "hysteresis" => "hysteresis(x, 1.0, 2.0) takes an expression over channels, and its low and high bound",
            "asof" => "asof(\"table.channel\", '500ms') takes a channel and how old its value may be, up to an hour",
            _ => return None,
        })
    }

    /// Creates the function of a name, where `constants` is the number of constants, and `spans` and `numbers` are
    /// those that are valid as such.
    pub(super) fn new(name: &str, constants: usize, spans: &[i64], numbers: &[f64]) -> Option<LookBack> {
        match (name, constants, spans, numbers) {
            ("rate", 0, ..) => Some(LookBack::Rate),
            ("delta", 0, ..) => Some(LookBack::Delta),
            ("integral", 0, ..) => Some(LookBack::Integral),
            ("moving_average", 1, &[span_ns], _) => Some(LookBack::Average { span_ns }),
            ("moving_min", 1, &[span_ns], _) => Some(LookBack::Min { span_ns }),
            ("moving_max", 1, &[span_ns], _) => Some(LookBack::Max { span_ns }),
            ("hysteresis", 2, _, &[low, high]) if low <= high => Some(LookBack::Hysteresis { low, high }),
            ("asof", 1, &[span_ns], _) => Some(LookBack::AsOf { span_ns }),
            _ => None,
        }
    }

    pub(super) fn is_as_of(&self) -> bool {
        matches!(self, LookBack::AsOf { .. })
    }

    pub(super) fn has_window(&self) -> bool {
        matches!(self, LookBack::Average { .. } | LookBack::Min { .. } | LookBack::Max { .. })
    }

    pub(super) fn span_ns(&self) -> i64 {
        match self {
            LookBack::Average { span_ns }
            | LookBack::Min { span_ns }
            | LookBack::Max { span_ns }
            | LookBack::AsOf { span_ns } => *span_ns,
            _ => 0,
        }
    }

    /// Returns the type of its value, for an argument of the given type.
    pub(super) fn kind(&self, argument: Kind) -> Kind {
        match self {
            LookBack::Hysteresis { .. } => Kind::Bool,
            LookBack::AsOf { .. } => argument,
            _ => Kind::F64,
        }
    }
}

/// State of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// Time and value of the newest sample.
    pub(super) last: Option<(i64, f64)>,
    /// Current value, except of windows.
    pub(super) value: Option<f64>,
    /// Rounding error of the integral.
    pub(super) lost: f64,
    /// Samples of the window, oldest first.
    pub(super) window: VecDeque<(i64, f64)>,
}

impl Memory {
    /// Adds a sample; times never decrease. Returns the number of samples dropped from a window of `room` samples.
    pub(super) fn sample(&mut self, look: &LookBack, room: usize, time: i64, value: f64) -> u64 {
        let mut left_out = 0;
        match *look {
            LookBack::Rate => {
                if let Some((before, from)) = self.last
                    && time > before
                {
                    self.value = Some((value - from) / (time.wrapping_sub(before) as u64 as f64 / 1e9));
                }
            }
            LookBack::Delta => self.value = self.last.map(|(_, from)| value - from),
            LookBack::Integral => {
                let sum = self.value.unwrap_or(0.0);
                if let Some((before, from)) = self.last {
                    let piece = (value + from) / 2.0 * (time.wrapping_sub(before) as u64 as f64 / 1e9);
                    let joined = sum + piece;
                    // Compensates for the rounding error of the sum (Neumaier).
                    self.lost += if sum.abs() >= piece.abs() { (sum - joined) + piece } else { (piece - joined) + sum };
                    self.value = Some(joined);
                } else {
                    self.value = Some(sum);
                }
            }
            LookBack::Average { span_ns } | LookBack::Min { span_ns } | LookBack::Max { span_ns } => {
                let from = time.saturating_sub(span_ns);
                while self.window.front().is_some_and(|(at, _)| *at <= from) {
                    self.window.pop_front();
                }
                if self.window.len() >= room {
                    self.window.pop_front();
                    left_out = 1;
                }
                self.window.push_back((time, value));
            }
            LookBack::Hysteresis { low, high } => {
                let before = self.value.unwrap_or(0.0);
                self.value = Some(if value >= high {
                    1.0
                } else if value <= low {
                    0.0
                } else {
                    before
                });
            }
            LookBack::AsOf { .. } => {}
        }
        self.last = Some((time, value));
        left_out
    }

    /// Returns the current value.
    pub(super) fn value(&self, look: &LookBack) -> Option<f64> {
        let values = self.window.iter().map(|(_, value)| *value);
        match look {
            LookBack::Average { .. } if self.window.is_empty() => None,
            LookBack::Average { .. } => Some(values.sum::<f64>() / self.window.len() as f64),
            LookBack::Min { .. } => values.reduce(|least, value| if value < least { value } else { least }),
            LookBack::Max { .. } => values.reduce(|most, value| if value > most { value } else { most }),
            LookBack::Integral => self.value.map(|sum| sum + self.lost),
            _ => self.value,
        }
    }
}

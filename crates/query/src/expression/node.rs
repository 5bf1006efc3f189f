//! Functions that look back: what they keep of earlier samples, and their value now.
//!
//! A sample is a value of the argument at a frame that brings one of its channels; null and NaN are none. Everything is
//! plain f64 in the order of the samples, each operation rounded once. Windows are summed anew each time: their value
//! depends on the samples in them alone, not on where the evaluation began.

use std::collections::VecDeque;

use super::Kind;

/// A function that looks back, with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LookBack {
    /// Change a second, between the two newest samples.
    Rate,
    /// Change between the two newest samples.
    Delta,
    /// Sum of the trapezoids between samples, in seconds.
    Integral,
    /// Mean of the samples of the span that ends with the newest.
    Average { span_ns: i64 },
    /// The least of them.
    Min { span_ns: i64 },
    /// The greatest of them.
    Max { span_ns: i64 },
    /// True from `high` on, false from `low` down, and in between what it was.
    Hysteresis { low: f64, high: f64 },
    /// The newest value of a channel, unless it is older.
    AsOf { span_ns: i64 },
}

impl LookBack {
    /// How the function of a name is written, if it is one of these.
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

    /// The function of a name, with as many constants as it was given, of which these are spans and these numbers.
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

    /// Type of its value, if its argument is of one.
    pub(super) fn kind(&self, argument: Kind) -> Kind {
        match self {
            LookBack::Hysteresis { .. } => Kind::Bool,
            LookBack::AsOf { .. } => argument,
            _ => Kind::F64,
        }
    }
}

/// What a function keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// Time and value of the newest sample.
    pub(super) last: Option<(i64, f64)>,
    /// Its value; of windows not kept.
    pub(super) value: Option<f64>,
    /// What the integral lost by rounding.
    pub(super) lost: f64,
    /// Samples of the window, oldest first.
    pub(super) window: VecDeque<(i64, f64)>,
}

impl Memory {
    /// Takes a sample; times never fall. Returns how many samples found no room in a window of `room`.
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
                    // What rounding takes from the smaller of the two (Neumaier).
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

    /// Its value now.
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

//! Limits for values that are too low, too high, in a wrong state, too old, or at a wrong rate: `[[limit]]` of the
//! configuration.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use strongback_sources::KeyError;
use strongback_store::Pattern;

use super::rate::RateBounds;
use crate::reception::value::LimitValue;

/// Max states in the list of one level.
const STATES_MAX: usize = 256;
/// Max window over which values are counted, in milliseconds: a day.
const RATE_WINDOW_MS_MAX: f64 = 86_400_000.0;

/// Severity of a passed limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No limit passed.
    #[default]
    Normal,
    /// Condition to keep an eye on.
    Watch,
    /// Something wrong.
    Warning,
    /// Condition that requires action.
    Critical,
}

/// Levels other than normal, in ascending order.
pub const TROUBLE: [Level; 3] = [Level::Watch, Level::Warning, Level::Critical];

impl Level {
    /// Returns the name of the level.
    pub fn name(self) -> &'static str {
        match self {
            Level::Normal => "normal",
            Level::Watch => "watch",
            Level::Warning => "warning",
            Level::Critical => "critical",
        }
    }

    /// Returns the level with this name.
    pub fn from_name(name: &str) -> Option<Level> {
        [Level::Normal].into_iter().chain(TROUBLE).find(|level| level.name() == name)
    }

    /// Returns the index in [`TROUBLE`], or `None` for `Normal`.
    pub fn place(self) -> Option<usize> {
        TROUBLE.iter().position(|level| *level == self)
    }
}

/// State as configured: a text, a number or a boolean.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum State {
    Bool(bool),
    Number(f64),
    Text(String),
}

impl State {
    fn is(&self, reading: &LimitValue) -> bool {
        match (self, reading) {
            (State::Bool(state), LimitValue::Number(number)) => f64::from(u8::from(*state)) == *number,
            (State::Number(state), LimitValue::Number(number)) => state == number,
            (State::Text(state), LimitValue::Text(text)) => **state == **text,
            _ => false,
        }
    }
}

/// Bounds of a level. At least one key is required.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Lower bound: the level applies below it.
    pub low: Option<f64>,
    /// Upper bound: the level applies above it.
    pub high: Option<f64>,
    /// States to which the level applies: texts, numbers or booleans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    is: Vec<State>,
}

/// Reason of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Value below `low`.
    Low,
    /// Value above `high`.
    High,
    /// Value that is one of `is`.
    State,
    /// Silence: no value for `stale_ms`.
    Stale,
    /// Fewer values than `rate_hz.low`.
    Slow,
    /// More values than `rate_hz.high`.
    Fast,
}

impl Why {
    /// Returns the name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Why::Low => "low",
            Why::High => "high",
            Why::State => "state",
            Why::Stale => "stale",
            Why::Slow => "slow",
            Why::Fast => "fast",
        }
    }

    /// Returns the reason with this name.
    pub fn from_name(name: &str) -> Option<Why> {
        [Why::Low, Why::High, Why::State, Why::Stale, Why::Slow, Why::Fast].into_iter().find(|why| why.name() == name)
    }
}

impl Bounds {
    /// Returns why a value is beyond the bounds, and the bound, or `None` if it is within. `inset` moves low and high
    /// inwards.
    pub fn beyond(&self, reading: &LimitValue, inset: f64) -> Option<(Why, Option<f64>)> {
        if let LimitValue::Number(number) = reading {
            if let Some(high) = self.high.filter(|high| *number > high - inset) {
                return Some((Why::High, Some(high)));
            }
            if let Some(low) = self.low.filter(|low| *number < low + inset) {
                return Some((Why::Low, Some(low)));
            }
        }
        self.is.iter().any(|state| state.is(reading)).then_some((Why::State, None))
    }
}

/// Channel whose value decides whether a limit applies.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Full name of the channel, with tags if it has any.
    pub channel: String,
    is: Vec<State>,
}

impl Context {
    /// Returns whether the limit applies while the channel has this value.
    pub fn holds(&self, reading: &LimitValue) -> bool {
        self.is.iter().any(|state| state.is(reading))
    }
}

/// Expected rate. At least one key is required.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateTable {
    /// Min values per second.
    pub low: Option<f64>,
    /// Max values per second.
    pub high: Option<f64>,
}

/// Table `[[limit]]` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitTable {
    /// Name of the rule; alarms are identified by it and their channel. Default: the patterns.
    pub name: Option<String>,
    /// Patterns of the channels it applies to.
    pub channels: Vec<String>,
    /// Bounds of the level watch: `{ low, high, is = [states] }`.
    pub watch: Option<Bounds>,
    /// Bounds of the level warning.
    pub warning: Option<Bounds>,
    /// Bounds of the level critical.
    pub critical: Option<Bounds>,
    /// Time that values must stay beyond a bound before it counts, in milliseconds. Default 0: at once.
    #[serde(default)]
    pub persist_ms: f64,
    /// Distance inside a passed bound that values must reach to clear it, in the unit of the channel. Default 0.
    #[serde(default)]
    pub hysteresis: f64,
    /// Time without a value after which a channel that had one is stale, in milliseconds. Default: never.
    pub stale_ms: Option<f64>,
    /// Level of a stale channel. Default `warning`.
    pub stale: Option<Level>,
    /// Expected rate of the channel's values, `{ low, high }`, in values per second. Default: not checked.
    pub rate_hz: Option<RateTable>,
    /// Window over which values are counted, in milliseconds, 10 to a day. Default: 1,000, or the time of ten values
    /// at the lowest bound, if longer.
    pub rate_window_ms: Option<f64>,
    /// Level of a rate that is out of bounds. Default `warning`.
    pub rate: Option<Level>,
    /// Condition `{ channel, is = [states] }`: the limit applies only while that channel has one of these values.
    #[serde(rename = "while")]
    pub context: Option<Context>,
}

/// Compiled limit.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Table as configured.
    table: LimitTable,
    /// Name of the limit.
    pub name: String,
    /// Patterns of the channels it applies to.
    pub channels: Vec<Pattern>,
    /// Bounds of the levels of [`TROUBLE`].
    pub bounds: [Bounds; 3],
    /// Time that a value must be beyond a bound, nanoseconds.
    pub persist_ns: i64,
    /// Distance inside a bound that clears it.
    pub hysteresis: f64,
    /// Time without a value after which a channel is stale, nanoseconds, and the level of a stale channel.
    pub stale: Option<(i64, Level)>,
    /// Expected rate.
    pub rate: Option<RateBounds>,
    /// Channel that decides whether the limit applies.
    pub context: Option<Context>,
}

impl Rule {
    /// Returns the patterns of the channels as configured.
    pub fn patterns(&self) -> &[String] {
        &self.table.channels
    }
}

/// Serializes the table as configured.
impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(serializer)
    }
}

impl LimitTable {
    /// Returns the name of the limit.
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.channels.join(", "))
    }

    /// Returns the bounds of the levels that have some, by the name of the level.
    fn levels(&self) -> impl Iterator<Item = (&'static str, &Bounds)> {
        let levels = [("watch", &self.watch), ("warning", &self.warning), ("critical", &self.critical)];
        levels.into_iter().filter_map(|(level, bounds)| Some((level, bounds.as_ref()?)))
    }

    /// Checks the table and converts it.
    ///
    /// # Errors
    /// Returns the first invalid key, with its path in the table.
    pub fn compile(self) -> Result<Rule, KeyError> {
        if self.channels.is_empty() {
            return KeyError::wrong("channels", "[\"pattern\", …] is needed");
        }
        let mut channels = Vec::new();
        for (at, pattern) in self.channels.iter().enumerate() {
            let pattern = Pattern::parse(pattern);
            channels.push(pattern.map_err(|error| KeyError::new(format!("channels[{at}]"), error.to_string()))?);
        }
        if self.levels().next().is_none() && self.stale_ms.is_none() && self.rate_hz.is_none() {
            return KeyError::wrong("", "it needs watch, warning, critical, stale_ms or rate_hz");
        }
        self.check_bounds()?;
        let ns = |key: &str, ms: f64, min: f64| match ms >= min && ms <= 86_400_000.0 * 365.0 {
            true => Ok((ms * 1e6) as i64),
            false => KeyError::wrong(key, format!("{ms} is not within {min} and a year")),
        };
        let stale = match (self.stale_ms, self.stale) {
            (None, Some(_)) => return KeyError::wrong("stale", "it needs stale_ms"),
            (_, Some(Level::Normal)) => return KeyError::wrong("stale", "it is watch, warning or critical"),
            (ms, level) => ms
                .map(|ms| ns("stale_ms", ms, 1.0).map(|after| (after, level.unwrap_or(Level::Warning))))
                .transpose()?,
        };
        if self.context.as_ref().is_some_and(|context| context.is.is_empty()) {
            return KeyError::wrong("while.is", "[states] are needed");
        }
        if let Some(Context { channel, .. }) = &self.context
            && channel.contains(['*', '?'])
            && !channel.contains('"')
        {
            return KeyError::wrong("while.channel", format!("{channel:?} is a pattern, and one channel is needed"));
        }
        Ok(Rule {
            channels,
            bounds: [&self.watch, &self.warning, &self.critical].map(|bounds| bounds.clone().unwrap_or_default()),
            persist_ns: ns("persist_ms", self.persist_ms, 0.0)?,
            hysteresis: self.hysteresis,
            stale,
            rate: self.expected()?,
            context: self.context.clone(),
            name: self.name(),
            table: self,
        })
    }

    /// Checks the bounds of the levels, each on its own and against the others, and the hysteresis.
    fn check_bounds(&self) -> Result<(), KeyError> {
        for (level, bounds) in self.levels() {
            if *bounds == Bounds::default() {
                return KeyError::wrong(level, "it needs low, high or is");
            }
            KeyError::check_count(format!("{level}.is"), bounds.is.len(), STATES_MAX, "states")?;
            for (key, bound) in [("low", bounds.low), ("high", bounds.high)] {
                if let Some(bound) = bound.filter(|bound| !bound.is_finite()) {
                    return KeyError::wrong(format!("{level}.{key}"), format!("{bound} is not finite"));
                }
            }
            if let (Some(low), Some(high)) = (bounds.low, bounds.high)
                && low >= high
            {
                return KeyError::wrong(format!("{level}.low"), format!("{low} is not below high = {high}"));
            }
        }
        // A worse level must be further out.
        for (at, (less, of_less)) in self.levels().enumerate() {
            for (more, of_more) in self.levels().skip(at + 1) {
                if let (Some(a), Some(b)) = (of_less.high, of_more.high)
                    && a > b
                {
                    return KeyError::wrong(format!("{more}.high"), format!("{b} is below {less}.high = {a}"));
                }
                if let (Some(a), Some(b)) = (of_less.low, of_more.low)
                    && a < b
                {
                    return KeyError::wrong(format!("{more}.low"), format!("{b} is above {less}.low = {a}"));
                }
            }
        }
        if !(self.hysteresis >= 0.0 && self.hysteresis.is_finite()) {
            return KeyError::wrong("hysteresis", format!("{} is not 0 or more", self.hysteresis));
        }
        for (level, bounds) in self.levels() {
            // Both bounds move inwards by it: beyond half the width, no value between them would clear both.
            if let (Some(low), Some(high)) = (bounds.low, bounds.high)
                && 2.0 * self.hysteresis > high - low
            {
                let hysteresis = self.hysteresis;
                let why = format!(
                    "{hysteresis} is more than half of the width of {level}, {low} to {high}: no value would be well \
                     again"
                );
                return KeyError::wrong("hysteresis", why);
            }
        }
        Ok(())
    }

    /// Checks the expected rate, if there is one, and converts it.
    fn expected(&self) -> Result<Option<RateBounds>, KeyError> {
        let Some(RateTable { low, high }) = self.rate_hz else {
            return match (self.rate, self.rate_window_ms) {
                (None, None) => Ok(None),
                (Some(_), _) => KeyError::wrong("rate", "it needs rate_hz"),
                (None, Some(_)) => KeyError::wrong("rate_window_ms", "it needs rate_hz"),
            };
        };
        let Some(lowest) = low.or(high) else { return KeyError::wrong("rate_hz", "it needs low or high") };
        for (key, bound) in [("low", low), ("high", high)] {
            if let Some(bound) = bound.filter(|bound| !(*bound > 0.0 && bound.is_finite())) {
                return KeyError::wrong(format!("rate_hz.{key}"), format!("{bound} is not above 0"));
            }
        }
        if let (Some(low), Some(high)) = (low, high)
            && low >= high
        {
            return KeyError::wrong("rate_hz.low", format!("{low} is not below high = {high}"));
        }
        let window_ms = self.rate_window_ms.unwrap_or((10_000.0 / lowest).clamp(1_000.0, RATE_WINDOW_MS_MAX));
        if !(10.0..=RATE_WINDOW_MS_MAX).contains(&window_ms) {
            return KeyError::wrong("rate_window_ms", format!("{window_ms} is not within 10 and a day"));
        }
        let level = match self.rate {
            Some(Level::Normal) => return KeyError::wrong("rate", "it is watch, warning or critical"),
            level => level.unwrap_or(Level::Warning),
        };
        Ok(Some(RateBounds::new(low, high, (window_ms * 1e6) as i64, level)))
    }
}

/// Compiles all limits.
///
/// # Errors
/// Returns the first invalid key, such as `limit[2].watch.low`, including the name of a second limit of this name.
pub fn compile(tables: Vec<LimitTable>) -> Result<Vec<Rule>, KeyError> {
    let mut rules: Vec<Rule> = Vec::with_capacity(tables.len());
    let mut names = HashSet::new();
    for (at, table) in tables.into_iter().enumerate() {
        let name = table.name();
        let rule = table.compile().and_then(|rule| match names.insert(rule.name.clone()) {
            true => Ok(rule),
            false => KeyError::wrong("name", "two have this name"),
        });
        rules.push(rule.map_err(|error| error.about(&format!("limit {name:?}")).below(&format!("limit[{at}]")))?);
    }
    Ok(rules)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the limits of a configuration.
    pub(crate) fn all(text: &str) -> std::sync::Arc<[Rule]> {
        #[derive(Deserialize)]
        struct Tables {
            limit: Vec<LimitTable>,
        }
        let tables: Tables = toml::from_str(text).expect("limits");
        compile(tables.limit).expect("rules").into()
    }

    pub(crate) fn rule(keys: &str) -> Result<Rule, String> {
        let text = format!("channels = [\"a.b\"]\n{keys}");
        toml::from_str::<LimitTable>(&text).map_err(|e| e.to_string())?.compile().map_err(|e| e.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words() {
        for (keys, says) in [
            ("", "it needs watch, warning, critical, stale_ms or rate_hz"),
            ("rate_hz = {}", "rate_hz: it needs low or high"),
            ("rate_hz = { low = 0 }", "rate_hz.low: 0 is not above 0"),
            ("rate_hz = { high = inf }", "rate_hz.high: inf is not above 0"),
            ("rate_hz = { low = 5, high = 5 }", "rate_hz.low: 5 is not below high = 5"),
            ("rate_hz = { lwo = 5 }", "unknown field `lwo`"),
            ("rate_hz = { low = 5 }\nrate_window_ms = 9", "rate_window_ms: 9 is not within 10 and a day"),
            ("rate_hz = { low = 5 }\nrate = \"normal\"", "rate: it is watch, warning or critical"),
            ("stale_ms = 5\nrate = \"watch\"", "rate: it needs rate_hz"),
            ("stale_ms = 5\nrate_window_ms = 100", "rate_window_ms: it needs rate_hz"),
            ("watch = {}", "watch: it needs low, high or is"),
            ("watch = { low = 3, high = 2.5 }", "watch.low: 3 is not below high = 2.5"),
            ("watch = { high = 3 }\ncritical = { high = 2 }", "critical.high: 2 is below watch.high = 3"),
            ("warning = { low = 1 }\ncritical = { low = 2 }", "critical.low: 2 is above warning.low = 1"),
            ("watch = { high = nan }", "watch.high: NaN is not finite"),
            ("watch = { hihg = 1 }", "unknown field `hihg`"),
            ("watch = { high = 1 }\npersist_ms = -1", "persist_ms: -1 is not within 0 and a year"),
            ("watch = { high = 1 }\nhysteresis = -0.5", "hysteresis: -0.5 is not 0 or more"),
            (
                "watch = { low = 1, high = 4 }\nhysteresis = 1.6",
                "hysteresis: 1.6 is more than half of the width of watch",
            ),
            ("stale = \"watch\"\nwatch = { high = 1 }", "stale: it needs stale_ms"),
            ("stale_ms = 0", "stale_ms: 0 is not within 1 and a year"),
            ("stale_ms = 5\nstale = \"normal\"", "stale: it is watch, warning or critical"),
            ("watch = { high = 1 }\nwhile = { channel = \"x.y\", is = [] }", "while.is: [states] are needed"),
            (
                "watch = { high = 1 }\nwhile = { channel = \"x.*\", is = [\"RUN\"] }",
                "while.channel: \"x.*\" is a pattern, and one channel is needed",
            ),
            ("name = \"n\"\nwatch = { high = 1 }\nchannels = []", "duplicate key"),
        ] {
            let error = rule(keys).expect_err(keys);
            assert!(error.contains(says), "{keys}: {error}");
        }
        assert!(rule("watch = { low = 1, high = 4 }\nhysteresis = 1.5").is_ok(), "one value is well");
        let rule = rule("critical = { high = 2, is = [\"FAULT\", 7, true] }\nstale_ms = 1.5").expect("right");
        assert_eq!((rule.name.as_str(), rule.stale), ("a.b", Some((1_500_000, Level::Warning))));
        let critical = &rule.bounds[2];
        let beyond = |reading: LimitValue| critical.beyond(&reading, 0.0);
        assert_eq!(beyond(LimitValue::Number(2.0)), None);
        assert_eq!(beyond(LimitValue::Number(2.5)), Some((Why::High, Some(2.0))));
        assert_eq!(beyond(LimitValue::Number(1.0)), Some((Why::State, None)), "true");
        assert_eq!(beyond(LimitValue::Text("FAULT".into())), Some((Why::State, None)));
        assert_eq!(beyond(LimitValue::Text("fault".into())), None);
    }

    #[test]
    fn a_rate_is_counted_over_a_second_or_ten_values() {
        let of = |keys: &str| rule(keys).expect("a rule").rate.expect("a rate");
        let s = 1_000_000_000;
        let wanted = RateBounds::new(Some(90.0), Some(110.0), s, Level::Warning);
        assert_eq!(of("rate_hz = { low = 90, high = 110 }"), wanted);
        assert_eq!(of("rate_hz = { low = 0.5 }"), RateBounds::new(Some(0.5), None, 20 * s, Level::Warning));
        let given = of("rate_hz = { high = 5 }\nrate_window_ms = 250.5\nrate = \"critical\"");
        assert_eq!(given, RateBounds::new(None, Some(5.0), 250_500_000, Level::Critical));
    }
}

//! Values of one stream since the last update of a subscription: count, first, last, min, max and mean per channel,
//! so that no reduction of rate hides a spike.

use strongback_store::{Bucket, ChannelId, ChannelIndex, ChannelType, OwnedValue, StreamId, Value};

use super::cell_notes::CellNotes;
use super::sum::Sum;
use super::texts::{SHARED_BYTES_MIN, Text, Texts};
use crate::text::json;

/// Channels whose memory is too small to be worth releasing.
const FEW_CHANNELS: usize = 4;
/// Number of text changes that are counted; more are not distinguished.
const CHANGES_KNOWN: u8 = 2;

/// One channel within a window. Values keep the type in which they arrived and are converted to the channel's type
/// when written.
#[derive(Clone, Debug, Default)]
pub struct ChannelWindow {
    count: u64,
    finite: u64,
    sum: Sum,
    first: Packed,
    last: Packed,
    /// Min and max; `None` until a value other than NaN arrives, and always for text.
    range: Option<(Packed, Packed)>,
    /// Min and max of the finite values if the range contains an infinite one. `None` if no value is finite or they
    /// are not known.
    finite_range: Option<Box<(Packed, Packed)>>,
    text: Option<Box<TextWindow>>,
}

/// Texts of a channel within a window.
#[derive(Clone, Debug)]
struct TextWindow {
    first: Text,
    last: Text,
    /// Number of times that the text differed from the one before; 2 means two or more.
    changes: u8,
}

impl TextWindow {
    fn of(text: Text) -> TextWindow {
        TextWindow { first: text.clone(), last: text, changes: 0 }
    }

    /// Counts a change of text, if there was one.
    fn note(&mut self, has_changed: bool) {
        self.changes = self.changes.saturating_add(u8::from(has_changed)).min(CHANGES_KNOWN);
    }

    /// Counts a change if the text differs from the last one. Skips the comparison once enough changes are counted.
    fn note_behind(&mut self, text: &Text) {
        let has_changed = self.changes < CHANGES_KNOWN && !self.last.is(text);
        self.note(has_changed);
    }

    /// Returns whether it changed more often than its first and last text show.
    fn is_restless(&self) -> bool {
        self.changes >= CHANGES_KNOWN || self.changes > 0 && self.first.is(&self.last)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Packed {
    bits: u64,
    code: u8,
}

impl Packed {
    fn of(value: Value<'_>) -> Packed {
        Packed { bits: value.bits(), code: value.channel_type().code() }
    }

    fn value(self) -> Option<Value<'static>> {
        match ChannelType::from_code(self.code) {
            Some(kind) if kind.is_scalar() => Some(Value::from_bits(kind, self.bits)),
            _ => None,
        }
    }

    fn is_infinite(self) -> bool {
        match ChannelType::from_code(self.code) {
            Some(ChannelType::F64) => f64::from_bits(self.bits).is_infinite(),
            Some(ChannelType::F32) => f32::from_bits(self.bits as u32).is_infinite(),
            _ => false,
        }
    }

    /// Returns whether it is below another value; `kind` is its type.
    fn is_below(self, other: Packed, kind: ChannelType) -> bool {
        match kind {
            ChannelType::F64 if self.code == other.code => f64::from_bits(self.bits) < f64::from_bits(other.bits),
            ChannelType::F32 if self.code == other.code => {
                f32::from_bits(self.bits as u32) < f32::from_bits(other.bits as u32)
            }
            _ => self.value().zip(other.value()).is_some_and(|(a, b)| a.is_less(&b)),
        }
    }
}

/// Extends a range to include another one.
fn widen(range: &mut (Packed, Packed), other: (Packed, Packed)) {
    let is_less = |a: Packed, b: Packed| a.value().zip(b.value()).is_some_and(|(a, b)| a.is_less(&b));
    if is_less(other.0, range.0) {
        range.0 = other.0;
    }
    if is_less(range.1, other.1) {
        range.1 = other.1;
    }
}

/// Values of a numeric or boolean channel within a window, all of one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// Type of the values: the channel's, or a wider one if newer values do not fit it.
    pub channel_type: ChannelType,
    /// Bits of the first value, as of [`Value::bits`].
    pub first: u64,
    /// Bits of the last value.
    pub last: u64,
    /// Bits of the min and max; `None` if all values were NaN.
    pub range: Option<(u64, u64)>,
    /// Mean of the finite values, if there are any.
    pub mean: Option<f64>,
}

impl ChannelWindow {
    /// Creates a window from a bucket of a numeric or boolean channel, or returns `None` for text.
    pub fn of(bucket: &Bucket) -> Option<ChannelWindow> {
        let plain = |value: &OwnedValue| match value {
            OwnedValue::Plain(value) => Some(Packed::of(*value)),
            OwnedValue::String(_) | OwnedValue::Array { .. } => None,
        };
        Some(ChannelWindow {
            count: bucket.count,
            finite: bucket.finite,
            sum: Sum::of_mean(bucket.mean.unwrap_or_default(), bucket.finite),
            first: plain(&bucket.first)?,
            last: plain(&bucket.last)?,
            range: bucket.min.zip(bucket.max).map(|(min, max)| (Packed::of(min), Packed::of(max))),
            finite_range: None,
            text: None,
        })
    }

    /// Adds a value.
    pub fn add(&mut self, value: Value<'_>) {
        let size;
        let text = match value {
            Value::String(text) => Some(text),
            Value::Blob(blob) => {
                size = blob.to_string();
                Some(size.as_str())
            }
            // Show only the number of elements; clients can get the values from the state or the history.
            Value::Array(array) => {
                size = format!("{}[{}]", array.element().channel_type().name(), array.len());
                Some(size.as_str())
            }
            _ => None,
        };
        if let Some(text) = text {
            match &mut self.text {
                Some(window) if self.count > 0 => {
                    if window.last.as_str() != text {
                        window.note(true);
                        window.last.set(text);
                    }
                }
                _ => self.text = Some(Box::new(TextWindow::of(Text::Own(text.to_owned())))),
            }
            self.count += 1;
            return;
        }
        self.add_number(value.channel_type(), value.bits());
    }

    /// Adds a value of a frame's channel; long texts are shared.
    pub fn add_of(&mut self, value: Value<'_>, (channel, texts): (ChannelIndex, &Texts)) {
        let Value::String(text) = value else { return self.add(value) };
        if text.len() < SHARED_BYTES_MIN {
            return self.add(value);
        }
        let text = Text::Shared(texts.share(channel, text));
        match &mut self.text {
            Some(window) if self.count > 0 => {
                window.note_behind(&text);
                window.last = text;
            }
            _ => self.text = Some(Box::new(TextWindow::of(text))),
        }
        self.count += 1;
    }

    /// Adds a value out of time order. `is_first` and `is_last` tell whether it is before or after all others.
    pub fn add_at(&mut self, value: Value<'_>, is_first: bool, is_last: bool) {
        if self.count == 0 || is_last && !is_first {
            return self.add(value);
        }
        let (first, last, before) = (self.first, self.last, self.text.as_deref().cloned());
        self.add(value);
        match (&mut self.text, before) {
            (Some(now), Some(before)) => {
                let added = std::mem::replace(&mut now.last, before.last);
                now.changes = before.changes;
                if is_first {
                    now.note(added.as_str() != before.first.as_str());
                    now.first = added;
                } else if added.as_str() != before.first.as_str() && added.as_str() != now.last.as_str() {
                    // It is in between and equals neither.
                    now.changes = CHANGES_KNOWN;
                }
            }
            _ => {
                let added = std::mem::replace(&mut self.last, last);
                self.first = if is_first { added } else { first };
            }
        }
    }

    /// Adds a number or boolean of a type, by its bits.
    pub fn add_number(&mut self, kind: ChannelType, bits: u64) {
        let packed = Packed { bits, code: kind.code() };
        if self.count == 0 {
            self.first = packed;
        }
        self.count += 1;
        self.last = packed;
        let number = Value::from_bits(kind, bits).as_f64().unwrap_or(f64::NAN);
        if number.is_finite() {
            self.sum.add(Sum::of(number));
            self.finite += 1;
            match &mut self.finite_range {
                // All values before it were infinite or NaN.
                None if self.finite == 1 && self.range.is_some() => {
                    self.finite_range = Some(Box::new((packed, packed)));
                }
                None => {}
                Some(range) => widen(range, (packed, packed)),
            }
        }
        if number.is_nan() {
            return;
        }
        if number.is_infinite() && self.finite_range.is_none() {
            self.finite_range = self.extremes().unwrap_or_default().map(Box::new);
        }
        match &mut self.range {
            None => self.range = Some((packed, packed)),
            Some((min, max)) => {
                if packed.is_below(*min, kind) {
                    *min = packed;
                }
                if max.is_below(packed, kind) {
                    *max = packed;
                }
            }
        }
    }

    /// Adds all values of a later window.
    pub fn append(&mut self, later: &ChannelWindow) {
        if later.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = later.clone();
            return;
        }
        let finite_range = self.joined_extremes(later);
        self.count += later.count;
        self.finite += later.finite;
        self.sum.add(later.sum);
        self.last = later.last;
        match (&mut self.text, &later.text) {
            (Some(window), Some(later)) => {
                window.note_behind(&later.first);
                window.changes = window.changes.saturating_add(later.changes).min(CHANGES_KNOWN);
                window.last.clone_from(&later.last);
            }
            (None, Some(later)) => self.text = Some(later.clone()),
            _ => {}
        }
        let Some(later_range) = later.range else { return };
        match &mut self.range {
            None => self.range = later.range,
            Some(range) => widen(range, later_range),
        }
        self.finite_range = if self.has_infinite() { finite_range.map(Box::new) } else { None };
    }

    /// Returns the min and max of the finite values: `None` if not known, `Some(None)` if there are none.
    fn extremes(&self) -> Option<Option<(Packed, Packed)>> {
        match &self.finite_range {
            Some(range) => Some(Some(**range)),
            None if self.finite == 0 => Some(None),
            None => (!self.has_infinite()).then_some(self.range),
        }
    }

    /// Returns the min and max of the finite values of both windows, if known.
    fn joined_extremes(&self, later: &ChannelWindow) -> Option<(Packed, Packed)> {
        match (self.extremes()?, later.extremes()?) {
            (Some(mut range), Some(later)) => {
                widen(&mut range, later);
                Some(range)
            }
            (range, later) => range.or(later),
        }
    }

    fn has_infinite(&self) -> bool {
        self.range.is_some_and(|(min, max)| min.is_infinite() || max.is_infinite())
    }

    /// Returns the min and max of the finite values if the range contains an infinite one.
    pub fn finite_range(&self) -> Option<(Value<'static>, Value<'static>)> {
        let (min, max) = **self.finite_range.as_ref()?;
        let (min, max) = (min.value()?, max.value()?);
        let single = ChannelType::F32;
        Some(match (min.convert(single), max.convert(single)) {
            (Some(min), Some(max)) if self.first.code == single.code() => (min, max),
            _ => (Value::F64(min.as_f64()?), Value::F64(max.as_f64()?)),
        })
    }

    /// Returns whether it has finite values as well as infinite ones but does not know their min and max.
    pub fn lacks_finite_range(&self) -> bool {
        self.extremes().is_none()
    }

    /// Takes the min and max of the finite values from a window of the same values, if it lacks them.
    pub fn learn_finite_range(&mut self, all: &ChannelWindow) {
        if self.lacks_finite_range() {
            self.finite_range.clone_from(&all.finite_range);
        }
    }

    /// Returns whether a text changed more often than the first and last one show, such as a change and back.
    pub fn is_restless(&self) -> bool {
        self.text.as_deref().is_some_and(TextWindow::is_restless)
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first and last text; for blobs and arrays, a summary. `None` for numbers and booleans.
    pub fn texts(&self) -> Option<(&str, &str)> {
        self.text.as_deref().map(|window| (window.first.as_str(), window.last.as_str()))
    }

    /// Returns the values of a numeric or boolean channel, whose type is `channel_type` as far as is known.
    pub fn numbers(&self, channel_type: ChannelType) -> Numbers {
        let mean = (self.finite > 0).then(|| self.sum.over(self.finite));
        let (min, max) = self.range.unwrap_or((self.first, self.first));
        let all = [self.first, self.last, min, max];
        let code = channel_type.code();
        let (channel_type, [first, last, min, max]) = if all.iter().all(|packed| packed.code == code) {
            (channel_type, all.map(|packed| packed.bits))
        } else {
            let values = all.map(|packed| packed.value().unwrap_or(Value::F64(f64::NAN)));
            let wider = values.iter().try_fold(channel_type, |wide, value| wide.widen(value.channel_type()));
            let exact = |to: ChannelType| values.iter().all(|value| value.convert(to).is_some());
            let to = wider.filter(|to| to.is_scalar() && exact(*to)).unwrap_or(ChannelType::F64);
            let convert = |value: Value<'static>| {
                value.convert(to).unwrap_or_else(|| Value::F64(value.as_f64().unwrap_or(f64::NAN))).bits()
            };
            (to, values.map(convert))
        };
        Numbers { channel_type, first, last, range: self.range.is_some().then_some((min, max)), mean }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = ChannelWindow::default();
    }

    /// Appends `count,first,last,min,max,mean`, with values as the channel's type writes them. Min, max and mean are
    /// null for text and where all values were NaN.
    pub fn write(&self, out: &mut Vec<u8>, channel_type: ChannelType) {
        json::push_number(out, self.count);
        if let Some((first, last)) = self.texts() {
            out.push(b',');
            json::push(out, first);
            out.push(b',');
            json::push(out, last);
            out.extend_from_slice(b",null,null,null");
            return;
        }
        let start = out.len();
        write_packed(out, self.first, channel_type);
        if self.count == 1 && self.finite == 1 && channel_type.size_bytes() < 8 && channel_type != ChannelType::Bool {
            // A single sample: all five fields have the same digits.
            let end = out.len();
            for _ in 0..4 {
                out.extend_from_within(start..end);
            }
            return;
        }
        write_packed(out, self.last, channel_type);
        match self.range {
            Some((min, max)) => {
                write_packed(out, min, channel_type);
                write_packed(out, max, channel_type);
            }
            None => out.extend_from_slice(b",null,null"),
        }
        out.push(b',');
        match self.finite {
            0 => out.extend_from_slice(b"null"),
            n => json::push_f64(out, self.sum.over(n)),
        }
    }
}

fn write_packed(out: &mut Vec<u8>, packed: Packed, channel_type: ChannelType) {
    out.push(b',');
    match packed.value().map(|v| v.convert(channel_type).unwrap_or(v)) {
        Some(value) => json::push_value(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

/// All wanted channels of one stream within a window.
#[derive(Clone, Debug, Default)]
pub struct StreamWindow {
    /// Frames gathered.
    pub frames: u64,
    /// First row and the row after the last, of the stored frames.
    pub rows: Option<(u64, u64)>,
    /// Whether every frame was stored.
    pub recorded: bool,
    /// `time` of the first and last frame.
    pub time: (i64, i64),
    /// `receive_time` of the last frame.
    pub receive_time: i64,
    /// Whether frames are known missing inside or just before it.
    pub gap: bool,
    /// Channels by their position in the subscription's list for this stream.
    pub channels: Vec<ChannelWindow>,
}

impl StreamWindow {
    /// Removes all frames, but keeps the memory.
    pub fn clear(&mut self) {
        self.frames = 0;
        self.rows = None;
        self.gap = false;
        for channel in &mut self.channels {
            channel.clear();
        }
    }

    /// Releases memory beyond that of twice this number of channels.
    pub fn fit(&mut self, channels: usize) {
        self.channels.truncate(channels);
        if self.channels.capacity() > 2 * channels.max(FEW_CHANNELS) {
            self.channels.shrink_to(channels);
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.frames == 0 && self.channels.iter().all(|c| c.count == 0)
    }

    /// Marks rows from `next_row` on as not stored: the store no longer has them.
    pub fn rewind(&mut self, next_row: u64) {
        if let Some((from, to)) = self.rows
            && to > next_row
        {
            self.rows = (from < next_row).then_some((from, next_row));
            self.recorded = false;
        }
    }

    /// Adds a later window of the same stream.
    pub fn append(&mut self, later: &StreamWindow) {
        if self.channels.len() < later.channels.len() {
            self.channels.resize_with(later.channels.len(), Default::default);
        }
        for (mine, later) in self.channels.iter_mut().zip(&later.channels) {
            mine.append(later);
        }
        if later.frames == 0 {
            return;
        }
        if self.frames == 0 {
            self.time.0 = later.time.0;
            self.recorded = true;
            self.receive_time = later.receive_time;
        }
        self.frames += later.frames;
        self.time.1 = later.time.1;
        self.receive_time = self.receive_time.max(later.receive_time);
        self.recorded &= later.recorded;
        self.gap |= later.gap;
        self.rows = match (self.rows, later.rows) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
    }

    /// Begins a frame, with its times and row.
    pub fn begin(&mut self, time: i64, receive_time: i64, row: Option<u64>) {
        if self.frames == 0 {
            self.time = (time, time);
            self.recorded = true;
            self.receive_time = receive_time;
        }
        self.frames += 1;
        self.time.1 = time;
        self.receive_time = self.receive_time.max(receive_time);
        match row {
            None => self.recorded = false,
            Some(row) => {
                self.rows = Some(match self.rows {
                    None => (row, row + 1),
                    Some((from, to)) => (from.min(row), to.max(row + 1)),
                })
            }
        }
    }
}

/// Window of one stream, on its way to the client.
#[derive(Debug)]
pub struct TakenWindow {
    /// Id of the stream.
    pub stream: StreamId,
    /// Values received.
    pub window: StreamWindow,
    /// Channels, by position in the window.
    pub channels: Vec<(ChannelId, ChannelType)>,
}

impl Default for TakenWindow {
    fn default() -> Self {
        TakenWindow { stream: StreamId(0), window: StreamWindow::default(), channels: Vec::new() }
    }
}

impl TakenWindow {
    /// Appends the window in JSON; rows below `committed` are durable.
    pub fn write(&self, out: &mut Vec<u8>, committed: u64) {
        let window = &self.window;
        out.extend_from_slice(b"{\"stream\":");
        json::push_number(out, self.stream.0 as u64);
        match window.rows {
            Some((from, to)) => {
                out.extend_from_slice(b",\"from_row\":");
                json::push_big(out, from);
                out.extend_from_slice(b",\"to_row\":");
                json::push_big(out, to);
            }
            None => out.extend_from_slice(b",\"from_row\":null,\"to_row\":null"),
        }
        out.extend_from_slice(b",\"committed\":");
        json::push_big(out, committed);
        out.extend_from_slice(if window.recorded { b",\"recorded\":true" } else { b",\"recorded\":false" });
        out.extend_from_slice(b",\"time\":[");
        json::push_big(out, window.time.0);
        out.push(b',');
        json::push_big(out, window.time.1);
        out.extend_from_slice(b"],\"receive_time\":");
        json::push_big(out, window.receive_time);
        out.extend_from_slice(if window.gap { b",\"gap\":true" } else { b",\"gap\":false" });
        out.extend_from_slice(b",\"channels\":[");
        let (mut cells, mut notes) = (0, CellNotes::default());
        for (channel, (id, channel_type)) in window.channels.iter().zip(&self.channels) {
            if channel.count() == 0 {
                continue;
            }
            if cells > 0 {
                out.push(b',');
            }
            notes.add(cells, channel);
            cells += 1;
            out.push(b'[');
            json::push_number(out, id.0 as u64);
            out.push(b',');
            channel.write(out, *channel_type);
            out.push(b']');
        }
        out.push(b']');
        notes.write(out);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(values: &[Value<'_>], channel_type: ChannelType) -> String {
        let mut window = ChannelWindow::default();
        for value in values {
            window.add(*value);
        }
        let mut out = Vec::new();
        window.write(&mut out, channel_type);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_window_keeps_the_spike() {
        let values = [1.0, 2.0, 900.5, -3.0, 1.5].map(Value::F64);
        assert_eq!(written(&values, ChannelType::F64), "5,1.0,1.5,-3.0,900.5,180.4");
        assert_eq!(written(&[Value::F32(0.1)], ChannelType::F32), "1,0.1,0.1,0.1,0.1,0.1");
    }

    #[test]
    fn nan_never_enters_the_range_and_infinity_never_the_mean() {
        let values = [f64::NAN, 2.0, f64::INFINITY, 4.0].map(Value::F64);
        assert_eq!(written(&values, ChannelType::F64), "4,\"NaN\",4.0,2.0,\"Infinity\",3.0");
        assert_eq!(written(&[Value::F64(f64::NAN)], ChannelType::F64), "1,\"NaN\",\"NaN\",null,null,null");
    }

    #[test]
    fn an_infinite_value_leaves_the_finite_extremes_known() {
        let gathered = |values: &[f64]| {
            let mut window = ChannelWindow::default();
            values.iter().for_each(|value| window.add(Value::F64(*value)));
            window
        };
        let finite = |window: &ChannelWindow| {
            window.finite_range().map(|(min, max)| (min.as_f64().unwrap(), max.as_f64().unwrap()))
        };
        let (up, down) = (f64::INFINITY, f64::NEG_INFINITY);
        type Case<'a> = (&'a [f64], Option<(f64, f64)>);
        let cases: [Case<'_>; 8] = [
            (&[1.0, 900.0, up, 2.0], Some((1.0, 900.0))),
            (&[up, 1.0, -7.0, down, 900.0], Some((-7.0, 900.0))),
            (&[f64::NAN, down, f64::NAN, 3.0], Some((3.0, 3.0))),
            (&[1.0, up, up], Some((1.0, 1.0))),
            (&[up, down, f64::NAN], None),
            (&[1.0, 900.0, f64::NAN], None),
            (&[f64::NAN], None),
            (&[], None),
        ];
        for (values, expected) in cases {
            assert_eq!(finite(&gathered(values)), expected, "{values:?}");
            for at in 0..=values.len() {
                let (mut window, later) = (gathered(&values[..at]), gathered(&values[at..]));
                window.append(&later);
                assert_eq!(finite(&window), expected, "{values:?} joined at {at}");
            }
        }
        let mut window = ChannelWindow::default();
        [0.1, f32::INFINITY].iter().for_each(|value| window.add(Value::F32(*value)));
        assert_eq!(window.finite_range(), Some((Value::F32(0.1), Value::F32(0.1))));
        window.clear();
        assert_eq!(window.finite_range(), None);
    }

    #[test]
    fn a_text_that_comes_back_is_known_to_have_changed() {
        let long = "x".repeat(SHARED_BYTES_MIN);
        let long = long.as_str();
        let gathered = |values: &[&str]| {
            let (mut window, texts) = (ChannelWindow::default(), Texts::default());
            values.iter().for_each(|value| window.add_of(Value::String(value), (ChannelIndex(0), &texts)));
            window
        };
        let cases: [(&[&str], bool); 9] = [
            (&["GO"], false),
            (&["GO", "GO", "GO"], false),
            (&["GO", "HOLD", "HOLD"], false),
            (&["GO", "HOLD", "GO"], true),
            (&["GO", "HOLD", "GO", "HOLD"], true),
            (&["GO", "SAFE", "HOLD"], true),
            (&[long, long], false),
            (&[long, "GO", long], true),
            (&["GO", long, "GO"], true),
        ];
        for (values, expected) in cases {
            assert_eq!(gathered(values).is_restless(), expected, "{values:?}");
            for at in 0..=values.len() {
                let (mut window, later) = (gathered(&values[..at]), gathered(&values[at..]));
                window.append(&later);
                assert_eq!(window.is_restless(), expected, "{values:?} joined at {at}");
            }
        }
        // Late values: before all others, and between them.
        let mut window = gathered(&["GO", "GO"]);
        window.add_at(Value::String("HOLD"), true, false);
        assert_eq!((window.texts(), window.is_restless()), (Some(("HOLD", "GO")), false));
        window.add_at(Value::String("SAFE"), false, false);
        assert_eq!((window.texts(), window.is_restless()), (Some(("HOLD", "GO")), true));
        assert!(!ChannelWindow::default().is_restless());
    }

    #[test]
    fn a_window_says_of_cells_what_their_values_do_not() {
        let mut window = StreamWindow::default();
        window.begin(1, 2, Some(0));
        window.channels.resize_with(4, Default::default);
        ["GO", "HOLD", "GO"].iter().for_each(|text| window.channels[1].add(Value::String(text)));
        [0.5, f64::INFINITY].iter().for_each(|value| window.channels[3].add(Value::F64(*value)));
        window.channels[2].add(Value::U8(1));
        let channels = [ChannelType::U8, ChannelType::String, ChannelType::U8, ChannelType::F64];
        let channels = (17..).map(ChannelId).zip(channels).collect();
        let mut out = Vec::new();
        TakenWindow { stream: StreamId(3), window, channels }.write(&mut out, 0);
        let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!([
            [18, 3, "GO", "GO", null, null, null],
            [19, 1, 1, 1, 1, 1, 1],
            [20, 2, 0.5, "Infinity", 0.5, "Infinity", 0.5]
        ]);
        assert_eq!(told["channels"], expected);
        // Positions among the cells that are sent.
        assert_eq!((&told["changed"], &told["finite"]), (&serde_json::json!([0]), &serde_json::json!([[2, 0.5, 0.5]])));
    }

    #[test]
    fn values_take_the_type_of_the_channel_and_64_bits_are_text() {
        let values = [Value::I8(-1), Value::I64(i64::MAX)];
        assert_eq!(
            written(&values, ChannelType::I64),
            "2,\"-1\",\"9223372036854775807\",\"-1\",\"9223372036854775807\",4.611686018427388e+18"
        );
        assert_eq!(written(&[Value::U8(7)], ChannelType::I64), "1,\"7\",\"7\",\"7\",\"7\",7.0");
        assert_eq!(written(&[Value::Bool(true), Value::Bool(false)], ChannelType::Bool), "2,true,false,false,true,0.5");
        let texts = [Value::String("HOLD"), Value::String("GO")];
        assert_eq!(written(&texts, ChannelType::String), "2,\"HOLD\",\"GO\",null,null,null");
    }

    #[test]
    fn an_earlier_window_goes_in_front() {
        let mut earlier = StreamWindow::default();
        earlier.begin(1, 1, Some(0));
        earlier.channels.resize_with(2, Default::default);
        earlier.channels[0].add(Value::F64(9.0));
        let mut later = StreamWindow::default();
        later.begin(2, 2, Some(1));
        later.channels.resize_with(3, Default::default);
        later.channels[0].add(Value::F64(4.0));
        later.channels[2].add(Value::U8(1));
        earlier.append(&later);
        assert_eq!((earlier.rows, earlier.time, earlier.frames), (Some((0, 2)), (1, 2), 2));
        let mut out = Vec::new();
        earlier.channels[0].write(&mut out, ChannelType::F64);
        assert_eq!(String::from_utf8(out).unwrap(), "2,9.0,4.0,4.0,9.0,6.5");
        assert_eq!(earlier.channels[2].count(), 1);
    }

    #[test]
    fn frames_not_stored_leave_no_rows() {
        let mut window = StreamWindow::default();
        window.begin(5, 6, None);
        assert_eq!((window.rows, window.recorded, window.frames), (None, false, 1));
        window.clear();
        window.begin(7, 8, Some(41));
        window.begin(9, 10, Some(42));
        assert_eq!((window.rows, window.recorded, window.time), (Some((41, 43)), true, (7, 9)));
    }
}

//! Streams with reductions in lockstep: what was offered, and what of it the store may leave out.

use fastrand::Rng;

use super::super::reduction::near;
use super::{Checked, Model, T0, UNREADABLE, ensure};
use crate::tests::kit::*;
use crate::*;

/// A frame as it was offered.
struct Offer {
    time: i64,
    /// By channel; none: absent; none within: unknown.
    cells: Vec<Option<Option<OwnedValue>>>,
    /// The row that it got at once.
    row: Option<u64>,
}

/// One stream with reductions. Its times ascend strictly, so that each frame is known by its time.
pub(super) struct Reduced {
    pub(super) spec: StreamSpec,
    id: StreamId,
    walks: Vec<f64>,
    offered: Vec<Offer>,
    /// Frames offered that the store acknowledged as durable within their bounds.
    acknowledged: usize,
    /// Channels that it has from the start.
    first_channels: usize,
    /// When and how it grows, and what its later channels say: the others are what they are without.
    growth: Rng,
    /// Whether the store has all its channels.
    is_resolved: bool,
}

fn channel(random: &mut Rng, n: usize) -> ChannelSpec {
    let kinds = [ChannelType::F64, ChannelType::I32, ChannelType::F32, ChannelType::Bool, ChannelType::String];
    let kind = kinds[random.usize(..kinds.len())];
    let number = !matches!(kind, ChannelType::Bool | ChannelType::String);
    let bound = f64::from(random.u8(0..8)) / 2.0;
    let reduction = match random.u8(0..4) {
        0 if n > 0 => Reduction::None,
        1 if number => Reduction::Deadband { bound },
        2 | 3 if number => Reduction::SwingingDoor { bound },
        _ => Reduction::Step,
    };
    ChannelSpec { reduction, ..ChannelSpec::new(format!("c{n}"), kind) }
}

impl Reduced {
    pub(super) fn new(n: usize, random: &mut Rng) -> Reduced {
        let channels: Vec<ChannelSpec> = (0..random.usize(1..5)).map(|n| channel(random, n)).collect();
        let (walks, first_channels) = (vec![0.0; channels.len()], channels.len());
        let spec = spec("reduced", channels)
            .tag("n", n)
            .clock(if random.bool() { Clock::Receive } else { Clock::Source })
            .source("model");
        let (offered, growth) = (Vec::new(), Rng::with_seed(random.clone().u64(..)));
        Reduced { spec, id: StreamId(0), walks, offered, acknowledged: 0, first_channels, growth, is_resolved: true }
    }

    /// At times it gets more channels, or a wider one. After an opening it asks for those again that went back.
    fn grow(&mut self, store: &Store, now: i64) {
        let mut spec = self.spec.clone();
        let channels = spec.channels.len();
        if self.is_resolved {
            if self.growth.u8(0..6) > 0 || channels > 40 {
                return;
            }
            let narrow = spec.channels.iter_mut().find(|channel| channel.channel_type == ChannelType::I32);
            match narrow {
                Some(narrow) if self.growth.bool() => narrow.channel_type = ChannelType::I64,
                _ => {
                    let more = [1, 1, 1, 30][self.growth.usize(..4)];
                    spec.channels.extend((channels..channels + more).map(|n| channel(&mut self.growth, n)));
                }
            }
        }
        self.is_resolved |= store.resolve(&spec, now).is_ok_and(|_| {
            self.walks.resize(spec.channels.len(), 0.0);
            self.spec = spec;
            true
        });
    }

    pub(super) fn resolved(mut self, store: &Store, now: i64) -> Option<Reduced> {
        self.id = store.resolve(&self.spec, now).ok()?.0.id;
        Some(self)
    }

    pub(super) fn acknowledge(&mut self) {
        self.acknowledged = self.offered.len();
    }

    /// Whether the store knows it by now, and under which number.
    pub(super) fn found_in(&mut self, catalog: &Catalog) -> bool {
        let found = catalog.streams.iter().find(|have| have.key == self.spec.key);
        self.id = found.map_or(self.id, |stream| stream.id);
        self.is_resolved = false;
        found.is_some()
    }

    /// A cell of a frame: none for nothing, none within for what is not known.
    fn cell(&mut self, channel: usize, certain: usize, random: &mut Rng) -> Option<Option<OwnedValue>> {
        match random.u8(0..40) {
            0..4 if channel != certain => None,
            4 => Some(None),
            _ => Some(Some(self.value(channel, random))),
        }
    }

    fn value(&mut self, channel: usize, random: &mut Rng) -> OwnedValue {
        let walk = &mut self.walks[channel];
        *walk += if random.u8(0..20) == 0 { random.f64() * 40.0 - 20.0 } else { random.f64() - 0.5 };
        let walk = walk.clamp(-1e3, 1e3);
        OwnedValue::Plain(match self.spec.channels[channel].channel_type {
            ChannelType::F64 if random.u8(0..50) == 0 => Value::F64(f64::NAN),
            ChannelType::F64 => Value::F64(walk),
            ChannelType::F32 => Value::F32((walk * 4.0).round() as f32 / 4.0),
            ChannelType::I32 => Value::I32(walk as i32),
            ChannelType::I64 => Value::I64(walk as i64),
            ChannelType::Bool => Value::Bool(walk > 0.0),
            _ => return OwnedValue::String("abcdefghij"[..(walk.abs() / 4.0) as usize % 10].into()),
        })
    }

    pub(super) fn append(&mut self, store: &Store, random: &mut Rng, now: &mut i64) -> Checked {
        self.grow(store, *now);
        if !self.is_resolved {
            return Ok(());
        }
        let mut batch = FrameBatch::new();
        let mut offers = Vec::new();
        for _ in 0..random.usize(1..300) {
            *now += random.i64(10..1_000_000);
            let time = *now - 5;
            let source_time = (self.spec.clock == Clock::Source).then_some(time);
            let receive_time = if source_time.is_some() { *now } else { time };
            batch.begin(head(self.id, receive_time).sampled(source_time));
            let certain = random.usize(..self.first_channels);
            let mut cells = Vec::new();
            for channel in 0..self.walks.len() {
                let index = ChannelIndex(channel as u16);
                let cell = if channel < self.first_channels {
                    self.cell(channel, certain, random)
                } else {
                    let mut growth = self.growth.clone();
                    let cell = self.cell(channel, certain, &mut growth);
                    self.growth = growth;
                    cell
                };
                match &cell {
                    None => {}
                    Some(None) => batch.push_state(index, CellState::Unknown),
                    Some(Some(value)) => batch.push(index, value.as_value()),
                }
                cells.push(cell);
            }
            batch.end();
            offers.push(Offer { time, cells, row: None });
        }
        let appended = store.append(&batch, *now);
        for (mut offer, outcome) in offers.into_iter().zip(appended.outcomes) {
            match outcome {
                Outcome::Stored { row } => offer.row = Some(row),
                Outcome::Reduced { .. } => {}
                Outcome::Rejected(_) => continue,
                Outcome::Duplicate => return Err(format!("{}: a new frame is a duplicate", self.spec.key)),
            }
            self.offered.push(offer);
        }
        Ok(())
    }

    /// Those that the store has.
    fn columns(&self, store: &Store) -> Vec<ChannelIndex> {
        let known = store.catalog().stream(self.id).map_or(0, |stream| stream.layout.channels.len());
        (0..self.walks.len().min(known) as u16).map(ChannelIndex).collect()
    }

    /// What a cut left: a beginning of what was offered, with all that was acknowledged.
    fn take_back(&mut self, store: &Store, may_expire: bool) -> Checked {
        let states = store.view().state_at(self.id, i64::MAX - 1, &self.columns(store));
        let states = states.map_err(|e| format!("{UNREADABLE}{e}"))?;
        let newest = states.iter().flatten().map(|cell| cell.time).max();
        if newest.is_none() && may_expire && store.view().next_row(self.id) > 0 {
            // All its rows went for want of space: nothing says which frames came back.
            (self.offered, self.acknowledged) = (Vec::new(), 0);
            return Ok(());
        }
        let back = newest.map_or(0, |newest| self.offered.partition_point(|offer| offer.time <= newest));
        ensure(back >= self.acknowledged, || {
            format!("{}: {back} frames came back of {} acknowledged", self.spec.key, self.acknowledged)
        })?;
        self.offered.truncate(back);
        self.acknowledged = back;
        Ok(())
    }

    /// Each row is a frame that was offered; each frame lies within its bounds of what is read back.
    pub(super) fn check(&self, store: &Store, random: &mut Rng) -> Checked {
        let view = store.view();
        let key = &self.spec.key;
        // By channel, the first frame with a value in its row.
        let mut valued = vec![usize::MAX; self.walks.len()];
        let (mut next, mut first) = (0, None);
        let mut rows_found = 0;
        for batch in view.scan(Scan::all(self.id, self.columns(store))) {
            let batch = batch.map_err(|e| format!("{UNREADABLE}{e}"))?;
            for row in 0..batch.len() {
                let (time, number) = (batch.time(row), batch.rows[row]);
                let Ok(n) = self.offered.binary_search_by_key(&time, |offer| offer.time) else {
                    return Err(format!("{key}, row {number}: nobody offered a frame at {}", time - T0));
                };
                ensure(n >= next, || format!("{key}, row {number}: frame {n} after frame {}", next - 1))?;
                let offer = &self.offered[n];
                ensure(offer.row.is_none_or(|row| row == number), || {
                    format!("{key}, row {number}: that of {:?}", offer.row)
                })?;
                for (channel, column) in batch.columns.iter().enumerate() {
                    let found = column.cell(row).map(OwnedValue::of);
                    let cell = offer.cells.get(channel).unwrap_or(&None);
                    let fits = match (cell, &found) {
                        (None, Err(CellState::Absent)) | (Some(None), Err(CellState::Unknown)) => true,
                        (Some(_), Err(CellState::Unchanged)) => true,
                        (Some(want), Ok(found)) => near(widened(want, found).as_ref(), Some(found), Reduction::Step),
                        _ => false,
                    };
                    ensure(fits, || format!("{key}, row {number}, channel {channel}: {found:?}, {cell:?}"))?;
                    if found.is_ok() {
                        valued[channel] = valued[channel].min(n);
                    }
                }
                first = first.or(Some(n));
                rows_found += u64::from(offer.row.is_some());
                next = n + 1;
            }
        }
        let first = first.unwrap_or(self.offered.len());
        let rows_made = self.offered[first..].iter().filter(|offer| offer.row.is_some()).count() as u64;
        ensure(rows_made == rows_found, || format!("{key}: {rows_found} rows of {rows_made}"))?;
        let mut of_later = Rng::with_seed(rows_found);
        for (channel, &valued) in valued.iter().enumerate().filter(|(_, valued)| **valued < self.offered.len()) {
            let random = if channel < self.first_channels { &mut *random } else { &mut of_later };
            let reduction = self.spec.channels[channel].reduction;
            for n in (0..5).map(|_| random.usize(valued..self.offered.len())).chain([self.offered.len() - 1]) {
                let offer = &self.offered[n];
                let Some(Some(want)) = offer.cells.get(channel) else { continue };
                let state = view.state_at(self.id, offer.time, &[ChannelIndex(channel as u16)]);
                let state = state.map_err(|e| format!("{UNREADABLE}{e}"))?.remove(0);
                let fits = state.as_ref().is_some_and(|found| {
                    let want = found.value.as_ref().map_or_else(|| want.clone(), |value| widened(want, value));
                    found.time <= offer.time && near(want.as_ref(), found.value.as_ref(), reduction)
                });
                ensure(fits, || {
                    let at = offer.time - T0;
                    format!("{key}, channel {channel}, {reduction}, at {at}: {state:?} instead of {want:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// What was offered, of the type that its channel has by now.
fn widened(offered: &Option<OwnedValue>, found: &OwnedValue) -> Option<OwnedValue> {
    let kind = found.as_value().channel_type();
    offered.as_ref().map(|offered| match offered {
        OwnedValue::Plain(value) => OwnedValue::Plain(value.convert(kind).unwrap_or(*value)),
        text => text.clone(),
    })
}

impl Model {
    /// After an opening: what came back of the streams with reductions.
    pub(super) fn recover_reduced(&mut self) -> Checked {
        let catalog = self.store.catalog();
        for n in (0..self.reduced.len()).rev() {
            if !self.reduced[n].found_in(&catalog) {
                let reduced = self.reduced.swap_remove(n);
                ensure(reduced.acknowledged == 0, || format!("stream {} is gone", reduced.spec.key))?;
                continue;
            }
            loop {
                match self.reduced[n].take_back(&self.store, self.fixed || self.was_full) {
                    Err(error) if error.starts_with(UNREADABLE) && self.excused() => {}
                    other => break other?,
                }
                if self.disk.is_cut() {
                    return self.recover();
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_reduced(&mut self, n: usize) -> Checked {
        loop {
            match self.reduced[n].check(&self.store, &mut self.random) {
                Err(error) if error.starts_with(UNREADABLE) && self.excused() => {}
                other => return other,
            }
            if self.disk.is_cut() {
                return self.recover();
            }
        }
    }
}

//! Turns arrivals from a PLC into frames and counts them. Never waits: frames that the sink does not accept at once are
//! refused and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use strongback_store::{
    ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Reject, StreamId, StreamKey,
    StreamSpec, Value,
};

use super::connection::Arrival;
use super::counts::{AdsCounts, Trouble};
use super::error::AdsError;
use super::group::{Group, Image, Shown};
use super::layout::AdsLayout;
use super::wire::{self, AnswerError, Notification, PlcPlace};
use crate::clock::Now;
use crate::config::ReadMode;
use crate::counts::{RejectedSample, add};
use crate::notes::Note;
use crate::sink::Sink;
use crate::throttle::{Throttle, hex_sample};

/// Size from which frames are handed over within a turn. They are always handed over at its end.
const BATCH_BYTES: usize = 1 << 20;
/// Interval between frames of the PLC's state.
pub(crate) const STATE_PERIOD: Duration = Duration::from_secs(1);

/// Deleted handles remembered. A program may change many times on one connection.
const HANDLES_KEPT: usize = 10_000;

/// Tag that identifies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A request whose answer is awaited.
    Ask(u32),
    /// PLC state.
    State,
    /// State of a port that had no program.
    Appeared(u16),
    /// Symbol version of a port.
    Version(u16),
    /// Subscription to the symbol version of a port.
    AddVersion(u16),
    /// Subscription to a part of a group.
    Add { group: usize, part: usize },
    /// Deletion of a notification.
    Delete,
    /// Request of a cyclic read.
    Read { group: usize, flight: u32, request: usize },
}

/// Owner of the samples of a handle.
#[derive(Clone, Copy, Debug)]
enum HandleOwner {
    Part {
        group: usize,
        part: usize,
    },
    Version(u16),
    /// Deleted handle, or one of a group that is now read. Samples may still be in flight.
    Gone,
}

/// A cyclic read in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: u32,
    pub(crate) number: u64,
    pub(crate) image: Image,
    pub(crate) open: usize,
    pub(crate) receive_time: i64,
}

/// Cyclic reads of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupReading {
    /// Range of parts that each request reads.
    pub(crate) requests: Vec<std::ops::Range<usize>>,
    /// Places that each request reads, with the symbol version first.
    pub(crate) places: Vec<Vec<PlcPlace>>,
    pub(crate) flights: Vec<Flight>,
    pub(crate) spare: Vec<Image>,
    /// Parts with several values that the PLC refuses. Their values are then read one by one.
    pub(crate) refused: Vec<usize>,
}

/// Work that arrivals leave to the session.
#[derive(Debug, Default)]
pub(crate) struct SessionRequest {
    /// Reason to look at the program again, because it changed or is gone.
    pub(crate) look_again: Option<String>,
    /// Parts whose subscription was refused.
    pub(crate) refused: Vec<(usize, usize, AdsError)>,
    /// Groups whose notifications come too fast, with their rates.
    pub(crate) too_fast: Vec<(usize, f64)>,
    /// Consecutive requests that timed out.
    pub(crate) timeouts: u32,
    /// Answer to the awaited request.
    pub(crate) answer: Option<(u32, Result<Vec<u8>, AnswerError>)>,
    /// Subscriptions in flight.
    pub(crate) adding: usize,
    /// Deletions of notifications in flight.
    pub(crate) deleting: usize,
    /// Handles that arrived too late and must be deleted.
    pub(crate) unwanted: Vec<(u16, u32)>,
}

/// The stream of a PLC's state.
#[derive(Debug)]
struct StateStream {
    spec: StreamSpec,
    stream: StreamId,
    channels: Vec<ChannelIndex>,
}

/// Columns of the state.
const STATE_COLUMNS: [(&str, ChannelType, &str); 4] = [
    ("connected", ChannelType::Bool, "whether the PLC answers"),
    ("state", ChannelType::String, "Run, Stop, Config, …; empty while nobody knows"),
    ("state_code", ChannelType::U16, "the same as a number of ADS"),
    ("device_state", ChannelType::U16, "a number that the program may set"),
];

impl StateStream {
    fn bind(layout: &AdsLayout, sink: &dyn Sink) -> Result<StateStream, Reject> {
        let channel = |(name, kind, description): &(&str, ChannelType, &str)| ChannelSpec {
            description: (*description).to_owned(),
            ..ChannelSpec::new(*name, *kind)
        };
        let spec = StreamSpec {
            key: StreamKey::new(layout.state.table.clone(), layout.state.tags.clone()),
            source: layout.name.clone(),
            clock: Clock::Receive,
            expected_period_ns: Some(STATE_PERIOD.as_nanos() as i64),
            sequence_modulus: None,
            channels: STATE_COLUMNS.iter().map(channel).collect(),
        };
        let (stream, channels) = sink.resolve(&spec)?;
        Ok(StateStream { spec, stream: stream.id, channels })
    }
}

/// Receiver of arrivals.
pub(crate) struct PlcReceiver {
    name: String,
    sink: Arc<dyn Sink>,
    counts: Arc<AdsCounts>,
    now: Now,
    batch: FrameBatch,
    log: Throttle,
    generation: u64,
    state: StateStream,
    pub(crate) groups: Vec<Group>,
    pub(crate) readings: BTreeMap<usize, GroupReading>,
    handles: HashMap<(u16, u32), HandleOwner>,
    versions: HashMap<u16, u8>,
    /// Ports whose program changed, so that the known places hold something else.
    changed: Vec<u16>,
    pub(crate) wanted: SessionRequest,
    /// Troubles found when looking at the program. Those of parts are added to them.
    pub(crate) troubles: Vec<Trouble>,
    troubles_changed: bool,
    late_told: bool,
}

impl PlcReceiver {
    pub(crate) fn new(
        layout: &AdsLayout,
        sink: Arc<dyn Sink>,
        counts: Arc<AdsCounts>,
        now: Now,
    ) -> Result<PlcReceiver, Reject> {
        let state = StateStream::bind(layout, sink.as_ref())?;
        Ok(PlcReceiver {
            name: layout.name.clone(),
            generation: sink.generation(),
            sink,
            counts,
            now,
            batch: FrameBatch::new(),
            log: Throttle::new(2, 10_000_000_000),
            state,
            groups: Vec::new(),
            readings: BTreeMap::new(),
            handles: HashMap::new(),
            versions: HashMap::new(),
            changed: Vec::new(),
            wanted: SessionRequest::default(),
            troubles: Vec::new(),
            troubles_changed: false,
            late_told: false,
        })
    }

    pub(crate) fn sink(&self) -> &dyn Sink {
        self.sink.as_ref()
    }

    /// Drops pending work and cyclic reads, because the program or the connection changed. Handles of another
    /// connection are dropped; for handles deleted on this one, samples may still be in flight.
    pub(crate) fn begin_again(&mut self, is_connected_anew: bool) {
        self.take_handles(None);
        if is_connected_anew || self.handles.len() > HANDLES_KEPT {
            self.handles.clear();
        }
        self.versions.clear();
        self.changed.clear();
        self.readings.clear();
        self.wanted = SessionRequest::default();
    }

    pub(crate) fn set_version(&mut self, port: u16, version: u8) {
        self.versions.insert(port, version);
    }

    pub(crate) fn version(&self, port: u16) -> Option<u8> {
        self.versions.get(&port).copied()
    }

    /// Takes the handles to delete, all of them or those of one group. Their samples are ignored from now on.
    pub(crate) fn take_handles(&mut self, of: Option<usize>) -> Vec<(u16, u32)> {
        let mut taken = Vec::new();
        for (key, watch) in &mut self.handles {
            let mine = match watch {
                HandleOwner::Part { group, .. } => of.is_none_or(|of| of == *group),
                HandleOwner::Version(_) => of.is_none(),
                HandleOwner::Gone => false,
            };
            if mine {
                *watch = HandleOwner::Gone;
                taken.push(*key);
            }
        }
        self.counts.handles.store(self.handle_count() as u64, Relaxed);
        taken
    }

    /// Counts the handles in use.
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.values().filter(|watch| !matches!(watch, HandleOwner::Gone)).count()
    }

    /// Processes an arrival received at `receive_time`.
    pub(crate) fn take(&mut self, arrival: Arrival<'_, Tag>, receive_time: i64) {
        self.counts.last_receive_time.store(receive_time, Relaxed);
        match arrival {
            Arrival::Notification { port, data } => self.notification(port, data, receive_time),
            Arrival::Answer { tag, result } => {
                match &result {
                    Err(AnswerError::TimedOut) => self.wanted.timeouts += 1,
                    _ => self.wanted.timeouts = 0,
                }
                if let Err(AnswerError::Wire(error)) = &result {
                    self.reject(error.reason(), &format!("an answer ({tag:?}): {error}"), &[]);
                }
                self.answer(tag, result, receive_time);
            }
            Arrival::Bad(error) => self.warn(&error.to_string(), &[]),
            Arrival::Stray { invoke_id } => {
                self.warn(&format!("an answer with invoke id {invoke_id}, which nobody waits for (any more)"), &[]);
            }
        }
        if self.batch.size_bytes() > BATCH_BYTES {
            self.hand_over();
        }
    }

    /// Counts and logs a message that makes no frame.
    fn reject(&mut self, reason: &'static str, text: &str, bytes: &[u8]) {
        self.counts.rejected.add(reason, 1, (self.now)(), || RejectedSample::new(text, bytes));
        self.warn(text, bytes);
    }

    fn warn(&mut self, text: &str, sample: &[u8]) {
        if let Some(held) = self.log.pass((self.now)()) {
            tracing::warn!(source = self.name, held, sample = hex_sample(sample), "{text}");
        }
    }

    fn notification(&mut self, port: u16, data: &[u8], receive_time: i64) {
        let notification = match Notification::parse(data) {
            Ok(notification) => notification,
            Err(error) => {
                return self.reject(error.reason(), &format!("a notification: {error}"), data);
            }
        };
        let now = Instant::now();
        let mut samples = 0;
        let changed_at = self.changed_at(port, &notification);
        for sample in notification.samples() {
            samples += 1;
            match self.handles.get(&(port, sample.handle)) {
                Some(&HandleOwner::Part { .. }) if sample.filetime >= changed_at => {}
                Some(&HandleOwner::Part { group, part }) => {
                    let Some(of) = self.groups.get_mut(group) else { continue };
                    let data = (sample.filetime, sample.data);
                    let (right, shown) = of.sample(part, data, receive_time, now, &mut self.batch);
                    if let Some(shown) = shown {
                        self.shown(group, shown);
                    }
                    if !right {
                        self.wrong_size(group, part, sample.data);
                    }
                }
                Some(&HandleOwner::Version(port)) => {
                    if let &[version] = sample.data {
                        self.check_version(port, version);
                    }
                }
                Some(HandleOwner::Gone) => {}
                None => {
                    let handle = sample.handle;
                    let text = format!("a notification of handle {handle}, which nobody asked for");
                    self.reject("unknown_handle", &text, data);
                }
            }
        }
        add(&self.counts.samples, samples);
    }

    /// Returns the timestamp from which samples belong to another program. The version may follow the values of its
    /// timestamp.
    fn changed_at(&self, port: u16, notification: &Notification<'_>) -> u64 {
        if self.changed.contains(&port) {
            return 0;
        }
        let Some(known) = self.versions.get(&port) else { return u64::MAX };
        // Look up only samples of one byte; no other can be a version.
        let mut versions = notification.samples().filter(|sample| {
            matches!(sample.data, [version] if version != known)
                && matches!(self.handles.get(&(port, sample.handle)), Some(HandleOwner::Version(_)))
        });
        versions.next().map_or(u64::MAX, |sample| sample.filetime)
    }

    fn wrong_size(&mut self, group: usize, part: usize, data: &[u8]) {
        let Some(of) = self.groups.get(group) else { return };
        let Some(of_part) = of.parts.get(part) else { return };
        let symbol = of.leaves.get(of_part.leaves.start).map_or("", |leaf| leaf.name.as_str());
        let place = of_part.place;
        let text = format!(
            "{}: {symbol}, index {:#x}:{:#x}: a sample of {} bytes, expected {}",
            of.name,
            place.group,
            place.offset,
            data.len(),
            place.size
        );
        if data.is_empty() {
            // A PLC sends an empty sample once for a handle that became invalid.
            self.wanted.look_again.get_or_insert_with(|| format!("{text}: the handle is no longer valid"));
        }
        self.reject("wrong_length", &text, data);
    }

    pub(crate) fn check_version(&mut self, port: u16, version: u8) -> bool {
        match self.versions.get(&port) {
            Some(known) if *known != version => {
                let text = format!("the program at port {port} changed: symbol version {version}, was {known}");
                self.wanted.look_again.get_or_insert(text);
                if !self.changed.contains(&port) {
                    self.changed.push(port);
                }
                false
            }
            Some(_) => true,
            None => {
                self.versions.insert(port, version);
                true
            }
        }
    }

    fn shown(&mut self, group: usize, shown: Shown) {
        add(&self.counts.dropped_cycles, shown.dropped);
        add(&self.counts.late, shown.late);
        add(&self.counts.clock_sets, u64::from(shown.clock_set));
        if shown.clock_set {
            self.tell("watch", format!("{}: the clock of the PLC was set", self.groups[group].name));
        }
        if shown.late > 0 && !std::mem::replace(&mut self.late_told, true) {
            tracing::warn!(
                source = self.name,
                group = self.groups[group].name,
                "a notification came late; more are counted"
            );
        }
        if let Some(rate) = shown.too_fast
            && !self.wanted.too_fast.iter().any(|(of, _)| *of == group)
        {
            self.wanted.too_fast.push((group, rate));
        }
    }

    /// Writes a message to the log and adds it to the server's events.
    pub(crate) fn tell(&self, level: &'static str, text: String) {
        match level {
            "info" => tracing::info!(source = self.name, "{text}"),
            _ => tracing::warn!(source = self.name, "{text}"),
        }
        self.counts.notes.add(Note { time: (self.now)(), level, text });
    }

    fn answer(&mut self, tag: Tag, result: Result<&[u8], AnswerError>, receive_time: i64) {
        match tag {
            Tag::Ask(id) => self.wanted.answer = Some((id, result.map(<[u8]>::to_vec))),
            Tag::State => match result.map(wire::state) {
                Ok(Ok((state, device))) => self.state_frame(Some((state, device)), receive_time),
                Err(AnswerError::Ads(error)) => {
                    self.wanted.look_again.get_or_insert_with(|| format!("the state cannot be read: {error}"));
                }
                _ => {}
            },
            Tag::Appeared(port) => {
                if result.is_ok() {
                    self.wanted.look_again.get_or_insert_with(|| format!("there is a program at port {port} now"));
                }
            }
            Tag::Version(port) => {
                if let Ok(&[version]) = result.map(|answer| wire::read_bytes(answer).unwrap_or(&[])) {
                    self.check_version(port, version);
                }
            }
            Tag::AddVersion(port) => {
                self.wanted.adding = self.wanted.adding.saturating_sub(1);
                if let Ok(Ok(handle)) = result.map(wire::handle) {
                    self.watch(port, handle, HandleOwner::Version(port));
                }
            }
            Tag::Add { group, part } => {
                self.wanted.adding = self.wanted.adding.saturating_sub(1);
                match result.map(wire::handle) {
                    Ok(Ok(handle)) => {
                        let Some(of) = self.groups.get(group) else { return };
                        let is_read = of.mode == ReadMode::CyclicRead;
                        let port = of.port;
                        if is_read {
                            // Meanwhile the group is read, so it no longer needs the handle.
                            self.watch(port, handle, HandleOwner::Gone);
                            self.wanted.unwanted.push((port, handle));
                        } else {
                            self.watch(port, handle, HandleOwner::Part { group, part });
                        }
                    }
                    Err(AnswerError::Ads(error)) => self.wanted.refused.push((group, part, error)),
                    _ => self.wanted.look_again = Some("a notification could not be added".to_owned()),
                }
            }
            Tag::Delete => self.wanted.deleting = self.wanted.deleting.saturating_sub(1),
            Tag::Read { group, flight, request } => self.read(group, flight, request, result, receive_time),
        }
    }

    fn watch(&mut self, port: u16, handle: u32, watch: HandleOwner) {
        self.handles.insert((port, handle), watch);
        self.counts.handles.store(self.handle_count() as u64, Relaxed);
    }

    fn read(
        &mut self,
        group: usize,
        flight: u32,
        request: usize,
        result: Result<&[u8], AnswerError>,
        receive_time: i64,
    ) {
        let Some(mut reading) = self.readings.remove(&group) else { return };
        if let Some(at) = reading.flights.iter().position(|f| f.id == flight) {
            self.read_part(group, &mut reading, at, request, result);
            let of = &mut reading.flights[at];
            of.receive_time = of.receive_time.max(receive_time);
            of.open -= 1;
            if of.open == 0 {
                let mut done = reading.flights.remove(at);
                if !done.image.is_empty() {
                    let of = &self.groups[group];
                    let (stream, receive_time) = (of.stream, done.receive_time);
                    let head = FrameHead { stream, receive_time, source_time: None, sequence: Some(done.number) };
                    of.emit(&mut done.image, head, &mut self.batch);
                }
                reading.spare.push(done.image);
            }
        }
        self.readings.insert(group, reading);
    }

    fn read_part(
        &mut self,
        group: usize,
        reading: &mut GroupReading,
        at: usize,
        request: usize,
        result: Result<&[u8], AnswerError>,
    ) {
        let GroupReading { requests, places, flights, refused, .. } = reading;
        let (Some(parts), Some(places)) = (requests.get(request), places.get(request)) else { return };
        let bytes = match result.map(wire::read_bytes) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                let text = format!("{}: an answer to a sum read: {error}", self.groups[group].name);
                return self.reject(error.reason(), &text, &[]);
            }
            Err(AnswerError::Ads(error)) => {
                self.wanted.look_again.get_or_insert_with(|| format!("a sum read was refused: {error}"));
                return;
            }
            Err(_) => return,
        };
        let mut results = match wire::sum_results(bytes, places) {
            Ok(results) => results,
            Err(error) => {
                return self.reject(error.reason(), &format!("{}: {error}", self.groups[group].name), bytes);
            }
        };
        // The first is the symbol version. In a changed program, these places hold something else.
        let port = self.groups[group].port;
        if let Some(Ok(&[version])) = results.next()
            && !self.check_version(port, version)
        {
            return;
        }
        let of = &mut self.groups[group];
        for (part, result) in parts.clone().zip(results) {
            let error = match result {
                Ok(data) => {
                    of.put(part, data, &mut flights[at].image);
                    None
                }
                Err(AnswerError::Ads(error)) => Some(error),
                Err(_) => {
                    let text = || format!("{}: an answer to a sum read is too short", of.name);
                    self.counts.rejected.add("wrong_length", 1, (self.now)(), || RejectedSample::new(&text(), bytes));
                    continue;
                }
            };
            let known = &mut of.parts[part];
            if error.is_some() && known.leaves.len() > 1 && !refused.contains(&part) {
                refused.push(part);
            } else if known.error != error {
                known.error = error;
                self.troubles_changed = true;
            }
        }
    }

    /// Completes frames that waited long enough for more samples of their timestamp.
    pub(crate) fn flush_held(&mut self, now: Instant) {
        for group in 0..self.groups.len() {
            self.end_frames(group, Some(now));
        }
    }

    /// Completes the frames of a group that waited until `now`, or all waiting frames for `None`.
    pub(crate) fn end_frames(&mut self, group: usize, now: Option<Instant>) {
        if let Some(shown) = self.groups[group].end_frames(now, &mut self.batch) {
            self.shown(group, shown);
        }
    }

    /// Checks for parts that have become silent while others have not, and reports them.
    pub(crate) fn look_for_silence(&mut self, now: Instant) {
        for group in 0..self.groups.len() {
            for (part, since) in self.groups[group].look_for_silence(now) {
                let of = &self.groups[group];
                let leaves = &of.leaves[of.parts[part].leaves.clone()];
                let first = leaves.first().map_or("", |leaf| leaf.name.as_str());
                let more = match leaves.len() {
                    0 | 1 => String::new(),
                    n => format!(" and {} more symbols beside it", n - 1),
                };
                match of.parts[part].is_silent {
                    true => self.tell(
                        "warning",
                        format!(
                            "{}: {first}{more}: no notification for {:.1} s, while other symbols of the group come",
                            of.name,
                            since.as_secs_f64()
                        ),
                    ),
                    false => self.tell("info", format!("{}: {first}{more}: notifications come again", of.name)),
                }
                self.troubles_changed = true;
            }
        }
    }

    /// Returns the earliest time at which a waiting frame is due.
    pub(crate) fn first_held(&self) -> Option<Instant> {
        self.groups.iter().filter_map(Group::held_until).min()
    }

    /// Completes all frames.
    pub(crate) fn flush_all(&mut self) {
        for group in 0..self.groups.len() {
            self.end_frames(group, None);
        }
        self.hand_over();
    }

    /// Makes a frame of the PLC's state, or of its absence for `None`.
    pub(crate) fn state_frame(&mut self, state: Option<(u16, u16)>, receive_time: i64) {
        self.counts.connected.store(state.is_some(), Relaxed);
        let of = &self.state;
        let head = FrameHead { stream: of.stream, receive_time, source_time: None, sequence: None };
        self.batch.begin(head);
        self.batch.push(of.channels[0], Value::Bool(state.is_some()));
        match state {
            Some((ads, device)) => {
                self.batch.push(of.channels[1], Value::String(wire::state_name(ads)));
                self.batch.push(of.channels[2], Value::U16(ads));
                self.batch.push(of.channels[3], Value::U16(device));
            }
            None => self.batch.push(of.channels[1], Value::String("")),
        }
        self.batch.end();
    }

    /// Passes frames to the sink and counts the outcomes.
    pub(crate) fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let appended = self.sink.accept(&self.batch);
        add(&self.counts.frames, self.batch.len() as u64);
        let (mut stored, mut duplicate) = (0, 0);
        for outcome in &appended.outcomes {
            match outcome {
                Outcome::Stored { .. } | Outcome::Reduced { .. } => stored += 1,
                Outcome::Duplicate => duplicate += 1,
                Outcome::Rejected(reject) => {
                    let sample = || RejectedSample::new(reject, b"");
                    self.counts.rejected.add(reject.reason(), 1, (self.now)(), sample);
                }
            }
        }
        add(&self.counts.stored, stored);
        add(&self.counts.duplicate, duplicate);
        self.batch.clear();
        if self.sink.generation() != self.generation
            && let Err(error) = self.rebind()
        {
            self.warn(&format!("streams cannot be resolved after the store was reopened: {error}"), &[]);
        }
    }

    fn rebind(&mut self) -> Result<(), Reject> {
        let generation = self.sink.generation();
        let (stream, channels) = self.sink.resolve(&self.state.spec)?;
        (self.state.stream, self.state.channels) = (stream.id, channels);
        for group in &mut self.groups {
            group.rebind(self.sink.as_ref())?;
        }
        self.generation = generation;
        Ok(())
    }

    /// Updates the list of symbols without values and logs it.
    pub(crate) fn say_troubles(&mut self) {
        self.troubles_changed = false;
        let mut troubles = self.troubles.clone();
        for group in &self.groups {
            for part in &group.parts {
                let why: String = match part.error {
                    Some(error) => error.to_string(),
                    None if part.is_silent => "the PLC sends no notifications of it".to_owned(),
                    None => continue,
                };
                troubles.extend(group.leaves[part.leaves.clone()].iter().map(|leaf| Trouble {
                    stream: group.name.clone(),
                    symbol: leaf.name.clone(),
                    why: format!("index {:#x}:{:#x}: {why}", leaf.place.group, leaf.place.offset),
                }));
            }
        }
        for trouble in troubles.iter().take(5) {
            tracing::warn!(source = self.name, stream = trouble.stream, symbol = trouble.symbol, "{}", trouble.why);
        }
        if troubles.len() > 5 {
            let more = troubles.len() - 5;
            tracing::warn!(source = self.name, "{more} more symbols give no values; /api/sources lists them");
        }
        self.counts.set_troubles(troubles);
    }

    pub(crate) fn say_changed_troubles(&mut self) {
        if self.troubles_changed {
            self.say_troubles();
        }
    }

    pub(crate) fn note_troubles_changed(&mut self) {
        self.troubles_changed = true;
    }
}

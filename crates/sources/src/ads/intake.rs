//! What arrives from a PLC becomes frames here, and is counted. It never waits: what the sink does not take at once is
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

/// Frames are handed over when they take this much, and at the end of each turn.
const BATCH_BYTES: usize = 1 << 20;
/// Time between two frames of the PLC's state.
pub(crate) const STATE_PERIOD: Duration = Duration::from_secs(1);

/// Handles that are remembered after they were deleted: a program may change many times on one connection.
const HANDLES_KEPT: usize = 10_000;

/// What a request is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// One that is waited for.
    Ask(u32),
    /// The state.
    State,
    /// The state of a port at which there was no program.
    Appeared(u16),
    /// The symbol version of a port.
    Version(u16),
    /// A notification of a symbol version.
    AddVersion(u16),
    /// A notification of a part of a group.
    Add { group: usize, part: usize },
    /// The end of a notification.
    Delete,
    /// A request of a reading.
    Read { group: usize, flight: u32, request: usize },
}

/// Whose samples those of a handle are.
#[derive(Clone, Copy, Debug)]
enum HandleOwner {
    Part {
        group: usize,
        part: usize,
    },
    Version(u16),
    /// Deleted, or of a group that is read now: what is under way still comes.
    Gone,
}

/// A reading under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: u32,
    pub(crate) number: u64,
    pub(crate) image: Image,
    pub(crate) open: usize,
    pub(crate) receive_time: i64,
}

/// Readings of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupReading {
    /// Which parts each request reads.
    pub(crate) requests: Vec<std::ops::Range<usize>>,
    /// What each request asks for; the symbol version first.
    pub(crate) places: Vec<Vec<PlcPlace>>,
    pub(crate) flights: Vec<Flight>,
    pub(crate) spare: Vec<Image>,
    /// Parts of several values that the PLC refuses: to be read one by one.
    pub(crate) refused: Vec<usize>,
}

/// What the session is to do about what arrived.
#[derive(Debug, Default)]
pub(crate) struct SessionRequest {
    /// The program changed, or is gone: look at it anew. Why.
    pub(crate) look_again: Option<String>,
    /// Parts whose notification was refused.
    pub(crate) refused: Vec<(usize, usize, AdsError)>,
    /// Groups that come too fast.
    pub(crate) too_fast: Vec<(usize, f64)>,
    /// Requests without an answer, in a row.
    pub(crate) timeouts: u32,
    /// What was asked for.
    pub(crate) answer: Option<(u32, Result<Vec<u8>, AnswerError>)>,
    /// Additions of notifications under way.
    pub(crate) adding: usize,
    /// Ends of notifications under way.
    pub(crate) deleting: usize,
    /// Handles that came too late.
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

/// What takes arrivals.
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
    /// Ports whose program changed: what lies at the old places is something else.
    changed: Vec<u16>,
    pub(crate) wanted: SessionRequest,
    /// Troubles of the look at the program; those of parts come to them.
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

    /// Forgets what was wanted and read: the program, or the connection, is another. Handles of another connection are
    /// no more; of those deleted on this one samples may still be under way.
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

    /// Handles to be deleted, all of them or those of one group; their samples are no longer taken.
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

    /// Handles that notify now.
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.values().filter(|watch| !matches!(watch, HandleOwner::Gone)).count()
    }

    /// Takes what arrived at `receive_time`.
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

    /// Counts a message that makes no frame, and says so.
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

    /// The stamp from which on samples are of another program: the version may stand behind the values of its stamp.
    fn changed_at(&self, port: u16, notification: &Notification<'_>) -> u64 {
        if self.changed.contains(&port) {
            return 0;
        }
        let Some(known) = self.versions.get(&port) else { return u64::MAX };
        // Only a version has one byte that can be taken for one; the others are looked up no further.
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
            // What a PLC sends once for a handle that is no longer valid.
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

    /// Tells people: the log, and an event of the server.
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
                            // It is read meanwhile, and wants it no more.
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
        // The first is the symbol version: a program that changed has other things at these places.
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

    /// Ends frames that waited long enough for more samples of their stamp.
    pub(crate) fn flush_held(&mut self, now: Instant) {
        for group in 0..self.groups.len() {
            self.end_frames(group, Some(now));
        }
    }

    /// Ends the frames of a group that waited until `now`, or all that wait.
    pub(crate) fn end_frames(&mut self, group: usize, now: Option<Instant>) {
        if let Some(shown) = self.groups[group].end_frames(now, &mut self.batch) {
            self.shown(group, shown);
        }
    }

    /// Looks for parts of groups that come no longer while the others do, and says so.
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

    /// When the first frame has waited long enough.
    pub(crate) fn first_held(&self) -> Option<Instant> {
        self.groups.iter().filter_map(Group::held_until).min()
    }

    /// Ends all frames.
    pub(crate) fn flush_all(&mut self) {
        for group in 0..self.groups.len() {
            self.end_frames(group, None);
        }
        self.hand_over();
    }

    /// Makes a frame of the PLC's state; none: it does not answer.
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

    /// Hands frames to the sink and counts what became of them.
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

    /// Says anew which symbols give no values.
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

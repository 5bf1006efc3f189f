//! Imports rows into a sink: maps names to channels, cells to values, and rows to frames.

use std::ops::ControlFlow;

use hashbrown::HashMap;
use strongback_store::{
    CellState, ChannelIndex, ChannelSpec, ChannelType, Clock, CommitNumber, FrameBatch, FrameHead, Outcome, OwnedValue,
    Refusal, Reject, StreamId, StreamKey, StreamSpec,
};

use super::target::{ChannelRequest, Guess, channel_of, fit, fit_array, known_type, split_full_name};
use super::{Cell, FilePlace, RowConfig, RowError, RowProgress, RowReport, Written};
use crate::sink::Sink;

/// Batch size at which frames are handed over and committed.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum rows, and their maximum size in bytes, from which types are guessed.
const SAMPLE_ROWS: usize = 1_000;
const SAMPLE_BYTES: usize = 4 << 20;

/// A channel of the file.
struct FileChannel {
    stream: usize,
    spec: ChannelSpec,
    /// Type, once known.
    kind: Option<ChannelType>,
    guess: Guess,
    /// Channel in the store, once its stream is resolved.
    index: Option<ChannelIndex>,
    /// Reason why the store refused the channel.
    refused: Option<Reject>,
}

/// A stream of the file.
struct TargetStream {
    key: StreamKey,
    name: String,
    id: Option<StreamId>,
    targets: Vec<usize>,
    required: Vec<usize>,
    stored: u64,
}

/// A cell kept until types are known.
enum Kept {
    Written(String, Written),
    Value(OwnedValue),
    Unknown,
}

impl Kept {
    fn of(cell: Cell<'_>) -> Kept {
        match cell {
            Cell::Written(text, how) => Kept::Written(text.to_owned(), how),
            Cell::Value(value) => Kept::Value(OwnedValue::of(value)),
            Cell::Unknown => Kept::Unknown,
        }
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Kept::Written(text, how) => Cell::Written(text, *how),
            Kept::Value(value) => Cell::Value(value.as_value()),
            Kept::Unknown => Cell::Unknown,
        }
    }
}

/// A cell that fits its channel: stream, channel, target, value.
type FittedCell = (usize, ChannelIndex, usize, Result<OwnedValue, CellState>);

/// A row kept until types are known.
struct PendingRow {
    line: u64,
    time: i64,
    cells: Vec<(usize, FilePlace, Kept)>,
}

pub(crate) struct RowReceiver<'a> {
    config: RowConfig,
    sink: &'a dyn Sink,
    progress: &'a mut dyn FnMut(RowProgress) -> ControlFlow<()>,
    report: RowReport,
    by_name: HashMap<String, Option<usize>>,
    by_key: HashMap<StreamKey, usize>,
    known: HashMap<StreamKey, StreamId>,
    targets: Vec<FileChannel>,
    streams: Vec<TargetStream>,
    waiting: Vec<PendingRow>,
    waiting_bytes: usize,
    batch: FrameBatch,
    /// Line and stream of each frame in the batch.
    batch_lines: Vec<(u64, usize)>,
    commit: Option<CommitNumber>,
    /// Buffer reused between rows.
    fitted: Vec<FittedCell>,
    bytes: u64,
    /// Line up to which everything accepted is durable.
    durable_line: u64,
}

impl<'a> RowReceiver<'a> {
    pub(super) fn new(
        config: RowConfig,
        sink: &'a dyn Sink,
        progress: &'a mut dyn FnMut(RowProgress) -> ControlFlow<()>,
    ) -> RowReceiver<'a> {
        let known = config.catalog.streams.iter().map(|stream| (stream.key.clone(), stream.id)).collect();
        RowReceiver {
            config,
            sink,
            progress,
            report: RowReport::default(),
            by_name: HashMap::new(),
            by_key: HashMap::new(),
            known,
            targets: Vec::new(),
            streams: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            batch: FrameBatch::new(),
            batch_lines: Vec::new(),
            commit: None,
            fitted: Vec::new(),
            bytes: 0,
            durable_line: 0,
        }
    }

    pub(crate) fn file(&self) -> &str {
        &self.config.file
    }

    pub(crate) fn config(&self) -> &RowConfig {
        &self.config
    }

    /// Reports whether rows of this line are to be imported, and counts them if so.
    pub(crate) fn begins(&mut self, line: u64, bytes: u64) -> bool {
        self.bytes = bytes;
        let wanted = line >= self.config.from_line;
        self.report.rows += u64::from(wanted);
        wanted
    }

    /// Counts and reports a row from which nothing can be used.
    pub(crate) fn bad_row(&mut self, place: FilePlace, reason: impl Into<String>) {
        self.report.bad_rows += 1;
        self.report.complain(place, reason);
    }

    /// Counts a row without a value.
    pub(crate) fn empty_row(&mut self) {
        self.report.empty_rows += 1;
    }

    /// Counts a row that was not selected.
    pub(crate) fn ignored_row(&mut self) {
        self.report.ignored_rows += 1;
    }

    pub(crate) fn header_error(&self, place: FilePlace, reason: impl Into<String>) -> RowError {
        RowError::Header { file: self.config.file.clone(), place, reason: reason.into() }
    }

    /// Returns the target of a name in the file, or `None` if it was not selected. `stream` is the stream named in the
    /// row.
    ///
    /// # Errors
    /// If neither the name nor anything else determines the stream.
    pub(crate) fn target(&mut self, stream: Option<&str>, name: &str) -> Result<Option<usize>, String> {
        // Names do not contain tabs.
        let id = format!("{}\t{name}", stream.unwrap_or_default());
        if let Some(found) = self.by_name.get(&id) {
            return Ok(*found);
        }
        let stream = stream.map(StreamKey::parse);
        let wanted = ChannelRequest { stream, name: name.to_owned(), ..ChannelRequest::default() };
        let found = self.place_target(wanted)?;
        self.by_name.insert(id, found);
        Ok(found)
    }

    /// Does the same as [`RowReceiver::target`], with the properties that the file states. The result is not cached by
    /// name.
    pub(crate) fn place_target(&mut self, wanted: ChannelRequest) -> Result<Option<usize>, String> {
        let ChannelRequest { stream, name, kind, unit, description } = wanted;
        let full_name = match &stream {
            Some(key) => format!("{}.{}", key.table, channel_of(key, &name)),
            None => name.clone(),
        };
        let renamed = self.config.names.get(&name).or_else(|| self.config.names.get(&full_name)).cloned();
        if renamed.is_none() && !self.config.names.is_empty() {
            return Ok(None);
        }
        let known = &self.known;
        let (key, channel) = match (renamed, stream, &self.config.stream) {
            (Some(full), ..) => split_full_name(&full, |key| known.contains_key(key))
                .ok_or_else(|| format!("{full:?} is no STREAM.CHANNEL"))?,
            (None, Some(key), _) => {
                let channel = channel_of(&key, &name);
                (key, channel)
            }
            (None, None, Some(stream)) => {
                let key = StreamKey::parse(stream);
                let channel = channel_of(&key, &name);
                (key, channel)
            }
            (None, None, None) => split_full_name(&name, |key| known.contains_key(key)).ok_or_else(|| {
                format!(
                    "{name:?} does not say its stream: name it STREAM.CHANNEL, add a column stream, or give --stream"
                )
            })?,
        };
        let stream = self.stream_target(&key);
        if let Some(&same) =
            self.streams[stream].targets.iter().find(|target| self.targets[**target].spec.name == channel)
        {
            return Ok(Some(same));
        }
        let asked = [&name, &channel, &key.channel_name(&channel)].into_iter().find_map(|n| self.config.types.get(n));
        let in_store = self.known.get(&key).and_then(|id| known_type(&self.config.catalog, *id, &channel));
        let kind = asked.copied().or(in_store).or(kind);
        let mut spec = ChannelSpec::new(channel, kind.unwrap_or(ChannelType::F64));
        (spec.unit, spec.description) = (unit, description);
        let target = self.targets.len();
        if self.config.required.get(&self.streams[stream].name).is_some_and(|names| names.contains(&spec.name)) {
            self.streams[stream].required.push(target);
        }
        self.streams[stream].targets.push(target);
        self.targets.push(FileChannel { stream, spec, kind, guess: Guess::default(), index: None, refused: None });
        Ok(Some(target))
    }

    fn stream_target(&mut self, key: &StreamKey) -> usize {
        if let Some(&found) = self.by_key.get(key) {
            return found;
        }
        let stream = self.streams.len();
        let (targets, required) = (Vec::new(), Vec::new());
        let name = key.to_string();
        self.streams.push(TargetStream { key: key.clone(), name, id: None, targets, required, stored: 0 });
        self.by_key.insert(key.clone(), stream);
        stream
    }

    /// Sets the properties that a file states for a channel before its values.
    pub(crate) fn describe(&mut self, target: usize, kind: Option<ChannelType>, unit: &str, description: &str) {
        let target = &mut self.targets[target];
        if target.kind.is_none() {
            target.kind = kind;
        }
        target.spec.unit = unit.to_owned();
        target.spec.description = description.to_owned();
    }

    /// Imports a row. Breaks if the caller wants to stop.
    pub(crate) fn row(
        &mut self,
        line: u64,
        time: i64,
        cells: &[(usize, FilePlace, Cell<'_>)],
    ) -> Result<ControlFlow<()>, RowError> {
        if cells.is_empty() {
            self.empty_row();
            return Ok(ControlFlow::Continue(()));
        }
        let guessing =
            !self.waiting.is_empty() || cells.iter().any(|(target, ..)| self.targets[*target].kind.is_none());
        if !guessing {
            self.emit(line, time, cells)?;
            return self.hand_over_if_full(line);
        }
        for (target, _, cell) in cells {
            self.targets[*target].guess.see(*cell);
            self.waiting_bytes += 64;
            if let Cell::Written(text, _) = cell {
                self.waiting_bytes += text.len();
            }
        }
        let cells = cells.iter().map(|(target, place, cell)| (*target, *place, Kept::of(*cell))).collect();
        self.waiting.push(PendingRow { line, time, cells });
        // After types are decided, a new channel gets the type of its first value.
        let settled = self.commit.is_some() || !self.batch.is_empty();
        if settled || self.waiting.len() >= SAMPLE_ROWS || self.waiting_bytes >= SAMPLE_BYTES {
            self.settle()?;
        }
        self.hand_over_if_full(line)
    }

    /// Decides types by the values seen, and emits the waiting rows.
    fn settle(&mut self) -> Result<(), RowError> {
        for target in self.targets.iter_mut().filter(|target| target.kind.is_none()) {
            target.kind = Some(target.guess.channel_type());
        }
        self.waiting_bytes = 0;
        for row in std::mem::take(&mut self.waiting) {
            let cells: Vec<(usize, FilePlace, Cell<'_>)> =
                row.cells.iter().map(|(target, place, kept)| (*target, *place, kept.cell())).collect();
            self.emit(row.line, row.time, &cells)?;
            if self.batch.size_bytes() >= BATCH_BYTES {
                self.hand_over(row.line)?;
            }
        }
        Ok(())
    }

    /// Resolves a stream with all its channels that have a type. If the store refuses that, resolves each channel by
    /// itself, and notes for each whether it is refused.
    fn resolve(&mut self, stream: usize) -> Result<(), RowError> {
        let is_open = |target: &FileChannel| target.kind.is_some() && target.refused.is_none();
        let targets: Vec<usize> =
            self.streams[stream].targets.iter().copied().filter(|t| is_open(&self.targets[*t])).collect();
        let Err(reject) = self.resolve_channels(stream, &targets)? else { return Ok(()) };
        if let [target] = targets[..] {
            self.targets[target].refused = Some(reject);
            return Ok(());
        }
        for target in targets {
            if let Err(reject) = self.resolve_channels(stream, &[target])? {
                self.targets[target].refused = Some(reject);
            }
        }
        Ok(())
    }

    /// Resolves channels of a stream. Returns the reason if the store refuses them.
    fn resolve_channels(&mut self, stream: usize, targets: &[usize]) -> Result<Result<(), Reject>, RowError> {
        let of = &self.streams[stream];
        let channel = |target: &usize| {
            let FileChannel { spec, kind, .. } = &self.targets[*target];
            ChannelSpec { channel_type: kind.unwrap_or(spec.channel_type), ..spec.clone() }
        };
        let existing = self.known.get(&of.key).and_then(|id| self.config.catalog.stream(*id));
        let spec = StreamSpec {
            key: of.key.clone(),
            source: existing.map_or(&self.config.source, |stream| &stream.source).clone(),
            clock: existing.map_or(Clock::Receive, |stream| stream.clock),
            expected_period_ns: existing.and_then(|stream| stream.expected_period_ns),
            sequence_modulus: existing.and_then(|stream| stream.sequence_modulus),
            channels: targets.iter().map(channel).collect(),
        };
        let (resolved, indices) = match self.sink.resolve(&spec) {
            Ok(resolved) => resolved,
            Err(Reject::Refused(source)) => return Err(self.refused(source)),
            Err(reject) => return Ok(Err(reject)),
        };
        self.streams[stream].id = Some(resolved.id);
        for (&target, index) in targets.iter().zip(indices) {
            let target = &mut self.targets[target];
            target.index = Some(index);
            target.kind = Some(resolved.layout.channel(index).channel_type);
        }
        Ok(Ok(()))
    }

    fn refused(&self, source: Refusal) -> RowError {
        RowError::Refused { file: self.config.file.clone(), line: self.durable_line, source }
    }

    /// Counts the cells whose channels the store refused. A frame that has no other cells is refused as a whole.
    fn refuse(&mut self, cells: Vec<(usize, FilePlace, usize)>, fitted: &[FittedCell]) {
        for (at, &(stream, place, target)) in cells.iter().enumerate() {
            let Some(reject) = &self.targets[target].refused else { continue };
            let (name, reject) = (&self.targets[target].spec.name, reject.clone());
            if fitted.iter().any(|cell| cell.0 == stream) {
                self.report.bad_cells += 1;
                self.report.complain(place, format!("{name}: {reject}"));
            } else if cells[..at].iter().all(|cell| cell.0 != stream) {
                *self.report.rejected.entry(reject.reason()).or_default() += 1;
                self.report.complain(place, reject.to_string());
            }
        }
    }

    /// Adds the frames of a row to the batch.
    fn emit(&mut self, line: u64, time: i64, cells: &[(usize, FilePlace, Cell<'_>)]) -> Result<(), RowError> {
        let mut fitted = std::mem::take(&mut self.fitted);
        fitted.clear();
        // Streams that lack a required cell because it could not be used.
        let mut spoilt = Vec::new();
        let (mut refused, mut blank) = (Vec::new(), 0);
        for &(target, place, cell) in cells {
            if self.targets[target].index.is_none() && self.targets[target].refused.is_none() {
                self.resolve(self.targets[target].stream)?;
            }
            let FileChannel { stream, kind, index, .. } = &self.targets[target];
            let (Some(kind), Some(index)) = (kind, index) else {
                if cell != Cell::Written("", Written::Bare) {
                    refused.push((*stream, place, target));
                }
                if self.streams[*stream].required.contains(&target) {
                    spoilt.push(*stream);
                }
                continue;
            };
            // Some programs also quote empty cells. Only text can be empty.
            if cell == Cell::Written("", Written::Bare) && *kind != ChannelType::String {
                blank += 1;
                continue;
            }
            let fits = match kind {
                ChannelType::Array(kind) => fit_array(cell, *kind),
                kind => fit(cell, *kind).map(|value| value.map(OwnedValue::of)),
            };
            match fits {
                Ok(value) => fitted.push((*stream, *index, target, value)),
                Err(reason) => {
                    if self.streams[*stream].required.contains(&target) {
                        spoilt.push(*stream);
                    }
                    let name = &self.targets[target].spec.name;
                    self.report.bad_cells += 1;
                    self.report.complain(place, format!("{name}: {reason}"));
                }
            }
        }
        if blank == cells.len() {
            self.empty_row();
        } else if fitted.is_empty() && refused.is_empty() {
            self.report.bad_rows += 1;
        }
        if !refused.is_empty() {
            self.refuse(refused, &fitted);
        }
        fitted.sort_by_key(|(stream, index, ..)| (*stream, *index));
        let first_place = cells[0].1;
        for frame in fitted.chunk_by(|a, b| a.0 == b.0) {
            let stream = frame[0].0;
            if let Some(twice) = frame.windows(2).find(|pair| pair[0].1 == pair[1].1) {
                let name = &self.targets[twice[0].2].spec.name;
                self.bad_row(first_place, format!("{name} is there twice"));
                continue;
            }
            if spoilt.contains(&stream) {
                self.report.bad_rows += 1;
                continue;
            }
            let of = &self.streams[stream];
            let must = self.config.required.get(&of.name).map_or(0, Vec::len);
            if must > 0 {
                let there = frame.iter().filter(|cell| of.required.contains(&cell.2)).count();
                if there < must {
                    let names = &self.config.required[&of.name];
                    let is_there = |name: &&String| frame.iter().any(|cell| self.targets[cell.2].spec.name == **name);
                    let missing = names.iter().find(|name| !is_there(name)).cloned().unwrap_or_default();
                    let reason =
                        format!("{missing} of stream {} has no value, and is not NULL in its definition", of.name);
                    self.bad_row(first_place, reason);
                    continue;
                }
            }
            let Some(id) = of.id else { continue };
            self.push(line, time, stream, id, frame);
        }
        self.fitted = fitted;
        Ok(())
    }

    fn push(&mut self, line: u64, time: i64, stream: usize, id: StreamId, frame: &[FittedCell]) {
        let source_clock = self.known.get(&self.streams[stream].key).and_then(|id| self.config.catalog.stream(*id));
        let source_time = source_clock.filter(|stream| stream.clock == Clock::Source).map(|_| time);
        self.batch.begin(FrameHead { stream: id, receive_time: time, source_time, sequence: None });
        for (_, index, _, value) in frame {
            match value {
                Ok(value) => {
                    self.report.values += 1;
                    self.batch.push(*index, value.as_value());
                }
                Err(state) => self.batch.push_state(*index, *state),
            }
        }
        self.batch.end();
        self.batch_lines.push((line, stream));
        let range = self.report.time.get_or_insert((time, time));
        *range = (range.0.min(time), range.1.max(time));
    }

    fn hand_over_if_full(&mut self, line: u64) -> Result<ControlFlow<()>, RowError> {
        if self.batch.size_bytes() < BATCH_BYTES {
            return Ok(ControlFlow::Continue(()));
        }
        self.hand_over(line)?;
        let stored = self.streams.iter().map(|stream| stream.stored).sum();
        let flow = (self.progress)(RowProgress { bytes: self.bytes, lines: line, stored });
        self.report.stopped |= flow.is_break();
        Ok(flow)
    }

    /// Hands over the batch and waits until it is durable.
    fn hand_over(&mut self, line: u64) -> Result<(), RowError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let appended = self.sink.accept_waiting(&self.batch);
        self.commit = self.commit.max(Some(appended.commit));
        let mut durable_line = self.durable_line;
        let mut refusal = None;
        let mut taken_to = None;
        for (outcome, &(of_line, stream)) in appended.outcomes.into_iter().zip(&self.batch_lines) {
            match outcome {
                Outcome::Stored { .. } => self.streams[stream].stored += 1,
                Outcome::Reduced { .. } => self.report.reduced += 1,
                Outcome::Duplicate => self.report.duplicate += 1,
                Outcome::Rejected(reject) => {
                    *self.report.rejected.entry(reject.reason()).or_default() += 1;
                    self.report.complain(FilePlace { line: of_line, column: 1 }, reject.to_string());
                    if let Reject::Refused(why) = reject {
                        refusal.get_or_insert(why);
                        taken_to.get_or_insert(of_line.saturating_sub(1));
                    }
                }
            }
        }
        self.batch.clear();
        self.batch_lines.clear();
        let durable = self.sink.wait_durable(appended.commit);
        if let (Some(line), Ok(())) = (taken_to, &durable) {
            // No frame after a refused one is accepted.
            durable_line = durable_line.max(line);
        }
        self.durable_line = durable_line;
        match (refusal, durable) {
            (Some(why), _) | (None, Err(why)) => Err(self.refused(why)),
            (None, Ok(())) => {
                self.durable_line = line;
                Ok(())
            }
        }
    }

    /// Imports the rest and returns the report.
    pub(super) fn finish(mut self, lines: u64) -> Result<RowReport, RowError> {
        self.settle()?;
        self.hand_over(lines)?;
        self.report.lines = lines;
        for stream in self.streams.iter().filter(|stream| stream.stored > 0) {
            *self.report.streams.entry(stream.name.clone()).or_default() += stream.stored;
        }
        let stored = self.report.stored();
        let _ = (self.progress)(RowProgress { bytes: self.bytes, lines, stored });
        Ok(self.report)
    }
}

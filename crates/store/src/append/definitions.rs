//! Definitions of streams: resolved against the specs that sources send, and restored from checkpoints and the log.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::append::Writer;
use crate::bytes::{RecordError, contradiction};
use crate::catalog::{self, ShapeHistory};
use crate::log::record::Control;
use crate::model::row::RowShape;
use crate::model::stream::{ChannelIndex, Layout, Stream, StreamId, StreamSpec};
use crate::{Refusal, Reject};

impl Writer {
    /// Finds, creates or grows a stream. Its definition records precede its next frame in the log.
    pub(crate) fn resolve(
        &mut self,
        spec: &StreamSpec,
        internal: bool,
        now: i64,
    ) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.gate.check_closed()?;
        catalog::check_owner(&spec.key, internal)?;
        match self.streams.find(&spec.key) {
            Some(id) => self.grow(id, spec, now),
            None => self.make(spec, internal),
        }
    }

    /// Adds to a stream the parts of a spec that it lacks.
    fn grow(&mut self, id: u32, spec: &StreamSpec, now: i64) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        let before = self.streams[id].slot.stream.load_full();
        let growth = catalog::grow(&before, spec, self.streams.channels())?;
        let Some(stream) = growth.stream else { return Ok((before, growth.indices)) };
        // A held frame has the shape and the reductions of its time, so it gets its row first. That row must not use
        // the reserve, nor the room kept for the held frames of other streams.
        let held = self.streams[id].reducer.as_ref().and_then(|reducer| reducer.held.as_ref());
        let kept = self.unit.kept_beside(held.map_or(0, |held| held.record_bytes()));
        if !self.flush_held(id, kept, now) {
            return Err(Reject::Refused(Refusal::LogFull));
        }
        let stream = Arc::new(stream);
        let writer = &self.streams[id];
        let (history_before, shape) = (writer.history.clone(), writer.shape.clone());
        let mut history = (*history_before).clone();
        let first_change = history.changes.len();
        let sequenced = stream.sequence_modulus.is_some() && history.sequenced_from.is_none();
        catalog::extend_history(&mut history, &growth.retyped, sequenced);
        history.serial += 1;
        let bytes = catalog::encode_channels(&stream, &history, &growth.touched, first_change);
        let known = Some((&*before, &*history_before));
        let more = self.catalog_room.growth((&stream, &history), known, writer.slot.group);
        self.catalog_room.check(&stream, more)?;
        self.unit.put_control(Control::Channels, &bytes)?;
        self.catalog_room.take(more);
        let shape_changed = history.newest != history_before.newest;
        let clock_changed = stream.clock != before.clock;
        let shape = if shape_changed { self.streams.newest_shape(&history) } else { shape };
        self.redefine(stream.clone(), history, shape, shape_changed || clock_changed);
        self.streams.note_changed(id);
        Ok((stream, growth.indices))
    }

    /// Creates the stream that a spec describes.
    fn make(&mut self, spec: &StreamSpec, internal: bool) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        catalog::check_key(&spec.key)?;
        self.streams.check_room(&spec.key, internal)?;
        let empty = Stream {
            id: StreamId(self.streams.len()),
            key: spec.key.clone(),
            source: spec.source.clone(),
            clock: spec.clock,
            expected_period_ns: spec.expected_period_ns,
            sequence_modulus: spec.sequence_modulus,
            layout: Arc::new(Layout { version: 0, channels: Vec::new() }),
        };
        let growth = catalog::grow(&empty, spec, self.streams.channels())?;
        let stream = growth.stream.unwrap_or(empty);
        let mut history =
            ShapeHistory { sequenced_from: stream.sequence_modulus.map(|_| 0), ..ShapeHistory::default() };
        catalog::extend_history(&mut history, &growth.retyped, false);
        let group = self.groups.of(&stream.key);
        let bytes = catalog::encode_stream(&stream, &history, group);
        let more = self.catalog_room.growth((&stream, &history), None, group);
        self.catalog_room.check(&stream, more)?;
        self.unit.put_control(Control::Stream, &bytes)?;
        self.catalog_room.take(more);
        let stream = self.streams.add(stream, history, group);
        Ok((stream, growth.indices))
    }

    /// Replaces a stream's definition with a newer one.
    fn redefine(&mut self, stream: Arc<Stream>, history: ShapeHistory, shape: Arc<RowShape>, ends_chunk: bool) {
        let id = stream.id.0;
        if self.streams.redefine(stream, history, shape, ends_chunk) {
            // Only one session before the one that begins is remembered, so the losses must not wait.
            self.gaps.urge(id);
        }
    }

    /// Restores a whole definition from a checkpoint: of a new stream, or newer than the known one.
    ///
    /// # Errors
    /// If it contradicts what is known.
    pub(crate) fn apply_stream(&mut self, definition: catalog::Definition) -> Result<(), RecordError> {
        let catalog::Definition { id, key, body, group } = definition;
        if !self.groups.has(group) {
            return Err(contradiction(format!("stream {} is of group {}, which is not known", id.0, group.0)));
        }
        let serial = body.serial;
        let mut history = ShapeHistory::default();
        let stream = catalog::apply_body(id, key, &[], &mut history, body)?;
        let known = self.streams.len();
        match id.0.cmp(&known) {
            Ordering::Greater => return Err(contradiction(format!("stream {} follows {known} streams", id.0))),
            Ordering::Equal if !self.streams.has_slot() => {
                return Err(contradiction(format!("stream {} is one too many", id.0)));
            }
            Ordering::Equal => {
                self.streams.add(stream, history, group);
            }
            Ordering::Less => {
                if serial <= self.streams[id.0].history.serial {
                    return Ok(());
                }
                let shape = self.streams.newest_shape(&history);
                self.redefine(Arc::new(stream), history, shape, true);
            }
        }
        Ok(())
    }

    /// Restores a change of channels from the log; skips one that is already known.
    ///
    /// # Errors
    /// If it contradicts what is known.
    pub(crate) fn apply_channels(&mut self, id: StreamId, body: catalog::Body) -> Result<(), RecordError> {
        let writer = self.streams.known(id.0)?;
        let before = writer.slot.stream.load_full();
        if body.serial <= writer.history.serial {
            return Ok(());
        }
        if body.shape > writer.history.newest.saturating_add(1) {
            // The record lists only what it changed, and one before it changed the layout as well.
            let (found, newest) = (body.shape, writer.history.newest);
            return Err(contradiction(format!("stream {}: shape {found} follows shape {newest}", id.0)));
        }
        let mut history = (*writer.history).clone();
        let stream = catalog::apply_body(id, before.key.clone(), &before.layout.channels, &mut history, body)?;
        let shape = self.streams.newest_shape(&history);
        self.redefine(Arc::new(stream), history, shape, true);
        self.streams.note_changed(id.0);
        Ok(())
    }

    /// Recounts, after recovery, the bytes that the catalog takes in checkpoints.
    pub(crate) fn measure_catalog(&mut self) {
        self.catalog_room.measure(&self.streams, &self.groups);
    }
}

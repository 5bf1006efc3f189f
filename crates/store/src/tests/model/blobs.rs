//! A camera in the model: frames that name blobs, and writers that give up.

use super::{Checked, Model, UNREADABLE, ensure};
use crate::tests::kit::*;
use crate::*;

/// A stream whose frames name a blob each.
#[derive(Default)]
pub(super) struct Camera {
    id: Option<StreamId>,
    /// The seed of each frame's blob, its length, and what names it.
    frames: Vec<(u64, usize, BlobRef)>,
    acknowledged: usize,
}

fn camera() -> StreamSpec {
    spec("camera", [("seed", ChannelType::U64), ("image", ChannelType::Blob)]).source("model")
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 56)) as u8 ^ (at >> 6) as u8).collect()
}

impl Camera {
    pub(super) fn acknowledge(&mut self) {
        self.acknowledged = self.frames.len();
    }
}

impl Model {
    /// Writes a blob, and mostly a frame that names it.
    pub(super) fn shoot(&mut self) -> Checked {
        if self.camera.id.is_none() {
            self.camera.id = self.store.resolve(&camera(), self.now).ok().map(|(stream, _)| stream.id);
        }
        let Some(id) = self.camera.id else { return Ok(()) };
        let most = if self.fixed { 24 << 10 } else { 150 << 10 };
        let (seed, len) = (self.random.u64(..), self.random.usize(..most) >> self.random.u8(0..6));
        let gives_up = self.random.u8(0..5) == 0;
        self.now += 1_000;
        let written = self.store.blob(id).and_then(|mut writer| {
            if self.random.bool() {
                writer.expect(len as u64)?;
            }
            content(seed, len).chunks(30_011).try_for_each(|piece| writer.write(piece))?;
            if gives_up { Ok(None) } else { writer.finish(self.now).map(Some) }
        });
        let reference = match written {
            Ok(Some(reference)) => reference,
            Ok(None) | Err(BlobError::Refused(Refusal::DiskFull)) => return Ok(()),
            Err(BlobError::Refused(_)) => return self.recover(),
            Err(error) => return Err(format!("no blob: {error}")),
        };
        let mut batch = FrameBatch::new();
        batch.put(head(id, self.now), [Value::U64(seed), Value::Blob(reference)]);
        if let Outcome::Stored { .. } = self.store.append(&batch, self.now).outcomes[0] {
            self.camera.frames.push((seed, len, reference));
        }
        Ok(())
    }

    /// After an opening: what was acknowledged is there.
    pub(super) fn recover_camera(&mut self) -> Checked {
        let known = self.store.catalog().streams.iter().find(|stream| stream.key == camera().key).map(|s| s.id);
        self.camera.id = known;
        let rows = known.map_or(0, |id| self.store.view().next_row(id) as usize);
        let acknowledged = self.camera.acknowledged;
        ensure(rows >= acknowledged, || format!("camera: {rows} rows came back of {acknowledged} acknowledged"))?;
        ensure(rows <= self.camera.frames.len(), || "camera: rows that were never appended".into())?;
        self.camera.frames.truncate(rows);
        self.camera.acknowledged = rows;
        Ok(())
    }

    /// Finds the stream again in a store that lost bits, if it is there.
    pub(super) fn camera_after_rot(&mut self) {
        self.camera.id = self.store.catalog().streams.iter().find(|stream| stream.key == camera().key).map(|s| s.id);
    }

    /// Frames name the blobs that they were given, and these are as they were written. In `rotten` ones nothing else is read.
    pub(super) fn check_camera(&mut self, rotten: bool) -> Checked {
        loop {
            match self.check_camera_once(rotten) {
                Err(error) if error.starts_with(UNREADABLE) && (rotten || self.excused()) => {}
                other => return other,
            }
            if rotten {
                return Ok(());
            }
            if self.disk.is_cut() {
                return self.recover();
            }
        }
    }

    fn check_camera_once(&self, rotten: bool) -> Checked {
        let Some(id) = self.camera.id else { return Ok(()) };
        let view = self.store.view();
        let mut next = None;
        for batch in view.scan(Scan::all(id, vec![ChannelIndex(0), ChannelIndex(1)])) {
            let batch = batch.map_err(|error| format!("{UNREADABLE}{error}"))?;
            for row in 0..batch.len() {
                let at = batch.rows[row];
                ensure(rotten || next.is_none_or(|next| next == at), || format!("camera: row {at}, not {next:?}"))?;
                next = Some(at + 1);
                let Some((seed, len, reference)) = self.camera.frames.get(at as usize) else {
                    return Err(format!("camera: row {at} too many"));
                };
                let cells = (batch.columns[0].cell(row), batch.columns[1].cell(row));
                ensure(cells == (Ok(Value::U64(*seed)), Ok(Value::Blob(*reference))), || {
                    format!("camera, row {at}: {cells:?} instead of {seed} and {reference:?}")
                })?;
                match self.blob(&view, id, reference) {
                    Ok(bytes) => ensure(bytes == content(*seed, *len), || format!("camera, row {at}: another blob"))?,
                    Err(ScanError::BlobExpired { .. }) if self.fixed || self.was_full => {}
                    Err(ScanError::Io { source, .. }) => return Err(format!("{UNREADABLE}{source}")),
                    Err(_) if rotten => {}
                    Err(error) => return Err(format!("camera, row {at}: {error}")),
                }
            }
        }
        let end = view.next_row(id);
        ensure(rotten || end == self.camera.frames.len() as u64, || format!("camera: {end} rows"))?;
        ensure(rotten || next.is_none_or(|next| next == end), || format!("camera: rows end with {next:?} of {end}"))
    }

    fn blob(&self, view: &View, id: StreamId, reference: &BlobRef) -> Result<Vec<u8>, ScanError> {
        let (mut reader, mut bytes) = (view.blob(id, reference)?, Vec::new());
        while let Some(chunk) = reader.next_chunk()? {
            bytes.extend_from_slice(chunk);
        }
        Ok(bytes)
    }
}

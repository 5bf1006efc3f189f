//! Writing one blob into a segment.

use std::io;

use crate::blob::file::BlobFile;
use crate::blob::{BlobError, CHUNK_BODY_BYTES, CHUNK_HEADER_BYTES, ChunkHeader, Whole, most_bytes, padded_bytes};
use crate::bytes::malformed;
use crate::catalog::group::Group;
use crate::disk::{Pages, read_exact};
use crate::engine::Engine;
use crate::model::blob_ref::BlobRef;
use crate::model::clock::Caller;
use crate::model::limits::{BLOB_CHUNK_BYTES, PAGE_BYTES};
use crate::model::mutant::{self, Mutant};
use crate::model::stream::StreamId;
use crate::model::trouble::is_full;
use crate::model::trouble::passes;
use crate::segment::file::invalid;
use crate::store::Store;
use crate::upkeep::blobs::writers_max;
use crate::upkeep::sealer::Sealer;

/// Writer of a blob, which holds one chunk of it in memory, 128 KiB. If it is dropped without [`BlobWriter::finish`],
/// the bytes written are never read and go with their segment.
pub struct BlobWriter {
    store: Store,
    stream: String,
    group: Group,
    /// Room for a header, and the bytes of the chunk under way.
    chunk: Pages,
    filled: usize,
    /// Number of chunks written.
    index: u32,
    length_bytes: u64,
    crc: u32,
    expected_bytes: u64,
    place: Option<BlobPlace>,
    /// Bytes written that are not counted yet.
    written: u64,
    failed: Option<BlobError>,
}

/// Place of a blob.
struct BlobPlace {
    file: BlobFile,
    /// Offset of its first chunk.
    start: u64,
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a blob of {}, {} bytes so far", self.stream, self.length_bytes)
    }
}

impl Store {
    /// Begins a blob of a stream: bytes that a frame of it will name by their reference. Any number of threads may each
    /// write one; commits and appends do not wait for them.
    ///
    /// # Errors
    /// [`BlobError`]: the store refuses writes, or the stream takes no blobs.
    pub fn blob(&self, stream: StreamId) -> Result<BlobWriter, BlobError> {
        if let Some(refusal) = self.engine.poison() {
            return Err(BlobError::Refused(refusal));
        }
        let slot = self.engine.shared.slots.get(stream);
        let Some(slot) = slot.filter(|slot| !slot.group.is_own()) else {
            return Err(BlobError::NoBlobs { stream: format!("stream {}", stream.0) });
        };
        let mut chunk = Pages::default();
        chunk.resize(BLOB_CHUNK_BYTES);
        Ok(BlobWriter {
            store: self.clone(),
            stream: slot.stream.load().key.to_string(),
            group: slot.group,
            chunk,
            filled: 0,
            index: 0,
            length_bytes: 0,
            crc: 0,
            expected_bytes: 0,
            place: None,
            written: 0,
            failed: None,
        })
    }

    /// Returns the max bytes of a blob in this store: what a segment takes.
    pub fn blob_bytes_max(&self) -> u64 {
        most_bytes(self.engine.space.segment_bytes)
    }
}

impl BlobWriter {
    /// Announces the number of bytes, before the first one, so that the blob is begun where it has room and nothing of
    /// it is copied later. More or fewer may come.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`].
    pub fn expect(&mut self, length_bytes: u64) -> Result<(), BlobError> {
        self.check_size(length_bytes)?;
        self.expected_bytes = length_bytes;
        Ok(())
    }

    /// Adds bytes. They are durable once [`BlobWriter::finish`] has returned the reference.
    ///
    /// # Errors
    /// [`BlobError`]: after one the blob cannot be finished. A failed write poisons the store, as a failed commit does.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), BlobError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Err(error) = self.check_size(self.length_bytes + bytes.len() as u64) {
            return Err(self.fail(error));
        }
        self.length_bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        while !bytes.is_empty() {
            // A full chunk waits for what follows it, because the last one states that it is the last.
            if self.filled == CHUNK_BODY_BYTES {
                self.put(None)?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_BODY_BYTES - self.filled));
            let at = CHUNK_HEADER_BYTES + self.filled;
            self.chunk.as_mut()[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = rest;
        }
        Ok(())
    }

    /// Ends the blob and makes it durable, so that a frame may name it. `now` is nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// As [`BlobWriter::write`].
    pub fn finish(mut self, now: i64) -> Result<BlobRef, BlobError> {
        self.store.engine.shared.paces.tell(Caller::Append, now);
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let whole = Whole { stored: now, length_bytes: self.length_bytes as u32, crc: self.crc };
        self.put(Some(whole))?;
        let Some(mut place) = self.place.take() else { return Err(self.fail(refused_full())) };
        // The reference comes after the sync: nothing below this line may move above it.
        let sync = || if mutant::is_active(Mutant::BlobBeforeSync) { Ok(()) } else { place.file.sync() };
        if let Err(error) = self.on_disk(sync) {
            // Nothing more is written behind bytes that the disk may not hold.
            place.file.is_full = true;
            self.place = Some(place);
            return Err(self.fail(error));
        }
        let reference = BlobRef::new(place.file.segment.id, place.start, whole.length_bytes, whole.crc);
        self.give_back(place, Some(now)).map_err(|error| self.fail(error))?;
        Ok(reference)
    }

    fn check_size(&self, size_bytes: u64) -> Result<(), BlobError> {
        let max_bytes = self.store.blob_bytes_max();
        if size_bytes <= max_bytes {
            return Ok(());
        }
        Err(BlobError::TooLarge { stream: self.stream.clone(), size_bytes, max_bytes })
    }

    fn fail(&mut self, error: BlobError) -> BlobError {
        self.failed.insert(error).clone()
    }

    /// Runs an operation on a segment's file, unless the store refuses writes.
    fn on_disk<T>(&self, act: impl FnOnce() -> io::Result<T>) -> Result<T, BlobError> {
        let inner = &self.store.engine;
        // Closing the store waits for this, so that nothing is written beside the next opening.
        let _open = inner.blob_gate.read();
        if let Some(refusal) = inner.poison() {
            return Err(BlobError::Refused(refusal));
        }
        act().map_err(|error| refused(inner, &error))
    }

    /// Writes the chunk under way; `whole` makes it the last one.
    fn put(&mut self, whole: Option<Whole>) -> Result<(), BlobError> {
        self.put_chunk(whole).map_err(|error| self.fail(error))
    }

    fn put_chunk(&mut self, whole: Option<Whole>) -> Result<(), BlobError> {
        let padded = (CHUNK_HEADER_BYTES + self.filled).next_multiple_of(PAGE_BYTES);
        let mut place = match self.place.take() {
            Some(place) if place.file.fits(padded as u64) => place,
            Some(place) => self.move_on(place, padded as u64)?,
            None => self.first_place(padded as u64)?,
        };
        let header = ChunkHeader {
            length_bytes: self.filled as u32,
            segment: place.file.segment.id,
            generation: place.file.generation,
            start: place.start as u32,
            index: self.index,
            epoch: self.store.engine.epoch,
            whole,
            body_crc: crc32c::crc32c(&self.chunk.as_slice()[CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES + self.filled]),
        };
        self.chunk.resize(padded);
        let bytes = self.chunk.as_mut();
        bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header.bytes());
        bytes[CHUNK_HEADER_BYTES + self.filled..].fill(0);
        let put = self.on_disk(|| place.file.put(&self.chunk));
        place.file.is_full |= put.is_err();
        self.place = Some(place);
        self.chunk.resize(BLOB_CHUNK_BYTES);
        self.written += put?;
        self.filled = 0;
        self.index += 1;
        Ok(())
    }

    /// Takes or gives back a segment, unless the store refuses writes.
    fn with_sealer<T>(&self, act: impl FnOnce(&mut Sealer, &Engine) -> io::Result<T>) -> Result<T, BlobError> {
        let inner = &*self.store.engine;
        let _open = inner.blob_gate.read();
        let mut sealer = self.store.sealer.lock();
        if let Some(refusal) = inner.poison() {
            return Err(BlobError::Refused(refusal));
        }
        act(&mut sealer, inner).map_err(|error| {
            sealer.sealing.forget_taken();
            refused(inner, &error)
        })
    }

    fn first_place(&mut self, padded: u64) -> Result<BlobPlace, BlobError> {
        let wanted = padded.max(padded_bytes(self.expected_bytes));
        let file = self.with_sealer(|sealer, inner| sealer.take_blobs(inner, self.group, wanted))?;
        match file {
            Some(file) => Ok(BlobPlace { start: file.end, file }),
            None => Err(BlobError::Busy { stream: self.stream.clone(), writers: writers_max(&self.store.engine) }),
        }
    }

    /// Begins another segment for a blob that has no room in the rest of its own, and copies there what is already
    /// written.
    fn move_on(&mut self, from: BlobPlace, padded: u64) -> Result<BlobPlace, BlobError> {
        let moved = self.copy(&from, u64::from(self.index) * BLOB_CHUNK_BYTES as u64 + padded);
        let mut file = from.file;
        file.is_full = true;
        self.with_sealer(|sealer, inner| match &moved {
            Ok(_) => sealer.put_back(inner, file, None),
            Err(_) => sealer.give_blobs(inner, file, None),
        })?;
        moved
    }

    /// Copies the chunks to an empty segment.
    fn copy(&mut self, from: &BlobPlace, wanted: u64) -> Result<BlobPlace, BlobError> {
        // Twice the size of the one before, so that little of a long blob is copied more than once.
        let asked = wanted.max(2 * from.file.size_bytes());
        let file = self.with_sealer(|sealer, inner| sealer.new_blobs(inner, self.group, asked))?;
        let mut place = BlobPlace { start: file.end, file };
        let copied = self.copy_chunks(from, &mut place, wanted);
        let Err(error) = copied else { return Ok(place) };
        place.file.is_full = true;
        self.with_sealer(|sealer, inner| sealer.put_back(inner, place.file, None))?;
        Err(error)
    }

    fn copy_chunks(&mut self, from: &BlobPlace, to: &mut BlobPlace, wanted: u64) -> Result<(), BlobError> {
        if !to.file.fits(wanted) {
            return Err(refused_full());
        }
        let of = (from.file.segment.id, from.file.generation);
        for index in 0..u64::from(self.index) {
            let at = from.start + index * BLOB_CHUNK_BYTES as u64;
            let written = self.on_disk(|| {
                let mut bytes = read_exact(&*from.file.file, at, BLOB_CHUNK_BYTES)?;
                let chunk = ChunkHeader::read(&bytes).map_err(invalid)?;
                chunk.body(&bytes).map_err(invalid)?;
                if !chunk.is_at(at, of) {
                    return Err(invalid(malformed("a chunk of another place")));
                }
                let (segment, generation) = (to.file.segment.id, to.file.generation);
                let header = ChunkHeader { segment, generation, start: to.start as u32, ..chunk };
                bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header.bytes());
                to.file.put(&Pages::of(&bytes))
            });
            self.written += written?;
        }
        Ok(())
    }

    /// Gives the segment back, so that other blobs can be written to it.
    fn give_back(&mut self, place: BlobPlace, finished: Option<i64>) -> Result<(), BlobError> {
        let written = std::mem::take(&mut self.written);
        self.with_sealer(|sealer, inner| {
            sealer.written_bytes += written;
            sealer.give_blobs(inner, place.file, finished)
        })
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // The caller already knows why there is no blob.
            let _ = self.give_back(place, None);
        }
    }
}

/// Makes the error for a failed write. A full disk and other temporary errors pass; any other poisons the store.
fn refused(inner: &Engine, error: &io::Error) -> BlobError {
    BlobError::Refused(match error {
        error if is_full(error) => crate::Refusal::DiskFull,
        error if passes(error) => inner.unwritable(error),
        error => inner.poisoned(error),
    })
}

fn refused_full() -> BlobError {
    BlobError::Refused(crate::Refusal::DiskFull)
}

#[cfg(test)]
impl BlobWriter {
    /// Returns the bytes of memory that it holds for the blob.
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunk.held_bytes()
    }
}

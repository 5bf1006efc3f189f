//! A store: open, define, append, commit, close.

use std::ffi::{c_char, c_int};
use std::path::Path;

use store::rdl::StoreDefinition;
use store::{
    ChannelSpec, ChannelType, Clock, FixedOptions, MemoryRegion, Outcome, Reduction, Store, StoreOptions, StreamId,
    StreamKey, StreamSpec,
};

use crate::fault::{Code, Fault, guard};
use crate::frames::StrongbackFrames;
use crate::pointer;

/// `strongback_store`.
pub struct StrongbackStore {
    pub(crate) store: Store,
}

/// `strongback_options`.
#[repr(C)]
pub struct StrongbackOptions {
    path: *const c_char,
    size_bytes: u64,
    max_streams: u32,
    max_channels: u32,
    max_bytes: u64,
    log_bytes: u64,
    open_bytes: u64,
}

/// `strongback_channel`.
#[repr(C)]
pub struct StrongbackChannel {
    name: *const c_char,
    kind: u32,
    reduction: u32,
    bound: f64,
    unit: *const c_char,
}

/// `strongback_appended`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct StrongbackAppended {
    stored: u64,
    reduced: u64,
    duplicate: u64,
    refused: u64,
}

/// Zero: not said.
fn said<T: PartialEq + Default>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn open(options: &StrongbackOptions, path: Option<&str>, now: i64) -> Result<Store, Fault> {
    let usual = StoreOptions::default();
    let of_store = StoreOptions {
        log_bytes: said(options.log_bytes).unwrap_or(usual.log_bytes),
        max_bytes: said(options.max_bytes),
        open_bytes: said(options.open_bytes)
            .map_or(usual.open_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        ..usual
    };
    let mut fixed = FixedOptions::new(options.size_bytes);
    fixed.max_streams = said(options.max_streams).unwrap_or(fixed.max_streams);
    fixed.max_channels = said(options.max_channels).unwrap_or(fixed.max_channels);
    fixed.log_bytes = said(options.log_bytes);
    let store = match path.map(Path::new) {
        None => {
            let size = said(options.size_bytes).ok_or_else(|| {
                Fault::new(Code::Argument, "neither path nor size_bytes: a store in memory needs its size")
            })?;
            fixed.least_bytes().map_err(|reason| Fault::new(Code::Options, reason))?;
            let size =
                usize::try_from(size).map_err(|_| Fault::new(Code::Options, format!("{size} bytes of memory")))?;
            Store::in_memory(&MemoryRegion::new(size), &fixed, of_store, now)?
        }
        Some(path) if options.size_bytes > 0 && !path.exists() => Store::create_fixed(path, &fixed, of_store, now)?,
        Some(path) => Store::open(path, of_store, now)?,
    };
    Ok(store)
}

/// See the header.
///
/// # Safety
/// `options` points at options whose `path` is null or text; `store` at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_open(
    options: *const StrongbackOptions,
    now: i64,
    store: *mut *mut StrongbackStore,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { pointer::shared(options, "options") }?;
        let path = match options.path.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { pointer::text(options.path, "path") }?),
        };
        // SAFETY: as the caller promises. Before anything is made: a null pointer would leak it.
        unsafe { pointer::write(store, std::ptr::null_mut(), "store") }?;
        let opened = Box::new(StrongbackStore { store: open(options, path, now)? });
        // SAFETY: as the caller promises.
        unsafe { pointer::write(store, Box::into_raw(opened), "store") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` is null, or came from [`strongback_open`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_close(store: *mut StrongbackStore, now: i64) -> c_int {
    guard(|| {
        if store.is_null() {
            return Ok(Code::Ok);
        }
        // SAFETY: it came from Box::into_raw, and by the caller's promise nobody has it any more.
        let store = unsafe { Box::from_raw(store) };
        store.store.close(now)?;
        Ok(Code::Ok)
    })
}

/// Makes a stream whose channels have the indices 0, 1, 2, …
fn define(store: &Store, spec: &StreamSpec, now: i64) -> Result<StreamId, Fault> {
    let (stream, indices) = store.resolve(spec, now)?;
    match indices.iter().enumerate().find(|(n, index)| usize::from(index.0) != *n) {
        None => Ok(stream.id),
        Some((n, index)) => {
            let (name, there) = (&spec.channels[n].name, &stream.layout.channel(*index).name);
            let reason = format!(
                "stream {}: {name} is there as {there}, with index {}; define channels in the order and with the types they \
                 were made with",
                stream.key, index.0
            );
            Err(Fault::new(Code::Options, reason))
        }
    }
}

fn spec(name: &str, channels: Vec<ChannelSpec>) -> StreamSpec {
    StreamSpec {
        key: StreamKey::new(name, []),
        source: "c".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels,
    }
}

/// The channel that C describes.
///
/// # Safety
/// Its texts are null or text.
unsafe fn channel_of(channel: &StrongbackChannel) -> Result<ChannelSpec, Fault> {
    // SAFETY: as the caller promises.
    let name = unsafe { pointer::text(channel.name, "name of a channel") }?;
    let wrong = |what: String| Fault::new(Code::Argument, format!("channel {name}: {what}"));
    let code = u8::try_from(channel.kind).ok().and_then(ChannelType::from_code);
    let kind = code.ok_or_else(|| wrong(format!("type {}", channel.kind)))?;
    let reduction = match channel.reduction {
        0 => Reduction::None,
        1 => Reduction::Step,
        2 => Reduction::Deadband { bound: channel.bound },
        3 => Reduction::SwingingDoor { bound: channel.bound },
        other => return Err(wrong(format!("reduction {other}"))),
    };
    let mut spec = ChannelSpec { reduction, ..ChannelSpec::new(name, kind) };
    if !channel.unit.is_null() {
        // SAFETY: as the caller promises.
        unsafe { pointer::text(channel.unit, "unit of a channel") }?.clone_into(&mut spec.unit);
    }
    Ok(spec)
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `name` is text, `channels` points at `count` channels, `stream` at room for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_define(
    store: *mut StrongbackStore,
    name: *const c_char,
    channels: *const StrongbackChannel,
    count: usize,
    now: i64,
    stream: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let name = unsafe { pointer::text(name, "name") }?;
        // SAFETY: as the caller promises.
        let channels = unsafe { pointer::slice(channels, count, "channels") }?;
        let channels = channels
            .iter()
            // SAFETY: as the caller promises.
            .map(|channel| unsafe { channel_of(channel) })
            .collect::<Result<_, _>>()?;
        let id = define(&store.store, &spec(name, channels), now)?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write(stream, id.0, "stream") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `text` is text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_define_rdl(store: *mut StrongbackStore, text: *const c_char, now: i64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let text = unsafe { pointer::text(text, "text") }?;
        let definition = StoreDefinition::parse(text, "definition");
        let definition = definition.map_err(|error| Fault::new(Code::Options, error.to_string()))?;
        for stream in &definition.streams {
            define(&store.store, &stream.spec("c"), now)?;
        }
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `name` is text, `stream` points at room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_find_stream(
    store: *const StrongbackStore,
    name: *const c_char,
    stream: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let name = unsafe { pointer::text(name, "name") }?;
        let catalog = store.store.catalog();
        let found = catalog.streams.iter().find(|stream| stream.key.to_string() == name);
        let found = found.ok_or_else(|| Fault::new(Code::NotFound, format!("no stream {name}")))?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write(stream, found.id.0, "stream") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `name` is text, `channel` points at room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_find_channel(
    store: *const StrongbackStore,
    stream: u32,
    name: *const c_char,
    channel: *mut u16,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let name = unsafe { pointer::text(name, "name") }?;
        let found = store.stream(stream)?.layout.index(name);
        let found =
            found.ok_or_else(|| Fault::new(Code::NotFound, format!("stream {stream} has no channel {name}")))?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write(channel, found.0, "channel") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `count` points at room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_count_channels(
    store: *const StrongbackStore,
    stream: u32,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        let channels = store.stream(stream)?.layout.channels.len();
        // SAFETY: as the caller promises.
        unsafe { pointer::write(count, channels, "count") }?;
        Ok(Code::Ok)
    })
}

impl StrongbackStore {
    /// A stream of the catalog.
    pub(crate) fn stream(&self, stream: u32) -> Result<std::sync::Arc<store::Stream>, Fault> {
        let catalog = self.store.catalog();
        let found = catalog.stream(StreamId(stream)).cloned();
        found.ok_or_else(|| Fault::new(Code::NotFound, format!("no stream with number {stream}")))
    }

    /// A channel of a stream of the catalog.
    pub(crate) fn channel(&self, stream: u32, channel: u16) -> Result<store::Channel, Fault> {
        let found = self.stream(stream)?.layout.channels.get(usize::from(channel)).cloned();
        found.ok_or_else(|| Fault::new(Code::NotFound, format!("stream {stream} has no channel with index {channel}")))
    }
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`], `frames` from `strongback_frames_new`; `appended` is null or points at room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_append(
    store: *mut StrongbackStore,
    frames: *mut StrongbackFrames,
    now: i64,
    appended: *mut StrongbackAppended,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let frames = unsafe { pointer::exclusive(frames, "frames") }?;
        frames.end();
        let outcomes = store.store.append(&frames.batch, now).outcomes;
        frames.batch.clear();
        let (mut counts, mut refused) = (StrongbackAppended::default(), None);
        for outcome in outcomes {
            match outcome {
                Outcome::Stored { .. } => counts.stored += 1,
                Outcome::Reduced { .. } => counts.reduced += 1,
                Outcome::Duplicate => counts.duplicate += 1,
                Outcome::Rejected(reject) => {
                    counts.refused += 1;
                    refused = refused.or(Some(reject));
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { pointer::write_wanted(appended, counts) };
        match refused {
            None => Ok(Code::Ok),
            Some(reject) => Err(reject.into()),
        }
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_commit(store: *mut StrongbackStore, now: i64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { pointer::shared(store, "store") }?.store.commit(now)?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `store` came from [`strongback_open`]; `more` is null or points at room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_maintain(store: *mut StrongbackStore, now: i64, more: *mut bool) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let waits = unsafe { pointer::shared(store, "store") }?.store.maintain(now)?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write_wanted(more, waits) };
        Ok(Code::Ok)
    })
}

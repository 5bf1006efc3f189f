//! Resolution of the names in an expression to channels of streams, for one trigger stream.

use std::sync::Arc;

use strongback_query::{ExpressionError, Kind, Named, Program};
use strongback_store::{Catalog, ChannelIndex, Reduction, Stream, StreamId, StreamKey};

use super::definition::{Definition, VERSION, base};
use crate::text::nearest::nearest;

/// Max channels compared with an unknown name, on the thread of all derived channels.
const NAMES_MAX: usize = 1_000;
/// Max names listed in place of an ambiguous one.
const CANDIDATES: usize = 3;

/// Streams that an expression reads, each with its channels and their positions in the expression.
pub type Inputs = Vec<(StreamId, Vec<(ChannelIndex, usize)>)>;

/// Expression whose names are resolved in a catalog.
#[derive(Debug)]
pub struct Binding {
    /// Trigger stream.
    pub trigger: Arc<Stream>,
    /// Stream and channel index of each channel of the expression.
    pub inputs: Vec<(Arc<Stream>, ChannelIndex)>,
    /// Kinds of those channels.
    pub kinds: Vec<Kind>,
    /// Compiled program.
    pub program: Program,
}

/// Reason why the names of an expression cannot be resolved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BindError {
    /// Unknown channel, which may still appear.
    #[error("column {position}: there is no channel {name:?} {}", near(candidates))]
    Unknown {
        /// Name as written.
        name: String,
        /// Column of the name in the expression.
        position: usize,
        /// Channels with similar names.
        candidates: Vec<String>,
    },
    /// Ambiguous name.
    #[error("column {position}: {name:?} is ambiguous, it may be {}; add tags to select one", candidates.join(", "))]
    Ambiguous {
        /// Name as written.
        name: String,
        /// Column of the name in the expression.
        position: usize,
        /// Some of the matching channels.
        candidates: Vec<String>,
    },
    /// Channel of a type that expressions do not support, or of a stream that does not record every frame.
    #[error("column {position}: {name:?} {why}")]
    Unfit {
        /// Name as written.
        name: String,
        /// Column of the name in the expression.
        position: usize,
        /// Reason.
        why: String,
    },
    /// Trigger stream that does not record every frame.
    #[error("trigger {stream}: {why}")]
    Trigger {
        /// Name of the stream.
        stream: String,
        /// Reason.
        why: String,
    },
    /// Types that do not go together.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}

fn near(candidates: &[String]) -> String {
    match candidates {
        [] => "(yet)".to_owned(),
        some => format!("(yet); near it: {}", some.join(", ")),
    }
}

const REDUCED: &str = "is of a stream with a reduction: what that leaves out could not be evaluated again";

fn is_reduced(stream: &Stream) -> bool {
    stream.layout.channels.iter().any(|channel| channel.reduction != Reduction::None)
}

/// Returns whether all tags of a key, except the version, are in `of`.
fn within(key: &StreamKey, of: &[(String, String)]) -> bool {
    key.tags.iter().filter(|(tag, _)| tag != VERSION).all(|pair| of.contains(pair))
}

/// Resolves a definition for a trigger stream. `version_of` returns the version in force of a derived channel by its
/// `table.channel`.
///
/// # Errors
/// Returns what is missing or does not fit.
pub fn bind(
    definition: &Definition,
    trigger: &Arc<Stream>,
    catalog: &Catalog,
    version_of: impl Fn(&str) -> Option<u32>,
) -> Result<Binding, BindError> {
    if is_reduced(trigger) {
        return Err(BindError::Trigger { stream: trigger.key.to_string(), why: REDUCED.to_owned() });
    }
    let (mut inputs, mut kinds) = (Vec::new(), Vec::new());
    for named in definition.expression.channels() {
        let (stream, channel) = find(named, trigger, catalog, &version_of)?;
        let unfit = |why: String| BindError::Unfit { name: named.name.clone(), position: named.position, why };
        let kind = Kind::of_channel(stream.layout.channel(channel).channel_type);
        let kind = kind.ok_or_else(|| unfit("has arrays or blobs, which expressions do not take".to_owned()))?;
        if is_reduced(&stream) {
            return Err(unfit(REDUCED.to_owned()));
        }
        inputs.push((stream, channel));
        kinds.push(kind);
    }
    let program = definition.expression.compile(&kinds)?;
    Ok(Binding { trigger: trigger.clone(), inputs, kinds, program })
}

/// Returns whether a stream holds results of derived channels.
pub fn is_derived(stream: &Stream) -> bool {
    stream.source == crate::sources::roster::DERIVED_SOURCE && stream.key.tag(VERSION).is_some()
}

fn find(
    named: &Named,
    trigger: &Arc<Stream>,
    catalog: &Catalog,
    version_of: &impl Fn(&str) -> Option<u32>,
) -> Result<(Arc<Stream>, ChannelIndex), BindError> {
    let path = base(&named.name);
    let (_, asked) = StreamKey::split_name(&named.name);
    let version = version_of(path).map(|version| version.to_string());
    let mut found: Vec<(&Arc<Stream>, ChannelIndex)> = Vec::new();
    for stream in catalog.streams.iter().filter(|stream| stream.source != "internal") {
        let Some(channel) = path.strip_prefix(&*stream.key.table).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let Some(at) = stream.layout.index(channel) else { continue };
        if stream.key.channel_name(channel) == named.name && !is_derived(stream) {
            return Ok((stream.clone(), at));
        }
        let in_force = !is_derived(stream) || stream.key.tag(VERSION) == version.as_deref();
        if in_force && asked.iter().all(|(tag, value)| stream.key.tag(tag) == Some(value)) {
            found.push((stream, at));
        }
    }
    if let Some((stream, at)) = found.iter().find(|(stream, _)| stream.id == trigger.id) {
        return Ok(((*stream).clone(), *at));
    }
    // Prefer a sibling of the trigger: one with the same tags, as far as it has any.
    let mut known = trigger.key.tags.clone();
    known.extend(asked);
    let siblings: Vec<_> = found.iter().filter(|(stream, _)| within(&stream.key, &known)).collect();
    match (siblings.as_slice(), found.as_slice()) {
        ([(stream, at)], _) | ([], [(stream, at)]) => Ok(((*stream).clone(), *at)),
        ([], []) => Err(BindError::Unknown {
            name: named.name.clone(),
            position: named.position,
            candidates: similar(path, catalog),
        }),
        _ => {
            let name =
                |(stream, at): &(&Arc<Stream>, ChannelIndex)| stream.key.channel_name(&stream.layout.channel(*at).name);
            let candidates = found.iter().take(CANDIDATES).map(name).collect();
            Err(BindError::Ambiguous { name: named.name.clone(), position: named.position, candidates })
        }
    }
}

/// Returns whether the results of a definition would be among the values of a received channel.
pub fn is_received(definition: &Definition, catalog: &Catalog) -> bool {
    let mut received = catalog.streams.iter().filter(|stream| !is_derived(stream));
    received.any(|stream| {
        let mut channels = stream.layout.channels.iter();
        stream.key.table == definition.key.table && channels.any(|channel| channel.name == definition.channel)
    })
}

/// Returns channels with similar names.
fn similar(path: &str, catalog: &Catalog) -> Vec<String> {
    let received = catalog.streams.iter().filter(|stream| stream.source != "internal");
    let names = received.flat_map(|stream| {
        stream.layout.channels.iter().map(|channel| format!("{}.{}", stream.key.table, channel.name))
    });
    nearest(path, names.take(NAMES_MAX))
}

/// Returns the streams that an expression reads, each once, with its channels and their positions in the expression.
/// Includes the trigger.
pub fn by_stream(binding: &Binding) -> Inputs {
    let mut all: Inputs = vec![(binding.trigger.id, Vec::new())];
    for (place, (stream, channel)) in binding.inputs.iter().enumerate() {
        match all.iter_mut().find(|(id, _)| *id == stream.id) {
            Some((_, channels)) => channels.push((*channel, place)),
            None => all.push((stream.id, vec![(*channel, place)])),
        }
    }
    all
}

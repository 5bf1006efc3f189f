//! Which channels of which streams the names of an expression are, for one stream that triggers it.

use std::sync::Arc;

use strongback_query::{ExpressionError, Kind, Named, Program};
use strongback_store::{Catalog, ChannelIndex, Reduction, Stream, StreamId, StreamKey};

use super::definition::{Definition, VERSION, base, kind_of};

/// Names that are offered in place of one that is unknown.
const CANDIDATES: usize = 3;

/// Streams that an expression reads, each with the channels of it and their places in the expression.
pub type Inputs = Vec<(StreamId, Vec<(ChannelIndex, usize)>)>;

/// An expression tied to the streams of a catalog.
#[derive(Debug)]
pub struct Binding {
    /// The stream that triggers it.
    pub trigger: Arc<Stream>,
    /// Of each channel of the expression, its stream and which channel of it.
    pub inputs: Vec<(Arc<Stream>, ChannelIndex)>,
    /// Their kinds.
    pub kinds: Vec<Kind>,
    /// The program.
    pub program: Program,
}

/// Why an expression cannot be tied to streams.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BindError {
    /// There is no such channel, or not yet.
    #[error("column {position}: there is no channel {name:?} {}", near(candidates))]
    Unknown {
        /// As it was written.
        name: String,
        /// Where.
        position: usize,
        /// Channels of similar names.
        candidates: Vec<String>,
    },
    /// Several channels could be meant.
    #[error("column {position}: {name:?} is ambiguous, it may be {}; add tags to select one", candidates.join(", "))]
    Ambiguous {
        /// As it was written.
        name: String,
        /// Where.
        position: usize,
        /// Some of them.
        candidates: Vec<String>,
    },
    /// Its values are of a type that expressions do not take, or not all of them are recorded.
    #[error("column {position}: {name:?} {why}")]
    Unfit {
        /// As it was written.
        name: String,
        /// Where.
        position: usize,
        /// Why not.
        why: String,
    },
    /// The stream that triggers does not record each frame.
    #[error("trigger {stream}: {why}")]
    Trigger {
        /// The stream.
        stream: String,
        /// Why not.
        why: String,
    },
    /// Types do not go together.
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

/// Whether tags other than the version are all among others.
fn within(key: &StreamKey, of: &[(String, String)]) -> bool {
    key.tags.iter().filter(|(tag, _)| tag != VERSION).all(|pair| of.contains(pair))
}

/// Ties a definition to a stream that triggers it. `version_of` says the version in force of a derived channel by its
/// `table.channel`.
///
/// # Errors
/// What is not there, or does not fit.
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
        let kind = kind_of(stream.layout.channel(channel).channel_type);
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

/// Whether a stream is one of derived channels.
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
    // Of a sibling of the trigger: the same tags, as far as it has any.
    let mut known = trigger.key.tags.clone();
    known.extend(asked);
    let siblings: Vec<_> = found.iter().filter(|(stream, _)| within(&stream.key, &known)).collect();
    match (siblings.as_slice(), found.as_slice()) {
        ([(stream, at)], _) | ([], [(stream, at)]) => Ok(((*stream).clone(), *at)),
        ([], []) => Err(BindError::Unknown {
            name: named.name.clone(),
            position: named.position,
            candidates: nearest(path, catalog),
        }),
        _ => {
            let name =
                |(stream, at): &(&Arc<Stream>, ChannelIndex)| stream.key.channel_name(&stream.layout.channel(*at).name);
            let candidates = found.iter().take(CANDIDATES).map(name).collect();
            Err(BindError::Ambiguous { name: named.name.clone(), position: named.position, candidates })
        }
    }
}

/// Channels of names like this one.
fn nearest(path: &str, catalog: &Catalog) -> Vec<String> {
    let mut names: Vec<(usize, String)> = Vec::new();
    let own = |stream: &&Arc<Stream>| stream.source == "internal";
    for stream in catalog.streams.iter().filter(|stream| !own(stream)).take(10_000) {
        for channel in stream.layout.channels.iter().take(1_000) {
            let name = format!("{}.{}", stream.key.table, channel.name);
            if names.iter().any(|(_, known)| *known == name) || names.len() > 10_000 {
                continue;
            }
            let distance = strsim::damerau_levenshtein(path, &name);
            if distance <= 3.max(path.len() / 2) {
                names.push((distance, name));
                names.sort();
                names.truncate(CANDIDATES);
            }
        }
    }
    names.into_iter().map(|(_, name)| name).collect()
}

/// The streams that an expression reads, each once, with the channels of it and their places in the expression. The
/// trigger is among them.
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

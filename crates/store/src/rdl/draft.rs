//! Draft of a definition while it is read. Each part is checked when it is added, and keeps its position for errors.

use std::collections::HashMap;

use super::{ElementCodec, ElementDefinition, StoreDefinition, StreamDefinition, TYPES, type_of};
use crate::catalog::{check_key, check_name, check_owner};
use crate::model::limits::{ARRAY_LENGTH_MAX, BLOCK_BYTES_MAX, CHANNELS_MAX};
use crate::model::stream::StreamKey;
use crate::model::value::ChannelType;

/// Maximum number of streams in a definition.
const STREAMS_MAX: usize = 65_536;
/// Names of the settings, compared without case and underscores.
const SETTINGS: [&str; 4] = ["blockSize", "fileSize", "maxStreams", "dataBlockSize"];
/// Names of the codecs in RealDB, compared without case and underscores. `Algorithm` may be omitted.
const CODECS: [&str; 4] = ["SampledAlgorithm", "StepAlgorithm", "DeadbandAlgorithm", "SwingingDoorAlgorithm"];

/// Error in a definition, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionFault {
    /// Byte offset in the text.
    pub at: usize,
    /// Description of what was found and what was expected.
    pub message: String,
}

impl DefinitionFault {
    /// Returns an error at a byte of the text.
    pub fn new(at: usize, message: impl Into<String>) -> DefinitionFault {
        DefinitionFault { at, message: message.into() }
    }
}

/// Part of a text, with its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed<T> {
    /// Byte offset in the text at which it begins.
    pub at: usize,
    /// Part at this position.
    pub is: T,
}

impl<T> Placed<T> {
    /// Returns a part at a byte of the text.
    pub fn new(at: usize, is: T) -> Placed<T> {
        Placed { at, is }
    }
}

/// Element as written.
#[derive(Clone, Debug)]
pub struct DraftElement<'a> {
    /// Name of the element.
    pub name: Placed<&'a str>,
    /// Word for the type.
    pub type_name: Placed<&'a str>,
    /// Whether a record may omit the element.
    pub optional: bool,
    /// Word for the codec; `None` if there is none.
    pub codec: Option<Placed<&'a str>>,
    /// Parameters of the codec, with their values.
    pub parameters: Vec<(Placed<&'a str>, f64)>,
}

impl<'a> DraftElement<'a> {
    /// Returns an element that is not optional and has no codec.
    pub fn new(name: Placed<&'a str>, type_name: Placed<&'a str>) -> DraftElement<'a> {
        DraftElement { name, type_name, optional: false, codec: None, parameters: Vec::new() }
    }
}

/// Definition while it is read, in any language.
#[derive(Debug, Default)]
pub struct Draft {
    definition: StoreDefinition,
    /// Position of each setting, in the order of `SETTINGS`.
    settings: [Option<usize>; 4],
    names: HashMap<String, usize>,
    ids: HashMap<u32, (usize, String)>,
    /// Position of the name of each stream.
    places: Vec<usize>,
}

/// Normalises a word for comparison: removes case and underscores.
fn plain(word: &str) -> String {
    word.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Returns `; did you mean …?` if one of the words is similar, or an empty string.
pub fn nearest<'w>(found: &str, words: impl IntoIterator<Item = &'w str>) -> String {
    // A text this long is no typing error, and comparing it would take long.
    if found.len() > 64 {
        return String::new();
    }
    let found = plain(found);
    let distance = |word: &&str| strsim::damerau_levenshtein(&plain(word), &found);
    let most = (found.chars().count() / 3).clamp(1, 4);
    match words.into_iter().map(|word| (distance(&word), word)).min_by_key(|(distance, _)| *distance) {
        Some((distance, word)) if distance <= most => format!("; did you mean {word}?"),
        _ => String::new(),
    }
}

/// Quotes a word, truncated so that an error fits on a line.
fn shown(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}…", &word[..end]),
        None => format!("{word:?}"),
    }
}

impl Draft {
    /// Adds a setting.
    ///
    /// # Errors
    /// If the setting is unknown, was set before, or has an invalid value.
    pub fn set(&mut self, name: Placed<&str>, value: Placed<u64>) -> Result<(), DefinitionFault> {
        let Some(which) = SETTINGS.iter().position(|known| plain(known) == plain(name.is)) else {
            let hint = nearest(name.is, SETTINGS);
            return Err(DefinitionFault::new(
                name.at,
                format!("found {}, expected one of {}{hint}", shown(name.is), SETTINGS.join(", ")),
            ));
        };
        if self.settings[which].is_some() {
            return Err(DefinitionFault::new(name.at, format!("{} is set twice", SETTINGS[which])));
        }
        self.settings[which] = Some(value.at);
        let within = |most: u64| match value.is {
            n if (1..=most).contains(&n) => Ok(n),
            n => Err(DefinitionFault::new(value.at, format!("found {n}, expected {} of 1 to {most}", SETTINGS[which]))),
        };
        let definition = &mut self.definition;
        match which {
            0 => definition.block_bytes = Some(within(BLOCK_BYTES_MAX as u64)?),
            1 => definition.file_bytes = Some(within(1 << 50)?),
            2 => definition.max_streams = Some(within(u64::from(u32::MAX))? as u32),
            _ => definition.data_block_blocks = Some(within(1 << 16)?),
        }
        Ok(())
    }

    /// Begins a stream. Its elements follow.
    ///
    /// # Errors
    /// If its name or id was used before or is invalid.
    pub fn stream(&mut self, name: Placed<&str>, id: Placed<u64>) -> Result<(), DefinitionFault> {
        let key = StreamKey::new(name.is, []);
        check_owner(&key, false)
            .and_then(|()| check_key(&key))
            .map_err(|reject| DefinitionFault::new(name.at, reject.to_string()))?;
        if self.names.insert(name.is.to_owned(), name.at).is_some() {
            return Err(DefinitionFault::new(name.at, format!("there is a stream {} already", shown(name.is))));
        }
        let Ok(number) = u32::try_from(id.is) else {
            return Err(DefinitionFault::new(id.at, format!("found the id {}, expected 0 to {}", id.is, u32::MAX)));
        };
        if let Some((_, other)) = self.ids.insert(number, (id.at, name.is.to_owned())) {
            return Err(DefinitionFault::new(
                id.at,
                format!("the id {number} belongs to stream {} already", shown(&other)),
            ));
        }
        if self.places.len() >= STREAMS_MAX {
            return Err(DefinitionFault::new(name.at, format!("more than {STREAMS_MAX} streams")));
        }
        self.places.push(name.at);
        self.definition.streams.push(StreamDefinition { name: name.is.to_owned(), id: number, elements: Vec::new() });
        Ok(())
    }

    /// Adds an element to the stream begun last.
    ///
    /// # Errors
    /// If its name was used before or is invalid, if its type or codec is unknown, or if the codec does not fit the
    /// type or the parameters.
    pub fn element(&mut self, element: &DraftElement<'_>) -> Result<(), DefinitionFault> {
        let Some(stream) = self.definition.streams.last_mut() else {
            return Err(DefinitionFault::new(element.name.at, "an element outside of a stream"));
        };
        let name = element.name;
        check_name(name.is).map_err(|reject| DefinitionFault::new(name.at, reject.to_string()))?;
        if stream.elements.iter().any(|other| other.name == name.is) {
            let of = shown(&stream.name);
            return Err(DefinitionFault::new(
                name.at,
                format!("stream {of} has an element {} already", shown(name.is)),
            ));
        }
        if stream.elements.len() >= CHANNELS_MAX {
            return Err(DefinitionFault::new(name.at, format!("more than {CHANNELS_MAX} elements")));
        }
        let Some(channel_type) = type_of(element.type_name.is) else {
            let ours = ChannelType::ALL.map(ChannelType::name);
            let ours = ours.iter().map(|name| &**name).chain(["blob"]);
            let names = TYPES.iter().map(|(name, _)| *name).chain(ours);
            let hint = nearest(element.type_name.is, names);
            return Err(DefinitionFault::new(
                element.type_name.at,
                format!(
                    "found {}, expected a type: int8 to int64, uint8 to uint64, float, double, boolean, string, blob, or an array of up to \
                     {ARRAY_LENGTH_MAX} such as float[512]{hint}",
                    shown(element.type_name.is)
                ),
            ));
        };
        let codec = codec(element, channel_type)?;
        stream.elements.push(ElementDefinition {
            name: name.is.to_owned(),
            channel_type,
            optional: element.optional,
            codec,
        });
        Ok(())
    }

    /// Ends the stream begun last.
    ///
    /// # Errors
    /// If it has no element.
    pub fn end_stream(&self) -> Result<(), DefinitionFault> {
        match (self.definition.streams.last(), self.places.last()) {
            (Some(stream), Some(at)) if stream.elements.is_empty() => {
                Err(DefinitionFault::new(*at, format!("stream {} has no element", shown(&stream.name))))
            }
            _ => Ok(()),
        }
    }

    /// Returns the complete definition.
    ///
    /// # Errors
    /// If there are more streams than `maxStreams`, or if the size has no room for a data block of each.
    pub fn finish(self) -> Result<StoreDefinition, DefinitionFault> {
        let definition = self.definition;
        if let Some(most) = definition.max_streams
            && let Some(at) = self.places.get(most as usize)
        {
            let streams = definition.streams.len();
            return Err(DefinitionFault::new(*at, format!("{streams} streams are defined, and maxStreams is {most}")));
        }
        let least = definition.least_bytes();
        if let Some(size) = definition.file_bytes
            && size < least
        {
            let streams = definition.max_streams.map_or(definition.streams.len(), |most| most as usize);
            return Err(DefinitionFault::new(
                self.settings[1].unwrap_or_default(),
                format!(
                    "fileSize {size} is too small: {streams} streams with a data block of {} bytes each take {least}",
                    definition.data_block_bytes()
                ),
            ));
        }
        Ok(definition)
    }
}

/// Returns the codec of an element, if it fits the type.
fn codec(element: &DraftElement<'_>, channel_type: ChannelType) -> Result<ElementCodec, DefinitionFault> {
    let Some(word) = element.codec else { return Ok(ElementCodec::Sampled) };
    let given = plain(word.is);
    let is = |name: &str| {
        let name = plain(name);
        given == name || Some(given.as_str()) == name.strip_suffix("algorithm")
    };
    let Some(which) = CODECS.iter().position(|name| is(name)) else {
        let hint = nearest(word.is, CODECS.into_iter().chain(["sampled", "step", "deadband", "swinging_door"]));
        return Err(DefinitionFault::new(
            word.at,
            format!("found {}, expected a codec: one of {}{hint}", shown(word.is), CODECS.join(", ")),
        ));
    };
    let name = CODECS[which];
    let is_number = channel_type.is_integer() || channel_type.is_float();
    if which >= 2 && !is_number {
        return Err(DefinitionFault::new(
            word.at,
            format!("{name} is for numbers, and {} is {}", shown(element.name.is), super::type_name(channel_type)),
        ));
    }
    let wanted = match which {
        2 => Some("deadband"),
        3 => Some("deviation"),
        _ => None,
    };
    let mut bound = None;
    for (parameter, value) in &element.parameters {
        let Some(wanted) = wanted else {
            return Err(DefinitionFault::new(
                parameter.at,
                format!("found {}, and {name} has no parameters", shown(parameter.is)),
            ));
        };
        if plain(parameter.is) != wanted {
            let hint = nearest(parameter.is, [wanted]);
            return Err(DefinitionFault::new(
                parameter.at,
                format!("found {}, expected {wanted}, the parameter of {name}{hint}", shown(parameter.is)),
            ));
        }
        if !(value.is_finite() && *value >= 0.0) {
            return Err(DefinitionFault::new(parameter.at, format!("{wanted} is {value}, and must not be negative")));
        }
        if bound.replace(value + 0.0).is_some() {
            return Err(DefinitionFault::new(parameter.at, format!("{wanted} is there twice")));
        }
    }
    match (which, bound) {
        (0, _) => Ok(ElementCodec::Sampled),
        (1, _) => Ok(ElementCodec::Step),
        (2, Some(deadband)) => Ok(ElementCodec::Deadband { deadband }),
        (_, Some(deviation)) => Ok(ElementCodec::SwingingDoor { deviation }),
        (_, None) => {
            let wanted = wanted.unwrap_or_default();
            Err(DefinitionFault::new(
                word.at,
                format!("{name} needs its parameter {wanted}, as in PARAMS ({wanted}=0.5)"),
            ))
        }
    }
}

//! Definitions of a recorder: its sizes and streams, in RealDB's definition language or as a [`StoreDefinition`].
//!
//! ```text
//! file    = { "SET" setting "=" number | "CREATE" "STREAM" name "WITH" "ID" number "{" elements "}" }
//! setting = "blockSize" | "fileSize" | "maxStreams" | "dataBlockSize"
//! elements = element { "," element } [ "," ]
//! element = name type [ "NULL" ] [ "WITH" "CODEC" codec [ "PARAMS" "(" name "=" number { "," … } ")" ] ]
//! type    = "int8" … "int64" | "uint8" … "uint64" | "float" | "double" | "boolean" | "string", or ours: "i8" … "f64";
//!           numbers and booleans may be followed by "[" length "]" or "[" "]": arrays of that length, or of any
//! codec   = "SampledAlgorithm" | "StepAlgorithm" | "DeadbandAlgorithm" | "SwingingDoorAlgorithm",
//!           or without "Algorithm"
//! name    = letters, digits, "_", ".", not beginning with a digit; or anything in double quotes, "" for one
//! ```
//! Keywords are case-insensitive; `#` begins a comment. The requirements of a definition (types, ids, names, room for
//! every stream) are checked while it is read, whatever language it is written in: see [`Draft`].

mod draft;
mod language;
mod print;
mod tokens;

use std::borrow::Cow;

use crate::model::array::ArrayType;
use crate::model::reduction::Reduction;
use crate::model::stream::{ChannelSpec, Clock, StreamKey, StreamSpec};
use crate::model::value::ChannelType;

pub use draft::{DefinitionFault, Draft, DraftElement, Placed, nearest};

/// Maximum length of a definition in bytes.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// Default block size in bytes.
pub const BLOCK_BYTES_DEFAULT: u64 = 4_096;

/// Sizes and streams of a recorder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreDefinition {
    /// `blockSize`: bytes of a block; `None` means [`BLOCK_BYTES_DEFAULT`].
    pub block_bytes: Option<u64>,
    /// `fileSize`: bytes of the whole store.
    pub file_bytes: Option<u64>,
    /// `maxStreams`: maximum number of streams; `None` means as many as are defined.
    pub max_streams: Option<u32>,
    /// `dataBlockSize`: blocks that a stream takes at a time; `None` means one.
    pub data_block_blocks: Option<u64>,
    /// Streams, in the order of the definition.
    pub streams: Vec<StreamDefinition>,
}

/// Stream of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamDefinition {
    /// Name of the stream, and of its table.
    pub name: String,
    /// Number, unique in the definition.
    pub id: u32,
    /// Elements of the stream, which become its channels.
    pub elements: Vec<ElementDefinition>,
}

/// Element of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementDefinition {
    /// Name, unique in the stream.
    pub name: String,
    /// Type of its values.
    pub channel_type: ChannelType,
    /// Whether a record may omit the element (`NULL`).
    pub optional: bool,
    /// Codec that selects which values are kept.
    pub codec: ElementCodec,
}

/// Codec of an element, which selects the values that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ElementCodec {
    /// Keeps every value.
    #[default]
    Sampled,
    /// Keeps a value that differs from the last one kept.
    Step,
    /// Keeps a value that differs by more than the band from the last one kept.
    Deadband {
        /// Half-width of the band, in the element's unit; not negative.
        deadband: f64,
    },
    /// Keeps as few values as lines within the deviation require.
    SwingingDoor {
        /// Maximum distance of a value from the line, in the element's unit; not negative.
        deviation: f64,
    },
}

/// Error in a definition: `file:line:column: message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct DefinitionError {
    /// Name of the file, as given by the reader.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Description of what was found and what was expected.
    pub message: String,
}

impl DefinitionError {
    /// Returns an error at a byte of a text. Errors without a place in the text are reported at its end.
    pub fn at(file: &str, text: &str, fault: DefinitionFault) -> DefinitionError {
        let (line, column) = line_and_column(text, fault.at);
        DefinitionError { file: file.to_owned(), line, column, message: fault.message }
    }
}

/// Returns the line and column of a byte of a text, both from 1, the column in characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
}

impl StoreDefinition {
    /// Parses a definition in RealDB's language. `file` names it in errors.
    ///
    /// # Errors
    /// The first error, with line and column.
    pub fn parse(text: &str, file: &str) -> Result<StoreDefinition, DefinitionError> {
        language::parse(text).map_err(|fault| DefinitionError::at(file, text, fault))
    }

    /// Returns the bytes that a stream takes at a time.
    pub fn data_block_bytes(&self) -> u64 {
        self.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT).saturating_mul(self.data_block_blocks.unwrap_or(1))
    }

    /// Returns the minimum size of the store in bytes: one data block for each stream.
    pub fn least_bytes(&self) -> u64 {
        let streams = self.max_streams.unwrap_or(0).max(u32::try_from(self.streams.len()).unwrap_or(u32::MAX));
        self.data_block_bytes().saturating_mul(streams.into())
    }

    /// Returns the stream with a name.
    pub fn stream(&self, name: &str) -> Option<&StreamDefinition> {
        self.streams.iter().find(|stream| stream.name == name)
    }
}

impl StreamDefinition {
    /// Returns the stream for [`crate::Store::resolve`]. `source` names the source that feeds it.
    pub fn spec(&self, source: &str) -> StreamSpec {
        StreamSpec {
            key: StreamKey::new(self.name.clone(), []),
            source: source.to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: self.elements.iter().map(ElementDefinition::spec).collect(),
        }
    }
}

impl ElementDefinition {
    /// Returns the channel for the element.
    pub fn spec(&self) -> ChannelSpec {
        ChannelSpec { reduction: self.codec.into(), ..ChannelSpec::new(self.name.clone(), self.channel_type) }
    }
}

impl From<ElementCodec> for Reduction {
    fn from(codec: ElementCodec) -> Reduction {
        match codec {
            ElementCodec::Sampled => Reduction::None,
            ElementCodec::Step => Reduction::Step,
            ElementCodec::Deadband { deadband } => Reduction::Deadband { bound: deadband },
            ElementCodec::SwingingDoor { deviation } => Reduction::SwingingDoor { bound: deviation },
        }
    }
}

/// Returns the type named by a word, in RealDB's spelling or ours, ignoring case.
pub fn type_of(word: &str) -> Option<ChannelType> {
    let word = word.to_ascii_lowercase();
    let plain = |word: &str| {
        let known = TYPES.iter().find(|(name, _)| *name == word).map(|(_, channel_type)| *channel_type);
        known.or_else(|| ChannelType::ALL.into_iter().chain([ChannelType::Blob]).find(|kind| kind.name() == word))
    };
    plain(&word).or_else(|| ArrayType::from_name(&word, plain).map(ChannelType::Array))
}

/// Type names of RealDB, and common aliases.
const TYPES: [(&str, ChannelType); 14] = [
    ("int8", ChannelType::I8),
    ("int16", ChannelType::I16),
    ("int32", ChannelType::I32),
    ("int64", ChannelType::I64),
    ("uint8", ChannelType::U8),
    ("uint16", ChannelType::U16),
    ("uint32", ChannelType::U32),
    ("uint64", ChannelType::U64),
    ("float", ChannelType::F32),
    ("float32", ChannelType::F32),
    ("double", ChannelType::F64),
    ("float64", ChannelType::F64),
    ("boolean", ChannelType::Bool),
    ("string", ChannelType::String),
];

/// Returns the name of a type in a definition.
pub fn type_name(channel_type: ChannelType) -> Cow<'static, str> {
    let plain = |kind| TYPES.iter().find(|(_, known)| *known == kind).map(|(name, _)| *name);
    match channel_type {
        ChannelType::Array(array) => {
            let element = array.element().channel_type();
            let length = array.length().map(|length| length.to_string()).unwrap_or_default();
            format!("{}[{length}]", type_name(element)).into()
        }
        other => plain(other).map_or_else(|| other.name(), Cow::Borrowed),
    }
}

/// Parses a size in bytes: `64MiB`, `50 MB`, `204800`, `1.5GiB`. Units are case-insensitive; without one, the number is
/// in bytes.
pub fn size_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_')).unwrap_or(text.len());
    let unit: u64 = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    let number = text[..digits].replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    // Beyond 2⁵³ a fraction of a unit cannot be intended.
    (bytes.fract() == 0.0 && (0.0..=9e15).contains(&bytes)).then_some(bytes as u64)
}

#[cfg(test)]
mod tests;

//! Output of a definition in RealDB's language. Parsing it gives the same definition.

use std::fmt;

use super::{ElementCodec, ElementDefinition, StoreDefinition, StreamDefinition, type_name};

/// Name, in quotes if it is not a word.
struct QuotedName<'a>(&'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        let begins = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
        if begins && chars.all(|c| matches!(c, '_' | '.') || c.is_alphanumeric()) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

impl fmt::Display for ElementCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementCodec::Sampled => f.write_str("SampledAlgorithm"),
            ElementCodec::Step => f.write_str("StepAlgorithm"),
            ElementCodec::Deadband { deadband } => write!(f, "DeadbandAlgorithm PARAMS (deadband={deadband:?})"),
            ElementCodec::SwingingDoor { deviation } => {
                write!(f, "SwingingDoorAlgorithm PARAMS (deviation={deviation:?})")
            }
        }
    }
}

impl fmt::Display for ElementDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", QuotedName(&self.name), type_name(self.channel_type))?;
        if self.optional {
            f.write_str(" NULL")?;
        }
        match self.codec {
            ElementCodec::Sampled => Ok(()),
            codec => write!(f, " WITH CODEC {codec}"),
        }
    }
}

impl fmt::Display for StreamDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "CREATE STREAM {} WITH ID {} {{", QuotedName(&self.name), self.id)?;
        for (n, element) in self.elements.iter().enumerate() {
            writeln!(f, "  {element}{}", if n + 1 < self.elements.len() { "," } else { "" })?;
        }
        writeln!(f, "}}")
    }
}

impl fmt::Display for StoreDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = [
            ("blockSize", self.block_bytes),
            ("fileSize", self.file_bytes),
            ("maxStreams", self.max_streams.map(u64::from)),
            ("dataBlockSize", self.data_block_blocks),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                writeln!(f, "SET {name} = {value}")?;
            }
        }
        self.streams.iter().try_for_each(|stream| write!(f, "{stream}"))
    }
}

//! Decodes JSON messages into values. Pure.
//!
//! Members of objects are leaves, named by their path. Their types come from the schema (`jsonschema`) if there is one,
//! and otherwise from the first value, with numbers as `f64`. Values of another type get a separate leaf with the same
//! name, which becomes a second column. An array of numbers or Booleans is one leaf; of other arrays, the first
//! [`ELEMENTS_MAX`] elements have leaves. `null` is no value. Of several values of one path, the first is taken.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use strongback_store::{ARRAY_LENGTH_MAX, ArrayType, ChannelType, ElementType, Value};

use super::message::{ELEMENTS_MAX, LEAVES_MAX, LeafKind, LeftOut, MessageLeaf, Values, add_leaf, is_name, leave_out};
use super::value::{FoundValue, MessageError};

/// Maximum bytes of a message, that of a frame.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a chain of references in a schema.
const REFERENCES_MAX: usize = 8;

/// A value of a message, with its parts as text: the parser's own floats may be off by a unit in the last place.
#[derive(Clone, Debug)]
enum JsonPart<'m> {
    Null,
    Bool(bool),
    /// Number in digits.
    Number(&'m str),
    Text(Cow<'m, str>),
    Array(Vec<&'m RawValue>),
    Object(Members<'m>),
}

/// Members of an object, sorted by name; those that are given twice, too.
#[derive(Clone, Debug)]
struct Members<'m>(Vec<(String, &'m RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                members.sort_by(|(a, _): &(String, _), (b, _)| a.cmp(b));
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'m> JsonPart<'m> {
    fn of(raw: &'m RawValue) -> serde_json::Result<JsonPart<'m>> {
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'{') => JsonPart::Object(serde_json::from_str(text)?),
            Some(b'[') => JsonPart::Array(serde_json::from_str(text)?),
            Some(b'"') => JsonPart::Text(serde_json::from_str::<String>(text)?.into()),
            Some(b't' | b'f') => JsonPart::Bool(serde_json::from_str(text)?),
            Some(b'n') => JsonPart::Null,
            _ => JsonPart::Number(text),
        })
    }
}

/// Decoder of the messages of one topic.
#[derive(Clone, Debug)]
pub struct JsonDecoder {
    schema: Option<Json>,
    leaves: Vec<MessageLeaf>,
    /// Leaves of each path: the first, and those of values of other types.
    by_name: HashMap<String, Vec<usize>>,
    /// Number of the message decoded now, from 1, and by leaf that of the last message with a value.
    message: u64,
    valued: Vec<u64>,
    left_out: LeftOut,
}

impl JsonDecoder {
    /// Creates a decoder with a schema. Without a valid one, types are taken from values.
    pub fn new(schema: Option<&[u8]>) -> JsonDecoder {
        let schema = schema.and_then(|text| serde_json::from_slice(text).ok());
        JsonDecoder {
            schema,
            leaves: Vec::new(),
            by_name: HashMap::new(),
            message: 0,
            valued: Vec::new(),
            left_out: LeftOut::new(),
        }
    }

    /// Returns the leaves found so far.
    pub fn leaves(&self) -> &[MessageLeaf] {
        &self.leaves
    }

    /// Returns the parts left out so far.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Appends the values of a message to `values`. May add leaves.
    ///
    /// # Errors
    /// If the message is not a JSON object.
    pub fn decode<'m>(&mut self, message: &'m [u8], values: &mut Values<'m>) -> Result<(), MessageError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::Json(format!("{} bytes, {MESSAGE_BYTES_MAX} at most", message.len())));
        }
        let wrong = |error: serde_json::Error| MessageError::Json(error.to_string());
        let Members(members) = serde_json::from_slice(message).map_err(wrong)?;
        self.message += 1;
        // Moved out while its parts are borrowed.
        let schema = self.schema.take();
        let node = schema.as_ref().map(|root| SchemaNode { root, at: root });
        let mut done = Ok(());
        for (key, value) in members {
            let below = node.and_then(|node| node.member(&key));
            done = self.walk(key, value, below, values);
            if done.is_err() {
                break;
            }
        }
        self.schema = schema;
        done.map_err(wrong)
    }

    fn walk<'m>(
        &mut self,
        path: String,
        value: &'m RawValue,
        node: Option<SchemaNode<'_>>,
        values: &mut Values<'m>,
    ) -> serde_json::Result<()> {
        if !is_name(&path) {
            leave_out(&mut self.left_out, "values whose names cannot be".to_owned(), 1);
            return Ok(());
        }
        match JsonPart::of(value)? {
            JsonPart::Null => {}
            JsonPart::Object(Members(members)) => {
                for (key, value) in members {
                    let below = node.and_then(|node| node.member(&key));
                    self.walk(format!("{path}.{key}"), value, below, values)?;
                }
            }
            JsonPart::Array(elements) => self.array(path, &elements, node, values)?,
            scalar => {
                let declared = node.and_then(|node| node.scalar());
                let preferred = declared.into_iter().chain(declared.and_then(|kind| wider(&scalar, kind)));
                self.push(path, preferred, own_type(&scalar), values, |kind| match (kind, &scalar) {
                    (ChannelType::String, JsonPart::Text(text)) => Some(FoundValue::Text(text.clone())),
                    (kind, scalar) => plain(scalar, kind).map(FoundValue::Plain),
                });
            }
        }
        Ok(())
    }

    fn array<'m>(
        &mut self,
        path: String,
        elements: &[&'m RawValue],
        node: Option<SchemaNode<'_>>,
        values: &mut Values<'m>,
    ) -> serde_json::Result<()> {
        let below = node.and_then(|node| node.element());
        let declared = below.and_then(|node| node.scalar()).and_then(ElementType::of);
        let first = elements.first().map(|first| JsonPart::of(first)).transpose()?;
        let seen = first.as_ref().and_then(own_type).and_then(ElementType::of);
        let known = self.by_name.get(&path).and_then(|leaves| leaves.iter().find_map(|leaf| self.array_of(*leaf)));
        if known.or(declared).or(seen).is_some() {
            if elements.len() > ARRAY_LENGTH_MAX {
                let sentence = format!("{path}: arrays of more than {ARRAY_LENGTH_MAX} elements");
                leave_out(&mut self.left_out, sentence, 1);
                return Ok(());
            }
            let parts = elements.iter().map(|part| JsonPart::of(part)).collect::<serde_json::Result<Vec<_>>>()?;
            let array = |element| ChannelType::Array(ArrayType::variable(element));
            self.push(path, declared.into_iter().map(array), seen.map(array), values, |kind| {
                let element = kind.array()?.element();
                let mut bytes = Vec::with_capacity(parts.len() * element.size_bytes());
                for value in &parts {
                    let bits = plain(value, element.channel_type())?.bits();
                    bytes.extend_from_slice(&bits.to_le_bytes()[..element.size_bytes()]);
                }
                Some(FoundValue::Array(element, bytes.into()))
            });
            return Ok(());
        }
        if elements.len() > ELEMENTS_MAX {
            let sentence = format!("{path}: elements behind the first {ELEMENTS_MAX}");
            leave_out(&mut self.left_out, sentence, (elements.len() - ELEMENTS_MAX) as u64);
        }
        for (index, value) in elements.iter().take(ELEMENTS_MAX).enumerate() {
            self.walk(format!("{path}[{index}]"), value, below, values)?;
        }
        Ok(())
    }

    /// Returns the element type of a leaf that holds arrays.
    fn array_of(&self, leaf: usize) -> Option<ElementType> {
        match self.leaves[leaf].kind {
            LeafKind::Plain(kind) => Some(kind.array()?.element()),
            LeafKind::Bytes(_) => None,
        }
    }

    /// Stores a value in a leaf of its path. Tries the `preferred` types first, then existing leaves that accept the
    /// value, then the value's `own` type.
    fn push<'m>(
        &mut self,
        path: String,
        mut preferred: impl Iterator<Item = ChannelType>,
        own: Option<ChannelType>,
        values: &mut Values<'m>,
        value: impl Fn(ChannelType) -> Option<FoundValue<'m>>,
    ) {
        let known = self.by_name.get(&path).map_or(&[][..], Vec::as_slice);
        let kind_of = |leaf: usize| match self.leaves[leaf].kind {
            LeafKind::Plain(kind) => Some(kind),
            LeafKind::Bytes(_) => None,
        };
        let fits = |kind: ChannelType| Some((kind, value(kind)?));
        let found = preferred.find_map(fits);
        let found = found.or_else(|| known.iter().filter_map(|leaf| kind_of(*leaf)).find_map(fits));
        let Some((kind, found)) = found.or_else(|| own.and_then(fits)) else {
            return leave_out(&mut self.left_out, format!("{path}: values that no channel can hold"), 1);
        };
        let leaf = known.iter().copied().find(|leaf| kind_of(*leaf) == Some(kind));
        match leaf.or_else(|| add_leaf(&mut self.leaves, &path, LeafKind::Plain(kind), "")) {
            Some(at) => {
                self.valued.resize(self.leaves.len(), 0);
                if std::mem::replace(&mut self.valued[at], self.message) == self.message {
                    let sentence = format!("{path}: further values of this name in one message");
                    return leave_out(&mut self.left_out, sentence, 1);
                }
                if leaf.is_none() {
                    self.by_name.entry(path).or_default().push(at);
                }
                values.push((at, found));
            }
            None => leave_out(&mut self.left_out, format!("values of fields beyond the first {LEAVES_MAX}"), 1),
        }
    }
}

/// Returns the natural type of a value.
fn own_type(value: &JsonPart<'_>) -> Option<ChannelType> {
    match value {
        JsonPart::Bool(_) => Some(ChannelType::Bool),
        JsonPart::Number(_) => Some(ChannelType::F64),
        JsonPart::Text(_) => Some(ChannelType::String),
        JsonPart::Null | JsonPart::Array(_) | JsonPart::Object(_) => None,
    }
}

/// Returns the type for a value that is too large for its declared type.
fn wider(value: &JsonPart<'_>, declared: ChannelType) -> Option<ChannelType> {
    let is_large =
        matches!(value, JsonPart::Number(text) if text.parse::<u64>().is_ok_and(|n| i64::try_from(n).is_err()));
    (declared == ChannelType::I64 && is_large).then_some(ChannelType::U64)
}

/// Converts a value to a type.
fn plain(value: &JsonPart<'_>, kind: ChannelType) -> Option<Value<'static>> {
    match (kind, value) {
        (ChannelType::Bool, JsonPart::Bool(truth)) => Some(Value::Bool(*truth)),
        (ChannelType::I64, JsonPart::Number(text)) => {
            // 5.0 is an integer, too. An integer beyond the range of the type is not truncated.
            let whole = || double(text).filter(|n| n.fract() == 0.0 && n.abs() < 2f64.powi(63)).map(|n| n as i64);
            text.parse().ok().or_else(|| text.parse::<u64>().is_err().then(whole).flatten()).map(Value::I64)
        }
        (ChannelType::U64, JsonPart::Number(text)) => text.parse().ok().map(Value::U64),
        (ChannelType::F64, JsonPart::Number(text)) => double(text).map(Value::F64),
        (ChannelType::F64, JsonPart::Text(text)) => match &**text {
            "NaN" => Some(Value::F64(f64::NAN)),
            "Infinity" => Some(Value::F64(f64::INFINITY)),
            "-Infinity" => Some(Value::F64(f64::NEG_INFINITY)),
            _ => None,
        },
        _ => None,
    }
}

/// Parses a number in digits, rounded to the nearest double. Returns `None` beyond the range of a double.
fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A node of a schema.
#[derive(Clone, Copy)]
struct SchemaNode<'s> {
    root: &'s Json,
    at: &'s Json,
}

impl<'s> SchemaNode<'s> {
    fn at(self, at: &'s Json) -> SchemaNode<'s> {
        let mut at = at;
        for _ in 0..REFERENCES_MAX {
            let reference = at.get("$ref").and_then(Json::as_str).and_then(|to| to.strip_prefix('#'));
            match reference.and_then(|pointer| self.root.pointer(pointer)) {
                Some(to) => at = to,
                None => break,
            }
        }
        SchemaNode { root: self.root, at }
    }

    fn member(self, key: &str) -> Option<SchemaNode<'s>> {
        Some(self.at(self.at.get("properties")?.get(key)?))
    }

    fn element(self) -> Option<SchemaNode<'s>> {
        Some(self.at(self.at.get("items")?))
    }

    /// Returns the type of a value, if the schema states a single one besides `null`.
    fn scalar(self) -> Option<ChannelType> {
        let kinds = match self.at.get("type")? {
            Json::Array(kinds) => kinds.as_slice(),
            kind => std::slice::from_ref(kind),
        };
        let mut kinds = kinds.iter().filter_map(Json::as_str).filter(|kind| *kind != "null");
        match (kinds.next()?, kinds.next()) {
            ("integer", None) => Some(ChannelType::I64),
            ("number", None) => Some(ChannelType::F64),
            ("string", None) => Some(ChannelType::String),
            ("boolean", None) => Some(ChannelType::Bool),
            _ => None,
        }
    }
}

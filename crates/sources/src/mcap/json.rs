//! Messages in JSON to values. Pure.
//!
//! Members of objects are leaves, named by their path; the schema (`jsonschema`), where there is one, says their types,
//! else the first value does: numbers are `f64`. Arrays of numbers or truth values are one leaf, of others the first
//! [`ELEMENTS_MAX`] elements have leaves. `null`: no value.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};
use strongback_store::{ArrayType, ChannelType, ElementType, MAX_ARRAY_LENGTH, Value};

use super::message::{ELEMENTS_MAX, LEAVES_MAX, Leaf, LeafKind, LeftOut, Values, add_leaf, is_name, leave_out};
use super::value::{DecodeError, Found};

/// Most bytes of a message: those of a frame.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Most references of a schema that lead to one another.
const REFERENCES_MAX: usize = 8;

/// Decodes the messages of one topic.
#[derive(Clone, Debug)]
pub struct JsonDecoder {
    schema: Option<Json>,
    leaves: Vec<Leaf>,
    by_name: HashMap<String, Option<usize>>,
    left_out: LeftOut,
}

impl JsonDecoder {
    /// By a schema; without one, or by one that is none, values say their types.
    pub fn new(schema: Option<&[u8]>) -> JsonDecoder {
        let schema = schema.and_then(|text| serde_json::from_slice(text).ok());
        JsonDecoder { schema, leaves: Vec::new(), by_name: HashMap::new(), left_out: LeftOut::new() }
    }

    /// Its leaves so far.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// What was not taken so far.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Puts the values of a message into `values`; there are more leaves then, perhaps.
    ///
    /// # Errors
    /// The message is no JSON object.
    pub fn decode<'m>(&mut self, message: &'m [u8], values: &mut Values<'m>) -> Result<(), DecodeError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::Json(format!("{} bytes, {MESSAGE_BYTES_MAX} at most", message.len())));
        }
        let object: Map<String, Json> =
            serde_json::from_slice(message).map_err(|error| DecodeError::Json(error.to_string()))?;
        // Apart while its parts are looked at.
        let schema = self.schema.take();
        let node = schema.as_ref().map(|root| Node { root, at: root });
        for (key, value) in object {
            let below = node.and_then(|node| node.member(&key));
            self.walk(key, value, below, values);
        }
        self.schema = schema;
        Ok(())
    }

    fn walk(&mut self, path: String, value: Json, node: Option<Node<'_>>, values: &mut Values<'_>) {
        if !is_name(&path) {
            return leave_out(&mut self.left_out, "values whose names cannot be".to_owned(), 1);
        }
        match value {
            Json::Null => {}
            Json::Object(members) => {
                for (key, value) in members {
                    let below = node.and_then(|node| node.member(&key));
                    self.walk(format!("{path}.{key}"), value, below, values);
                }
            }
            Json::Array(elements) => self.array(path, elements, node, values),
            scalar => {
                let declared = node.and_then(|node| node.scalar());
                let kind = declared.unwrap_or(match scalar {
                    Json::Bool(_) => ChannelType::Bool,
                    Json::Number(_) => ChannelType::F64,
                    _ => ChannelType::String,
                });
                self.push(path, LeafKind::Plain(kind), values, |kind| match (kind, scalar) {
                    (LeafKind::Plain(ChannelType::String), Json::String(text)) => Some(Found::Text(text.into())),
                    (LeafKind::Plain(kind), scalar) => plain(&scalar, kind).map(Found::Plain),
                    (LeafKind::Bytes(_), _) => None,
                });
            }
        }
    }

    fn array(&mut self, path: String, elements: Vec<Json>, node: Option<Node<'_>>, values: &mut Values<'_>) {
        let below = node.and_then(|node| node.element());
        let declared = below.and_then(|node| node.scalar());
        let seen = match elements.first() {
            Some(Json::Number(_)) => Some(ChannelType::F64),
            Some(Json::Bool(_)) => Some(ChannelType::Bool),
            _ => None,
        };
        let known = self.by_name.get(&path).copied().flatten().and_then(|leaf| match self.leaves[leaf].kind {
            LeafKind::Plain(ChannelType::Array(array)) => Some(array.element()),
            _ => None,
        });
        let element = known.or_else(|| declared.or(seen).and_then(ElementType::of));
        if let Some(element) = element {
            if elements.len() > MAX_ARRAY_LENGTH {
                let sentence = format!("{path}: arrays of more than {MAX_ARRAY_LENGTH} elements");
                return leave_out(&mut self.left_out, sentence, 1);
            }
            let kind = LeafKind::Plain(ChannelType::Array(ArrayType::variable(element)));
            return self.push(path, kind, values, |_| {
                let mut bytes = Vec::with_capacity(elements.len() * element.size_bytes());
                for value in &elements {
                    let bits = plain(value, element.channel_type())?.bits();
                    bytes.extend_from_slice(&bits.to_le_bytes()[..element.size_bytes()]);
                }
                Some(Found::Array(element, bytes.into()))
            });
        }
        if elements.len() > ELEMENTS_MAX {
            let sentence = format!("{path}: elements behind the first {ELEMENTS_MAX}");
            leave_out(&mut self.left_out, sentence, (elements.len() - ELEMENTS_MAX) as u64);
        }
        for (index, value) in elements.into_iter().take(ELEMENTS_MAX).enumerate() {
            self.walk(format!("{path}[{index}]"), value, below, values);
        }
    }

    /// Puts a value, if its leaf takes it.
    fn push<'m>(
        &mut self,
        path: String,
        kind: LeafKind,
        values: &mut Values<'m>,
        value: impl FnOnce(LeafKind) -> Option<Found<'m>>,
    ) {
        let leaf = match self.by_name.get(&path) {
            Some(leaf) => *leaf,
            None if self.by_name.len() >= 2 * LEAVES_MAX => None,
            None => {
                let leaf = add_leaf(&mut self.leaves, &path, kind, "");
                self.by_name.insert(path.clone(), leaf);
                leaf
            }
        };
        let Some(leaf) = leaf else {
            return leave_out(&mut self.left_out, format!("values of fields beyond the first {LEAVES_MAX}"), 1);
        };
        let of = self.leaves[leaf].kind;
        let is_array = matches!(of, LeafKind::Plain(of) if of.array().is_some());
        let found = value(of).filter(|found| matches!(found, Found::Array(..)) == is_array);
        match found {
            Some(found) => values.push((leaf, found)),
            None => {
                let name = match of {
                    LeafKind::Plain(kind) => kind.name(),
                    LeafKind::Bytes(_) => "u8[]".into(),
                };
                leave_out(&mut self.left_out, format!("{path}: values that are no {name}"), 1);
            }
        }
    }
}

/// A value of a type.
fn plain(value: &Json, kind: ChannelType) -> Option<Value<'static>> {
    match (kind, value) {
        (ChannelType::Bool, Json::Bool(truth)) => Some(Value::Bool(*truth)),
        (ChannelType::I64, Json::Number(number)) => {
            // 5.0 is a whole number as well.
            let whole = || number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 2f64.powi(63)).map(|n| n as i64);
            number.as_i64().or_else(|| (!number.is_u64()).then(whole).flatten()).map(Value::I64)
        }
        (ChannelType::F64, Json::Number(number)) => number.as_f64().map(Value::F64),
        (ChannelType::F64, Json::String(text)) => match text.as_str() {
            "NaN" => Some(Value::F64(f64::NAN)),
            "Infinity" => Some(Value::F64(f64::INFINITY)),
            "-Infinity" => Some(Value::F64(f64::NEG_INFINITY)),
            _ => None,
        },
        _ => None,
    }
}

/// A part of a schema.
#[derive(Clone, Copy)]
struct Node<'s> {
    root: &'s Json,
    at: &'s Json,
}

impl<'s> Node<'s> {
    fn at(self, at: &'s Json) -> Node<'s> {
        let mut at = at;
        for _ in 0..REFERENCES_MAX {
            let reference = at.get("$ref").and_then(Json::as_str).and_then(|to| to.strip_prefix('#'));
            match reference.and_then(|pointer| self.root.pointer(pointer)) {
                Some(to) => at = to,
                None => break,
            }
        }
        Node { root: self.root, at }
    }

    fn member(self, key: &str) -> Option<Node<'s>> {
        Some(self.at(self.at.get("properties")?.get(key)?))
    }

    fn element(self) -> Option<Node<'s>> {
        Some(self.at(self.at.get("items")?))
    }

    /// The type of a value, if it says a single one beside `null`.
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

//! Decodes ROS 1 and ROS 2 messages into values, by the schema in the file. Pure.
//!
//! A field without fields of its own is a *leaf*, named by its path: `pose.position.x`. An array of numbers is one
//! leaf. Of arrays of structures and texts, the first [`ELEMENTS_MAX`] elements have leaves such as `status[0].level`,
//! which are added when a message first has them. Anything without a leaf is skipped and counted.

use std::collections::BTreeMap;

use strongback_store::{ARRAY_LENGTH_MAX, ArrayType, ChannelType, ElementType};

use crate::NAME_BYTES_MAX;

use super::schema::{Arity, Dialect, FieldKind, Schema, SchemaError, SchemaField};
use super::value::{FoundValue, MessageError, Primitive, Wire};

/// Maximum elements with leaves, in an array of structures or texts.
pub const ELEMENTS_MAX: usize = 64;
/// Maximum leaves of a topic.
pub const LEAVES_MAX: usize = 2_048;
/// Maximum nodes in a topic's tree of fields.
const NODES_MAX: usize = 65_536;
/// Maximum descriptions of parts left out of a topic.
const SENTENCES_MAX: usize = 64;

/// Kind of values in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    /// Values of a type.
    Plain(ChannelType),
    /// Any number of bytes, such as a short array or an image.
    Bytes(ElementType),
}

/// A field without fields of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLeaf {
    /// Path, such as `pose.position.x`.
    pub name: String,
    /// Kind of its values.
    pub kind: LeafKind,
    /// Unit.
    pub unit: &'static str,
}

/// Values, each with the index of its leaf.
pub type Values<'m> = Vec<(usize, FoundValue<'m>)>;

/// Parts of messages without a leaf: a description, and the count.
pub type LeftOut = BTreeMap<String, u64>;

/// Counts parts that are left out.
pub(super) fn leave_out(left_out: &mut LeftOut, sentence: String, count: u64) {
    if left_out.len() < SENTENCES_MAX || left_out.contains_key(&sentence) {
        *left_out.entry(sentence).or_default() += count;
    }
}

/// Reports whether a text is valid as a channel name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// Adds a leaf and returns its index, or `None` if there are too many or the name is invalid.
pub(super) fn add_leaf(leaves: &mut Vec<MessageLeaf>, name: &str, kind: LeafKind, unit: &'static str) -> Option<usize> {
    if leaves.len() >= LEAVES_MAX || !is_name(name) {
        return None;
    }
    leaves.push(MessageLeaf { name: name.to_owned(), kind, unit });
    Some(leaves.len() - 1)
}

/// A field, with the leaves below it.
#[derive(Clone, Debug)]
enum FieldNode {
    /// A single value.
    One { leaf: Option<usize>, kind: Primitive },
    /// An array of numbers.
    Numbers { leaf: Option<usize>, kind: Primitive, element: ElementType, length: Option<usize>, path: String },
    /// A structure.
    Fields(Vec<FieldNode>),
    /// An array of structures or texts.
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    kind: FieldKind,
    length: Option<usize>,
    path: String,
    /// Elements with leaves.
    elements: Vec<FieldNode>,
    /// All other elements.
    rest: FieldNode,
}

/// State that grows as nodes are made.
#[derive(Clone, Debug)]
struct Growth {
    schema: Schema,
    leaves: Vec<MessageLeaf>,
    nodes: usize,
    left_out: LeftOut,
}

impl Growth {
    /// Makes the node of a kind. If `path` is `None`, it gets no leaves.
    fn one(&mut self, kind: FieldKind, path: Option<&str>) -> Result<FieldNode, SchemaError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(SchemaError::TooLarge);
        }
        match kind {
            FieldKind::Plain(kind) => {
                let leaf = path.and_then(|path| self.leaf(path, LeafKind::Plain(kind.channel_type()), kind.unit()));
                Ok(FieldNode::One { leaf, kind })
            }
            FieldKind::Struct(index) => {
                let fields = self.schema.structs[index].fields.clone();
                let nodes = fields.iter().map(|field| {
                    let path = path.map(|path| match path {
                        "" => field.name.clone(),
                        _ => format!("{path}.{}", field.name),
                    });
                    self.field(field, path)
                });
                Ok(FieldNode::Fields(nodes.collect::<Result<_, _>>()?))
            }
        }
    }

    fn field(&mut self, field: &SchemaField, path: Option<String>) -> Result<FieldNode, SchemaError> {
        let length = match field.arity {
            Arity::One => return self.one(field.kind, path.as_deref()),
            Arity::Fixed(length) => Some(length),
            Arity::Variable => None,
        };
        let element = match field.kind {
            FieldKind::Plain(kind) => ElementType::of(kind.channel_type()).map(|element| (kind, element)),
            FieldKind::Struct(_) => None,
        };
        let Some((kind, element)) = element else {
            let rest = self.one(field.kind, None)?;
            let path = path.unwrap_or_default();
            return Ok(FieldNode::Many(Box::new(Many { kind: field.kind, length, path, elements: Vec::new(), rest })));
        };
        self.nodes += 1;
        let is_bytes = matches!(kind, Primitive::U8 | Primitive::I8);
        let leaf_kind = match length {
            Some(length) if length <= ARRAY_LENGTH_MAX => {
                // An array without elements has no information.
                ArrayType::fixed(element, length).map(|array| LeafKind::Plain(ChannelType::Array(array)))
            }
            _ if is_bytes => Some(LeafKind::Bytes(element)),
            _ => Some(LeafKind::Plain(ChannelType::Array(ArrayType::variable(element)))),
        };
        let leaf = match (&path, leaf_kind) {
            (Some(path), Some(leaf_kind)) => self.leaf(path, leaf_kind, kind.unit()),
            _ => None,
        };
        Ok(FieldNode::Numbers { leaf, kind, element, length, path: path.unwrap_or_default() })
    }

    fn leaf(&mut self, path: &str, kind: LeafKind, unit: &'static str) -> Option<usize> {
        let leaf = add_leaf(&mut self.leaves, path, kind, unit);
        if leaf.is_none() {
            leave_out(&mut self.left_out, format!("fields beyond the first {LEAVES_MAX}"), 1);
        }
        leaf
    }
}

/// Decoder of the messages of one topic.
#[derive(Clone, Debug)]
pub struct RosDecoder {
    root: FieldNode,
    growth: Growth,
    stamp: Option<usize>,
}

impl RosDecoder {
    /// Creates a decoder with a schema, where `name` is the type of messages.
    ///
    /// # Errors
    /// If the schema is invalid.
    pub fn new(dialect: Dialect, name: &str, text: &[u8]) -> Result<RosDecoder, SchemaError> {
        let schema = Schema::parse(dialect, name, text)?;
        let header = schema.structs[0].fields.first().filter(|field| {
            let is_header = matches!(field.kind, FieldKind::Struct(i) if schema.structs[i].name == "std_msgs/Header");
            is_header && field.arity == Arity::One
        });
        let stamp = header.map(|field| format!("{}.stamp", field.name));
        let mut growth = Growth { schema, leaves: Vec::new(), nodes: 0, left_out: LeftOut::new() };
        let root = growth.one(FieldKind::Struct(0), Some(""))?;
        let is_stamp = |leaf: &MessageLeaf| Some(&leaf.name) == stamp.as_ref() && leaf.unit == Primitive::Time.unit();
        let stamp = growth.leaves.iter().position(is_stamp);
        Ok(RosDecoder { root, growth, stamp })
    }

    /// Returns the leaves found so far.
    pub fn leaves(&self) -> &[MessageLeaf] {
        &self.growth.leaves
    }

    /// Returns the leaf with the time of the header that messages begin with.
    pub fn stamp(&self) -> Option<usize> {
        self.stamp
    }

    /// Returns the parts without a leaf so far.
    pub fn left_out(&self) -> &LeftOut {
        &self.growth.left_out
    }

    /// Appends the values of a message to `values`. May add leaves.
    ///
    /// # Errors
    /// If the message does not fit the schema. Some of its values may have been appended.
    pub fn decode<'m>(&mut self, message: &'m [u8], values: &mut Values<'m>) -> Result<(), MessageError> {
        let mut wire = Wire::new(self.growth.schema.dialect, message)?;
        read(&mut self.root, &mut self.growth, &mut wire, values)?;
        wire.end()
    }
}

fn read<'m>(
    node: &mut FieldNode,
    growth: &mut Growth,
    wire: &mut Wire<'m>,
    values: &mut Values<'m>,
) -> Result<(), MessageError> {
    let dialect = growth.schema.dialect;
    match node {
        FieldNode::One { leaf, kind } => {
            let value = wire.value(dialect, *kind)?;
            values.extend(leaf.map(|leaf| (leaf, value)));
        }
        FieldNode::Fields(fields) => {
            for field in fields {
                read(field, growth, wire, values)?;
            }
        }
        FieldNode::Numbers { leaf, kind, element, length, path } => {
            let count = length.map_or_else(|| wire.count(), Ok)?;
            let value = wire.array(dialect, *kind, *element, count)?;
            let is_bytes = leaf.is_some_and(|leaf| matches!(growth.leaves[leaf].kind, LeafKind::Bytes(_)));
            if count <= ARRAY_LENGTH_MAX || is_bytes {
                values.extend(leaf.map(|leaf| (leaf, value)));
            } else if leaf.is_some() {
                let sentence = format!("{path}: arrays of more than {ARRAY_LENGTH_MAX} elements");
                leave_out(&mut growth.left_out, sentence, 1);
            }
        }
        FieldNode::Many(many) => {
            let count = many.length.map_or_else(|| wire.count(), Ok)?;
            let least_bytes = growth.schema.least_bytes(many.kind);
            wire.check_elements(count, least_bytes)?;
            if least_bytes == 0 {
                // Such elements have no bytes on the wire, regardless of their number.
                return Ok(());
            }
            for index in 0..count.min(ELEMENTS_MAX) {
                // The path is empty below a field without leaves.
                if many.elements.len() == index && !many.path.is_empty() {
                    let path = format!("{}[{index}]", many.path);
                    match growth.one(many.kind, Some(&path)) {
                        Ok(element) => many.elements.push(element),
                        Err(_) => leave_out(&mut growth.left_out, "fields beyond what is taken apart".to_owned(), 1),
                    }
                }
                let element = many.elements.get_mut(index).unwrap_or(&mut many.rest);
                read(element, growth, wire, values)?;
            }
            for _ in ELEMENTS_MAX..count {
                read(&mut many.rest, growth, wire, values)?;
            }
            if count > ELEMENTS_MAX && !many.path.is_empty() {
                let sentence = format!("{}: elements behind the first {ELEMENTS_MAX}", many.path);
                leave_out(&mut growth.left_out, sentence, (count - ELEMENTS_MAX) as u64);
            }
        }
    }
    Ok(())
}

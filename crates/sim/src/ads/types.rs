//! Types of a PLC, their size and alignment in memory, and their entries in the upload of data types.
//!
//! | offset | size | field of a data type entry |
//! |---|---|---|
//! | 0 | 4 | length of the entry, members and all |
//! | 4 | 4 | version, 1 |
//! | 8 | 8 | hashes, 0 |
//! | 16 | 4 | size of a value in bytes |
//! | 20 | 4 | offset within the structure; 0 for a type |
//! | 24 | 4 | number of the type |
//! | 28 | 4 | flags |
//! | 32 | 6 | lengths of name, type, comment, two bytes each |
//! | 38 | 4 | dimensions, members |
//! | 42 | | name, type, comment, each with a zero byte |
//! | | 8 | for each dimension: lower bound, elements |
//! | | | for each member: its entry |
//! | | 16 | GUID, of a type |
//! | | | of an enumeration: count (2), then for each value: length of the name (1), name and zero, value |

use std::sync::Arc;

use super::wire::windows_1252;

const TYPE: u32 = 0x1;
const ITEM: u32 = 0x2;
const GUID: u32 = 0x80;
const ENUMERATION: u32 = 0x2000;

/// Type number of structures and of all types without a number of their own.
const BIG: u32 = 65;

/// Elementary type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    Bool,
    Int,
    Dint,
    Udint,
    Lint,
    Real,
    Lreal,
    /// Milliseconds in 32 bits.
    Time,
    /// Seconds since 1970 in 32 bits.
    DateAndTime,
}

impl Scalar {
    /// Returns name, number and bytes.
    fn facts(self) -> (&'static str, u32, u32) {
        match self {
            Scalar::Bool => ("BOOL", 33, 1),
            Scalar::Int => ("INT", 2, 2),
            Scalar::Dint => ("DINT", 3, 4),
            Scalar::Udint => ("UDINT", 19, 4),
            Scalar::Lint => ("LINT", 20, 8),
            Scalar::Real => ("REAL", 4, 4),
            Scalar::Lreal => ("LREAL", 5, 8),
            Scalar::Time => ("TIME", 19, 4),
            Scalar::DateAndTime => ("DATE_AND_TIME", 19, 4),
        }
    }
}

/// Enumeration based on INT.
#[derive(Debug)]
pub(crate) struct Enumeration {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [&'static str],
}

/// Member of a structure.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) kind: PlcType,
    pub(crate) offset: u32,
    pub(crate) comment: &'static str,
}

/// Structure: members in their order, each aligned to its own size.
#[derive(Debug)]
pub(crate) struct Structure {
    pub(crate) name: &'static str,
    pub(crate) members: Vec<Member>,
    size: u32,
    align: u32,
}

impl Structure {
    pub(crate) fn new(name: &'static str, members: Vec<(&'static str, PlcType, &'static str)>) -> Arc<Self> {
        let (mut end, mut align) = (0, 1);
        let members = members.into_iter().map(|(name, kind, comment)| {
            let offset = aligned(end, kind.align());
            end = offset + kind.size();
            align = align.max(kind.align());
            Member { name, kind, offset, comment }
        });
        let members = members.collect();
        Arc::new(Structure { name, members, size: aligned(end, align), align })
    }

    /// Returns a member by name, ignoring case.
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name.eq_ignore_ascii_case(name))
    }
}

/// Rounds `at` up to a multiple of `align`.
pub(crate) fn aligned(at: u32, align: u32) -> u32 {
    at.next_multiple_of(align.max(1))
}

/// Type of a variable.
#[derive(Clone, Debug)]
pub(crate) enum PlcType {
    Scalar(Scalar),
    /// Text of at most this many bytes, and a zero byte.
    Text(u32),
    Enumeration(&'static Enumeration),
    /// Elements, with indices from 1.
    Array(Box<PlcType>, u32),
    Structure(Arc<Structure>),
}

impl From<Scalar> for PlcType {
    fn from(scalar: Scalar) -> Self {
        PlcType::Scalar(scalar)
    }
}

impl PlcType {
    pub(crate) fn array(of: impl Into<PlcType>, count: u32) -> Self {
        PlcType::Array(Box::new(of.into()), count)
    }

    pub(crate) fn name(&self) -> String {
        match self {
            PlcType::Scalar(scalar) => scalar.facts().0.into(),
            PlcType::Text(length) => format!("STRING({length})"),
            PlcType::Enumeration(e) => e.name.into(),
            PlcType::Array(of, count) => format!("ARRAY [1..{count}] OF {}", of.name()),
            PlcType::Structure(s) => s.name.into(),
        }
    }

    /// Returns the bytes of a value.
    pub(crate) fn size(&self) -> u32 {
        match self {
            PlcType::Scalar(scalar) => scalar.facts().2,
            PlcType::Text(length) => length + 1,
            PlcType::Enumeration(_) => 2,
            PlcType::Array(of, count) => of.size() * count,
            PlcType::Structure(s) => s.size,
        }
    }

    pub(crate) fn align(&self) -> u32 {
        match self {
            PlcType::Scalar(scalar) => scalar.facts().2,
            PlcType::Text(_) => 1,
            PlcType::Enumeration(_) => 2,
            PlcType::Array(of, _) => of.align(),
            PlcType::Structure(s) => s.align,
        }
    }

    /// Returns the number of the type; an array has that of its elements.
    pub(crate) fn number(&self) -> u32 {
        match self {
            PlcType::Scalar(scalar) => scalar.facts().1,
            PlcType::Text(_) => 30,
            PlcType::Enumeration(_) => 2,
            PlcType::Array(of, _) => of.number(),
            PlcType::Structure(_) => BIG,
        }
    }

    /// Returns the GUID: that of TwinCAT for elementary types, otherwise derived from the name.
    pub(crate) fn guid(&self) -> [u8; 16] {
        let mut guid = [0; 16];
        match self {
            PlcType::Scalar(scalar) => {
                guid[..4].copy_from_slice(&0x1807_1995u32.to_le_bytes());
                guid[15] = *scalar as u8 + 1;
            }
            _ => {
                // FNV-1a, twice.
                for (half, seed) in guid.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325u64, 0x8422_2325_cbf2_9ce4]) {
                    let hash = self
                        .name()
                        .bytes()
                        .fold(seed, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
                    half.copy_from_slice(&hash.to_le_bytes());
                }
            }
        }
        guid
    }

    /// Visits the types this one is made of, deepest first, and then itself.
    pub(crate) fn visit(&self, each: &mut dyn FnMut(&PlcType)) {
        match self {
            PlcType::Array(of, _) => of.visit(each),
            PlcType::Structure(s) => s.members.iter().for_each(|m| m.kind.visit(each)),
            _ => {}
        }
        each(self);
    }

    /// Returns the entry of this type in the upload of data types.
    pub(crate) fn entry(&self) -> Vec<u8> {
        // The underlying type: the elements of an array, INT for an enumeration.
        let on = match self {
            PlcType::Array(of, _) => of.name(),
            PlcType::Enumeration(_) => "INT".into(),
            _ => String::new(),
        };
        let mut flags = TYPE | GUID;
        let mut after = Vec::new();
        let mut members = 0u16;
        if let PlcType::Structure(s) = self {
            members = s.members.len() as u16;
            for member in &s.members {
                let of = &member.kind;
                let text = (member.name, &*of.name(), member.comment);
                after.extend(entry(of, text, member.offset, ITEM, 0, &[]));
            }
        }
        after.extend_from_slice(&self.guid());
        if let PlcType::Enumeration(e) = self {
            flags |= ENUMERATION;
            after.extend_from_slice(&(e.values.len() as u16).to_le_bytes());
            for (value, name) in (0i16..).zip(e.values) {
                after.push(name.len() as u8);
                after.extend_from_slice(name.as_bytes());
                after.push(0);
                after.extend_from_slice(&value.to_le_bytes());
            }
        }
        entry(self, (&self.name(), &on, ""), 0, flags, members, &after)
    }
}

/// Encodes an entry: its head, names and dimensions, followed by `rest`.
fn entry(of: &PlcType, text: (&str, &str, &str), offset: u32, flags: u32, members: u16, after: &[u8]) -> Vec<u8> {
    let (name, kind, comment) = (windows_1252(text.0), windows_1252(text.1), windows_1252(text.2));
    let dimension = match of {
        PlcType::Array(_, count) => Some(*count),
        _ => None,
    };
    let mut out = vec![0; 4];
    for field in [1, 0, 0, of.size(), offset, of.number(), flags] {
        out.extend_from_slice(&u32::to_le_bytes(field));
    }
    let lengths = [name.len() as u16, kind.len() as u16, comment.len() as u16];
    for field in lengths.into_iter().chain([u16::from(dimension.is_some()), members]) {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for text in [name, kind, comment] {
        out.extend_from_slice(&text);
        out.push(0);
    }
    if let Some(count) = dimension {
        out.extend_from_slice(&1u32.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
    out.extend_from_slice(after);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

//! Leaves: the single values in symbols, found by splitting structures and arrays with the uploaded data types.

use std::borrow::Cow;
use std::fmt::Write;

use strongback_store::{ARRAY_LENGTH_MAX, ElementType};

use super::table::{DataType, DataTypes, Symbol};
use super::value::ValueKind;
use super::wire::PlcPlace;

/// Maximum nesting of structures. Deeper ones, and types that contain themselves, are skipped.
const DEPTH_MAX: usize = 16;
/// Maximum parts visited in one look at a program, selected or not. Bounds the cost of a hostile array.
pub const PARTS_MAX: usize = 1 << 20;
/// Maximum bytes of a description to which names of an enumeration's values are added.
const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// Maximum bytes of a unit. Longer text in brackets is not a unit.
const UNIT_BYTES_MAX: usize = 24;

/// Base types of ADS.
mod base {
    pub(super) const STRING: u32 = 30;
    pub(super) const WSTRING: u32 = 31;
    pub(super) const BIT: u32 = 33;
}

/// Mapping of arrays of numbers to channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrays {
    /// One channel for each element: `name[1]`.
    #[default]
    Elements,
    /// One channel with all elements.
    Whole,
}

/// A single value in the memory of a PLC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Full name, such as `MAIN.tank[2].pressure`.
    pub name: String,
    /// Location in memory.
    pub place: PlcPlace,
    /// Value type.
    pub kind: ValueKind,
    /// Name of its type in the program.
    pub type_name: String,
    /// Unit: `ms`, `s` or `ns` for times, otherwise the text in brackets at the end of the comment.
    pub unit: String,
    /// Comment in the program, and the values of an enumeration.
    pub description: String,
    /// Numbers of an enumeration and their names.
    pub names: Vec<(i64, String)>,
}

/// A part of a symbol that makes no leaf, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Full name.
    pub name: String,
    /// Reason.
    pub why: String,
}

/// Splitter of symbols into leaves.
pub struct Splitting<'t, 'a> {
    types: &'t DataTypes<'a>,
    arrays: Arrays,
    /// Remaining number of parts that may be visited.
    budget: usize,
}

/// Returns the element type of a base type, or `None` for text and types with members.
fn plain(base: u32) -> Option<ElementType> {
    Some(match base {
        2 => ElementType::I16,
        3 => ElementType::I32,
        4 => ElementType::F32,
        5 => ElementType::F64,
        16 => ElementType::I8,
        17 => ElementType::U8,
        18 => ElementType::U16,
        19 => ElementType::U32,
        20 => ElementType::I64,
        21 => ElementType::U64,
        base::BIT => ElementType::Bool,
        _ => return None,
    })
}

/// Returns the unit of a time type, or else the text in brackets at the end of the comment, as in `Level [%]`.
fn unit_of<'t>(type_name: &str, comment: &'t str) -> &'t str {
    match type_name {
        "TIME" | "TOD" | "TIME_OF_DAY" => "ms",
        "DATE" | "DT" | "DATE_AND_TIME" => "s",
        "LTIME" | "LTOD" | "LTIME_OF_DAY" | "LDATE" | "LDT" | "LDATE_AND_TIME" => "ns",
        _ => {
            let inner = comment.trim_end().strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
            let unit = inner.map_or("", |(_, unit)| unit.trim());
            if unit.len() <= UNIT_BYTES_MAX { unit } else { "" }
        }
    }
}

/// Returns the epoch of a time type, for descriptions.
fn epoch_of(type_name: &str) -> &'static str {
    match type_name {
        "DATE" | "DT" | "DATE_AND_TIME" | "LDATE" | "LDT" | "LDATE_AND_TIME" => "since 1970",
        "TOD" | "TIME_OF_DAY" | "LTOD" | "LTIME_OF_DAY" => "since midnight",
        _ => "",
    }
}

/// A part being split: what is known of it so far.
#[derive(Clone, Copy)]
struct PendingPart<'p> {
    place: PlcPlace,
    base: u32,
    type_name: &'p str,
    comment: &'p str,
    depth: usize,
}

impl<'t, 'a> Splitting<'t, 'a> {
    /// Creates a splitter with the types of a program, for up to [`PARTS_MAX`] parts over all symbols.
    pub fn new(types: &'t DataTypes<'a>) -> Self {
        Splitting::limited(types, PARTS_MAX)
    }

    /// Does the same as [`Splitting::new`], for up to `parts` parts.
    pub fn limited(types: &'t DataTypes<'a>, parts: usize) -> Self {
        Splitting { types, arrays: Arrays::default(), budget: parts }
    }

    /// Sets how later arrays become channels.
    pub fn arrays(&mut self, arrays: Arrays) {
        self.arrays = arrays;
    }

    /// Splits a symbol into its leaves.
    pub fn split(&mut self, symbol: &Symbol<'_>, found: &mut impl FnMut(Result<Leaf, Skipped>)) {
        let part = PendingPart {
            place: PlcPlace { group: symbol.group, offset: symbol.offset, size: symbol.size },
            base: symbol.base,
            type_name: &symbol.type_name,
            comment: &symbol.comment,
            depth: 0,
        };
        let mut name = symbol.name.clone().into_owned();
        self.part(&mut name, part, found);
    }

    fn part(&mut self, name: &mut String, part: PendingPart<'_>, found: &mut impl FnMut(Result<Leaf, Skipped>)) {
        if !self.spend(name, found) {
            return;
        }
        let skip = |why: &str| Err(Skipped { name: name.clone(), why: why.to_owned() });
        if part.depth > DEPTH_MAX {
            return found(skip("structures lie too deep in each other"));
        }
        if name.len() > crate::NAME_BYTES_MAX {
            return found(skip("its name is too long"));
        }
        let of_pointer = |t: &str| t.starts_with("POINTER TO ") || t.starts_with("REFERENCE TO ");
        if of_pointer(part.type_name) {
            return found(skip("pointers and references are not followed"));
        }
        match self.types.get(part.type_name) {
            Some(known) if known.is_array() => self.array(name, part, known, found),
            Some(known) if known.is_structure() => self.structure(name, part, known, found),
            // A type that stands for another: an alias, an enumeration or a subrange.
            Some(known) if plain(known.base).is_none() && is_alias(known) => {
                let next = PendingPart { base: known.base, type_name: &known.type_name, depth: part.depth + 1, ..part };
                self.part(name, next, found);
            }
            Some(known) => {
                let values = known.enum_values();
                let root = self.root(known);
                let leaf = self.leaf(name, PendingPart { base: known.base, ..part }, &root, &values);
                found(leaf);
            }
            None => match bounds(part.type_name) {
                Some((dimensions, element)) => self.elements(name, part, &dimensions, part.base, element, found),
                None => {
                    let leaf = self.leaf(name, part, part.type_name, &[]);
                    found(leaf);
                }
            },
        }
    }

    /// Takes one step from the budget. Every visit of a part costs one, because types nested many times over would
    /// otherwise cost unbounded time. Returns `false` if the budget is spent.
    fn spend(&mut self, name: &str, found: &mut impl FnMut(Result<Leaf, Skipped>)) -> bool {
        let left = self.budget;
        self.budget = left.saturating_sub(1);
        if left == 1 {
            found(Err(Skipped { name: name.to_owned(), why: "too many values; the rest is left out".to_owned() }));
        }
        left > 1
    }

    /// Returns the name of the type at the end of a chain of aliases: `TIME` for `T_Timeout : TIME`.
    fn root(&self, known: &DataType<'a>) -> Cow<'a, str> {
        let mut name = if known.type_name.is_empty() { known.name.clone() } else { known.type_name.clone() };
        for _ in 0..DEPTH_MAX {
            match self.types.get(&name) {
                Some(next) if is_alias(next) => name = next.type_name.clone(),
                _ => break,
            }
        }
        name
    }

    fn structure(
        &mut self,
        name: &mut String,
        part: PendingPart<'_>,
        known: &DataType<'a>,
        found: &mut impl FnMut(Result<Leaf, Skipped>),
    ) {
        for member in known.members() {
            if self.budget == 0 {
                return;
            }
            let member = match member {
                Ok(member) => member,
                Err(error) => return found(Err(Skipped { name: name.clone(), why: error.to_string() })),
            };
            let length = name.len();
            name.push('.');
            name.push_str(&member.name);
            self.member(name, part, &member, found);
            name.truncate(length);
        }
    }

    fn member(
        &mut self,
        name: &mut String,
        part: PendingPart<'_>,
        member: &DataType<'a>,
        found: &mut impl FnMut(Result<Leaf, Skipped>),
    ) {
        if !self.spend(name, found) {
            return;
        }
        let skip = |why: &str| Err(Skipped { name: name.clone(), why: why.to_owned() });
        if member.is_elsewhere() {
            return found(skip("a member that lies elsewhere than in its structure"));
        }
        let (offset, size) = match member.is_bits() {
            true => (member.offset / 8, 1),
            false => (member.offset, member.size),
        };
        if offset.checked_add(size).is_none_or(|end| end > part.place.size) {
            return found(skip("a member that lies beyond the end of its structure"));
        }
        let place = PlcPlace { offset: part.place.offset.wrapping_add(offset), size, ..part.place };
        if member.is_bits() {
            let kind = ValueKind::Bit((member.offset % 8) as u8);
            let leaf = Leaf {
                name: name.clone(),
                place,
                kind,
                type_name: member.type_name.clone().into_owned(),
                unit: String::new(),
                description: member.comment.clone().into_owned(),
                names: Vec::new(),
            };
            return found(Ok(leaf));
        }
        let next = PendingPart {
            place,
            base: member.base,
            type_name: &member.type_name,
            comment: &member.comment,
            depth: part.depth + 1,
        };
        // An array member has its own dimensions. Its type is that of an element or of the whole array.
        let is_whole = |name: &str| self.types.get(name).is_some_and(DataType::is_array) || bounds(name).is_some();
        if member.is_array() && !is_whole(&member.type_name) {
            let dimensions: Vec<(i32, u32)> = member.dimensions().collect();
            return self.elements(name, next, &dimensions, member.base, &member.type_name, found);
        }
        self.part(name, next, found);
    }

    fn array(
        &mut self,
        name: &mut String,
        part: PendingPart<'_>,
        known: &DataType<'a>,
        found: &mut impl FnMut(Result<Leaf, Skipped>),
    ) {
        let dimensions: Vec<(i32, u32)> = known.dimensions().collect();
        self.elements(name, part, &dimensions, known.base, &known.type_name, found);
    }

    fn elements(
        &mut self,
        name: &mut String,
        part: PendingPart<'_>,
        dimensions: &[(i32, u32)],
        base: u32,
        type_name: &str,
        found: &mut impl FnMut(Result<Leaf, Skipped>),
    ) {
        let skip = |why: &str| Err(Skipped { name: name.clone(), why: why.to_owned() });
        let count = dimensions.iter().try_fold(1_u32, |count, (_, n)| count.checked_mul(*n));
        let Some(count) = count.filter(|count| *count > 0 && part.place.size.is_multiple_of(*count)) else {
            return found(skip("an array whose size is not a multiple of its elements'"));
        };
        let size = part.place.size / count;
        if size == 0 {
            return found(skip("an array whose elements have no size"));
        }
        let element = plain(base).filter(|element| element.size_bytes() == size as usize);
        if let Some(element) = element.filter(|_| self.arrays == Arrays::Whole)
            && count as usize <= ARRAY_LENGTH_MAX
        {
            let leaf = Leaf {
                name: name.clone(),
                place: part.place,
                kind: ValueKind::Array(element),
                type_name: part.type_name.to_owned(),
                unit: unit_of(type_name, part.comment).to_owned(),
                description: part.comment.to_owned(),
                names: Vec::new(),
            };
            return found(Ok(leaf));
        }
        for i in 0..count {
            if self.budget == 0 {
                return;
            }
            let length = name.len();
            push_index(name, dimensions, i);
            let place = PlcPlace { offset: part.place.offset.wrapping_add(i * size), size, ..part.place };
            self.part(name, PendingPart { place, base, type_name, depth: part.depth + 1, ..part }, found);
            name.truncate(length);
        }
    }

    fn leaf(
        &self,
        name: &str,
        part: PendingPart<'_>,
        root: &str,
        values: &[(Cow<'_, str>, i64)],
    ) -> Result<Leaf, Skipped> {
        let skip = |why: String| Skipped { name: name.to_owned(), why };
        let size = part.place.size as usize;
        let kind = match part.base {
            base::STRING => ValueKind::Text,
            base::WSTRING => ValueKind::WideText,
            base => match plain(base) {
                Some(element) if element.size_bytes() == size => ValueKind::Plain(element),
                Some(element) => {
                    let needed = element.size_bytes();
                    return Err(skip(format!("{} has {size} bytes, expected {needed}", part.type_name)));
                }
                None => return Err(skip(format!("the type {:?} (base type {base}) is not known", part.type_name))),
            },
        };
        if size == 0 {
            return Err(skip("it has no size".to_owned()));
        }
        let mut description = part.comment.trim().to_owned();
        let epoch = epoch_of(root);
        let of_values = values.iter().map(|(name, number)| format!("{number} = {name}"));
        for more in of_values.chain((!epoch.is_empty()).then(|| epoch.to_owned())) {
            if description.len() + more.len() > DESCRIPTION_BYTES_MAX {
                break;
            }
            let comma = if description.is_empty() { "" } else { ", " };
            let _ = write!(description, "{comma}{more}");
        }
        Ok(Leaf {
            name: name.to_owned(),
            place: part.place,
            kind,
            type_name: part.type_name.to_owned(),
            unit: unit_of(root, part.comment).to_owned(),
            description,
            names: values.iter().map(|(name, number)| (*number, name.clone().into_owned())).collect(),
        })
    }
}

fn is_alias(known: &DataType<'_>) -> bool {
    !known.type_name.is_empty() && known.type_name != known.name
}

/// Appends the index of the i-th element, such as `[2]` or `[1,3]`.
fn push_index(name: &mut String, dimensions: &[(i32, u32)], mut i: u32) {
    // The last dimension varies fastest.
    let mut index = [0_i64; 8];
    let known = dimensions.len().min(index.len());
    for (at, (lower, count)) in index.iter_mut().zip(dimensions).take(known).rev() {
        *at = i64::from(*lower) + i64::from(i % count);
        i /= count;
    }
    for (n, at) in index[..known].iter().enumerate() {
        let _ = write!(name, "{}{at}", if n == 0 { "[" } else { "," });
    }
    name.push(']');
}

/// Parses bounds and element type of `ARRAY [0..9, 1..2] OF LREAL`, for programs that upload no types.
fn bounds(type_name: &str) -> Option<(Vec<(i32, u32)>, &str)> {
    let rest = type_name.strip_prefix("ARRAY")?.trim_start().strip_prefix('[')?;
    let (inner, rest) = rest.split_once(']')?;
    let element = rest.trim_start().strip_prefix("OF ")?.trim();
    let mut dimensions = Vec::new();
    for dimension in inner.split(',') {
        let (lower, upper) = dimension.split_once("..")?;
        let (lower, upper): (i32, i32) = (lower.trim().parse().ok()?, upper.trim().parse().ok()?);
        let count = i64::from(upper) - i64::from(lower) + 1;
        dimensions.push((lower, u32::try_from(count).ok()?));
    }
    (dimensions.len() <= 8).then_some((dimensions, element))
}

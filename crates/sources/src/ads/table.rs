//! Tables that a PLC uploads: its symbols (0xF00B) and its data types (0xF00E). Pure. Copies only what is requested, so
//! memory is in proportion to the bytes of a table.
//!
//! A symbol:
//!
//! | offset | field |
//! |---|---|
//! | 0 | length of the entry u32 |
//! | 4 | index group, index offset, size, base type, flags u32 |
//! | 24 | lengths of name, type name, comment u16 |
//! | 30 | the three texts, each with a 0 behind it |
//!
//! A data type, and each member of one:
//!
//! | offset | field |
//! |---|---|
//! | 0 | length of the entry, version (1), hash, hash of the type u32 |
//! | 16 | size, offset (of a member), base type, flags u32 |
//! | 32 | lengths of name, type name, comment; dimensions; members u16 |
//! | 42 | the three texts; for each dimension lower bound i32, elements u32; the members |
//! | then | by flags: GUID, copy mask, methods, attributes, values of an enumeration |

use std::borrow::Cow;

use hashbrown::HashMap;

use super::value::text;
use super::wire::u32_at;

/// Maximum data types of one program. Reading ends beyond them.
const TYPES_MAX: usize = 1 << 18;
/// Maximum values of an enumeration kept for its description.
const ENUM_VALUES_MAX: usize = 32;

/// Size of an entry's fixed part, before its texts.
const SYMBOL_BYTES: usize = 30;
const TYPE_BYTES: usize = 42;

/// Flags of data types and members.
const FLAG_BITS: u32 = 0x20;
const FLAG_GUID: u32 = 0x80;
const FLAG_COPY_MASK: u32 = 0x200;
const FLAG_METHODS: u32 = 0x800;
const FLAG_ATTRIBUTES: u32 = 0x1000;
const FLAG_ENUM: u32 = 0x2000;
const FLAG_STATIC: u32 = 0x20000;

/// Error that ends reading of a table early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} of the {table}: {why}")]
pub struct TableError {
    /// Table.
    pub table: &'static str,
    /// Offset of the entry's first byte.
    pub offset: usize,
    /// Cause.
    pub why: &'static str,
}

/// Sizes of both tables, from a read of [`super::wire::GROUP_UPLOAD_INFO`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadInfo {
    /// Number of symbols.
    pub symbols: u32,
    /// Bytes of the symbol table.
    pub symbols_bytes: u32,
    /// Number of data types.
    pub types: u32,
    /// Bytes of the table of data types.
    pub types_bytes: u32,
}

impl UploadInfo {
    /// Parses the bytes read, or returns `None` if they are too few.
    pub fn parse(bytes: &[u8]) -> Option<UploadInfo> {
        (bytes.len() >= 16).then(|| UploadInfo {
            symbols: u32_at(bytes, 0),
            symbols_bytes: u32_at(bytes, 4),
            types: u32_at(bytes, 8),
            types_bytes: u32_at(bytes, 12),
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, |b| u16::from_le_bytes(b) as usize)
}

/// Splits off three texts, each followed by a 0, and returns them with the rest.
fn texts(bytes: &[u8], lengths: [usize; 3]) -> Option<([&[u8]; 3], &[u8])> {
    let mut rest = bytes;
    let mut found: [&[u8]; 3] = [&[]; 3];
    for (text, length) in found.iter_mut().zip(lengths) {
        let (mine, after) = rest.split_at_checked(length)?;
        *text = mine;
        // Some tables lack the 0 after an entry's last text.
        rest = after.get(1..).unwrap_or(&[]);
    }
    Some((found, rest))
}

/// A symbol of a PLC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Full name, such as `MAIN.pressure`.
    pub name: Cow<'a, str>,
    /// Index group.
    pub group: u32,
    /// Index offset.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Base type; see [`super::leaf`].
    pub base: u32,
    /// Name of the type.
    pub type_name: Cow<'a, str>,
    /// Comment in the program.
    pub comment: Cow<'a, str>,
}

impl<'a> Symbol<'a> {
    /// Parses one entry, from a table or from the answer to a lookup by name.
    ///
    /// # Errors
    /// If the entry is malformed, with the reason.
    pub fn parse(entry: &'a [u8]) -> Result<Symbol<'a>, &'static str> {
        let head = entry.get(..SYMBOL_BYTES).ok_or("it is shorter than the head of a symbol")?;
        let lengths = [u16_at(head, 24), u16_at(head, 26), u16_at(head, 28)];
        let ([name, type_name, comment], _) =
            texts(&entry[SYMBOL_BYTES..], lengths).ok_or("its texts are longer than the entry")?;
        Ok(Symbol {
            name: text(name),
            group: u32_at(head, 4),
            offset: u32_at(head, 8),
            size: u32_at(head, 12),
            base: u32_at(head, 16),
            type_name: text(type_name),
            comment: text(comment),
        })
    }
}

/// Iterator over entries that begin with their length.
#[derive(Clone, Debug)]
struct Entries<'a> {
    table: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    fn next(&mut self) -> Option<Result<(usize, &'a [u8]), TableError>> {
        let offset = self.at;
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        let length = u32_at(rest, 0) as usize;
        if rest.len() < 4 || length < 4 || length > rest.len() {
            self.at = self.bytes.len();
            let why = "the length of the entry is not within the table";
            return Some(Err(TableError { table: self.table, offset, why }));
        }
        self.at += length;
        Some(Ok((offset, &rest[..length])))
    }
}

/// Iterator over the symbols of a table. It ends after an error.
#[derive(Clone, Debug)]
pub struct Symbols<'a>(Entries<'a>);

impl<'a> Symbols<'a> {
    /// Reads the bytes of a table.
    pub fn new(bytes: &'a [u8]) -> Symbols<'a> {
        Symbols(Entries { table: "symbol table", bytes, at: 0 })
    }
}

impl<'a> Iterator for Symbols<'a> {
    type Item = Result<Symbol<'a>, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.next()?;
        let parsed = next.and_then(|(offset, entry)| {
            Symbol::parse(entry).map_err(|why| TableError { table: self.0.table, offset, why })
        });
        if parsed.is_err() {
            self.0.at = self.0.bytes.len();
        }
        Some(parsed)
    }
}

/// A data type, or a member of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataType<'a> {
    /// Name of the type, or of the member.
    pub name: Cow<'a, str>,
    /// Name of the underlying type: that of its elements, of what it is an alias for, or of the member.
    pub type_name: Cow<'a, str>,
    /// Comment in the program.
    pub comment: Cow<'a, str>,
    /// Size in bytes, or in bits for a bit member.
    pub size: u32,
    /// Offset of a member in its structure, in bytes or bits.
    pub offset: u32,
    /// Base type.
    pub base: u32,
    flags: u32,
    dimensions: &'a [u8],
    members: usize,
    rest: &'a [u8],
}

impl<'a> DataType<'a> {
    fn parse(entry: &'a [u8]) -> Result<DataType<'a>, &'static str> {
        let head = entry.get(..TYPE_BYTES).ok_or("it is shorter than the head of a data type")?;
        if u32_at(head, 4) != 1 {
            return Err("its version is not 1");
        }
        let lengths = [u16_at(head, 32), u16_at(head, 34), u16_at(head, 36)];
        let ([name, type_name, comment], rest) =
            texts(&entry[TYPE_BYTES..], lengths).ok_or("its texts are longer than the entry")?;
        let (dimensions, rest) =
            rest.split_at_checked(u16_at(head, 38) * 8).ok_or("its dimensions are longer than the entry")?;
        Ok(DataType {
            name: text(name),
            type_name: text(type_name),
            comment: text(comment),
            size: u32_at(head, 16),
            offset: u32_at(head, 20),
            base: u32_at(head, 24),
            flags: u32_at(head, 28),
            dimensions,
            members: u16_at(head, 40),
            rest,
        })
    }

    /// Returns the lower bound and number of elements of each dimension. Empty unless it is an array.
    pub fn dimensions(&self) -> impl Iterator<Item = (i32, u32)> + 'a {
        self.dimensions.chunks_exact(8).map(|d| (u32_at(d, 0) as i32, u32_at(d, 4)))
    }

    /// Reports whether this is an array.
    pub fn is_array(&self) -> bool {
        !self.dimensions.is_empty()
    }

    /// Reports whether this has members.
    pub fn is_structure(&self) -> bool {
        self.members > 0
    }

    /// Reports whether size and offset count bits.
    pub fn is_bits(&self) -> bool {
        self.flags & FLAG_BITS != 0
    }

    /// Reports whether a member lies outside its structure.
    pub fn is_elsewhere(&self) -> bool {
        self.flags & FLAG_STATIC != 0 || self.offset == u32::MAX
    }

    /// Iterates over the members, ending after a damaged one.
    pub fn members(&self) -> impl Iterator<Item = Result<DataType<'a>, TableError>> + 'a {
        let mut entries = Entries { table: "data type's members", bytes: self.rest, at: 0 };
        let mut failed = false;
        (0..self.members).map_while(move |_| {
            if failed {
                return None;
            }
            let next = match entries.next() {
                Some(next) => next,
                None => Err(TableError { table: entries.table, offset: entries.at, why: "members are missing" }),
            };
            let parsed = next.and_then(|(offset, entry)| {
                DataType::parse(entry).map_err(|why| TableError { table: "data type's members", offset, why })
            });
            failed = parsed.is_err();
            Some(parsed)
        })
    }

    /// Returns name and number of each value of an enumeration, or nothing if they cannot be read.
    pub fn enum_values(&self) -> Vec<(Cow<'a, str>, i64)> {
        if self.flags & FLAG_ENUM == 0 || !matches!(self.size, 1 | 2 | 4 | 8) {
            return Vec::new();
        }
        self.find_enum_values().unwrap_or_default()
    }

    fn find_enum_values(&self) -> Option<Vec<(Cow<'a, str>, i64)>> {
        let mut entries = Entries { table: "", bytes: self.rest, at: 0 };
        for _ in 0..self.members {
            entries.next()?.ok()?;
        }
        let mut rest = self.rest.get(entries.at..)?;
        if self.flags & FLAG_GUID != 0 {
            rest = rest.get(16..)?;
        }
        if self.flags & FLAG_COPY_MASK != 0 {
            rest = rest.get(self.size as usize..)?;
        }
        if self.flags & FLAG_METHODS != 0 {
            let count = u16_at(rest.get(..2)?, 0);
            rest = &rest[2..];
            for _ in 0..count {
                let length = u32_at(rest.get(..4)?, 0) as usize;
                rest = rest.get(length.max(4)..)?;
            }
        }
        if self.flags & FLAG_ATTRIBUTES != 0 {
            let count = u16_at(rest.get(..2)?, 0);
            rest = &rest[2..];
            for _ in 0..count {
                let &[name, value, ..] = rest else { return None };
                rest = rest.get(2 + name as usize + 1 + value as usize + 1..)?;
            }
        }
        let count = u16_at(rest.get(..2)?, 0);
        rest = &rest[2..];
        let mut values = Vec::new();
        for _ in 0..count.min(ENUM_VALUES_MAX) {
            let (&length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(length as usize)?;
            let (value, after) = after.get(1..)?.split_at_checked(self.size as usize)?;
            let mut bytes =
                if value.last().is_some_and(|b| b & 0x80 != 0) && self.is_signed() { [0xff; 8] } else { [0; 8] };
            bytes[..value.len()].copy_from_slice(value);
            values.push((text(name), i64::from_le_bytes(bytes)));
            rest = after;
        }
        Some(values)
    }

    /// Reports whether the base type is signed: INT, DINT, SINT or LINT.
    fn is_signed(&self) -> bool {
        matches!(self.base, 2 | 3 | 16 | 20)
    }
}

/// Data types of a program, by name.
#[derive(Debug, Default)]
pub struct DataTypes<'a> {
    by_name: HashMap<Cow<'a, str>, DataType<'a>>,
}

impl<'a> DataTypes<'a> {
    /// Reads a table. Returns its types up to the first entry that cannot be read, and the error of that entry.
    pub fn read(bytes: &'a [u8]) -> (DataTypes<'a>, Option<TableError>) {
        let mut entries = Entries { table: "table of data types", bytes, at: 0 };
        let mut types = DataTypes::default();
        while let Some(next) = entries.next() {
            let parsed = next.and_then(|(offset, entry)| {
                DataType::parse(entry).map_err(|why| TableError { table: entries.table, offset, why })
            });
            match parsed {
                Ok(_) if types.by_name.len() == TYPES_MAX => {
                    let why = "more data types than are kept";
                    return (types, Some(TableError { table: entries.table, offset: entries.at, why }));
                }
                Ok(data_type) => {
                    types.by_name.insert(data_type.name.clone(), data_type);
                }
                Err(error) => return (types, Some(error)),
            }
        }
        (types, None)
    }

    /// Returns the type of a name.
    pub fn get(&self, name: &str) -> Option<&DataType<'a>> {
        self.by_name.get(name)
    }

    /// Counts the types.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Reports whether there are no types.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

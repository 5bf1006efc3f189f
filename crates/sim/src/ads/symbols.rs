//! Symbols of a program: names, types and places, and their upload.
//!
//! | offset | size | field of a symbol entry |
//! |---|---|---|
//! | 0 | 4 | length of the entry |
//! | 4 | 8 | index group, index offset |
//! | 12 | 4 | size in bytes |
//! | 16 | 4 | number of the type |
//! | 20 | 4 | flags: 8, a GUID follows |
//! | 24 | 6 | lengths of name, type, comment, two bytes each |
//! | 30 | | name, type, comment, each with a zero byte, in Windows-1252 |
//! | | 16 | GUID of the type |

use std::collections::{HashMap, HashSet};

use super::types::{PlcType, aligned};
use super::wire::{group, windows_1252};

const HAS_GUID: u32 = 0x8;
/// Max bytes of a name that is looked up.
const NAME_MAX: usize = 255;

/// Variable, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) group: u32,
    pub(crate) offset: u32,
    pub(crate) kind: PlcType,
    pub(crate) comment: String,
}

impl Symbol {
    pub(crate) fn size(&self) -> u32 {
        self.kind.size()
    }

    /// Returns its entry in the upload, which is also the reply to a query for it.
    pub(crate) fn entry(&self) -> Vec<u8> {
        let texts = [windows_1252(&self.name), windows_1252(&self.kind.name()), windows_1252(&self.comment)];
        let mut out = vec![0; 4];
        for field in [self.group, self.offset, self.size(), self.kind.number(), HAS_GUID] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for text in &texts {
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        }
        for text in &texts {
            out.extend_from_slice(text);
            out.push(0);
        }
        out.extend_from_slice(&self.kind.guid());
        let length = out.len() as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }
}

/// Layout that places symbols one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    symbols: Vec<Symbol>,
    data: u32,
    memory: u32,
}

impl Layout {
    /// Adds a symbol at the end of its group, aligned; returns its offset.
    pub(crate) fn place(&mut self, group: u32, name: String, kind: impl Into<PlcType>, comment: &str) -> u32 {
        let kind = kind.into();
        let end = if group == group::MEMORY { &mut self.memory } else { &mut self.data };
        let offset = aligned(*end, kind.align());
        *end = offset + kind.size();
        self.symbols.push(Symbol { name, group, offset, kind, comment: comment.into() });
        offset
    }

    /// Returns the table of all placed symbols.
    pub(crate) fn finish(self, version: u8) -> SymbolTable {
        let by_name = self.symbols.iter().enumerate().map(|(i, s)| (s.name.to_ascii_uppercase(), i)).collect();
        let mut seen = HashSet::new();
        let (mut types, mut type_count) = (Vec::new(), 0);
        for symbol in &self.symbols {
            symbol.kind.visit(&mut |kind| {
                if seen.insert(kind.name()) {
                    types.extend(kind.entry());
                    type_count += 1;
                }
            });
        }
        let entries = self.symbols.iter().flat_map(Symbol::entry).collect();
        // Round up to a multiple of eight, as a compiler does.
        let (data_size, memory_size) = (aligned(self.data, 8), aligned(self.memory, 8));
        SymbolTable { version, symbols: self.symbols, by_name, entries, types, type_count, data_size, memory_size }
    }
}

/// Symbols of one version of a program.
#[derive(Debug)]
pub(crate) struct SymbolTable {
    /// Version, counting from 1 with each program.
    pub(crate) version: u8,
    pub(crate) symbols: Vec<Symbol>,
    by_name: HashMap<String, usize>,
    /// Reply to a symbol upload.
    pub(crate) entries: Vec<u8>,
    /// Reply to a data type upload.
    pub(crate) types: Vec<u8>,
    type_count: u32,
    /// Number of bytes of the variables.
    pub(crate) data_size: u32,
    /// Number of bytes of the flags.
    pub(crate) memory_size: u32,
}

impl SymbolTable {
    /// Finds a symbol, or an element or member of one, by name, ignoring case: `MAIN.tanks[2].line.flow`.
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        if name.len() > NAME_MAX {
            return None;
        }
        if let Some(index) = self.by_name.get(&name.to_ascii_uppercase()) {
            return Some(self.symbols[*index].clone());
        }
        // Try the longest name before a point or a bracket first.
        let cuts = name.char_indices().rev().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
        for cut in cuts {
            let (front, path) = name.split_at(cut);
            if let Some(index) = self.by_name.get(&front.to_ascii_uppercase()) {
                return walk(&self.symbols[*index], path);
            }
        }
        None
    }

    /// Returns the reply to a query for the sizes of both uploads.
    pub(crate) fn upload_info(&self) -> [u32; 4] {
        [self.symbols.len() as u32, self.entries.len() as u32, self.type_count, self.types.len() as u32]
    }
}

/// Follows a path of members and indices within a symbol.
fn walk(symbol: &Symbol, mut path: &str) -> Option<Symbol> {
    let mut at = symbol.clone();
    while !path.is_empty() {
        if let Some(rest) = path.strip_prefix('[') {
            let (index, rest) = rest.split_once(']')?;
            let PlcType::Array(of, count) = at.kind else { return None };
            let index: u32 = index.trim().parse().ok().filter(|i| (1..=count).contains(i))?;
            at.name.push_str(&format!("[{index}]"));
            at.offset += (index - 1) * of.size();
            at.kind = *of;
            path = rest;
        } else {
            let rest = path.strip_prefix('.')?;
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let PlcType::Structure(structure) = &at.kind else { return None };
            let member = structure.member(&rest[..end])?;
            at.name.push('.');
            at.name.push_str(member.name);
            at.offset += member.offset;
            at.comment = member.comment.into();
            at.kind = member.kind.clone();
            path = &rest[end..];
        }
    }
    Some(at)
}

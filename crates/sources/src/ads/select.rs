//! Assigns the leaves of a program to groups. Pure.

use std::collections::HashSet;

use super::counts::Trouble;
use super::layout::GroupLayout;
use super::leaf::{Arrays, Leaf, Splitting};
use super::pattern;
use super::plan;
use super::table::{DataTypes, Symbol, Symbols, TableError};

/// Maximum channels of a stream, a limit of the store's layouts.
const CHANNELS_MAX: usize = 4_096;
/// Maximum bytes of one value. A frame has at most 1 MiB.
const VALUE_BYTES_MAX: u32 = 64 << 10;

/// Maximum troubles kept for one group. A damaged program could have a million.
const TROUBLES_MAX: usize = 10_000;

/// Leaves that a group reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Leaves, sorted by location.
    pub leaves: Vec<Leaf>,
    /// Requested symbols that cannot be read.
    pub troubles: Vec<Trouble>,
}

/// Selects the leaves of groups from the tables of their program.
pub fn select(groups: &[&GroupLayout], symbols: &[u8], types: &[u8]) -> (Vec<Selection>, Option<TableError>) {
    let (types, mut error) = DataTypes::read(types);
    let mut choosing = Choosing::new(groups, &types);
    for symbol in Symbols::new(symbols) {
        match symbol {
            Ok(symbol) => choosing.symbol(&symbol),
            Err(ended) => error = Some(ended),
        }
    }
    (choosing.end(None), error)
}

/// Selects the leaves of groups from single entries, for a program that uploads no table. `why` is the reason.
pub fn select_named(groups: &[&GroupLayout], entries: &[Vec<u8>], why: &str) -> Vec<Selection> {
    let types = DataTypes::default();
    let mut choosing = Choosing::new(groups, &types);
    for symbol in entries.iter().filter_map(|entry| Symbol::parse(entry).ok()) {
        choosing.symbol(&symbol);
    }
    choosing.end(Some(why))
}

struct Choosing<'g, 't, 'a> {
    groups: &'g [&'g GroupLayout],
    splitting: Splitting<'t, 'a>,
    found: Vec<Selection>,
    /// Patterns of each group that matched something.
    used: Vec<Vec<bool>>,
    /// Number of leaves beyond [`CHANNELS_MAX`] in each group.
    beyond: Vec<u64>,
}

impl<'g, 't, 'a> Choosing<'g, 't, 'a> {
    fn new(groups: &'g [&'g GroupLayout], types: &'t DataTypes<'a>) -> Self {
        Choosing {
            groups,
            splitting: Splitting::new(types),
            found: vec![Selection::default(); groups.len()],
            used: groups.iter().map(|group| vec![false; group.symbols.len()]).collect(),
            beyond: vec![0; groups.len()],
        }
    }

    fn symbol(&mut self, symbol: &Symbol<'_>) {
        for arrays in [Arrays::Elements, Arrays::Whole] {
            let may = |group: &GroupLayout| {
                group.arrays == arrays && group.symbols.iter().any(|p| pattern::can_match(p, &symbol.name))
            };
            let wanted: Vec<usize> = (0..self.groups.len()).filter(|g| may(self.groups[*g])).collect();
            if wanted.is_empty() {
                continue;
            }
            self.splitting.arrays(arrays);
            let (groups, found, used, beyond) = (self.groups, &mut self.found, &mut self.used, &mut self.beyond);
            self.splitting.split(symbol, &mut |leaf| {
                let name = match &leaf {
                    Ok(leaf) => &leaf.name,
                    Err(skipped) => &skipped.name,
                };
                for &g in &wanted {
                    let group = groups[g];
                    let mut matched = false;
                    for (pattern, used) in group.symbols.iter().zip(&mut used[g]) {
                        if (!matched || !*used) && pattern::matches(pattern, name) {
                            (matched, *used) = (true, true);
                        }
                    }
                    if !matched || group.exclude.iter().any(|p| pattern::matches(p, name)) {
                        continue;
                    }
                    let trouble = |why: &str| trouble(group, name, why);
                    let is_full = found[g].troubles.len() == TROUBLES_MAX;
                    match &leaf {
                        Ok(_) if found[g].leaves.len() == CHANNELS_MAX => beyond[g] += 1,
                        Ok(leaf) if leaf.place.size <= VALUE_BYTES_MAX => found[g].leaves.push(leaf.clone()),
                        _ if is_full => {}
                        Ok(_) => found[g].troubles.push(trouble("a value of more than 64 KiB")),
                        Err(skipped) => found[g].troubles.push(trouble(&skipped.why)),
                    }
                }
            });
        }
    }

    fn end(mut self, no_table: Option<&str>) -> Vec<Selection> {
        for (g, group) in self.groups.iter().enumerate() {
            let selection = &mut self.found[g];
            for (pattern, used) in group.symbols.iter().zip(&self.used[g]) {
                let why = match (no_table, pattern::is_name(pattern)) {
                    (Some(why), false) => {
                        format!("the PLC uploads no symbols ({why}), so only full names can be found")
                    }
                    _ if *used => continue,
                    (_, true) => "the program has no such symbol".to_owned(),
                    (_, false) => "no symbol of the program is like that".to_owned(),
                };
                selection.troubles.push(trouble(group, pattern, &why));
            }
            if self.beyond[g] > 0 {
                let why = format!(
                    "a group has at most {CHANNELS_MAX} values; {} are left out: make two groups of it",
                    self.beyond[g]
                );
                selection.troubles.push(trouble(group, &group.symbols[0], &why));
            }
            let mut names = HashSet::new();
            let troubles = &mut selection.troubles;
            selection.leaves.retain(|leaf| {
                let new = names.insert(channel_name(group, &leaf.name).to_ascii_lowercase());
                if !new {
                    troubles.push(trouble(group, &leaf.name, "another symbol of the group has the same channel name"));
                }
                new
            });
            plan::sort(&mut selection.leaves);
        }
        self.found
    }
}

fn trouble(group: &GroupLayout, symbol: &str, why: &str) -> Trouble {
    Trouble { stream: group.key.to_string(), symbol: symbol.to_owned(), why: why.to_owned() }
}

/// Returns the channel name of a symbol in a group.
pub fn channel_name<'n>(group: &GroupLayout, symbol: &'n str) -> &'n str {
    let strip = group.strip.len();
    match symbol.get(..strip) {
        Some(begin) if begin.eq_ignore_ascii_case(&group.strip) && symbol.len() > strip => &symbol[strip..],
        _ => symbol,
    }
}

//! The mistakes of a configuration, each with its line.
//!
//! Both serde and the checks of values stop at the first mistake. It is removed from the document, and the rest is read
//! again until no mistake is left.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use strongback_sources::KeyError;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::Config;
use super::file::ConfigFile;

/// Max number of mistakes searched for.
const MISTAKES_MAX: usize = 100;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Description, with the nearest valid key.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl Mistake {
    fn at(text: &str, at: usize, message: String) -> Mistake {
        let before = text.get(..at.min(text.len())).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        Mistake { line, column, message }
    }
}

/// One step of the path from the document to a value.
#[derive(Clone, Debug, PartialEq)]
enum PathStep {
    Key(String),
    Index(usize),
}

/// The first mistake found.
struct FirstMistake {
    at: usize,
    message: String,
    /// Path of the value to remove so that the next mistake is found; empty for the whole document.
    steps: Vec<PathStep>,
}

/// Reads a configuration.
///
/// # Errors
/// All mistakes, by line.
pub(super) fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    let mut root = DeTable::parse(text)
        .map_err(|error| vec![Mistake::at(text, start(error.span()), error.message().to_owned())])?;
    let mut mistakes = Vec::new();
    // Positions where values were removed; a value missing there is not a mistake of the writer.
    let mut touched: HashSet<usize> = HashSet::new();
    for _ in 0..MISTAKES_MAX {
        let found = match first(&root) {
            Ok(config) if mistakes.is_empty() => return Ok(config),
            Ok(_) => break,
            Err(found) => found,
        };
        let places = places(root.get_ref(), &found.steps);
        if !touched.contains(&found.at) {
            mistakes.push(Mistake::at(text, found.at, found.message));
        }
        if !take_out(root.get_mut(), &found.steps) {
            break;
        }
        touched.extend(places);
    }
    mistakes.sort();
    Err(mistakes)
}

/// Creates the mistake of a valid text that one of its keys is wrong: the first of these that the text has.
pub(super) fn locate(text: &str, keys: &[&str], message: String) -> Mistake {
    let at = DeTable::parse(text).ok().and_then(|root| {
        let mut paths = keys.iter().map(|key| steps_of(key));
        let steps = paths.find(|steps| existing(root.get_ref(), steps).len() == steps.len())?;
        places(root.get_ref(), &steps).first().copied()
    });
    Mistake::at(text, at.unwrap_or(0), message)
}

fn first(root: &Spanned<DeTable<'_>>) -> Result<Config, FirstMistake> {
    let file = ConfigFile::deserialize(Deserializer::from(root.clone())).map_err(|error| {
        let at = start(error.span());
        FirstMistake { at, message: teach(error.message()), steps: steps_at(root.get_ref(), at).unwrap_or_default() }
    })?;
    file.compile().map_err(|KeyError { path, reason }| {
        let mut steps = existing(root.get_ref(), &steps_of(&path));
        let at = places(root.get_ref(), &steps).first().copied().unwrap_or(0);
        // The rest of a table with a mistake tells little, so the whole table is removed.
        if let Some(last) = steps.iter().rposition(|step| matches!(step, PathStep::Index(_))) {
            steps.truncate(last + 1);
        }
        FirstMistake { at, message: format!("{}: {reason}", without_indices(&path)), steps }
    })
}

fn start(span: Option<Range<usize>>) -> usize {
    span.map_or(0, |span| span.start)
}

/// Parses a path such as `source[0].stream[2].table` into steps.
fn steps_of(path: &str) -> Vec<PathStep> {
    let of_part = |part: &str| {
        let mut parts = part.split('[');
        let key = parts.next().map(|key| PathStep::Key(key.to_owned()));
        let indices: Vec<PathStep> =
            parts.filter_map(|index| index.trim_end_matches(']').parse().ok().map(PathStep::Index)).collect();
        key.into_iter().chain(indices)
    };
    path.split('.').flat_map(of_part).collect()
}

fn without_indices(path: &str) -> String {
    let keys = steps_of(path).into_iter().filter_map(|step| match step {
        PathStep::Key(key) => Some(key),
        PathStep::Index(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// Returns the value a step leads to, with the positions of its key (or of itself) and of the value.
fn follow<'v, 'i>(value: &'v DeValue<'i>, step: &PathStep) -> Option<(&'v DeValue<'i>, usize, usize)> {
    match (value, step) {
        (DeValue::Table(table), PathStep::Key(name)) => {
            let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name.as_str())?;
            Some((value.get_ref(), key.span().start, value.span().start))
        }
        (DeValue::Array(array), PathStep::Index(index)) => {
            let value = array.get(*index)?;
            Some((value.get_ref(), value.span().start, value.span().start))
        }
        _ => None,
    }
}

/// Returns the part of a path that exists in the document.
fn existing(root: &DeTable<'_>, steps: &[PathStep]) -> Vec<PathStep> {
    let whole = DeValue::Table(root.clone());
    let mut value = &whole;
    let mut found = Vec::new();
    for step in steps {
        let Some((next, ..)) = follow(value, step) else { break };
        value = next;
        found.push(step.clone());
    }
    found
}

/// Returns the positions of the values on a path and of their keys, innermost first. For an array on the way only the
/// key counts, because the array begins where its first element does.
fn places(root: &DeTable<'_>, steps: &[PathStep]) -> Vec<usize> {
    let whole = DeValue::Table(root.clone());
    let mut value = &whole;
    let mut places = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let Some((next, key, begin)) = follow(value, step) else { break };
        value = next;
        if number + 1 == steps.len() || !matches!(value, DeValue::Array(_)) {
            places.insert(0, begin);
        }
        places.insert(0, key);
    }
    places
}

/// Returns the path to the innermost value that is, or whose key is, at a position.
fn steps_at(table: &DeTable<'_>, at: usize) -> Option<Vec<PathStep>> {
    let inner = table.iter().find_map(|(key, value)| {
        Some([vec![PathStep::Key(key.get_ref().to_string())], within(value.get_ref(), at)?].concat())
    });
    inner.or_else(|| {
        let is_there = |(key, value): &(&Spanned<_>, &Spanned<DeValue<'_>>)| {
            key.span().contains(&at) || value.span().contains(&at)
        };
        table.iter().find(is_there).map(|(key, _)| vec![PathStep::Key(key.get_ref().to_string())])
    })
}

fn within(value: &DeValue<'_>, at: usize) -> Option<Vec<PathStep>> {
    match value {
        DeValue::Table(table) => steps_at(table, at),
        DeValue::Array(array) => {
            let inner = array
                .iter()
                .enumerate()
                .find_map(|(index, value)| Some([vec![PathStep::Index(index)], within(value.get_ref(), at)?].concat()));
            inner
                .or_else(|| array.iter().position(|value| value.span().contains(&at)).map(|i| vec![PathStep::Index(i)]))
        }
        _ => None,
    }
}

/// Removes the value at the end of a path. Returns whether it existed.
fn take_out(table: &mut DeTable<'_>, steps: &[PathStep]) -> bool {
    let Some((PathStep::Key(name), rest)) = steps.split_first() else { return false };
    if rest.is_empty() {
        let before = table.len();
        *table = std::mem::take(table).into_iter().filter(|(key, _)| key.get_ref() != name.as_str()).collect();
        return table.len() < before;
    }
    let value = table.iter_mut().find(|(key, _)| key.get_ref() == name.as_str());
    value.is_some_and(|(_, value)| take_out_of(value.get_mut(), rest))
}

fn take_out_of(value: &mut DeValue<'_>, steps: &[PathStep]) -> bool {
    match (value, steps) {
        (DeValue::Table(table), steps) => take_out(table, steps),
        (DeValue::Array(array), [PathStep::Index(index)]) => {
            let before = array.len();
            let others = std::mem::replace(array, DeArray::new()).into_iter().enumerate().filter(|(i, _)| i != index);
            *array = others.map(|(_, value)| value).collect();
            array.len() < before
        }
        (DeValue::Array(array), [PathStep::Index(index), rest @ ..]) => {
            array.get_mut(*index).is_some_and(|value| take_out_of(value.get_mut(), rest))
        }
        _ => false,
    }
}

/// Rewrites serde's "unknown field" as a sentence with the nearest valid key.
fn teach(message: &str) -> String {
    let Some((unknown, rest)) = message.strip_prefix("unknown field `").and_then(|m| m.split_once('`')) else {
        return message.to_owned();
    };
    let keys: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let nearest = keys
        .iter()
        .map(|key| (strsim::damerau_levenshtein(unknown, key), *key))
        .filter(|(distance, key)| *distance <= 2.max(key.len() / 3))
        .min();
    match nearest {
        Some((_, key)) => format!("unknown key `{unknown}`; did you mean `{key}`?"),
        None if keys.is_empty() => format!("unknown key `{unknown}`"),
        None => format!("unknown key `{unknown}`; there are {}", keys.join(", ")),
    }
}

//! Tables from CSV and JSON files, typed by what their values are.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use strongback_store::{CellState, Column, ColumnValues};

/// Columns of a file.
pub(crate) struct Table {
    pub rows: usize,
    /// Cells that are values.
    pub points: usize,
    pub times: Vec<i64>,
    pub columns: Vec<(String, Column)>,
}

/// Reads a CSV file whose first line has names.
pub(crate) fn csv(path: &str) -> Table {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines = text.lines();
    let names: Vec<String> = lines.next().unwrap_or_default().split(',').map(|n| n.trim().to_owned()).collect();
    let rows: Vec<Vec<&str>> = lines.filter(|l| !l.trim().is_empty()).map(|l| l.split(',').collect()).collect();
    let cells = |index: usize| rows.iter().map(|row| row.get(index).map_or("", |c| c.trim()).to_owned()).collect();
    table(names.iter().enumerate().map(|(i, name)| (name.clone(), cells(i))).collect())
}

/// Reads a JSON file: an object of arrays, an array of objects, or an object a line.
pub(crate) fn json(path: &str) -> Table {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let objects: Vec<Json> = match serde_json::from_str(&text) {
        Ok(Json::Array(objects)) => objects,
        Ok(Json::Object(fields)) => {
            let cells = |v: &Json| v.as_array().map(|a| a.iter().map(cell).collect()).unwrap_or_default();
            return table(fields.iter().map(|(name, v)| (name.clone(), cells(v))).collect());
        }
        _ => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    };
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (row, object) in objects.iter().enumerate() {
        for (name, value) in object.as_object().into_iter().flatten() {
            let column = columns.entry(name.clone()).or_default();
            column.resize(row, String::new());
            column.push(cell(value));
        }
    }
    let rows = objects.len();
    columns.values_mut().for_each(|c| c.resize(rows, String::new()));
    table(columns.into_iter().collect())
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn table(mut columns: Vec<(String, Vec<String>)>) -> Table {
    let rows = columns.iter().map(|(_, c)| c.len()).max().unwrap_or(0);
    columns.iter_mut().for_each(|(_, c)| c.resize(rows, String::new()));
    let is_time = |name: &str| matches!(name.to_lowercase().as_str(), "time" | "timestamp" | "t" | "time_ns");
    let times = match columns.iter().position(|(name, _)| is_time(name)) {
        Some(index) => stamps(&columns.remove(index).1),
        None => (0..rows as i64).map(|i| i * 1_000_000).collect(),
    };
    let mut points = 0;
    let columns = columns
        .into_iter()
        .map(|(name, cells)| {
            let (column, values) = typed(&cells);
            points += values;
            (name, column)
        })
        .collect();
    Table { rows, points, times, columns }
}

fn stamps(cells: &[String]) -> Vec<i64> {
    let mut last = 0;
    let nanoseconds = |cell: &String| match (cell.parse::<i64>(), cell.parse::<f64>()) {
        (Ok(n), _) if n.abs() > 1_000_000_000_000 => Some(n),
        (_, Ok(seconds)) => Some((seconds * 1e9).round() as i64),
        _ => None,
    };
    cells
        .iter()
        .map(|cell| {
            last = nanoseconds(cell).unwrap_or(last);
            last
        })
        .collect()
}

fn typed(cells: &[String]) -> (Column, usize) {
    let present: Vec<&String> = cells.iter().filter(|c| !c.is_empty()).collect();
    let all = |fits: fn(&str) -> bool| present.iter().all(|c| fits(c));
    let values = if all(|c| c.parse::<bool>().is_ok()) {
        ColumnValues::Bool(cells.iter().map(|c| c == "true").collect())
    } else if all(|c| c.parse::<i64>().is_ok()) {
        ColumnValues::I64(cells.iter().map(|c| c.parse().unwrap_or_default()).collect())
    } else if all(|c| c.parse::<f64>().is_ok()) {
        ColumnValues::F64(cells.iter().map(|c| c.parse().unwrap_or_default()).collect())
    } else {
        let (mut offsets, mut bytes) = (vec![0], Vec::new());
        for cell in cells {
            bytes.extend_from_slice(cell.as_bytes());
            offsets.push(bytes.len() as u32);
        }
        ColumnValues::String { offsets, bytes }
    };
    let states = (present.len() < cells.len())
        .then(|| cells.iter().map(|c| if c.is_empty() { CellState::Absent } else { CellState::Value }).collect());
    (Column { values, states }, present.len())
}

//! Columns of a table in the lake. A column keeps its name, number and type for ever.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use serde::{Deserialize, Serialize};

/// Name of the elements of a list in the format of Parquet.
pub(crate) const ELEMENT: &str = "element";

/// Type of a column or of the elements of a list, by its name in Iceberg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    #[serde(rename = "boolean")]
    Boolean,
    #[serde(rename = "long")]
    Long,
    #[serde(rename = "decimal(20,0)")]
    Decimal,
    #[serde(rename = "float")]
    Float,
    #[serde(rename = "double")]
    Double,
    #[serde(rename = "string")]
    String,
    #[serde(rename = "timestamptz")]
    Time,
}

impl Kind {
    /// Returns the type for values of an Arrow type, all of which it holds.
    pub(crate) fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Boolean => Kind::Boolean,
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Kind::Long,
            DataType::Decimal128(20, 0) => Kind::Decimal,
            DataType::Float32 => Kind::Float,
            DataType::Float64 => Kind::Double,
            DataType::Utf8 | DataType::Dictionary(..) => Kind::String,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Kind::Time,
            _ => return None,
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Kind::Boolean => DataType::Boolean,
            Kind::Long => DataType::Int64,
            Kind::Decimal => DataType::Decimal128(20, 0),
            Kind::Float => DataType::Float32,
            Kind::Double => DataType::Float64,
            Kind::String => DataType::Utf8,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Returns the ending of a column for values that the column of their name does not hold.
    fn suffix(self, is_list: bool) -> &'static str {
        match self {
            _ if is_list => "array",
            Kind::Boolean => "bool",
            Kind::Long => "i64",
            Kind::Decimal => "u64",
            Kind::Float => "f32",
            Kind::Double => "f64",
            Kind::String => "string",
            Kind::Time => "time",
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BookColumn {
    /// Name in the files.
    pub(crate) name: String,
    /// Number in the files, `PARQUET:field_id`.
    pub(crate) id: i32,
    /// Number of the elements of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) element_id: Option<i32>,
    /// Type, of a list that of its elements.
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    /// Whether it has a value in each row.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) required: bool,
    /// Name of the column in SQL.
    pub(crate) column: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl BookColumn {
    /// Returns the Arrow type.
    pub(crate) fn data_type(&self) -> DataType {
        match self.element_id {
            None => self.kind.data_type(),
            Some(id) => {
                let element = Field::new(ELEMENT, self.kind.data_type(), true);
                DataType::List(Arc::new(element.with_metadata(numbered(id))))
            }
        }
    }

    /// Returns the Arrow field.
    pub(crate) fn field(&self) -> Field {
        Field::new(&self.name, self.data_type(), !self.required).with_metadata(numbered(self.id))
    }
}

fn numbered(id: i32) -> HashMap<String, String> {
    HashMap::from([(parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())])
}

/// Columns of a table, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    columns: Vec<BookColumn>,
    /// Positions by what readers take for the same name.
    names: HashMap<String, usize>,
}

/// Returns what readers that ignore case take for the same name.
fn key(name: &str) -> String {
    name.to_lowercase()
}

impl Book {
    /// Returns the columns.
    pub(crate) fn columns(&self) -> &[BookColumn] {
        &self.columns
    }

    /// Adds a column of a commit.
    pub(crate) fn add(&mut self, column: BookColumn) -> Result<(), String> {
        if self.names.insert(key(&column.name), self.columns.len()).is_some() || column.id < self.next_id() {
            return Err(format!("column {:?}, number {}, is there twice", column.name, column.id));
        }
        self.columns.push(column);
        Ok(())
    }

    fn next_id(&self) -> i32 {
        self.columns.iter().map(|column| column.element_id.unwrap_or(column.id)).max().map_or(1, |id| id + 1)
    }

    /// Returns the position of the column for values of an SQL column, and adds one if there is none.
    pub(crate) fn place(&mut self, of: &str, data_type: &DataType, required: bool) -> Option<usize> {
        let (kind, is_list) = match data_type {
            DataType::List(element) => (Kind::of(element.data_type())?, true),
            other => (Kind::of(other)?, false),
        };
        let is_it = |have: &BookColumn| have.column == of && have.kind == kind && have.element_id.is_some() == is_list;
        if let Some(at) = self.columns.iter().position(is_it) {
            return Some(at);
        }
        // A dot would be a part of a column to readers.
        let plain = of.replace('.', "_");
        let mut name = plain.clone();
        for attempt in 1.. {
            if !self.names.contains_key(&key(&name)) {
                break;
            }
            name = match attempt {
                1 => format!("{plain}_{}", kind.suffix(is_list)),
                n => format!("{plain}_{}_{n}", kind.suffix(is_list)),
            };
        }
        let id = self.next_id();
        let column =
            BookColumn { name, id, element_id: is_list.then_some(id + 1), kind, required, column: of.to_owned() };
        self.names.insert(key(&column.name), self.columns.len());
        self.columns.push(column);
        Some(self.columns.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_keeps_its_type_and_names_differ_by_more_than_case() {
        let mut book = Book::default();
        let mut place = |of: &str, data_type: DataType| {
            let at = book.place(of, &data_type, false).unwrap();
            (book.columns()[at].name.clone(), book.columns()[at].id)
        };
        let list = || DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
        assert_eq!(place("p", DataType::Int16), ("p".to_owned(), 1));
        assert_eq!(place("p", DataType::Int64), ("p".to_owned(), 1));
        assert_eq!(place("p", DataType::Float64), ("p_f64".to_owned(), 2));
        assert_eq!(place("P", DataType::Float64), ("P_f64_2".to_owned(), 3));
        assert_eq!(place("a", list()), ("a".to_owned(), 4));
        assert_eq!(place("a.b", DataType::Utf8), ("a_b".to_owned(), 6));
        assert_eq!(place("a_b", DataType::Utf8), ("a_b_string".to_owned(), 7));
        assert_eq!(place("p_f64", DataType::Float64), ("p_f64_f64".to_owned(), 8));
        assert_eq!(place("p", DataType::Float64), ("p_f64".to_owned(), 2));
    }
}

//! Columns of tables in other databases: which there must be for a stream, and where its values go.

use std::collections::{BTreeMap, HashSet};

use strongback_store::ChannelType;

use crate::delivery::StreamFrames;

/// What a kind of database has for columns.
pub(crate) trait Dialect {
    /// Type of a column.
    type Type: Copy + PartialEq + std::fmt::Debug + 'static;

    /// Columns of every table.
    const FIXED: &'static [(&'static str, Field, Self::Type)];
    /// Type of a tag.
    const TAG: Self::Type;
    /// Whether the type of a column can be changed to one that holds more.
    const WIDENS: bool = true;

    /// Returns the type for values of a channel.
    fn of_channel(channel: ChannelType) -> Self::Type;

    /// Returns whether a column of a type can hold the values of another one without loss.
    fn holds(wide: Self::Type, narrow: Self::Type) -> bool;

    /// Returns the suffix of a column for values that another column of the name cannot hold.
    fn suffix(column_type: Self::Type) -> &'static str;

    /// Returns the name of a type in SQL.
    fn type_name(column_type: Self::Type) -> String;

    /// Returns the name that a column has there.
    fn column_name(name: &str) -> String;

    /// Returns the same for names that the database takes for one.
    fn key(name: &str) -> String {
        name.to_owned()
    }
}

/// Origin of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    TimeNs,
    ReceiveTime,
    ReceiveTimeNs,
    SourceTime,
    SourceTimeNs,
    Sequence,
    /// Stream of the frame, with the origin of its store.
    Stream,
    /// Number of earlier frames of the stream with the same time.
    Repeat,
    Row,
    Tag(String),
    /// Column of the batch.
    Channel(usize),
    /// No value: the column belongs to other streams.
    Nothing,
}

/// A column as it is in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Have<T> {
    /// Name.
    pub(crate) name: String,
    /// Type, or `None` for one that the archive does not write.
    pub(crate) column_type: Option<T>,
    /// Whether it holds a tag.
    pub(crate) is_tag: bool,
}

/// Columns of a table, by their keys.
pub(crate) type Columns<D> = BTreeMap<String, Have<<D as Dialect>::Type>>;

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<T> {
    Add { name: String, column_type: T, is_tag: bool },
    Widen { name: String, column_type: T },
}

/// Column, what goes there, and its type.
pub(crate) type Place<D> = (String, Field, <D as Dialect>::Type);

/// Places of the values of several streams, and the changes that their table needs.
pub(crate) type Plans<D> = (Vec<Vec<Place<D>>>, Vec<Change<<D as Dialect>::Type>>);

/// Where the values of a stream go.
#[derive(Clone, Debug)]
pub(crate) struct Plan<T> {
    /// Column, and what goes there.
    pub(crate) places: Vec<(String, Field)>,
    /// Changes that the table needs.
    pub(crate) changes: Vec<Change<T>>,
    /// Keys of the places.
    taken: HashSet<String>,
}

/// Returns a name that ends with a checksum of another one.
pub(crate) fn with_checksum(start: &str, name: &str, bytes_max: usize) -> String {
    let most = start.len().min(bytes_max - 9);
    let end = (0..=most).rev().find(|end| start.is_char_boundary(*end)).unwrap_or(0);
    format!("{}_{:08x}", &start[..end], crc32c::crc32c(name.as_bytes()))
}

/// Plans the columns of frames in a table, and notes in `columns` what it will then have.
///
/// # Errors
/// Returns an error in words if a column cannot hold its values under any name.
pub(crate) fn plan<D: Dialect>(frames: &StreamFrames, columns: &mut Columns<D>) -> Result<Plan<D::Type>, String> {
    let mut plan = Plan { places: Vec::new(), changes: Vec::new(), taken: HashSet::new() };
    for (name, field, column_type) in D::FIXED {
        place::<D>(&mut plan, columns, &[(*name).to_owned()], field.clone(), *column_type)?;
    }
    for (key, _) in &frames.stream.key.tags {
        let of_tags = format!("{key}_tag");
        let names = [key.clone(), of_tags.clone(), with_checksum(&of_tags, key, usize::MAX)];
        place::<D>(&mut plan, columns, &names, Field::Tag(key.clone()), D::TAG)?;
    }
    for (at, index) in frames.channels.iter().enumerate() {
        let name = &frames.stream.layout.channels[index.0 as usize].name;
        // The batch may be wider than the layout, if the channel was widened in between.
        let column_type = D::of_channel(frames.batch.columns[at].values.channel_type());
        let by_suffix = format!("{name}_{}", D::suffix(column_type));
        // No other name becomes this one there, and no other type.
        let exact = with_checksum(&format!("{name}_{}", plain(&D::type_name(column_type))), name, usize::MAX);
        let names = [name.clone(), by_suffix, format!("{name}_field"), exact];
        place::<D>(&mut plan, columns, &names, Field::Channel(at), column_type)?;
    }
    Ok(plan)
}

/// Plans the columns of all frames for a table. Returns the places of each, and the changes that the table needs.
///
/// # Errors
/// As [`plan`].
pub(crate) fn plan_all<D: Dialect>(parts: &[&StreamFrames], columns: &mut Columns<D>) -> Result<Plans<D>, String> {
    let (mut plans, mut changes) = (Vec::with_capacity(parts.len()), Vec::new());
    for part in parts {
        let mut plan = plan::<D>(part, columns)?;
        changes.append(&mut plan.changes);
        plans.push(plan.places);
    }
    // Frames further on may have widened a column.
    let typed = |(name, field): (String, Field)| {
        let column_type = columns.get(&D::key(&name))?.column_type?;
        Some((name, field, column_type))
    };
    Ok((plans.into_iter().map(|places| places.into_iter().filter_map(typed).collect()).collect(), changes))
}

/// Returns the name of a type as part of another name.
fn plain(type_name: &str) -> String {
    type_name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Finds a column for values, under the first of the names that can be had.
fn place<D: Dialect>(
    plan: &mut Plan<D::Type>,
    columns: &mut Columns<D>,
    names: &[String],
    field: Field,
    wanted: D::Type,
) -> Result<(), String> {
    let is_tag = matches!(field, Field::Tag(_));
    for name in names {
        let name = D::column_name(name);
        let key = D::key(&name);
        let is_of_all = D::FIXED.iter().any(|(fixed, of, _)| *fixed == key && *of != field);
        if is_of_all || plan.taken.contains(&key) {
            continue;
        }
        let name = match columns.get_mut(&key) {
            None => {
                columns.insert(key.clone(), Have { name: name.clone(), column_type: Some(wanted), is_tag });
                plan.changes.push(Change::Add { name: name.clone(), column_type: wanted, is_tag });
                name
            }
            Some(Have { name, column_type: Some(have), is_tag: tag }) if *tag == is_tag => {
                if !D::holds(*have, wanted) {
                    if !D::WIDENS || !D::holds(wanted, *have) {
                        continue;
                    }
                    *have = wanted;
                    plan.changes.push(Change::Widen { name: name.clone(), column_type: wanted });
                }
                name.clone()
            }
            Some(_) => continue,
        };
        plan.taken.insert(key);
        plan.places.push((name, field));
        return Ok(());
    }
    let have = columns.get(&D::key(&D::column_name(&names[0]))).and_then(|column| column.column_type);
    let have = have.map_or_else(|| "another type".to_owned(), D::type_name);
    Err(format!("column {:?} is {have} and cannot hold {}", names[0], D::type_name(wanted)))
}

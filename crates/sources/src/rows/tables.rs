//! Reads files of rows: CSV with a header, and JSON lines.

use std::collections::HashMap;
use std::io::BufRead;

use strongback_store::StreamKey;
use strongback_store::rdl::nearest;

use super::csv::Record;
use super::intake::RowReceiver;
use super::json::{self, Member, Members};
use super::lines::Lines;
use super::stamp::{self, TimeUnit, time_column};
use super::target::{ChannelRequest, name_and_unit, type_word};
use super::{Cell, FilePlace, RowError, Written};

/// First columns of an exported CSV file; `stream` is left out if the other columns name their streams.
const EXPORT_LEAD: [&str; 4] = ["time", "time_ns", "stream", "gap"];

/// Role of a column in a CSV file.
enum Role {
    Time(Option<TimeUnit>),
    /// Another form of the time, which is ignored.
    Passed,
    Stream,
    Gap,
    /// Channel name, in a file with one value per row.
    Name,
    /// Value, in a file with one value per row.
    Value,
    /// Values of a channel.
    Channel {
        name: String,
        unit: String,
    },
}

/// Chooses the time among names: the requested one, or else one in nanoseconds, or else the first.
fn choose_time<'n>(
    names: impl Iterator<Item = (usize, &'n str)>,
    asked: Option<&str>,
) -> Option<(usize, Option<TimeUnit>)> {
    let mut found = None;
    for (at, name) in names {
        let unit = match (asked, time_column(name)) {
            (Some(asked), unit) if asked == name => return Some((at, unit.flatten())),
            (None, Some(unit)) => unit,
            _ => continue,
        };
        if found.is_none() || unit == Some(TimeUnit::Ns) && !matches!(found, Some((_, Some(TimeUnit::Ns)))) {
            found = Some((at, unit));
        }
    }
    found
}

/// Returns the role of each column in a CSV header.
fn roles(header: &Record, intake: &RowReceiver<'_>) -> Result<Vec<Role>, RowError> {
    let cells: Vec<(&str, FilePlace)> = (0..header.len()).map(|i| header.cell(i)).collect();
    let config = intake.config();
    let first = cells.first().map_or(FilePlace { line: 1, column: 1 }, |(_, place)| *place);
    let time = choose_time(cells.iter().map(|(text, _)| text.trim()).enumerate(), config.time_column.as_deref());
    let Some((time, unit)) = time else {
        let names = || cells.iter().map(|(text, _)| text.trim());
        return Err(intake.header_error(
            first,
            match &config.time_column {
                Some(asked) => format!("there is no column {asked:?}{}", nearest(asked, names())),
                None => "no column is named time, time_ns, timestamp …: say which is the time by --time-column".into(),
            },
        ));
    };
    let has = |wanted: &str| cells.iter().any(|(text, _)| text.trim().eq_ignore_ascii_case(wanted));
    let (one_a_row, names_streams) = (has("channel") && has("value"), has("stream"));
    // Elsewhere a column `gap` is a channel like any other.
    let lead = |at: usize| cells.get(at).map(|(text, _)| text.trim());
    let names_stream = lead(2) == Some("stream");
    let export_lead = EXPORT_LEAD.iter().filter(|name| names_stream || **name != "stream");
    let is_export = export_lead.enumerate().all(|(at, name)| lead(at) == Some(name));
    let mut roles: Vec<Role> = Vec::new();
    for (at, (text, place)) in cells.iter().enumerate() {
        let (name, column_unit) = name_and_unit(text);
        let lower = name.to_ascii_lowercase();
        let role = match lower.as_str() {
            _ if at == time => Role::Time(config.time_unit.or(unit)),
            "time" | "time_ns" => Role::Passed,
            "stream" => Role::Stream,
            "gap" if is_export && at == 2 + usize::from(names_stream) => Role::Gap,
            "channel" if one_a_row => Role::Name,
            "value" if one_a_row => Role::Value,
            "" => return Err(intake.header_error(*place, format!("column {} has no name", at + 1))),
            _ if one_a_row => Role::Passed,
            _ => Role::Channel { name: name.to_owned(), unit: column_unit.to_owned() },
        };
        // Channels of two streams can have one full name. Then each row names its stream.
        let twice = roles.iter().any(|other| match (other, &role) {
            (Role::Channel { name: other, .. }, Role::Channel { name, .. }) => !names_streams && other == name,
            (Role::Stream, Role::Stream) => true,
            (Role::Name, Role::Name) | (Role::Value, Role::Value) => true,
            _ => false,
        });
        if twice {
            return Err(intake.header_error(*place, format!("there are two columns {name:?}")));
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Targets of one stream's columns; `None` if not looked up yet.
type ByColumn = Vec<Option<Option<usize>>>;

/// Reads CSV.
pub(super) fn read_csv(lines: &mut Lines<impl BufRead>, intake: &mut RowReceiver<'_>) -> Result<(), RowError> {
    let mut record = Record::default();
    let top = FilePlace { line: 1, column: 1 };
    match record.read(lines) {
        None => return Err(intake.header_error(top, "the file is empty; the first line must name the columns")),
        Some(Err((place, reason))) => return Err(intake.header_error(place, reason)),
        Some(Ok(())) => {}
    }
    let roles = roles(&record, intake)?;
    let is = |wanted: fn(&Role) -> bool| roles.iter().position(wanted);
    let stream_at = is(|role| matches!(role, Role::Stream));
    let gap_at = is(|role| matches!(role, Role::Gap));
    let one_a_row = is(|role| matches!(role, Role::Name)).zip(is(|role| matches!(role, Role::Value)));
    let mut by_stream: HashMap<String, ByColumn> = HashMap::new();
    if stream_at.is_none() && one_a_row.is_none() {
        // Look up all columns at once, so that errors in the header are reported before anything is stored.
        let mut columns = vec![None; roles.len()];
        for (at, role) in roles.iter().enumerate() {
            if let Role::Channel { name, unit } = role {
                let found = intake.target(None, name).map_err(|why| intake.header_error(record.cell(at).1, why))?;
                if let Some(target) = found {
                    intake.describe(target, None, unit, "");
                }
                columns[at] = Some(found);
            }
        }
        if columns.iter().all(|column| !matches!(column, Some(Some(_)))) {
            return Err(intake.header_error(top, "no column is a channel that was asked for"));
        }
        by_stream.insert(String::new(), columns);
    }
    loop {
        match record.read(lines) {
            None => return Ok(()),
            Some(Err((place, reason))) => {
                if intake.begins(place.line, lines.bytes()) {
                    intake.bad_row(place, reason);
                }
                continue;
            }
            Some(Ok(())) => {}
        }
        let (first, place) = record.cell(0);
        if record.len() == 1 && first.trim().is_empty() || !intake.begins(place.line, lines.bytes()) {
            continue;
        }
        // A trailing comma starts a cell without a column. An empty one is ignored.
        let ends_with_comma = record.len() == roles.len() + 1 && record.cell(roles.len()).0.trim().is_empty();
        if record.len() != roles.len() && !ends_with_comma {
            intake.bad_row(place, format!("{} cells, and the header has {}", record.len(), roles.len()));
            continue;
        }
        if let Some(at) = gap_at.filter(|at| !record.cell(*at).0.is_empty()) {
            let place = record.cell(at).1;
            match (at + 1..roles.len()).all(|at| record.cell(at).0.is_empty()) {
                true => intake.empty_row(),
                false => intake.bad_row(place, "a row that describes a gap has no values".to_owned()),
            }
            continue;
        }
        let row = csv_row(&record, &roles, stream_at, one_a_row, &mut by_stream, intake);
        let (time, cells) = match row {
            Ok(row) => row,
            Err((place, reason)) => {
                intake.bad_row(place, reason);
                continue;
            }
        };
        if one_a_row.is_some() && cells.is_none() {
            intake.ignored_row();
            continue;
        }
        if intake.row(place.line, time, &cells.unwrap_or_default())?.is_break() {
            return Ok(());
        }
    }
}

type Row<'r> = (i64, Option<Vec<(usize, FilePlace, Cell<'r>)>>);

/// Returns time and cells of a record, or no cells at all if its only channel was not selected.
fn csv_row<'r>(
    record: &'r Record,
    roles: &[Role],
    stream_at: Option<usize>,
    one_a_row: Option<(usize, usize)>,
    by_stream: &mut HashMap<String, ByColumn>,
    intake: &mut RowReceiver<'_>,
) -> Result<Row<'r>, (FilePlace, String)> {
    let mut time = 0;
    for (at, role) in roles.iter().enumerate() {
        if let Role::Time(unit) = role {
            let (text, place) = record.cell(at);
            time = stamp::parse(text, *unit).map_err(|reason| (place, reason))?;
        }
    }
    let stream = stream_at.map(|at| record.cell(at));
    if let Some((text, place)) = stream
        && text.is_empty()
    {
        return Err((place, "the row names no stream".to_owned()));
    }
    let stream = stream.map(|(text, _)| text);
    if let Some((name_at, value_at)) = one_a_row {
        let ((name, name_place), (value, place)) = (record.cell(name_at), record.cell(value_at));
        let target = intake.target(stream, name.trim()).map_err(|reason| (name_place, reason))?;
        let Some(target) = target else { return Ok((time, None)) };
        let cell = (target, place, Cell::Written(value, Written::Bare));
        return Ok((time, Some(if record.is_absent(value_at) { Vec::new() } else { vec![cell] })));
    }
    let name = stream.unwrap_or_default();
    if !by_stream.contains_key(name) {
        by_stream.insert(name.to_owned(), vec![None; roles.len()]);
    }
    let Some(columns) = by_stream.get_mut(name) else { return Ok((time, Some(Vec::new()))) };
    let mut cells = Vec::new();
    for (at, role) in roles.iter().enumerate() {
        let Role::Channel { name, unit } = role else { continue };
        let (text, place) = record.cell(at);
        if record.is_absent(at) {
            continue;
        }
        let found = match columns[at] {
            Some(found) => found,
            None => {
                let found = intake.target(stream, name).map_err(|reason| (place, reason))?;
                if let Some(target) = found {
                    intake.describe(target, None, unit, "");
                }
                *columns[at].insert(found)
            }
        };
        if let Some(target) = found {
            cells.push((target, place, Cell::Written(text, Written::Bare)));
        }
    }
    Ok((time, Some(cells)))
}

/// Reads JSON lines.
pub(super) fn read_jsonl(lines: &mut Lines<impl BufRead>, intake: &mut RowReceiver<'_>) -> Result<(), RowError> {
    while let Some(line) = lines.next() {
        let number = lines.number();
        let line = match line {
            Ok(line) => line,
            Err((place, reason)) => {
                if intake.begins(number, lines.bytes()) {
                    intake.bad_row(place, reason);
                }
                continue;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        let members = json::object(&line, number);
        if let Ok(members) = &members
            && let Some(channels) = channels_line(members)
        {
            channels.iter().for_each(|channel| describe(channel, intake));
            continue;
        }
        if !intake.begins(number, lines.bytes()) {
            continue;
        }
        let members = match members {
            Ok(members) => members,
            Err((place, reason)) => {
                intake.bad_row(place, reason);
                continue;
            }
        };
        if is_gap(&members) {
            intake.empty_row();
            continue;
        }
        let here = FilePlace { line: number, column: 1 };
        match json_row(&members, here, intake) {
            Ok((_, None)) => intake.ignored_row(),
            Ok((time, Some(cells))) => {
                if intake.row(number, time, &cells)?.is_break() {
                    return Ok(());
                }
            }
            Err((place, reason)) => intake.bad_row(place, reason),
        }
    }
    Ok(())
}

fn member<'m>(members: &'m Members, key: &str) -> Option<(FilePlace, &'m Member)> {
    members.iter().find(|(name, ..)| name == key).map(|(_, place, member)| (*place, member))
}

fn text_of<'m>(members: &'m Members, key: &str) -> Option<&'m str> {
    match member(members, key) {
        Some((_, Member::Scalar(text, Written::Text))) => Some(text),
        _ => None,
    }
}

/// Returns whether a line describes a gap, as exports write it. Others may have a channel named `type`.
fn is_gap(members: &Members) -> bool {
    let has = |key| member(members, key).is_some();
    text_of(members, "type") == Some("gap") && has("from_time_ns") && has("to_time_ns") && !has("time_ns")
}

/// Returns the channels of a line that describes them.
fn channels_line(members: &Members) -> Option<&Vec<Members>> {
    match member(members, "channels") {
        Some((_, Member::List(channels))) if text_of(members, "type") == Some("channels") => Some(channels),
        _ => None,
    }
}

fn describe(channel: &Members, intake: &mut RowReceiver<'_>) {
    let text = |key| text_of(channel, key).unwrap_or_default();
    // If the stream cannot be determined, the error is reported at the channel's values.
    let wanted = ChannelRequest {
        stream: text_of(channel, "stream").map(StreamKey::parse),
        name: text("name").to_owned(),
        kind: type_word(text("type")),
        unit: text("unit").to_owned(),
        description: text("description").to_owned(),
    };
    let _ = intake.place_target(wanted);
}

fn json_row<'m>(
    members: &'m Members,
    here: FilePlace,
    intake: &mut RowReceiver<'_>,
) -> Result<Row<'m>, (FilePlace, String)> {
    let asked = intake.config().time_column.clone();
    let names = members.iter().map(|(name, ..)| name.as_str()).enumerate();
    let Some((time_at, unit)) = choose_time(names, asked.as_deref()) else {
        return Err((here, format!("no key {}", asked.as_deref().unwrap_or("time, time_ns, timestamp …"))));
    };
    let (_, place, time) = &members[time_at];
    let Member::Scalar(text, _) = time else { return Err((*place, "not a time".to_owned())) };
    let time = stamp::parse(text, intake.config().time_unit.or(unit)).map_err(|reason| (*place, reason))?;
    let stream = text_of(members, "stream");
    if let (Some(name), Some((place, value))) = (text_of(members, "channel"), member(members, "value")) {
        let target = intake.target(stream, name).map_err(|reason| (here, reason))?;
        let Some(target) = target else { return Ok((time, None)) };
        return Ok((time, Some(value.cell().map(|cell| (target, place, cell)).into_iter().collect())));
    }
    let (values, is_inner) = match member(members, "values") {
        Some((_, Member::Object(values))) => (values, true),
        _ => (members, false),
    };
    let (mut cells, mut asked_for) = (Vec::new(), false);
    for (at, (name, place, value)) in values.iter().enumerate() {
        let is_type = name == "type" && text_of(members, "type") == Some("frame");
        let is_frame =
            !is_inner && (at == time_at || is_type || matches!(name.as_str(), "time" | "time_ns" | "stream"));
        if is_frame || *value == Member::Null {
            continue;
        }
        let Some(target) = intake.target(stream, name).map_err(|reason| (*place, reason))? else { continue };
        asked_for = true;
        match value.cell() {
            Some(cell) => cells.push((target, *place, cell)),
            None => {
                return Err((
                    *place,
                    format!("{name} is neither a number, a text, true nor false, nor an array of these"),
                ));
            }
        }
    }
    let nothing = !asked_for && !intake.config().names.is_empty();
    Ok((time, if nothing { None } else { Some(cells) }))
}

//! Logs of a CAN bus (`candump -l`), decoded with a database (DBC).
//!
//! A message becomes a stream `NAME{bus=can0}`, or `NAME{bus=can0,source=3}` for SAE J1939, because several control
//! units may send the same message. Its signals are channels: integers if the database scales them by 1, otherwise
//! doubles. Values that J1939 marks as not available or in error are stored as unknown.

mod candump;
mod database;

use std::collections::HashMap;
use std::io::BufRead;

use strongback_store::StreamKey;

use crate::rows::{Cell, ChannelRequest, FilePlace, Lines, RowError, RowReceiver};

pub use database::{Database, DatabaseError};

/// Maximum streams of one log.
const STREAMS_MAX: usize = 65_536;

/// Reads a log.
pub(crate) fn read_log(
    lines: &mut Lines<impl BufRead>,
    database: &Database,
    intake: &mut RowReceiver<'_>,
) -> Result<(), RowError> {
    // Targets of each signal, by message, bus and source address.
    let mut targets: HashMap<(usize, String, Option<u8>), Vec<Option<usize>>> = HashMap::new();
    let mut values = Vec::new();
    while let Some(line) = lines.next() {
        let number = lines.number();
        if line.as_ref().is_ok_and(|line| line.trim().is_empty()) || !intake.begins(number, lines.bytes()) {
            continue;
        }
        let frame = line.and_then(|line| {
            let read = candump::read(&line).map(|(time, bus, frame)| (time, bus.to_owned(), frame));
            read.map_err(|(column, reason)| (FilePlace { line: number, column }, reason))
        });
        let (time, bus, frame) = match frame {
            Ok(frame) => frame,
            Err((place, reason)) => {
                intake.bad_row(place, reason);
                continue;
            }
        };
        let Some(message) = database.find(frame.id).filter(|_| !frame.is_remote) else {
            intake.ignored_row();
            continue;
        };
        let definition = database.message(message);
        let source = definition.is_j1939.then_some(frame.id.number() as u8);
        let key = (message, bus, source);
        if !targets.contains_key(&key) {
            let here = FilePlace { line: number, column: 1 };
            if targets.len() >= STREAMS_MAX {
                return Err(intake.header_error(here, format!("more than {STREAMS_MAX} streams")));
            }
            let mut tags = vec![("bus".to_owned(), key.1.clone())];
            tags.extend(source.map(|address| ("source".to_owned(), address.to_string())));
            let stream = StreamKey::new(definition.name.clone(), tags);
            let found: Result<Vec<Option<usize>>, String> = definition
                .signals
                .iter()
                .map(|signal| {
                    intake.place_target(ChannelRequest {
                        stream: Some(stream.clone()),
                        name: signal.name.clone(),
                        kind: Some(signal.kind),
                        unit: signal.unit.clone(),
                        description: signal.description.clone(),
                    })
                })
                .collect();
            let found = found.map_err(|reason| intake.header_error(here, reason))?;
            targets.insert(key.clone(), found);
        }
        let Some(targets) = targets.get(&key) else { continue };
        if targets.iter().all(Option::is_none) {
            intake.ignored_row();
            continue;
        }
        values.clear();
        definition.decode(&frame.data, &mut values);
        let place = FilePlace { line: number, column: 1 };
        let cells: Vec<(usize, FilePlace, Cell<'_>)> =
            values.iter().filter_map(|(signal, cell)| Some((targets[*signal]?, place, *cell))).collect();
        if intake.row(number, time, &cells)?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Identifier of a CAN frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CanId {
    /// Identifier of 11 bits.
    Standard(u32),
    /// Identifier of 29 bits.
    Extended(u32),
}

impl CanId {
    /// Returns the identifier as a number.
    pub(crate) fn number(self) -> u32 {
        match self {
            CanId::Standard(id) | CanId::Extended(id) => id,
        }
    }
}

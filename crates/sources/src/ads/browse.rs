//! Lists the symbols of a PLC once, for the command line.

use super::connection::{Arrival, Connection, Lost};
use super::counts::AdsCounts;
use super::layout::PlcAddress;
use super::leaf::{Arrays, Leaf, Skipped, Splitting};
use super::pattern;
use super::program::{self, Asking, Halt, Surroundings};
use super::table::{DataTypes, Symbols};
use super::wire::{AnswerError, DeviceInfo};
use crate::clock::wall_clock;

/// Reason why a PLC's symbols cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    /// An unreachable PLC.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// A port with no program.
    #[error("{host}: AMS port {port}: {source}; the first PLC of TwinCAT 3 has 851, that of TwinCAT 2 801")]
    NoProgram {
        /// Host of the PLC.
        host: String,
        /// AMS port.
        port: u16,
        /// Error from the router.
        source: super::error::AdsError,
    },
    /// A program that uploads no symbols.
    #[error("{host}: AMS port {port}: the symbols cannot be uploaded: {why}")]
    NoTable {
        /// Host of the PLC.
        host: String,
        /// AMS port.
        port: u16,
        /// Cause.
        why: String,
    },
}

/// Symbols of a PLC.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The program.
    pub device: DeviceInfo,
    /// Number of symbols in the table, before they are split into leaves.
    pub symbols: u32,
    /// Values, in table order.
    pub leaves: Vec<Leaf>,
    /// Parts that cannot be read, each with the reason.
    pub skipped: Vec<Skipped>,
    /// Damage in the uploaded tables, if any. Entries after the damage are missing from this listing.
    pub damage: Option<String>,
}

#[derive(Default)]
struct PendingRequest {
    outcome: Option<Result<Vec<u8>, AnswerError>>,
}

impl Asking<()> for PendingRequest {
    fn tag(&mut self) {}

    fn take(&mut self, arrival: Arrival<'_, ()>, _: i64) {
        if let Arrival::Answer { result, .. } = arrival {
            self.outcome = Some(result.map(<[u8]>::to_vec));
        }
    }

    fn outcome(&mut self) -> Option<Result<Vec<u8>, AnswerError>> {
        self.outcome.take()
    }
}

/// Lists the values whose names match a pattern.
///
/// # Errors
/// If the PLC cannot be reached or has no symbol table.
pub fn browse(target: &PlcAddress, filter: &str, arrays: Arrays) -> Result<Listing, BrowseError> {
    let (counts, now) = (AdsCounts::default(), wall_clock());
    let around = Surroundings { wake: None, counts: &counts, now: &now, timeout: target.timeout };
    let halted = |halt| match halt {
        Halt::Lost(lost) => BrowseError::Lost(lost),
        // Unreachable: there is no wake pipe.
        Halt::Stopped => BrowseError::Lost(Lost::Closed { host: target.host.clone() }),
    };
    let mut connection = Connection::open(target)?;
    let mut waiting = PendingRequest::default();
    let (host, port) = (target.host.clone(), target.port);
    let device = match program::greet(&mut connection, &around, &mut waiting, port).map_err(halted)? {
        Ok(device) => device,
        Err(source) => return Err(BrowseError::NoProgram { host, port, source }),
    };
    let program = match program::upload(&mut connection, &around, &mut waiting, port).map_err(halted)? {
        Ok(program) => program,
        Err(none) => return Err(BrowseError::NoTable { host, port, why: none.why }),
    };
    let (types, mut damage) = DataTypes::read(&program.types);
    let mut splitting = Splitting::new(&types);
    splitting.arrays(arrays);
    let (mut leaves, mut skipped) = (Vec::new(), Vec::new());
    for symbol in Symbols::new(&program.symbols) {
        let symbol = match symbol {
            Ok(symbol) => symbol,
            Err(error) => {
                damage = Some(error);
                break;
            }
        };
        if !pattern::can_match(filter, &symbol.name) {
            continue;
        }
        splitting.split(&symbol, &mut |leaf| match leaf {
            Ok(leaf) if pattern::matches(filter, &leaf.name) => leaves.push(leaf),
            Err(part) if pattern::matches(filter, &part.name) => skipped.push(part),
            _ => {}
        });
    }
    let damage = damage.map(|error| error.to_string());
    Ok(Listing { device, symbols: program.info.symbols, leaves, skipped, damage })
}

//! The simulated launch pad: real protocols on real sockets, at a real pad's rates.
//!
//! It knows nothing of the store or the server; they know it only through the data it sends.
//!
//! ```text
//!  countdown → plant → sensors ─┬→ inetx packets → UDP ─┐
//!                               ├→ lines → TCP ─────────┼→ [sources] → …
//!                               └→ PLC ← ADS requests ──┘
//! ```
//!
//! Read first: [`Pad`] (frames without sockets, for tests and benchmarks), [`run_pad`] (the command), [`pad_config`]
//! (the server's configuration for it), [`PlcServer`] (its PLC as an ADS device).
//!
//! Invariants:
//! - the same seed gives the same frames, cell by cell, on every machine;
//! - every sensor is `code · lsb + offset` of a 12- or 16-bit code, with at least 2 steps rms of noise;
//! - packets are only lost on purpose, whole, at least 3 s apart in a stream, and counted;
//! - a slow or absent receiver never delays another source: frames that cannot be sent are dropped and counted.
//!
//! ```
//! use strongback_sim::{Pad, PadOptions};
//! let mut pad = Pad::new(PadOptions::default());
//! let mut points = 0;
//! pad.frames(1.0, |_, _, cells| points += cells.len());
//! assert_eq!(points, 68_500);
//! ```

#![forbid(unsafe_code)]

mod ads;
mod avionics;
mod channel;
mod countdown;
mod events;
mod faults;
mod fti;
mod inetx;
mod line;
mod noise;
mod pad;
mod plant;
mod plc;
mod report;
mod run;
mod sensor;
mod settings;
mod uplink;

pub use ads::{CycleUnit, PlcOptions, PlcReport, PlcServer};
pub use channel::{Cell, CellType, PadChannel, PadSource, PadStream};
pub use countdown::{Level, PadEvent};
pub use faults::{FaultsArgs, FaultsReport, Listening, RelayReport, Tally, run_faults, run_faults_until};
pub use line::LineWriter;
pub use pad::{Pad, PadFrame, PadOptions, PadStep, STEP_NS, Spike};
pub use report::{GapMade, PadReport, SourceReport};
pub use run::{PadArgs, PlcArgs, run_pad, run_pad_until};
pub use settings::{FTI_ADDRESS, launch_view, pad_config, pad_config_at, plc_config};

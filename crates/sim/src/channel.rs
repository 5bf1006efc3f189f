//! Channels and streams as the pad sends them.

use crate::noise::{Drift, Random};
use crate::plant::Plant;
use crate::sensor::Sensor;

/// System of the pad that sends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PadSource {
    /// Flight test instrumentation: iNET-X over UDP.
    Fti,
    /// Avionics: line protocol, 25 Hz.
    Avionics,
    /// PLC groups: line protocol, 10 Hz.
    Plc,
    /// Fast PLC channels: line protocol, 1 kHz.
    PlcFast,
}

impl PadSource {
    /// All systems.
    pub const ALL: [PadSource; 4] = [PadSource::Fti, PadSource::Avionics, PadSource::Plc, PadSource::PlcFast];

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            PadSource::Fti => "fti",
            PadSource::Avionics => "avionics",
            PadSource::Plc => "plc",
            PadSource::PlcFast => "plc_fast",
        }
    }
}

/// Type of a channel's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellType {
    /// f32, quantised or a set-point.
    F32,
    /// f64.
    F64,
    /// i64.
    I64,
    /// Boolean.
    Bool,
    /// Text.
    Text,
}

/// One value as the pad sends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A quantised sensor: the converter's code and its engineering value.
    Quantised {
        /// Code of the converter.
        code: u32,
        /// `code · lsb + offset` in f64, rounded to f32.
        value: f32,
    },
    /// An exact number, for instance a set-point.
    F32(f32),
    /// A double.
    F64(f64),
    /// An integer.
    I64(i64),
    /// A boolean.
    Bool(bool),
    /// A word of an enumeration.
    Text(&'static str),
}

/// Source of a channel's values.
#[derive(Clone, Debug)]
pub(crate) enum Feed {
    Sensor(Sensor),
    Exact(fn(&Plant) -> f64),
    Double(fn(&Plant) -> f64),
    /// A double in steps of 1 / `per_unit`, with wander and noise in the same steps.
    Fix {
        base: fn(&Plant) -> f64,
        per_unit: f64,
        drift: Drift,
        noise: f64,
    },
    Flag(fn(&Plant) -> bool),
    Word(fn(&Plant) -> &'static str),
    /// Number of frames the stream has sent, plus a start.
    Count(i64),
    Command(usize),
    Opened(usize),
    Closed(usize),
}

impl Feed {
    fn cell_type(&self) -> CellType {
        match self {
            Feed::Sensor(_) | Feed::Exact(_) => CellType::F32,
            Feed::Double(_) | Feed::Fix { .. } => CellType::F64,
            Feed::Count(_) => CellType::I64,
            Feed::Flag(_) | Feed::Command(_) | Feed::Opened(_) | Feed::Closed(_) => CellType::Bool,
            Feed::Word(_) => CellType::Text,
        }
    }
}

/// Channel of the pad.
#[derive(Clone, Debug)]
pub struct PadChannel {
    /// Name within its stream.
    pub name: String,
    /// Unit as displayed; empty if none.
    pub unit: &'static str,
    /// Description for people.
    pub description: String,
    /// Type of the values.
    pub cell_type: CellType,
    /// Name pattern of the channels in its table that share unit and description with it.
    pub(crate) group: String,
    pub(crate) feed: Feed,
}

impl PadChannel {
    /// Returns the bits of its converter and the polynomial from code to value, if it is a quantised sensor.
    pub fn converter(&self) -> Option<(u32, [f64; 2])> {
        match &self.feed {
            Feed::Sensor(sensor) => Some((sensor.bits(), sensor.polynomial())),
            _ => None,
        }
    }
}

/// Stream of the pad: a table with tags, and its channels.
#[derive(Clone, Debug)]
pub struct PadStream {
    /// Table (measurement) that it is written to.
    pub table: String,
    /// Tags.
    pub tags: Vec<(&'static str, String)>,
    /// System that sends it.
    pub source: PadSource,
    /// Nominal time between two frames.
    pub period_ns: i64,
    /// Channels of the stream.
    pub channels: Vec<PadChannel>,
    /// Period of its frames in steps of 5 ms: it sends in steps `phase + n · every`.
    pub(crate) every: u64,
    pub(crate) phase: u64,
    /// Number of frames in each of those steps.
    pub(crate) burst: u32,
    /// iNET-X stream id.
    pub(crate) inetx_id: Option<u32>,
    /// Max time between a sample's stamp and its sending.
    pub(crate) jitter_ns: i64,
    pub(crate) random: Random,
    pub(crate) frames: u64,
}

impl PadStream {
    /// Returns its iNET-X stream id and the frames in each packet, if it is sent as iNET-X.
    pub fn packet(&self) -> Option<(u32, u32)> {
        self.inetx_id.map(|id| (id, self.burst))
    }

    pub(crate) fn new(table: &str, source: PadSource, steps_hz: (u64, u64), random: Random) -> Self {
        let (every, phase) = steps_hz;
        PadStream {
            table: table.into(),
            tags: Vec::new(),
            source,
            period_ns: every as i64 * crate::plant::STEP_MS * 1_000_000,
            channels: Vec::new(),
            every,
            phase,
            burst: 1,
            inetx_id: None,
            jitter_ns: 0,
            random,
            frames: 0,
        }
    }

    pub(crate) fn tagged(mut self, key: &'static str, value: impl ToString) -> Self {
        self.tags.push((key, value.to_string()));
        self
    }

    pub(crate) fn jitter(mut self, jitter_ns: i64) -> Self {
        self.jitter_ns = jitter_ns;
        self
    }

    /// Adds a channel that shares its unit and description with no other.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, description: &str, feed: Feed) {
        self.add_of(name.into(), name.into(), unit, description, feed);
    }

    /// Adds a channel of a group of similar ones.
    pub(crate) fn add_of(&mut self, name: String, group: String, unit: &'static str, description: &str, feed: Feed) {
        debug_assert!(self.channels.iter().all(|c| c.name != name), "{name} twice in {}", self.table);
        let cell_type = feed.cell_type();
        let description = description.to_string();
        self.channels.push(PadChannel { name, unit, description, cell_type, group, feed });
    }

    /// Appends one frame: a cell for each channel. `push` is added to the signal of one channel.
    pub(crate) fn frame(&mut self, plant: &Plant, part: f64, push: Option<(usize, f64)>, cells: &mut Vec<Cell>) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            cells.push(match &mut channel.feed {
                Feed::Sensor(sensor) => {
                    let push = push.filter(|(at, _)| *at == index).map_or(0.0, |(_, push)| push);
                    let sample = sensor.sample(plant, part, push, &mut self.random);
                    Cell::Quantised { code: sample.code, value: sample.value }
                }
                Feed::Exact(value) => Cell::F32(value(plant) as f32),
                Feed::Double(value) => Cell::F64(value(plant)),
                Feed::Fix { base, per_unit, drift, noise } => {
                    let off = drift.step(&mut self.random) + *noise * self.random.normal();
                    Cell::F64((base(plant) * *per_unit + off).round() / *per_unit)
                }
                Feed::Flag(flag) => Cell::Bool(flag(plant)),
                Feed::Word(word) => Cell::Text(word(plant)),
                Feed::Count(start) => Cell::I64(*start + self.frames as i64),
                Feed::Command(valve) => Cell::Bool(plant.valves[*valve].command),
                Feed::Opened(valve) => Cell::Bool(plant.valves[*valve].is_open()),
                Feed::Closed(valve) => Cell::Bool(plant.valves[*valve].is_closed()),
            });
        }
        self.frames += 1;
    }
}

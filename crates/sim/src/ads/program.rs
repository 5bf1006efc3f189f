//! The program of the pad's PLC: its symbols, and the values each cycle of 1 ms writes to them.
//!
//! | symbols | period | contents |
//! |---|---|---|
//! | `MAIN.<group>.<channel>` | 100 ms | the 1,000 channels of the nine groups |
//! | `MAIN.<group>.tank`, `MAIN.tanks`, `MAIN.gse.load`, `MAIN.thermocouples.raw` | 100 ms | same values, grouped |
//! | `MAIN.task.*` | 1 ms | times of the task |
//! | `FAST.cycle`, `FAST.strain_0001` … `FAST.strain_0998`, `FAST.cycle_end` | 1 ms | 1,000 adjacent values |
//! | `FAST.<channel>` | 1 ms | the 50 channels of the fast group, behind them |
//! | `HMI.*` | never | flags (%M) that only clients write |
//!
//! Cycle `n` holds frame `n` of the fast group, from 1, and for each other group the newest frame whose step of 5 ms
//! ended with or before it; `FAST.cycle` is `n`.

use std::sync::Arc;

use super::image::Image;
use super::symbols::{Layout, SymbolTable};
use super::types::{Enumeration, PlcType, Scalar, Structure};
use super::wire::group;
use crate::channel::{Cell, CellType, PadSource, PadStream};
use crate::pad::{Pad, PadOptions, PadStep, STEP_NS};
use crate::plant::{Valve, Var};

/// Number of cycles before clients are served, so that every group has sent its first frame.
pub(crate) const WARM_UP: u32 = 100;
/// Number of cycles in a step of the pad.
const STEP_CYCLES: usize = (STEP_NS / 1_000_000) as usize;
/// Number of fast values derived from the fast channels.
const STRAINS: u32 = 998;
/// 100 ns from 1601 to 1970.
const UNIX_FILE_TIME: u64 = 116_444_736_000_000_000;
/// Words of the pad's valves.
static VALVE: Enumeration = Enumeration { name: "E_Valve", values: &["CLOSED", "OPENING", "OPEN", "CLOSING"] };

/// Program that a PLC runs.
pub(crate) trait Program: Send {
    /// Returns its symbols; another table after each [`Program::change`].
    fn table(&self) -> Arc<SymbolTable>;

    /// Runs one cycle; `file_time` is its time in 100 ns since 1601.
    fn cycle(&mut self, file_time: u64, image: &mut Image);

    /// Notes that a client wrote there: presets of the program then keep the written value.
    fn written(&mut self, group: u32, offset: u32, length: u32);

    /// Loads another version of the program, in which symbols move. Returns its memory, all zero.
    fn change(&mut self) -> Image;
}

/// Place of a channel in memory.
#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: u32,
    kind: SlotKind,
    /// Whether a client has overwritten the set-point.
    held: bool,
    /// Copy of the value in an array.
    again: Again,
}

#[derive(Clone, Copy, Debug)]
enum Again {
    No,
    /// The value.
    Value(u32),
    /// The converter's code, signed.
    Code(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SlotKind {
    Real,
    /// A set-point.
    Preset,
    Lreal,
    Bool,
    Int,
    Dint,
    Valve,
    Text(u32),
    /// Symbol that this version of the program lacks.
    Gone,
}

/// Places of a tank's structure, at its own symbol and in the array of both.
#[derive(Clone, Copy, Debug)]
struct Tank {
    name: &'static str,
    table: &'static str,
    at: [u32; 2],
    vars: [Var; 6],
    changed_s: u32,
    since_ms: u32,
    fill: u8,
}

/// Places of values that the program computes in addition to the channels.
#[derive(Clone, Debug, Default)]
struct Places {
    task_cycle: u32,
    task_cycle_time: u32,
    task_uptime: u32,
    task_now: u32,
    task_now_ns: u32,
    changes: u32,
    fast_cycle: u32,
    fast_strain: u32,
    fast_cycle_end: u32,
}

/// The pad's program.
pub(crate) struct PadProgram {
    pad: Pad,
    step: PadStep,
    cycle: u32,
    changes: u32,
    table: Arc<SymbolTable>,
    slots: Vec<Vec<Slot>>,
    places: Places,
    tanks: [Tank; 2],
    tank_type: Arc<Structure>,
    strains: Vec<f32>,
}

impl PadProgram {
    pub(crate) fn new(options: PadOptions) -> Self {
        let pad = Pad::of(options, &[PadSource::Plc, PadSource::PlcFast]);
        let tank_type = tank_type();
        let tanks = [
            Tank {
                name: "LOX",
                table: "plc.lox",
                at: [0; 2],
                vars: [
                    Var::LoxLevel,
                    Var::LoxTankP,
                    Var::LoxUllageSetpoint,
                    Var::LoxLineP,
                    Var::LoxFlow,
                    Var::LoxTankT,
                ],
                changed_s: 0,
                since_ms: 0,
                fill: 0,
            },
            Tank {
                name: "Fuel",
                table: "plc.fuel",
                at: [0; 2],
                vars: [
                    Var::FuelLevel,
                    Var::FuelTankP,
                    Var::FuelUllageSetpoint,
                    Var::FuelLineP,
                    Var::FuelFlow,
                    Var::FuelTankT,
                ],
                changed_s: 0,
                since_ms: 0,
                fill: 0,
            },
        ];
        let mut program = PadProgram {
            pad,
            step: PadStep::default(),
            cycle: 0,
            changes: 0,
            table: Arc::new(Layout::default().finish(0)),
            slots: Vec::new(),
            places: Places::default(),
            tanks,
            tank_type,
            strains: vec![0.0; STRAINS as usize],
        };
        program.lay_out();
        program
    }

    /// Places all symbols of this version. A changed program has one more symbol behind the LOX group, so that all
    /// groups after it move, and one less in the last group.
    fn lay_out(&mut self) {
        let mut layout = Layout::default();
        let mut slots = vec![Vec::new(); self.pad.streams().len()];
        let changed = self.changes > 0;
        let data = group::DATA;
        let mut places = Places {
            changes: layout.place(
                data,
                "TwinCAT_SystemInfoVarList._AppInfo.OnlineChangeCnt".into(),
                Scalar::Udint,
                "Changes of the program",
            ),
            ..Places::default()
        };
        let mut task = |name: &str, kind, comment| layout.place(data, format!("MAIN.task.{name}"), kind, comment);
        places.task_cycle = task("cycle", Scalar::Udint, "Cycles of the program");
        places.task_cycle_time = task("cycle_time", Scalar::Time, "Time of a cycle");
        places.task_uptime = task("uptime", Scalar::Time, "Time in which the program ran");
        places.task_now = task("now", Scalar::DateAndTime, "Time of the cycle, UTC");
        places.task_now_ns = task("now_ns", Scalar::Lint, "Time of the cycle [ns since 1970]");
        for (index, stream) in self.pad.streams().iter().enumerate().filter(|(_, s)| s.source == PadSource::Plc) {
            let table = stream.table.replace("plc.", "MAIN.");
            slots[index] = place_channels(&mut layout, stream, &table, changed);
            if let Some(tank) = self.tanks.iter_mut().find(|t| t.table == stream.table) {
                let kind = PlcType::Structure(self.tank_type.clone());
                tank.at[0] = layout.place(data, format!("{table}.tank"), kind, "Tank");
            }
            if changed && stream.table == "plc.lox" {
                let kind = PlcType::array(Scalar::Lreal, 4);
                layout.place(data, format!("{table}.fill_rates"), kind, "Rates of filling [kg/s]");
            }
            place_array(&mut layout, stream, &table, &mut slots[index]);
        }
        let kind = PlcType::array(PlcType::Structure(self.tank_type.clone()), 2);
        let tanks = layout.place(data, "MAIN.tanks".into(), kind, "LOX and fuel");
        for (index, tank) in (0u32..).zip(&mut self.tanks) {
            tank.at[1] = tanks + index * PlcType::Structure(self.tank_type.clone()).size();
        }
        places.fast_cycle = layout.place(data, "FAST.cycle".into(), Scalar::Udint, "Cycles of the program");
        for n in 1..=STRAINS {
            let at = layout.place(data, format!("FAST.strain_{n:04}"), Scalar::Real, "Strain, every cycle [µm/m]");
            if n == 1 {
                places.fast_strain = at;
            }
        }
        places.fast_cycle_end = layout.place(data, "FAST.cycle_end".into(), Scalar::Udint, "The same as cycle");
        for (index, stream) in self.pad.streams().iter().enumerate().filter(|(_, s)| s.source == PadSource::PlcFast) {
            slots[index] = place_channels(&mut layout, stream, "FAST", changed);
        }
        place_flags(&mut layout);
        self.slots = slots;
        self.places = places;
        self.table = Arc::new(layout.finish(1u8.wrapping_add(self.changes as u8)));
    }

    fn put_system(&self, file_time: u64, image: &mut Image) {
        let p = &self.places;
        let unix = file_time.saturating_sub(UNIX_FILE_TIME);
        image.put(p.task_cycle, &self.cycle.to_le_bytes());
        image.put(p.task_cycle_time, &1u32.to_le_bytes());
        image.put(p.task_uptime, &self.cycle.to_le_bytes());
        image.put(p.task_now, &((unix / 10_000_000) as u32).to_le_bytes());
        image.put(p.task_now_ns, &(unix as i64 * 100).to_le_bytes());
        image.put(p.changes, &self.changes.to_le_bytes());
        image.put(p.fast_cycle, &self.cycle.to_le_bytes());
        image.put(p.fast_cycle_end, &self.cycle.to_le_bytes());
    }

    fn put_tank(&mut self, index: usize, file_time: u64, image: &mut Image) {
        let plant = self.pad.plant();
        let tank = &mut self.tanks[index];
        let [level, pressure, setpoint, line, flow, wall] = tank.vars.map(|var| plant.get(var));
        let (fill, vent) = match index {
            0 => (Valve::LoxFill, Valve::LoxVent),
            _ => (Valve::FuelFill, Valve::FuelVent),
        };
        let (fill, vent) = (valve_number(plant.valve(fill).word()), valve_number(plant.valve(vent).word()));
        let now_s = (file_time.saturating_sub(UNIX_FILE_TIME) / 10_000_000) as u32;
        if tank.changed_s == 0 || fill != tank.fill {
            (tank.changed_s, tank.since_ms, tank.fill) = (now_s, self.cycle, fill);
        }
        let mut bytes = vec![0; self.tank_type_size()];
        let tank = &self.tanks[index];
        let mut put = |path: &[&str], value: &[u8]| {
            if let Some(at) = member_offset(&self.tank_type, path) {
                bytes[at as usize..][..value.len()].copy_from_slice(value);
            }
        };
        put(&["level"], &level.to_le_bytes());
        put(&["pressure"], &(pressure as f32).to_le_bytes());
        put(&["setpoint"], &(setpoint as f32).to_le_bytes());
        put(&["fill"], &i16::from(fill).to_le_bytes());
        put(&["vent"], &i16::from(vent).to_le_bytes());
        put(&["filling"], &[u8::from(fill != 0)]);
        put(&["name"], tank.name.as_bytes());
        put(&["line", "pressure"], &(line as f32).to_le_bytes());
        put(&["line", "flow"], &(flow as f32).to_le_bytes());
        put(&["line", "open"], &[u8::from(fill == 2)]);
        let walls: Vec<u8> = (0..4u8).flat_map(|n| (wall as f32 + f32::from(n)).to_le_bytes()).collect();
        put(&["wall"], &walls);
        put(&["changed"], &tank.changed_s.to_le_bytes());
        put(&["since"], &self.cycle.wrapping_sub(tank.since_ms).to_le_bytes());
        for at in tank.at {
            image.put(at, &bytes);
        }
    }

    fn tank_type_size(&self) -> usize {
        PlcType::Structure(self.tank_type.clone()).size() as usize
    }

    /// Writes the strains of a cycle: the fast channels in turn, each louder than the previous, and never the same
    /// twice in a row.
    fn put_strains(&mut self, cells: &[Cell], image: &mut Image) {
        let mut bytes = [0; STRAINS as usize * 4];
        let gauges = self.strains.iter_mut().zip(cells.iter().cycle());
        for ((n, (strain, cell)), out) in gauges.enumerate().zip(bytes.chunks_exact_mut(4)) {
            let Cell::Quantised { value, .. } = cell else { continue };
            let mut next = value * (1.0 + (n + 1) as f32 / 1000.0);
            if next.to_bits() == strain.to_bits() {
                next = f32::from_bits(next.to_bits() ^ 1);
            }
            *strain = next;
            out.copy_from_slice(&next.to_le_bytes());
        }
        image.put(self.places.fast_strain, &bytes);
    }
}

impl Program for PadProgram {
    fn table(&self) -> Arc<SymbolTable> {
        self.table.clone()
    }

    fn cycle(&mut self, file_time: u64, image: &mut Image) {
        let sub = self.cycle as usize % STEP_CYCLES;
        if sub == 0 {
            self.pad.step(&mut self.step);
        }
        self.cycle = self.cycle.wrapping_add(1);
        let step = std::mem::take(&mut self.step);
        let mut fast = 0;
        for frame in &step.frames {
            let stream = &self.pad.streams()[frame.stream];
            let cells = step.cells(frame);
            if stream.source == PadSource::PlcFast {
                if fast == sub {
                    put_cells(&self.slots[frame.stream], cells, image);
                    self.put_strains(cells, image);
                }
                fast += 1;
            } else if sub == STEP_CYCLES - 1 {
                put_cells(&self.slots[frame.stream], cells, image);
                if let Some(tank) = self.tanks.iter().position(|t| t.table == stream.table) {
                    self.put_tank(tank, file_time, image);
                }
            }
        }
        self.step = step;
        self.put_system(file_time, image);
    }

    fn written(&mut self, group: u32, offset: u32, length: u32) {
        if group != group::DATA {
            return;
        }
        let end = offset.saturating_add(length);
        for slot in self.slots.iter_mut().flatten().filter(|s| s.kind == SlotKind::Preset) {
            slot.held |= slot.offset < end && offset < slot.offset + 4;
        }
    }

    fn change(&mut self) -> Image {
        self.changes = self.changes.wrapping_add(1);
        self.lay_out();
        Image::new(&self.table)
    }
}

/// Places the channels of a group as symbols.
fn place_channels(layout: &mut Layout, stream: &PadStream, table: &str, changed: bool) -> Vec<Slot> {
    let place = |channel: &crate::channel::PadChannel| {
        let (kind, plc): (SlotKind, PlcType) = match (channel.cell_type, channel.name.as_str()) {
            (_, "wind_gust") if changed => {
                return Slot { offset: 0, kind: SlotKind::Gone, held: false, again: Again::No };
            }
            (_, "attempt") => (SlotKind::Int, Scalar::Int.into()),
            (CellType::F32, name) if name.starts_with("sp_") => (SlotKind::Preset, Scalar::Real.into()),
            (CellType::F32, _) => (SlotKind::Real, Scalar::Real.into()),
            (CellType::F64, _) => (SlotKind::Lreal, Scalar::Lreal.into()),
            (CellType::I64, _) => (SlotKind::Dint, Scalar::Dint.into()),
            (CellType::Bool, _) => (SlotKind::Bool, Scalar::Bool.into()),
            (CellType::Text, name) if name.ends_with("_valve") => (SlotKind::Valve, PlcType::Enumeration(&VALVE)),
            (CellType::Text, _) => (SlotKind::Text(20), PlcType::Text(20)),
        };
        let comment = match channel.unit {
            "" => channel.description.clone(),
            unit => format!("{} [{unit}]", channel.description),
        };
        let offset = layout.place(group::DATA, format!("{table}.{}", channel.name), plc, &comment);
        Slot { offset, kind, held: false, again: Again::No }
    };
    stream.channels.iter().map(place).collect()
}

/// Places copies of the raw codes of thermocouples and all load cells as arrays.
fn place_array(layout: &mut Layout, stream: &PadStream, table: &str, slots: &mut [Slot]) {
    let (prefix, name, scalar, comment) = match stream.table.as_str() {
        "plc.thermocouples" => ("tc_", "raw", Scalar::Int, "Codes of the converters, signed"),
        "plc.gse" => ("load_", "load", Scalar::Real, "Hold-down load cells [kN]"),
        _ => return,
    };
    let of: Vec<usize> = (0..slots.len()).filter(|i| stream.channels[*i].name.starts_with(prefix)).collect();
    let kind = PlcType::array(scalar, of.len() as u32);
    let at = layout.place(group::DATA, format!("{table}.{name}"), kind, comment);
    for (n, index) in (0u32..).zip(of) {
        let at = at + n * PlcType::from(scalar).size();
        slots[index].again = if scalar == Scalar::Int { Again::Code(at) } else { Again::Value(at) };
    }
}

/// Places flags that only clients write: one of each type.
fn place_flags(layout: &mut Layout) {
    let flags: [(&str, PlcType); 11] = [
        ("enable", Scalar::Bool.into()),
        ("mode", Scalar::Int.into()),
        ("target", Scalar::Dint.into()),
        ("rate", Scalar::Real.into()),
        ("limit", Scalar::Lreal.into()),
        ("note", PlcType::Text(80)),
        ("delay", Scalar::Time.into()),
        ("until", Scalar::DateAndTime.into()),
        ("valve", PlcType::Enumeration(&VALVE)),
        ("limits", PlcType::array(Scalar::Real, 8)),
        ("line", PlcType::Structure(line_type())),
    ];
    for (name, kind) in flags {
        layout.place(group::MEMORY, format!("HMI.{name}"), kind, "Written by clients");
    }
}

fn line_type() -> Arc<Structure> {
    Structure::new(
        "ST_Line",
        vec![
            ("pressure", Scalar::Real.into(), "Line pressure [bar]"),
            ("flow", Scalar::Real.into(), "Flow [kg/s]"),
            ("open", Scalar::Bool.into(), "Open to the tank"),
        ],
    )
}

fn tank_type() -> Arc<Structure> {
    Structure::new(
        "ST_Tank",
        vec![
            ("filling", Scalar::Bool.into(), "Fill valve not closed"),
            ("level", Scalar::Lreal.into(), "Level [%]"),
            ("pressure", Scalar::Real.into(), "Ullage pressure [bar]"),
            ("setpoint", Scalar::Real.into(), "Its set-point [bar]"),
            ("fill", PlcType::Enumeration(&VALVE), "Fill valve"),
            ("vent", PlcType::Enumeration(&VALVE), "Vent valve"),
            ("name", PlcType::Text(15), "Name"),
            ("line", PlcType::Structure(line_type()), "Line"),
            ("wall", PlcType::array(Scalar::Real, 4), "Temperatures of the wall [°C]"),
            ("changed", Scalar::DateAndTime.into(), "When the fill valve changed"),
            ("since", Scalar::Time.into(), "How long ago that was"),
        ],
    )
}

/// Returns the offset of a nested member.
fn member_offset(of: &Structure, path: &[&str]) -> Option<u32> {
    let [name, rest @ ..] = path else { return Some(0) };
    let member = of.member(name)?;
    match (&member.kind, rest) {
        (_, []) => Some(member.offset),
        (PlcType::Structure(inner), _) => Some(member.offset + member_offset(inner, rest)?),
        _ => None,
    }
}

/// Returns the number of a valve's word in its enumeration.
fn valve_number(word: &str) -> u8 {
    VALVE.values.iter().position(|v| *v == word).unwrap_or(0) as u8
}

fn put_cells(slots: &[Slot], cells: &[Cell], image: &mut Image) {
    for (slot, cell) in slots.iter().zip(cells) {
        let at = slot.offset;
        match (slot.kind, *cell) {
            (SlotKind::Preset, _) if slot.held => {}
            (SlotKind::Gone, _) => {}
            (SlotKind::Int, Cell::F32(value)) => image.put(at, &(value as i16).to_le_bytes()),
            (SlotKind::Text(room), Cell::Text(text)) => {
                let mut bytes = vec![0; room as usize + 1];
                let length = text.len().min(room as usize);
                bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
                image.put(at, &bytes);
            }
            (_, Cell::Text(word)) => image.put(at, &i16::from(valve_number(word)).to_le_bytes()),
            (_, Cell::Quantised { value, .. } | Cell::F32(value)) => image.put(at, &value.to_le_bytes()),
            (_, Cell::F64(value)) => image.put(at, &value.to_le_bytes()),
            (_, Cell::I64(value)) => image.put(at, &(value as i32).to_le_bytes()),
            (_, Cell::Bool(value)) => image.put(at, &[u8::from(value)]),
        }
        match (slot.again, *cell) {
            (Again::Code(at), Cell::Quantised { code, .. }) => {
                image.put(at, &((code as i32 - 0x8000) as i16).to_le_bytes());
            }
            (Again::Value(at), Cell::Quantised { value, .. }) => image.put(at, &value.to_le_bytes()),
            _ => {}
        }
    }
}

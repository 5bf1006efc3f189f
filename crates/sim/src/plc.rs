//! PLC groups: nine streams at 10 Hz with 1,000 channels, and one of 50 channels at 1 kHz.

use crate::channel::{Feed, PadSource, PadStream};
use crate::noise::Random;
use crate::plant::{AMBIENT_C, Plant, System, Valve, Var};
use crate::sensor::{Input, Sensor};

/// Number of channels at 10 Hz.
pub(crate) const SLOW_CHANNELS: usize = 1000;
const PERIOD_S: f64 = 0.100;
const FAST_PERIOD_S: f64 = 0.001;
/// Max delay of the controller's task within its cycle.
const JITTER_NS: i64 = 400_000;
const FAST_JITTER_NS: i64 = 20_000;

/// Equipment of a system of the pad.
struct Equipment {
    table: &'static str,
    system: System,
    named_valves: &'static [(&'static str, Valve)],
    valves: usize,
    pressure: (Var, usize, f64, f64),
    temperature: (Var, usize, f64, f64),
    flow: (Var, usize, f64, f64),
    setpoints: (usize, fn(&Plant) -> f64, &'static str),
}

const EQUIPMENT: [Equipment; 6] = [
    Equipment {
        table: "plc.lox",
        system: System::Lox,
        named_valves: &[
            ("fill_valve", Valve::LoxFill),
            ("vent_valve", Valve::LoxVent),
            ("replenish_valve", Valve::LoxReplenish),
            ("relief_valve", Valve::LoxRelief),
            ("chilldown_valve", Valve::LoxChilldown),
            ("press_valve", Valve::LoxPressurisation),
        ],
        valves: 24,
        pressure: (Var::LoxLineP, 38, -2.0, 18.0),
        temperature: (Var::LoxLineT, 20, -220.0, 80.0),
        flow: (Var::LoxFlow, 8, -20.0, 300.0),
        setpoints: (14, |p| p.get(Var::LoxUllageSetpoint), "bar"),
    },
    Equipment {
        table: "plc.fuel",
        system: System::Fuel,
        named_valves: &[
            ("fill_valve", Valve::FuelFill),
            ("vent_valve", Valve::FuelVent),
            ("press_valve", Valve::FuelPressurisation),
            ("relief_valve", Valve::FuelRelief),
        ],
        valves: 20,
        pressure: (Var::FuelLineP, 32, -2.0, 18.0),
        temperature: (Var::FuelTankT, 16, -40.0, 60.0),
        flow: (Var::FuelFlow, 6, -10.0, 150.0),
        setpoints: (12, |p| p.get(Var::FuelUllageSetpoint), "bar"),
    },
    Equipment {
        table: "plc.helium",
        system: System::Helium,
        named_valves: &[("fill_valve", Valve::HeliumFill), ("isolation_valve", Valve::HeliumIsolation)],
        valves: 20,
        pressure: (Var::HeliumBottleP, 30, -10.0, 390.0),
        temperature: (Var::HeliumT, 12, -100.0, 100.0),
        flow: (Var::HeliumRegulatedP, 4, -5.0, 95.0),
        setpoints: (10, |p| if p.countdown.clock_s() > -180.0 { 45.0 } else { 18.0 }, "bar"),
    },
    Equipment {
        table: "plc.nitrogen",
        system: System::Nitrogen,
        named_valves: &[("purge_valve", Valve::NitrogenPurge)],
        valves: 16,
        pressure: (Var::NitrogenP, 24, -1.0, 25.0),
        temperature: (Var::Ambient, 8, -40.0, 60.0),
        flow: (Var::PurgeP, 6, -0.5, 9.5),
        setpoints: (8, |_| 6.0, "bar"),
    },
    Equipment {
        table: "plc.water",
        system: System::Water,
        named_valves: &[("deluge_valve", Valve::WaterDeluge)],
        valves: 12,
        pressure: (Var::WaterP, 12, -1.0, 19.0),
        temperature: (Var::Ambient, 4, -40.0, 60.0),
        flow: (Var::WaterFlow, 6, -20.0, 480.0),
        setpoints: (4, |_| 8.0, "bar"),
    },
    Equipment {
        table: "plc.hydraulics",
        system: System::Hydraulics,
        named_valves: &[],
        valves: 10,
        pressure: (Var::HydraulicP, 12, -20.0, 380.0),
        temperature: (Var::BoardT, 6, -40.0, 120.0),
        flow: (Var::StrongbackAngle, 4, -5.0, 100.0),
        setpoints: (4, |_| 180.0, "bar"),
    },
];

/// Returns all streams of the controllers. Adds the background valves to the plant.
pub(crate) fn streams(seed: u64, plant: &mut Plant) -> Vec<PadStream> {
    let mut all = vec![fast(seed)];
    for (index, equipment) in EQUIPMENT.iter().enumerate() {
        all.push(system(seed, index as u64, equipment, plant));
    }
    let next = EQUIPMENT.len() as u64;
    all.push(thermocouples(seed, next));
    all.push(power(seed, next + 1));
    let have: usize = all[1..].iter().map(|s| s.channels.len()).sum();
    all.push(ground(seed, next + 2, SLOW_CHANNELS - have));
    all
}

/// Returns a stream at 10 Hz; the groups take turns within the 100 ms.
fn slow(seed: u64, index: u64, table: &str) -> PadStream {
    let random = Random::new(seed, 0x91c_0000 + index);
    PadStream::new(table, PadSource::Plc, (20, 2 * index % 20), random).jitter(JITTER_NS)
}

fn system(seed: u64, index: u64, e: &Equipment, plant: &mut Plant) -> PadStream {
    let mut r = Random::new(seed, 0x91c_1000 + index);
    let mut s = slow(seed, index, e.table);
    for (name, valve) in e.named_valves {
        // Function pointers cannot capture the valve, so each named valve has a function.
        s.add(name, "", "Valve as its limit switches say", Feed::Word(valve_word(*valve)));
    }
    let first = plant.add_valves(e.system, e.valves - e.named_valves.len());
    for i in 0..e.valves {
        let valve = e.named_valves.get(i).map_or_else(|| first + i - e.named_valves.len(), |(_, v)| *v as usize);
        let n = i + 1;
        s.add_of(format!("v{n:02}_cmd"), "v??_cmd".into(), "", "Valve commanded open", Feed::Command(valve));
        s.add_of(format!("v{n:02}_open"), "v??_open".into(), "", "Limit switch open", Feed::Opened(valve));
        s.add_of(format!("v{n:02}_closed"), "v??_closed".into(), "", "Limit switch closed", Feed::Closed(valve));
        let position = Sensor::new(Input::Position(valve), 12, -5.0, 105.0, PERIOD_S, &mut r);
        s.add_of(format!("v{n:02}_pos"), "v??_pos".into(), "%", "Valve position", Feed::Sensor(position));
    }
    let mut probes = |s: &mut PadStream, letter: &str, unit, what: &str, (var, count, low, high), slow_s: f64| {
        for n in 1..=count {
            let bits = if r.uniform() < 0.5 { 12 } else { 16 };
            let off: f64 = (high - low) * 0.01;
            let mut probe = Sensor::new(Input::Var(var), bits, low, high, PERIOD_S, &mut r)
                .scaled(r.between(0.93, 1.0), r.between(-off, off))
                .slow(slow_s * r.between(1.0, 4.0));
            if r.uniform() < 0.2 {
                probe = probe.calibrated(&mut r);
            }
            s.add_of(format!("{letter}_{n:02}"), format!("{letter}_??"), unit, what, Feed::Sensor(probe));
        }
    };
    probes(&mut s, "p", "bar", "Line pressure", e.pressure, 0.05);
    probes(&mut s, "t", "°C", "Line temperature", e.temperature, 2.0);
    let (unit, what) = match e.system {
        System::Helium | System::Nitrogen => ("bar", "Pressure after the regulator"),
        System::Hydraulics => ("°", "Strongback angle"),
        _ => ("kg/s", "Flow"),
    };
    probes(&mut s, "q", unit, what, e.flow, 0.1);
    let (count, value, unit) = e.setpoints;
    for n in 1..=count {
        s.add_of(format!("sp_{n:02}"), "sp_??".into(), unit, "Set-point", Feed::Exact(value));
    }
    s
}

fn valve_word(valve: Valve) -> fn(&Plant) -> &'static str {
    macro_rules! words {
        ($($name:ident)*) => { match valve { $(Valve::$name => |p: &Plant| p.valve(Valve::$name).word(),)* } };
    }
    words!(LoxFill LoxVent LoxReplenish LoxRelief LoxChilldown LoxPressurisation FuelFill FuelVent
        FuelPressurisation FuelRelief HeliumFill HeliumIsolation NitrogenPurge WaterDeluge)
}

fn thermocouples(seed: u64, index: u64) -> PadStream {
    let mut r = Random::new(seed, 0x91c_1000 + index);
    let mut s = slow(seed, index, "plc.thermocouples");
    for n in 1..=145 {
        // Along the LOX line and tank, the engine bay and the deck, each probe follows its place by its own fraction.
        let (var, low, high) = match n {
            1..=60 => (Var::LoxLineT, -220.0, 80.0),
            61..=95 => (Var::LoxTankT, -220.0, 80.0),
            96..=120 => (Var::BayT, -60.0, 140.0),
            121..=135 => (Var::NozzleT, -60.0, 1200.0),
            _ => (Var::Ambient, -40.0, 60.0),
        };
        let share = r.between(0.15, 1.0);
        let mut probe = Sensor::new(Input::Var(var), 16, low, high, PERIOD_S, &mut r)
            .scaled(share, (1.0 - share) * AMBIENT_C + r.between(-0.6, 0.6))
            .slow(r.between(1.5, 40.0));
        if n % 5 == 0 {
            probe = probe.calibrated(&mut r);
        }
        s.add_of(format!("tc_{n:03}"), "tc_???".into(), "°C", "Thermocouple", Feed::Sensor(probe));
    }
    s
}

fn power(seed: u64, index: u64) -> PadStream {
    let mut r = Random::new(seed, 0x91c_1000 + index);
    let mut s = slow(seed, index, "plc.power");
    s.add(
        "source",
        "",
        "What feeds the vehicle",
        Feed::Word(|p| if p.internal_power() { "INTERNAL" } else { "EXTERNAL" }),
    );
    for n in 1..=30 {
        let (var, low, high) = if n <= 15 { (Var::BusV, 18.0, 38.0) } else { (Var::GroundV, 350.0, 450.0) };
        let probe = Sensor::new(Input::Var(var), 12, low, high, PERIOD_S, &mut r).scaled(r.between(0.99, 1.0), 0.0);
        s.add_of(format!("u_{n:02}"), "u_??".into(), "V", "Voltage", Feed::Sensor(probe));
        let probe = Sensor::new(Input::Var(Var::BusA), 16, -10.0, 90.0, PERIOD_S, &mut r);
        let probe = probe.scaled(r.between(0.1, 1.0), r.between(-0.3, 0.3));
        s.add_of(format!("i_{n:02}"), "i_??".into(), "A", "Current", Feed::Sensor(probe));
    }
    for n in 1..=24 {
        let on: fn(&Plant) -> bool = if n % 3 == 0 { |p| !p.internal_power() } else { |_| true };
        s.add_of(format!("breaker_{n:02}"), "breaker_??".into(), "", "Breaker closed", Feed::Flag(on));
    }
    s
}

/// Returns the stream of umbilical, termination, weather, clock, and hold-down load cells up to `channels`.
fn ground(seed: u64, index: u64, channels: usize) -> PadStream {
    let mut r = Random::new(seed, 0x91c_1000 + index);
    let mut s = slow(seed, index, "plc.gse");
    s.add("umbilical", "", "Umbilical", Feed::Word(|p| if p.umbilical() { "CONNECTED" } else { "RELEASED" }));
    s.add("fts", "", "Flight termination system", Feed::Word(|p| if p.termination_armed() { "ARMED" } else { "SAFE" }));
    s.add("phase", "", "Phase of the countdown", Feed::Word(|p| p.countdown.phase()));
    s.add("t_clock", "s", "Countdown clock, negative before lift-off", Feed::Double(|p| p.countdown.clock_s()));
    s.add("holding", "", "The clock stands", Feed::Flag(|p| p.countdown.holding()));
    s.add("attempt", "", "Launch attempt", Feed::Exact(|p| f64::from(p.countdown.attempt())));
    s.add("cycles", "", "Controller cycles since power on", Feed::Count(0));
    for (name, unit, description, var, low, high) in [
        ("wind_speed", "m/s", "Wind at the pad", Var::WindSpeed, -1.0, 39.0),
        ("wind_gust", "m/s", "Gusts at the pad", Var::WindGust, -1.0, 39.0),
        ("t_air", "°C", "Air temperature", Var::Ambient, -40.0, 60.0),
        ("humidity", "%", "Relative humidity", Var::Humidity, -5.0, 105.0),
        ("strongback", "°", "Strongback angle", Var::StrongbackAngle, -5.0, 100.0),
    ] {
        let probe = Sensor::new(Input::Var(var), 12, low, high, PERIOD_S, &mut r);
        s.add(name, unit, description, Feed::Sensor(probe));
    }
    for n in 1..=channels.saturating_sub(s.channels.len()) {
        let cell = Sensor::new(Input::Var(Var::HoldDownLoad), 16, -50.0, 500.0, PERIOD_S, &mut r);
        let cell = cell.scaled(r.between(0.02, 0.06), r.between(-1.0, 1.0)).calibrated(&mut r);
        s.add_of(format!("load_{n:02}"), "load_??".into(), "kN", "Hold-down load cell", Feed::Sensor(cell));
    }
    s
}

fn fast(seed: u64) -> PadStream {
    use Var::*;
    let mut r = Random::new(seed, 0x91c_2000);
    let random = Random::new(seed, 0x91c_3000);
    let mut s = PadStream::new("plc.fast", PadSource::PlcFast, (1, 0), random).jitter(FAST_JITTER_NS);
    s.burst = crate::plant::STEP_MS as u32;
    s.period_ns = 1_000_000;
    let mut sensor = |var, bits, low, high| Sensor::new(Input::Var(var), bits, low, high, FAST_PERIOD_S, &mut r);
    let tank = sensor(LoxTankP, 12, -0.5, 9.5).ringing(46.0, 0.004, Thrust, 0.001);
    s.add("p_lox_tank", "bar", "LOX tank ullage pressure, 1 kHz", Feed::Sensor(tank));
    let tank = sensor(FuelTankP, 12, -0.5, 9.5).ringing(52.0, 0.004, Thrust, 0.001);
    s.add("p_fuel_tank", "bar", "Fuel tank ullage pressure, 1 kHz", Feed::Sensor(tank));
    // Name, count, unit, description, quantity, bits, low, high, resonance in Hz, quiet, driver, gain.
    type Row = (&'static str, u32, &'static str, &'static str, Var, u32, (f64, f64), f64, f64, Var, f64);
    let rows: [Row; 6] = [
        ("p_purge", 8, "bar", "Purge pressure", PurgeP, 12, (-0.5, 9.5), 61.0, 0.004, PurgeP, 0.001),
        ("p_lox_line", 10, "bar", "LOX line pressure", LoxLineP, 16, (-2.0, 18.0), 83.0, 0.002, LoxFlow, 2e-4),
        ("p_fuel_line", 8, "bar", "Fuel line pressure", FuelLineP, 16, (-2.0, 18.0), 74.0, 0.002, FuelFlow, 2e-4),
        ("p_he", 6, "bar", "Helium pressure", HeliumBottleP, 16, (-10.0, 390.0), 118.0, 0.01, Thrust, 1e-3),
        ("strain", 8, "µm/m", "Launch table strain", HoldDownLoad, 12, (-200.0, 700.0), 31.0, 0.2, Vibration, 9.0),
        ("acc", 8, "g", "Launch table acceleration", Zero, 16, (-32.768, 32.767), 162.0, 0.02, Vibration, 0.8),
    ];
    for (name, count, unit, text, var, bits, (low, high), hertz, quiet, driver, gain) in rows {
        for n in 1..=count {
            let spread = 1.0 + 0.07 * f64::from(n);
            let mut probe = sensor(var, bits, low, high).ringing(hertz * spread, quiet, driver, gain);
            if name != "acc" {
                probe = probe.scaled(1.0 - 0.011 * f64::from(n), 0.0);
            }
            if n % 5 == 0 {
                probe = probe.calibrated(&mut Random::new(seed, 0x91c_4000 + u64::from(n) + (hertz as u64)));
            }
            s.add_of(format!("{name}_{n:02}"), format!("{name}_??"), unit, text, Feed::Sensor(probe));
        }
    }
    s
}

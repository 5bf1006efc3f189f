//! The pad and the vehicle as one process: tanks, lines, gases, power, engine, flight.
//!
//! A lumped model that the countdown steps every 5 ms: first-order lags towards the targets set by valves and phase,
//! integrated levels, and thresholds with hysteresis. It is just detailed enough for all sensors to agree.

use crate::countdown::{Countdown, Level};
use crate::noise::{Drift, Random};

/// Milliseconds per step.
pub(crate) const STEP_MS: i64 = 5;
const STEP_S: f64 = STEP_MS as f64 / 1000.0;
/// Standard gravity, m/s².
const G: f64 = 9.806_65;
/// Initial ambient temperature of the probes, °C.
pub(crate) const AMBIENT_C: f64 = 12.0;

/// Quantity of the process. Pressures in bar, temperatures in °C, levels in %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Var {
    LoxLevel,
    LoxTankP,
    LoxUllageSetpoint,
    LoxLineP,
    LoxLineT,
    LoxTankT,
    LoxFlow,
    FuelLevel,
    FuelTankP,
    FuelUllageSetpoint,
    FuelLineP,
    FuelTankT,
    FuelFlow,
    HeliumBottleP,
    HeliumRegulatedP,
    HeliumT,
    NitrogenP,
    PurgeP,
    WaterP,
    WaterFlow,
    HydraulicP,
    StrongbackAngle,
    BusV,
    BusA,
    GroundV,
    BatteryCharge,
    ChamberP,
    GasGeneratorP,
    TurboSpeed,
    TurboT,
    NozzleT,
    BayT,
    ThrustCommand,
    Thrust,
    AccelerationX,
    Vibration,
    Altitude,
    Velocity,
    DynamicP,
    Pitch,
    HoldDownLoad,
    Ambient,
    Humidity,
    WindSpeed,
    WindGust,
    BoardT,
    Zero,
}

/// Number of quantities.
pub(crate) const VARS: usize = Var::Zero as usize + 1;

/// Named valve; named ones come first in each group of [`Plant::valves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Valve {
    LoxFill,
    LoxVent,
    LoxReplenish,
    LoxRelief,
    LoxChilldown,
    LoxPressurisation,
    FuelFill,
    FuelVent,
    FuelPressurisation,
    FuelRelief,
    HeliumFill,
    HeliumIsolation,
    NitrogenPurge,
    WaterDeluge,
}

/// Number of named valves; the others of a group have no name.
pub(crate) const NAMED_VALVES: usize = Valve::WaterDeluge as usize + 1;

/// Part of the pad that a background valve belongs to, which determines when it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Lox,
    Fuel,
    Helium,
    Nitrogen,
    Water,
    Hydraulics,
}

/// Valve with a stroke time and limit switches.
#[derive(Clone, Debug)]
pub(crate) struct ValveState {
    pub(crate) command: bool,
    position: f64,
    stroke_s: f64,
    background: Option<(System, f64)>,
}

impl ValveState {
    fn new(stroke_s: f64, background: Option<System>) -> Self {
        ValveState { command: false, position: 0.0, stroke_s, background: background.map(|s| (s, 0.0)) }
    }

    /// Returns the position, from 0 (closed) to 1 (open).
    pub(crate) fn position(&self) -> f64 {
        self.position
    }

    /// Returns the state of the limit switch "open".
    pub(crate) fn is_open(&self) -> bool {
        self.position > 0.97
    }

    /// Returns the state of the limit switch "closed".
    pub(crate) fn is_closed(&self) -> bool {
        self.position < 0.03
    }

    /// Returns the state as an operator reads it.
    pub(crate) fn word(&self) -> &'static str {
        match (self.is_open(), self.is_closed(), self.command) {
            (true, _, _) => "OPEN",
            (_, true, _) => "CLOSED",
            (_, _, true) => "OPENING",
            _ => "CLOSING",
        }
    }

    fn step(&mut self) {
        let target = f64::from(u8::from(self.command));
        let most = STEP_S / self.stroke_s;
        self.position += (target - self.position).clamp(-most, most);
    }
}

/// Model of the pad and the vehicle.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    pub(crate) countdown: Countdown,
    pub(crate) vars: [f64; VARS],
    /// Quantities one step ago: fast channels interpolate from there to `vars`.
    pub(crate) before: [f64; VARS],
    pub(crate) valves: Vec<ValveState>,
    wind: Drift,
    gust: Drift,
    supply: Drift,
    boil: Drift,
    random: Random,
}

impl Plant {
    /// Returns a pad at a moment of the countdown, in the state it would have after running from the start.
    pub(crate) fn new(seed: u64, clock_ms: i64) -> Self {
        let mut vars = [0.0; VARS];
        for (var, value) in [
            (Var::LoxTankP, 1.01),
            (Var::LoxLineP, 1.01),
            (Var::LoxLineT, AMBIENT_C),
            (Var::LoxTankT, AMBIENT_C),
            (Var::FuelTankP, 1.01),
            (Var::FuelLineP, 1.01),
            (Var::FuelTankT, AMBIENT_C),
            (Var::HeliumBottleP, 20.0),
            (Var::HeliumRegulatedP, 20.0),
            (Var::HeliumT, AMBIENT_C),
            (Var::NitrogenP, 12.0),
            (Var::PurgeP, 1.0),
            (Var::WaterP, 8.0),
            (Var::HydraulicP, 180.0),
            (Var::StrongbackAngle, 90.0),
            (Var::BusV, 28.3),
            (Var::BusA, 14.0),
            (Var::GroundV, 400.0),
            (Var::BatteryCharge, 100.0),
            (Var::ChamberP, 1.0),
            (Var::GasGeneratorP, 1.0),
            (Var::TurboT, AMBIENT_C),
            (Var::NozzleT, AMBIENT_C),
            (Var::BayT, AMBIENT_C),
            (Var::AccelerationX, G),
            (Var::Pitch, 90.0),
            (Var::Ambient, AMBIENT_C),
            (Var::Humidity, 62.0),
            (Var::BoardT, 24.0),
        ] {
            vars[var as usize] = value;
        }
        let mut valves: Vec<ValveState> = (0..NAMED_VALVES).map(|_| ValveState::new(0.8, None)).collect();
        valves[Valve::LoxVent as usize].position = 1.0;
        let mut plant = Plant {
            countdown: Countdown::new(seed, crate::countdown::START_MS),
            before: vars,
            vars,
            valves: std::mem::take(&mut valves),
            wind: Drift::new(1.6, 45.0, STEP_S),
            gust: Drift::new(1.1, 3.0, STEP_S),
            supply: Drift::new(1.0, 20.0, STEP_S),
            boil: Drift::new(0.3, 8.0, STEP_S),
            random: Random::new(seed, 0x9_1a47),
        };
        // Run to the requested moment, without holds, so that levels and temperatures match it.
        let mut now_ms = crate::countdown::START_MS;
        while now_ms < clock_ms {
            plant.countdown = Countdown::new(seed, now_ms);
            plant.physics();
            now_ms += STEP_MS;
        }
        plant.countdown = Countdown::new(seed, clock_ms);
        plant
    }

    /// Adds background valves of a system; returns the index of the first.
    pub(crate) fn add_valves(&mut self, system: System, count: usize) -> usize {
        let first = self.valves.len();
        for i in 0..count {
            self.valves.push(ValveState::new(0.4 + 0.17 * (i % 9) as f64, Some(system)));
        }
        first
    }

    /// Returns the value of a quantity.
    pub(crate) fn get(&self, var: Var) -> f64 {
        self.vars[var as usize]
    }

    /// Returns a named valve.
    pub(crate) fn valve(&self, valve: Valve) -> &ValveState {
        &self.valves[valve as usize]
    }

    /// Runs one step of 5 ms.
    pub(crate) fn step(&mut self, say: impl FnMut(String, Level)) {
        self.countdown.step(STEP_MS, say);
        self.before = self.vars;
        self.physics();
    }

    fn command(&mut self, valve: Valve, open: bool) {
        self.valves[valve as usize].command = open;
    }

    /// Moves a quantity towards a target with first-order lag.
    fn lag(&mut self, var: Var, target: f64, time_constant_s: f64) {
        let value = &mut self.vars[var as usize];
        *value += (target - *value) * (STEP_S / time_constant_s).min(1.0);
    }

    /// Integrates a rate, within limits.
    fn integrate(&mut self, var: Var, rate_per_s: f64, low: f64, high: f64) {
        let value = &mut self.vars[var as usize];
        *value = (*value + rate_per_s * STEP_S).clamp(low, high);
    }

    fn open(&self, valve: Valve) -> f64 {
        self.valves[valve as usize].position
    }

    fn physics(&mut self) {
        let t = self.countdown.clock_s();
        let on_pad = !(0.0..200.0).contains(&t);
        let supply = self.supply.step(&mut self.random);
        let boil = 1.0 + self.boil.step(&mut self.random);
        self.work_valves(t);
        self.tanks(t, on_pad, supply, boil);
        self.gases(t, supply);
        self.engine(t);
        self.flight(t, on_pad);
        self.power_and_weather(t, on_pad, supply);
        for valve in &mut self.valves {
            valve.step();
        }
    }

    fn work_valves(&mut self, t: f64) {
        let (lox, p_lox) = (self.get(Var::LoxLevel), self.get(Var::LoxTankP));
        let (fuel, p_fuel) = (self.get(Var::FuelLevel), self.get(Var::FuelTankP));
        let pressurised = (-60.0..150.0).contains(&t);
        self.command(Valve::LoxChilldown, (-595.0..-535.0).contains(&t) || (-40.0..-4.0).contains(&t));
        self.command(Valve::LoxFill, (-540.0..-300.0).contains(&t) && lox < 98.5);
        let replenishing = self.valve(Valve::LoxReplenish).command;
        let wants = if replenishing { lox < 99.6 } else { lox < 98.9 };
        self.command(Valve::LoxReplenish, (-300.0..-60.0).contains(&t) && wants);
        self.command(Valve::LoxVent, !pressurised);
        self.command(Valve::FuelFill, (-560.0..-330.0).contains(&t) && fuel < 99.0);
        self.command(Valve::FuelVent, !pressurised);
        // Bang-bang pressurisation and relief, each with its hysteresis.
        let hysteresis = |open: bool, p: f64, below: f64, until: f64| if open { p < until } else { p < below };
        let press = hysteresis(self.valve(Valve::LoxPressurisation).command, p_lox, 4.02, 4.20);
        self.command(Valve::LoxPressurisation, pressurised && press);
        let press = hysteresis(self.valve(Valve::FuelPressurisation).command, p_fuel, 2.94, 3.06);
        self.command(Valve::FuelPressurisation, pressurised && press);
        let relief = !hysteresis(!self.valve(Valve::LoxRelief).command, p_lox, 4.12, 4.34);
        self.command(Valve::LoxRelief, relief);
        let relief = !hysteresis(!self.valve(Valve::FuelRelief).command, p_fuel, 3.02, 3.16);
        self.command(Valve::FuelRelief, relief);
        self.command(Valve::HeliumFill, (-540.0..-70.0).contains(&t) && self.get(Var::HeliumBottleP) < 301.0);
        self.command(Valve::HeliumIsolation, (-180.0..150.0).contains(&t));
        self.command(Valve::NitrogenPurge, (-580.0..2.0).contains(&t));
        self.command(Valve::WaterDeluge, (-15.0..25.0).contains(&t));
        for index in NAMED_VALVES..self.valves.len() {
            let Some((system, left_s)) = self.valves[index].background else { continue };
            let working = match system {
                System::Lox => (-595.0..-10.0).contains(&t),
                System::Fuel => (-560.0..-20.0).contains(&t),
                System::Helium | System::Nitrogen => (-590.0..0.0).contains(&t),
                System::Water => (-120.0..40.0).contains(&t),
                System::Hydraulics => (-240.0..-200.0).contains(&t) || (-12.0..4.0).contains(&t),
            };
            let left_s = left_s - STEP_S;
            if left_s > 0.0 {
                self.valves[index].background = Some((system, left_s));
                continue;
            }
            let next_s = 5.0 + self.random.exponential(40.0);
            let open = working && self.random.uniform() < 0.55;
            self.valves[index].command = open;
            self.valves[index].background = Some((system, next_s));
        }
    }

    fn tanks(&mut self, t: f64, on_pad: bool, supply: f64, boil: f64) {
        let recycling = t > 180.0;
        let burn = self.get(Var::Thrust) / 100.0;
        // LOX: levels in %, flows in kg/s of a 30 t load.
        let fill = self.open(Valve::LoxFill);
        let replenish = self.open(Valve::LoxReplenish);
        let loaded = (self.get(Var::LoxLevel) / 100.0).sqrt();
        let lost = if t < -60.0 { 0.06 * loaded * boil } else { 0.01 * loaded };
        let drained = if recycling { self.get(Var::LoxLevel) * 0.12 } else { 0.0 };
        let used = if t > -3.0 && t < 150.0 { burn / 1.5 } else { 0.0 };
        self.integrate(Var::LoxLevel, 0.48 * fill + 0.16 * replenish - lost - drained - used, 0.0, 100.0);
        self.lag(Var::LoxFlow, 144.0 * fill + 48.0 * replenish + 22.0 * self.open(Valve::LoxChilldown), 0.6);
        let vent = self.open(Valve::LoxVent);
        let p = self.get(Var::LoxTankP);
        let rate = 0.17 * self.open(Valve::LoxPressurisation) * if t > 0.0 { 3.0 } else { 1.0 }
            + 0.013 * loaded * boil.max(0.0)
            - 0.27 * self.open(Valve::LoxRelief)
            - vent * (p - 1.03 - 0.05 * loaded) * 0.9
            - used * 0.12;
        self.integrate(Var::LoxTankP, rate, 0.9, 6.0);
        let setpoint = if (-60.0..150.0).contains(&t) { 4.10 } else { 1.05 };
        self.vars[Var::LoxUllageSetpoint as usize] = setpoint;
        let supplied = if on_pad && (-595.0..-2.0).contains(&t) { 5.6 + 0.15 * supply } else { 1.02 };
        let line = supplied + 1.9 * fill + 0.4 * replenish;
        self.lag(Var::LoxLineP, line, 1.2);
        let cold =
            self.open(Valve::LoxChilldown).max(fill).max(0.8 * replenish).max(0.35 * f64::from(t < 0.0) * loaded);
        self.lag(Var::LoxLineT, AMBIENT_C - 194.5 * cold, if cold > 0.1 { 9.0 } else { 60.0 });
        let level = self.get(Var::LoxLevel);
        self.lag(Var::LoxTankT, if level > 2.0 { -182.6 } else { AMBIENT_C }, if level > 2.0 { 18.0 } else { 40.0 });
        // Fuel.
        let fill = self.open(Valve::FuelFill);
        let drained = if recycling { self.get(Var::FuelLevel) * 0.12 } else { 0.0 };
        self.integrate(Var::FuelLevel, 0.47 * fill - drained - used, 0.0, 100.0);
        self.lag(Var::FuelFlow, 62.0 * fill, 0.8);
        let p = self.get(Var::FuelTankP);
        let rate = 0.13 * self.open(Valve::FuelPressurisation) * if t > 0.0 { 3.0 } else { 1.0 }
            + 0.004 * boil.max(0.0)
            - 0.2 * self.open(Valve::FuelRelief)
            - self.open(Valve::FuelVent) * (p - 1.02) * 0.9
            - used * 0.1;
        self.integrate(Var::FuelTankP, rate, 0.9, 5.0);
        self.vars[Var::FuelUllageSetpoint as usize] = if (-60.0..150.0).contains(&t) { 3.0 } else { 1.02 };
        let supplied = if (-560.0..-20.0).contains(&t) { 3.4 + 0.1 * supply } else { 1.02 };
        self.lag(Var::FuelLineP, supplied + 1.1 * fill, 1.0);
        self.lag(Var::FuelTankT, 9.0 + 0.03 * self.get(Var::LoxLevel) * -0.5, 90.0);
    }

    fn gases(&mut self, t: f64, supply: f64) {
        let feeding = 0.10 * self.open(Valve::LoxPressurisation) + 0.07 * self.open(Valve::FuelPressurisation);
        let fill = self.open(Valve::HeliumFill);
        let vented = if t > 180.0 { (self.get(Var::HeliumBottleP) - 20.0) * 0.1 } else { 0.0 };
        let flight = if t > 0.0 { 8.0 } else { 1.0 };
        self.integrate(Var::HeliumBottleP, 0.85 * fill - 2.0 * feeding * flight - vented, 15.0, 320.0);
        let compressed = AMBIENT_C + 24.0 * fill - 18.0 * feeding * flight;
        self.lag(Var::HeliumT, compressed, 35.0);
        let regulated = if self.valve(Valve::HeliumIsolation).command { 45.0 } else { 18.0 };
        self.lag(Var::HeliumRegulatedP, regulated - 9.0 * feeding + 0.2 * supply, 0.5);
        let purge = self.open(Valve::NitrogenPurge);
        self.lag(Var::NitrogenP, 12.0 - 0.7 * purge + 0.12 * supply, 2.0);
        self.lag(Var::PurgeP, 1.0 + 5.0 * purge + 0.05 * supply, 0.7);
        let deluge = self.open(Valve::WaterDeluge);
        self.lag(Var::WaterP, 8.0 + 0.06 * supply - 2.4 * deluge, 0.9);
        self.lag(Var::WaterFlow, 310.0 * deluge, 0.8);
    }

    fn engine(&mut self, t: f64) {
        let lit = (-2.4..145.0).contains(&t);
        let command = match t {
            t if (-3.0..0.0).contains(&t) => 70.0 + 10.0 * (t + 3.0),
            t if (0.0..145.0).contains(&t) => {
                // Throttled through maximum dynamic pressure.
                100.0 - 25.0 * (-((t - 68.0) / 11.0).powi(2)).exp()
            }
            _ => 0.0,
        };
        self.vars[Var::ThrustCommand as usize] = command;
        let turbo = if (-3.0..145.0).contains(&t) { 318.0 * command } else { 0.0 };
        self.lag(Var::TurboSpeed, turbo, 0.35);
        self.lag(Var::GasGeneratorP, if lit { 0.62 * command } else { 1.0 }, 0.2);
        self.lag(Var::ChamberP, if lit { 0.97 * command } else { 1.0 }, if lit { 0.25 } else { 0.5 });
        let thrust = ((self.get(Var::ChamberP) - 1.0) / 96.0 * 100.0).max(0.0);
        self.vars[Var::Thrust as usize] = thrust;
        let chill = self.open(Valve::LoxChilldown);
        let turbine = if lit { 410.0 } else { AMBIENT_C - 9.0 - 105.0 * chill * f64::from(t > -60.0) };
        self.lag(Var::TurboT, turbine, if lit { 6.0 } else { 24.0 });
        self.lag(Var::NozzleT, if lit { 830.0 } else { AMBIENT_C }, if lit { 4.0 } else { 30.0 });
        let bay = AMBIENT_C - 0.16 * self.get(Var::LoxLevel) + 0.5 * thrust;
        self.lag(Var::BayT, bay, 55.0);
    }

    fn flight(&mut self, t: f64, on_pad: bool) {
        let thrust = self.get(Var::Thrust) / 100.0;
        let (mut acceleration, mut vibration) = (G, 0.02 + 0.05 * self.open(Valve::LoxFill));
        let load = 320.0 * (0.12 + 0.88 * self.get(Var::LoxLevel) / 100.0) - 380.0 * thrust;
        if on_pad {
            for var in [Var::Altitude, Var::Velocity] {
                self.vars[var as usize] = 0.0;
            }
            self.lag(Var::Pitch, 90.0, 1.0);
            vibration += 3.2 * thrust;
        } else {
            let burnt = (t / 145.0).clamp(0.0, 1.0);
            acceleration = G * (1.25 + 2.6 * burnt.powf(1.6)) * thrust;
            let climb = self.get(Var::Pitch).to_radians().sin();
            self.integrate(Var::Velocity, acceleration - G * climb, 0.0, 9000.0);
            let speed = self.get(Var::Velocity);
            self.integrate(Var::Altitude, speed * climb, 0.0, 1e6);
            self.lag(Var::Pitch, 90.0 - 62.0 * burnt.powf(0.8), 2.0);
            let max_q = (-((t - 70.0) / 13.0).powi(2)).exp();
            vibration += thrust * (0.9 + 3.4 * (-t / 7.0).exp() + 1.9 * max_q);
        }
        self.lag(Var::AccelerationX, acceleration, 0.04);
        self.lag(Var::Vibration, vibration, 0.08);
        self.lag(Var::HoldDownLoad, if on_pad { load.max(0.0) } else { 0.0 }, 0.1);
        let density = 1.225 * (-self.get(Var::Altitude) / 8_500.0).exp();
        // Pascal to kilopascal.
        self.vars[Var::DynamicP as usize] = 0.5e-3 * density * self.get(Var::Velocity).powi(2);
    }

    fn power_and_weather(&mut self, t: f64, on_pad: bool, supply: f64) {
        let internal = self.internal_power();
        let draw = 14.0 + if t > -120.0 && t < 180.0 { 9.0 } else { 0.0 } + 6.0 * self.get(Var::Thrust) / 100.0;
        self.lag(Var::BusA, draw + 0.3 * supply, 0.3);
        let charge = if internal { -0.012 } else { 0.4 };
        self.integrate(Var::BatteryCharge, charge, 40.0, 100.0);
        let volts = if internal { 27.1 + 0.011 * self.get(Var::BatteryCharge) } else { 28.3 };
        self.lag(Var::BusV, volts - 0.014 * (self.get(Var::BusA) - 14.0), 0.15);
        self.lag(Var::GroundV, 400.0 + 0.8 * supply, 1.0);
        let pumping = (-240.0..-215.0).contains(&t) || (-2.0..3.0).contains(&t);
        self.lag(Var::HydraulicP, if pumping { 205.0 } else { 180.0 } + 0.7 * supply, 1.5);
        let angle = match t {
            t if on_pad && t < -240.0 => 90.0,
            t if (-240.0..-1.0).contains(&t) => 88.0,
            t if (-1.0..200.0).contains(&t) => 45.0,
            _ => 90.0,
        };
        let stroke = if t > -1.0 && t < 10.0 { 1.2 } else { 8.0 };
        self.lag(Var::StrongbackAngle, angle, stroke);
        self.lag(Var::Ambient, AMBIENT_C + 0.4 * supply, 30.0);
        self.lag(Var::Humidity, 62.0 + 2.0 * supply, 60.0);
        let wind = (6.4 + self.wind.step(&mut self.random)).max(0.0);
        self.vars[Var::WindSpeed as usize] = wind;
        let gust = wind + 1.5 + self.gust.step(&mut self.random).abs();
        self.lag(Var::WindGust, gust, 1.5);
        self.lag(Var::BoardT, 24.0 + 0.5 * self.get(Var::BusA), 80.0);
    }

    /// Returns whether the vehicle runs on its batteries.
    pub(crate) fn internal_power(&self) -> bool {
        (-120.0..200.0).contains(&self.countdown.clock_s())
    }

    /// Returns whether the flight termination system is armed.
    pub(crate) fn termination_armed(&self) -> bool {
        (-70.0..180.0).contains(&self.countdown.clock_s())
    }

    /// Returns whether the umbilical is connected.
    pub(crate) fn umbilical(&self) -> bool {
        !(0.0..200.0).contains(&self.countdown.clock_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(plant: &mut Plant, seconds: f64, mut each: impl FnMut(&Plant)) {
        for _ in 0..(seconds / STEP_S) as usize {
            plant.step(|_, _| {});
            each(plant);
        }
    }

    #[test]
    fn a_countdown_loads_pressurises_relieves_and_flies() {
        let mut plant = Plant::new(3, -130_000);
        assert!(plant.get(Var::LoxLevel) > 95.0, "{}", plant.get(Var::LoxLevel));
        assert!(plant.get(Var::FuelLevel) > 95.0);
        assert!(plant.get(Var::LoxTankP) < 1.4);
        assert!(plant.get(Var::LoxLineT) < -60.0);
        let (mut reliefs, mut was, mut most, mut highest) = (0, false, 0.0f64, 0.0f64);
        run(&mut plant, 330.0, |p| {
            let open = p.valve(Valve::LoxRelief).is_open();
            reliefs += usize::from(open && !was);
            was = open;
            most = most.max(p.get(Var::LoxTankP));
            highest = highest.max(p.get(Var::AccelerationX));
            assert!(p.vars.iter().all(|v| v.is_finite()));
        });
        assert!(reliefs >= 1, "no relief cycle");
        assert!((4.2..4.8).contains(&most), "{most}");
        assert!((25.0..45.0).contains(&highest), "{highest}");
        assert!(plant.get(Var::Altitude) > 20_000.0, "{}", plant.get(Var::Altitude));
    }

    #[test]
    fn the_next_attempt_starts_from_an_empty_vehicle_and_loads_it_again() {
        let mut plant = Plant::new(4, 150_000);
        run(&mut plant, 85.0, |_| {});
        assert!(plant.get(Var::LoxLevel) < 5.0, "{}", plant.get(Var::LoxLevel));
        run(&mut plant, 5.0 + 310.0, |_| {});
        assert!(plant.get(Var::LoxLevel) > 90.0, "{}", plant.get(Var::LoxLevel));
        assert_eq!(plant.countdown.attempt(), 2);
    }
}

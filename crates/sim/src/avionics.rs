//! Avionics: eight streams at 25 Hz, 240 channels, 6,000 points/s.

use crate::channel::{Feed, PadSource, PadStream};
use crate::noise::{Drift, Random};
use crate::plant::{Plant, Valve, Var};
use crate::sensor::{Input, Sensor};

const PERIOD_S: f64 = 0.040;
/// Number of 5 ms steps between frames.
const EVERY: u64 = 8;
/// Max delay of the task that stamps samples within its cycle.
const JITTER_NS: i64 = 180_000;

/// Returns the streams: four control units with 45 channels each, two inertial units, navigation receiver, guidance.
pub(crate) fn streams(seed: u64) -> Vec<PadStream> {
    let mut all: Vec<PadStream> = (1..=4).map(|acu| control_unit(seed, acu)).collect();
    all.push(inertial(seed, "a", 1));
    all.push(inertial(seed, "b", 3));
    all.push(receiver(seed));
    all.push(guidance(seed));
    all
}

fn control_unit(seed: u64, acu: u64) -> PadStream {
    use Var::*;
    let mut r = Random::new(seed, 0xac_0000 + acu);
    let stream = PadStream::new(
        "avionics.sensor_values",
        PadSource::Avionics,
        (EVERY, 2 * (acu - 1)),
        Random::new(seed, 0xac_1000 + acu),
    );
    let mut s = stream.tagged("acu", acu).jitter(JITTER_NS);
    // Name, unit, description, quantity, bits, low, high, time constant in s.
    type Row = (&'static str, &'static str, &'static str, Var, u32, f64, f64, f64);
    let rows: [Row; 32] = [
        ("p_lox_tank", "bar", "LOX tank ullage pressure", LoxTankP, 12, -0.5, 9.5, 0.0),
        ("p_fuel_tank", "bar", "Fuel tank ullage pressure", FuelTankP, 12, -0.5, 9.5, 0.0),
        ("p_lox_line", "bar", "LOX feed line pressure", LoxLineP, 16, -2.0, 18.0, 0.0),
        ("p_fuel_line", "bar", "Fuel feed line pressure", FuelLineP, 16, -2.0, 18.0, 0.0),
        ("p_he_bottle", "bar", "Helium bottle pressure", HeliumBottleP, 16, -10.0, 390.0, 0.0),
        ("p_he_regulated", "bar", "Helium pressure after the regulator", HeliumRegulatedP, 12, -5.0, 95.0, 0.0),
        ("p_chamber", "bar", "Main chamber pressure", ChamberP, 16, -5.0, 145.0, 0.0),
        ("p_gas_generator", "bar", "Gas generator pressure", GasGeneratorP, 16, -5.0, 95.0, 0.0),
        ("p_purge", "bar", "Engine purge pressure", PurgeP, 12, -0.5, 9.5, 0.0),
        ("p_hydraulic", "bar", "Thrust vector hydraulic pressure", HydraulicP, 12, -20.0, 380.0, 0.0),
        ("l_lox", "%", "LOX level", LoxLevel, 16, -10.0, 120.0, 0.3),
        ("l_fuel", "%", "Fuel level", FuelLevel, 16, -10.0, 120.0, 0.3),
        ("t_lox_tank", "°C", "LOX bulk temperature", LoxTankT, 16, -220.0, 80.0, 1.0),
        ("t_fuel_tank", "°C", "Fuel bulk temperature", FuelTankT, 12, -40.0, 60.0, 2.0),
        ("t_lox_line", "°C", "LOX feed line temperature", LoxLineT, 16, -220.0, 80.0, 1.5),
        ("t_helium", "°C", "Helium bottle temperature", HeliumT, 12, -100.0, 100.0, 2.0),
        ("t_turbopump", "°C", "Turbopump bearing temperature", TurboT, 16, -210.0, 900.0, 3.0),
        ("t_nozzle", "°C", "Nozzle wall temperature", NozzleT, 16, -60.0, 1200.0, 0.7),
        ("t_bay", "°C", "Engine bay temperature", BayT, 12, -60.0, 140.0, 4.0),
        ("t_board", "°C", "Control unit board temperature", BoardT, 12, -40.0, 120.0, 10.0),
        ("n_turbopump", "1/min", "Turbopump speed", TurboSpeed, 16, -1000.0, 45_000.0, 0.0),
        ("q_lox", "kg/s", "LOX loading flow", LoxFlow, 16, -20.0, 300.0, 0.1),
        ("q_fuel", "kg/s", "Fuel loading flow", FuelFlow, 16, -10.0, 150.0, 0.1),
        ("bus_28v", "V", "Main bus voltage", BusV, 12, 18.0, 38.0, 0.0),
        ("bus_current", "A", "Main bus current", BusA, 12, -10.0, 90.0, 0.0),
        ("battery_charge", "%", "Battery charge", BatteryCharge, 12, -5.0, 105.0, 1.0),
        ("vib_x", "g", "Vibration level", Vibration, 12, -0.5, 9.5, 0.0),
        ("vib_y", "g", "Vibration level, lateral", Vibration, 12, -0.5, 9.5, 0.05),
        ("p_dynamic", "kPa", "Dynamic pressure", DynamicP, 12, -5.0, 95.0, 0.1),
        ("tvc_pitch", "°", "Thrust vector actuator, pitch", Zero, 16, -12.0, 12.0, 0.0),
        ("tvc_yaw", "°", "Thrust vector actuator, yaw", Zero, 16, -12.0, 12.0, 0.0),
        ("valve_main_lox", "%", "Main LOX valve position", ThrustCommand, 12, -10.0, 115.0, 0.06),
    ];
    for (name, unit, description, var, bits, low, high, lag_s) in rows {
        let mut sensor = Sensor::new(Input::Var(var), bits, low, high, PERIOD_S, &mut r);
        // Four units with four transducers: each has a small error, and one in five has its own calibration.
        let off = (high - low) * 0.0008;
        sensor = sensor.scaled(1.0 + r.between(-0.002, 0.002), r.between(-off, off));
        if lag_s > 0.0 {
            sensor = sensor.slow(lag_s);
        }
        if r.uniform() < 0.2 {
            sensor = sensor.calibrated(&mut r);
        }
        if name.starts_with("tvc") {
            sensor = sensor.ringing(3.1, 0.01, Vibration, 0.35);
        }
        s.add(name, unit, description, Feed::Sensor(sensor));
    }
    s.add("p_lox_ullage_sp", "bar", "LOX ullage pressure set-point", Feed::Exact(|p| p.get(LoxUllageSetpoint)));
    s.add("p_fuel_ullage_sp", "bar", "Fuel ullage pressure set-point", Feed::Exact(|p| p.get(FuelUllageSetpoint)));
    s.add("thrust_cmd", "%", "Thrust command", Feed::Exact(|p| (p.get(ThrustCommand) * 10.0).round() / 10.0));
    s.add("valve_press_lox", "", "LOX pressurisation valve open", Feed::Opened(Valve::LoxPressurisation as usize));
    s.add("valve_press_fuel", "", "Fuel pressurisation valve open", Feed::Opened(Valve::FuelPressurisation as usize));
    s.add("valve_relief_lox", "", "LOX relief valve open", Feed::Opened(Valve::LoxRelief as usize));
    s.add("valve_relief_fuel", "", "Fuel relief valve open", Feed::Opened(Valve::FuelRelief as usize));
    s.add("valve_vent_lox", "", "LOX vent valve open", Feed::Opened(Valve::LoxVent as usize));
    s.add("on_internal", "", "Runs on internal power", Feed::Flag(Plant::internal_power));
    s.add("armed", "", "Flight termination armed", Feed::Flag(Plant::termination_armed));
    s.add("umbilical", "", "Umbilical connected", Feed::Flag(Plant::umbilical));
    s.add("cycles", "", "Control cycles since power on", Feed::Count(1_000_000 * acu as i64));
    s.add(
        "state",
        "",
        "State of the control unit",
        Feed::Word(|p| if p.internal_power() { "FLIGHT" } else { "GROUND" }),
    );
    s
}

fn inertial(seed: u64, unit: &'static str, phase: u64) -> PadStream {
    use Var::*;
    let mut r = Random::new(seed, 0xac_2000 + phase);
    let stream =
        PadStream::new("avionics.imu", PadSource::Avionics, (EVERY, phase), Random::new(seed, 0xac_3000 + phase));
    let mut s = stream.tagged("unit", unit).jitter(JITTER_NS);
    for (axis, var) in [("x", AccelerationX), ("y", Zero), ("z", Zero)] {
        let sensor =
            Sensor::new(Input::Var(var), 16, -80.0, 80.0, PERIOD_S, &mut r).ringing(9.0, 0.004, Vibration, 0.4);
        s.add(&format!("acc_{axis}"), "m/s²", "Acceleration", Feed::Sensor(sensor));
    }
    for axis in ["x", "y", "z"] {
        let sensor = Sensor::new(Input::Var(Zero), 16, -2.0, 2.0, PERIOD_S, &mut r).ringing(4.0, 4e-4, Vibration, 0.02);
        s.add(&format!("gyro_{axis}"), "rad/s", "Angular rate", Feed::Sensor(sensor));
    }
    for axis in ["x", "y", "z"] {
        let sensor = Sensor::new(Input::Var(Zero), 12, -80.0, 80.0, PERIOD_S, &mut r).scaled(1.0, 31.0);
        s.add(&format!("mag_{axis}"), "µT", "Magnetic field", Feed::Sensor(sensor.slow(0.5)));
    }
    let sensor = Sensor::new(Input::Var(BoardT), 12, -40.0, 120.0, PERIOD_S, &mut r).scaled(1.0, 6.0).slow(8.0);
    s.add("t_sensor", "°C", "Sensor temperature", Feed::Sensor(sensor));
    s.add("samples", "", "Samples since power on", Feed::Count(0));
    s.add("valid", "", "Self test passed", Feed::Flag(|_| true));
    s
}

fn receiver(seed: u64) -> PadStream {
    use Var::*;
    let mut r = Random::new(seed, 0xac_4000);
    let stream = PadStream::new("avionics.gnss", PadSource::Avionics, (EVERY, 5), Random::new(seed, 0xac_5000));
    let mut s = stream.jitter(JITTER_NS);
    // The pad at Andøya, in steps of 1e-7 degree and of a millimetre, as receivers send it.
    let wander = |base, per_unit, rms_steps: f64| Feed::Fix {
        base,
        per_unit,
        drift: Drift::new(rms_steps, 25.0, PERIOD_S),
        noise: rms_steps * 0.2,
    };
    s.add("lat", "°", "Latitude", wander(|p| 69.10823 + p.get(Altitude) * 3.1e-6, 1e7, 60.0));
    s.add("lon", "°", "Longitude", wander(|p| 15.58890 - p.get(Altitude) * 5.4e-6, 1e7, 90.0));
    s.add("alt", "m", "Altitude over the ellipsoid", wander(|p| 24.6 + p.get(Altitude), 1e3, 900.0));
    for (name, var, low, high) in [
        ("speed", Velocity, -100.0, 9000.0),
        ("climb", Velocity, -100.0, 9000.0),
        ("pdop", Zero, -1.0, 9.0),
        ("t_receiver", BoardT, -40.0, 120.0),
        ("clock_bias", Zero, -100.0, 100.0),
    ] {
        let (unit, text) = match name {
            "pdop" => ("", "Position dilution of precision"),
            "t_receiver" => ("°C", "Receiver temperature"),
            "clock_bias" => ("ns", "Receiver clock bias"),
            "climb" => ("m/s", "Vertical speed"),
            _ => ("m/s", "Speed over ground"),
        };
        let bias = if name == "pdop" { 1.4 } else { 0.0 };
        let sensor = Sensor::new(Input::Var(var), 16, low, high, PERIOD_S, &mut r).scaled(1.0, bias);
        s.add(name, unit, text, Feed::Sensor(sensor));
    }
    for i in 1..=4 {
        let sensor = Sensor::new(Input::Var(Zero), 12, 0.0, 64.0, PERIOD_S, &mut r);
        let sensor = sensor.scaled(1.0, 38.0 + 2.0 * f64::from(i));
        s.add_of(format!("cn0_{i}"), "cn0_?".into(), "dBHz", "Carrier to noise density", Feed::Sensor(sensor));
    }
    s.add("satellites", "", "Satellites in use", Feed::Exact(|p| if p.get(Altitude) > 30_000.0 { 9.0 } else { 14.0 }));
    s.add(
        "fix",
        "",
        "Kind of fix",
        Feed::Word(|p| if p.get(Thrust) > 50.0 && p.get(Altitude) < 400.0 { "2D" } else { "3D" }),
    );
    s.add("valid", "", "Position is valid", Feed::Flag(|_| true));
    s.add("messages", "", "Messages since power on", Feed::Count(0));
    s
}

fn guidance(seed: u64) -> PadStream {
    use Var::*;
    let mut r = Random::new(seed, 0xac_6000);
    let stream = PadStream::new("avionics.gnc", PadSource::Avionics, (EVERY, 7), Random::new(seed, 0xac_7000));
    let mut s = stream.jitter(JITTER_NS);
    s.add("mode", "", "Mode of the guidance", Feed::Word(|p| p.countdown.mode()));
    s.add("t_clock", "s", "Countdown clock, negative before lift-off", Feed::Double(|p| p.countdown.clock_s()));
    s.add("holding", "", "The clock stands", Feed::Flag(|p| p.countdown.holding()));
    s.add(
        "navigation",
        "",
        "Navigation solution",
        Feed::Word(|p| if p.get(Velocity) > 1.0 { "INERTIAL" } else { "ALIGNED" }),
    );
    s.add("stage", "", "Active stage", Feed::Word(|p| if p.get(Thrust) > 5.0 { "STAGE_1" } else { "NONE" }));
    s.add("lift_off", "", "Lift-off detected", Feed::Flag(|p| p.get(Altitude) > 1.0));
    s.add("thrust_cmd", "%", "Thrust command", Feed::Exact(|p| (p.get(ThrustCommand) * 10.0).round() / 10.0));
    s.add("pitch_cmd", "°", "Commanded pitch", Feed::Exact(|p| (p.get(Pitch) * 100.0).round() / 100.0));
    for (name, unit, description, var, low, high) in [
        ("pitch", "°", "Pitch", Pitch, -20.0, 110.0),
        ("yaw", "°", "Yaw", Zero, -45.0, 45.0),
        ("roll", "°", "Roll", Zero, -180.0, 180.0),
        ("altitude", "m", "Altitude over the pad", Altitude, -1000.0, 250_000.0),
        ("velocity", "m/s", "Inertial velocity", Velocity, -100.0, 9000.0),
        ("p_dynamic", "kPa", "Dynamic pressure", DynamicP, -5.0, 95.0),
        ("acceleration", "m/s²", "Axial acceleration", AccelerationX, -20.0, 80.0),
        ("error_pitch", "°", "Attitude error, pitch", Zero, -5.0, 5.0),
        ("error_yaw", "°", "Attitude error, yaw", Zero, -5.0, 5.0),
        ("error_roll", "°", "Attitude error, roll", Zero, -5.0, 5.0),
    ] {
        let sensor = Sensor::new(Input::Var(var), 16, low, high, PERIOD_S, &mut r);
        s.add(name, unit, description, Feed::Sensor(sensor));
    }
    s.add("cycles", "", "Guidance cycles since power on", Feed::Count(0));
    s.add("ready", "", "Guidance ready", Feed::Flag(|p| p.countdown.clock_s() > -120.0));
    s
}

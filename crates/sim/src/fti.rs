//! Flight test instrumentation: three iNET-X streams at 50 packets/s, 2,500 points/s in all.

use crate::channel::{Feed, PadSource, PadStream};
use crate::noise::Random;
use crate::plant::{Plant, Var};
use crate::sensor::{Input, Sensor};

/// Seed of the calibrations, the same for every pad: the server's packet layouts contain them.
const CALIBRATION: u64 = 0xca1;
/// Number of samples of the vibration channel in one packet.
pub(crate) const SUB_SAMPLES: u32 = 20;
/// Seconds between packets.
const PERIOD_S: f64 = 0.020;
/// iNET-X stream ids: engine bay, vibration, discretes.
pub(crate) const BAY_ID: u32 = 0x0DD;
pub(crate) const VIBRATION_ID: u32 = 0x0DE;
pub(crate) const DISCRETES_ID: u32 = 0x0DF;

/// Returns the three streams.
pub(crate) fn streams(seed: u64) -> Vec<PadStream> {
    vec![bay(seed), vibration(seed), discretes(seed)]
}

fn bay(seed: u64) -> PadStream {
    let mut r = Random::new(seed, 0xf701);
    let mut s = PadStream::new("fti.bay", PadSource::Fti, (4, 1), Random::new(seed, 0xf702));
    s.inetx_id = Some(BAY_ID);
    let mut sensor = |var, bits, low, high| Sensor::new(Input::Var(var), bits, low, high, PERIOD_S, &mut r);
    let turbopump = sensor(Var::TurboT, 16, -210.0, 1000.0).slow(0.6);
    let wall = sensor(Var::TurboT, 16, -210.0, 1000.0).scaled(0.35, 22.0).slow(4.0);
    s.add("t_turbopump", "°C", "Turbopump housing temperature", Feed::Sensor(turbopump));
    s.add("t_gg_wall", "°C", "Gas generator wall temperature", Feed::Sensor(wall));
    for i in 1..=6 {
        let gain = 0.7 + 0.12 * f64::from(i);
        let probe = sensor(Var::BayT, 12, -60.0, 140.0).scaled(gain, 1.7 * f64::from(i)).slow(2.0 + f64::from(i));
        s.add_of(format!("t_bay_{i:02}"), "t_bay_??".into(), "°C", "Engine bay temperature", Feed::Sensor(probe));
    }
    for i in 1..=4 {
        let gauge = sensor(Var::ChamberP, 16, -5.0, 120.0).scaled(0.02 * f64::from(i), 0.98);
        s.add_of(format!("p_base_{i:02}"), "p_base_??".into(), "bar", "Base plate pressure", Feed::Sensor(gauge));
    }
    for (axis, gain) in [("x", 1.0), ("y", 0.62), ("z", 0.71)] {
        let rms = sensor(Var::Vibration, 12, -0.5, 9.5).scaled(gain, 0.05);
        s.add(&format!("vib_{axis}_rms"), "g", "Vibration level at the thrust frame", Feed::Sensor(rms));
    }
    for i in 1..=8 {
        let load = sensor(Var::Thrust, 16, -1500.0, 3500.0).scaled(9.0 + 1.4 * f64::from(i), -40.0 * f64::from(i));
        let load = load.calibrated(&mut Random::new(CALIBRATION, i as u64));
        s.add_of(format!("strain_{i:02}"), "strain_??".into(), "µm/m", "Thrust frame strain", Feed::Sensor(load));
    }
    let speed = sensor(Var::TurboSpeed, 16, -500.0, 40_000.0);
    s.add("n_turbopump", "1/min", "Turbopump speed", Feed::Sensor(speed));
    s
}

fn vibration(seed: u64) -> PadStream {
    let mut r = Random::new(seed, 0xf721);
    let table = format!("fti.vibration.x{SUB_SAMPLES}");
    let mut s = PadStream::new(&table, PadSource::Fti, (4, 2), Random::new(seed, 0xf722));
    s.inetx_id = Some(VIBRATION_ID);
    s.burst = SUB_SAMPLES;
    s.period_ns = 1_000_000;
    let sensor = Sensor::new(Input::Var(Var::Zero), 16, -32.768, 32.767, PERIOD_S / f64::from(SUB_SAMPLES), &mut r);
    let sensor = sensor.ringing(137.0, 0.05, Var::Vibration, 1.0);
    s.add("acc_z", "g", "Thrust frame acceleration, 1 kHz", Feed::Sensor(sensor));
    s
}

fn discretes(seed: u64) -> PadStream {
    let mut r = Random::new(seed, 0xf731);
    let mut s = PadStream::new("fti.discretes", PadSource::Fti, (4, 3), Random::new(seed, 0xf732));
    s.inetx_id = Some(DISCRETES_ID);
    s.add("umbilical", "", "Umbilical connected", Feed::Flag(Plant::umbilical));
    s.add("heater", "", "Instrumentation heater on", Feed::Flag(|p| p.get(Var::BayT) < 4.0));
    s.add("recording", "", "On-board recorder runs", Feed::Flag(Plant::internal_power));
    s.add("attempt", "", "Launch attempt, modulo 16", Feed::Double(|p| f64::from(p.countdown.attempt() % 16)));
    s.add("frame_count", "", "Frames since power on", Feed::Count(1));
    let battery = Sensor::new(Input::Var(Var::BusV), 12, 18.0, 34.0, PERIOD_S, &mut r);
    s.add("v_battery", "V", "Instrumentation battery voltage", Feed::Sensor(battery));
    s
}

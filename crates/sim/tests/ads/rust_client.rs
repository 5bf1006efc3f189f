//! The PLC as the Rust crate `ads` sees it, against the values that an independent pad computes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ads::notif::{Attributes, TransmissionMode};
use ads::symbol::{Handle, Symbol, get_location, get_size, get_symbol_info};
use ads::{AmsAddr, AmsNetId, Client, Device, Source, Timeouts};
use strongback_sim::{Cell, CycleUnit, Pad, PadOptions, PadSource, PadStep, PlcOptions};

use crate::raw::{DATA, MEMORY, PATIENCE, start};

const PLC: AmsAddr = AmsAddr::new(AmsNetId::new(5, 12, 20, 1, 1, 1), 851);

fn options() -> PlcOptions {
    // The crate sends milliseconds.
    PlcOptions { cycle_unit: CycleUnit::Milliseconds, ..PlcOptions::default() }
}

fn client(to: SocketAddr) -> Client {
    Client::new(to, Timeouts::new(PATIENCE), Source::Auto).unwrap()
}

/// The symbols by name.
fn symbols(device: Device) -> HashMap<String, Symbol> {
    get_symbol_info(device).unwrap().0.into_iter().map(|s| (s.name.clone(), s)).collect()
}

/// The code of ADS in an error.
fn code<T>(result: ads::Result<T>) -> u32 {
    match result {
        Err(ads::Error::Ads(_, _, code)) => code,
        Err(other) => panic!("{other}"),
        Ok(_) => 0,
    }
}

/// The pad's own word on every channel of its PLC after so many cycles of 1 ms, by symbol.
struct Truth {
    pad: Pad,
    step: PadStep,
    steps: u32,
    cells: HashMap<String, Cell>,
    fast: Vec<Vec<Cell>>,
}

impl Truth {
    fn new(options: PadOptions) -> Self {
        let pad = Pad::new(options);
        Truth { pad, step: PadStep::default(), steps: 0, cells: HashMap::new(), fast: Vec::new() }
    }

    /// Values of a cycle; cycles must ascend.
    fn at(&mut self, cycle: u32) -> &HashMap<String, Cell> {
        while self.steps < cycle.div_ceil(5) {
            // The slow groups of a step count from its last cycle on.
            self.keep_slow();
            self.pad.step(&mut self.step);
            self.steps += 1;
            let fast = self.step.frames.iter().filter(|f| self.pad.streams()[f.stream].source == PadSource::PlcFast);
            self.fast = fast.map(|f| self.step.cells(f).to_vec()).collect();
        }
        if cycle.is_multiple_of(5) {
            self.keep_slow();
        }
        let stream = self.pad.streams().iter().find(|s| s.source == PadSource::PlcFast).unwrap();
        for (channel, cell) in stream.channels.iter().zip(&self.fast[(cycle as usize + 4) % 5]) {
            self.cells.insert(format!("FAST.{}", channel.name), *cell);
        }
        &self.cells
    }

    fn keep_slow(&mut self) {
        for frame in &self.step.frames {
            let stream = &self.pad.streams()[frame.stream];
            if stream.source != PadSource::Plc {
                continue;
            }
            for (channel, cell) in stream.channels.iter().zip(self.step.cells(frame)) {
                let name = format!("{}.{}", stream.table.replace("plc.", "MAIN."), channel.name);
                self.cells.insert(name, *cell);
            }
        }
    }
}

/// Whether the bytes of a symbol say what a cell says.
fn says(symbol: &Symbol, bytes: &[u8], cell: &Cell) -> bool {
    assert_eq!(bytes.len(), symbol.size, "{}", symbol.name);
    match (symbol.typ.as_str(), cell) {
        ("REAL", Cell::Quantised { value, .. } | Cell::F32(value)) => bytes == value.to_le_bytes(),
        ("LREAL", Cell::F64(value)) => bytes == value.to_le_bytes(),
        ("INT", Cell::F32(value)) => bytes == (*value as i16).to_le_bytes(),
        ("DINT", Cell::I64(value)) => bytes == (*value as i32).to_le_bytes(),
        ("BOOL", Cell::Bool(value)) => bytes == [u8::from(*value)],
        ("E_Valve", Cell::Text(word)) => {
            let number = ["CLOSED", "OPENING", "OPEN", "CLOSING"].iter().position(|w| w == word).unwrap();
            bytes == (number as i16).to_le_bytes()
        }
        ("STRING(20)", Cell::Text(word)) => {
            let mut text = word.as_bytes().to_vec();
            text.resize(21, 0);
            bytes == text
        }
        other => panic!("{}: {other:?}", symbol.name),
    }
}

#[test]
fn every_channel_is_a_symbol_with_its_type_and_place() {
    let plc = start(options());
    let client = client(plc.address());
    let device = client.device(PLC);
    let (list, types) = get_symbol_info(device).unwrap();
    let by_name: HashMap<&str, &Symbol> = list.iter().map(|s| (s.name.as_str(), s)).collect();
    assert_eq!(by_name.len(), list.len(), "a name is there twice");
    let mut truth = Truth::new(options().pad);
    let channels = truth.at(100);
    assert_eq!(channels.len(), 1_050);
    for name in channels.keys() {
        assert!(by_name.contains_key(name.as_str()), "{name}");
    }
    let used: std::collections::HashSet<&str> = list.iter().map(|s| s.typ.as_str()).collect();
    for wanted in ["BOOL", "INT", "DINT", "REAL", "LREAL", "STRING(20)", "TIME", "DATE_AND_TIME", "E_Valve", "ST_Tank"]
    {
        assert!(used.contains(wanted), "no symbol is {wanted}");
    }
    assert!(used.contains("ARRAY [1..145] OF INT"));
    assert_eq!(list.iter().filter(|s| s.name.starts_with("MAIN.thermocouples.tc_")).count(), 145);
    // Everything lies aligned and apart, each symbol's type is known, and has its size.
    let mut ends = HashMap::from([(DATA, 0), (MEMORY, 0)]);
    for symbol in &list {
        let kind = &types[&symbol.typ];
        assert_eq!(kind.size, symbol.size, "{}", symbol.name);
        let end = ends.get_mut(&symbol.ix_group).unwrap();
        assert!(symbol.ix_offset >= *end, "{} lies in another symbol", symbol.name);
        *end = symbol.ix_offset + symbol.size as u32;
        assert_eq!(get_location(device, &symbol.name).unwrap(), (symbol.ix_group, symbol.ix_offset));
        assert_eq!(get_size(device, &symbol.name).unwrap(), symbol.size);
    }
    // A thousand neighbours, the first and the last of them the cycle.
    let first = by_name["FAST.cycle"];
    let last = by_name["FAST.cycle_end"];
    assert_eq!(last.ix_offset - first.ix_offset, 999 * 4);
    assert_eq!(
        list.iter().filter(|s| (first.ix_offset..=last.ix_offset).contains(&s.ix_offset) && s.ix_group == DATA).count(),
        1_000
    );
    // The structure, member by member, with a gap where alignment wants one.
    let tank = &types["ST_Tank"];
    let members: Vec<(&str, &str, Option<u32>, usize)> =
        tank.fields.iter().map(|f| (f.name.as_str(), f.typ.as_str(), f.offset, f.size)).collect();
    assert_eq!(
        members,
        [
            ("filling", "BOOL", Some(0), 1),
            ("level", "LREAL", Some(8), 8),
            ("pressure", "REAL", Some(16), 4),
            ("setpoint", "REAL", Some(20), 4),
            ("fill", "E_Valve", Some(24), 2),
            ("vent", "E_Valve", Some(26), 2),
            ("name", "STRING(15)", Some(28), 16),
            ("line", "ST_Line", Some(44), 12),
            ("wall", "ARRAY [1..4] OF REAL", Some(56), 16),
            ("changed", "DATE_AND_TIME", Some(72), 4),
            ("since", "TIME", Some(76), 4),
        ]
    );
    assert_eq!((tank.size, tank.base_type), (80, 65));
    assert_eq!(tank.fields[8].array, [(1, 4)]);
    assert_eq!(types["ARRAY [1..145] OF INT"].array, [(1, 145)]);
    assert!(types["E_Valve"].flags & 0x2000 != 0);
    assert_eq!(device.get_info().unwrap().name, "Plc30 App");
}

#[test]
fn reads_by_sum_see_one_cycle_and_the_values_of_the_plant() {
    let plc = start(options());
    let client = client(plc.address());
    let device = client.device(PLC);
    let symbols = symbols(device);
    let mut truth = Truth::new(options().pad);
    let names: Vec<String> = truth.at(100).keys().cloned().collect();
    let fast = &symbols["FAST.cycle"];
    let mut cycles = Vec::new();
    // 1,050 channels in sums of 350, each with the counter in front and its double at the end.
    for part in names.chunks(350).cycle().take(30) {
        let mut buffers: Vec<Vec<u8>> = part.iter().map(|n| vec![0; symbols[n].size]).collect();
        let (mut first, mut last) = ([0; 4], [0; 4]);
        let end = &symbols["FAST.cycle_end"];
        let mut requests = vec![ads::client::ReadRequest::new(DATA, fast.ix_offset, &mut first)];
        for (name, buffer) in part.iter().zip(&mut buffers) {
            requests.push(ads::client::ReadRequest::new(symbols[name].ix_group, symbols[name].ix_offset, buffer));
        }
        requests.push(ads::client::ReadRequest::new(DATA, end.ix_offset, &mut last));
        device.read_multi(&mut requests).unwrap();
        for request in &requests {
            request.data().unwrap();
        }
        drop(requests);
        assert_eq!(first, last, "a sum saw two cycles");
        let cycle = u32::from_le_bytes(first);
        let values = truth.at(cycle);
        for (name, buffer) in part.iter().zip(&buffers) {
            assert!(says(&symbols[name], buffer, &values[name]), "{name} in cycle {cycle}: {buffer:?}");
        }
        cycles.push(cycle);
    }
    assert!(cycles.windows(2).all(|w| w[0] <= w[1]));
    assert!(cycles[0] >= 100);
    assert_eq!(plc.report().requests["sum_read"], 30);
}

#[test]
fn reads_by_name_find_members_and_elements() {
    let plc = start(options());
    let client = client(plc.address());
    let device = client.device(PLC);
    let mut truth = Truth::new(options().pad);
    let read = |name: &str, buffer: &mut [u8]| Handle::new(device, name).unwrap().read(buffer).unwrap();
    // The whole structure, its members, and the same in the array of both, all of a stopped program.
    device.write_control(ads::AdsState::Stop, 0).unwrap();
    let (mut whole, mut cycle) = ([0; 80], [0; 4]);
    read("MAIN.task.cycle", &mut cycle);
    read("MAIN.lox.tank", &mut whole);
    let cycle = u32::from_le_bytes(cycle);
    let values = truth.at(cycle);
    let mut fill = [0; 2];
    read("main.LOX.Tank.FILL", &mut fill);
    let Cell::Text(word) = values["MAIN.lox.fill_valve"] else { panic!() };
    assert_eq!(fill, whole[24..26], "names have no case");
    assert_eq!(["CLOSED", "OPENING", "OPEN", "CLOSING"][usize::from(fill[0])], word);
    let mut second = [0; 4];
    read("MAIN.lox.tank.wall[2]", &mut second);
    assert_eq!(second, whole[60..64]);
    let (mut flow, mut twin) = ([0; 4], [0; 4]);
    read("MAIN.fuel.tank.line.flow", &mut flow);
    read("MAIN.tanks[2].line.flow", &mut twin);
    assert_eq!(flow, twin);
    assert_eq!(&whole[28..33], b"LOX\0\0");
    // Arrays hold what the channels hold: a load cell's value, a thermocouple's code.
    let mut load = [0; 4];
    read("MAIN.gse.load[3]", &mut load);
    let Cell::Quantised { value, .. } = values["MAIN.gse.load_03"] else { panic!() };
    assert_eq!(load, value.to_le_bytes());
    let mut raw = [0; 290];
    read("MAIN.thermocouples.raw", &mut raw);
    for n in 1..=145 {
        let Cell::Quantised { code, .. } = values[&format!("MAIN.thermocouples.tc_{n:03}")] else { panic!() };
        let raw = i16::from_le_bytes(raw[2 * n - 2..2 * n].try_into().unwrap());
        assert_eq!(i32::from(raw) + 0x8000, code as i32, "thermocouple {n}");
    }
    for missing in
        ["MAIN.lox.tank.wall[0]", "MAIN.lox.tank.wall[5]", "MAIN.tanks[1", "MAIN.lox.tank.colour", "", "MAIN"]
    {
        assert_eq!(code(Handle::new(device, missing)), 0x710, "{missing:?}");
    }
    assert_eq!(device.get_state().unwrap(), (ads::AdsState::Stop, 0));
    assert!(!plc.report().running);
    device.write_control(ads::AdsState::Run, 0).unwrap();
    assert_eq!(device.get_state().unwrap(), (ads::AdsState::Run, 0));
}

/// A cyclic notification every 1 ms of all that lies from one symbol to another: samples of so many cycles.
fn block(device: Device, symbols: &HashMap<String, Symbol>, cycles: usize) -> (u32, Vec<(u64, Vec<u8>)>) {
    let first = &symbols["FAST.cycle"];
    let length = symbols["FAST.acc_08"].ix_offset as usize + 4 - first.ix_offset as usize;
    let ms = Duration::from_millis(1);
    let attributes = Attributes::new(length, TransmissionMode::ServerCycle, Duration::ZERO, ms);
    let handle = device.add_notification(DATA, first.ix_offset, &attributes).unwrap();
    let mut samples = Vec::new();
    let all = device.client.get_notification_channel();
    while samples.len() < cycles {
        for sample in all.recv_timeout(PATIENCE).unwrap().samples() {
            assert_eq!(sample.handle, handle);
            samples.push((sample.timestamp, sample.data.to_vec()));
        }
    }
    device.delete_notification(handle).unwrap();
    (first.ix_offset, samples)
}

#[test]
fn a_block_every_millisecond_misses_no_cycle_and_has_the_plant_s_values() {
    let plc = start(options());
    let client = client(plc.address());
    let device = client.device(PLC);
    let symbols = symbols(device);
    let (start, samples) = block(device, &symbols, 500);
    let mut truth = Truth::new(options().pad);
    let word = |bytes: &[u8], symbol: &Symbol| -> [u8; 4] {
        let at = (symbol.ix_offset - start) as usize;
        bytes[at..at + 4].try_into().unwrap()
    };
    let sensors: Vec<String> = truth
        .pad
        .streams()
        .iter()
        .find(|s| s.table == "plc.fast")
        .unwrap()
        .channels
        .iter()
        .map(|c| format!("FAST.{}", c.name))
        .collect();
    let mut before: Option<(u64, u32, Vec<u8>)> = None;
    for (time, bytes) in &samples {
        let cycle = u32::from_le_bytes(word(bytes, &symbols["FAST.cycle"]));
        assert_eq!(word(bytes, &symbols["FAST.cycle_end"]), cycle.to_le_bytes(), "two cycles in one sample");
        let values = truth.at(cycle);
        for (n, name) in sensors.iter().enumerate() {
            let Cell::Quantised { value, .. } = values[name] else { panic!() };
            assert_eq!(word(bytes, &symbols[name]), value.to_le_bytes(), "{name} in cycle {cycle}");
            // The strains made of this sensor.
            for strain in (n + 1..=998).step_by(sensors.len()) {
                let got = f32::from_le_bytes(word(bytes, &symbols[&format!("FAST.strain_{strain:04}")]));
                let wanted = value * (1.0 + strain as f32 / 1000.0);
                assert!(got.to_bits().abs_diff(wanted.to_bits()) <= 1, "strain {strain}: {got} of {wanted}");
            }
        }
        if let Some((time_before, cycle_before, bytes_before)) = before {
            assert_eq!(cycle, cycle_before + 1, "a cycle is missing");
            assert_eq!(*time, time_before + 10_000, "stamps are 1 ms apart");
            let changed = bytes.chunks(4).zip(bytes_before.chunks(4)).take(1_000).filter(|(a, b)| a != b).count();
            assert_eq!(changed, 1_000);
        }
        before = Some((*time, cycle, bytes.clone()));
    }
    // The stamp is this time: 100 ns since 1601.
    let unix_s = before.unwrap().0 / 10_000_000 - 11_644_473_600;
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(unix_s.abs_diff(now_s) < 60, "{unix_s} is not {now_s}");
    drop(client);
    let report = plc.stop();
    assert!(report.samples_sent >= 500);
    assert_eq!(report.requests["add_notification"], 1);
    assert_eq!(report.requests["write"] + report.requests["write_control"] + report.requests["sum_write"], 0);
}

#[test]
fn the_client_s_sums_write_find_watch_and_forget() {
    let plc = start(options());
    let client = client(plc.address());
    let device = client.device(PLC);
    // Handles of three names, one of them none.
    let names = ["HMI.target", "HMI.nothing", "HMI.limits[8]"];
    let mut handles = [[0; 4]; 3];
    let asked = names.iter().zip(&mut handles);
    let mut requests: Vec<_> =
        asked.map(|(name, to)| ads::client::WriteReadRequest::new(0xF003, 0, name.as_bytes(), to)).collect();
    device.write_read_multi(&mut requests).unwrap();
    assert_eq!(requests.iter().map(|r| code(r.data())).collect::<Vec<_>>(), [0, 0x710, 0]);
    drop(requests);
    let (target, limit) = (u32::from_le_bytes(handles[0]), u32::from_le_bytes(handles[2]));
    let every = |mode| Attributes::new(4, mode, Duration::ZERO, Duration::from_millis(3));
    let (cyclic, changed) = (every(TransmissionMode::ServerCycle), every(TransmissionMode::ServerOnChange));
    let place = get_location(device, "FAST.cycle").unwrap();
    let mut watch = [
        ads::client::AddNotifRequest::new(place.0, place.1, &cyclic),
        ads::client::AddNotifRequest::new(0xF005, target, &changed),
        ads::client::AddNotifRequest::new(0xF005, 1, &changed),
    ];
    device.add_notification_multi(&mut watch).unwrap();
    assert_eq!(code(watch[2].handle()), 0x710);
    let (cycle, target_watch) = (watch[0].handle().unwrap(), watch[1].handle().unwrap());
    // Two targets, written once the one before was seen; a cycle in every third of them.
    let samples = client.get_notification_channel();
    let (mut cycles, mut targets) = (Vec::new(), Vec::new());
    while cycles.len() < 20 || targets.len() < 3 {
        for sample in samples.recv_timeout(PATIENCE).unwrap().samples() {
            let value = u32::from_le_bytes(sample.data.try_into().unwrap());
            if sample.handle == cycle {
                cycles.push(value);
                continue;
            }
            assert_eq!(sample.handle, target_watch);
            targets.push(value);
            let (next, rate) = ((value + 5).to_le_bytes(), 0.5f32.to_le_bytes());
            let mut writes = [
                ads::client::WriteRequest::new(0xF005, target, &next),
                ads::client::WriteRequest::new(0xF005, limit, &rate),
                ads::client::WriteRequest::new(0xF005, limit, &[0; 3]),
            ];
            device.write_multi(&mut writes).unwrap();
            assert_eq!([0, 1, 2].map(|n: usize| code(writes[n].ensure())), [0, 0, 0x705]);
        }
    }
    assert_eq!(targets[..3], [0, 5, 10]);
    assert!(cycles.windows(2).all(|w| w[1] - w[0] == 3), "{cycles:?}");
    assert_eq!(device.read_value::<[u8; 4]>(0xF005, limit).unwrap(), 0.5f32.to_le_bytes());
    let mut forget = [cycle, target_watch, cycle].map(ads::client::DelNotifRequest::new);
    device.delete_notification_multi(&mut forget).unwrap();
    assert_eq!([0, 1, 2].map(|n: usize| code(forget[n].ensure())), [0, 0, 0x714]);
    // Everything that came before is read; then nothing comes any more.
    while samples.try_recv().is_ok() {}
    let cycles_now = plc.report().cycles;
    while plc.report().cycles < cycles_now + 20 {}
    assert!(samples.try_recv().is_err());
}

#[test]
fn a_dozen_clients_each_get_every_cycle() {
    let plc = start(options());
    let address = plc.address();
    let done = Arc::new(AtomicU32::new(0));
    let until = Instant::now() + PATIENCE;
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let done = done.clone();
            std::thread::spawn(move || {
                let client = client(address);
                let symbols = symbols(client.device(PLC));
                let (_, samples) = block(client.device(PLC), &symbols, 100);
                let cycles: Vec<u32> =
                    samples.iter().map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().unwrap())).collect();
                // Nobody leaves before the last one has what it wants.
                done.fetch_add(1, Ordering::Relaxed);
                while done.load(Ordering::Relaxed) < 12 {
                    assert!(Instant::now() < until, "others never got their cycles");
                    std::thread::yield_now();
                }
                assert!(cycles.windows(2).all(|w| w[1] == w[0] + 1), "{cycles:?}");
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(plc.stop().connections, 12);
}

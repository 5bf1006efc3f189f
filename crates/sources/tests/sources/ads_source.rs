//! A PLC read as the server does it, against one that does what the test says: real sockets, no waiting for a clock.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use strongback_sources::ads::browse::{BrowseError, browse};
use strongback_sources::ads::{AdsCounts, Arrays, PlcAddress, PlcSource, RunningPlc};
use strongback_sources::layout::compile_all;
use strongback_sources::{SourceConfig, wall_clock};
use strongback_store::{Refusal, Value};

use crate::ads_peer::{Manner, Peer, Plc, Stamp, message, notification, symbol};
use crate::ads_program;
use crate::recording::{Kept, KeptFrame, Recording, eventually};

const T0: i64 = 1_780_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// A PLC with a hundred LREAL next to each other, the program of `ads_program` in another memory, and one apart.
fn plc() -> Plc {
    let mut symbols: Vec<u8> =
        (0..100).flat_map(|i| symbol(&format!("MAIN.ch{i:03}"), (0x4020, 8 * i, 8), 5, "LREAL", "")).collect();
    symbols.extend(symbol("MAIN.far", (0x4020, 60_000, 4), 3, "DINT", ""));
    symbols.extend(ads_program::symbols());
    let memory: Vec<u8> =
        (0..100).flat_map(|i| f64::from(i).to_le_bytes()).chain(std::iter::repeat_n(7, 60_000)).collect();
    Plc {
        symbols,
        types: ads_program::types(),
        memory: [(0x4020, memory), (0x4040, vec![1; 256])].into(),
        version: 1,
        ..Plc::default()
    }
}

struct Bench {
    peer: Peer,
    sink: Arc<Recording>,
    running: RunningPlc,
}

impl Bench {
    fn start(plc: Plc, groups: &str) -> Bench {
        Bench::on(Peer::start(plc), Recording::new(), groups)
    }

    fn on(peer: Peer, sink: Arc<Recording>, groups: &str) -> Bench {
        let text = format!("name = 'plc'\nkind = 'ads'\nhost = '{}'\ntimeout_ms = 300\n{groups}", peer.address);
        let source: SourceConfig = toml::from_str(&text).unwrap();
        let layout = compile_all(&[source]).unwrap().plcs.remove(0);
        let running = PlcSource::start(layout, sink.clone(), wall_clock()).unwrap();
        Bench { peer, sink, running }
    }

    fn counts(&self) -> &AdsCounts {
        &self.running.counts
    }

    /// Frames of a stream so far.
    fn frames(&self, stream: &str) -> Vec<KeptFrame> {
        let streams = self.sink.streams();
        let Some(id) = streams.iter().find(|s| s.key.to_string() == stream).map(|s| s.id) else { return Vec::new() };
        self.sink.frames().into_iter().filter(|frame| frame.stream == id).collect()
    }

    fn wait_for(&self, stream: &str, count: usize) -> Vec<KeptFrame> {
        eventually(&format!("{count} frames of {stream}"), || {
            let frames = self.frames(stream);
            (frames.len() >= count).then_some(frames)
        })
    }

    /// Waits until the PLC notifies a place.
    fn handle(&self, group: u32, offset: u32) -> u32 {
        eventually(&format!("a notification of {group:#x}:{offset}"), || self.peer.handle(group, offset))
    }

    fn rejected(&self, reason: &str) -> u64 {
        self.counts().rejected.snapshot().iter().find(|(of, _)| *of == reason).map_or(0, |(_, n)| *n)
    }

    fn notes(&self, part: &str) -> String {
        let mut all = Vec::new();
        eventually(part, || {
            all.extend(self.counts().notes.take(usize::MAX));
            all.iter().find(|note| note.text.contains(part)).map(|note| note.text.clone())
        })
    }

    fn trouble(&self, symbol: &str) -> String {
        eventually(symbol, || {
            self.counts().troubles().into_iter().find(|trouble| trouble.symbol == symbol).map(|trouble| trouble.why)
        })
    }
}

fn numbers(frame: &KeptFrame) -> Vec<f64> {
    let number = |cell: &Kept| match cell {
        Kept::Plain(value) => value.as_f64().unwrap(),
        Kept::Text(text) => panic!("{text}"),
    };
    frame.cells.iter().map(|(_, cell)| number(cell.as_ref().unwrap())).collect()
}

fn doubles(range: std::ops::Range<i32>) -> Vec<u8> {
    range.flat_map(|i| f64::from(i).to_le_bytes()).collect()
}

const FAST: &str =
    "[[group]]\ntable = 'fast'\nsymbols = ['MAIN.ch*']\nstrip = 'MAIN.'\nmode = 'cyclic-notification'\ncycle_ms = 10\n";
const READ: &str = "[[group]]\ntable = 'read'\nsymbols = ['MAIN.ch*', 'MAIN.far']\ncycle_ms = 10\n";
const CHANGE: &str =
    "[[group]]\ntable = 'change'\nsymbols = ['MAIN.ch00?']\nmode = 'on-change-notification'\ncycle_ms = 1\n";

#[test]
fn values_are_read_in_cycles_by_few_requests() {
    let bench = Bench::start(plc(), READ);
    let frames = bench.wait_for("read", 5);
    let right: Vec<f64> = (0..100).map(f64::from).chain([f64::from(0x0707_0707)]).collect();
    for frame in &frames {
        assert_eq!(numbers(frame), right);
        assert_eq!(frame.source_time, None);
    }
    // Two blocks, and the symbol version before them.
    let sum_reads = bench.peer.asked(9, 0xF083);
    assert!(
        sum_reads as usize >= frames.len() && sum_reads as usize <= bench.wait_for("read", 6).len() + 8,
        "{sum_reads}"
    );
    let sequences: Vec<u64> = frames.iter().map(|frame| frame.sequence.unwrap()).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{sequences:?}");
    // Numbers are those of the clock, so that a restart of the server leaves a gap, too.
    let by_clock = frames[0].receive_time as u64 / 10_000_000;
    assert!(by_clock.abs_diff(sequences[0]) < 1_000, "{by_clock} {sequences:?}");
    assert_eq!(bench.counts().symbols.load(Relaxed), 101);
    assert_eq!(bench.counts().missing.load(Relaxed), 0);
}

#[test]
fn notifications_of_one_stamp_are_one_frame_with_the_time_of_the_plc() {
    let bench = Bench::start(plc(), FAST);
    let handle = bench.handle(0x4020, 0);
    let [_, _, size, mode, cycle] = bench.peer.plc.lock().handles[&handle];
    assert_eq!((size, mode, cycle), (800, 3, 100_000));
    let at = |n: i64| (T0 + n * 10 * MS, vec![(handle, doubles(0..100))]);
    // Several stamps in one message, and cycles 3 and 4 do not come.
    bench.peer.notify(&[at(0), at(1), at(2)]);
    bench.peer.notify(&[at(5)]);
    let frames = bench.wait_for("fast", 4);
    let right: Vec<f64> = (0..100).map(f64::from).collect();
    let first = T0 as u64 / 10_000_000;
    for (frame, n) in frames.iter().zip([0, 1, 2, 5]) {
        assert_eq!(numbers(frame), right);
        assert_eq!((frame.source_time, frame.sequence), (Some(T0 + n * 10 * MS), Some(first + n as u64)));
        assert!(frame.receive_time > T0 - 1_000 * MS || frame.receive_time > 0);
    }
    assert_eq!(bench.counts().dropped_cycles.load(Relaxed), 2);
    let stream = bench.sink.streams().into_iter().find(|s| s.key.table == "fast").unwrap();
    assert_eq!((stream.expected_period_ns, stream.sequence_modulus), (Some(10 * MS), Some(1 << 62)));
    assert_eq!(stream.layout.channels[3].name, "ch003");
}

#[test]
fn on_change_only_what_changed_is_in_a_frame() {
    let bench = Bench::start(plc(), CHANGE);
    let handles: Vec<u32> = (0..10).map(|i| bench.handle(0x4020, 8 * i)).collect();
    let sample = |i: usize, value: f64| (handles[i], value.to_le_bytes().to_vec());
    // One stamp over two messages is one frame; another stamp is another.
    let mut bytes = message(8, 4, 0, 0, &notification(&[(T0, vec![sample(0, 1.5)])]));
    bytes.extend(message(8, 4, 0, 0, &notification(&[(T0, vec![sample(9, 2.5)]), (T0 + MS, vec![sample(4, 3.5)])])));
    bench.peer.send(&bytes);
    let frames = bench.wait_for("change", 2);
    assert_eq!((numbers(&frames[0]), frames[0].source_time), (vec![1.5, 2.5], Some(T0)));
    assert_eq!((numbers(&frames[1]), frames[1].source_time), (vec![3.5], Some(T0 + MS)));
    assert_eq!(frames[0].cells.iter().map(|(channel, _)| channel.0).collect::<Vec<_>>(), [0, 9]);
    assert_eq!(frames[0].sequence, None);
}

#[test]
fn everything_but_reading_is_left_alone_and_handles_are_given_back() {
    let mut bench = Bench::start(plc(), &[FAST, READ, CHANGE].concat());
    bench.handle(0x4020, 0);
    bench.handle(0xF008, 0);
    bench.wait_for("read", 3);
    eventually("all handles", || (bench.counts().handles.load(Relaxed) == 12).then_some(()));
    bench.running.stop();
    let plc = bench.peer.plc.lock();
    assert_eq!(plc.handles.len(), 0, "{:?}", plc.handles);
    let commands: Vec<(u16, u32)> = plc.asked.keys().copied().collect();
    let allowed = [(1, 0), (2, 0xF008), (2, 0xF00B), (2, 0xF00E), (2, 0xF00F), (4, 0), (6, 0), (7, 0), (9, 0xF083)];
    assert!(commands.iter().all(|command| allowed.contains(command)), "{commands:?}");
    assert_eq!(plc.asked[&(6, 0)], plc.asked[&(7, 0)]);
}

#[test]
fn a_changed_program_is_looked_at_again_without_a_new_connection() {
    let bench = Bench::start(plc(), &[FAST, READ].concat());
    let before = bench.handle(0x4020, 0);
    let version = bench.handle(0xF008, 0);
    bench.wait_for("read", 2);
    {
        // ch000 moves, and a new one comes.
        let mut plc = bench.peer.plc.lock();
        let mut symbols: Vec<u8> = (0..100)
            .flat_map(|i| symbol(&format!("MAIN.ch{i:03}"), (0x4020, 8_000 + 8 * i, 8), 5, "LREAL", ""))
            .collect();
        symbols.extend(symbol("MAIN.chnew", (0x4020, 8_800, 4), 3, "DINT", ""));
        plc.symbols = symbols;
        plc.version = 2;
    }
    // Values of the stamp in which the version changed, and later ones, are of the new program, wherever they stand.
    let old = |ms: i64, mut samples: Vec<(u32, Vec<u8>)>| {
        samples.insert(0, (before, doubles(0..100)));
        (T0 + ms * MS, samples)
    };
    bench.peer.notify(&[old(-10, vec![]), old(0, vec![(version, vec![2])]), old(10, vec![])]);
    let after = bench.handle(0x4020, 8_000);
    assert_ne!(before, after);
    assert!(!bench.peer.plc.lock().handles.contains_key(&before), "the old handle is deleted");
    assert!(bench.notes("symbol version 2, was 1").contains("looked up anew"));
    let bytes = [doubles(0..100), 5_i32.to_le_bytes().to_vec()].concat();
    bench.peer.notify(&[(T0 + 10 * MS, vec![(after, bytes)])]);
    let frames = bench.wait_for("fast", 2);
    let cells: Vec<(i64, usize)> = frames.iter().map(|f| (f.source_time.unwrap() - T0, f.cells.len())).collect();
    assert_eq!(cells, [(-10 * MS, 100), (10 * MS, 101)]);
    assert_eq!(bench.trouble("MAIN.far"), "the program has no such symbol");
    assert_eq!(bench.counts().connections.load(Relaxed), 1);
    assert_eq!(bench.counts().program_changes.load(Relaxed), 1);
}

#[test]
fn what_is_read_across_a_change_is_not_taken_for_the_old_program() {
    let bench = Bench::start(plc(), READ);
    bench.wait_for("read", 1);
    {
        let mut plc = bench.peer.plc.lock();
        plc.version = 9;
        plc.symbols = symbol("MAIN.ch000", (0x4020, 0, 8), 5, "LREAL", "");
        plc.memory.insert(0x4020, vec![0xff; 70_000]);
    }
    bench.notes("symbol version 9, was 1");
    // The memory of the new program was never stored under the names of the old.
    let frames = bench.wait_for("read", 1);
    assert!(frames.iter().filter(|f| f.cells.len() > 1).all(|f| numbers(f)[1] == 1.0));
}

#[test]
fn a_symbol_that_cannot_be_read_does_not_hide_its_neighbours() {
    for packs in [false, true] {
        one_bad_symbol(packs);
    }
}

fn one_bad_symbol(packs: bool) {
    let bench = Bench::start(Plc { forbidden: vec![(0x4020, 8 * 50)], packs, ..plc() }, &[READ, FAST].concat());
    let frame = eventually("a frame without its neighbour", || {
        bench.frames("read").into_iter().find(|frame| frame.cells.len() == 100)
    });
    assert_eq!(numbers(&frame)[50], 51.0);
    assert!(bench.trouble("MAIN.ch050").contains("index 0x4020:0x190: ADS error 0x703"));
    // Of the notifications it is the same: 99 handles instead of one.
    let handle = bench.handle(0x4020, 8 * 51);
    bench.peer.notify(&[(T0, vec![(handle, 4.25_f64.to_le_bytes().to_vec())])]);
    assert_eq!(numbers(&bench.wait_for("fast", 1)[0]), [4.25]);
    eventually("both troubles", || (bench.counts().missing.load(Relaxed) == 2).then_some(()));
    // It comes back by itself where it is read.
    bench.peer.plc.lock().forbidden.clear();
    eventually("the value", || bench.frames("read").into_iter().find(|frame| frame.cells.len() == 101));
}

#[test]
fn what_came_of_one_block_stays_when_another_is_refused_and_split() {
    // More values than are notified one by one: two blocks, of which the second has a value that cannot be read.
    let place = |i: u32| if i < 60 { 8 * i } else { 8_000 + 8 * i };
    let symbols =
        (0..120).flat_map(|i| symbol(&format!("MAIN.ch{i:03}"), (0x4020, place(i), 8), 5, "LREAL", "")).collect();
    let forbidden = vec![(0x4020, place(70))];
    let change = CHANGE.replace("ch00?", "ch*");
    let bench = Bench::start(Plc { symbols, forbidden, additions_together: Some((2, T0)), ..plc() }, &change);
    // What does not change is sent once.
    let frame = &bench.wait_for("change", 1)[0];
    assert_eq!((numbers(frame), frame.source_time), ((0..60).map(f64::from).collect(), Some(T0)));
    let handle = bench.handle(0x4020, place(119));
    bench.peer.notify(&[(T0 + MS, vec![(handle, 4.25_f64.to_le_bytes().to_vec())])]);
    let frames = bench.wait_for("change", 2);
    assert_eq!(numbers(&frames[1]), [4.25]);
    assert_eq!(frames[1].cells[0].0.0, 119);
}

#[test]
fn a_plc_that_sends_too_fast_is_read_instead() {
    let bench = Bench::start(plc(), FAST);
    let handle = bench.handle(0x4020, 0);
    // A stamp a millisecond, and one in ten was asked for.
    let stamps: Vec<Stamp> = (0..1_200).map(|n| (T0 + n * MS, vec![(handle, doubles(0..100))])).collect();
    stamps.chunks(20).for_each(|stamps| bench.peer.notify(stamps));
    assert!(bench.notes("1000 notifications a second, and 100 were asked for").contains("sum reads"));
    eventually("its end", || (!bench.peer.plc.lock().handles.contains_key(&handle)).then_some(()));
    let stored = bench.frames("fast").len();
    let frames = bench.wait_for("fast", stored + 3);
    assert_eq!(frames.last().unwrap().source_time, None);
    assert_eq!(bench.counts().rate_alarms.load(Relaxed), 1);
    // The PLC's clock is months from ours: numbers count on by the time that went by, not by the other clock.
    let newest = frames.iter().rposition(|frame| frame.source_time.is_some()).unwrap();
    let number = |frame: &KeptFrame| frame.sequence;
    let notified = frames[..=newest].iter().rev().find_map(number).unwrap();
    let read = number(&frames[newest + 1]).unwrap();
    assert!((1..3_000).contains(&(read - notified)), "{notified}, then {read}");
}

const TWO_BLOCKS: &str =
    "[[group]]\ntable = 'two'\nsymbols = ['MAIN.ch*', 'MAIN.far']\nmode = 'cyclic-notification'\ncycle_ms = 10\n";

#[test]
fn blocks_that_come_at_their_own_time_of_a_cycle_are_one_frame() {
    // Of the second block, in milliseconds behind the first.
    for behind in [1, 4, 5, 6, 9] {
        let bench = Bench::start(plc(), TWO_BLOCKS);
        let [first, second] = [bench.handle(0x4020, 0), bench.handle(0x4020, 60_000)];
        let mut stamps: Vec<Stamp> = Vec::new();
        for n in 0..100 {
            stamps.push((T0 + n * 10 * MS, vec![(first, doubles(0..100))]));
            stamps.push((T0 + (n * 10 + behind) * MS, vec![(second, vec![7; 4])]));
        }
        // One that has all at one stamp ends it.
        stamps.push((T0 + 1_000 * MS, vec![(first, doubles(0..100)), (second, vec![7; 4])]));
        bench.peer.notify(&stamps);
        let is_last = |frame: &KeptFrame| frame.source_time == Some(T0 + 1_000 * MS);
        let frames = eventually("the last", || Some(bench.frames("two")).filter(|frames| frames.iter().any(is_last)));
        let learnt = frames.iter().position(|frame| frame.cells.len() == 101).unwrap();
        assert!(learnt <= 10, "{behind} ms: whole from frame {learnt} on");
        let whole = &frames[learnt..frames.len() - 3];
        assert!(whole.len() > 80 && whole.iter().all(|frame| frame.cells.len() == 101), "{behind} ms");
        let numbers: Vec<u64> = whole.iter().filter_map(|frame| frame.sequence).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{behind} ms: {numbers:?}");
        assert_eq!(bench.counts().dropped_cycles.load(Relaxed), 0, "{behind} ms");
    }
}

#[test]
fn a_block_that_falls_silent_while_others_come_is_said() {
    let bench = Bench::start(plc(), TWO_BLOCKS);
    let [first, second] = [bench.handle(0x4020, 0), bench.handle(0x4020, 60_000)];
    let mut n = 0;
    let mut notify = |both: bool| {
        let mut samples = vec![(first, doubles(0..100))];
        samples.extend(both.then(|| (second, vec![7; 4])));
        bench.peer.notify(&[(T0 + n * 10 * MS, samples)]);
        n += 1;
    };
    (0..10).for_each(|_| notify(true));
    let mut told = Vec::new();
    let mut until = |both: bool, part: &str| {
        eventually(part, || {
            notify(both);
            told.extend(bench.counts().notes.take(usize::MAX));
            told.iter().find(|note| note.text.contains(part)).map(|note| note.text.clone())
        })
    };
    let note = until(false, "MAIN.far: no notification for");
    assert!(note.starts_with("two: "), "{note}");
    assert!(bench.trouble("MAIN.far").contains("sends no notifications"));
    until(true, "MAIN.far: notifications come again");
    eventually("no trouble", || bench.counts().troubles().is_empty().then_some(()));
}

#[test]
fn values_far_apart_take_several_requests_at_once_and_no_notifications() {
    // Further from each other than any block is long: each needs a handle, or a place of a sum read, of its own.
    let symbols =
        (0..600).flat_map(|i| symbol(&format!("MAIN.ch{i:03}"), (0x4020, 5_000 * i, 4), 3, "DINT", "")).collect();
    let mut memory = vec![0; 5_000 * 600];
    (0..600_u32).for_each(|i| memory[5_000 * i as usize..][..4].copy_from_slice(&i.to_le_bytes()));
    let bench = Bench::start(Plc { symbols, memory: [(0x4020, memory)].into(), ..Plc::default() }, FAST);
    let note = bench.notes("there are not enough notification handles");
    assert!(note.starts_with("fast: ") && note.ends_with("it is read with sum reads instead"), "{note}");
    let right: Vec<f64> = (0..600).map(f64::from).collect();
    assert!(bench.wait_for("fast", 3).iter().all(|frame| numbers(frame) == right));
    // Two requests make a frame.
    let frames = bench.frames("fast").len() as u64;
    let asked = bench.peer.asked(9, 0xF083);
    assert!(frames >= 3 && asked >= 2 * frames, "{asked} for {frames}");
}

#[test]
fn bad_messages_are_counted_and_the_next_is_taken() {
    let bench = Bench::start(plc(), FAST);
    let handle = bench.handle(0x4020, 0);
    let good = |n: i64| message(8, 4, 0, 0, &notification(&[(T0 + n * 10 * MS, vec![(handle, doubles(0..100))])]));
    let mut lying = notification(&[(T0, vec![(handle, doubles(0..100))])]);
    lying[4..8].copy_from_slice(&9_u32.to_le_bytes());
    let mut short = good(0);
    short[26..30].copy_from_slice(&3_u32.to_le_bytes());
    let stray = message(2, 5, 0, 0xdead_beef, &[0; 8]);
    let unasked = message(3, 4, 0, 1, &[]);
    let unknown = message(8, 4, 0, 0, &notification(&[(T0, vec![(0xffff, vec![1])])]));
    let wrong_size = message(8, 4, 0, 0, &notification(&[(T0, vec![(handle, vec![1; 7])])]));
    bench
        .peer
        .send(&[message(8, 4, 0, 0, &lying), short, stray, unasked, unknown, wrong_size, good(0), good(1)].concat());
    assert_eq!(bench.wait_for("fast", 2).len(), 2);
    let reasons = ["wrong_length", "bad_message", "unknown_answer", "unasked", "unknown_handle"];
    assert_eq!(reasons.map(|reason| bench.rejected(reason)), [2, 1, 1, 1, 1]);
    // A message without a beginning: nobody knows where the next one is.
    bench.peer.send(&[0xff; 64]);
    let note = bench.notes("closing the connection");
    assert!(note.contains("starts with 0xffff"), "{note}");
    eventually("a new connection", || (bench.counts().connections.load(Relaxed) == 2).then_some(()));
    assert_eq!(bench.rejected("bad_message"), 2);
}

#[test]
fn a_lost_connection_comes_again_and_cycles_are_counted_across_it() {
    let bench = Bench::start(plc(), FAST);
    let first = bench.handle(0x4020, 0);
    let stamp = |n: i64, handle| (T0 + n * 10 * MS, vec![(handle, doubles(0..100))]);
    bench.peer.notify(&[stamp(0, first)]);
    bench.wait_for("fast", 1);
    bench.peer.plc.lock().handles.clear();
    bench.peer.cut();
    eventually("the loss", || {
        let rows = bench.sink.rows("plc.state");
        rows.iter().any(|row| row[0].1 == Kept::Plain(Value::Bool(false))).then_some(())
    });
    let second = eventually("a new handle", || bench.peer.handle(0x4020, 0).filter(|handle| *handle != first));
    bench.peer.notify(&[stamp(8, second)]);
    let frames = bench.wait_for("fast", 2);
    assert_eq!(frames[1].sequence.unwrap() - frames[0].sequence.unwrap(), 8);
    assert_eq!(bench.counts().dropped_cycles.load(Relaxed), 7);
    let rows = bench.sink.rows("plc.state");
    let run = |row: &Vec<(String, Kept)>| row.contains(&("state".to_owned(), Kept::Text("Run".to_owned())));
    assert!(rows.iter().any(run), "{rows:?}");
}

#[test]
fn a_plc_without_a_route_is_named_with_what_to_do() {
    for (manner, what) in [
        (Manner::Silent, "takes the connection and answers nothing"),
        (Manner::Closes, "closed the connection at once"),
    ] {
        let bench = Bench::start(Plc { manner, ..plc() }, READ);
        let note = bench.notes("no route on the PLC for NetId 127.0.0.1.1.1?");
        assert!(note.contains(what) && note.contains("AmsNetId 127.0.0.1.1.1, address 127.0.0.1"), "{note}");
        // The route is added.
        bench.peer.plc.lock().manner = Manner::Well;
        bench.wait_for("read", 1);
    }
}

#[test]
fn a_plc_in_config_says_so_and_is_read_when_it_runs() {
    let bench = Bench::start(Plc { manner: Manner::NoProgram, ..plc() }, READ);
    let config = ("state".to_owned(), Kept::Text("Config".to_owned()));
    eventually("its state", || bench.sink.rows("plc.state").iter().any(|row| row.contains(&config)).then_some(()));
    assert!(bench.trouble("MAIN.ch*").contains("no program at that AMS port"));
    bench.peer.plc.lock().manner = Manner::Well;
    bench.wait_for("read", 1);
    assert_eq!(bench.counts().missing.load(Relaxed), 0);
}

#[test]
fn two_programs_of_a_plc_share_one_connection_and_one_may_come_later() {
    let second = "[[group]]\ntable = 'second'\nport = 852\nsymbols = ['MAIN.far']\ncycle_ms = 10\n";
    let bench = Bench::start(Plc { absent: vec![852], ..plc() }, &[READ, second].concat());
    bench.wait_for("read", 1);
    assert_eq!(bench.trouble("MAIN.far"), "the program has no such symbol");
    bench.peer.plc.lock().absent.clear();
    bench.wait_for("second", 1);
    assert!(bench.notes("there is a program at port 852 now").contains("looked up anew"));
    assert_eq!(bench.counts().connections.load(Relaxed), 1);
}

#[test]
fn times_of_reception_are_those_of_the_kernel() {
    let peer = Peer::start(plc());
    let text = format!("name = 'plc'\nkind = 'ads'\nhost = '{}'\n{FAST}", peer.address);
    let layout = compile_all(&[toml::from_str(&text).unwrap()]).unwrap().plcs.remove(0);
    let sink = Recording::new();
    // This clock stands still.
    let running = PlcSource::start(layout, sink.clone(), Arc::new(|| 7)).unwrap();
    let bench = Bench { peer, sink, running };
    let handle = bench.handle(0x4020, 0);
    let before = wall_clock()();
    bench.peer.notify(&[(T0, vec![(handle, doubles(0..100))])]);
    let received = bench.wait_for("fast", 1)[0].receive_time;
    assert!((before..=wall_clock()()).contains(&received), "{before} {received}");
}

#[test]
fn answers_that_come_too_late_are_counted_and_readings_go_on() {
    let bench = Bench::start(plc(), READ);
    bench.wait_for("read", 1);
    bench.peer.hold();
    eventually("timeouts", || (bench.counts().timeouts.load(Relaxed) > 0).then_some(()));
    bench.peer.release();
    eventually("late answers", || (bench.rejected("unknown_answer") > 0).then_some(()));
    let before = bench.frames("read").len();
    bench.wait_for("read", before + 2);
}

#[test]
fn a_plc_that_falls_silent_is_connected_anew() {
    let bench = Bench::start(plc(), READ);
    bench.wait_for("read", 1);
    bench.peer.plc.lock().manner = Manner::Silent;
    assert!(bench.notes("the PLC stopped answering").starts_with("127.0.0.1"));
    bench.peer.plc.lock().manner = Manner::Well;
    let before = bench.frames("read").len();
    bench.wait_for("read", before + 2);
    eventually("a new connection", || (bench.counts().connections.load(Relaxed) == 2).then_some(()));
}

#[test]
fn a_table_too_large_to_take_is_not_taken() {
    for (lies, no_upload) in [(Some(u32::MAX), false), (None, true)] {
        let bench = Bench::start(
            Plc { lies, no_upload, ..plc() },
            "[[group]]\ntable = 't'\nsymbols = ['MAIN.ch003', 'MAIN.*', 'MAIN.not']\ncycle_ms = 10\n",
        );
        // Names are found one by one all the same.
        assert_eq!(numbers(&bench.wait_for("t", 1)[0]), [3.0]);
        assert!(bench.trouble("MAIN.*").contains("uploads no symbols"));
        assert_eq!(bench.trouble("MAIN.not"), "the program has no such symbol");
        assert_eq!(bench.peer.asked(2, 0xF00B), u64::from(no_upload) - if no_upload { 1 } else { 0 });
    }
}

#[test]
fn frames_that_the_store_refuses_are_counted() {
    let sink = Recording::new();
    sink.refuse(Refusal::LogFull, 3);
    let bench = Bench::on(Peer::start(plc()), sink, READ);
    bench.wait_for("read", 1);
    assert_eq!(bench.rejected("not_recorded"), 3);
    eventually("all counted", || {
        let counts = bench.counts();
        let [frames, stored, duplicate] = [&counts.frames, &counts.stored, &counts.duplicate].map(|n| n.load(Relaxed));
        (frames == stored + duplicate + 3).then_some(())
    });
    // After the store was opened anew its numbers are others.
    bench.sink.forget_streams();
    bench.wait_for("read", 2);
}

#[test]
fn symbols_are_listed_for_people() {
    let peer = Peer::start(plc());
    let target =
        PlcAddress { timeout: Duration::from_millis(300), ..PlcAddress::of(&peer.address.to_string()).unwrap() };
    let listing = browse(&target, "MAIN.valves[1]", Arrays::Elements).unwrap();
    assert_eq!(listing.device.name, "Plc30 App");
    assert_eq!(listing.leaves.len(), 7);
    assert_eq!(listing.leaves[1].name, "MAIN.valves[1].position");
    assert_eq!(listing.skipped.len(), 1);
    assert_eq!(browse(&target, "*", Arrays::Elements).unwrap().leaves.len(), 101 + 31);
    peer.plc.lock().manner = Manner::NoProgram;
    let error = browse(&target, "*", Arrays::Elements).unwrap_err();
    assert!(matches!(error, BrowseError::NoProgram { .. }) && error.to_string().contains("801"), "{error}");
    peer.plc.lock().manner = Manner::Silent;
    let error = browse(&target, "*", Arrays::Elements).unwrap_err();
    assert!(error.to_string().contains("no route on the PLC"), "{error}");
}

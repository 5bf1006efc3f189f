//! Faults on real loopback sockets: what arrives is what the report says.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::{Args, FromArgMatches};
use strongback_sim::{FaultsArgs, FaultsReport, Listening, run_faults_until};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

fn args(line: &str) -> Result<FaultsArgs, String> {
    let command = FaultsArgs::augment_args(clap::Command::new("faults"));
    command.clone().debug_assert();
    let words = line.split_whitespace().map(str::to_owned);
    let matches = command.try_get_matches_from(std::iter::once("faults".to_owned()).chain(words));
    FaultsArgs::from_arg_matches(&matches.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// Relays at work.
struct Relays {
    listening: Vec<Listening>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<FaultsReport>,
}

impl Relays {
    fn start(line: &str) -> Relays {
        let args = args(line).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            run_faults_until(&args, &stopped, |listening| tell.send(listening.to_vec()).unwrap()).unwrap()
        });
        Relays { listening: told.recv_timeout(PATIENCE).unwrap(), stop, thread }
    }

    fn stop(self) -> FaultsReport {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn packet(id: u32, sequence: u32) -> Vec<u8> {
    let words = [0x1100_0000, id, sequence, 32, 1_700_000_000, sequence, 0, !sequence];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

#[test]
fn packets_that_arrive_are_those_of_the_report() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let relays = Relays::start(&format!(
        "--inetx 127.0.0.1:0={} --loss 0.02 --burst 3 --duplicate 0.02 --reorder 0.02 --garble 0.02 --jitter 3ms \
         --silence 40ms/200ms --clock-jump 3s/500ms --seed 5",
        receiver.local_addr().unwrap()
    ));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(relays.listening[0].listen).unwrap();
    let ids = [0xDD_u32, 0xDE, 0xDF];
    let received = std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut bytes = [0; 2_048];
        loop {
            let n = receiver.recv(&mut bytes).unwrap();
            if bytes[..n] == *b"end" {
                return all;
            }
            all.push(bytes[..n].to_vec());
        }
    });
    for sequence in 0..1_000 {
        for id in ids {
            sender.send(&packet(id, sequence)).unwrap();
        }
        // Pace: the relay's buffer takes what a millisecond brings.
        std::thread::sleep(Duration::from_millis(1));
    }
    let to = relays.listening[0].to;
    let report = relays.stop().relays.remove(0);
    sender.send_to(b"end", to).unwrap();
    let received = received.join().unwrap();

    assert_eq!((report.kind, report.send_errors), ("inetx", 0));
    let all = report.all;
    assert_eq!(all.taken, 3_000);
    assert_eq!(all.taken, all.delivered + all.lost + all.silenced + all.garbled, "{all}");
    assert!([all.lost, all.silenced, all.garbled, all.duplicates, all.reordered].iter().all(|n| *n > 5), "{all}");
    assert!(report.clock_jumps >= 1);
    let whole: Vec<&Vec<u8>> = received.iter().filter(|p| p.len() == 32).collect();
    assert_eq!(received.len() as u64, all.delivered + all.duplicates + all.garbled + resent(&report.flows, &received));
    let mut jumped = 0;
    for id in ids {
        let flow = report.flows[&format!("{id:#010x}")];
        let mine: Vec<u32> = whole.iter().filter(|p| word(p, 4) == id).map(|p| word(p, 8)).collect();
        let mut distinct = mine.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((distinct.len() as u64, mine.len() as u64), (flow.delivered, flow.delivered + flow.duplicates));
        assert_eq!(distinct.last(), Some(&999), "the newest shows what is missing before it");
        for p in whole.iter().filter(|p| word(p, 4) == id) {
            let seconds = word(p, 16) - 1_700_000_000;
            assert!(seconds == 0 || seconds == 3);
            jumped += u64::from(seconds == 3);
            assert_eq!((word(p, 20), word(p, 28)), (word(p, 8), !word(p, 8)), "nothing else is touched");
        }
    }
    assert!(jumped > 0);
}

/// Packets that went on spoilt and, as the newest of their flow, once more whole at the end.
fn resent(flows: &std::collections::BTreeMap<String, strongback_sim::Tally>, received: &[Vec<u8>]) -> u64 {
    let spoilt = received.iter().filter(|p| p.len() != 32).count() as u64;
    spoilt - flows.values().map(|flow| flow.garbled).sum::<u64>()
}

#[test]
fn lines_that_arrive_are_those_of_the_report_over_cut_connections_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relays = Relays::start(&format!(
        "--lines 127.0.0.1:0={} --loss 0.01 --duplicate 0.01 --reorder 0.01 --garble 0.01 --jitter 2ms \
         --silence 20ms/100ms --reconnect-every 150ms --seed 9",
        listener.local_addr().unwrap()
    ));
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let to = relays.listening[0].to;
    let received = std::thread::spawn(move || {
        let mut lines: Vec<String> = Vec::new();
        for stream in listener.incoming() {
            if ended.load(Ordering::Relaxed) {
                return lines;
            }
            let reader = BufReader::new(stream.unwrap());
            // The relay ends a connection, never resets it: what it handed on is there.
            lines.extend(reader.lines().map(|line| line.unwrap()));
        }
        lines
    });
    let listen = relays.listening[0].listen;
    let mut sender = TcpStream::connect(listen).unwrap();
    for n in 0..1_000 {
        for table in ["a,unit=1", "b"] {
            let line = format!("{table} f={n} 17000000000000{n:05}\n");
            while sender.write_all(line.as_bytes()).is_err() {
                sender = TcpStream::connect(listen).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    // The last connection ends when the receiver has it all.
    let mut rest = Vec::new();
    let _ = sender.read_to_end(&mut rest);
    let report = relays.stop().relays.remove(0);
    over.store(true, Ordering::Relaxed);
    drop(TcpStream::connect(to).unwrap());
    let lines = received.join().unwrap();

    let all = report.all;
    assert!(report.cuts >= 2 && report.connections >= 3, "{report:?}");
    assert_eq!(all.taken, all.delivered + all.lost + all.garbled + all.cut_off, "{all}");
    assert!([all.lost, all.garbled, all.duplicates, all.reordered].iter().all(|n| *n > 0), "{all}");
    assert_eq!(all.silenced, 0, "over TCP a silence delays");
    let mut whole: HashMap<&str, u64> = HashMap::new();
    for line in lines.iter().filter(|line| line.contains('=') && line.contains("f=")) {
        *whole.entry(line).or_default() += 1;
    }
    let came: u64 = whole.values().sum();
    let distinct = whole.len() as u64;
    assert_eq!(distinct, all.delivered);
    assert!(came > distinct && came <= distinct + all.duplicates, "{came} of {distinct}, {all}");
}

#[test]
fn lines_of_senders_that_come_at_once_stay_apart() {
    const SENDERS: usize = 16;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relays = Relays::start(&format!("--lines 127.0.0.1:0={}", listener.local_addr().unwrap()));
    let listen = relays.listening[0].listen;
    let senders: Vec<TcpStream> = (0..SENDERS).map(|_| TcpStream::connect(listen).unwrap()).collect();
    // Reached in another order than they came, it may be: their lines say who they are.
    let receivers: Vec<TcpStream> = (0..SENDERS).map(|_| listener.accept().unwrap().0).collect();
    for n in 0..20 {
        for (at, mut sender) in senders.iter().enumerate() {
            sender.write_all(format!("s{at} f={n} {n}\n").as_bytes()).unwrap();
        }
    }
    drop(senders);
    let mut came: Vec<String> = Vec::new();
    for mut receiver in receivers {
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = String::new();
        receiver.read_to_string(&mut lines).unwrap();
        came.push(lines);
    }
    came.sort();
    let mut sent: Vec<String> =
        (0..SENDERS).map(|at| (0..20).map(|n| format!("s{at} f={n} {n}\n")).collect()).collect();
    sent.sort();
    assert_eq!(came, sent);
    relays.stop();
}

#[test]
fn a_receiver_that_is_away_ends_the_connection() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relays = Relays::start(&format!("--lines 127.0.0.1:0={nobody}"));
    let mut sender = TcpStream::connect(relays.listening[0].listen).unwrap();
    sender.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(sender.read(&mut [0]).unwrap(), 0);
    let report = relays.stop().relays.remove(0);
    assert_eq!((report.connections, report.unreachable), (1, 1));
}

#[test]
fn bytes_that_are_no_packets_pass_as_they_are() {
    let plc = TcpListener::bind("127.0.0.1:0").unwrap();
    let relays = Relays::start(&format!("--ads 127.0.0.1:0={} --loss 1", plc.local_addr().unwrap()));
    let mut client = TcpStream::connect(relays.listening[0].listen).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut far, _) = plc.accept().unwrap();
    client.write_all(b"request").unwrap();
    let mut bytes = [0; 7];
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"request");
    far.write_all(b"no packet of ADS").unwrap();
    drop(far);
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"no packet of ADS");
    drop(client);
    assert_eq!(relays.stop().relays[0].all.taken, 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |line: &str| match args(line) {
        Err(error) => error,
        Ok(args) => run_faults_until(&args, &AtomicBool::new(true), |_| ()).unwrap_err().to_string(),
    };
    assert!(refused("").contains("--inetx, --lines or --ads LISTEN=TO"));
    assert!(refused("--inetx 127.0.0.1:1").contains("LISTEN=TO is needed"));
    assert!(refused("--inetx here=there").contains("no address with a port"));
    assert!(refused("--lines 127.0.0.1:0=127.0.0.1:9 --loss 2").contains("not a chance"));
    assert!(refused("--lines 127.0.0.1:0=127.0.0.1:9 --silence 3s/2s").contains("never ends"));
    assert!(refused("--lines 127.0.0.1:0=127.0.0.1:9 --clock-jump 3s").contains("TIME/PERIOD"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = taken.local_addr().unwrap();
    assert!(refused(&format!("--lines {address}=127.0.0.1:9")).contains("cannot listen on tcp"));
}

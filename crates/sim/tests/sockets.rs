//! The pad on real loopback sockets: what arrives is what its report says, and packets read back.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use strongback_sim::{PadArgs, PadReport, PlcArgs, run_pad_until};

fn args(fti: SocketAddr, ilp: SocketAddr) -> PadArgs {
    PadArgs {
        fti: Some(fti),
        ilp: Some(ilp),
        plc: PlcArgs::default(),
        http: None,
        duration: Some(Duration::from_secs(5)),
        seed: 3,
        loss: 0.01,
        t0: Duration::from_secs(62),
        give_up: Duration::from_secs(5),
        no_fast: false,
        json: false,
    }
}

/// Takes datagrams until `stop`, then what is still in the buffer.
fn datagrams(udp: UdpSocket, stop: Arc<AtomicBool>) -> JoinHandle<Vec<Vec<u8>>> {
    udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut bytes = [0u8; 2048];
        loop {
            let over = stop.load(Ordering::Relaxed);
            match udp.recv(&mut bytes) {
                Ok(n) => all.push(bytes[..n].to_vec()),
                Err(_) if over => return all,
                Err(_) => {}
            }
        }
    })
}

/// Counts lines and fields by measurement over `connections` connections.
fn lines(listener: TcpListener, connections: usize) -> JoinHandle<HashMap<String, (u64, u64)>> {
    std::thread::spawn(move || {
        let readers: Vec<_> = (0..connections)
            .map(|_| {
                let (stream, _) = listener.accept().unwrap();
                std::thread::spawn(move || {
                    let mut counts: HashMap<String, (u64, u64)> = HashMap::new();
                    for line in BufReader::new(stream).lines() {
                        let line = line.unwrap();
                        let mut parts = line.split(' ');
                        let table = parts.next().unwrap().split(',').next().unwrap().to_string();
                        let count = counts.entry(table).or_default();
                        count.0 += 1;
                        count.1 += parts.next().unwrap().split(',').count() as u64;
                    }
                    counts
                })
            })
            .collect();
        let mut all: HashMap<String, (u64, u64)> = HashMap::new();
        for reader in readers {
            for (table, (frames, points)) in reader.join().unwrap() {
                let count = all.entry(table).or_default();
                count.0 += frames;
                count.1 += points;
            }
        }
        all
    })
}

fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

#[test]
fn what_arrives_is_what_the_report_says() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let args = args(udp.local_addr().unwrap(), listener.local_addr().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let packets = datagrams(udp, stop.clone());
    let lines = lines(listener, 2);
    let report: PadReport = run_pad_until(args, &AtomicBool::new(false)).unwrap();
    stop.store(true, Ordering::Relaxed);
    let (packets, lines) = (packets.join().unwrap(), lines.join().unwrap());

    // Five seconds at the mission's rates, to the frame: the steps are counted, not timed.
    let sent = |name: &str| report.sources[name];
    assert_eq!(sent("avionics").points_sent, 5 * 6_000);
    assert_eq!(sent("plc").points_sent, 5 * 10_000);
    assert_eq!(sent("plc_fast").points_sent, 5 * 50_000);
    assert_eq!(sent("fti").frames_sent + report.frames_lost, 5 * (50 + 1000 + 50));
    assert!(report.sources.values().all(|s| s.frames_dropped == 0));

    let of = |prefix: &str| {
        let of = lines.iter().filter(|(table, _)| table.starts_with(prefix));
        of.fold((0, 0), |(f, p), (_, (frames, points))| (f + frames, p + points))
    };
    assert_eq!(of("avionics."), (sent("avionics").frames_sent, sent("avionics").points_sent));
    assert_eq!(of("plc.fast"), (sent("plc_fast").frames_sent, sent("plc_fast").points_sent));
    let plc = of("plc.");
    assert_eq!(plc.1 - of("plc.fast").1, sent("plc").points_sent);

    // Packets: as many as counted, and their sequences miss exactly the gaps of the report.
    assert_eq!(packets.len() as u64, report.packets_sent);
    assert!(report.gaps_made >= 1, "no loss in five seconds at 1 %");
    let mut next: HashMap<u32, u32> = HashMap::new();
    let mut gaps = Vec::new();
    for packet in &packets {
        assert_eq!(word(packet, 0), 0x1100_0000);
        assert_eq!(word(packet, 12) as usize, packet.len());
        assert!(word(packet, 20) < 1_000_000_000);
        let (id, sequence) = (word(packet, 4), word(packet, 8));
        let expected = next.insert(id, sequence + 1).unwrap_or(0);
        if sequence != expected {
            gaps.push((id, expected, u64::from(sequence - expected)));
        }
    }
    let mut made: Vec<_> = report.gaps.iter().map(|g| (g.stream_id, g.first_sequence, g.packets)).collect();
    made.sort_unstable();
    gaps.sort_unstable();
    assert_eq!(gaps, made, "the last packet of each stream is sent, so every gap shows");
    assert_eq!(report.gaps_made as usize, made.len());
    assert_eq!(report.packets_lost, made.iter().map(|g| g.2).sum::<u64>());
}

#[test]
fn it_stops_when_asked_and_sends_its_events() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut args = args(udp.local_addr().unwrap(), listener.local_addr().unwrap());
    args.http = Some(page.local_addr().unwrap());
    args.duration = None;
    // Tank pressurisation is said 60 s before lift-off: at once.
    args.t0 = Duration::from_millis(60_100);
    let lines = lines(listener, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = page.accept().unwrap();
        let mut request = Vec::new();
        let mut bytes = [0u8; 1024];
        while !request.ends_with(b"}") {
            let n = stream.read(&mut bytes).unwrap();
            assert!(n > 0, "request ended early");
            request.extend_from_slice(&bytes[..n]);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").unwrap();
        stopped.store(true, Ordering::Relaxed);
        String::from_utf8(request).unwrap()
    });
    let report = run_pad_until(args, &stop).unwrap();
    let request = server.join().unwrap();
    assert!(request.starts_with("POST /api/events HTTP/1.1\r\n"), "{request}");
    let body: serde_json::Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["text"], "Tank pressurisation");
    assert_eq!(body["level"], "info");
    assert!(body["time"].as_str().unwrap().parse::<i64>().unwrap() > 1_700_000_000_000_000_000);
    assert_eq!(report.events_sent, 1);
    let frames: u64 = lines.join().unwrap().values().map(|(frames, _)| frames).sum();
    let sent: u64 = ["avionics", "plc", "plc_fast"].iter().map(|n| report.sources[n].frames_sent).sum();
    assert_eq!(frames, sent, "everything queued left before the end");
}

#[test]
fn a_broken_connection_is_made_again_and_an_absent_server_is_an_error() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut first = args(udp.local_addr().unwrap(), listener.local_addr().unwrap());
    first.duration = Some(Duration::from_secs(1));
    let server = std::thread::spawn(move || {
        // One of the two is broken off after its first bytes, whichever comes first.
        let (mut broken, _) = listener.accept().unwrap();
        let mut bytes = [0u8; 64];
        broken.read_exact(&mut bytes).unwrap();
        drop(broken);
        lines(listener, 2).join().unwrap()
    });
    let report = run_pad_until(first, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.reconnects, 1);
    assert!(!server.join().unwrap().is_empty());

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut second = args(udp.local_addr().unwrap(), free);
    second.give_up = Duration::from_millis(100);
    let error = run_pad_until(second, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("no line-protocol server"), "{error}");
}

#[test]
fn with_a_plc_of_its_own_the_pad_sends_only_what_it_is_told_to() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut both = args(udp.local_addr().unwrap(), listener.local_addr().unwrap());
    (both.fti, both.duration) = (None, Some(Duration::from_secs(1)));
    both.plc.plc = Some(free());
    both.plc.plc_program_change_after = Some(Duration::from_millis(200));
    let lines = lines(listener, 1);
    let report = run_pad_until(both, &AtomicBool::new(false)).unwrap();
    assert!(lines.join().unwrap().keys().all(|table| table.starts_with("avionics.")));
    assert_eq!(report.sources.keys().collect::<Vec<_>>(), [&"avionics"]);
    assert_eq!(report.packets_sent, 0);
    let plc = report.plc.unwrap();
    assert!(plc.cycles >= 199, "the program changed in cycle {}", plc.cycles);
    assert_eq!((plc.symbol_version, plc.running, plc.connections), (2, true, 0));

    // Alone; who asks for what is in its report.
    let mut alone = args(udp.local_addr().unwrap(), udp.local_addr().unwrap());
    (alone.fti, alone.ilp, alone.duration) = (None, None, None);
    let address = free();
    alone.plc.plc = Some(address);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let running = std::thread::spawn(move || run_pad_until(alone, &stopped).unwrap());
    let timeouts = ads::Timeouts::new(Duration::from_secs(5));
    let until = std::time::Instant::now() + Duration::from_secs(10);
    let client = loop {
        match ads::Client::new(address, timeouts, ads::Source::Auto) {
            Ok(client) => break client,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
    };
    let device = client.device(ads::AmsAddr::new(ads::AmsNetId::new(5, 12, 20, 1, 1, 1), 851));
    assert_eq!(device.get_state().unwrap().0, ads::AdsState::Run);
    stop.store(true, Ordering::Relaxed);
    let report = running.join().unwrap();
    assert_eq!(report.points_sent, 0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["plc"]["requests"]["read_state"], 1);
    assert_eq!(json["plc"]["requests"]["write"], 0);
    assert!(report.to_string().contains("read_state 1"));
}

//! Clients that do harm: they do not read, or send what is no ADS. Others do not notice.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use strongback_sim::{PlcOptions, PlcServer};

use crate::raw::{DATA, PATIENCE, Raw, join, report, start, word};

/// Bytes to a connection of their own; it must end, or answer, and the next client is served.
fn send(to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have ended the connection before all was written.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut rest = Vec::new();
    // To the end: the server lets go of whoever will say no more.
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
    }
}

fn served(plc: &PlcServer) {
    assert_eq!(Raw::new(plc.address()).ask(4, &[]), [0, 0, 0, 0, 5, 0, 0, 0]);
}

/// A request of each kind, as a client sends it.
fn requests(plc: &PlcServer) -> Vec<Vec<u8>> {
    let mut raw = Raw::new(plc.address());
    let [_, cycle, _] = raw.place("FAST.cycle");
    let named = |group: u32, name: &str| join(&[group, 0, 800, name.len() as u32], name.as_bytes());
    let parts = join(&[DATA, cycle, 4, DATA, cycle, 4], &[]);
    let adds = join(&[DATA, cycle, 4, 3, 0, 10_000], &[0; 16]);
    let mut data = vec![(1, Vec::new()), (2, join(&[DATA, cycle, 4], &[])), (4, Vec::new())];
    data.push((3, join(&[0x4020, 0, 4], &[1; 4])));
    data.push((5, join(&[5, 0], &[])));
    data.push((6, adds.clone()));
    data.push((7, join(&[1], &[])));
    for group in [0xF003, 0xF004, 0xF007, 0xF009] {
        data.push((9, named(group, "MAIN.tanks[2].line.flow")));
    }
    for group in [0xF00B, 0xF00C, 0xF00E, 0xF00F] {
        data.push((2, join(&[group, 0, 1 << 20], &[])));
    }
    for group in [0xF080, 0xF083, 0xF084] {
        data.push((9, join(&[group, 2, 100, 24], &parts)));
    }
    data.push((9, join(&[0xF081, 1, 4, 14, 0x4020, 0, 2], &[1, 2])));
    data.push((9, join(&[0xF082, 1, 100, 26, 0xF003, 0, 4, 10], b"FAST.cycle")));
    data.push((9, join(&[0xF085, 1, 8, 40], &adds)));
    data.push((9, join(&[0xF086, 1, 4, 4, 1], &[])));
    data.into_iter().map(|(command, data)| raw.packet(851, command, 4, &data)).collect()
}

/// Panics in threads of the server: they end a connection as a bad packet does, so they must be looked for.
static PANICS: AtomicU32 = AtomicU32::new(0);

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if matches!(std::thread::current().name(), Some("ads-client" | "ads-writer" | "ads" | "plc")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
}

#[test]
fn whatever_the_bytes_the_server_lives() {
    count_panics();
    let plc = start(PlcOptions::default());
    let good = requests(&plc);
    let quiet = Raw::new(plc.address());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 400, ..ProptestConfig::default() });
    // A good request, some bytes of it other ones, some words of it extreme, perhaps cut or longer.
    let edit = prop_oneof![
        (0usize..200, any::<u8>()).prop_map(|(at, byte)| (at, vec![byte])),
        (0usize..50, prop_oneof![Just(0u32), Just(1), Just(u32::MAX), Just(1 << 31), Just(1 << 20), any::<u32>()])
            .prop_map(|(at, word)| (at * 2, word.to_le_bytes().to_vec())),
    ];
    let mutation = (0..good.len(), prop::collection::vec(edit, 0..6), prop::option::of(0usize..120), any::<bool>());
    runner
        .run(&mutation, |(which, edits, cut, keep_frame)| {
            let mut bytes = good[which].clone();
            for (at, with) in edits {
                // Most of the time the frame stays whole, so that what is wrong is inside.
                let at = if keep_frame { at + 32 } else { at };
                for (byte, with) in bytes.iter_mut().skip(at).zip(with) {
                    *byte = with;
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut);
                if keep_frame && bytes.len() >= 38 {
                    let length = bytes.len() as u32;
                    bytes[2..6].copy_from_slice(&(length - 6).to_le_bytes());
                    bytes[26..30].copy_from_slice(&(length - 38).to_le_bytes());
                }
            }
            send(plc.address(), &bytes);
            Ok(())
        })
        .unwrap();
    // Writes of all kinds were among them; what runs, runs on, and whoever was there is served.
    let mut quiet = quiet;
    assert_eq!(quiet.code(5, &[5, 0], &[]), 0);
    served(&plc);
    let cycles = plc.report().cycles;
    report(&plc, |r| r.cycles > cycles + 10 && r.connections_open <= 2);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "threads of the server panicked");
}

#[test]
fn giant_short_and_foreign_packets_end_their_connection_alone() {
    let plc = start(PlcOptions::default());
    let mut other = Raw::new(plc.address());
    let cycle = other.place("FAST.cycle");
    other.watch(cycle, 3, 0, 10_000).unwrap();
    let giant = [&[0, 0][..], &u32::MAX.to_le_bytes(), &[0; 100]].concat();
    let beyond = [&[0, 0][..], &((1 << 20) + 1u32).to_le_bytes(), &[0; 100]].concat();
    let short = [&[0, 0][..], &31u32.to_le_bytes(), &[0; 31]].concat();
    for bytes in [&giant, &beyond, &short, &b"GET / HTTP/1.1\r\n\r\n".to_vec(), &vec![0, 0, 40], &vec![]] {
        send(plc.address(), bytes);
    }
    // A header that says more than comes, and a client that leaves in the middle.
    send(plc.address(), &[&[0, 0][..], &1000u32.to_le_bytes(), &[0; 500]].concat());
    for _ in 0..100 {
        assert_eq!(other.notification().len(), 1);
    }
    served(&plc);
    assert_eq!(report(&plc, |r| r.connections_open == 1).malformed, 4);
}

#[test]
fn a_client_that_does_not_read_loses_samples_and_holds_up_nobody() {
    let plc = start(PlcOptions::default());
    let (mut slow, mut good) = (Raw::new(plc.address()), Raw::new(plc.address()));
    let [group, offset, _] = good.place("FAST.cycle");
    // 100 blocks of 4 kB every millisecond: 400 MB/s, which nobody reads.
    for _ in 0..100 {
        slow.watch([group, offset, 4_000], 3, 0, 10_000).unwrap();
    }
    good.watch([group, offset, 4], 3, 0, 10_000).unwrap();
    let mut before = None;
    let mut next = |good: &mut Raw| {
        let value = word(&good.notification()[0].1[0].1, 0);
        assert!(before.is_none_or(|before| value == before + 1), "{value} after {before:?}");
        before = Some(value);
    };
    while plc.report().samples_dropped < 1_000 {
        next(&mut good);
    }
    for _ in 0..100 {
        next(&mut good);
    }
    // It is not cut off: when it reads again it finds whole packets, and then the present.
    slow.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for _ in 0..20 {
        let stamps = slow.notification();
        assert!(stamps.iter().all(|(_, samples)| samples.iter().all(|(_, value)| value.len() == 4_000)));
    }
    assert_eq!(slow.ask(4, &[])[..4], [0; 4]);
    drop((slow, good));
    let report = report(&plc, |r| r.connections_open == 0);
    assert!(report.samples_sent > 1_000 && report.samples_dropped > 1_000);
}

#[test]
fn replies_that_nobody_reads_are_not_heaped_up() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let upload = raw.packet(851, 2, 4, &join(&[0xF00B, 0, 1 << 20], &[]));
    raw.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // At last the server reads no more requests either, and the client cannot write.
    let mut asked = 0;
    while raw.stream.write_all(&upload).is_ok() {
        asked += 1;
        assert!(asked < 10_000_000, "requests are read without end");
    }
    served(&plc);
    let read = plc.report().requests["read"];
    assert!(read < 1_000, "{read} replies of 200 kB");
    drop(raw);
    report(&plc, |r| r.connections_open == 0);
}

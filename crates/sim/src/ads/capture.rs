//! Test that replays requests of real clients, captured with another simulator, and compares the replies.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::image::Image;
use super::program::Program;
use super::server::{CycleUnit, PlcOptions, PlcServer};
use super::symbols::{Layout, SymbolTable};
use super::types::Scalar;
use super::wire::{Fields, command, group};

const CAPTURE: &str = include_str!("../../tests/data/ads_clients.txt");
const CHANNELS: u32 = 400;
/// Offset of the data in a packet.
const DATA: usize = 38;

/// Program of the capture: 400 doubles.
struct Channels {
    table: Arc<SymbolTable>,
    cycles: u32,
}

impl Channels {
    fn new() -> Self {
        let mut layout = Layout::default();
        for n in 0..CHANNELS {
            layout.place(group::DATA, format!("MAIN.ch{n:04}"), Scalar::Lreal, "");
        }
        Channels { table: Arc::new(layout.finish(1)), cycles: 0 }
    }
}

impl Program for Channels {
    fn table(&self) -> Arc<SymbolTable> {
        self.table.clone()
    }

    fn cycle(&mut self, _file_time: u64, image: &mut Image) {
        self.cycles += 1;
        for n in 0..CHANNELS {
            image.put(n * 8, &f64::from(self.cycles * 1000 + n).to_le_bytes());
        }
    }

    fn written(&mut self, _group: u32, _offset: u32, _length: u32) {}

    fn change(&mut self) -> Image {
        Image::new(&self.table)
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut packet = vec![0; 6];
    stream.read_exact(&mut packet).unwrap();
    packet.resize(6 + word(&packet, 2) as usize, 0);
    stream.read_exact(&mut packet[6..]).unwrap();
    packet
}

/// Parses entries of symbols, as far as whole ones are present: place, size, number of the type, name, type.
fn entries(mut bytes: &[u8]) -> Vec<([u32; 4], String, String)> {
    let mut all = Vec::new();
    while bytes.len() >= 4 && bytes.len() >= word(bytes, 0) as usize {
        let (entry, rest) = bytes.split_at(word(bytes, 0) as usize);
        bytes = rest;
        let (name, kind) = (usize::from(half(entry, 24)), usize::from(half(entry, 26)));
        let text = |at: usize, length: usize| {
            assert_eq!(entry[at + length], 0);
            String::from_utf8(entry[at..at + length].to_vec()).unwrap()
        };
        all.push(([4, 8, 12, 16].map(|at| word(entry, at)), text(30, name), text(31 + name, kind)));
    }
    all
}

/// Replay of the client's requests, with the handles and lengths that this server returned.
struct Replay {
    stream: TcpStream,
    handles: HashMap<u32, u32>,
    watched: HashMap<u32, u32>,
    upload: [u32; 2],
}

impl Replay {
    /// Translates a request to what the client would have sent to this server.
    fn translate(&self, request: &[u8]) -> Vec<u8> {
        let mut out = request.to_vec();
        let of = half(request, 22);
        if of == command::DELETE_NOTIFICATION {
            put(&mut out, DATA, self.watched[&word(request, DATA)]);
            return out;
        }
        if request.len() < DATA + 12 {
            return out;
        }
        match word(request, DATA) {
            group::VALUE_BY_HANDLE => put(&mut out, DATA + 4, self.handles[&word(request, DATA + 4)]),
            group::RELEASE_HANDLE => put(&mut out, DATA + 12, self.handles[&word(request, DATA + 12)]),
            group::SYMBOL_UPLOAD => put(&mut out, DATA + 8, self.upload[0]),
            group::TYPE_UPLOAD => put(&mut out, DATA + 8, self.upload[1]),
            _ => {}
        }
        out
    }

    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.stream.write_all(request).unwrap();
        loop {
            let packet = receive(&mut self.stream);
            if half(&packet, 22) != command::NOTIFICATION {
                return packet;
            }
        }
    }

    /// Sends a captured request, and compares its reply with the captured one.
    fn check(&mut self, request: &[u8], length: usize, then: &[u8]) {
        let now = self.ask(&self.translate(request));
        let of = half(request, 22);
        let asked = if request.len() >= DATA + 4 { word(request, DATA) } else { 0 };
        assert_eq!(now[6..26], then[6..26], "addresses, command, flags of command {of}, {asked:x}");
        assert_eq!(now[30..DATA], then[30..DATA], "error and invoke id");
        assert_eq!(word(&now, 26) as usize, now.len() - DATA);
        assert_eq!(now[DATA..DATA + 4], [0; 4], "result of command {of}, {asked:x}");
        let same_length = !matches!(asked, group::SYMBOL_UPLOAD | group::TYPE_UPLOAD | group::INFO_BY_NAME_EX);
        assert!(now.len() == length || !same_length, "command {of}, {asked:x}: {} bytes, not {length}", now.len());
        match (of, asked) {
            (command::READ_STATE | command::WRITE | command::DELETE_NOTIFICATION, _) => assert_eq!(now, then),
            (command::ADD_NOTIFICATION, _) => {
                self.watched.insert(word(then, DATA + 4), word(&now, DATA + 4));
            }
            (_, group::HANDLE_BY_NAME) => {
                self.handles.insert(word(then, DATA + 8), word(&now, DATA + 8));
            }
            (_, group::UPLOAD_INFO_2) => {
                assert_eq!([8, 16].map(|at| word(&now, DATA + at)), [8, 16].map(|at| word(then, DATA + at)));
                self.upload = [word(&now, DATA + 12), word(&now, DATA + 20)];
            }
            (_, group::SYMBOL_UPLOAD | group::INFO_BY_NAME_EX) => {
                let (now, then) = (entries(&now[DATA + 8..]), entries(&then[DATA + 8..]));
                assert!(!then.is_empty());
                assert_eq!(now[..then.len()], then);
                let wanted = if asked == group::SYMBOL_UPLOAD { CHANNELS as usize } else { 1 };
                assert_eq!(now.len(), wanted);
                for (n, (place, ..)) in now.iter().enumerate().filter(|_| wanted > 1) {
                    assert_eq!(*place, [group::DATA, n as u32 * 8, 8, 5]);
                }
            }
            (_, group::TYPE_UPLOAD) => {
                // Compare all but the length of the entry, the GUID's flag, and the GUID at the end.
                assert_eq!(now[DATA + 12..DATA + 36], then[DATA + 12..DATA + 36]);
                assert_eq!(now[DATA + 40..DATA + 58], then[DATA + 40..DATA + 58]);
            }
            (_, group::VALUE_BY_HANDLE) => assert_eq!(now[..DATA + 8], then[..DATA + 8]),
            (_, group::SUM_READ) => assert_eq!(now[..DATA + 48], then[..DATA + 48], "results of ten"),
            (_, group::SUM_READ_EX) => {
                assert_eq!(now[..160], *then);
                let results = &now[DATA + 8..][..8 * CHANNELS as usize];
                assert!(results.chunks(8).all(|r| r == [0, 0, 0, 0, 8, 0, 0, 0]));
                // All values are of one cycle: each channel is one above the previous, except the one that the client
                // just wrote.
                let mut values = Fields(&now[DATA + 8 + results.len()..]);
                let first = f64::from_le_bytes(values.array().unwrap());
                for n in 1..CHANNELS {
                    let value = f64::from_le_bytes(values.array().unwrap());
                    assert!(value == first + f64::from(n) || n == 3 && value == 1.5, "channel {n}: {value}");
                }
            }
            (command::READ_DEVICE_INFO, _) => {}
            other => panic!("nothing is known of the reply to {other:x?}"),
        }
    }
}

/// Replays the requests that one client sent in the capture. Returns the notifications received.
fn replay(client: &str, unit: CycleUnit) -> Vec<Vec<u8>> {
    let options = PlcOptions { cycle_unit: unit, ..PlcOptions::default() };
    let server =
        PlcServer::with_program("127.0.0.1:0".parse().unwrap(), options, Box::new(Channels::new()), 1).unwrap();
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut replay = Replay { stream, handles: HashMap::new(), watched: HashMap::new(), upload: [0; 2] };
    let mut watching = Vec::new();
    let mut mine = false;
    let mut request = Vec::new();
    let mut checked = 0;
    for line in CAPTURE.lines().filter(|l| !l.starts_with('#')) {
        match line.split_once(' ').unwrap() {
            ("client", name) => mine = name == client,
            _ if !mine => {}
            (">", hex) => {
                request = bytes(hex);
                if half(&request, 22) == command::DELETE_NOTIFICATION && watching.is_empty() {
                    // Before the client deletes its notifications, receive some cycles with all of them.
                    watching = (0..20).map(|_| receive(&mut replay.stream)).collect();
                }
            }
            ("<", reply) => {
                let (length, hex) = reply.split_once(' ').unwrap();
                replay.check(&request, length.parse().unwrap(), &bytes(hex));
                checked += 1;
            }
            ("!", hex) => {
                // One captured cycle of ten channels.
                let (then, now) = (bytes(hex), &watching[0]);
                assert_eq!(now[..30], then[..30], "headers up to the error");
                assert_eq!(
                    [DATA, DATA + 4, DATA + 16].map(|at| word(now, at)),
                    [DATA, DATA + 4, DATA + 16].map(|at| word(&then, at))
                );
                assert_eq!(now.len(), then.len());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(checked >= 25, "{checked} replies");
    let report = server.stop();
    assert_eq!((report.errors, report.malformed), (0, 0));
    watching
}

/// Checks that there is a sample every millisecond, in the client's unit of time.
fn every_millisecond(notifications: &[Vec<u8>]) {
    let stamps: Vec<u64> =
        notifications.iter().map(|p| u64::from_le_bytes(p[DATA + 8..DATA + 16].try_into().unwrap())).collect();
    assert!(stamps.windows(2).all(|w| w[1] - w[0] == 10_000), "{stamps:?}");
}

#[test]
fn beckhoff_s_library_is_answered_as_in_the_capture() {
    every_millisecond(&replay("AdsLib (pyads 3.6.0)", CycleUnit::HundredNanoseconds));
}

#[test]
fn the_rust_crate_is_answered_as_in_the_capture() {
    every_millisecond(&replay("ads 0.4.4", CycleUnit::Milliseconds));
}

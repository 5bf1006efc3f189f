//! A client that writes its packets by hand, and reads replies byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use strongback_sim::{PlcOptions, PlcReport, PlcServer};

pub(crate) const DATA: u32 = 0x4040;
pub(crate) const MEMORY: u32 = 0x4020;
/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn start(options: PlcOptions) -> PlcServer {
    PlcServer::start("127.0.0.1:0".parse().unwrap(), options).unwrap()
}

/// Time of a cycle, and the handles and values of its samples.
pub(crate) type Stamp = (u64, Vec<(u32, Vec<u8>)>);

/// A client that writes its packets by hand.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) source: [u8; 8],
    pub(crate) invoke_id: u32,
    /// To whom the packet read last is addressed.
    pub(crate) addressed: [u8; 8],
    /// Data of notifications that came while it waited for replies.
    pub(crate) notified: Vec<Vec<u8>>,
}

impl Raw {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, source: [10, 0, 0, 7, 1, 1, 0x39, 0x30], invoke_id: 0, addressed: [0; 8], notified: Vec::new() }
    }

    pub(crate) fn packet(&mut self, port: u16, command: u16, flags: u16, data: &[u8]) -> Vec<u8> {
        self.invoke_id += 1;
        let mut out = vec![0, 0];
        out.extend((32 + data.len() as u32).to_le_bytes());
        out.extend([5, 12, 20, 1, 1, 1]);
        out.extend(port.to_le_bytes());
        out.extend(self.source);
        out.extend(command.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.invoke_id.to_le_bytes());
        out.extend(data);
        out
    }

    /// The next packet, from its AMS header on; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 6];
        match self.stream.read_exact(&mut head) {
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            other => other.unwrap(),
        }
        assert_eq!(head[..2], [0, 0]);
        let mut rest = vec![0; u32::from_le_bytes(head[2..].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut rest).unwrap();
        self.addressed.copy_from_slice(&rest[..8]);
        assert_eq!(rest[8..14], [5, 12, 20, 1, 1, 1]);
        assert_eq!(word(&rest, 20) as usize, rest.len() - 32);
        Some(rest)
    }

    /// Data of the reply to a packet, and the error in its header.
    pub(crate) fn reply(&mut self, command: u16) -> Option<(u32, Vec<u8>)> {
        loop {
            let packet = self.next()?;
            let (got, flags) = (u16::from_le_bytes([packet[16], packet[17]]), packet[18]);
            if got == 8 && flags == 4 {
                self.notified.push(packet[32..].to_vec());
                continue;
            }
            assert_eq!((got, flags, word(&packet, 28)), (command, 5, self.invoke_id));
            assert_eq!(self.addressed, self.source, "a reply goes to whoever asked");
            return Some((word(&packet, 24), packet[32..].to_vec()));
        }
    }

    pub(crate) fn ask(&mut self, command: u16, data: &[u8]) -> Vec<u8> {
        let packet = self.packet(851, command, 4, data);
        self.stream.write_all(&packet).unwrap();
        let (error, data) = self.reply(command).unwrap();
        assert_eq!(error, 0);
        data
    }

    /// Code of the reply to a command with words and bytes.
    pub(crate) fn code(&mut self, command: u16, words: &[u32], bytes: &[u8]) -> u32 {
        word(&self.ask(command, &join(words, bytes)), 0)
    }

    /// Data of a read or read-write that must succeed.
    pub(crate) fn get(&mut self, command: u16, words: &[u32], bytes: &[u8]) -> Vec<u8> {
        let data = self.ask(command, &join(words, bytes));
        assert_eq!(word(&data, 0), 0, "{words:x?}");
        assert_eq!(word(&data, 4) as usize, data.len() - 8);
        data[8..].to_vec()
    }

    /// Group, offset and size of a symbol.
    pub(crate) fn place(&mut self, name: &str) -> [u32; 3] {
        let data = self.get(9, &[0xF007, 0, 12, name.len() as u32], name.as_bytes());
        [word(&data, 0), word(&data, 4), word(&data, 8)]
    }

    pub(crate) fn handle(&mut self, name: &str) -> u32 {
        word(&self.get(9, &[0xF003, 0, 4, name.len() as u32], name.as_bytes()), 0)
    }

    /// Adds a notification; its handle.
    pub(crate) fn watch(
        &mut self,
        [group, offset, length]: [u32; 3],
        mode: u32,
        delay: u32,
        cycle: u32,
    ) -> Result<u32, u32> {
        let data = self.ask(6, &join(&[group, offset, length, mode, delay, cycle], &[0; 16]));
        if word(&data, 0) == 0 { Ok(word(&data, 4)) } else { Err(word(&data, 0)) }
    }

    /// The next packet of notifications: stamps with handle and data of their samples.
    pub(crate) fn notification(&mut self) -> Vec<Stamp> {
        let data = if self.notified.is_empty() {
            let packet = self.next().unwrap();
            assert_eq!(u16::from_le_bytes([packet[16], packet[17]]), 8);
            packet[32..].to_vec()
        } else {
            self.notified.remove(0)
        };
        assert_eq!(word(&data, 0) as usize, data.len() - 4);
        let (mut at, mut stamps) = (8, Vec::new());
        for _ in 0..word(&data, 4) {
            let time = u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
            let count = word(&data, at + 8);
            at += 12;
            let mut samples = Vec::new();
            for _ in 0..count {
                let (handle, length) = (word(&data, at), word(&data, at + 4) as usize);
                samples.push((handle, data[at + 8..at + 8 + length].to_vec()));
                at += 8 + length;
            }
            stamps.push((time, samples));
        }
        assert_eq!(at, data.len());
        stamps
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn join(words: &[u32], bytes: &[u8]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).chain(bytes.iter().copied()).collect()
}

/// The report once it says what it must.
pub(crate) fn report(plc: &PlcServer, good: impl Fn(&PlcReport) -> bool) -> PlcReport {
    let until = Instant::now() + PATIENCE;
    loop {
        let report = plc.report();
        if good(&report) {
            return report;
        }
        assert!(Instant::now() < until, "{report:?}");
        std::thread::yield_now();
    }
}

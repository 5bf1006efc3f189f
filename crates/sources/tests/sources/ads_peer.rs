//! A PLC for tests, which does what it is told: tables, memory, answers, and bytes at any time. It shares no code with
//! the client.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// An entry of a symbol table.
pub(crate) fn symbol(
    name: &str,
    (group, offset, size): (u32, u32, u32),
    base: u32,
    kind: &str,
    comment: &str,
) -> Vec<u8> {
    let texts = [name, kind, comment];
    let length = 30 + texts.iter().map(|t| t.len() + 1).sum::<usize>();
    let mut entry = Vec::new();
    for word in [length as u32, group, offset, size, base, 8] {
        entry.extend_from_slice(&word.to_le_bytes());
    }
    texts.iter().for_each(|t| entry.extend_from_slice(&(t.len() as u16).to_le_bytes()));
    for text in texts {
        entry.extend_from_slice(text.as_bytes());
        entry.push(0);
    }
    entry
}

/// An entry of a table of data types, or a member of one.
#[derive(Default)]
pub(crate) struct TypeEntry<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) comment: &'a str,
    pub(crate) size: u32,
    pub(crate) offset: u32,
    pub(crate) base: u32,
    pub(crate) flags: u32,
    pub(crate) dimensions: Vec<(i32, u32)>,
    pub(crate) members: Vec<Vec<u8>>,
    pub(crate) tail: Vec<u8>,
}

impl TypeEntry<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut entry = vec![0; 4];
        for word in [1, 0, 0, self.size, self.offset, self.base, self.flags] {
            entry.extend_from_slice(&u32::to_le_bytes(word));
        }
        let texts = [self.name, self.kind, self.comment];
        texts.iter().for_each(|t| entry.extend_from_slice(&(t.len() as u16).to_le_bytes()));
        entry.extend_from_slice(&(self.dimensions.len() as u16).to_le_bytes());
        entry.extend_from_slice(&(self.members.len() as u16).to_le_bytes());
        for text in texts {
            entry.extend_from_slice(text.as_bytes());
            entry.push(0);
        }
        for (lower, count) in &self.dimensions {
            entry.extend_from_slice(&lower.to_le_bytes());
            entry.extend_from_slice(&count.to_le_bytes());
        }
        self.members.iter().for_each(|m| entry.extend_from_slice(m));
        entry.extend_from_slice(&self.tail);
        let length = entry.len() as u32;
        entry[..4].copy_from_slice(&length.to_le_bytes());
        entry
    }
}

/// How a PLC behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    Well,
    /// Takes connections and says nothing.
    Silent,
    /// Closes connections at the first request, as a router without a route does.
    Closes,
    /// Has no program: every answer is that there is no such port, but the state of the system.
    NoProgram,
}

/// A PLC's memory and tables.
#[derive(Default)]
pub(crate) struct Plc {
    pub(crate) symbols: Vec<u8>,
    pub(crate) types: Vec<u8>,
    pub(crate) memory: BTreeMap<u32, Vec<u8>>,
    pub(crate) version: u8,
    pub(crate) manner: Manner,
    /// Index offsets at which every access fails.
    pub(crate) forbidden: Vec<(u32, u32)>,
    /// AMS ports without a program.
    pub(crate) absent: Vec<u16>,
    /// In sum reads what fails takes no room.
    pub(crate) packs: bool,
    /// It uploads no tables.
    pub(crate) no_upload: bool,
    /// What it says of the size of its symbol table, if not the truth.
    pub(crate) lies: Option<u32>,
    /// Notifications it has by handle: index group, index offset, size, mode, cycle in 100 ns.
    pub(crate) handles: BTreeMap<u32, [u32; 5]>,
    /// Requests by command and index group.
    pub(crate) asked: BTreeMap<(u16, u32), u64>,
    pub(crate) next_handle: u32,
    pub(crate) sockets: Vec<TcpStream>,
    pub(crate) answers_held: bool,
    /// How many answers to additions of notifications it sends at once, each with the value as it is then, of this time.
    pub(crate) additions_together: Option<(usize, i64)>,
    pub(crate) held: Vec<Vec<u8>>,
}

/// A PLC that listens.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) plc: Arc<Mutex<Plc>>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) const CLIENT: [u8; 8] = [127, 0, 0, 1, 1, 1, 0x3b, 0x84];
pub(crate) const PLC: [u8; 8] = [127, 0, 0, 1, 1, 1, 0x53, 3];

/// A message with any contents.
pub(crate) fn message(command: u16, flags: u16, error: u32, invoke: u32, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend_from_slice(&(32 + data.len() as u32).to_le_bytes());
    out.extend_from_slice(&CLIENT);
    out.extend_from_slice(&PLC);
    out.extend_from_slice(&command.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    for value in [data.len() as u32, error, invoke] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(data);
    out
}

/// Nanoseconds since 1970, and the handles and values of that time.
pub(crate) type Stamp = (i64, Vec<(u32, Vec<u8>)>);

/// The data of a notification: stamps in nanoseconds since 1970, each with samples.
pub(crate) fn notification(stamps: &[Stamp]) -> Vec<u8> {
    let mut body = (stamps.len() as u32).to_le_bytes().to_vec();
    for (stamp, samples) in stamps {
        body.extend_from_slice(&((stamp / 100 + 116_444_736_000_000_000) as u64).to_le_bytes());
        body.extend_from_slice(&(samples.len() as u32).to_le_bytes());
        for (handle, data) in samples {
            body.extend_from_slice(&handle.to_le_bytes());
            body.extend_from_slice(&(data.len() as u32).to_le_bytes());
            body.extend_from_slice(data);
        }
    }
    let mut data = (body.len() as u32).to_le_bytes().to_vec();
    data.extend_from_slice(&body);
    data
}

impl Plc {
    fn read(&self, group: u32, offset: u32, size: u32) -> (u32, Vec<u8>) {
        if self.forbidden.iter().any(|(g, o)| *g == group && (offset..offset + size).contains(o)) {
            return (0x703, Vec::new());
        }
        let bytes = match group {
            0xF008 => std::slice::from_ref(&self.version),
            0xF00B | 0xF00E | 0xF00F if self.no_upload => return (0x701, Vec::new()),
            0xF00B => &self.symbols[..],
            0xF00E => &self.types[..],
            0xF00F => {
                let symbols = self.lies.unwrap_or(self.symbols.len() as u32);
                let mut info = Vec::new();
                for value in [1, symbols, 1, self.types.len() as u32] {
                    info.extend_from_slice(&u32::to_le_bytes(value));
                }
                info.resize(64, 0);
                return (0, info);
            }
            group => match self.memory.get(&group) {
                Some(memory) => &memory[..],
                None => return (0x702, Vec::new()),
            },
        };
        match bytes.get(offset as usize..(offset + size) as usize) {
            Some(bytes) => (0, bytes.to_vec()),
            None => (0x705, Vec::new()),
        }
    }

    fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let command = u16::from_le_bytes([request[22], request[23]]);
        let (invoke, data) = (word(request, 34), &request[38..]);
        let group = if matches!(command, 2 | 3 | 9) { word(data, 0) } else { 0 };
        *self.asked.entry((command, group)).or_default() += 1;
        let port = u16::from_le_bytes([request[12], request[13]]);
        let is_absent = self.manner == Manner::NoProgram || self.absent.contains(&port);
        if is_absent && (port, command) != (10_000, 4) {
            return message(command, 5, 6, invoke, &[]);
        }
        let with = |result: u32, rest: &[u8]| [&result.to_le_bytes()[..], rest].concat();
        let read = |(result, bytes): (u32, Vec<u8>)| with(result, &with(bytes.len() as u32, &bytes));
        let body = match command {
            1 => with(0, &[&[3, 1, 0xb8, 0x0f][..], b"Plc30 App\0\0\0\0\0\0\0"].concat()),
            4 if port == 10_000 => with(0, &[15, 0, 0, 0]),
            4 => with(0, &[5, 0, 0, 0]),
            2 => read(self.read(group, word(data, 4), word(data, 8))),
            9 if group == 0xF083 => {
                let (mut heads, mut all) = (Vec::new(), Vec::new());
                for sub in data[16..].chunks_exact(12) {
                    let (result, bytes) = self.read(word(sub, 0), word(sub, 4), word(sub, 8));
                    heads.extend_from_slice(&result.to_le_bytes());
                    heads.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                    all.extend_from_slice(&bytes);
                    if !self.packs {
                        all.resize(all.len() + word(sub, 8) as usize - bytes.len(), 0);
                    }
                }
                heads.extend_from_slice(&all);
                read((0, heads))
            }
            9 if group == 0xF009 => {
                let name = data[16..].split(|b| *b == 0).next().unwrap();
                let mut rest = &self.symbols[..];
                loop {
                    if rest.is_empty() {
                        break read((0x710, Vec::new()));
                    }
                    let (entry, after) = rest.split_at(word(rest, 0) as usize);
                    let length = u16::from_le_bytes([entry[24], entry[25]]) as usize;
                    if entry[30..30 + length].eq_ignore_ascii_case(name) {
                        break read((0, entry.to_vec()));
                    }
                    rest = after;
                }
            }
            6 => {
                let [group, offset, size, mode, _, cycle] = [0, 4, 8, 12, 16, 20].map(|at| word(data, at));
                match self.read(group, offset, size) {
                    (0, _) => {
                        self.next_handle += 1;
                        self.handles.insert(self.next_handle, [group, offset, size, mode, cycle]);
                        with(0, &self.next_handle.to_le_bytes())
                    }
                    (error, _) => with(error, &[0; 4]),
                }
            }
            7 => with(if self.handles.remove(&word(data, 0)).is_some() { 0 } else { 0x714 }, &[]),
            _ => with(0x701, &[]),
        };
        message(command, 5, 0, invoke, &body)
    }
}

impl Peer {
    pub(crate) fn start(plc: Plc) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let plc = Arc::new(Mutex::new(plc));
        let peer = Peer { address, plc };
        let serving = peer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, peer) = (stream.unwrap(), serving.clone());
                peer.plc.lock().sockets.push(stream.try_clone().unwrap());
                std::thread::spawn(move || peer.serve(stream));
            }
        });
        peer
    }

    fn serve(&self, mut stream: TcpStream) {
        loop {
            let mut head = [0; 6];
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let mut request = head.to_vec();
            request.resize(6 + word(&head, 2) as usize, 0);
            if stream.read_exact(&mut request[6..]).is_err() {
                return;
            }
            let mut plc = self.plc.lock();
            match plc.manner {
                Manner::Silent => continue,
                Manner::Closes => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                Manner::Well | Manner::NoProgram => {}
            }
            let mut answer = plc.answer(&request);
            let is_addition = request[22] == 6 && word(&request, 38) != 0xF008;
            if let Some((count, time)) = plc.additions_together.filter(|_| is_addition) {
                if let (0, handle) = (word(&answer, 38), word(&answer, 42)) {
                    let [group, offset, size, ..] = plc.handles[&handle];
                    let (_, value) = plc.read(group, offset, size);
                    answer.extend(message(8, 4, 0, 0, &notification(&[(time, vec![(handle, value)])])));
                }
                plc.held.push(answer);
                if plc.held.len() == count {
                    plc.additions_together = None;
                    let _ = stream.write_all(&std::mem::take(&mut plc.held).concat());
                }
            } else if plc.answers_held {
                plc.held.push(answer);
            } else {
                let _ = stream.write_all(&answer);
            }
        }
    }

    /// Sends bytes on the newest connection.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let mut plc = self.plc.lock();
        let _ = plc.sockets.last_mut().unwrap().write_all(bytes);
    }

    pub(crate) fn notify(&self, stamps: &[Stamp]) {
        self.send(&message(8, 4, 0, 0, &notification(stamps)));
    }

    /// Keeps answers back from now on.
    pub(crate) fn hold(&self) {
        self.plc.lock().answers_held = true;
    }

    /// Sends what was kept back and goes on.
    pub(crate) fn release(&self) {
        let mut plc = self.plc.lock();
        plc.answers_held = false;
        let held = std::mem::take(&mut plc.held);
        let socket = plc.sockets.last_mut().unwrap();
        held.iter().for_each(|answer| _ = socket.write_all(answer));
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for socket in self.plc.lock().sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn asked(&self, command: u16, group: u32) -> u64 {
        self.plc.lock().asked.get(&(command, group)).copied().unwrap_or(0)
    }

    /// Handle of the notification for a place.
    pub(crate) fn handle(&self, group: u32, offset: u32) -> Option<u32> {
        let plc = self.plc.lock();
        plc.handles.iter().find(|(_, of)| of[0] == group && of[1] == offset).map(|(handle, _)| *handle)
    }
}

//! A relay of connections: faults apply to one direction, the other is passed through unchanged.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};

use super::form::{Begins, Framing};
use super::lane::{Lane, Message};
use super::relay::{Clock, Ends, Relay, wait_for};
use super::report::RelayReport;

/// Max bytes waiting in a direction before its sender is no longer read.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Max time to connect to the receiver.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a pending connection is checked.
const CONNECT_LOOK_NS: i64 = 5_000_000;
/// Max time for a connection that is cut to deliver what was sent before.
const CUT_PATIENCE_NS: i64 = 2_000_000_000;
/// Max number of simultaneous connections.
const CONNECTIONS_MAX: usize = 256;

/// One end of a connection.
struct End {
    stream: TcpStream,
    /// Bytes to be sent here.
    out: VecDeque<u8>,
    /// Whether no more bytes arrive.
    ended: bool,
    /// Whether no more bytes can be sent.
    shut: bool,
}

impl End {
    fn new(stream: TcpStream) -> io::Result<End> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(End { stream, out: VecDeque::new(), ended: false, shut: false })
    }

    /// Reads available bytes, up to a bound. An error counts as the end.
    fn read(&mut self, into: &mut Vec<u8>) {
        let mut buffer = [0; 16 << 10];
        let mut room = READ_BYTES;
        while room > 0 && !self.ended {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    into.extend_from_slice(&buffer[..n]);
                    room = room.saturating_sub(n);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.ended = true,
            }
        }
    }

    /// Writes as much as is accepted. Returns whether the end is still connected.
    fn write(&mut self) -> bool {
        while !self.out.is_empty() {
            match self.stream.write(self.out.as_slices().0) {
                Ok(0) => return false,
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Shuts down the sending direction once everything is sent.
    fn shut_when_done(&mut self) {
        if self.out.is_empty() && !self.shut {
            self.shut = true;
            // A peer that has gone cannot be notified.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

/// Connection through the relay.
struct RelayedConnection {
    id: u64,
    /// End to whose messages faults apply.
    sender: End,
    receiver: End,
    /// Bytes from the sender that do not form a whole message yet.
    unread: Vec<u8>,
    /// Whether messages can no longer be delimited: bytes pass unchanged.
    unframed: bool,
    /// Deadline for sending what was sent before the cut.
    cut_until_ns: Option<i64>,
}

/// Connection whose receiver is not connected yet.
struct Reaching {
    id: u64,
    near: TcpStream,
    far: Receiver<io::Result<TcpStream>>,
}

/// Relay of connections.
pub(crate) struct RelayedConnections<F> {
    ends: Ends,
    listener: TcpListener,
    form: F,
    lane: Lane<F>,
    connections: Vec<RelayedConnection>,
    reaching: Vec<Reaching>,
    cut_every_ns: Option<i64>,
    next_cut_ns: i64,
    taken: u64,
    unreachable: u64,
    cuts: u64,
}

impl<F: Framing> RelayedConnections<F> {
    pub(crate) fn open(ends: Ends, form: F, lane: Lane<F>, cut_every_ns: Option<i64>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(ends.listen).with_context(|| format!("cannot listen on tcp {}", ends.listen))?;
        listener.set_nonblocking(true)?;
        Ok(RelayedConnections {
            ends: Ends { listen: listener.local_addr()?, ..ends },
            listener,
            form,
            lane,
            connections: Vec::new(),
            reaching: Vec::new(),
            cut_every_ns,
            next_cut_ns: cut_every_ns.unwrap_or(i64::MAX),
            taken: 0,
            unreachable: 0,
            cuts: 0,
        })
    }

    fn wait(&self, clock: &Clock, until_ns: i64) {
        let mut due = self.lane.next_due_ns().map_or(until_ns, |due| due.min(until_ns)).min(self.next_cut_ns);
        if !self.reaching.is_empty() {
            due = due.min(clock.now_ns() + CONNECT_LOOK_NS);
        }
        let mut fds = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        for connection in &self.connections {
            let full = self.is_full(connection);
            let ends = [(&connection.sender, full), (&connection.receiver, connection.is_back_full())];
            for (end, full) in ends {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::POLLIN, !end.ended && !full);
                flags.set(PollFlags::POLLOUT, !end.out.is_empty());
                // Poll reports a hang-up whether or not it is requested.
                if !flags.is_empty() {
                    fds.push(PollFd::new(end.stream.as_fd(), flags));
                }
            }
        }
        // An interrupted poll is simply another turn.
        let _ = poll(&mut fds, wait_for(due - clock.now_ns()));
    }

    fn is_full(&self, connection: &RelayedConnection) -> bool {
        self.lane.waiting_bytes() + connection.receiver.out.len() > WAITING_BYTES_MAX
    }

    fn accept(&mut self) {
        while let Ok((near, _)) = self.listener.accept() {
            self.taken += 1;
            if self.connections.len() + self.reaching.len() >= CONNECTIONS_MAX {
                self.unreachable += 1;
                continue;
            }
            let (reached, far) = channel();
            let to: SocketAddr = self.ends.to;
            // On a thread of its own: a receiver that does not answer must not delay the others.
            let connect = move || drop(reached.send(TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)));
            match std::thread::Builder::new().name("faults-connect".into()).spawn(connect) {
                Ok(_) => self.reaching.push(Reaching { id: self.taken, near, far }),
                Err(_) => self.unreachable += 1,
            }
        }
    }

    fn reach(&mut self) {
        for Reaching { id, near, far } in std::mem::take(&mut self.reaching) {
            let far = match far.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.reaching.push(Reaching { id, near, far });
                    continue;
                }
                Ok(Ok(stream)) => stream,
                // The receiver cannot be reached: close the sender's connection.
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                    self.unreachable += 1;
                    continue;
                }
            };
            let (sender, receiver) = if self.form.receiver_is_near() { (far, near) } else { (near, far) };
            let (Ok(sender), Ok(receiver)) = (End::new(sender), End::new(receiver)) else {
                self.unreachable += 1;
                continue;
            };
            self.connections.push(RelayedConnection {
                id,
                sender,
                receiver,
                unread: Vec::new(),
                unframed: false,
                cut_until_ns: None,
            });
        }
    }

    /// Cuts every connection as a failing link does: what was forwarded arrives, what waits is lost.
    fn cut_all(&mut self, now_ns: i64) {
        for at in 0..self.connections.len() {
            if self.connections[at].cut_until_ns.is_some() {
                continue;
            }
            self.read(at, now_ns);
            self.cuts += 1;
            let connection = &mut self.connections[at];
            connection.sender.ended = true;
            connection.sender.out.clear();
            connection.cut_until_ns = Some(now_ns + CUT_PATIENCE_NS);
            // The sender notices at once.
            let _ = connection.sender.stream.shutdown(Shutdown::Both);
            connection.sender.shut = true;
            self.lane.cut(connection.id);
        }
    }

    fn read(&mut self, at: usize, now_ns: i64) {
        if self.is_full(&self.connections[at]) {
            return;
        }
        let connection = &mut self.connections[at];
        let mut back = Vec::new();
        if !connection.is_back_full() {
            connection.receiver.read(&mut back);
        }
        // After a cut, what the receiver sends is read and discarded: unread bytes would reset the connection.
        if connection.cut_until_ns.is_none() {
            connection.sender.out.extend(back);
        }
        if connection.sender.ended {
            return;
        }
        let mut unread = std::mem::take(&mut connection.unread);
        connection.sender.read(&mut unread);
        let id = connection.id;
        let mut start = 0;
        while start < unread.len() {
            let begins =
                if self.connections[at].unframed { Begins::Lost } else { self.form.first(&unread[start..], id) };
            let (length, parts) = match begins {
                Begins::More => break,
                Begins::Message(length, parts) => (length, parts),
                Begins::Lost => {
                    self.connections[at].unframed = true;
                    (unread.len() - start, Vec::new())
                }
            };
            let parts = parts.into_iter().map(|(name, units)| (self.lane.flow(&name), units)).collect();
            let bytes = unread[start..start + length].to_vec();
            self.lane.take(now_ns, Message { route: id, bytes, parts });
            start += length;
        }
        unread.drain(..start);
        let connection = &mut self.connections[at];
        if connection.sender.ended {
            let last = self.lane.flush(id);
            connection.receiver.out.extend(last.into_iter().flatten());
            connection.receiver.out.extend(unread);
        } else {
            connection.unread = unread;
        }
    }

    fn hand_on(&mut self, now_ns: i64) {
        while let Some((id, bytes)) = self.lane.due(now_ns) {
            if let Some(connection) = self.connections.iter_mut().find(|c| c.id == id) {
                connection.receiver.out.extend(bytes);
            }
        }
    }

    fn write(&mut self, now_ns: i64) {
        let mut gone = Vec::new();
        for connection in &mut self.connections {
            if connection.cut_until_ns.is_some() {
                connection.receiver.read(&mut Vec::new());
            }
            let there = connection.receiver.write() && connection.sender.write();
            if connection.sender.ended {
                connection.receiver.shut_when_done();
            }
            if connection.receiver.ended {
                connection.sender.shut_when_done();
            }
            let done = connection.sender.ended && connection.receiver.ended && connection.receiver.out.is_empty();
            if !there || done || connection.cut_until_ns.is_some_and(|until| until <= now_ns) {
                gone.push(connection.id);
            }
        }
        for id in gone {
            self.lane.cut(id);
            self.connections.retain(|c| c.id != id);
        }
    }
}

impl<F: Framing> Relay for RelayedConnections<F> {
    fn ends(&self) -> Ends {
        self.ends
    }

    fn report(&self) -> RelayReport {
        RelayReport {
            connections: self.taken,
            unreachable: self.unreachable,
            cuts: self.cuts,
            ..RelayReport::new(self.ends, self.lane.flows(), self.lane.clock_jumps())
        }
    }

    fn turn(&mut self, clock: &Clock, until_ns: i64) {
        self.wait(clock, until_ns);
        let now_ns = clock.now_ns();
        self.accept();
        self.reach();
        if now_ns >= self.next_cut_ns {
            self.next_cut_ns = now_ns.saturating_add(self.cut_every_ns.unwrap_or(i64::MAX));
            self.cut_all(now_ns);
        }
        for at in 0..self.connections.len() {
            self.read(at, now_ns);
        }
        self.hand_on(now_ns);
        self.write(now_ns);
    }

    fn finish(&mut self, clock: &Clock) {
        for at in 0..self.connections.len() {
            self.read(at, clock.now_ns());
            let id = self.connections[at].id;
            for bytes in self.lane.flush(id) {
                self.connections[at].receiver.out.extend(bytes);
            }
            self.connections[at].sender.ended = true;
            self.connections[at].cut_until_ns = Some(clock.now_ns() + CUT_PATIENCE_NS);
        }
        while !self.connections.is_empty() {
            self.wait(clock, clock.now_ns() + CONNECT_LOOK_NS);
            self.write(clock.now_ns());
        }
    }
}

impl RelayedConnection {
    fn is_back_full(&self) -> bool {
        self.sender.out.len() > WAITING_BYTES_MAX
    }
}

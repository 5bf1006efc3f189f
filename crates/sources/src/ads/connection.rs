//! One TCP connection to the router of a PLC: requests out, each with its deadline; answers and notifications in, each
//! with the time of its reception.

use std::io::{ErrorKind, IoSliceMut, PipeReader, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::address::{AmsAddress, NetId};
use super::counts::AdsCounts;
use super::layout::PlcAddress;
use super::wire::{self, AnswerError, MessageKind, Request, WireError};
use crate::clock::{Now, kernel_ns};
use crate::counts::{RejectedSample, add};

/// Bytes that the receive buffer begins with.
const BUFFER_BYTES: usize = 256 << 10;
/// Free bytes there must be to receive into.
const ROOM_BYTES: usize = 64 << 10;
/// Times the socket is read before its messages are handed on and timers are looked at.
const READS_A_TURN: usize = 16;
/// Bytes that wait to be sent at most: a router that takes nothing is lost.
const OUTBOUND_BYTES_MAX: usize = 1 << 20;
/// Requests under way at most.
const PENDING_MAX: usize = 1_024;

/// What to look at, where somebody may have refused: nobody has where there is no way to the PLC.
fn firewall_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => "",
        _ => " (is ADS on TCP port 48898 open in its firewall?)",
    }
}

/// Why a connection cannot be had, or is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Its name means no address.
    #[error("{host}: no such address: {source}")]
    Unknown {
        /// The name.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody listens.
    #[error("{host}: cannot connect{}: {source}", firewall_hint(source))]
    Refused {
        /// Where.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// The router took the connection and does not answer: it has no route back.
    #[error(
        "{host}: the router {what}: no route on the PLC for NetId {source_net_id}? Add one there (TwinCAT system, \
         Routes, Edit routes, Add: AmsNetId {source_net_id}, address {address}, TCP_IP), or set source_net_id to the \
         NetId that has one; another program on this machine that talks to the same PLC has the same effect"
    )]
    NoRoute {
        /// Where.
        host: String,
        /// What it did.
        what: &'static str,
        /// NetId of this client.
        source_net_id: NetId,
        /// Address of this client.
        address: String,
    },
    /// A router refused on the way.
    #[error("{host}: {source}: {hint}")]
    Router {
        /// Where.
        host: String,
        /// What it said.
        source: super::error::AdsError,
        /// What to do.
        hint: String,
    },
    /// It ended.
    #[error("{host}: the PLC closed the connection")]
    Closed {
        /// Where.
        host: String,
    },
    /// The socket failed.
    #[error("{host}: {source}")]
    Socket {
        /// Where.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// What came is no ADS.
    #[error("{host}: {source}; closing the connection")]
    Wire {
        /// Where.
        host: String,
        /// What is wrong.
        source: WireError,
    },
    /// Requests are no longer answered.
    #[error("{host}: the PLC stopped answering")]
    Silent {
        /// Where.
        host: String,
    },
    /// It takes no more requests.
    #[error("{host}: {bytes} bytes of requests are queued and the PLC reads none")]
    Stuck {
        /// Where.
        host: String,
        /// Bytes that wait.
        bytes: usize,
    },
    /// Its IPv4 address is not known and no NetId is configured.
    #[error("{host}: reached over IPv6: set net_id and source_net_id")]
    NoNetId {
        /// Where.
        host: String,
    },
}

/// What arrived, on the thread that turns.
#[derive(Debug)]
pub enum Arrival<'a, T> {
    /// What became of a request: what follows the result of its answer, or why there is none.
    Answer {
        /// What it was sent with.
        tag: T,
        /// The outcome.
        result: Result<&'a [u8], AnswerError>,
    },
    /// Data of a notification.
    Notification {
        /// AMS port that sent it.
        port: u16,
        /// The data.
        data: &'a [u8],
    },
    /// A message that is neither; it is counted already.
    Bad(WireError),
    /// An answer that nobody waits for (any more).
    Stray {
        /// Its invoke id.
        invoke_id: u32,
    },
}

#[derive(Debug)]
struct Pending<T> {
    invoke_id: u32,
    command: u16,
    deadline: Instant,
    tag: T,
}

/// A connection. `T` is what requests are told apart by.
#[derive(Debug)]
pub struct Connection<T> {
    stream: TcpStream,
    host: String,
    timeout: Duration,
    net_id: NetId,
    source: AmsAddress,
    invoke_id: u32,
    pending: Vec<Pending<T>>,
    inbound: Vec<u8>,
    /// Where in `inbound` bytes lie that are not taken yet.
    filled: std::ops::Range<usize>,
    outbound: Vec<u8>,
    sent: usize,
    answered: bool,
}

/// Whether a turn ended because it was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Time, or something came.
    Done,
    /// The wake was written.
    Woken,
}

impl<T: Copy> Connection<T> {
    /// Connects to a PLC's router. Nothing is said yet.
    ///
    /// # Errors
    /// Where there is nobody, or no NetId for either side.
    pub fn open(target: &PlcAddress) -> Result<Self, Lost> {
        let host = target.host.clone();
        let addresses: Vec<SocketAddr> =
            host.to_socket_addrs().map_err(|source| Lost::Unknown { host: host.clone(), source })?.collect();
        let mut failed = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
        let mut connected = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, target.timeout) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => failed = error,
            }
        }
        let Some(stream) = connected else { return Err(Lost::Refused { host, source: failed }) };
        let prepared = (|| {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?;
            Ok((stream.local_addr()?.ip(), stream.peer_addr()?.ip()))
        })();
        let (local, peer) = prepared.map_err(|source| Lost::Socket { host: host.clone(), source })?;
        let net_id = target.net_id.or_else(|| NetId::of_ip(peer));
        let source_id = target.source_net_id.or_else(|| NetId::of_ip(local));
        let (Some(net_id), Some(source_id)) = (net_id, source_id) else { return Err(Lost::NoNetId { host }) };
        Ok(Connection {
            stream,
            host,
            timeout: target.timeout,
            net_id,
            source: AmsAddress { net_id: source_id, port: target.source_port },
            invoke_id: 0,
            pending: Vec::new(),
            inbound: vec![0; BUFFER_BYTES],
            filled: 0..0,
            outbound: Vec::new(),
            sent: 0,
            answered: false,
        })
    }

    /// Requests that no outcome is known of.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// NetId of the PLC.
    pub fn net_id(&self) -> NetId {
        self.net_id
    }

    /// Where it leads.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request to a program. Its outcome comes to the closure of [`Connection::turn`], with `tag`.
    ///
    /// # Errors
    /// If the PLC has not taken what was sent before.
    pub fn send(&mut self, port: u16, request: &Request<'_>, tag: T) -> Result<(), Lost> {
        self.send_within(self.timeout, port, request, tag)
    }

    /// As [`Connection::send`], with a longer or shorter time for the answer.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_within(&mut self, timeout: Duration, port: u16, request: &Request<'_>, tag: T) -> Result<(), Lost> {
        let bytes = self.outbound.len() - self.sent;
        if bytes > OUTBOUND_BYTES_MAX || self.pending.len() >= PENDING_MAX {
            return Err(Lost::Stuck { host: self.host.clone(), bytes });
        }
        self.invoke_id = self.invoke_id.wrapping_add(1);
        let target = AmsAddress { net_id: self.net_id, port };
        let command = request.encode(target, self.source, self.invoke_id, &mut self.outbound);
        let deadline = Instant::now() + timeout;
        self.pending.push(Pending { invoke_id: self.invoke_id, command, deadline, tag });
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Lost> {
        while self.sent < self.outbound.len() {
            match self.stream.write(&self.outbound[self.sent..]) {
                Ok(0) => return Err(self.ended()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.outbound.clear();
        self.sent = 0;
        Ok(())
    }

    fn failed(&self, source: std::io::Error) -> Lost {
        match source.kind() {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => self.ended(),
            _ => Lost::Socket { host: self.host.clone(), source },
        }
    }

    fn ended(&self) -> Lost {
        if self.answered {
            Lost::Closed { host: self.host.clone() }
        } else {
            self.no_route("closed the connection at once")
        }
    }

    /// What it means when nothing ever came back.
    pub(crate) fn no_route(&self, what: &'static str) -> Lost {
        Lost::NoRoute {
            host: self.host.clone(),
            what,
            source_net_id: self.source.net_id,
            address: self.stream.local_addr().map_or_else(|_| "of this machine".to_owned(), |a| a.ip().to_string()),
        }
    }

    /// Whether anything ever came back.
    pub(crate) fn answered(&self) -> bool {
        self.answered
    }

    /// Sends what waits, takes what comes until `until`, and hands each arrival to `take` with the time of its
    /// reception. Returns after the first that came, or at `until`, or when `wake` can be read.
    ///
    /// # Errors
    /// When the connection is of no more use.
    pub fn turn(
        &mut self,
        until: Instant,
        wake: Option<&PipeReader>,
        counts: &AdsCounts,
        now: &Now,
        take: &mut impl FnMut(Arrival<'_, T>, i64),
    ) -> Result<Turn, Lost> {
        self.flush()?;
        let first = self.pending.iter().map(|p| p.deadline).min();
        let until = first.map_or(until, |first| until.min(first));
        let woken = self.wait(until, wake)?;
        if woken {
            return Ok(Turn::Woken);
        }
        for _ in 0..READS_A_TURN {
            let Some(receive_time) = self.receive(counts, now)? else { break };
            self.hand_on(receive_time, counts, take)?;
        }
        self.expire(now, counts, take);
        Ok(Turn::Done)
    }

    fn wait(&self, until: Instant, wake: Option<&PipeReader>) -> Result<bool, Lost> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: waking a little before a deadline would only wait again.
        let ms = left.as_micros().div_ceil(1_000).min(i32::MAX as u128 / 2) as i32;
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::ZERO);
        let mut flags = PollFlags::POLLIN;
        if self.sent < self.outbound.len() {
            flags |= PollFlags::POLLOUT;
        }
        let mut fds = vec![PollFd::new(self.stream.as_fd(), flags)];
        fds.extend(wake.map(|wake| PollFd::new(wake.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(_) => Ok(fds.get(1).is_some_and(|wake| wake.any().unwrap_or(true))),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(Lost::Socket { host: self.host.clone(), source: errno.into() }),
        }
    }

    /// Receives once; the time of it, or none if nothing is there.
    fn receive(&mut self, counts: &AdsCounts, now: &Now) -> Result<Option<i64>, Lost> {
        self.make_room();
        let mut control = nix::cmsg_space!(TimeSpec);
        let end = self.filled.end;
        let mut slices = [IoSliceMut::new(&mut self.inbound[end..])];
        let fd = self.stream.as_raw_fd();
        let received = match recvmsg::<()>(fd, &mut slices, Some(&mut control), MsgFlags::MSG_DONTWAIT) {
            Ok(message) => {
                let mut stamp = None;
                for control in message.cmsgs().into_iter().flatten() {
                    if let ControlMessageOwned::ScmTimestampns(t) = control {
                        stamp = Some(kernel_ns(t));
                    }
                }
                (message.bytes, stamp)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(self.failed(errno.into())),
        };
        let (bytes, stamp) = received;
        if bytes == 0 {
            return Err(self.ended());
        }
        self.filled.end += bytes;
        add(&counts.bytes, bytes as u64);
        Ok(Some(stamp.unwrap_or_else(|| now())))
    }

    /// Moves what is there to the front, and grows the buffer where a message is longer: only ever to twice what came,
    /// whatever length it says.
    fn make_room(&mut self) {
        if self.inbound.len() - self.filled.end >= ROOM_BYTES {
            return;
        }
        self.inbound.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        if self.inbound.len() - self.filled.end < ROOM_BYTES {
            let needed = wire::announced_bytes(&self.inbound[self.filled.clone()]);
            let grown = (self.inbound.len() * 2).min(needed.max(BUFFER_BYTES) + ROOM_BYTES);
            self.inbound.resize(grown.max(self.filled.end + ROOM_BYTES), 0);
        }
    }

    fn hand_on(
        &mut self,
        receive_time: i64,
        counts: &AdsCounts,
        take: &mut impl FnMut(Arrival<'_, T>, i64),
    ) -> Result<(), Lost> {
        loop {
            let bytes = &self.inbound[self.filled.clone()];
            let cut = match wire::cut(bytes) {
                Ok(Some(cut)) => cut,
                Ok(None) => break,
                Err(source) => {
                    counts.rejected.add(source.reason(), 1, receive_time, || RejectedSample::new(&source, bytes));
                    return Err(Lost::Wire { host: self.host.clone(), source });
                }
            };
            add(&counts.messages, 1);
            self.answered = true;
            match cut.message {
                Err(error) => {
                    let message = || RejectedSample::new(&error, &bytes[..cut.size_bytes.min(bytes.len())]);
                    counts.rejected.add(error.reason(), 1, receive_time, message);
                    take(Arrival::Bad(error), receive_time);
                }
                Ok(message) => match message.kind {
                    MessageKind::Notification => {
                        take(Arrival::Notification { port: message.source.port, data: message.data }, receive_time);
                    }
                    MessageKind::Answer { command, invoke_id } => {
                        let place = self.pending.iter().position(|p| p.invoke_id == invoke_id && p.command == command);
                        match place.map(|at| self.pending.swap_remove(at)) {
                            Some(pending) => {
                                let result = message.answer();
                                take(Arrival::Answer { tag: pending.tag, result }, receive_time);
                            }
                            None => {
                                let text = || format!("an answer with invoke id {invoke_id}, which nobody waits for");
                                counts
                                    .rejected
                                    .add("unknown_answer", 1, receive_time, || RejectedSample::new(&text(), bytes));
                                take(Arrival::Stray { invoke_id }, receive_time);
                            }
                        }
                    }
                },
            }
            self.filled.start += cut.size_bytes;
        }
        if self.filled.is_empty() {
            self.filled = 0..0;
            // A symbol table is uploaded once; its room need not stay.
            if self.inbound.len() > BUFFER_BYTES * 4 {
                self.inbound = vec![0; BUFFER_BYTES];
            }
        }
        Ok(())
    }

    fn expire(&mut self, now: &Now, counts: &AdsCounts, take: &mut impl FnMut(Arrival<'_, T>, i64)) {
        let instant = Instant::now();
        let mut at = 0;
        while at < self.pending.len() {
            if self.pending[at].deadline > instant {
                at += 1;
                continue;
            }
            let pending = self.pending.swap_remove(at);
            add(&counts.timeouts, 1);
            take(Arrival::Answer { tag: pending.tag, result: Err(AnswerError::TimedOut) }, now());
        }
    }
}

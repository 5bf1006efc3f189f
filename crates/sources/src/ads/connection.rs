//! One TCP connection to the router of a PLC. Sends requests, each with a deadline, and receives answers and
//! notifications, each with its receive time.

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

/// Initial size of the receive buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Minimum free space in the receive buffer before a read.
const ROOM_BYTES: usize = 64 << 10;
/// Maximum reads of the socket in one turn, before timers are checked.
const READS_A_TURN: usize = 16;
/// Maximum bytes waiting to be sent. Beyond this, the connection counts as lost.
const OUTBOUND_BYTES_MAX: usize = 1 << 20;
/// Maximum requests in flight.
const PENDING_MAX: usize = 1_024;

/// Returns a hint about the firewall, or nothing if there is no route to the PLC and so no firewall that could refuse.
fn firewall_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => "",
        _ => " (is ADS on TCP port 48898 open in its firewall?)",
    }
}

/// Reason why a connection failed or can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A host name that does not resolve.
    #[error("{host}: no such address: {source}")]
    Unknown {
        /// Host name.
        host: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A host that did not accept the connection.
    #[error("{host}: cannot connect{}: {source}", firewall_hint(source))]
    Refused {
        /// Host of the PLC.
        host: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A router that accepts the connection but does not answer, because it has no route back.
    #[error(
        "{host}: the router {what}: no route on the PLC for NetId {source_net_id}? Add one there (TwinCAT system, \
         Routes, Edit routes, Add: AmsNetId {source_net_id}, address {address}, TCP_IP), or set source_net_id to the \
         NetId that has one; another program on this machine that talks to the same PLC has the same effect"
    )]
    NoRoute {
        /// Host of the PLC.
        host: String,
        /// Observed behaviour of the router.
        what: &'static str,
        /// NetId of this client.
        source_net_id: NetId,
        /// Address of this client.
        address: String,
    },
    /// A request refused by a router on the way.
    #[error("{host}: {source}: {hint}")]
    Router {
        /// Host of the PLC.
        host: String,
        /// Error from the router.
        source: super::error::AdsError,
        /// Suggested remedy.
        hint: String,
    },
    /// A connection closed by the PLC.
    #[error("{host}: the PLC closed the connection")]
    Closed {
        /// Host of the PLC.
        host: String,
    },
    /// A socket error.
    #[error("{host}: {source}")]
    Socket {
        /// Host of the PLC.
        host: String,
        /// Cause.
        source: std::io::Error,
    },
    /// Received bytes that are not ADS.
    #[error("{host}: {source}; closing the connection")]
    Wire {
        /// Host of the PLC.
        host: String,
        /// Decoding error.
        source: WireError,
    },
    /// A PLC that no longer answers requests.
    #[error("{host}: the PLC stopped answering")]
    Silent {
        /// Host of the PLC.
        host: String,
    },
    /// A PLC that no longer reads requests.
    #[error("{host}: {bytes} bytes of requests are queued and the PLC reads none")]
    Stuck {
        /// Host of the PLC.
        host: String,
        /// Bytes waiting to be sent.
        bytes: usize,
    },
    /// A missing NetId: none is configured and the PLC has no IPv4 address to derive it from.
    #[error("{host}: reached over IPv6: set net_id and source_net_id")]
    NoNetId {
        /// Host of the PLC.
        host: String,
    },
}

/// Arrival passed to the closure of [`Connection::turn`].
#[derive(Debug)]
pub enum Arrival<'a, T> {
    /// Outcome of a request: the bytes after the result code of its answer, or the reason why there are none.
    Answer {
        /// Tag given to [`Connection::send`].
        tag: T,
        /// Data or error.
        result: Result<&'a [u8], AnswerError>,
    },
    /// Data of a notification.
    Notification {
        /// AMS port that sent it.
        port: u16,
        /// The data.
        data: &'a [u8],
    },
    /// A message that is neither an answer nor a notification. Already counted as rejected.
    Bad(WireError),
    /// An answer to no pending request.
    Stray {
        /// Invoke id of the answer.
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

/// A connection. `T` is the tag that identifies a request.
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
    /// Range of `inbound` that is received but not yet consumed.
    filled: std::ops::Range<usize>,
    outbound: Vec<u8>,
    sent: usize,
    answered: bool,
}

/// Reason why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Timeout or received data.
    Done,
    /// Write to the wake pipe.
    Woken,
}

impl<T: Copy> Connection<T> {
    /// Connects to a PLC's router, without sending anything yet.
    ///
    /// # Errors
    /// If the host does not accept the connection, or a NetId is missing for either side.
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

    /// Counts the requests in flight.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the NetId of the PLC.
    pub fn net_id(&self) -> NetId {
        self.net_id
    }

    /// Returns the host of the PLC.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request to a program. The outcome is passed to the closure of [`Connection::turn`], with `tag`.
    ///
    /// # Errors
    /// If the PLC does not read the requests sent before.
    pub fn send(&mut self, port: u16, request: &Request<'_>, tag: T) -> Result<(), Lost> {
        self.send_within(self.timeout, port, request, tag)
    }

    /// Does the same as [`Connection::send`], with its own time limit for the answer.
    ///
    /// # Errors
    /// Same as [`Connection::send`].
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

    /// Returns the error for a connection on which nothing was ever received.
    pub(crate) fn no_route(&self, what: &'static str) -> Lost {
        Lost::NoRoute {
            host: self.host.clone(),
            what,
            source_net_id: self.source.net_id,
            address: self.stream.local_addr().map_or_else(|_| "of this machine".to_owned(), |a| a.ip().to_string()),
        }
    }

    /// Reports whether anything was ever received.
    pub(crate) fn answered(&self) -> bool {
        self.answered
    }

    /// Sends queued bytes, receives until `until`, and passes each arrival to `take` with its receive time. Returns
    /// after the first data received, at `until`, or when `wake` becomes readable.
    ///
    /// # Errors
    /// If the connection can no longer be used.
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
        // Round up: waking shortly before a deadline would only mean waiting again.
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

    /// Receives once. Returns the receive time, or `None` if there is no data.
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

    /// Moves unconsumed bytes to the front, and grows the buffer for a longer message. A message's announced length can
    /// at most double the buffer at a time, so memory stays in proportion to what was received.
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
            // A symbol table is uploaded only once, so release its memory.
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

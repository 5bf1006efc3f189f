//! Receives datagrams from a UDP socket in batches with kernel timestamps, counts them, and passes them to a decoder.
//! First stage of the path of a sample. Never waits for later stages.

use std::io::{IoSliceMut, PipeReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, bind, getsockopt,
    recvmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::clock::{Now, kernel_ns};
use crate::counts::{self, PacketCounts, RejectedSample};
use crate::multicast::{Change, Membership};
use crate::notes::Note;
use crate::throttle::Throttle;
use crate::worker::{Worker, readable_or_woken, woken_within};

/// Datagrams received per system call: enough to make the call cheap, few enough that the first does not wait for the
/// last.
const BATCH_DATAGRAMS: usize = 32;
/// Maximum size of a datagram in bytes.
const DATAGRAM_BYTES: usize = 65_536;
/// Passes over the sockets between two checks for a stop, while datagrams arrive faster than they are processed.
const PASSES_A_LOOK: u32 = 16;
/// Minimum overhead of a datagram in the receive buffer, in bytes.
const DATAGRAM_BOOKS_BYTES: usize = 256;
/// Minimum interval between two events on datagrams dropped by the kernel.
const DROPS_REPORTED_EACH_NS: i64 = 10_000_000_000;
/// Pause after a socket error.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Interval between checks of multicast memberships.
const MEMBERSHIP_LOOK: Duration = Duration::from_secs(1);

/// Socket error. Each variant names the address and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A socket that could not be created or bound.
    #[error("{address}: {doing}: {source}")]
    Socket {
        /// Address to listen on.
        address: SocketAddr,
        /// Failed operation.
        doing: &'static str,
        /// Cause.
        source: std::io::Error,
    },
    /// A missing interface.
    #[error("{address}: this machine has no interface {interface:?}; its interfaces are {known}")]
    NoInterface {
        /// Address to listen on.
        address: SocketAddr,
        /// Requested name or address.
        interface: String,
        /// Names of the existing interfaces.
        known: String,
    },
}

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// Address and port. A multicast group is joined.
    pub address: SocketAddr,
    /// Interface on which to join a multicast group, by name or address.
    pub interface: Option<String>,
}

/// Returns whether sockets of one program cannot have both addresses: the port is the same, and so is the IP address
/// or one of them is any. Whether any IPv6 address includes those of IPv4 depends on the system, so families are apart.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_one_port = one.port() == other.port() && one.port() != 0;
    is_one_port && one.is_ipv4() == other.is_ipv4() && (is_any || one.ip() == other.ip())
}

/// A bound socket with its options set.
#[derive(Debug)]
struct Socket {
    socket: UdpSocket,
    /// Size of the receive buffer granted by the kernel, in bytes.
    receive_buffer_bytes: usize,
    /// Datagrams dropped by the kernel so far, modulo 2³².
    kernel_drops: u32,
    /// For a group joined on named interfaces: their indexes. The kernel delivers datagrams from any interface on which
    /// any program joined the group; those from other interfaces belong to another network and are ignored.
    only_from: Option<Vec<u32>>,
    /// Once the receiver stops: bytes still to be read, including [`DATAGRAM_BOOKS_BYTES`] for each datagram.
    left_bytes: Option<usize>,
}

impl Socket {
    /// Creates a socket and requests kernel timestamps, the drop counter and a large buffer.
    fn open(address: SocketAddr, asked_bytes: usize) -> Result<Socket, SocketError> {
        let errno = |doing: &'static str| move |e: Errno| SocketError::Socket { address, doing, source: e.into() };
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, None).map_err(errno("cannot make a socket"))?;
        if address.ip().is_multicast() {
            // Several receivers of a group may run on one machine. With a unicast address, the newest would get all
            // packets.
            setsockopt(&fd, sockopt::ReuseAddr, &true).map_err(errno("cannot share the address"))?;
            let told = match address.is_ipv4() {
                true => setsockopt(&fd, sockopt::Ipv4PacketInfo, &true),
                false => setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true),
            };
            told.map_err(errno("no interfaces of datagrams"))?;
        }
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).map_err(errno("no kernel stamps"))?;
        setsockopt(&fd, sockopt::RxqOvfl, &1).map_err(errno("no drop counter"))?;
        // The forced size needs CAP_NET_ADMIN. Without it, the system's limit applies.
        if setsockopt(&fd, sockopt::RcvBufForce, &asked_bytes).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &asked_bytes).map_err(errno("no receive buffer"))?;
        }
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).map_err(errno("cannot listen"))?;
        let socket = UdpSocket::from(fd);
        // Linux allocates twice the requested size, the second half for its own bookkeeping.
        let got = getsockopt(&socket, sockopt::RcvBuf).map_err(errno("no receive buffer"))? / 2;
        if got < asked_bytes {
            tracing::warn!(
                %address, asked_bytes, got_bytes = got,
                "small receive buffer: bursts may be lost; raise it with `sysctl -w net.core.rmem_max={asked_bytes}`"
            );
        }
        Ok(Socket { socket, receive_buffer_bytes: got, kernel_drops: 0, only_from: None, left_bytes: None })
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Limits further reads to what the kernel can hold by now, because more may arrive forever.
    fn begin_stop(&mut self) {
        // The buffer includes its second half, and accepts one more datagram when it is nearly full.
        self.left_bytes = Some(self.receive_buffer_bytes * 2 + DATAGRAM_BYTES);
    }

    /// Records that bytes were read.
    fn took(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left_bytes {
            *left = left.saturating_sub(bytes);
        }
    }
}

/// Sender of a datagram, decoded only on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer(Option<SockaddrStorage>);

impl Peer {
    /// Returns the address and port, if the kernel reported them.
    pub fn address(&self) -> Option<SocketAddr> {
        let address = self.0.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|a| SocketAddr::from((a.ip(), a.port())));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| SocketAddr::from((a.ip(), a.port()))))
    }
}

/// Consumer of a receiver's datagrams, on its thread.
pub trait Datagrams: Send {
    /// Processes one datagram. Must not block.
    fn datagram(&mut self, bytes: &[u8], receive_time: i64, peer: &Peer);

    /// Marks the end of a batch of datagrams.
    fn batch_end(&mut self);
}

/// Sockets of one receiver, with their group memberships.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<Socket>,
    /// Address that each socket was to listen on.
    addresses: Vec<SocketAddr>,
    memberships: Vec<Membership>,
}

impl Sockets {
    /// Listens on each address once, and joins the groups on their interfaces.
    ///
    /// # Errors
    /// If an address cannot be bound, a group cannot be joined, or an interface does not exist.
    pub fn open(listens: &[Listen], receive_buffer_bytes: usize) -> Result<Sockets, SocketError> {
        let mut opened = Sockets { sockets: Vec::new(), addresses: Vec::new(), memberships: Vec::new() };
        for listen in listens {
            // A group on two interfaces uses one socket, which receives each datagram once per interface.
            if listen.address.port() == 0 || !opened.addresses.contains(&listen.address) {
                opened.addresses.push(listen.address);
                opened.sockets.push(Socket::open(listen.address, receive_buffer_bytes)?);
            }
            opened.memberships.extend(Membership::join(listen)?);
        }
        opened.note_interfaces();
        Ok(opened)
    }

    /// Updates the accepted interfaces of each group. Their indexes change when interfaces disappear and return.
    fn note_interfaces(&mut self) {
        for (socket, address) in self.sockets.iter_mut().zip(&self.addresses) {
            let of_group = self.memberships.iter().filter(|membership| membership.address() == *address);
            // If one of the memberships leaves the interface to the system's routes, accept any interface.
            let only: Option<Vec<u32>> = of_group.map(Membership::interface_index).collect();
            socket.only_from = only.filter(|only| !only.is_empty());
        }
    }

    /// Returns the local addresses, with the actual port for each requested port 0.
    ///
    /// # Errors
    /// If the system reports an error.
    pub fn local_addrs(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.sockets.iter().map(Socket::local_addr).collect()
    }
}

/// Thread that receives until it is stopped.
#[derive(Debug)]
pub struct Receiver {
    worker: Worker,
}

impl Receiver {
    /// Starts receiving. `name` is part of the thread's name.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        name: &str,
        sockets: Sockets,
        counts: Arc<PacketCounts>,
        now: Now,
        datagrams: impl Datagrams + 'static,
    ) -> std::io::Result<Receiver> {
        let bytes = sockets.sockets.iter().map(|socket| socket.receive_buffer_bytes as u64).sum();
        counts.receive_buffer_bytes.store(bytes, Relaxed);
        let worker = Worker::start(format!("udp-{name}"), move |wait| {
            receive_until_woken(sockets, wait, &counts, &now, datagrams);
        })?;
        Ok(Receiver { worker })
    }

    /// Processes what the kernel still holds, then ends the thread, even if more keeps arriving. Returns once it has
    /// ended.
    pub fn stop(&mut self) {
        self.worker.stop();
    }
}

fn receive_until_woken(
    mut receiving: Sockets,
    wait: &PipeReader,
    counts: &PacketCounts,
    now: &Now,
    mut datagrams: impl Datagrams,
) {
    let mut buffer = vec![0_u8; BATCH_DATAGRAMS * DATAGRAM_BYTES];
    let mut log = Throttle::new(1, 10_000_000_000);
    let mut drops = DropNotes::default();
    let mut looked = Instant::now();
    let mut stopping = false;
    let mut passes = 0;
    loop {
        let (mut received, mut failed) = (false, false);
        for socket in receiving.sockets.iter_mut().filter(|socket| socket.left_bytes != Some(0)) {
            match receive_batch(socket, &mut buffer, counts, now, &mut datagrams) {
                Ok(bytes) => {
                    received = true;
                    socket.took(bytes);
                }
                Err(Errno::EINTR) => received = true,
                Err(Errno::EAGAIN) => {}
                Err(errno) => {
                    failed = true;
                    counts::add(&counts.socket_errors, 1);
                    if let Some(held) = log.pass(now()) {
                        tracing::error!(%errno, held, "receiving failed; trying again");
                    }
                }
            }
        }
        drops.look(counts, now);
        let look = !receiving.memberships.is_empty();
        if look && looked.elapsed() >= MEMBERSHIP_LOOK {
            looked = Instant::now();
            for membership in &mut receiving.memberships {
                look_at(membership, counts, now);
            }
            receiving.note_interfaces();
        }
        if !received && stopping {
            return;
        }
        passes += 1;
        if received && (stopping || passes < PASSES_A_LOOK) {
            continue;
        }
        passes = 0;
        stopping = if received {
            woken_within(wait, Duration::ZERO)
        } else if failed {
            woken_within(wait, ERROR_PAUSE)
        } else {
            let time = look.then(|| MEMBERSHIP_LOOK.saturating_sub(looked.elapsed()));
            readable_or_woken(receiving.sockets.iter().map(|socket| socket.socket.as_fd()), wait, time)
        };
        if stopping {
            receiving.sockets.iter_mut().for_each(Socket::begin_stop);
        }
    }
}

/// Reporter of datagrams dropped by the kernel: at the first drop, then at most once per [`DROPS_REPORTED_EACH_NS`].
#[derive(Debug, Default)]
struct DropNotes {
    reported: u64,
    reported_at: Option<i64>,
}

impl DropNotes {
    fn look(&mut self, counts: &PacketCounts, now: &Now) {
        let dropped = counts::get(&counts.kernel_drops);
        if dropped == self.reported {
            return;
        }
        let at = now();
        if self.reported_at.is_some_and(|reported| (0..DROPS_REPORTED_EACH_NS).contains(&at.saturating_sub(reported))) {
            return;
        }
        let text = format!(
            "the kernel dropped {} datagrams: they came faster than they were read; raise receive_buffer_bytes and \
             net.core.rmem_max, or look for load on this machine",
            dropped.wrapping_sub(self.reported)
        );
        (self.reported, self.reported_at) = (dropped, Some(at));
        tracing::warn!("{text}");
        counts.notes.add(Note { time: at, level: "warning", text });
    }
}

/// Checks whether a group is still joined, and reports changes.
fn look_at(membership: &mut Membership, counts: &PacketCounts, now: &Now) {
    let (level, text) = match membership.look() {
        None => return,
        Some(Change::Gone) => {
            let words = membership.words();
            (
                "warning",
                format!(
                    "{words} is no longer received: the interface is gone; it will be joined again when it returns"
                ),
            )
        }
        Some(Change::Back) => ("info", format!("{} is joined again: its interface is back", membership.words())),
    };
    tracing::warn!("{text}");
    counts.notes.add(Note { time: now(), level, text });
}

/// Receives one batch at most. Returns a lower bound of the receive buffer space it freed, in bytes.
fn receive_batch(
    socket: &mut Socket,
    buffer: &mut [u8],
    counts: &PacketCounts,
    now: &Now,
    datagrams: &mut impl Datagrams,
) -> Result<usize, Errno> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffer.chunks_exact_mut(DATAGRAM_BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    // Allocated for each call: the kernel shortens the control lengths, and a reused header would cut off the drop
    // counter, which is sent only after the first drop.
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(
        BATCH_DATAGRAMS,
        Some(nix::cmsg_space!(TimeSpec, u32, nix::libc::in6_pktinfo)),
    );
    let messages = recvmmsg(socket.socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let mut last = None;
    let mut taken_bytes = 0;
    for message in messages {
        taken_bytes += message.bytes + DATAGRAM_BOOKS_BYTES;
        let (mut stamp, mut interface) = (None, None);
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampns(t) => {
                    stamp = Some(kernel_ns(t));
                }
                ControlMessageOwned::RxqOvfl(total) => {
                    counts::add(&counts.kernel_drops, total.wrapping_sub(socket.kernel_drops) as u64);
                    socket.kernel_drops = total;
                }
                ControlMessageOwned::Ipv4PacketInfo(info) => interface = u32::try_from(info.ipi_ifindex).ok(),
                ControlMessageOwned::Ipv6PacketInfo(info) => interface = Some(info.ipi6_ifindex),
                _ => {}
            }
        }
        if let (Some(only), Some(interface)) = (&socket.only_from, interface)
            && !only.contains(&interface)
        {
            continue;
        }
        let receive_time = stamp.unwrap_or_else(|| {
            counts::add(&counts.unstamped, 1);
            now()
        });
        last = Some(receive_time);
        let bytes = message.iovs().next().unwrap_or_default();
        let peer = Peer(message.address);
        counts::add(&counts.received, 1);
        counts::add(&counts.bytes, bytes.len() as u64);
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            let sample =
                || RejectedSample::new(&format!("more than {DATAGRAM_BYTES} bytes"), bytes).sent_by(peer.address());
            counts.rejected.add("oversized", 1, receive_time, sample);
            continue;
        }
        datagrams.datagram(bytes, receive_time, &peer);
    }
    if let Some(receive_time) = last {
        counts.last_receive_time.store(receive_time, Relaxed);
        datagrams.batch_end();
    }
    Ok(taken_bytes)
}

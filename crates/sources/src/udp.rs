//! Datagrams from a UDP socket: received in batches, stamped by the kernel, counted, handed to a decoder.
//! First stage of the path of a sample. It never waits on what comes after it.

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

/// Datagrams taken from the kernel at once: enough to make the system call cheap, few enough that the first
/// does not wait for the last.
const BATCH_DATAGRAMS: usize = 32;
/// Bytes of the largest datagram there can be.
const DATAGRAM_BYTES: usize = 65_536;
/// Passes over the sockets between two looks whether to stop, while datagrams come faster than they are taken.
const PASSES_A_LOOK: u32 = 16;
/// What a datagram takes of the receive buffer beside its bytes, at the least: the kernel keeps more about each.
const DATAGRAM_BOOKS_BYTES: usize = 256;
/// Time between two events on datagrams that the kernel dropped.
const DROPS_REPORTED_EACH_NS: i64 = 10_000_000_000;
/// How long to leave a socket alone that returns errors.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks whether multicast groups are still joined.
const MEMBERSHIP_LOOK: Duration = Duration::from_secs(1);

/// Why a socket cannot be had. Each names the address and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It cannot be made or bound.
    #[error("{address}: {doing}: {source}")]
    Socket {
        /// Where it was to listen.
        address: SocketAddr,
        /// What was being done.
        doing: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
    /// There is no such interface.
    #[error("{address}: this machine has no interface {interface:?}; its interfaces are {known}")]
    NoInterface {
        /// Where it was to listen.
        address: SocketAddr,
        /// Name or address asked for.
        interface: String,
        /// Names there are.
        known: String,
    },
}

/// What to listen to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// Address and port; a multicast group is joined.
    pub address: SocketAddr,
    /// Interface to join a multicast group on, by name or address.
    pub interface: Option<String>,
}

/// A bound socket with its options set.
#[derive(Debug)]
struct Socket {
    socket: UdpSocket,
    /// Bytes of receive buffer the kernel gave.
    receive_buffer_bytes: usize,
    /// Datagrams that the kernel dropped so far, modulo 2³².
    kernel_drops: u32,
    /// Of a group that is joined on interfaces that are named: their numbers. The kernel hands over what comes on any
    /// interface on which anybody joined it; what came on others is another network's, and not taken.
    only_from: Option<Vec<u32>>,
    /// Once the receiver stops: bytes that are still taken, with those of [`DATAGRAM_BOOKS_BYTES`].
    left_bytes: Option<usize>,
}

impl Socket {
    /// Makes a socket, asks for kernel stamps, the drop counter and a large buffer.
    fn open(address: SocketAddr, asked_bytes: usize) -> Result<Socket, SocketError> {
        let errno = |doing: &'static str| move |e: Errno| SocketError::Socket { address, doing, source: e.into() };
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, None).map_err(errno("cannot make a socket"))?;
        if address.ip().is_multicast() {
            // Several receivers of one group may run on one machine. Of another address the newest would get all packets.
            setsockopt(&fd, sockopt::ReuseAddr, &true).map_err(errno("cannot share the address"))?;
            let told = match address.is_ipv4() {
                true => setsockopt(&fd, sockopt::Ipv4PacketInfo, &true),
                false => setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true),
            };
            told.map_err(errno("no interfaces of datagrams"))?;
        }
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).map_err(errno("no kernel stamps"))?;
        setsockopt(&fd, sockopt::RxqOvfl, &1).map_err(errno("no drop counter"))?;
        // The forced size needs CAP_NET_ADMIN; without it the system's limit holds.
        if setsockopt(&fd, sockopt::RcvBufForce, &asked_bytes).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &asked_bytes).map_err(errno("no receive buffer"))?;
        }
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).map_err(errno("cannot listen"))?;
        let socket = UdpSocket::from(fd);
        // Linux keeps twice what was asked for, the second half for its own books.
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

    /// From now on takes only what the kernel can have by now: more may come for ever.
    fn begin_stop(&mut self) {
        // The buffer has its second half, too, and takes one datagram more when it is nearly full.
        self.left_bytes = Some(self.receive_buffer_bytes * 2 + DATAGRAM_BYTES);
    }

    /// Notes that bytes were taken.
    fn took(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left_bytes {
            *left = left.saturating_sub(bytes);
        }
    }
}

/// Who sent a datagram; looked at only where that is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer(Option<SockaddrStorage>);

impl Peer {
    /// Its address and port, where the kernel said them.
    pub fn address(&self) -> Option<SocketAddr> {
        let address = self.0.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|a| SocketAddr::from((a.ip(), a.port())));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| SocketAddr::from((a.ip(), a.port()))))
    }
}

/// What takes the datagrams of a receiver, on its thread.
pub trait Datagrams: Send {
    /// Takes one datagram. It must not wait.
    fn datagram(&mut self, bytes: &[u8], receive_time: i64, peer: &Peer);

    /// All datagrams that were there have been handed over.
    fn batch_end(&mut self);
}

/// Sockets of one receiver, and the groups that are joined for them.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<Socket>,
    /// What each was to listen on.
    addresses: Vec<SocketAddr>,
    memberships: Vec<Membership>,
}

impl Sockets {
    /// Listens on each address once, and joins the groups on their interfaces.
    ///
    /// # Errors
    /// Where an address cannot be bound, a group not joined, an interface not found.
    pub fn open(listens: &[Listen], receive_buffer_bytes: usize) -> Result<Sockets, SocketError> {
        let mut opened = Sockets { sockets: Vec::new(), addresses: Vec::new(), memberships: Vec::new() };
        for listen in listens {
            // A group on two interfaces is one socket: each datagram comes once from each.
            if listen.address.port() == 0 || !opened.addresses.contains(&listen.address) {
                opened.addresses.push(listen.address);
                opened.sockets.push(Socket::open(listen.address, receive_buffer_bytes)?);
            }
            opened.memberships.extend(Membership::join(listen)?);
        }
        opened.note_interfaces();
        Ok(opened)
    }

    /// Notes on which interfaces the datagrams of each group are to come: their numbers change when they go and come back.
    fn note_interfaces(&mut self) {
        for (socket, address) in self.sockets.iter_mut().zip(&self.addresses) {
            let of_group = self.memberships.iter().filter(|membership| membership.address() == *address);
            // Where one of them is left to the routes of the system, any may be it.
            let only: Option<Vec<u32>> = of_group.map(Membership::interface_index).collect();
            socket.only_from = only.filter(|only| !only.is_empty());
        }
    }

    /// Where they listen: the ports they got where they asked for 0.
    ///
    /// # Errors
    /// As the system has them.
    pub fn local_addrs(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.sockets.iter().map(Socket::local_addr).collect()
    }
}

/// A thread that receives until it is stopped.
#[derive(Debug)]
pub struct Receiver {
    worker: Worker,
}

impl Receiver {
    /// Starts receiving. `name` is the thread's, for those who look at a running system.
    ///
    /// # Errors
    /// Where no thread can be had.
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

    /// Takes what the kernel still has, then ends the thread, also where more keeps coming. Returns once it has ended.
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

/// Reports datagrams that the kernel dropped: at the first, then at most every [`DROPS_REPORTED_EACH_NS`].
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

/// Looks whether a group is still joined, and tells what changed.
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

/// Takes what is there, a batch at most. Returns how much of the receive buffer it took at the least.
fn receive_batch(
    socket: &mut Socket,
    buffer: &mut [u8],
    counts: &PacketCounts,
    now: &Now,
    datagrams: &mut impl Datagrams,
) -> Result<usize, Errno> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffer.chunks_exact_mut(DATAGRAM_BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    // Made anew for each call: the kernel shortens the control lengths it fills, and a reused header would cut
    // off the drop counter, which comes only with the first drop.
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

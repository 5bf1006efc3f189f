//! Datagrams from a UDP socket: received in batches, stamped by the kernel, counted, handed to a decoder.
//! First stage of the path of a sample. It never waits on what comes after it.

use std::io::{IoSliceMut, PipeReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, bind, getsockopt,
    recvmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::clock::{Now, kernel_ns};
use crate::counts::{self, PacketCounts};
use crate::throttle::Throttle;
use crate::worker::{Worker, readable_or_woken, woken_within};

/// Datagrams taken from the kernel at once: enough to make the system call cheap, few enough that the first
/// does not wait for the last.
const BATCH_DATAGRAMS: usize = 32;
/// Bytes of the largest datagram there can be.
const DATAGRAM_BYTES: usize = 65_536;
/// How long to leave a socket alone that returns errors.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

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
    #[error("{address}: no interface of this machine has the name or address {interface:?}; it has {known}")]
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
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address and port; a multicast group is joined.
    pub address: SocketAddr,
    /// Interface to join a multicast group on, by name or address.
    pub interface: Option<String>,
    /// Bytes of receive buffer to ask for.
    pub receive_buffer_bytes: usize,
}

/// A bound socket with its options set.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    /// Bytes of receive buffer the kernel gave.
    pub receive_buffer_bytes: usize,
}

impl Socket {
    /// Makes a socket, joins its group, asks for kernel stamps, the drop counter and a large buffer.
    ///
    /// # Errors
    /// Where the address cannot be bound, the group not joined, the interface not found.
    pub fn open(listen: &Listen) -> Result<Socket, SocketError> {
        let address = listen.address;
        let failed = |doing: &'static str| move |source: std::io::Error| SocketError::Socket { address, doing, source };
        let errno = |doing: &'static str| move |e: Errno| SocketError::Socket { address, doing, source: e.into() };
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, None).map_err(errno("cannot make a socket"))?;
        // Several receivers of one multicast group may run on one machine.
        setsockopt(&fd, sockopt::ReuseAddr, &true).map_err(errno("cannot share the address"))?;
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).map_err(errno("no kernel stamps"))?;
        setsockopt(&fd, sockopt::RxqOvfl, &1).map_err(errno("no drop counter"))?;
        // The forced size needs CAP_NET_ADMIN; without it the system's limit holds.
        if setsockopt(&fd, sockopt::RcvBufForce, &listen.receive_buffer_bytes).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &listen.receive_buffer_bytes).map_err(errno("no receive buffer"))?;
        }
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).map_err(errno("cannot listen"))?;
        let socket = UdpSocket::from(fd);
        match address.ip() {
            IpAddr::V4(group) if group.is_multicast() => {
                let on = match &listen.interface {
                    None => Ipv4Addr::UNSPECIFIED,
                    Some(name) => ipv4_of(address, name)?,
                };
                socket.join_multicast_v4(&group, &on).map_err(failed("cannot join the group"))?;
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let on = match &listen.interface {
                    None => 0,
                    Some(name) => index_of(address, name)?,
                };
                socket.join_multicast_v6(&group, on).map_err(failed("cannot join the group"))?;
            }
            _ => {}
        }
        // Linux keeps twice what was asked for, the second half for its own books.
        let got = getsockopt(&socket, sockopt::RcvBuf).map_err(errno("no receive buffer"))? / 2;
        if got < listen.receive_buffer_bytes {
            tracing::warn!(
                %address, asked_bytes = listen.receive_buffer_bytes, got_bytes = got,
                "small receive buffer: bursts may be lost; raise it with `sysctl -w net.core.rmem_max={}`",
                listen.receive_buffer_bytes
            );
        }
        Ok(Socket { socket, receive_buffer_bytes: got })
    }

    /// Where it listens: the port it got where it asked for 0.
    ///
    /// # Errors
    /// As the system has them.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn no_interface(address: SocketAddr, interface: &str) -> SocketError {
    let mut known: Vec<String> = getifaddrs().into_iter().flatten().map(|i| i.interface_name).collect();
    known.sort();
    known.dedup();
    SocketError::NoInterface { address, interface: interface.to_owned(), known: known.join(", ") }
}

/// The IPv4 address of an interface given by name or address.
fn ipv4_of(address: SocketAddr, interface: &str) -> Result<Ipv4Addr, SocketError> {
    if let Ok(ip) = interface.parse() {
        return Ok(ip);
    }
    getifaddrs()
        .into_iter()
        .flatten()
        .filter(|i| i.interface_name == interface)
        .find_map(|i| i.address.and_then(|a| a.as_sockaddr_in().map(|v4| v4.ip())))
        .ok_or_else(|| no_interface(address, interface))
}

/// The index of an interface given by name or address.
fn index_of(address: SocketAddr, interface: &str) -> Result<u32, SocketError> {
    let name = match interface.parse::<IpAddr>() {
        Err(_) => interface.to_owned(),
        Ok(ip) => getifaddrs()
            .into_iter()
            .flatten()
            .find(|i| i.address.as_ref().and_then(ip_of) == Some(ip))
            .map(|i| i.interface_name)
            .ok_or_else(|| no_interface(address, interface))?,
    };
    if_nametoindex(name.as_str()).map_err(|_| no_interface(address, interface))
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// What takes the datagrams of a receiver, on its thread.
pub trait Datagrams: Send {
    /// Takes one datagram. It must not wait.
    fn datagram(&mut self, bytes: &[u8], receive_time: i64);

    /// All datagrams that were there have been handed over.
    fn batch_end(&mut self);
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
        socket: Socket,
        counts: Arc<PacketCounts>,
        now: Now,
        datagrams: impl Datagrams + 'static,
    ) -> std::io::Result<Receiver> {
        counts.receive_buffer_bytes.store(socket.receive_buffer_bytes as u64, Relaxed);
        let worker = Worker::start(format!("udp-{name}"), move |wait| {
            receive_until_woken(&socket.socket, wait, &counts, &now, datagrams);
        })?;
        Ok(Receiver { worker })
    }

    /// Takes what the kernel still has, then ends the thread. Returns once it has ended.
    pub fn stop(&mut self) {
        self.worker.stop();
    }
}

fn receive_until_woken(
    socket: &UdpSocket,
    wait: &PipeReader,
    counts: &PacketCounts,
    now: &Now,
    mut datagrams: impl Datagrams,
) {
    let mut buffer = vec![0_u8; BATCH_DATAGRAMS * DATAGRAM_BYTES];
    let mut kernel_drops = 0_u32;
    let mut log = Throttle::new(1, 10_000_000_000);
    let mut stopping = false;
    loop {
        match receive_batch(socket, &mut buffer, counts, now, &mut kernel_drops, &mut datagrams) {
            Ok(()) | Err(Errno::EINTR) => {}
            Err(_) if stopping => return,
            Err(Errno::EAGAIN) => stopping = readable_or_woken([socket.as_fd()], wait, None),
            Err(errno) => {
                counts::add(&counts.socket_errors, 1);
                if let Some(held) = log.pass(now()) {
                    tracing::error!(%errno, held, "receiving failed; trying again");
                }
                stopping = woken_within(wait, ERROR_PAUSE);
            }
        }
    }
}

fn receive_batch(
    socket: &UdpSocket,
    buffer: &mut [u8],
    counts: &PacketCounts,
    now: &Now,
    kernel_drops: &mut u32,
    datagrams: &mut impl Datagrams,
) -> Result<(), Errno> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        buffer.chunks_exact_mut(DATAGRAM_BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    // Made anew for each call: the kernel shortens the control lengths it fills, and a reused header would cut
    // off the drop counter, which comes only with the first drop.
    let mut headers = MultiHeaders::<()>::preallocate(BATCH_DATAGRAMS, Some(nix::cmsg_space!(TimeSpec, u32)));
    let messages = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let mut last = None;
    for message in messages {
        let mut stamp = None;
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampns(t) => {
                    stamp = Some(kernel_ns(t));
                }
                ControlMessageOwned::RxqOvfl(total) => {
                    counts::add(&counts.kernel_drops, total.wrapping_sub(*kernel_drops) as u64);
                    *kernel_drops = total;
                }
                _ => {}
            }
        }
        let receive_time = stamp.unwrap_or_else(|| {
            counts::add(&counts.unstamped, 1);
            now()
        });
        last = Some(receive_time);
        let bytes = message.iovs().next().unwrap_or_default();
        counts::add(&counts.received, 1);
        counts::add(&counts.bytes, bytes.len() as u64);
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            counts.rejected.add("oversized", 1);
            continue;
        }
        datagrams.datagram(bytes, receive_time);
    }
    if let Some(receive_time) = last {
        counts.last_receive_time.store(receive_time, Relaxed);
        datagrams.batch_end();
    }
    Ok(())
}

//! A relay of datagrams.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};

use super::form::Inetx;
use super::lane::{Lane, Message};
use super::relay::{Clock, Ends, Relay, wait_for};
use super::report::RelayReport;

/// Max bytes of a datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// Number of datagrams received before those that are due are forwarded.
const AT_ONCE: usize = 256;
/// Requested bytes of receive buffer.
const BUFFER_BYTES: usize = 4 << 20;

/// Relay of iNET-X packets.
pub(crate) struct Packets {
    ends: Ends,
    near: UdpSocket,
    far: UdpSocket,
    lane: Lane<Inetx>,
    send_errors: u64,
}

impl Packets {
    pub(crate) fn open(ends: Ends, lane: Lane<Inetx>) -> anyhow::Result<Packets> {
        let near = UdpSocket::bind(ends.listen).with_context(|| format!("cannot listen on udp {}", ends.listen))?;
        near.set_nonblocking(true)?;
        // The system may grant a smaller buffer; the receiver finds its drops missing, but they appear in no count
        // here.
        let _ = nix::sys::socket::setsockopt(&near, nix::sys::socket::sockopt::RcvBuf, &BUFFER_BYTES);
        let any = match ends.to {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let ends = Ends { listen: near.local_addr()?, ..ends };
        Ok(Packets { ends, near, far: any.context("no UDP socket")?, lane, send_errors: 0 })
    }

    /// Receives datagrams. Returns whether there may be more.
    fn take(&mut self, clock: &Clock) -> bool {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        for _ in 0..AT_ONCE {
            match self.near.recv(&mut buffer) {
                Ok(length) => {
                    let bytes = buffer[..length].to_vec();
                    let flow = self.lane.flow(&Inetx::flow(&bytes));
                    self.lane.take(clock.now_ns(), Message { route: 0, bytes, parts: vec![(flow, 1)] });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.far.send_to(bytes, self.ends.to) {
            if self.send_errors == 0 {
                eprintln!("packet to {} not sent: {error}", self.ends.to);
            }
            self.send_errors += 1;
        }
    }
}

impl Relay for Packets {
    fn ends(&self) -> Ends {
        self.ends
    }

    fn report(&self) -> RelayReport {
        RelayReport {
            send_errors: self.send_errors,
            ..RelayReport::new(self.ends, self.lane.flows(), self.lane.clock_jumps())
        }
    }

    fn turn(&mut self, clock: &Clock, until_ns: i64) {
        let due = self.lane.next_due_ns().map_or(until_ns, |due| due.min(until_ns));
        let mut fds = [PollFd::new(self.near.as_fd(), PollFlags::POLLIN)];
        // An interrupted poll is simply another turn.
        let _ = poll(&mut fds, wait_for(due - clock.now_ns()));
        self.take(clock);
        while let Some((_, bytes)) = self.lane.due(clock.now_ns()) {
            self.send(&bytes);
        }
    }

    fn finish(&mut self, clock: &Clock) {
        while self.take(clock) {}
        for bytes in self.lane.flush(0) {
            self.send(&bytes);
        }
    }
}

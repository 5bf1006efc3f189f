//! iNET-X over real sockets: stamps, counters, bad datagrams, multicast, stopping.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use strongback_sources::StartError;
use strongback_sources::config::SourceConfig;
use strongback_sources::counts::PacketCounts;
use strongback_sources::inetx::{InetxSource, RunningReceiver};
use strongback_sources::udp::{Datagrams, Listen, Peer, Receiver, SocketError, Sockets};
use strongback_sources::{SourceLayout, wall_clock};

use crate::packets::inetx;
use crate::recording::{Recording, eventually};

fn layout(listen: &str, more: &str) -> SourceLayout {
    let text = format!(
        "name = 'fti'\nkind = 'inetx'\nlisten = '{listen}'\n{more}\n[[stream]]\nid = 0xDD\ntable = 'fti.bay'
        [[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u16'"
    );
    toml::from_str::<SourceConfig>(&text).unwrap().compile("source[0]").unwrap()
}

fn start(sink: &Arc<Recording>, layout: SourceLayout) -> RunningReceiver {
    InetxSource::start(layout, Arc::clone(sink) as _, wall_clock()).unwrap()
}

fn packet(sequence: u32) -> Vec<u8> {
    inetx(0xDD, sequence, (1_700_000_000, sequence), &(sequence as u16).to_be_bytes())
}

#[test]
fn datagrams_arrive_in_order_with_kernel_stamps() {
    let sink = Recording::new();
    let mut running = start(&sink, layout("127.0.0.1:0", ""));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = wall_clock()();
    for sequence in 0..500 {
        sender.send_to(&packet(sequence), running.addresses[0]).unwrap();
    }
    let frames = sink.wait_for_frames(500);
    let after = wall_clock()();
    assert_eq!(frames.iter().map(|f| f.sequence.unwrap()).collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
    assert!(frames.windows(2).all(|w| w[0].receive_time <= w[1].receive_time));
    assert!(before <= frames[0].receive_time && frames[499].receive_time <= after);
    running.stop();
    let counts = &running.counts;
    assert_eq!(
        (counts.received.load(Relaxed), counts.frames.load(Relaxed), counts.stored.load(Relaxed)),
        (500, 500, 500)
    );
    assert_eq!(counts.bytes.load(Relaxed), 500 * 30);
    assert_eq!((counts.unstamped.load(Relaxed), counts.rejected.total()), (0, 0));
    assert_eq!(counts.last_receive_time.load(Relaxed), frames[499].receive_time);
    assert!(counts.receive_buffer_bytes.load(Relaxed) > 0);
}

/// Of two sockets on one address the kernel gives all packets to one: the other source would be silent for no reason.
#[test]
fn an_address_that_another_listens_on_is_refused() {
    let sink = Recording::new();
    let mut running = start(&sink, layout("127.0.0.1:0", ""));
    let taken = layout(&running.addresses[0].to_string(), "");
    let error = InetxSource::start(taken, Arc::clone(&sink) as _, wall_clock()).map(drop).unwrap_err();
    assert!(error.to_string().contains(&running.addresses[0].to_string()), "{error}");
    running.stop();
}

#[test]
fn bad_datagrams_are_counted_and_disturb_nothing() {
    let sink = Recording::new();
    let running = start(&sink, layout("127.0.0.1:0", ""));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |bytes: &[u8]| sender.send_to(bytes, running.addresses[0]).unwrap();
    send(&packet(1));
    send(&[]);
    send(&packet(2)[..10]);
    send(&packet(3)[..29]);
    send(&[packet(4), vec![0]].concat());
    send(&[0x2F; 60]);
    send(&vec![0xA5; 65_000]);
    send(&inetx(0xDD, 5, (0, 0), &[1]));
    for id in 0..2_000 {
        send(&inetx(0x10_0000 + id, 0, (0, 0), &[1, 2]));
        if id % 100 == 0 {
            // Loopback must not be flooded: the counts below are exact.
            eventually("unknown ids", || (running.counts.rejected.total() >= 7 + id as u64).then_some(()));
        }
    }
    send(&packet(6));
    let frames = sink.wait_for_frames(2);
    assert_eq!(frames.iter().map(|f| f.sequence).collect::<Vec<_>>(), [Some(1), Some(6)]);
    let mut rejected = running.counts.rejected.snapshot();
    rejected.sort_unstable();
    assert_eq!(
        rejected,
        [("length", 2), ("short_payload", 1), ("truncated", 2), ("unknown_stream", 2_000), ("version", 2)]
    );
    assert_eq!(sink.rejected(), 1);
    let (unknown, others) = running.counts.unknown_streams.snapshot();
    assert_eq!((unknown.len(), others), (1_024, 976));
    assert_eq!(unknown[0], (0x10_0000, 1));
}

#[test]
fn multicast_groups_are_joined_on_an_interface() {
    for (listen, interface, send_from) in
        [("239.192.7.1:0", "127.0.0.1", "127.0.0.1:0"), ("239.192.7.2:0", "lo", "127.0.0.1:0")]
    {
        let sink = Recording::new();
        let running = start(&sink, layout(listen, &format!("interface = '{interface}'")));
        let sender = UdpSocket::bind(send_from).unwrap();
        sender.set_multicast_loop_v4(true).unwrap();
        nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::IpMulticastTtl, &1).unwrap();
        sender.send_to(&packet(9), running.addresses[0]).unwrap();
        assert_eq!(sink.wait_for_frames(1)[0].sequence, Some(9), "{listen} on {interface}");
    }
    let mut none = layout("239.192.7.1:0", "interface = 'nosuch0'");
    match InetxSource::start(none.clone(), Recording::new(), wall_clock()) {
        Err(StartError::Socket { source: SocketError::NoInterface { interface, known, .. }, .. }) => {
            assert_eq!(interface, "nosuch0");
            assert!(known.contains("lo"), "{known}");
        }
        other => panic!("{other:?}"),
    }
    none.listen[0].address = "[ff15::77:1]:0".parse().unwrap();
    assert!(matches!(InetxSource::start(none, Recording::new(), wall_clock()), Err(StartError::Socket { .. })));
}

#[test]
fn a_group_on_two_interfaces_is_two_networks() {
    let is_v4 = |i: &nix::ifaddrs::InterfaceAddress| i.address.is_some_and(|a| a.as_sockaddr_in().is_some());
    let other = nix::ifaddrs::getifaddrs().unwrap().find(|i| i.interface_name != "lo" && is_v4(i));
    // Machines with one interface cannot say.
    let Some(other) = other.map(|i| i.interface_name) else { return };
    let (ours, foreign) = (Recording::new(), Recording::new());
    let running = start(&ours, layout("239.192.7.3:0", "interface = 'lo'"));
    let address = running.addresses[0];
    let mut elsewhere = start(&foreign, layout(&address.to_string(), &format!("interface = '{other}'")));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(&packet(9), address).unwrap();
    assert_eq!(ours.wait_for_frames(1)[0].sequence, Some(9));
    // What the kernel has for it is taken at a stop.
    elsewhere.stop();
    assert_eq!(foreign.frames().len(), 0);
}

#[test]
fn a_group_of_two_sources_is_on_interfaces_that_are_named_and_others() {
    let group = |name: &str, interface: &str| {
        let text = format!(
            "name = '{name}'\nkind = 'inetx'\nlisten = '239.192.7.4:4440'\n{interface}\n[[stream]]\nid = 1\ntable = '{name}'\n\
             channel = [{{ name = 'c', offset = 0, type = 'u8' }}]"
        );
        toml::from_str::<SourceConfig>(&text).unwrap()
    };
    let both = |one: &str, two: &str| strongback_sources::layout::compile_all(&[group("one", one), group("two", two)]);
    assert!(both("interface = 'eth0'", "interface = 'eth1'").is_ok());
    for (one, two) in [("interface = 'eth0'", "interface = 'eth0'"), ("interface = 'eth0'", ""), ("", "")] {
        let error = both(one, two).unwrap_err();
        assert_eq!(error.path, "source[1].listen");
        assert!(error.reason.contains("an interface of its own"), "{error}");
    }
}

#[test]
fn ipv6_works_like_ipv4() {
    // Machines without IPv6 cannot say.
    if UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    let sink = Recording::new();
    let running = start(&sink, layout("[::1]:0", ""));
    UdpSocket::bind("[::1]:0").unwrap().send_to(&packet(3), running.addresses[0]).unwrap();
    assert_eq!(sink.wait_for_frames(1)[0].sequence, Some(3));
}

#[test]
fn a_stop_takes_what_the_kernel_has() {
    let sink = Recording::new();
    // An address of this test alone: whatever port it gives back, no other test is handed it.
    let mut running = start(&sink, layout("127.13.7.1:0", ""));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for sequence in 0..100 {
        sender.send_to(&packet(sequence), running.addresses[0]).unwrap();
    }
    running.stop();
    assert_eq!(sink.frames().len(), 100);
    // The port is free again, at the latest when a child that another test is starting has closed what it was
    // forked with; and a second stop is none.
    running.stop();
    eventually("the port", || UdpSocket::bind(running.addresses[0]).ok());
}

/// Answers each datagram on its first socket with another one to that socket, which is therefore never empty.
struct Endless {
    socket: UdpSocket,
    to: std::net::SocketAddr,
    others: Arc<std::sync::atomic::AtomicU64>,
    begin: Option<std::sync::mpsc::Receiver<()>>,
}

impl Datagrams for Endless {
    fn datagram(&mut self, bytes: &[u8], _receive_time: i64, _peer: &Peer) {
        if let Some(begin) = self.begin.take() {
            begin.recv().unwrap();
        }
        match bytes {
            b"again" => drop(self.socket.send_to(b"again", self.to).unwrap()),
            _ => drop(self.others.fetch_add(1, Relaxed)),
        }
    }

    fn batch_end(&mut self) {}
}

#[test]
fn a_stop_ends_while_datagrams_keep_coming_and_takes_what_the_kernel_has() {
    let listens = [(); 2].map(|()| Listen { address: "127.0.0.1:0".parse().unwrap(), interface: None });
    let sockets = Sockets::open(&listens, 1 << 17).unwrap();
    let to = sockets.local_addrs().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let others = Arc::default();
    let (go, begin) = std::sync::mpsc::channel();
    let endless =
        Endless { socket: socket.try_clone().unwrap(), to: to[0], others: Arc::clone(&others), begin: Some(begin) };
    let counts = Arc::new(PacketCounts::default());
    let mut receiver = Receiver::start("test", sockets, Arc::clone(&counts), wall_clock(), endless).unwrap();
    // While the first is held, more come than a pass takes.
    socket.send_to(b"again", to[0]).unwrap();
    for _ in 0..100 {
        socket.send_to(b"other", to[1]).unwrap();
    }
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        receiver.stop();
        ended.send(()).unwrap();
    });
    go.send(()).unwrap();
    end.recv_timeout(std::time::Duration::from_secs(60)).expect("the receiver never stops");
    assert_eq!((others.load(Relaxed), counts.kernel_drops.load(Relaxed)), (100, 0));
}

#[test]
fn drops_of_the_kernel_are_counted() {
    let sink = Recording::new();
    let mut small = layout("127.0.0.1:0", "");
    small.receive_buffer_bytes = 4_096;
    let running = start(&sink, small);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    // The sink's lock stalls the receiver until the buffer has overflown.
    sink.while_stalled(|| {
        for sequence in 0..2_000 {
            sender.send_to(&packet(sequence), running.addresses[0]).unwrap();
        }
    });
    // The counter travels with the next datagram that arrives.
    let mut sent = 2_000;
    eventually("drops", || {
        sender.send_to(&packet(sent), running.addresses[0]).unwrap();
        sent += 1;
        let drops = running.counts.kernel_drops.load(Relaxed);
        (drops > 0 && drops + running.counts.received.load(Relaxed) == sent as u64).then_some(())
    });
    // People are told, once.
    let notes = eventually("a note", || Some(running.counts.notes.take(9)).filter(|notes| !notes.is_empty()));
    assert_eq!(notes.len(), 1);
    assert!(notes[0].text.contains("receive_buffer_bytes") && notes[0].level == "warning", "{notes:?}");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = InetxSource::start(layout(&address, ""), Recording::new(), wall_clock()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("source fti: {address}: cannot listen")), "{error}");
}

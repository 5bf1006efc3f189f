//! Multicast groups on interfaces that go and come back: in a network of this thread's own, where the machine allows one.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use strongback_sources::config::SourceConfig;
use strongback_sources::inetx::{InetxSource, RunningReceiver};
use strongback_sources::notes::Note;
use strongback_sources::wall_clock;

use crate::packets::inetx;
use crate::recording::{Recording, eventually};

/// Runs a test on a thread with a network of its own, so that those of other tests are left alone. Says so where the
/// machine allows none; what joins again is tested in `src/multicast.rs` in any case.
fn in_own_network(test: fn()) {
    let run = move || match unshare(CloneFlags::CLONE_NEWNET).is_ok() && ip("link set lo up") && add_feed() {
        true => test(),
        false => println!("skipped: no network of its own on this machine"),
    };
    std::thread::spawn(run).join().unwrap();
}

/// An interface with an address, and the way of multicast.
fn add_feed() -> bool {
    ip("link add feed0 type veth peer name feed1")
        && ip("address add 192.0.2.1/24 dev feed0")
        && ip("link set feed0 up")
        && ip("link set feed1 up")
        && ip("route replace 239.0.0.0/8 dev feed0")
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|done| done.status.success())
}

/// Sends out of an interface; it comes back if the group is joined there.
fn send(from: &str, group: &str, sequence: u32) -> bool {
    let packet = inetx(0xDD, sequence, (1_700_000_000, 0), &[7]);
    UdpSocket::bind(from).is_ok_and(|sender| sender.send_to(&packet, group).is_ok())
}

fn start(sink: &Arc<Recording>, listen: &str) -> RunningReceiver {
    let text = format!(
        "name = 'fti'\nkind = 'inetx'\n{listen}\n[[stream]]\nid = 0xDD\ntable = 't'\n\
         channel = [{{ name = 'c', offset = 0, type = 'u8' }}]"
    );
    let layout = toml::from_str::<SourceConfig>(&text).unwrap().compile("source[0]").unwrap();
    InetxSource::start(layout, sink.clone(), wall_clock()).unwrap()
}

/// The next note, and none beside it.
fn note(running: &RunningReceiver) -> Note {
    let notes = eventually("a note", || Some(running.counts.notes.take(10)).filter(|notes| !notes.is_empty()));
    let [note] = <[Note; 1]>::try_from(notes).unwrap_or_else(|notes| panic!("{notes:?}"));
    note
}

#[test]
fn a_group_is_joined_again_when_its_interface_comes_back() {
    in_own_network(|| {
        let sink = Recording::new();
        let running = start(&sink, "groups = [{ address = '239.192.7.3:4440', interface = 'feed0' }]");
        let mut sequence = 0;
        let mut receives = |what: &str| {
            let before = sink.frames().len();
            eventually(what, || {
                sequence += 1;
                send("192.0.2.1:0", "239.192.7.3:4440", sequence);
                (sink.frames().len() > before).then_some(())
            });
        };
        receives("a packet");
        for _ in 0..2 {
            assert!(ip("link delete feed0"));
            let gone = note(&running);
            assert!(gone.text.starts_with("239.192.7.3 on feed0 is no longer received"), "{gone:?}");
            assert!(add_feed());
            let back = note(&running);
            assert_eq!(back.text, "239.192.7.3 on feed0 is joined again: its interface is back");
            receives("a packet after it came back");
        }
        // Gone and back between two looks: told by the interface's number.
        assert!(ip("link delete feed0") && add_feed());
        receives("a packet after a short absence");
    });
}

#[test]
fn a_group_on_two_interfaces_is_one_socket() {
    in_own_network(|| {
        let sink = Recording::new();
        let group = "239.192.7.4:4440";
        let on = |interface: &str| format!("{{ address = '{group}', interface = '{interface}' }}");
        let running = start(&sink, &format!("groups = [{}, {}]", on("feed0"), on("lo")));
        assert_eq!(running.addresses.len(), 1);
        assert!(send("192.0.2.1:0", group, 1));
        sink.wait_for_frames(1);
        assert!(ip("route replace 239.0.0.0/8 dev lo") && send("127.0.0.1:0", group, 2));
        let sequences: Vec<_> = sink.wait_for_frames(2).iter().map(|frame| frame.sequence).collect();
        assert_eq!(sequences, [Some(1), Some(2)]);
    });
}

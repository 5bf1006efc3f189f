//! Line protocol over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use strongback_sources::ilp::tcp::Listener;
use strongback_sources::ilp::{IlpConfig, Ingress};
use strongback_sources::{Now, wall_clock};
use strongback_store::Refusal;

use crate::recording::{Kept, Recording, eventually};

fn start(sink: &Arc<Recording>, config: IlpConfig, now: Now) -> (Listener, Arc<Ingress>) {
    start_at("127.0.0.1", sink, config, now)
}

fn start_at(host: &str, sink: &Arc<Recording>, config: IlpConfig, now: Now) -> (Listener, Arc<Ingress>) {
    let ingress = Ingress::new(Arc::clone(sink) as _, config);
    let listener = Listener::start(format!("{host}:0").parse().unwrap(), Arc::clone(&ingress), now).unwrap();
    (listener, ingress)
}

fn connect(listener: &Listener) -> TcpStream {
    TcpStream::connect(listener.address).unwrap()
}

fn closed_by_peer(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn a_bad_line_is_counted_and_the_connection_lives() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    stream.write_all(b"m v=1 1\nm v=x 2\n\xff\xff\nm v=3 3\n").unwrap();
    sink.wait_for_frames(2);
    stream.write_all(b"m v=4 4\n").unwrap();
    sink.wait_for_frames(3);
    assert_eq!(ingress.counts().rejected.snapshot(), [("syntax", 1), ("invalid_utf8", 1)]);
    // Each with a line and who sent it.
    let samples = ingress.counts().rejected.samples();
    let bytes: Vec<&[u8]> = samples.iter().map(|s| s.sample.bytes.as_slice()).collect();
    assert_eq!(bytes, [&b"m v=x 2"[..], b"\xff\xff"]);
    assert!(samples.iter().all(|s| s.sample.from == Some(stream.local_addr().unwrap()) && !s.sample.text.is_empty()));
    assert_eq!(ingress.counts().received.load(Relaxed), 5);
    assert_eq!(ingress.counts().connections.load(Relaxed), 1);
}

#[test]
fn lines_are_whole_however_slowly_they_come() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    stream.set_nodelay(true).unwrap();
    for byte in "m,t=é s=\"two\nlines\",v=1.25 1\nm,t=é v=2 2\n".as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    sink.wait_for_frames(2);
    assert_eq!(
        sink.rows("m{t=é}")[0],
        [("s".to_owned(), Kept::Text("two\nlines".to_owned())), ("v".to_owned(), Kept::f64(1.25))]
    );
    assert_eq!(ingress.counts().rejected.total(), 0);
}

#[test]
fn a_line_cut_by_the_end_of_the_connection_is_not_stored() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    // Had it been whole, the value might have been 123.
    stream.write_all(b"m v=1 1\nm v=12").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(closed_by_peer(&mut stream));
    eventually("the truncated line", || (ingress.counts().rejected.snapshot() == [("truncated", 1)]).then_some(()));
    assert_eq!(sink.frames().len(), 1);
    eventually("the end of the connection", || (ingress.counts().connections.load(Relaxed) == 0).then_some(()));
}

#[test]
fn an_open_string_at_the_end_of_a_connection_costs_its_line_only() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    let lines: String = (0..1_000).map(|i| format!("m v={i} {i}\n")).collect();
    stream.write_all(format!("m s=\"abc\n{lines}m v=12").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(closed_by_peer(&mut stream));
    eventually("the end of the connection", || (ingress.counts().connections.load(Relaxed) == 0).then_some(()));
    assert_eq!(ingress.counts().rejected.snapshot(), [("syntax", 1), ("truncated", 1)]);
    assert_eq!(sink.frames().len(), 1_000);
    assert_eq!(ingress.counts().received.load(Relaxed), 1_002);
}

#[test]
fn lines_that_an_open_string_takes_along_are_counted() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    let line = format!("m,tag={} v=1\n", "x".repeat(100));
    stream.write_all(format!("m s=\"abc\n{}", line.repeat(20_000)).as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(closed_by_peer(&mut stream));
    eventually("the end of the connection", || (ingress.counts().connections.load(Relaxed) == 0).then_some(()));
    let lost = (1 << 20) / line.len() as u64;
    let rejected = ingress.counts().rejected.samples();
    assert_eq!((rejected.len(), rejected[0].reason), (1, "line_too_long"));
    assert!(rejected[0].count >= lost, "{rejected:?}");
    assert!(rejected[0].sample.text.contains(&format!("; {} lines are lost", rejected[0].count)), "{rejected:?}");
    assert_eq!(ingress.counts().stored.load(Relaxed) + rejected[0].count, 20_001);
    assert_eq!(ingress.counts().received.load(Relaxed), 20_001);
}

#[test]
fn a_line_without_end_is_given_up_and_the_next_one_taken() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    let mut stream = connect(&listener);
    stream.write_all(b"m s=\"").unwrap();
    stream.write_all(&vec![b'x'; 5 << 20]).unwrap();
    stream.write_all(b"\nm v=1 1\n").unwrap();
    sink.wait_for_frames(1);
    assert_eq!(ingress.counts().rejected.snapshot(), [("line_too_long", 1)]);
    // A line of nearly a MiB is none too long.
    let long = format!("m s=\"{}\" 2\n", "y".repeat(1_000_000));
    stream.write_all(long.as_bytes()).unwrap();
    sink.wait_for_frames(2);
}

#[test]
fn too_many_connections_are_refused_and_the_silent_make_room() {
    let sink = Recording::new();
    let time = Arc::new(AtomicI64::new(1_000_000_000_000));
    let clock = Arc::clone(&time);
    let config = IlpConfig { max_connections: 2, idle_after_s: 60, ..IlpConfig::default() };
    let (listener, ingress) = start(&sink, config, Arc::new(move || clock.load(Relaxed)));
    let mut first = connect(&listener);
    first.write_all(b"m v=1 1\n").unwrap();
    sink.wait_for_frames(1);
    let mut second = connect(&listener);
    second.write_all(b"m v=2 2\n").unwrap();
    sink.wait_for_frames(2);
    let mut third = connect(&listener);
    assert!(closed_by_peer(&mut third));
    assert_eq!(ingress.counts().connections_refused.load(Relaxed), 1);
    // A minute later the second has spoken again, the first has not.
    time.fetch_add(61_000_000_000, Relaxed);
    second.write_all(b"m v=3 3\n").unwrap();
    sink.wait_for_frames(3);
    let mut fourth = connect(&listener);
    fourth.write_all(b"m v=4 4\n").unwrap();
    sink.wait_for_frames(4);
    assert!(closed_by_peer(&mut first));
    assert_eq!(ingress.counts().connections_evicted.load(Relaxed), 1);
    second.write_all(b"m v=5 5\n").unwrap();
    sink.wait_for_frames(5);
}

#[test]
fn a_stop_takes_what_was_received_and_returns() {
    let sink = Recording::new();
    // An address of its own: nobody else gets the port once it is free.
    let (mut listener, _ingress) = start_at("127.0.4.1", &sink, IlpConfig::default(), wall_clock());
    let mut streams: Vec<TcpStream> = (0..8).map(|_| connect(&listener)).collect();
    for (i, stream) in streams.iter_mut().enumerate() {
        stream.write_all(format!("m v={i} {i}\n").as_bytes()).unwrap();
    }
    sink.wait_for_frames(8);
    streams[0].write_all(b"m v=9 9\n").unwrap();
    listener.stop();
    assert!(closed_by_peer(&mut streams[3]));
    assert!(TcpStream::connect(listener.address).is_err());
}

#[test]
fn a_stop_ends_while_connections_keep_coming() {
    let address = Arc::new(std::sync::OnceLock::new());
    let (to, clock) = (Arc::clone(&address), wall_clock());
    // For each connection that is admitted, one more comes.
    let now: Now = Arc::new(move || {
        if std::thread::current().name() == Some("ilp-accept")
            && let Some(address) = to.get()
        {
            drop(TcpStream::connect(address));
        }
        clock()
    });
    let sink = Recording::new();
    let (mut listener, ingress) = start(&sink, IlpConfig::default(), now);
    address.set(listener.address).unwrap();
    drop(connect(&listener));
    eventually("many connections", || (ingress.counts().connections_total.load(Relaxed) > 100).then_some(()));
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        listener.stop();
        ended.send(()).unwrap();
    });
    end.recv_timeout(std::time::Duration::from_secs(60)).expect("the listener never stops");
}

#[test]
fn a_full_log_holds_the_sender_and_loses_nothing() {
    let sink = Recording::new();
    let (listener, ingress) = start(&sink, IlpConfig::default(), wall_clock());
    sink.refuse(Refusal::LogFull, 40);
    let mut stream = connect(&listener);
    for i in 0..5_000 {
        stream.write_all(format!("m v={i} {i}\n").as_bytes()).unwrap();
    }
    let frames = sink.wait_for_frames(5_000);
    assert_eq!(frames.len(), 5_000);
    assert_eq!(ingress.counts().rejected.total(), 0);
    assert!(sink.waits() > 0);
}

#[test]
fn silent_connections_of_one_address_keep_nobody_out() {
    let sink = Recording::new();
    let config = IlpConfig { max_connections: 16, max_connections_per_address: 8, ..IlpConfig::default() };
    let (listener, ingress) = start(&sink, config, wall_clock());
    let mut silent: Vec<TcpStream> = (0..40).map(|_| connect(&listener)).collect();
    let mut writing = connect(&listener);
    writing.write_all(b"m v=1 1\n").unwrap();
    sink.wait_for_frames(1);
    // Those that never wrote go first, the oldest before the others; the one that writes stays.
    assert!(closed_by_peer(&mut silent[0]));
    let more: Vec<TcpStream> = (0..40).map(|_| connect(&listener)).collect();
    writing.write_all(b"m v=2 2\n").unwrap();
    sink.wait_for_frames(2);
    assert_eq!(ingress.counts().connections_refused.load(Relaxed), 0);
    drop(more);
}

#[test]
fn lines_that_never_end_share_a_bound() {
    let sink = Recording::new();
    let config = IlpConfig { max_pending_bytes: 1 << 20, ..IlpConfig::default() };
    let (listener, ingress) = start(&sink, config, wall_clock());
    let line = vec![b'x'; 900 << 10];
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&listener)).collect();
    for stream in &mut streams {
        stream.write_all(&line).unwrap();
    }
    // The one that is left has all that there is, unless a connection that was fast still holds a part of it.
    let rejected = |reason: &str| {
        let found = ingress.counts().rejected.snapshot();
        found.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
    };
    eventually("three lines without memory", || (rejected("no_line_memory") >= 3).then_some(()));
    for (i, stream) in streams.iter_mut().enumerate() {
        stream.write_all(format!("\nm v={i} {i}\n").as_bytes()).unwrap();
    }
    sink.wait_for_frames(4);
    eventually("the line that was read", || (rejected("no_line_memory") + rejected("syntax") == 4).then_some(()));
    // The memory is there again.
    drop(streams);
    eventually("all closed", || (ingress.counts().connections.load(Relaxed) == 0).then_some(()));
    let mut stream = connect(&listener);
    stream.write_all(format!("m s=\"{}\" 9\n", "y".repeat(600_000)).as_bytes()).unwrap();
    sink.wait_for_frames(5);
}

#[test]
fn where_a_token_is_required_the_first_line_shows_it() {
    let sink = Recording::new();
    let config = IlpConfig { token: Some("0123456789abcdef".to_owned()), ..IlpConfig::default() };
    let (listener, ingress) = start(&sink, config, wall_clock());
    for wrong in
        ["m v=1 1\n", "# token 0123456789abcdeX\nm v=1 1\n", "# token \nm v=1 1\n", "# token 0123456789abcdef1\n"]
    {
        let mut stream = connect(&listener);
        stream.write_all(wrong.as_bytes()).unwrap();
        assert!(closed_by_peer(&mut stream), "{wrong}");
    }
    let mut endless = connect(&listener);
    let _ = endless.write_all(&[b'#'; 8192]);
    assert!(closed_by_peer(&mut endless));
    let mut known = connect(&listener);
    known.write_all(b"# token 0123456789abcdef\r\nm v=1 1\nm v=2").unwrap();
    sink.wait_for_frames(1);
    known.write_all(b" 2\n").unwrap();
    sink.wait_for_frames(2);
    assert_eq!(ingress.counts().connections_refused.load(Relaxed), 5);
    assert_eq!(ingress.counts().received.load(Relaxed), 2, "nothing of the others was read");
}

//! Why data is missing, as a client is told: faults made with real datagrams, lines and restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use strongback_server::Opening;
use strongback_server::cli::{Cli, Command};
use strongback_server::commands::doctor;
use strongback_server::commands::outcome::code;
use strongback_store::{FaultDisk, StoreOptions};
use tokio::net::UdpSocket;

use crate::client::{TestServer, big};
use crate::faults::until;

/// A source of one stream, of which fifty packets a second are expected.
const PACKETS: &str = "[[source]]\nname = \"fti\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:0\"\n\
    [[source.stream]]\nid = 221\ntable = \"fti.bay\"\nperiod_ms = 20.0\n\
    [[source.stream.channel]]\nname = \"t\"\noffset = 0\ntype = \"u32\"\n";
/// Lines of which ten a second are expected.
const LINES: &str = "[[channel]]\npattern = \"tank.*\"\nunit = \"bar\"\nexpected_period_ms = 100.0\n";

/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(100);

fn packet(id: u32, sequence: u32) -> Vec<u8> {
    [0x1000_0000, id, sequence, 28, 1_780_000_000 + sequence, 0, sequence].map(u32::to_be_bytes).concat()
}

/// Sends packets on time until it is dropped.
struct Sender {
    socket: Arc<UdpSocket>,
    next: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Sender {
    async fn start(server: &TestServer) -> Sender {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        socket.connect(server.running.as_ref().unwrap().packets[0].1).await.unwrap();
        let next = Arc::new(AtomicU32::new(0));
        let (of, number) = (socket.clone(), next.clone());
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            loop {
                ticks.tick().await;
                of.send(&packet(221, number.fetch_add(1, Ordering::SeqCst))).await.unwrap();
            }
        });
        Sender { socket, next, task }
    }

    async fn send(&self, bytes: &[u8]) {
        self.socket.send(bytes).await.unwrap();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A fault of the source, and the word that a doctor has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Lost,
    Duplicate,
    NoLayout,
    Rejected,
    Silent,
}

impl Fault {
    const ALL: [Fault; 5] = [Fault::Lost, Fault::Duplicate, Fault::NoLayout, Fault::Rejected, Fault::Silent];

    fn cause(self) -> &'static str {
        match self {
            Fault::Lost => "lost",
            Fault::Duplicate => "duplicate",
            Fault::NoLayout => "no_layout",
            Fault::Rejected => "rejected",
            Fault::Silent => "silent",
        }
    }

    async fn make(self, sender: &Sender) {
        match self {
            Fault::Lost => _ = sender.next.fetch_add(7, Ordering::SeqCst),
            Fault::Duplicate => {
                let number = sender.next.fetch_add(1, Ordering::SeqCst);
                sender.send(&packet(221, number)).await;
                sender.send(&packet(221, number)).await;
            }
            Fault::NoLayout => sender.send(&packet(0xdead, 1)).await,
            Fault::Rejected => sender.send(&packet(221, 0)[..10]).await,
            Fault::Silent => sender.task.abort(),
        }
    }
}

fn causes(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|f| f["cause"].as_str().unwrap()).collect()
}

/// Asks until a doctor names what is to be named.
async fn named(server: &TestServer, question: &str, wanted: &[&str]) -> Value {
    until(async || {
        let report = server.json(&format!("/api/doctor?{question}")).await;
        let found = causes(&report);
        if found.len() == wanted.len() && wanted.iter().all(|cause| found.contains(cause)) {
            return Ok(report);
        }
        // The sources are looked at once a second; others test beside this.
        tokio::time::sleep(ASK_AGAIN).await;
        Err(format!("{wanted:?}: {report:#}"))
    })
    .await
}

/// A server that gets packets, with nothing wrong.
async fn well() -> (TestServer, Sender) {
    let server = TestServer::with(PACKETS).await;
    let sender = Sender::start(&server).await;
    let report = named(&server, "channel=fti.bay.t", &[]).await;
    assert_eq!((&report["wrong"], &report["verdict"]), (&json!(false), &json!("nothing is wrong: 1 stream looked at")));
    (server, sender)
}

/// What `strongback doctor` ends with, and what it printed is left to see.
async fn exit_code(server: &str, arguments: &[&str]) -> u8 {
    use clap::Parser;
    let line = ["strongback", "doctor", "--server", server].into_iter().chain(arguments.iter().copied());
    let Command::Doctor(args) = Cli::try_parse_from(line).unwrap().command else { panic!("no doctor") };
    tokio::task::spawn_blocking(move || code(&doctor::run(&args))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_source_is_named_and_no_other() {
    for fault in Fault::ALL {
        let (server, sender) = well().await;
        let url = format!("http://{}", server.http);
        assert_eq!(exit_code(&url, &["fti.*"]).await, 0);
        fault.make(&sender).await;
        let report = named(&server, "channel=fti.bay.t", &[fault.cause()]).await;
        let finding = &report["findings"][0];
        let (count, text) = (big(&finding["count"]), finding["text"].as_str().unwrap());
        match fault {
            Fault::Lost => assert_eq!(count, 7),
            Fault::Duplicate => assert_eq!(count, 1),
            Fault::NoLayout => assert!(count == 1 && text.contains("0x0000dead (1 packet)"), "{text}"),
            Fault::Rejected => {
                let from = sender.socket.local_addr().unwrap();
                assert!(count == 1 && text.contains("(truncated)"), "{text}");
                assert!(text.contains(&format!("from {from}")) && text.contains("begins 10000000000000dd"), "{text}");
            }
            Fault::Silent => assert!(text.starts_with("no frame for ") && finding["from"].is_string(), "{text}"),
        }
        // Of everything, the same is wrong; that frames came twice is no fault.
        let wrong = fault != Fault::Duplicate;
        assert_eq!(report["wrong"], json!(wrong));
        named(&server, "", &[fault.cause()]).await;
        assert_eq!(exit_code(&url, &["--json"]).await, if wrong { 3 } else { 0 });
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_faults_both_are_named() {
    for (n, first) in Fault::ALL.iter().enumerate() {
        for second in &Fault::ALL[n + 1..] {
            let (server, sender) = well().await;
            first.make(&sender).await;
            // A loss shows with the frame after it.
            named(&server, "channel=fti.*", &[first.cause()]).await;
            second.make(&sender).await;
            named(&server, "channel=fti.*", &[first.cause(), second.cause()]).await;
            server.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_shows_its_streams_and_what_it_rejected() {
    let (server, sender) = well().await;
    sender.send(&packet(221, 0)[..10]).await;
    let source = until(async || {
        let source = server.json("/api/sources/fti").await;
        if source["rejected"].as_array().unwrap().len() == 1 { Ok(source) } else { Err(source.to_string()) }
    })
    .await;
    assert_eq!((&source["name"], &source["kind"]), (&json!("fti"), &json!("inetx")));
    let rejected = &source["rejected"][0];
    assert_eq!((&rejected["reason"], &rejected["count"]), (&json!("truncated"), &json!("1")));
    assert_eq!(rejected["from"], json!(sender.socket.local_addr().unwrap().to_string()));
    assert_eq!(rejected["bytes"], json!("10000000000000dd0000"));
    assert!(rejected["text"].as_str().unwrap().contains("10 bytes"), "{rejected}");
    let stream = &source["streams"][0];
    let of = |name: &str| big(&stream[name]);
    assert_eq!(stream["name"], "fti.bay");
    assert_eq!(of("received"), of("stored") + of("duplicate") + of("reduced") + of("rejected"));
    assert_eq!((&stream["expected"], &stream["expected_rate_hz"]), (&json!("given"), &json!(50.0)));
    assert_eq!((&stream["status"], &stream["loss"]), (&json!("ok"), &json!("by sequence")));
    assert!(big(&stream["last_receive_time"]) >= big(&stream["status_since"]), "{stream}");
    assert_eq!(server.get("/api/sources/nobody").await.status, 404);
    // One that is silent says since when.
    sender.task.abort();
    let stream = until(async || {
        let stream = server.json("/api/sources/fti").await["streams"][0].clone();
        if stream["status"] == "silent" { Ok(stream) } else { Err(stream.to_string()) }
    })
    .await;
    assert_eq!(stream["status_since"], stream["last_receive_time"]);
    assert_eq!(stream["rate_hz"], json!(0.0));
    // And there is an event of it.
    until(async || {
        let events = server.sql("select text from strongback.events where source = 'fti'").await["rows"].clone();
        let told = events.to_string().contains("fti.bay is silent: no frame since");
        if told { Ok(()) } else { Err(events.to_string()) }
    })
    .await;
    assert_eq!(
        server.sql("select count(*) from strongback.gaps").await["rows"][0][0],
        "0",
        "by its sequence none is lost"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_are_chosen_by_source_and_stream() {
    let source = |name: &str, table: &str, bays: u32| {
        let stream = |bay: u32| {
            format!(
                "[[source.stream]]\nid = {bay}\ntable = \"{table}\"\ntags = {{ bay = \"{bay}\" }}\n\
                 [[source.stream.channel]]\nname = \"t\"\noffset = 0\ntype = \"u32\"\n"
            )
        };
        let streams: String = (1..=bays).map(stream).collect();
        format!("[[source]]\nname = \"{name}\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:0\"\n{streams}")
    };
    let server = TestServer::with(&(source("fti", "fti.bay", 2) + &source("gse,old", "gse", 1))).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = |n: usize| server.running.as_ref().unwrap().packets[n].1;
    for (bay, to) in [(1, to(0)), (2, to(0)), (1, to(1))] {
        for sequence in [0, 5] {
            socket.send_to(&packet(bay, sequence), to).await.unwrap();
        }
    }
    let names = async |question: &str| {
        let gaps = server.json(&format!("/api/gaps?{question}")).await;
        let name = |gap: &Value| gap["stream_name"].as_str().unwrap().to_owned();
        let mut names: Vec<String> = gaps["gaps"].as_array().unwrap().iter().map(name).collect();
        names.sort();
        names
    };
    let all = ["fti.bay{bay=1}", "fti.bay{bay=2}", "gse{bay=1}"];
    until(async || {
        let names = names("").await;
        if names == all { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    for (question, chosen) in [
        ("source=fti", &all[..2]),
        ("source=f*,gse%5C,old", &all[..]),
        // Two names, of which there is none.
        ("source=gse,old", &all[..0]),
        ("source=&stream=", &all[..]),
        ("stream=fti.bay", &all[..2]),
        ("stream=*%7Bbay=2%7D", &all[1..2]),
        ("stream=fti.*%7Bbay=2%7D,gs?", &all[1..]),
        ("stream=fti*&source=gse*", &all[..0]),
        ("stream=*%7Bbay=1%7D&source=fti", &all[..1]),
    ] {
        assert_eq!(names(question).await, chosen, "{question}");
    }
    // What is not wanted does not count.
    assert_eq!(names("limit=1&stream=fti.bay%7Bbay=1%7D").await, all[..1]);
    assert_eq!(server.get("/api/gaps?stream=a%7Bb%7D").await.status, 400);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silence_of_lines_with_a_period_is_a_gap_once() {
    let server = TestServer::with(LINES).await;
    let line = |ns: u64| format!("tank p=1 {ns}\n");
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut last = now();
    // Frames each tenth of a second, as their own times say.
    let status = async |server: &TestServer| server.json("/api/sources/ilp").await["streams"][0]["status"].clone();
    until(async || {
        while last + 100_000_000 <= now() {
            last += 100_000_000;
            server.write(&line(last)).await;
        }
        let is = status(&server).await;
        if is == "ok" { Ok(()) } else { Err(is.to_string()) }
    })
    .await;
    until(async || {
        let is = status(&server).await;
        if is == "silent" { Ok(()) } else { Err(is.to_string()) }
    })
    .await;
    assert_eq!(causes(&server.json("/api/doctor?channel=tank.p").await), ["silent"]);
    let mut again = last;
    while again + 100_000_000 <= now() {
        again += 100_000_000;
    }
    server.write(&line(again)).await;
    let gap = until(async || {
        let gaps = server.json("/api/gaps").await["gaps"].as_array().unwrap().clone();
        gaps.iter().find(|g| big(&g["from_time"]) == last).cloned().ok_or(format!("{gaps:?}"))
    })
    .await;
    assert_eq!((&gap["cause"], &gap["stream_name"]), (&json!("silence"), &json!("tank")));
    assert_eq!((big(&gap["from_time"]), big(&gap["to_time"])), (last, again));
    // By the times of the frames so many are missing at most; by their reception it may be fewer.
    let missing = (again - last) / 100_000_000 - 1;
    assert!((missing / 2..=missing).contains(&big(&gap["count"])) && gap["open"] == gap["count"], "{missing}: {gap}");
    let stream = server.json("/api/sources/ilp").await["streams"][0].clone();
    let told = "select sum(count) from strongback.gaps where stream_name = 'tank'";
    assert_eq!((&stream["lost"], &stream["loss"]), (&server.sql(told).await["rows"][0][0], &json!("by period")));
    // Asked for an instant within, it is that; once.
    let within = (last + again) / 2;
    let report = named(&server, &format!("channel=tank.p&at={within}"), &["silent"]).await;
    assert_eq!(report["findings"][0]["count"], gap["count"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_kept_is_expired_and_what_is_too_early_never_came() {
    const BASE: u64 = 1_780_000_000_000_000_000;
    let disk = FaultDisk::new(5);
    let options = || StoreOptions {
        log_bytes: 4 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(8 << 20),
        ..StoreOptions::default()
    };
    let server = TestServer::on_disk(Opening::new(move |now| disk.open_store(options(), now)), "").await;
    let mut random = fastrand::Rng::with_seed(1);
    let mut written = 0;
    let oldest = until(async || {
        let lines = (written..written + 4_000)
            .map(|n| format!("ramp n={n}i,x={},y={} {}\n", random.f64(), random.f64(), BASE + n * 1_000_000));
        server.write(&lines.collect::<String>()).await;
        written += 4_000;
        // What expires while it is read is an error of its own.
        let answer = server.post("/api/sql", r#"{"sql":"select min(n) from ramp"}"#).await;
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        if answer["sqlstate"] == "72000" {
            return Err(answer.to_string());
        }
        let oldest = answer["rows"][0][0].clone();
        if big(&oldest) > 0 { Ok(big(&oldest)) } else { Err(format!("{written} lines, all there")) }
    })
    .await;
    let report = named(&server, &format!("channel=ramp.n&at={}", BASE + 1_000_000), &["expired"]).await;
    let finding = &report["findings"][0];
    assert!(big(&finding["count"]) >= oldest && big(&finding["to"]) >= BASE + oldest * 1_000_000, "{finding}");
    server.write(&format!("late v=1 {}", BASE)).await;
    named(&server, &format!("channel=late.v&at={}", BASE - 1), &["never_seen"]).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_not_in_its_frames_and_a_name_that_is_none() {
    let server =
        TestServer::with("[[channel]]\npattern = \"*\"\nunit = \"bar\"\nexpected_period_ms = 3600000.0\n").await;
    server.write("tank p=1.5,v=true\ntank p=2.5\n").await;
    let report = named(&server, "channel=tank.v", &["channel_absent"]).await;
    let text = report["findings"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("tank.v: not in the newest frame; its newest value is of "), "{text}");
    named(&server, "channel=tank.p", &[]).await;
    let report = named(&server, "channel=tank.q", &["not_configured"]).await;
    let text = report["findings"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("no channel matches tank.q; the nearest: tank."), "{text}");
    // A line that was refused is why its channel is not there.
    assert_eq!(server.post("/write", "tank q=oops").await.status, 400);
    let report = named(&server, "channel=tank.q", &["not_configured", "rejected"]).await;
    let text = report["findings"][1]["text"].as_str().unwrap();
    assert!(text.contains("begins \"tank q=oops\""), "{text}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_without_a_server_is_told_and_so_is_a_wrong_clock() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    server.write("tank p=1").await;
    assert_eq!(server.sql("select count(*) from strongback.events").await["rows"][0][0], "0", "a new store");
    server.stop().await;
    let server = TestServer::on(folder.path(), "").await;
    // Events are read by a follower, a moment after they are recorded.
    let events = until(async || {
        let events = server.sql("select time_ns, text from strongback.events").await["rows"].clone();
        if events[0][1].is_string() { Ok(events) } else { Err("the start is no event".to_owned()) }
    })
    .await;
    let text = events[0][1].as_str().unwrap();
    assert!(text.starts_with("server started (epoch 2): nothing was recorded since "), "{events}");
    let started = big(&events[0][0]);
    let report = named(&server, &format!("channel=tank.p&at={}", started - 1), &["server_not_running"]).await;
    assert!(big(&report["findings"][0]["from"]) < started && big(&report["findings"][0]["to"]) == started, "{report}");

    server.write("tank p=2 1000").await;
    let report = named(&server, "channel=tank.p", &["clock_wrong", "server_not_running"]).await;
    let text = report["findings"][0]["text"].as_str().unwrap();
    assert!(text.contains(" behind their reception") && text.contains("is stored at 1970-01-01T00:00:00"), "{text}");
    let url = format!("http://{}", server.http);
    for (arguments, code) in [(&["tank.p", "--at", "soon"][..], 2), (&["a{b}"], 1), (&["tank.p"], 3)] {
        assert_eq!(exit_code(&url, arguments).await, code, "{arguments:?}");
    }
    server.stop().await;
    assert_eq!(exit_code(&url, &[]).await, 1, "nobody there");
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_times_in_1970_do_not_spoil_later_instants() {
    const BASE: u64 = 1_700_000_000_000_000_000;
    const STEP: u64 = 100_000_000;
    // Without a period no silence is a gap, however long the requests take.
    let server = TestServer::start().await;
    let frames =
        |range: std::ops::Range<u64>| range.map(|n| format!("tank p={n} {}\n", BASE + n * STEP)).collect::<String>();
    // Before, between and after good frames, one in seconds.
    server.write(&format!("tank p=-1 {}", BASE / 1_000_000_000)).await;
    server.write(&frames(0..50)).await;
    server.write(&format!("tank p=-2 {}", BASE / 1_000_000_000 + 5)).await;
    server.write(&frames(100..150)).await;
    server.write(&format!("tank p=-3 {}", BASE / 1_000_000_000 + 15)).await;
    let ask = async |at: u64| server.json(&format!("/api/doctor?channel=tank.p&at={at}")).await;
    let report = ask(BASE + 20 * STEP + 1).await;
    assert_eq!(causes(&report), [""; 0], "frames are all around it: {report:#}");
    let report = ask(BASE + 70 * STEP).await;
    assert_eq!(causes(&report), ["not_knowable"], "{report:#}");
    let hole = &report["findings"][0];
    assert_eq!((big(&hole["from"]), big(&hole["to"])), (BASE + 49 * STEP, BASE + 100 * STEP));
    let report = ask(BASE - 3_600_000_000_000).await;
    assert_eq!(causes(&report), ["never_seen"], "{report:#}");
    assert_eq!(big(&report["findings"][0]["to"]), BASE, "{report:#}");
    // Now, the newest frame says that the unit is wrong, and which is right.
    let report = server.json("/api/doctor?channel=tank.p").await;
    let wrong = report["findings"].as_array().unwrap().iter().find(|found| found["cause"] == "clock_wrong");
    let advice = wrong.unwrap()["advice"].as_str().unwrap();
    assert!(advice.contains("precision") && advice.contains("POST /write?precision=s,"), "{advice}");
    server.stop().await;
}

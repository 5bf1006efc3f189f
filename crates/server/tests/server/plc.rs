//! A server that reads the simulated pad's PLC over ADS: values, times, gaps, and what the PLC was asked.

use serde_json::Value;
use strongback_sim::{PlcOptions, PlcServer};

use crate::client::{PATIENCE, TestServer, big};

fn plc(options: PlcOptions) -> PlcServer {
    PlcServer::start("127.0.0.1:0".parse().unwrap(), options).unwrap()
}

fn source(name: &str, plc: &PlcServer, groups: &str) -> String {
    let groups = groups.replace("[[group]]", "[[source.group]]");
    format!("[[source]]\nname = \"{name}\"\nkind = \"ads\"\nhost = \"{}\"\n{groups}", plc.address())
}

/// A thousand neighbours between two copies of the cycle counter, with the time of the cycle from elsewhere.
const FAST: &str = "[[group]]\ntable = \"fast\"\nsymbols = [\"FAST.cycle\", \"FAST.strain_*\", \"FAST.cycle_end\", \
    \"MAIN.task.now_ns\"]\nmode = \"cyclic-notification\"\ncycle_ms = 1.0\n";
const SLOW: &str = "[[group]]\ntable = \"lox\"\nsymbols = [\"MAIN.lox.*\", \"MAIN.tanks\", \"MAIN.task.cycle\"]\n\
    strip = \"MAIN.\"\nrate_hz = 50.0\n";
const CHANGE: &str = "[[group]]\ntable = \"task\"\nsymbols = [\"MAIN.task.now\", \"MAIN.lox.fill_valve\"]\n\
    mode = \"on-change-notification\"\ncycle_ms = 1.0\n";

/// Rows of a query; numbers as they are written.
async fn rows(server: &TestServer, sql: &str) -> Vec<Vec<i64>> {
    let answer = server.sql(sql).await;
    let number = |cell: &Value| match cell {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_i64().unwrap_or_else(|| panic!("{sql}: {other} is no number")),
    };
    answer["rows"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().iter().map(number).collect()).collect()
}

/// Asks again until the answer is right.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(right) = ask().await {
            return right;
        }
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn wait_for_rows(server: &TestServer, table: &str, count: i64) {
    until(&format!("{count} rows of {table}"), async || {
        // The table is there with its first row.
        let known = server.json(&format!("/api/channels?pattern={table}.*")).await["total"] != 0;
        let have = if known { rows(server, &format!("select count(*) from {table}")).await[0][0] } else { 0 };
        (have >= count).then_some(())
    })
    .await;
}

async fn card(server: &TestServer, name: &str) -> Value {
    let sources = server.json("/api/sources").await["sources"].clone();
    sources.as_array().unwrap().iter().find(|source| source["name"] == name).cloned().unwrap_or_default()
}

/// Every row of the fast group is of one cycle, and every cycle is a row or missing in the ledger.
async fn check_fast(server: &TestServer) {
    let torn = rows(server, "select count(*) from fast where \"FAST.cycle\" <> \"FAST.cycle_end\"").await;
    assert_eq!(torn[0][0], 0, "frames of two cycles");
    let of_other_times = "select count(*) from fast where source_time_ns <> \"MAIN.task.now_ns\"";
    assert_eq!(rows(server, of_other_times).await[0][0], 0, "frames whose time is not that of their values");
    let twice = rows(server, "select count(\"FAST.cycle\") - count(distinct \"FAST.cycle\") from fast").await;
    assert_eq!(twice[0][0], 0, "a cycle twice");
    // The PLC's own count and the numbers of the frames go hand in hand.
    let steps = rows(
        server,
        "select distinct \"FAST.cycle\" - sequence from fast where sequence is not null and \"FAST.cycle\" is not null",
    )
    .await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    // A loss is told a little later than the rows around it.
    until("each cycle stored or missing", async || {
        let span = rows(server, "select count(sequence), min(sequence), max(sequence) from fast").await;
        let [stored, first, last] = span[0][..] else { panic!() };
        let missing = "select coalesce(sum(count), 0) from strongback.gaps where stream_name = 'fast'";
        (last - first + 1 == stored + rows(server, missing).await[0][0]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plc_is_read_in_all_ways_at_once_and_never_written() {
    let plc = plc(PlcOptions::default());
    let server = TestServer::with(&source("pad", &plc, &[FAST, SLOW, CHANGE].concat())).await;
    wait_for_rows(&server, "fast", 1_500).await;
    wait_for_rows(&server, "lox", 20).await;
    wait_for_rows(&server, "task", 2).await;

    // Sum reads are of one cycle each, too: the PLC answers from one.
    let slow = "select count(*) from lox where \"tanks[1].level\" is null or \"tanks[2].name\" <> 'Fuel' or \"task.cycle\" is null";
    assert_eq!(rows(&server, slow).await[0][0], 0);
    let rising = rows(&server, "select \"task.cycle\" from lox order by time").await;
    // A read that came late and the next one in time may be answered from one cycle.
    assert!(rising.windows(2).all(|pair| pair[0] <= pair[1]), "{rising:?}");
    // On change there is a row for each second, with the other channel where it changed.
    let seconds =
        rows(&server, "select \"MAIN.task.now\" from task where \"MAIN.task.now\" is not null order by time").await;
    assert!(seconds.windows(2).all(|pair| pair[0][0] + 1 == pair[1][0]), "{seconds:?}");

    let state = server.sql("select state, connected from \"pad.state\" order by time desc limit 1").await;
    assert_eq!(state["rows"][0], serde_json::json!(["Run", true]));
    let card = until("a look at the source", async || {
        let card = card(&server, "pad").await;
        (card["plc"]["connected"] == true && card["received"] != "0").then_some(card)
    })
    .await;
    assert_eq!((&card["kind"], &card["plc"]["missing"]), (&"ads".into(), &"0".into()));
    let of = |name: &str| big(&card[name]);
    assert_eq!(of("received"), of("stored") + of("duplicate") + of("rejected"), "{card}");
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("strongback_plc_connected{source=\"pad\"} 1"), "{metrics}");

    check_fast(&server).await;
    // Handles go back before the connection ends.
    let asked_before = plc.report();
    server.stop().await;
    let report = plc.stop();
    for never in [
        "write",
        "write_control",
        "release_handle",
        "sum_write",
        "sum_read_write",
        "read_write",
        "sum_add_notification",
        "sum_delete_notification",
    ] {
        assert_eq!(report.requests[never], 0, "{never}: {report}");
    }
    let asked = |name: &str| report.requests[name];
    assert!(asked("add_notification") > 3 && asked("add_notification") == asked("delete_notification"), "{report}");
    assert_eq!((report.errors, report.malformed, report.connections), (0, 0, 1), "{report}");
    assert!(asked_before.requests["sum_read"] >= 20, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_changes_is_followed_without_a_wrong_value() {
    let plc = plc(PlcOptions::default());
    let weather =
        "[[group]]\ntable = \"ground\"\nsymbols = [\"MAIN.gse.*\", \"MAIN.gse.wind_gust\"]\ncycle_ms = 20.0\n";
    let server = TestServer::with(&source("pad", &plc, &[FAST, weather].concat())).await;
    wait_for_rows(&server, "fast", 300).await;
    plc.change_program();
    let card = until("the symbol that is gone", async || {
        let card = card(&server, "pad").await;
        (card["plc"]["missing"] == "1").then_some(card)
    })
    .await;
    assert_eq!(card["plc"]["troubles"][0]["symbol"], "MAIN.gse.wind_gust");
    assert_eq!(card["plc"]["program_changes"], "1", "{card}");
    let have = rows(&server, "select count(*) from fast").await[0][0];
    wait_for_rows(&server, "fast", have + 300).await;
    // The counter goes on over the change, and its two copies were never read from the old places.
    check_fast(&server).await;
    let events = server.sql("select text from strongback.events where source = 'pad'").await;
    assert!(events.to_string().contains("symbol version 2, was 1"), "{events}");
    server.stop().await;
    assert_eq!(plc.stop().connections, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_plc_goes_on_by_itself_and_one_with_few_handles_is_read() {
    let [few, other] = [
        plc(PlcOptions { notifications_max: 5, ..PlcOptions::default() }),
        plc(PlcOptions { pad: strongback_sim::PadOptions { seed: 9, ..Default::default() }, ..PlcOptions::default() }),
    ];
    let nobody = "[[source]]\nname = \"away\"\nkind = \"ads\"\nhost = \"127.0.0.1:1\"\n";
    let valves = "[[group]]\ntable = \"valves\"\nsymbols = [\"MAIN.lox.*_valve\", \"MAIN.lox.v??_*e*\"]\n\
        mode = \"on-change-notification\"\ncycle_ms = 1.0\n";
    let config = [source("few", &few, valves), source("other", &other, FAST), nobody.to_owned()].concat();
    let server = TestServer::with(&config).await;
    wait_for_rows(&server, "valves", 20).await;
    wait_for_rows(&server, "fast", 300).await;
    check_fast(&server).await;
    let event = until("the event", async || {
        let events = server.sql("select source, text from strongback.events").await;
        events["rows"].as_array().unwrap().iter().find(|row| row[0] == "few").map(Value::to_string)
    })
    .await;
    assert!(event.contains("no more notification handles") && event.contains("sum reads"), "{event}");
    until("the status", async || (card(&server, "away").await["status"] == "disconnected").then_some(())).await;
    // It is told a moment later than it is known.
    until("the event of who is away", async || {
        let away = server.sql("select text from strongback.events where source = 'away'").await;
        away.to_string().contains("cannot connect").then_some(())
    })
    .await;
    server.stop().await;
    assert_eq!(few.stop().requests["write"] + other.stop().requests["write"], 0);
}

/// Tells a PLC to run (5) or stop (6), as an engineering tool does.
fn control(plc: &PlcServer, state: u16) {
    use std::io::{Read, Write};
    let mut tool = std::net::TcpStream::connect(plc.address()).unwrap();
    let mut request = vec![0, 0, 40, 0, 0, 0];
    for (net_id, port) in [([5, 12, 20, 1, 1, 1], 851_u16), ([10, 0, 0, 9, 1, 1], 30_000)] {
        request.extend(net_id);
        request.extend(port.to_le_bytes());
    }
    // WriteControl, a request; 8 bytes: ADS state, device state, no data.
    request.extend([5, 0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    request.extend(state.to_le_bytes());
    request.extend([0; 6]);
    tool.write_all(&request).unwrap();
    let mut answer = [0; 42];
    tool.read_exact(&mut answer).unwrap();
    assert_eq!((&answer[30..34], &answer[38..]), (&[0; 4][..], &[0; 4][..]), "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_plc_is_followed() {
    let plc = plc(PlcOptions::default());
    let server = TestServer::with(&source("pad", &plc, FAST)).await;
    wait_for_rows(&server, "fast", 100).await;
    for (state, name) in [(6, "Stop"), (5, "Run")] {
        control(&plc, state);
        until(name, async || {
            let newest = server.sql("select state from \"pad.state\" order by time desc limit 1").await;
            (newest["rows"][0][0] == name).then_some(())
        })
        .await;
    }
    // Its task went on meanwhile, and so did the cycles.
    assert_eq!(card(&server, "pad").await["plc"]["connections"], "1");
    server.stop().await;
}

#[test]
fn the_command_line_lists_symbols() {
    let plc = plc(PlcOptions::default());
    let list = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_strongback"));
        command.args(["sources", "ads", "symbols", &plc.address().to_string()]).args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = list(&["--filter", "main.tanks[2]", "--json"]);
    let listed: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let level = listed.iter().find(|symbol| symbol["name"] == "MAIN.tanks[2].level").unwrap();
    assert_eq!((&level["type"], &level["channel_type"], &level["unit"]), (&"LREAL".into(), &"f64".into(), &"%".into()));
    assert!(listed.iter().all(|symbol| symbol["skipped"].is_null()), "{json}");
    assert_eq!(list(&["--filter", "FAST.strain_????"]).lines().count(), 998);
    assert_eq!(list(&["--filter", "MAIN.tanks[1].wall"]).lines().count(), 4);
    assert_eq!(list(&["--filter", "MAIN.tanks[1].wall", "--whole-arrays"]).lines().count(), 1);
}

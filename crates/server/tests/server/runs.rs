//! Named runs: listed, released over HTTP, and through a server by the command line.

use std::path::Path;

use clap::Parser;
use strongback_server::cli::{Cli, Command, RunArgs, RunCommand};
use strongback_server::commands::run;
use strongback_server::now_ns;
use strongback_store::{Store, StoreOptions};

use crate::client::TestServer;

/// A folder with a run that was protected and got a frame.
async fn folder_with_run(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    let ingest = &server.running.as_ref().unwrap().server.ingest;
    ingest.store().protect_run(name, now_ns()).unwrap();
    server.write(&format!("engine,run={} p=1.5 1000\nengine,run={} p=2.5 5000", escaped(name), escaped(name))).await;
    server.stop().await;
    folder
}

fn escaped(tag: &str) -> String {
    tag.replace(' ', "\\ ")
}

fn release(name: &str, args: RunArgs) -> Result<(), String> {
    let command = RunCommand::Release { name: name.to_owned(), args };
    run::run(&command).map(drop).map_err(|error| format!("{error:#}"))
}

fn is_protected(folder: &Path) -> bool {
    let store = Store::open(folder, StoreOptions::default(), now_ns()).unwrap();
    let protected = store.runs()[0].protected;
    store.close(now_ns()).unwrap();
    protected
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_listed_and_released_for_good() {
    let folder = folder_with_run("hot fire/3").await;
    let server = TestServer::on(folder.path(), "").await;
    let run = server.json("/api/runs").await["runs"][0].clone();
    assert_eq!((run["name"].as_str(), run["protected"].as_bool()), (Some("hot fire/3"), Some(true)));
    assert_eq!((run["streams"].as_u64(), run["segments"].as_u64()), (Some(1), Some(1)));
    assert_eq!(run["time"], serde_json::json!(["1000", "5000"]));
    assert!(run["clock"].is_null());
    assert!(run["bytes"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    let unknown = server.post("/api/runs/cold%20flow/release", "").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("there is no run \\\"cold flow\\\""), "{}", unknown.text());
    assert_eq!(server.get("/api/runs/hot%20fire%2F3/release").await.status, 405);
    let released = server.post("/api/runs/hot%20fire%2F3/release", "").await;
    assert_eq!((released.status, released.text().contains("\"protected\":false")), (200, true), "{}", released.text());
    assert_eq!(server.json("/api/runs").await["runs"][0]["protected"], false);
    // Again changes nothing.
    assert_eq!(server.post("/api/runs/hot%20fire%2F3/release", "").await.status, 200);
    server.stop().await;
    assert!(!is_protected(folder.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_asks_the_server_of_a_folder_in_use() {
    let folder = folder_with_run("a").await;
    let server = TestServer::on(folder.path(), "").await;
    let other = TestServer::start().await;
    let config = |server: &TestServer| {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), format!("[http]\nlisten = \"{}\"\n", server.http)).unwrap();
        path
    };
    let (right, wrong) = (config(&server), config(&other));
    let data = Some(folder.path().to_owned());
    let dir = folder.path().to_owned();
    let http = server.http.to_string();
    tokio::task::spawn_blocking(move || {
        let with =
            |config: &Path| RunArgs { config: Some(config.to_owned()), data: data.clone(), ..RunArgs::default() };
        // Never the run of another store.
        let error = release("a", with(wrong.path())).unwrap_err();
        assert!(error.contains("is in use") && error.contains("has another store"), "{error}");
        let error = release("b", with(right.path())).unwrap_err();
        assert!(error.contains("404") && error.contains("there is no run"), "{error}");
        release("a", with(right.path())).unwrap();
        let server = RunArgs { server: Some(http), ..RunArgs::default() };
        release("a", server.clone()).unwrap();
        run::run(&RunCommand::List { args: server }).unwrap();
    })
    .await
    .unwrap();
    server.stop().await;
    other.stop().await;
    assert!(!is_protected(&dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_finds_the_server_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(&folder.path().join("telemetry"), "").await;
    server.write("engine p=41.5 1780000000000000001").await;
    // Nobody said where the server has its folder: the usual one is not there, and a server listens where it should.
    let config = folder.path().join("strongback.toml");
    let nowhere = folder.path().join("strongback-data");
    std::fs::write(&config, format!("data_dir = {nowhere:?}\n[http]\nlisten = \"{}\"\n", server.http)).unwrap();
    let (data, output, http) = (folder.path().join("telemetry"), folder.path().join("out.csv"), server.http);
    tokio::task::spawn_blocking(move || {
        let export = |arguments: &[&str]| {
            let line = ["strongback", "export", "--channels", "engine.*", "--output", output.to_str().unwrap()];
            let line = line.into_iter().chain(arguments.iter().copied());
            let Command::Export(args) = Cli::try_parse_from(line).unwrap().command else { panic!("no export") };
            strongback_server::commands::export::run(&args).map_err(|error| format!("{error:#}"))?;
            Ok::<String, String>(std::fs::read_to_string(&output).unwrap())
        };
        let config = config.to_str().unwrap();
        for arguments in [&["--config", config][..], &["--config", config, "--data", data.to_str().unwrap()]] {
            assert!(export(arguments).unwrap().contains("41.5"), "{arguments:?}");
        }
        assert!(export(&["--server", &http.port().to_string()]).unwrap().contains("41.5"));
        let args = RunArgs { config: Some(config.into()), ..RunArgs::default() };
        run::run(&RunCommand::Start { name: "night".into(), channels: Vec::new(), args }).unwrap();
        // A folder that was named is that folder, and where nobody listens both are said.
        assert!(export(&["--config", config, "--data", "/nowhere/at/all"]).unwrap_err().contains("no such folder"));
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(config, format!("data_dir = {nowhere:?}\n[http]\nlisten = \"{closed}\"\n")).unwrap();
        let error = export(&["--config", config]).unwrap_err();
        let parts = ["strongback-data: no such folder", "--data", "--server", "no server answers at 127.0.0.1"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    })
    .await
    .unwrap();
    assert_eq!(server.json("/api/runs").await["runs"][0]["name"], "night");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_of_the_configuration_is_what_the_page_opens_on() {
    let view = "[view]\ntitle = \"Engine bay\"\n[[view.panels]]\nkind = \"plot\"\ntitle = \"Turbopump\"\n\
                channels = [\"fti.bay.t_*\"]\n";
    let server = TestServer::with(view).await;
    let shown = server.json("/api/view").await;
    assert_eq!(shown["title"], "Engine bay");
    let panel = serde_json::json!({
        "kind": "plot", "title": "Turbopump", "channels": ["fti.bay.t_*"], "span_s": 60.0,
    });
    assert_eq!(shown["panels"], serde_json::json!([panel]));
    server.stop().await;
    let server = TestServer::start().await;
    assert!(server.json("/api/view").await.is_null());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_opens_a_folder_that_nobody_uses() {
    let folder = folder_with_run("a").await;
    assert!(is_protected(folder.path()));
    let args = || RunArgs { data: Some(folder.path().to_owned()), ..RunArgs::default() };
    let error = release("b", args()).unwrap_err();
    assert!(error.contains("there is no run \"b\""), "{error}");
    assert!(is_protected(folder.path()));
    release("a", args()).unwrap();
    assert!(!is_protected(folder.path()));
    let error = release("a", RunArgs { data: Some("/nowhere/at/all".into()), ..RunArgs::default() }).unwrap_err();
    assert!(error.contains("/nowhere/at/all: no such folder"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_counts_is_held_and_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    assert!(server.json("/api/view").await.is_null());
    let step = async |server: &TestServer, path: &str| {
        let answer = server.post(&format!("/api/runs/{path}"), "").await;
        (answer.status, answer.text())
    };
    assert_eq!(step(&server, "a%20b/hold").await.0, 404);
    assert_eq!(step(&server, "a%20b/start?channels=engine.*%7Ba=1,b=2%7D,plc.*").await.0, 200);
    assert_eq!(step(&server, "a%20b/start").await.0, 409);
    let (status, text) = step(&server, "a%20b/hold").await;
    assert!(status == 409 && text.contains("has no T-0 yet"), "{text}");
    assert_eq!(step(&server, "c/start?channels=t.*%7Bacu%7D").await.0, 400);
    assert_eq!(step(&server, "a%20b/hold?at=now").await.0, 400);
    assert_eq!(step(&server, "a%20b/jump").await.0, 404);
    let view = server.json("/api/view").await;
    assert_eq!(
        view["run"],
        serde_json::json!({ "name": "a b", "t0": null, "clock": null, "held_t": null, "state": "planned" })
    );
    assert_eq!(step(&server, "a%20b/t0?at=1000000000000").await.0, 200);
    assert_eq!(server.json("/api/view").await["run"]["t0"], "1000000000000");
    let run = server.json("/api/runs?at=940000000000").await["runs"][0].clone();
    assert_eq!((run["name"].as_str(), run["protected"].as_bool()), (Some("a b"), Some(false)));
    assert_eq!(run["clock"]["t"], "-60000000000");
    assert_eq!(run["clock"]["channels"], serde_json::json!(["engine.*{a=1,b=2}", "plc.*"]));
    let (status, text) = step(&server, "a%20b/hold").await;
    assert_eq!(status, 200, "{text}");
    let held = server.json("/api/view").await["run"].clone();
    assert_eq!((held["t0"].is_null(), held["state"].as_str()), (true, Some("held")));
    server.stop().await;

    let server = TestServer::on(folder.path(), "").await;
    assert_eq!(server.json("/api/view").await["run"], held, "it stands where it was held");
    assert_eq!(step(&server, "a%20b/resume").await.0, 200);
    let clock = server.json("/api/runs").await["runs"][0]["clock"].clone();
    let ns = |value: &serde_json::Value| value.as_str().unwrap().parse::<i64>().unwrap();
    let hold = &clock["holds"][0];
    let t0_now = 1_000_000_000_000 + ns(&hold[1]) - ns(&hold[0]);
    assert_eq!((clock["state"].as_str(), ns(&clock["t0_now"])), (Some("counting"), t0_now));
    assert_eq!(server.json("/api/view").await["run"]["t0"], t0_now.to_string());
    // The step is told to everyone.
    let events = server.json("/api/events").await["events"].clone();
    let told = events.as_array().unwrap().iter().filter(|event| event["source"] == "run").count();
    assert!(told >= 3, "{events}");
    let rows = server.sql("select name, state, t0_ns, protected, channels from strongback.runs").await;
    assert_eq!(
        rows["rows"],
        serde_json::json!([["a b", "counting", "1000000000000", false, "engine.*{a=1,b=2},plc.*"]])
    );
    assert_eq!(step(&server, "a%20b/stop").await.0, 200);
    assert!(server.json("/api/view").await.is_null());
    server.stop().await;

    // The command line, on a folder that no server uses.
    let args = || RunArgs { data: Some(folder.path().to_owned()), ..RunArgs::default() };
    let run = |command: RunCommand| run::run(&command).map(drop).map_err(|error| format!("{error:#}"));
    let name = || "night".to_owned();
    run(RunCommand::Start { name: name(), channels: vec!["x".into()], args: args() }).unwrap();
    run(RunCommand::T0 { name: name(), at: "now+10m".into(), args: args() }).unwrap();
    run(RunCommand::Hold { name: name(), args: args() }).unwrap();
    let error = run(RunCommand::Resume { name: "a b".into(), args: args() }).unwrap_err();
    assert_eq!(error, "run \"a b\": already stopped; start another run");
    let server = TestServer::on(folder.path(), "").await;
    assert_eq!(server.json("/api/view").await["run"]["name"], "night");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_step_is_read_or_refused() {
    let server = TestServer::start().await;
    assert_eq!(server.post("/api/runs/a%20b/start", "").await.status, 200);
    let with_body = async |path: &str, body: &str| {
        let answer = server.post(&format!("/api/runs/{path}"), body).await;
        (answer.status, answer.text())
    };
    for (path, body, says) in [
        ("d/start", r#"{"chanels":["x"]}"#, "unknown field `chanels`"),
        ("d/start", "nonsense", "invalid body"),
        ("d/start", r#"{"channels":["t.*{acu}"]}"#, "acu"),
        ("d/start?channels=x", r#"{"channels":["x"]}"#, "channels is given twice"),
        ("a%20b/t0?at=now", r#"{"at":"now"}"#, "at is given twice"),
        ("a%20b/t0", r#"{"at":"soon"}"#, "not a time"),
        ("a%20b/hold", r#"{"at":"now"}"#, "at goes with t0 alone"),
        ("a%20b/stop", r#"{"channels":[]}"#, "channels go with start alone"),
        ("a%20b/release", r#"{"at":"now"}"#, "unknown field `at`"),
    ] {
        let (status, text) = with_body(path, body).await;
        assert!(status == 400 && text.contains(says), "{path} {body}: {status} {text}");
    }
    assert_eq!(with_body("in%20a%20body/start", r#"{"channels":["y{a=1,b=2}","z"]}"#).await.0, 200);
    assert_eq!(with_body("in%20a%20body/t0", r#"{"at":"5000000000"}"#).await.0, 200);
    let given = server.json("/api/runs").await["runs"].as_array().unwrap().clone();
    let clock = &given.iter().find(|run| run["name"] == "in a body").unwrap()["clock"];
    assert_eq!((&clock["t0"], &clock["channels"]), (&"5000000000".into(), &serde_json::json!(["y{a=1,b=2}", "z"])));
    assert_eq!(with_body("in%20a%20body/stop", "{}").await.0, 200);
    server.stop().await;
}

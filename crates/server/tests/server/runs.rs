//! Named runs: listed, released over HTTP, and through a server by the command line.

use std::path::Path;

use strongback_server::cli::{RunArgs, RunCommand};
use strongback_server::{clock, runs};
use strongback_store::{Store, StoreOptions};

use crate::client::TestServer;

/// A folder with a run that was protected and got a frame.
async fn folder_with_run(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    let ingest = &server.running.as_ref().unwrap().server.ingest;
    ingest.store().protect_run(name, clock::now_ns()).unwrap();
    server.write(&format!("engine,run={} p=1.5 1000\nengine,run={} p=2.5 5000", escaped(name), escaped(name))).await;
    server.stop().await;
    folder
}

fn escaped(tag: &str) -> String {
    tag.replace(' ', "\\ ")
}

fn release(name: &str, args: RunArgs) -> Result<(), String> {
    let command = RunCommand::Release { name: name.to_owned(), args };
    runs::run(&command).map(drop).map_err(|error| format!("{error:#}"))
}

fn is_protected(folder: &Path) -> bool {
    let store = Store::open(folder, StoreOptions::default(), clock::now_ns()).unwrap();
    let protected = store.runs()[0].protected;
    store.close(clock::now_ns()).unwrap();
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
        runs::run(&RunCommand::List { args: server }).unwrap();
    })
    .await
    .unwrap();
    server.stop().await;
    other.stop().await;
    assert!(!is_protected(&dir));
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

//! The real program: its output, and the files it may open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A server of its own with a limit of open files; ended when dropped.
struct Limited {
    child: Child,
    http: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Limited {
    fn start(files: u32) -> Limited {
        let folder = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_strongback");
        let data = folder.path().join("data").display().to_string();
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        command.args(["-c", &limited, "sh", program, "serve", "--data", &data]);
        command
            .args(["--http", "127.0.0.1:0", "--ilp", "127.0.0.1:0", "--pg", "off", "--flight", "off"])
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let http = loop {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "it did not start");
            if let Some((_, http)) = line.split_once("page, REST, WebSocket   http://") {
                break http.trim().parse().unwrap();
            }
        };
        // Whoever reads nothing stops who writes.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        Limited { child, http, _folder: folder }
    }

    fn ask(&self, request: &str) -> String {
        ask(self.http, request)
    }
}

/// Sends a request and returns the answer.
fn ask(http: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn connections_never_take_the_files_of_the_store() {
    let mut server = Limited::start(256);
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(TcpStream::connect(server.http).unwrap());
        if silent.len() % 40 == 0 {
            let body = format!("t n={}i", silent.len());
            let write = format!(
                "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = server.ask(&write);
            assert!(answer.starts_with("HTTP/1.1 204"), "with {} connections: {answer:?}", silent.len());
        }
    }
    let health = server.ask("GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("\"recording\":true"), "{health}");
    assert_eq!(server.child.try_wait().unwrap(), None, "it has ended");
}

/// Starts the program in a folder, until its output says the address of HTTP; returns it with what it said before.
fn serve_in(folder: &Path, arguments: &[&str]) -> (Ended, SocketAddr, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongback"));
    command.arg("serve").args(arguments).current_dir(folder).env_remove("RUST_LOG").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let child = Ended(child);
    let mut said = String::new();
    loop {
        let before = said.len();
        assert!(told.read_line(&mut said).unwrap() > 0, "it did not start: {said}");
        if let Some((_, http)) = said[before..].split_once("page, REST, WebSocket   http://") {
            let http = http.trim().parse().unwrap();
            std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
            return (child, http, said);
        }
    }
}

/// Runs the program in a folder to its end.
fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_strongback")).args(arguments).current_dir(folder).output().unwrap()
}

/// A program that is ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a configuration with a server on free ports into a folder.
fn configure(folder: &Path, http: &str) {
    let text = format!(
        "data_dir = \"telemetry\"\n[http]\nlisten = \"{http}\"\n[ilp]\nlisten = \"off\"\n[pg]\nlisten = \"off\"\n\
         [flight]\nlisten = \"off\"\n[store]\nlog_mib = 4\n"
    );
    std::fs::write(folder.join("strongback.toml"), text).unwrap();
}

#[test]
fn commands_use_the_configuration_in_the_working_directory_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "127.0.0.1:0");
    let (server, http, said) = serve_in(folder.path(), &[]);
    let first = said.lines().next().unwrap();
    assert!(first.contains("using the configuration ./strongback.toml"), "{said}");
    assert!(folder.path().join("telemetry").is_dir(), "{said}");
    // Its address is the one that others find in the file.
    configure(folder.path(), &http.to_string());
    let started = run_in(folder.path(), &["run", "start", "night"]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let listed = run_in(folder.path(), &["run", "list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("night"), "{listed:?}");
    // A refusal is told as it is: nothing was broken off.
    let refused = run_in(folder.path(), &["export", "--channels", "a{b}"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("400 Bad Request") && said.contains("\"b\" is not tag=value"), "{said}");
    assert!(!said.contains("broke the export off"), "{said}");
    drop(server);
    // Mistakes in it are mistakes, and a file that is given comes first.
    std::fs::write(folder.path().join("strongback.toml"), "[http]\nlisen = 1\n").unwrap();
    for arguments in [&["serve"][..], &["run", "list"], &["export"], &["check"]] {
        let ended = run_in(folder.path(), arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && said.contains("strongback.toml:2:1"), "{arguments:?}: {said}");
    }
    std::fs::write(folder.path().join("other.toml"), "data_dir = \"telemetry\"\n").unwrap();
    let listed = run_in(folder.path(), &["run", "list", "--config", "other.toml"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    // A store that is named by its path is not the server's.
    let exported = run_in(folder.path(), &["store", "export", "telemetry"]);
    assert_ne!(exported.status.code(), Some(2), "{}", String::from_utf8_lossy(&exported.stderr));
}

#[test]
fn commands_take_the_token_from_the_configuration_of_their_server_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "a-token-of-many-letters\n").unwrap();
    let secret = |http: &str| {
        configure(folder.path(), http);
        let file = folder.path().join("strongback.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("auth_token_file = \"token\"\n{text}")).unwrap();
    };
    secret("127.0.0.1:0");
    let (_server, http, _) = serve_in(folder.path(), &[]);
    secret(&http.to_string());
    let commands = [&["run", "list"][..], &["export"], &["derived", "list"], &["playback", "list"], &["doctor"]];
    for arguments in commands {
        let ended = run_in(folder.path(), arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        // An empty store has nothing to export.
        let answered = ended.status.code() != Some(1) || said.contains("no channel matches");
        assert!(answered, "{arguments:?}: {:?} {said}", ended.status);
    }
    // A server that is named does not get it.
    let address = http.to_string();
    for arguments in commands {
        let named = [arguments, &["--server", &address]].concat();
        let ended = run_in(folder.path(), &named);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("401") && ended.status.code() == Some(1), "{named:?}: {:?} {said}", ended.status);
    }
}

#[test]
fn who_closes_the_output_ends_the_program_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "127.0.0.1:0");
    let (server, http, _) = serve_in(folder.path(), &[]);
    // Far more than a pipe holds.
    let lines: String = (0..20_000).map(|n| format!("tank p={n} {}\n", 1_780_000_000_000_000_000u64 + n)).collect();
    let answer = ask(
        http,
        &format!(
            "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{lines}",
            lines.len()
        ),
    );
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let at = http.to_string();
    let closed = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongback"));
        command.current_dir(folder.path()).env("RUST_LOG", "error");
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
    };
    closed(&["check"]);
    closed(&["run", "list", "--server", &at]);
    closed(&["doctor", "--server", &at]);
    closed(&["export", "--server", &at]);
    drop(server);
    for arguments in [
        &["export"][..],
        &["export", "--format", "parquet"],
        &["store", "export", "telemetry"],
        &["store", "read", "telemetry"],
        &["store", "read", "telemetry", "--intervals"],
        &["store", "read", "telemetry", "--every", "1us"],
        &["store", "stats", "telemetry"],
        &["store", "inspect", "telemetry"],
        &["store", "verify", "telemetry", "--json"],
    ] {
        closed(arguments);
    }
}

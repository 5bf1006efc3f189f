//! The real program: its output, and the files it may open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

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
        command.args(["--http", "127.0.0.1:0", "--ilp", "127.0.0.1:0", "--pg", "off"]).stderr(Stdio::piped());
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
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
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

#[test]
fn who_closes_the_output_ends_the_program_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("strongback.toml");
    std::fs::write(&config, "").unwrap();
    let config = config.display().to_string();
    for arguments in [&["check", "--config", &config][..], &["check", "--config", &config]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongback"));
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
    }
}

//! A plain HTTP/1.1 client for measuring: one blocking keep-alive connection, no allocation per request beyond its
//! buffers. It supports only answers with `Content-Length`, which is all the server sends for a write.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// Max bytes of an answer's body.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Connection to one server.
pub struct HttpConnection {
    reader: BufReader<TcpStream>,
    head: Vec<u8>,
    host: String,
}

/// Answer of the server.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body, as text.
    pub body: String,
}

impl HttpConnection {
    /// Connects; answers that take longer than `timeout` are errors.
    pub fn open(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(HttpConnection { reader: BufReader::new(socket), head: Vec::new(), host: address.to_string() })
    }

    /// Sends a GET and reads its answer.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.request("GET", path, b"")
    }

    /// Sends a POST and reads its answer.
    pub fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.request("POST", path, body)
    }

    /// Returns the JSON of a GET that must succeed.
    ///
    /// # Errors
    /// No answer, a status other than 200, or invalid JSON.
    pub fn json(&mut self, path: &str) -> anyhow::Result<Value> {
        let answer = self.get(path)?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// Returns a source from `/api/sources`.
    ///
    /// # Errors
    /// As for [`HttpConnection::json`], or the source does not exist.
    pub fn source(&mut self, name: &str) -> anyhow::Result<Value> {
        let answer = self.json("/api/sources")?;
        let of = answer["sources"].as_array().context("sources")?.iter().find(|source| source["name"] == name);
        of.cloned().with_context(|| format!("no source {name}"))
    }

    /// Returns the first row of a query as counts.
    ///
    /// # Errors
    /// No answer, an SQL error, no row, or a cell that is not a count.
    pub fn sql_row(&mut self, sql: &str) -> anyhow::Result<Vec<u64>> {
        let answer = self.post("/api/sql", json!({ "sql": sql }).to_string().as_bytes())?;
        ensure!(answer.status == 200, "{sql}: {} {}", answer.status, answer.body);
        let answer: Value = serde_json::from_str(&answer.body)?;
        let row = answer["rows"][0].as_array().with_context(|| format!("{sql}: no row"))?;
        row.iter().map(|cell| count(cell).with_context(|| sql.to_owned())).collect()
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.head.clear();
        write!(self.head, "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", self.host, body.len())?;
        let socket = self.reader.get_mut();
        socket.write_all(&self.head)?;
        socket.write_all(body)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut line = String::new();
        self.line(&mut line)?;
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {line:?}")))?;
        let mut length = 0usize;
        loop {
            self.line(&mut line)?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            }
        }
        if length > ANSWER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of {length} bytes")));
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Reads one line of the head, without its line break.
    fn line(&mut self, line: &mut String) -> io::Result<()> {
        line.clear();
        if self.reader.read_line(line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed before the answer"));
        }
        line.truncate(line.trim_end().len());
        Ok(())
    }
}

/// Reads a count from JSON: a number, or a string with one.
///
/// # Errors
/// The value is neither.
pub fn count(value: &Value) -> anyhow::Result<u64> {
    let count = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    count.with_context(|| format!("{value} is no count"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one connection with `answer` after having read `expected` bytes of body.
    fn server(answer: &'static [u8], expected: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a connection");
            let mut seen = Vec::new();
            let mut part = [0; 256];
            while !seen.ends_with(expected) {
                let n = socket.read(&mut part).expect("the request");
                seen.extend_from_slice(&part[..n]);
            }
            socket.write_all(answer).expect("the answer is sent");
        });
        address
    }

    #[test]
    fn reads_status_and_body() {
        let address = server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\noops", b"m v=1i");
        let mut connection = HttpConnection::open(address, Duration::from_secs(5)).expect("connects");
        let answer = connection.post("/write", b"m v=1i").expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (400, "oops"));
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        for cut in [&b""[..], b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfour"] {
            let mut connection = HttpConnection::open(server(cut, b"x"), Duration::from_secs(5)).expect("connects");
            assert!(connection.post("/write", b"x").is_err(), "{cut:?}");
        }
    }
}

//! An HTTP client of a running server, for commands that query one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

/// Time without data after which a server is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time without an answer to `GET /ping` after which it is no server.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// An answer that refuses the request.
#[derive(Debug, thiserror::Error)]
#[error("the server refuses ({status}): {message}")]
pub struct Refused {
    status: String,
    message: String,
}

/// A running server that a command asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address such as `127.0.0.1:8080`.
    pub address: String,
    /// File with its token.
    pub token: Option<PathBuf>,
}

/// A request that was sent.
#[derive(Debug)]
pub struct Asked {
    answer: BufReader<TcpStream>,
}

/// Sends a request without a body to a server, with its token.
///
/// # Errors
/// If nothing listens there, or the token file cannot be read.
pub fn ask(server: &Server, method: &str, path: &str) -> anyhow::Result<Asked> {
    ask_with(server, method, path, "")
}

/// Sends a request as [`ask`] does, with a body, which may be empty.
///
/// # Errors
/// As [`ask`].
pub fn ask_with(server: &Server, method: &str, path: &str, body: &str) -> anyhow::Result<Asked> {
    let address = address_of(&server.address);
    ping(&address)?;
    let stream = connect(&address, PATIENCE)?;
    let length = body.len();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    if let Some(file) = &server.token {
        let token = std::fs::read_to_string(file)
            .with_context(|| format!("{}: cannot read the server's token", file.display()))?;
        head.push_str(&format!("Authorization: Bearer {}\r\n", token.trim()));
    }
    head.push_str("\r\n");
    head.push_str(body);
    (&stream).write_all(head.as_bytes())?;
    Ok(Asked { answer: BufReader::new(stream) })
}

fn connect(address: &str, patience: Duration) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("no server answers at {address}"))?;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

/// Checks that a server speaks HTTP at an address: another port of it would leave the question unanswered.
fn ping(address: &str) -> anyhow::Result<()> {
    let stream = connect(address, PING_PATIENCE)?;
    let head = format!("GET /ping HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    (&stream).write_all(head.as_bytes())?;
    match line(&mut BufReader::new(stream)) {
        Ok(status) if status.starts_with("HTTP/") => Ok(()),
        _ => bail!("no answer over HTTP at {address}: give the address of the server's page (http.listen)"),
    }
}

impl Asked {
    /// Copies the body of the answer.
    ///
    /// # Errors
    /// [`Refused`] if the server refused, or if the answer ended early or cannot be written.
    pub fn receive(self, output: &mut dyn Write) -> anyhow::Result<()> {
        receive(self.answer, output)
    }

    /// Returns the answer as JSON.
    ///
    /// # Errors
    /// As [`Asked::receive`], or if the answer is not JSON.
    pub fn json(self) -> anyhow::Result<serde_json::Value> {
        let mut body = Vec::new();
        self.receive(&mut body)?;
        serde_json::from_slice(&body).context("the answer is no JSON")
    }
}

/// Returns the address and port of a server given as a URL, an address and port, or the port alone, on this machine.
fn address_of(server: &str) -> String {
    let address = server.trim_start_matches("http://").trim_end_matches('/');
    match address.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        // The colons of an IPv6 address are between brackets if a port follows.
        Err(_) if !address.rsplit(']').next().unwrap_or_default().contains(':') => format!("{address}:{DEFAULT_PORT}"),
        Err(_) => address.to_owned(),
    }
}

/// Port of a server whose address does not say it.
const DEFAULT_PORT: u16 = 8080;

/// Returns a refusal with the message of its JSON error, or else the whole body.
fn refusal(status: &str, body: &str) -> Refused {
    let status = status.split_once(' ').map_or(status, |(_, status)| status);
    let error = serde_json::from_str::<serde_json::Value>(body).ok();
    let sentence = error.as_ref().and_then(|error| error["error"].as_str());
    Refused { status: status.to_owned(), message: sentence.unwrap_or(body.trim()).to_owned() }
}

/// Reads an answer and copies its body.
fn receive(mut input: impl BufRead, output: &mut dyn Write) -> anyhow::Result<()> {
    let status = line(&mut input)?;
    let (mut chunked, mut length) = (false, None);
    loop {
        let header = line(&mut input)?.to_ascii_lowercase();
        match header.split_once(':').map(|(key, value)| (key, value.trim())) {
            None => break,
            Some(("transfer-encoding", "chunked")) => chunked = true,
            Some(("content-length", n)) => length = n.parse::<u64>().ok(),
            _ => {}
        }
    }
    if !matches!(status.split(' ').nth(1), Some("200" | "201")) {
        let mut body = String::new();
        // Bodies of errors are short.
        let _ = input.take(length.unwrap_or(4096).min(4096)).read_to_string(&mut body);
        return Err(refusal(&status, &body).into());
    }
    if !chunked {
        let length = length.context("an answer without a length")?;
        let copied = std::io::copy(&mut input.take(length), output)?;
        if copied < length {
            bail!("{copied} of {length} bytes came");
        }
        return Ok(());
    }
    loop {
        let size = line(&mut input)?;
        let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
            .with_context(|| format!("{size:?} is not a valid chunk size"))?;
        if std::io::copy(&mut input.by_ref().take(size), output)? < size {
            bail!("the connection ended within a chunk");
        }
        line(&mut input)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    if input.by_ref().take(64 << 10).read_line(&mut line)? == 0 {
        bail!("the connection ended");
    }
    Ok(line.trim_end().to_owned())
}

/// Returns the text of a field of an answer, or an empty one if it is not text.
pub fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Percent-encodes a text for a path or query.
pub fn percent_encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(answer: &str) -> anyhow::Result<String> {
        let mut out = Vec::new();
        receive(answer.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(received(&format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).unwrap(), "abcde");
        assert!(received(&format!("{head}3\r\nabc\r\n2\r\nde\r\n")).is_err());
        assert!(received(&format!("{head}3\r\nab")).is_err());
        assert_eq!(received("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").unwrap(), "ab");
        assert!(received("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        let refused = received("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno").unwrap_err().to_string();
        assert!(refused.contains("400") && refused.ends_with("no"), "{refused}");
        let body = r#"{"code":"conflict","error":"run \"a\" has begun"}"#;
        let refused = received(&format!("HTTP/1.1 409 Conflict\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(refused.unwrap_err().to_string(), "the server refuses (409 Conflict): run \"a\" has begun");
    }

    #[test]
    fn a_server_is_named_by_url_address_or_port() {
        for (named, address) in [
            ("http://10.0.0.7:8080/", "10.0.0.7:8080"),
            ("localhost:23281", "localhost:23281"),
            ("[::1]:80", "[::1]:80"),
            ("[::1]", "[::1]:8080"),
            ("pad-server", "pad-server:8080"),
            ("23281", "127.0.0.1:23281"),
        ] {
            assert_eq!(address_of(named), address);
        }
    }

    #[test]
    fn patterns_survive_the_address() {
        assert_eq!(percent_encoded("a.*{k=1,l=ü}"), "a.%2A%7Bk%3D1%2Cl%3D%C3%BC%7D");
    }
}

//! A server to test, and clients of it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::Value;
use strongback_server::Config;
use strongback_server::Opening;
use strongback_server::commands::serve::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Nothing here takes so long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running server on its own folder.
pub(crate) struct TestServer {
    pub(crate) running: Option<Running>,
    pub(crate) http: SocketAddr,
    _folder: Option<tempfile::TempDir>,
}

/// The configuration that listens on free ports.
pub(crate) fn config(dir: &Path, more: &str) -> Config {
    let text = format!(
        "data_dir = {:?}\n{more}\n[http]\nlisten = \"127.0.0.1:0\"\nhosts = [\"pad.example\"]\n\
         origins = [\"https://screen.example\"]\nmax_body_mib = 1\n[ilp]\nlisten = \"127.0.0.1:0\"\n\
         [pg]\nlisten = \"127.0.0.1:0\"\n[flight]\nlisten = \"127.0.0.1:0\"\n[store]\nlog_mib = 16\n",
        dir.display().to_string()
    );
    Config::parse(&text, "test").unwrap()
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        TestServer::with("").await
    }

    pub(crate) async fn with(more: &str) -> TestServer {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::on(folder.path(), more).await;
        TestServer { _folder: Some(folder), ..server }
    }

    pub(crate) async fn on(dir: &Path, more: &str) -> TestServer {
        let running = Running::start(config(dir, more)).await.unwrap();
        TestServer { http: running.http, running: Some(running), _folder: None }
    }

    /// With a configuration that is changed further.
    pub(crate) async fn with_config(change: impl FnOnce(&mut Config)) -> TestServer {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), "");
        change(&mut config);
        let running = Running::start(config).await.unwrap();
        TestServer { http: running.http, running: Some(running), _folder: Some(folder) }
    }

    /// On a store that is opened as the test says.
    pub(crate) async fn on_disk(opening: Opening, more: &str) -> TestServer {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::start_on(opening, config(folder.path(), more)).await.unwrap();
        TestServer { http: running.http, running: Some(running), _folder: Some(folder) }
    }

    pub(crate) async fn stop(mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", b"").await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, "", body.as_ref()).await
    }

    pub(crate) async fn write(&self, lines: &str) {
        let answer = self.post("/write?precision=ns", lines).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    pub(crate) async fn sql(&self, sql: &str) -> Value {
        let answer = self.post("/api/sql", serde_json::json!({ "sql": sql }).to_string()).await;
        assert_eq!(answer.status, 200, "{sql}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// One request on a connection of its own. `headers` are whole lines.
    pub(crate) async fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let host = if headers.to_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        // A server that refuses early may close before it has read all of a body.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body).await;
        let mut all = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("no answer");
        Answer::parse(&all)
    }

    pub(crate) async fn live(&self) -> LiveClient {
        LiveClient::connect(self.http, None).await.unwrap()
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("no header");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body = bytes[end + 4..].to_vec();
        if head.contains("transfer-encoding: chunked") {
            body = unchunk(&body);
        }
        Answer { status, head, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap().trim(), 16).unwrap();
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 4 + size..];
        if size == 0 {
            break;
        }
    }
    body
}

type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<TcpStream>>;

/// A WebSocket client.
pub(crate) struct LiveClient {
    pub(crate) socket: Socket,
    /// The subprotocol that the server chose.
    pub(crate) protocol: Option<String>,
}

impl LiveClient {
    /// Connects, with a header if one is given.
    pub(crate) async fn connect(http: SocketAddr, header: Option<(&'static str, &str)>) -> Result<LiveClient, String> {
        let mut request = format!("ws://{http}/api/live").into_client_request().unwrap();
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let connecting = tokio_tungstenite::connect_async(request);
        let (socket, answer) =
            tokio::time::timeout(PATIENCE, connecting).await.expect("no answer").map_err(|e| e.to_string())?;
        let protocol = answer.headers().get("sec-websocket-protocol").map(|p| p.to_str().unwrap().to_owned());
        Ok(LiveClient { socket, protocol })
    }

    /// Connects with a receive buffer that is soon full when nobody reads.
    pub(crate) async fn with_small_buffer(http: SocketAddr) -> LiveClient {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        LiveClient::on(socket.connect(http).await.unwrap(), http).await.unwrap()
    }

    /// On a connection that is there.
    pub(crate) async fn on(stream: TcpStream, http: SocketAddr) -> Result<LiveClient, String> {
        let stream = tokio_tungstenite::MaybeTlsStream::Plain(stream);
        let connecting = tokio_tungstenite::client_async(format!("ws://{http}/api/live"), stream);
        let (socket, _) = connecting.await.map_err(|e| e.to_string())?;
        Ok(LiveClient { socket, protocol: None })
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message of any kind.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("no message");
            if let Message::Text(text) = message.expect("closed").unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// The next message in binary of a kind; others are passed over.
    pub(crate) async fn next_bytes(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("no message");
            match message.expect("closed").unwrap() {
                Message::Binary(bytes) if bytes[0] == kind => return bytes.to_vec(),
                _ => {}
            }
        }
    }

    /// The next message of a kind; others are passed over.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Value {
        let until = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < until {
            let message = self.next().await;
            if message["type"] == kind {
                return message;
            }
            assert!(kind == "error" || message["type"] != "error", "{message}");
        }
        panic!("no {kind}");
    }
}

/// A decimal string as a number.
pub(crate) fn big(value: &Value) -> u64 {
    value.as_str().unwrap_or_else(|| panic!("{value} is no decimal string")).parse().unwrap()
}

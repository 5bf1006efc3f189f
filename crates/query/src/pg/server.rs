//! Accepts connections of PostgreSQL clients: startup messages, authentication, cancel requests.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bytes::{BufMut, BytesMut};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use super::auth::{self, Exchange, MECHANISM, PgAuth};
use super::client::{Client, MESSAGE_BYTES_FREE, Startup};
use super::connection::Connection;
use super::result::WIDE_BYTES;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::running::doors::{DoorPlace, Doors, Entry};
use crate::running::listener::{STARTUP_TIMEOUT, accept};
use crate::running::memory::Share;
use crate::sql::setting::REPORTED;
use crate::system::catalog::DATABASE;
use crate::wire::message;
use crate::wire::message::Body;

/// Cancel flags of connections, by process number and key.
#[derive(Default)]
pub(crate) struct CancelKeys {
    next_pid: AtomicI32,
    keys: Mutex<HashMap<(i32, i32), watch::Sender<bool>>>,
}

/// Registration of a connection's cancel flag, removed when dropped.
pub(crate) struct CancelKey {
    keys: Arc<CancelKeys>,
    pid: i32,
    secret: i32,
}

impl CancelKeys {
    fn register(self: &Arc<Self>) -> io::Result<(CancelKey, watch::Sender<bool>)> {
        let secret = auth::random_i32()?;
        let pid = self.next_pid.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let sender = watch::Sender::new(false);
        self.keys.lock().insert((pid, secret), sender.clone());
        Ok((CancelKey { keys: self.clone(), pid, secret }, sender))
    }

    fn cancel(&self, pid: i32, secret: i32) {
        if let Some(sender) = self.keys.lock().get(&(pid, secret)) {
            sender.send_replace(true);
        }
    }
}

impl Drop for CancelKey {
    fn drop(&mut self) {
        self.keys.keys.lock().remove(&(self.pid, self.secret));
    }
}

impl Query {
    /// Serves PostgreSQL clients on a listener until `shutdown` is ready. Open connections are then notified and ended.
    /// Connections run on the engine's own threads.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn serve_pg(
        &self,
        listener: std::net::TcpListener,
        auth: PgAuth,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, io::Result<()>> {
        let query = self.clone();
        let serving = self.inner.wire.handle().spawn(serve(query, listener, auth, shutdown));
        Box::pin(async move { serving.await.map_err(io::Error::other)? })
    }
}

async fn serve(
    query: Query,
    listener: std::net::TcpListener,
    auth: PgAuth,
    shutdown: BoxFuture<'static, ()>,
) -> io::Result<()> {
    let keys = Arc::new(CancelKeys::default());
    let doors = Arc::new(Doors::new(query.inner.options.connections_max));
    let serve = |socket, mut start: Entry, stopped| {
        let (query, auth, keys, doors) = (query.clone(), auth.clone(), keys.clone(), doors.clone());
        async move {
            let mut client = Client {
                socket,
                input: BytesMut::with_capacity(8 << 10),
                output: BytesMut::new(),
                room: Share::new(query.inner.answers.clone(), WIDE_BYTES),
                held: Share::new(query.inner.sessions.clone(), MESSAGE_BYTES_FREE),
            };
            let begin = client.begin(&query, &auth, &keys, &doors, &mut start.place);
            let begun = tokio::select! {
                begun = begin => begun,
                // Others that want to start need the room.
                _ = &mut start.leave => return,
            };
            drop(start);
            let served = match begun {
                Ok(Some(begun)) => client.serve(begun, stopped).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            // A client that disconnects in the middle is not worth a warning.
            if let Err(error) = served {
                tracing::debug!(%error, "a PostgreSQL connection ended");
            }
        }
    };
    accept(listener, &doors, shutdown, serve).await
}

/// State of a connection after its startup.
struct Begun {
    session: crate::query::session::Session,
    key: CancelKey,
    cancel: watch::Sender<bool>,
    seat: Entry,
}

impl Client {
    /// Starts the connection in time, or sends an error. Returns `None` for a connection that only cancels or has
    /// disconnected.
    async fn begin(
        &mut self,
        query: &Query,
        auth: &PgAuth,
        keys: &Arc<CancelKeys>,
        doors: &Doors,
        place: &mut DoorPlace,
    ) -> io::Result<Option<Begun>> {
        self.socket.set_nodelay(true)?;
        match tokio::time::timeout(STARTUP_TIMEOUT, self.start(query, auth, keys, doors, place)).await {
            Err(_) => Ok(None),
            Ok(Ok(begun)) => Ok(begun),
            Ok(Err(Startup::Io(error))) => Err(error),
            Ok(Err(Startup::Refused(error))) => {
                message::put_error(&mut self.output, &error, true);
                tokio::time::timeout(STARTUP_TIMEOUT, self.flush()).await.unwrap_or(Ok(()))?;
                self.socket.shutdown().await?;
                Ok(None)
            }
        }
    }

    async fn serve(self, begun: Begun, stopped: watch::Receiver<bool>) -> io::Result<()> {
        let Begun { session, key, cancel, seat } = begun;
        let ended = Connection::new(self, session, cancel, seat, stopped).run().await;
        drop(key);
        ended
    }

    /// Handles the first messages, up to `ReadyForQuery`.
    async fn start(
        &mut self,
        query: &Query,
        auth: &PgAuth,
        keys: &Arc<CancelKeys>,
        doors: &Doors,
        place: &mut DoorPlace,
    ) -> Result<Option<Begun>, Startup> {
        let body = loop {
            let Some(body) = self.startup_message().await? else { return Ok(None) };
            match Body(&body).i32()? {
                message::SSL_REQUEST | message::GSS_REQUEST => {
                    self.output.put_u8(b'N');
                    self.flush().await?;
                }
                message::CANCEL_REQUEST => {
                    let mut fields = Body(&body[4..]);
                    keys.cancel(fields.i32()?, fields.i32()?);
                    return Ok(None);
                }
                _ => break body,
            }
        };
        if !place.spare() {
            return Ok(None);
        }
        let peer = place.peer;
        let mut fields = Body(&body);
        let version = fields.i32()?;
        if version >> 16 != message::PROTOCOL_MAJOR {
            let text =
                format!("unsupported frontend protocol {}.{}: server supports 3.0", version >> 16, version & 0xFFFF);
            return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text).into());
        }
        let mut parameters = Vec::new();
        loop {
            let name = fields.text()?;
            if name.is_empty() {
                break;
            }
            parameters.push((name.to_owned(), fields.text()?.to_owned()));
        }
        let unknown: Vec<&str> =
            parameters.iter().map(|(n, _)| n.as_str()).filter(|n| n.starts_with("_pq_.")).collect();
        if version & 0xFFFF != 0 || !unknown.is_empty() {
            message::put(&mut self.output, b'v', |out| {
                out.put_i32(0);
                out.put_i32(unknown.len() as i32);
                unknown.iter().for_each(|name| message::put_text(out, name));
            });
        }
        let find = |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let user = find("user").unwrap_or("strongback");
        self.authenticate(auth, doors, peer).await?;
        let Some(seat) = doors.seat(peer) else {
            return Err(QueryError::new(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already").into());
        };
        let database = find("database").filter(|name| !name.is_empty()).unwrap_or(user);
        if database != DATABASE {
            return Err(QueryError::new(
                sqlstate::INVALID_CATALOG_NAME,
                format!("database \"{database}\" does not exist"),
            )
            .with_hint(format!("The database is \"{DATABASE}\"."))
            .into());
        }
        let mut session = query.session();
        {
            let mut settings = session.settings.lock();
            for (name, value) in &parameters {
                match name.to_ascii_lowercase().as_str() {
                    "user" | "database" | "replication" => {}
                    "options" => {
                        for (name, value) in options(value) {
                            settings.set(&name, Some(&value))?;
                        }
                    }
                    // Times are always shown in UTC. `ParameterStatus` says so to clients that requested another zone.
                    "timezone" => drop(settings.set("timezone", Some(value))),
                    other if other.starts_with("_pq_.") => {}
                    other => settings.set(other, Some(value))?,
                }
            }
        }
        let (key, cancel) = keys.register()?;
        session.set_process(key.pid);
        let settings = session.settings.lock().clone();
        for name in REPORTED {
            let value = match name {
                "session_authorization" => user.to_owned(),
                _ => settings.get(name).unwrap_or_default(),
            };
            message::put_parameter_status(&mut self.output, name, &value);
        }
        message::put(&mut self.output, b'K', |out| {
            out.put_i32(key.pid);
            out.put_i32(key.secret);
        });
        message::put(&mut self.output, b'Z', |out| out.put_u8(b'I'));
        self.flush().await?;
        Ok(Some(Begun { session, key, cancel, seat }))
    }

    async fn authenticate(&mut self, auth: &PgAuth, doors: &Doors, peer: IpAddr) -> Result<(), Startup> {
        if let PgAuth::Password(keys) = auth {
            message::put(&mut self.output, b'R', |out| {
                out.put_i32(10);
                message::put_text(out, MECHANISM);
                out.put_u8(0);
            });
            let first = self.password_message().await?;
            let mut fields = Body(&first);
            let mechanism = fields.text()?;
            if mechanism != MECHANISM {
                let text = format!("client selected an invalid SASL mechanism {mechanism:?}");
                return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text).into());
            }
            let (exchange, answer) = Exchange::begin(keys, fields.sized()?.unwrap_or_default())?;
            message::put(&mut self.output, b'R', |out| {
                out.put_i32(11);
                out.put_slice(answer.as_bytes());
            });
            let last = self.password_message().await?;
            let answer = match exchange.finish(&last) {
                Ok(answer) => answer,
                Err(error) => {
                    if error.sqlstate == sqlstate::INVALID_PASSWORD {
                        tokio::time::sleep(doors.penalty(peer)).await;
                    }
                    return Err(error.into());
                }
            };
            doors.forgive(peer);
            message::put(&mut self.output, b'R', |out| {
                out.put_i32(12);
                out.put_slice(answer.as_bytes());
            });
        }
        message::put(&mut self.output, b'R', |out| out.put_i32(0));
        Ok(())
    }

    async fn password_message(&mut self) -> Result<BytesMut, Startup> {
        self.flush().await?;
        match self.message_of(message::STARTUP_BYTES_MAX).await? {
            Some((b'p', body)) => Ok(body),
            Some(_) => Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, "expected a password").into()),
            None => Err(Startup::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Reads the startup message, which has no tag.
    async fn startup_message(&mut self) -> Result<Option<BytesMut>, Startup> {
        if !self.fill(4).await? {
            return Ok(None);
        }
        let size = u32::from_be_bytes([self.input[0], self.input[1], self.input[2], self.input[3]]) as usize;
        if !(8..=message::STARTUP_BYTES_MAX).contains(&size) {
            return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, "invalid length of startup packet").into());
        }
        if !self.fill(size).await? {
            return Ok(None);
        }
        let mut message = self.input.split_to(size);
        Ok(Some(message.split_off(4)))
    }
}

/// Parses settings in the startup parameter `options`: `-c name=value` or `--name=value`.
fn options(text: &str) -> Vec<(String, String)> {
    let mut words = text.split_whitespace();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word {
            "-c" => words.next().unwrap_or_default(),
            other => other.strip_prefix("-c").or_else(|| other.strip_prefix("--")).unwrap_or_default(),
        };
        if let Some((name, value)) = setting.split_once('=') {
            found.push((name.replace('-', "_"), value.to_owned()));
        }
    }
    found
}

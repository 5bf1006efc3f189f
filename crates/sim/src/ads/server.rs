//! Connections: each client has two threads, one that reads and answers, and one that writes.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use super::image::Snapshot;
use super::notification::Notifications;
use super::outbox::Outbox;
use super::program::{PadProgram, Program, WARM_UP};
use super::report::{Counts, PlcReport, add};
use super::service::{Service, changes_notifications};
use super::task::Plc;
use super::wire::{ADS_COMMAND, AMS_HEADER, Fields, Header, NO_RETURN, PACKET_MAX, RESPONSE, TCP_HEADER};
use crate::pad::PadOptions;

/// Max number of simultaneous clients.
const CONNECTIONS_MAX: usize = 256;
/// Sleep of the listener when no client connects.
const IDLE: Duration = Duration::from_millis(5);

/// Unit of the times in a request for notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CycleUnit {
    /// 100 ns, as Beckhoff's own library sends them.
    #[default]
    #[value(name = "100ns")]
    HundredNanoseconds,
    /// Milliseconds, as the Rust crate `ads` sends them.
    #[value(name = "ms")]
    Milliseconds,
}

/// Options of a simulated PLC.
#[derive(Clone, Copy, Debug)]
pub struct PlcOptions {
    /// Options of the pad whose values its symbols have.
    pub pad: PadOptions,
    /// Unit of the times in requests for notifications.
    pub cycle_unit: CycleUnit,
    /// Max number of notifications per client.
    pub notifications_max: usize,
    /// Time after which the next version of the program is loaded.
    pub change_after: Option<Duration>,
}

impl Default for PlcOptions {
    fn default() -> Self {
        PlcOptions {
            pad: PadOptions::default(),
            cycle_unit: CycleUnit::default(),
            notifications_max: 550,
            change_after: None,
        }
    }
}

/// Takes a lock, ignoring poisoning: a panic leaves no state that others could not work with.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Connection of a client.
struct ClientConnection {
    stream: TcpStream,
    outbox: Outbox,
    notifications: Mutex<Notifications>,
}

/// Connections of all clients.
#[derive(Default)]
pub(crate) struct ClientConnections(Mutex<Vec<Arc<ClientConnection>>>);

impl ClientConnections {
    /// Sends every client the notifications due in a cycle.
    pub(crate) fn notify(&self, snapshot: &Snapshot, counts: &Counts) {
        let all = lock(&self.0).clone();
        for connection in all {
            lock(&connection.notifications).collect(snapshot, &connection.outbox, counts);
        }
    }

    fn remove(&self, gone: &Arc<ClientConnection>) {
        lock(&self.0).retain(|c| !Arc::ptr_eq(c, gone));
    }
}

/// Simulated PLC that serves ADS over TCP until it is stopped or dropped.
pub struct PlcServer {
    address: SocketAddr,
    plc: Arc<Plc>,
    connections: Arc<ClientConnections>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl PlcServer {
    /// Starts the PLC of a pad. Port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread cannot be started.
    pub fn start(address: SocketAddr, options: PlcOptions) -> anyhow::Result<Self> {
        Self::with_program(address, options, Box::new(PadProgram::new(options.pad)), WARM_UP)
    }

    pub(crate) fn with_program(
        address: SocketAddr,
        options: PlcOptions,
        program: Box<dyn Program>,
        warm_up: u32,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("no ADS server on {address}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let plc = Arc::new(Plc::new(program, warm_up));
        let connections = Arc::new(ClientConnections::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = PlcServer { address, plc, connections, stop, threads: Vec::new() };
        let (plc, connections, stop) = (server.plc.clone(), server.connections.clone(), server.stop.clone());
        server.spawn("plc", move || plc.run(&connections, options.change_after, &stop))?;
        let (plc, connections, stop) = (server.plc.clone(), server.connections.clone(), server.stop.clone());
        server.spawn("ads", move || accept(&listener, options, &plc, &connections, &stop))?;
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the report so far.
    pub fn report(&self) -> PlcReport {
        self.plc.report()
    }

    /// Loads the next version of the program: its version increases, symbols move, one is removed, one is added.
    pub fn change_program(&self) {
        self.plc.change_program();
    }

    /// Ends all connections and the task. Returns the report.
    pub fn stop(mut self) -> PlcReport {
        self.end();
        self.plc.report()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The listener's thread joins those of the connections.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for PlcServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(
    listener: &TcpListener,
    options: PlcOptions,
    plc: &Arc<Plc>,
    connections: &Arc<ClientConnections>,
    stop: &AtomicBool,
) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    eprintln!("ADS connection not taken: {error}");
                }
                threads.retain(|t| !t.is_finished());
                std::thread::sleep(IDLE);
                continue;
            }
        };
        if lock(&connections.0).len() >= CONNECTIONS_MAX {
            add(&plc.counts.connections_refused, 1);
            continue;
        }
        // A reply must not wait for the acknowledgement of the previous one.
        if stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).is_err() {
            continue;
        }
        let unit = match options.cycle_unit {
            CycleUnit::HundredNanoseconds => 1,
            CycleUnit::Milliseconds => 10_000,
        };
        let connection = Arc::new(ClientConnection {
            stream,
            outbox: Outbox::default(),
            notifications: Mutex::new(Notifications::new(options.notifications_max, unit)),
        });
        lock(&connections.0).push(connection.clone());
        let (plc, connections) = (plc.clone(), connections.clone());
        let started = std::thread::Builder::new().name("ads-client".into()).spawn({
            let (plc, connections, connection) = (plc.clone(), connections.clone(), connection.clone());
            move || serve(&plc, &connections, &connection)
        });
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                eprintln!("ADS connection not taken: {error}");
                connections.remove(&connection);
            }
        }
    }
    for connection in lock(&connections.0).iter() {
        let _ = connection.stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Serves one client until it disconnects.
fn serve(plc: &Arc<Plc>, connections: &ClientConnections, connection: &Arc<ClientConnection>) {
    let counts = &plc.counts;
    add(&counts.connections, 1);
    add(&counts.connections_open, 1);
    // When reading ends for any reason, writing ends after it, and the client is then removed.
    let _forget = AtEnd(|| {
        connections.remove(connection);
        counts.connections_open.fetch_sub(1, Ordering::Relaxed);
    });
    std::thread::scope(|scope| {
        let _close = AtEnd(|| connection.outbox.close());
        let writer = std::thread::Builder::new().name("ads-writer".into());
        let writing = writer.spawn_scoped(scope, || {
            connection.outbox.drain(&connection.stream, counts);
            // When writing ends for any reason, reading ends too.
            let _ = connection.stream.shutdown(Shutdown::Both);
        });
        if writing.is_ok() {
            read_requests(plc, connection);
        }
    });
}

/// Guard that runs a function when dropped, even by a panic.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Reads and answers requests until the client disconnects or sends invalid AMS.
fn read_requests(plc: &Arc<Plc>, connection: &ClientConnection) {
    let mut service = Service::new(plc.clone());
    let mut packet = Vec::new();
    while connection.outbox.wait_for_room() {
        let mut head = [0; TCP_HEADER];
        if (&connection.stream).read_exact(&mut head).is_err() {
            return;
        }
        let [reserved_low, reserved_high, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if [reserved_low, reserved_high] != [0, 0] || !(AMS_HEADER..=PACKET_MAX).contains(&length) {
            add(&plc.counts.malformed, 1);
            return;
        }
        packet.resize(length, 0);
        if (&connection.stream).read_exact(&mut packet).is_err() {
            return;
        }
        let mut fields = Fields(&packet);
        let Some(header) = Header::read(&mut fields) else { return };
        if header.flags & (RESPONSE | ADS_COMMAND) != ADS_COMMAND {
            add(&plc.counts.malformed, 1);
            continue;
        }
        // The lock orders the reply before the first sample of a new notification. Other requests do not delay the
        // cycle.
        let mut notifications = changes_notifications(&header, fields).then(|| lock(&connection.notifications));
        let reply = service.answer(&header, fields.0, notifications.as_deref_mut());
        if header.flags & NO_RETURN == 0 {
            connection.outbox.reply(&reply);
        }
    }
}

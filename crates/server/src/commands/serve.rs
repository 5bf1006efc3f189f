//! `strongback serve`: starts the parts of a server in order, and stops them in reverse.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use strongback_query::{
    BulkSink, EventRow, FlightAuth, FlightOptions, FollowerRow, GapRow, MarkRow, MarkedSpan, PgAuth, QueryOptions,
    RunRow, SourceRow, SystemRows,
};
use strongback_sources::ilp::tcp::Listener;
use strongback_sources::ilp::{IlpConfig, Ingress};
use strongback_sources::{Sink, ads, inetx, wall_clock};
use strongback_store::{ChannelIndex, Stream, StreamId, StreamSpec};
use tokio::sync::{Semaphore, watch};

use crate::alarms::limits::Limits;
use crate::alarms::webhook::Webhooks;
use crate::archives::Archives;
use crate::cli::ServeArgs;
use crate::commands::outcome::Outcome;
use crate::commands::settings;
use crate::config::{Config, Listen};
use crate::derived::Derived;
use crate::derived::book::Definitions;
use crate::derived::record;
use crate::http;
use crate::ingest::Ingest;
use crate::ingest::opening::Opening;
use crate::live::Live;
use crate::live::seats::Seats;
use crate::marks::log::MarkLog;
use crate::playback::Playbacks;
use crate::process::allowance::Allowance;
use crate::process::budget::Budget;
use crate::process::clock;
use crate::process::clock::now_ns;
use crate::process::connections::Connections;
use crate::process::readers::Readers;
use crate::process::viewers::Viewers;
use crate::runs::cards;
use crate::runs::log::RunLog;
use crate::server::Server;
use crate::server::bulk::Bulk;
use crate::server::descriptors;
use crate::server::layouts::Layouts;
use crate::server::pulse;
use crate::server::sql::{Engine, Sql};
use crate::sources::clocks;
use crate::sources::clocks::Clocks;
use crate::sources::ledger::Ledger;
use crate::sources::outages;
use crate::sources::roster::{Own, Roster};
use crate::text::plural::many;

/// Threads of the HTTP runtime, and of the live runtime.
const RUNTIME_THREADS: usize = 2;
/// Max number of requests that read at once.
const READERS: usize = 4;
/// Max number of requests at once that write a record and wait for the disk.
const RECORDERS: usize = 4;
/// Max number of live subscriptions made at once.
const MATCHERS: usize = 2;
/// Threads for heartbeats, and for following gaps and events.
const UPKEEP: usize = 2;
/// Max number of requests at once that judge or evaluate a past span.
const SCANS: usize = 2;
/// Max number of line protocol bodies written at once; fewer than the threads that may wait for a full log.
const WRITERS: usize = 32;
/// Max number of blocking threads of the HTTP runtime.
const BLOCKING_THREADS: usize = 64;
/// Max number of rows of gaps or events read by SQL: all that are kept.
const LEDGER_ROWS: usize = crate::sources::ledger::ROWS_MAX;

/// Runs a server until Ctrl-C or SIGTERM.
///
/// # Errors
/// If it cannot start, or loses its store.
pub fn run(args: &ServeArgs) -> anyhow::Result<Outcome> {
    let mut config = configuration(args)?;
    let allowed = descriptors::allow(&config);
    config.http.max_connections = allowed.http;
    config.ilp.max_connections = allowed.ilp;
    config.pg.max_connections = allowed.pg;
    config.flight.max_connections = allowed.flight;
    runtime()?.block_on(async {
        // Registered before the server answers, because a client may stop it as soon as it is up.
        let stopped = stop_signal();
        let running = Running::start(config).await?;
        eprintln!("{}", running.banner());
        running.until_ended(stopped).await
    })
}

/// Makes the runtime for HTTP.
///
/// # Errors
/// If no threads can be started.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("server")
        .enable_all()
        .build()
        .context("no threads for the server")
}

/// Reads the configuration of a command line: the file, or else `./strongback.toml` if it exists, then the flags.
///
/// # Errors
/// If the configuration is invalid.
pub fn configuration(args: &ServeArgs) -> anyhow::Result<Config> {
    let file = settings::file(args.config.as_deref());
    let config = settings::read(file.as_deref())?;
    let config = with_flags(config, args);
    config.check_listens()?;
    Ok(config)
}

/// Applies the flags to a configuration.
pub fn with_flags(mut config: Config, args: &ServeArgs) -> Config {
    if let Some(dir) = &args.data {
        config.data_dir.clone_from(dir);
    }
    config.http.listen = args.http.unwrap_or(config.http.listen);
    config.ilp.listen = args.ilp.unwrap_or(config.ilp.listen);
    config.pg.listen = args.pg.unwrap_or(config.pg.listen);
    config.flight.listen = args.flight.unwrap_or(config.flight.listen);
    if args.auth_token_file.is_some() {
        config.auth_token_file.clone_from(&args.auth_token_file);
    }
    config.insecure_listen |= args.insecure_listen;
    config
}

/// Catches Ctrl-C and SIGTERM from now on; the future completes when one was received.
///
/// # Panics
/// If called outside of a runtime.
pub fn stop_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{Signal, SignalKind, signal};
    let catch = |name: &'static str, kind: SignalKind| {
        signal(kind).inspect_err(|error| tracing::warn!("{name} cannot be caught: {error}")).ok()
    };
    async fn of(signal: Option<Signal>) {
        match signal {
            Some(mut signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }
    let (interrupt, terminate) = (catch("Ctrl-C", SignalKind::interrupt()), catch("SIGTERM", SignalKind::terminate()));
    async {
        tokio::select! {
            () = of(interrupt) => {}
            () = of(terminate) => {}
        }
    }
}

/// The tables for SQL that are not in the store.
struct ServerRows {
    ledger: Arc<Ledger>,
    roster: Arc<Roster>,
    runs: Arc<RunLog>,
    marks: Arc<MarkLog>,
    archives: Arc<Archives>,
    ingest: Arc<Ingest>,
}

impl SystemRows for ServerRows {
    fn sources(&self) -> Vec<SourceRow> {
        self.roster.rows()
    }

    fn gaps(&self, time: Range<i64>) -> Vec<GapRow> {
        self.ledger.gaps(&time, LEDGER_ROWS)
    }

    fn gaps_known_from(&self) -> Option<i64> {
        self.ledger.gaps_known_from(&self.ingest.store())
    }

    fn events(&self, time: Range<i64>) -> Vec<EventRow> {
        self.ledger.events(&time, LEDGER_ROWS)
    }

    fn runs(&self) -> Vec<RunRow> {
        cards::rows(&self.ingest.store().runs(), &self.runs.runs(), now_ns())
    }

    fn marks(&self) -> Vec<Arc<MarkRow>> {
        self.marks.now().all().to_vec()
    }

    fn followers(&self) -> Vec<FollowerRow> {
        self.archives.rows()
    }

    fn marked_spans(&self, stream: &Stream, channel: ChannelIndex, time: &Range<i64>) -> Vec<MarkedSpan> {
        self.marks.now().of_channel(stream, channel, time)
    }

    fn own_streams(&self) -> Vec<StreamSpec> {
        [crate::alarms::limits::history::specs(), clocks::specs(), vec![record::spec("", Some(""))]].concat()
    }

    fn learnt_period_ns(&self, stream: StreamId) -> Option<i64> {
        self.roster.learnt_period_ns(stream)
    }
}

/// A running server.
pub struct Running {
    /// State shared by its connections.
    pub server: Arc<Server>,
    /// Address of HTTP.
    pub http: SocketAddr,
    /// Address of line protocol over TCP, unless off.
    pub ilp: Option<SocketAddr>,
    /// Address of the PostgreSQL wire, unless off.
    pub pg: Option<SocketAddr>,
    /// Address of Flight SQL, unless off.
    pub flight: Option<SocketAddr>,
    /// Addresses of packet sources, by name.
    pub packets: Vec<(String, SocketAddr)>,
    /// Addresses of PLCs, by name.
    pub plcs: Vec<(String, String)>,
    sources: Vec<inetx::RunningReceiver>,
    reading: Vec<ads::RunningPlc>,
    listener: Option<Listener>,
    threads: Vec<JoinHandle<()>>,
    /// Thread of the limits, and the signal that ends it.
    limits: Option<JoinHandle<()>>,
    judging: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    sql: tokio::task::JoinHandle<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts a server: store, SQL, sources, HTTP. All ports are listening when it returns.
    ///
    /// # Errors
    /// If the folder, a port or a thread is not available.
    pub async fn start(config: Config) -> anyhow::Result<Running> {
        config.check_data_dir()?;
        let opening = Opening::of_folder(config.data_dir.clone(), config.store_options());
        Running::start_on(opening, config).await
    }

    /// Starts a server as [`Running::start`] does, on the store opened by `opening`.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub async fn start_on(opening: Opening, config: Config) -> anyhow::Result<Running> {
        let token = config.token()?;
        let view = serde_json::to_value(&config.view)?;
        let live = Arc::new(Live::default());
        let ingest = Ingest::open_by(opening, config.data_dir.clone(), config.channel.clone(), live.clone())?;
        let ingest = Arc::new(ingest);
        let ledger = Arc::new(Ledger::default());
        if let Err(error) = ledger.load(&ingest.store()) {
            tracing::error!(%error, "gaps and events of earlier openings cannot all be read");
        }
        let runs = Arc::new(RunLog::default());
        if let Err(error) = runs.load(&ingest.store()) {
            tracing::error!(%error, "what was done with runs cannot all be read");
        }
        let marks = Arc::new(MarkLog::default());
        if let Err(error) = marks.load(&ingest.store()) {
            tracing::error!(%error, "the marks cannot all be read");
        }
        let roster = Arc::new(Roster::default());
        let archives = Arc::new(Archives::new(config.archive.clone(), ingest.dir(), ingest.store().origin()));
        let options = QueryOptions {
            memory_bytes: config.query.memory_mib << 20,
            connections_max: config.pg.max_connections,
            statement_timeout: (config.query.statement_timeout_s > 0)
                .then(|| Duration::from_secs(config.query.statement_timeout_s)),
            history: archives.history(),
            ..QueryOptions::default()
        };
        let rows: Arc<dyn SystemRows> = Arc::new(ServerRows {
            ledger: ledger.clone(),
            roster: roster.clone(),
            runs: runs.clone(),
            marks: marks.clone(),
            archives: archives.clone(),
            ingest: ingest.clone(),
        });
        let query = Engine::start(ingest.clone(), rows, options).context("no threads for queries")?;
        let sink: Arc<dyn Sink> = ingest.clone();
        let prefixes = config.ilp.source.iter().map(|s| (s.prefix.clone(), s.name.clone())).collect();
        let ingress = Ingress::new(sink.clone(), line_config(&config, token.as_deref(), prefixes));

        // Bind all ports first, because a taken port must not cost data.
        let http_listener = http::bind(config.http.listen)
            .with_context(|| format!("http cannot listen on {} (--http changes it)", config.http.listen))?;
        let http = http_listener.local_addr()?;
        let bind = |listen: Listen, name: &str, flag: &str| {
            let bound = |address| {
                std::net::TcpListener::bind(address)
                    .with_context(|| format!("{name} cannot listen on {address} ({flag} changes it)"))
            };
            listen.address().map(bound).transpose()
        };
        let pg_listener = bind(config.pg.listen, "the PostgreSQL wire", "--pg")?;
        let flight_listener = bind(config.flight.listen, "Flight SQL", "--flight")?;
        let pg = pg_listener.as_ref().map(|l| l.local_addr()).transpose()?;
        let flight = flight_listener.as_ref().map(|l| l.local_addr()).transpose()?;

        let (origin, epoch) = (ingest.store().origin(), ingest.store().epoch());
        let webhooks = Webhooks::new(config.webhook.clone(), origin, epoch).map_err(anyhow::Error::msg)?;
        let packet_span_ns = config.source.packets.iter().map(|layout| layout.packet_span_ns()).max().unwrap_or(0);
        let limits = Arc::new(Limits::new(config.limit.clone(), webhooks, packet_span_ns));
        if let Err(error) = limits.load(&ingest.store()) {
            tracing::error!(%error, "alarms of earlier openings cannot all be read");
        }
        let derived = Arc::new(Derived::new(Definitions::open(ingest.dir(), &config.derived, now_ns())?));
        let (stopping, judging) = (watch::Sender::new(false), watch::Sender::new(false));

        let commits = ingest.clone();
        let interval = Duration::from_millis(config.commit_interval_ms);
        let maintenance = ingest.clone();
        let mut threads = vec![
            std::thread::Builder::new().name("commit".into()).spawn(move || commits.run_commits(interval))?,
            std::thread::Builder::new().name("maintain".into()).spawn(move || maintenance.run_maintenance())?,
        ];

        let store = ingest.store();
        let last_commit = store.recovery().last_commit;
        // The store as a cut-off server left it, if one was, with the start times of that server and the one before.
        let outages = ledger.outages();
        let start_before = |nth: usize| outages.iter().nth_back(nth).map(|outage| outage.1);
        let before = (store.view(), (start_before(1), start_before(0).unwrap_or(i64::MIN)));
        let cut_off = last_commit.filter(|_| !store.recovery().clean);
        if let Some(last) = last_commit.filter(|_| store.stats().streams > 0) {
            ledger.record_or_say(&ingest, &outages::event(store.epoch(), last, now_ns()));
        }
        drop(store);
        limits.webhooks.start(&ingest, &ledger)?;
        let judge = match limits.rules().is_empty() {
            true => None,
            false => Some(limits.clone().start(ingest.clone(), ledger.clone(), judging.subscribe())?),
        };

        threads.push(derived.clone().start(ingest.clone(), ledger.clone(), stopping.subscribe())?);

        let listener = match config.ilp.listen.address() {
            Some(address) => Some(
                Listener::start(address, ingress.clone(), wall_clock())
                    .with_context(|| format!("line protocol cannot listen on {address} (--ilp changes it)"))?,
            ),
            None => None,
        };
        let ilp = listener.as_ref().map(|l| l.address);
        add_line_sources(&roster, &config, &ingress, ilp, http);
        let mut sources = Vec::new();
        for layout in config.source.packets.clone() {
            let running = inetx::InetxSource::start(layout, sink.clone(), wall_clock())?;
            let addresses: Vec<String> = running.addresses.iter().map(SocketAddr::to_string).collect();
            roster.add(&running.name, "inetx", addresses.join(", "), Own::Packets(running.counts.clone()));
            sources.push(running);
        }
        let addresses =
            |s: &inetx::RunningReceiver| -> Vec<_> { s.addresses.iter().map(|a| (s.name.clone(), *a)).collect() };
        let packets = sources.iter().flat_map(addresses).collect();
        let mut reading = Vec::new();
        for layout in config.source.plcs.clone() {
            let running = ads::PlcSource::start(layout, sink.clone(), wall_clock())?;
            roster.add(&running.name, "ads", running.address.clone(), Own::Plc(running.counts.clone()));
            reading.push(running);
        }
        let plcs = reading.iter().map(|plc| (plc.name.clone(), plc.address.clone())).collect();

        let server = Arc::new(Server {
            token: token.clone(),
            ingest: ingest.clone(),
            ingress,
            ledger,
            runs,
            marks,
            archives,
            roster,
            limits,
            derived,
            clocks: Clocks::default(),
            query,
            readers: Readers::start("reader", READERS).context("no threads for readers")?,
            recorders: Readers::start("recorder", RECORDERS).context("no threads for records")?,
            matchers: Readers::start("matcher", MATCHERS).context("no threads for live subscriptions")?,
            upkeep: Readers::start("upkeep", UPKEEP).context("no threads for heartbeats")?,
            viewers: Viewers::start(RUNTIME_THREADS).context("no threads for live clients")?,
            scans: Readers::start("scan", SCANS).context("no threads for scans")?,
            exports: Arc::default(),
            connections: Connections::new(config.http.max_connections, config.http.max_connections_per_address),
            budget: Budget::new(
                config.limits.client_memory_mib << 20,
                config.limits.client_memory_per_address_mib << 20,
            ),
            writers: Semaphore::new(WRITERS),
            allowance: Allowance::new(Instant::now()),
            live_clients: Seats::new(config.live.max_clients, config.live.max_clients_per_address),
            layouts: Arc::new(Layouts::of(&config.data_dir)),
            playbacks: Playbacks::default(),
            view,
            started: Instant::now(),
            heartbeat: watch::Sender::default(),
            stopping,
            config,
        });
        {
            let (counting, (view, starts), start) = (server.clone(), before, now_ns());
            // Runs beside the start, because with many quiet streams it may take a while.
            drop(server.readers.spawn(move || {
                let (roster, store) = (&counting.roster, counting.ingest.store());
                let counted = cut_off.map_or(Ok(()), |until| roster.finish_cut_off(&store, &view, starts, until));
                if let Err(error) = counted.and(roster.expect(&view, starts.1, start)) {
                    tracing::error!(%error, "silences before and since this start cannot all be counted");
                }
            }));
        }
        // Polls now so that the sources can be listed at once; there is nothing to report yet.
        server.roster.look(&ingest, clock::both());
        let auth = match &token {
            Some(token) => PgAuth::password(token).context("no randomness for passwords")?,
            None => PgAuth::Trust,
        };
        let flight_auth = token.as_deref().map_or(FlightAuth::Trust, |token| FlightAuth::Token(token.into()));
        let bulk = |address| Arc::new(Bulk::new(ingest.clone(), server.roster.clone(), address)) as Arc<dyn BulkSink>;
        let sink = flight.map(bulk);
        let sql = Sql {
            server: server.clone(),
            auth,
            pg: pg_listener,
            options: FlightOptions { auth: flight_auth, connections_max: server.config.flight.max_connections, sink },
            flight: flight_listener,
        };
        server.archives.start(&server.ingest, &server.ledger);
        let serving = http::serve(http_listener, server.clone()).context("no thread for HTTP")?;
        let tasks = vec![
            tokio::spawn(pulse::beat(server.clone())),
            tokio::spawn(pulse::follow(server.clone())),
            tokio::spawn(pulse::look_at_own_clock(server.clone())),
            tokio::spawn(pulse::load_runs_again(server.clone())),
            tokio::spawn(pulse::start_archives_again(server.clone())),
        ];
        let sql = tokio::spawn(sql.serve());
        let serving = tokio::spawn(serving);
        Ok(Running {
            server,
            http,
            ilp,
            pg,
            flight,
            packets,
            plcs,
            sources,
            reading,
            listener,
            threads,
            limits: judge,
            judging,
            tasks,
            sql,
            serving,
        })
    }

    /// Formats all addresses for people.
    pub fn banner(&self) -> String {
        let mut lines = vec![format!("Strongback {}", env!("CARGO_PKG_VERSION"))];
        lines.push(format!("  page, REST, WebSocket   http://{}", self.http));
        lines.push(format!("  line protocol           http://{}/write", self.http));
        if let Some(ilp) = self.ilp {
            lines.push(format!("  line protocol over TCP  {ilp}"));
        }
        if let Some(pg) = self.pg {
            lines.push(format!("  SQL                     psql -h {} -p {} strongback", pg.ip(), pg.port()));
        }
        if let Some(flight) = self.flight {
            lines.push(format!("  Arrow Flight SQL        grpc://{flight}"));
        }
        for (name, address) in &self.packets {
            lines.push(format!("  {name:22}  udp {address}"));
        }
        for (name, address) in &self.plcs {
            lines.push(format!("  {name:22}  PLC at {address}"));
        }
        let store = self.server.ingest.store();
        let recovery = store.recovery();
        let found = match (recovery.clean, recovery.frames) {
            (true, _) | (false, 0) => String::new(),
            (false, frames) => format!(", {} recovered after an unclean end", many(frames, "frame")),
        };
        lines.push(format!(
            "  data                    {} (epoch {}, {}{found})",
            self.server.ingest.dir().display(),
            store.epoch(),
            many(store.stats().streams, "stream"),
        ));
        lines.push(format!("  durable every           {} ms", self.server.config.commit_interval_ms));
        lines.join("\n")
    }

    /// Waits for `stop`, or for the loss of the store, which is returned.
    pub async fn until_stopped(&self, stop: impl Future<Output = ()>) -> Option<crate::ingest::StoreLost> {
        let mut lost = self.server.ingest.lost();
        tokio::select! {
            () = stop => None,
            lost = lost.wait_for(Option::is_some) => lost.ok().and_then(|lost| lost.clone()),
        }
    }

    /// Serves until `stop`, or until the store is lost, then stops.
    ///
    /// # Errors
    /// [`crate::ingest::StoreLost`], or if the last commit fails.
    pub async fn until_ended(self, stop: impl Future<Output = ()>) -> anyhow::Result<Outcome> {
        let lost = self.until_stopped(stop).await;
        let stopped = self.stop().await;
        match lost {
            // A lost store cannot be closed either; that error adds nothing.
            Some(lost) => Err(lost.into()),
            None => stopped.map(|()| Outcome::Done),
        }
    }

    /// Stops sources, answers requests under way, commits, seals and closes.
    ///
    /// # Errors
    /// If the last commit fails.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let mut sources = std::mem::take(&mut self.sources);
        let mut reading = std::mem::take(&mut self.reading);
        let mut listener = self.listener.take();
        let stopped = tokio::task::spawn_blocking(move || {
            // Stop all at once, because each says goodbye to its PLC.
            reading.iter_mut().for_each(ads::RunningPlc::begin_stop);
            for source in &mut sources {
                source.stop();
            }
            reading.iter_mut().for_each(ads::RunningPlc::stop);
            if let Some(listener) = &mut listener {
                listener.stop();
            }
        });
        stopped.await.context("sources did not stop")?;
        self.server.stopping.send_replace(true);
        self.serving.await.context("HTTP did not stop")?;
        self.sql.await.context("SQL did not stop")?;
        for task in &self.tasks {
            task.abort();
        }
        self.server.roster.finish(&self.server.ingest, now_ns());
        self.server.ingest.stop();
        let threads = std::mem::take(&mut self.threads);
        let (server, limits, judging) = (self.server.clone(), self.limits.take(), self.judging.clone());
        let closed = tokio::task::spawn_blocking(move || {
            server.playbacks.stop();
            server.archives.stop();
            // The derived channels have ended by then, so no more values follow and the limits judge to the end.
            let limits = limits.into_iter().inspect(|_| _ = judging.send_replace(true));
            for thread in threads.into_iter().chain(limits) {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store ended by a defect");
                }
            }
            server.ledger.finish(&server.ingest);
            let closed = server.ingest.store().close(now_ns());
            // Make recorded data safe first, because a webhook receiver may be slow.
            server.limits.webhooks.stop();
            closed
        });
        closed.await.context("the store did not close")?.context("the last commit failed")?;
        tracing::info!("stopped; everything that was received is durable");
        Ok(())
    }
}

/// Returns the settings of line protocol.
fn line_config(config: &Config, token: Option<&str>, source_prefixes: Vec<(String, String)>) -> IlpConfig {
    let has_listener = config.ilp.listen.address().is_some();
    if token.is_some() && has_listener && !config.ilp.token_required {
        tracing::warn!(
            "line protocol over TCP takes lines without the token from whoever reaches its port: set \
             ilp.token_required = true, or ilp.listen = \"off\""
        );
    }
    IlpConfig {
        source_prefixes,
        max_connections: config.ilp.max_connections,
        max_connections_per_address: config.ilp.max_connections_per_address,
        token: token.filter(|_| config.ilp.token_required).map(str::to_owned),
        ..IlpConfig::default()
    }
}

/// Registers the sources fed by line protocol.
fn add_line_sources(roster: &Roster, config: &Config, ingress: &Ingress, ilp: Option<SocketAddr>, http: SocketAddr) {
    let address = match ilp {
        Some(ilp) => format!("tcp {ilp}, http {http}"),
        None => format!("http {http}"),
    };
    roster.add(&ingress.config().source, "ilp", address.clone(), Own::Lines(ingress.counts().clone()));
    let mut names: Vec<&str> = Vec::new();
    for source in &config.ilp.source {
        if !names.contains(&source.name.as_str()) {
            names.push(&source.name);
            roster.add(&source.name, "ilp", address.clone(), Own::Nothing);
        }
    }
}

//! `strongback.toml` as written. Each field's comment is its documentation.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use strongback_sources::SourceConfig;
use strongback_store::StoreOptions;

use super::listen::{Listen, listened_address};
use crate::alarms::limits::rule::LimitTable;
use crate::alarms::webhook::table::WebhookTable;
use crate::archives::table::ArchiveTable;
use crate::derived::definition::DerivedTable;
use crate::ingest::retention::RetentionTable;

/// The whole file. Every key is optional.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// Folder of the store, created if missing. Default `strongback-data`.
    pub data_dir: PathBuf,
    /// Max time between commits in milliseconds, 1 to 10,000; a power cut can lose that much. Default 50.
    pub commit_interval_ms: u64,
    /// File with the token that clients must present: `Authorization: Bearer …`, `Token …`, or as the password of Basic
    /// authentication and of PostgreSQL. Required to listen beyond loopback.
    pub auth_token_file: Option<PathBuf>,
    /// Whether to listen beyond loopback without a token. Default false.
    pub insecure_listen: bool,
    /// HTTP: page, REST, WebSocket, line protocol.
    pub http: Http,
    /// Line protocol over TCP.
    pub ilp: Ilp,
    /// PostgreSQL wire.
    pub pg: Pg,
    /// Arrow Flight SQL.
    pub flight: Flight,
    /// The store.
    pub store: StoreTable,
    /// Retention groups: streams kept apart from others.
    pub retention: Vec<RetentionTable>,
    /// Live clients.
    pub live: LiveTable,
    /// SQL, history and export.
    pub query: QueryTable,
    /// Memory limits for clients.
    pub limits: LimitsTable,
    /// Receivers of packets, with the layouts of their streams, and PLCs, with the groups of their symbols.
    pub source: Vec<SourceConfig>,
    /// Units and descriptions of channels that have none of their own.
    pub channel: Vec<ChannelTable>,
    /// Limits of channels: too low, too high, a wrong state or too old.
    pub limit: Vec<LimitTable>,
    /// Receivers of alarms over HTTP.
    pub webhook: Vec<WebhookTable>,
    /// Copies of stored data in other databases.
    pub archive: Vec<ArchiveTable>,
    /// Derived channels, computed from others.
    pub derived: Vec<DerivedTable>,
    /// Configured layout of the page.
    pub view: Option<View>,
}

impl Default for ConfigFile {
    fn default() -> Self {
        ConfigFile {
            data_dir: PathBuf::from("strongback-data"),
            commit_interval_ms: 50,
            auth_token_file: None,
            insecure_listen: false,
            http: Http::default(),
            ilp: Ilp::default(),
            pg: Pg::default(),
            flight: Flight::default(),
            store: StoreTable::default(),
            retention: Vec::new(),
            live: LiveTable::default(),
            query: QueryTable::default(),
            limits: LimitsTable::default(),
            source: Vec::new(),
            channel: Vec::new(),
            limit: Vec::new(),
            webhook: Vec::new(),
            archive: Vec::new(),
            derived: Vec::new(),
            view: None,
        }
    }
}

/// `[http]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port, or the port alone on loopback; port 0 takes a free one. Default `127.0.0.1:8080`.
    #[serde(deserialize_with = "listened_address")]
    pub listen: SocketAddr,
    /// Names under which browsers may reach the server, besides `localhost` and any IP address. Others are refused, so
    /// that a foreign page cannot rebind its name to this server.
    pub hosts: Vec<String>,
    /// Origins (`https://screen.example`) whose pages may open the WebSocket and write, besides the server's own.
    pub origins: Vec<String>,
    /// Max size of the body of a write in MiB, compressed or not. Default 64.
    pub max_body_mib: u32,
    /// Max number of connections, including live clients. A new one replaces one that waits for its client. Default
    /// 2,048.
    pub max_connections: usize,
    /// Max number of connections from one address; loopback, or a proxy in front, counts as one too. Default 1,536.
    pub max_connections_per_address: usize,
}

impl Default for Http {
    fn default() -> Self {
        Http {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body_mib: 64,
            max_connections: 2048,
            max_connections_per_address: 1536,
        }
    }
}

/// `[ilp]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ilp {
    /// Address and port, or `"off"`. Default `127.0.0.1:9009`.
    pub listen: Listen,
    /// Names of sources by prefix of the measurement; other measurements belong to the source `ilp`.
    pub source: Vec<IlpSource>,
    /// Max number of connections. A new one replaces a silent one. Default 256.
    pub max_connections: usize,
    /// Max number of connections from one address. Default 192.
    pub max_connections_per_address: usize,
    /// Whether a connection must begin with the token, as a line `# token TOKEN`. Needs `auth_token_file`. The protocol
    /// itself has no place for a token; without this, anyone who reaches the port can write. Default false.
    pub token_required: bool,
}

/// `[[ilp.source]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IlpSource {
    /// Prefix of the measurements, such as `avionics.`.
    pub prefix: String,
    /// Name of their source.
    pub name: String,
}

impl Default for Ilp {
    fn default() -> Self {
        Ilp {
            listen: Listen::At(SocketAddr::from(([127, 0, 0, 1], 9009))),
            source: Vec::new(),
            max_connections: 256,
            max_connections_per_address: 192,
            token_required: false,
        }
    }
}

/// `[pg]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pg {
    /// Address and port, or `"off"`. Default `127.0.0.1:5433`.
    pub listen: Listen,
    /// Max number of connections. Default 100.
    pub max_connections: usize,
}

impl Default for Pg {
    fn default() -> Self {
        Pg { listen: Listen::At(SocketAddr::from(([127, 0, 0, 1], 5433))), max_connections: 100 }
    }
}

/// `[flight]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flight {
    /// Address and port, or `"off"`. Default `127.0.0.1:5434`.
    pub listen: Listen,
    /// Max number of connections. Default 100.
    pub max_connections: usize,
}

impl Default for Flight {
    fn default() -> Self {
        Flight { listen: Listen::At(SocketAddr::from(([127, 0, 0, 1], 5434))), max_connections: 100 }
    }
}

/// `[store]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreTable {
    /// Size of the commit log's ring in MiB. Default 64.
    pub log_mib: u64,
    /// Max space on disk in GiB; beyond it the oldest data is dropped. Default: 80 % of the file system.
    pub max_gib: Option<f64>,
    /// Max age of data in days since it was stored. Default: unlimited, as long as there is space.
    pub max_age_days: Option<f64>,
    /// Seconds that this machine's clock must run without a leap, after the start and after each leap, before data is
    /// dropped by age. Default 3,600.
    pub clock_confirm_s: u64,
    /// Max number of streams (table and tag values); new ones beyond it are rejected. Default 200,000.
    pub max_streams: u32,
    /// Memory for data not yet sealed into blocks, in MiB. Default 64.
    pub open_mib: usize,
    /// Seconds that a time may be ahead of this clock; frames further ahead are stored, but not shown as newest.
    /// Default 86,400.
    pub max_future_s: u64,
}

impl Default for StoreTable {
    fn default() -> Self {
        let options = StoreOptions::default();
        StoreTable {
            log_mib: options.log_bytes >> 20,
            max_gib: None,
            max_age_days: None,
            clock_confirm_s: options.clock_confirm.as_secs(),
            max_streams: options.max_streams,
            open_mib: options.open_bytes >> 20,
            max_future_s: options.max_future.as_secs(),
        }
    }
}

/// `[live]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LiveTable {
    /// Time between heartbeats in milliseconds, 50 to 1,000. Default 250.
    pub heartbeat_ms: u64,
    /// Max number of live clients. Default 1,000.
    pub max_clients: usize,
    /// Max number of live clients from one address; loopback, or a proxy in front, counts as one too. Default 256.
    pub max_clients_per_address: usize,
}

impl Default for LiveTable {
    fn default() -> Self {
        LiveTable { heartbeat_ms: 250, max_clients: 1000, max_clients_per_address: 256 }
    }
}

/// `[query]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueryTable {
    /// Memory of all queries together in MiB. Default 176.
    pub memory_mib: usize,
    /// Seconds after which a query is ended; clients cannot ask for more. 0 means never. Default 60.
    pub statement_timeout_s: u64,
}

impl Default for QueryTable {
    fn default() -> Self {
        QueryTable { memory_mib: 176, statement_timeout_s: 60 }
    }
}

/// `[limits]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Max memory in MiB held for all clients together: bodies on their way in, answers on their way out, histories,
    /// playbacks. Clients of other machines leave an eighth of it to those of this one. Beyond it requests are answered
    /// 503. Default 256.
    pub client_memory_mib: usize,
    /// Max memory in MiB held for one address; beyond it requests are answered 429. Default 128.
    pub client_memory_per_address_mib: usize,
}

impl Default for LimitsTable {
    fn default() -> Self {
        LimitsTable { client_memory_mib: 256, client_memory_per_address_mib: 128 }
    }
}

/// `[[channel]]`: properties of channels that have no units of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelTable {
    /// Pattern of the channels, such as `avionics.*{acu=1}`. The first matching table applies.
    pub pattern: String,
    /// Unit of the channels.
    #[serde(default)]
    pub unit: String,
    /// Description of the channels.
    #[serde(default)]
    pub description: String,
    /// Nominal time between frames in milliseconds, used to judge staleness and rates.
    pub expected_period_ms: Option<f64>,
}

/// `[view]`: the initial view of the page.
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct View {
    /// Title of the page.
    pub title: String,
    /// Run to show.
    pub run: Option<Run>,
    /// Panels in reading order.
    pub panels: Vec<Panel>,
}

/// `[view.run]`
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Name of the run.
    pub name: String,
    /// T-0, nanoseconds since 1970 UTC, as text.
    pub t0: Option<String>,
    /// Channel with the countdown clock in seconds, negative before lift-off; used if holds move T-0.
    pub clock: Option<String>,
}

/// `[[view.panels]]`
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Kind: `plot`, `states` or `now`.
    pub kind: PanelKind,
    /// Title of the panel.
    pub title: String,
    /// Channel patterns.
    pub channels: Vec<String>,
    /// Seconds shown. Default 60.
    #[serde(default = "default_span_s")]
    pub span_s: f64,
}

fn default_span_s() -> f64 {
    60.0
}

/// Display form of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PanelKind {
    /// Values over time.
    Plot,
    /// States as bars with their names.
    States,
    /// Newest values with their range.
    Now,
}

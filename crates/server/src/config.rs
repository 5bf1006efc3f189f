//! `strongback.toml`: read, checked, and turned into one struct. Each field's comment is its documentation.
//!
//! Unknown keys are errors that name the line and the nearest valid key. No file is needed.

mod check;
mod mistakes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use strongback_sources::config::SourceConfig;
use strongback_store::{Pattern, StoreOptions};

use crate::alarms::limits::rule::LimitTable;
use crate::alarms::webhook::table::WebhookTable;
use crate::derived::definition::DerivedTable;
use crate::ingest::ChannelNote;
use crate::ingest::retention::RetentionTable;

pub use mistakes::Mistake;

/// The whole configuration. Every key is optional.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
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
    /// Derived channels, computed from others.
    pub derived: Vec<DerivedTable>,
    /// Configured layout of the page.
    pub view: Option<View>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            data_dir: PathBuf::from("strongback-data"),
            commit_interval_ms: 50,
            auth_token_file: None,
            insecure_listen: false,
            http: Http::default(),
            ilp: Ilp::default(),
            pg: Pg::default(),
            store: StoreTable::default(),
            retention: Vec::new(),
            live: LiveTable::default(),
            query: QueryTable::default(),
            limits: LimitsTable::default(),
            source: Vec::new(),
            channel: Vec::new(),
            limit: Vec::new(),
            webhook: Vec::new(),
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

/// Address to listen on, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and port; port 0 takes a free one.
    At(SocketAddr),
    /// No listening.
    Off,
}

impl Listen {
    /// Returns the address, or `None` if off.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Listen::At(address) => Some(address),
            Listen::Off => None,
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        address(text).map(Listen::At).map_err(|why| format!("{why}, nor \"off\""))
    }
}

/// Parses an address and port, `localhost` and a port, or the port alone, on loopback.
///
/// # Errors
/// If the text is not an address; the message has examples.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("{text:?} is not an address and port such as \"127.0.0.1:8080\", \"localhost:8080\" or \"[::1]:8080\"")
    })
}

fn listened_address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    address(&text).map_err(serde::de::Error::custom)
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
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
    /// Memory of all queries together in MiB. Default 256.
    pub memory_mib: usize,
    /// Seconds after which a query is ended; clients cannot ask for more. 0 means never. Default 60.
    pub statement_timeout_s: u64,
}

impl Default for QueryTable {
    fn default() -> Self {
        QueryTable { memory_mib: 256, statement_timeout_s: 60 }
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

/// Error of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An unreadable file.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
    /// An unreadable token.
    #[error("auth_token_file = {path:?}: cannot read the token: {source}")]
    Token {
        /// Path of the file.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
    /// Invalid TOML, unknown keys, or invalid values.
    #[error("{}", mistakes.iter().map(|m| format!("{path}:{m}")).collect::<Vec<_>>().join("\n"))]
    Wrong {
        /// Path of the file.
        path: String,
        /// All mistakes, by line.
        mistakes: Vec<Mistake>,
    },
    /// Settings that are impossible on this machine.
    #[error("{}", wrong.iter().map(|w| format!("{path}: {w}")).collect::<Vec<_>>().join("\n"))]
    Here {
        /// Path of the file.
        path: String,
        /// The settings, as sentences.
        wrong: Vec<String>,
    },
    /// A value out of its range.
    #[error("{path}: {key}: {message}")]
    Value {
        /// Path of the file, or "command line".
        path: String,
        /// The key.
        key: String,
        /// Description of the mistake.
        message: String,
    },
    /// An unprotected listener beyond loopback.
    #[error(
        "{key} = {address} listens beyond this machine without a token: set auth_token_file, or pass \
         --insecure-listen if the network is trusted"
    )]
    Insecure {
        /// The key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Line protocol over TCP beyond loopback, which cannot carry a token.
    #[error(
        "ilp.listen = {address} listens beyond this machine, and line protocol over TCP carries no token: use HTTP \
         (POST /write with the token), set ilp.token_required, or pass --insecure-listen if the network is trusted"
    )]
    InsecureIlp {
        /// The address.
        address: SocketAddr,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, or has mistakes; all of them are reported.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        Config::parse(&text, &name)
    }

    /// Parses the text of a configuration file. Checks ranges, but not listeners, because the command line may change
    /// them; see [`Config::check_listens`].
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &str) -> Result<Config, ConfigError> {
        mistakes::read(text).map_err(|mistakes| ConfigError::Wrong { path: path.to_owned(), mistakes })
    }

    /// Refuses unprotected listeners beyond loopback. Packet sources are exempt: they answer nothing, and a multicast
    /// group is on the network by its nature.
    ///
    /// # Errors
    /// The first such listener.
    pub fn check_listens(&self) -> Result<(), ConfigError> {
        if self.ilp.token_required && self.auth_token_file.is_none() {
            let (path, key) = ("configuration".to_owned(), "ilp.token_required".to_owned());
            return Err(ConfigError::Value { path, key, message: "there is no token: set auth_token_file".to_owned() });
        }
        if self.insecure_listen {
            return Ok(());
        }
        let beyond = |a: &SocketAddr| !a.ip().is_loopback() && !self.ilp.token_required;
        if let Some(address) = self.ilp.listen.address().filter(beyond) {
            return Err(ConfigError::InsecureIlp { address });
        }
        let protected = self.auth_token_file.is_some();
        let others = [("http.listen", Some(self.http.listen)), ("pg.listen", self.pg.listen.address())];
        for (key, address) in others {
            if let Some(address) = address.filter(|a| !a.ip().is_loopback() && !protected) {
                return Err(ConfigError::Insecure { key, address });
            }
        }
        Ok(())
    }

    /// Reads the token of `auth_token_file`, without surrounding white space.
    ///
    /// # Errors
    /// If the file cannot be read or holds no token of at least 16 characters.
    pub fn token(&self) -> Result<Option<String>, ConfigError> {
        let Some(file) = &self.auth_token_file else { return Ok(None) };
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Token { path: path.clone(), source })?;
        let token = text.trim();
        if token.len() < 16 || token.contains(char::is_whitespace) {
            let message = "the token must be one word of at least 16 characters".to_owned();
            return Err(ConfigError::Value { path, key: "auth_token_file".into(), message });
        }
        Ok(Some(token.to_owned()))
    }

    /// Returns the options the store is opened with.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            log_bytes: self.store.log_mib << 20,
            max_bytes: self.store.max_gib.map(|gib| (gib * (1u64 << 30) as f64) as u64),
            max_age: self.store.max_age_days.map(|days| Duration::from_secs_f64((days * 86_400.0).min(1e9))),
            clock_confirm: Duration::from_secs(self.store.clock_confirm_s),
            max_streams: self.store.max_streams,
            open_bytes: self.store.open_mib << 20,
            max_future: Duration::from_secs(self.store.max_future_s),
            // Checked when the file was read.
            retention: self.retention.iter().filter_map(|table| table.group().ok()).collect(),
            ..StoreOptions::default()
        }
    }

    /// Returns the properties of channels that have no units of their own.
    pub fn channel_notes(&self) -> Vec<ChannelNote> {
        let note = |table: &ChannelTable| {
            Some(ChannelNote {
                // Checked when the file was read.
                pattern: Pattern::parse(&table.pattern).ok()?,
                unit: table.unit.clone(),
                description: table.description.clone(),
                expected_period_ns: table.expected_period_ms.map(|ms| (ms * 1e6) as i64),
            })
        };
        self.channel.iter().filter_map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::parse(text, "strongback.toml").unwrap_err().to_string()
    }

    #[test]
    fn no_configuration_is_a_configuration() {
        let config = Config::parse("", "x").unwrap();
        assert_eq!(config.commit_interval_ms, 50);
        config.check_listens().unwrap();
    }

    #[test]
    fn the_example_says_the_defaults() {
        let text = include_str!("../../../examples/strongback.toml");
        let example = Config::parse(text, "examples/strongback.toml").unwrap();
        let default = Config::default();
        assert_eq!(example.data_dir, default.data_dir);
        assert_eq!(example.commit_interval_ms, default.commit_interval_ms);
        assert_eq!(example.http.listen, default.http.listen);
        assert_eq!(example.http.max_body_mib, default.http.max_body_mib);
        assert_eq!(example.ilp.listen, default.ilp.listen);
        assert_eq!(example.pg.listen, default.pg.listen);
        assert_eq!(example.store.log_mib, default.store.log_mib);
        assert_eq!(example.store.max_streams, default.store.max_streams);
        assert_eq!(example.live.heartbeat_ms, default.live.heartbeat_ms);
        assert_eq!(example.live.max_clients, default.live.max_clients);
        assert_eq!(example.live.max_clients_per_address, default.live.max_clients_per_address);
        assert_eq!(example.query.memory_mib, default.query.memory_mib);
        let inert = example.source.is_empty() && example.ilp.source.is_empty() && example.webhook.is_empty();
        assert!(inert && example.limit.is_empty() && example.derived.is_empty() && example.retention.is_empty());
        assert!(example.channel.is_empty() && example.view.is_none(), "it does nothing as it is printed");
    }

    #[test]
    fn the_examples_are_right_once_they_are_no_comments() {
        let text = include_str!("../../../examples/strongback.toml");
        let code = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
        let text: String = text.lines().map(|line| code(line) + "\n").collect();
        let all = Config::parse(&text, "examples/strongback.toml").unwrap();
        assert_eq!((all.source.len(), all.ilp.source.len(), all.webhook.len(), all.limit.len()), (2, 1, 1, 1));
        assert_eq!((all.derived.len(), all.retention.len(), all.channel.len()), (1, 1, 1));
        assert_eq!((all.source[0].stream.len(), all.source[1].group.len()), (2, 1));
        assert!(all.view.is_some_and(|view| view.panels.len() == 1));
    }

    #[test]
    fn an_unknown_key_names_its_line_and_the_nearest_right_key() {
        let text = "commit_interval_ms = 20\n\n[http]\nlisten = \"127.0.0.1:0\"\nmax_conections = 3\n";
        assert_eq!(error(text), "strongback.toml:5:1: unknown key `max_conections`; did you mean `max_connections`?");
        assert!(error("[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n[[source.stream]]\nid = 1\ntabel = \"t\"\n")
            .contains(":7:1: unknown key `tabel`; did you mean `table`?"));
        assert!(error("[qqqq]\n").contains("unknown key `qqqq`; there are data_dir, commit_interval_ms"));
    }

    #[test]
    fn wrong_values_say_what_is_right() {
        assert!(error("commit_interval_ms = 0").contains("commit_interval_ms: 0 is not within 1 to 10000"));
        assert!(error("[ilp]\nlisten = \"here\"").contains("strongback.toml:2:10: \"here\" is not an address"));
        assert!(error("[[channel]]\npattern = \"\"").contains("channel.pattern: empty channel pattern"));
        assert!(error("commit_interval_ms = ").contains("strongback.toml:1:"));
    }

    #[test]
    fn functions_that_no_derived_channel_has_are_refused_at_their_line() {
        let derived = |expression: &str| {
            format!("[[derived]]\nname = \"x.y\"\ntrigger = \"tank\"\nexpression = '{expression}'\n")
        };
        for (expression, says) in [
            (
                "foo(\"tank.p\")",
                "strongback.toml:4:1: derived.expression: \"x.y\": expression: there is no function foo()",
            ),
            ("sum(\"tank.p\") + now()", "use moving_average and the like"),
            ("now() > \"tank.p\"", "not the same each time"),
        ] {
            let error = error(&derived(expression));
            assert!(error.contains(says), "{expression}: {error}");
        }
        assert!(Config::parse(&derived("upper(\"tank.s\")"), "x").is_ok());
    }

    #[test]
    fn retention_groups_are_checked_where_they_are_written() {
        let group = |keys: &str| format!("[store]\nmax_gib = 1.0\n[[retention]]\nname = \"slow\"\n{keys}\n");
        let right = Config::parse(&group("streams = \"plc.*\"\nkeep = \"10%\"\nmax_age = \"90d\""), "x").unwrap();
        let options = right.store_options();
        assert_eq!(options.retention[0].keep, strongback_store::Keep::Share(0.1));
        assert_eq!(options.retention[0].max_age, Some(Duration::from_secs(90 * 86_400)));
        let keep = |keep: &str| {
            Config::parse(&group(&format!("streams = \"a\"\nkeep = {keep}")), "x")
                .map(|c| c.store_options().retention[0].keep.of(1000))
        };
        assert_eq!((keep("5000").unwrap(), keep("\"1.5 KiB\"").unwrap(), keep("\"25 %\"").unwrap()), (5000, 1536, 250));
        for (keys, says) in [
            ("keep = \"10%\"", "group \"slow\" says no streams"),
            ("streams = \"a\"\nkeep = \"100%\"", "retention: group \"slow\": keep is 100 %"),
            ("streams = \"a\"\nkeep = \"much\"", "keep = \"much\" is neither a share of the space"),
            (
                "streams = \"a\"\nkeep = \"900 MiB\"",
                "too small: its log, two segments of each retention group and the 943718400 bytes that groups keep",
            ),
            ("streams = \"a\"\nmax_age = \"90\"", "max_age = \"90\" is not a time"),
            ("streams = \"a{b}\"", "\"b\" is not tag=value"),
            ("streams = \"a\"\nkep = 1", "unknown key `kep`; did you mean `keep`?"),
        ] {
            assert!(error(&group(keys)).contains(says), "{keys}: {}", error(&group(keys)));
        }
        assert!(error("[store]\nmax_gib = 0.05").contains("store: a store of at most 53687091 bytes is too small"));
    }

    #[test]
    fn listens_beyond_loopback_need_a_token_or_a_word() {
        let check = |text: &str| Config::parse(text, "x").unwrap().check_listens().map_err(|e| e.to_string());
        assert!(check("[http]\nlisten = \"0.0.0.0:8080\"").unwrap_err().contains("http.listen = 0.0.0.0:8080"));
        assert!(check("[pg]\nlisten = \"[::]:5433\"").unwrap_err().contains("auth_token_file"));
        assert!(check("auth_token_file = \"t\"\n[http]\nlisten = \"0.0.0.0:8080\"").is_ok());
        assert!(
            check("auth_token_file = \"t\"\n[ilp]\nlisten = \"0.0.0.0:9009\"")
                .unwrap_err()
                .contains("carries no token")
        );
        assert!(check("insecure_listen = true\n[ilp]\nlisten = \"0.0.0.0:9009\"").is_ok());
        assert!(check("[ilp]\nlisten = \"off\"\n[http]\nlisten = \"[::1]:0\"").is_ok());
    }

    #[test]
    fn a_token_is_one_long_word() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let token = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Config { auth_token_file: Some(file.clone()), ..Config::default() }.token()
        };
        assert_eq!(token(" 0123456789abcdef\n").unwrap().as_deref(), Some("0123456789abcdef"));
        assert!(token("short").is_err());
        assert!(token("0123456789 abcdefgh").is_err());
    }
}

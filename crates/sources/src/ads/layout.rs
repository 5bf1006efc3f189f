//! Validates a `[[source]]` of kind `ads`.

use std::time::Duration;

use strongback_store::{Clock, StreamKey};

use super::address::NetId;
use super::leaf::Arrays;
use super::wire::TCP_PORT;
use crate::config::{ClockConfig, Enumerations, GroupConfig, KeyError, ReadMode, SourceConfig, SourceKind};
use crate::layout::{check_name, check_table, check_tags};

/// AMS port of the first PLC of TwinCAT 3.
pub const PLC_PORT: u16 = 851;
/// AMS port of this client, outside the range that TwinCAT assigns.
const SOURCE_PORT: u16 = 33_851;
const TIMEOUT_MS: u64 = 2_000;
const CYCLE_MS: f64 = 100.0;
/// Shortest cycle of a sum read. Below it, notifications put less load on the PLC and have better times.
pub(crate) const READ_CYCLE_MS_MIN: f64 = 10.0;
/// Shortest useful cycle of notifications, that of a PLC task.
const NOTIFICATION_CYCLE_MS_MIN: f64 = 1.0;
const CYCLE_MS_MAX: f64 = 60_000.0;
/// Maximum patterns in one group.
const PATTERNS_MAX: usize = 4_096;

/// A validated `[[source]]` of kind `ads`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdsLayout {
    /// Name of the source.
    pub name: String,
    /// Address of the PLC and settings of the connection.
    pub target: PlcAddress,
    /// Source of the `time` column.
    pub clock: Clock,
    /// Stream for the PLC's state.
    pub state: StreamKey,
    /// Groups of symbols.
    pub groups: Vec<GroupLayout>,
}

/// Address of a PLC and settings of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlcAddress {
    /// Address or host name, with the TCP port.
    pub host: String,
    /// NetId of the PLC; `None` for its IPv4 address followed by 1.1.
    pub net_id: Option<NetId>,
    /// AMS port of the program.
    pub port: u16,
    /// NetId of this client; `None` for its IPv4 address followed by 1.1.
    pub source_net_id: Option<NetId>,
    /// AMS port of this client.
    pub source_port: u16,
    /// Maximum time to wait for an answer.
    pub timeout: Duration,
}

impl PlcAddress {
    /// Parses an address or host name, with or without a TCP port, and uses defaults for the rest.
    ///
    /// # Errors
    /// If the text is neither an address nor a host name.
    pub fn of(host: &str) -> Result<PlcAddress, String> {
        Ok(PlcAddress {
            host: with_port(host)?,
            net_id: None,
            port: PLC_PORT,
            source_net_id: None,
            source_port: SOURCE_PORT,
            timeout: Duration::from_millis(TIMEOUT_MS),
        })
    }
}

/// A validated `[[source.group]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLayout {
    /// Stream of the group.
    pub key: StreamKey,
    /// AMS port of the program.
    pub port: u16,
    /// Patterns of its symbols.
    pub symbols: Vec<String>,
    /// Patterns of excluded symbols.
    pub exclude: Vec<String>,
    /// Prefix removed from channel names.
    pub strip: String,
    /// Read mode.
    pub mode: ReadMode,
    /// Interval between readings.
    pub cycle: Duration,
    /// Mapping of arrays to channels.
    pub arrays: Arrays,
    /// Storage of enumeration values.
    pub enumerations: Enumerations,
}

fn with_port(host: &str) -> Result<String, String> {
    let wrong = || format!("{host:?} is not an address or host name, such as 192.168.0.20 or plc.pad:{TCP_PORT}");
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c == '/') {
        return Err(wrong());
    }
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::Ipv6Addr>() {
        return Ok(format!("[{ip}]:{TCP_PORT}"));
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() => match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(host.to_owned()),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
        None => Ok(format!("{host}:{TCP_PORT}")),
    }
}

/// Returns the first key in a source that belongs to another kind, with that kind.
pub(crate) fn foreign_key(source: &SourceConfig) -> Option<(&'static str, &'static str)> {
    let keys = match source.kind {
        SourceKind::Inetx => [
            ("host", source.host.is_some()),
            ("net_id", source.net_id.is_some()),
            ("port", source.port.is_some()),
            ("source_net_id", source.source_net_id.is_some()),
            ("timeout_ms", source.timeout_ms.is_some()),
            ("state_table", source.state_table.is_some()),
            ("group", !source.group.is_empty()),
        ]
        .to_vec(),
        SourceKind::Ads => {
            vec![
                ("listen", !source.listen.is_empty()),
                ("interface", source.interface.is_some()),
                ("groups", !source.groups.is_empty()),
                ("stream", !source.stream.is_empty()),
            ]
        }
    };
    let other = if source.kind == SourceKind::Ads { "inetx" } else { "ads" };
    keys.into_iter().find(|(_, there)| *there).map(|(key, _)| (key, other))
}

impl AdsLayout {
    /// Validates a source and makes its layout. `path` is its place in the configuration, such as `source[0]`.
    ///
    /// # Errors
    /// If a key is wrong, with the first such key.
    pub fn compile(source: &SourceConfig, path: &str) -> Result<AdsLayout, KeyError> {
        let at = |key: &str| format!("{path}.{key}");
        check_name(&source.name, &at("name"))?;
        let host = source.host.as_deref().ok_or_else(|| KeyError::new(at("host"), "missing: address of the PLC"))?;
        let mut target = PlcAddress::of(host).map_err(|why| KeyError::new(at("host"), why))?;
        let net_id = |text: &Option<String>, key: &str| {
            let parsed = text.as_ref().map(|text| text.parse::<NetId>()).transpose();
            parsed.map_err(|error| KeyError::new(at(key), error.to_string()))
        };
        target.net_id = net_id(&source.net_id, "net_id")?;
        target.source_net_id = net_id(&source.source_net_id, "source_net_id")?;
        target.port = source.port.unwrap_or(PLC_PORT);
        let timeout_ms = source.timeout_ms.unwrap_or(TIMEOUT_MS);
        if !(10..=60_000).contains(&timeout_ms) {
            return Err(KeyError::new(at("timeout_ms"), format!("{timeout_ms} is not within 10 to 60000")));
        }
        target.timeout = Duration::from_millis(timeout_ms);
        let state_table = source.state_table.clone().unwrap_or_else(|| format!("{}.state", source.name));
        check_table(&state_table, &at("state_table"))?;
        let mut groups = Vec::with_capacity(source.group.len());
        for (i, group) in source.group.iter().enumerate() {
            groups.push(compile_group(group, target.port, &at(&format!("group[{i}]")))?);
        }
        Ok(AdsLayout {
            name: source.name.clone(),
            target,
            clock: match source.clock {
                ClockConfig::Receive => Clock::Receive,
                ClockConfig::Source => Clock::Source,
            },
            state: StreamKey::new(state_table, []),
            groups,
        })
    }
}

fn compile_group(group: &GroupConfig, port: u16, path: &str) -> Result<GroupLayout, KeyError> {
    let at = |key: &str| format!("{path}.{key}");
    check_table(&group.table, &at("table"))?;
    check_tags(&group.tags, path)?;
    if group.symbols.is_empty() || group.symbols.len() > PATTERNS_MAX {
        return Err(KeyError::new(at("symbols"), format!("1 to {PATTERNS_MAX} names or patterns, as \"MAIN.*\"")));
    }
    for (key, patterns) in [("symbols", &group.symbols), ("exclude", &group.exclude)] {
        if patterns.iter().any(|p| p.is_empty() || p.len() > crate::NAME_BYTES_MAX || p.chars().any(char::is_control)) {
            return Err(KeyError::new(at(key), "a pattern is empty, too long or holds a control character"));
        }
    }
    let (key, cycle_ms) = match (group.cycle_ms, group.rate_hz) {
        (Some(_), Some(_)) => return Err(KeyError::new(at("rate_hz"), "cycle_ms says it already")),
        (Some(ms), None) => ("cycle_ms", ms),
        (None, Some(hz)) => ("rate_hz", 1e3 / hz),
        (None, None) => ("cycle_ms", CYCLE_MS),
    };
    let least = match group.mode {
        ReadMode::CyclicRead => READ_CYCLE_MS_MIN,
        ReadMode::CyclicNotification | ReadMode::OnChangeNotification => NOTIFICATION_CYCLE_MS_MIN,
    };
    // NaN is in no range.
    if !(least..=CYCLE_MS_MAX).contains(&cycle_ms) {
        let fast = if group.mode == ReadMode::CyclicRead { "; mode = \"cyclic-notification\" takes 1 ms" } else { "" };
        let why = format!("a cycle of {cycle_ms} ms is not within {least} to {CYCLE_MS_MAX} ms{fast}");
        return Err(KeyError::new(at(key), why));
    }
    Ok(GroupLayout {
        key: StreamKey::new(group.table.clone(), group.tags.clone()),
        port: group.port.unwrap_or(port),
        symbols: group.symbols.clone(),
        exclude: group.exclude.clone(),
        strip: group.strip.clone(),
        mode: group.mode,
        // Rounded to 100 ns, the unit of ADS.
        cycle: Duration::from_nanos((cycle_ms * 1e4).round() as u64 * 100),
        arrays: group.arrays,
        enumerations: group.enumerations,
    })
}

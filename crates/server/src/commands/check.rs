//! `strongback check`: checks a configuration and shows what it means.

use std::io::ErrorKind;

use strongback_sources::layout::Layouts;
use strongback_sources::multicast;

use crate::alarms::webhook::Webhooks;
use crate::cli::CheckArgs;
use crate::commands::outcome::Outcome;
use crate::config::{Config, ConfigError};
use crate::text::plural::many;

/// An example configuration with every key.
const EXAMPLE: &str = include_str!("../../../../examples/strongback.toml");

/// Checks a configuration and prints what it would do.
///
/// # Errors
/// All mistakes in it, each with its line where it has one.
pub fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    if args.print_example {
        print!("{EXAMPLE}");
        return Ok(Outcome::Done);
    }
    let config = match Config::read_alone(&args.config) {
        Err(ConfigError::Read { path, source }) if source.kind() == ErrorKind::NotFound => {
            let hint = "`strongback check --print-example` prints a configuration to begin with; none is needed";
            return Err(ConfigError::Here { path, wrong: vec![format!("{source}; {hint}")] }.into());
        }
        read => read?,
    };
    let wrong = here(&config);
    if !wrong.is_empty() {
        let path = args.config.display().to_string();
        return Err(ConfigError::Here { path, wrong }.into());
    }
    let Layouts { packets: receivers, plcs: targets } = &config.source;
    let (packets, plcs) = (receivers.len(), targets.len());
    let streams: usize = receivers.iter().map(|source| source.streams.len()).sum();
    let tables = receivers.iter().flat_map(|source| &source.streams).flat_map(|stream| &stream.tables);
    let channels: usize = tables.map(|table| table.fields.len()).sum();
    let groups: usize = targets.iter().map(|plc| plc.groups.len()).sum();
    println!(
        "{}: OK. {} with {} and {}; {} with {} of symbols; {} on channels; data in {}",
        args.config.display(),
        many(packets, "packet source"),
        many(streams, "stream"),
        many(channels, "channel"),
        many(plcs, "PLC"),
        many(groups, "group"),
        many(config.channel.len(), "note"),
        config.data_dir.display()
    );
    config.retention.iter().for_each(|group| println!("  {group}"));
    for source in receivers.iter().filter(|source| source.streams.is_empty()) {
        println!(
            "  note: source {:?} has no streams: what it receives is counted by its id, and not stored",
            source.name
        );
    }
    for plc in targets.iter().filter(|plc| plc.groups.is_empty()) {
        println!("  note: PLC {:?} has no groups: only its state is stored", plc.name);
    }
    Ok(Outcome::Done)
}

/// Returns what is wrong with a configuration on this machine, beyond its text.
fn here(config: &Config) -> Vec<String> {
    let found = [config.check_data_dir().err(), config.token().err()];
    let mut wrong: Vec<String> = found.into_iter().flatten().map(|error| error.to_string()).collect();
    wrong.extend(config.source.packets.iter().flat_map(|source| {
        let missing = source.listen.iter().filter_map(|listen| multicast::check_interface(listen).err());
        missing.map(|error| format!("source {:?}: {error}", source.name))
    }));
    // Prepared as at the start of the server, which reads the files that they name.
    wrong.extend(config.webhook.iter().filter_map(|receiver| Webhooks::new(vec![receiver.clone()], 0, 0).err()));
    wrong.extend(config.archive.iter().filter_map(|archive| {
        let why = archive.target(0, None).err()?;
        Some(format!("archive {:?}: {why}", archive.name))
    }));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Key that no table has.
    const UNKNOWN: &str = "qqqqqqqqqqqqqqqq";

    /// Returns the keys of the table that the last of these headers begins, as the error for an unknown key lists them.
    fn keys(headers: &[String]) -> Option<Vec<String>> {
        let text = format!("{}\n{UNKNOWN} = 1\n", headers.join("\n"));
        let error = Config::parse(&text, "x").unwrap_err().to_string();
        let (_, list) = error.split_once(&format!("unknown key `{UNKNOWN}`; there are "))?;
        Some(list.lines().next()?.split(", ").map(str::to_owned).collect())
    }

    /// Adds the paths of all keys that a configuration may have below the last of these headers.
    fn add_keys(path: &str, headers: &[String], all: &mut BTreeSet<String>) {
        for key in keys(headers).unwrap_or_default() {
            let path = if path.is_empty() { key } else { format!("{path}.{key}") };
            for header in [format!("[[{path}]]"), format!("[{path}]")] {
                let below = [headers, &[header]].concat();
                if keys(&below).is_some() {
                    add_keys(&path, &below, all);
                    break;
                }
            }
            all.insert(path);
        }
    }

    /// Adds the paths of all keys in a value of a document.
    fn add_used(path: &str, value: &toml::Value, used: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    add_used(&path, value, used);
                    used.insert(path);
                }
            }
            toml::Value::Array(array) => array.iter().for_each(|value| add_used(path, value, used)),
            _ => {}
        }
    }

    #[test]
    fn the_example_has_every_key() {
        // With comments of examples and of optional keys taken away.
        let is_key = |text: &str| {
            text.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        };
        let code = |line: &str| match line.strip_prefix("# ").filter(|rest| is_key(rest)) {
            Some(optional) => optional.to_owned(),
            None => line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned(),
        };
        let text: String = EXAMPLE.lines().map(|line| code(line) + "\n").collect();
        let (mut all, mut used) = (BTreeSet::new(), BTreeSet::new());
        add_used("", &toml::Value::Table(text.parse().unwrap()), &mut used);
        add_keys("", &[], &mut all);
        let tables = ["source.stream.block.channel.stride_bytes", "source.groups.interface", "view.run.clock"];
        assert!(tables.iter().all(|key| all.contains(*key)), "keys are looked for in all tables: {all:?}");
        // Described once, for the channels of packets and for the first level.
        let is_repeated = |key: &&String| {
            ["source.stream.block.channel.", "limit.warning.", "limit.critical.", "limit.watch.is"]
                .iter()
                .any(|table| key.starts_with(table))
        };
        let missing: Vec<&String> = all.difference(&used).filter(|key| !is_repeated(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let unknown: Vec<&String> = used.difference(&all).collect();
        let is_free = |key: &str| [".tags.", ".headers.", ".properties."].iter().any(|table| key.contains(table));
        assert!(unknown.iter().all(|key| is_free(key)), "{unknown:?}");
    }

    #[test]
    fn what_this_machine_has_not_is_told_all_of_it() {
        let text = "auth_token_file = \"/nowhere/token\"\n[[source]]\nname = \"fti\"\nkind = \"inetx\"\n\
                    listen = \"239.1.2.3:4440\"\ninterface = \"eth99\"\n\
                    [[webhook]]\nname = \"ops\"\nurl = \"http://ops.example\"\ntoken_file = \"/nowhere/ops\"\n\
                    [[archive]]\nname = \"a\"\ntarget = \"postgres\"\nurl = \"postgresql://u@db/t\"\n\
                    password_file = \"/nowhere/pw\"\n\
                    [[webhook]]\nname = \"duty\"\nurl = \"https://duty.example\"\nca_file = \"/nowhere/ca.pem\"\n";
        let wrong = here(&Config::parse(text, "x").unwrap());
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        assert!(wrong[0].contains("auth_token_file = \"/nowhere/token\": cannot read the token"), "{wrong:?}");
        assert!(
            wrong[1].contains("eth99") && wrong[1].contains("its interfaces are") && wrong[1].contains("lo"),
            "{wrong:?}"
        );
        assert!(wrong[2].contains("\"ops\": token_file: /nowhere/ops"), "{wrong:?}");
        assert!(wrong[3].contains("\"duty\": ca_file: /nowhere/ca.pem"), "{wrong:?}");
        assert!(wrong[4].contains("archive \"a\": password_file: /nowhere/pw"), "{wrong:?}");
    }
}

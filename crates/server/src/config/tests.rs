//! Reading configurations, and the mistakes in them.

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
    let text = include_str!("../../../../examples/strongback.toml");
    let example = Config::parse(text, "examples/strongback.toml").unwrap();
    let default = Config::default();
    assert_eq!(example.data_dir, default.data_dir);
    assert_eq!(example.commit_interval_ms, default.commit_interval_ms);
    assert_eq!(example.http.listen, default.http.listen);
    assert_eq!(example.http.max_body_mib, default.http.max_body_mib);
    assert_eq!(example.ilp.listen, default.ilp.listen);
    assert_eq!(example.pg.listen, default.pg.listen);
    assert_eq!(example.flight.listen, default.flight.listen);
    assert_eq!(example.store.log_mib, default.store.log_mib);
    assert_eq!(example.store.max_streams, default.store.max_streams);
    assert_eq!(example.live.heartbeat_ms, default.live.heartbeat_ms);
    assert_eq!(example.live.max_clients, default.live.max_clients);
    assert_eq!(example.live.max_clients_per_address, default.live.max_clients_per_address);
    assert_eq!(example.query.memory_mib, default.query.memory_mib);
    let inert = example.source == Layouts::default() && example.ilp.source.is_empty() && example.webhook.is_empty();
    assert!(inert && example.limit.is_empty() && example.derived.is_empty() && example.retention.is_empty());
    assert!(example.channel.is_empty() && example.view.is_none(), "it does nothing as it is printed");
}

#[test]
fn the_examples_are_right_once_they_are_no_comments() {
    let text = include_str!("../../../../examples/strongback.toml");
    let code = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
    let text: String = text.lines().map(|line| code(line) + "\n").collect();
    let all = Config::parse(&text, "examples/strongback.toml").unwrap();
    assert_eq!((all.source.packets.len(), all.source.plcs.len(), all.ilp.source.len()), (1, 1, 1));
    assert_eq!((all.webhook.len(), all.limit.len(), all.derived.len(), all.archive.len()), (1, 1, 1, 1));
    assert_eq!((all.retention.len(), all.channel.len()), (1, 1));
    assert_eq!((all.source.packets[0].streams.len(), all.source.plcs[0].groups.len()), (2, 1));
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
    let derived =
        |expression: &str| format!("[[derived]]\nname = \"x.y\"\ntrigger = \"tank\"\nexpression = '{expression}'\n");
    for (expression, says) in [
        ("foo(\"tank.p\")", "strongback.toml:4:1: derived.expression: \"x.y\": there is no function foo()"),
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
        (
            "streams = \"a\"\nkeep = \"much\"",
            "retention.keep: group \"slow\": \"much\" is neither a share of the space",
        ),
        (
            "streams = \"a\"\nkeep = \"900 MiB\"",
            "too small: its log, two segments of each retention group and the 943718400 bytes that groups keep",
        ),
        ("streams = \"a\"\nkeep = \"10\"", "retention.keep: group \"slow\": \"10\" is neither a share of the space"),
        ("streams = \"a\"\nmax_age = \"90\"", "retention.max_age: group \"slow\": \"90\" is not a time"),
        ("streams = \"a{b}\"", "\"b\" is not tag=value"),
        ("streams = \"a\"\nkep = 1", "unknown key `kep`; did you mean `keep`?"),
    ] {
        assert!(error(&group(keys)).contains(says), "{keys}: {}", error(&group(keys)));
    }
    assert!(error("[store]\nmax_gib = 0.05").contains("store.max_gib: a store of at most 53687091 bytes is too small"));
}

#[test]
fn listens_beyond_loopback_need_a_token_or_a_word() {
    let check = |text: &str| Config::parse(text, "x").unwrap().check_listens().map_err(|e| e.to_string());
    assert!(check("[http]\nlisten = \"0.0.0.0:8080\"").unwrap_err().contains("http.listen = 0.0.0.0:8080"));
    assert!(check("[pg]\nlisten = \"[::]:5433\"").unwrap_err().contains("auth_token_file"));
    assert!(check("[flight]\nlisten = \"0.0.0.0:5434\"").unwrap_err().contains("auth_token_file"));
    assert!(check("auth_token_file = \"t\"\n[http]\nlisten = \"0.0.0.0:8080\"").is_ok());
    assert!(
        check("auth_token_file = \"t\"\n[ilp]\nlisten = \"0.0.0.0:9009\"").unwrap_err().contains("carries no token")
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

fn told(text: &str) -> Vec<String> {
    mistakes::read(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_mistake_is_named_at_its_line() {
    let text = "\
commit_interval_ms = 0
comit = 1
[http]
listen = \"here\"
max_body_mib = 9999
[store]
max_gib = -1.0
[[retention]]
name = \"slow\"
keep = \"much\"
streams = \"a\"
[[limit]]
channels = [\"a.b\"]
[[limit]]
channels = [\"a.b\"]
watch = { low = 1.0 }
[[limit]]
chanels = [\"a.b\"]
[[webhook]]
url = \"nowhere\"
[[derived]]
name = \"x\"
trigger = \"a\"
expression = \"1 +\"
[[source]]
name = \"fti\"
kind = \"inetx\"
listen = \"127.0.0.1:4440\"
[[source.stream]]
id = 1
table = \"a\"
[[source.stream.channel]]
name = \"c\"
offset = 0
type = \"u17\"
[[source.stream.channel]]
name = \"d\"
offset = 0
type = \"u16\"
bits = 40
[view]
[[view.panels]]
kind = \"plot\"
title = \"a\"
channels = [\"a{b}\"]
";
    let told = told(text);
    let lines: Vec<&str> = told.iter().filter_map(|m| m.split(':').next()).collect();
    assert_eq!(lines, ["1", "2", "4", "5", "7", "10", "12", "18", "20", "22", "35", "40", "45"], "{told:#?}");
    assert!(told[1].contains("did you mean `commit_interval_ms`") || told[1].contains("unknown key"), "{told:#?}");
    assert!(told[4].contains("store.max_gib: must be above 0"), "{told:#?}");
}

#[test]
fn what_is_wrong_as_a_whole_is_told_once() {
    assert_eq!(told("[http]\nlisten = \n").len(), 1);
    assert_eq!(told("[limits]\nclient_memory_mib = 16\n").len(), 1);
    let two = "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n";
    let told = told(&two.repeat(2));
    assert!(told.len() == 1 && told[0].contains("source") && told[0].contains("\"a\""), "{told:?}");
    assert!(mistakes::read(two).is_ok());
}

/// Wrong entries of each kind: the text, and the position, key and reason that are reported.
const WRONG: &[(&str, &str)] = &[
    ("commit_interval_ms = 10001", "1:1: commit_interval_ms: 10001 is not within 1 to 10000"),
    ("[http]\nmax_body_mib = 0", "2:1: http.max_body_mib: 0 is not within 1 to 1024"),
    ("http.max_connections = 0", "1:6: http.max_connections: 0 is not within 1 to 1048576"),
    ("[live]\nheartbeat_ms = 49", "2:1: live.heartbeat_ms: 49 is not within 50 to 1000"),
    ("[store]\nmax_gib = nan", "2:1: store.max_gib: must be above 0"),
    ("[store]\nlog_mib = 64\nmax_gib = 0.05", "3:1: store.max_gib: a store of at most 53687091 bytes is too small"),
    (
        "[limits]\nclient_memory_mib = 16",
        "1:2: limits.client_memory_per_address_mib: 128 is not within 16 to client_memory_mib = 16",
    ),
    // Retention groups.
    ("[[retention]]\nname = \"a\"\nstreams = \"a{b}\"", "3:1: retention.streams: group \"a\": "),
    (
        "[[retention]]\nname = \"a\"\nstreams = \"a\"\nkeep = \"x\"",
        "4:1: retention.keep: group \"a\": \"x\" is neither",
    ),
    ("[[retention]]\nname = \"a\"\nmax_age = \"9\"", "3:1: retention.max_age: group \"a\": \"9\" is not a time"),
    (
        "[[retention]]\nname = \"a\"\nstreams = \"a\"\n[[retention]]\nname = \"a\"\nstreams = \"b\"",
        "4:1: retention: group \"a\" is there twice",
    ),
    (
        "[[retention]]\nname = \"a\"\nstreams = \"a\"\nkeep = \"60%\"\n\
         [[retention]]\nname = \"b\"\nstreams = \"b\"\nkeep = \"60%\"",
        "5:1: retention: the groups keep 120 % of the space",
    ),
    // Notes on channels.
    ("[[channel]]\npattern = \"a{b}\"", "2:1: channel.pattern: channel pattern \"a{b}\": \"b\" is not tag=value"),
    ("[[channel]]\npattern = \"a\"\nexpected_period_ms = 0.0", "3:1: channel.expected_period_ms: must be above 0"),
    // Limits.
    ("[[limit]]\nchannels = []\nwatch = { low = 1 }", "2:1: limit.channels: limit \"\": [\"pattern\", …] is needed"),
    (
        "[[limit]]\nchannels = [\"a\", \"b{c}\"]\nwatch = { low = 1 }",
        "2:18: limit.channels: limit \"a, b{c}\": channel pattern",
    ),
    ("\n[[limit]]\nchannels = [\"a.b\"]", "2:1: limit: limit \"a.b\": it needs watch, warning, critical, stale_ms or"),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nwatch = { low = 3, high = 1 }",
        "3:11: limit.watch.low: limit \"a.b\": 3 is not below high = 1",
    ),
    ("[[limit]]\nchannels = [\"a.b\"]\n[limit.watch]", "3:8: limit.watch: limit \"a.b\": it needs low, high or is"),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nwatch = { high = 3 }\n[limit.critical]\nlow = 0\nhigh = 2",
        "6:1: limit.critical.high: limit \"a.b\": 2 is below watch.high = 3",
    ),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nstale_ms = 0",
        "3:1: limit.stale_ms: limit \"a.b\": 0 is not within 1 and a year",
    ),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nstale = \"watch\"\nwatch = { low = 1 }",
        "3:1: limit.stale: limit \"a.b\": it needs",
    ),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nrate_hz = { low = 5, high = 5 }",
        "3:13: limit.rate_hz.low: limit \"a.b\": 5 is not below high = 5",
    ),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nwatch = { low = 1 }\nwhile = { channel = \"m.s\", is = [] }",
        "4:28: limit.while.is: limit \"a.b\": [states] are needed",
    ),
    (
        "[[limit]]\nchannels = [\"a.b\"]\nwatch = { low = 1 }\n[[limit]]\nchannels = [\"a.b\"]\nwatch = { low = 2 }",
        "4:1: limit.name: limit \"a.b\": two have this name",
    ),
    (
        "[[limit]]\nname = \"n\"\nchannels = [\"a.b\"]\nwatch = { low = 1 }\n\
         [[limit]]\nname = \"n\"\nchannels = [\"c.d\"]\nwatch = { low = 2 }",
        "6:1: limit.name: limit \"n\": two have this name",
    ),
    // Archives.
    (
        "[[archive]]\nname = \"a\"\ntarget = \"postgres\"\nurl = \"postgresql://u:secret@db/t\"",
        "4:1: archive.url: archive \"a\": the password belongs into password_file",
    ),
    (
        "[[archive]]\nname = \"a/b\"\ntarget = \"postgres\"\nurl = \"postgresql://u@db/t\"",
        "2:1: archive.name: archive \"a/b\": it must have 1 to 64 letters, digits, '-', '_' and '.', and no '.' first",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"postgres\"\nurl = \"postgresql://u@db/t\"\nchannels = [\"a{b}\"]",
        "5:13: archive.channels: archive \"a\": channel pattern \"a{b}\"",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"questdb\"\nurl = \"http://u:secret@db:9000\"",
        "4:1: archive.url: archive \"a\": the password belongs into password_file",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"questdb\"\nurl = \"http://u@db:9000\"",
        "4:1: archive.url: archive \"a\": a user in url and a password_file belong together",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"questdb\"\nurl = \"db:9000\"",
        "4:1: archive.url: archive \"a\": it must begin with http:// or https://",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"questdb\"\nurl = \"http://db\"\nschema = \"s\"",
        "5:1: archive.schema: archive \"a\": target \"questdb\" has no such key",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"elasticsearch\"\nurl = \"http://db\"\nca_file = \"ca.pem\"",
        "5:1: archive.ca_file: archive \"a\": url is not https",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"influxdb\"\nurl = \"http://db:8086\"",
        "1:1: archive.database: archive \"a\": it is missing",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"mariadb\"\nurl = \"mariadb://u@db\"",
        "4:1: archive.url: archive \"a\": it names no database",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"kafka\"\nurl = \"db:9092\"",
        "4:1: archive.url: archive \"a\": it must be as in kafka://host:9092",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"lake\"\nurl = \"/srv/lake\"",
        "4:1: archive.url: archive \"a\": it must be as in s3://bucket/prefix or file:///folder",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"lake\"\nurl = \"s3://b\"\nproperties = { aws_secret_access_key = \"x\" }",
        "5:1: archive.properties: archive \"a\": the secret key belongs into password_file",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"lake\"\nurl = \"s3://b\"\n\
         [[archive]]\nname = \"b\"\ntarget = \"lake\"\nurl = \"s3://c\"",
        "5:1: archive.history: archive \"b\": SQL reads older frames from another lake",
    ),
    (
        "[[archive]]\nname = \"a\"\ntarget = \"kafka\"\nurl = \"kafka://db:9092\"\nreplicas = 0",
        "5:1: archive.replicas: archive \"a\": it is not within 1 to 100",
    ),
    // Webhooks.
    ("[[webhook]]\nurl = \"ops\"", "2:1: webhook.url: it must begin with http:// or https:// and a host"),
    ("[[webhook]]\nurl = \"http://ops:99999/x\"", "2:1: webhook.url: port 99999 is not within 0 to 65535"),
    (
        "[[webhook]]\nurl = \"http://ops\"\nsteps = [\"raised\", \"rise\"]",
        "3:20: webhook.steps: webhook \"ops\": \"rise\" is none of raised, worse",
    ),
    (
        "[[webhook]]\nurl = \"http://ops\"\nheaders = { X-Room = \"3\", Host = \"x\" }",
        "3:27: webhook.headers.Host: webhook \"ops\": Host is not yours to set",
    ),
    (
        "[[webhook]]\nurl = \"http://ops/a\"\n[[webhook]]\nurl = \"http://ops/b\"",
        "3:1: webhook.name: webhook \"ops\": two have this name",
    ),
    // Derived channels.
    (
        "[[derived]]\nname = \"x\"\ntrigger = \"t\"\nexpression = \"1\"",
        "2:1: derived.name: \"x\": expected table.channel",
    ),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"x\"\nexpression = '\"a.b\"'",
        "3:1: derived.trigger: \"x.y\": it is the table of the results",
    ),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = '\"x.y\" + 1'",
        "4:1: derived.expression: \"x.y\": it refers to itself",
    ),
    ("[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = '\"a.b\" +'", "4:1: derived.expression: \"x.y\": "),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = 'foo(\"a.b\")'",
        "4:1: derived.expression: \"x.y\": there is no function foo()",
    ),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = '\"a.b\"'\nalign_ms = 10001",
        "5:1: derived.align_ms: \"x.y\": at most 10000",
    ),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = '\"p.q\"'\n\
         [[derived]]\nname = \"p.q\"\ntrigger = \"t\"\nexpression = '\"x.y\"'",
        "8:1: derived.expression: \"p.q\": these refer to each other in a circle: x.y, p.q",
    ),
    (
        "[[derived]]\nname = \"x.y\"\ntrigger = \"t\"\nexpression = '\"a.b\"'\n\
         [[derived]]\nname = \"x.y{n=1}\"\ntrigger = \"t\"\nexpression = '\"a.b\"'",
        "6:1: derived.name: \"x.y{n=1}\": \"x.y\" is that channel already",
    ),
    (
        "[[derived]]\nname = \"STRONGBACK.y\"\ntrigger = \"t\"\nexpression = '\"a.b\"'",
        "2:1: derived.name: \"STRONGBACK.y\": tables named strongback are the store's own",
    ),
    // Sources.
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"x\"",
        "4:1: source.listen: \"x\" is not an address and port",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n\
         [[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:2\"",
        "6:1: source.name: \"a\" names another source too",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n\
         [[source]]\nname = \"b\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"",
        "8:1: source.listen: 127.0.0.1:1 belongs to another source too",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"0.0.0.0:1\"\n\
         [[source]]\nname = \"b\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"",
        "8:1: source.listen: 127.0.0.1:1 overlaps 0.0.0.0:1 of another source",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"0.0.0.0:1\"\n\
         [[source]]\nname = \"b\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:2\"\n\
         groups = [{ address = \"239.1.2.3:2\" }, { address = \"239.1.2.3:1\" }]",
        "9:42: source.groups.address: 239.1.2.3:1 overlaps 0.0.0.0:1 of another source",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\ngroups = [{ address = \"0.0.0.0:1\" }]",
        "5:13: source.groups.address: 0.0.0.0:1 overlaps 127.0.0.1:1 of this source",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\nhost = \"plc\"",
        "5:1: source.host: only with kind = \"ads\"",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n[[source.stream]]\nid = 1\n\
         table = \"Strongback\"\nchannel = [{ name = \"c\", offset = 0, type = \"u8\" }]",
        "7:1: source.stream.table: the name \"Strongback\": tables named strongback are the store's own",
    ),
    (
        "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n[[source.stream]]\nid = 1\n\
         table = \"t\"\nchannel = [{ name = \"c\", offset = 0, type = \"u8\", bits = 9 }]",
        "8:51: source.stream.channel.bits: bits 0 to 9 are not within the 8 of u8",
    ),
    ("[[source]]\nname = \"p\"\nkind = \"ads\"", "1:1: source.host: missing: address of the PLC"),
    (
        "[[source]]\nname = \"p\"\nkind = \"ads\"\nhost = \"1.2.3.4\"\n[[source.group]]\ntable = \"t\"\nsymbols = []",
        "7:1: source.group.symbols: 1 to 4096 names or patterns",
    ),
    (
        "[[source]]\nname = \"p\"\nkind = \"ads\"\nhost = \"1.2.3.4\"\nstate_table = \"strongback\"",
        "5:1: source.state_table: the name \"strongback\": tables named strongback are the store's own",
    ),
    // The page.
    ("[view.run]\nt0 = \"x\"", "2:1: view.run.t0: \"x\" is not nanoseconds since 1970 UTC"),
    (
        "[[view.panels]]\nkind = \"plot\"\ntitle = \"a\"\nchannels = [\"a\", \"a{b}\"]",
        "4:18: view.panels.channels: channel pattern",
    ),
];

#[test]
fn each_wrong_entry_is_reported_once_with_its_line_column_and_key() {
    let mut unmet = Vec::new();
    for (text, says) in WRONG {
        let told = mistakes::read(text).map_or_else(|mistakes| mistakes, |_| Vec::new());
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        if told.len() != 1 || !told[0].starts_with(says) {
            unmet.push(format!("{text}\nreported {told:#?}\nexpected {says}"));
        }
    }
    assert!(unmet.is_empty(), "{}", unmet.join("\n\n"));
}

#[test]
fn a_list_that_is_too_long_is_reported_once() {
    let list = |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<String>();
    let group = |n| format!("[[retention]]\nname = \"g{n}\"\nstreams = \"a{n}\"\n");
    let webhook = |n| format!("[[webhook]]\nurl = \"http://ops{n}\"\n");
    let derived = |n| format!("[[derived]]\nname = \"d{n}.x\"\ntrigger = \"a\"\nexpression = '\"a.v\"'\n");
    assert_eq!(told(&list(40, &group)), ["1:3: retention: 40 groups; 32 at most"]);
    assert_eq!(told(&list(18, &webhook)), ["1:3: webhook: 18 webhooks; 16 at most"]);
    assert_eq!(told(&list(300, &derived)), ["1:3: derived: 300 derived channels; 256 at most"]);
}

#[test]
fn texts_and_tags_that_no_stream_can_have_are_wrong() {
    let long = "u".repeat(65_536);
    let source = "[[source]]\nname = \"a\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:1\"\n[[source.stream]]\nid = 1\n";
    let channel = |more: &str| format!("channel = [{{ name = \"c\", offset = 0, type = \"u8\"{more} }}]");
    let tags: Vec<String> = (0..257).map(|n| format!("t{n} = \"1\"")).collect();
    let table = "t".repeat(1_023);
    for (text, says) in [
        (format!("[[channel]]\npattern = \"a\"\nunit = \"{long}\""), "3:1: channel.unit: 65536 bytes; 65535 at most"),
        (
            format!("{source}table = \"t\"\n{}", channel(&format!(", description = \"{long}\""))),
            "8:51: source.stream.channel.description: 65536 bytes; 65535 at most",
        ),
        (
            format!("{source}table = \"t\"\ntags = {{ {} }}\n{}", tags.join(", "), channel("")),
            "8:1: source.stream.tags: 257 tags; 256 at most",
        ),
        (
            format!("{source}table = \"{table}\"\n{}", channel(", samples = 2, period_us = 1")),
            "7:1: source.stream.table: the name ",
        ),
    ] {
        let told = told(&text);
        assert!(told.len() == 1 && told[0].starts_with(says), "{says}");
    }
}

#[test]
fn a_file_alone_says_where_its_listeners_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("strongback.toml");
    let read = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let error = Config::read_alone(&file).map(drop).map_err(|error| error.to_string());
        error.map_err(|error| error.replace(&format!("{}:", file.display()), ""))
    };
    for (text, says) in [
        (
            "[http]\nlisten = 8001\n[pg]\nlisten = \"8001\"".replace("= 8001", "= \"8001\""),
            "4:1: pg.listen = 127.0.0.1:8001 overlaps http.listen = 127.0.0.1:8001: give it another port",
        ),
        (
            "[http]\nlisten = \"9009\"".to_owned(),
            "2:1: ilp.listen = 127.0.0.1:9009 overlaps http.listen = 127.0.0.1:9009: give it another port",
        ),
        (
            "insecure_listen = true\n[ilp]\nlisten = \"0.0.0.0:8080\"".to_owned(),
            "3:1: ilp.listen = 0.0.0.0:8080 overlaps http.listen = 127.0.0.1:8080: give it another port",
        ),
        (
            "[pg]\nlisten = \"0.0.0.0:5433\"\n[ilp]\ntoken_required = true".to_owned(),
            "4:1: ilp.token_required: there is no token: set auth_token_file\n2:1: pg.listen = 0.0.0.0:5433 listens",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(says), "{text}: {error}");
    }
    assert_eq!(read("[http]\nlisten = \"[::1]:8080\"\n[pg]\nlisten = \"127.0.0.1:8080\""), Ok(()));
    assert_eq!(read("[http]\nlisten = \"127.0.0.1:0\"\n[pg]\nlisten = \"127.0.0.1:0\""), Ok(()));
    let of_folder = |dir: &Path| Config { data_dir: dir.to_owned(), ..Config::default() }.check_data_dir();
    assert!(of_folder(dir.path()).is_ok() && of_folder(&dir.path().join("new")).is_ok());
    assert_eq!(of_folder(Path::new("")).unwrap_err().to_string(), "data_dir: it is empty");
    assert!(of_folder(&file).unwrap_err().to_string().contains("strongback.toml: not a folder"));
}

#[test]
fn lists_of_a_file_are_compiled_whole_and_in_order() {
    let text = "\
[[retention]]
name = \"slow\"
streams = \"plc.*\"
[[channel]]
pattern = \"a.*\"
unit = \"bar\"
expected_period_ms = 2.0
[[limit]]
channels = [\"a.b\", \"a.c\"]
watch = { low = 1 }
[[limit]]
name = \"second\"
channels = [\"a.d\"]
stale_ms = 5
[[webhook]]
url = \"http://ops.example\"
[[derived]]
name = \"x.y\"
trigger = \"t\"
expression = '\"p.q\" + 1'
[[derived]]
name = \"p.q\"
trigger = \"t\"
expression = '\"a.b\" + 1'
[[source]]
name = \"fti\"
kind = \"inetx\"
listen = \"127.0.0.1:4440\"
[[source]]
name = \"plc\"
kind = \"ads\"
host = \"1.2.3.4\"
";
    let config = Config::parse(text, "x").unwrap();
    assert_eq!(config.store_options().retention[0].name, "slow");
    assert_eq!(config.retention[0].to_string(), "retention group slow: streams plc.*");
    assert_eq!((config.channel[0].unit.as_str(), config.channel[0].expected_period_ns), ("bar", Some(2_000_000)));
    let names: Vec<&str> = config.limit.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!((names, config.limit[0].channels.len()), (vec!["a.b, a.c", "second"], 2));
    assert_eq!(
        serde_json::to_value(&config.limit[0]).unwrap()["watch"],
        serde_json::json!({ "low": 1.0, "high": null })
    );
    assert_eq!(config.webhook[0].name, "ops.example");
    let derived: Vec<String> = config.derived.iter().map(|definition| definition.path()).collect();
    assert_eq!(derived, ["p.q", "x.y"], "each after those it depends on");
    assert_eq!((config.source.packets[0].name.as_str(), config.source.plcs[0].name.as_str()), ("fti", "plc"));
}

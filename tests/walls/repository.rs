//! The walls of ARCHITECTURE.md, checked instead of hoped for.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Longest file of code, in lines.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    // Asked as the test runs: another clone may have built it.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..").canonicalize().expect("the repository's root")
}

/// Files under version control, relative to the root.
fn tracked_files() -> Vec<PathBuf> {
    let out = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git ls-files");
    assert!(out.status.success(), "git ls-files: {}", String::from_utf8_lossy(&out.stderr));
    let names = String::from_utf8(out.stdout).expect("file names in UTF-8");
    names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).filter(|p| root().join(p).exists()).collect()
}

/// For each crate by name, the names of all crates it needs, directly or not, to build and run (tests apart).
struct Dependencies {
    all: BTreeMap<String, BTreeSet<String>>,
    ours: BTreeSet<String>,
}

impl Dependencies {
    fn read() -> Self {
        let out = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .expect("cargo metadata");
        assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
        let metadata: Value = serde_json::from_slice(&out.stdout).expect("JSON of cargo metadata");
        let names: BTreeMap<&str, &str> =
            array(&metadata["packages"]).map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let direct: BTreeMap<&str, Vec<&str>> = array(&metadata["resolve"]["nodes"])
            .map(|node| {
                let needs = array(&node["deps"])
                    .filter(|d| array(&d["dep_kinds"]).any(|k| k["kind"].as_str() != Some("dev")))
                    .map(|d| text(&d["pkg"]))
                    .collect();
                (text(&node["id"]), needs)
            })
            .collect();
        let ours: Vec<&str> = array(&metadata["workspace_members"]).map(text).collect();
        let mut all = BTreeMap::new();
        for &id in &ours {
            let mut seen = BTreeSet::new();
            let mut open = vec![id];
            while let Some(next) = open.pop() {
                for &need in &direct[next] {
                    if seen.insert(need) {
                        open.push(need);
                    }
                }
            }
            all.insert(names[id].to_owned(), seen.into_iter().map(|id| names[id].to_owned()).collect());
        }
        Dependencies { all, ours: ours.into_iter().map(|id| names[id].to_owned()).collect() }
    }

    fn needs(&self, of: &str, what: &str) -> bool {
        self.all[of].contains(what)
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("an array").iter()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

#[test]
fn the_store_stands_alone() {
    let dependencies = Dependencies::read();
    for ours in &dependencies.ours {
        assert!(!dependencies.needs("strongback-store", ours), "store needs {ours}");
    }
    for foreign in ["tokio", "arrow", "arrow-array", "datafusion", "axum", "mio", "nix"] {
        assert!(!dependencies.needs("strongback-store", foreign), "store needs {foreign}");
    }
}

#[test]
fn what_is_released_has_no_disk_of_the_tests() {
    let features = |edges: &str| {
        let out = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--package", "strongback", "--edges", edges, "--format", "{p} [{f}]"])
            .args(["--prefix", "none", "--target", "x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .expect("cargo tree");
        assert!(out.status.success(), "cargo tree: {}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        let store = text.lines().find(|l| l.starts_with("strongback-store ")).map(str::to_owned);
        store.expect("the server needs the store")
    };
    assert!(!features("normal,build").contains("fault-disk"));
    assert!(features("normal,build,dev").contains("fault-disk"), "the check sees no features at all");
}

#[test]
fn sources_and_query_do_not_see_each_other() {
    let dependencies = Dependencies::read();
    let of = |name: &str| -> Vec<&str> {
        dependencies.all[name].iter().map(String::as_str).filter(|n| dependencies.ours.contains(*n)).collect()
    };
    assert_eq!(of("strongback-sources"), ["strongback-store"]);
    assert_eq!(of("strongback-query"), ["strongback-store"]);
}

#[test]
fn only_query_and_what_stands_on_it_link_datafusion() {
    let dependencies = Dependencies::read();
    for ours in &dependencies.ours {
        let may = ours == "strongback-query" || ours == "strongback";
        assert!(may || !dependencies.needs(ours, "datafusion"), "{ours} links datafusion");
    }
    assert!(dependencies.needs("strongback-query", "datafusion"), "the check sees no dependencies at all");
    let manifest = std::fs::read_to_string(root().join("crates/server/Cargo.toml")).expect("manifest of the server");
    assert!(!manifest.contains("datafusion"), "the server names datafusion itself");
}

#[test]
fn the_simulator_knows_nothing_of_the_server() {
    let dependencies = Dependencies::read();
    for part in ["strongback-sources", "strongback-query", "strongback"] {
        assert!(!dependencies.needs("strongback-sim", part), "the simulator needs {part}");
    }
}

#[test]
fn the_benchmarks_stand_outside_the_server() {
    let dependencies = Dependencies::read();
    // Store and decoders are measured alone as well; the server is measured from outside.
    for part in ["strongback-query", "strongback"] {
        assert!(!dependencies.needs("strongback-bench", part), "the benchmarks need {part}");
    }
    for rival in ["strongback-bench", "rusqlite"] {
        assert!(!dependencies.needs("strongback", rival), "the server needs {rival}");
    }
    assert!(dependencies.needs("strongback-bench", "rusqlite"), "the check sees no dependencies at all");
}

#[test]
fn only_the_c_interface_and_the_fuzzer_may_have_unsafe() {
    let manifests: Vec<PathBuf> = tracked_files()
        .into_iter()
        .filter(|path| {
            path.file_name().is_some_and(|name| name == "Cargo.toml") && path.parent() != Some(Path::new(""))
        })
        .collect();
    let free = |path: &&PathBuf| {
        let manifest = std::fs::read_to_string(root().join(path)).expect("a manifest");
        !manifest.contains("[lints]\nworkspace = true")
    };
    let found: Vec<String> = manifests.iter().filter(free).map(|path| path.display().to_string()).collect();
    // The fuzzer is a workspace of its own; what libFuzzer calls is a function of C.
    assert_eq!(found, ["clients/c/Cargo.toml", "fuzz/Cargo.toml"]);
    assert!(manifests.len() > 5, "{manifests:?}");
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long: Vec<String> = tracked_files()
        .into_iter()
        .filter(|p| {
            matches!(p.extension().and_then(|e| e.to_str()), Some("rs" | "ts" | "svelte" | "py" | "sh" | "css"))
        })
        .filter_map(|p| {
            let lines = std::fs::read_to_string(root().join(&p)).ok()?.lines().count();
            (lines > LINES_MAX).then(|| format!("{}: {lines} lines", p.display()))
        })
        .collect();
    assert!(long.is_empty(), "files over {LINES_MAX} lines: {long:#?}");
}

#[test]
fn no_file_needs_what_users_do_not_have() {
    // In two parts, or this file would find itself.
    let outside = ["..", "/", "shared"].concat();
    let found: Vec<String> = tracked_files()
        .into_iter()
        .filter(|p| {
            std::fs::read(root().join(p))
                .is_ok_and(|bytes| bytes.windows(outside.len()).any(|part| part == outside.as_bytes()))
        })
        .map(|p| p.display().to_string())
        .collect();
    assert!(found.is_empty(), "these files mention {outside}: {found:?}");
}

#[test]
fn the_map_names_every_crate() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for parent in ["clients", "crates", "tests"] {
        for entry in std::fs::read_dir(root().join(parent)).expect("the folder of crates") {
            let folder = entry.expect("an entry").path();
            if folder.join("Cargo.toml").exists() {
                let name = format!("`{parent}/{}`", folder.file_name().expect("a name").to_string_lossy());
                assert!(map.contains(&name), "ARCHITECTURE.md does not name {name}");
            }
        }
    }
}

#[test]
fn the_documents_name_no_dead_path() {
    let mut dead = Vec::new();
    for document in ["ARCHITECTURE.md", "README.md"] {
        let document_text = std::fs::read_to_string(root().join(document)).expect(document);
        for path in paths_in(&document_text) {
            if !root().join(path).exists() {
                dead.push(format!("{document}: {path}"));
            }
        }
    }
    assert!(dead.is_empty(), "dead paths: {dead:#?}");
}

#[test]
fn the_tests_that_show_durability_exist() {
    let document = std::fs::read_to_string(root().join("docs/durability.md")).expect("docs/durability.md");
    let rows = document.split("\n## ").find(|section| section.starts_with("Faults")).expect("the section of faults");
    let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert!(rows.len() > 10, "{rows:?}");
    let code: String = tracked_files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs" || ending == "py"))
        .filter_map(|path| std::fs::read_to_string(root().join(path)).ok())
        .collect();
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            let exists = code.contains(&format!("fn {name}()")) || code.contains(&format!("def {name}("));
            assert!(exists, "there is no test {name}: {row}");
        }
    }
}

/// Paths named in backticks or as the target of a link: what begins with a folder of this repository, or ends
/// as a file of it does.
fn paths_in(document: &str) -> Vec<&str> {
    let in_code = document.split('`').skip(1).step_by(2);
    let in_links = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    in_code
        .chain(in_links)
        .map(|path| path.split('#').next().unwrap_or(path))
        .filter(|path| !path.contains([' ', '*', '{', '<', '$', '\n', ':']))
        .filter(|path| {
            let first = path.split('/').next().unwrap_or("");
            matches!(first, "clients" | "crates" | "web" | "docs" | "tests" | "scripts" | "examples" | ".ci")
                && path.contains('/')
        })
        .filter(|path| !path.starts_with("web/dist") && !path.starts_with("web/node_modules"))
        .collect()
}

#[test]
fn paths_are_found_in_a_document() {
    let found = paths_in("see `crates/store/src/lib.rs` and [it](docs/api.md#live), not `make test` or `/api/health`");
    assert_eq!(found, ["crates/store/src/lib.rs", "docs/api.md"]);
}

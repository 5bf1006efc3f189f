//! Wings: the modules at the top of a crate, whose imports run one way, and circles of modules within them.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The wings of the store, each of which may import those before it.
const STORE: [&str; 20] = [
    "unattended",
    "model",
    "bytes",
    "disk",
    "codec",
    "block",
    "catalog",
    "text",
    "segment",
    "log",
    "append",
    "read",
    "engine",
    "blob",
    "upkeep",
    "open",
    "store",
    "inspect",
    "repair",
    "rdl",
];
/// Those of SQL.
const QUERY: [&str; 17] = [
    "error",
    "running",
    "sql",
    "functions",
    "expression",
    "table",
    "lake",
    "operators",
    "wire",
    "system",
    "telemetry",
    "plan",
    "query",
    "subscription",
    "export",
    "pg",
    "flight",
];
/// Those of the server.
const SERVER: [&str; 18] = [
    "text",
    "process",
    "reception",
    "live",
    "ingest",
    "runs",
    "marks",
    "sources",
    "alarms",
    "derived",
    "archives",
    "playback",
    "config",
    "server",
    "doctor",
    "http",
    "cli",
    "commands",
];
/// Those of the page.
const WEB: [&str; 10] =
    ["connection", "text", "state", "layout", "plot", "style", "parts", "source", "panels", "shell"];
/// Most modules that import each other in a circle.
const CIRCLE_MAX: usize = 3;

/// The modules of a crate by their paths (`log::record`), without tests and comments.
struct Modules(BTreeMap<String, String>);

impl Modules {
    fn of_crate(name: &str) -> Modules {
        let root = repository().join("crates").join(name).join("src");
        let mut modules = Modules(BTreeMap::new());
        modules.read(&root, &root);
        modules
    }

    fn read(&mut self, root: &Path, folder: &Path) {
        let entries = std::fs::read_dir(folder).expect("a folder of sources");
        let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        for path in paths {
            if path.is_dir() {
                self.read(root, &path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = path.strip_prefix(root).expect("below the root").with_extension("");
                let names: Vec<&str> = module.iter().map(|part| part.to_str().expect("UTF-8")).collect();
                // Tests look everywhere, and the crate's face and what its fuzzer calls name what is public.
                if !names.iter().any(|name| ["tests", "lib", "main", "fuzzing"].contains(name)) {
                    let text = std::fs::read_to_string(&path).expect("a source");
                    self.0.insert(names.join("::"), product_code(&text));
                }
            }
        }
    }

    /// For each module the others that it names.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let imports_of = |module: &str, text: &str| -> BTreeSet<&str> {
            let paths = paths_of(text);
            let named = paths.iter().filter_map(|path| self.resolve(module, path));
            named.filter(|found| *found != module && !found.starts_with(&format!("{module}::"))).collect()
        };
        self.0.iter().map(|(module, text)| (module.as_str(), imports_of(module, text))).collect()
    }

    /// The module that a path leads into, if it is one of this crate.
    fn resolve(&self, module: &str, path: &str) -> Option<&str> {
        let mut names: Vec<&str> = module.split("::").collect();
        for part in path.split("::") {
            match part {
                "crate" => names.clear(),
                "self" => {}
                "super" => drop(names.pop()),
                part => names.push(part),
            }
        }
        (1..=names.len()).rev().find_map(|len| {
            let (known, _) = self.0.get_key_value(&names[..len].join("::"))?;
            Some(known.as_str())
        })
    }
}

/// The modules of the page, by their paths without endings, and for each the others that it imports.
fn of_page() -> BTreeMap<String, BTreeSet<String>> {
    let root = repository().join("web/src");
    let mut texts = BTreeMap::new();
    for wing in WEB {
        for entry in std::fs::read_dir(root.join(wing)).expect("a folder of the page") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            let stem = name.strip_suffix(".ts").or_else(|| name.ends_with(".svelte").then_some(name));
            if let Some(stem) = stem.filter(|stem| !stem.ends_with(".test")) {
                texts.insert(format!("{wing}::{stem}"), std::fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    let found = |module: &str, text: &str| {
        let wing = module.split("::").next().unwrap_or_default();
        let paths = text.split(['"', '\'']).filter(|path| path.starts_with("./") || path.starts_with("../"));
        let names = paths.map(|path| match path.strip_prefix("../") {
            Some(other) => other.replace('/', "::"),
            None => format!("{wing}::{}", path.trim_start_matches("./")),
        });
        let names = names.map(|name| name.trim_end_matches(".ts").to_owned());
        names.filter(|name| texts.contains_key(name)).collect::<BTreeSet<String>>()
    };
    texts.iter().map(|(module, text)| (module.clone(), found(module, text))).collect()
}

/// The folder of the repository.
fn repository() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..")
}

/// Code without its tests and comments.
fn product_code(text: &str) -> String {
    let is_tests = |line: &str| line.contains("mod ") && line.ends_with('{');
    let tests = text.match_indices("#[cfg(test)]\n").find(|(at, _)| text[*at..].lines().nth(1).is_some_and(is_tests));
    let code = tests.map_or(text, |(at, _)| &text[..at]);
    code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

/// Paths that begin at the crate or are relative: of imports, trees of them taken apart, and within the code.
fn paths_of(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if is_whole {
                take_tree(&code[at..], "", &mut found);
            }
        }
    }
    found
}

/// Adds the paths of a tree like `a::{b, c::d}` behind a prefix. Returns what of the text is behind it.
fn take_tree<'a>(text: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (path, mut rest) = text.split_at(end);
    let whole = format!("{prefix}{path}");
    if !(path.ends_with("::") && rest.starts_with('{')) {
        found.push(whole.trim_end_matches(':').to_owned());
        return rest;
    }
    while let Some(part) = rest.strip_prefix(['{', ',']) {
        let part = part.trim_start();
        if part.starts_with('}') {
            rest = part;
            break;
        }
        rest = take_tree(part, &whole, found).trim_start();
        // `as name` says nothing of where the path leads.
        if let Some(renamed) = rest.strip_prefix("as ") {
            rest = renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
        }
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

/// Imports of a wing from one that stands above it.
fn upward(imports: &BTreeMap<&str, BTreeSet<&str>>, wings: &[&str]) -> Vec<String> {
    let wing = |module: &str| {
        let top = module.split("::").next().unwrap_or_default();
        wings.iter().position(|wing| *wing == top).unwrap_or_else(|| panic!("{module}: in no wing"))
    };
    let all = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    all.filter(|(from, to)| wing(from) < wing(to)).map(|(from, to)| format!("{from} imports {to}")).collect()
}

/// Modules that import each other, each with all those of its circle.
fn circles<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<BTreeSet<&'a str>> {
    let reached = |from: &'a str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            open.extend(imports[next].iter().filter(|to| seen.insert(**to)).copied());
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|module| (*module, reached(module))).collect();
    let circle = |module: &'a str| -> BTreeSet<&'a str> {
        reach[module].iter().filter(|other| reach[**other].contains(module)).copied().collect()
    };
    imports.keys().map(|module| circle(module)).filter(|circle| !circle.is_empty()).collect()
}

/// Checks that imports run one way between wings, and in small circles at most within them.
fn check(name: &str, imports: &BTreeMap<&str, BTreeSet<&str>>, wings: &[&str]) {
    let count: usize = imports.values().map(BTreeSet::len).sum();
    assert!(count > 200, "{name}: {count} imports are found, the check does not see all");
    assert_eq!(upward(imports, wings), Vec::<String>::new(), "{name}");
    let large: Vec<_> = circles(imports).into_iter().filter(|circle| circle.len() > CIRCLE_MAX).collect();
    assert!(large.is_empty(), "{name}: modules that import each other: {large:?}");
}

#[test]
fn imports_between_wings_run_one_way() {
    for (name, wings) in [("store", &STORE[..]), ("query", &QUERY), ("server", &SERVER)] {
        check(name, &Modules::of_crate(name).imports(), wings);
    }
    let page = of_page();
    let imports = page.iter().map(|(module, to)| (module.as_str(), to.iter().map(String::as_str).collect())).collect();
    check("page", &imports, &WEB);
}

#[test]
fn imports_upward_and_circles_are_found() {
    let files = [
        ("low", "use crate::high::{self, inner::{Deep as D, More}, Type};\n"),
        ("low::part", "fn f() { crate::low::g(); super::other::h() }\n"),
        ("low::other", "use super::part::f;\n// use crate::high;\n"),
        ("high", "use crate::low::part;\n#[cfg(test)]\npub(super) mod tests {\n    use crate::top::x;\n}\n"),
        ("high::inner", ""),
        ("top", ""),
    ];
    let modules = Modules(files.map(|(name, text)| (name.to_owned(), product_code(text))).into());
    let imports = modules.imports();
    let found = upward(&imports, &["low", "high", "top"]);
    assert_eq!(found, ["low imports high", "low imports high::inner"]);
    let circles = circles(&imports);
    let found: Vec<Vec<&str>> = circles.iter().map(|circle| circle.iter().copied().collect()).collect();
    assert_eq!(found, [vec!["high", "low", "low::other", "low::part"]]);
}

//! The header says what the library has: every function, every number, every layout, by the C compiler.

use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use crate::fault::{Code, guard};
use crate::value::{StrongbackValue, Text};

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect(name)
}

/// Names behind `before` in a text.
fn names<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = String> + 'a {
    text.split(before).skip(1).map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

#[test]
fn the_header_declares_every_function_and_no_other() {
    let header = read("include/strongback_store.h");
    let code = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect::<String>();
    let declared: BTreeSet<String> = code
        .split('(')
        .filter_map(|before| before.rsplit([' ', '*', '\n']).next())
        .filter(|name| name.starts_with("strongback_"))
        .map(str::to_owned)
        .collect();
    let mut made = BTreeSet::new();
    for file in ["fault", "frames", "reading", "scan", "store"] {
        made.extend(names(&read(&format!("src/{file}.rs")), "extern \"C\" fn "));
    }
    assert!(made.len() > 25, "{made:?}");
    assert_eq!(declared, made);
}

#[test]
fn numbers_and_layouts_of_the_header_are_ours() {
    let mut asserts =
        String::from("#include \"strongback_store.h\"\n#define SAME(a, b) _Static_assert((a) == (b), #a)\n");
    let mut same = |what: &str, ours: usize| asserts.push_str(&format!("SAME({what}, {ours});\n"));
    for (name, code) in [("OK", Code::Ok), ("END", Code::End), ("FULL", Code::Full), ("INTERNAL", Code::Internal)] {
        same(&format!("STRONGBACK_{name}"), code as usize);
    }
    for kind in store::ChannelType::ALL {
        same(&format!("STRONGBACK_{}", kind.name().to_uppercase()), kind.code().into());
    }
    for (name, state) in [
        ("VALUE", store::CellState::Value),
        ("ABSENT", store::CellState::Absent),
        ("UNCHANGED", store::CellState::Unchanged),
        ("UNKNOWN", store::CellState::Unknown),
    ] {
        same(&format!("STRONGBACK_{name}"), state as usize);
    }
    macro_rules! sizes {
        ($($c:literal $ours:ty),*) => {$( same(&format!("sizeof({})", $c), size_of::<$ours>()); )*};
    }
    sizes!(
        "strongback_value" StrongbackValue, "strongback_options" crate::store::StrongbackOptions,
        "strongback_channel" crate::store::StrongbackChannel, "strongback_appended" crate::store::StrongbackAppended,
        "strongback_batch" crate::scan::StrongbackBatch, "strongback_weight" crate::reading::StrongbackWeight
    );
    same("offsetof(strongback_value, as)", offset_of!(StrongbackValue, held));
    same("offsetof(strongback_value, as.text.length)", offset_of!(StrongbackValue, held) + offset_of!(Text, length));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("layout.c");
    std::fs::write(&file, asserts).expect("written");
    for language in ["-std=c11", "-std=c17"] {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let out = Command::new("cc")
            .args([language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(&include)
            .arg(&file)
            .output()
            .expect("a C compiler");
        assert!(out.status.success(), "{language}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn a_panic_comes_back_as_a_code() {
    assert_eq!(guard(|| panic!("on purpose")), Code::Internal as i32);
    // SAFETY: the text holds until the next call of this thread.
    let text = unsafe { std::ffi::CStr::from_ptr(crate::fault::strongback_last_error()) };
    assert!(text.to_str().is_ok_and(|text| text.ends_with("on purpose")), "{text:?}");
}

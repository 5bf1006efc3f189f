//! Programs taken apart: symbols, structures, arrays, enumerations, and what is chosen of them for which request.

use proptest::prelude::*;
use strongback_sources::SourceConfig;
use strongback_sources::ads::leaf::{Skipped, Splitting};
use strongback_sources::ads::plan::{self, NotificationRequest};
use strongback_sources::ads::select::select;
use strongback_sources::ads::table::{DataTypes, Symbols};
use strongback_sources::ads::value::ValueKind;
use strongback_sources::ads::wire::{PlcPlace, SUM_MAX};
use strongback_sources::ads::{AdsLayout, Arrays, Leaf};
use strongback_sources::layout::compile_all;
use strongback_store::ElementType;

use crate::ads_peer::{TypeEntry, symbol};

const BIG: u32 = 65;

/// A program with one of everything.
pub(crate) fn types() -> Vec<u8> {
    let member = |name, kind, size, offset, base| TypeEntry { name, kind, size, offset, base, ..TypeEntry::default() };
    let values = [(0_i16, "Idle"), (7, "Filling"), (-1, "Fault")];
    let mut tail = (values.len() as u16).to_le_bytes().to_vec();
    for (value, name) in values {
        tail.push(name.len() as u8);
        tail.extend_from_slice(name.as_bytes());
        tail.push(0);
        tail.extend_from_slice(&value.to_le_bytes());
    }
    // An attribute stands before the values.
    tail.splice(0..0, [&[1, 0, 3, 1][..], b"tag\0x\0"].concat());
    let valve = TypeEntry {
        name: "ST_Valve",
        size: 32,
        base: BIG,
        members: vec![
            member("open", "BOOL", 1, 0, 33).bytes(),
            member("position", "LREAL", 8, 8, 5).bytes(),
            TypeEntry { dimensions: vec![(1, 3)], ..member("steps", "INT", 6, 16, 2) }.bytes(),
            TypeEntry { dimensions: vec![(1, 1)], ..member("code", "ARRAY [1..1] OF BYTE", 1, 23, 17) }.bytes(),
            TypeEntry { flags: 0x20, ..member("limit", "BIT", 1, 8 * 22 + 3, 33) }.bytes(),
            member("next", "POINTER TO ST_Valve", 8, 24, 21).bytes(),
        ],
        ..TypeEntry::default()
    };
    [
        valve.bytes(),
        TypeEntry {
            name: "ARRAY [0..1] OF ST_Valve",
            kind: "ST_Valve",
            size: 64,
            base: BIG,
            dimensions: vec![(0, 2)],
            ..TypeEntry::default()
        }
        .bytes(),
        TypeEntry {
            name: "ARRAY [1..2,-1..0] OF DINT",
            kind: "DINT",
            size: 16,
            base: 3,
            dimensions: vec![(1, 2), (-1, 2)],
            ..TypeEntry::default()
        }
        .bytes(),
        TypeEntry { name: "E_State", kind: "INT", size: 2, base: 2, flags: 0x3000, tail, ..TypeEntry::default() }
            .bytes(),
        TypeEntry { name: "T_Delay", kind: "TIME", size: 4, base: 19, ..TypeEntry::default() }.bytes(),
    ]
    .concat()
}

pub(crate) fn symbols() -> Vec<u8> {
    let at = |offset, size| (0x4040, offset, size);
    [
        symbol("MAIN.pressure", at(0, 8), 5, "LREAL", "tank [bar]"),
        symbol("MAIN.valves", at(8, 64), BIG, "ARRAY [0..1] OF ST_Valve", ""),
        symbol("MAIN.grid", at(72, 16), 3, "ARRAY [1..2,-1..0] OF DINT", ""),
        symbol("MAIN.state", at(88, 2), 2, "E_State", ""),
        symbol("MAIN.delay", at(92, 4), 19, "T_Delay", ""),
        symbol("MAIN.name", at(96, 16), 30, "STRING(15)", ""),
        symbol("MAIN.label", at(112, 16), 31, "WSTRING(7)", ""),
        symbol("MAIN.begun", at(128, 4), 19, "DATE_AND_TIME", ""),
        symbol("GVL.count", at(132, 8), 21, "ULINT", ""),
        symbol("GVL.odd", at(140, 10), 32, "REAL80", ""),
        symbol("GVL.raw", at(150, 6), 17, "ARRAY [0..5] OF BYTE", ""),
    ]
    .concat()
}

fn split(symbols: &[u8], types: &[u8], arrays: Arrays) -> (Vec<Leaf>, Vec<Skipped>) {
    let (types, error) = DataTypes::read(types);
    assert_eq!(error, None);
    let mut splitting = Splitting::new(&types);
    splitting.arrays(arrays);
    let (mut leaves, mut skipped) = (Vec::new(), Vec::new());
    for symbol in Symbols::new(symbols) {
        splitting.split(&symbol.unwrap(), &mut |leaf| match leaf {
            Ok(leaf) => leaves.push(leaf),
            Err(part) => skipped.push(part),
        });
    }
    (leaves, skipped)
}

#[test]
fn structures_and_arrays_are_taken_apart() {
    let (leaves, skipped) = split(&symbols(), &types(), Arrays::Elements);
    let flat: Vec<(&str, u32, u32, ValueKind)> =
        leaves.iter().map(|leaf| (leaf.name.as_str(), leaf.place.offset, leaf.place.size, leaf.kind)).collect();
    let plain = ValueKind::Plain;
    let mut right = vec![("MAIN.pressure", 0, 8, plain(ElementType::F64))];
    let of_valve = |n: u32| 8 + 32 * n;
    for (n, names) in [
        [
            "MAIN.valves[0].open",
            "MAIN.valves[0].position",
            "MAIN.valves[0].steps[1]",
            "MAIN.valves[0].steps[2]",
            "MAIN.valves[0].steps[3]",
            "MAIN.valves[0].limit",
        ],
        [
            "MAIN.valves[1].open",
            "MAIN.valves[1].position",
            "MAIN.valves[1].steps[1]",
            "MAIN.valves[1].steps[2]",
            "MAIN.valves[1].steps[3]",
            "MAIN.valves[1].limit",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let at = of_valve(n as u32);
        right.push((names[0], at, 1, plain(ElementType::Bool)));
        right.push((names[1], at + 8, 8, plain(ElementType::F64)));
        right.extend((0..3).map(|i| (names[2 + i], at + 16 + 2 * i as u32, 2, plain(ElementType::I16))));
        let code = ["MAIN.valves[0].code[1]", "MAIN.valves[1].code[1]"][n];
        right.push((code, at + 23, 1, plain(ElementType::U8)));
        right.push((names[5], at + 22, 1, ValueKind::Bit(3)));
    }
    for (i, name) in ["MAIN.grid[1,-1]", "MAIN.grid[1,0]", "MAIN.grid[2,-1]", "MAIN.grid[2,0]"].into_iter().enumerate()
    {
        right.push((name, 72 + 4 * i as u32, 4, plain(ElementType::I32)));
    }
    right.push(("MAIN.state", 88, 2, plain(ElementType::I16)));
    right.push(("MAIN.delay", 92, 4, plain(ElementType::U32)));
    right.push(("MAIN.name", 96, 16, ValueKind::Text));
    right.push(("MAIN.label", 112, 16, ValueKind::WideText));
    right.push(("MAIN.begun", 128, 4, plain(ElementType::U32)));
    right.push(("GVL.count", 132, 8, plain(ElementType::U64)));
    let raw = ["GVL.raw[0]", "GVL.raw[1]", "GVL.raw[2]", "GVL.raw[3]", "GVL.raw[4]", "GVL.raw[5]"];
    right.extend(raw.into_iter().enumerate().map(|(i, name)| (name, 150 + i as u32, 1, plain(ElementType::U8))));
    assert_eq!(flat, right);

    let of = |name: &str| leaves.iter().find(|leaf| leaf.name == name).unwrap();
    assert_eq!(of("MAIN.state").description, "0 = Idle, 7 = Filling, -1 = Fault");
    let units = ["MAIN.delay", "MAIN.begun", "MAIN.pressure", "GVL.count"].map(|name| of(name).unit.as_str());
    assert_eq!(units, ["ms", "s", "bar", ""]);
    assert_eq!(of("MAIN.begun").description, "since 1970");
    assert_eq!(of("MAIN.pressure").description, "tank [bar]");
    let why = |name: &str| skipped.iter().find(|part| part.name == name).map(|part| part.why.as_str()).unwrap();
    assert!(why("MAIN.valves[0].next").contains("pointers"));
    assert!(why("GVL.odd").contains("REAL80"));
    assert_eq!(skipped.len(), 3);
}

#[test]
fn whole_arrays_are_one_value() {
    let (leaves, _) = split(&symbols(), &types(), Arrays::Whole);
    let of = |name: &str| leaves.iter().find(|leaf| leaf.name == name).map(|leaf| (leaf.place.offset, leaf.kind));
    assert_eq!(of("MAIN.grid"), Some((72, ValueKind::Array(ElementType::I32))));
    assert_eq!(of("GVL.raw"), Some((150, ValueKind::Array(ElementType::U8))));
    assert_eq!(of("MAIN.valves[1].steps"), Some((56, ValueKind::Array(ElementType::I16))));
    assert_eq!(of("MAIN.valves[1].position"), Some((48, ValueKind::Plain(ElementType::F64))));
}

#[test]
fn types_made_of_themselves_end() {
    let own = |name: &str, members: usize| {
        let member = |n: usize| {
            let name = format!("m{n}");
            TypeEntry { name: &name, kind: "T", size: 8, base: BIG, ..TypeEntry::default() }.bytes()
        };
        let members = (0..members).map(member).collect();
        TypeEntry { name, size: 8, base: BIG, members, ..TypeEntry::default() }.bytes()
    };
    // A thousand members at each of sixteen depths, none of which ever is a value.
    let (leaves, skipped) = split(&symbol("MAIN.t", (1, 0, 8), BIG, "T", ""), &own("T", 1_000), Arrays::Elements);
    assert!(leaves.is_empty());
    assert!(skipped.last().unwrap().why.contains("too many values"), "{:?}", skipped.last());
    let alias = TypeEntry { name: "A", kind: "B", size: 8, base: BIG, ..TypeEntry::default() }.bytes();
    let back = TypeEntry { name: "B", kind: "A", size: 8, base: BIG, ..TypeEntry::default() }.bytes();
    let (leaves, skipped) =
        split(&symbol("MAIN.a", (1, 0, 8), BIG, "A", ""), &[alias, back].concat(), Arrays::Elements);
    assert!(leaves.is_empty() && skipped[0].why.contains("too deep"), "{skipped:?}");
}

fn layout(groups: &str) -> AdsLayout {
    let text = format!("name = 'plc'\nkind = 'ads'\nhost = '10.0.0.5'\n{groups}");
    let source: SourceConfig = toml::from_str(&text).unwrap();
    compile_all(&[source]).unwrap().plcs.remove(0)
}

#[test]
fn groups_choose_by_patterns_and_say_what_they_miss() {
    let layout = layout(
        "[[group]]\ntable = 'a'\nsymbols = ['MAIN.valves', 'main.PRESSURE', 'MAIN.nothing', 'X.*']\nexclude = ['*.steps', '*.next', '*.code']\nstrip = 'main.'\n\
         [[group]]\ntable = 'b'\nsymbols = ['GVL.*']\narrays = 'whole'\n",
    );
    let groups: Vec<_> = layout.groups.iter().collect();
    let (found, error) = select(&groups, &symbols(), &types());
    assert_eq!(error, None);
    let names = |n: usize| found[n].leaves.iter().map(|leaf| leaf.name.as_str()).collect::<Vec<_>>();
    let valves = [
        "MAIN.pressure",
        "MAIN.valves[0].open",
        "MAIN.valves[0].position",
        "MAIN.valves[0].limit",
        "MAIN.valves[1].open",
        "MAIN.valves[1].position",
        "MAIN.valves[1].limit",
    ];
    assert_eq!(names(0), valves);
    assert_eq!(names(1), ["GVL.count", "GVL.raw"]);
    let troubles = |n: usize| found[n].troubles.iter().map(|t| (t.symbol.as_str(), t.why.as_str())).collect::<Vec<_>>();
    assert_eq!(
        troubles(0),
        [("MAIN.nothing", "the program has no such symbol"), ("X.*", "no symbol of the program is like that")]
    );
    assert_eq!(troubles(1).len(), 1);
    assert_eq!(strongback_sources::ads::select::channel_name(groups[0], "MAIN.pressure"), "pressure");
    // A damaged table gives what stands before the damage.
    let mut damaged = symbols();
    let second = 30 + "MAIN.pressure".len() + "LREAL".len() + "tank [bar]".len() + 3;
    damaged[second..second + 4].fill(0xff);
    let (found, error) = select(&groups, &damaged, &types());
    assert_eq!(found[0].leaves.len(), 1);
    assert_eq!(error.unwrap().offset, second);
}

#[test]
fn configurations_say_what_is_wrong() {
    let group = "[[group]]\ntable = 't'\nsymbols = ['MAIN.*']\n";
    for (text, path, why) in [
        (String::new(), "source[0].host", "missing"),
        ("host = 'a b'".into(), "source[0].host", "not an address or host name"),
        ("host = 'plc'\nnet_id = '1.2.3'".into(), "source[0].net_id", "six numbers"),
        ("host = 'plc'\nlisten = '127.0.0.1:1'".into(), "source[0].listen", "inetx"),
        ("host = 'plc'\ntimeout_ms = 1".into(), "source[0].timeout_ms", "10 to 60000"),
        (format!("host = 'plc'\n{group}cycle_ms = 5"), "source[0].group[0].cycle_ms", "cyclic-notification"),
        (
            format!("host = 'plc'\n{group}cycle_ms = 0.5\nmode = 'cyclic-notification'"),
            "source[0].group[0].cycle_ms",
            "1 to",
        ),
        (format!("host = 'plc'\n{group}rate_hz = 0"), "source[0].group[0].rate_hz", "not within"),
        (format!("host = 'plc'\n{group}rate_hz = 10\ncycle_ms = 100"), "source[0].group[0].rate_hz", "already"),
        ("host = 'plc'\n[[group]]\ntable = 't'\nsymbols = []".into(), "source[0].group[0].symbols", "1 to"),
        (format!("host = 'plc'\n{group}{group}"), "source[0].group[1].table", "fed by"),
    ] {
        let source: SourceConfig = toml::from_str(&format!("name = 'plc'\nkind = 'ads'\n{text}")).unwrap();
        let error = compile_all(&[source]).unwrap_err();
        assert_eq!(error.path, path, "{text}: {error}");
        assert!(error.reason.contains(why), "{text}: {error}");
    }
    let source = |name: &str, more: &str| -> SourceConfig {
        toml::from_str(&format!("name = '{name}'\nkind = 'ads'\nhost = 'plc'\n{more}")).unwrap()
    };
    let same = compile_all(&[source("a", ""), source("b", "")]).unwrap_err();
    assert!(same.reason.contains("one connection"), "{same}");
    compile_all(&[source("a", ""), source("b", "source_net_id = '1.2.3.4.5.6'")]).unwrap();
    let packets: SourceConfig =
        toml::from_str("name = 'p'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\nhost = 'plc'").unwrap();
    assert_eq!(compile_all(&[packets]).unwrap_err().path, "source[0].host");
    let cycle = layout(&format!("{group}rate_hz = 40")).groups[0].cycle;
    assert_eq!(cycle, std::time::Duration::from_millis(25));
}

fn leaf(place: PlcPlace) -> Leaf {
    Leaf {
        name: format!("{}:{}", place.group, place.offset),
        place,
        kind: ValueKind::Text,
        type_name: String::new(),
        unit: String::new(),
        description: String::new(),
        names: Vec::new(),
    }
}

prop_compose! {
    fn leaves()(places in prop::collection::vec((0..3_u32, 0..20_000_u32, 1..600_u32), 1..400)) -> Vec<Leaf> {
        let mut leaves: Vec<Leaf> =
            places.into_iter().map(|(group, offset, size)| leaf(PlcPlace { group, offset, size })).collect();
        plan::sort(&mut leaves);
        leaves
    }
}

proptest! {
    /// Every leaf lies in exactly one block, no block is too long or has a hole too wide, and no two could be one.
    #[test]
    fn blocks_hold_what_lies_close(leaves in leaves(), gap in prop::option::of(0..2_000_u32)) {
        let blocks = plan::blocks(&leaves, gap);
        let mut next = 0;
        for block in &blocks {
            prop_assert_eq!(block.leaves.start, next);
            next = block.leaves.end;
            let of = &leaves[block.leaves.clone()];
            let start = u64::from(block.place.offset);
            prop_assert_eq!(start, u64::from(of[0].place.offset));
            let mut end = start;
            for leaf in of {
                prop_assert_eq!(leaf.place.group, block.place.group);
                prop_assert!(u64::from(leaf.place.offset) <= end + u64::from(gap.unwrap_or(0)) || end == start);
                end = end.max(u64::from(leaf.place.offset) + u64::from(leaf.place.size));
            }
            prop_assert_eq!(end - start, u64::from(block.place.size));
            prop_assert!(of.len() == 1 || block.place.size <= plan::BLOCK_BYTES_MAX);
            prop_assert!(gap.is_some() || of.len() == 1);
        }
        prop_assert_eq!(next, leaves.len());
        // Requests take all blocks in order, and not too many at once.
        let mut next = 0;
        for request in plan::requests(&blocks, 1) {
            prop_assert_eq!(request.start, next);
            prop_assert!(!request.is_empty() && request.len() < SUM_MAX);
            next = request.end;
        }
        prop_assert_eq!(next, blocks.len());
    }

    /// There are never more notifications than handles.
    #[test]
    fn notifications_fit_their_handles(groups in prop::collection::vec((leaves(), any::<bool>()), 1..5), handles in 0..300_usize) {
        let wanted: Vec<NotificationRequest<'_>> =
            groups.iter().map(|(leaves, on_change)| NotificationRequest { leaves, on_change: *on_change }).collect();
        let planned = plan::notifications(&wanted, handles);
        prop_assert_eq!(planned.len(), groups.len());
        prop_assert!(planned.iter().flatten().map(Vec::len).sum::<usize>() <= handles);
    }
}

#[test]
fn bits_are_never_joined() {
    // Their offsets count bits: bytes from one to the other are something else.
    let leaves: Vec<Leaf> = (0..4).map(|i| leaf(PlcPlace { group: 0x4021, offset: i, size: 1 })).collect();
    assert_eq!(plan::blocks(&leaves, Some(plan::GAP_BYTES)).len(), 4);
}

#[test]
fn a_thousand_symbols_need_few_handles() {
    let mut leaves: Vec<Leaf> = (0..1_000).map(|i| leaf(PlcPlace { group: 0x4040, offset: 8 * i, size: 8 })).collect();
    plan::sort(&mut leaves);
    let planned = plan::notifications(&[NotificationRequest { leaves: &leaves, on_change: false }], plan::HANDLES_MAX);
    assert_eq!(planned[0].as_ref().unwrap().len(), 2);
    // A hundred single ones on change have a handle each, so that one change does not send the others.
    let some = &leaves[..100];
    let planned = plan::notifications(&[NotificationRequest { leaves: some, on_change: true }], plan::HANDLES_MAX);
    assert_eq!(planned[0].as_ref().unwrap().len(), 100);
}

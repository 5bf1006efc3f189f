//! Channels with a reduction: how they are defined, what is refused, and that the definition is kept.

mod kit;

use kit::*;
use strongback_store::inspect::{self, Depth};
use strongback_store::*;

const CAR: [(&str, ChannelType, Reduction); 5] = [
    ("rpm", ChannelType::F32, Reduction::Deadband { bound: 50.0 }),
    ("level", ChannelType::U16, Reduction::SwingingDoor { bound: 1.5 }),
    ("driving", ChannelType::Bool, Reduction::Step),
    ("name", ChannelType::String, Reduction::Step),
    ("raw", ChannelType::F32, Reduction::None),
];

fn reductions(store: &Store) -> Vec<(Reduction, Interpolation)> {
    let catalog = store.catalog();
    let stream = catalog.streams.iter().find(|s| s.key.table == "car").expect("the stream");
    stream.layout.channels.iter().map(|c| (c.reduction, c.interpolation)).collect()
}

#[test]
fn a_definition_is_kept_over_crash_and_end_and_in_the_footer() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = StoreOptions { segment_bytes: 1 << 20, ..StoreOptions::default() };
    let want = [
        (CAR[0].2, Interpolation::Hold),
        (CAR[1].2, Interpolation::Linear),
        (Reduction::Step, Interpolation::Hold),
        (Reduction::Step, Interpolation::Hold),
        (Reduction::None, Interpolation::Linear),
    ];
    let store = open(dir.path(), &options);
    let (stream, indices) = store.resolve(&spec("car", CAR), T0).expect("resolved");
    assert_eq!(reductions(&store), want);
    let mut batch = FrameBatch::new();
    batch.put_at(head(stream.id, T0), [(indices[0], Value::F32(900.0))]);
    store.append(&batch, T0);
    store.commit(T0).expect("committed");
    // Not closed: the definition comes back from the log.
    drop(store);
    let store = open(dir.path(), &options);
    assert_eq!(reductions(&store), want);
    store.close(T0).expect("closed");
    drop(store);
    let store = open(dir.path(), options);
    assert_eq!(reductions(&store), want);
    drop(store);
    let found = inspect::inspect(dir.path(), Depth::Everything).expect("inspected");
    assert_eq!(
        found.streams[&stream.id].reductions,
        ["rpm: deadband(50)", "level: swinging_door(1.5)", "driving: step", "name: step"]
    );
    assert!(found.to_string().contains("rpm: deadband(50)"), "{found}");
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions::default());
    for (kind, reduction, word) in [
        (ChannelType::Bool, Reduction::Deadband { bound: 1.0 }, "bool"),
        (ChannelType::String, Reduction::SwingingDoor { bound: 1.0 }, "string"),
        (ChannelType::F64, Reduction::Deadband { bound: -0.5 }, "zero or more"),
        (ChannelType::F64, Reduction::SwingingDoor { bound: f64::NAN }, "finite"),
    ] {
        let error = store.resolve(&spec("car", [("x", kind, reduction)]), T0).expect_err("refused");
        assert!(error.to_string().contains("stream car, channel x"), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.reason(), "bad_reduction");
    }
    assert!(store.catalog().streams.iter().all(|s| s.key.table != "car"), "nothing of it was made");
}

#[test]
fn a_channel_keeps_its_reduction() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), StoreOptions::default());
    let one = |reduction| spec("car", [("x", ChannelType::I16, reduction)]);
    store.resolve(&one(Reduction::None), T0).expect("without");
    // One that has none may get one; who asks for none asks for no change.
    store.resolve(&one(Reduction::SwingingDoor { bound: 2.0 }), T0).expect("with");
    store.resolve(&one(Reduction::None), T0).expect("as it is");
    assert_eq!(reductions(&store), [(Reduction::SwingingDoor { bound: 2.0 }, Interpolation::Linear)]);
    for other in [Reduction::Step, Reduction::SwingingDoor { bound: 3.0 }] {
        let error = store.resolve(&one(other), T0).expect_err("another");
        assert!(error.to_string().contains("recorded with swinging_door(2)"), "{error}");
    }
    // Its type widens as any other's.
    store.resolve(&spec("car", [("x", ChannelType::I64, Reduction::None)]), T0).expect("wider");
    assert_eq!(reductions(&store), [(Reduction::SwingingDoor { bound: 2.0 }, Interpolation::Linear)]);
}

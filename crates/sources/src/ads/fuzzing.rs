//! Fuzzing entry points: one for each decoder of bytes from the network. A crash is a panic.

use strongback_store::{ChannelIndex, FrameBatch, FrameHead, StreamId};

use super::leaf::{Arrays, Splitting};
use super::plan;
use super::table::{DataTypes, Symbols, UploadInfo};
use super::wire::{self, MessageKind, Notification, PlcPlace, SUM_MAX};

/// Maximum leaves of one input: a table that claims millions takes seconds and finds nothing more.
const LEAVES: usize = 10_000;

/// Decodes messages as a connection cuts them, and every kind of answer in them.
pub fn message(mut bytes: &[u8]) {
    while let Ok(Some(cut)) = wire::cut(bytes) {
        assert!(cut.size_bytes <= bytes.len() && cut.size_bytes >= wire::TCP_HEADER_BYTES + wire::AMS_HEADER_BYTES);
        bytes = &bytes[cut.size_bytes..];
        let Ok(message) = cut.message else { continue };
        if message.kind == MessageKind::Notification {
            notification(message.data);
        }
        let Ok(answer) = message.answer() else { continue };
        let _ = (wire::handle(answer), wire::state(answer), wire::device_info(answer));
        let Ok(read) = wire::read_bytes(answer) else { continue };
        let _ = UploadInfo::parse(read);
        tables(read);
        for count in [0, 1, 3, SUM_MAX] {
            let places = vec![PlcPlace { group: 0x4040, offset: 0, size: 8 }; count];
            let Ok(results) = wire::sum_results(read, &places) else { continue };
            let taken: usize = results.flatten().map(<[u8]>::len).sum();
            assert!(taken <= read.len());
        }
    }
}

/// Decodes the data of a notification.
pub fn notification(bytes: &[u8]) {
    let Ok(notification) = Notification::parse(bytes) else { return };
    let mut taken = 0;
    for sample in notification.samples() {
        taken += sample.data.len();
        let _ = wire::unix_ns(sample.filetime);
    }
    assert!(taken <= bytes.len());
}

/// Decodes tables of symbols and data types. The first two bytes are the length of the symbol table.
pub fn tables(bytes: &[u8]) {
    let &[low, high, ref rest @ ..] = bytes else { return };
    let (symbols, types) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let (types, _) = DataTypes::read(types);
    let mut splitting = Splitting::limited(&types, LEAVES);
    let mut leaves = Vec::new();
    for arrays in [Arrays::Elements, Arrays::Whole] {
        splitting.arrays(arrays);
        for symbol in Symbols::new(symbols).flatten() {
            splitting.split(&symbol, &mut |leaf| leaves.extend(leaf.ok()));
        }
    }
    plan::sort(&mut leaves);
    for gap in [None, Some(0), Some(plan::GAP_BYTES)] {
        for block in plan::blocks(&leaves, gap) {
            for leaf in &leaves[block.leaves] {
                let end = |place: PlcPlace| u64::from(place.offset) + u64::from(place.size);
                assert!(leaf.place.offset >= block.place.offset && end(leaf.place) <= end(block.place));
            }
        }
    }
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: StreamId(0), receive_time: 0, source_time: None, sequence: None });
    for leaf in leaves.iter().filter(|leaf| leaf.place.size < 1 << 16) {
        let mut value = rest.to_vec();
        value.resize(leaf.place.size as usize, 0x80);
        leaf.kind.push(&value, ChannelIndex(0), &mut batch);
        leaf.kind.push(rest, ChannelIndex(0), &mut batch);
        if batch.size_bytes() > 1 << 20 {
            break;
        }
    }
    batch.end();
}

/// Returns the seed corpus by target: captured messages, and tables made of them.
pub fn corpus(captured: &[&[u8]]) -> Vec<(&'static str, Vec<u8>)> {
    let mut found = Vec::new();
    for mut bytes in captured.iter().copied() {
        while let Ok(Some(cut)) = wire::cut(bytes) {
            let (message, rest) = bytes.split_at(cut.size_bytes);
            bytes = rest;
            found.push(("ads_message", message.to_vec()));
            let Ok(message) = cut.message else { continue };
            if message.kind == MessageKind::Notification {
                found.push(("ads_notification", message.data.to_vec()));
            } else if let Ok(table) = message.answer().map(|answer| wire::read_bytes(answer).unwrap_or(&[]))
                && Symbols::new(table).next().is_some_and(|symbol| symbol.is_ok())
            {
                let length = table.len().min(512);
                found.push(("ads_tables", [&(length as u16).to_le_bytes(), &table[..length]].concat()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPTURED: [&[u8]; 2] = [
        include_bytes!("../../tests/data/ads/adslib-answers.ams"),
        include_bytes!("../../tests/data/ads/rust-ads-answers.ams"),
    ];

    #[test]
    fn every_target_has_somewhere_to_begin() {
        let corpus = corpus(&CAPTURED);
        for target in ["ads_message", "ads_notification", "ads_tables"] {
            assert!(corpus.iter().any(|(of, _)| *of == target), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            end in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let corpus = corpus(&CAPTURED);
            let (target, bytes) = &corpus[seed.index(corpus.len())];
            let mut bytes = bytes.clone();
            changes.iter().for_each(|(at, to)| { let at = at.index(bytes.len()); bytes[at] = *to });
            if let Some(end) = end {
                bytes.truncate(end.index(bytes.len()));
            }
            match *target {
                "ads_message" => message(&bytes),
                "ads_notification" => notification(&bytes),
                _ => tables(&bytes),
            }
        }
    }
}

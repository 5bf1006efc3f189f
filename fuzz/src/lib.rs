//! Where the targets begin: bytes of real stores, captured messages of PLCs, captured packets and MCAP files, written to `corpus/TARGET` when a target starts.

use std::path::Path;

use strongback_store::fuzzing;

/// Writes the files that a target begins with: of a store made in memory, of the golden segment, of captures, and of MCAP.
///
/// # Panics
/// When they cannot be written.
pub fn seed(target: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = std::fs::read(root.join("../crates/store/tests/golden/v1.segment")).expect("the golden segment");
    let mut found = fuzzing::corpus();
    fuzzing::segment_of(&golden, &mut found);
    let captures = ["adslib-answers.ams", "rust-ads-answers.ams"]
        .map(|name| std::fs::read(root.join("../crates/sources/tests/data/ads").join(name)).expect("a capture"));
    found.extend(strongback_sources::ads::fuzzing::corpus(&captures.each_ref().map(Vec::as_slice)));
    let captures = ["inetx_test.pcap", "valid_paligned.pcap", "mpegts_input.pcap"]
        .map(|name| std::fs::read(root.join("../crates/sources/tests/data/inetx").join(name)).expect("a capture"));
    found.extend(strongback_sources::inetx::fuzzing::corpus(&captures.each_ref().map(Vec::as_slice)));
    found.extend(strongback_sources::mcap::fuzzing::corpus());
    let folder = root.join("corpus").join(target);
    std::fs::create_dir_all(&folder).expect("a folder for the corpus");
    for (n, (_, bytes)) in found.iter().enumerate().filter(|(_, (of, _))| *of == target) {
        std::fs::write(folder.join(format!("seed-{n:04}")), bytes).expect("a file of the corpus");
    }
}

//! The golden segment of blobs, and its reading by a second implementation.

use super::*;

/// What the golden segment holds: no blob, a small one, one of two chunks.
fn golden_contents() -> [Vec<u8>; 3] {
    let long = (0..132_008u32).map(|at| (at.wrapping_mul(at) >> 9) as u8 ^ (at >> 8) as u8).collect();
    [Vec::new(), b"an image".to_vec(), long]
}

/// The segment, as it is written now, and what is in it.
fn golden_now() -> (Vec<u8>, serde_json::Value) {
    let disk = FaultDisk::new(1_234);
    let store = open(&disk, StoreOptions { segment_bytes: 512 << 10, ..options() });
    let s = stream(&store, "golden.camera");
    let mut blobs = Vec::new();
    for (n, bytes) in golden_contents().iter().enumerate() {
        let reference = add(&store, s, n as u64, bytes, T0 + n as i64);
        blobs.push(serde_json::json!({
            "reference": format!("{}:{}:{}:{:08x}", reference.segment(), reference.offset(), bytes.len(), reference.crc()),
            "epoch": store.epoch(), "stored": (T0 + n as i64).to_string(),
            "sum": bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_string(),
        }));
        if n == 0 {
            // A writer that gives up in between.
            let mut dropped = store.blob(s).expect("a writer");
            dropped.write(&vec![7; CHUNK_BODY_BYTES + 1]).expect("written");
        }
    }
    let segment = store.segments().into_iter().find(|segment| segment.blobs).expect("a segment");
    let mut image = disk.content(&file_name(segment.id)).expect("a file");
    image.truncate(segment.size_bytes as usize);
    let id = segment.id;
    (image, serde_json::json!({ "id": id, "generation": id, "group": segment.group, "blobs": blobs }))
}

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Run by hand, for a new version alone: `cargo test -p strongback-store --lib -- --ignored golden`.
#[test]
#[ignore = "writes the golden files"]
fn make_the_golden_segment_of_blobs() {
    let (image, said) = golden_now();
    std::fs::write(golden("v1.blobs.segment"), image).expect("written");
    std::fs::write(golden("v1.blobs.json"), said.to_string()).expect("written");
}

#[test]
fn the_golden_segment_of_blobs_is_written_and_read_as_it_always_was() {
    let image = std::fs::read(golden("v1.blobs.segment")).expect("the golden file");
    let said = std::fs::read(golden("v1.blobs.json")).expect("the golden file");
    let said: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
    let (now, says) = golden_now();
    assert!(image == now, "other bytes than those of the golden file");
    assert_eq!(said, says);
    // By a second implementation, which follows the document.
    let output = std::process::Command::new(std::env::var("PYTHON").unwrap_or("python3".into()))
        .arg(golden("read_segment.py"))
        .arg(golden("v1.blobs.segment"))
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read, said);
}

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("superblock"),
    |bytes: &[u8]| strongback_store::fuzzing::superblock(bytes)
);

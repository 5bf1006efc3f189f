#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("mcap_file"),
    |bytes: &[u8]| strongback_sources::mcap::fuzzing::file(bytes)
);

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("recent"),
    |bytes: &[u8]| strongback_store::fuzzing::recent(bytes)
);

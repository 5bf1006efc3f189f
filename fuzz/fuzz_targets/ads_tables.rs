#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("ads_tables"),
    |bytes: &[u8]| strongback_sources::ads::fuzzing::tables(bytes)
);

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("pyramid"),
    |bytes: &[u8]| strongback_store::fuzzing::pyramid(bytes)
);

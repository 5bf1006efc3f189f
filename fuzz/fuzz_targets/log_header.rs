#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("log_header"),
    |bytes: &[u8]| strongback_store::fuzzing::log_header(bytes)
);

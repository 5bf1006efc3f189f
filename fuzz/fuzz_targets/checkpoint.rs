#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("checkpoint"),
    |bytes: &[u8]| strongback_store::fuzzing::checkpoint(bytes)
);

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("codec"),
    |bytes: &[u8]| strongback_store::fuzzing::codec(bytes)
);

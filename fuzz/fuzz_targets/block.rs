#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("block"),
    |bytes: &[u8]| strongback_store::fuzzing::block(bytes)
);

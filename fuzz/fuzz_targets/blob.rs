#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("blob"),
    |bytes: &[u8]| strongback_store::fuzzing::blob(bytes)
);

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("rdl"),
    |bytes: &[u8]| strongback_store::fuzzing::rdl(bytes)
);

#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("footer"),
    |bytes: &[u8]| strongback_store::fuzzing::footer(bytes)
);

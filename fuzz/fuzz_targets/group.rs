#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("group"),
    |bytes: &[u8]| strongback_store::fuzzing::group(bytes)
);

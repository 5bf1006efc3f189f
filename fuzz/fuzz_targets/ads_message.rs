#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("ads_message"),
    |bytes: &[u8]| strongback_sources::ads::fuzzing::message(bytes)
);

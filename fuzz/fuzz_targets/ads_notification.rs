#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("ads_notification"),
    |bytes: &[u8]| strongback_sources::ads::fuzzing::notification(bytes)
);

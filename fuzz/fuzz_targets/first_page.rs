#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("first_page"),
    |bytes: &[u8]| strongback_store::fuzzing::first_page(bytes)
);

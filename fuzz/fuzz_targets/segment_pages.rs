#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("segment_pages"),
    |bytes: &[u8]| strongback_store::fuzzing::segment_pages(bytes)
);

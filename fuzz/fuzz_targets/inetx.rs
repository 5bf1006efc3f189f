#![no_main]

libfuzzer_sys::fuzz_target!(
    init: strongback_fuzz::seed("inetx"),
    |bytes: &[u8]| strongback_sources::inetx::fuzzing::datagram(bytes)
);

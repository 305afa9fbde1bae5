#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cutout_fuzz::jpeg(bytes);
});

// SPDX-License-Identifier: Apache-2.0
//! See `firmware-api/tests/it/corpus/mod.rs`: the stored inputs run through the same function as a test.
#![no_main]
#![allow(dead_code, reason = "each target runs one of the functions")]

#[path = "../../../firmware-api/tests/it/bench/mod.rs"]
mod bench;
#[path = "../../../firmware-api/tests/it/corpus/mod.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| corpus::serial_frame(bytes));

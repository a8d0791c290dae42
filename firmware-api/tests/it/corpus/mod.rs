// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of this crate, which `replay.rs` runs on the stored corpus.

use crate::bench;
use lightloom_firmware_api::cmis::{Coded, RegisterAddress, cdb, lower, page_b0, page11, state};
use lightloom_firmware_api::device::SerialModule;
use lightloom_firmware_api::frame::{
    ENCODED_BYTES_MAX, Frame, FrameKind, PAYLOAD_BYTES_MAX, Reassembler, VERSION,
};
use lightloom_firmware_api::host::Host;
use lightloom_firmware_api::message::{Reply, Request};
use lightloom_firmware_api::module::Module;
use lightloom_firmware_api::time::Micros;

/// Uses the input as bytes for the device, as bytes for the host, as a message, and as a payload.
pub(crate) fn serial_frame(bytes: &[u8]) {
    let mut device = SerialModule::new(bench::module());
    let now = bench::activated_at();
    device.poll(now, |_| {});
    device.on_bytes(now, bytes, |frame| assert!(frame.len() <= ENCODED_BYTES_MAX));
    Host::new().receive(bytes, |_| {});

    let Some((&command, rest)) = bytes.split_first() else { return };
    let mut out = [0; PAYLOAD_BYTES_MAX];
    if let Ok(request) = Request::decode(command, rest) {
        let length = request.encode(&mut out);
        assert_eq!((request.command(), &out[..length]), (command, rest));
    }
    if let Some(reply) = Reply::decode(command, 0, rest) {
        let (status, length) = reply.encode(&mut out);
        assert_eq!((status, &out[..length]), (0, rest));
    }

    let payload = &bytes[..bytes.len().min(PAYLOAD_BYTES_MAX)];
    let frame = Frame {
        version: VERSION,
        kind: FrameKind::Reply,
        sequence: 1,
        command,
        status: 0,
        payload,
    };
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = frame.encode(&mut line);
    let mut reassembler = Reassembler::new();
    let mut seen = 0;
    for &byte in &line[..length] {
        if let Some(received) = reassembler.push(byte) {
            assert_eq!(received, Ok(frame));
            seen += 1;
        }
    }
    assert_eq!(seen, 1, "one frame in, one frame out");
}

/// Treats the input as a sequence of bus actions: wait, read, write, toggle the low-power pin.
pub(crate) fn cmis(bytes: &[u8]) {
    let mut module = bench::module();
    let mut now = bench::activated_at();
    let mut rest = bytes;
    while let [act, offset, argument, tail @ ..] = rest {
        rest = tail;
        match act % 5 {
            0 => now = now + Micros(u64::from(*offset) * u64::from(*argument)),
            1 => {
                let mut out = [0; 16];
                let _ = module.bus_read(now, *offset, &mut out[..usize::from(argument % 16)]);
            }
            2 => {
                let (written, tail) = rest.split_at(rest.len().min(usize::from(argument % 16)));
                let _ = module.bus_write(now, *offset, written);
                rest = tail;
            }
            3 => module.set_low_power_pin(now, argument % 2 == 1),
            _ => {
                let _ = module.bus_write(now, 127, &[*argument]);
            }
        }
    }
    assert_sane(&mut module, now);
}

/// Uses the input as a CDB page, and corrects its check code if the first byte is odd.
pub(crate) fn cdb(bytes: &[u8]) {
    let mut page = [0; cdb::MESSAGE_BYTES];
    let length = bytes.len().min(cdb::MESSAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    if bytes.first().is_some_and(|first| first % 2 == 1) {
        page[0] = bytes[0] & 0x80;
        let body = usize::from(page[4]).min(cdb::PAYLOAD_BYTES_MAX);
        page[4] = body as u8;
        let sum = page[..5].iter().chain(&page[8..8 + body]).fold(0u8, |s, &b| s.wrapping_add(b));
        page[5] = 0xff - sum;
    }
    let _ = (cdb::parse_request(&page), cdb::parse_reply(&page));
    let mut module = bench::module();
    let mut now = bench::activated_at();
    let _ = module.write(now, RegisterAddress::page(cdb::PAGE, 130), &page[2..6]);
    let _ = module.write(now, RegisterAddress::page(cdb::PAGE, 136), &page[8..]);
    let _ = module.write(now, cdb::COMMAND, &page[..2]);
    now = now + Micros(100_000);
    let mut reply = [0; cdb::MESSAGE_BYTES];
    module.read(now, cdb::COMMAND, &mut reply).expect("the page exists");
    assert!(cdb::parse_reply(&reply).is_some(), "whatever was asked, the reply checks");
    let status = lower::CDB_STATUS.get(&module).and_then(cdb::CdbStatus::from_code);
    assert!(status.is_some_and(|status| !status.is_busy()), "{status:?}");
    assert_sane(&mut module, now);
}

/// Checks that every coded register contains a valid code.
fn assert_sane(module: &mut Module<bench::Bench>, now: Micros) {
    let mut now = now;
    for _ in 0..64 {
        let Some(next) = module.next_wakeup() else { break };
        now = now.max(next);
        module.poll(now);
        assert!(module.next_wakeup().is_none_or(|again| again > now), "what is due is done");
    }
    let at = now + Micros(10_000_000);
    for page in [0x00, 0x11, page_b0::PAGE] {
        let _ = module.read(at, RegisterAddress::page(page, 128), &mut [0; 128]);
    }
    assert!(lower::MODULE_STATE.get(module).is_some());
    for lane in 0..8 {
        assert!(page11::DATA_PATH_STATE.get(module, lane).is_some());
        let config: Option<state::ConfigStatus> = page11::CONFIG_STATUS.get(module, lane);
        assert!(config.is_some());
        assert!(page_b0::fire_outcome(lane).get(module).is_some());
        assert!(page_b0::committed(lane).get(module).is_some());
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_firmware_api::frame::{
    ENCODED_BYTES_MAX, Frame, FrameKind, PAYLOAD_BYTES_MAX, VERSION,
};
use lightloom_firmware_api::message::{Event, Reply, command};

#[derive(Clone, Debug)]
pub struct AskedFrame {
    pub sequence: u16,
    pub command: u8,
    pub payload: Vec<u8>,
}

pub fn encode_event(number: u16, event: &Event) -> Vec<u8> {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let length = event.encode(&mut payload);
    line(FrameKind::Event, number, command::EVENT, 0, &payload[..length])
}

pub fn encode(asked: &AskedFrame, reply: &Reply<'_>) -> Vec<u8> {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let (status, length) = reply.encode(&mut payload);
    line(FrameKind::Reply, asked.sequence, asked.command, status, &payload[..length])
}

fn line(kind: FrameKind, sequence: u16, command: u8, status: u8, payload: &[u8]) -> Vec<u8> {
    let frame = Frame { version: VERSION, kind, sequence, command, status, payload };
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = frame.encode(&mut line);
    line[..length].to_vec()
}

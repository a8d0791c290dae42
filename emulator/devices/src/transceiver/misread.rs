// SPDX-License-Identifier: Apache-2.0
//! Misbehaviours of a module, implemented as changes to encoded frames. The firmware is not modified.

use lightloom_firmware_api::frame::{ENCODED_BYTES_MAX, Frame, FrameError, FrameKind, Reassembler};
use lightloom_firmware_api::message::command;

use crate::misbehave::{Misbehaviour as M, Misbehaviours};

const OWN_SEQUENCE: u16 = 0xfffe;

#[derive(Clone, Debug, Default)]
pub(super) struct Misread {
    arriving: Reassembler,
    read: [u8; 3],
    last_fired: u32,
    extra_generations: u32,
    frozen_generation: Option<u32>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(word.unwrap_or_default())
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut line = [0; ENCODED_BYTES_MAX];
    let length = frame.encode(&mut line);
    line[..length].to_vec()
}

impl Misread {
    pub(super) fn request(
        &mut self,
        breaks: Misbehaviours,
        input: &[u8],
        sent: &mut Vec<Vec<u8>>,
    ) -> Vec<u8> {
        if breaks.is_empty() {
            return input.to_vec();
        }
        let mut understood = Vec::new();
        let mut arriving = std::mem::take(&mut self.arriving);
        for &byte in input {
            match arriving.push(byte) {
                Some(Ok(frame)) => self.take(breaks, frame, &mut understood, sent),
                Some(Err(FrameError::Crc)) if breaks.has(M::AnswersBrokenFrames) => {
                    let reply = Frame {
                        version: 1,
                        kind: FrameKind::Reply,
                        sequence: 0,
                        command: command::RESET,
                        status: 0,
                        payload: &[],
                    };
                    sent.push(encoded(&reply));
                }
                Some(Err(_)) | None => {}
            }
        }
        self.arriving = arriving;
        understood
    }

    fn take(
        &mut self,
        breaks: Misbehaviours,
        mut frame: Frame<'_>,
        understood: &mut Vec<u8>,
        sent: &mut Vec<Vec<u8>>,
    ) {
        if breaks.has(M::AnswersOtherVersions) {
            frame.version = 1;
        }
        let takes_nothing = matches!(frame.command, command::HELLO | command::STATUS);
        if breaks.has(M::TakesLongPayloads) && takes_nothing {
            frame.payload = &[];
        }
        let is_known = frame.command <= command::GO && frame.command != 0;
        let unknown = breaks.has(M::AnswersUnknownCommands) && !is_known;
        let arms_none =
            breaks.has(M::ArmsNone) && frame.command == command::ARM && word(frame.payload, 0) == 0;
        if unknown || arms_none {
            let payload: &[u8] = if arms_none { &[0; 12] } else { &[] };
            sent.push(encoded(&Frame { kind: FrameKind::Reply, payload, ..frame }));
            return;
        }
        match frame.command {
            command::READ => self.read.copy_from_slice(frame.payload.get(..3).unwrap_or(&[0; 3])),
            command::FIRE => {
                let transaction = word(frame.payload, 0);
                if transaction == self.last_fired && breaks.has(M::FiresTwice) {
                    self.extra_generations += 1;
                }
                self.last_fired = transaction;
            }
            _ => {}
        }
        understood.extend(encoded(&frame));
        if frame.command == command::ARM && breaks.has(M::MovesOnArm) && frame.payload.len() > 4 {
            let mut payload = [0, 0, 0, 0, 1];
            payload[..4].copy_from_slice(&frame.payload[..4]);
            let fire = Frame {
                sequence: OWN_SEQUENCE,
                command: command::FIRE,
                payload: &payload,
                ..frame
            };
            understood.extend(encoded(&fire));
        }
    }

    pub(super) fn reply(&mut self, breaks: Misbehaviours, said: Vec<u8>) -> Vec<u8> {
        if breaks.is_empty() {
            return said;
        }
        let mut leaving = Reassembler::new();
        for &byte in &said {
            if let Some(Ok(frame)) = leaving.push(byte)
                && frame.kind == FrameKind::Reply
            {
                return self.rewrite(breaks, &frame);
            }
        }
        said
    }

    fn rewrite(&mut self, breaks: Misbehaviours, frame: &Frame<'_>) -> Vec<u8> {
        if breaks.has(M::MovesOnArm) && frame.sequence == OWN_SEQUENCE {
            return Vec::new();
        }
        let (mut sequence, mut status) = (frame.sequence, frame.status);
        let mut payload = frame.payload.to_vec();
        if breaks.has(M::OtherSequence) {
            sequence = sequence.wrapping_add(1);
        }
        match (frame.command, status) {
            (command::HELLO, 0) if breaks.has(M::OddVersions) => {
                payload[..2].copy_from_slice(&[2, 1])
            }
            (command::READ, 0) if breaks.has(M::BadChecksum) => self.break_checksum(&mut payload),
            (command::WRITE, 8) if breaks.has(M::WritesAnything) => status = 0,
            (command::ARM, 0) if breaks.has(M::ArmsAnyPath) => {
                payload[4..].iter_mut().for_each(|outcome| *outcome = 1);
            }
            (command::FIRE, 3) if breaks.has(M::FiresAnything) => {
                (status, payload) = (0, vec![0; 24]);
                payload[..4].copy_from_slice(&self.last_fired.to_be_bytes());
                payload[8..16].fill(1);
            }
            (command::FIRE | command::GO, 0) => self.recount(breaks, &mut payload[4..8]),
            (command::STATUS, 0) => {
                self.recount(breaks, &mut payload[15..19]);
                if breaks.has(M::HidesArmed) {
                    payload[7..11].fill(0);
                }
                if breaks.has(M::FrozenUptime) {
                    payload[2..6].copy_from_slice(&1_000u32.to_be_bytes());
                }
            }
            _ => {}
        }
        encoded(&Frame { sequence, status, payload: &payload, ..*frame })
    }

    fn recount(&mut self, breaks: Misbehaviours, generation: &mut [u8]) {
        let mut count = word(generation, 0).wrapping_add(self.extra_generations);
        if breaks.has(M::FrozenGeneration) {
            count = *self.frozen_generation.get_or_insert(count);
        }
        generation.copy_from_slice(&count.to_be_bytes());
    }

    fn break_checksum(&self, bytes: &mut [u8]) {
        let [_, page, offset] = self.read;
        let at = 222usize.checked_sub(usize::from(offset)).filter(|_| page == 0);
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0xff;
        }
    }
}

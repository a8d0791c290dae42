// SPDX-License-Identifier: Apache-2.0
//! Framing on the serial line: `00 COBS(header payload CRC-32) 00`.
//!
//! ```text
//!  0        1      2..4       4         5        6..8     8..8+n    8+n..12+n
//! ┌─────────┬──────┬──────────┬─────────┬────────┬────────┬─────────┬────────┐
//! │ version │ kind │ sequence │ command │ status │ length │ payload │ CRC-32 │  big-endian
//! └─────────┴──────┴──────────┴─────────┴────────┴────────┴─────────┴────────┘
//! ```
//!
//! COBS removes all zero bytes, so a receiver resynchronises at the next zero. The leading zero terminates
//! preceding noise. The CRC is CRC-32/ISO-HDLC (IEEE 802.3) over header and payload. A receiver needs at most
//! [`ENCODED_BYTES_MAX`] bytes of memory.

use crc::{CRC_32_ISO_HDLC, Crc};

use crate::wire::{Reader, Writer, codes};

/// Default bit rate of a serial device (8N1).
pub const BITS_PER_SECOND: u32 = 921_600;

/// Protocol version of this crate.
pub const VERSION: u8 = 1;

/// Header size.
pub const HEADER_BYTES: usize = 8;

/// Maximum payload size: a 128-byte page with its address.
pub const PAYLOAD_BYTES_MAX: usize = 136;

/// Size of the CRC after the payload.
pub const CRC_BYTES: usize = 4;

const FRAME_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX + CRC_BYTES;

/// Maximum encoded size, including both delimiters.
pub const ENCODED_BYTES_MAX: usize = cobs::max_encoding_length(FRAME_BYTES_MAX) + 2;

/// Buffer for one frame on the line.
pub type EncodedBuffer = [u8; ENCODED_BYTES_MAX];

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

codes! {
    /// Direction and purpose of a frame.
    FrameKind {
        /// A request from host to device.
        Request = 1,
        /// A reply from device to host, with the request's sequence number.
        Reply = 2,
        /// An unsolicited event from device to host, with a sequence number from the device. Since 1.2.
        Event = 3,
        /// An acknowledgement from host to device, with the sequence number of the event. Since 1.2.
        Acknowledge = 4,
    }
}

/// A frame with a borrowed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Protocol version of the sender.
    pub version: u8,
    /// Request, reply, event or acknowledgement.
    pub kind: FrameKind,
    /// Sequence number chosen by the sender, and repeated in the reply or acknowledgement.
    pub sequence: u16,
    /// Command code (see [`crate::message::command`]), repeated in the reply.
    pub command: u8,
    /// Zero, or in a reply the refusal code.
    pub status: u8,
    /// Payload of at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: &'a [u8],
}

/// Why a frame is invalid. Invalid frames are never answered, so the sender times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum FrameError {
    TooLong,
    TooShort,
    Framing,
    Crc,
    Length,
    Kind,
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::TooLong => "frame too long",
            Self::TooShort => "frame too short",
            Self::Framing => "not COBS",
            Self::Crc => "wrong CRC",
            Self::Length => "wrong length field",
            Self::Kind => "unknown kind of frame",
        })
    }
}

impl core::error::Error for FrameError {}

impl<'a> Frame<'a> {
    /// Encodes the frame with delimiters, and returns its length. Panics if the payload exceeds [`PAYLOAD_BYTES_MAX`].
    pub fn encode(&self, out: &mut EncodedBuffer) -> usize {
        assert!(self.payload.len() <= PAYLOAD_BYTES_MAX, "payloads are bounded");
        let mut plain = [0; FRAME_BYTES_MAX];
        let mut writer = Writer::new(&mut plain);
        writer.put(self.version).put(self.kind).put(self.sequence);
        writer.put(self.command).put(self.status);
        writer.put(self.payload.len() as u16).slice(self.payload);
        let body_bytes = writer.length();
        let crc = CRC.checksum(&plain[..body_bytes]);
        plain[body_bytes..body_bytes + CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
        cobs::encode_including_sentinels(&plain[..body_bytes + CRC_BYTES], out)
    }

    fn parse(plain: &'a [u8]) -> Result<Self, FrameError> {
        if plain.len() < HEADER_BYTES + CRC_BYTES {
            return Err(FrameError::TooShort);
        }
        let (body, crc) = plain.split_at(plain.len() - CRC_BYTES);
        if CRC.checksum(body).to_be_bytes() != crc {
            return Err(FrameError::Crc);
        }
        let mut reader = Reader(body);
        Self::parse_body(&mut reader).ok_or(FrameError::TooShort)?
    }

    fn parse_body(reader: &mut Reader<'a>) -> Option<Result<Self, FrameError>> {
        let (version, kind) = reader.get::<(u8, u8)>()?;
        let (sequence, (command, status)) = reader.get()?;
        let length: u16 = reader.get()?;
        if usize::from(length) != reader.0.len() || reader.0.len() > PAYLOAD_BYTES_MAX {
            return Some(Err(FrameError::Length));
        }
        let Some(kind) = FrameKind::from_code(kind) else { return Some(Err(FrameError::Kind)) };
        Some(Ok(Self { version, kind, sequence, command, status, payload: reader.0 }))
    }
}

/// Assembles frames from received bytes.
#[derive(Clone, Debug)]
pub struct Reassembler {
    buffer: [u8; cobs::max_encoding_length(FRAME_BYTES_MAX)],
    length: usize,
    overflowed: bool,
}

impl Default for Reassembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Reassembler {
    /// Creates an empty buffer.
    pub const fn new() -> Self {
        Self {
            buffer: [0; cobs::max_encoding_length(FRAME_BYTES_MAX)],
            length: 0,
            overflowed: false,
        }
    }

    /// Adds a byte. A delimiter completes a frame or ends an invalid one; repeated delimiters are ignored.
    pub fn push(&mut self, byte: u8) -> Option<Result<Frame<'_>, FrameError>> {
        if byte != 0 {
            match self.buffer.get_mut(self.length) {
                Some(slot) => {
                    *slot = byte;
                    self.length += 1;
                }
                None => self.overflowed = true,
            }
            return None;
        }
        let length = core::mem::take(&mut self.length);
        if core::mem::take(&mut self.overflowed) {
            return Some(Err(FrameError::TooLong));
        }
        if length == 0 {
            return None;
        }
        Some(match cobs::decode_in_place(&mut self.buffer[..length]) {
            Ok(plain_bytes) => Frame::parse(&self.buffer[..plain_bytes]),
            Err(_) => Err(FrameError::Framing),
        })
    }

    /// Discards a partial frame. Must be called after the line has been reopened.
    pub fn reset(&mut self) {
        self.length = 0;
        self.overflowed = false;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    type Seen = Result<(u16, u8, Vec<u8>), FrameError>;

    fn received(line: &[u8]) -> Vec<Seen> {
        let mut reassembler = Reassembler::new();
        let mut seen = Vec::new();
        for &byte in line {
            if let Some(result) = reassembler.push(byte) {
                seen.push(
                    result.map(|frame| (frame.sequence, frame.command, frame.payload.to_vec())),
                );
            }
        }
        seen
    }

    fn encoded(sequence: u16, payload: &[u8]) -> Vec<u8> {
        let frame = Frame {
            version: VERSION,
            kind: FrameKind::Request,
            sequence,
            command: 7,
            status: 0,
            payload,
        };
        let mut out = [0; ENCODED_BYTES_MAX];
        let length = frame.encode(&mut out);
        out[..length].to_vec()
    }

    #[test]
    fn frame_encoding_unchanged() {
        // The expected CRC-32 was computed with zlib.
        let expected = [
            0x00, 0x06, 0x01, 0x01, 0x12, 0x34, 0x07, 0x01, 0x03, 0x02, 0xab, 0x05, 0x2a, 0xf3,
            0x21, 0xe8, 0x00,
        ];
        assert_eq!(encoded(0x1234, &[0xab, 0x00]), expected);
    }

    #[test]
    fn noise_before_a_frame_does_not_lose_the_frame() {
        let mut line = std::vec![0x55, 0xaa, 0x13];
        line.extend(encoded(5, b"abc"));
        let seen = received(&line);
        assert!(seen[0].is_err());
        assert_eq!(seen[1], Ok((5, 7, b"abc".to_vec())));
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn flood_without_delimiter_is_one_error_in_bounded_memory() {
        let mut line = std::vec![0x11; 100_000];
        line.extend(encoded(6, b""));
        assert_eq!(received(&line), [Err(FrameError::TooLong), Ok((6, 7, Vec::new()))]);
    }

    proptest! {
        #[test]
        fn frames_round_trip(sequence: u16, payload in prop::collection::vec(any::<u8>(), 0..=PAYLOAD_BYTES_MAX)) {
            let line = encoded(sequence, &payload);
            prop_assert!(line[1..line.len() - 1].iter().all(|&byte| byte != 0));
            prop_assert_eq!(received(&line), [Ok((sequence, 7, payload))]);
        }

        #[test]
        fn detects_every_flipped_bit(payload in prop::collection::vec(any::<u8>(), 0..40), bit in 0usize..400) {
            let mut line = encoded(9, &payload);
            let bit = bit % (line.len() * 8);
            line[bit / 8] ^= 1 << (bit % 8);
            for result in received(&line) {
                // If a bit flip in the leading delimiter merges noise with the frame, the frame is lost.
                prop_assert!(result.is_err() || result == Ok((9, 7, payload.clone())));
            }
        }

        #[test]
        fn garbage_never_panics(line in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = received(&line);
        }
    }
}

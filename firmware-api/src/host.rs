// SPDX-License-Identifier: Apache-2.0
//! The host side of the serial line: encodes requests and decodes replies.
//!
//! [`Host`] numbers requests and matches replies. The caller handles timeouts and retries. The following
//! rules prevent an unknown outcome from causing a wrong circuit:
//!
//! 1. Keep one request in flight per line. Drop replies with other sequence numbers, which are late.
//! 2. After a timeout, do not assume an outcome: send [`Request::Status`] and compare. It is safe to repeat
//!    the same fire request, but do not arm a new transaction before the state of the old one is known.
//! 3. Success means that *the generation has advanced and the active path is the target path*. The absence of
//!    an error is not enough.
//!
//! ```
//! use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
//! use lightloom_firmware_api::host::Host;
//! use lightloom_firmware_api::message::Request;
//!
//! let mut host = Host::new();
//! let mut line = [0; ENCODED_BYTES_MAX];
//! let (sequence, length) = host.request(&Request::Status, &mut line);
//! // … write `line[..length]`, read `input` …
//! let input: &[u8] = &[];
//! host.receive(input, |received| match received {
//!     Ok(answer) if answer.sequence == sequence => { /* answer.reply */ }
//!     Ok(_late) => {}
//!     Err(_noise) => { /* count it */ }
//! });
//! # assert!(length > 0);
//! ```

use crate::frame::{
    EncodedBuffer, Frame, FrameError, FrameKind, PAYLOAD_BYTES_MAX, Reassembler, VERSION,
};
use crate::message::{Epoch, Event, Reply, Request, command};

/// Sequence number of a request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(pub u16);

/// A reply with its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Number of the request.
    pub sequence: Sequence,
    /// The reply.
    pub reply: Reply<'a>,
}

/// A decoded message from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A reply to a request.
    Answer(Answer<'a>),
    /// An event. The host must acknowledge it, even if it is a duplicate.
    Event(Sequence, Event),
}

/// Why received bytes were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// The frame is invalid.
    Frame(FrameError),
    /// The frame has another protocol version.
    Version(u8),
    /// The frame is valid but not a known reply, such as an echo of the request.
    NotAReply,
}

impl core::fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::Version(version) => write!(f, "protocol version {version}, not {VERSION}"),
            Self::NotAReply => f.write_str("not a reply"),
        }
    }
}

impl core::error::Error for ReceiveError {}

/// The host side of a serial line.
#[derive(Clone, Debug, Default)]
pub struct Host {
    last_sequence: u16,
    reassembler: Reassembler,
}

impl Host {
    /// Creates a host that numbers its requests from 1.
    pub const fn new() -> Self {
        Self { last_sequence: 0, reassembler: Reassembler::new() }
    }

    /// Creates a host that numbers its requests after `last`, to avoid numbers of late replies.
    pub const fn continuing_after(last: Sequence) -> Self {
        Self { last_sequence: last.0, reassembler: Reassembler::new() }
    }

    /// Encodes a request, and returns its number and encoded length. Panics if a register write exceeds
    /// [`crate::message::REGISTER_BYTES_MAX`].
    pub fn request(&mut self, request: &Request<'_>, out: &mut EncodedBuffer) -> (Sequence, usize) {
        self.last_sequence = self.last_sequence.wrapping_add(1);
        let sequence = Sequence(self.last_sequence);
        (sequence, encode_request(sequence, request, out))
    }

    /// Decodes received bytes and passes each answer or error to `on`. Events are reported as errors.
    pub fn receive(&mut self, input: &[u8], mut on: impl FnMut(Result<Answer<'_>, ReceiveError>)) {
        self.receive_all(input, |received| match received {
            Ok(Received::Answer(answer)) => on(Ok(answer)),
            Ok(Received::Event(..)) => on(Err(ReceiveError::NotAReply)),
            Err(error) => on(Err(error)),
        });
    }

    /// Decodes received bytes and passes each answer, event or error to `on`.
    pub fn receive_all(
        &mut self,
        input: &[u8],
        mut on: impl FnMut(Result<Received<'_>, ReceiveError>),
    ) {
        for &byte in input {
            if let Some(result) = self.reassembler.push(byte) {
                on(result.map_err(ReceiveError::Frame).and_then(|frame| received(&frame)));
            }
        }
    }

    /// Discards a partial frame. Must be called after the line has been reopened.
    pub fn reset(&mut self) {
        self.reassembler.reset();
    }
}

/// Encodes a request with a given number. A retry keeps its number, so that the reply to either transmission
/// is accepted. Panics if a register write exceeds [`crate::message::REGISTER_BYTES_MAX`].
pub fn encode_request(sequence: Sequence, request: &Request<'_>, out: &mut EncodedBuffer) -> usize {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let length = request.encode(&mut payload);
    encode(FrameKind::Request, sequence, request.command(), &payload[..length], out)
}

/// Encodes a request with an epoch, for modules since 1.4. A device refuses it after a request from a later
/// epoch. Panics for register writes and module names, because their payloads have no space for an epoch.
pub fn encode_in_epoch(
    sequence: Sequence,
    epoch: Epoch,
    request: &Request<'_>,
    out: &mut EncodedBuffer,
) -> usize {
    let (mut plain, mut payload) = ([0; PAYLOAD_BYTES_MAX], [0; PAYLOAD_BYTES_MAX]);
    let length = request.encode(&mut plain);
    let (head, rest) = payload.split_at_mut(8);
    head.copy_from_slice(&epoch.0.to_be_bytes());
    rest[..length].copy_from_slice(&plain[..length]);
    let command = request.command() | command::IN_EPOCH;
    encode(FrameKind::Request, sequence, command, &payload[..8 + length], out)
}

fn encode(
    kind: FrameKind,
    sequence: Sequence,
    command: u8,
    payload: &[u8],
    out: &mut EncodedBuffer,
) -> usize {
    let sequence = sequence.0;
    Frame { version: VERSION, kind, sequence, command, status: 0, payload }.encode(out)
}

/// Encodes an acknowledgement, and returns its length.
pub fn acknowledge(number: Sequence, out: &mut EncodedBuffer) -> usize {
    encode(FrameKind::Acknowledge, number, command::EVENT, &[], out)
}

fn received<'a>(frame: &Frame<'a>) -> Result<Received<'a>, ReceiveError> {
    if frame.version != VERSION {
        return Err(ReceiveError::Version(frame.version));
    }
    let sequence = Sequence(frame.sequence);
    let received = match frame.kind {
        FrameKind::Reply => Reply::decode(frame.command, frame.status, frame.payload)
            .map(|reply| Received::Answer(Answer { sequence, reply })),
        FrameKind::Event if frame.command == command::EVENT => {
            Event::decode(frame.payload).map(|event| Received::Event(sequence, event))
        }
        FrameKind::Event | FrameKind::Request | FrameKind::Acknowledge => None,
    };
    received.ok_or(ReceiveError::NotAReply)
}

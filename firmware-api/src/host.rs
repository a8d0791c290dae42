// SPDX-License-Identifier: Apache-2.0
//! The host half of the serial line: requests to bytes, bytes to replies.
//!
//! [`Host`] numbers requests and finds the replies; timeouts and repeats are the caller's, who
//! owns the clock. Rules that keep an unknown outcome from becoming a wrong circuit:
//!
//! 1. One request in flight a line. A reply whose number is not the awaited one is late: drop it.
//! 2. No reply in time: ask [`Request::Status`] and compare; do not assume either outcome. To send
//!    the same fire again is harmless; to arm a new transaction before the old one is accounted
//!    for is not.
//! 3. Success is *generation advanced and active path equals wanted*, never the absence of an
//!    error.
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

/// The number that ties a reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(pub u16);

/// A reply and the request it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Which request.
    pub sequence: Sequence,
    /// What the device said.
    pub reply: Reply<'a>,
}

/// What arrives from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// To a request.
    Answer(Answer<'a>),
    /// Unasked. To be [acknowledged](acknowledge) under its number, also when it has been seen before.
    Event(Sequence, Event),
}

/// Why received bytes are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// Not a frame.
    Frame(FrameError),
    /// A frame of another protocol version.
    Version(u8),
    /// A frame that is not a reply this version knows, such as an echo of our own request.
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

/// One end of one serial line.
#[derive(Clone, Debug, Default)]
pub struct Host {
    last_sequence: u16,
    reassembler: Reassembler,
}

impl Host {
    /// At the start of a line.
    #[must_use]
    pub const fn new() -> Self {
        Self { last_sequence: 0, reassembler: Reassembler::new() }
    }

    /// At the start of a line, numbering on from `last`: a host that restarts should not begin
    /// at the same number, or a late reply to its former self could be taken for a fresh one.
    #[must_use]
    pub const fn continuing_after(last: Sequence) -> Self {
        Self { last_sequence: last.0, reassembler: Reassembler::new() }
    }

    /// Writes `request` as a frame; returns its number and its length on the line.
    ///
    /// # Panics
    /// If a register write is longer than [`crate::message::REGISTER_BYTES_MAX`].
    pub fn request(&mut self, request: &Request<'_>, out: &mut EncodedBuffer) -> (Sequence, usize) {
        self.last_sequence = self.last_sequence.wrapping_add(1);
        let sequence = Sequence(self.last_sequence);
        (sequence, encode_request(sequence, request, out))
    }

    /// Takes bytes from the line and hands on each answer or error in them. For hosts that ask for no events: they
    /// are errors here.
    pub fn receive(&mut self, input: &[u8], mut on: impl FnMut(Result<Answer<'_>, ReceiveError>)) {
        self.receive_all(input, |received| match received {
            Ok(Received::Answer(answer)) => on(Ok(answer)),
            Ok(Received::Event(..)) => on(Err(ReceiveError::NotAReply)),
            Err(error) => on(Err(error)),
        });
    }

    /// Takes bytes from the line and hands on each answer, event or error in them.
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

    /// Forgets a frame begun, after the line was opened again.
    pub fn reset(&mut self) {
        self.reassembler.reset();
    }
}

/// Writes `request` under a number of the caller's choosing: a repeat keeps its number, so that
/// the reply to either copy will do.
///
/// # Panics
/// If a register write is longer than [`crate::message::REGISTER_BYTES_MAX`].
pub fn encode_request(sequence: Sequence, request: &Request<'_>, out: &mut EncodedBuffer) -> usize {
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let length = request.encode(&mut payload);
    encode_payload(sequence, request.command(), &payload[..length], out)
}

/// The same in an epoch: a device that has taken a request of a later one refuses it. For modules since 1.4.
///
/// # Panics
/// If the request leaves no room for an epoch: register writes and names of modules carry none.
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
    encode_payload(sequence, request.command() | command::IN_EPOCH, &payload[..8 + length], out)
}

fn encode_payload(
    sequence: Sequence,
    command: u8,
    payload: &[u8],
    out: &mut EncodedBuffer,
) -> usize {
    let frame = Frame {
        version: VERSION,
        kind: FrameKind::Request,
        sequence: sequence.0,
        command,
        status: 0,
        payload,
    };
    frame.encode(out)
}

/// Writes the acknowledgement of an event; returns its length on the line. Lost, the event comes again.
pub fn acknowledge(number: Sequence, out: &mut EncodedBuffer) -> usize {
    let frame = Frame {
        version: VERSION,
        kind: FrameKind::Acknowledge,
        sequence: number.0,
        command: command::EVENT,
        status: 0,
        payload: &[],
    };
    frame.encode(out)
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

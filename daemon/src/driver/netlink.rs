// SPDX-License-Identifier: Apache-2.0
//! A minimal netlink codec, because no crate supports nexthop objects or HTB classes.
//!
//! The layouts follow linux/netlink.h, rtnetlink.h, nexthop.h and pkt_sched.h. All requests ask for
//! an acknowledgement, and replies are matched by sequence number.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

pub(crate) mod kind {
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const NEW_QDISC: u16 = 36;
    pub(crate) const GET_QDISC: u16 = 38;
    pub(crate) const NEW_CLASS: u16 = 40;
    pub(crate) const NEW_NEXTHOP: u16 = 104;
    pub(crate) const GET_NEXTHOP: u16 = 106;
}

const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
const REQUEST_ACK: u16 = 0x1 | 0x4;
const DUMP: u16 = 0x300;
const CREATE_REPLACE: u16 = 0x400 | 0x100;
const CREATE_NEW: u16 = 0x400 | 0x200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Replace,
    Ensure,
    Change,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn with_header(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(4 + value.len()).expect("attributes are far below 64 KiB");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    pub(crate) fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    pub(crate) fn put_nested(&mut self, kind: u16, inner: &Body) -> &mut Self {
        const NESTED: u16 = 0x8000;
        self.put(kind | NESTED, &inner.0)
    }
}

/// `skip` is the length of the fixed header. The iterator stops at the first malformed attribute.
pub(crate) fn attributes(body: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & 0x3fff, value))
    })
}

pub(crate) fn attribute(body: &[u8], skip: usize, kind: u16) -> Option<&[u8]> {
    attributes(body, skip).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

pub(crate) fn as_u32(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(crate) fn change(&mut self, kind: u16, how: How, body: &Body) -> io::Result<()> {
        let flags = match how {
            How::Replace => CREATE_REPLACE,
            How::Ensure => CREATE_NEW,
            How::Change => 0,
        };
        let result = self.talk(kind, REQUEST_ACK | flags, body).map(|_| ());
        match result {
            Err(error) if how == How::Ensure && error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) fn dump(&mut self, kind: u16, body: &Body) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.talk(kind, REQUEST_ACK | DUMP, body)
    }

    pub(crate) fn get(&mut self, kind: u16, body: &Body) -> io::Result<Option<Vec<u8>>> {
        Ok(self.talk(kind, REQUEST_ACK, body)?.into_iter().next().map(|(_, body)| body))
    }

    fn talk(&mut self, kind: u16, flags: u16, body: &Body) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message(kind, flags, self.sequence, body), 0)?;
        let mut found = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while let Some((kind, sequence, body, length)) = take_message(rest) {
                rest = &rest[length..];
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    DONE => return Ok(found),
                    ERROR => return acknowledged(body).map(|()| found),
                    kind => found.push((kind, body.to_vec())),
                }
            }
        }
    }
}

pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &Body) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.0.len()).expect("messages are small");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.0.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&body.0);
    bytes
}

fn take_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], usize)> {
    let length = as_u32(bytes)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let sequence = as_u32(bytes.get(8..12)?)?;
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((kind, sequence, body, length.next_multiple_of(4).min(bytes.len())))
}

/// Parses `nlmsgerr`: 0 means success. An extended acknowledgement includes an error text.
fn acknowledged(body: &[u8]) -> io::Result<()> {
    let code = as_u32(body).map(u32::cast_signed).unwrap_or(i32::MIN);
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    // The kernel echoes the failed request in full unless capped. Attribute 1 is the text.
    let echoed = as_u32(body.get(4..).unwrap_or_default()).unwrap_or(0) as usize;
    let text = [HEADER_BYTES, echoed].into_iter().find_map(|echo| attribute(body, 4 + echo, 1));
    Err(match text {
        Some(text) => {
            let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
            io::Error::new(error.kind(), format!("{error}: {text}"))
        }
        None => error,
    })
}

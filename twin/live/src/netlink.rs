// SPDX-License-Identifier: Apache-2.0
//! Batches of netlink requests, sent with one system call.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::Error;

const PIECE_BYTES: usize = 32 << 10;
/// The replies must fit in the socket's receive buffer.
const PIECE_REQUESTS: usize = 64;

#[derive(Default)]
pub(crate) struct RequestBatch {
    requests: Vec<Request>,
}

struct Request {
    what: String,
    message: RouteNetlinkMessage,
    flags: u16,
    may_be_missing: bool,
}

impl RequestBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// `what` completes the error message "cannot …".
    pub(crate) fn add(
        &mut self,
        what: impl Into<String>,
        message: RouteNetlinkMessage,
        flags: u16,
    ) {
        self.requests.push(Request { what: what.into(), message, flags, may_be_missing: false });
    }

    pub(crate) fn remove(&mut self, what: impl Into<String>, message: RouteNetlinkMessage) {
        self.requests.push(Request { what: what.into(), message, flags: 0, may_be_missing: true });
    }
}

pub(crate) struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Self::socket().map_err(Error::cannot("open a netlink socket"))?;
        Ok(Self { socket, sequence: 0 })
    }

    fn socket() -> io::Result<Socket> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        Ok(socket)
    }

    /// Fails at the first refused request, although later requests may have been executed.
    pub(crate) fn run(&mut self, batch: RequestBatch) -> Result<(), Error> {
        let mut piece: Vec<(u32, Request)> = Vec::new();
        let mut bytes = Vec::new();
        for request in batch.requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | NLM_F_ACK | request.flags;
            header.sequence_number = self.sequence;
            let payload = NetlinkPayload::InnerMessage(request.message.clone());
            let mut message = NetlinkMessage::new(header, payload);
            message.finalize();
            let start = bytes.len();
            bytes.resize(start + message.buffer_len(), 0);
            message.serialize(&mut bytes[start..]);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            piece.push((self.sequence, request));
            if bytes.len() > PIECE_BYTES || piece.len() >= PIECE_REQUESTS {
                self.exchange(&bytes, &std::mem::take(&mut piece))?;
                bytes.clear();
            }
        }
        if piece.is_empty() { Ok(()) } else { self.exchange(&bytes, &piece) }
    }

    fn talk(error: io::Error) -> Error {
        Error::system("open the kernel's network configuration", error)
    }

    fn exchange(&self, bytes: &[u8], piece: &[(u32, Request)]) -> Result<(), Error> {
        self.socket.send(bytes, 0).map_err(Self::talk)?;
        let mut waiting = piece.iter();
        let mut first = Ok(());
        while waiting.len() > 0 {
            let (answer, _) = self.socket.recv_from_full().map_err(Self::talk)?;
            let mut rest = answer.as_slice();
            while rest.len() >= 16 {
                let read = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
                let message =
                    read.map_err(|error| Self::talk(io::Error::other(error.to_string())))?;
                let length = message.header.length as usize;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                let NetlinkPayload::Error(verdict) = message.payload else { continue };
                let Some((_, request)) = waiting.next() else { break };
                let error = verdict.to_io();
                let is_missing = matches!(error.raw_os_error(), Some(2 | 3 | 19 | 22));
                if verdict.code.is_some()
                    && first.is_ok()
                    && !(request.may_be_missing && is_missing)
                {
                    first = Err(Error::system(&request.what, error));
                }
            }
        }
        first
    }
}

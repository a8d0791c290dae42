// SPDX-License-Identifier: Apache-2.0
//! Runs the protocol conversations of [`lightloom_drivers`] over sockets and serial lines. Netlink
//! calls return immediately, so [`linux::Linux`] is a conversation that exchanges no bytes.

pub mod alone;
pub mod chaos;
pub mod linux;
mod netlink;
pub mod stream;

use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::{Dialect, Session};

use stream::Address;

pub struct Endpoint {
    pub address: Option<Address>,
    pub conversation: Box<dyn Conversation>,
}

impl Endpoint {
    pub fn speaking<D: Dialect + Clone + 'static>(address: Address, dialect: D) -> Self {
        Self { address: Some(address), conversation: Box::new(Session::new(dialect)) }
    }

    pub fn local(conversation: impl Conversation + 'static) -> Self {
        Self { address: None, conversation: Box::new(conversation) }
    }
}

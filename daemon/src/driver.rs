// SPDX-License-Identifier: Apache-2.0
//! Devices as the daemon reaches them: the conversations of [`lightloom_drivers`] over sockets and serial lines.
//!
//! Linux switches speak netlink, which answers at once: [`linux::Linux`] is a conversation without bytes.

pub mod alone;
pub mod chaos;
pub mod linux;
mod netlink;
pub mod stream;

use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::{Dialect, Session};

use stream::Address;

/// What a device task drives.
pub struct Endpoint {
    /// Where its bytes go; `None` if it exchanges none.
    pub address: Option<Address>,
    /// What is said there.
    pub conversation: Box<dyn Conversation>,
}

impl Endpoint {
    /// A dialect over a byte stream.
    pub fn speaking<D: Dialect + Clone + 'static>(address: Address, dialect: D) -> Self {
        Self { address: Some(address), conversation: Box::new(Session::new(dialect)) }
    }

    /// A device that answers at once.
    pub fn local(conversation: impl Conversation + 'static) -> Self {
        Self { address: None, conversation: Box::new(conversation) }
    }
}

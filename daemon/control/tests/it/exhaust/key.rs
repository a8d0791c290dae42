// SPDX-License-Identifier: Apache-2.0
//! Identifies states by a 128-bit hash of everything except operation numbers and the path.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

use super::explorer::State;

pub(super) fn key(state: &State, text: &mut Text) -> u128 {
    let State { now, controller, models, flights, down, dead, late, soft, clients, .. } = state;
    let clients = clients.iter().map(std::collections::VecDeque::len);
    let rest = (late, soft, clients.collect::<Vec<_>>(), state.faults, state.late_came);
    let ends = (state.durable.len(), &state.moved, &state.unread, &state.ended);
    let several = (state.epoch, &state.connecting, &state.failed, &state.deposed);
    text.all.clear();
    let written = write!(
        text,
        "{controller:?}{models:?}{flights:?}{down:?}{dead:?}{rest:?}{ends:?}{several:?}{now:?}"
    );
    written.expect("it is memory");
    let [one, other] = [1, 2].map(|seed| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        hasher.write(text.all.as_bytes());
        u128::from(hasher.finish())
    });
    one << 64 | other
}

/// Omits ticket numbers, because the order of requests to two devices is irrelevant.
#[derive(Debug, Default)]
pub(super) struct Text {
    all: String,
    /// How much of `Ticket(` was just written.
    of_ticket: u8,
}

impl Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let number = self.of_ticket == 2 && piece.bytes().all(|byte| byte.is_ascii_digit());
        self.of_ticket = match piece {
            "Ticket" => 1,
            "(" if self.of_ticket == 1 => 2,
            _ => 0,
        };
        if !number {
            self.all.push_str(piece);
        }
        Ok(())
    }
}

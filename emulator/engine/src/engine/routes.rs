// SPDX-License-Identifier: Apache-2.0
//! The ways of all flows, one after another in one table of 16-bit words.
//!
//! ```text
//!   a way     place │ place │ … │ place │ end ×2     each place: that of the output port at its vertex
//!   of data   … │ end ×2 │ the way back, where the packets that come by it are answered by it
//!   a choice  count │ salt ×2 │ (place │ rest ×2) × count    rest: where the way by that port goes on
//! ```
//! Every hop of every packet reads a word that lies somewhere else: what takes fewer bytes misses the caches less.

use super::packet::MOST_CURSORS;

/// Ends a way. The other bits and the next word are the end of the flow, as an index in the arrays of the shard where
/// it lives.
const DELIVER: u16 = 1 << 15;
/// A packet may go on by several ports; the other bits are how many. Only at vertices that choose.
const CHOICE: u16 = 1 << 14;

/// Vertices have at most so many ports.
pub(crate) const MOST_PORTS: usize = CHOICE as usize;

/// The table. A cursor is a place in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<u16>);

/// What stands before a packet.
pub(crate) enum NextHop {
    /// It goes on by the port at this place.
    Port(u32),
    /// It may go on by so many ports.
    Choice(u32),
}

impl Routes {
    /// Where the next way begins.
    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// The place of the port by which a packet goes on from a vertex that does not choose.
    #[inline(always)]
    pub(crate) fn place(&self, cursor: u32) -> u32 {
        u32::from(self.0[cursor as usize])
    }

    /// The end of the flow, if the way ends here.
    #[inline(always)]
    pub(crate) fn end(&self, cursor: u32) -> Option<u32> {
        let at = cursor as usize;
        let word = self.0[at];
        (word & DELIVER != 0).then(|| u32::from(word & !DELIVER) << 16 | u32::from(self.0[at + 1]))
    }

    /// Where the way back begins, of a way that ends here.
    #[inline(always)]
    pub(crate) const fn answer(cursor: u32) -> u32 {
        cursor + 2
    }

    /// How a packet goes on from a vertex that may choose.
    #[inline(always)]
    pub(crate) fn next(&self, cursor: u32) -> NextHop {
        let word = self.0[cursor as usize];
        let rest = u32::from(word & !CHOICE);
        if word & CHOICE == 0 { NextHop::Port(rest) } else { NextHop::Choice(rest) }
    }

    /// What the draws of a choice begin with.
    pub(crate) fn salt(&self, cursor: u32) -> u32 {
        self.wide(cursor + 1)
    }

    /// The place of one of the ports of a choice, and where the rest of the way by it begins.
    #[inline(always)]
    pub(crate) fn option(&self, cursor: u32, number: u32) -> (u32, u32) {
        let at = cursor + 3 + 3 * number;
        (self.place(at), self.wide(at + 1))
    }

    #[inline(always)]
    fn wide(&self, cursor: u32) -> u32 {
        let at = cursor as usize;
        u32::from(self.0[at]) << 16 | u32::from(self.0[at + 1])
    }

    /// Appends the place of a port.
    pub(crate) fn push(&mut self, place: u16) {
        debug_assert!(usize::from(place) < MOST_PORTS, "networks with more ports are refused");
        self.0.push(place);
    }

    /// Appends the end of a way: the end of the flow with this index.
    pub(crate) fn push_end(&mut self, end: u32) {
        assert!(end < 1 << 31, "a part has fewer than 2^31 flows");
        self.0.extend([DELIVER | (end >> 16) as u16, end as u16]);
        assert!(self.0.len() < MOST_CURSORS as usize, "the route table is below 2^28 words");
    }

    /// Appends a choice between `count` ports, which follow.
    pub(crate) fn push_choice(&mut self, count: usize, salt: u32) {
        self.0.push(CHOICE | count as u16);
        self.push_wide(salt);
    }

    /// Appends one of the ports of a choice, and where the rest of the way begins.
    pub(crate) fn push_option(&mut self, place: u16, rest: u32) {
        self.push(place);
        self.push_wide(rest);
    }

    fn push_wide(&mut self, value: u32) {
        self.0.extend([(value >> 16) as u16, value as u16]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The ways of all flows, one after another in one table of 16-bit words.
//!
//! ```text
//!   a way     place │ place │ … │ place │ end ×2     each place: that of the output port at its vertex
//!   of data   … │ end ×2 │ the way back, where the packets that come by it are answered by it
//!   a choice  count │ salt ×2 │ (place │ rest ×2) × count    rest: where the way by that port goes on
//! ```
//! Every hop of every packet reads a word that lies somewhere else: what takes fewer bytes misses the caches less.

/// Ends a way. The other bits and the next word are the end of the flow, as an index in the arrays of the shard where
/// it lives.
const DELIVER: u16 = 1 << 15;
/// A packet may go on by several ports; the other bits are how many. Only at vertices that choose.
const CHOICE: u16 = 1 << 14;
/// Marks a port of a choice that does not lead to the destination.
const NOWHERE: u16 = 1 << 15;

/// Vertices have at most so many ports.
pub(crate) const MOST_PORTS: usize = CHOICE as usize;

/// The table. A cursor is a place in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    words: Vec<u16>,
    /// Position of the next word to write.
    at: usize,
}

/// Returns the words of a path with this number of links.
pub(crate) const fn words_of_way(links: usize) -> u64 {
    links as u64 + 2
}

/// Returns the words of a choice between this number of ports.
pub(crate) const fn words_of_choice(ports: usize) -> u64 {
    3 + 3 * ports as u64
}

/// What stands before a packet.
pub(crate) enum NextHop {
    /// It goes on by the port at this place.
    Port(u32),
    /// It may go on by so many ports.
    Choice(u32),
}

impl Routes {
    pub(crate) fn words(&self) -> u32 {
        self.words.len() as u32
    }

    pub(crate) fn extend(&mut self, words: u32) {
        self.words.resize(self.words.len() + words as usize, 0);
    }

    /// Where the next way begins.
    pub(crate) const fn at(&self) -> u32 {
        self.at as u32
    }

    /// Overwrites the table from here.
    pub(crate) const fn write_from(&mut self, at: u32) {
        self.at = at as usize;
    }

    fn write(&mut self, word: u16) {
        self.words[self.at] = word;
        self.at += 1;
    }

    /// The place of the port by which a packet goes on from a vertex that does not choose.
    #[inline(always)]
    pub(crate) fn place(&self, cursor: u32) -> u32 {
        u32::from(self.words[cursor as usize])
    }

    /// The end of the flow, if the way ends here.
    #[inline(always)]
    pub(crate) fn end(&self, cursor: u32) -> Option<u32> {
        let at = cursor as usize;
        let word = self.words[at];
        (word & DELIVER != 0)
            .then(|| u32::from(word & !DELIVER) << 16 | u32::from(self.words[at + 1]))
    }

    /// Where the way back begins, of a way that ends here.
    #[inline(always)]
    pub(crate) const fn answer(cursor: u32) -> u32 {
        cursor + 2
    }

    /// How a packet goes on from a vertex that may choose.
    #[inline(always)]
    pub(crate) fn next(&self, cursor: u32) -> NextHop {
        let word = self.words[cursor as usize];
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
        (self.place(at) & u32::from(!NOWHERE), self.wide(at + 1))
    }

    /// Whether a port of a choice leads to the destination.
    #[inline(always)]
    pub(crate) fn leads_on(&self, cursor: u32, number: u32) -> bool {
        self.words[(cursor + 3 + 3 * number) as usize] & NOWHERE == 0
    }

    #[inline(always)]
    fn wide(&self, cursor: u32) -> u32 {
        let at = cursor as usize;
        u32::from(self.words[at]) << 16 | u32::from(self.words[at + 1])
    }

    /// Writes the place of a port.
    pub(crate) fn push(&mut self, place: u16) {
        debug_assert!(usize::from(place) < MOST_PORTS, "networks with more ports are refused");
        self.write(place);
    }

    /// Writes the end of a way: the end of the flow with this index.
    pub(crate) fn push_end(&mut self, end: u32) {
        assert!(end < 1 << 31, "a part has fewer than 2^31 flows");
        self.write(DELIVER | (end >> 16) as u16);
        self.write(end as u16);
    }

    /// Writes a choice between `count` ports, which follow.
    pub(crate) fn push_choice(&mut self, count: usize, salt: u32) {
        self.write(CHOICE | count as u16);
        self.push_wide(salt);
    }

    /// Writes a port of a choice, whether it leads to the destination, and the start of the remaining path.
    pub(crate) fn push_option(&mut self, place: u16, leads_on: bool, rest: u32) {
        self.write(if leads_on { place } else { place | NOWHERE });
        self.push_wide(rest);
    }

    fn push_wide(&mut self, value: u32) {
        self.write((value >> 16) as u16);
        self.write(value as u16);
    }
}

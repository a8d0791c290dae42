// SPDX-License-Identifier: Apache-2.0
//! The routes of all flows in one table of 16-bit words.
//!
//! ```text
//!   a route   port │ port │ … │ port │ end ×2     each port: the index of the output port at its vertex
//!   of data   … │ end ×2 │ the reverse route, where acknowledgements follow the path of their packets
//!   a choice  count │ salt ×2 │ (port │ rest ×2) × count    rest: where the route over that port continues
//! ```
//! Every hop reads a word at an unpredictable position, so a compact table causes fewer cache misses.

/// Ends a route. The other bits and the next word are the index of the flow's end in its shard.
const DELIVER: u16 = 1 << 15;
/// A choice between ports; the other bits are its number. Occurs only at vertices that choose.
const CHOICE: u16 = 1 << 14;
/// A port of a choice that does not lead to the destination.
const NOWHERE: u16 = 1 << 15;

pub(crate) const MOST_PORTS: usize = CHOICE as usize;

#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    words: Vec<u16>,
    at: usize,
}

pub(crate) const fn words_of_way(links: usize) -> u64 {
    links as u64 + 2
}

pub(crate) const fn words_of_choice(ports: usize) -> u64 {
    3 + 3 * ports as u64
}

pub(crate) enum NextHop {
    Port(u32),
    Choice(u32),
}

impl Routes {
    pub(crate) fn words(&self) -> u32 {
        self.words.len() as u32
    }

    pub(crate) fn extend(&mut self, words: u32) {
        self.words.resize(self.words.len() + words as usize, 0);
    }

    pub(crate) const fn at(&self) -> u32 {
        self.at as u32
    }

    pub(crate) const fn write_from(&mut self, at: u32) {
        self.at = at as usize;
    }

    fn write(&mut self, word: u16) {
        self.words[self.at] = word;
        self.at += 1;
    }

    #[inline(always)]
    pub(crate) fn place(&self, cursor: u32) -> u32 {
        u32::from(self.words[cursor as usize])
    }

    #[inline(always)]
    pub(crate) fn end(&self, cursor: u32) -> Option<u32> {
        let at = cursor as usize;
        let word = self.words[at];
        (word & DELIVER != 0)
            .then(|| u32::from(word & !DELIVER) << 16 | u32::from(self.words[at + 1]))
    }

    #[inline(always)]
    pub(crate) const fn answer(cursor: u32) -> u32 {
        cursor + 2
    }

    #[inline(always)]
    pub(crate) fn next(&self, cursor: u32) -> NextHop {
        let word = self.words[cursor as usize];
        let rest = u32::from(word & !CHOICE);
        if word & CHOICE == 0 { NextHop::Port(rest) } else { NextHop::Choice(rest) }
    }

    pub(crate) fn salt(&self, cursor: u32) -> u32 {
        self.wide(cursor + 1)
    }

    #[inline(always)]
    pub(crate) fn option(&self, cursor: u32, number: u32) -> (u32, u32) {
        let at = cursor + 3 + 3 * number;
        (self.place(at) & u32::from(!NOWHERE), self.wide(at + 1))
    }

    #[inline(always)]
    pub(crate) fn leads_on(&self, cursor: u32, number: u32) -> bool {
        self.words[(cursor + 3 + 3 * number) as usize] & NOWHERE == 0
    }

    #[inline(always)]
    fn wide(&self, cursor: u32) -> u32 {
        let at = cursor as usize;
        u32::from(self.words[at]) << 16 | u32::from(self.words[at + 1])
    }

    pub(crate) fn push(&mut self, place: u16) {
        debug_assert!(usize::from(place) < MOST_PORTS, "networks with more ports are refused");
        self.write(place);
    }

    pub(crate) fn push_route(&mut self, places: impl ExactSizeIterator<Item = u16>, end: u32) {
        assert!(end < 1 << 31, "a part has fewer than 2^31 flows");
        let (begin, ports) = (self.at, places.len());
        self.at += ports + 2;
        let words = &mut self.words[begin..self.at];
        words.iter_mut().zip(places).for_each(|(word, place)| *word = place);
        words[ports..].copy_from_slice(&[DELIVER | (end >> 16) as u16, end as u16]);
    }

    pub(crate) fn push_choice(&mut self, count: usize, salt: u32) {
        self.write(CHOICE | count as u16);
        self.push_wide(salt);
    }

    pub(crate) fn push_option(&mut self, place: u16, leads_on: bool, rest: u32) {
        self.write(if leads_on { place } else { place | NOWHERE });
        self.push_wide(rest);
    }

    fn push_wide(&mut self, value: u32) {
        self.write((value >> 16) as u16);
        self.write(value as u16);
    }
}

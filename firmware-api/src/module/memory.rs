// SPDX-License-Identifier: Apache-2.0

use crate::cmis::{RegisterAddress, Registers, RegistersMut, cdb, lower, page_b0};

const PAGES: [u8; 7] = [0x00, 0x01, 0x02, 0x10, 0x11, cdb::PAGE, page_b0::PAGE];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Requires the password. A write takes the non-volatile write time.
    Locked,
}

#[derive(Clone, Debug)]
pub(crate) struct Memory {
    lower: [u8; 128],
    pages: [[u8; 128]; PAGES.len()],
}

impl Memory {
    pub(crate) const fn new() -> Self {
        Self { lower: [0; 128], pages: [[0; 128]; PAGES.len()] }
    }

    pub(crate) fn exists(at: RegisterAddress) -> bool {
        at.offset < 128 || (at.bank == 0 && PAGES.contains(&at.page))
    }

    pub(crate) fn access(at: RegisterAddress) -> Access {
        let writable = match (at.offset, at.page) {
            (26 | 29..=36 | 64..=67 | 122..=127, _) => true,
            (0..=127, _) => false,
            (128..=232, 0x10) => true,
            (134..=135, cdb::PAGE) => false,
            (_, cdb::PAGE) => true,
            (136..=143 | 152 | 160 | 212..=216 | 233..=236, page_b0::PAGE) => true,
            (240..=247, page_b0::PAGE) => return Access::Locked,
            _ => false,
        };
        if writable { Access::Write } else { Access::Read }
    }

    /// Reads a byte. Clears latched flags, and returns zero for write-only bytes.
    pub(crate) fn take(&mut self, at: RegisterAddress) -> u8 {
        let value = self.byte(at);
        match (at.offset, at.page) {
            (8..=13, _) => self.set_byte(at, 0),
            (73, _) => lower::RESTARTED.set(self, false),
            (118..=125, _) => return 0,
            (134..=153, 0x11) => self.set_byte(at, 0),
            _ => {}
        }
        value
    }

    pub(crate) fn cdb_page(&mut self) -> &mut [u8; cdb::MESSAGE_BYTES] {
        self.page_mut(cdb::PAGE).expect("the CDB page exists")
    }

    pub(crate) fn summarise_flags(&mut self) {
        let any = (134..=153).any(|offset| self.byte(RegisterAddress::page(0x11, offset)) != 0);
        lower::SUMMARY_PAGE_11.set(self, any);
        let lower_any = (8..=13).any(|offset| self.byte(RegisterAddress::lower(offset)) != 0);
        lower::INTERRUPT_DEASSERTED.set(self, !any && !lower_any);
    }

    fn page(&self, page: u8) -> Option<&[u8; 128]> {
        PAGES.iter().position(|&known| known == page).map(|index| &self.pages[index])
    }

    fn page_mut(&mut self, page: u8) -> Option<&mut [u8; 128]> {
        PAGES.iter().position(|&known| known == page).map(|index| &mut self.pages[index])
    }
}

impl Registers for Memory {
    fn byte(&self, at: RegisterAddress) -> u8 {
        if at.offset < 128 {
            return self.lower[usize::from(at.offset)];
        }
        if at.bank != 0 {
            return 0;
        }
        self.page(at.page).map_or(0, |page| page[usize::from(at.offset) - 128])
    }
}

impl RegistersMut for Memory {
    fn set_byte(&mut self, at: RegisterAddress, value: u8) {
        if at.offset < 128 {
            self.lower[usize::from(at.offset)] = value;
        } else if at.bank == 0
            && let Some(page) = self.page_mut(at.page)
        {
            page[usize::from(at.offset) - 128] = value;
        }
    }
}

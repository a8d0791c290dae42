// SPDX-License-Identifier: Apache-2.0
//! Our choices where CMIS implementations disagree, numbered as in docs/firmware-api.md and tested in
//! `tests/it/disagreements.rs`. A host that makes the safe choice works with either interpretation.

use super::field::RegisterAddress;
use crate::time::Micros;

/// CMIS revision as in lower memory byte 1, where 0x53 is 5.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u8);

/// Returns the maximum busy time of a CDB command from 01h:165 and 01h:166 (disagreement 2): the longer
/// of both forms, because the standard contradicts itself about the select bit.
pub fn cdb_busy_bound(byte_165: u8, byte_166: u8) -> Micros {
    cdb_busy_short(byte_166).max(Micros::from_millis(u64::from(byte_165 & 0x1f).max(1) * 160))
}

/// Returns the short busy time (disagreement 3): `80 − min(80, X)` ms, so X = 0 means 80 ms.
pub fn cdb_busy_short(byte_166: u8) -> Micros {
    Micros::from_millis(80 - u64::from(byte_166 & 0x7f).min(80))
}

/// How a module accepts firmware blocks (disagreement 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMechanism {
    /// Whether the module accepts blocks through the local payload of page 9Fh.
    pub local: bool,
    /// Whether the module accepts blocks through the extended payload of pages A0h to AFh.
    pub extended: bool,
}

/// Decodes the methods; `None` if firmware cannot be written. One host uses the codes 01h, 10h and 11h,
/// another 01h, 02h and 03h, so both are accepted.
pub const fn write_mechanism(code: u8) -> Option<WriteMechanism> {
    match code {
        0x01 => Some(WriteMechanism { local: true, extended: false }),
        0x02 | 0x10 => Some(WriteMechanism { local: false, extended: true }),
        0x03 | 0x11 => Some(WriteMechanism { local: true, extended: true }),
        _ => None,
    }
}

/// Returns the offset in the linear file of Linux module drivers, with 256 pages per bank (disagreement
/// 5). One emulator uses 240 pages above page 0Fh, which differs in banks other than 0.
pub fn linear_offset(at: RegisterAddress) -> u32 {
    let offset = u32::from(at.offset);
    if at.offset < 128 {
        return offset;
    }
    (u32::from(at.bank) * 256 + u32::from(at.page)) * 128 + offset
}

/// Returns whether `page` is banked. Fewer pages are banked before 5.4 (disagreement 6).
pub const fn is_banked(page: u8, revision: Revision) -> bool {
    let since_5_4 = matches!(page, 0x40..=0x5f | 0x60..=0x62 | 0x6d);
    matches!(page, 0x10..=0x3f | 0x9f | 0xa0..=0xaf) || (revision.0 >= 0x54 && since_5_4)
}

/// Returns the lanes to stop in 10h:128 (disagreement 7). The bits were inverted before CMIS 4.
pub const fn deinit_lanes(byte: u8, revision: Revision) -> u8 {
    if revision.0 < 0x40 { !byte } else { byte }
}

/// Bank of custom pages (disagreement 8). Hosts disagree on whether these pages are banked.
pub const CUSTOM_PAGE_BANK: u8 = 0;

/// Returns the maximum time of a page change (disagreement 10): 10 ms, halved 01h:169.3–0 times. Before
/// 5.3 the field is zero, so both interpretations give 10 ms.
pub const fn page_change_bound(field: u8, revision: Revision) -> Micros {
    if revision.0 < 0x53 { Micros(10_000) } else { Micros(10_000 >> (field & 0x0f)) }
}

/// Returns the lanes of 11h:235 whose applied configuration has not been initialised yet. `None` for
/// revisions whose register maps are not known to have this byte, where it is reserved.
pub const fn init_pending(byte: u8, revision: Revision) -> Option<u8> {
    if matches!(revision.0, 0x53..=0x5f) { Some(byte) } else { None }
}

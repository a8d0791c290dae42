// SPDX-License-Identifier: Apache-2.0
//! The CMIS 5.x memory map as typed fields, and our page B0h.
//!
//! CMIS is the common management interface of pluggable optics: a 256-byte window whose lower half
//! is always there and whose upper half shows one of many pages. Constants here name the fields
//! that a host or a module of this project uses; each module says what its offsets rest on. The
//! CMIS text itself was not at hand: offsets are those on which at least two public
//! implementations agree, and where they disagree [`rules`] says what we take and why.
//!
//! **Page B0h is ours.** CMIS reserves pages B0h to FFh for vendors; nothing in [`page_b0`] is
//! part of any CMIS revision.
//!
//! ```
//! use lightloom_firmware_api::cmis::{RegisterAddress, Registers, lower, state::ModuleState};
//!
//! /// A host's copy of lower memory.
//! struct Copy([u8; 128]);
//! impl Registers for Copy {
//!     fn byte(&self, at: RegisterAddress) -> u8 {
//!         self.0[usize::from(at.offset)]
//!     }
//! }
//! let mut copy = Copy([0; 128]);
//! copy.0[3] = 0b0000_0110;
//! assert_eq!(lower::MODULE_STATE.get(&copy), Some(ModuleState::Ready));
//! ```

pub mod cdb;
pub mod checksum;
pub mod duration;
mod field;
pub mod lower;
pub mod page00;
pub mod page01;
pub mod page02;
pub mod page10;
pub mod page11;
pub mod page_b0;
pub mod rules;
pub mod state;

pub use field::{
    BitField, Coded, FlagBit, LaneFlags, Nibbles, Number, RegisterAddress, Registers, RegistersMut,
    TextField, U16s,
};

// SPDX-License-Identifier: Apache-2.0
//! The CMIS 5.x memory map as typed fields, and this project's page B0h.
//!
//! CMIS is the management interface of pluggable optics, a 256-byte window whose upper half shows one of many pages.
//! The CMIS specification was not available to us, so this crate uses offsets that at least two public implementations
//! share. [`rules`] documents our choices where implementations disagree.
//!
//! **Page B0h belongs to this project.** CMIS reserves pages B0h to FFh for vendors, and [`page_b0`] is
//! not part of any CMIS revision.
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

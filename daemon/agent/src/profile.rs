// SPDX-License-Identifier: Apache-2.0
//! How the optical switch of a kind of module is set, as a file: which registers or CDB commands, in which order, with
//! which codes, how long it takes and how it is read back.
//!
//! A profile touches what CMIS leaves to vendors and nothing else: custom pages that it names, lower memory 64 to 84,
//! CDB commands from 8000h on. So a profile with a mistake can at worst misuse the vendor's own switch.

mod check;
mod file;
mod run;

pub use check::{check, load};
pub use file::{
    CodeSourceFile, ItemFile, LinkNamesFile, MarkFile, MatchFile, MeansFile, ModuleTimesFile,
    OutcomeFile, OutcomeMeaning, PathCodesFile, ProfileFile, ProfileStepFile, Register, Word,
};
pub use run::{ModuleProfile, PathOrder};

/// The profile in a file.
///
/// # Errors
/// It cannot be read; its first mistake.
#[cfg(feature = "reach")]
pub fn read(path: &std::path::Path) -> anyhow::Result<ModuleProfile> {
    use anyhow::Context;

    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let (profile, mistakes) = load(&shown, &bytes);
    profile.with_context(|| mistakes.first().map_or_else(String::new, ToString::to_string))
}

/// What can be wrong with a profile beyond its shape.
pub mod codes {
    use lightloom_fabric::document::Code;

    /// A register, page or command that is not the vendor's.
    pub const NOT_VENDORS: Code =
        Code { id: "LL0701", title: "a profile touches what is not left to vendors" };
    /// What cannot work.
    pub const CANNOT_MOVE: Code = Code { id: "LL0702", title: "a profile that cannot move light" };
    /// A time or a number out of its range.
    pub const BAD_LIMIT: Code =
        Code { id: "LL0703", title: "a limit of a profile is out of range" };
    /// All of them.
    pub const ALL: &[Code] = &[NOT_VENDORS, CANNOT_MOVE, BAD_LIMIT];
}

// SPDX-License-Identifier: Apache-2.0
//! Module profiles: files that describe how to set the optical switch of a type of module.
//!
//! A profile may only use what CMIS reserves for vendors: the custom pages that it lists, lower memory 64 to 84, and
//! CDB commands from 8000h. A mistake in a profile can therefore only affect the vendor's own switch.

mod check;
mod file;
mod run;

pub use check::{check, load};
pub use file::{
    CodeSourceFile, ItemFile, LinkNamesFile, MarkFile, MatchFile, MeansFile, ModuleTimesFile,
    OutcomeFile, OutcomeMeaning, PathCodesFile, ProfileFile, ProfileStepFile, Register, Word,
};
pub use run::{ModuleProfile, PathOrder};

#[cfg(feature = "reach")]
pub fn read(path: &std::path::Path) -> anyhow::Result<ModuleProfile> {
    use anyhow::Context;

    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let (profile, mistakes) = load(&shown, &bytes);
    profile.with_context(|| mistakes.first().map_or_else(String::new, ToString::to_string))
}

pub mod codes {
    use lightloom_fabric::document::Code;

    pub const NOT_VENDORS: Code = Code {
        id: "LL0701",
        title: "a profile uses a register or command that CMIS does not reserve for vendors",
    };
    pub const CANNOT_MOVE: Code = Code {
        id: "LL0702",
        title: "a profile that cannot switch its \
        module",
    };
    pub const BAD_LIMIT: Code =
        Code { id: "LL0703", title: "a limit of a profile is out of range" };
    pub const ALL: &[Code] = &[NOT_VENDORS, CANNOT_MOVE, BAD_LIMIT];
}

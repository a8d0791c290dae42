// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_firmware_api::path::GROUPS_MAX;
use lightloom_units::{Picoseconds, Text};

use super::codes::{BAD_LIMIT, CANNOT_MOVE, NOT_VENDORS};
use super::file::{
    CodeSourceFile, ItemFile, OutcomeFile, OutcomeMeaning, ProfileFile, ProfileStepFile, Register,
    Word,
};
use super::run::ModuleProfile;

const CUSTOM_PAGES_FROM: u8 = 0xb0;
const CUSTOM_LOWER: std::ops::RangeInclusive<u8> = 64..=84;
const CUSTOM_COMMANDS_FROM: u16 = 0x8000;
const WITHIN_MAX: Picoseconds = Picoseconds::from_millis(60_000);
const BYTES_MAX: usize = 120;

pub fn load(file: &str, bytes: &[u8]) -> (Option<ModuleProfile>, Vec<Diagnostic>) {
    document::load(file, bytes, check)
}

pub fn check(file: ProfileFile, check: &mut Check<'_>) -> Option<ModuleProfile> {
    let mut rules = ProfileRules { file: &file, check };
    rules.pages();
    rules.paths();
    rules.steps();
    rules.sources();
    rules.limits();
    let good = !rules.check.has_errors();
    good.then_some(ModuleProfile { file })
}

struct ProfileRules<'f, 'c, 'd> {
    file: &'f ProfileFile,
    check: &'c mut Check<'d>,
}

impl ProfileRules<'_, '_, '_> {
    fn pages(&mut self) {
        for (index, page) in self.file.pages.iter().enumerate() {
            if page.0 < CUSTOM_PAGES_FROM {
                let message = format!("page {:02X}h is not reserved for vendors", page.0);
                let report = self.check.error(NOT_VENDORS, &format!("/pages/{index}"), message);
                report.help("custom pages are B0h to FFh");
            }
        }
        for (index, mark) in self.file.marks.iter().enumerate() {
            self.place(&format!("/marks/{index}/at"), mark.at, mark.bytes.len());
        }
    }

    fn place(&mut self, path: &str, place: Register, count: usize) {
        let (offset, page) = (place.0.offset, place.0.page);
        let last = usize::from(offset) + count.max(1) - 1;
        if offset < 128 {
            if !CUSTOM_LOWER.contains(&offset) || last > usize::from(*CUSTOM_LOWER.end()) {
                let message = format!(
                    "bytes {offset} to {last} of the lower memory are not reserved for \
                        vendors"
                );
                self.check.error(NOT_VENDORS, path, message).help("only 64 to 84 are reserved");
            }
        } else if page < CUSTOM_PAGES_FROM {
            let message = format!("{place} is on a page that is not reserved for vendors");
            self.check.error(NOT_VENDORS, path, message).help("custom pages are B0h to FFh");
        } else if !self.file.pages.iter().any(|named| named.0 == page) {
            let message = format!("{place} is on a page that is not listed in `pages`");
            let help = format!("add it: `pages: [{page:02X}h]`");
            self.check.error(NOT_VENDORS, path, message).help(help);
        } else if last > 255 {
            let message = format!("{count} bytes from {place} extend past the end of the page");
            self.check.error(NOT_VENDORS, path, message).help("a page ends at 255");
        }
    }

    fn paths(&mut self) {
        let file = self.file;
        if file.groups == 0 || usize::from(file.groups) > GROUPS_MAX {
            let message = format!("{} switch groups", file.groups);
            self.check.error(CANNOT_MOVE, "/groups", message).help("a module has 1 to 8 groups");
        }
        let external = &file.paths.external;
        if external.is_empty() || external.len() > 8 {
            let message = format!("{} external paths", external.len());
            let report = self.check.error(CANNOT_MOVE, "/paths/external", message);
            report.help("use the codes of 1 to 8 fibres");
        }
        let mut codes = external.clone();
        codes.extend(file.paths.dark.iter().chain(&file.paths.loopback));
        codes.sort_unstable();
        if let Some(pair) = codes.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("two paths have the code {}", pair[0]);
            self.check.error(CANNOT_MOVE, "/paths", message).help("give each path a unique code");
        }
        let readable = file.active.mask & if file.active.bits == 4 { 0x0f } else { 0xff };
        if let Some(code) = codes.iter().find(|code| *code & !readable != 0) {
            let message = format!("the code {code} cannot be read back in these bits");
            let report = self.check.error(CANNOT_MOVE, "/active", message);
            report.help(
                "each path must be readable to be verified: make `bits` and `mask` large \
                enough",
            );
        }
    }

    fn steps(&mut self) {
        let file = self.file;
        for (name, steps) in [("arm", &file.arm), ("move", &file.moves)] {
            for (index, step) in steps.iter().enumerate() {
                self.step(&format!("/{name}/{index}"), step);
            }
        }
        let says = [&file.arm, &file.moves].into_iter().flatten().any(|step| match step {
            ProfileStepFile::Write { bytes, .. } | ProfileStepFile::Command { bytes, .. } => {
                bytes.contains(&ItemFile::Word(Word::Paths))
            }
            ProfileStepFile::Wait { .. } | ProfileStepFile::Pause(_) => false,
        });
        if !says {
            let report = self.check.error(CANNOT_MOVE, "/move", "no step writes `paths`");
            report.help("write the target paths: `- write: {at: \"B0h:136\", bytes: [paths]}`");
        } else if !file.moves.iter().any(|step: &ProfileStepFile| {
            matches!(step, ProfileStepFile::Write { .. } | ProfileStepFile::Command { .. })
        }) {
            let report = self.check.error(CANNOT_MOVE, "/move", "no step switches the module");
            report.help(
                "`arm` only prepares; put the write or command that switches the module in `move`",
            );
        }
    }

    fn step(&mut self, path: &str, step: &ProfileStepFile) {
        match step {
            ProfileStepFile::Write { at, bytes, mask } => {
                let count = self.items(&format!("{path}/write/bytes"), bytes);
                self.place(&format!("{path}/write/at"), *at, count);
                if *mask != 0xff && count != 1 {
                    let place = format!("{path}/write/mask");
                    let message =
                        format!("a mask applies to one byte, but this step writes {count}");
                    self.check.error(CANNOT_MOVE, &place, message).help("write one byte per step");
                }
            }
            ProfileStepFile::Command { id, bytes, within } => {
                self.command(&format!("{path}/command/id"), id.0);
                self.items(&format!("{path}/command/bytes"), bytes);
                self.within(&format!("{path}/command/within"), *within);
            }
            ProfileStepFile::Wait { at, is, mask, within } => {
                self.place(&format!("{path}/wait/at"), *at, 1);
                if is.is_empty() || is.iter().any(|value| value & !mask != 0) {
                    let place = format!("{path}/wait/is");
                    let message = "these bits never have this value";
                    self.check.error(CANNOT_MOVE, &place, message).help("use values within `mask`");
                }
                self.within(&format!("{path}/wait/within"), *within);
            }
            ProfileStepFile::Pause(span) => self.within(&format!("{path}/pause"), *span),
        }
    }

    fn command(&mut self, path: &str, id: u16) {
        if id < CUSTOM_COMMANDS_FROM {
            let message = format!("CDB command {id:04X}h is not reserved for vendors");
            self.check.error(NOT_VENDORS, path, message).help("8000h to FFFFh are");
        }
    }

    fn items(&mut self, path: &str, items: &[ItemFile]) -> usize {
        let groups = usize::from(self.file.groups);
        let count = items.iter().map(|item| item.length(groups)).sum();
        if count == 0 && path.contains("/write/") || count > BYTES_MAX {
            let message = format!("{count} bytes");
            let help = format!("use 1 to {BYTES_MAX} bytes in a step");
            self.check.error(CANNOT_MOVE, path, message).help(help);
        }
        count
    }

    fn sources(&mut self) {
        let file = self.file;
        self.source("/active", &file.active);
        let outcomes = [("/armed", &file.armed), ("/moved", &file.moved)];
        for (path, outcome) in outcomes {
            if let Some(outcome) = outcome {
                self.outcome(path, outcome);
            }
        }
        if file.armed.is_some() && file.arm.is_empty() {
            let report = self.check.error(CANNOT_MOVE, "/armed", "`armed` needs steps in `arm`");
            report.help("omit `armed`, or add the steps that arm");
        }
        if let Some(taps) = file.taps {
            self.place("/taps", taps, 2 * file.paths.external.len());
        }
        if let Some(links) = &file.links {
            self.place("/links/own", links.own, 4);
            self.place("/links/neighbour", links.neighbour, 5);
        }
    }

    fn source(&mut self, path: &str, source: &CodeSourceFile) {
        if source.bits != 4 && source.bits != 8 {
            let message = format!("{} bits per group", source.bits);
            let place = format!("{path}/bits");
            self.check.error(CANNOT_MOVE, &place, message).help("use 4 or 8");
        }
        match (source.at, source.command, source.offset) {
            (Some(at), None, None) => {
                self.place(&format!("{path}/at"), at, source.bytes(self.file.groups));
            }
            (None, Some(id), Some(_)) => self.command(&format!("{path}/command"), id.0),
            _ => {
                let report = self.check.error(CANNOT_MOVE, path, "the location is missing");
                report.help("use `at`, or `command` and `offset`");
            }
        }
    }

    fn outcome(&mut self, path: &str, outcome: &OutcomeFile) {
        self.source(&format!("{path}/from"), &outcome.from);
        let means = format!("{path}/means");
        if !outcome.means.iter().any(|one| one.is == OutcomeMeaning::Success) {
            let report = self.check.error(CANNOT_MOVE, &means, "no code means success");
            report.help("add `{code: 1, is: success}`");
        }
        for (index, one) in outcome.means.iter().enumerate() {
            if outcome.means[..index].iter().any(|before| before.code == one.code) {
                let message = format!("the code {} has two meanings", one.code);
                let report = self.check.error(CANNOT_MOVE, &format!("{means}/{index}"), message);
                report.help("list each code once");
            }
        }
    }

    fn limits(&mut self) {
        let limits = &self.file.limits;
        self.within("/limits/within", limits.within);
        for (path, span) in [("/limits/settle", limits.settle), ("/limits/dwell", limits.dwell)] {
            if span.0 > WITHIN_MAX {
                self.check.error(BAD_LIMIT, path, "longer than a minute").help("use up to 60s");
            }
        }
    }

    fn within(&mut self, path: &str, span: Text<Picoseconds>) {
        if span.0 == Picoseconds::ZERO || span.0 > WITHIN_MAX {
            let report = self.check.error(BAD_LIMIT, path, "0, or longer than a minute");
            report.help("use up to 60s");
        }
    }
}

impl ItemFile {
    pub(super) const fn length(self, groups: usize) -> usize {
        match self {
            Self::Word(Word::Paths) => groups,
            Self::Word(Word::Transaction) => 4,
            Self::Word(Word::TransactionLow) => 2,
            Self::Byte(_) | Self::Word(Word::Groups | Word::Policy | Word::Check) => 1,
        }
    }
}

impl CodeSourceFile {
    pub(super) fn bytes(&self, groups: u8) -> usize {
        (usize::from(groups) * usize::from(self.bits)).div_ceil(8)
    }
}

// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use lightloom_emulator::scenario;
use lightloom_fabric::document::{self, Code, Diagnostic, OtherKind};
use lightloom_fabric::file;
use lightloom_training::cards;
use lightloom_training::mapped;

use crate::files;
use crate::second::Needed;

pub type FileCheck = fn(&str, &[u8]) -> Vec<Diagnostic>;

pub struct FileKind {
    pub name: &'static str,
    pub about: &'static str,
    check: Option<FileCheck>,
    pub schema: &'static str,
    codes: &'static [Code],
}

pub struct Reader {
    pub kind: &'static str,
    pub check: FileCheck,
    pub codes: &'static [Code],
}

const fn of_second(name: &'static str, about: &'static str, schema: &'static str) -> FileKind {
    FileKind { name, about, check: None, schema, codes: &[] }
}

pub fn role_of(bytes: &[u8]) -> &'static str {
    if lightloom_fabric::plan::is_plan(bytes) {
        return "plan";
    }
    document::kind_of_keys(&document::top_keys(bytes)).unwrap_or("trace")
}

pub fn of_keys(keys: &[String]) -> Option<&'static FileKind> {
    document::kind_of_keys(keys).and_then(named)
}

/// Fails if the file is clearly not `wanted` (a noun with its article). `help` says how to get one.
pub fn expect(path: &Path, bytes: &[u8], wanted: &str, help: &str) -> Result<(), OtherKind> {
    document::other_kind(&files::name(path), bytes, wanted, help).map_or(Ok(()), Err)
}

pub const KINDS: &[FileKind] = &[
    FileKind {
        name: "fabric",
        about: "A cluster: installed parts, cabling and jobs",
        check: Some(|file, bytes| {
            let loaded = lightloom_planner::load_with(
                file,
                bytes,
                &mut |name| files::text_beside(Path::new(file), name),
                mapped::search,
            );
            loaded.1
        }),
        schema: include_str!("../docs/schemas/fabric.json"),
        codes: file::codes::ALL,
    },
    FileKind {
        name: "scenario",
        about: "An emulator run: network, workloads, faults and expectations",
        check: Some(|file, bytes| {
            let path = Path::new(file);
            scenario::file::load(file, bytes, &mut |name| files::beside(path, name)).1
        }),
        schema: include_str!("../docs/schemas/scenario.json"),
        codes: scenario::file::codes::ALL,
    },
    FileKind {
        name: "faults",
        about: "Faults and their times, for any scenario that references the file",
        check: Some(scenario::file::check_faults),
        schema: include_str!("../docs/schemas/faults.json"),
        codes: &[],
    },
    of_second(
        "prices",
        "Cost and power of parts, with source and confidence",
        include_str!("../docs/schemas/prices.json"),
    ),
    of_second(
        "buy",
        "A purchase: workload, size, budget, faults, and the designs to choose from",
        include_str!("../docs/schemas/buy.json"),
    ),
    of_second(
        "devices",
        "Emulated transceivers and optical switches, with their faults",
        include_str!("../docs/schemas/devices.json"),
    ),
    of_second(
        "daemon",
        "The daemon: its devices with their addresses, policies and access rights",
        include_str!("../docs/schemas/daemon.json"),
    ),
    of_second(
        "agent",
        "An agent on a host or switch: its modules, permitted clients, and whether circuits may be switched",
        include_str!("../docs/schemas/agent.json"),
    ),
    of_second(
        "module-profile",
        "How to set the optical switch in a type of module: registers, commands, codes, times",
        include_str!("../docs/schemas/module-profile.json"),
    ),
    FileKind {
        name: "model",
        about: "The dimensions of a model to train",
        check: Some(|file, bytes| cards::read_model(file, bytes).1),
        schema: include_str!("../docs/schemas/model.json"),
        codes: &[],
    },
    FileKind {
        name: "accelerator",
        about: "Compute, memory and link rates of an accelerator",
        check: Some(|file, bytes| cards::read_accelerator(file, bytes).1),
        schema: include_str!("../docs/schemas/accelerator.json"),
        codes: &[],
    },
];

pub fn named(name: &str) -> Option<&'static FileKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

impl FileKind {
    /// Returns all errors of the file, or [`Needed`] if its reader is missing.
    pub fn check(
        &self,
        file: &str,
        bytes: &[u8],
        readers: &[Reader],
    ) -> Result<Vec<Diagnostic>, Needed> {
        let reader = readers.iter().find(|reader| reader.kind == self.name);
        let check = self.check.or(reader.map(|reader| reader.check)).ok_or(Needed)?;
        Ok(check(file, bytes))
    }

    pub fn codes(&self) -> &'static [Code] {
        self.codes
    }
}

pub fn all_codes(readers: &[Reader]) -> Result<Vec<Code>, Needed> {
    let readers = KINDS
        .iter()
        .filter(|kind| kind.check.is_none())
        .map(|kind| readers.iter().find(|reader| reader.kind == kind.name).ok_or(Needed));
    let readers = readers.collect::<Result<Vec<_>, _>>()?;
    let kinds = KINDS.iter().flat_map(|kind| kind.codes);
    let more = readers.into_iter().flat_map(|reader| reader.codes);
    Ok(document::codes::ALL.iter().chain(kinds).chain(more).copied().collect())
}

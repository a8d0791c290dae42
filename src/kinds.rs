// SPDX-License-Identifier: Apache-2.0

use lightloom_emulator::scenario;
use lightloom_fabric::document::{self, Code, Diagnostic};
use lightloom_fabric::file;
use lightloom_training::cards;
use lightloom_training::mapped;
use serde_json::Value;

use crate::files;
use crate::second::Needed;

pub type FileCheck = fn(&str, &[u8]) -> Vec<Diagnostic>;

pub struct FileKind {
    pub name: &'static str,
    pub about: &'static str,
    /// Top-level keys that are typical of this kind and rare in others.
    marks: &'static [&'static str],
    check: Option<FileCheck>,
    pub schema: &'static str,
    codes: &'static [Code],
}

pub struct Reader {
    pub kind: &'static str,
    pub check: FileCheck,
    pub codes: &'static [Code],
}

/// The kind of a referenced input file, or `trace` if it is unknown.
pub fn role_of(bytes: &[u8]) -> &'static str {
    if lightloom_fabric::plan::is_plan(bytes) {
        return "plan";
    }
    of_keys(&document::top_keys(bytes)).map_or("trace", |kind| kind.name)
}

pub const KINDS: &[FileKind] = &[
    FileKind {
        name: "fabric",
        about: "A cluster: installed parts, cabling and jobs",
        marks: &["hbd", "links", "step", "dcn", "jobs"],
        check: Some(|file, bytes| {
            let path = std::path::Path::new(file);
            let mut read = |name: &str| files::text_beside(path, name);
            lightloom_planner::load_with(file, bytes, &mut read, mapped::search).1
        }),
        schema: include_str!("../docs/schemas/fabric.json"),
        codes: file::codes::ALL,
    },
    FileKind {
        name: "scenario",
        about: "An emulator run: network, workloads, faults and expectations",
        marks: &["on", "collectives", "traffic", "phases"],
        check: Some(|file, bytes| {
            let path = std::path::Path::new(file);
            scenario::file::load(file, bytes, &mut |name| files::beside(path, name)).1
        }),
        schema: include_str!("../docs/schemas/scenario.json"),
        codes: scenario::file::codes::ALL,
    },
    FileKind {
        name: "faults",
        about: "Faults and their times, for any scenario that references the file",
        marks: &["faults"],
        check: Some(scenario::file::check_faults),
        schema: include_str!("../docs/schemas/faults.json"),
        codes: &[],
    },
    FileKind {
        name: "prices",
        about: "Cost and power of parts, with source and confidence",
        marks: &["quotes"],
        check: None,
        schema: include_str!("../docs/schemas/prices.json"),
        codes: &[],
    },
    FileKind {
        name: "buy",
        about: "A purchase: workload, size, budget, faults, and the designs to choose from",
        marks: &["designs", "workload", "running", "checkpoint"],
        check: None,
        schema: include_str!("../docs/schemas/buy.json"),
        codes: &[],
    },
    FileKind {
        name: "devices",
        about: "Emulated transceivers and optical switches, with their faults",
        marks: &["transceivers", "fabric", "switches"],
        check: None,
        schema: include_str!("../docs/schemas/devices.json"),
        codes: &[],
    },
    FileKind {
        name: "daemon",
        about: "The daemon: its devices with their addresses, policies and access rights",
        marks: &["state_dir", "socket", "tls", "policies", "devices", "modules"],
        check: None,
        schema: include_str!("../docs/schemas/daemon.json"),
        codes: &[],
    },
    FileKind {
        name: "agent",
        about: "An agent on a host or switch: its modules, permitted clients, and whether circuits may be switched",
        marks: &["listen", "state_dir", "allow_moves", "cages"],
        check: None,
        schema: include_str!("../docs/schemas/agent.json"),
        codes: &[],
    },
    FileKind {
        name: "module-profile",
        about: "How to set the optical switch in a type of module: registers, commands, codes, times",
        marks: &["match", "active", "move", "moved", "limits"],
        check: None,
        schema: include_str!("../docs/schemas/module-profile.json"),
        codes: &[],
    },
    FileKind {
        name: "model",
        about: "The dimensions of a model to train",
        marks: &["vocabulary", "feed_forward"],
        check: Some(|file, bytes| cards::read_model(file, bytes).1),
        schema: include_str!("../docs/schemas/model.json"),
        codes: &[],
    },
    FileKind {
        name: "accelerator",
        about: "Compute, memory and link rates of an accelerator",
        marks: &["peak_tflops", "best_gemm_efficiency"],
        check: Some(|file, bytes| cards::read_accelerator(file, bytes).1),
        schema: include_str!("../docs/schemas/accelerator.json"),
        codes: &[],
    },
];

pub fn named(name: &str) -> Option<&'static FileKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Tolerates misspellings. Ties go to the kind that knows more of the keys.
pub fn of_keys(keys: &[String]) -> Option<&'static FileKind> {
    let exact = |mark: &str| keys.iter().any(|key| key == mark);
    let near = |mark: &str| document::closest(mark, keys.iter().map(String::as_str)).is_some();
    most(keys, |kind| kind.marks.iter().filter(|mark| exact(mark)).count())
        .or_else(|| most(keys, |kind| kind.marks.iter().filter(|mark| near(mark)).count()))
}

/// Returns the noun for a document written by a verb, or `None` for a user's file.
pub fn written(bytes: &[u8]) -> Option<String> {
    let schema = lightloom_fabric::plan::schema_of(bytes)?;
    let verb = schema.strip_prefix("lightloom.")?.split('/').next()?;
    Some(match verb {
        "plan" => "a plan".to_owned(),
        "run" | "sweep" | "month" => "a result of `emulate`".to_owned(),
        verb => format!("a result of `{verb}`"),
    })
}

/// Fails if the file is clearly of a different kind.
pub fn refuse_other(file: &str, bytes: &[u8], wanted: &str) -> Option<Diagnostic> {
    let article = |name: &str| if name.starts_with('a') { "an" } else { "a" };
    let refuse = |is: &str| {
        let message = format!("this is {is}, but {} {wanted} file is expected", article(wanted));
        Diagnostic::whole_file(document::codes::UNKNOWN_KIND, file, message)
    };
    if let Some(is) = written(bytes) {
        let help = "use the file from which it was computed, as listed in its `inputs`";
        return Some(refuse(&is).with_help(help));
    }
    let keys = document::top_keys(bytes);
    let found = of_keys(&keys).filter(|kind| kind.name != wanted)?;
    let is_marked =
        |kind: &FileKind| kind.marks.iter().any(|mark| keys.iter().any(|key| key == mark));
    if !is_marked(found) || named(wanted).is_some_and(is_marked) {
        return None;
    }
    let help = format!("format: `lightloom schema {wanted}`");
    Some(refuse(&format!("{} {} file", article(found.name), found.name)).with_help(help))
}

fn most(keys: &[String], count: impl Fn(&FileKind) -> usize) -> Option<&'static FileKind> {
    let most = KINDS.iter().map(&count).max().filter(|most| *most > 0)?;
    let kinds: Vec<&FileKind> = KINDS.iter().filter(|kind| count(kind) == most).collect();
    match kinds[..] {
        [kind] => Some(kind),
        _ => {
            let known: Vec<usize> = kinds.iter().map(|kind| kind.keys_known(keys)).collect();
            let best = known.iter().max()?;
            let mut best = kinds.iter().zip(&known).filter(|(_, known)| *known == best);
            let (kind, _) = best.next()?;
            best.next().is_none().then_some(kind)
        }
    }
}

impl FileKind {
    /// Returns all errors of the file, or [`Needed`] if its reader is missing.
    pub fn check(
        &self,
        file: &str,
        bytes: &[u8],
        readers: &[Reader],
    ) -> Result<Vec<Diagnostic>, Needed> {
        let reader = || readers.iter().find(|reader| reader.kind == self.name);
        let check = self.check.or_else(|| reader().map(|reader| reader.check)).ok_or(Needed)?;
        Ok(check(file, bytes))
    }

    pub fn codes(&self) -> &'static [Code] {
        self.codes
    }

    fn keys_known(&self, keys: &[String]) -> usize {
        let schema: Value = serde_json::from_str(self.schema).unwrap_or_default();
        let known = |key: &&String| schema["properties"].get(key.as_str()).is_some();
        keys.iter().filter(known).count()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_kinds_by_their_marks() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let name = |kind: Option<&FileKind>| kind.map(|kind| kind.name);
        assert_eq!(name(of_keys(&keys(&["name", "hbd"]))), Some("fabric"));
        assert_eq!(name(of_keys(&keys(&["name", "hdb"]))), Some("fabric"));
        assert_eq!(name(of_keys(&keys(&["name"]))), None);
        assert_eq!(name(of_keys(&keys(&["name", "on", "faults"]))), Some("scenario"));
        assert_eq!(name(of_keys(&keys(&["faults"]))), Some("faults"));
        let daemon = ["state_dir", "fabric", "devices"];
        assert_eq!(name(of_keys(&keys(&daemon))), Some("daemon"));
    }

    #[test]
    fn names_a_file_of_another_kind_and_leaves_typos_to_the_reader() {
        let said = |text: &str, wanted: &str| {
            refuse_other("x.yaml", text.as_bytes(), wanted).map(|mistake| mistake.message)
        };
        let prices = said("quotes: []\n", "scenario").unwrap();
        assert_eq!(prices, "this is a prices file, but a scenario file is expected");
        let fabric = "name: x\nhbd: {}\njobs: []\n";
        assert!(said(fabric, "accelerator").unwrap().ends_with("an accelerator file is expected"));
        assert_eq!(said(fabric, "fabric"), None);
        let run =
            said("{\"schema\": \"lightloom.run/v2\", \"scenario\": \"x\"}", "fabric").unwrap();
        assert_eq!(run, "this is a result of `emulate`, but a fabric file is expected");
        assert_eq!(said("name: x\nhdb: {}\n", "fabric"), None);
        assert_eq!(said("name: x\nfabric: f.yaml\ncollectives: []\n", "scenario"), None);
    }
}

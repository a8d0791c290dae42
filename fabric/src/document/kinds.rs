// SPDX-License-Identifier: Apache-2.0
//! Recognises the kind of a file by its `schema`, its first keys or its first line, so that a reader of another kind can
//! say what it was given.

use super::{Diagnostic, closest, codes, top_keys};
use crate::plan;

/// A kind of file with keys.
struct MarkedKind {
    name: &'static str,
    /// With its article.
    noun: &'static str,
    /// Name of the Rust type that is read from it; empty for JSON of other programs.
    document: &'static str,
    /// Top-level keys that are typical of this kind and rare in others.
    marks: &'static [&'static str],
    reader: &'static str,
}

/// If a file has as many marks of two kinds, the first counts.
#[rustfmt::skip]
const KEYED: &[MarkedKind] = &[
    MarkedKind { name: "fabric", noun: "a fabric file", document: "FabricFile", reader: "plan",
        marks: &["hbd", "links", "step", "dcn", "jobs"] },
    MarkedKind { name: "scenario", noun: "a scenario file", document: "ScenarioFile", reader: "emulate",
        marks: &["on", "collectives", "traffic", "phases"] },
    MarkedKind { name: "buy", noun: "a buy file", document: "BuyFile", reader: "buy",
        marks: &["designs", "workload", "running", "checkpoint"] },
    MarkedKind { name: "daemon", noun: "a daemon file", document: "DaemonFile", reader: "validate",
        marks: &["state_dir", "socket", "tls", "policies", "devices", "modules"] },
    MarkedKind { name: "agent", noun: "an agent file", document: "AgentFile", reader: "validate",
        marks: &["listen", "state_dir", "tls", "allow_moves", "cages"] },
    MarkedKind { name: "devices", noun: "a devices file", document: "DeviceListFile", reader: "device serve",
        marks: &["transceivers", "fabric", "switches"] },
    MarkedKind { name: "faults", noun: "a faults file", document: "FaultListFile", reader: "validate",
        marks: &["faults"] },
    MarkedKind { name: "prices", noun: "a prices file", document: "PriceFile", reader: "cost --prices",
        marks: &["quotes"] },
    MarkedKind { name: "module-profile", noun: "a module-profile file", document: "ProfileFile", reader: "validate",
        marks: &["match", "active", "move", "moved", "limits"] },
    MarkedKind { name: "model", noun: "a model file", document: "Model", reader: "mfu --model",
        marks: &["vocabulary", "feed_forward"] },
    MarkedKind { name: "accelerator", noun: "an accelerator file", document: "Accelerator", reader: "mfu --accelerator",
        marks: &["peak_tflops", "best_gemm_efficiency"] },
    MarkedKind { name: "trace", noun: "a fault trace", document: "", reader: "trace info",
        marks: &["events", "servers", "gpus_per_server"] },
    MarkedKind { name: "log", noun: "a log without the computation between collectives (NCCL Inspector, flight recorder)",
        document: "", reader: "init --from", marks: &["coll_perf", "pg_config", "entries"] },
    MarkedKind { name: "recording", noun: "a recorded step", document: "", reader: "workload replay",
        marks: &["traceEvents"] },
];

/// A file without keys: what it is, its reader, and words that its first line contains.
const LINES: &[(&str, &str, &[&str])] = &[
    ("a flow table (CSV)", "emulate` in `run: {flows: FILE}", &["src,dst,bytes"]),
    ("a CSV of measured runs", "calibrate", &["step_time_s", "num_accel", "tokens_s_per_accel"]),
    ("a GOAL file", "workload run", &["num_ranks"]),
    ("a fault trace", "trace info", &["\"event_type\"", "\"node_id\""]),
];

/// A file that is clearly of another kind than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is {is}, but {wanted} is expected; {help}")]
pub struct OtherKind {
    file: String,
    /// What the file is, with its article.
    pub is: String,
    wanted: String,
    help: String,
}

impl OtherKind {
    /// Returns the diagnostic of the whole file.
    pub fn diagnostic(self) -> Diagnostic {
        let message = format!("this is {}, but {} is expected", self.is, self.wanted);
        Diagnostic::whole_file(codes::UNKNOWN_KIND, &self.file, message).with_help(self.help)
    }
}

/// Returns the name of the kind of YAML file with these top-level keys. Tolerates misspellings.
pub fn kind_of_keys(keys: &[String]) -> Option<&'static str> {
    let own = KEYED.iter().filter(|kind| !kind.document.is_empty());
    most(own.clone(), |kind| exact(kind, keys))
        .or_else(|| {
            most(own, |kind| {
                let keys = keys.iter().map(String::as_str);
                kind.marks.iter().filter(|mark| closest(mark, keys.clone()).is_some()).count()
            })
        })
        .map(|kind| kind.name)
}

/// Returns the noun for a document written by a verb, or `None` for a user's file.
pub fn written(bytes: &[u8]) -> Option<String> {
    let schema = plan::schema_of(bytes)?;
    Some(match schema.strip_prefix("lightloom.")?.split('/').next()? {
        "plan" => "a plan".to_owned(),
        "sweep" => "a sweep result".to_owned(),
        "run" | "month" => "a result of `emulate`".to_owned(),
        verb => format!("a result of `{verb}`"),
    })
}

/// Returns an error if the file is clearly not `wanted` (a noun with its article). `help` says how to get one.
pub fn other_kind(file: &str, bytes: &[u8], wanted: &str, help: &str) -> Option<OtherKind> {
    let line = first_line(bytes);
    let (is, reader) = if let Some(is) = written(bytes) {
        let reader = match &*is {
            "a plan" => "`lightloom emulate SCENARIO --plan`, `replan` and `ctl apply` read it",
            _ => "use the file from which it was computed, as listed in its `inputs`",
        };
        (is, reader.to_owned())
    } else if let Some(kind) = keyed(bytes, wanted) {
        (kind.noun.to_owned(), format!("`lightloom {}` reads it", kind.reader))
    } else if let Some((is, reader, _)) =
        LINES.iter().find(|(.., words)| words.iter().any(|word| line.contains(word)))
    {
        ((*is).to_owned(), format!("`lightloom {reader}` reads it"))
    } else if line.contains(',') && !line.contains([' ', ':', '{', '[', '\u{fffd}', '\0']) {
        ("a table (CSV)".to_owned(), String::new())
    } else {
        return None;
    };
    let noun = match is.as_str() {
        "a table (CSV)" => "CSV",
        is => is.split_once(' ').map_or(is, |(_, noun)| noun),
    };
    let help = if reader.is_empty() { help.to_owned() } else { format!("{reader}; {help}") };
    let other =
        OtherKind { file: file.to_owned(), wanted: wanted.to_owned(), help, is: is.clone() };
    (!wanted.contains(noun)).then_some(other)
}

/// Returns the error of a file that is clearly not of the kind of the Rust type `document`.
pub(super) fn other_than(document: &str, file: &str, bytes: &[u8]) -> Option<Diagnostic> {
    let wanted = KEYED.iter().find(|kind| kind.document == document)?;
    let help = format!("format: `lightloom schema {}`", wanted.name);
    other_kind(file, bytes, wanted.noun, &help).map(OtherKind::diagnostic)
}

fn keyed(bytes: &[u8], wanted: &str) -> Option<&'static MarkedKind> {
    let text = String::from_utf8_lossy(bytes);
    let stated = text.lines().find_map(|line| line.strip_prefix("kind:"));
    if let Some(kind) = KEYED.iter().find(|kind| stated.is_some_and(|is| is.trim() == kind.name)) {
        return (kind.noun != wanted).then_some(kind);
    }
    let keys = top_keys(bytes);
    let found = most(KEYED.iter(), |kind| exact(kind, &keys))?;
    let own = KEYED.iter().find(|kind| kind.noun == wanted).map_or(0, |kind| exact(kind, &keys));
    (exact(found, &keys) > own).then_some(found)
}

/// The whole beginning of a JSON list, whose line breaks mean nothing.
fn first_line(bytes: &[u8]) -> String {
    const LONGEST: usize = 4096;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]);
    let text = head.trim_start();
    match text.starts_with('[') {
        true => text.to_owned(),
        false => text.lines().next().unwrap_or_default().to_owned(),
    }
}

fn exact(kind: &MarkedKind, keys: &[String]) -> usize {
    kind.marks.iter().filter(|mark| keys.iter().any(|key| key == *mark)).count()
}

fn most<'k>(
    kinds: impl Iterator<Item = &'k MarkedKind>,
    count: impl Fn(&MarkedKind) -> usize,
) -> Option<&'k MarkedKind> {
    let counted = kinds.map(|kind| (count(kind), kind)).filter(|(count, _)| *count > 0);
    counted.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_kinds_by_their_marks() {
        let of = |keys: &[&str]| {
            kind_of_keys(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["name", "hbd"]), Some("fabric"));
        assert_eq!(of(&["name", "hdb"]), Some("fabric"));
        assert_eq!(of(&["name"]), None);
        assert_eq!(of(&["name", "on", "faults"]), Some("scenario"));
        assert_eq!(of(&["faults"]), Some("faults"));
        assert_eq!(of(&["fabric", "faults"]), Some("devices"));
        assert_eq!(of(&["state_dir", "fabric", "devices"]), Some("daemon"));
        assert_eq!(of(&["traceEvents"]), None);
    }

    #[test]
    fn stated_kind_counts_more_than_marks() {
        let text = "kind: scenario\nname: x\nfabric: ring.yaml\n";
        let other = |wanted: &str| other_kind("x", text.as_bytes(), wanted, "see the format");
        assert_eq!(other("a scenario file"), None);
        assert_eq!(other("a devices file").map(|other| other.is), Some("a scenario file".into()));
    }

    #[test]
    fn names_a_file_of_another_kind_and_leaves_typos_to_the_reader() {
        let said = |text: &str, wanted: &str| {
            other_kind("x", text.as_bytes(), wanted, "see the format")
                .map(|other| other.to_string())
        };
        let fabric = "name: x\nhbd: {}\njobs: []\n";
        assert_eq!(
            said(fabric, "a CSV of measured runs").unwrap(),
            "x is a fabric file, but a CSV of measured runs is expected; `lightloom plan` reads it; see the format"
        );
        assert_eq!(said(fabric, "a fabric file"), None);
        assert_eq!(said("name: x\nhdb: {}\n", "a fabric file"), None);
        assert_eq!(said("name: x\nfabric: f.yaml\ncollectives: []\n", "a scenario file"), None);
        let run = said("{\"schema\": \"lightloom.run/v2\", \"scenario\": \"x\"}", "a fabric file");
        assert!(run.unwrap().starts_with("x is a result of `emulate`, but a fabric file"));
        let is = |text: &str| {
            other_kind("x", text.as_bytes(), "a plan", "").map_or(String::new(), |other| other.is)
        };
        assert_eq!(is("start,src,dst,bytes\n0,a,b,1\n"), "a flow table (CSV)");
        assert_eq!(is("id,day\n1,2\n"), "a table (CSV)");
        assert_eq!(is("node_id,event_time,event_type\n"), "a table (CSV)");
        assert_eq!(is("num_ranks 4\n"), "a GOAL file");
        assert_eq!(is("{\"traceEvents\": []}"), "a recorded step");
        assert_eq!(is("[{\"node_id\": \"a\"}]"), "a fault trace");
        assert_eq!(is("\u{8}\u{2}binary, or so"), "");
    }
}

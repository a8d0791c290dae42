// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use clap::ValueEnum;
use lightloom_fabric::document::{self, Diagnostic, Severity, codes};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::check::check;
use lightloom_planner::khop;
use serde_json::json;

use crate::emulate::ScenarioSource;
use crate::files;
use crate::kinds::{self, FileKind, KINDS, Reader};
use crate::output::{self, VerbOutcome, WrongUsage};
use crate::replan;
use crate::result::csv_of;
use crate::schema::kind_name;

/// Check files and report every error with its location and fix
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom validate fabric.yaml
  lightloom validate topologies/*.yaml --format sarif > findings.sarif
  lightloom validate faults.yaml --scenario scenario.yaml
  lightloom validate plan.json --fabric fabric.yaml
  generate-fabric | lightloom validate - --kind fabric")]
pub struct Arguments {
    /// Files; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File kind [default: detected from the keys]
    #[arg(long, value_name = "KIND", value_parser = kind_name())]
    kind: Option<String>,
    /// Check fault files against this scenario: its fabric or network must have the parts, and they
    /// must be able to fail in this way
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Verify plans on this fabric, with the faults that they list
    #[arg(long, value_name = "FILE")]
    fabric: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ValidationFormat,
}

/// Output formats of a validation.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ValidationFormat {
    /// Source excerpts
    #[default]
    Text,
    /// One JSON document
    Json,
    /// One row per error, and one per valid file
    Csv,
    /// SARIF 2.1.0, for code-scanning services
    Sarif,
}

struct FileFindings {
    file: String,
    kind: Option<&'static str>,
    mistakes: Vec<Diagnostic>,
}

struct Against {
    scenario: Option<ScenarioSource>,
    fabric: Option<Fabric>,
}

/// Plans are written by programs and verified by `--fabric`.
const PLAN: &str = "plan";

const FAULTS: &str = "faults";

impl FileFindings {
    fn is_of_faults(&self) -> bool {
        self.kind == Some(FAULTS)
    }

    fn is_good(&self) -> bool {
        self.mistakes.iter().all(|mistake| mistake.severity != Severity::Error)
    }
}

/// `readers` covers the kinds that the first program knows only by name.
pub fn run(arguments: &Arguments, readers: &[Reader]) -> anyhow::Result<VerbOutcome> {
    let kind = arguments.kind.as_deref().and_then(kinds::named);
    let against = Against {
        scenario: arguments.scenario.as_deref().map(ScenarioSource::read).transpose()?,
        fabric: arguments.fabric.as_deref().map(crate::fabric::read).transpose()?,
    };
    let examined = arguments.files.iter().map(|path| examine(path, kind, &against, readers));
    let findings: Vec<FileFindings> = examined.collect::<anyhow::Result<_>>()?;
    if against.scenario.is_some() && !findings.iter().any(FileFindings::is_of_faults) {
        let message = "--scenario requires a fault file";
        return Err(WrongUsage(message.to_owned()).into());
    }
    if against.fabric.is_some() && !findings.iter().any(|finding| finding.kind == Some(PLAN)) {
        let message = "--fabric requires a plan";
        return Err(WrongUsage(message.to_owned()).into());
    }
    match arguments.format {
        ValidationFormat::Text => show_text(&findings)?,
        ValidationFormat::Json => show_json(&findings)?,
        ValidationFormat::Csv => show_csv(&findings)?,
        ValidationFormat::Sarif => show_sarif(&findings, readers)?,
    }
    let good = findings.iter().all(FileFindings::is_good);
    Ok(if good { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn examine(
    path: &std::path::Path,
    kind: Option<&'static FileKind>,
    against: &Against,
    readers: &[Reader],
) -> anyhow::Result<FileFindings> {
    let file = files::name(path);
    let bytes = match files::read_document(path) {
        Ok(bytes) => bytes,
        Err(mistake) => {
            let kind = kind.map(|kind| kind.name);
            return Ok(FileFindings { file, kind, mistakes: vec![*mistake] });
        }
    };
    if plan::is_plan(&bytes) {
        let mistakes = prove(path, &file, against.fabric.as_ref());
        return Ok(FileFindings { file, kind: Some(PLAN), mistakes });
    }
    if let Some(is) = document::written(&bytes) {
        let message = format!("this is {is}; only plans and user-written files can be checked");
        let mistakes = vec![Diagnostic::whole_file(codes::UNKNOWN_KIND, &file, message)];
        return Ok(FileFindings { file, kind: None, mistakes });
    }
    let kind = kind.or_else(|| kinds::of_keys(&document::top_keys(&bytes)));
    let mistakes = match (kind, &against.scenario) {
        (Some(kind), Some(scenario)) if kind.name == FAULTS => scenario.check_faults(&file, &bytes),
        (Some(kind), _) => kind.check(&file, &bytes, readers)?,
        (None, _) => unknown_kind(&file, &bytes),
    };
    Ok(FileFindings { file, kind: kind.map(|kind| kind.name), mistakes })
}

fn prove(path: &std::path::Path, file: &str, fabric: Option<&Fabric>) -> Vec<Diagnostic> {
    let Some(fabric) = fabric else {
        let message = "this is a plan, which can only be checked with its fabric";
        let help = "add `--fabric FILE` to check it";
        return vec![Diagnostic::whole_file(codes::UNKNOWN_KIND, file, message).with_help(help)];
    };
    let reasons = violations(path, fabric).unwrap_or_else(|error| vec![format!("{error:#}")]);
    let mistakes = reasons.into_iter();
    mistakes.map(|reason| Diagnostic::whole_file(codes::NOT_SOUND, file, reason)).collect()
}

fn violations(path: &std::path::Path, fabric: &Fabric) -> anyhow::Result<Vec<String>> {
    let plan = replan::read_plan(path, &mut Inputs::new())?;
    let (_, faults) = khop::from_document(fabric, &plan)?;
    let violations = check(fabric, &faults, &plan).err().unwrap_or_default();
    Ok(violations.iter().map(ToString::to_string).collect())
}

fn unknown_kind(file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
    let (_, mistakes) = document::read::<serde_json::Value>(file, bytes);
    if !mistakes.is_empty() {
        return mistakes;
    }
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let message = "cannot detect the kind of file from its keys";
    let help = format!("add `--kind KIND` (known: {})", names.join(", "));
    vec![Diagnostic::whole_file(codes::UNKNOWN_KIND, file, message).with_help(help)]
}

fn show_text(findings: &[FileFindings]) -> anyhow::Result<()> {
    for finding in findings {
        output::diagnostics(&finding.mistakes);
        let kind = finding.kind.unwrap_or("file");
        if finding.is_good() {
            output::print(&format!("{}: good {kind} file\n", finding.file))?;
        }
    }
    Ok(())
}

fn show_json(findings: &[FileFindings]) -> anyhow::Result<()> {
    let files: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "file": finding.file,
                "kind": finding.kind,
                "valid": finding.is_good(),
                "diagnostics": finding.mistakes,
            })
        })
        .collect();
    output::print_document("lightloom.validate/v1", &json!({ "files": files }))
}

fn show_csv(findings: &[FileFindings]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for finding in findings {
        let about = json!({"file": finding.file, "kind": finding.kind, "valid": finding.is_good()});
        if finding.mistakes.is_empty() {
            rows.push(about.clone());
        }
        for mistake in &finding.mistakes {
            let mut row = about.clone();
            row["mistake"] = serde_json::to_value(mistake)?;
            rows.push(row);
        }
    }
    output::print(&csv_of(&rows, "")?)
}

fn show_sarif(findings: &[FileFindings], readers: &[Reader]) -> anyhow::Result<()> {
    let mistakes: Vec<Diagnostic> =
        findings.iter().flat_map(|finding| finding.mistakes.iter().cloned()).collect();
    let version = env!("CARGO_PKG_VERSION");
    output::print_json(&document::sarif(&mistakes, &kinds::all_codes(readers)?, version))
}

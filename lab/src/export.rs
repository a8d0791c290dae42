// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use lightloom_fabric::plan::digest;
use lightloom_fabric::provenance::{Inputs, VERSION};
use lightloom_planner::khop;
use lightloom_report::export::{Export, ExportFormat as Target, FORMATS, FatTreePlan, RingPlan};
use serde::Serialize;
use serde_json::{Value, json};

use crate::host_names::HostNames;
use lightloom::output::{self, VerbOutcome, WrongUsage};
use lightloom::result::{ResultDocument, ResultFormat};
use lightloom::table::TextTable;
use lightloom::{files, plan, replan};

const SCHEMA: &str = "lightloom.export/v1";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom export --list
  lightloom export plan.json --fabric topologies/ring-2880.yaml --to slurm --hostname 'gpu{:04}' -o topology.yaml
  lightloom export plan.json --fabric topologies/ring-32.yaml --to dot | dot -Tsvg > plan.svg
  lightloom export plan.json --fabric topologies/rfabric-2048.yaml --to sonic-ocs --phase rollout -o switches/")]
pub(crate) struct Arguments {
    /// Plan, as written by `lightloom plan -o`.
    #[arg(required_unless_present = "list")]
    plan: Option<PathBuf>,
    /// Fabric file that the plan was made for.
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    fabric: Option<PathBuf>,
    /// Format to write.
    #[arg(long, value_name = "FORMAT", value_parser = target_names(), required_unless_present = "list")]
    to: Option<String>,
    #[command(flatten)]
    names: HostNames,
    /// Job to export, in formats that hold only one job [default: the first].
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Phase of a fat-tree plan to export [default: all, or the first].
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    /// Output file, or folder for formats with several files [default: standard output].
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// List the formats and the kinds of plans that they can express.
    #[arg(long)]
    list: bool,
    /// Output format; `csv` and `markdown` are only for --list.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
}

fn target_names() -> PossibleValuesParser {
    PossibleValuesParser::new(
        FORMATS.iter().map(|target| PossibleValue::new(target.name).help(target.about)),
    )
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let (Some(plan), Some(fabric), Some(to)) = (&arguments.plan, &arguments.fabric, &arguments.to)
    else {
        list(arguments.format)?;
        return Ok(VerbOutcome::Good);
    };
    if matches!(arguments.format, ResultFormat::Csv | ResultFormat::Markdown) {
        return Err(WrongUsage("only --list supports csv and markdown".into()).into());
    }
    let target = Target::named(to).expect("the argument parser accepts only known formats");
    let mut of = ExportSource { plan, fabric, inputs: Inputs::new(), digest: String::new() };
    let export = export_of(arguments, &mut of, target)?;
    for lost in &export.lost {
        output::note(&format!("note: {} cannot express {lost}", target.name));
    }
    write(arguments, target, &export, &of)?;
    Ok(VerbOutcome::Good)
}

struct ExportSource<'a> {
    plan: &'a Path,
    fabric: &'a Path,
    inputs: Inputs,
    digest: String,
}

/// Exports rings if both the plan and the format support them; otherwise exports circuits.
fn export_of(
    arguments: &Arguments,
    of: &mut ExportSource<'_>,
    target: &Target,
) -> anyhow::Result<Export> {
    let fabric = lightloom::fabric::read(of.fabric)?;
    of.inputs.insert("fabric".to_owned(), plan::fabric_input(of.fabric, &fabric));
    for (name, text) in &fabric.files {
        if let Ok(text) = text {
            files::note_input(&mut of.inputs, "matrix", name, text.as_bytes());
        }
    }
    let plan = replan::read_plan(of.plan, &mut of.inputs)?;
    let name = of.plan.display().to_string();
    let (_, faults) = khop::from_document(&fabric, &plan).with_context(|| name.clone())?;
    plan::prove(&fabric, &faults, &plan).context(name)?;
    of.digest = digest(&plan);
    let circuits = fabric.dcn.circuits().filter(|_| plan.metrics.dark_port_time_share.is_some());
    let has_rings = !plan.groups.is_empty() || circuits.is_none();
    let asks_for_circuits = arguments.phase.is_some() || target.ring.is_err();
    match circuits {
        Some(network) if !has_rings || asks_for_circuits => {
            if arguments.job.is_some() {
                return Err(wrong_flag("--job", "circuits are shared by all jobs"));
            }
            let names = arguments.names.read("leaf", network.spec().leaves)?;
            let phase = arguments.phase.as_deref();
            let plan = FatTreePlan::new(&fabric.name, network, &plan, &names, phase)?;
            Ok(target.of_fat_tree(&plan)?)
        }
        _ => {
            if arguments.phase.is_some() {
                return Err(wrong_flag("--phase", "the plan of a k-hop ring has no phases"));
            }
            let names = arguments.names.read("n", fabric.hbd.nodes())?;
            let job = arguments.job.as_deref();
            Ok(target.of_ring(&RingPlan::new(&fabric, &plan, &names, job)?)?)
        }
    }
}

fn wrong_flag(flag: &str, why: &str) -> anyhow::Error {
    WrongUsage(format!("`{flag}` does not apply: {why}")).into()
}

fn write(
    arguments: &Arguments,
    target: &Target,
    export: &Export,
    of: &ExportSource<'_>,
) -> anyhow::Result<()> {
    let mut written = Vec::new();
    match (&arguments.output, &export.files[..]) {
        (None, [file]) if arguments.format == ResultFormat::Text => output::print(&file.text)?,
        (None, files) if arguments.format == ResultFormat::Text => {
            anyhow::bail!("{} writes {} files: set their folder with -o", target.name, files.len())
        }
        (None, _) => {}
        (Some(path), [file]) if !path.is_dir() => {
            files::write(path, file.text.as_bytes())?;
            written.push(path.clone());
        }
        (Some(folder), files) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
            for file in files {
                let path = folder.join(&file.name);
                files::write(&path, file.text.as_bytes())?;
                written.push(path);
            }
        }
    }
    match arguments.format {
        ResultFormat::Text if written.is_empty() => Ok(()),
        ResultFormat::Text => output::print(
            &written.iter().map(|path| format!("{}\n", path.display())).collect::<String>(),
        ),
        _ => output::print_json(&result(target, export, &written, of)),
    }
}

fn result(target: &Target, export: &Export, written: &[PathBuf], of: &ExportSource<'_>) -> Value {
    let files: Vec<Value> = match written {
        [] => export
            .files
            .iter()
            .map(|file| json!({ "name": file.name, "text": file.text }))
            .collect(),
        paths => paths.iter().map(|path| json!({ "path": path })).collect(),
    };
    json!({
        "schema": SCHEMA,
        "version": VERSION,
        "inputs": of.inputs,
        "plan": of.digest,
        "to": target.name,
        "files": files,
        "lost": export.lost,
    })
}

#[derive(Serialize)]
struct FormatRow {
    name: &'static str,
    khop: bool,
    rfabric: bool,
    about: &'static str,
}

fn list(format: ResultFormat) -> anyhow::Result<()> {
    let formats = FORMATS.iter().map(|target| FormatRow {
        name: target.name,
        khop: target.ring.is_ok(),
        rfabric: target.fat_tree.is_ok(),
        about: target.about,
    });
    let formats = BTreeMap::from([("formats", formats.collect::<Vec<_>>())]);
    let document = ResultDocument::new("lightloom.formats/v1", Inputs::new(), formats);
    let mut table = TextTable::new(["format", "k-hop ring", "fat-tree", "what it is"]);
    for target in FORMATS {
        let [ring, fat_tree] = [target.ring.is_ok(), target.fat_tree.is_ok()]
            .map(|can| if can { "yes" } else { "no" }.to_owned());
        table.row([target.name.to_owned(), ring, fat_tree, target.about.to_owned()]);
    }
    format.print(&document, "formats", || table.to_string())
}

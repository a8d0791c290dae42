// SPDX-License-Identifier: Apache-2.0

use std::fs;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use lightloom_fabric::preset::{Preset, Size};

use crate::choice::one_of;
use crate::files;
use crate::output::{self, Format, FormatArgument, VerbOutcome, WrongUsage};

mod daemon_file;
mod gallery;
mod own_data;

/// Write files to start from: a cluster, scenarios, CI, a lab
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom init
  lightloom init --preset khop --gpus 131072 -o fabric.yaml
  lightloom init cluster --preset khop --gpus 64 -o mine/
  lightloom init scenario -o mine/
  lightloom init lab -o mine/
  lightloom init --preset pod --gpus 2048 --tp 32 | lightloom plan -
  lightloom init --daemon fabric.yaml -o daemon.yaml
  lightloom init --from logs/ -o mine/")]
pub struct Arguments {
    /// What to write. Other kinds than `cluster` are shipped files and need a folder (-o)
    #[arg(value_enum, default_value_t, value_name = "KIND")]
    kind: Kind,
    /// Fabric design [default: prompt on a terminal]
    #[arg(long, value_name = "PRESET", value_parser = one_of(&Preset::ALL))]
    preset: Option<Preset>,
    /// Number of GPUs [default: prompt on a terminal]
    #[arg(long, value_name = "N", value_parser = crate::number::whole::<u32>(1..=u32::MAX.into()))]
    gpus: Option<u32>,
    /// GPUs per tensor-parallel group [default: 32 on rings, 8 in switch domains and below 128
    /// GPUs]
    #[arg(long, value_name = "N", value_parser = crate::number::whole::<u32>(1..=u32::MAX.into()))]
    tp: Option<u32>,
    /// Write a daemon file for the transceivers and optical switches of this fabric
    #[arg(long, value_name = "FABRIC", conflicts_with_all = ["preset", "gpus", "tp", "from"])]
    daemon: Option<PathBuf>,
    /// Folder with your own logs (jobs, faults, topology, profiles), each recognised by its content,
    /// or one log
    #[arg(long, value_name = "PATH", conflicts_with_all = ["preset", "gpus", "tp"], requires = "output")]
    from: Option<PathBuf>,
    /// File to write, which must not exist [default: standard output], or a folder for several
    /// files: `cluster` then adds a scenario for its fabric
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgument,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A fabric file
    #[default]
    Cluster,
    /// Scenarios with their fabrics
    Scenario,
    /// Workflows for GitHub and GitLab, with a scenario
    Ci,
    /// Emulated devices, their daemon, and scenarios for the virtual twin
    Lab,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let describes_cluster = arguments.preset.is_some()
        || arguments.gpus.is_some()
        || arguments.tp.is_some()
        || arguments.daemon.is_some()
        || arguments.from.is_some();
    if arguments.kind != Kind::Cluster && describes_cluster {
        let message = "--preset, --gpus, --tp, --daemon and --from apply only to `init cluster`";
        return Err(WrongUsage(message.into()).into());
    }
    if let (Some(folder), Some(output)) = (&arguments.from, &arguments.output) {
        return own_data::run(folder, output, arguments.format.format);
    }
    if arguments.kind != Kind::Cluster {
        return match &arguments.output {
            Some(folder) => gallery::write(arguments.kind, folder),
            None => Err(WrongUsage("these files need a folder: use -o FOLDER".into()).into()),
        };
    }
    if arguments.format.format == Format::Json {
        return Err(WrongUsage("`--format json` lists guesses and requires --from".into()).into());
    }
    if let Some(path) = &arguments.daemon {
        let fabric = crate::fabric::read(path)?;
        // The daemon resolves the fabric file relative to its own file.
        let folder = arguments.output.as_deref().and_then(Path::parent);
        let named = match path.file_name() {
            Some(name) if folder == path.parent() => PathBuf::from(name),
            _ => std::path::absolute(path)?,
        };
        let text = daemon_file::text(&fabric, &named.display().to_string())?;
        let next = "check it with `lightloomd --check --config";
        return write_new(arguments.output.as_deref(), &text, next);
    }
    let preset = match arguments.preset {
        Some(preset) => preset,
        None => ask_for_preset()?,
    };
    let gpus = match arguments.gpus {
        Some(gpus) => gpus,
        None => ask("How many GPUs?", "--gpus 2048", "2048")?
            .parse()
            .map_err(|_| WrongUsage("use a number of GPUs, such as 2048".into()))?,
    };
    let text = preset
        .file(Size { gpus, tp: arguments.tp })
        .map_err(|misfit| WrongUsage(misfit.to_string()))?;
    match arguments.output.as_deref() {
        Some(folder) if is_folder(folder) => {
            let scenario = scenario_of(preset);
            write_folder(folder, [("fabric.yaml", text.as_str()), ("scenario.yaml", &scenario)])?;
            let shown = folder.join("").display().to_string();
            output::note(&format!("wrote {shown}fabric.yaml and {shown}scenario.yaml; next:"));
            for command in [
                format!("lightloom plan {shown}fabric.yaml -o {shown}plan.json"),
                format!("lightloom emulate {shown}scenario.yaml -o {shown}run.json"),
                format!(
                    "lightloom report {shown}fabric.yaml {shown}plan.json {shown}run.json -o {shown}report.html"
                ),
            ] {
                output::note(&format!("  {command}"));
            }
            Ok(VerbOutcome::Good)
        }
        file => write_new(file, &text, "plan it with `lightloom plan"),
    }
}

/// A path that ends in `/` or is a folder already.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// A scenario that runs on the fabrics of this preset. Only rings bypass a node without help of the job.
fn scenario_of(preset: Preset) -> String {
    let has_rings = matches!(preset, Preset::Khop | Preset::Pod);
    let (about, faults, expect) = if has_rings {
        (
            "A node fails during an all-reduce. Its ring bypasses the node; other rings are unaffected.",
            "faults:\n  - {part: n1, at: 50us}\ncontrol: {detection_delay: 1ms, planning_delay: 2ms}\n",
            "  - restored within 5ms\n  - groups_affected <= 1\n",
        )
    } else {
        ("Each tensor-parallel group runs an all-reduce.", "", "  - completes within 50ms\n")
    };
    format!(
        "# {about}\n# Keys, faults and expectations: docs/scenarios.md.\nkind: scenario\nversion: 2\nname: first\n\
         on: {{fabric: fabric.yaml}}\nseed: 1\ncollectives:\n  - all_reduce: {{name: tensor, bytes: 4MiB, repeat: 8}}\n\
         {faults}expect:\n{expect}"
    )
}

/// Writes new files, or none if one of them exists.
fn write_folder<'a>(
    folder: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> anyhow::Result<Vec<PathBuf>> {
    let files: Vec<(PathBuf, &str)> =
        files.into_iter().map(|(name, text)| (folder.join(name), text)).collect();
    files.iter().try_for_each(|(path, _)| is_new(path))?;
    for (path, text) in &files {
        let folder = path.parent().unwrap_or(folder);
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        files::write(path, text.as_bytes())?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// `next` is the command to suggest afterwards. Existing files are not overwritten.
fn write_new(path: Option<&Path>, text: &str, next: &str) -> anyhow::Result<VerbOutcome> {
    match path {
        None => output::print(text)?,
        Some(path) => {
            is_new(path)?;
            files::write(path, text.as_bytes())?;
            let shown = path.display();
            output::note(&format!("wrote {shown}: {next} {shown}`"));
        }
    }
    Ok(VerbOutcome::Good)
}

fn is_new(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{} already exists: remove it or use another path", path.display());
    }
    Ok(())
}

fn ask_for_preset() -> anyhow::Result<Preset> {
    if stdin().is_terminal() {
        output::note("Designs:");
        for (_, name, about) in Preset::ALL {
            output::note(&format!("  {name:<8} {about}"));
        }
    }
    let answer = ask("Preset?", "--preset khop", "khop")?;
    Preset::named(&answer).ok_or_else(|| {
        let known = Preset::ALL.map(|(_, name, _)| name).join(", ");
        WrongUsage(format!("unknown preset `{answer}`: use one of {known}")).into()
    })
}

/// Without a terminal, the error suggests `flag`.
fn ask(question: &str, flag: &str, usual: &str) -> anyhow::Result<String> {
    if !stdin().is_terminal() {
        return Err(WrongUsage(format!("no terminal for a prompt: use {flag}")).into());
    }
    write!(stderr(), "{question} [{usual}] ")?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    let answer = answer.trim();
    Ok(if answer.is_empty() { usual.to_owned() } else { answer.to_owned() })
}

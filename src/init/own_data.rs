// SPDX-License-Identifier: Apache-2.0

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lightloom_fabric::provenance::{Input, Inputs, VERSION};
use lightloom_import::{Draft, KINDS, LogFile, LogProblem, Logs};
use serde_json::{Value, json};

use super::write_folder;
use crate::files;
use crate::output::{self, Format, VerbOutcome};
use crate::table::TextTable;

const SCHEMA: &str = "lightloom.init/v1";

struct OwnFile {
    name: String,
    bytes: Vec<u8>,
}

pub(super) fn run(folder: &Path, output: &Path, format: Format) -> anyhow::Result<VerbOutcome> {
    let own = read(folder, output)?;
    let logs: Vec<LogFile<'_>> =
        own.iter().map(|file| LogFile { name: &file.name, bytes: &file.bytes }).collect();
    let logs = lightloom_import::read(&logs);
    for problem in &logs.problems {
        output::note(&format!("{problem}"));
    }
    if logs.read.is_empty() {
        let known: Vec<String> =
            KINDS.iter().map(|kind| format!("\n  {}: {}", kind.name, kind.from)).collect();
        anyhow::bail!(
            "{} does not contain any known log. Known logs:{}",
            folder.display(),
            known.concat()
        );
    }
    if logs.say_nothing() {
        anyhow::bail!("cannot read any file in {}; no files were written", folder.display());
    }
    let draft = lightloom_import::draft(&logs, &|log| way(output, log));
    let files = draft.files.iter().map(|file| (file.name, file.text.as_str()));
    let written = write_folder(output, files)?;
    match format {
        Format::Text => output::print(&text(&logs, &draft, output)?)?,
        Format::Json => output::print_json(&document(&own, &logs, &draft, &written))?,
    }
    Ok(VerbOutcome::Good)
}

fn read(folder: &Path, output: &Path) -> anyhow::Result<Vec<OwnFile>> {
    let (mut folders, mut paths) = (vec![folder.to_owned()], Vec::new());
    if folder.is_file() {
        paths.append(&mut folders);
    }
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let is_hidden =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if is_hidden || path == output {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    let mut own = Vec::new();
    for path in paths {
        let mut bytes = Vec::new();
        let file = fs::File::open(&path).and_then(files::unpacked);
        match file.and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => own.push(OwnFile { name: files::name(&path), bytes }),
            Err(error) => output::note(&format!("{}: {error}; skipped", path.display())),
        }
    }
    Ok(own)
}

fn way(output: &Path, log: &str) -> String {
    let [from, to] = [output, Path::new(log)]
        .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(std::ffi::OsStr::new(".."), from.components().count() - shared);
    let down = to.components().skip(shared).map(std::path::Component::as_os_str);
    up.chain(down).collect::<PathBuf>().display().to_string()
}

fn text(logs: &Logs, draft: &Draft, folder: &Path) -> anyhow::Result<String> {
    let mut read = TextTable::new(["log", "read as"]).verbatim();
    for log in &logs.read {
        read.row([log.file.clone(), log.kind.to_owned()]);
    }
    let mut guesses = TextTable::new(["file", "key", "value", "sure", "from"]).verbatim();
    for guess in &draft.guesses {
        let (file, key) = (guess.file.to_owned(), guess.key.to_owned());
        guesses.row([
            file,
            key,
            guess.value.clone(),
            guess.confidence.to_string(),
            guess.why.clone(),
        ]);
    }
    let folder = folder.display();
    Ok(format!(
        "{read}\n{guesses}\nnext: lightloom emulate {folder}/scenario.yaml\n      lightloom buy {folder}/buy.yaml\n"
    ))
}

fn document(own: &[OwnFile], logs: &Logs, draft: &Draft, written: &[PathBuf]) -> Value {
    let mut inputs = Inputs::new();
    for file in own {
        inputs.insert(file.name.clone(), Input::of(file.name.clone(), &file.bytes));
    }
    let problems: Vec<Value> = logs
        .problems
        .iter()
        .map(|problem| {
            let LogProblem { place, trouble, still } = problem;
            json!({ "file": place.file, "line": place.line, "problem": trouble, "still": still })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "version": VERSION,
        "inputs": inputs,
        "logs": logs.read,
        "files": written,
        "guesses": draft.guesses,
        "problems": problems,
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Reads files up to the size limit, and writes files atomically.

use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use anyhow::Context;
use flate2::read::MultiGzDecoder;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_fabric::document::{self, Diagnostic, codes};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_fabric::trace::MAX_TRACE_BYTES;

pub fn name(path: &Path) -> String {
    if is_standard_input(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// Files that were read, because results must not overwrite input files.
static READ: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Standard input can be read only once.
static STANDARD_INPUT: OnceLock<Vec<u8>> = OnceLock::new();

pub fn standard_input() -> Option<&'static [u8]> {
    STANDARD_INPUT.get().map(Vec::as_slice)
}

fn note_read(path: &Path) {
    if let (Ok(path), Ok(mut read)) = (fs::canonicalize(path), READ.lock()) {
        read.push(path);
    }
}

fn is_input(path: &Path) -> bool {
    READ.lock().is_ok_and(|read| read.iter().any(|input| input == path))
}

/// Rejects unwritable destinations before any work is done.
pub fn destination(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text == "-" {
        return Err(
            "results go to standard output by default: omit the option or use a file name".into()
        );
    }
    if path.exists() && !path.is_file() {
        let is_folder = path.is_dir();
        return if is_folder { Err("is a folder: use a file in it".into()) } else { Ok(path) };
    }
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!(
            "folder {} does not exist: create it or use another folder",
            folder.display()
        ));
    }
    let probe = temporary_name(&path);
    match File::create_new(&probe) {
        Ok(_) => {
            let _ = fs::remove_file(probe);
            Ok(path)
        }
        Err(error) => {
            Err(format!("cannot write to {}: {error}; use another folder", folder.display()))
        }
    }
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub fn read_document(path: &Path) -> Result<Vec<u8>, Box<Diagnostic>> {
    let name = name(path);
    if is_standard_input(path) {
        let bytes = document::take(&name, None, std::io::stdin().lock())?;
        STANDARD_INPUT.get_or_init(|| bytes.clone());
        return Ok(bytes);
    }
    let (length, contents) = open_document(path).map_err(|error| {
        let message = format!("cannot read: {error}");
        let mistake = Diagnostic::whole_file(codes::UNREADABLE, &name, message);
        Box::new(match advice(path, &error) {
            Some(advice) => mistake.with_help(advice),
            None => mistake,
        })
    })?;
    document::take(&name, length, contents)
}

/// Opens a file, and returns its length if it is a regular file.
fn open_document(path: &Path) -> io::Result<(Option<u64>, Box<dyn Read>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    note_read(path);
    Ok((metadata.is_file().then_some(metadata.len()), unpacked(file)?))
}

fn advice(path: &Path, error: &std::io::Error) -> Option<&'static str> {
    match error.kind() {
        _ if path.is_dir() => Some("this is a folder: use files in it"),
        ErrorKind::NotFound => Some("check the name and the folder"),
        ErrorKind::PermissionDenied => Some("give this user read permission"),
        _ => None,
    }
}

/// Unpacks a gzip file, such as a profiler's `.json.gz`, while it is read.
pub fn unpacked<'f>(mut file: impl Read + 'f) -> std::io::Result<Box<dyn Read + 'f>> {
    let mut sign = Vec::new();
    (&mut file).take(2).read_to_end(&mut sign)?;
    let is_packed = sign == [0x1f, 0x8b];
    let whole = Cursor::new(sign).chain(file);
    Ok(if is_packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

const LARGEST_RESULT: u64 = 1 << 30;

pub fn read_result(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(unpacked);
    let read = file.and_then(|file| file.take(LARGEST_RESULT + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        let advice = advice(path, &error).map_or(String::new(), |advice| format!("; {advice}"));
        anyhow::bail!("cannot read {shown}: {error}{advice}");
    }
    anyhow::ensure!(bytes.len() as u64 <= LARGEST_RESULT, "{shown} is larger than 1 GiB");
    Ok(bytes)
}

/// Further inputs with the same role are numbered, as in `matrix` and `matrix-2`.
pub fn note_input(inputs: &mut Inputs, role: &str, name: &str, bytes: &[u8]) {
    let input = Input::of(name, bytes);
    let roles = std::iter::once(role.to_owned()).chain((2..).map(|nth| format!("{role}-{nth}")));
    for role in roles {
        if *inputs.entry(role).or_insert_with(|| input.clone()) == input {
            return;
        }
    }
}

pub fn beside(path: &Path, named: &str) -> Result<NamedFile, String> {
    let folder = if is_standard_input(path) { None } else { path.parent() };
    let beside = folder.unwrap_or(Path::new("")).join(named);
    let name = name(&beside);
    match read_beside(&beside) {
        Ok(bytes) => Ok(NamedFile { name, bytes }),
        Err(error) => {
            let near = neighbour_like(&beside).filter(|_| error.kind() == ErrorKind::NotFound);
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Err(format!("cannot read {name}: {error}{near}"))
        }
    }
}

fn read_beside(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    note_read(path);
    let mut bytes = Vec::new();
    unpacked(file)?.take(MAX_TRACE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn neighbour_like(path: &Path) -> Option<String> {
    const MOST: usize = 1000;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?.take(MOST).flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let written = path.file_name()?.to_str()?;
    document::closest(written, names.iter().map(String::as_str)).map(str::to_owned)
}

pub fn text_beside(path: &Path, named: &str) -> Result<String, String> {
    let NamedFile { name, bytes } = beside(path, named)?;
    String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8 text"))
}

/// Writes to a temporary file in the same folder and renames it. Pipes and devices are written directly.
///
/// # Errors
/// If writing fails. The file at `path` is then unchanged.
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let failed = format!("cannot write {}", path.display());
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    anyhow::ensure!(
        !is_input(&target),
        "{} is an input of this command and would be overwritten: use another file name",
        path.display()
    );
    if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(&target, contents).context(failed);
    }
    let temporary = temporary_name(&target);
    write_through(&temporary, contents)
        .and_then(|()| fs::rename(&temporary, &target))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
        .context(failed)
}

fn temporary_name(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn write_through(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_file_is_unpacked_by_content() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(b"{\"a\": 1}").unwrap();
        let packed = packed.finish().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        fs::write(&path, &packed).unwrap();
        assert_eq!(read_result(&path).unwrap(), b"{\"a\": 1}");
        assert_eq!(read_document(&path).unwrap(), b"{\"a\": 1}");
        assert_eq!(beside(&path, "trace.json").unwrap().bytes, b"{\"a\": 1}");
        fs::write(&path, &packed[..packed.len() - 9]).unwrap();
        assert!(read_result(&path).unwrap_err().to_string().contains("cannot read"));
        fs::write(&path, b"\x1f").unwrap();
        assert_eq!(read_result(&path).unwrap(), b"\x1f");
    }

    #[test]
    fn replaces_a_file_atomically_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("plan.json");
        let error = write(&path, b"one").unwrap_err();
        assert!(format!("{error:#}").contains("plan.json"), "{error:#}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

//! Files as the verbs see them: written whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Writes `contents` to `path` so that no reader ever sees half of it: into a file with a temporary
/// name in the same folder, which then takes the name. Pipes and devices are written as they are.
///
/// # Errors
/// If the folder or the file cannot be written; then whatever stood at `path` still stands there.
pub(crate) fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(&target, contents).with_context(failed);
    }
    let temporary = temporary_name(&target);
    write_through(&temporary, contents)
        .and_then(|()| fs::rename(&temporary, &target))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
        .with_context(failed)
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
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("plan.json");
        let error = write(&path, b"one").unwrap_err();
        assert!(format!("{error:#}").contains("plan.json"), "{error:#}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

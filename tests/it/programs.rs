// SPDX-License-Identifier: Apache-2.0
//! Programs of other packages, which `cargo test --workspace` builds. A missing or outdated program
//! fails the test with the build command. A build inside the test would compile libraries again
//! with different features.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::Value;

pub(crate) fn lightloom() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_lightloom"));
        is_new(&program.with_file_name("lightloom-lab"), "lightloom-lab");
        program
    })
}

pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = lightloom().parent().unwrap();
        is_new(&folder.join("lightloomd"), "lightloom-daemon");
        folder.to_owned()
    })
}

pub(crate) fn agent() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = lightloom().with_file_name("lightloom-agent");
        is_new(&program, "lightloom-agent");
        program
    })
}

fn is_new(program: &Path, package: &str) {
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    assert!(
        changed(program) >= newest_source(&sources(package)),
        "{} is missing or older than its sources, type: cargo test --workspace --locked{release} --no-run",
        program.display()
    );
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}

fn sources(package: &str) -> Vec<PathBuf> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"]);
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let workspace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = workspace["packages"].as_array().unwrap();
    let (mut known, mut ahead) = (BTreeSet::new(), vec![package]);
    while let Some(name) = ahead.pop() {
        let Some(package) = packages.iter().find(|package| package["name"] == name) else {
            continue;
        };
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        if known.insert(manifest.with_file_name("src")) {
            let used = package["dependencies"].as_array().unwrap().iter();
            let used = used.filter(|one| !one["path"].is_null() && one["kind"] != "dev");
            ahead.extend(used.filter_map(|one| one["name"].as_str()));
        }
    }
    known.into_iter().collect()
}

fn newest_source(folders: &[PathBuf]) -> Option<SystemTime> {
    let mut newest = None;
    let mut ahead = folders.to_vec();
    while let Some(folder) = ahead.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.file_stem().is_some_and(|name| name == "tests") {
                continue;
            }
            if path.is_dir() {
                ahead.push(path);
            } else {
                newest = newest.max(changed(&path));
            }
        }
    }
    newest
}

#[test]
fn program_is_outdated_when_any_of_its_sources_is_newer() {
    let made_of = sources("lightloom-daemon");
    for part in ["daemon", "daemon/control", "daemon/drivers", "firmware-api", "fabric/units"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(part).join("src");
        assert!(made_of.contains(&source), "{part}: {made_of:?}");
    }
    assert!(!made_of.contains(&Path::new(env!("CARGO_MANIFEST_DIR")).join("emulator/src")));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("far")).unwrap();
    let (near, far) = (folder.path().join("near.rs"), folder.path().join("far/far.rs"));
    let later = SystemTime::now() + std::time::Duration::from_secs(3_600);
    std::fs::write(near, "").unwrap();
    let tests = std::fs::File::create(folder.path().join("tests.rs")).unwrap();
    tests.set_modified(later + std::time::Duration::from_secs(1)).unwrap();
    std::fs::File::create(far).unwrap().set_modified(later).unwrap();
    assert_eq!(newest_source(&[folder.path().to_owned()]), Some(later));
}

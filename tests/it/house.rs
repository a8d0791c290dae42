// SPDX-License-Identifier: Apache-2.0
//! The house keeps its shape: which crate may use which, what pure crates may not do, and how long a file may
//! get. docs/ARCHITECTURE.md says why. Lines, types, imports and words are counted by `ci/count`, for `ci/ledger`.
//!
//! A rule that is not yet kept everywhere has a list of the places that still break it. The lists only
//! shrink: a place that has been mended and is still listed fails the test, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, its folder and the crates of ours that it may use.
struct Room {
    name: &'static str,
    folder: &'static str,
    may_use: &'static [&'static str],
    is_pure: bool,
}

const fn pure(name: &'static str, folder: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, folder, may_use, is_pure: true }
}

const fn edge(name: &'static str, folder: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, folder, may_use, is_pure: false }
}

/// The table of docs/ARCHITECTURE.md.
const ROOMS: &[Room] = &[
    pure("units", "fabric/units", &[]),
    pure("fabric", "fabric", &["units"]),
    pure("firmware-api", "firmware-api", &[]),
    pure("collective", "emulator/collective", &["units"]),
    pure("engine", "emulator/engine", &["units", "collective"]),
    pure("step", "emulator/step", &["units", "fabric", "collective"]),
    pure("training", "emulator/training", &["units", "fabric", "collective", "step"]),
    pure("import", "exchange/in", &["fabric", "training"]),
    pure("planner", "planner", &["units", "fabric"]),
    pure(
        "emulator",
        "emulator",
        &["units", "fabric", "collective", "engine", "step", "training", "planner"],
    ),
    edge("capi", "capi", &["units", "fabric", "emulator"]),
    pure("gnmi", "firmware-api/gnmi", &[]),
    pure("devices", "emulator/devices", &["units", "fabric", "firmware-api", "gnmi"]),
    edge("live", "twin/live", &["units", "fabric", "devices"]),
    pure("control", "daemon/control", &["units", "fabric", "planner"]),
    pure(
        "drivers",
        "daemon/drivers",
        &["units", "fabric", "control", "daemon-api", "firmware-api", "gnmi"],
    ),
    pure("daemon-api", "daemon/api", &[]),
    edge(
        "daemon",
        "daemon",
        &["units", "fabric", "planner", "control", "drivers", "daemon-api", "firmware-api"],
    ),
    edge("agent", "daemon/agent", &["units", "fabric", "control", "daemon", "firmware-api"]),
    pure(
        "twin",
        "twin",
        &["units", "fabric", "firmware-api", "control", "drivers", "devices", "emulator"],
    ),
    pure("study", "planner/study", &["units", "fabric", "planner"]),
    edge("testkit", "testkit", &[]),
    edge("report", "report", &["units", "fabric", "planner", "study"]),
    edge(".", ".", &["units", "fabric", "planner", "emulator", "engine", "training", "import"]),
    edge(
        "lab",
        "lab",
        &[
            "units",
            "fabric",
            "planner",
            "study",
            "agent",
            "control",
            "daemon",
            "daemon-api",
            "devices",
            "emulator",
            "firmware-api",
            "gnmi",
            "live",
            "report",
            "training",
            "twin",
        ],
    ),
];

/// What the `clippy.toml` of a pure crate bans.
const BANS: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::net::TcpStream::connect",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

/// No source file is longer.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates of ours that a manifest names under `[dependencies]`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line.ends_with(".dependencies]");
            inside &= !line.contains("workspace");
        }
        let name = line.split(['.', ' ', '=']).next().and_then(|n| n.strip_prefix("lightloom-"));
        if let (true, Some(name)) = (inside, name) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// Every source file of ours, relative to the root.
pub(crate) fn sources() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of ours").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
            if is_ours && path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let relative = |path: PathBuf| {
        let path = path.strip_prefix(root()).expect("it is below the root").to_owned();
        path.to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = found.into_iter().map(relative).collect();
    names.sort();
    names
}

/// `cargo package` takes a crate as its folder: a dependency of ours has a version there, and no source reads a file
/// beside the folder.
#[test]
fn every_crate_can_be_packaged() {
    let manifest = text(&root().join("Cargo.toml"));
    for line in manifest.lines().filter(|line| line.contains("{ path = \"")) {
        assert!(line.contains("version = "), "without a version it cannot be packaged: {line}");
    }
    for source in sources().iter().filter(|source| source.contains("src/")) {
        let (package, below) = source.split_at(source.find("src/").unwrap_or(0));
        for (number, line) in text(&root().join(source)).lines().enumerate() {
            let Some((_, included)) = line.split_once("include_str!(") else { continue };
            let depth = below.matches('/').count();
            assert!(
                included.matches("../").count() <= depth,
                "{source}:{}: the file is outside the package {package:?}",
                number + 1
            );
        }
    }
}

#[test]
fn crates_use_only_what_stands_above_them_in_the_table() {
    for room in ROOMS {
        let manifest = text(&root().join(room.folder).join("Cargo.toml"));
        let allowed: BTreeSet<String> = room.may_use.iter().map(|name| (*name).into()).collect();
        let used = dependencies(&manifest);
        let more: Vec<_> = used.difference(&allowed).collect();
        assert!(more.is_empty(), "{} uses {more:?}, which the table does not allow", room.folder);
        let unused: Vec<_> = allowed.difference(&used).collect();
        assert!(
            unused.is_empty() || room.folder == ".",
            "{} does not use {unused:?}: take it out of the table",
            room.folder
        );
    }
}

#[test]
fn every_crate_of_the_workspace_stands_in_the_table() {
    let manifest = text(&root().join("Cargo.toml"));
    let members = manifest.split("members = [").nth(1).expect("the workspace lists its members");
    let members = members.split(']').next().expect("the list ends");
    let members: BTreeSet<&str> = members
        .split(',')
        .map(|member| member.trim().trim_matches('"'))
        .filter(|member| !member.is_empty())
        .collect();
    let table: BTreeSet<&str> =
        ROOMS.iter().map(|room| room.folder).filter(|folder| *folder != ".").collect();
    assert_eq!(members, table);
}

#[test]
fn pure_crates_ban_clocks_files_sockets_and_threads() {
    for room in ROOMS.iter().filter(|room| room.is_pure) {
        let bans = text(&root().join(room.folder).join("clippy.toml"));
        for ban in BANS {
            assert!(
                bans.contains(&format!("path = \"{ban}\"")),
                "clippy.toml of {} does not ban {ban}",
                room.name
            );
        }
    }
}

/// The crate that takes pointers from C: the only one with unsafe code, and with every other lint.
const UNSAFE: &str = "capi";

#[test]
fn the_lints_of_the_workspace_hold_in_every_crate() {
    let workspace = text(&root().join("Cargo.toml"));
    let lints = workspace.split("[workspace.lints.rust]").nth(1).expect("the workspace has lints");
    let lints = lints.split("[profile").next().unwrap_or(lints);
    let lints =
        lints.lines().filter(|line| line.contains(" = \"") && !line.contains("unsafe_code"));
    let unsafe_crate = text(&root().join(UNSAFE).join("Cargo.toml"));
    lints.for_each(|lint| assert!(unsafe_crate.contains(lint), "{UNSAFE} does not set {lint}"));
    for room in ROOMS.iter().filter(|room| room.folder != UNSAFE) {
        let manifest = text(&root().join(room.folder).join("Cargo.toml"));
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert!(inherits, "{} does not take the lints of the workspace", room.folder);
    }
    let manifest = text(&root().join("Cargo.toml"));
    for lint in ["missing_docs", "unreachable_pub", "unsafe_code", "unwrap_used"] {
        assert!(manifest.contains(lint), "the workspace does not set {lint}");
    }
}

/// Files that still hold more than one idea.
const TOO_LONG: &[&str] = &["daemon/control/src/ledger.rs", "daemon/src/api.rs"];

#[test]
fn every_source_names_its_licence_in_its_first_line() {
    let first = |name: &String| text(&root().join(name)).lines().next().map(str::to_owned);
    let licence = Some("// SPDX-License-Identifier: Apache-2.0".to_owned());
    let without: Vec<_> = sources().into_iter().filter(|name| first(name) != licence).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// What a run means is the same for every kind of it because one loop asks the engine for what happens next.
#[test]
fn one_loop_asks_the_engine_for_its_events() {
    let is_asked = |name: &String| {
        let is_outside =
            !["tests/", "benches/", "emulator/engine/"].iter().any(|at| name.contains(at));
        is_outside && text(&root().join(name)).contains("engine.next_event(")
    };
    let loops: Vec<String> = sources().into_iter().filter(is_asked).collect();
    assert_eq!(loops, ["emulator/src/run.rs"]);
}

#[test]
fn no_file_is_too_long_to_hold_one_idea() {
    let long: BTreeSet<String> = sources()
        .into_iter()
        .filter(|name| text(&root().join(name)).lines().count() > LINES_MAX)
        .collect();
    let listed: BTreeSet<String> = TOO_LONG.iter().map(|name| (*name).into()).collect();
    let new: Vec<_> = long.difference(&listed).collect();
    assert!(new.is_empty(), "more than {LINES_MAX} lines, split them: {new:?}");
    let mended: Vec<_> = listed.difference(&long).collect();
    assert!(mended.is_empty(), "short enough now, take them off the list: {mended:?}");
}

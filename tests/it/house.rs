// SPDX-License-Identifier: Apache-2.0
//! Rules for the source tree; docs/ARCHITECTURE.md gives the reasons, and `ci/count` counts other figures for
//! `ci/ledger`. Lists of exceptions may only shrink: a listed place that complies fails the test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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
            "drivers",
            "emulator",
            "firmware-api",
            "gnmi",
            "import",
            "live",
            "report",
            "training",
            "twin",
        ],
    ),
];

const BANS: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::Builder::spawn",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::fs::read_dir",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::fs::OpenOptions::open",
    "std::net::TcpStream::connect",
    "std::net::TcpListener::bind",
    "std::net::UdpSocket::bind",
    "std::os::unix::net::UnixStream::connect",
    "std::os::unix::net::UnixListener::bind",
    "std::os::unix::net::UnixDatagram::bind",
    "tokio::time::Instant::now",
    "tokio::time::sleep",
    "tokio::spawn",
    "tokio::task::spawn_blocking",
    "tokio::fs::read",
    "tokio::fs::File::open",
    "tokio::net::TcpStream::connect",
    "tokio::net::TcpListener::bind",
    "tokio::net::UnixStream::connect",
    "tokio::net::UnixListener::bind",
    "tokio::net::UdpSocket::bind",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

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

/// `cargo package` includes only the crate's folder: workspace dependencies need a version, and sources must not
/// read files outside.
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
fn crates_depend_only_on_crates_above_them_in_the_table() {
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
fn table_lists_every_workspace_crate() {
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
        // Clippy reads the nearest `clippy.toml` above the manifest.
        let folder = root().join(room.folder);
        let mut files = folder.ancestors().map(|folder| folder.join("clippy.toml"));
        let bans = text(&files.find(|file| file.exists()).expect("the root has one"));
        for ban in BANS {
            assert!(
                bans.contains(&format!("path = \"{ban}\"")),
                "clippy.toml of {} does not ban {ban}",
                room.name
            );
        }
    }
}

/// The only crate with unsafe code, because it accepts pointers from C; all other lints apply.
const UNSAFE: &str = "capi";

#[test]
fn workspace_lints_apply_to_every_crate() {
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
    for lint in ["unreachable_pub", "unsafe_code", "unwrap_used"] {
        assert!(manifest.contains(lint), "the workspace does not set {lint}");
    }
}

const TOO_LONG: &[&str] = &["daemon/control/src/ledger.rs", "daemon/src/api.rs"];

#[test]
fn every_source_names_its_licence_in_its_first_line() {
    let first = |name: &String| text(&root().join(name)).lines().next().map(str::to_owned);
    let licence = Some("// SPDX-License-Identifier: Apache-2.0".to_owned());
    let without: Vec<_> = sources().into_iter().filter(|name| first(name) != licence).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// All kinds of runs behave the same only if they share a loop.
#[test]
fn only_one_loop_polls_engine_events() {
    let is_asked = |name: &String| {
        let is_outside =
            !["tests/", "benches/", "emulator/engine/"].iter().any(|at| name.contains(at));
        is_outside && text(&root().join(name)).contains("engine.next_event(")
    };
    let loops: Vec<String> = sources().into_iter().filter(is_asked).collect();
    assert_eq!(loops, ["emulator/src/run.rs"]);
}

const PRINTED: &[&str] = &["twin/tests/it/agrees.rs", "twin/tests/it/policy.rs"];

/// An ignored test would hide that its page is stale. Long tests use `lightloom_testkit::cases` for
/// `ci/nightly`.
#[test]
fn no_test_of_a_page_is_ignored() {
    let is_of_page = |test: &&str| {
        let test = test.split("\n}\n").next().unwrap_or_default();
        ["docs/", "README", "rows()", "page(", "fn page_"].iter().any(|word| test.contains(word))
    };
    let has_ignored = |name: &String| {
        text(&root().join(name)).split("\n#[ignore").skip(1).any(|test| is_of_page(&test))
    };
    let ignored: Vec<String> = sources().into_iter().filter(has_ignored).collect();
    assert_eq!(ignored, PRINTED, "only these still print what nobody compares");
}

#[test]
fn no_source_file_exceeds_the_line_limit() {
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

const DOCUMENTED: &[&str] =
    &["firmware-api", "firmware-api/gnmi", "daemon/api", "fabric", "planner", "emulator"];

#[test]
fn public_crates_require_documentation() {
    for folder in DOCUMENTED {
        let source = text(&root().join(folder).join("src/lib.rs"));
        assert!(source.contains("#![warn(missing_docs)]"), "{folder} does not warn");
    }
    let manifest = text(&root().join(UNSAFE).join("Cargo.toml"));
    assert!(manifest.contains("missing_docs = \"warn\""));
}

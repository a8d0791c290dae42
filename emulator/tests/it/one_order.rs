// SPDX-License-Identifier: Apache-2.0
//! Dependencies between modules of the emulator contain no cycle, directly or indirectly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn modules_have_no_cyclic_dependencies() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = Vec::new();
    sources(root, &mut files);
    let module = |path: &PathBuf| {
        let inside = path.strip_prefix(root).unwrap().iter().next().unwrap();
        inside.to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> = files.iter().map(module).filter(|name| name != "lib").collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let named = text.split("crate::").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        });
        let others = named.filter(|name| modules.contains(name) && *name != module(file));
        uses.entry(module(file)).or_default().extend(others);
    }
    let mut left = modules;
    while !left.is_empty() {
        let rests = |name: &&String| uses.get(*name).is_none_or(|to| to.is_disjoint(&left));
        let free: Vec<String> = left.iter().filter(rests).cloned().collect();
        assert!(!free.is_empty(), "a circle among {left:?}: {uses:?}");
        free.iter().for_each(|name| assert!(left.remove(name)));
    }
}

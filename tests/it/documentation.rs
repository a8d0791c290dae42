// SPDX-License-Identifier: Apache-2.0
//! Generated documentation agrees with the code. `LIGHTLOOM_BLESS=1 cargo test --test it documentation::`
//! writes it anew.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn lightloom(arguments: &[&str]) -> String {
    let program = crate::programs::lightloom();
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    String::from_utf8(output.stdout).expect("output is text")
}

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)
}

fn agrees(name: &str, generated: &str) {
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        let page = page(name);
        std::fs::create_dir_all(page.parent().expect("a page is in a folder"))
            .and_then(|()| std::fs::write(page, generated))
            .expect("the documentation can be written");
    }
    let written = std::fs::read_to_string(page(name)).unwrap_or_default();
    assert!(written == generated, "docs/{name} is out of date: run with LIGHTLOOM_BLESS=1");
}

/// The kinds of files, as the completion of `schema` knows them.
fn kinds() -> Vec<String> {
    let help = lightloom(&["schema", "--help"]);
    let list = help.split("Possible values:").nth(1).expect("the help lists the kinds");
    let entries = list.lines().skip(1).filter_map(|line| line.trim().strip_prefix("- "));
    entries.filter_map(|entry| entry.split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_schemas_are_those_of_the_program() {
    assert!(kinds().contains(&"fabric".to_owned()));
    for kind in kinds() {
        agrees(&format!("schemas/{kind}.json"), &lightloom(&["schema", &kind]));
    }
}

#[test]
fn the_table_of_codes_is_that_of_the_program() {
    let log = lightloom(&["validate", "no/such.yaml", "--format", "sarif"]);
    let log: Value = serde_json::from_str(&log).expect("SARIF is JSON");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules are declared");
    let mut text = String::from(
        "# What the codes mean\n\n\
         Every mistake in a file has a code that never changes its meaning. `lightloom validate` shows\n\
         it with the place, the cause and the fix; `--format json` and `--format sarif` are for programs.\n\n\
         | code | means |\n| --- | --- |\n",
    );
    for rule in rules {
        let title = rule["shortDescription"]["text"].as_str().expect("a rule has a description");
        let id = rule["id"].as_str().expect("a rule has a name");
        text.push_str(&format!("| {id} | {title} |\n"));
    }
    agrees("diagnostics.md", &text);
}

/// Every fabric file shown in the documentation is one.
#[test]
fn the_fabric_files_in_the_documentation_are_good() {
    let text = std::fs::read_to_string(page("fabric-file.md")).unwrap();
    let blocks: Vec<&str> = text
        .split("```yaml\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .filter(|block| block.contains("hbd:"))
        .collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        let (fabric, mistakes) =
            lightloom_fabric::file::load("docs/fabric-file.md", block.as_bytes());
        assert!(fabric.is_some(), "{mistakes:?}");
    }
}

/// The defaults in the table are those of the code.
#[test]
fn the_documented_defaults_are_those_of_the_schema() {
    let text = std::fs::read_to_string(page("fabric-file.md")).unwrap();
    let schema: Value = serde_json::from_str(&lightloom(&["schema", "fabric"])).unwrap();
    for (row, kind, key) in [
        ("hbd.khop.shape", "KhopFile", "shape"),
        ("hbd.khop.edge_rate", "KhopFile", "edge_rate"),
        ("hbd.khop.inside_latency", "KhopFile", "inside_latency"),
        ("hbd.khop.fibre_latency", "KhopFile", "fibre_latency"),
        ("dcn.fat_tree.nodes_per_tor", "FatTreeFile", "nodes_per_tor"),
        ("dcn.fat_tree.tors_per_domain", "FatTreeFile", "tors_per_domain"),
        ("dcn.fat_tree.oversubscription", "FatTreeFile", "oversubscription"),
        ("dcn.fat_tree.link_rate", "FatTreeFile", "link_rate"),
        ("dcn.fat_tree.link_latency", "FatTreeFile", "link_latency"),
        ("deployment.order", "DeploymentFile", "order"),
        ("transceiver.software_delay", "TransceiverFile", "software_delay"),
    ] {
        let default = &schema["$defs"][kind]["properties"][key]["default"];
        let default =
            default.as_str().map_or_else(|| default.to_string(), |text| format!("`{text}`"));
        let line = text.lines().find(|line| line.starts_with(&format!("| `{row}`")));
        let line = line.unwrap_or_else(|| panic!("docs/fabric-file.md has no row for {row}"));
        assert!(line.ends_with(&format!("| {default} |")), "{row}: {default} is not in: {line}");
    }
}

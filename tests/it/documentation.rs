// SPDX-License-Identifier: Apache-2.0
//! Checks that generated documentation is current. `LIGHTLOOM_BLESS=1 cargo test --test it
//! documentation::` regenerates it.

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

pub(crate) fn agrees(name: &str, generated: &str) {
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        let page = page(name);
        std::fs::create_dir_all(page.parent().expect("a page is in a folder"))
            .and_then(|()| std::fs::write(page, generated))
            .expect("the documentation can be written");
    }
    let written = std::fs::read_to_string(page(name)).unwrap_or_default();
    assert!(written == generated, "docs/{name} is out of date: run with LIGHTLOOM_BLESS=1");
}

fn kinds() -> Vec<String> {
    let help = lightloom(&["schema", "--help"]);
    let list = help.split("Possible values:").nth(1).expect("the help lists the kinds");
    let entries = list.lines().skip(1).filter_map(|line| line.trim().strip_prefix("- "));
    entries.filter_map(|entry| entry.split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn help_of_a_verb_equals_its_help_option() {
    for verb in ["plan", "mfu"] {
        assert_eq!(lightloom(&["help", verb]), lightloom(&[verb, "--help"]));
    }
}

#[test]
fn schema_documents_match_the_program() {
    assert!(kinds().contains(&"fabric".to_owned()));
    for kind in kinds() {
        agrees(&format!("schemas/{kind}.json"), &lightloom(&["schema", &kind]));
    }
}

#[test]
fn table_of_codes_matches_the_program() {
    let log = lightloom(&["validate", "no/such.yaml", "--format", "sarif"]);
    let log: Value = serde_json::from_str(&log).expect("SARIF is JSON");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules are declared");
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(["code", "means"]).unwrap();
    for rule in rules {
        let title = rule["shortDescription"]["text"].as_str().expect("a rule has a description");
        let id = rule["id"].as_str().expect("a rule has a name");
        table.write_record([id, title]).unwrap();
    }
    let table = String::from_utf8(table.into_inner().unwrap()).unwrap();
    agrees("diagnostics.csv", &table);
    let explained = lightloom(&["explain", "ll0203"]);
    assert!(explained.starts_with("LL0203: ") && explained.contains("kind: fabric"), "{explained}");
    let all = lightloom(&["explain"]);
    assert!(rules.iter().all(|rule| all.contains(rule["id"].as_str().unwrap())), "{all}");
}

#[test]
fn fabric_files_in_the_documentation_are_valid() {
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

/// Named tests exist, every rule holds under every fault, and the page states the right number of rows.
#[test]
fn reliability_tables_name_existing_tests() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let sources: String = crate::house::sources()
        .iter()
        .map(|name| name.clone() + "\n" + &std::fs::read_to_string(root.join(name)).unwrap())
        .collect();
    let records = |name: &str| -> Vec<csv::StringRecord> {
        let reader = csv::Reader::from_path(page(name)).unwrap();
        reader.into_records().map(Result::unwrap).collect()
    };
    let (faults, rules) = (records("reliability.csv"), records("reliability-rules.csv"));
    let speed = records("reliability-speed.csv");
    // Single words also occur in prose.
    let is_name = |word: &&str| word.contains('_') && !word.contains(char::is_uppercase);
    let tests = faults.iter().chain(&rules).map(|row| &row[2]);
    let tests = tests.chain(speed.iter().map(|row| &row[1]));
    let named = tests.flat_map(|cell| cell.split([' ', ':', ',', ';', '(', ')']));
    let missing: Vec<&str> = named.filter(is_name).filter(|word| !sources.contains(word)).collect();
    assert!(missing.is_empty(), "no test or source is called {missing:?}");
    let text = std::fs::read_to_string(page("reliability.md")).unwrap();
    for class in faults.iter().map(|row| &row[0]) {
        let rows = faults.iter().filter(|row| &row[0] == class).count();
        let line = text.lines().find(|line| line.starts_with(&format!("| {class} |")));
        let line = line.unwrap_or_else(|| panic!("docs/reliability.md has no {class}"));
        assert!(line.ends_with(&format!("| {rows} |")), "{class} has {rows} rows: {line}");
    }
    assert!(faults.iter().all(|row| matches!(&row[4], "0" | "")), "the page says: no violation");
}

#[test]
fn documented_defaults_match_the_schema() {
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

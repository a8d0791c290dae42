// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::{Style, render};
use lightloom_planner::load;

const SOUND: &str = "name: example
dcn:
  reconfigurable_fat_tree:
    leaves: 3
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 3.2Tbps, oversubscription: 8}
    banks:
      - {name: core, switches: 4, ports_per_switch: 64, ports_per_leaf: 2, insertion_loss_db: 1.5}
    timing: {switching: 10ms}
jobs:
- name: example
  step:
    phases:
    - {name: train, demand: {csv: train.csv}}
kind: fabric
version: 2
";

fn refusal(text: &str, matrix: &str) -> String {
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Ok(matrix.to_owned()));
    assert!(fabric.is_none(), "refused");
    render(&mistakes, Style::Plain)
}

fn says(refusal: &str, parts: &[&str]) {
    let mut rest = refusal;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in order in\n{refusal}"));
        rest = &rest[at + part.len()..];
    }
}

const GOOD: &str = "0,5,5\n5,0,5\n5,5,0";

#[test]
fn accepts_a_valid_file() {
    let sound = SOUND.replace("ports_per_switch: 64", "ports_per_switch: 6");
    let (fabric, mistakes) = load("f.yaml", sound.as_bytes(), &mut |_| Ok(GOOD.to_owned()));
    assert!(fabric.is_some() && mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn rejects_ports_and_leaves_outside_the_bank() {
    let bank = |own: &str| SOUND.replace("ports_per_leaf: 2", &format!("ports_per_leaf: 3, {own}"));
    says(
        &refusal(&bank("leaves: [leaf0..leaf3]"), GOOD),
        &["error[LL0110]: leaf3 does not exist", "help: use leaf0 to leaf2"],
    );
    let text =
        bank("leaves: [leaf0..leaf1]").replace("    timing", "    occupied: [ocs1/p6]\n    timing");
    says(
        &refusal(&text, GOOD),
        &["error[LL0110]: ocs1/p6 is not wired to a leaf", "f.yaml:10:16", "help: use p0 to p5"],
    );
}

#[test]
fn rejects_loss_budget_that_no_path_meets() {
    let text = SOUND.replace("insertion_loss_db: 1.5", "insertion_loss_db: 5");
    says(
        &refusal(&text, GOOD),
        &[
            "error[LL0110]: no two leaves can be connected: a path loses at least 6.0 dB, but 4.0 dB",
            "f.yaml:3:3",
            "help: use optics with a budget above 6.0 dB or a switch with less loss",
        ],
    );
    let text = text.replace("    timing", "    loss: {budget_db: 2, path_db: 1}\n    timing");
    says(&refusal(&text, GOOD), &["6.0 dB, but 2.0 dB are allowed", "f.yaml:10:23", "help:"]);
}

#[test]
fn rejects_matrix_entries_that_are_not_byte_counts() {
    says(
        &refusal(SOUND, "0,-5,nan\ninf,0,x\n1,1,0"),
        &[
            "train.csv: row 1, column 2: `-5` is not a number of bytes\n",
            "f.yaml:15:35",
            "help: use a number of bytes from 0 to 1e18",
            "row 1, column 3: `nan`",
            "row 2, column 1: `inf`",
            "row 2, column 3: `x`",
        ],
    );
    let inline = SOUND.replace("{csv: train.csv}", "{matrix: [[0, 1, 2], [-3, 0, 1], [1, 1, 0]]}");
    says(&refusal(&inline, ""), &["row 2, column 1: `-3`", "f.yaml:15:51", "help: use a number"]);
    let inline = inline.replace("-3", ".nan");
    says(
        &refusal(&inline, ""),
        &[
            "expected a number, found the string `.nan`",
            "f.yaml:15:51",
            "help: use a finite number",
        ],
    );
}

#[test]
fn reports_an_unreadable_matrix_file() {
    let mut unreadable = |name: &str| Err(format!("cannot read {name}: not there"));
    let (fabric, mistakes) = load("f.yaml", SOUND.as_bytes(), &mut unreadable);
    assert!(fabric.is_none());
    says(
        &render(&mistakes, Style::Plain),
        &[
            "cannot read train.csv: not there",
            "f.yaml:15:29",
            "help: use a text file with one row of comma-separated bytes per line, relative to this file",
        ],
    );
}

#[test]
fn rejects_non_square_or_wrongly_sized_matrices() {
    says(
        &refusal(SOUND, "0,1,1\n1,0\n1,1,0"),
        &[
            "train.csv: row 2 has length 2, but there are 3 rows\n",
            "f.yaml:15:35",
            "help: a demand matrix is square: use one row and one column per leaf",
        ],
    );
    says(
        &refusal(SOUND, "0,1\n1,0"),
        &[
            "the matrix has 2 leaves, but the fabric has 3\n",
            "f.yaml:15:29",
            "help: use one row and one column for each of leaf0 to leaf2",
        ],
    );
}

#[test]
fn rejects_nonexistent_leaves() {
    let text = SOUND.replace("    timing", "    forbidden: [{a: leaf0, b: leaf7}]\n    timing");
    says(
        &refusal(&text, GOOD),
        &["leaf7 does not exist", "f.yaml:10:17", "help: use leaf0 to leaf2"],
    );
    let text = SOUND.replace("{csv: train.csv}", "{all_reduce: {leaves: 9, bytes: 1GB}}");
    says(
        &refusal(&text, ""),
        &["9 leaves starting at leaf0", "f.yaml:15:29", "from leaf0 to leaf2"],
    );
}

// SPDX-License-Identifier: Apache-2.0
//! docs/validation.md and docs/validation.csv match `lightloom reproduce infinitehbd`.

use std::process::Command;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/fault_trace.json");

#[test]
fn validation_page_and_rows_are_current() {
    if !std::path::Path::new(TRACE).exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    for (format, name) in [("markdown", "validation.md"), ("csv", "validation.csv")] {
        let run = Command::new(crate::programs::lightloom())
            .args(["reproduce", "infinitehbd", "--faults", TRACE, "--format", format])
            .output()
            .expect("the program runs");
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        crate::documentation::agrees(name, &String::from_utf8_lossy(&run.stdout));
    }
}

#[test]
fn missing_trace_leaves_only_its_claims_uncomputed() {
    let run = Command::new(crate::programs::lightloom())
        .args(["reproduce", "infinitehbd", "--format", "json"])
        .output()
        .expect("the program runs");
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let claims = document["claims"].as_array().expect("a list of claims");
    let with = |verdict: &str| claims.iter().filter(|c| c["verdict"] == verdict).count();
    assert_eq!(with("differs"), 0);
    let sentences = document["sentences"].as_array().expect("sentences");
    assert_eq!(sentences.len(), 4);
    let of = |claim: &&serde_json::Value| claim["label"] == "read" && claim["sentence"].is_null();
    assert_eq!(claims.iter().filter(of).count(), 4, "part counts are no sentence of the paper");
    assert!(with("reproduced") > 6 && with("needs_faults") > 8, "{document}");
    let verdict = |words: &str| {
        let is_it = |one: &&serde_json::Value| {
            one["sentence"].as_str().is_some_and(|text| text.contains(words))
        };
        sentences.iter().find(is_it).expect("the sentence")["verdict"].clone()
    };
    // Only one operating point agrees, so the verdict is "in part".
    assert_eq!(verdict("cross-ToR"), "in_part");
    // The interconnect's cost agrees in only one of nine cases.
    assert_eq!(verdict("31 %"), "in_part");
    assert_eq!(verdict("GPU waste"), "not_computed");
}

#[test]
fn one_command_recomputes_every_verdict() {
    let run = Command::new(crate::programs::lightloom())
        .args(["reproduce", "rfabric", "--why", "--format", "json"])
        .output()
        .expect("the program runs");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let sentences = document["sentences"].as_array().expect("sentences");
    let found: Vec<&str> = sentences.iter().filter_map(|one| one["verdict"].as_str()).collect();
    assert_eq!(found, ["undetermined", "in_part", "undetermined", "in_part"]);
    assert!(!document["why"].as_array().expect("whys").is_empty());
}

/// The program exits with status 1 if a published step differs by more than 5 % or a plan is slower than static
/// circuits.
#[test]
fn emulated_steps_and_plans_by_switching_time_agree() {
    let steps = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/opus_perlmutter_64.csv");
    let mut arguments = vec!["reproduce", "opus", "--format", "json"];
    let mut claims = 8;
    if std::path::Path::new(steps).exists() {
        arguments.extend(["--runs", steps]);
        claims += 16;
    } else {
        println!("skipped: no ../shared/data");
    }
    let run = Command::new(crate::programs::lightloom()).args(arguments).output().expect("runs");
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let found = document["claims"].as_array().expect("claims");
    assert_eq!(found.len(), claims);
    assert!(found.iter().all(|claim| claim["unit"] == "seconds"), "{document}");
    assert!(found.last().expect("a plan")["ours"] == 14.498, "static circuits at 1 s");
}

#[test]
fn prices_that_miss_the_published_ratio_fail_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prices.yaml");
    let shipped = include_str!("../../topologies/prices.yaml");
    let dearer =
        shipped.replace("low: 480, mean: 600, high: 720", "low: 1480, mean: 1600, high: 1720");
    assert_ne!(dearer, shipped);
    std::fs::write(&path, dearer).expect("written");
    let run = Command::new(crate::programs::lightloom())
        .args(["reproduce", "infinitehbd", "--prices"])
        .arg(&path)
        .output()
        .expect("the program runs");
    assert_eq!(run.status.code(), Some(1));
    let text = String::from_utf8_lossy(&run.stdout);
    let line = text.lines().find(|line| line.starts_with("contradicted: ")).expect("a sentence");
    assert!(line.contains("31 % of NVL-72's"), "{line}");
}

/// docs/rfabric.md explains differences from published ratios with these figures. A two-tier tree
/// matches a manual calculation.
#[test]
fn explanation_of_published_ratios_matches_the_page() {
    let run = Command::new(crate::programs::lightloom())
        .args(["reproduce", "rfabric", "--why", "--format", "json"])
        .output()
        .expect("the program runs");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let page = include_str!("../../docs/rfabric.md");
    let whys = &document["why"].as_array().expect("ratios")[..2];
    for why in whys {
        let within = format!("| {} / {} |", why["within"], why["combinations"]);
        let row = page.lines().find(|line| line.contains(&within));
        let row = row.unwrap_or_else(|| panic!("{within}"));
        assert!(row.contains(&format!("| {:.2} |", why["ours"].as_f64().expect("ours"))), "{row}");
        let sets = why["minimal"].as_array().expect("sets");
        let size = |set: &serde_json::Value| set["departures"].as_array().expect("some").len();
        let fewest = size(&sets[0]);
        for set in sets.iter().filter(|set| size(set) == fewest) {
            let figure = format!("{:.2}", set["figure"].as_f64().expect("a figure"));
            assert!(row.contains(&figure), "{figure} is not in {row}");
        }
        let never = row.split('|').nth(5).expect("the last column");
        let named = never.split(';').map(|part| part.split(" or ").count()).sum::<usize>();
        assert_eq!(named, why["never"].as_array().expect("a list").len(), "{never}");
    }
    let ours = whys[0]["ours"].as_f64().expect("ours");
    let alone = |choice: &str| {
        let rows = whys[0]["alone"].as_array().expect("rows");
        let is_it = |row: &&serde_json::Value| row["departures"][0]["choice"] == choice;
        rows.iter().find(is_it).expect("it is there")["figure"].as_f64().expect("a figure")
    };
    let (card, port, module) = (1_499.0, 1_090.0, 659.0);
    let (three, two) = (card + 5.0 * port + 6.0 * module, card + 3.0 * port + 4.0 * module);
    assert!((alone("two tiers") / ours - two / three).abs() < 1e-9);
    let whole = document["claims"].as_array().expect("claims").iter().find(|claim| {
        claim["claim"].as_str().is_some_and(|text| text.contains("over a whole step of training"))
    });
    let whole = whole.expect("the claim")["ours"].as_f64().expect("ours");
    assert!(page.contains(&format!("training and generation | 1.3–1.5 | {whole:.2} |")), "{whole}");
}

// SPDX-License-Identifier: Apache-2.0
//! docs/rl.md shows the actual output of its commands.

use std::process::Command;

use lightloom_testkit::cases;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &str) -> String {
    let words = command.split_whitespace().skip(1);
    let output =
        Command::new(crate::programs::lightloom()).args(words).current_dir(ROOT).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn page_matches_the_output_of_its_commands() {
    let is_wanted = |command: &str| cases(false, true) || !command.contains("topologies/large");
    shows(cases(5, 6), is_wanted);
}

fn shows(count: usize, is_wanted: impl Fn(&str) -> bool) {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/rl.md")).unwrap();
    let parts: Vec<&str> = page.split("```").collect();
    let mut tried = 0;
    for (at, part) in parts.iter().enumerate() {
        let Some(command) = part.strip_prefix("sh\n").filter(|command| is_wanted(command)) else {
            continue;
        };
        let shown = parts[at + 2].strip_prefix("text\n").expect("what it prints follows");
        // Lines with run times vary, so the page omits them.
        if command.contains("emulate") {
            let printed = run(command);
            for line in shown.lines() {
                assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
            }
        } else {
            assert_eq!(run(command).trim_end(), shown.trim_end(), "{command}");
        }
        tried += 1;
    }
    assert_eq!(tried, count);
}

#[test]
fn csv_rows_are_steps_of_a_run_and_phases_of_a_plan() {
    let steps = run("lightloom emulate topologies/scenarios/rl-step.yaml --format csv");
    let lines: Vec<&str> = steps.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("job,gpus,index,"), "{steps}");
    assert!(lines[0].contains("why.generation_ps") && lines[1].starts_with("rl,96,0,"), "{steps}");
    let phases = run("lightloom plan topologies/rl-96.yaml --format csv");
    assert_eq!(phases.lines().count(), 4, "{phases}");
    assert!(phases.lines().nth(3).is_some_and(|line| line.contains("weight-sync")), "{phases}");
}

#[test]
fn study_ranges_match_the_page() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/rl.md")).unwrap();
    let output = Command::new(crate::programs::lightloom())
        .args(["reproduce", "seeds", "--why", "--format", "json"])
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for why in document["why"].as_array().unwrap() {
        let [least, most] = ["least", "most"].map(|key| why[key].as_f64().unwrap());
        let unit = why["unit"].as_str().unwrap();
        let said = format!("{least:.2}{unit} to {most:.2}{unit}");
        assert!(page.contains(&said), "{said}");
        let within = format!("{} of {}", why["within"], why["combinations"]);
        assert!(why["within"] == 0 || page.contains(&within), "{within}");
    }
    assert_eq!(document["why"][0]["within"], 0);
    for at in 0..3 {
        let sentence = &document["sentences"][at];
        let said = format!("*{}*", sentence["verdict"].as_str().unwrap());
        assert!(page.contains(&said), "{sentence}");
    }
    assert_eq!(document["sentences"].as_array().unwrap().len(), 3);
}

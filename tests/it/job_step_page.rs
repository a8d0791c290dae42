// SPDX-License-Identifier: Apache-2.0
//! docs/job-step.md shows the actual output of its commands, and the parts of each step add up.

use std::collections::BTreeMap;
use std::process::Command;

use lightloom_testkit::cases;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap()
}

type Step = BTreeMap<String, String>;

fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut headings: Vec<&str> = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> =
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        if cells.starts_with(&["job", "step"]) {
            headings = cells;
        } else if cells.len() == headings.len()
            && cells.get(1).is_some_and(|step| step.parse::<u32>().is_ok())
        {
            let row = headings.iter().zip(cells);
            steps.push(row.map(|(name, cell)| ((*name).to_owned(), cell.to_owned())).collect());
        } else {
            headings.clear();
        }
    }
    steps
}

fn emulate(scenario: &str) -> String {
    let mut command = Command::new(crate::programs::lightloom());
    let output = command.args(["emulate", scenario]).current_dir(ROOT).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn require_printed(page: &[Step], scenario: &str) {
    let printed = emulate(scenario);
    let printed = steps(&printed);
    assert!(!page.is_empty());
    for line in page {
        assert!(printed.contains(line), "the page has {line:?}, {scenario} prints {printed:?}");
    }
}

#[test]
fn small_job_output_matches_the_page() {
    let page = page("docs/job-step.md");
    let small = page.split_once("## A small job").unwrap().1;
    let small = small.split_once("## The same failures").unwrap().0;
    require_printed(&steps(small), "topologies/scenarios/job-step.yaml");
    let printed = emulate("topologies/scenarios/job-circuits.yaml");
    let late = printed.lines().filter(|line| line.starts_with("fault: "));
    let late: Vec<&str> = late
        .map(|line| line.rsplit_once("; ").unwrap().1.trim_start_matches("delayed by up to "))
        .collect();
    let said = format!("the node costs {} and the switch {}", late[0], late[1]);
    assert!(page.contains(&said), "{said}");
}

#[test]
fn large_job_output_matches_the_page_and_readme() {
    let page = page("docs/job-step.md");
    let large = page.split_once("## A small job").unwrap().0;
    require_printed(&steps(large), "topologies/large/job-2048-step.yaml");
}

#[test]
fn design_losses_match_the_page() {
    let page = page("docs/job-step.md");
    let designs = page.split_once("## The same failures").unwrap().1;
    let blocks =
        designs.split("isolation-").skip(1).map(|block| block.split_once(".yaml").unwrap());
    let printed: Vec<_> = blocks.map(|(name, rest)| (name, steps(rest))).collect();
    let lines = printed.iter().map(|(_, lines)| lines.len()).sum::<usize>();
    assert_eq!(lines, 10, "two steps each of five scenarios");
    // Packets of a step without rings take a minute.
    let is_short = |name: &str| name == "khop";
    for (name, lines) in printed.iter().filter(|(name, _)| cases(is_short(name), true)) {
        if !lines.is_empty() {
            require_printed(lines, &format!("topologies/scenarios/isolation-{name}.yaml"));
        }
    }
}

#[test]
fn printed_parts_add_up_and_are_explained_on_the_page() {
    let (page, readme) = (page("docs/job-step.md"), page("README.md"));
    let all = steps(&page);
    assert_eq!(all[0], steps(&readme)[0], "the README has the same line");
    for line in &all {
        let parts = line.iter().filter(|(name, _)| PARTS.contains(&name.as_str()));
        let sum: f64 = parts.map(|(_, cell)| milliseconds(cell)).sum();
        let took = milliseconds(&line["took"]);
        // Each part is rounded to four digits.
        assert!((sum / took - 1.0).abs() < 0.001, "{line:?} adds up to {sum:.3} ms");
    }
    for line in [&all[0], &all[2]] {
        for part in
            line.iter().filter(|(name, cell)| PARTS.contains(&name.as_str()) && *cell != "-")
        {
            let explained = format!(", {}.**", part.1);
            assert!(page.contains(&explained), "no point begins with {explained}");
        }
    }
}

const PARTS: [&str; 10] =
    ["compute", "TP", "PP", "DP", "CP", "EP", "contention", "transition", "fault", "restart"];

fn milliseconds(cell: &str) -> f64 {
    let Some((number, unit)) = cell.split_once(' ') else { return 0.0 };
    let unit = match unit {
        "s" => 1e3,
        "ms" => 1.0,
        "µs" => 1e-3,
        "ns" => 1e-6,
        _ => panic!("{cell}: unit"),
    };
    number.parse::<f64>().unwrap() * unit
}

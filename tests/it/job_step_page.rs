// SPDX-License-Identifier: Apache-2.0
//! docs/job-step.md shows the actual output of its commands, and its sums use the parts in that
//! output.

use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap()
}

/// Returns the words of each line that is a job step, by position.
fn steps(text: &str) -> Vec<Vec<&str>> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_step = |words: &Vec<&str>| {
        words.len() > 10 && words[1].parse::<u32>().is_ok() && words[2].ends_with("ms")
    };
    words.filter(is_step).collect()
}

/// Returns the output of a command on the page.
fn emulate(scenario: &str) -> String {
    let mut command = Command::new(crate::programs::lightloom());
    let output = command.args(["emulate", scenario]).current_dir(ROOT).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn require_printed(page: &[Vec<&str>], scenario: &str) {
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
    let small = small.split_once("## The same deaths").unwrap().0;
    require_printed(&steps(small), "topologies/scenarios/job-step.yaml");
    // Delay of the job's end caused by each fault.
    let printed = emulate("topologies/scenarios/job-circuits.yaml");
    let late = printed.lines().filter(|line| line.starts_with("fault: "));
    let late: Vec<&str> = late
        .map(|line| line.rsplit_once("; ").unwrap().1.trim_end_matches(" late at most"))
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
    let designs = page.split_once("## The same deaths").unwrap().1;
    let blocks: Vec<&str> = designs.split("isolation-").skip(1).collect();
    let mut shown = 0;
    for block in blocks {
        let (name, rest) = block.split_once(".yaml").unwrap();
        let lines = steps(rest);
        if !lines.is_empty() {
            require_printed(&lines, &format!("topologies/scenarios/isolation-{name}.yaml"));
            shown += lines.len();
        }
    }
    assert_eq!(shown, 10, "two steps each of five scenarios");
}

#[test]
fn printed_parts_add_up_and_are_explained_on_the_page() {
    let (page, readme) = (page("docs/job-step.md"), page("README.md"));
    let all = steps(&page);
    assert_eq!(all[0], steps(&readme)[0], "the README has the same line");
    let number = |word: &str| word.trim_end_matches("ms").parse::<f64>().unwrap();
    for line in &all {
        // Job, step, took, closed form, ratio, MFU and its sign; then compute to restart.
        let (took, parts) = (number(line[2]), &line[7..]);
        assert_eq!(parts.len(), 10, "{line:?}");
        let sum: f64 = parts.iter().map(|part| number(part)).sum();
        assert!((sum - took).abs() < 0.0045, "{line:?} adds up to {sum:.3}");
    }
    for line in [&all[0], &all[2]] {
        for part in line[7..].iter().filter(|part| part.ends_with("ms")) {
            let explained = format!(", {} ms.**", part.trim_end_matches("ms"));
            assert!(page.contains(&explained), "no point begins with {explained}");
        }
    }
}

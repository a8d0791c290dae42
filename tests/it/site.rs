// SPDX-License-Identifier: Apache-2.0
//! Checks that all pages are in the summary, links resolve, commands use existing flags, and the
//! first-hour page works verbatim.

use crate::small;

use crate::programs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use lightloom_testkit::cases;

use small::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("docs"), &mut found);
    found.extend(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "python/README.md"]
            .map(|name| root().join(name)),
    );
    found.sort();
    found
}

fn prose(page: &str) -> String {
    page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let markdown = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pictures = prose.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    markdown.chain(pictures).map(str::to_owned).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let spelled = |heading: &str| -> String {
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let prose = prose(page);
    prose
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| spelled(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let shown = format!("{}: {link}", page.strip_prefix(root()).unwrap().display());
            let has_heading = || !target.is_file() || anchors(&read(&target)).contains(anchor);
            if !target.exists() || (!anchor.is_empty() && !has_heading()) {
                broken.push(shown);
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_file_named_on_a_page_exists() {
    let folders: Vec<String> = std::fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir() && entry.file_name() != "target")
        .map(|entry| entry.file_name().into_string().unwrap() + "/")
        .collect();
    let (mut gone, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        for named in prose(&text).split('`').skip(1).step_by(2) {
            let is_path = named
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
            if is_path && folders.iter().any(|folder| named.starts_with(folder)) {
                seen += 1;
                if !root().join(named).exists() {
                    gone.push(format!("{}: {named}", page.display()));
                }
            }
        }
    }
    assert!(seen > 100, "{seen} files were named");
    assert!(gone.is_empty(), "files that are not there:\n{}", gone.join("\n"));
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let mut listed: BTreeMap<String, u32> = BTreeMap::new();
    for link in links(&summary) {
        *listed.entry(link).or_default() += 1;
    }
    let docs = root().join("docs");
    let written: BTreeMap<String, u32> = pages()
        .iter()
        .filter_map(|page| page.strip_prefix(&docs).ok())
        .map(|page| (page.display().to_string(), 1))
        .filter(|(page, _)| page != "SUMMARY.md")
        .collect();
    let differ = |a: &BTreeMap<String, u32>, b: &BTreeMap<String, u32>| -> Vec<String> {
        a.iter()
            .filter(|(page, times)| b.get(*page) != Some(*times))
            .map(|(page, _)| page.clone())
            .collect()
    };
    let wrong = (differ(&written, &listed), differ(&listed, &written));
    assert_eq!(
        wrong,
        (Vec::new(), Vec::new()),
        "missing in docs/SUMMARY.md, and listed without being there or twice"
    );
}

fn commands(page: &str) -> Vec<Vec<String>> {
    let inline = page.split('`').skip(1).step_by(2);
    let lines = page.lines().map(str::trim);
    let mut found = Vec::new();
    for code in inline.chain(lines) {
        let code = code.strip_prefix("$ ").unwrap_or(code);
        let Some(rest) = code.strip_prefix("lightloom ") else { continue };
        let end = rest.find(['|', '>', ';', '&', '`', '#', '\n', '→']).unwrap_or(rest.len());
        // A separate command follows `--`.
        let mut parts = rest[..end].split(" -- ");
        let ours = parts.next().into_iter();
        for words in ours.chain(parts.filter_map(|part| part.strip_prefix("lightloom "))) {
            found.push(words.split_whitespace().map(str::to_owned).collect());
        }
    }
    found
}

fn help_of(words: &[String], known: &mut BTreeMap<Vec<String>, Option<String>>) -> Option<String> {
    let help = |verbs: &[String], known: &mut BTreeMap<Vec<String>, Option<String>>| {
        known
            .entry(verbs.to_vec())
            .or_insert_with(|| {
                let mut command = Command::new(programs::lightloom());
                let output = command.args(verbs).arg("--help").output().unwrap();
                output.status.success().then(|| text(&output.stdout).to_owned())
            })
            .clone()
    };
    let is_verb = |word: &&String| {
        word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
    };
    let verbs: Vec<String> = words.iter().take(2).take_while(is_verb).cloned().collect();
    let first = help(&verbs[..verbs.len().min(1)], known)?;
    if verbs.len() == 2 && first.contains("\nCommands:") {
        return help(&verbs, known);
    }
    Some(first)
}

#[test]
fn every_documented_command_has_existing_verbs_and_options() {
    programs::folder();
    let (mut known, mut wrong, mut seen) = (BTreeMap::new(), Vec::new(), 0);
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        for words in commands(&read(&page)) {
            let Some(first) = words.first() else { continue };
            if !first.starts_with(|c: char| c.is_ascii_lowercase())
                || first.contains(['.', '/', ':', ','])
            {
                continue;
            }
            seen += 1;
            let Some(help) = help_of(&words, &mut known) else {
                wrong.push(format!("{name}: no verb: lightloom {}", words.join(" ")));
                continue;
            };
            for flag in words.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let flag = flag.split(['=', ',', ')', ']', '.', '…']).next().unwrap();
                let is_there = help.match_indices(flag).any(|(at, _)| {
                    !help[at + flag.len()..]
                        .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
                });
                if !is_there {
                    wrong.push(format!("{name}: {flag} in: lightloom {}", words.join(" ")));
                }
            }
        }
    }
    assert!(seen > 200, "{seen} commands were found");
    assert!(wrong.is_empty(), "commands that do not exist:\n{}", wrong.join("\n"));
}

fn typed(page: &str, until: &str) -> (String, Vec<String>) {
    let page = read(&root().join(page));
    let page = page.split(until).next().unwrap();
    let blocks = |kind: &str| -> String {
        let begin = format!("```{kind}\n");
        page.split(&begin)
            .skip(1)
            .map(|block| block.split("\n```").next().unwrap().to_owned() + "\n")
            .collect()
    };
    (blocks("sh"), blocks("text").lines().map(str::to_owned).collect())
}

#[test]
fn first_hour_commands_work_verbatim() {
    let folder = tempfile::tempdir().unwrap();
    let (script, lines) = typed("docs/first-hour.md", "\n## The daemon");
    assert!(script.lines().filter(|line| line.starts_with("lightloom ")).count() > 12);
    let programs = programs::lightloom().parent().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euc", &script]).current_dir(folder.path());
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", programs.display()));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(!lines.is_empty());
    for line in lines {
        assert!(shown.contains(&line), "`{line}` is not in\n{shown}");
    }
}

fn require_typed(page: &str, until: &str) {
    require_lines(typed(page, until));
}

fn require_lines((script, lines): (String, Vec<String>)) {
    let mut shell = Command::new("bash");
    shell.args(["-euc", &script]).current_dir(root());
    let programs = programs::lightloom().parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", programs.display()));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(lines.len() > 4);
    for line in lines {
        assert!(shown.contains(&line), "`{line}` is not in\n{shown}");
    }
}

#[test]
fn cost_of_failures_matches_its_page() {
    require_typed("docs/cost-of-failures.md", "\n## At 2,048 GPUs");
}

#[test]
fn months_of_both_control_planes_match_their_page() {
    // Forty months take a minute.
    if cases(0, 1) == 0 {
        return;
    }
    let page = "docs/cost-of-failures.md";
    let (before, until) = (typed(page, "\n### Assumed"), typed(page, "\n### What it was"));
    let script = until.0.strip_prefix(&before.0).unwrap().to_owned();
    require_lines((script, until.1[before.1.len()..].to_vec()));
}

#[test]
fn readme_matches_the_output_of_its_last_command() {
    // Three steps on 2,048 GPUs with the daemon take two minutes.
    if cases(0, 1) == 0 {
        return;
    }
    let page = read(&root().join("README.md"));
    let lines = page.split("\nThe last line prints").nth(1).unwrap();
    let lines = lines.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    let mut command = Command::new(programs::lightloom());
    command.args(["emulate", "topologies/large/job-2048-lightloomd.yaml"]).current_dir(root());
    let output = command.output().unwrap();
    let shown = text(&output.stdout);
    for line in lines.lines() {
        assert!(shown.contains(line), "`{line}` is not in\n{shown}");
    }
}

#[test]
fn readme_matches_the_output_of_its_first_command() {
    let (script, lines) = typed("README.md", "\nThe last line prints");
    let first = script.lines().next().unwrap();
    let words = first.strip_prefix("cargo run --release --locked -- ").expect("the first command");
    let mut command = Command::new(programs::lightloom());
    let output = command.args(words.split(' ')).current_dir(root()).output().unwrap();
    let shown = text(&output.stdout);
    let lines: Vec<&String> =
        lines.iter().filter(|line| line.contains(':') || line.contains(" ms ")).collect();
    let lines: Vec<&&String> = lines.iter().filter(|line| !line.contains('▶')).collect();
    assert!(lines.len() >= 2);
    for line in lines {
        assert!(shown.contains(line.as_str()), "`{line}` is not in\n{shown}");
    }
}

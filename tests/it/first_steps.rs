// SPDX-License-Identifier: Apache-2.0

use crate::small;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use small::{good, lightloom, text};

const SIZES: [(&str, &[u32]); 5] = [
    ("khop", &[32, 64, 256, 2880, 131_072]),
    ("pod", &[128, 512, 2048, 8192]),
    ("rfabric", &[128, 1024, 2048]),
    ("dgx", &[32, 1000, 16_384]),
    ("rails", &[32, 1024, 16_384]),
];

#[test]
fn every_preset_file_is_valid_and_plannable() {
    let folder = tempfile::tempdir().expect("a folder");
    for (preset, sizes) in SIZES {
        for gpus in sizes {
            let file = format!("{preset}-{gpus}.yaml");
            let gpus_text = gpus.to_string();
            good(folder.path(), &["init", "--preset", preset, "--gpus", &gpus_text, "-o", &file]);
            good(folder.path(), &["validate", &file]);
            let plan = good(folder.path(), &["plan", &file, "--format", "json"]);
            let plan: Value = serde_json::from_str(&plan).expect("a plan");
            let metrics = &plan["metrics"];
            assert_eq!(metrics["gpus_total"].as_u64(), Some(u64::from(*gpus)), "{file}");
            let used = metrics["gpus_used"].as_u64().expect("used");
            assert!(used * 2 >= u64::from(*gpus), "{file} uses {used}");
        }
    }
}

#[test]
fn unsupported_preset_size_error_suggests_the_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, wanted) in [
        (["--preset", "khop", "--gpus", "130"], "use 128 or 132"),
        (["--preset", "khop", "--gpus", "3"], "use 32"),
        (["--preset", "pod", "--gpus", "2050"], "use 2048 or 2080"),
        (["--preset", "dgx", "--gpus", "0"], "use a number from 1"),
        (["--preset", "rails", "--gpus", "4294967295"], "use at most 4000000"),
    ] {
        let refused = lightloom(folder.path(), &[&["init"], arguments.as_slice()].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(&refused.stderr).contains(wanted), "{}", text(&refused.stderr));
    }
    let refused =
        lightloom(folder.path(), &["init", "--preset", "dgx", "--gpus", "64", "--tp", "3"]);
    assert!(text(&refused.stderr).contains("use 1, 2, 4 or 8"), "{}", text(&refused.stderr));
}

#[test]
fn init_without_a_terminal_does_not_prompt_or_overwrite() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = lightloom(folder.path(), &["init"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("use --preset khop"), "{}", text(&refused.stderr));
    let once = ["init", "--preset", "khop", "--gpus", "64", "-o", "f.yaml"];
    good(folder.path(), &once);
    let twice = lightloom(folder.path(), &once);
    assert_eq!(twice.status.code(), Some(1));
    assert!(text(&twice.stderr).contains("f.yaml already exists"), "{}", text(&twice.stderr));
}

#[test]
fn new_cluster_is_planned_emulated_and_reported_in_four_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |words: &str| good(folder.path(), &words.split(' ').collect::<Vec<_>>());
    run("init cluster --preset khop --gpus 64 -o mine/");
    run("plan mine/fabric.yaml -o mine/plan.json");
    run("emulate mine/scenario.yaml -o mine/run.json");
    run("report mine/fabric.yaml mine/plan.json mine/run.json -o mine/report.html");
    for preset in ["pod --gpus 128", "rfabric --gpus 128", "dgx --gpus 32", "rails --gpus 32"] {
        let name = &preset[..3];
        run(&format!("init cluster --preset {preset} -o {name}/"));
        run(&format!("emulate {name}/scenario.yaml"));
    }
}

#[test]
fn gallery_of_init_is_valid_and_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["scenario", "ci", "lab"] {
        good(folder.path(), &["init", kind, "-o", kind]);
        let again = lightloom(folder.path(), &["init", kind, "-o", kind]);
        assert_eq!(again.status.code(), Some(1), "{kind} overwrites files");
        for entry in walk(&folder.path().join(kind).join("topologies")) {
            let name = entry.display().to_string();
            if !name.contains("/devices/") && !name.contains("/traces/") {
                good(folder.path(), &["validate", &name]);
            }
        }
        let nowhere = lightloom(folder.path(), &["init", kind]);
        assert_eq!(nowhere.status.code(), Some(2), "{kind} needs a folder");
        let idle = lightloom(folder.path(), &["init", kind, "--gpus", "64", "-o", "other"]);
        assert!(text(&idle.stderr).contains("apply only to `init cluster`"), "{kind}");
    }
    good(&folder.path().join("scenario"), &["emulate", "topologies/scenarios/job-step.yaml"]);
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() { walk(&path) } else { vec![path] }
        })
        .collect()
}

#[test]
fn generated_file_works_through_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = good(folder.path(), &["init", "--preset", "pod", "--gpus", "512"]);
    let mut plan = Command::new(crate::programs::lightloom());
    plan.args(["plan", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut plan = plan.spawn().expect("the program starts");
    plan.stdin.take().expect("a pipe").write_all(made.as_bytes()).expect("written");
    assert!(plan.wait_with_output().expect("it ends").status.success());
}

#[test]
fn demo_shows_each_command_and_writes_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = lightloom(folder.path(), &["demo"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let commands = text(&shown.stderr);
    for command in ["$ lightloom plan ", "$ lightloom emulate ", "$ lightloom report "] {
        assert!(commands.contains(command), "{command} is not in\n{commands}");
    }
    assert!(text(&shown.stdout).contains("passed: groups_affected <= 1"), "the run is shown");
    let page = |name: &str| {
        let page = folder.path().join("lightloom-demo").join(name);
        std::fs::read_to_string(page).expect("the page")
    };
    let [report, bill] = ["report.html", "bill.html"].map(page);
    for (page, shown) in [
        (&report, "of 2,880\u{a0}GPUs work with 2 failed parts"),
        (&report, "<svg class=\"nodes\""),
        (&bill, "<h1>Failures cost "),
        (&bill, "id=\"bill-bars\""),
    ] {
        assert!(page.contains(shown), "{shown} is not on the page");
    }
    assert!(!report.contains("id=\"bill"), "the bill is of another cluster");
    let twice = lightloom(folder.path(), &["demo"]);
    assert!(text(&twice.stderr).contains("use another --folder"), "{}", text(&twice.stderr));
}

#[test]
fn every_verb_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    good(folder.path(), &["man", "--folder", "pages"]);
    let page = |name: &str| std::fs::read_to_string(folder.path().join("pages").join(name));
    assert!(page("lightloom.1").expect("the program's").contains("lightloom\\-emulate(1)"));
    for name in ["lightloom-emulate.1", "lightloom-ctl-apply.1", "lightloom-buy.1"] {
        assert!(
            page(name).unwrap_or_else(|error| panic!("{name}: {error}")).contains("Example"),
            "{name}"
        );
    }
}

const TABLES: [&[&str]; 6] = [
    &["compare", "--gpus", "720", "--samples", "4"],
    &["cost", "--gpus", "720"],
    &["mfu", "--model", "llama-3.1-8b", "--gpus", "64", "--top", "3"],
    &["emulate", "SHIPPED/scenarios/neighbours-k.yaml"],
    &["emulate", "SHIPPED/scenarios/neighbours-k.yaml", "--seed", "0..2"],
    &["trace", "info", "SHIPPED/traces/synthetic.json"],
];

#[test]
fn every_table_is_available_as_json_and_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies");
    for verb in TABLES {
        let verb: Vec<String> = verb.iter().map(|word| word.replace("SHIPPED", shipped)).collect();
        let with = |more: &[&'static str]| {
            let words: Vec<&str> =
                verb.iter().map(String::as_str).chain(more.iter().copied()).collect();
            good(folder.path(), &words)
        };
        let csv = with(&["--format", "csv", "-o", "rows.csv"]);
        let kept = std::fs::read_to_string(folder.path().join("rows.csv")).expect("rows are kept");
        let mut rows = csv::Reader::from_reader(kept.as_bytes());
        let columns = rows.headers().expect("a header").len();
        let rows: Result<Vec<_>, _> = rows.records().collect();
        let count = rows.expect("as many values as columns").len();
        assert!(columns > 3 && count > 0, "{verb:?}: {count} rows of {columns}");
        assert_eq!(csv.lines().next(), kept.lines().next(), "{verb:?}");

        let shown = with(&["-o", "result.json"]);
        let kept = std::fs::read_to_string(folder.path().join("result.json")).expect("a result");
        let document: Value = serde_json::from_str(&kept).expect("JSON");
        assert!(document.is_object() && !shown.starts_with('{'), "text is shown, JSON is kept");
    }
}

#[test]
fn result_file_never_overwrites_an_input() {
    let folder = tempfile::tempdir().expect("a folder");
    good(folder.path(), &["init", "--preset", "khop", "--gpus", "64", "-o", "fabric.yaml"]);
    let scenario = "kind: scenario\nversion: 2\nname: s\non: {fabric: fabric.yaml}\n\
                    collectives: [{all_reduce: {name: t, bytes: 64KiB}}]\n";
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("written");
    let fabric = std::fs::read_to_string(folder.path().join("fabric.yaml")).expect("made");
    for words in [
        ["plan", "fabric.yaml", "-o", "fabric.yaml"],
        ["emulate", "s.yaml", "-o", "s.yaml"],
        ["emulate", "s.yaml", "-o", "./fabric.yaml"],
        ["emulate", "s.yaml", "--junit", "s.yaml"],
    ] {
        let refused = lightloom(folder.path(), &words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        assert!(text(&refused.stderr).contains("is an input of this command"), "{words:?}");
    }
    let kept = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("kept");
    assert_eq!((kept("fabric.yaml"), kept("s.yaml")), (fabric, scenario.to_owned()));
}

#[test]
fn unwritable_output_is_refused_before_the_work() {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, wanted) in [
        ("none/r.json", "folder none does not exist"),
        ("-", "omit the option"),
        (".", "is a folder"),
    ] {
        for verb in [&["compare", "-o", file][..], &["emulate", "no.yaml", "--timeline", file]] {
            let refused = lightloom(folder.path(), verb);
            assert_eq!(refused.status.code(), Some(2), "{verb:?}");
            assert!(text(&refused.stderr).contains(wanted), "{}", text(&refused.stderr));
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left");
}

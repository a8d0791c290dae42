// SPDX-License-Identifier: Apache-2.0
//! JUnit, summaries, sweeps over seeds, merged shards and exit codes.

use crate::small;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use small::{json, lightloom, read, small, text};

#[test]
fn junit_lists_every_expectation_and_fault_with_a_replay_command() {
    let folder = small("restored within 120us, groups_lost == 0, groups_affected <= 1");
    let run = lightloom(folder.path(), &["emulate", "run.yaml", "--seed", "5", "--junit", "j.xml"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let xml = read(folder.path(), "j.xml");
    assert!(xml.contains(r#"tests="4" failures="2""#), "{xml}");
    for case in ["expect restored within 120 µs", "expect groups_lost == 0", "fault 0 n4 at 20 µs"]
    {
        assert!(xml.contains(&format!("testcase name=\"{case}\"")), "{case}: {xml}");
    }
    let failure = xml.split("<failure").nth(1).expect("a failure");
    assert!(failure.contains("replay: lightloom emulate run.yaml --seed 5"), "{xml}");
    assert!(failure.contains("seed: 5"), "{xml}");

    let good = small("restored within 1ms, groups_affected == 1");
    let run = lightloom(good.path(), &["emulate", "run.yaml", "--junit", "j.xml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(read(good.path(), "j.xml").contains(r#"tests="3" failures="0""#));
}

/// Regression: the run failed with its exit status, but the JUnit file had no failed case.
#[test]
fn junit_and_summary_name_the_limit_that_stopped_a_run() {
    let folder = small("waste_ratio < 0.5");
    let scenario = read(folder.path(), "run.yaml");
    std::fs::write(folder.path().join("run.yaml"), scenario + "packet_limit: 1000\n").unwrap();
    let emulate = |seeds: &str| {
        let files = ["--junit", "j.xml", "--summary", "page.md"];
        let fixed = ["emulate", "run.yaml", "--seed", seeds];
        let run = lightloom(folder.path(), &[&fixed[..], &files].concat());
        assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
        let printed = text(&run.stdout).to_owned();
        (read(folder.path(), "j.xml"), read(folder.path(), "page.md"), printed)
    };
    let stopped = "the run ended at its limit of 1000 packet-hops";
    let (xml, page, _) = emulate("1");
    assert!(xml.contains(r#"tests="3" failures="1""#), "{xml}");
    assert!(xml.contains(r#"testcase name="ended""#) && xml.contains(stopped), "{xml}");
    assert!(xml.contains("replay: lightloom emulate run.yaml --seed 1"), "{xml}");
    assert!(page.contains(&format!("- seed 1: {stopped}")), "{page}");

    let (xml, page, printed) = emulate("1..2");
    assert!(xml.contains(r#"tests="6" failures="2""#), "{xml}");
    assert!(page.contains(&format!("- seed 2: {stopped}")), "{page}");
    assert!(printed.contains(stopped), "{printed}");
}

#[test]
fn summary_appends_to_a_github_job_page_and_replaces_other_files() {
    let folder = small("restored within 120us, waste_ratio < 0.5");
    let write = |of_job: Option<&str>| {
        let mut command = Command::new(crate::programs::lightloom());
        command.args(["emulate", "run.yaml", "--summary", "page.md"]).current_dir(folder.path());
        match of_job {
            Some(path) => command.env("GITHUB_STEP_SUMMARY", path),
            None => command.env_remove("GITHUB_STEP_SUMMARY"),
        };
        assert_eq!(command.output().unwrap().status.code(), Some(1));
        read(folder.path(), "page.md").matches("## ❌ failed: small").count()
    };
    assert_eq!(write(None), 1);
    assert_eq!(write(None), 1, "another file is written anew");
    assert_eq!(write(Some("page.md")), 2, "the page of the job keeps what other steps wrote");
    let page = read(folder.path(), "page.md");
    assert!(page.contains("| waste_ratio &lt; 0.5 |"), "a table stays a table: {page}");
    assert!(page.contains("`lightloom emulate run.yaml --seed 1`"), "{page}");

    // The environment variable alone does not cause a summary to be written.
    let mut command = Command::new(crate::programs::lightloom());
    command.args(["emulate", "run.yaml"]).current_dir(folder.path());
    command.env("GITHUB_STEP_SUMMARY", "other.md").output().unwrap();
    assert!(!folder.path().join("other.md").exists());
}

#[test]
fn sweep_names_the_worst_seed_and_its_shards_merge() {
    let folder = small("restored within 178us, groups_lost == 0");
    let sweep = |more: &[&str]| {
        let fixed = ["emulate", "run.yaml", "--seed", "0..11", "--format", "json"];
        lightloom(folder.path(), &[&fixed, more].concat())
    };
    let whole = sweep(&["--threads", "2"]);
    let result = json(&whole);
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    let took = |run: &Value| {
        let fault = &run["faults"][0];
        fault["restored_ps"].as_u64().unwrap() - fault["at_ps"].as_u64().unwrap()
    };
    let slowest = runs.iter().max_by_key(|run| took(run)).unwrap();
    assert_eq!(result["worst_seed"], slowest["seed"], "the worst seed is the slowest to heal");
    let failed = runs.iter().filter(|run| took(run) > 178_000_000).count();
    assert!(failed > 0 && failed < 12, "the bound lies among the seeds: {failed}");
    assert_eq!(result["expectations"][0]["failed"], failed);
    assert_eq!(whole.status.code(), Some(1));

    for index in 0..3 {
        let part = sweep(&["--shard", &format!("{index}/3")]);
        assert_eq!(json(&part)["runs"].as_array().unwrap().len(), 4);
        std::fs::write(folder.path().join(format!("part-{index}.json")), part.stdout).unwrap();
    }
    let merged = lightloom(
        folder.path(),
        &["merge", "part-0.json", "part-1.json", "part-2.json", "--format", "json"],
    );
    assert!(merged.stdout == whole.stdout, "not byte for byte:\n{}", text(&merged.stdout));
    assert_eq!(merged.status.code(), Some(1));
    let holes = lightloom(folder.path(), &["merge", "part-0.json", "part-1.json"]);
    assert_eq!(holes.status.code(), Some(1));
    assert!(text(&holes.stdout).contains("no result for seeds 2 5 8 11"));
}

#[test]
fn interrupted_sweep_resumes_with_its_finished_seeds() {
    let folder = small("restored within 178us");
    let sweep = |more: &[&str]| {
        let words = ["emulate", "run.yaml", "--seed", "0..3", "-o", "sweep.json"];
        lightloom(folder.path(), &[&words, more].concat())
    };
    sweep(&["--resume"]);
    let whole = read(folder.path(), "sweep.json");
    // The file of an interrupted sweep has some of the runs. A mark shows that they are not run again.
    let mut part: Value = serde_json::from_str(&whole).unwrap();
    let runs = part["runs"].as_array_mut().unwrap();
    runs.truncate(2);
    runs[0]["packet_hops"] = 7.into();
    std::fs::write(folder.path().join("sweep.json"), part.to_string()).unwrap();
    sweep(&["--resume"]);
    let resumed: Value = serde_json::from_str(&read(folder.path(), "sweep.json")).unwrap();
    assert_eq!(resumed["runs"][0]["packet_hops"], 7);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    for seed in 1..4 {
        assert_eq!(resumed["runs"][seed], whole["runs"][seed]);
    }
    // Other inputs are not mixed.
    let changed = read(folder.path(), "run.yaml") + "\n# other\n";
    std::fs::write(folder.path().join("run.yaml"), changed).unwrap();
    let refused = sweep(&["--resume"]);
    assert!(text(&refused.stderr).contains("omit --resume"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn tables_inside_the_runs_of_a_sweep_are_printed_with_their_seed() {
    let folder = small("restored within 178us");
    let words = ["emulate", "run.yaml", "--seed", "0..2", "--table", "faults"];
    let shown = lightloom(folder.path(), &words);
    let mut rows = csv::Reader::from_reader(shown.stdout.as_slice());
    assert_eq!(&rows.headers().unwrap()[0], "seed");
    let seeds: Vec<String> = rows.records().map(|row| row.unwrap()[0].to_owned()).collect();
    assert_eq!(seeds, ["0", "1", "2"]);
    let kept = ["emulate", "run.yaml", "--seed", "0..2", "-o", "earlier.json"];
    lightloom(folder.path(), &kept);
    let again = ["emulate", "run.yaml", "--seed", "0..3", "--against", "earlier.json"];
    let compared = lightloom(folder.path(), &again);
    assert!(text(&compared.stdout).contains("runs[3].passed"), "{}", text(&compared.stdout));
    std::fs::write(folder.path().join("cost.json"), "{\"schema\": \"lightloom.cost/v1\"}").unwrap();
    let other = lightloom(folder.path(), &["emulate", "run.yaml", "--against", "cost.json"]);
    assert!(text(&other.stderr).contains("of another verb"), "{}", text(&other.stderr));
    let negative = lightloom(folder.path(), &["emulate", "run.yaml", "--seed", "-1"]);
    assert!(text(&negative.stderr).contains("neither a seed"), "{}", text(&negative.stderr));
    assert_eq!((other.status.code(), negative.status.code()), (Some(1), Some(2)));
    let unknown = lightloom(folder.path(), &["emulate", "run.yaml", "--table", "flaws"]);
    assert!(text(&unknown.stderr).contains("use one of workloads"), "{}", text(&unknown.stderr));
}

#[test]
fn worst_seed_of_a_sweep_replays_to_the_same_failure() {
    let folder = small("restored within 178us");
    let sweep = lightloom(folder.path(), &["emulate", "run.yaml", "--seed", "0..11"]);
    let shown = text(&sweep.stdout);
    let replay = shown.split("replay: ").nth(1).unwrap().lines().next().unwrap();
    let arguments: Vec<&str> = replay.split(' ').skip(1).collect();
    let again = lightloom(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(1));
    let found = shown.lines().find(|line| line.starts_with("restored within")).unwrap();
    let found = found.split("the slowest").nth(1).unwrap().trim();
    assert!(text(&again.stdout).contains(found), "{found} in {}", text(&again.stdout));
}

#[test]
fn wrong_usage_exits_with_2_and_a_bad_file_with_1() {
    let folder = small("groups_lost == 0");
    let code = |arguments: &[&str]| lightloom(folder.path(), arguments).status.code();
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "9..0"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "0..9", "--shard", "4/4"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--shard", "0/4"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "0..9", "--flows-out", "f"]), Some(2));
    assert_eq!(code(&["merge"]), Some(2));
    assert_eq!(code(&["emulate", "fabric.yaml"]), Some(1));
    assert_eq!(code(&["merge", "run.yaml"]), Some(1));
    assert_eq!(code(&["emulate", "run.yaml"]), Some(0));
}

#[test]
fn example_paths_in_help_exist_in_the_repository() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for verb in ["emulate", "merge"] {
        let help = lightloom(&root, &[verb, "--help"]);
        for word in text(&help.stdout).split_whitespace().filter(|w| w.starts_with("topologies/")) {
            assert!(root.join(word).exists(), "{word}");
        }
    }
}

#[test]
fn run_exports_timeline_capture_and_link_table() {
    let folder = small("restored within 1ms");
    let run = lightloom(
        folder.path(),
        &[
            "emulate",
            "run.yaml",
            "--timeline",
            "t.json",
            "--pcap",
            "p.pcapng",
            "--pcap-port",
            "n9/g1",
            "--links-out",
            "links.csv",
            "--flows-out",
            "flows.csv",
        ],
    );
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let timeline: Value = serde_json::from_str(&read(folder.path(), "t.json")).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let names = |what: &str| -> Vec<&str> {
        let of = events.iter().filter(|event| event["name"] == what);
        of.map(|event| event["args"]["name"].as_str().unwrap()).collect()
    };
    assert_eq!(names("process_name"), ["groups", "faults", "ranks", "ports"]);
    let tracks = names("thread_name");
    for track in ["g0", "g3", "n4 down", "n9/g1", "n9/g1→n9/g2"] {
        assert!(tracks.contains(&track), "{track} in {tracks:?}");
    }
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(slices.iter().all(|s| s["ts"].as_f64() >= Some(0.0) && s["dur"].as_f64() >= Some(0.0)));
    assert_eq!(slices.iter().filter(|slice| slice["name"] == "planning").count(), 1);

    let links = read(folder.path(), "links.csv");
    assert!(links.starts_with("link,bytes,packets,dropped,marked,lost\n"));
    assert!(links.lines().count() > 24 * 4 * 2, "every link has a row");

    let Ok(shown) = Command::new("tshark")
        .arg("-r")
        .arg(folder.path().join("p.pcapng"))
        .args(["-T", "fields", "-e", "frame.time_epoch", "-e", "ip.src", "-e", "ip.dst"])
        .args(["-e", "udp.dstport"])
        .output()
    else {
        return;
    };
    let rows: Vec<Vec<&str>> =
        text(&shown.stdout).lines().map(|l| l.split('\t').collect()).collect();
    assert!(!rows.is_empty(), "{}", text(&shown.stderr));
    // n9/g1 is vertex 9 × 4 + 1 = 37. All its packets are RoCEv2 between GPUs.
    assert!(
        rows.iter().any(|row| row[1] == "10.0.0.37")
            && rows.iter().any(|row| row[2] == "10.0.0.37")
    );
    assert!(rows.iter().all(|row| row[3] == "4791"));
    let last: f64 = rows.last().unwrap()[0].parse().unwrap();
    assert!(last > 0.0 && last < 1e-3, "within the run: {last} s");
}

#[test]
fn progress_reports_simulated_time_packets_and_rate() {
    let folder = small("groups_lost == 0");
    let quick = lightloom(folder.path(), &["emulate", "run.yaml"]);
    assert!(!text(&quick.stderr).contains("emulating"), "{}", text(&quick.stderr));
    let long = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/scenarios/node-fault.yaml");
    let run = lightloom(folder.path(), &["emulate", long, "--no-reuse"]);
    let line = text(&run.stderr).lines().find(|line| line.starts_with("emulating: "));
    let line = line.unwrap_or_else(|| panic!("{}", text(&run.stderr)));
    assert!(line.contains(" %, "), "{line}");
    assert!(line.contains(" simulated, ") && line.contains(" M packet-hops, "), "{line}");
    assert!(line.contains(" M/s"), "{line}");
}

#[test]
fn validate_locates_scenario_names_missing_from_the_fabric() {
    let folder = small("group g9 unaffected");
    let shown = lightloom(folder.path(), &["validate", "run.yaml"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(text(&shown.stderr).contains("run.yaml:7:10"), "{}", text(&shown.stderr));
    assert!(text(&shown.stderr).contains("g0 to g3"), "{}", text(&shown.stderr));
    let faults = "faults:\n  - {part: n99, at: 1us}\n  - {part: n1, at: 1us, effect: stuck}\n";
    std::fs::write(folder.path().join("faults.yaml"), faults).unwrap();
    let alone = lightloom(folder.path(), &["validate", "faults.yaml"]);
    assert!(text(&alone.stderr).contains("faults.yaml:3:12"), "{}", text(&alone.stderr));
    let scenario = read(folder.path(), "run.yaml")
        .replace("faults: [{part: n4, at: 20us}]", "faults_in: faults.yaml");
    std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
    let both = lightloom(folder.path(), &["emulate", "run.yaml"]);
    for place in ["faults.yaml:2:12", "faults.yaml:3:12"] {
        assert!(text(&both.stderr).contains(place), "{place}: {}", text(&both.stderr));
    }
}

#[test]
fn validates_a_fault_file_against_an_unrelated_scenario() {
    let folder = small("groups_lost == 0");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "net.yaml",
        "name: x\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}\n\
                       traffic: [{name: a, run: {shift: 1}, bytes: 1MiB}]\n",
    );
    let check = |faults: &str, arguments: &[&str]| {
        write("faults.yaml", faults);
        let fixed = ["validate", "faults.yaml"];
        let run = lightloom(folder.path(), &[&fixed[..], arguments].concat());
        (run.status.code(), text(&run.stderr).to_owned())
    };
    let absent = "faults:\n  - {part: n23, at: 1us}\n  - {part: n99, at: 1us}\n";
    assert_eq!(check(absent, &[]).0, Some(0), "of some fabric that may be right");
    let (code, printed) = check(absent, &["--scenario", "run.yaml"]);
    assert!(
        code == Some(1) && printed.contains("faults.yaml:3:12") && !printed.contains(":2:"),
        "{printed}"
    );
    let storm = "faults: [{part: n3, at: 1us, effect: {pause_storm: 3}}]\n";
    assert_eq!(check(storm, &[]).0, Some(0));
    let (code, printed) = check(storm, &["--scenario", "run.yaml"]);
    assert!(code == Some(1) && printed.contains("supports pauses"), "{printed}");

    let network = "faults: [{part: h3, at: 1us}, {part: h8, at: 1us}]\n";
    assert_eq!(check(network, &[]).0, Some(0));
    let (code, printed) = check(network, &["--scenario", "net.yaml"]);
    assert!(code == Some(1) && printed.contains("faults.yaml:1:38"), "{printed}");
    assert_eq!(check(network, &["--scenario", "run.yaml"]).0, Some(1), "hosts are of no fabric");
    assert_eq!(check("faults: [{part: h7, at: 1us}]\n", &["--scenario", "net.yaml"]).0, Some(0));
    let run = lightloom(folder.path(), &["validate", "run.yaml", "--scenario", "run.yaml"]);
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
}

#[test]
fn network_faults_can_be_in_a_separate_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("faults.yaml", "faults:\n  - {part: h3/nic0, at: 5us, lasts: 50us}\n");
    write(
        "run.yaml",
        "name: x\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}\n\
         traffic: [{name: a, run: {shift: 1}, bytes: 1MiB}]\nfaults_in: faults.yaml\n\
         expect: [restored within 1ms, gpus_lost == 1]\n",
    );
    let good = lightloom(folder.path(), &["validate", "faults.yaml", "run.yaml"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    let run = lightloom(folder.path(), &["emulate", "run.yaml"]);
    assert_eq!(run.status.code(), Some(0), "{}{}", text(&run.stdout), text(&run.stderr));
    write("faults.yaml", "faults:\n  - {part: h9, at: 5us}\n  - {part: h3/x, at: 5us}\n");
    let alone = lightloom(folder.path(), &["validate", "faults.yaml"]);
    assert!(text(&alone.stderr).contains("faults.yaml:3:12"), "{}", text(&alone.stderr));
    let both = lightloom(folder.path(), &["emulate", "run.yaml"]);
    assert!(text(&both.stderr).contains("faults.yaml:2:12"), "{}", text(&both.stderr));
}

#[test]
fn rejects_prove_reuse_where_nothing_is_reused() {
    let folder = small("groups_lost == 0");
    let run = |arguments: &[&str]| {
        let all = [&["emulate", "run.yaml", "--prove-reuse"], arguments].concat();
        let output = lightloom(folder.path(), &all);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, printed) = run(&[]);
    assert_eq!(code, Some(0), "{printed}");
    for (arguments, wanted) in [
        (["--seed", "0..1"].as_slice(), "one seed"),
        (&["--links-out", "links.csv"], "which simulate every ring"),
    ] {
        let (code, printed) = run(arguments);
        assert_eq!(code, Some(2), "{printed}");
        assert!(printed.contains(wanted), "{printed}");
    }
    let scenario = read(folder.path(), "run.yaml");
    let between = scenario.replace("all_reduce: {", "data_parallel_all_reduce: {");
    std::fs::write(folder.path().join("run.yaml"), between).unwrap();
    let (code, printed) = run(&[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("nothing to verify: inter-group collectives share links"),
        "{printed}"
    );
    let traffic =
        "name: x\non: {ring: {hosts: 4}}\ntraffic: [{name: a, run: permutation, bytes: 1KiB}]\n";
    std::fs::write(folder.path().join("run.yaml"), traffic).unwrap();
    let (code, printed) = run(&[]);
    assert!(code == Some(1) && printed.contains("nothing to verify"), "{printed}");
}

#[test]
fn phase_sequence_reports_expectations_and_faults_to_ci() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/rfabric-shapes.yaml");
    let write = |expect: &str| {
        let text = format!(
            "name: phases\non: {{fabric: {shapes}}}\nphases: {{scale: 40}}\n\
             faults: [{{part: ocs0, phase: experts, at: 40ms}}]\n\
             expect: [{expect}]\n"
        );
        std::fs::write(folder.path().join("run.yaml"), text).unwrap();
    };
    let all = ["emulate", "run.yaml", "--junit", "junit.xml", "--summary", "summary.md"];
    write("completes within 1s, goodput > 0.999");
    let run = lightloom(folder.path(), &all);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains("passed: completes within 1"), "{}", text(&run.stdout));
    assert!(text(&run.stdout).contains("FAILED: goodput > 0.999"), "{}", text(&run.stdout));
    let junit = read(folder.path(), "junit.xml");
    assert!(junit.contains("tests=\"3\" failures=\"1\""), "{junit}");
    assert!(junit.contains("fault 0 ocs0 at "), "{junit}");
    assert!(junit.contains("replay: lightloom emulate run.yaml --seed 1"), "{junit}");
    assert!(
        read(folder.path(), "summary.md").contains("goodput &gt; 0.999")
            || read(folder.path(), "summary.md").contains("goodput > 0.999")
    );
    write("completes within 1s");
    assert_eq!(lightloom(folder.path(), &all).status.code(), Some(0));
    write("no drops, group g3 unaffected, goodput > 2");
    let wrong = lightloom(folder.path(), &["validate", "run.yaml"]);
    for place in ["run.yaml:5:10", "run.yaml:5:20", "run.yaml:5:41"] {
        assert!(text(&wrong.stderr).contains(place), "{place}: {}", text(&wrong.stderr));
    }
}

#[test]
fn sweep_of_a_phase_sequence_draws_fault_times_per_seed() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/rfabric-shapes.yaml");
    let scenario = format!(
        "name: phases\non: {{fabric: {shapes}}}\nphases: {{scale: 40}}\n\
         faults:\n  - {{part: leaf3/gpus, effect: {{rate_percent: 10}}, phase: experts, at: 1ms, within: 20ms, \
         probability: 0.5}}\n\
         expect: [goodput > 0.5]\n"
    );
    std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
    let sweep = |more: &[&str]| {
        let fixed = ["emulate", "run.yaml", "--seed", "0..7", "--format", "json"];
        lightloom(folder.path(), &[&fixed, more].concat())
    };
    let whole = sweep(&["--threads", "2"]);
    let result = json(&whole);
    let runs = result["runs"].as_array().unwrap();
    let broken = runs.iter().filter_map(|run| run["faults"].get(0));
    let mut at: Vec<u64> = broken.map(|fault| fault["at_ps"].as_u64().unwrap()).collect();
    let count = at.len();
    assert!(count > 0 && count < 8, "half of the seeds or so: {count}");
    at.sort_unstable();
    at.dedup();
    assert_eq!(at.len(), count, "each at a time of its own");
    assert!(at[0] >= 1_000_000_000 && at[count - 1] <= 21_000_000_000, "{at:?}");
    assert_eq!(result["expectations"][0]["failed"], count, "only where it breaks");
    assert_eq!(whole.status.code(), Some(1));
    for index in 0..2 {
        let part = sweep(&["--shard", &format!("{index}/2")]);
        std::fs::write(folder.path().join(format!("part-{index}.json")), part.stdout).unwrap();
    }
    let merged =
        lightloom(folder.path(), &["merge", "part-0.json", "part-1.json", "--format", "json"]);
    assert!(merged.stdout == whole.stdout, "not byte for byte:\n{}", text(&merged.stdout));
    let none = std::fs::read_to_string(folder.path().join("run.yaml")).unwrap();
    let none = none.replace("leaf3/gpus", "leaf99/gpus");
    std::fs::write(folder.path().join("run.yaml"), none).unwrap();
    let wrong = lightloom(folder.path(), &["validate", "run.yaml"]);
    assert!(
        text(&wrong.stderr).contains("`leaf99/gpus` does not exist"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn endless_run_fails_and_reports_its_waits() {
    let folder = small("groups_lost == 0");
    let scenario = read(folder.path(), "run.yaml").replace(
        "faults: [{part: n4, at: 20us}]",
        "faults: [{part: n4, at: 20us}, {part: control, at: 1us}]",
    );
    std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
    let run = lightloom(folder.path(), &["emulate", "run.yaml"]);
    assert_eq!(run.status.code(), Some(1));
    let shown = text(&run.stderr);
    assert!(shown.contains("stopped at its time limit of 10 s: it may never end"), "{shown}");
    assert!(shown.contains("g0, `tensor`: waits for n"), "{shown}");
}

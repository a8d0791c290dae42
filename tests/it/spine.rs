// SPDX-License-Identifier: Apache-2.0
//! From a fabric file to a verified plan to packets.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn shipped(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("topologies").join(name).display().to_string()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn failed(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "", "a failure prints no result");
    text(&output.stderr)
}

#[test]
fn plans_proves_writes_and_replans() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    let made = lightloom(
        folder.path(),
        &["plan", &fabric, "--fault", "n17,n42/b1,n7/b0.2", "-o", "plan.json"],
    );
    let shown = text(&made.stdout);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(shown.contains("3 failed parts") && shown.contains("are single cycles"), "{shown}");

    let next = lightloom(
        folder.path(),
        &[
            "replan",
            "plan.json",
            "--fabric",
            &fabric,
            "--fault",
            "n200",
            "-o",
            "next.json",
            "--format",
            "json",
        ],
    );
    let next = json(&next);
    let bundles = next["change"]["bundles"].as_array().unwrap().len();
    assert!(bundles > 0 && bundles <= 6, "at most 2K bundles switch, not {bundles}");
    assert_eq!(next["change"]["groups"].as_array().unwrap().len(), 1);
    let written: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("next.json")).unwrap()).unwrap();
    assert_eq!(written, next["plan"]);

    // Idle nodes may form a spare ring again. Active groups remain with `--moves least`; otherwise up to two move back to
    // cross fewer ToRs.
    for (limit, most) in [(&["--moves", "least"][..], 0), (&[], 2)] {
        let repair = ["replan", "next.json", "--fabric", &fabric, "--repair", "n200"];
        let back = lightloom(folder.path(), &[&repair, limit].concat());
        let shown = text(&back.stdout);
        let change = shown.split("bundle ").next().unwrap_or_default();
        let disturbed = ["bypassed", "lost"].iter().any(|what| change.contains(what));
        let moved = change.matches(" moved ").count();
        assert!(back.status.success() && !disturbed && moved <= most, "{shown}");
    }
}

#[test]
fn plan_has_the_documented_fields() {
    let output =
        lightloom(Path::new("."), &["plan", &shipped("explicit-8.yaml"), "--format", "json"]);
    let plan = json(&output);
    assert_eq!(plan["schema"], "lightloom.plan/v2");
    for field in ["fabric_sha256", "seed", "groups", "transceivers", "circuits", "ranks", "metrics"]
    {
        assert!(!plan[field].is_null(), "{field}");
    }
    for field in [
        "gpus_total",
        "gpus_faulty",
        "gpus_used",
        "gpus_wasted",
        "waste_ratio",
        "waste_ratio_lower_bound",
        "cross_tor_share",
    ] {
        assert!(plan["metrics"][field].is_number(), "{field}");
    }
    assert_eq!(plan["ranks"][0]["tp"], 0);
    assert!(plan["transceivers"][0]["bundle"].as_str().unwrap().starts_with("n0/b"));
}

#[test]
fn equal_seeds_give_equal_plans() {
    let trace = shipped("traces/synthetic.json");
    let fabric = shipped("ring-2880.yaml");
    let folder = tempfile::tempdir().unwrap();
    let plan = |seed: &str| {
        let arguments = [
            "plan",
            &fabric,
            "--trace",
            &trace,
            "--at",
            "75",
            "--seed",
            seed,
            "--format",
            "json",
            "-o",
            "plan.json",
        ];
        let printed = json(&lightloom(folder.path(), &arguments));
        let file = std::fs::read(folder.path().join("plan.json")).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&file).unwrap(), printed);
        (file, printed)
    };
    let (file, printed) = plan("1");
    assert!(plan("1").0 == file && plan("1").0 == file, "three runs write the same file");
    assert_ne!(printed["faults"], plan("2").1["faults"]);
    assert_ne!(printed["digest"], plan("2").1["digest"]);
}

#[test]
fn plan_digest_is_the_same_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    for fabric in ["ring-2880.yaml", "rfabric-shapes.yaml"].map(shipped) {
        let run = |arguments: &[&str]| lightloom(folder.path(), arguments);
        let output = run(&["plan", &fabric, "-o", "plan.json"]);
        let file = std::fs::read(folder.path().join("plan.json")).unwrap();
        let plan: Value = serde_json::from_slice(&file).unwrap();
        let digest = plan["digest"].as_str().unwrap();
        assert_eq!(lightloom_fabric::plan::digest(&plan), digest);
        let printed = text(&output.stdout);
        assert!(printed.contains(&format!("; plan {}\n", &digest[..12])), "{printed}");
        let export =
            run(&["export", "plan.json", "--fabric", &fabric, "--to", "dot", "--format", "json"]);
        let export = json(&export);
        assert_eq!(export["plan"], digest);
        assert_eq!(export["inputs"]["plan"]["sha256"], lightloom_fabric::provenance::sha256(&file));
        let page = run(&["report", &fabric, "plan.json", "--samples", "2", "--format", "markdown"]);
        let page = text(&page.stdout);
        assert!(page.contains(&format!("plan.json is plan {digest}.")), "{fabric}");
    }
}

#[test]
fn rejects_an_edited_plan_by_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    lightloom(folder.path(), &["plan", &fabric, "-o", "plan.json"]);
    let path = folder.path().join("plan.json");
    let edited = std::fs::read_to_string(&path)
        .unwrap()
        .replace("\"name\":\"ring-2880\"", "\"name\":\"ring\"");
    std::fs::write(&path, edited).unwrap();
    let replan = ["replan", "plan.json", "--fabric", &fabric, "--fault", "n3"];
    let output = lightloom(folder.path(), &replan);
    let said = failed(&output);
    assert!(said.contains("the file was edited"), "{said}");
}

#[test]
fn results_name_their_schema_version_and_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let (ring, trace) = (shipped("ring-32.yaml"), shipped("traces/synthetic.json"));
    let scenario = shipped("scenarios/node-fault.yaml");
    lightloom(folder.path(), &["plan", &ring, "-o", "plan.json"]);
    let cases: [(&[&str], &str, &[&str]); 9] = [
        (&["trace", "info", &trace], "lightloom.trace/v1", &["trace"]),
        (&["plan", &ring], "lightloom.plan/v2", &["fabric"]),
        (
            &["replan", "plan.json", "--fabric", &ring, "--fault", "n3"],
            "lightloom.replan/v1",
            &["fabric", "plan"],
        ),
        (&["compare", "--samples", "1", "--tp", "8"], "lightloom.compare/v1", &[]),
        (
            &["compare", "--faults", &trace, "--samples", "1", "--tp", "8"],
            "lightloom.compare/v1",
            &["trace"],
        ),
        (&["cost", "--samples", "1"], "lightloom.cost/v1", &["prices"]),
        (
            &["mfu", "--model", "mixtral-8x7b", "--gpus", "64", "--arch", "dgx", "--batch", "256"],
            "lightloom.mfu/v1",
            &[],
        ),
        (&["emulate", &scenario], "lightloom.run/v2", &["fabric", "scenario", "trace"]),
        (
            &["emulate", &scenario, "--seed", "1..2"],
            "lightloom.sweep/v1",
            &["fabric", "scenario", "trace"],
        ),
    ];
    let without_inputs: [(&[&str], &str); 2] = [
        (&["validate", &ring], "lightloom.validate/v1"),
        (&["export", "--list"], "lightloom.formats/v1"),
    ];
    for (arguments, schema) in without_inputs {
        let result = json(&lightloom(folder.path(), &[arguments, &["--format", "json"]].concat()));
        assert_eq!(result["schema"], schema);
        assert_eq!(result["version"], env!("CARGO_PKG_VERSION"), "{schema}");
        let rows = lightloom(folder.path(), &[arguments, &["--format", "csv"]].concat());
        assert!(rows.status.success() && text(&rows.stdout).lines().count() > 1, "{schema}");
    }
    for (arguments, schema, roles) in cases {
        let result = json(&lightloom(folder.path(), &[arguments, &["--format", "json"]].concat()));
        assert_eq!(result["schema"], schema);
        assert_eq!(result["version"], env!("CARGO_PKG_VERSION"), "{schema}");
        let inputs = result["inputs"].as_object().unwrap();
        assert_eq!(inputs.keys().collect::<Vec<_>>(), roles, "{schema}");
        for input in inputs.values() {
            let file = input["file"].as_str().unwrap();
            let Ok(bytes) = std::fs::read(folder.path().join(file)) else { continue };
            assert_eq!(input["sha256"], lightloom_fabric::provenance::sha256(&bytes), "{file}");
        }
    }
}

#[test]
fn exact_method_agrees_and_reports_how_it_ended() {
    let plan = |more: &[&str]| {
        let fabric = shipped("explicit-8.yaml");
        lightloom(Path::new("."), &[&["plan", &fabric, "--format", "json"], more].concat())
    };
    let used = |output: &Output| json(output)["metrics"]["gpus_used"].as_u64();
    assert_eq!(used(&plan(&[])), used(&plan(&["--exact"])));
    // The candidates far exceed the limit, but counting connected nodes is sufficient.
    let large = lightloom(Path::new("."), &["plan", &shipped("ring-2880.yaml"), "--exact"]);
    let how = "90 rings of TP-32, proven maximum, by counting the connected nodes";
    assert!(text(&large.stdout).contains(how), "{}", text(&large.stdout));
}

#[test]
fn failed_planning_explains_why_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = folder.path().join("small.yaml");
    std::fs::write(
        &fabric,
        "kind: fabric\nversion: 2\nname: small\nhbd: {khop: {nodes: 10, gpus_per_node: 4, k: 2}}\njobs: [{name: a, gpus: 40, tp: 8}]\n",
    )
    .unwrap();
    let plan = |more: &[&str]| {
        lightloom(folder.path(), &[&["plan", "small.yaml", "-o", "plan.json"], more].concat())
    };
    let too_few = plan(&["--fault", "n3"]);
    assert!(failed(&too_few).contains("only 32 fit"), "{}", text(&too_few.stderr));
    let missing = plan(&["--fault", "n10"]);
    assert!(failed(&missing).contains("nodes n0 to n9"), "{}", text(&missing.stderr));
    assert!(!folder.path().join("plan.json").exists(), "nothing half-written");
    assert_eq!(plan(&["--fault", "q"]).status.code(), Some(2), "wrong usage");

    assert_eq!(plan(&[]).status.code(), Some(0));
    let other = shipped("ring-2880.yaml");
    let elsewhere =
        lightloom(folder.path(), &["replan", "plan.json", "--fabric", &other, "--fault", "n1"]);
    assert!(failed(&elsewhere).contains("the plan is for fabric"), "{}", text(&elsewhere.stderr));
}

#[test]
fn rejects_a_damaged_plan_before_using_it() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    lightloom(folder.path(), &["plan", &fabric, "-o", "plan.json"]);
    let path = folder.path().join("plan.json");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    plan["circuits"].as_array_mut().unwrap().pop();
    std::fs::write(&path, plan.to_string()).unwrap();
    let replan =
        lightloom(folder.path(), &["replan", "plan.json", "--fabric", &fabric, "--fault", "n1"]);
    assert!(failed(&replan).contains("the plan is not valid"), "{}", text(&replan.stderr));
}

#[test]
fn every_shipped_scenario_is_valid_and_passes() {
    let folder = PathBuf::from(shipped("scenarios"));
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        assert_eq!(
            lightloom(Path::new("."), &["validate", &path]).status.code(),
            Some(0),
            "{path}"
        );
        // A scenario with a span has no single run with flows. `job_step_page` runs those of isolation.
        if std::fs::read_to_string(&path).unwrap().contains("\nspan: ")
            || path.contains("isolation-")
        {
            continue;
        }
        let flows = tempfile::NamedTempFile::new().unwrap();
        let flows_path = flows.path().display().to_string();
        let run = lightloom(
            Path::new("."),
            &["emulate", &path, "--format", "json", "--flows-out", &flows_path],
        );
        let result = json(&run);
        assert_eq!(run.status.code(), Some(0), "{path}: {}", result["expectations"]);
        let rows = std::fs::read_to_string(flows.path()).unwrap();
        assert_eq!(rows.lines().next(), Some("flow,src,dst,bytes,start_ps,end_ps,workload"));
        let counted = result["flows"]["count"].as_u64().unwrap()
            + result["flows"]["cancelled"].as_u64().unwrap();
        assert_eq!(rows.lines().count() as u64 - 1, counted);
    }
}

/// 4,096 rings send 135 thousand million packet-hops; one node fails halfway, with spare nodes
/// available.
#[test]
fn every_ring_of_131072_gpus_matches_its_closed_form() {
    let folder = tempfile::tempdir().unwrap();
    for (name, late) in [("all-rings", None), ("all-rings-fault", Some("g2048"))] {
        let path = shipped(&format!("scenarios/{name}.yaml"));
        let output = lightloom(folder.path(), &["emulate", &path, "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let result = json(&output);
        let rings = result["workloads"].as_array().unwrap();
        assert_eq!(rings.len(), 4_096);
        for ring in rings {
            let time = |key: &str| ring[key].as_u64().unwrap();
            let took = time("end_ps") - time("start_ps");
            let is_late = late.is_some_and(|late| ring["group"] == late);
            assert_eq!(took != time("ideal_ps"), is_late, "{name}: {ring}");
        }
    }
}

#[test]
fn plan_without_circuit_changes_states_the_break_even() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |path: &str| {
        let output = lightloom(folder.path(), &["plan", path]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned() + text(&output.stderr)
    };
    let slow = shipped("rfabric-slow-links.yaml");
    let printed = plan(&slow);
    assert!(printed.contains("break even if each delays traffic by"), "{printed}");
    assert!(!plan(&shipped("rfabric-shapes.yaml")).contains("break even"));
    let lonely = std::fs::read_to_string(&slow).unwrap().replace(
        "loss: {budget_db: 4.0, path_db: 1.0}",
        "loss: {budget_db: 4.0, path_db: 1.0, extra_db: [{leaf: leaf3, db: 3.0}]}",
    );
    std::fs::write(folder.path().join("lonely.yaml"), lonely).unwrap();
    let printed = plan("lonely.yaml");
    assert!(
        printed.contains("leaf3 cannot be connected to any other leaf by a circuit"),
        "{printed}"
    );
}

#[test]
fn figure_page_names_only_the_trace_it_used() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["reproduce", "opus", "--format", "markdown"];
    let output = lightloom(folder.path(), &arguments);
    let page = text(&output.stdout);
    assert!(page.contains("is generated by `lightloom reproduce opus --samples"), "{page}");
}

#[test]
fn failed_expectation_exits_with_1_and_shows_the_value() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("small.yaml"),
        "kind: fabric\nversion: 2\nname: small\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\njobs: [{name: a, gpus: all, tp: 8}]\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("run.yaml"),
        "name: run\non: {fabric: small.yaml}\ncollectives: [{all_reduce: {name: a, bytes: 64KiB}}]\nexpect: [gpus_used > 32]\n",
    )
    .unwrap();
    let run = lightloom(folder.path(), &["emulate", "run.yaml"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        text(&run.stdout).contains("FAILED: gpus_used > 32 (gpus_used = 32)"),
        "{}",
        text(&run.stdout)
    );
}

#[test]
fn locates_every_mistake_of_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("run.yaml"),
        "name: run\non: {fabric: small.yaml}\ncollectives:\n  - all_reduce: {name: a, bytes: 64}\nfaults: [{part: n1, at: 5us, repaired_at: 1us}]\nexpect: [all will be well]\n",
    )
    .unwrap();
    let run = lightloom(folder.path(), &["emulate", "run.yaml"]);
    let shown = failed(&run);
    assert!(shown.contains("run.yaml:4:") && shown.contains("4KiB"), "{shown}");
}

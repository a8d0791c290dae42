// SPDX-License-Identifier: Apache-2.0
//! Plans, emulates and exports the buildings in `topologies/buildings`, each with a feature that a uniform fabric lacks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::programs::lightloom;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/buildings");

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let run = std::process::Command::new(lightloom())
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    run
}

fn buildings() -> Vec<(String, PathBuf)> {
    let files = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path));
    let mut buildings: Vec<(String, PathBuf)> = named.collect();
    buildings.sort();
    buildings
}

#[test]
fn every_building_is_planned_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in buildings() {
        let file = path.to_str().unwrap();
        let plan = format!("{name}.json");
        run(folder.path(), &["plan", file, "-o", &plan]);
        let text = std::fs::read_to_string(folder.path().join(&plan)).unwrap();
        let planned: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(planned["given_up"].is_null(), "{name}: {}", planned["given_up"]);
        let to = if planned["phases"][0]["circuits"][0].is_object() { "sonic-ocs" } else { "dot" };
        run(folder.path(), &["export", &plan, "--fabric", file, "--to", to, "-o", &name]);
    }
}

/// Circuits that are planned on subsets of leaves, odd ports and unequal uplinks carry what the plan says.
#[test]
fn packets_take_the_planned_time_in_every_building() {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in buildings().into_iter().filter(|(name, _)| name != "separate-lines") {
        let scenario = format!(
            "kind: scenario\nversion: 2\nname: run\non: {{fabric: {}}}\nphases: {{}}\nexpect: [completes within 10s]\n",
            path.display()
        );
        std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
        let run = run(folder.path(), &["emulate", "run.yaml", "--format", "json"]);
        let result: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let [packets, planned] = ["packets_ps", "closed_form_ps"]
            .map(|key| result["steps"][0][key].as_u64().unwrap() as f64);
        assert!((packets / planned - 1.0).abs() < 0.05, "{name}: {packets} ps, {planned} ps");
    }
}

/// The counts follow from the file by hand: 64 GPUs, 8 leaves with two uplinks each, three banks.
#[test]
fn bill_of_a_building_counts_each_part_once_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let bill = |name: &str| -> serde_json::Value {
        let file = format!("{FOLDER}/{name}.yaml");
        let run = run(folder.path(), &["cost", &file, "--format", "json"]);
        serde_json::from_slice(&run.stdout).unwrap()
    };
    let pods = bill("pods");
    let lines = pods["lines"].as_array().unwrap();
    let counts: Vec<(&str, &str, f64)> = lines
        .iter()
        .map(|line| {
            let [place, part] = ["place", "part"].map(|key| line[key].as_str().unwrap());
            (place, part, line["count"].as_f64().unwrap())
        })
        .collect();
    let expected = [
        ("GPUs", "gpu", 64.0),
        ("GPUs", "nic-400g", 64.0),
        ("GPU to leaf", "switch-port-400g", 64.0),
        ("GPU to leaf", "dcn-optical-400g", 128.0),
        ("leaf to core", "switch-port-400g", 32.0),
        ("leaf to core", "dcn-optical-400g", 32.0),
        ("bank pod0", "switch-port-400g", 16.0),
        ("bank pod0", "dcn-optical-400g", 16.0),
        ("bank pod0", "ocs-port", 16.0),
        ("bank pod1", "switch-port-400g", 16.0),
        ("bank pod1", "dcn-optical-400g", 16.0),
        ("bank pod1", "ocs-port", 16.0),
        ("bank between", "switch-port-400g", 32.0),
        ("bank between", "dcn-optical-400g", 32.0),
        ("bank between", "ocs-port", 32.0),
    ];
    assert_eq!(counts, expected);
    for (name, _) in buildings() {
        let bill = bill(&name);
        let lines = bill["lines"].as_array().unwrap();
        let sum: f64 = lines.iter().map(|line| line["usd"].as_f64().unwrap()).sum();
        assert!((sum - bill["usd"].as_f64().unwrap()).abs() < 0.005, "{name}: {bill}");
        assert_eq!(bill["parts_without_price"].as_array().unwrap().len(), 0, "{name}");
    }
}

pub(crate) fn json_of(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&run(folder, &[arguments, &["--format", "json"]].concat()).stdout)
        .unwrap()
}

/// n6 of `out-of-service` is drained, and four nodes of `smaller-leaves` are not installed.
#[test]
fn plan_counts_failed_drained_and_absent_nodes_apart() {
    let counts = |name: &str| {
        let file = format!("{FOLDER}/{name}.yaml");
        let metrics = json_of(Path::new("."), &["plan", &file])["metrics"].clone();
        ["gpus_total", "gpus_faulty", "gpus_used", "gpus_wasted"]
            .map(|key| metrics[key].as_u64().unwrap())
    };
    assert_eq!(counts("out-of-service"), [64, 8, 32, 8]);
    assert_eq!(counts("smaller-leaves"), [56, 0, 56, 0]);
    assert_eq!(counts("two-node-sizes"), [48, 0, 48, 0]);
}

#[test]
fn causes_of_waste_add_up_and_name_the_drained_node() {
    let file = format!("{FOLDER}/out-of-service.yaml");
    let plan = json_of(Path::new("."), &["plan", &file, "--why"]);
    let rows = plan["why"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["gpus_wasted"].as_u64().unwrap()).sum();
    assert_eq!(sum, plan["metrics"]["gpus_wasted"].as_u64().unwrap());
    let expected = serde_json::json!([{
        "cause": "drained", "gpus_wasted": 8, "nodes": ["n6"],
        "remedies": [{"change": "repair", "parts": ["n6"], "gpus_gained": 8}],
    }]);
    assert_eq!(plan["why"], expected);
    let text = run(Path::new("."), &["plan", &file, "--why"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("repair or return n6"), "{text}");
}

#[test]
fn optics_of_a_bank_have_its_rate() {
    let bill = json_of(Path::new("."), &["cost", &format!("{FOLDER}/bank-rates.yaml")]);
    let parts = |bank: &str| -> Vec<String> {
        let lines = bill["lines"].as_array().unwrap().iter();
        let own = lines.filter(|line| line["place"] == format!("bank {bank}"));
        own.map(|line| format!("{} {}", line["count"], line["part"].as_str().unwrap())).collect()
    };
    let older = ["32.0 switch-port-400g", "32.0 dcn-optical-400g", "32.0 ocs-port"];
    let newer = ["32.0 switch-port-800g", "32.0 dcn-optical-800g", "32.0 ocs-port"];
    assert_eq!(
        (parts("older"), parts("newer")),
        (older.map(Into::into).into(), newer.map(Into::into).into())
    );
}

/// Exports keep the circuit of the tenant in addition to the plan, and the circuit that stays once.
#[test]
fn circuit_that_stays_is_in_every_phase_and_exported_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("{FOLDER}/circuits-that-stay.yaml");
    run(folder.path(), &["plan", &file, "-o", "plan.json"]);
    let text = std::fs::read_to_string(folder.path().join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let held = |ocs: &str, a_port, b_port| serde_json::json!([ocs, a_port, b_port]);
    for phase in plan["phases"].as_array().unwrap() {
        let circuits = phase["circuits"].as_array().unwrap().iter();
        let ports: Vec<serde_json::Value> =
            circuits.map(|at| serde_json::json!([at["ocs"], at["a_port"], at["b_port"]])).collect();
        assert!(ports.contains(&held("ocs0", 0, 2)), "{phase}");
        assert!(!ports.contains(&held("ocs1", 4, 10)), "{phase}");
    }
    let phase = plan["phases"][0]["name"].as_str().unwrap();
    let to = ["--to", "sonic-ocs", "--phase", phase, "-o", "out"];
    run(folder.path(), &[&["export", "plan.json", "--fabric", &file], &to[..]].concat());
    for (ocs, circuit) in [("ocs0", "1A-3B"), ("ocs1", "5A-11B")] {
        let files = std::fs::read_dir(folder.path().join("out")).unwrap();
        let own = files
            .map(|file| file.unwrap().path())
            .find(|path| path.file_name().unwrap().to_string_lossy().contains(ocs));
        let text = std::fs::read_to_string(own.unwrap()).unwrap();
        assert_eq!(text.matches(&format!("\"{circuit}\"")).count(), 1, "{text}");
    }
}

/// A switch with one port per leaf carries a ring of leaves, because each port has a peer on both sides.
#[test]
fn one_way_circuits_are_exported_once_and_refused_by_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("{FOLDER}/one-way.yaml");
    run(folder.path(), &["plan", &file, "-o", "plan.json"]);
    let text = std::fs::read_to_string(folder.path().join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let phase = &plan["phases"][0];
    let circuits = phase["circuits"].as_array().unwrap();
    let is_backward = |at: &&serde_json::Value| at["a"].as_str() > at["b"].as_str();
    assert!(circuits.iter().any(|at| is_backward(&at)), "{phase}");
    let to = ["--to", "sonic-ocs", "--phase", phase["name"].as_str().unwrap(), "-o", "out"];
    run(folder.path(), &[&["export", "plan.json", "--fabric", &file], &to[..]].concat());
    let files = std::fs::read_dir(folder.path().join("out")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let exported: usize = texts.map(|text| text.matches("\"a_side\"").count()).sum();
    assert_eq!(exported, circuits.len());
    let to = ["--to", "containerlab", "--phase", phase["name"].as_str().unwrap()];
    let lab = run(folder.path(), &[&["export", "plan.json", "--fabric", &file], &to[..]].concat());
    let lab = String::from_utf8(lab.stdout).unwrap();
    let ends: Vec<&str> =
        lab.lines().filter_map(|line| line.trim().strip_prefix("- endpoints: [")).collect();
    let interfaces: Vec<&str> =
        ends.iter().flat_map(|ends| ends.trim_end_matches(']').split(", ")).collect();
    let distinct: BTreeSet<&str> = interfaces.iter().copied().collect();
    assert_eq!([interfaces.len(), distinct.len()], [2 * circuits.len(); 2], "{lab}");
    let config = format!(
        "state_dir: state\nfabric: {file}\ndevices: [{{name: ocs0, driver: {{scpi: {{tcp: 'x:1'}}}}}}]\n"
    );
    std::fs::write(folder.path().join("daemon.yaml"), config).unwrap();
    let error = lightloom_daemon::start::read_files(&folder.path().join("daemon.yaml"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("ocs0 in bank `hall` has one-way circuits"), "{error}");
}

#[test]
fn bound_job_stays_on_its_racks_and_the_other_shrinks() {
    let file = format!("{FOLDER}/bound-jobs.yaml");
    let plan = json_of(Path::new("."), &["plan", &file, "--fault", "n0"]);
    let gpus = |job: usize| plan["jobs"][job]["gpus"].as_u64().unwrap();
    assert_eq!([gpus(0), gpus(1)], [32, 16]);
    let groups = plan["groups"].as_array().unwrap();
    let bound = groups.iter().filter(|group| group["job"] == 1);
    let nodes: Vec<&str> = bound.map(|group| group["nodes"][0].as_str().unwrap()).collect();
    assert_eq!(nodes, ["n6", "n7"]);
}

#[test]
fn fabric_files_are_compared_next_to_built_in_designs() {
    let folder = tempfile::tempdir().unwrap();
    let [pods, out] = ["pods", "out-of-service"].map(|name| format!("{FOLDER}/{name}.yaml"));
    let arch = format!("nvl:8,{out}");
    let faults = ["--tp", "8", "--samples", "2", "--faults", "iid:0"];
    let compared =
        json_of(folder.path(), &[&["compare", &pods, "--arch", &arch], &faults[..]].concat());
    let rows: Vec<(&str, f64)> = compared["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["arch"].as_str().unwrap(), row["waste_mean"].as_f64().unwrap()))
        .collect();
    assert_eq!(rows, [("pods", 0.0), ("nvl:8", 0.0), ("out-of-service", 0.125)]);
    let bill = json_of(folder.path(), &["cost", &pods]);
    let usd = bill["usd"].as_f64().unwrap();
    let sizes = ["--gpus", "64", "--gpus-per-node", "8"];
    let arch = format!("nvl:8,{pods}");
    let cost = json_of(folder.path(), &[&["cost", "--arch", &arch], &sizes[..], &faults].concat());
    let per_gpu = cost["rows"][1]["cost_per_gpu_usd"].as_f64().unwrap();
    let gpu = cost["gpu_usd"].as_f64().unwrap();
    assert!((64.0 * (per_gpu + gpu) - usd).abs() < 0.5, "{usd}: {cost}");
}

#[test]
fn purchase_of_a_fabric_file_has_one_value_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["pods", "separate-lines"] {
        let from = format!("{FOLDER}/{name}.yaml");
        std::fs::copy(&from, folder.path().join("own.yaml")).unwrap();
        let bill = json_of(folder.path(), &["cost", "own.yaml"]);
        let (usd, gpus) = (bill["usd"].as_f64().unwrap(), bill["gpus"].as_u64().unwrap());
        let buy = format!(
            "name: t\ngpus: {gpus}\ngpus_per_node: 8\ndays: 30\nnetwork: fat-tree:64\n\
             designs: [{{design: own.yaml}}, {{design: nvl:72}}]\n\
             workload: {{tp: 32, peak_tflops: 1000, mfu: 0.5, step: {{at_gbytes_per_s: 800}}, jobs: [{{name: a, gpus: 32, \
             days: 10, every_days: 10}}]}}\n\
             checkpoint: {{every_minutes: 60, seconds: 0, restart_minutes: 0}}\n\
             faults: {{exponential: {{node_mtbf_days: 30, repair_hours: 24}}}}\n\
             running: {{service_years: 4, gpu_watts: 1000, usd_per_kwh: 0.1, pue: 1.5}}\n"
        );
        let buy = if name == "pods" { buy.replace("tp: 32", "tp: 8") } else { buy };
        std::fs::write(folder.path().join("buy.yaml"), buy).unwrap();
        run(folder.path(), &["validate", "buy.yaml"]);
        let answer = json_of(folder.path(), &["buy", "buy.yaml"]);
        let rows = answer["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["design"] == name).unwrap();
        assert!((row["capex_usd"].as_f64().unwrap() - usd).abs() < 0.5, "{usd}: {row}");
        let text = String::from_utf8(run(folder.path(), &["buy", "buy.yaml"]).stdout).unwrap();
        let own = text.lines().filter(|line| line.starts_with(name) && line.contains("total"));
        let shown: Vec<&str> = own.filter_map(|line| line.split_whitespace().last()).collect();
        let shown: f64 = shown[0].replace(',', "").parse().unwrap();
        assert!((shown - usd).abs() < 1.0, "{usd}: {text}");
        for arguments in [
            &["cost", "own.yaml", "--format", "csv"][..],
            &["buy", "buy.yaml", "--table", "purchase", "--format", "csv"],
        ] {
            let printed = run(folder.path(), arguments).stdout;
            let mut reader = csv::Reader::from_reader(&printed[..]);
            let names = reader.headers().unwrap().clone();
            let at = |name: &str| names.iter().position(|heading| heading == name);
            let (column, design) = (at("usd").unwrap(), at("design"));
            let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
            let own = rows.iter().filter(|row| design.is_none_or(|design| &row[design] == name));
            let sum: f64 = own.map(|row| row[column].parse::<f64>().unwrap()).sum();
            assert!((sum - usd).abs() < 0.5, "{arguments:?}: {sum}, {usd}");
        }
    }
}

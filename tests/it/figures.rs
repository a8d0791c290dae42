// SPDX-License-Identifier: Apache-2.0
//! All verbs that state a figure of a plan use the same key and value, for random clusters.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;
use serde_json::Value;

fn answer(folder: &Path, words: &[&str]) -> Value {
    ask(folder, words).unwrap_or_else(|refusal| panic!("{words:?}: {refusal}"))
}

/// Returns the JSON output, or the error message if the command fails.
fn ask(folder: &Path, words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightloom"));
    let output = command.args(words).args(["--format", "json"]).current_dir(folder).output();
    let output = output.expect("the program starts");
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn numbers(document: &'static str, of: &Value) -> Vec<(String, &'static str, f64)> {
    let all = of.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), document, value.as_f64()?))).collect()
}

fn agreeing(fabric: &str, stated: &[Vec<(String, &'static str, f64)>]) -> usize {
    let mut by_key: BTreeMap<&str, Vec<(&str, f64)>> = BTreeMap::new();
    for (key, document, value) in stated.iter().flatten() {
        by_key.entry(key).or_default().push((document, *value));
    }
    for (key, values) in &by_key {
        let first = values[0].1.to_bits();
        assert!(values.iter().all(|one| one.1.to_bits() == first), "{key}: {values:?}\n{fabric}");
    }
    by_key.values().filter(|values| values.len() > 1).count()
}

fn cluster(draws: &mut impl RngExt) -> (String, [u32; 2], bool) {
    let nodes = [16, 24, 32][draws.random_range(0..3)];
    let domains = ["khop: {k: 2, ", "khop: {k: 3, ", "switch: {gpus: 16, ", "torus: {gpus: 16, "];
    let domain = domains[draws.random_range(0..4)];
    let tp = if domain.starts_with("torus") { 16 } else { [8, 16][draws.random_range(0..2)] };
    let mut jobs = Vec::new();
    let mut left = nodes * 4;
    for job in 0..draws.random_range(1..3) {
        let gpus = tp * draws.random_range(1..=(left / tp / 2).max(1));
        left -= gpus;
        let step =
            format!("{{training: {{model: llama-3.1-8b, dp: {}, tokens: 4096}}}}", gpus / tp);
        jobs.push(format!("{{name: j{job}, gpus: {gpus}, tp: {tp}, step: {step}}}"));
    }
    let below = [4, 8][draws.random_range(0..2)];
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: drawn\nhbd: {{{domain}nodes: {nodes}, gpus_per_node: 4}}}}\n\
         dcn: {{fat_tree: {{nodes_per_tor: {below}}}}}\njobs: [{}]\n",
        jobs.join(", ")
    );
    let one = draws.random_range(0..nodes);
    let other = (one + draws.random_range(1..nodes)) % nodes;
    (fabric, [one, other], domain.starts_with("khop"))
}

fn run_on(folder: &Path, plan: &str) -> Value {
    let text = format!(
        "kind: scenario\nversion: 2\nname: calm\non: {{fabric: f.yaml, plan: {plan}}}\n\
         collectives: [{{all_reduce: {{name: a, bytes: 4KiB}}}}]\n"
    );
    std::fs::write(folder.join("s.yaml"), text).unwrap();
    answer(folder, &["emulate", "s.yaml"])["plan"].clone()
}

#[test]
fn every_verb_states_the_same_value_of_a_figure() {
    let mut draws = Seed(63).stream("clusters", 0);
    for _ in 0..cases(3, 50) {
        let (fabric, [one, other], has_bundles) = cluster(&mut draws);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("f.yaml"), &fabric).unwrap();
        let plan = answer(folder, &["plan", "f.yaml"]);
        std::fs::write(folder.join("before.json"), plan.to_string()).unwrap();
        let parts = format!("n{one},n{other}");
        let replan = ["replan", "before.json", "--fabric", "f.yaml", "--fault", &parts];
        let next = answer(folder, &replan);
        std::fs::write(folder.join("after.json"), next["plan"].to_string()).unwrap();
        let against = answer(folder, &["plan", "f.yaml", "--against", "before.json"]);
        let before = [
            numbers("plan", &plan["metrics"]),
            numbers("plan --against", &against["against"]["metrics"]),
            numbers("replan, before", &next["plan_before"]),
            numbers("emulate", &run_on(folder, "before.json")),
        ];
        assert!(agreeing(&fabric, &before) > 5, "figures are stated more than once");
        let repair = ["replan", "after.json", "--fabric", "f.yaml", "--repair", &parts];
        let after = [
            numbers("replan", &next["plan"]["metrics"]),
            numbers("replan of that, before", &answer(folder, &repair)["plan_before"]),
            numbers("emulate", &run_on(folder, "after.json")),
        ];
        assert!(agreeing(&fabric, &after) > 2, "figures are stated more than once");
        // Figures of the state do not depend on the plan.
        // A plan from scratch refuses jobs that do not fit, where a replan gives up their groups.
        let anew = match ask(folder, &["plan", "f.yaml", "--fault", &parts]) {
            Ok(anew) => anew,
            Err(refusal) => {
                assert!(refusal.contains(" fit: "), "{refusal}\n{fabric}");
                continue;
            }
        };
        let [replanned, planned] = [&next["plan"]["metrics"], &anew["metrics"]];
        for key in ["gpus_total", "gpus_faulty", "waste_ratio_lower_bound"] {
            assert_eq!(replanned[key], planned[key], "{key}\n{fabric}");
        }
        assert_eq!(planned["gpus_faulty"], 8, "two nodes of 4 GPUs failed\n{fabric}");
        if has_bundles {
            let count = if fabric.contains("k: 3") { 3 } else { 2 };
            let all = |node| (0..count).map(move |bundle| format!("n{node}/b{bundle}"));
            let bundles = all(one).chain(all(other)).collect::<Vec<_>>().join(",");
            let same = answer(folder, &["plan", "f.yaml", "--fault", &bundles]);
            assert_eq!(same["metrics"], anew["metrics"], "{bundles} are both nodes\n{fabric}");
        }
    }
}

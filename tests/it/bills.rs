// SPDX-License-Identifier: Apache-2.0
//! Bills of drawn fabrics, compared with a script that reads the same file and shares no code with the bill.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use serde_json::{Value, json};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/count_parts.py");

fn one_of<T: Copy>(draws: &mut Stream, of: &[T]) -> T {
    of[draws.random_range(0..of.len())]
}

fn circuits(draws: &mut Stream) -> Value {
    let (leaves, size) = (draws.random_range(4..=10), one_of(draws, &[2, 4, 8]));
    let per_leaf = draws.random_range(1..=2) * size;
    let banks: Vec<Value> = (0..draws.random_range(1..=3))
        .map(|index| {
            let ports = draws.random_range(1..=3);
            let last = draws.random_range(3..leaves);
            let wired = if index == 0 { leaves } else { last + 1 };
            json!({
                "name": format!("bank{index}"),
                "switches": draws.random_range(1..=4),
                "ports_per_switch": wired * ports + draws.random_range(0..5),
                "ports_per_leaf": ports,
                "circuit_rate": one_of(draws, &[None, Some("200Gbps"), Some("800Gbps")]),
                "leaves": (index > 0).then(|| [format!("leaf0..leaf{last}")]),
            })
        })
        .collect();
    let nodes = leaves * per_leaf / size;
    json!({
        "hbd": {"switch": {"nodes": nodes, "gpus_per_node": size, "gpus": size}},
        "dcn": {"reconfigurable_fat_tree": {
            "leaves": leaves, "gpus_per_leaf": per_leaf,
            "circuit_rate": one_of(draws, &["400Gbps", "800Gbps"]), "gpu_rate": "400Gbps",
            "electrical": {
                "rate_per_leaf": "1200Gbps", "oversubscription": 2,
                "uplinks": [{"leaf": "leaf1", "rate": one_of(draws, &["0Gbps", "500Gbps", "800Gbps"])}],
            },
            "banks": banks, "timing": {"switching": "1ms"}, "occupied": ["ocs0/p2"],
        }},
        "start": {"absent": (0..draws.random_range(0..nodes / 2)).map(|node| format!("n{node}")).collect::<Vec<_>>()},
    })
}

fn packets(draws: &mut Stream) -> Value {
    let (nodes, size) = (draws.random_range(12..=96) / 4 * 4, 4);
    let (oversubscription, rate) =
        (one_of(draws, &[1, 2, 3]), one_of(draws, &["200Gbps", "400Gbps"]));
    let dcn = match draws.random_range(0..3) {
        0 => json!({"fat_tree": {
            "nodes_per_tor": one_of(draws, &[2, 4]), "tors_per_domain": one_of(draws, &[2, 3]),
            "oversubscription": oversubscription, "core_oversubscription": one_of(draws, &[1, 2]),
            "nics_per_gpu": one_of(draws, &[1, 2]), "link_rate": rate,
        }}),
        1 => json!({"leaf_spine": {
            "nodes_per_leaf": one_of(draws, &[2, 4]), "oversubscription": oversubscription, "link_rate": rate,
        }}),
        _ => json!({"rails": {
            "nodes_per_group": one_of(draws, &[4, 8]), "planes": one_of(draws, &[1, 2]),
            "oversubscription": oversubscription, "link_rate": rate,
        }}),
    };
    let hbd = match draws.random_range(0..3) {
        0 => json!({"khop": {"nodes": nodes, "gpus_per_node": size, "k": one_of(draws, &[2, 3])}}),
        1 => {
            json!({"khop": {"lines": [nodes / 2, nodes / 2], "gpus_per_node": size, "k": 2, "shape": "line"}})
        }
        _ => json!({"switch": {"nodes": nodes / 4 * 9, "gpus_per_node": size, "gpus": 36}}),
    };
    json!({"hbd": hbd, "dcn": dcn})
}

#[test]
fn parts_of_drawn_fabrics_equal_an_independent_count() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: python3 is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut draws = Seed(72).stream("fabrics with a bill", 0);
    for draw in 0..20 {
        let mut fabric = if draw % 2 == 0 { circuits(&mut draws) } else { packets(&mut draws) };
        let own = json!({"kind": "fabric", "version": 2, "name": "drawn"});
        fabric.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        std::fs::write(folder.join("f.yaml"), fabric.to_string()).unwrap();
        let bill = crate::buildings::json_of(folder, &["cost", "f.yaml"]);
        let lines = bill["lines"].as_array().unwrap();
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for line in lines {
            let part = line["part"].as_str().unwrap();
            *counts.entry(part.to_owned()).or_default() += line["count"].as_f64().unwrap();
        }
        assert_eq!(counts, counted(folder), "{fabric}");
        let usd: f64 = lines.iter().filter_map(|line| line["usd"].as_f64()).sum();
        assert!((usd - bill["usd"].as_f64().unwrap()).abs() < 0.5, "{bill}");
        let [gpus, size] = [
            &bill["gpus"],
            &fabric["hbd"].as_object().unwrap().values().next().unwrap()["gpus_per_node"],
        ]
        .map(Value::to_string);
        let sizes = ["--gpus", &gpus, "--gpus-per-node", &size, "--tp", &size];
        let draws = ["cost", "--arch", "f.yaml", "--samples", "1", "--faults", "iid:0"];
        let per_gpu = crate::buildings::json_of(folder, &[&draws[..], &sizes].concat());
        let of = |value: &Value| value.as_f64().unwrap();
        let gpu = of(&per_gpu["rows"][0]["cost_per_gpu_usd"]) + of(&per_gpu["gpu_usd"]);
        assert!((gpu * of(&bill["gpus"]) - usd).abs() < 0.5, "{gpu} of {usd}");
    }
}

fn counted(folder: &Path) -> BTreeMap<String, f64> {
    let run =
        Command::new("python3").args([SCRIPT, "f.yaml"]).current_dir(folder).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

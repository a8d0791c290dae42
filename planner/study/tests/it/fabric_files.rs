// SPDX-License-Identifier: Apache-2.0
//! Fabric files as designs: their capacity is that of their plan, and their purchase is their bill.

use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::khop::{self, Method};
use lightloom_study::FabricDesign;
use lightloom_study::architecture::{Architecture, CannotHold, Cluster};
use lightloom_study::buy::{buy, load_buy};
use lightloom_study::cost::{PriceList, purchase, read_prices};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

const TOPOLOGIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../topologies");

fn building(name: &str) -> Fabric {
    let bytes = std::fs::read(format!("{TOPOLOGIES}/buildings/{name}")).unwrap();
    let (fabric, mistakes) =
        lightloom_planner::load(name, &bytes, &mut |file| Err(format!("no {file}")));
    assert!(fabric.is_some(), "{mistakes:?}");
    fabric.unwrap()
}

fn prices() -> PriceList {
    let bytes = std::fs::read(format!("{TOPOLOGIES}/prices.yaml")).unwrap();
    read_prices("prices.yaml", &bytes).0.unwrap()
}

fn planned_gpus(fabric: &Fabric, faults: &FaultSet, tp: u32) -> u32 {
    let mut fabric = fabric.clone();
    let job = Job {
        name: "all".into(),
        size: JobSize::All,
        tp,
        step: None,
        searched: None,
        least: None,
        nodes: None,
    };
    fabric.jobs = vec![job];
    let layout = khop::plan(&fabric, faults, Method::Scan).unwrap();
    layout.groups.iter().map(|group| group.gpus(fabric.hbd.gpus_per_node())).sum()
}

#[test]
fn capacity_of_a_fabric_file_equals_its_plan() {
    let mut draws = Seed(72).stream("failed nodes", 0);
    for (name, tps) in [
        ("pods.yaml", [4, 8]),
        ("separate-lines.yaml", [16, 32]),
        ("out-of-service.yaml", [4, 8]),
        ("smaller-leaves.yaml", [1, 2]),
    ] {
        let fabric = building(name);
        let design = FabricDesign::new(fabric.clone(), &prices());
        let installed: Vec<NodeId> = fabric.installed().collect();
        for tp in tps {
            let mut state = design.usable(design.cluster(), tp).unwrap();
            let mut faults = fabric.start.clone();
            for _ in 0..8 {
                assert_eq!(
                    state.usable_gpus(),
                    planned_gpus(&fabric, &faults, tp),
                    "{name} TP-{tp}"
                );
                let index = draws.random_range(0..installed.len());
                let node = NodeId(index as u32);
                if faults.nodes.insert(installed[index]) {
                    state.fail(node);
                } else if !fabric.start.nodes.contains(&installed[index]) {
                    faults.nodes.remove(&installed[index]);
                    state.repair(node);
                }
            }
        }
        let other = Cluster { nodes: 5, gpus_per_node: 8 };
        let CannotHold(why) = design.usable(other, 8).err().unwrap();
        assert!(why.contains("not 40 in nodes of 8"), "{why}");
    }
    let started = FabricDesign::new(building("out-of-service.yaml"), &prices());
    assert_eq!(started.failed_nodes(), [NodeId(3)].into(), "n6 is drained, but has not failed");
    assert_eq!(started.usable(started.cluster(), 8).unwrap().usable_gpus(), 48);
    let smaller = FabricDesign::new(building("smaller-leaves.yaml"), &prices());
    assert_eq!((smaller.cluster().gpus(), smaller.failed_nodes().len()), (56, 0));
}

#[test]
fn purchase_of_a_fabric_file_is_its_bill_to_the_dollar() {
    for (name, gpus, tp) in [("pods.yaml", 64, 8), ("separate-lines.yaml", 192, 32)] {
        let text = format!(
            "name: t\ngpus: {gpus}\ngpus_per_node: 8\ndays: 30\nnetwork: fat-tree:64\n\
             designs: [{{design: {name}}}, {{design: nvl:72}}]\n\
             workload: {{tp: {tp}, peak_tflops: 1000, mfu: 0.5, step: {{at_gbytes_per_s: 800}}, jobs: [{{name: a, gpus: {tp}, \
             days: 10, every_days: 10}}]}}\n\
             checkpoint: {{every_minutes: 60, seconds: 0, restart_minutes: 0}}\n\
             faults: {{exponential: {{node_mtbf_days: 30, repair_hours: 24}}}}\n\
             running: {{service_years: 4, gpu_watts: 1000, usd_per_kwh: 0.1, pue: 1.5}}\n"
        );
        let mut fabrics = |file: &str| -> Result<Box<dyn Architecture>, String> {
            Ok(Box::new(FabricDesign::new(building(file), &prices())))
        };
        let (question, mistakes) = load_buy("t.yaml", text.as_bytes(), &mut fabrics);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let answer = buy(&question.unwrap(), &prices(), None, Seed(1)).unwrap();
        let bill = purchase(&building(name), &prices()).unwrap();
        let row = answer.rows.iter().find(|row| format!("{}.yaml", row.design) == name).unwrap();
        assert!((row.capex_usd - bill.usd).abs() < 0.5, "{} and {}", row.capex_usd, bill.usd);
        for row in &answer.rows {
            let sum: f64 = row.purchase.iter().map(|part| part.usd).sum();
            assert!((sum - row.capex_usd).abs() < 0.5, "{}: {sum}", row.design);
        }
        assert_eq!(answer.rows.len(), 2, "{:?}", answer.left_out);
        let own = text
            .replace(&format!("design: {name}"), &format!("design: {name}, network: fat-tree:64"));
        let mistakes = load_buy("t.yaml", own.as_bytes(), &mut fabrics).1;
        assert!(mistakes[0].to_string().contains("describes its own network"), "{mistakes:?}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reproduces the published cost tables to the cent from the designs and the shipped price file.

use lightloom_study::architecture::{Architecture, Cluster, NicRate, Site, parse};
use lightloom_study::compare::RatioQuestion;
use lightloom_study::cost::{
    AggregateQuestion, CostFigures, CostOutcome, CostRow, PriceList, aggregate, cost,
    cost_per_usable_gpu, read_prices,
};
use lightloom_units::seed::Seed;

const SHIPPED: &str = include_str!("../../../../topologies/prices.yaml");

const HBD: [&str; 7] = ["tpuv4", "nvl:36", "nvl:72", "nvl:36x2", "nvl:576", "khop:2", "khop:3"];

fn shipped() -> PriceList {
    let (prices, mistakes) = read_prices("prices.yaml", SHIPPED.as_bytes());
    assert!(mistakes.is_empty(), "{mistakes:?}");
    prices.unwrap()
}

fn site(gpus_per_node: u32, nic: NicRate) -> Site {
    Site { gpus: 4_096, gpus_per_node, nic }
}

fn designs(names: &[&str]) -> Vec<Box<dyn Architecture>> {
    names.iter().map(|name| parse(name).unwrap()).collect()
}

fn rows(names: &[&str], site: &Site) -> Vec<CostRow> {
    cost(&designs(names), site, &shipped()).unwrap()
}

fn figures(row: &CostRow) -> &CostFigures {
    match &row.outcome {
        CostOutcome::Priced(figures) => figures,
        CostOutcome::CannotPrice { cannot_price } => panic!("{}: {cannot_price}", row.arch),
    }
}

fn near(what: &str, ours: f64, published: f64, tolerance: f64) {
    assert!(
        (ours - published).abs() <= tolerance,
        "{what}: {ours} is not {published} ± {tolerance}"
    );
}

#[test]
fn recalled_table_matches_to_the_cent_and_hundredth_of_a_watt() {
    // GB/s, $/GPU, $/GB/s, W/GPU, W/GB/s
    let table = [
        ("tpuv4", [300.0, 1_567.20, 5.22, 19.39, 0.06]),
        ("nvl:36", [900.0, 9_563.20, 10.63, 75.95, 0.08]),
        ("nvl:72", [900.0, 9_563.20, 10.63, 75.95, 0.08]),
        ("nvl:36x2", [900.0, 17_924.00, 19.92, 150.33, 0.17]),
        ("nvl:576", [900.0, 30_417.60, 33.80, 413.45, 0.46]),
        ("khop:2", [800.0, 2_626.80, 3.28, 48.10, 0.06]),
        ("khop:3", [800.0, 3_740.60, 4.68, 72.05, 0.09]),
    ];
    for (row, (name, published)) in rows(&HBD, &site(4, NicRate::G400)).iter().zip(table) {
        let figures = figures(row);
        // Cents must match exactly; the tolerance absorbs floating-point error.
        near(name, figures.cost_per_gpu_usd, published[1], 5e-7);
        near(name, figures.power_per_gpu_w.unwrap(), published[3], 0.005_000_1);
        near(name, figures.gbytes_per_s_per_gpu, published[0], 0.0);
        // The table rounds to two digits: 5.224 to 5.22 and 0.0844 to 0.08.
        near(name, figures.cost_per_gbytes_per_s_usd, published[2], 0.006);
        near(name, figures.power_per_gbytes_per_s_w.unwrap(), published[4], 0.006);
    }
}

#[test]
fn eight_gpu_nodes_follow_the_general_formula() {
    let rows = rows(&["khop:2", "khop:3", "khop:4", "khop:8"], &site(8, NicRate::G400));
    for (row, k) in rows.iter().zip([2.0, 3.0, 4.0, 8.0]) {
        let cost = 8.0 * k / 8.0 * 606.8 + 2.0 * (8.0 - k) / 8.0 * 199.6;
        let power = 8.0 * k / 8.0 * 12.0 + 2.0 * (8.0 - k) / 8.0 * 0.1;
        near(&row.arch, figures(row).cost_per_gpu_usd, cost, 1e-9);
        near(&row.arch, figures(row).power_per_gpu_w.unwrap(), power, 1e-9);
    }
    near("K=2", figures(&rows[0]).cost_per_gpu_usd, 1_513.0, 0.5);
    near("K=2", figures(&rows[0]).power_per_gpu_w.unwrap(), 24.15, 1e-9);
    near("K=3", figures(&rows[1]).cost_per_gpu_usd, 2_070.0, 0.5);
    near("K=3", figures(&rows[1]).power_per_gpu_w.unwrap(), 36.125, 1e-9);
}

#[test]
fn ring_interconnect_costs_31_percent_of_nvl_72() {
    let rows = rows(&["khop:2", "nvl:72"], &site(4, NicRate::G400));
    let [ring, switch] = [0, 1].map(|i| figures(&rows[i]).cost_per_gbytes_per_s_usd);
    near("share", ring / switch, 0.31, 0.005);
}

#[test]
fn designs_have_the_public_part_counts() {
    let rows = rows(&["nvl:72", "tpuv4"], &site(4, NicRate::G400));
    let count = |row: usize, part: &str| {
        figures(&rows[row]).bill.iter().find(|line| line.part == part).unwrap().count_per_gpu
    };
    near("copper cables of an NVL72", count(0, "copper-200g") * 72.0, 5_184.0, 1e-9);
    near("switch chips of an NVL72", count(0, "nvlink-switch") * 72.0, 18.0, 1e-9);
    near("optical switches of a TPUv4 pod", count(1, "palomar-ocs") * 4_096.0, 48.0, 1e-9);
    near("optical modules of a TPU", count(1, "optical-400g"), 1.5, 1e-9);
}

#[test]
fn data_centre_networks_have_the_derived_bills() {
    let table = [
        ("fat-tree:64:3", 9_404.0, 15_394.0),
        ("fat-tree:64:2", 5_906.0, 9_796.0),
        ("rfabric:core", 8_175.0, 13_115.0),
        ("rfabric", 4_677.0, 7_517.0),
        ("rfabric:thin", 5_989.0, 9_616.0),
    ];
    for (name, at_400, at_800) in table {
        for (nic, published) in [(NicRate::G400, at_400), (NicRate::G800, at_800)] {
            let site = Site { gpus: 2_048, ..site(8, nic) };
            let rows = rows(&[name], &site);
            let card = &figures(&rows[0]).bill[0];
            assert!(card.part.starts_with("nic-"));
            near(
                name,
                figures(&rows[0]).cost_per_gpu_usd - card.usd_per_gpu.unwrap(),
                published,
                0.5,
            );
        }
    }
}

#[test]
fn lists_a_design_without_a_price_with_the_reason() {
    let site = Site { gpus: 131_072, ..site(8, NicRate::G400) };
    let rows = rows(&["fat-tree:64", "dgx", "khop:9"], &site);
    let reason = |row: &CostRow| match &row.outcome {
        CostOutcome::CannotPrice { cannot_price } => cannot_price.clone(),
        CostOutcome::Priced(figures) => panic!("{figures:?}"),
    };
    assert_eq!(
        reason(&rows[0]),
        "a tree of 3 tiers of 64-port switches has 65536 end points, but 131072 are needed"
    );
    assert_eq!(reason(&rows[1]), "no parts list for dgx");
    assert_eq!(reason(&rows[2]), "a node of 8 GPUs has at most 8 bundles, not 9");
}

#[test]
fn missing_part_names_the_designs_that_need_it() {
    let without = |part: &str| {
        let kept = SHIPPED.split_inclusive("- part: ").filter(|piece| !piece.starts_with(part));
        let text: String = kept.collect();
        read_prices("prices.yaml", text.as_bytes()).0.unwrap()
    };
    let prices = without("fibre\n");
    let missing = cost(&designs(&["khop:2", "nvl:72", "tpuv4"]), &site(4, NicRate::G400), &prices);
    assert_eq!(
        missing.unwrap_err().to_string(),
        "the price file lacks `fibre`, needed by khop:2 and tpuv4"
    );
}

#[test]
fn low_and_high_prices_bracket_the_mean() {
    for row in rows(&HBD, &site(4, NicRate::G400)) {
        let figures = figures(&row);
        near(&row.arch, figures.cost_per_gpu_low_usd, 0.8 * figures.cost_per_gpu_usd, 1e-6);
        near(&row.arch, figures.cost_per_gpu_high_usd, 1.2 * figures.cost_per_gpu_usd, 1e-6);
    }
}

#[test]
fn waste_raises_the_price_per_usable_gpu() {
    near("usable", cost_per_usable_gpu(1_000.0, 200, 160.0).unwrap(), 1_250.0, 1e-9);
    assert_eq!(cost_per_usable_gpu(1_000.0, 200, 0.0), None, "nothing is usable");
    let cluster = Cluster { nodes: 720, gpus_per_node: 4 };
    let names = ["khop:2", "nvl:72", "big-switch", "dgx"];
    let costs = rows(&names, &site(4, NicRate::G400));
    let faults = RatioQuestion {
        cluster,
        tp: 32,
        node_fault_ratios: &[0.0, 0.05],
        samples: 100,
        seed: Seed(1),
    };
    let question = AggregateQuestion { faults, gpu_usd: 40_000.0 };
    let curves = aggregate(&designs(&names), &costs, &question);
    // The ideal switch has no bill, and DGX cannot hold a group of 32.
    let named: Vec<&str> = curves.iter().map(|curve| curve.arch.as_str()).collect();
    assert_eq!(named, ["khop:2", "nvl:72"]);
    near("K=2 without faults", curves[0].points[0].usd_per_gpu, 2_626.80, 1e-6);
    near("NVL-72 without faults", curves[1].points[0].usd_per_gpu, 9_563.2 + 40_000.0 / 9.0, 1e-6);
    let point = curves[0].points[1];
    near("K=2 at 5 %", point.usd_per_gpu, 2_626.80 + 40_000.0 * (0.05 + point.waste_mean), 1e-6);
}

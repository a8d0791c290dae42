// SPDX-License-Identifier: Apache-2.0
//! Tests of fabric files: both forms describe the same cabling, and every error is reported.

use lightloom_fabric::document::{Severity, Style, render};
use lightloom_fabric::fabric::{Fabric, JobSize};
use lightloom_fabric::file::{self, Endpoint, FabricFile};
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Fibre, Position};
use lightloom_units::id::NodeId;
use proptest::prelude::*;

/// Converts `text` to version 2 by appending keys, so that positions do not change.
fn current(text: &str) -> String {
    match text.contains("kind: fabric") {
        true => text.to_owned(),
        false => format!("{}\nkind: fabric\nversion: 2\n", text.trim_end()),
    }
}

fn good(text: &str) -> Fabric {
    let (fabric, mistakes) = file::load("fabric.yaml", current(text).as_bytes());
    fabric.unwrap_or_else(|| panic!("{}", render(&mistakes, Style::Plain)))
}

fn shown(text: &str) -> String {
    let (fabric, mistakes) = file::load("fabric.yaml", current(text).as_bytes());
    assert!(fabric.is_none(), "the file is taken for good");
    render(&mistakes, Style::Plain)
}

/// Returns a file in explicit form with the line order and the fibres selected by `keep`.
fn explicit(fabric: &Fabric, header: &str, keep: impl Fn(Fibre) -> bool) -> String {
    let ring = &fabric.hbd;
    let mut text = format!("{header}\nnodes:\n");
    for position in 0..ring.nodes() {
        text.push_str(&format!("  {}:\n", ring.node_at(Position(position))));
    }
    text.push_str("links:\n");
    for fibre in ring.fibres().filter(|fibre| keep(*fibre)) {
        let (a, b) = ring.ports(fibre);
        text.push_str(&format!("  - endpoints: [\"{}\", \"{}\"]\n", Endpoint(b), Endpoint(a)));
    }
    if text.ends_with("links:\n") {
        text.truncate(text.len() - 1);
        text.push_str(" []\n");
    }
    text
}

#[test]
fn omitted_keys_take_their_defaults() {
    let fabric = good("name: x\nhbd: {khop: {nodes: 720, gpus_per_node: 4, k: 3}}\n");
    assert_eq!(fabric.hbd.gpus(), 2880);
    assert_eq!(fabric.hbd.node_at(Position(1)), NodeId(4), "sub-lines over ToRs of four nodes");
    assert_eq!(fabric.hbd_links, Default::default());
    assert_eq!(fabric.dcn, Default::default());
    assert_eq!(fabric.transceiver, Default::default());
    assert_eq!(fabric.jobs, []);
    assert_eq!(fabric.sha256.len(), 64);
}

#[test]
fn written_keys_reach_the_model() {
    let fabric = good(include_str!("../../../topologies/line-with-every-key.yaml"));
    assert_eq!(fabric.jobs[0].size, JobSize::Gpus(96));
    assert_eq!(fabric.jobs[1].size, JobSize::All);
    assert_eq!(fabric.jobs[1].tp, 4);
    assert_eq!(fabric.dcn.nodes_per_tor(), 2);
    assert_eq!(fabric.hbd_links.edge_rate.get(), 3_200_000_000_000);
}

#[test]
fn serialised_fabric_file_reads_back_unchanged() {
    let text = include_str!("../../../topologies/line-with-every-key.yaml");
    let (raw, _) = lightloom_fabric::document::read::<FabricFile>("a", text.as_bytes());
    let json = serde_json::to_vec(&raw.unwrap()).unwrap();
    let (again, mistakes) = file::load("b", &json);
    assert_eq!(mistakes, []);
    let original = good(text);
    assert_eq!(
        again.map(|fabric| Fabric { sha256: original.sha256.clone(), ..fabric }),
        Some(original)
    );
}

proptest! {
    #[test]
    fn both_cabling_forms_describe_the_same_fabric(
        nodes in 1u32..40, gpus in 2u8..=8, k in 2u8..=8, line in any::<bool>(), tor in 1u32..5,
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let k = k.min(gpus);
        let shape = if line { "line" } else { "ring" };
        let dcn = format!("dcn: {{fat_tree: {{nodes_per_tor: {tor}}}}}");
        let khop = |count: &str| format!(
            "name: x\nhbd: {{khop: {{{count}gpus_per_node: {gpus}, k: {k}, shape: {shape}}}}}\n{dcn}\n"
        );
        let mut complete = good(&khop(&format!("nodes: {nodes}, ")));
        let all: Vec<Fibre> = complete.hbd.fibres().collect();
        let absent: Vec<Fibre> =
            missing.iter().filter(|_| !all.is_empty()).map(|index| *index.get(&all)).collect();
        let listed = good(&explicit(&complete, &khop(""), |fibre| !absent.contains(&fibre)));
        for fibre in absent {
            if let Hbd::Khop(ring) = &mut complete.hbd {
                ring.remove_fibre(fibre);
            }
        }
        prop_assert_eq!(listed.hbd, complete.hbd);
    }

    /// Arbitrary edits of a file never crash the reader.
    #[test]
    fn fabric_reader_survives_arbitrary_edits(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-a-z0-9:{}\\[\\], \n.\"]{0,6}"), 1..5),
        explicit in any::<bool>(),
    ) {
        let mut text = if explicit {
            include_str!("../../../topologies/explicit-8.yaml").to_owned()
        } else {
            include_str!("../../../topologies/line-with-every-key.yaml").to_owned()
        };
        for (position, length, put_in) in edits {
            let start = position.index(text.len());
            let end = (start + length).min(text.len());
            if text.is_char_boundary(start) && text.is_char_boundary(end) {
                text.replace_range(start..end, &put_in);
            }
        }
        let (fabric, mistakes) = file::load("x", text.as_bytes());
        let errors = mistakes.iter().filter(|mistake| mistake.severity == Severity::Error).count();
        prop_assert_eq!(fabric.is_none(), errors > 0, "{}", render(&mistakes, Style::Plain));
    }

    /// A link moved to another port is rejected, unless it is the same link.
    #[test]
    fn rejects_a_miscabled_link(
        link in any::<prop::sample::Index>(), node in 0u32..12, bundle in 0u8..3, path in 1u8..=2,
    ) {
        let header = "name: x\nhbd: {khop: {gpus_per_node: 4, k: 3}}";
        let complete = good("name: x\nhbd: {khop: {nodes: 12, gpus_per_node: 4, k: 3}}");
        let text = explicit(&complete, header, |_| true);
        let mut lines: Vec<&str> = text.lines().collect();
        let links: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| line.contains("endpoints")).map(|(i, _)| i).collect();
        let index = *link.get(&links);
        let (before, _) = lines[index].rsplit_once(", ").unwrap();
        let moved = format!("{before}, \"n{node}:b{bundle}.{path}\"]");
        let unchanged = moved == lines[index];
        lines[index] = &moved;
        let (fabric, _) = file::load("x", current(&lines.join("\n")).as_bytes());
        prop_assert_eq!(fabric.is_some(), unchanged);
    }
}

#[test]
fn rejects_invalid_ring_dimensions_at_their_key() {
    let khop = |khop: &str| shown(&format!("name: x\nhbd: {{khop: {{{khop}}}}}\n"));
    insta::assert_snapshot!(
        [
            khop("nodes: 8, gpus_per_node: 4, k: 5"),
            khop("nodes: 0, gpus_per_node: 4, k: 2"),
            khop("nodes: 8, gpus_per_node: 1, k: 1"),
            khop("gpus_per_node: 4, k: 2"),
            khop("nodes: 8, gpus_per_node: 4, k: 2, edge_rate: 0bps, fibre_latency: 0ns"),
            khop("nodes: 8, gpus_per_node: 4, k: 2, edge_rate: 3200"),
        ]
        .concat()
    );
}

#[test]
fn rejects_oversized_jobs_and_suggests_sizes() {
    insta::assert_snapshot!(shown(
        "name: x
hbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}
transceiver: {switch_min: 90us, switch_max: 80us}
jobs:
  - {name: a, gpus: 24, tp: 6}
  - {name: a, gpus: 20, tp: 8}
  - {name: b, gpus: 16, tp: 8}
  - {name: c, gpus: al, tp: 8}
"
    ));
    insta::assert_snapshot!(shown(
        "name: x
hbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}
transceiver: {switch_min: 90us, switch_max: 80us}
jobs:
  - {name: a, gpus: 24, tp: 6}
  - {name: a, gpus: 20, tp: 8}
  - {name: b, gpus: 16, tp: 8}
  - {name: c, tp: 8}
  - {name: d, gpus: 8, tp: 8}
"
    ));
}

/// Schema errors do not hide other errors, and errors that merely follow from them are not
/// reported.
#[test]
fn shows_mistakes_of_every_kind_together() {
    insta::assert_snapshot!(shown(
        "name: x
hbd: {khop: {nodez: 8, gpus_per_node: 4, k: 5, shape: rink, edge_rate: 0bps}}
colour: blue
dcn: {fat_tree: {nodes_per_tor: four}}
transceiver: {switch_min: 90us, switch_max: 80us}
jobs:
  - {name: a, gpus: 64, tp: 6}
  - {name: a, gpus: al, tp: 8}
  - {name: b}
"
    ));
    let nothing_follows = shown(
        "name: x
hbd: {khop: {gpus_per_node: 4, k: 2}}
dcn: {fat_tree: {nodes_per_tor: four}}
nodes: {n0: , n1: {tor: t1}, y2: , n3: {tor: 3}}
links:
  - endpoints: [\"n0:b0.1\", \"n1:b1\"]
jobs:
  - {name: a, gpus: 64, tp: 8}
",
    );
    insta::assert_snapshot!(nothing_follows);
}

#[test]
fn wrong_link_error_suggests_the_correct_link() {
    let text = "name: x
hbd: {khop: {gpus_per_node: 4, k: 3, shape: line}}
nodes: {n0: , n1: {tor: t1}, n2: , n3: , n4: , n5: , n6: }
links:
  - endpoints: [\"n0:b0.1\", \"n1:b1.1\"]
  - endpoints: [\"n2:b1.1\", \"n0:b0.1\"]
  - endpoints: [\"n1:b0.2\", \"n2:b1.2\"]
  - endpoints: [\"n0:b2.1\", \"n4:b2.2\"]
  - endpoints: [\"n5:b0.1\", \"n7:b1.1\"]
  - endpoints: [\"n3:b3.1\", \"n4:b1.1\"]
  - endpoints: [\"n3:b0.1\", \"n3:b1.1\"]
";
    insta::assert_snapshot!(shown(text));
    insta::assert_snapshot!(shown(&text.replace("n5: , n6: ", "n5: , n8: ")));
}

#[test]
fn requires_exactly_one_cabling_form() {
    let file = |nodes: &str, lists: &str| {
        shown(&format!("name: x\nhbd: {{khop: {{gpus_per_node: 4, k: 2{nodes}}}}}\n{lists}"))
    };
    insta::assert_snapshot!(
        [
            file(", nodes: 2", "nodes: {n0: , n1: }\nlinks: []\n"),
            file("", "nodes: {n0: , n1: }\n"),
            file("", "links: []\n"),
            file("", "nodes: {n0: , n1: }\nlinks: []\ndeployment: {order: sequential}\n"),
            file("", "nodes: {}\nlinks: []\n"),
            file("", "nodes: {n0: , x1: , n0: }\nlinks: []\n"),
        ]
        .concat()
    );
}

#[test]
fn shows_job_mistakes_despite_an_invalid_domain() {
    let text = "name: x\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 9}}\n\
                jobs: [{name: a, gpus: 24, tp: 6}, {name: b, gpus: 8, tp: 64}, {name: c, gpus: 80, tp: 8}]\n";
    let all = shown(text);
    for (place, message) in [
        ("2:45", "k is 9"),
        ("3:32", "a group of 6 GPUs does not fill whole nodes of 4"),
        ("2:39", "the number of GPUs per node is set here"),
        ("3:59", "a group of 64 GPUs exceeds the largest group of the domain: 32 GPUs"),
        ("3:80", "job `c` requests 80 GPUs, but only 0 are available to it"),
    ] {
        assert!(all.contains(message), "{message} in {all}");
        assert!(all.contains(&format!(":{place}")), "{place} in {all}");
    }
}

#[test]
fn warns_about_unrealistic_rates_and_switch_sizes() {
    let text = "name: x\ndcn:\n  reconfigurable_fat_tree:\n    leaves: 4\n    gpus_per_leaf: 8\n    circuit_rate: 400Gbps\n    \
                gpu_rate: 1Mbps\n    electrical: {rate_per_leaf: 400Gbps, oversubscription: 1}\n    banks: [{name: b, switches: \
                1, ports_per_switch: 8192, ports_per_leaf: 2}]\n    timing: {switching: 1ms}\n";
    let (fabric, mistakes) = file::load("fabric.yaml", current(text).as_bytes());
    assert!(fabric.is_some());
    let all = render(&mistakes, Style::Plain);
    assert!(all.contains("1 Mb/s is slower"), "{all}");
    assert!(all.contains("no optical switch has 8192 ports"), "{all}");
    assert!(all.contains("8184 of the 8192 ports of each switch are not wired"), "{all}");
    assert!(all.contains("use `ports_per_leaf: 2048`"), "{all}");
}

/// Regression test: the location was counted by leaf, not in file order.
#[test]
fn locates_unknown_leaf_with_other_uplinks() {
    let text = "name: x\ndcn:\n  reconfigurable_fat_tree:\n    leaves: 4\n    gpus_per_leaf: 8\n    circuit_rate: 400Gbps\n    \
                electrical:\n      rate_per_leaf: 400Gbps\n      oversubscription: 1\n      uplinks:\n      - {leaf: leaf9, rate: \
                800Gbps}\n      - {leaf: leaf1, rate: 800Gbps}\n    banks: [{name: b, switches: 1, ports_per_switch: 8, \
                ports_per_leaf: 2}]\n    timing: {switching: 1ms}\n";
    let all = shown(text);
    assert!(all.contains("fabric.yaml:11:9") && !all.contains(":12:"), "{all}");
    assert_eq!(all.matches("leaf9 does not exist").count(), 1, "{all}");
    assert!(all.contains("use leaf0 to leaf3"), "{all}");
}

const OPTICS: &str = "transceiver:\n  optics: {launch_dbm: 1, sensitivity_dbm: -5, switch_db: 2, connector_db: 0.5, hops: [{fibre_m: 2, \
                      connectors: 2}, {fibre_m: 5, connectors: 2}, {fibre_m: 500, connectors: 4}]}\n";

#[test]
fn fabric_omits_hops_with_excessive_loss() {
    let ring = "name: x\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 3}}\n";
    let text = format!("{ring}{OPTICS}");
    let (fabric, mistakes) = file::load("fabric.yaml", current(&text).as_bytes());
    let warning = render(&mistakes, Style::Plain);
    // 2 * 2 dB + 4 * 0.5 dB + 0.5 km * 0.4 dB/km, with a budget of 6 dB.
    assert!(warning.contains("a hop over 3 loses 6.20 dB, but 6.00 dB are allowed"), "{warning}");
    let fabric = fabric.unwrap();
    assert_eq!(fabric.hbd.fibres().count(), 16);
    assert!(fabric.hbd.fibres().all(|fibre| fibre.hops <= 2));
    let dark = shown(&text.replace("launch_dbm: 1", "launch_dbm: -1"));
    assert!(dark.contains("neighbours cannot be connected"), "{dark}");
    let short = shown(&text.replace("{fibre_m: 2, connectors: 2}, ", ""));
    assert!(short.contains("2 hop lengths are listed, but k is 3"), "{short}");
}

/// Covers circuit keys without circuits, and experts in a model without experts.
#[test]
fn rejects_keys_without_effect_with_a_reason() {
    let text = "name: x\nhbd: {switch: {nodes: 16, gpus_per_node: 4, gpus: 16}}\n\
                dcn: {leaf_spine: {nodes_per_leaf: 4}}\nplanning: {floor: 0.5}\n\
                jobs:\n- name: t\n  gpus: 64\n  tp: 8\n  step:\n    training:\n      \
                model: llama-3.1-70b\n      dp: 8\n      ep: 2\n      tokens: 4096\n      gradient_slack: 1h\n      \
                micro_batch_slack: 1h\n";
    let all = shown(text);
    let reason = "llama-3.1-70b has no experts to distribute over 2 ranks";
    assert_eq!(all.matches(reason).count(), 1, "{all}");
    assert_eq!(all.matches("the network has no circuits to change").count(), 3, "{all}");
}

#[test]
fn part_has_one_state_at_the_start_and_some_node_is_installed() {
    let text = "name: x\nhbd: {switch: {nodes: 2, gpus_per_node: 4, gpus: 4}}\n\
                start: {failed: [n0], absent: [n0, n1]}\n";
    let all = shown(text);
    for reason in ["n0 is listed twice", "no node is installed"] {
        assert!(all.contains(reason), "{reason}: {all}");
    }
    let one = good(&text.replace("[n0, n1]", "[n1]").replace("failed: [n0]", "drained: [n0]"));
    assert_eq!((one.gpus(), one.drained_nodes(&one.start)), (4, 1));
}

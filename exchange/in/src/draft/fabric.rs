// SPDX-License-Identifier: Apache-2.0

use super::cluster::ClusterDraft;
use super::{Draft, DraftPage, Sourced};

pub(super) const NAME: &str = "fabric.yaml";

pub(super) fn write(cluster: &ClusterDraft, draft: &mut Draft) {
    let mut page =
        DraftPage::new(NAME, "A cluster, drafted from its logs. Keys: docs/fabric-file.md.");
    let ClusterDraft { nodes, gpus_per_node, domain, nodes_per_tor, job, job_gpus, tp, .. } =
        cluster;
    page.put("kind: fabric\nversion: 2\nname: own-cluster");
    page.guess("hbd.switch.nodes", nodes);
    page.guess("hbd.switch.gpus_per_node", gpus_per_node);
    page.guess("hbd.switch.gpus", domain);
    let (nodes, gpus) = (nodes.value, gpus_per_node.value);
    if domain.value > 1 {
        page.guess("hbd.switch.edge_rate", &cluster.edge_rate);
        let (domain, edge) = (domain.value, &cluster.edge_rate.value);
        page.put(&format!(
            "hbd: {{switch: {{nodes: {nodes}, gpus_per_node: {gpus}, gpus: {domain}, edge_rate: {edge}}}}}"
        ));
    } else {
        page.put(&format!("hbd: {{none: {{nodes: {nodes}, gpus_per_node: {gpus}}}}}"));
    }
    page.guess("dcn.fat_tree.nodes_per_tor", nodes_per_tor);
    let mut keys = format!("nodes_per_tor: {}", nodes_per_tor.value);
    if let Some(tors) = &cluster.tors_per_domain {
        page.guess("dcn.fat_tree.tors_per_domain", tors);
        keys += &format!(", tors_per_domain: {}", tors.value);
    }
    let even = Sourced::assumed("1", "uplink load is not read from logs");
    page.guess("dcn.fat_tree.oversubscription", &even);
    page.guess("dcn.fat_tree.link_rate", &cluster.link_rate);
    page.put(&format!(
        "dcn: {{fat_tree: {{{keys}, oversubscription: {}, link_rate: {}}}}}",
        even.value, cluster.link_rate.value
    ));
    page.guess("jobs[0].name", job);
    page.guess("jobs[0].gpus", job_gpus);
    page.guess("jobs[0].tp", tp);
    page.put(&format!(
        "jobs:\n  - {{name: {}, gpus: {}, tp: {}}}\n# To train on it, add: step: {{training: {{model: llama-3.1-70b, pp: …, dp: …, micro_batches: …, tokens: …}}}}",
        job.value, job_gpus.value, tp.value
    ));
    page.end(draft);
}

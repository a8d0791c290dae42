// SPDX-License-Identifier: Apache-2.0
//! Exports cabling and light as InfraGraph devices, instances and edges, for Chakra's tools.
//!
//! The format is defined by `infragraph.proto` of Keysight/infragraph 3.1 and its service, which
//! builds the graph that our test reads. An endpoint combines a slice of instances with a slice of
//! components, as nested loops; `one2one` connects them pairwise. Node `n17` becomes `n.17`.

use std::fmt::Write;

use lightloom_fabric::hbd::{Grouping, Hbd};
use lightloom_fabric::khop::Port;
use lightloom_units::{BitsPerSecond, Picoseconds};

use super::write::{ANY_TEXT, quoted};
use super::{Export, ExportError, ExportFormat, RingPlan};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "infragraph",
    about: "InfraGraph YAML: GPUs, network cards, lit fibres and packet switches",
    ring: Ok(export),
    fat_tree: Err("the fabric file describes leaves, not the hosts below them"),
};

fn export(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let (hbd, dcn) = (&plan.fabric.hbd, &plan.fabric.dcn);
    let (nodes, gpus) = (hbd.nodes(), u32::from(hbd.gpus_per_node()));
    let direct = dcn.direct();
    let (tors, domains) = (dcn.tors(nodes), plan.domains());
    let mut text = format!("name: {}\nlinks:\n", quoted(&plan.fabric.name));
    let links = &plan.fabric.hbd_links;
    link(&mut text, "lit", links.edge_rate, links.fibre_latency);
    link(&mut text, "domain", links.edge_rate, links.inside_latency);
    link(&mut text, "packet", dcn.link_rate(), dcn.link_latency());
    text.push_str("devices:\n");
    let bundles = paths_of_bundles(hbd);
    let mut components = vec![("gpu".to_owned(), "xpu", gpus), ("nic".to_owned(), "nic", gpus)];
    components.extend((0..).zip(&bundles).map(|(b, paths)| (format!("b{b}"), "port", *paths)));
    let mut inside = vec![("gpu".to_owned(), "nic".to_owned(), "one2one")];
    inside.extend((0..bundles.len()).map(|b| ("gpu".to_owned(), format!("b{b}"), "many2many")));
    device(&mut text, "node", &components, &inside);
    let mut switch = |name: &str, ports: u32| {
        let components =
            [("asic".to_owned(), "switch", 1), ("port".to_owned(), "port", ports.max(1))];
        device(
            &mut text,
            name,
            &components,
            &[("asic".to_owned(), "port".to_owned(), "many2many")],
        );
    };
    let per_tor = dcn.nodes_per_tor();
    switch("tor", per_tor * gpus + 1);
    if direct.is_none() {
        switch("aggregation", dcn.tors_per_domain().min(tors) + 1);
        switch("core", domains);
    }
    if let Some(island) = island(hbd) {
        switch("domain", island * gpus);
    }
    writeln!(text, "instances:\n  - {{name: n, device: node, count: {nodes}}}").expect(ANY_TEXT);
    let mut instances = |name: &str, device: &str, count: u32| {
        writeln!(text, "  - {{name: {name}, device: {device}, count: {count}}}").expect(ANY_TEXT);
    };
    instances("t", "tor", tors);
    if direct.is_none() {
        instances("d", "aggregation", domains);
        if domains > 1 {
            instances("core", "core", 1);
        }
    }
    if let Some(island) = island(hbd) {
        instances("domain", "domain", nodes.div_ceil(island));
    }
    write_edges(&mut text, plan);
    Ok(Export::one("infragraph.yaml", text, lost(plan)))
}

fn island(hbd: &Hbd) -> Option<u32> {
    match hbd.grouping() {
        Grouping::Island { nodes } => Some(nodes),
        _ => None,
    }
}

fn write_edges(text: &mut String, plan: &RingPlan<'_>) {
    let (hbd, dcn) = (&plan.fabric.hbd, &plan.fabric.dcn);
    let (nodes, gpus) = (hbd.nodes(), u32::from(hbd.gpus_per_node()));
    let (tors, domains, per_tor) = (dcn.tors(nodes), plan.domains(), dcn.nodes_per_tor());
    let direct = dcn.direct();
    text.push_str("edges:\n");
    for tor in 0..tors {
        let to = nodes.min((tor + 1) * per_tor);
        let low = (format!("n[{}:{to}]", tor * per_tor), "nic".to_owned());
        let ports = (to - tor * per_tor) * gpus;
        edge(text, low, (format!("t[{tor}]"), format!("port[0:{ports}]")), "packet");
    }
    for domain in (0..domains).filter(|_| direct.is_none()) {
        let from = domain * dcn.tors_per_domain();
        let to = tors.min(from.saturating_add(dcn.tors_per_domain()));
        let low = (format!("t[{from}:{to}]"), format!("port[{}]", per_tor * gpus));
        edge(text, low, (format!("d[{domain}]"), format!("port[0:{}]", to - from)), "packet");
        if domains > 1 {
            let uplink = dcn.tors_per_domain().min(tors);
            let low = (format!("d[{domain}]"), format!("port[{uplink}]"));
            edge(text, low, ("core[0]".to_owned(), format!("port[{domain}]")), "packet");
        }
    }
    if let Some(island) = island(hbd) {
        for domain in 0..nodes.div_ceil(island) {
            let (from, to) = (domain * island, nodes.min((domain + 1) * island));
            let low = (format!("n[{from}:{to}]"), "gpu".to_owned());
            let ports = format!("port[0:{}]", (to - from) * gpus);
            edge(text, low, (format!("domain[{domain}]"), ports), "domain");
        }
    }
    for circuit in &plan.plan.circuits {
        let [a, b] = [circuit.a, circuit.b].map(|Port { bundle, path }| {
            (format!("n[{}]", bundle.node.0), format!("b{}[{path}]", bundle.bundle))
        });
        edge(text, a, b, "lit");
    }
}

fn paths_of_bundles(hbd: &Hbd) -> Vec<u32> {
    let mut paths: Vec<u32> = Vec::new();
    let Hbd::Khop(ring) = hbd else { return paths };
    for fibre in ring.fibres() {
        let (a, b) = ring.ports(fibre);
        for port in [a, b] {
            let bundle = usize::from(port.bundle.bundle);
            paths.resize(paths.len().max(bundle + 1), 1);
            paths[bundle] = paths[bundle].max(u32::from(port.path) + 1);
        }
    }
    paths
}

fn link(text: &mut String, name: &str, rate: BitsPerSecond, latency: Picoseconds) {
    let gigabits = rate.bytes_per_second() * 8.0 / 1e9;
    writeln!(
        text,
        "  - name: {name}\n    physical:\n      bandwidth: {{choice: gigabits_per_second, gigabits_per_second: {gigabits:?}}}\n      \
         latency: {{choice: ns, ns: {:?}}}",
        latency.0 as f64 / 1e3
    )
    .expect(ANY_TEXT);
}

fn device(
    text: &mut String,
    name: &str,
    components: &[(String, &str, u32)],
    inside: &[(String, String, &str)],
) {
    writeln!(text, "  - name: {name}\n    components:").expect(ANY_TEXT);
    for (name, choice, count) in components {
        writeln!(text, "      - {{name: {name}, choice: {choice}, count: {count}}}")
            .expect(ANY_TEXT);
    }
    text.push_str("    links: [{name: inside}]\n    edges:\n");
    for (from, to, scheme) in inside {
        writeln!(
            text,
            "      - {{ep1: {{component: {from}}}, ep2: {{component: {to}}}, scheme: {scheme}, link: inside}}"
        )
        .expect(ANY_TEXT);
    }
}

fn edge(text: &mut String, low: (String, String), high: (String, String), link: &str) {
    let [low, high] = [low, high].map(|(instance, component)| {
        format!("{{instance: {}, component: {}}}", quoted(&instance), quoted(&component))
    });
    writeln!(text, "  - {{ep1: {low}, ep2: {high}, scheme: one2one, link: {link}}}")
        .expect(ANY_TEXT);
}

fn lost(plan: &RingPlan<'_>) -> Vec<String> {
    let mut lost = vec![
        "names of hosts, jobs, ranks and failed parts: nodes only have numbers".to_owned(),
        "the links between the GPUs in a node, and the paths of each bundle".to_owned(),
    ];
    if let Hbd::Khop(ring) = &plan.fabric.hbd {
        let dark = ring.fibres().count() - plan.plan.circuits.len();
        lost.push(format!("{dark} dark fibres: edges represent only links that carry light"));
    }
    if let Some(network) = plan.fabric.dcn.direct() {
        lost.push(format!("the {} cables of the {}", network.cables().len(), network.name()));
    } else {
        lost.push("the number of uplinks of a ToR: one edge represents all of them".to_owned());
    }
    lost
}

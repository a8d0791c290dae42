// SPDX-License-Identifier: Apache-2.0
//! Exports the network of one job for ASTRA-sim's analytical backend.
//!
//! The format is shown by `examples/network/analytical/` of astra-sim 2 and `common/NetworkParser` of its analytical
//! backend. A dimension has a shape, a number of NPUs, GB/s per link and direction, and ns per link. The first
//! dimension is the ring of GPUs, and the second connects the job's groups over the network.

use lightloom_fabric::hbd::Grouping;

use super::{Export, ExportError, ExportFormat, RingPlan};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "astra-sim",
    about: "ASTRA-sim analytical network YAML of one job: its rings or domains, and a switch between them",
    ring: Ok(export),
    fat_tree: Err(
        "its analytical back end supports only rings, switches and full meshes, and a phase's circuits form other topologies",
    ),
};

fn export(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let none = ExportError::NoRing { format: FORMAT.name };
    let (job, groups) = plan.chosen_job().filter(|(_, groups)| *groups > 0).ok_or(none)?;
    let crosses_nodes = job.tp > u32::from(plan.fabric.hbd.gpus_per_node());
    let links = &plan.fabric.hbd_links;
    let latency = if crosses_nodes { links.fibre_latency } else { links.inside_latency };
    let domain = |shape, edges: f64| AstraDimension {
        shape,
        npus: job.tp as usize,
        gbytes_per_s: edges * links.edge_rate.bytes_per_second() / 1e9,
        latency_ns: latency.0 as f64 / 1e3,
    };
    let network = |npus| AstraDimension {
        shape: "Switch",
        npus,
        gbytes_per_s: plan.fabric.dcn.link_rate().bytes_per_second() / 1e9,
        latency_ns: plan.fabric.dcn.link_latency().0 as f64 / 1e3,
    };
    let mut dimensions = match plan.fabric.hbd.grouping() {
        Grouping::Line => vec![domain("Ring", 1.0)],
        // A GPU can use the bandwidth of both its ring edges towards the switch.
        Grouping::Island { .. } => vec![domain("Switch", 2.0)],
        Grouping::Anywhere => vec![network(job.tp as usize * groups)],
    };
    if groups > 1 && plan.fabric.hbd.grouping() != Grouping::Anywhere {
        dimensions.push(network(groups));
    }
    let row = |cell: &dyn Fn(&AstraDimension) -> String| {
        dimensions.iter().map(cell).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "# Job {} of {}.\ntopology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]  # GB/s\nlatency: [ {} ]  # ns\n",
        super::write::quoted(&job.name),
        super::write::quoted(&plan.fabric.name),
        row(&|d| d.shape.to_owned()),
        row(&|d| d.npus.to_string()),
        row(&|d| format!("{:?}", d.gbytes_per_s)),
        row(&|d| format!("{:?}", d.latency_ns)),
    );
    Ok(Export::one("network.yml", text, lost(plan, crosses_nodes)))
}

struct AstraDimension {
    shape: &'static str,
    npus: usize,
    gbytes_per_s: f64,
    latency_ns: f64,
}

fn lost(plan: &RingPlan<'_>, crosses_nodes: bool) -> Vec<String> {
    let mut lost =
        vec!["GPU locations, ToRs and aggregation domains: all groups share one switch".to_owned()];
    let grouping = plan.fabric.hbd.grouping();
    if let Grouping::Island { .. } = grouping {
        let domain = plan.fabric.hbd.name();
        lost.push(format!("the links inside a {domain}: its GPUs share one switch"));
    }
    if let Some(network) = plan.fabric.dcn.direct() {
        lost.push(format!("the {} cables of the {}", network.cables().len(), network.name()));
    }
    if crosses_nodes && grouping == Grouping::Line {
        lost.push(format!(
            "the latency inside a node, {} instead of {} over a fibre: the format allows one \
             latency per ring, so the longer is used",
            plan.fabric.hbd_links.inside_latency, plan.fabric.hbd_links.fibre_latency
        ));
    }
    if plan.fabric.dcn.direct().is_none() && plan.fabric.dcn.oversubscription() > 1 {
        lost.push(format!("the oversubscription of {}:1", plan.fabric.dcn.oversubscription()));
    }
    let others = plan.plan.jobs.len().saturating_sub(1);
    if others > 0 {
        lost.push(format!(
            "{others} other jobs: the format describes one job (choose it with `--job`)"
        ));
    }
    lost
}

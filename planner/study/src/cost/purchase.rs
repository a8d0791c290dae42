// SPDX-License-Identifier: Apache-2.0
//! The bill of one fabric: the parts that its file describes, counted tier by tier.
//!
//! A link between two switches, or between a GPU and a switch, has an optical module at each end. Only used ports of
//! packet switches are counted, but whole optical switches. Servers, racks and domains inside a server belong to the
//! price of the GPUs.

use lightloom_fabric::dcn::{Dcn, FatTree};
use lightloom_fabric::fabric::{Fabric, MODULES_PER_BUNDLE};
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::hbd::Grouping;
use lightloom_units::id::{LeafId, OcsId};
use serde::Serialize;

use super::{Level, PriceList, PricedLine, parts, usd_at};
use crate::architecture::{self, BillLine, NicRate, NoBill, Site};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Purchase {
    pub lines: Vec<PricedLine>,
    pub usd: f64,
    pub usd_low: f64,
    pub usd_high: f64,
    pub watts: f64,
    pub parts_without_price: Vec<String>,
    pub parts_without_watts: Vec<String>,
}

/// Counts and prices all parts of `fabric`.
///
/// # Errors
/// Fails if no rule derives the parts of its high-bandwidth domain.
pub fn purchase(fabric: &Fabric, prices: &PriceList) -> Result<Purchase, NoBill> {
    let gpus = fabric.gpus() as f64;
    let counted = parts_of(fabric, prices)?;
    let lines: Vec<PricedLine> =
        counted.iter().map(|line| PricedLine::new(line, gpus, prices)).collect();
    Ok(Purchase {
        usd: lines.iter().filter_map(|line| line.usd).sum(),
        usd_low: usd_at(&lines, Level::Low, prices),
        usd_high: usd_at(&lines, Level::High, prices),
        watts: lines.iter().filter_map(PricedLine::watts).sum(),
        parts_without_price: parts(lines.iter().filter(|line| line.usd.is_none())),
        parts_without_watts: parts(lines.iter().filter(|line| line.unit_w.is_none())),
        lines,
    })
}

/// The prices decide whether an optical switch counts as a whole or by its ports.
pub(crate) fn parts_of(fabric: &Fabric, prices: &PriceList) -> Result<Vec<BillLine>, NoBill> {
    let gpus = fabric.gpus() as f64;
    let mut counted = CountedParts { gpus, lines: Vec::new() };
    counted.add("GPUs", "gpu", gpus, "with their share of server, rack and site");
    domain(fabric, &mut counted)?;
    network(fabric, prices, &mut counted);
    counted.lines.retain(|line| line.count_per_gpu > 0.0);
    Ok(counted.lines)
}

struct CountedParts {
    gpus: f64,
    lines: Vec<BillLine>,
}

impl CountedParts {
    fn add(&mut self, place: &str, part: &str, count: f64, formula: impl Into<String>) {
        let line = BillLine::new(part, count / self.gpus, formula);
        self.lines.push(BillLine { place: place.to_owned(), ..line });
    }

    fn add_links(&mut self, place: &str, gbps: u64, links: f64, ports: f64, formula: &str) {
        self.add(place, &format!("switch-port-{gbps}g"), ports * links, formula);
        let both = format!("2 × {formula}");
        self.add(place, &format!("dcn-optical-{gbps}g"), 2.0 * links, both);
    }
}

fn domain(fabric: &Fabric, counted: &mut CountedParts) -> Result<(), NoBill> {
    let hbd = &fabric.hbd;
    let (nodes, r, k) =
        (fabric.installed().count() as f64, f64::from(hbd.gpus_per_node()), f64::from(hbd.k()));
    match hbd.grouping() {
        Grouping::Anywhere => {}
        Grouping::Line => {
            let modules = nodes * k * f64::from(MODULES_PER_BUNDLE);
            counted.add("rings", "ocstrx-800g", modules, "nodes × K bundles × 8");
            counted.add("rings", "fibre", modules, "one per module");
            counted.add("rings", "dac-1.6t", nodes * 2.0 * (r - k), "nodes × 2 × (R − K)");
        }
        Grouping::Island { .. } => {
            let of_island = hbd.largest_group();
            if of_island <= u64::from(hbd.gpus_per_node()) {
                return Ok(());
            }
            let is_switched = hbd.name().starts_with("switch domain");
            let design = architecture::parse(&format!("nvl:{of_island}")).ok();
            let gpus_per_node = u32::from(hbd.gpus_per_node());
            let gpus = u32::try_from(fabric.gpus()).unwrap_or(u32::MAX);
            let site = Site { gpus, gpus_per_node, nic: NicRate::G400 };
            let bill = design.filter(|_| is_switched).and_then(|design| design.bill(&site).ok());
            let Some(bill) = bill else {
                return Err(NoBill(format!(
                    "no rule derives the parts of a {} of {of_island} GPUs: use `hbd: {{switch: …}}` with 36, 72 or 576 \
                     GPUs, or islands of one node",
                    hbd.name()
                )));
            };
            for line in bill.lines {
                let count = line.count_per_gpu * f64::from(gpus);
                counted.add("domains", &line.part, count, format!("GPUs × {}", line.formula));
            }
        }
    }
    Ok(())
}

fn network(fabric: &Fabric, prices: &PriceList, counted: &mut CountedParts) {
    let (dcn, gpus) = (&fabric.dcn, fabric.gpus() as f64);
    let per_node = fabric.hbd.gpus_per_node();
    let interfaces = match dcn {
        Dcn::FatTree(tree) => tree.nics_per_gpu,
        Dcn::Rails(rails) => rails.planes,
        Dcn::Direct(_) | Dcn::Reconfigurable { .. } => 1,
    };
    let gbps = dcn.link_rate().0 / u64::from(interfaces.max(1)) / 1_000_000_000;
    let cards = gpus * f64::from(interfaces);
    counted.add("GPUs", &format!("nic-{gbps}g"), cards, "GPUs × interfaces");
    counted.add_links("GPU to leaf", gbps, cards, 1.0, "GPUs × interfaces");
    let leaves = f64::from(dcn.leaves(fabric.hbd.nodes()));
    let uplinks = leaves * f64::from(dcn.uplinks_of_leaf(per_node));
    match dcn {
        Dcn::FatTree(tree) => {
            counted.add_links("leaf to aggregation", gbps, uplinks, 2.0, "leaves × uplinks");
            above_domains(tree, leaves, f64::from(dcn.uplinks_of_leaf(per_node)), counted);
        }
        Dcn::Rails(_) => {
            counted.add_links("rail to spine", gbps, uplinks, 2.0, "rail switches × uplinks");
        }
        Dcn::Direct(network) => {
            let cables = network.cables().len() as f64;
            counted.add_links("leaf to leaf", gbps, cables, 2.0, "cables");
        }
        Dcn::Reconfigurable { network, .. } => circuits(network, prices, counted),
    }
}

fn above_domains(tree: &FatTree, leaves: f64, uplinks: f64, counted: &mut CountedParts) {
    let domains = (leaves / f64::from(tree.tors_per_domain)).ceil();
    if domains > 1.0 {
        let links = domains * uplinks * f64::from(tree.cores_of_plane());
        let formula = "domains × uplinks × core switches per plane";
        let gbps = tree.link_rate.0 / 1_000_000_000;
        counted.add_links("aggregation to core", gbps, links, 2.0, formula);
    }
}

fn circuits(network: &ReconfigurableFatTree, prices: &PriceList, counted: &mut CountedParts) {
    let spec = network.spec();
    let gbps = spec.gpu_rate.0 / 1_000_000_000;
    let uplinks: u32 = (0..spec.leaves).map(|leaf| network.uplinks_of(LeafId(leaf))).sum();
    counted.add_links("leaf to core", gbps, f64::from(uplinks), 2.0, "uplinks of all leaves");
    let mut first = 0;
    for bank in &spec.banks {
        let own = first..first + bank.switches;
        first = own.end;
        let wired: u32 = own.clone().map(|ocs| network.wired_ports(OcsId(ocs))).sum();
        let occupied = spec.occupied.iter().filter(|port| own.contains(&port.ocs.0)).count();
        let ends = f64::from(wired) - occupied as f64;
        let place = format!("bank {}", bank.name);
        let circuit_gbps = spec.circuit_rate_over(bank).0 / 1_000_000_000;
        let formula = "switches × leaves × ports of a leaf, without occupied ports";
        counted.add(&place, &format!("switch-port-{circuit_gbps}g"), ends, formula);
        counted.add(&place, &format!("dcn-optical-{circuit_gbps}g"), ends, formula);
        let switches = f64::from(bank.switches);
        match bank.model.as_ref().filter(|model| prices.quote(model).is_some()) {
            Some(model) => counted.add(&place, model, switches, "optical switches"),
            None => {
                let ports = switches * f64::from(bank.ports_per_switch);
                let unpriced = bank.model.as_ref();
                let unpriced = unpriced.map_or(String::new(), |it| format!(", no price for {it}"));
                let formula = format!("switches × all ports of a switch{unpriced}");
                counted.add(&place, "ocs-port", ports, formula);
            }
        }
    }
}

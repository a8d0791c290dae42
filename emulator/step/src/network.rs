// SPDX-License-Identifier: Apache-2.0
//! Network of the analytic step model, and the duration of collectives.
//!
//! GPUs with consecutive ranks share a high-bandwidth domain of `domain_gpus`, and each GPU has a share of a scale-out
//! network. Rates are per GPU and direction. `lightloom-collective` contains the closed forms.

use serde::Serialize;

pub use lightloom_collective::Shape;
use lightloom_collective::{Algorithm, CollectiveKind, Generation, Hops, Pace, Site};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Grouping;
use lightloom_units::Picoseconds;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    pub name: String,
    pub shape: Shape,
    /// Maximum number of GPUs of a group within a high-bandwidth domain.
    pub domain_gpus: u32,
    /// Data-sheet rate of a GPU into the domain, in bytes per second and direction.
    pub domain_rate: f64,
    /// Data-sheet rate of a GPU into the scale-out network, in bytes per second and direction.
    pub scale_out_rate: f64,
    pub leaf: ScaleOutLeaf,
    /// Cable delay between two GPUs, inside a domain and between domains, in seconds.
    pub cable_seconds: [f64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaleOutLeaf {
    pub gpus: u64,
    /// Share of the uplink rate per GPU, in bytes per second and direction.
    pub up_rate: f64,
}

impl ScaleOutLeaf {
    pub const NON_BLOCKING: Self = Self { gpus: u64::MAX, up_rate: f64::INFINITY };
}

/// Achieved share of the link rates, by a library's algorithms or by bare rings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Efficiency {
    /// Library generation that selects algorithms and protocols; `None` for bare rings and pairwise exchange.
    pub library: Option<Generation>,
    pub domain: f64,
    pub scale_out: f64,
    /// Whether `scale_out` also replaces the share achieved by a library's collectives.
    pub is_stated: bool,
    pub domain_step_seconds: f64,
    pub scale_out_step_seconds: f64,
}

impl Efficiency {
    /// Values for the library and for single transfers on this generation of GPUs.
    pub fn of(generation: Generation) -> Self {
        let (domain, scale_out, domain_step_seconds, scale_out_step_seconds) = match generation {
            Generation::Ampere => (0.77, 0.736, 5e-6, 2e-5),
            _ => (0.82, 0.85, 3e-6, 1.5e-5),
        };
        let library = Some(generation);
        Self {
            library,
            domain,
            scale_out,
            is_stated: false,
            domain_step_seconds,
            scale_out_step_seconds,
        }
    }
}

/// A communication group of `size` ranks with a distance of `stride` in rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub size: u64,
    pub stride: u64,
    pub reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The links of the domain, and network cards between domains.
    Domain,
    /// Only network cards, because other groups occupy the rings of the domain.
    Cards,
}

impl Group {
    pub const fn new(size: u64, stride: u64) -> Self {
        Self { size, stride, reach: Reach::Domain }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{size} GPUs cannot be divided evenly among domains of at most {fitting} GPUs: use {} or {}",
    nearest[0], nearest[1]
)]
pub struct UnevenDomains {
    size: u64,
    fitting: u64,
    nearest: [u64; 2],
}

impl Network {
    /// Achieved rate of a GPU into the scale-out network, in bytes per second and direction.
    pub fn card_rate(&self, efficiency: &Efficiency) -> f64 {
        self.scale_out_rate * efficiency.scale_out
    }

    /// Typical cable delays between two GPUs: 200 ns for a domain cable, 500 ns for a leaf cable.
    pub fn usual_cables(shape: Shape) -> [f64; 2] {
        let inside = if shape == Shape::Switch { 2.0 } else { 1.0 };
        [inside * 200e-9, 2.0 * 500e-9]
    }

    /// Mean cable delays between two GPUs of `fabric`, inside a domain and between domains.
    pub fn cables_of(fabric: &Fabric) -> [Picoseconds; 2] {
        let links = &fabric.hbd_links;
        let inside = if fabric.hbd.ring().is_some() {
            // A ring passes through each node in both directions, from loopback to loopback, over two fibres.
            let gpus = u64::from(fabric.hbd.gpus_per_node());
            let fibres = gpus.min(2);
            let around = links.inside_latency * (gpus - fibres) + links.fibre_latency * fibres;
            Picoseconds(around.0 / gpus)
        } else {
            links.inside_latency * 2
        };
        [inside, fabric.dcn.link_latency() * 2]
    }

    pub fn inside(&self, group: Group) -> u64 {
        (1..=group.size.min(self.fitting(group)))
            .rev()
            .find(|inside| group.size.is_multiple_of(*inside))
            .unwrap_or(1)
    }

    pub fn is_inside(&self, group: Group) -> bool {
        self.inside(group) == group.size
    }

    fn fitting(&self, group: Group) -> u64 {
        // A ring connects only neighbours; ranks further apart communicate over the scale-out network.
        if group.reach == Reach::Cards || self.shape == Shape::Ring && group.stride != 1 {
            return 1;
        }
        (u64::from(self.domain_gpus) / group.stride.max(1)).max(1)
    }

    /// Returns the fewest domains that can contain equal shares of `group`. Fails if the ranks do not fill them evenly.
    pub fn even_domains(&self, group: Group) -> Result<u64, UnevenDomains> {
        let fitting = self.fitting(group);
        if is_even(group.size, fitting) {
            return Ok(group.size.div_ceil(fitting));
        }
        let below = (2..group.size).rev().find(|size| is_even(*size, fitting));
        let above = (group.size + 1..).find(|size| is_even(*size, fitting));
        let [below, above] = [below, above].map(|size| size.unwrap_or(fitting));
        Err(UnevenDomains { size: group.size, fitting, nearest: [below, above] })
    }

    fn across_rate(&self, group: Group) -> f64 {
        let span = group.size.saturating_mul(group.stride);
        if span <= self.leaf.gpus {
            return self.scale_out_rate;
        }
        self.scale_out_rate.min(self.leaf.up_rate)
    }

    pub fn collective(
        &self,
        kind: CollectiveKind,
        group: Group,
        bytes: f64,
        efficiency: &Efficiency,
    ) -> f64 {
        if group.size < 2 {
            return 0.0;
        }
        let Some(site) = self.site(kind, group, efficiency) else {
            return self.bare(kind, group, bytes, efficiency).0;
        };
        let time = site.choose(kind, bytes, |way, _| way != Algorithm::Sharp);
        time.map_or(0.0, |time| time.seconds)
    }

    pub fn exchange(
        &self,
        kind: CollectiveKind,
        group: Group,
        bytes: f64,
        efficiency: &Efficiency,
    ) -> (f64, Pace) {
        if group.size < 2 {
            return (0.0, Pace::BARE);
        }
        let Some(site) = self.site(kind, group, efficiency) else {
            return self.bare(kind, group, bytes, efficiency);
        };
        let time =
            site.choose(kind, bytes, |way, _| matches!(way, Algorithm::Ring | Algorithm::Pairwise));
        let found = time.and_then(|time| Some((time.seconds, site.pace(kind, bytes, time)?)));
        let (seconds, mut pace) = found.unwrap_or((0.0, Pace::BARE));
        pace.shares[1] *= site.card_rate / self.across_rate(group);
        (seconds, pace)
    }

    fn site(&self, kind: CollectiveKind, group: Group, efficiency: &Efficiency) -> Option<Site> {
        let stated =
            if efficiency.is_stated { efficiency.scale_out / Site::card_share(kind) } else { 1.0 };
        Some(Site {
            domains: group.size / self.inside(group),
            shape: self.shape,
            card_rate: stated * self.across_rate(group),
            ..Site::of_domain(efficiency.library?, group.size, self.domain_rate)
        })
    }

    fn bare(
        &self,
        kind: CollectiveKind,
        group: Group,
        bytes: f64,
        efficiency: &Efficiency,
    ) -> (f64, Pace) {
        let (ranks, domains) = (group.size, group.size / self.inside(group));
        let steps = [efficiency.domain_step_seconds, efficiency.scale_out_step_seconds];
        let shares = [efficiency.domain, efficiency.scale_out];
        let rates = [self.domain_rate * shares[0], self.across_rate(group) * shares[1]];
        let hops = Hops { ranks, domains, steps, rates };
        let (seconds, count) = match kind {
            _ if kind.is_pairwise() => {
                let links = self.shape.links(hops.inside());
                (hops.pairwise(bytes, links), [hops.inside() - 1.0, domains as f64 - 1.0])
            }
            CollectiveKind::AllReduce => {
                (2.0 * hops.ring(bytes), hops.ring_steps().map(|steps| 2.0 * steps))
            }
            _ => (hops.ring(bytes), hops.ring_steps()),
        };
        (seconds, Pace { start_seconds: 0.0, steps: count, step_seconds: steps, shares })
    }

    pub fn neighbour(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> (f64, Pace) {
        let is_inside = self.is_inside(group);
        let (steps, step, rate) = if is_inside {
            ([1.0, 0.0], efficiency.domain_step_seconds, self.domain_rate * efficiency.domain)
        } else {
            let rate = self.across_rate(group) * efficiency.scale_out;
            ([0.0, 1.0], efficiency.scale_out_step_seconds, rate)
        };
        let pace = Pace {
            start_seconds: 0.0,
            steps,
            step_seconds: [efficiency.domain_step_seconds, efficiency.scale_out_step_seconds],
            shares: [efficiency.domain, efficiency.scale_out],
        };
        (step + bytes / rate, pace)
    }

    /// Returns the network of a planned fabric. Optical circuits are assumed to follow the traffic,
    /// because a plan places them accordingly.
    pub fn of_fabric(fabric: &Fabric) -> Self {
        let gpus_per_node = fabric.hbd.gpus_per_node();
        let edge = fabric.hbd_links.edge_rate.bytes_per_second();
        let largest = u32::try_from(fabric.hbd.largest_group()).unwrap_or(u32::MAX);
        let (shape, domain_gpus) = match fabric.hbd.grouping() {
            Grouping::Line => (Shape::Ring, largest),
            Grouping::Island { .. } => (Shape::Switch, largest),
            Grouping::Anywhere => (Shape::Switch, 1),
        };
        let scale_out_rate = fabric.dcn.link_rate().bytes_per_second();
        let leaf_gpus = u64::from(fabric.dcn.nodes_per_tor()) * u64::from(gpus_per_node);
        let circuits = fabric.dcn.circuits();
        let circuits = circuits.map_or(0.0, |network| network.installed_optical_rate() / 8.0);
        let packets = fabric.dcn.packet_rate_of_leaf(gpus_per_node) / 8.0;
        Self {
            name: fabric.name.clone(),
            shape,
            domain_gpus,
            domain_rate: 2.0 * edge,
            scale_out_rate,
            leaf: ScaleOutLeaf {
                gpus: leaf_gpus,
                up_rate: (packets + circuits) / fabric.dcn.gpus_per_leaf(gpus_per_node) as f64,
            },
            cable_seconds: Self::cables_of(fabric).map(Picoseconds::as_secs_f64),
        }
    }
}

/// Returns whether the fewest domains of `fitting` GPUs can hold the same number each.
fn is_even(size: u64, fitting: u64) -> bool {
    size.is_multiple_of(size.div_ceil(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dgx() -> Network {
        Network {
            name: "dgx".into(),
            shape: Shape::Switch,
            domain_gpus: 8,
            domain_rate: 450e9,
            scale_out_rate: 50e9,
            leaf: ScaleOutLeaf::NON_BLOCKING,
            cable_seconds: [0.0; 2],
        }
    }

    const IDEAL: Efficiency = Efficiency {
        library: None,
        is_stated: false,
        domain: 1.0,
        scale_out: 1.0,
        domain_step_seconds: 0.0,
        scale_out_step_seconds: 0.0,
    };

    fn gather(network: &Network, group: Group, bytes: f64) -> f64 {
        network.collective(CollectiveKind::AllGather, group, bytes, &IDEAL)
    }

    #[test]
    fn single_ring_takes_its_closed_form() {
        let seconds = gather(&dgx(), Group::new(8, 1), 450e9);
        assert!((seconds - 7.0 / 8.0).abs() < 1e-12);
    }

    #[test]
    fn group_across_domains_sends_through_every_network_card() {
        let group = Group::new(32, 1);
        assert_eq!(dgx().inside(group), 8);
        let expected = 31.0 / 32.0 * (450.0 / 8.0 / 50.0);
        assert!((gather(&dgx(), group, 450e9) - expected).abs() < 1e-9);
        assert_eq!(dgx().inside(Group::new(32, 8)), 1);
        assert_eq!(dgx().inside(Group::new(32, 4)), 2);
    }

    /// 13 GPUs used to be laid out as 13 domains of one GPU.
    #[test]
    fn uneven_domains_are_rejected_with_the_nearest_even_size() {
        let domains = |size| dgx().even_domains(Group::new(size, 1));
        let filled = [2, 8, 12, 14, 16, 4096].map(|size| domains(size).ok());
        assert_eq!(filled, [1, 1, 2, 2, 2, 512].map(Some));
        let refused = [13, 20, 4095].map(|size| domains(size).unwrap_err().nearest);
        assert_eq!(refused, [[12, 14], [18, 21], [4088, 4096]]);
    }

    #[test]
    fn group_beyond_its_leaf_is_limited_by_uplinks() {
        let thin = Network { leaf: ScaleOutLeaf { gpus: 32, up_rate: 12.5e9 }, ..dgx() };
        let under = Group::new(4, 8);
        let beyond = Group::new(8, 8);
        let seconds = |network: &Network, group| gather(network, group, 1e9);
        assert_eq!(seconds(&thin, under), seconds(&dgx(), under));
        assert!((seconds(&thin, beyond) / seconds(&dgx(), beyond) - 4.0).abs() < 1e-9);
    }
}

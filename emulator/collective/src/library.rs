// SPDX-License-Identifier: Apache-2.0
//! Model of a communication library: duration of a collective by algorithm and protocol, and the library's choice.
//!
//! ```text
//!   seconds = launch + steps × step + depth × chunk ÷ channel rate + bytes ÷ min(domain, NICs)
//! ```
//! The slowest stage limits a pipeline. Latencies, lane rates, LL limits and NVLS fractions are taken from NCCL's
//! tuning model (`src/graph/tuning.cc` in NCCL 2.27), and tree chunks from `src/enqueue.cc`. [`LAUNCH`],
//! [`TREE_LAUNCH`], [`TREE_STEP`], [`CHANNEL_RATE`], [`CARD_SHARES`], [`FILL`] and [`PAIRWISE_SHARES`] are fitted to
//! the rows marked for fitting in docs/validation-collectives.md; [`PAIRWISE_STEP`] is assumed.
//!
//! Not modelled: groups whose domains have different numbers of ranks, and hosts without exactly one NIC per GPU.

mod plan;

use serde::{Deserialize, Serialize};

use super::CollectiveKind;

pub use plan::{Joined, LibraryPlan};

/// Launch time of host and kernel, in seconds.
const LAUNCH: [f64; 3] = [34e-6, 25e-6, 25e-6];
/// Launch time of a tree across in-switch domains, in seconds.
const TREE_LAUNCH: f64 = 15e-6;
/// Time of a tree step between the switches of two domains, in seconds.
const TREE_STEP: f64 = 11.3e-6;
const CHANNELS: f64 = 16.0;
/// In bytes per second.
const CHANNEL_RATE: f64 = 2e9;
/// Shares of the NIC rate that rings and trees achieve.
const CARD_SHARES: [f64; 2] = [0.96, 0.931];
/// Loss because a ring's channels are not full at first: a share of the total in a domain, a fixed time over a switch.
const FILL: RingFill = RingFill { share: 0.2, bytes: 256.0 * MEBIBYTE, switch_seconds: 35e-6 };
/// Shares of the domain's and the NIC's rate that an all-to-all achieves.
const PAIRWISE_SHARES: [f64; 2] = [0.87, 0.75];
/// Time per domain beyond the first in an all-to-all, in seconds.
const PAIRWISE_STEP: f64 = 2e-6;
const MEBIBYTE: f64 = 1_048_576.0;

struct RingFill {
    share: f64,
    bytes: f64,
    switch_seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generation {
    Ampere,
    Hopper,
    Blackwell,
}

impl Generation {
    /// Share of the domain's data-sheet rate that its lanes carry (20.0, 20.6 and 40.1 GB/s per lane).
    fn lanes(self) -> f64 {
        [0.8, 0.824, 0.802][self as usize]
    }
    /// Share of the lane rate that in-switch collectives achieve. `None` if they are not supported.
    fn in_switch(self) -> Option<f64> {
        [None, Some(0.85), Some(0.74)][self as usize]
    }
    /// Minimum number of ranks per domain for in-switch collectives.
    fn least_in_switch(self) -> u64 {
        [u64::MAX, 5, 6][self as usize]
    }
    /// Maximum LL rate in bytes per second for one, two or more domains.
    fn low_latency(self, domains: u64) -> f64 {
        let most = [[87.7e9, 22.5e9, 19e9], [141e9, 45e9, 35e9], [282e9, 90e9, 70e9]];
        most[self as usize][domains.clamp(1, 3) as usize - 1]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    Switch,
    /// A ring with full rate only to neighbours.
    Ring,
    /// A three-dimensional torus whose rate is split over three dimensions.
    Torus,
}

impl Shape {
    /// Returns the mean number of links per byte in an all-to-all between `ranks` ranks.
    #[must_use]
    pub fn links(self, ranks: f64) -> f64 {
        match self {
            Self::Switch => 1.0,
            // The mean distance around a ring is n/4 links, over two directions.
            Self::Ring => (ranks / 4.0).max(1.0),
            // Three dimensions of side n^(1/3), each with two directions.
            Self::Torus => (ranks.cbrt() * 3.0 / 4.0).max(1.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    Ring,
    Tree,
    Nvls,
    NvlsTree,
    /// NVLS inside domains, and reduction in network switches between domains.
    Sharp,
    Pairwise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Sends a flag with every four bytes.
    Ll,
    /// Sends a flag with every 120 bytes.
    Ll128,
    Simple,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LibraryTime {
    pub algorithm: Algorithm,
    pub protocol: Protocol,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Seconds before the first message.
    pub start_seconds: f64,
    /// Sequential steps over links inside a domain, and between domains.
    pub steps: [f64; 2],
    pub step_seconds: [f64; 2],
    /// Effective shares of the data-sheet rates, inside a domain and between domains.
    pub shares: [f64; 2],
}

impl Pace {
    pub const BARE: Self =
        Self { start_seconds: 0.0, steps: [0.0; 2], step_seconds: [0.0; 2], shares: [1.0; 2] };

    /// Latencies are divided in the same proportion as bytes.
    #[must_use]
    pub fn part(self, part: f64) -> Self {
        let start_seconds = self.start_seconds * part;
        Self { start_seconds, step_seconds: self.step_seconds.map(|step| step * part), ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub generation: Generation,
    pub ranks: u64,
    pub domains: u64,
    /// Topology of a domain. Only a switch supports reduction and multicast.
    pub shape: Shape,
    /// Data-sheet rate of a GPU into its domain, in bytes per second and direction.
    pub domain_rate: f64,
    /// Data-sheet rate of a GPU's NIC, in bytes per second and direction.
    pub card_rate: f64,
    /// Whether the host launches the collective in advance, as in a training step, so that only the
    /// start-up time of the kernel matters.
    pub is_queued: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Hops {
    pub ranks: u64,
    pub domains: u64,
    pub steps: [f64; 2],
    /// Send rates of a rank in bytes per second.
    pub rates: [f64; 2],
}

impl Hops {
    #[must_use]
    pub fn ring(&self, bytes: f64) -> f64 {
        let n = self.ranks as f64;
        let [inside, between] = self.ring_steps();
        let steps = inside * self.steps[0] + between * self.steps[1];
        steps + (n - 1.0) / n * bytes / self.slowest()
    }

    #[must_use]
    pub fn ring_steps(&self) -> [f64; 2] {
        let all = self.ranks as f64 - 1.0;
        let leaves = if self.domains == 1 { 0.0 } else { all.min(self.domains as f64) };
        [all - leaves, leaves]
    }

    #[must_use]
    pub fn pairwise(&self, bytes: f64, links: f64) -> f64 {
        let (n, domains) = (self.ranks as f64, self.domains as f64);
        let inside = self.inside();
        let [within, across] = [inside - 1.0, n - inside].map(|ranks| ranks / n * bytes);
        let within = within * links / self.rates[0] + (inside - 1.0) * self.steps[0];
        let across = across / self.rates[1] + (domains - 1.0) * self.steps[1];
        if self.domains > 1 { within.max(across) } else { within }
    }

    #[must_use]
    pub fn inside(&self) -> f64 {
        self.ranks as f64 / self.domains as f64
    }

    fn slowest(&self) -> f64 {
        let [domain, card] = self.rates;
        if self.domains == 1 {
            return domain;
        }
        let domain = if self.ranks == self.domains { f64::INFINITY } else { domain };
        domain.min(self.inside() * card)
    }
}

/// Latencies of LL, LL128 and Simple in seconds: before the first step, and per step inside and between domains.
type Latencies = [(Protocol, f64, f64, f64); 3];
const RING: Latencies = [
    (Protocol::Ll, 6.6e-6, 0.6e-6, 2.7e-6),
    (Protocol::Ll128, 14e-6, 1.9e-6, 4e-6),
    (Protocol::Simple, 8.4e-6, 3.4e-6, 14e-6),
];
const TREE: Latencies = [
    (Protocol::Ll, 6.8e-6, 0.6e-6, 5e-6),
    (Protocol::Ll128, 14e-6, 1.25e-6, 8.5e-6),
    (Protocol::Simple, 8.4e-6, 4e-6, 14e-6),
];
/// Fixed duration of an in-switch collective in one domain, in seconds.
const IN_SWITCH: f64 = 25e-6;

impl Site {
    #[must_use]
    pub fn choose(
        &self,
        kind: CollectiveKind,
        bytes: f64,
        allowed: impl Fn(Algorithm, Protocol) -> bool,
    ) -> Option<LibraryTime> {
        let ways = self.ways(kind, bytes).into_iter();
        ways.filter(|way| allowed(way.algorithm, way.protocol))
            .min_by(|one, other| one.seconds.total_cmp(&other.seconds))
    }

    #[must_use]
    pub fn ways(&self, kind: CollectiveKind, bytes: f64) -> Vec<LibraryTime> {
        let time = |algorithm, protocol, seconds| LibraryTime { algorithm, protocol, seconds };
        if kind == CollectiveKind::AllToAll {
            return vec![time(Algorithm::Pairwise, Protocol::Simple, self.pairwise(bytes))];
        }
        let rounds = if kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 };
        let mut ways = RING
            .map(|latency| time(Algorithm::Ring, latency.0, self.ring(rounds, bytes, latency)))
            .to_vec();
        if kind != CollectiveKind::AllReduce {
            return ways;
        }
        if self.domains > 1 {
            ways.extend(
                TREE.map(|latency| time(Algorithm::Tree, latency.0, self.tree(bytes, latency))),
            );
        }
        if let Some(switch) = self.in_switch_rate() {
            ways.extend(
                self.in_switches(switch, bytes)
                    .into_iter()
                    .map(|(algorithm, seconds)| time(algorithm, Protocol::Simple, seconds)),
            );
        }
        ways
    }

    /// Returns the pace of a ring or an all-to-all; `None` for trees and in-switch collectives.
    #[must_use]
    pub fn pace(&self, kind: CollectiveKind, bytes: f64, way: LibraryTime) -> Option<Pace> {
        let (domain, card) = (self.domain_rate, self.inside() * self.card_rate);
        match way.algorithm {
            Algorithm::Ring => {
                let (protocol, base, inside, between) = self.stretched(RING[way.protocol as usize]);
                let rounds = if kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 };
                let limited =
                    |rate| self.limit(protocol, rate, 1.0) / self.filling(protocol, bytes);
                Some(Pace {
                    start_seconds: self.launch() + base,
                    steps: self.hops([0.0; 2], [1.0; 2]).ring_steps().map(|steps| rounds * steps),
                    step_seconds: [inside, between],
                    shares: [
                        limited(self.lanes()) / domain,
                        limited(self.cards(CARD_SHARES[0])) / card,
                    ],
                })
            }
            Algorithm::Pairwise => Some(Pace {
                start_seconds: self.launch() + RING[2].1,
                steps: [0.0, self.domains as f64 - 1.0],
                step_seconds: [0.0, PAIRWISE_STEP],
                shares: [self.lanes() * PAIRWISE_SHARES[0] / domain, PAIRWISE_SHARES[1]],
            }),
            _ => None,
        }
    }

    #[must_use]
    pub fn card_share(kind: CollectiveKind) -> f64 {
        if kind == CollectiveKind::AllToAll { PAIRWISE_SHARES[1] } else { CARD_SHARES[0] }
    }

    fn inside(&self) -> f64 {
        self.ranks as f64 / self.domains as f64
    }
    fn lanes(&self) -> f64 {
        self.domain_rate * self.generation.lanes()
    }
    fn cards(&self, share: f64) -> f64 {
        self.inside() * self.card_rate * share
    }
    fn depth(&self) -> f64 {
        (self.domains as f64).log2().ceil()
    }
    fn launch(&self) -> f64 {
        if self.is_queued { 0.0 } else { LAUNCH[self.generation as usize] }
    }
    fn hops(&self, steps: [f64; 2], [domain, card]: [f64; 2]) -> Hops {
        let rates = [self.lanes() * domain, self.card_rate * card];
        Hops { ranks: self.ranks, domains: self.domains, steps, rates }
    }
    fn slowest(&self, share: f64) -> f64 {
        self.hops([0.0; 2], [1.0, share]).slowest()
    }

    fn ring(&self, rounds: f64, bytes: f64, latency: (Protocol, f64, f64, f64)) -> f64 {
        let (protocol, base, inside, between) = self.stretched(latency);
        let rate = self.limit(protocol, self.slowest(CARD_SHARES[0]), 1.0);
        let hops = Hops { rates: [rate; 2], ..self.hops([inside, between], [1.0; 2]) };
        self.launch() + base + rounds * hops.ring(bytes * self.filling(protocol, bytes))
    }

    /// Steps of a ring are longer if it spans several domains.
    fn stretched(
        &self,
        (protocol, base, inside, between): (Protocol, f64, f64, f64),
    ) -> (Protocol, f64, f64, f64) {
        match protocol {
            Protocol::Simple if self.domains > 1 => (protocol, base, 1.4 * inside, 1.4 * between),
            Protocol::Ll if self.domains > 1 => (protocol, base, 1.8 * inside, between),
            _ => (protocol, base, inside, between),
        }
    }

    fn filling(&self, protocol: Protocol, bytes: f64) -> f64 {
        if self.domains > 1 || protocol == Protocol::Ll {
            return 1.0;
        }
        1.0 + FILL.share * (FILL.bytes / bytes).min(1.0)
    }

    fn limit(&self, protocol: Protocol, rate: f64, part: f64) -> f64 {
        match protocol {
            Protocol::Ll => (0.5 * rate).min(part * self.generation.low_latency(self.domains)),
            Protocol::Ll128 => 0.92 * rate,
            Protocol::Simple => rate,
        }
    }

    fn tree(
        &self,
        bytes: f64,
        (protocol, base, inside, between): (Protocol, f64, f64, f64),
    ) -> f64 {
        let (inside, chunk) = match protocol {
            Protocol::Ll => (1.8 * inside, (bytes / 16.0).min(16_384.0)),
            _ => (inside, chunk(bytes)),
        };
        let chain = (self.inside() - 1.0) * (inside + 16.0 * chunk / self.lanes());
        let rate = 2.0 * self.limit(protocol, self.slowest(CARD_SHARES[1]) / 2.0, 0.5);
        let trees = self.in_trees(bytes, chunk, rate, between);
        self.launch() + base + 2.0 * chain + trees
    }

    /// Number of times a domain sends each byte in a double tree. With two domains, each is the
    /// root of one tree and a leaf of the other, and sends each byte once. With more domains, each
    /// byte is sent twice: up one tree and down both.
    const fn tree_sends(&self) -> f64 {
        if self.domains == 2 { 1.0 } else { 2.0 }
    }

    fn in_trees(&self, bytes: f64, chunk: f64, rate: f64, step: f64) -> f64 {
        let passed = step + chunk / CHANNEL_RATE;
        let seconds = bytes / rate;
        if self.domains > 2 {
            return 2.0 * (self.depth() * passed + seconds);
        }
        let piece = seconds / self.pieces(bytes, chunk, rate);
        passed + seconds.max((seconds + piece) / 2.0 + passed)
    }

    /// Each channel forwards a chunk for every rank of a domain simultaneously.
    fn pieces(&self, bytes: f64, chunk: f64, rate: f64) -> f64 {
        let most = (CHANNELS * self.inside() * chunk).min(rate * chunk / CHANNEL_RATE);
        (bytes / most).ceil().max(1.0)
    }

    fn in_switch_rate(&self) -> Option<f64> {
        if self.shape != Shape::Switch {
            return None;
        }
        let share = self.generation.in_switch()?;
        Some(self.lanes() * share * self.inside() / (self.inside() + 1.0))
    }

    fn in_switches(&self, switch: f64, bytes: f64) -> Vec<(Algorithm, f64)> {
        if self.domains == 1 {
            if self.ranks < self.generation.least_in_switch() {
                return Vec::new();
            }
            let filling = FILL.switch_seconds * (bytes / (16.0 * MEBIBYTE)).min(1.0);
            let seconds = self.launch() + IN_SWITCH + filling + bytes / switch;
            return vec![(Algorithm::Nvls, seconds)];
        }
        if self.ranks == self.domains {
            return Vec::new();
        }
        let passed = TREE_STEP + chunk(bytes) / CHANNEL_RATE;
        let cards = self.cards(CARD_SHARES[1]);
        let rate = cards.min(self.tree_sends() * switch);
        let trees = TREE_LAUNCH + self.in_trees(bytes, chunk(bytes), rate, TREE_STEP);
        let network = TREE_LAUNCH + 2.0 * passed + bytes / switch.min(cards);
        vec![(Algorithm::NvlsTree, trees), (Algorithm::Sharp, network)]
    }

    fn pairwise(&self, bytes: f64) -> f64 {
        let links = self.shape.links(self.inside());
        let hops = self.hops([0.0, PAIRWISE_STEP], PAIRWISE_SHARES);
        self.launch() + RING[2].1 + hops.pairwise(bytes, links)
    }
}

fn chunk(bytes: f64) -> f64 {
    if bytes < 8.0 * MEBIBYTE { 32_768.0 } else { 65_536.0 }
}

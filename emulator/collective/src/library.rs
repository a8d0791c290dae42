// SPDX-License-Identifier: Apache-2.0
//! Model of a communication library: duration of a collective by algorithm and protocol, and the library's choice.
//!
//! ```text
//!   seconds = launch + kernel + steps × step + bytes ÷ min(domain, NICs)
//! ```
//! The library chooses by its own estimate, which NCCL's tuning model (`src/graph/tuning.cc` in NCCL 2.27) defines and
//! which differs from the duration. Inside a domain, durations follow the measured [`DomainFit`]. Between domains, the
//! slowest stage limits a pipeline. Its latencies, LL limits and NVLS fractions are NCCL's, and tree chunks are from
//! `src/enqueue.cc`. [`HOST_LAUNCH`], [`TREE_LAUNCH`], [`TREE_STEP`], [`CHANNEL_RATE`], [`CARD_SHARES`] and
//! [`PAIRWISE_SHARE`] are fitted to the rows marked for fitting in docs/validation-collectives.md; [`PAIRWISE_STEP`] is
//! assumed.
//!
//! Not modelled: groups whose domains have different numbers of ranks, and hosts without exactly one NIC per GPU.

mod constants;
mod plan;

use serde::{Deserialize, Serialize};

use super::CollectiveKind;

pub(crate) use constants::DomainFit;
pub use constants::rows;
pub use plan::{Joined, LibraryPlan};

/// Time from the host's call until the kernel starts, in seconds.
const HOST_LAUNCH: f64 = 20e-6;
/// Launch time of a tree across in-switch domains, in seconds.
const TREE_LAUNCH: f64 = 15e-6;
/// Time of a tree step between the switches of two domains, in seconds.
const TREE_STEP: f64 = 11.3e-6;
const CHANNELS: f64 = 16.0;
/// In bytes per second.
const CHANNEL_RATE: f64 = 2e9;
/// LL128 limit of all channels, in bytes per second (36.7 GB/s per channel).
const LL128_RATE: f64 = CHANNELS * 36.7e9;
/// Shares of the NIC rate that rings and trees achieve.
const CARD_SHARES: [f64; 2] = [0.96, 0.931];
/// Share of the NIC's rate that an all-to-all achieves.
const PAIRWISE_SHARE: f64 = 0.75;
/// Time per domain beyond the first in an all-to-all, in seconds.
const PAIRWISE_STEP: f64 = 2e-6;
const MEBIBYTE: f64 = 1_048_576.0;
/// Size from which all channels of an in-switch collective are used.
const FULL_SWITCH: f64 = 16.0 * MEBIBYTE;

/// Who starts the kernel of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// The previous kernel hides the launch, as in nccl-tests and in training steps.
    BackToBack,
    /// A recorded graph, in which the GPU starts the kernel.
    Graph,
    /// The host, for each call, while the GPU waits.
    Host,
}

impl Launch {
    /// Seconds before the kernel starts.
    const fn seconds(self) -> f64 {
        match self {
            Self::BackToBack | Self::Graph => 0.0,
            Self::Host => HOST_LAUNCH,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generation {
    Ampere,
    Hopper,
    Blackwell,
}

impl Generation {
    /// Share of the domain's data-sheet rate that its lanes carry (20.0, 20.6 and 40.1 GB/s per lane).
    pub(crate) fn lanes(self) -> f64 {
        [0.8, 0.824, 0.802][self as usize]
    }
    /// Share of the lane rate that in-switch collectives achieve. `None` if they are not supported.
    fn in_switch(self) -> Option<f64> {
        [None, Some(0.85), Some(0.74)][self as usize]
    }
    /// Latency of a kernel relative to Hopper: inversely proportional to the SM clock (1.41, 1.98 and 1.965 GHz), and
    /// longer by `dies` if the GPU consists of two dies.
    pub(crate) fn latency(self, dies: f64) -> f64 {
        [1.98 / 1.41, 1.0, dies * 1.98 / 1.965][self as usize]
    }
    fn least_in_switch(self) -> u64 {
        [u64::MAX, 5, 6][self as usize]
    }
    /// Maximum LL rate in bytes per second for one, two or more domains.
    fn low_latency(self, domains: u64) -> f64 {
        let most = [[87.7e9, 22.5e9, 19e9], [141e9, 45e9, 35e9], [282e9, 90e9, 70e9]];
        most[self as usize][domains.clamp(1, 3) as usize - 1]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    Ordered,
    /// EFA, where LL and LL128 would read flags before their data. Its times suggest that trees are not used either.
    Unordered,
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
    #[serde(skip)]
    pub(crate) estimate: f64,
}

impl LibraryTime {
    /// Returns a time that the library itself expects.
    const fn estimated(algorithm: Algorithm, protocol: Protocol, seconds: f64) -> Self {
        Self { algorithm, protocol, seconds, estimate: seconds }
    }
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
    pub delivery: Delivery,
    pub launch: Launch,
    /// Generation whose measurements the constants are not fitted to, to test them.
    pub left_out: Option<Generation>,
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
    pub fn ring(&self, bytes: f64) -> f64 {
        let n = self.ranks as f64;
        let [inside, between] = self.ring_steps();
        let steps = inside * self.steps[0] + between * self.steps[1];
        steps + (n - 1.0) / n * bytes / self.slowest()
    }

    pub fn ring_steps(&self) -> [f64; 2] {
        let all = self.ranks as f64 - 1.0;
        let leaves = if self.domains == 1 { 0.0 } else { all.min(self.domains as f64) };
        [all - leaves, leaves]
    }

    pub fn pairwise(&self, bytes: f64, links: f64) -> f64 {
        let (n, domains) = (self.ranks as f64, self.domains as f64);
        let inside = self.inside();
        let [within, across] = [inside - 1.0, n - inside].map(|ranks| ranks / n * bytes);
        let within = within * links / self.rates[0] + (inside - 1.0) * self.steps[0];
        let across = across / self.rates[1] + (domains - 1.0) * self.steps[1];
        if self.domains > 1 { within.max(across) } else { within }
    }

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

/// Latencies of a protocol in seconds.
#[derive(Clone, Copy)]
struct Latency {
    protocol: Protocol,
    /// Before the first step.
    base: f64,
    /// Per step inside a domain.
    inside: f64,
    /// Per step between domains.
    between: f64,
}

const RING: [Latency; 3] = [
    Latency { protocol: Protocol::Ll, base: 6.6e-6, inside: 0.6e-6, between: 2.7e-6 },
    Latency { protocol: Protocol::Ll128, base: 14e-6, inside: 1.9e-6, between: 4e-6 },
    Latency { protocol: Protocol::Simple, base: 8.4e-6, inside: 3.4e-6, between: 14e-6 },
];
const TREE: [Latency; 3] = [
    Latency { protocol: Protocol::Ll, base: 6.8e-6, inside: 0.6e-6, between: 5e-6 },
    Latency { protocol: Protocol::Ll128, base: 14e-6, inside: 1.25e-6, between: 8.5e-6 },
    Latency { protocol: Protocol::Simple, base: 8.4e-6, inside: 4e-6, between: 14e-6 },
];
impl Latency {
    /// Steps of a ring are longer if it spans several domains.
    fn stretched(self) -> Self {
        let (inside, between) = match self.protocol {
            Protocol::Simple => (1.4 * self.inside, 1.4 * self.between),
            Protocol::Ll => (1.8 * self.inside, self.between),
            Protocol::Ll128 => (self.inside, self.between),
        };
        Self { inside, between, ..self }
    }
}

/// Fixed duration of an in-switch collective in one domain, in seconds.
const IN_SWITCH: f64 = 25e-6;

/// Duration of a ring: `start_seconds`, then steps inside and between domains, with messages at `rate`.
struct RingPace {
    start_seconds: f64,
    step_seconds: [f64; 2],
    rate: f64,
}

impl Site {
    /// Returns a site of one domain with a switch, whose collectives are called back to back.
    pub fn of_domain(generation: Generation, ranks: u64, domain_rate: f64) -> Self {
        Self {
            generation,
            ranks,
            domains: 1,
            shape: Shape::Switch,
            domain_rate,
            card_rate: 0.0,
            delivery: Delivery::Ordered,
            launch: Launch::BackToBack,
            left_out: None,
        }
    }

    pub fn choose(
        &self,
        kind: CollectiveKind,
        bytes: f64,
        allowed: impl Fn(Algorithm, Protocol) -> bool,
    ) -> Option<LibraryTime> {
        let ways = self.ways(kind, bytes).into_iter();
        ways.filter(|way| allowed(way.algorithm, way.protocol))
            .min_by(|one, other| one.estimate.total_cmp(&other.estimate))
    }

    pub fn ways(&self, kind: CollectiveKind, bytes: f64) -> Vec<LibraryTime> {
        if kind.is_pairwise() {
            let seconds = self.pairwise(bytes);
            return vec![LibraryTime::estimated(Algorithm::Pairwise, Protocol::Simple, seconds)];
        }
        let rounds = rounds(kind);
        let is_unordered = self.domains > 1 && self.delivery == Delivery::Unordered;
        let mut ways = Vec::new();
        for latency in RING {
            let protocol = latency.protocol;
            if is_unordered && protocol != Protocol::Simple {
                continue;
            }
            let seconds = self.ring(rounds, bytes, protocol);
            let mut ring = LibraryTime::estimated(Algorithm::Ring, protocol, seconds);
            if self.domains == 1 {
                ring.estimate = self.launch.seconds() + self.estimate(rounds, bytes, latency);
            }
            ways.push(ring);
        }
        if kind != CollectiveKind::AllReduce || is_unordered {
            return ways;
        }
        if self.domains > 1 {
            ways.extend(TREE.map(|latency| {
                let seconds = self.tree(bytes, latency);
                LibraryTime::estimated(Algorithm::Tree, latency.protocol, seconds)
            }));
        }
        if let Some(switch) = self.in_switch_rate() {
            ways.extend(self.in_switches(switch, bytes));
        }
        ways
    }

    /// Returns the pace of a ring or an all-to-all; `None` for trees and in-switch collectives.
    pub fn pace(&self, kind: CollectiveKind, bytes: f64, way: LibraryTime) -> Option<Pace> {
        let (domain, card) = (self.domain_rate, self.inside() * self.card_rate);
        match way.algorithm {
            Algorithm::Ring => {
                let RingPace { start_seconds, step_seconds, rate } =
                    self.ring_pace(bytes, way.protocol);
                let steps = self.hops([0.0; 2], [1.0; 2]).ring_steps();
                Some(Pace {
                    start_seconds,
                    steps: steps.map(|steps| rounds(kind) * steps),
                    step_seconds,
                    shares: if self.domains == 1 {
                        [rate / domain, 1.0]
                    } else {
                        let [lanes, cards] = [self.lanes(), self.cards(CARD_SHARES[0])]
                            .map(|rate| self.limit(way.protocol, rate, 1.0));
                        [lanes / domain, cards / card]
                    },
                })
            }
            Algorithm::Pairwise => Some(Pace {
                start_seconds: self.pairwise_start(bytes),
                steps: [0.0, self.domains as f64 - 1.0],
                step_seconds: [0.0, PAIRWISE_STEP],
                shares: [self.pairwise_rate() / domain, PAIRWISE_SHARE],
            }),
            _ => None,
        }
    }

    pub fn card_share(kind: CollectiveKind) -> f64 {
        if kind.is_pairwise() { PAIRWISE_SHARE } else { CARD_SHARES[0] }
    }

    fn constants(&self) -> &'static DomainFit {
        DomainFit::without(self.left_out)
    }
    fn latency(&self) -> f64 {
        self.generation.latency(self.constants().two_dies)
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
    fn hops(&self, steps: [f64; 2], [domain, card]: [f64; 2]) -> Hops {
        let rates = [self.lanes() * domain, self.card_rate * card];
        Hops { ranks: self.ranks, domains: self.domains, steps, rates }
    }
    fn slowest(&self, share: f64) -> f64 {
        self.hops([0.0; 2], [1.0, share]).slowest()
    }

    fn ring_pace(&self, bytes: f64, protocol: Protocol) -> RingPace {
        if self.domains > 1 {
            let Latency { base, inside, between, .. } = RING[protocol as usize].stretched();
            return RingPace {
                start_seconds: self.launch.seconds() + base,
                step_seconds: [inside, between],
                rate: self.limit(protocol, self.slowest(CARD_SHARES[0]), 1.0),
            };
        }
        let constants = self.constants();
        let (step, share) = constants.step(protocol);
        let (step, rate) = (self.latency() * step, share * self.lanes());
        let last = constants.last * (step + bytes / self.ranks as f64 / rate);
        let start = 1e-6 * self.latency() * constants.kernel_us + last;
        RingPace { start_seconds: self.launch.seconds() + start, step_seconds: [step; 2], rate }
    }

    fn ring(&self, rounds: f64, bytes: f64, protocol: Protocol) -> f64 {
        let RingPace { start_seconds, step_seconds, rate } = self.ring_pace(bytes, protocol);
        let hops = Hops { rates: [rate; 2], ..self.hops(step_seconds, [1.0; 2]) };
        start_seconds + rounds * hops.ring(bytes)
    }

    fn estimate(&self, rounds: f64, bytes: f64, latency: Latency) -> f64 {
        let rate = self.limit(latency.protocol, self.lanes(), 1.0);
        let hops = Hops { rates: [rate; 2], ..self.hops([latency.inside; 2], [1.0; 2]) };
        latency.base + rounds * hops.ring(bytes)
    }

    fn limit(&self, protocol: Protocol, rate: f64, part: f64) -> f64 {
        match protocol {
            Protocol::Ll => (0.5 * rate).min(part * self.generation.low_latency(self.domains)),
            Protocol::Ll128 => (0.92 * rate).min(LL128_RATE),
            Protocol::Simple => rate,
        }
    }

    fn tree(&self, bytes: f64, latency: Latency) -> f64 {
        let Latency { protocol, base, inside, between } = latency;
        let (inside, chunk) = match protocol {
            Protocol::Ll => (1.8 * inside, (bytes / 16.0).min(16_384.0)),
            _ => (inside, chunk(bytes)),
        };
        let chain = (self.inside() - 1.0) * (inside + 16.0 * chunk / self.lanes());
        let rate = 2.0 * self.limit(protocol, self.slowest(CARD_SHARES[1]) / 2.0, 0.5);
        let trees = self.in_trees(bytes, chunk, rate, between);
        self.launch.seconds() + base + 2.0 * chain + trees
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

    fn in_switches(&self, switch: f64, bytes: f64) -> Vec<LibraryTime> {
        if self.domains == 1 {
            if self.ranks < self.generation.least_in_switch() {
                return Vec::new();
            }
            let filling = 1e-6 * self.constants().fill_us * (bytes / FULL_SWITCH).min(1.0);
            let sent = self.launch.seconds() + bytes / switch;
            let seconds = sent + self.latency() * IN_SWITCH + filling;
            let nvls = LibraryTime::estimated(Algorithm::Nvls, Protocol::Simple, seconds);
            return vec![LibraryTime { estimate: sent + IN_SWITCH, ..nvls }];
        }
        if self.ranks == self.domains {
            return Vec::new();
        }
        let passed = TREE_STEP + chunk(bytes) / CHANNEL_RATE;
        let cards = self.cards(CARD_SHARES[1]);
        let rate = cards.min(self.tree_sends() * switch);
        let trees = TREE_LAUNCH + self.in_trees(bytes, chunk(bytes), rate, TREE_STEP);
        let network = TREE_LAUNCH + 2.0 * passed + bytes / switch.min(cards);
        vec![
            LibraryTime::estimated(Algorithm::NvlsTree, Protocol::Simple, trees),
            LibraryTime::estimated(Algorithm::Sharp, Protocol::Simple, network),
        ]
    }

    fn pairwise_rate(&self) -> f64 {
        self.constants().pair_share * self.lanes()
    }

    /// Returns the time that an all-to-all takes in addition to sending: the kernel, the use of more channels with more
    /// bytes, and the copy of a rank's own part.
    fn pairwise_start(&self, bytes: f64) -> f64 {
        let constants = self.constants();
        let part = bytes / self.ranks as f64;
        let ramp = constants.pair_ramp_us * part / (part + constants.pair_ramp_bytes);
        let kernel = 1e-6 * self.latency() * (constants.pair_us + ramp);
        self.launch.seconds() + kernel + constants.pair_own * part / self.pairwise_rate()
    }

    fn pairwise(&self, bytes: f64) -> f64 {
        let links = self.shape.links(self.inside());
        let rates = [self.pairwise_rate(), self.card_rate * PAIRWISE_SHARE];
        let hops = Hops { rates, ..self.hops([0.0, PAIRWISE_STEP], [1.0; 2]) };
        self.pairwise_start(bytes)
            + hops.pairwise(bytes, links).max(bytes / (1e9 * self.constants().pair_gigabytes))
    }
}

fn rounds(kind: CollectiveKind) -> f64 {
    if kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 }
}

fn chunk(bytes: f64) -> f64 {
    if bytes < 8.0 * MEBIBYTE { 32_768.0 } else { 65_536.0 }
}

// SPDX-License-Identifier: Apache-2.0
//! How long a collective takes in a communication library: every algorithm with every protocol, and which is chosen.
//!
//! ```text
//!   seconds = launch + steps × step + depth × chunk ÷ channel rate + bytes ÷ min(domain, cards)
//! ```
//! What is pipelined is limited by its slowest part, not by the sum of its parts. Latencies, rates of lanes, limits of LL
//! and shares of NVLS are those by which NCCL itself chooses (NCCL, `src/graph/tuning.cc` of 2.27), chunks of trees those
//! of its `src/enqueue.cc`. Fitted, on the fitting rows of docs/validation-collectives.md, are [`LAUNCH`], [`TREE_LAUNCH`],
//! [`TREE_STEP`], [`CHANNEL_RATE`], [`CARD_SHARES`], [`FILL`] and [`PAIRWISE_SHARES`]; [`PAIRWISE_STEP`] is assumed.
//!
//! Not here: groups whose domains hold different numbers of ranks, and graphs of NICs that are not one for each GPU.

mod plan;

use serde::{Deserialize, Serialize};

use super::CollectiveKind;

pub use plan::{Joined, LibraryPlan};

/// Seconds until a collective starts: the host's launch and the kernel's.
const LAUNCH: [f64; 3] = [34e-6, 25e-6, 25e-6];
/// The same of a tree of switches.
const TREE_LAUNCH: f64 = 15e-6;
/// Seconds of a step between the switches of two domains.
const TREE_STEP: f64 = 11.3e-6;
/// Bytes per second at which one channel passes a chunk on.
const CHANNEL_RATE: f64 = 2e9;
/// Shares of the cards' rate that rings and trees reach.
const CARD_SHARES: [f64; 2] = [0.96, 0.931];
/// Rings inside a domain lose a share of the time of their first bytes, those of a switch a time, until channels are full.
const FILL: RingFill = RingFill { share: 0.2, bytes: 256.0 * MEBIBYTE, switch_seconds: 35e-6 };
/// Shares of the domain's and the cards' rate that an all-to-all reaches.
const PAIRWISE_SHARES: [f64; 2] = [0.87, 0.75];
/// Seconds that each further domain adds to an all-to-all.
const PAIRWISE_STEP: f64 = 2e-6;
const MEBIBYTE: f64 = 1_048_576.0;

struct RingFill {
    share: f64,
    bytes: f64,
    switch_seconds: f64,
}

/// A generation of GPUs, as far as the library tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generation {
    /// A100.
    Ampere,
    /// H100, H200, H800.
    Hopper,
    /// B200, GB200 and their successors.
    Blackwell,
}

impl Generation {
    /// Share of the domain's data-sheet rate that its lanes carry: 20.0, 20.6 and 40.1 GB/s each.
    fn lanes(self) -> f64 {
        [0.8, 0.824, 0.802][self as usize]
    }
    /// Share of that in collectives that the switch computes; `None` if it computes none.
    fn in_switch(self) -> Option<f64> {
        [None, Some(0.85), Some(0.74)][self as usize]
    }
    /// Ranks of a domain from which on the switch computes.
    fn least_in_switch(self) -> u64 {
        [u64::MAX, 5, 6][self as usize]
    }
    /// Bytes per second that LL carries at most in one, two and more domains.
    fn low_latency(self, domains: u64) -> f64 {
        let most = [[87.7e9, 22.5e9, 19e9], [141e9, 45e9, 35e9], [282e9, 90e9, 70e9]];
        most[self as usize][domains.clamp(1, 3) as usize - 1]
    }
}

/// The shape of the high-bandwidth domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Any GPU reaches any other at full rate.
    Switch,
    /// A ring: full rate to neighbours alone.
    Ring,
    /// A three-dimensional torus: the rate is split over three dimensions.
    Torus,
}

impl Shape {
    /// Links that a byte of an all-to-all of `ranks` passes in the mean.
    #[must_use]
    pub fn links(self, ranks: f64) -> f64 {
        match self {
            Self::Switch => 1.0,
            // The mean way round a ring is n/4 links, over two directions.
            Self::Ring => (ranks / 4.0).max(1.0),
            // Three dimensions of side n^(1/3), each with two directions.
            Self::Torus => (ranks.cbrt() * 3.0 / 4.0).max(1.0),
        }
    }
}

/// How a library moves what a collective exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// One ring through all ranks for each channel.
    Ring,
    /// Two binary trees over domains, a chain inside each.
    Tree,
    /// The switch of the domain adds and copies.
    Nvls,
    /// The same inside, two binary trees between domains.
    NvlsTree,
    /// The same inside, and the network's switches add between domains.
    Sharp,
    /// Each rank to each.
    Pairwise,
}

/// How a message says that it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A flag with every four bytes.
    Ll,
    /// A flag with every 120 bytes.
    Ll128,
    /// Whole chunks.
    Simple,
}

/// What [`Site::ways`] computes for one algorithm and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LibraryTime {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// How long it takes.
    pub seconds: f64,
}

/// What a library leaves of the links that a collective passes: time before its messages, and shares of rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Seconds before its first message.
    pub start_seconds: f64,
    /// Steps one after the other over links inside a domain, and between domains.
    pub steps: [f64; 2],
    /// Seconds of such a step.
    pub step_seconds: [f64; 2],
    /// Shares of the data-sheet rates that carry its bytes, inside a domain and between domains.
    pub shares: [f64; 2],
}

impl Pace {
    /// Links alone.
    pub const BARE: Self =
        Self { start_seconds: 0.0, steps: [0.0; 2], step_seconds: [0.0; 2], shares: [1.0; 2] };

    /// Seconds before and between messages that cables which delay a step so long do not account for.
    #[must_use]
    pub fn lag(&self, cables: [f64; 2]) -> f64 {
        let level = |at: usize| self.steps[at] * (self.step_seconds[at] - cables[at]).max(0.0);
        self.start_seconds + level(0) + level(1)
    }

    /// That of a part of the collective: latencies are shared out as bytes are.
    #[must_use]
    pub fn part(self, part: f64) -> Self {
        let start_seconds = self.start_seconds * part;
        Self { start_seconds, step_seconds: self.step_seconds.map(|step| step * part), ..self }
    }
}

/// The ranks of a group, and the links between them.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// What the GPUs are.
    pub generation: Generation,
    /// Ranks.
    pub ranks: u64,
    /// Domains that they lie in, as many in each.
    pub domains: u64,
    /// What joins the ranks of a domain: only a switch adds and copies.
    pub shape: Shape,
    /// Bytes per second that a GPU sends into its domain, one way, as the data sheet says.
    pub domain_rate: f64,
    /// Bytes per second that the network card of a GPU sends, one way, as the data sheet says.
    pub card_rate: f64,
    /// Whether the host launched it ahead, as those of a training step: the kernel's own start alone counts.
    pub is_queued: bool,
}

/// What ranks send at, and what a step between two of them takes: inside a domain and between domains.
#[derive(Clone, Copy, Debug)]
pub struct Hops {
    /// Ranks.
    pub ranks: u64,
    /// Domains that they lie in, as many in each.
    pub domains: u64,
    /// Seconds of a step.
    pub steps: [f64; 2],
    /// Bytes per second that a rank sends.
    pub rates: [f64; 2],
}

impl Hops {
    /// Seconds of an all-gather or a reduce-scatter over rings through all ranks, one for each rank of a domain.
    #[must_use]
    pub fn ring(&self, bytes: f64) -> f64 {
        let n = self.ranks as f64;
        let [inside, between] = self.ring_steps();
        let steps = inside * self.steps[0] + between * self.steps[1];
        steps + (n - 1.0) / n * bytes / self.slowest()
    }

    /// Steps round a ring inside domains and between them: the piece that goes farthest leaves every domain, those of its
    /// first and last rank as well where it can.
    #[must_use]
    pub fn ring_steps(&self) -> [f64; 2] {
        let all = self.ranks as f64 - 1.0;
        let leaves = if self.domains == 1 { 0.0 } else { all.min(self.domains as f64) };
        [all - leaves, leaves]
    }

    /// Seconds of an all-to-all: what stays in the domain beside what goes through cards.
    #[must_use]
    pub fn pairwise(&self, bytes: f64, links: f64) -> f64 {
        let (n, domains) = (self.ranks as f64, self.domains as f64);
        let inside = self.inside();
        let [within, across] = [inside - 1.0, n - inside].map(|ranks| ranks / n * bytes);
        let within = within * links / self.rates[0] + (inside - 1.0) * self.steps[0];
        let across = across / self.rates[1] + (domains - 1.0) * self.steps[1];
        if self.domains > 1 { within.max(across) } else { within }
    }

    /// Ranks of each domain.
    #[must_use]
    pub fn inside(&self) -> f64 {
        self.ranks as f64 / self.domains as f64
    }

    /// The slowest of what a ring passes.
    fn slowest(&self) -> f64 {
        let [domain, card] = self.rates;
        if self.domains == 1 {
            return domain;
        }
        // With one rank a domain nothing goes through it.
        let domain = if self.ranks == self.domains { f64::INFINITY } else { domain };
        domain.min(self.inside() * card)
    }
}

/// Seconds before the first step, and of a step inside a domain and between domains: LL, LL128, Simple.
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
/// Seconds of a collective in the switch of one domain.
const IN_SWITCH: f64 = 25e-6;

impl Site {
    /// The fastest of [`Site::ways`] that is `allowed`; `None` if none is.
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

    /// Every algorithm and protocol for a collective of `bytes`, see the description of this crate for what they count.
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

    /// What a ring or an all-to-all leaves of links; `None` for trees, and for what switches compute.
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

    /// Share of the cards' rate that rings reach, or all-to-alls.
    #[must_use]
    pub fn card_share(kind: CollectiveKind) -> f64 {
        if kind == CollectiveKind::AllToAll { PAIRWISE_SHARES[1] } else { CARD_SHARES[0] }
    }

    /// Ranks of each domain.
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
    /// The slowest of what a channel passes.
    fn slowest(&self, share: f64) -> f64 {
        self.hops([0.0; 2], [1.0, share]).slowest()
    }

    fn ring(&self, rounds: f64, bytes: f64, latency: (Protocol, f64, f64, f64)) -> f64 {
        let (protocol, base, inside, between) = self.stretched(latency);
        let rate = self.limit(protocol, self.slowest(CARD_SHARES[0]), 1.0);
        let hops = Hops { rates: [rate; 2], ..self.hops([inside, between], [1.0; 2]) };
        self.launch() + base + rounds * hops.ring(bytes * self.filling(protocol, bytes))
    }

    /// A ring's latencies: steps of rings over domains take longer.
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

    /// How much longer a ring takes because its channels are not full at first.
    fn filling(&self, protocol: Protocol, bytes: f64) -> f64 {
        if self.domains > 1 || protocol == Protocol::Ll {
            return 1.0;
        }
        1.0 + FILL.share * (FILL.bytes / bytes).min(1.0)
    }

    /// What a protocol leaves of `rate`; a `part` of the limit of LL applies.
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
        let trees = self.depth() * (between + chunk / CHANNEL_RATE);
        // A domain sends each byte up one tree and down both.
        let rate = self.limit(protocol, self.slowest(CARD_SHARES[1]) / 2.0, 0.5);
        self.launch() + base + 2.0 * (chain + trees) + bytes / rate
    }

    /// Bytes per second of a collective in the switch of a domain.
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
        let trees = TREE_LAUNCH + 2.0 * self.depth() * passed + bytes / switch.min(cards / 2.0);
        let network = TREE_LAUNCH + 2.0 * passed + bytes / switch.min(cards);
        vec![(Algorithm::NvlsTree, trees), (Algorithm::Sharp, network)]
    }

    fn pairwise(&self, bytes: f64) -> f64 {
        let links = self.shape.links(self.inside());
        let hops = self.hops([0.0, PAIRWISE_STEP], PAIRWISE_SHARES);
        self.launch() + RING[2].1 + hops.pairwise(bytes, links)
    }
}

/// Bytes that a tree passes on at once.
fn chunk(bytes: f64) -> f64 {
    if bytes < 8.0 * MEBIBYTE { 32_768.0 } else { 65_536.0 }
}

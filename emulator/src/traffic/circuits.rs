//! All-to-all by binary exchange on hosts that have one circuit at a time.
//!
//! ```text
//!   step 0: i ↔ i xor 1   ──dark──▶   step 1: i ↔ i xor 2   ──dark──▶   step 2: i ↔ i xor 4 …
//! ```
//! A reading of what the InfiniteHBD paper sketches in its discussion of expert parallelism, not its
//! specification: in step `k` a host exchanges half of everything with the host whose number differs in bit
//! `k`; when both directions of a pair are through, each of the two switches its transceiver to the fibre
//! of its next partner, and the next step of a pair begins when both have come. So pairs run ahead of each
//! other. Fibres of a span of `2^k` must be there for every step.

use lightloom_units::{Bytes, Picoseconds};

use lightloom_collective::{CollectiveError, Exchange};
use lightloom_engine::collective::StartError;
use lightloom_engine::{BatchId, Engine, FlowSpec, LinkChange, LinkId, Probe, Route, VertexId};

/// The circuits of all hosts.
#[derive(Debug)]
pub(super) struct Circuits {
    hosts: Vec<VertexId>,
    /// By step, then pair.
    fibres: Vec<Vec<LinkId>>,
    /// How long a host is dark when it changes its circuit.
    pub(super) switching: Picoseconds,
    /// By host: the step whose fibre it holds; nothing while it is dark.
    holds: Vec<Option<usize>>,
    /// By host: the step it waits for.
    wants: Vec<Option<usize>>,
    /// By host: faults for which it keeps what it holds.
    stuck: Vec<u32>,
}

/// What a host or pair does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A host is dark and will hold this step's fibre after the switching time.
    Dark {
        /// Its place.
        host: usize,
        /// The step.
        step: usize,
    },
    /// Both hosts of a pair hold their fibre.
    Joined {
        /// The lower of the two.
        host: usize,
        /// The step.
        step: usize,
    },
}

impl Circuits {
    /// All hosts on the fibre of step 0; all other fibres dark.
    pub(super) fn new<P: Probe>(
        engine: &mut Engine<P>,
        hosts: &[VertexId],
        (fibres, switching): (Vec<Vec<LinkId>>, Picoseconds),
    ) -> Self {
        let now = engine.now();
        for fibre in fibres.iter().skip(1).flatten() {
            for link in [*fibre, fibre.reverse()] {
                engine.change_link(now, link, LinkChange::Down);
            }
        }
        let count = hosts.len();
        let hosts = hosts.to_vec();
        let (holds, wants, stuck) = (vec![Some(0); count], vec![None; count], vec![0; count]);
        Self { hosts, fibres, switching, holds, wants, stuck }
    }

    /// How many steps an exchange takes.
    pub(super) fn steps(&self) -> usize {
        self.fibres.len()
    }

    /// Hosts.
    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }

    /// The fibre between a host and its partner of a step.
    pub(super) fn fibre(&self, host: usize, step: usize) -> LinkId {
        let lower = host & !(1 << step);
        // Lower hosts of a step have a zero in its bit: their place among themselves leaves it out.
        let (above, below) = (lower >> (step + 1), lower & ((1 << step) - 1));
        self.fibres[step][above << step | below]
    }

    /// Whether a link belongs to a fibre that both its hosts hold; true for what is no fibre.
    pub(super) fn lights(&self, link: LinkId) -> bool {
        let cable = LinkId(link.0 & !1);
        let found = self.fibres.iter().enumerate().find_map(|(step, fibres)| {
            fibres.iter().position(|fibre| *fibre == cable).map(|pair| (step, pair))
        });
        let Some((step, pair)) = found else { return true };
        let (above, below) = (pair >> step, pair & ((1 << step) - 1));
        let host = above << (step + 1) | below;
        [host, host | 1 << step].iter().all(|host| self.holds[*host] == Some(step))
    }

    /// A host wants the fibre of a step. What follows at once or after the switching time.
    pub(super) fn want(&mut self, host: usize, step: usize) -> Option<Next> {
        self.wants[host] = Some(step);
        match self.holds[host] {
            Some(held) if held == step => self.joined(host, step),
            Some(_) if self.stuck[host] == 0 => {
                self.holds[host] = None;
                Some(Next::Dark { host, step })
            }
            Some(_) | None => None,
        }
    }

    /// A host keeps what it holds from now on, or for one reason less. What follows when it obeys again: it goes
    /// where it has been told to go meanwhile.
    pub(super) fn set_stuck(&mut self, host: usize, stuck: bool) -> Option<Next> {
        let count = &mut self.stuck[host];
        *count = if stuck { *count + 1 } else { *count - 1 };
        let wanted = self.wants[host].filter(|_| *count == 0);
        wanted.and_then(|step| self.want(host, step))
    }

    /// A host has come to the fibre of a step.
    pub(super) fn come(&mut self, host: usize, step: usize) -> Option<Next> {
        self.holds[host] = Some(step);
        self.joined(host, step)
    }

    /// The pair of a host, if both hold their fibre and wait for it; then they wait no more.
    fn joined(&mut self, host: usize, step: usize) -> Option<Next> {
        let pair = [host & !(1 << step), host | 1 << step];
        let is_ready = |h: &usize| self.holds[*h] == Some(step) && self.wants[*h] == Some(step);
        if !pair.iter().all(is_ready) {
            return None;
        }
        pair.iter().for_each(|host| self.wants[*host] = None);
        Some(Next::Joined { host: pair[0], step })
    }

    /// Adds the two flows of a pair's step to `engine`; they begin now.
    pub(super) fn exchange<P: Probe>(
        &self,
        engine: &mut Engine<P>,
        (host, step): (usize, usize),
        size: Bytes,
        priority: u8,
    ) -> Result<BatchId, StartError> {
        let batch = engine.add_batch();
        let fibre = self.fibre(host, step);
        let ends = (self.hosts[host], self.hosts[host | 1 << step]);
        for (source, destination, link) in
            [(ends.0, ends.1, fibre), (ends.1, ends.0, fibre.reverse())]
        {
            let flow =
                FlowSpec { priority, ..FlowSpec::new(source, destination, self.half(size)?) };
            let flow = flow.at(engine.now()).over(Route::Links(vec![link])).in_batch(batch);
            engine.add_flow(flow)?;
        }
        Ok(batch)
    }

    /// What a host sends in a step of an exchange of `size` a host.
    pub(super) fn half(&self, size: Bytes) -> Result<Bytes, CollectiveError> {
        let steps = Exchange::Binary.steps(self.count())?;
        let pieces = steps.first().map_or(0, |step| step.ways.len()) as u64;
        Ok(Bytes(size.0.div_ceil(self.count() as u64)) * pieces)
    }
}

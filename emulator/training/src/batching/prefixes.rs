// SPDX-License-Identifier: Apache-2.0
//! Caches of prompt prefixes that requests share, kept per replica or pooled over all replicas
//! (TokenLake, arXiv 2508.17219).
//!
//! ```text
//! local  a request waits for the replica with most of its prefix, unless that one has over twice as many as the emptiest
//! pool   a request goes anywhere; segments come over the network from the replica with a copy that has sent the least
//! ```
//! Prefixes are cut into segments, and a segment counts as found only if all earlier ones are
//! found. The pool stores each segment once and evicts the least recently used one. A segment that
//! is requested more than [`HEAVY`] times as often per copy as the average is also kept by the
//! replica that fetches it.
//!
//! Assumptions: segments are fetched when a replica admits a request, and the prompt waits for
//! them. Caches are sent, not queries (TokenLake can also send queries). Running requests hold
//! their prefix in addition to this cache.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    pub id: u32,
    pub tokens: u32,
}

/// The cache in which shared prefixes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefixSharing {
    /// Each replica has its own cache.
    Local,
    Pool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixSetup {
    pub sharing: PrefixSharing,
    pub segment: u32,
    pub tokens: u64,
    /// Seconds to send the cache of one token through the network cards of a replica.
    pub token_seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefixCounts {
    /// Prompt tokens found in a cache.
    pub hit: u64,
    /// Tokens whose cache was sent from one replica to another.
    pub moved: u64,
    pub prefilled: Vec<u64>,
    pub sent: Vec<u64>,
}

/// Ratio of a segment's requests per copy to the average above which it gets another copy.
const HEAVY: u64 = 4;

/// A replica is chosen for its prefixes only if its load is at most twice the minimum load plus
/// this many requests.
const SLACK: usize = 4;

type Segment = (u32, u32);

#[derive(Clone, Copy, Debug)]
struct Held {
    replica: usize,
    /// Value of the use counter at the last use.
    used: u64,
    /// Time when the copy becomes usable, in seconds.
    ready: f64,
}

#[derive(Debug, Default)]
struct Copies {
    asked: u64,
    held: Vec<Held>,
}

#[derive(Debug)]
pub(super) struct PrefixCaches {
    setup: PrefixSetup,
    segments: BTreeMap<Segment, Copies>,
    /// Segments of each replica, ordered by last use.
    stores: Vec<BTreeMap<u64, Segment>>,
    /// Time when each replica's network cards finish sending.
    sends: Vec<f64>,
    /// Replica that served the last request with each prefix.
    last: BTreeMap<u32, usize>,
    uses: u64,
    asked: u64,
    pub(super) counts: PrefixCounts,
}

impl PrefixCaches {
    pub(super) fn new(setup: PrefixSetup, replicas: usize) -> Self {
        let none = vec![0; replicas];
        Self {
            setup,
            segments: BTreeMap::new(),
            stores: vec![BTreeMap::new(); replicas],
            sends: vec![0.0; replicas],
            last: BTreeMap::new(),
            uses: 0,
            asked: 0,
            counts: PrefixCounts { prefilled: none.clone(), sent: none, ..PrefixCounts::default() },
        }
    }

    fn is_local(&self) -> bool {
        self.setup.sharing == PrefixSharing::Local
    }

    /// Chooses the replica that a request waits for: the one with most of its prefix, then the one
    /// that had the prefix last. `loads` are the requests on each replica. `None` if any replica
    /// will do.
    pub(super) fn route(&mut self, prefix: Prefix, loads: &[usize]) -> Option<usize> {
        if !self.is_local() || prefix.tokens < self.setup.segment {
            return None;
        }
        let mut found = vec![0; loads.len()];
        for number in 0..prefix.tokens / self.setup.segment {
            let Some(copies) = self.segments.get(&(prefix.id, number)) else { break };
            for held in &copies.held {
                if found[held.replica] == number {
                    found[held.replica] += 1;
                }
            }
        }
        let last = self.last.get(&prefix.id).copied();
        let least = loads.iter().copied().min()?;
        let even = (0..loads.len()).filter(|at| loads[*at] <= 2 * least + SLACK);
        let best = even.min_by_key(|at| (Reverse(found[*at]), last != Some(*at), loads[*at]))?;
        self.last.insert(prefix.id, best);
        Some(best)
    }

    /// Looks up the prefix of a prompt that starts later on `replica`. Returns the tokens found and
    /// when they arrive.
    pub(super) fn take(
        &mut self,
        replica: usize,
        prefix: Prefix,
        [at, begins]: [f64; 2],
    ) -> (u32, f64) {
        let whole = prefix.tokens / self.setup.segment;
        // A segment being computed now can be used by prompts that start after it is ready.
        let is_ready =
            |held: &Held| held.ready <= begins && (!self.is_local() || held.replica == replica);
        let is_there = |number: &u32| {
            let copies = self.segments.get(&(prefix.id, *number));
            copies.is_some_and(|copies| copies.held.iter().any(is_ready))
        };
        let found = (0..whole).take_while(is_there).count() as u32;
        let seconds = self.segment_seconds();
        let (mut there, mut fetched) = (at, 0);
        // Touch the first segment last: the others cannot be found without it.
        for number in (0..found).rev() {
            let segment = (prefix.id, number);
            let Some((from, ready)) = self.use_one(segment, replica, begins) else { continue };
            if from == replica {
                continue;
            }
            fetched += 1;
            let alone = at.max(ready) + seconds;
            let arrives = self.send(from, at).max(alone).max(at + f64::from(fetched) * seconds);
            there = there.max(arrives);
            if self.is_heavy(segment) {
                self.hold(segment, replica, arrives);
            }
        }
        let tokens = found * self.setup.segment;
        self.counts.hit += u64::from(tokens);
        (tokens, there)
    }

    /// Stores the segments that a finished prompt computed.
    pub(super) fn keep(&mut self, replica: usize, prefix: Prefix, found: u32, ready: f64) {
        for number in (found / self.setup.segment..prefix.tokens / self.setup.segment).rev() {
            let segment = (prefix.id, number);
            let is_held = self.segments.get(&segment).is_some_and(|copies| {
                copies.held.iter().any(|held| !self.is_local() || held.replica == replica)
            });
            if is_held {
                continue;
            }
            let place = if self.is_local() { replica } else { self.place(replica) };
            let mut there = ready;
            if place != replica {
                self.count_sent(replica);
                there += self.segment_seconds();
            }
            self.hold(segment, place, there);
        }
    }

    /// Chooses the copy to use: the one on `replica`, else the one on the replica that has sent the
    /// least.
    fn use_one(&mut self, segment: Segment, replica: usize, begins: f64) -> Option<(usize, f64)> {
        let copies = self.segments.get_mut(&segment)?;
        self.uses += 1;
        self.asked += 1;
        copies.asked += 1;
        let sends = &self.sends;
        let there = copies.held.iter_mut().filter(|held| held.ready <= begins);
        let best = there.min_by(|a, b| {
            let by_home = (a.replica != replica).cmp(&(b.replica != replica));
            by_home.then(sends[a.replica].total_cmp(&sends[b.replica]))
        })?;
        self.stores[best.replica].remove(&best.used);
        self.stores[best.replica].insert(self.uses, segment);
        best.used = self.uses;
        Some((best.replica, best.ready))
    }

    fn is_heavy(&self, segment: Segment) -> bool {
        self.segments.get(&segment).is_some_and(|copies| {
            let (each, all) = (copies.held.len() as u64, self.segments.len() as u64);
            copies.asked * all > HEAVY * each * self.asked
        })
    }

    /// Queues a segment on the network cards of `from` and returns its arrival.
    fn send(&mut self, from: usize, at: f64) -> f64 {
        self.sends[from] = self.sends[from].max(at) + self.segment_seconds();
        self.count_sent(from);
        self.sends[from]
    }

    fn count_sent(&mut self, from: usize) {
        self.counts.moved += u64::from(self.setup.segment);
        self.counts.sent[from] += u64::from(self.setup.segment);
    }

    /// Chooses where the pool stores a segment that `replica` computed: on that replica if it has
    /// room, else on the emptiest one, else on the one with the least recently used segment.
    fn place(&self, replica: usize) -> usize {
        let held = |at: &usize| self.stores[*at].len();
        if held(&replica) < self.room() {
            return replica;
        }
        let all = 0..self.stores.len();
        let emptiest = all.clone().min_by_key(held).unwrap_or(replica);
        if held(&emptiest) < self.room() {
            return emptiest;
        }
        let oldest = |at: &usize| self.stores[*at].keys().next().copied();
        all.min_by_key(oldest).unwrap_or(replica)
    }

    fn hold(&mut self, segment: Segment, replica: usize, ready: f64) {
        let held = self.segments.get(&segment);
        let is_here =
            held.is_some_and(|copies| copies.held.iter().any(|one| one.replica == replica));
        if self.room() == 0 || is_here {
            return;
        }
        while self.stores[replica].len() >= self.room() {
            let Some((_, old)) = self.stores[replica].pop_first() else { return };
            let copies = self.segments.get_mut(&old).expect("it was held");
            copies.held.retain(|held| held.replica != replica);
            if copies.held.is_empty() {
                self.asked -= copies.asked;
                self.segments.remove(&old);
            }
        }
        self.uses += 1;
        self.stores[replica].insert(self.uses, segment);
        let copies = self.segments.entry(segment).or_default();
        copies.held.push(Held { replica, used: self.uses, ready });
    }

    fn room(&self) -> usize {
        (self.setup.tokens / u64::from(self.setup.segment)) as usize
    }

    fn segment_seconds(&self) -> f64 {
        f64::from(self.setup.segment) * self.setup.token_seconds
    }
}

#[cfg(test)]
mod tests;

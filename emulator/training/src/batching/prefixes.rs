// SPDX-License-Identifier: Apache-2.0
//! Caches of prefixes that requests share, by segments: on each replica for itself, or one pool over all (TokenLake, arXiv 2508.17219).
//!
//! ```text
//! local  a request waits for the replica with most of its prefix, unless that one has over twice as many as the emptiest
//! pool   a request goes anywhere; segments come over the network from a replica that has them, the one that has sent the least
//! ```
//! A segment is found only behind those before it. The pool holds each once, and evicts the one that was not asked for the longest
//! anywhere; a segment that is asked for more than [`HEAVY`] times as often as others for each of its copies is kept by who
//! fetches it, too. Assumptions: segments are fetched when a replica takes a request in, and a prompt waits for them; caches
//! travel, not queries, which TokenLake can send instead; requests that run hold their prefix besides.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

/// What the beginning of a prompt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Which one.
    pub id: u32,
    /// Tokens of the prompt that are of it.
    pub tokens: u32,
}

/// Who holds prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefixSharing {
    /// Each replica for itself.
    Local,
    /// All together.
    Pool,
}

/// Caches of prefixes on replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixSetup {
    /// Who holds them.
    pub sharing: PrefixSharing,
    /// Tokens of a segment.
    pub segment: u32,
    /// Tokens that a replica has room for.
    pub tokens: u64,
    /// Seconds that a token's cache is on its way over the cards of a replica.
    pub token_seconds: f64,
}

/// What came of prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefixCounts {
    /// Tokens of prompts that were found.
    pub hit: u64,
    /// Tokens whose caches went from one replica to another.
    pub moved: u64,
    /// By replica: tokens of prompts that it worked on.
    pub prefilled: Vec<u64>,
    /// By replica: tokens whose caches it sent.
    pub sent: Vec<u64>,
}

/// How much more often a segment is asked for than others before it has a further copy.
const HEAVY: u64 = 4;

/// So many requests more than twice those of the emptiest may be on a replica that is chosen for its prefixes.
const SLACK: usize = 4;

type Segment = (u32, u32);

#[derive(Clone, Copy, Debug)]
struct Held {
    replica: usize,
    /// When it was used last, in uses.
    used: u64,
    /// From when on it is there.
    ready: f64,
}

#[derive(Debug, Default)]
struct Copies {
    asked: u64,
    held: Vec<Held>,
}

/// Segments on replicas, while requests are served.
#[derive(Debug)]
pub(super) struct PrefixCaches {
    setup: PrefixSetup,
    segments: BTreeMap<Segment, Copies>,
    /// By replica: what it holds by last use.
    stores: Vec<BTreeMap<u64, Segment>>,
    /// By replica: when its cards have sent all.
    sends: Vec<f64>,
    /// By prefix: where its last request went.
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

    /// Where a request goes and waits, by requests on each replica: where most of its prefix is, or went last. `None` if anywhere.
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

    /// A replica takes in a prompt that begins later: tokens of it that need no work, and when they are there.
    pub(super) fn take(
        &mut self,
        replica: usize,
        prefix: Prefix,
        [at, begins]: [f64; 2],
    ) -> (u32, f64) {
        let whole = prefix.tokens / self.setup.segment;
        // What is worked on now is there for prompts that begin after it.
        let is_ready =
            |held: &Held| held.ready <= begins && (!self.is_local() || held.replica == replica);
        let is_there = |number: &u32| {
            let copies = self.segments.get(&(prefix.id, *number));
            copies.is_some_and(|copies| copies.held.iter().any(is_ready))
        };
        let found = (0..whole).take_while(is_there).count() as u32;
        let seconds = self.segment_seconds();
        let (mut there, mut fetched) = (at, 0);
        // The first segment is used last: none is found without it.
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

    /// The prompt has ended: what it worked on is kept.
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

    /// The copy that a replica uses: its own, or that of the replica that has sent the least.
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

    /// A segment goes out over the cards of a replica, after what goes before it: when it is there.
    fn send(&mut self, from: usize, at: f64) -> f64 {
        self.sends[from] = self.sends[from].max(at) + self.segment_seconds();
        self.count_sent(from);
        self.sends[from]
    }

    fn count_sent(&mut self, from: usize) {
        self.counts.moved += u64::from(self.setup.segment);
        self.counts.sent[from] += u64::from(self.setup.segment);
    }

    /// Where the pool puts what a replica worked on: there if it has room, where most room is, or where what was not used the
    /// longest is.
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

    /// Segments that a replica has room for.
    fn room(&self) -> usize {
        (self.setup.tokens / u64::from(self.setup.segment)) as usize
    }

    fn segment_seconds(&self) -> f64 {
        f64::from(self.setup.segment) * self.setup.token_seconds
    }
}

#[cfg(test)]
mod tests;

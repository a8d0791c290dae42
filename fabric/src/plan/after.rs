// SPDX-License-Identifier: Apache-2.0
//! Computes the difference between similar plans, and the digest of the next plan from the cached
//! canonical text of unchanged entries. A bypass changes only a few entries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Circuit, Group, NOT_IDENTITY, Plan, Rank, Transceiver};
use crate::canonical;
use crate::provenance;

const REACH: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Splice<T> {
    at: usize,
    gone: usize,
    new: Vec<T>,
}

/// The difference between two plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanChange {
    circuits: Vec<Splice<Circuit>>,
    groups: Vec<Splice<Group>>,
    ranks: Vec<Splice<Rank>>,
    transceivers: Vec<Splice<Transceiver>>,
    rest: Box<Plan>,
}

impl PlanChange {
    /// Returns the change from `before` to `next`.
    pub fn between(before: &Plan, next: &Plan) -> Self {
        Self {
            circuits: splices(&before.circuits, &next.circuits),
            groups: splices(&before.groups, &next.groups),
            ranks: splices(&before.ranks, &next.ranks),
            transceivers: splices(&before.transceivers, &next.transceivers),
            rest: Box::new(rest(next)),
        }
    }

    /// Applies the change to `before`. Returns `None` if an index is out of range.
    pub fn of(&self, before: &Plan) -> Option<Plan> {
        Some(Plan {
            circuits: spliced(&before.circuits, &self.circuits)?,
            groups: spliced(&before.groups, &self.groups)?,
            ranks: spliced(&before.ranks, &self.ranks)?,
            transceivers: spliced(&before.transceivers, &self.transceivers)?,
            ..(*self.rest).clone()
        })
    }
}

fn rest(plan: &Plan) -> Plan {
    Plan {
        schema: plan.schema.clone(),
        version: plan.version.clone(),
        digest: plan.digest.clone(),
        inputs: plan.inputs.clone(),
        name: plan.name.clone(),
        fabric_sha256: plan.fabric_sha256.clone(),
        seed: plan.seed,
        faults: plan.faults.clone(),
        jobs: plan.jobs.clone(),
        groups: Vec::new(),
        transceivers: Vec::new(),
        circuits: Vec::new(),
        ranks: Vec::new(),
        phases: plan.phases.clone(),
        transitions: plan.transitions.clone(),
        given_up: plan.given_up.clone(),
        weight_sync: plan.weight_sync.clone(),
        metrics: plan.metrics.clone(),
    }
}

fn runs<T: PartialEq>(before: &[T], next: &[T]) -> Vec<[usize; 3]> {
    let (mut at, mut to, mut found) = (0, 0, Vec::new());
    while at < before.len() || to < next.len() {
        let equal = before[at..].iter().zip(&next[to..]).take_while(|(a, b)| a == b).count();
        (at, to) = (at + equal, to + equal);
        let (gone, new) = apart(&before[at..], &next[to..]);
        (at, to) = (at + gone, to + new);
        found.push([equal, gone, new]);
    }
    found
}

fn apart<T: PartialEq>(before: &[T], next: &[T]) -> (usize, usize) {
    let (Some(one), Some(other)) = (before.first(), next.first()) else {
        return (before.len(), next.len());
    };
    let gone = before.iter().take(REACH).position(|found| found == other);
    match (gone, next.iter().take(REACH).position(|found| found == one)) {
        (Some(gone), Some(new)) if gone <= new => (gone, 0),
        (Some(gone), None) => (gone, 0),
        (_, Some(new)) => (0, new),
        (None, None) => (1, 1),
    }
}

fn splices<T: PartialEq + Clone>(before: &[T], next: &[T]) -> Vec<Splice<T>> {
    let (mut at, mut to) = (0, 0);
    let mut all: Vec<Splice<T>> = Vec::new();
    for [equal, gone, new] in runs(before, next) {
        (at, to) = (at + equal, to + equal);
        let fresh = next[to..to + new].to_vec();
        match all.last_mut().filter(|last| last.at + last.gone == at && equal == 0) {
            Some(last) => {
                last.gone += gone;
                last.new.extend(fresh);
            }
            None if gone + new > 0 => all.push(Splice { at, gone, new: fresh }),
            None => {}
        }
        (at, to) = (at + gone, to + new);
    }
    all
}

fn spliced<T: Clone>(before: &[T], splices: &[Splice<T>]) -> Option<Vec<T>> {
    let (mut at, mut all) = (0, Vec::with_capacity(before.len()));
    for splice in splices {
        all.extend_from_slice(before.get(at..splice.at)?);
        all.extend(splice.new.iter().cloned());
        at = splice.at.checked_add(splice.gone)?;
    }
    all.extend_from_slice(before.get(at..)?);
    Some(all)
}

#[derive(Clone, Debug, Default)]
struct SpelledList {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl SpelledList {
    fn of<T: Serialize>(list: &[T]) -> Self {
        let mut spelled = Self::default();
        spelled.add(list);
        spelled
    }

    fn add<T: Serialize>(&mut self, entries: &[T]) {
        for entry in entries {
            self.text.extend(canonical::bytes(entry, &[]).unwrap_or_default());
            self.text.push(b',');
            self.ends.push(self.text.len());
        }
    }

    fn copy(&mut self, other: &Self, from: usize, count: usize) {
        let [start, end] = [from, from + count]
            .map(|index| index.checked_sub(1).map_or(0, |last| other.ends[last]));
        let length = self.text.len();
        self.text.extend_from_slice(&other.text[start..end]);
        self.ends.extend(other.ends[from..from + count].iter().map(|end| end - start + length));
    }

    fn next<T: PartialEq + Serialize>(&self, before: &[T], next: &[T]) -> Self {
        let (mut spelled, mut at, mut to) = (Self::default(), 0, 0);
        spelled.text.reserve(self.text.len());
        spelled.ends.reserve(next.len());
        for [equal, gone, new] in runs(before, next) {
            spelled.copy(self, at, equal);
            spelled.add(&next[to + equal..to + equal + new]);
            (at, to) = (at + equal + gone, to + equal + new);
        }
        spelled
    }
}

/// The canonical text of a plan, kept to compute its successors' digests.
#[derive(Clone, Debug)]
pub struct Spelled {
    circuits: SpelledList,
    groups: SpelledList,
    ranks: SpelledList,
    transceivers: SpelledList,
    rest: BTreeMap<String, Box<RawValue>>,
}

impl Spelled {
    /// Returns the text of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            circuits: SpelledList::of(&plan.circuits),
            groups: SpelledList::of(&plan.groups),
            ranks: SpelledList::of(&plan.ranks),
            transceivers: SpelledList::of(&plan.transceivers),
            rest: spelled_rest(plan),
        }
    }

    /// Returns the text of `next`, given that `self` is the text of `before`.
    pub fn next(&self, before: &Plan, next: &Plan) -> Self {
        Self {
            circuits: self.circuits.next(&before.circuits, &next.circuits),
            groups: self.groups.next(&before.groups, &next.groups),
            ranks: self.ranks.next(&before.ranks, &next.ranks),
            transceivers: self.transceivers.next(&before.transceivers, &next.transceivers),
            rest: spelled_rest(next),
        }
    }

    /// Returns the [digest](super::digest) of the plan.
    pub fn digest(&self) -> String {
        let lists = [
            ("circuits", &self.circuits),
            ("groups", &self.groups),
            ("ranks", &self.ranks),
            ("transceivers", &self.transceivers),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.ends.is_empty());
        let lists = lists.map(|(name, list)| (name, &list.text[..list.text.len() - 1], true));
        let rest = self.rest.iter();
        let rest = rest.map(|(name, text)| (name.as_str(), text.get().as_bytes(), false));
        let mut members: Vec<(&str, &[u8], bool)> = lists.chain(rest).collect();
        members.sort_unstable();
        let mut parts: Vec<&[u8]> = vec![b"{"];
        for (index, (name, text, is_list)) in members.iter().enumerate() {
            let comma: &[u8] = if index > 0 { b",\"" } else { b"\"" };
            parts.extend([comma, name.as_bytes()]);
            match is_list {
                true => parts.extend([b"\":[".as_slice(), text, b"]"]),
                false => parts.extend([b"\":".as_slice(), text]),
            }
        }
        parts.push(b"}");
        provenance::sha256_of_parts(parts)
    }
}

fn spelled_rest(plan: &Plan) -> BTreeMap<String, Box<RawValue>> {
    let text = canonical::bytes(&rest(plan), NOT_IDENTITY).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn splice_back(before: &[u8], next: &[u8]) -> Option<Vec<u8>> {
        spliced(before, &splices(before, next))
    }

    proptest! {
        #[test]
        fn splices_and_spelled_lists_rebuild_any_list(
            before in prop::collection::vec(0_u8..20, 0..200),
            next in prop::collection::vec(0_u8..20, 0..200),
        ) {
            prop_assert_eq!(splice_back(&before, &next), Some(next.clone()));
            let spelled = SpelledList::of(&before).next(&before, &next);
            prop_assert_eq!(spelled.text, SpelledList::of(&next).text);
        }
    }

    #[test]
    fn splices_contain_only_changed_entries() {
        let before: Vec<u32> = (0..1_000).collect();
        let mut next = before.clone();
        next.drain(500..504);
        next.splice(100..101, [7, 8, 9]);
        let splices = splices(&before, &next);
        assert_eq!(spliced(&before, &splices), Some(next));
        assert_eq!(splices.iter().map(|splice| splice.gone + splice.new.len()).sum::<usize>(), 8);
        assert_eq!(spliced(&before[..400], &splices), None, "another list");
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::trace::{Health, NodesError, Timeline, TraceTime};
use lightloom_units::Milliseconds;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use crate::scenario::{FailureRate, FailureSource, Span};
use crate::substrate::AnyPart;

/// A failure or repair of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartChange {
    /// Time since the start of the time span.
    pub at: Milliseconds,
    /// Kind of part.
    pub part: AnyPart,
    /// Index of the part within its kind.
    pub place: usize,
    /// Whether this is a failure rather than a repair.
    pub fails: bool,
}

/// Returns the failures and repairs drawn with a seed. `count` returns the number of parts of a kind.
pub fn changes(
    span: &Span,
    count: &dyn Fn(AnyPart) -> usize,
    gpus_per_node: u32,
    seed: Seed,
) -> Result<Vec<PartChange>, NodesError> {
    let mut changes = Vec::new();
    match &span.failures {
        FailureSource::Rates(rates) => {
            for rate in rates {
                for place in 0..count(rate.part) {
                    let random = seed.stream(rate.part.name(), place as u64);
                    changes.extend(of_part(rate, place, span.length, random));
                }
            }
        }
        FailureSource::Trace { trace, from_day, .. } => {
            let nodes =
                u32::try_from(count(AnyPart::Node)).expect("the number of nodes is limited");
            let timeline = Timeline::on_nodes(trace, nodes, gpus_per_node, seed, 0)?;
            let from = TraceTime::from_days(*from_day);
            let out = timeline.faulty_at(from).into_iter();
            let out = out.map(|node| (Milliseconds::ZERO, node, true));
            let later = timeline.changes().iter().filter(|change| change.at > from);
            let later = later.map(|one| {
                (Milliseconds(one.at.ms_since(from)), one.node, one.health == Health::Faulty)
            });
            for (at, node, fails) in out.chain(later.filter(|(at, ..)| *at < span.length)) {
                changes.push(PartChange { at, part: AnyPart::Node, place: node.index(), fails });
            }
        }
    }
    // At equal times, repairs precede failures.
    changes.sort_by_key(|change| (change.at, change.fails));
    Ok(changes)
}

fn of_part(
    rate: &FailureRate,
    place: usize,
    length: Milliseconds,
    mut random: Stream,
) -> Vec<PartChange> {
    let (mut at, mut changes) = (Milliseconds::ZERO, Vec::new());
    let mut fails = true;
    loop {
        // An instantaneous repair would precede its failure.
        let mean = if fails { rate.mtbf } else { rate.repair };
        let share: f64 = random.random();
        let time = Milliseconds((-(1.0 - share).ln() * mean.get() as f64) as u64);
        at = Milliseconds(at.get().saturating_add(time.get().max(1)));
        if at >= length {
            return changes;
        }
        changes.push(PartChange { at, part: rate.part, place, fails });
        fails = !fails;
    }
}

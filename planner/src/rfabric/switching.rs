// SPDX-License-Identifier: Apache-2.0
//! Decides before which phases of a repeating step changing circuits is worth its time.
//!
//! A phase can share the topology of the previous phase, or change to another one. Idle time before the phase hides
//! part of the switching time if the change is provisioned ahead; the rest delays the step. The [`RULE`] weighs this
//! delay against the time saved. [`shortest_cycle`] applies it to all phases together: no other sequence of topologies
//! is faster, and static circuits are one of these sequences.

/// The rule that [`plan`] follows, as text for reports.
pub const RULE: &str = "change circuits before a phase only if the phases until the next change save more time than \
     both changes expose; a change exposes the switching time minus the idle time before its phase";

/// `costs[phase][from][to]` is the duration in seconds of the phase on `to` after a phase on `from`.
pub type Costs = Vec<Vec<Vec<f64>>>;

/// The topology of each phase and the resulting step time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Index of the topology for each phase.
    pub choice: Vec<usize>,
    /// Duration of a step in seconds, including exposed switching.
    pub seconds: f64,
}

impl Schedule {
    /// Returns the number of phases per step that change the topology.
    pub fn changes(&self) -> usize {
        let previous = self.choice.iter().cycle().skip(self.choice.len().saturating_sub(1));
        self.choice.iter().zip(previous).filter(|(own, previous)| own != previous).count()
    }
}

/// A phase of a step with its measured times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedPhase {
    /// Name in tables.
    pub name: String,
    /// Time without traffic before the phase, such as computation.
    pub idle: f64,
    /// Duration on each topology, infinite on those that cannot serve the phase.
    pub on: Vec<f64>,
}

/// Returns the fastest sequence of topologies for `phases` if a change takes `switching` seconds.
pub fn plan(phases: &[TimedPhase], switching: f64) -> Schedule {
    shortest_cycle(&costs(phases, switching))
}

fn costs(phases: &[TimedPhase], switching: f64) -> Costs {
    let mut costs = Vec::new();
    for phase in phases {
        let changed = phase.idle + (switching - phase.idle).max(0.0);
        let mut of_phase = vec![phase.on.iter().map(|on| changed + on).collect(); phase.on.len()];
        for (topology, on) in phase.on.iter().enumerate() {
            let row: &mut Vec<f64> = &mut of_phase[topology];
            row[topology] = phase.idle + on;
        }
        costs.push(of_phase);
    }
    costs
}

/// Returns the fastest sequence of topologies for a repeating step, as a shortest cycle through its phases.
pub fn shortest_cycle(costs: &Costs) -> Schedule {
    (0..costs[0].len())
        .map(|first| shortest_from(costs, first))
        .reduce(|best, other| if other.seconds < best.seconds { other } else { best })
        .expect("there is at least one topology")
}

fn shortest_from(costs: &Costs, first: usize) -> Schedule {
    let count = costs[0].len();
    // best[x] is the least time of phases 1..=p with phase p on x. NaN marks unreached topologies;
    // infinity means that no topology serves a phase.
    let mut best = vec![f64::NAN; count];
    best[first] = 0.0;
    let mut came_from = Vec::new();
    for phase in &costs[1..] {
        let reached = (0..count).map(|to| {
            (0..count)
                .filter(|from| !best[*from].is_nan())
                .map(|from| (best[from] + phase[from][to], from))
                .min_by(|a, b| a.0.total_cmp(&b.0).then((a.1 != to).cmp(&(b.1 != to))))
                .expect("phase 0 reaches every topology")
        });
        let reached: Vec<(f64, usize)> = reached.collect();
        best = reached.iter().map(|(seconds, _)| *seconds).collect();
        came_from.push(reached.into_iter().map(|(_, from)| from).collect::<Vec<_>>());
    }
    let (seconds, mut at) = (0..count)
        .filter(|last| !best[*last].is_nan())
        .map(|last| (best[last] + costs[0][last][first], last))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("the last phase is reached");
    let mut choice = vec![at];
    for from in came_from.iter().rev() {
        at = from[at];
        choice.push(at);
    }
    choice.reverse();
    Schedule { choice, seconds }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(idle: f64, on: &[f64]) -> TimedPhase {
        TimedPhase { name: "p".to_owned(), idle, on: on.to_vec() }
    }

    /// Adds idle, exposed and phase times of one sequence, without the costs of the planner.
    fn seconds(phases: &[TimedPhase], choice: &[usize], switching: f64) -> f64 {
        let mut clock = 0.0;
        for (at, phase) in phases.iter().enumerate() {
            let previous = choice[(at + choice.len() - 1) % choice.len()];
            let settled = if previous == choice[at] { clock } else { clock + switching };
            clock = settled.max(clock + phase.idle) + phase.on[choice[at]];
        }
        clock
    }

    fn every_choice(phases: usize, topologies: usize) -> impl Iterator<Item = Vec<usize>> {
        (0..topologies.pow(phases as u32)).map(move |number| {
            (0..phases).map(|at| number / topologies.pow(at as u32) % topologies).collect()
        })
    }

    fn drawn() -> impl Strategy<Value = Vec<TimedPhase>> {
        let duration = || prop_oneof![8 => 0.0..10.0, 1 => Just(f64::INFINITY), 1 => Just(1.0)];
        (1_usize..=3).prop_flat_map(move |topologies| {
            let on = prop::collection::vec(duration(), topologies);
            let idle = prop_oneof![Just(0.0), 0.0..5.0];
            let phase = (idle, on).prop_map(|(idle, on)| times(idle, &on));
            prop::collection::vec(phase, 1..=5)
        })
    }

    proptest! {
        #[test]
        fn no_sequence_of_topologies_is_faster(phases in drawn(), switching in 0.0..8.0) {
            let topologies = phases[0].on.len();
            let found = plan(&phases, switching);
            let of = |choice: &[usize]| seconds(&phases, choice, switching);
            let all = every_choice(phases.len(), topologies).map(|choice| of(&choice));
            let best = all.fold(f64::INFINITY, f64::min);
            let is_same = |a: f64, b: f64| a == b || (a - b).abs() < 1e-9;
            prop_assert!(is_same(found.seconds, best), "{} {best}", found.seconds);
            prop_assert!(is_same(found.seconds, of(&found.choice)), "{found:?}");
            for topology in 0..topologies {
                prop_assert!(found.seconds <= of(&vec![topology; phases.len()]) + 1e-9);
            }
        }

        #[test]
        fn step_is_faster_wherever_the_gain_exceeds_the_exposed_switching(
            before in 0.0..5.0_f64, after in 0.0..5.0_f64, gain in 0.1..5.0_f64, switching in 0.0..8.0_f64,
        ) {
            let phases = [times(before, &[9.0, 9.0 - gain]), times(after, &[2.0, f64::INFINITY])];
            let fixed = seconds(&phases, &[0, 0], switching);
            let exposed = (switching - before).max(0.0) + (switching - after).max(0.0);
            let found = plan(&phases, switching);
            prop_assert_eq!(found.changes(), if gain > exposed { 2 } else { 0 });
            prop_assert!((fixed - found.seconds - (gain - exposed).max(0.0)).abs() < 1e-9);
        }
    }

    /// No topology serves either phase, as when a leaf's uplinks and switches fail.
    #[test]
    fn unserved_step_takes_infinite_time() {
        let schedule = shortest_cycle(&vec![vec![vec![f64::INFINITY; 2]; 2]; 2]);
        assert_eq!((schedule.choice.len(), schedule.seconds), (2, f64::INFINITY));
    }
}

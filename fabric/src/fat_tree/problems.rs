// SPDX-License-Identifier: Apache-2.0
//! Validates a [`FatTreeSpec`] and reports all problems, each with field, reason and fix.

use std::collections::BTreeSet;

use lightloom_units::id::{LeafId, OcsId};

use super::{FatTreeSpec, OcsBank};

/// A problem in a [`FatTreeSpec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatTreeProblem {
    /// Path of the field, for example `banks[0].ports_per_leaf`.
    pub field: String,
    /// The problem and its consequence.
    pub problem: String,
    /// Values that would be accepted.
    pub fix: String,
}

impl std::fmt::Display for FatTreeProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.problem, self.fix)
    }
}

/// This limit exceeds any real installation and keeps dense leaf-pair tables small enough for memory.
const LEAVES_MAX: u32 = 4096;

/// Maximum number of switches, of GPUs per leaf and of ports per leaf.
const COUNT_MAX: u32 = 4096;

pub(super) fn of(spec: &FatTreeSpec) -> Vec<FatTreeProblem> {
    let mut problems = Problems(Vec::new());
    problems.check_sizes(spec);
    problems.check_banks(spec);
    problems.check_loss(spec);
    problems.check_forbidden(spec);
    if problems.0.is_empty() {
        problems.check_held(spec);
    }
    problems.0
}

struct Problems(Vec<FatTreeProblem>);

impl Problems {
    fn add(
        &mut self,
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(FatTreeProblem {
            field: field.into(),
            problem: problem.into(),
            fix: fix.into(),
        });
    }

    fn out_of_range(&mut self, field: &str, count: u32) {
        self.add(field, format!("{count} are not supported"), format!("use 1 to {COUNT_MAX}"));
    }

    fn check_sizes(&mut self, spec: &FatTreeSpec) {
        if !(2..=LEAVES_MAX).contains(&spec.leaves) {
            self.add(
                "leaves",
                format!("{} leaves are not supported", spec.leaves),
                format!("use 2 to {LEAVES_MAX} leaves"),
            );
        }
        if !(1..=COUNT_MAX).contains(&spec.gpus_per_leaf) {
            self.out_of_range("gpus_per_leaf", spec.gpus_per_leaf);
        }
        for (field, rate) in [("circuit_rate", spec.circuit_rate), ("gpu_rate", spec.gpu_rate)] {
            if rate.0 == 0 {
                self.add(field, "the rate is zero", "use a rate such as `400Gbps`");
            }
        }
        let oversubscription = spec.electrical.oversubscription;
        if !(oversubscription.is_finite() && oversubscription >= 1.0) {
            self.add(
                "electrical.oversubscription",
                format!("{oversubscription} is not a ratio of at least 1"),
                "use 1 for a non-blocking core, 4 for a thin one",
            );
        }
        let switches: u64 = spec.banks.iter().map(|bank| u64::from(bank.switches)).sum();
        if spec.failure_domains == 0 {
            self.add(
                "failure_domains",
                "at least one failure domain is required",
                "use at least 1",
            );
        } else if u64::from(spec.failure_domains) > switches {
            self.add(
                "failure_domains",
                format!("{} failure domains for {switches} switches", spec.failure_domains),
                format!("use 1 to {switches}: a domain is one or more switches"),
            );
        }
    }

    fn check_banks(&mut self, spec: &FatTreeSpec) {
        if !(1..=2).contains(&spec.banks.len()) {
            self.add(
                "banks",
                format!("{} banks are not supported", spec.banks.len()),
                "use one or two banks",
            );
        }
        for (index, bank) in spec.banks.iter().enumerate() {
            self.check_bank(spec.leaves, index, bank);
        }
    }

    fn check_bank(&mut self, leaves: u32, index: usize, bank: &OcsBank) {
        let field = |name: &str| format!("banks[{index}].{name}");
        if !(1..=COUNT_MAX).contains(&bank.switches) {
            self.out_of_range(&field("switches"), bank.switches);
        }
        if bank.ports_per_leaf > COUNT_MAX {
            self.out_of_range(&field("ports_per_leaf"), bank.ports_per_leaf);
        }
        if bank.ports_per_leaf == 0 || !bank.ports_per_leaf.is_multiple_of(2) {
            self.add(
                field("ports_per_leaf"),
                format!(
                    "{} ports per leaf on each switch: with an odd number, some topologies cannot \
                        be realised although each leaf has enough ports",
                    bank.ports_per_leaf
                ),
                "connect an even number to each switch; half as many switches with twice the \
                    ports per leaf need the same number of fibres",
            );
        }
        let needed = u64::from(leaves) * u64::from(bank.ports_per_leaf);
        if needed > u64::from(bank.ports_per_switch) {
            self.add(
                field("ports_per_switch"),
                format!(
                    "{leaves} leaves with {} ports each need {needed} ports, but a switch has {}",
                    bank.ports_per_leaf, bank.ports_per_switch
                ),
                "use a larger switch, fewer ports per leaf, or fewer leaves",
            );
        }
        self.check_db(field("insertion_loss_db"), bank.insertion_loss_db);
    }

    fn check_loss(&mut self, spec: &FatTreeSpec) {
        self.check_db("loss.budget_db", spec.loss.budget_db);
        self.check_db("loss.path_db", spec.loss.path_db);
        for (index, &(leaf, db)) in spec.loss.extra_db.iter().enumerate() {
            let field = format!("loss.extra_db[{index}]");
            if leaf.0 >= spec.leaves {
                self.unknown_leaf(&field, leaf, spec.leaves);
            } else {
                self.check_db(field, db);
            }
        }
    }

    fn check_db(&mut self, field: impl Into<String>, db: f64) {
        if !(db.is_finite() && db >= 0.0) {
            let fix = "use a number of dB of at least 0";
            self.add(field, format!("{db} is not a valid loss"), fix);
        }
    }

    fn check_forbidden(&mut self, spec: &FatTreeSpec) {
        for (index, &(a, b)) in spec.forbidden.iter().enumerate() {
            let field = format!("forbidden[{index}]");
            for leaf in [a, b] {
                if leaf.0 >= spec.leaves {
                    self.unknown_leaf(&field, leaf, spec.leaves);
                }
            }
            if a == b {
                self.add(field, format!("{a} is paired with itself"), "use two different leaves");
            }
        }
    }

    fn check_held(&mut self, spec: &FatTreeSpec) {
        let mut used = BTreeSet::new();
        for (index, held) in spec.held.iter().enumerate() {
            let field = format!("held[{index}]");
            let Some(bank) = spec.bank(held.ocs) else {
                let switches: u32 = spec.banks.iter().map(|bank| bank.switches).sum();
                let fix = format!("use ocs0 to ocs{}", switches - 1);
                self.add(field, format!("{} does not exist", held.ocs), fix);
                continue;
            };
            for (leaf, port) in [(held.a, held.a_port), (held.b, held.b_port)] {
                if leaf.0 >= spec.leaves {
                    self.unknown_leaf(&field, leaf, spec.leaves);
                } else if port / bank.ports_per_leaf != leaf.0 {
                    self.not_wired(&field, held.ocs, leaf, port, bank.ports_per_leaf);
                } else if !used.insert((held.ocs, port)) {
                    self.add(
                        &field,
                        format!("port {port} of {} is used twice", held.ocs),
                        "a port has only one peer: remove one of the circuits",
                    );
                }
            }
            if held.a >= held.b {
                self.add(
                    field,
                    "the leaves are in the wrong order",
                    "use the leaf with the smaller id as `a`",
                );
            }
        }
    }

    fn not_wired(&mut self, field: &str, ocs: OcsId, leaf: LeafId, port: u32, ports_per_leaf: u32) {
        let first = leaf.0 * ports_per_leaf;
        self.add(
            field,
            format!("port {port} of {ocs} is not wired to {leaf}"),
            format!("{leaf} is wired to ports {first} to {}", first + ports_per_leaf - 1),
        );
    }

    fn unknown_leaf(&mut self, field: &str, leaf: LeafId, leaves: u32) {
        self.add(
            field,
            format!("{leaf} does not exist"),
            format!("use leaf0 to leaf{}", leaves.saturating_sub(1)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::problems;
    use super::*;

    #[test]
    fn rejects_odd_wiring_with_reason_and_fix() {
        let text = problems(|spec| spec.banks[0].ports_per_leaf = 3);
        assert!(text.starts_with("banks[0].ports_per_leaf: 3 ports per leaf"), "{text}");
        assert!(text.contains("cannot be realised") && text.contains("even"), "{text}");
    }

    #[test]
    fn failure_domain_contains_at_least_one_switch() {
        let text = problems(|spec| spec.failure_domains = 5);
        assert!(text.starts_with("failure_domains: 5 failure domains for 4 switches"), "{text}");
        assert!(text.contains("use 1 to 4"), "{text}");
    }

    #[test]
    fn reports_every_problem_together() {
        let text = problems(|spec| {
            spec.leaves = 80;
            spec.electrical.oversubscription = f64::NAN;
            spec.forbidden.push((LeafId(1), LeafId(99)));
        });
        assert!(text.contains("160 ports") && text.contains("NaN") && text.contains("leaf99"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Validates a [`FatTreeSpec`] and reports all problems, each with field, reason and fix.

use std::collections::BTreeSet;

use lightloom_units::Text;
use lightloom_units::id::{LeafId, OcsId, OcsPortId};

use super::{FatTreeSpec, LeafLoss, LeafPair, OcsBank, ReconfigurableFatTree, reach};

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

/// Limits the sets of banks in planning, which are numbers of 64 bits.
const BANKS_MAX: usize = 64;

/// Maximum number of switches, of GPUs per leaf and of ports per leaf.
const COUNT_MAX: u32 = 4096;

/// Limits the rate of a circuit in units of the greatest common divisor of all rates.
const UNITS_MAX: u32 = 64;

/// Returns the circuits that should carry traffic, but cannot.
pub(super) fn unusable(fabric: &ReconfigurableFatTree) -> Vec<FatTreeProblem> {
    let mut problems = Problems(Vec::new());
    for (index, held) in fabric.spec().held.iter().enumerate() {
        let is_usable = fabric.spec().usable.contains(held);
        let pair = LeafPair { a: held.a, b: held.b };
        let is_permitted = fabric.permits_within(fabric.reach_of(held.ocs), pair);
        if is_usable && !(is_permitted && fabric.staying().any(|own| own == held)) {
            let problem = "no traffic can use the circuit: its pair is forbidden, or its loss exceeds the budget";
            problems.add(format!("held[{index}]"), problem, "remove `usable`, or allow the pair");
        }
    }
    problems.0
}

pub(super) fn of(spec: &FatTreeSpec) -> Vec<FatTreeProblem> {
    let mut problems = Problems(Vec::new());
    problems.check_sizes(spec);
    problems.check_banks(spec);
    problems.check_ports(spec);
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
        if !(1..=BANKS_MAX).contains(&spec.banks.len()) {
            self.add(
                "banks",
                format!("{} banks are not supported", spec.banks.len()),
                format!("use 1 to {BANKS_MAX} banks"),
            );
        }
        let unit = reach::unit_of(spec);
        for (index, bank) in spec.banks.iter().enumerate() {
            self.check_bank(spec.leaves, index, bank);
            if bank.one_way != spec.banks[0].one_way {
                let problem = "banks of one-way and of two-way circuits are not planned together";
                let fix = "use the same `one_way` for all banks, or a fabric file for each kind";
                self.add(format!("banks[{index}].one_way"), problem, fix);
            }
            let Some(Text(rate)) = bank.circuit_rate else { continue };
            let field = format!("banks[{index}].circuit_rate");
            if rate.0 == 0 {
                self.add(field, "the rate is zero", "use a rate such as `400Gbps`");
            } else if reach::units(rate, unit) > UNITS_MAX {
                let problem = format!(
                    "{rate} is more than {UNITS_MAX} times {unit}, which is the greatest common divisor of all circuit rates"
                );
                self.add(field, problem, "use rates that are small multiples of one rate");
            }
        }
    }

    fn check_bank(&mut self, leaves: u32, index: usize, bank: &OcsBank) {
        let field = |name: &str| format!("banks[{index}].{name}");
        if !(1..=COUNT_MAX).contains(&bank.switches) {
            self.out_of_range(&field("switches"), bank.switches);
        }
        if !(1..=COUNT_MAX).contains(&bank.ports_per_leaf) {
            self.out_of_range(&field("ports_per_leaf"), bank.ports_per_leaf);
        }
        let own = bank.leaves.as_deref().unwrap_or_default();
        for leaf in own.iter().filter(|leaf| leaf.0 >= leaves) {
            self.unknown_leaf(&field("leaves"), *leaf, leaves);
        }
        if let Some(twice) = own.windows(2).find(|pair| pair[0] == pair[1]) {
            let problem = format!("{} is listed twice", twice[0]);
            self.add(field("leaves"), problem, "list each leaf of the bank once");
        }
        if own.len() == 1 || bank.leaves.as_ref().is_some_and(Vec::is_empty) {
            let problem = format!("{} leaves cannot have circuits among them", own.len());
            self.add(field("leaves"), problem, "list at least two leaves, or omit the key for all");
        }
        let wired = bank.count_of(leaves);
        let needed = u64::from(wired) * u64::from(bank.ports_per_leaf);
        if needed > u64::from(bank.ports_per_switch) {
            self.add(
                field("ports_per_switch"),
                format!(
                    "{wired} leaves with {} ports each need {needed} ports, but a switch has {}",
                    bank.ports_per_leaf, bank.ports_per_switch
                ),
                "use a larger switch, fewer ports per leaf, or fewer leaves",
            );
        }
        self.check_db(field("insertion_loss_db"), bank.insertion_loss_db);
    }

    fn check_ports(&mut self, spec: &FatTreeSpec) {
        let with_loss = spec.loss.ports.iter().map(|own| own.port).enumerate();
        let with_loss = with_loss.map(|(at, port)| (format!("loss.ports[{at}]"), port));
        let occupied = spec.occupied.iter().copied().enumerate();
        let occupied = occupied.map(|(at, port)| (format!("occupied[{at}]"), port));
        let mut seen = BTreeSet::new();
        for (field, port) in with_loss.chain(occupied) {
            let kind = field.split('[').next().unwrap_or_default().to_owned();
            let wired =
                spec.bank(port.ocs).map(|bank| bank.count_of(spec.leaves) * bank.ports_per_leaf);
            match wired {
                None => self.unknown_switch(&field, port.ocs, spec),
                Some(wired) if port.port >= wired => self.add(
                    &field,
                    format!("{port} is not wired to a leaf"),
                    format!("use p0 to p{}; all other ports are free for other uses", wired - 1),
                ),
                Some(_) if !seen.insert((kind, port)) => {
                    self.add(&field, format!("{port} is listed twice"), "list each port once");
                }
                Some(_) => {}
            }
        }
        for (index, own) in spec.loss.ports.iter().enumerate() {
            self.check_db(format!("loss.ports[{index}]"), own.db);
        }
        for leaf in spec.electrical.other_rates.keys().filter(|leaf| leaf.0 >= spec.leaves) {
            self.unknown_leaf("electrical.uplinks", *leaf, spec.leaves);
        }
    }

    fn check_loss(&mut self, spec: &FatTreeSpec) {
        self.check_db("loss.budget_db", spec.loss.budget_db);
        self.check_db("loss.path_db", spec.loss.path_db);
        for (index, &LeafLoss { leaf, db }) in spec.loss.extra_db.iter().enumerate() {
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
            if spec.banks[0].one_way {
                let problem = "one-way circuits that stay are not planned around";
                self.add(&field, problem, "list the ports of the circuit under `occupied`");
            }
            let Some(bank) = spec.bank(held.ocs) else {
                self.unknown_switch(&field, held.ocs, spec);
                continue;
            };
            for (leaf, port) in [(held.a, held.a_port), (held.b, held.b_port)] {
                if leaf.0 >= spec.leaves {
                    self.unknown_leaf(&field, leaf, spec.leaves);
                } else if bank.leaf_at(port) != Some(leaf) {
                    self.not_wired(&field, held.ocs, leaf, port, bank);
                } else if spec.occupied.contains(&OcsPortId { ocs: held.ocs, port }) {
                    self.add(
                        &field,
                        format!("{}/p{port} is occupied", held.ocs),
                        "remove the circuit, or the port from `occupied`",
                    );
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

    fn not_wired(&mut self, field: &str, ocs: OcsId, leaf: LeafId, port: u32, bank: &OcsBank) {
        let fix = match bank.place_of(leaf) {
            Some(place) => {
                let first = place * bank.ports_per_leaf;
                format!("{leaf} is wired to ports {first} to {}", first + bank.ports_per_leaf - 1)
            }
            None => format!("{leaf} is not wired to bank `{}`: use one of its leaves", bank.name),
        };
        self.add(field, format!("port {port} of {ocs} is not wired to {leaf}"), fix);
    }

    fn unknown_switch(&mut self, field: &str, ocs: OcsId, spec: &FatTreeSpec) {
        let switches: u32 = spec.banks.iter().map(|bank| bank.switches).sum();
        let fix = format!("use ocs0 to ocs{}", switches.saturating_sub(1));
        self.add(field, format!("{ocs} does not exist"), fix);
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
    use super::super::CrossConnect;
    use super::super::tests::problems;
    use super::*;
    use lightloom_units::BitsPerSecond;

    #[test]
    fn banks_name_existing_leaves_and_wired_ports() {
        let text = problems(|spec| spec.banks[0].leaves = Some(vec![LeafId(2), LeafId(9)]));
        assert!(text.contains("banks[0].leaves: leaf9 does not exist"), "{text}");
        let text = problems(|spec| spec.banks[0].leaves = Some(vec![LeafId(2)]));
        assert!(text.contains("1 leaves cannot have circuits"), "{text}");
        let port = |port| OcsPortId { ocs: OcsId(0), port };
        let text = problems(|spec| spec.occupied = vec![port(3), port(16), port(3)]);
        assert!(
            text.contains("occupied[1]: ocs0/p16 is not wired to a leaf; use p0 to p15"),
            "{text}"
        );
        assert!(text.contains("occupied[2]: ocs0/p3 is listed twice"), "{text}");
    }

    #[test]
    fn rates_of_banks_are_small_multiples_and_usable_circuits_are_permitted() {
        let text = problems(|spec| spec.banks[0].circuit_rate = Some(Text(BitsPerSecond(0))));
        assert!(text.starts_with("banks[0].circuit_rate: the rate is zero"), "{text}");
        let text = problems(|spec| {
            spec.banks.push(spec.banks[0].clone());
            spec.banks[0].circuit_rate = Some(Text(BitsPerSecond(400_000_000_001)));
        });
        assert!(text.contains("banks[0].circuit_rate: 400"), "{text}");
        let held = CrossConnect { ocs: OcsId(0), a_port: 0, b_port: 2, a: LeafId(0), b: LeafId(1) };
        let text = problems(|spec| {
            (spec.held, spec.usable) = (vec![held], vec![held]);
            spec.forbidden = vec![(LeafId(1), LeafId(0))];
        });
        assert!(text.starts_with("held[0]: no traffic can use the circuit"), "{text}");
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

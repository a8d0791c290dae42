// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::khop::{KhopRing, Port, Shape};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;
use rand::seq::IndexedRandom;

use super::*;

const LEAST: i32 = -14_000;

struct Plant {
    arrives: BTreeMap<FibreEnd, (FibreEnd, i32)>,
    names: bool,
}

impl Plant {
    fn of(planned: &[(FibreEnd, FibreEnd)], names: bool) -> Self {
        let both =
            planned.iter().flat_map(|(a, b)| [(a.clone(), b.clone()), (b.clone(), a.clone())]);
        Self { arrives: both.map(|(from, to)| (from, (to, -2_000))).collect(), names }
    }

    fn other(&self, end: &FibreEnd) -> Option<FibreEnd> {
        self.arrives.get(end).map(|(other, _)| other.clone())
    }

    fn join(&mut self, a: &FibreEnd, b: &FibreEnd) {
        for (from, to) in [(a, b), (b, a)] {
            self.arrives.insert(from.clone(), (to.clone(), -2_000));
        }
    }

    fn swap(&mut self, a: &FibreEnd, b: &FibreEnd) {
        let (Some(of_a), Some(of_b)) = (self.other(a), self.other(b)) else { return };
        if of_a == *b {
            return;
        }
        self.join(a, &of_b);
        self.join(b, &of_a);
    }

    fn pull(&mut self, a: &FibreEnd) {
        let Some(b) = self.other(a) else { return };
        self.arrives.remove(a);
        self.arrives.remove(&b);
    }

    fn read(&self, stand: &SwitchState) -> BTreeMap<DeviceName, Observation> {
        let is_on = |end: &FibreEnd| stand.get(&end.0).is_some_and(|at_| at(at_, end.1) == end.2);
        let mut read: BTreeMap<DeviceName, Observation> = stand
            .iter()
            .map(|(device, slots)| {
                let power_mdbm = slots.keys().map(|slot| (*slot, -40_000)).collect();
                let lit =
                    Observation { positions: slots.clone(), power_mdbm, ..Default::default() };
                (device.clone(), lit)
            })
            .collect();
        for (from, (to, power)) in &self.arrives {
            if is_on(from) && is_on(to) {
                let seen = read.get_mut(&to.0).expect("it stands");
                seen.power_mdbm.insert(to.1, *power);
                if self.names {
                    seen.neighbours.insert(to.1, end_name(from));
                }
            }
        }
        read
    }
}

fn ring(nodes: u32, k: u8) -> (Vec<FibreEnd>, Vec<(FibreEnd, FibreEnd)>) {
    let ring = KhopRing::new(4, k, Shape::Ring, (0..nodes).map(NodeId).collect()).expect("a ring");
    let end = |port: Port| -> FibreEnd {
        let device = DeviceName::from(port.bundle.to_string().as_str());
        (device, Slot(0), Position(u32::from(port.path)))
    };
    let planned: Vec<_> = ring
        .fibres()
        .map(|fibre| {
            let (a, b) = ring.ports(fibre);
            (end(a), end(b))
        })
        .collect();
    let mut ends: Vec<FibreEnd> =
        planned.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    ends.sort();
    (ends, planned)
}

fn resting(ends: &[FibreEnd]) -> SwitchState {
    let one = |(device, slot, _): &FibreEnd| (device.clone(), [(*slot, Position::LOOPBACK)].into());
    ends.iter().map(one).collect()
}

fn run(plant: &Plant, ends: &[FibreEnd], planned: &[(FibreEnd, FibreEnd)]) -> Commission {
    let mut commission = Commission::new(ends.to_vec(), planned, &resting(ends));
    while let Some(stand) = commission.next_round() {
        commission.heard(&plant.read(&stand), LEAST);
        assert!(commission.rounds() < 2_000, "{:?}", commission.progress());
    }
    commission
}

fn fibres(planned: &[(FibreEnd, FibreEnd)]) -> Vec<FibreEnds> {
    planned.iter().map(|(a, b)| FibreEnds { a: end_name(a), b: end_name(b) }).collect()
}

fn is_true(plant: &Plant, commission: &Commission) {
    // A module selects one fibre at a time, so it cannot be both ends of a fibre.
    let between = plant.arrives.iter().filter(|(from, (to, _))| from.0 != to.0);
    let lit_by: BTreeMap<String, String> =
        between.map(|(from, (to, _))| (end_name(to), end_name(from))).collect();
    for (end, source) in commission.found() {
        match (&source, lit_by.get(&end)) {
            (LightSource::End { end: by, .. }, Some(truth)) => assert_eq!(by, truth, "{end}"),
            (LightSource::Nothing, None) => {}
            (source, truth) => panic!("{end}: {source:?}, and truly {truth:?}"),
        }
    }
}

#[test]
fn commissions_ring_in_two_rounds_with_neighbour_names() {
    let (ends, planned) = ring(64, 2);
    let named = run(&Plant::of(&planned, true), &ends, &planned);
    assert_eq!(named.rounds(), 2);
    let plant = Plant::of(&planned, false);
    let nameless = run(&plant, &ends, &planned);
    is_true(&plant, &nameless);
    assert!(nameless.rounds() <= 2 * (1 + 2 * 7), "{}", nameless.rounds());
    let found = findings(&fibres(&planned), &nameless.found(), |_| None);
    assert!(found.iter().all(|(_, finding)| finding.is_good()));
}

#[test]
fn finds_every_drawn_cabling_mistake() {
    let mut most = [0; 2];
    for seed in 0..1_000_u64 {
        let mut rng = Seed(seed).stream("cabling", 0);
        let (ends, planned) = ring(rng.random_range(5..20), 2);
        let names = rng.random_bool(0.5);
        let mut plant = Plant::of(&planned, names);
        let mut wrong = BTreeSet::new();
        for _ in 0..2 {
            let [a, b] = [0, 1].map(|_| ends.choose(&mut rng).expect("ends").clone());
            let touched = [Some(a.clone()), Some(b.clone()), plant.other(&a), plant.other(&b)];
            match rng.random_range(0..4) {
                0 if a != b => plant.swap(&a, &b),
                1 => plant.pull(&a),
                // Light from `a` is lost, but the other direction still works.
                2 => drop(plant.arrives.remove(&a)),
                _ => {
                    if let Some((_, power)) = plant.arrives.get_mut(&a) {
                        *power = -12_000;
                    }
                }
            }
            wrong.extend(touched.into_iter().flatten().map(|end| end_name(&end)));
        }
        let commission = run(&plant, &ends, &planned);
        is_true(&plant, &commission);
        most[usize::from(names)] = most[usize::from(names)].max(commission.rounds());
        let found = findings(&fibres(&planned), &commission.found(), |_| Some(-6_000));
        for (fibre, finding) in found {
            let [a, b] = [&fibre.a, &fibre.b];
            let is_right = |from: &str, to: &str| {
                plant.arrives.iter().any(|(f, (t, power))| {
                    end_name(f) == from && end_name(t) == to && *power >= -6_000
                })
            };
            let truly = is_right(a, b) && is_right(b, a);
            assert_eq!(finding.is_good(), truly, "seed {seed}: {fibre:?}: {finding:?}");
            assert!(truly || wrong.contains(a) || wrong.contains(b), "seed {seed}: {fibre:?}");
        }
    }
    assert!(most[1] <= 40 && most[0] <= 80, "rounds: {most:?}");
}

#[test]
fn reports_two_swapped_plugs_as_one_swap() {
    let (ends, planned) = ring(8, 2);
    let mut plant = Plant::of(&planned, true);
    let [one, other] = [planned[3].0.clone(), planned[6].1.clone()];
    plant.swap(&one, &other);
    let found = run(&plant, &ends, &planned).found();
    let swaps = swaps(&fibres(&planned), &found);
    assert_eq!(swaps.len(), 1, "{swaps:?}");
    let mut put_right = plant;
    let by_name: BTreeMap<String, FibreEnd> =
        ends.iter().map(|end| (end_name(end), end.clone())).collect();
    put_right.swap(&by_name[&swaps[0].plugs[0]], &by_name[&swaps[0].plugs[1]]);
    assert!(planned.iter().all(|(a, b)| put_right.other(a).as_ref() == Some(b)));
}

#[test]
fn resumed_commissioning_skips_known_fibres() {
    let (ends, planned) = ring(16, 2);
    let mut plant = Plant::of(&planned, false);
    plant.pull(&ends[5]);
    let whole = run(&plant, &ends, &planned);
    let mut part = Commission::new(ends.clone(), &planned, &resting(&ends));
    for _ in 0..4 {
        let stand = part.next_round().expect("a round");
        part.heard(&plant.read(&stand), LEAST);
    }
    let mut again = Commission::new(ends.clone(), &planned, &resting(&ends));
    again.resume(&part.found());
    assert_eq!(again.progress(), part.progress());
    while let Some(stand) = again.next_round() {
        again.heard(&plant.read(&stand), LEAST);
    }
    assert_eq!(again.found(), whole.found());
}

#[test]
fn tests_busy_fibres_once_their_ends_are_free() {
    let (ends, planned) = ring(8, 2);
    let plant = Plant::of(&planned, true);
    let busy = |end: &FibreEnd| end.0.as_str().starts_with("n3/") || end.0.as_str() == "n5/b0";
    let free: Vec<FibreEnd> = ends.iter().filter(|end| !busy(end)).cloned().collect();
    let first = run(&plant, &free, &planned);
    for (fibre, finding) in findings(&fibres(&planned), &first.found(), |_| None) {
        let is_tried = [&fibre.a, &fibre.b].iter().all(|end| first.found().contains_key(*end));
        assert_eq!(finding.is_good(), is_tried, "{fibre:?}: {finding:?}");
        assert!(is_tried || matches!(finding, CablingFinding::Untried { .. }), "{finding:?}");
    }
    let mut then = Commission::new(ends.clone(), &planned, &resting(&ends));
    then.resume(&first.found());
    while let Some(stand) = then.next_round() {
        then.heard(&plant.read(&stand), LEAST);
    }
    let found = findings(&fibres(&planned), &then.found(), |_| None);
    assert!(found.iter().all(|(_, finding)| finding.is_good()), "{found:?}");
}

#[test]
fn excluded_module_is_not_reported_as_missing_cable() {
    let (ends, planned) = ring(8, 2);
    let plant = Plant::of(&planned, true);
    let mut commission = Commission::new(ends.clone(), &planned, &resting(&ends));
    let unreachable = ends[0].0.clone();
    commission.leave_out(&unreachable, "it does not answer");
    while let Some(stand) = commission.next_round() {
        assert!(!stand.contains_key(&unreachable));
        commission.heard(&plant.read(&stand), LEAST);
    }
    for (fibre, finding) in findings(&fibres(&planned), &commission.found(), |_| None) {
        let touches = [&fibre.a, &fibre.b].iter().any(|end| end.starts_with(unreachable.as_str()));
        match finding {
            CablingFinding::Untried { why } => assert!(touches && why.contains("does not answer")),
            finding => assert!(!touches && finding.is_good(), "{fibre:?}: {finding:?}"),
        }
    }
}

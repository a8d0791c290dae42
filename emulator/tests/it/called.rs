// SPDX-License-Identifier: Apache-2.0
//! A program that sends over a network during the run: the same times as a scenario, every byte
//! once, and faults at the same time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use lightloom_emulator::called::{Caller, PreparedProgram, ProgramOrder, ProgramSession, Stalled};
use lightloom_emulator::emulate;
use lightloom_emulator::scenario::file::{NamedFile, load, load_called};
use lightloom_emulator::scenario::{Scenario, plan};
use lightloom_fabric::document::Diagnostic;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use proptest::prelude::*;

fn shipped(name: &str) -> Result<NamedFile, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies").join(name);
    let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
    Ok(NamedFile { name: name.to_owned(), bytes })
}

fn called(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    load_called("it.yaml", text.as_bytes(), &mut shipped)
}

type Next<'a> = dyn FnMut(SimTime, u64) -> Vec<ProgramOrder> + 'a;

struct Program<'a> {
    orders: VecDeque<ProgramOrder>,
    next: Box<Next<'a>>,
    log: Rc<RefCell<Vec<(SimTime, u64)>>>,
}

impl Caller for Program<'_> {
    fn is_over(&mut self, now: SimTime, number: u64) {
        self.log.borrow_mut().push((now, number));
        self.orders.extend((self.next)(now, number));
    }
    fn take_orders(&mut self, _: SimTime, orders: &mut VecDeque<ProgramOrder>) {
        orders.append(&mut self.orders);
    }
}

struct Ran {
    log: Vec<(SimTime, u64)>,
    moved: [Bytes; 2],
    stalled: Option<Stalled>,
}

fn run<'a>(
    text: &str,
    first: Vec<ProgramOrder>,
    next: impl FnMut(SimTime, u64) -> Vec<ProgramOrder> + 'a,
) -> Ran {
    let (scenario, mistakes) = called(text);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = plan(&scenario).unwrap();
    let prepared = PreparedProgram::new(&scenario, &start).unwrap();
    let log = Rc::new(RefCell::new(Vec::new()));
    let program = Program { orders: first.into(), next: Box::new(next), log: log.clone() };
    let mut session = ProgramSession::open(&prepared, Box::new(program)).unwrap();
    let stalled = session.run().unwrap();
    let moved = session.moved();
    drop(session);
    let log = log.take();
    Ran { log, moved, stalled }
}

fn send(number: u64, from: u32, to: u32, bytes: u64) -> ProgramOrder {
    ProgramOrder::Send { number, from, to, bytes: Bytes(bytes) }
}

const NETWORKS: [&str; 4] = [
    "on: {ring: {hosts: 8}}",
    "on: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}",
    "on: {fat_tree: {radix: 4}}\ntransport: {congestion: dctcp}",
    "on: {rail_only: {domains: 4, gpus_per_domain: 4}}\ntransport: {host_delay: 300ns}",
];

#[test]
fn submitted_message_takes_the_time_of_a_scenario_flow() {
    for network in NETWORKS {
        for (to, bytes) in [(1, 1), (5, 64_000), (2, 1_000_001)] {
            let text = format!(
                "name: it\n{network}\ntraffic: [{{name: one, run: {{incast: h{to}}}, hosts: [h0, h{to}], bytes: {bytes}B}}]\n"
            );
            let (scenario, mistakes) = load("it.yaml", text.as_bytes(), &mut shipped);
            let scenario = scenario.unwrap_or_else(|| panic!("{text}{mistakes:?}"));
            let outcome = emulate(&scenario, 1, &mut ()).unwrap();
            let ran =
                run(&format!("name: it\n{network}\n"), vec![send(1, 0, to, bytes)], |_, _| {
                    Vec::new()
                });
            let expected = outcome.workloads[0].end.unwrap();
            assert_eq!(ran.log, [(expected, 1)], "{network} {to} {bytes}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn delivers_every_byte_and_completes_every_order_once(
        network in prop::sample::select(&NETWORKS[..]),
        first in prop::collection::vec((0u32..8, 1u32..8, 1u64..300_000), 1..20),
        more in prop::collection::vec((0u32..8, 1u32..8, 1u64..100_000), 0..20),
    ) {
        let order = |number: usize, (from, further, bytes): &(u32, u32, u64)| {
            send(number as u64, *from, (from + further) % 8, *bytes)
        };
        let begun = first.iter().enumerate().map(|(at, one)| order(at, one)).collect();
        let mut left: Vec<ProgramOrder> =
            more.iter().enumerate().map(|(at, one)| order(first.len() + at, one)).collect();
        let ran = run(&format!("name: it\n{network}\n"), begun, |_, _| left.pop().into_iter().collect());
        prop_assert!(ran.stalled.is_none());
        let mut numbers: Vec<u64> = ran.log.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        let done = (first.len() + more.len()).min(2 * first.len() + more.len());
        prop_assert_eq!(numbers.len(), done);
        numbers.dedup();
        prop_assert_eq!(numbers.len(), done);
        let sum: u64 = first.iter().chain(&more).map(|(.., bytes)| bytes).sum();
        prop_assert_eq!(ran.moved, [Bytes(sum), Bytes(sum)]);
        prop_assert!(ran.log.is_sorted_by_key(|(now, _)| *now));
    }
}

#[test]
fn timers_fire_in_order_and_messages_start_at_their_instant() {
    let wake = |number, at| ProgramOrder::Wake { number, at: SimTime(at) };
    let begun = vec![wake(1, 5_000), wake(2, 3_000), wake(3, 3_000)];
    let ran = run("name: it\non: {ring: {hosts: 4}}\n", begun, |now, number| match number {
        2 => vec![send(4, 0, 1, 1_000), wake(5, now.0)],
        _ => Vec::new(),
    });
    let at = |of| ran.log.iter().find(|(_, number)| *number == of).unwrap().0;
    let order: Vec<u64> = ran.log.iter().map(|(_, number)| *number).collect();
    assert_eq!(order, [2, 3, 5, 1, 4]);
    let alone =
        run("name: it\non: {ring: {hosts: 4}}\n", vec![send(4, 0, 1, 1_000)], |_, _| Vec::new());
    assert_eq!(at(4), alone.log[0].0 + Picoseconds(3_000));
}

#[test]
fn faults_and_scenario_traffic_run_next_to_the_program() {
    let network = "name: it\non: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}\n";
    let order = || vec![send(1, 0, 5, 4_000_000)];
    let calm = run(network, order(), |_, _| Vec::new());
    let faults = "faults: [{part: h0-s0, at: 20us, lasts: 200us}]\n";
    let cut = run(&format!("{network}{faults}"), order(), |_, _| Vec::new());
    assert!(cut.log[0].0 > calm.log[0].0 + Picoseconds::from_micros(150), "{:?}", cut.log);
    let traffic = "traffic: [{name: other, run: {shift: 1}, hosts: [h1..h7], bytes: 4MB}]\n";
    let beside = run(&format!("{network}{traffic}"), order(), |_, _| Vec::new());
    assert!(beside.log[0].0 > calm.log[0].0);
    assert!(beside.stalled.is_none() && cut.stalled.is_none());
}

#[test]
fn names_hosts_of_undelivered_messages() {
    let text = "name: it\non: {ring: {hosts: 4}}\nfaults: [{part: h1, at: 1us}]\n";
    let ran = run(text, vec![send(1, 0, 1, 4_000_000)], |_, _| Vec::new());
    let said = ran.stalled.unwrap().to_string();
    assert!(said.contains("h0") && said.contains("h1"), "{said}");
    assert!(ran.log.is_empty() && ran.moved[1] < Bytes(4_000_000));
}

/// Messages between neighbours of a lit ring take the ring's cable, or the network after a node of
/// the ring has failed.
#[test]
fn ring_neighbours_on_a_fabric_use_optical_circuits() {
    let text = "name: it\non: {fabric: ring-256.yaml}\n";
    let (scenario, mistakes) = called(text);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = plan(&scenario).unwrap();
    let ring = &start.plan.as_ref().unwrap().0;
    let inside = [ring.ranks[0].gpu, ring.ranks[3].gpu];
    assert_eq!(inside[0].node, inside[1].node, "0 and 3 are neighbours round a node");
    let time = |text: &str, to: u32| run(text, vec![send(1, 0, to, 1_000_000)], |_, _| Vec::new());
    // Rings of this fabric run at 1 Gb/s, its network at 400 Gb/s.
    let ring_time = Picoseconds::from_micros(8_000);
    for (to, is_neighbour) in [(3, true), (18, true), (2, false), (30, false)] {
        let ended = time(text, to).log[0].0;
        assert_eq!(ended > SimTime::START + ring_time, is_neighbour, "{to} {ended}");
    }
    let faults: String =
        (0..3).map(|bundle| format!("  - {{part: n4/b{bundle}, at: 100us}}\n")).collect();
    let cut = time(&format!("{text}faults:\n{faults}"), 18);
    assert!(
        cut.log[0].0 < SimTime::START + ring_time,
        "it goes on over the network: {:?}",
        cut.log
    );
    assert!(cut.stalled.is_none());
}

#[test]
fn program_file_rejects_expectations_and_locates_mistakes() {
    let text = "name: it\non: {ring: {hosts: 4}}\nexpect: [completes within 1ms]\n";
    let (scenario, mistakes) = called(text);
    assert!(scenario.is_none());
    assert!(mistakes[0].to_string().starts_with("it.yaml:3:"), "{}", mistakes[0]);
    let (scenario, mistakes) = called("name: it\non: {ring: {hots: 4}}\n");
    assert!(scenario.is_none());
    assert!(mistakes[0].to_string().starts_with("it.yaml:2:"), "{}", mistakes[0]);
}

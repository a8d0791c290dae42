// SPDX-License-Identifier: Apache-2.0
//! Runs tables of flows with dependencies packet by packet and compares them with isolated flows.

use lightloom_emulator::emulate;
use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_units::{Picoseconds, SimTime};

fn loaded(table: &str) -> Scenario {
    let text = "kind: scenario\nversion: 2\nname: table\n\
                on: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}\n\
                traffic: [{name: table, run: {flows: flows.csv}}]";
    let read =
        &mut |name: &str| Ok(NamedFile { name: name.to_owned(), bytes: table.as_bytes().to_vec() });
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    scenario.unwrap_or_else(|| panic!("{mistakes:?}"))
}

fn run(table: &str, threads: usize) -> Outcome {
    emulate(&loaded(table), threads, &mut ()).unwrap()
}

fn ends(outcome: &Outcome) -> Vec<SimTime> {
    outcome.flow_records.iter().map(|flow| flow.end.unwrap()).collect()
}

#[test]
fn dependent_flow_starts_when_its_predecessor_arrives() {
    // An isolated flow of 64 KiB over the spines that starts at time zero.
    let alone =
        ends(&run("start,src,dst,bytes\n0us,h5,h1,64KiB\n", 1))[0].since(SimTime::default());
    let table = "start,src,dst,bytes,id,after\n\
                 0us,h0,h5,64KiB,a,\n\
                 0us,h5,h1,64KiB,b,a\n\
                 0us,h0,h6,64KiB,c,a:acknowledged\n\
                 90us,h1,h4,64KiB,d,b\n";
    let outcome = run(table, 1);
    let [a, b, c, d] = ends(&outcome)[..] else { panic!("four flows") };
    // Acknowledgements of `a` leave by the same interface as the data of `b`, and a few delay it.
    let slack = Picoseconds::from_micros(1);
    let after = |end: SimTime, begin: SimTime| {
        let took = end.since(begin);
        assert!(took >= alone && took <= alone + slack, "{took} after the other, {alone} alone");
    };
    after(b, a);
    // The last acknowledgement takes more than zero time and less than a whole flow.
    let acknowledged = c.since(SimTime::default()) - alone;
    let received = a.since(SimTime::default());
    assert!(acknowledged > received && acknowledged < received + alone, "{acknowledged}");
    after(d, SimTime::default() + Picoseconds::from_micros(90));
    for threads in [2, 3] {
        assert_eq!(ends(&run(table, threads)), ends(&outcome), "{threads} threads");
    }
}

#[test]
fn zero_column_is_not_a_priority() {
    let zeros = "start,src,dst,bytes,priority\n0us,h0,h5,64KiB,0\n";
    let none = "start,src,dst,bytes\n0us,h0,h5,64KiB\n";
    assert_eq!(ends(&run(zeros, 1)), ends(&run(none, 1)));
}

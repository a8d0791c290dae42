// SPDX-License-Identifier: Apache-2.0
//! Prompt batches: a caller who sends when a batch ends acts like flows gated by messages.

use lightloom_engine::transport::{LossRecovery, Reordering, Transport};
use lightloom_engine::{
    Engine, EngineSettings, Event, FlowGate, FlowId, FlowSpec, LinkSpec, Network, NetworkBuilder,
    VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use proptest::prelude::*;

const LIMIT: SimTime = SimTime(100_000_000_000);

fn star(cables: &[(u64, u64)]) -> Network {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<VertexId> = cables.iter().map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    for (host, (rate, delay)) in hosts.iter().zip(cables) {
        let rate = BitsPerSecond::from_gbps(*rate);
        let link = LinkSpec::new(rate, Picoseconds::from_nanos(*delay));
        builder.connect(*host, switch, link.with_queue(Bytes(60_000), Bytes(60_000)));
    }
    builder.build().unwrap()
}

fn relay(sizes: &[u64], hosts: usize) -> Vec<FlowSpec> {
    let vertex = |at: usize| VertexId::from_index(at % hosts);
    let flow = |(at, size): (usize, &u64)| FlowSpec::new(vertex(at), vertex(at + 1), Bytes(*size));
    sizes.iter().enumerate().map(flow).collect()
}

fn by_gates(engine: &mut Engine, relays: &[Vec<FlowSpec>]) -> Vec<Vec<Option<SimTime>>> {
    let mut added: Vec<Vec<FlowId>> = Vec::new();
    for relay in relays {
        let mut flows: Vec<FlowId> = Vec::new();
        for flow in relay {
            let gates = flows.last().map(|last| FlowGate::after(*last)).into_iter().collect();
            flows.push(engine.add_flow(FlowSpec { gates, ..flow.clone() }).unwrap());
        }
        added.push(flows);
    }
    engine.run(LIMIT);
    let ends = |flows: &Vec<FlowId>| flows.iter().map(|flow| engine.record(*flow).end).collect();
    added.iter().map(ends).collect()
}

fn by_caller(engine: &mut Engine, relays: &[Vec<FlowSpec>]) -> Vec<Vec<Option<SimTime>>> {
    let mut ends: Vec<Vec<Option<SimTime>>> = vec![Vec::new(); relays.len()];
    let mut owners: Vec<usize> = Vec::new();
    let mut send = |engine: &mut Engine, relay: usize, place: usize| {
        let Some(flow) = relays[relay].get(place) else { return owners.clone() };
        let batch = engine.add_prompt_batch();
        assert_eq!(batch.index(), owners.len());
        owners.push(relay);
        engine.add_flow(flow.clone().at(engine.now()).in_batch(batch)).unwrap();
        owners.clone()
    };
    let mut owner: Vec<usize> = Vec::new();
    for relay in 0..relays.len() {
        owner = send(engine, relay, 0);
    }
    while let Some(event) = engine.next_event(LIMIT) {
        let Event::BatchDone { batch, at } = event else { unreachable!("no timer is set") };
        assert_eq!(engine.now(), at, "news comes when it happens");
        let relay = owner[batch.index()];
        ends[relay].push(Some(at));
        owner = send(engine, relay, ends[relay].len());
    }
    ends
}

fn settings(delay: u64, recovery: LossRecovery) -> EngineSettings {
    EngineSettings {
        transport: Transport { recovery, ..Transport::default() },
        host_delay: Picoseconds::from_nanos(delay),
        ..EngineSettings::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Relays start at different hosts, so that flows do not take turns there; they meet in the
    /// switch, where packets are lost.
    #[test]
    fn caller_sends_the_instant_a_gate_would_open(
        cables in prop::collection::vec((50u64..400, 1u64..900), 3..6),
        sizes in prop::collection::vec(1u64..200_000, 1..9),
        delay in prop_oneof![Just(0u64), 1u64..2_000],
        repeats in any::<bool>(),
    ) {
        let recovery = match repeats {
            true => LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(3) },
            false => LossRecovery::GoBackN,
        };
        let relays = [relay(&sizes, cables.len())];
        let make = || Engine::new(star(&cables), settings(delay, recovery)).unwrap();
        let (mut gated, mut called) = (make(), make());
        let expected = by_gates(&mut gated, &relays);
        prop_assert!(expected.iter().flatten().all(Option::is_some));
        prop_assert_eq!(by_caller(&mut called, &relays), expected);
        prop_assert_eq!(called.hops(), gated.hops());
    }
}

#[test]
fn reports_simultaneous_ends_before_time_advances() {
    let cables = [(100, 500); 6];
    let relays: Vec<Vec<FlowSpec>> = [0, 2, 4]
        .map(|first| {
            let [a, b] = [first, first + 1].map(VertexId::from_index);
            vec![FlowSpec::new(a, b, Bytes(64_000)), FlowSpec::new(b, a, Bytes(32_000))]
        })
        .to_vec();
    let make = || Engine::new(star(&cables), EngineSettings::default()).unwrap();
    let ends = by_caller(&mut make(), &relays);
    assert_eq!(ends, by_gates(&mut make(), &relays));
    assert!(ends.iter().all(|of| *of == ends[0]), "{ends:?}");
}

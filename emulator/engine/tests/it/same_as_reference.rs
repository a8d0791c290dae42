// SPDX-License-Identifier: Apache-2.0
//! Compares the engine with the reference engine: the same packets at the same picosecond on small random networks,
//! with drops, marks, losses, retransmissions, gated messages, and links that go dark or change their rate.

use crate::reference;
use lightloom_engine::transport::{Balance, LossRecovery, Reordering, Transport, Window};
use lightloom_engine::{
    ArrivalLog, Buffer, Chance, Choice, Engine, EngineSettings, FlowGate, FlowId, FlowSpec,
    LinkChange, LinkId, LinkSpec, Marking, Network, NetworkBuilder, PacketCount, Pause, Queueing,
    Schedule, Switching, VertexId, VertexRole,
};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use proptest::prelude::*;
use reference::{Reference, Seen, Totals};

/// Times are small and from few values, so that ties are frequent.
#[derive(Clone, Debug)]
struct Case {
    hosts: usize,
    switches: usize,
    extra: Vec<(usize, usize)>,
    /// Per cable, used cyclically: rate in Gb/s, delay in ns, queue and marking threshold in bytes.
    specs: Vec<(u64, u64, u64, u64)>,
    flows: Vec<FlowCase>,
    /// Cable, start and duration (ns).
    outages: Vec<(usize, u64, u64)>,
    /// Link, start (ns), and the amount of bit errors, packet loss or jitter ([`changes`]).
    errors: Vec<(usize, u64, u32)>,
    /// Link, start (ns), and rate in Gb/s; `None` restores the original rate.
    rates: Vec<(usize, u64, Option<u64>)>,
    window: u32,
    recovery: LossRecovery,
    balance: Balance,
    queueing: Option<Queueing>,
    marking: Marking,
    switching: Switching,
    host_delay: Picoseconds,
    /// `None` for measured timeouts.
    timeout: Option<Picoseconds>,
    tail_probe: Option<Picoseconds>,
    seed: u64,
}

#[derive(Clone, Debug)]
struct FlowCase {
    source: usize,
    step: usize,
    message: u64,
    messages: u32,
    start_ps: u64,
    gate: Option<(usize, i32)>,
    priority: u8,
}

const LIMIT: SimTime = SimTime(3_000_000_000);

fn transport(case: &Case) -> Transport {
    Transport {
        payload: Bytes(1_000),
        header: Bytes(24),
        acknowledgement: Bytes(40),
        window: Window::Packets(case.window),
        recovery: case.recovery,
        balance: case.balance,
        timeout: case.timeout,
        tail_probe: case.tail_probe.filter(|_| case.recovery != LossRecovery::GoBackN),
        ..Transport::default()
    }
}

fn network(case: &Case) -> Network {
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..case.hosts).map(|_| builder.add(VertexRole::Host)).collect();
    let switches: Vec<_> = (0..case.switches).map(|_| builder.add(VertexRole::Switch)).collect();
    let mut specs = case.specs.iter().cycle().map(|&(gbps, delay_ns, queue, mark)| {
        LinkSpec::new(BitsPerSecond::from_gbps(gbps), Picoseconds::from_nanos(delay_ns))
            .with_queue(Bytes(queue), Bytes(mark))
    });
    let mut next = || specs.next().expect("the specifications repeat");
    for (index, &host) in hosts.iter().enumerate() {
        builder.connect(host, switches[index % switches.len()], next());
    }
    for pair in switches.windows(2) {
        builder.connect(pair[0], pair[1], next());
    }
    for &(a, b) in &case.extra {
        let (a, b) = (switches[a % switches.len()], switches[b % switches.len()]);
        if a != b {
            builder.connect_unequal(a, b, next(), next());
        }
    }
    builder.build().expect("the case is sound")
}

fn flows(case: &Case) -> Vec<FlowSpec> {
    let mut flows: Vec<FlowSpec> = Vec::new();
    for flow in &case.flows {
        // A gated flow starts where the flow that it waits for ends.
        let gate = flow.gate.filter(|_| !flows.is_empty()).map(|(of, ahead)| {
            let of = of % flows.len();
            FlowGate { flow: FlowId::from_index(of), ahead }
        });
        let source = match gate {
            Some(gate) => flows[gate.flow.index()].destination,
            None => VertexId::from_index(flow.source % case.hosts),
        };
        let step = 1 + flow.step % (case.hosts - 1);
        let destination = VertexId::from_index((source.index() + step) % case.hosts);
        let start = SimTime(flow.start_ps);
        let spec = FlowSpec {
            messages: flow.messages,
            priority: flow.priority,
            gates: gate.into_iter().collect(),
            ..FlowSpec::new(source, destination, Bytes(flow.message)).at(start)
        };
        flows.push(spec);
    }
    flows
}

#[derive(Debug, PartialEq)]
struct Outcome {
    log: Vec<Seen>,
    ends: Vec<(Option<SimTime>, u32)>,
    totals: Totals,
}

fn settings(case: &Case, threads: usize) -> EngineSettings {
    EngineSettings {
        transport: transport(case),
        seed: Seed(case.seed),
        queueing: case.queueing,
        marking: case.marking,
        switching: case.switching,
        host_delay: case.host_delay,
        threads,
    }
}

type Ways = (Vec<Vec<LinkId>>, [Vec<Choice>; 2]);

fn run_engine(case: &Case, threads: usize) -> (Outcome, Vec<Ways>) {
    let settings = settings(case, threads);
    let mut engine = Engine::with_probe(network(case), settings, ArrivalLog::default()).unwrap();
    for flow in flows(case) {
        engine.add_flow(flow).unwrap();
    }
    let ways = |flow| {
        let paths = engine.paths(flow);
        (
            paths.iter().map(<[LinkId]>::to_vec).collect(),
            engine.choices(flow).first().cloned().unwrap_or_default(),
        )
    };
    let paths = (0..case.flows.len()).map(|i| ways(FlowId::from_index(i)));
    let paths = paths.collect();
    for (at, link, change) in changes(case, engine.network()) {
        engine.change_link(at, link, change);
    }
    engine.run(LIMIT);
    let packets = engine.packets();
    assert_eq!(
        packets.sent,
        packets.delivered + packets.dropped + packets.lost + packets.in_flight,
        "no packet is made or lost uncounted: {packets:?}"
    );
    let totals = Totals {
        sent: packets.sent,
        delivered: packets.delivered,
        dropped: packets.dropped,
        lost: packets.lost,
        marked: packets.marked,
        trimmed: packets.trimmed,
        pauses: packets.pauses,
    };
    let ends = engine.records().map(|record| (record.end, record.retransmitted)).collect();
    let arrivals = engine.probes().flat_map(|probe| &probe.0);
    let mut log: Vec<Seen> = arrivals
        .map(|arrival| Seen {
            at: arrival.at,
            link: arrival.link,
            sequence: arrival.sequence,
            acknowledgement: arrival.acknowledgement,
            marked: arrival.marked,
            wire_bytes: u64::from(arrival.wire_bytes),
            flow: engine.flow_of(arrival).index(),
        })
        .collect();
    log.sort_unstable();
    (Outcome { log, ends, totals }, paths)
}

fn changes(case: &Case, network: &Network) -> Vec<(SimTime, LinkId, LinkChange)> {
    let mut changes = Vec::new();
    for &(cable, at_ns, for_ns) in &case.outages {
        let link = LinkId::from_index(cable % network.links().len());
        // One direction of a cable, or every cable of a switch that restarts.
        let from = network.link(link).from;
        let is_switch = !network.role(from).is_host() && at_ns % 2 == 0;
        let out = network.outgoing(from).iter().filter(|_| is_switch);
        let links = out.flat_map(|link| [*link, link.reverse()]).chain([link]);
        for link in links {
            changes.push((SimTime(at_ns * 1_000), link, LinkChange::Down));
            changes.push((SimTime((at_ns + for_ns) * 1_000), link, LinkChange::Up));
        }
    }
    for &(link, at_ns, share) in &case.errors {
        let link = LinkId::from_index(link % network.links().len());
        let at = SimTime(at_ns * 1_000);
        changes.push(match at_ns % 3 {
            0 => (at, link, LinkChange::BitErrors(Chance::from_share(f64::from(share) / 1e9))),
            1 => (at, link, LinkChange::PacketLoss(Chance::from_share(f64::from(share) / 2e5))),
            // The engine determines an arrival when a packet is admitted, so jitter must start at
            // the beginning and stay.
            _ if changes
                .iter()
                .any(|(_, of, change)| of == &link && matches!(change, LinkChange::Jitter(_))) =>
            {
                continue;
            }
            _ => (SimTime::START, link, LinkChange::Jitter(Picoseconds::from_nanos(share.into()))),
        });
    }
    for &(link, at_ns, gbps) in &case.rates {
        let link = LinkId::from_index(link % network.links().len());
        let jitters = changes
            .iter()
            .any(|(_, of, change)| of == &link && matches!(change, LinkChange::Jitter(_)));
        let change = match gbps {
            Some(gbps) => LinkChange::Rate(BitsPerSecond::from_gbps(gbps)),
            None if jitters => LinkChange::Rate(network.link(link).spec.rate),
            None => LinkChange::Healthy,
        };
        changes.push((SimTime(at_ns * 1_000), link, change));
    }
    changes
}

fn run_reference(case: &Case, paths: Vec<Ways>) -> Outcome {
    let network = network(case);
    let mut reference = Reference::new(&network, settings(case, 1));
    for (flow, paths) in flows(case).into_iter().zip(paths) {
        reference.add_flow(flow, paths, case.window);
    }
    for (at, link, change) in changes(case, &network) {
        reference.change_link(at, link, change);
    }
    reference.run(LIMIT);
    let mut log = std::mem::take(&mut reference.log);
    log.sort_unstable();
    Outcome { log, ends: reference.ends(), totals: reference.totals }
}

fn start_at_an_arrival(case: &mut Case, log: &[Seen]) {
    let network = network(case);
    let flows = flows(case);
    let late = flows.len() - 1;
    let mut here = log.iter().filter(|seen| network.link(seen.link).to == flows[late].source);
    if let Some(seen) = here.nth(case.window as usize) {
        case.flows[late].start_ps = seen.at.0;
    }
}

fn flow_case() -> impl Strategy<Value = FlowCase> {
    let gate = prop::option::of((0usize..8, -2i32..2));
    let message = prop_oneof![1u64..9_000, (1u64..9).prop_map(|packets| packets * 1_000)];
    (0usize..6, 0usize..6, message, 1u32..4, 0u64..6, gate, 0u8..7).prop_map(
        |(source, step, message, messages, start, gate, priority)| FlowCase {
            source,
            step,
            message,
            messages,
            start_ps: (start * 500_000).saturating_sub(1_000_000),
            gate,
            priority,
        },
    )
}

fn queueing() -> impl Strategy<Value = Queueing> {
    let schedule = prop_oneof![
        Just(Schedule::Strict),
        prop::array::uniform8(0u32..4_000).prop_map(Schedule::Weighted),
    ];
    let buffer = (prop_oneof![3_000u64..30_000, 30_000u64..200_000], 20u32..400)
        .prop_map(|(size, alpha_percent)| Buffer { size: Bytes(size), alpha_percent });
    // Some limits are met continuously and some occasionally.
    let above = prop_oneof![0u64..7_000, 7_000u64..40_000];
    let pause = (any::<u8>(), above, 0u64..100, 0u64..12_000).prop_map(
        |(priorities, above, resume_percent, headroom)| Pause {
            priorities,
            pause_above: Bytes(above),
            resume_at: Bytes(above * resume_percent / 100),
            headroom: Bytes(headroom),
        },
    );
    let (buffer, pause) = (prop::option::of(buffer), prop::option::of(pause));
    (schedule, buffer, pause, any::<bool>()).prop_map(|(schedule, buffer, pause, trim)| Queueing {
        schedule,
        buffer,
        pause,
        trim,
    })
}

fn marking() -> impl Strategy<Value = Marking> {
    let ramp = (50u32..500, 0u32..101).prop_map(|(full_at_percent, most_percent)| Marking::Ramp {
        full_at_percent,
        most_percent,
    });
    prop_oneof![Just(Marking::Threshold), ramp]
}

fn switching() -> impl Strategy<Value = Switching> {
    prop_oneof![Just(Switching::StoreAndForward), Just(Switching::CutThrough)]
}

/// Zero, the link delay (so that ties are frequent), or arbitrary.
fn host_delay() -> impl Strategy<Value = Picoseconds> {
    let nanoseconds = prop_oneof![2 => Just(0u64), 1 => Just(500), 1 => 1u64..5_000];
    nanoseconds.prop_map(Picoseconds::from_nanos)
}

/// Many changes of one link within the time of a packet, so that several occur during a transmission.
fn rates() -> impl Strategy<Value = Vec<(usize, u64, Option<u64>)>> {
    let rate = prop::option::of(prop::sample::select(vec![1u64, 10, 33, 100, 400]));
    let change = (prop_oneof![Just(1usize), 0usize..40], 0u64..40_000, rate);
    prop::collection::vec(change, 0..9)
}

fn case() -> impl Strategy<Value = Case> {
    let rate = prop::sample::select(vec![10u64, 25, 33, 40, 100]);
    let delay = prop::sample::select(vec![100u64, 500, 1_000, 3_000]);
    // Whole packets, so that backlogs sometimes meet the limits exactly.
    let queue = prop_oneof![1_500u64..9_000, (2u64..9).prop_map(|packets| packets * 1_024)];
    let mark = prop_oneof![0u64..5_000, (0u64..5).prop_map(|packets| packets * 1_024)];
    let specs = prop::collection::vec((rate, delay, queue, mark), 1..4);
    let recovery = prop_oneof![
        Just(LossRecovery::GoBackN),
        (1u32..4).prop_map(|packets| LossRecovery::SelectiveRepeat {
            reordering: Reordering::Packets(packets)
        }),
        (1u32..100).prop_map(|percent| LossRecovery::SelectiveRepeat {
            reordering: Reordering::WindowPercent(percent)
        }),
    ];
    let balance = prop_oneof![
        2 => Just(Balance::PerFlow),
        2 => (2u16..5).prop_map(|paths| Balance::Spray { paths }),
        2 => Just(Balance::Adaptive),
    ];
    (
        (2usize..6, 1usize..4),
        prop::collection::vec((0usize..4, 0usize..4), 0..4),
        specs,
        prop::collection::vec(flow_case(), 1..9),
        prop::collection::vec((0usize..40, 0u64..30_000, 0u64..60_000), 0..4),
        (1u32..20, recovery, any::<u64>(), balance, (prop::option::of(1u64..16), any::<bool>())),
        (prop::option::of(queueing()), marking(), switching(), host_delay()),
        (prop::collection::vec((0usize..40, 0u64..30_000, 0u32..20_000), 0..3), rates()),
    )
        .prop_map(
            |((hosts, switches), extra, specs, flows, outages, rest, switching, changes)| Case {
                hosts,
                switches,
                extra,
                specs,
                flows,
                outages,
                window: rest.0,
                recovery: rest.1,
                seed: rest.2,
                balance: rest.3,
                tail_probe: rest.4.0.map(Picoseconds::from_micros),
                timeout: rest.4.1.then_some(Picoseconds::from_micros(20)),
                queueing: switching.0,
                marking: switching.1,
                switching: switching.2,
                host_delay: switching.3,
                errors: changes.0,
                rates: changes.1,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_match_the_reference_to_the_picosecond(case in case()) {
        let mut case = case;
        let (ours, _) = run_engine(&case, 1);
        start_at_an_arrival(&mut case, &ours.log);
        let (ours, paths) = run_engine(&case, 1);
        let theirs = run_reference(&case, paths);
        prop_assert_eq!(&ours.totals, &theirs.totals);
        prop_assert_eq!(&ours.ends, &theirs.ends);
        prop_assert_eq!(&ours.log, &theirs.log);
    }

    #[test]
    fn result_does_not_depend_on_the_number_of_shards(case in case(), shards in 2usize..6) {
        prop_assert_eq!(run_engine(&case, 1), run_engine(&case, shards));
    }
}

/// Data and acknowledgements use opposite directions, so nothing overtakes, and both queue
/// implementations send the same. `rates` belong to links of the case.
fn one_way(hosts: usize, case: Case) -> (Case, Network) {
    let case = Case { outages: Vec::new(), errors: Vec::new(), ..case };
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..2 * hosts).map(|_| builder.add(VertexRole::Host)).collect();
    let switches: Vec<_> = (0..case.switches).map(|_| builder.add(VertexRole::Switch)).collect();
    let mut specs = case.specs.iter().cycle().map(|&(gbps, delay_ns, ..)| {
        LinkSpec::new(BitsPerSecond::from_gbps(gbps), Picoseconds::from_nanos(delay_ns))
    });
    let mut next = || specs.next().expect("the specifications repeat");
    for pair in switches.windows(2) {
        builder.connect(pair[0], pair[1], next());
    }
    let (left, right) = hosts.split_at(hosts.len() / 2);
    for host in left {
        builder.connect(*host, switches[0], next());
    }
    let last = switches[switches.len() - 1];
    for host in right {
        builder.connect(last, *host, next());
    }
    let network = builder.build().expect("the case is sound");
    (case, network)
}

fn run_one_way(hosts: usize, case: &Case, queueing: Option<Queueing>) -> (Vec<String>, String) {
    let (case, network) = one_way(hosts, case.clone());
    let settings = EngineSettings { queueing, ..settings(&case, 1) };
    let all = changes(&case, &network);
    let mut engine = Engine::with_probe(network, settings, ArrivalLog::default()).unwrap();
    for flow in &case.flows {
        let [source, destination] = [flow.source % hosts, hosts + flow.step % hosts];
        let ends = [source, destination].map(VertexId::from_index);
        let spec = FlowSpec::new(ends[0], ends[1], Bytes(flow.message));
        let spec = FlowSpec { messages: 2 * flow.messages, ..spec.at(SimTime(flow.start_ps)) };
        engine.add_flow(spec).unwrap();
    }
    all.into_iter().for_each(|(at, link, change)| engine.change_link(at, link, change));
    engine.run(LIMIT);
    let mut log: Vec<String> =
        engine.probes().flat_map(|probe| &probe.0).map(|arrival| format!("{arrival:?}")).collect();
    log.sort_unstable();
    let ends: Vec<_> = engine.records().map(|record| (record.end, record.retransmitted)).collect();
    // With departures known on arrival, hops are counted on arrival.
    let packets = PacketCount { hops: 0, ..engine.packets() };
    (log, format!("{ends:?} {packets:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    /// Regression test: when a cable became fast again, waiting packets still left at the slow
    /// rate, and later packets waited behind them.
    #[test]
    fn rate_changes_match_configured_queues(hosts in 1usize..4, case in case()) {
        let [fifo, real] = [None, Some(Queueing::default())]
            .map(|queueing| run_one_way(hosts, &Case { balance: Balance::PerFlow, ..case.clone() }, queueing));
        prop_assert_eq!(&fifo.1, &real.1);
        prop_assert_eq!(&fifo.0, &real.0);
    }
}

/// Regression test: after a repair, the packet in transmission was counted at the new rate for the
/// rest of its time at the old one, which exceeded the queue: 3 packets were dropped.
#[test]
fn restoring_a_cable_rate_drops_no_packet_of_a_queued_window() {
    let run = |queueing| {
        let spec = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_nanos(500))
            .with_queue(Bytes(1 << 20), Bytes(1 << 20));
        let mut builder = NetworkBuilder::new();
        let [a, b] = [(); 2].map(|()| builder.add(VertexRole::Host));
        let switch = builder.add(VertexRole::Switch);
        builder.connect(a, switch, spec);
        builder.connect(switch, b, spec);
        let transport = Transport { window: Window::Packets(200), ..Transport::default() };
        let settings = EngineSettings { transport, queueing, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        let flow = engine.add_flow(FlowSpec::new(a, b, Bytes(8 << 20))).unwrap();
        let link = engine.paths(flow)[0][1];
        let slow = LinkChange::Rate(BitsPerSecond::from_gbps(1));
        engine.change_link(SimTime::START, link, slow);
        engine.change_link(SimTime(200_000_000), link, LinkChange::Healthy);
        engine.run(LIMIT);
        (engine.record(flow).end, PacketCount { hops: 0, ..engine.packets() })
    };
    let (fifo, real) = (run(None), run(Some(Queueing::default())));
    assert_eq!((fifo.1.dropped, fifo.1.retransmitted), (0, 0));
    assert_eq!(fifo, real);
}

#[test]
fn random_cases_cover_every_condition_under_test() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut dropped, mut marked, mut lost, mut resent, mut gated) = (0, 0, 0, 0, 0);
    let (mut trimmed, mut pauses, mut chosen) = (0, 0, 0);
    for _ in 0..600 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let (outcome, ways) = run_engine(&case, 1);
        let choices = ways.iter().flat_map(|(_, choices)| choices.iter().flatten());
        chosen += choices.filter(|choice| choice.links.len() > 1).count();
        dropped += outcome.totals.dropped;
        marked += outcome.totals.marked;
        lost += outcome.totals.lost;
        trimmed += outcome.totals.trimmed;
        pauses += outcome.totals.pauses;
        resent += outcome.ends.iter().map(|(_, resent)| resent).sum::<u32>();
        gated += flows(&case).iter().filter(|flow| !flow.gates.is_empty()).count();
    }
    let counts = [("dropped", dropped), ("marked", marked), ("lost", lost)];
    for (what, count) in counts.into_iter().chain([("trimmed", trimmed), ("paused", pauses)]) {
        assert!(count > 100, "only {count} packets {what}");
    }
    assert!(chosen > 20, "only {chosen} switches choose");
    assert!(resent > 100 && gated > 10, "{resent} sent again, {gated} flows gated");
}

/// When a link goes dark outside a window, the resulting resume frame for another shard is sent at that instant.
#[test]
fn frames_sent_by_a_link_change_reach_other_shards_in_time() {
    let pause = Pause {
        priorities: 43,
        pause_above: Bytes(1_024),
        resume_at: Bytes(0),
        headroom: Bytes(2_048),
    };
    let flow = FlowCase {
        source: 4,
        step: 1,
        message: 3_386,
        messages: 2,
        start_ps: 0,
        gate: None,
        priority: 0,
    };
    let case = Case {
        hosts: 4,
        switches: 3,
        extra: Vec::new(),
        specs: vec![(40, 3_000, 1_500, 0), (10, 3_000, 1_500, 0)],
        flows: vec![flow],
        outages: vec![(34, 27_229, 3_104)],
        errors: Vec::new(),
        rates: Vec::new(),
        window: 3,
        tail_probe: None,
        timeout: Some(Picoseconds::from_micros(20)),
        recovery: LossRecovery::GoBackN,
        balance: Balance::PerFlow,
        queueing: Some(Queueing { pause: Some(pause), ..Queueing::default() }),
        marking: Marking::Threshold,
        switching: Switching::StoreAndForward,
        host_delay: Picoseconds::ZERO,
        seed: 1_216_268_477_980_512_784,
    };
    assert_eq!(run_engine(&case, 1), run_engine(&case, 3));
}

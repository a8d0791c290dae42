// SPDX-License-Identifier: Apache-2.0
//! Islands give the same answers as one engine, to the picosecond, for every operation.

use crate::fabric;
use fabric::FABRIC;
use lightloom_collective::{CollectiveKind, Directions, Ring, Schedule};
use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::run::IslandReuse;
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_engine::capture::Watch;
use lightloom_engine::collective::{Placement, StartedCollective};
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::transport::{LossRecovery, Reordering, Transport, Window};
use lightloom_engine::{
    ArrivalLog, BatchId, Engine, EngineSettings, Event, FlowId, FlowRecord, FlowSpec, LinkChange,
    LinkId, LinkSpec, Network, NetworkBuilder, NoProbe, PacketArrival, PacketCount, PortCount,
    Route, Switching, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Rings of hosts, with chords that bypass a member, and cables between rings.
#[derive(Clone, Debug)]
struct World {
    rings: Vec<(usize, Vec<u8>)>,
    bridges: Vec<(usize, usize, u8)>,
    transport: Transport,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Begin { ring: usize, bypass: bool, bytes: u64, both: bool, repeat: u8 },
    GiveUp(usize),
    Change(usize, LinkChange),
    Flow(usize, usize, u64),
}

#[derive(Clone, Debug)]
struct Case {
    world: World,
    deeds: Vec<(u64, Deed)>,
    slice: u64,
}

fn spec(kind: u8) -> LinkSpec {
    let [rate, delay] = [[40, 700], [40, 300], [100, 700]][usize::from(kind % 3)];
    LinkSpec::new(BitsPerSecond::from_gbps(rate), Picoseconds::from_nanos(delay))
}

fn build(world: &World) -> (Network, Vec<Vec<VertexId>>) {
    let mut builder = NetworkBuilder::new();
    let mut rings = Vec::new();
    for (members, kinds) in &world.rings {
        let ring: Vec<VertexId> =
            (0..*members).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        for place in 0..*members {
            builder.connect(ring[place], ring[(place + 1) % members], spec(kinds[place]));
        }
        builder.connect(ring[0], ring[2], spec(kinds[0]));
        rings.push(ring);
    }
    let all: Vec<VertexId> = rings.concat();
    for (one, other, kind) in &world.bridges {
        let (one, other) = (all[one % all.len()], all[other % all.len()]);
        if one != other {
            builder.connect(one, other, spec(*kind));
        }
    }
    (builder.build().unwrap(), rings)
}

#[derive(Debug, PartialEq)]
struct Seen {
    events: Vec<(Event, SimTime)>,
    records: Vec<FlowRecord>,
    ports: Vec<PortCount>,
    packets: PacketCount,
    hops: u64,
}

struct Begun {
    ring: (Placement, Schedule),
    now: StartedCollective,
    left: u8,
}

fn drive<S: Stage>(stage: &mut S, case: &Case, rings: &[Vec<VertexId>]) -> Seen {
    let all: Vec<VertexId> = rings.concat();
    for (token, (at, _)) in case.deeds.iter().enumerate() {
        stage.set_timer(SimTime(*at), token as u64);
    }
    let mut begun: Vec<Begun> = Vec::new();
    let mut events = Vec::new();
    let mut limit = SimTime(0);
    while stage.next_due().is_some() && limit.0 < 40_000_000_000 {
        limit = SimTime(limit.0.saturating_add(case.slice));
        while let Some(event) = stage.next_event(limit) {
            events.push((event, stage.now()));
            match event {
                Event::Timer { token, .. } => {
                    act(stage, case.deeds[token as usize].1, rings, &all, &mut begun)
                }
                Event::BatchDone { batch, .. } => go_on(stage, batch, &mut begun),
            }
        }
    }
    let links = stage.network().links().len();
    Seen {
        events,
        records: stage.records().collect(),
        ports: (0..links).map(|link| stage.port_count(LinkId::from_index(link))).collect(),
        packets: stage.packets(),
        hops: stage.hops(),
    }
}

fn act<S: Stage>(
    stage: &mut S,
    deed: Deed,
    rings: &[Vec<VertexId>],
    all: &[VertexId],
    begun: &mut Vec<Begun>,
) {
    let now = stage.now();
    match deed {
        Deed::Begin { ring, bypass, bytes, both, repeat } => {
            let mut members = rings[ring % rings.len()].clone();
            if bypass {
                members.remove(1);
            }
            let directions = if both { Directions::Both } else { Directions::One };
            let (kind, size) = (CollectiveKind::AllReduce, Bytes(bytes));
            let ring = Ring { kind, ranks: members.len(), size, directions };
            let Ok(schedule) = ring.schedule() else { return };
            let placement = Placement::new(members, Route::Shortest).at(now);
            if let Ok(collective) = placement.start(&schedule, stage) {
                begun.push(Begun { ring: (placement, schedule), now: collective, left: repeat });
            }
        }
        Deed::GiveUp(which) => {
            if let Some(given_up) = begun.get(which) {
                given_up.now.cancel(stage);
            }
        }
        Deed::Change(link, change) => {
            let link = LinkId::from_index(link % stage.network().links().len());
            stage.change_link(now, link, change);
        }
        Deed::Flow(from, to, bytes) => {
            let (from, to) = (all[from % all.len()], all[to % all.len()]);
            // Both engines reject equal ends and unreachable hosts.
            drop(stage.add_flow(FlowSpec::new(from, to, Bytes(bytes))));
        }
    }
}

fn go_on<S: Stage>(stage: &mut S, batch: BatchId, begun: &mut [Begun]) {
    let now = stage.now();
    let Some(mine) = begun.iter_mut().find(|begun| begun.now.batch == batch) else { return };
    if mine.left > 0 && mine.now.end(stage).is_some() {
        mine.left -= 1;
        mine.ring.0.start = now;
        if let Ok(collective) = mine.ring.0.start(&mine.ring.1, stage) {
            mine.now = collective;
        }
    }
}

/// Returns arrivals with their flows, sorted by time, then by link.
fn arrivals(engine: &Engine<ArrivalLog>) -> Vec<(PacketArrival, FlowId)> {
    let seen = engine.probes().flat_map(|log| &log.0);
    let mut all: Vec<_> = seen.map(|arrival| (*arrival, engine.flow_of(arrival))).collect();
    all.sort_unstable_by_key(|(arrival, _)| (arrival.at, arrival.link));
    all
}

fn comparable(
    all: &[(PacketArrival, FlowId)],
) -> Vec<(SimTime, LinkId, u32, [bool; 2], u16, FlowId)> {
    let one = |(a, flow): &(PacketArrival, FlowId)| {
        (a.at, a.link, a.sequence, [a.acknowledgement, a.marked], a.wire_bytes, *flow)
    };
    all.iter().map(one).collect()
}

fn both_ways(case: &Case, threads: usize) -> (IslandEngine<ArrivalLog>, usize) {
    let plain =
        EngineSettings { transport: case.world.transport, threads, ..EngineSettings::default() };
    let switching = Switching::CutThrough;
    let slow = EngineSettings { switching, host_delay: Picoseconds::from_nanos(700), ..plain };
    run_both_ways(case, slow);
    run_both_ways(case, plain)
}

fn run_both_ways(case: &Case, settings: EngineSettings) -> (IslandEngine<ArrivalLog>, usize) {
    let (network, rings) = build(&case.world);
    let mut islands = IslandEngine::new(network.clone(), settings, ArrivalLog::default()).unwrap();
    let ours = drive(&mut islands, case, &rings);
    let mut engine = Engine::with_probe(network, settings, ArrivalLog::default()).unwrap();
    let theirs = drive(&mut engine, case, &rings);
    assert_eq!(ours.events, theirs.events);
    assert_eq!(ours, theirs);
    let seen = comparable(&islands.arrivals());
    assert_eq!(seen, comparable(&arrivals(&engine)));
    let arrivals = seen.len();
    let proven = islands.prove().unwrap();
    assert_eq!(proven.is_none(), islands.reuse().is_none());
    (islands, arrivals)
}

/// Runs without a probe, so that repetitions are skipped. Returns the number of skipped
/// packet-hops.
fn leap(case: &Case, settings: EngineSettings) -> u64 {
    let (network, rings) = build(&case.world);
    let mut islands = IslandEngine::new(network.clone(), settings, NoProbe).unwrap();
    let ours = drive(&mut islands, case, &rings);
    let mut engine = Engine::new(network, settings).unwrap();
    let theirs = drive(&mut engine, case, &rings);
    assert_eq!(ours.events, theirs.events);
    assert_eq!(ours, theirs);
    islands.reuse().map_or(0, |reuse| reuse.leapt_packet_hops)
}

fn change() -> impl Strategy<Value = LinkChange> {
    prop_oneof![
        3 => Just(LinkChange::Down),
        3 => Just(LinkChange::Up),
        2 => (1u64..80).prop_map(|gbps| LinkChange::Rate(BitsPerSecond::from_gbps(gbps))),
        1 => Just(LinkChange::Healthy),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (0usize..5, any::<bool>(), 1u64..40_000, any::<bool>(), 0u8..3).prop_map(
            |(ring, bypass, bytes, both, repeat)| Deed::Begin { ring, bypass, bytes, both, repeat }
        ),
        1 => (0usize..6).prop_map(Deed::GiveUp),
        4 => (0usize..80, change()).prop_map(|(link, change)| Deed::Change(link, change)),
        1 => (0usize..30, 0usize..30, 1u64..20_000).prop_map(|(a, b, c)| Deed::Flow(a, b, c)),
    ]
}

fn world() -> impl Strategy<Value = World> {
    let ring = (4usize..6, prop::collection::vec(0u8..3, 6));
    // Draw identical rings often, because the test is about reuse between them.
    let rings = (prop::collection::vec(ring, 1..3), prop::collection::vec(0usize..2, 2..6))
        .prop_map(|(kinds, places)| {
            places.iter().map(|place| kinds[place % kinds.len()].clone()).collect()
        });
    let bridges = prop::collection::vec((0usize..30, 0usize..30, 0u8..3), 0..2);
    let recovery = prop_oneof![
        Just(LossRecovery::GoBackN),
        Just(LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(1) })
    ];
    let window = prop_oneof![
        (1u32..9).prop_map(Window::Packets),
        Just(Window::BandwidthDelay { percent: 100 })
    ];
    (rings, bridges, recovery, window).prop_map(|(rings, bridges, recovery, window)| World {
        rings,
        bridges,
        transport: Transport {
            payload: Bytes(960),
            recovery,
            window,
            timeout: Some(Picoseconds::from_micros(20)),
            ..Transport::default()
        },
    })
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (0u64..8).prop_map(|t| t * 2_000_000), 0u64..30_000_000]
}

fn case() -> impl Strategy<Value = Case> {
    let all_begin = any::<bool>();
    let deeds = prop::collection::vec((time(), deed()), 1..9);
    let slice = prop_oneof![Just(40_000_000_000), 500_000u64..20_000_000];
    (world(), all_begin, deeds, slice).prop_map(|(world, all_begin, mut deeds, slice)| {
        if all_begin {
            let begin =
                |ring| Deed::Begin { ring, bypass: false, bytes: 9_000, both: true, repeat: 2 };
            deeds.splice(0..0, (0..world.rings.len()).map(|ring| (0, begin(ring))));
        }
        Case { world, deeds, slice }
    })
}

proptest! {
    #[test]
    fn islands_match_one_engine(case in case(), threads in 1usize..3) {
        both_ways(&case, threads);
    }
}

fn long_case() -> impl Strategy<Value = Case> {
    (case(), 10u64..60).prop_map(|(mut case, longer)| {
        for (at, deed) in &mut case.deeds {
            *at *= longer;
            match deed {
                Deed::Begin { bytes, .. } | Deed::Flow(_, _, bytes) => *bytes *= longer,
                Deed::GiveUp(_) | Deed::Change(..) => {}
            }
        }
        case.slice = case.slice.saturating_mul(longer);
        case
    })
}

proptest! {
    #[test]
    fn leaps_reach_the_same_state_as_packets(case in long_case(), cut_through: bool, delay in 0u64..2) {
        let switching = if cut_through { Switching::CutThrough } else { Switching::StoreAndForward };
        let host_delay = Picoseconds::from_nanos(700 * delay);
        let transport = case.world.transport;
        let settings = EngineSettings { transport, switching, host_delay, ..EngineSettings::default() };
        leap(&case, settings);
        run_both_ways(&case, settings);
    }
}

#[test]
fn long_cases_leap() {
    let mut runner = TestRunner::deterministic();
    let cases = (0..40).map(|_| long_case().new_tree(&mut runner).unwrap().current());
    let leapt = |case: Case| {
        leap(&case, EngineSettings { transport: case.world.transport, ..EngineSettings::default() })
    };
    let leapt: Vec<u64> = cases.map(leapt).collect();
    let some = leapt.iter().filter(|leapt| **leapt > 0).count();
    println!("{some} of 40 cases leap, over {} packet-hops", leapt.iter().sum::<u64>());
    assert!(some >= 5, "{leapt:?}");
}

fn alike(rings: usize) -> World {
    World {
        rings: vec![(5, vec![0, 1, 0, 1, 0, 0]); rings],
        bridges: Vec::new(),
        transport: Transport { payload: Bytes(960), ..Transport::default() },
    }
}

fn begin(ring: usize) -> (u64, Deed) {
    (0, Deed::Begin { ring, bypass: false, bytes: 100_000, both: false, repeat: 1 })
}

#[test]
fn only_one_of_identical_rings_is_simulated() {
    let deeds = (0..6).map(begin).collect();
    let (islands, arrivals) = both_ways(&Case { world: alike(6), deeds, slice: u64::MAX }, 1);
    let reuse = islands.reuse().unwrap();
    assert_eq!((reuse.islands, reuse.simulated), (6, 1));
    assert!(arrivals > 1_000, "{arrivals}");
}

#[test]
fn ring_is_simulated_separately_after_a_fault() {
    let mut deeds: Vec<_> = (0..6).map(begin).collect();
    deeds.push((30_000_000, Deed::Change(8, LinkChange::Down)));
    deeds.push((60_000_000, Deed::GiveUp(0)));
    let again = Deed::Begin { ring: 0, bypass: true, bytes: 100_000, both: false, repeat: 1 };
    deeds.push((90_000_000, again));
    let (islands, _) = both_ways(&Case { world: alike(6), deeds, slice: 1 << 40 }, 1);
    let reuse = islands.reuse().unwrap();
    assert_eq!(
        (reuse.islands, reuse.simulated),
        (7, 3),
        "all; the one that was hit; its next ring"
    );
}

#[test]
fn random_cases_cover_every_condition_under_test() {
    let mut runner = TestRunner::deterministic();
    let (mut apart, mut twins, mut many) = (0, 0, 0);
    for _ in 0..200 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let (islands, _) = both_ways(&case, 1);
        let Some(reuse) = islands.reuse() else { continue };
        apart += 1;
        twins += usize::from(reuse.simulated < reuse.islands);
        many += usize::from(reuse.simulated > 2);
    }
    println!("of 200: {apart} apart, {twins} with twins, {many} with three simulated or more");
    assert!(apart > 100 && apart < 200 && twins > 20 && many > 30, "{apart} {twins} {many}");
}

/// Returns how many of two rings are simulated if the second one starts with this operation and has
/// cables of these kinds.
fn simulated(second: (u64, Deed), kinds: Vec<u8>, before: &[(u64, Deed)]) -> usize {
    let mut world = alike(2);
    world.rings[1].1 = kinds;
    let deeds = before.iter().copied().chain([begin(0), second]).collect();
    let (islands, _) = both_ways(&Case { world, deeds, slice: 1 << 36 }, 1);
    let reuse = islands.reuse().unwrap();
    assert_eq!(reuse.islands, 2);
    reuse.simulated
}

#[test]
fn detects_every_difference_between_two_rings() {
    let kinds = vec![0, 1, 0, 1, 0, 0];
    let ring = |bytes, both, bypass| Deed::Begin { ring: 1, bypass, bytes, both, repeat: 1 };
    let same = ring(100_000, false, false);
    assert_eq!(simulated((0, same), kinds.clone(), &[]), 1, "the same");
    for other in
        [ring(100_001, false, false), ring(100_000, true, false), ring(100_000, false, true)]
    {
        assert_eq!(simulated((0, other), kinds.clone(), &[]), 2, "{other:?}");
    }
    assert_eq!(simulated((1, same), kinds.clone(), &[]), 2, "a picosecond later");
    for place in 0..5 {
        let mut other = kinds.clone();
        other[place] = 2;
        assert_eq!(simulated((0, same), other, &[]), 2, "cable {place}");
    }
    // The second ring's links follow the six cables of the first.
    let rate = LinkChange::Rate(BitsPerSecond::from_gbps(50));
    assert_eq!(simulated((0, same), kinds.clone(), &[(0, Deed::Change(12, rate))]), 2, "a rate");
    let later = [(9_000_000, Deed::Change(13, rate))];
    assert_eq!(simulated((0, same), kinds, &later), 2, "a rate in the middle");
}

/// Runs forty all-reduces of four rings with these faults: with reuse, with verified reuse (`None`
/// if no ring is reused), and without reuse.
fn scenario(faults: &str) -> [Option<Outcome>; 3] {
    let text = format!(
        "
name: test
on: {{fabric: fabric.yaml}}
seed: 7
collectives: [{{all_reduce: {{name: tensor, bytes: 256KiB, repeat: 40}}}}]
faults: [{faults}]
control: {{detection_delay: 20us, planning_delay: 10us}}
"
    );
    let read = &mut |name: &str| {
        Ok(NamedFile { name: name.to_owned(), bytes: FABRIC.as_bytes().to_vec() })
    };
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = scenario::plan(&scenario).unwrap();
    [IslandReuse::Reuse, IslandReuse::Proven, IslandReuse::Whole].map(|sharing| {
        let watch = Watch::default();
        let settings = lightloom_emulator::RunSettings { threads: 1, watch, sharing, series: None };
        let run = lightloom_emulator::emulate_from(&scenario, &start, settings, &mut ());
        match run {
            Err(lightloom_emulator::EmulateError::NothingSpared(_))
                if sharing == IslandReuse::Proven =>
            {
                None
            }
            run => Some(run.unwrap().outcome),
        }
    })
}

#[test]
fn reuse_does_not_change_the_result_of_a_scenario() {
    for faults in [
        "",
        "{part: n4, at: 50us}",
        "{part: n4/b0.1, at: 50us, effect: {rate: 100Gbps}, lasts: 100us}",
        "{part: n4/b0.1, at: 50us, effect: {flapping: {down: 10us, up: 5us, times: 4}}}",
        "{part: n4, at: 50us, lasts: 30us}, {part: n12, at: 55us}",
        "{part: n4/b0.1, at: 50us, effect: {bit_errors: 1e-6}, lasts: 200us}",
    ] {
        let [reused, proven, whole] = scenario(faults);
        let (reused, whole) = (reused.unwrap(), whole.unwrap());
        assert_eq!(proven.is_none(), reused.reuse.is_none(), "{faults}");
        assert!(proven.is_none_or(|proven| proven == reused), "{faults}");
        assert_eq!(Outcome { reuse: None, ..reused.clone() }, whole, "{faults}");
        let draws = faults.contains("bit_errors");
        assert_eq!(reused.reuse.is_none(), draws, "{faults}: only draws by link keep it whole");
        if faults.is_empty() {
            assert!(reused.reuse.unwrap().simulated < 4, "{:?}", reused.reuse);
        }
    }
}

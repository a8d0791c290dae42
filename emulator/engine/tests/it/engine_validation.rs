// SPDX-License-Identifier: Apache-2.0
//! Compares the engine with the table of closed forms in docs/validation-engine.md. `LIGHTLOOM_BLESS=1 cargo test -p
//! lightloom-engine --test it engine_validation::` rewrites the table.
use lightloom_collective::{
    AllToAll, CollectiveKind, Directions, Exchange, HalvingDoubling, Ring, Schedule,
};
use lightloom_engine::collective::{Placement, StartedCollective};
use lightloom_engine::topology::{self, RingShape};
use lightloom_engine::transport::Window;
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkSpec, NetworkBuilder, Route, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/validation-engine.md");
const BEGIN: &str =
    "<!-- closed forms: written by emulator/engine/tests/it/engine_validation.rs -->\n";
const END: &str = "<!-- end -->";
const LIMIT: SimTime = SimTime(1_000_000_000_000);
/// At 400 Gb/s.
const PACKET: u64 = 81_920;
const ACKNOWLEDGEMENT: u64 = 1_280;
const DELAY: u64 = 1_000_000;
const PAYLOAD: u64 = 4_032;

struct Row {
    work: String,
    form: &'static str,
    expected: u64,
    took: u64,
    /// Allowed excess over the closed form in ‰, for acknowledgements on the wire.
    slack: u64,
}

fn link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds(DELAY))
}

/// Its windows are large enough for acknowledgements that wait behind data.
fn engine(builder: NetworkBuilder) -> Engine {
    let mut settings = EngineSettings::default();
    settings.transport.window = Window::BandwidthDelay { percent: 150 };
    Engine::new(builder.build().unwrap(), settings).unwrap()
}

/// Each of `packets` is stored before it is forwarded.
fn message(packets: u64, hops: u64) -> u64 {
    (packets + hops - 1) * PACKET + hops * DELAY
}

fn chain(hops: u64) -> Row {
    let mut builder = NetworkBuilder::new();
    let first = builder.add(VertexRole::Host);
    let switches: Vec<_> = (1..hops).map(|_| builder.add(VertexRole::Switch)).collect();
    let last = builder.add(VertexRole::Host);
    let way: Vec<_> = [first].into_iter().chain(switches).chain([last]).collect();
    for pair in way.windows(2) {
        builder.connect(pair[0], pair[1], link());
    }
    let mut engine = engine(builder);
    let flow = engine.add_flow(FlowSpec::new(first, last, Bytes(1_000 * PAYLOAD))).unwrap();
    engine.run(LIMIT);
    let wires = if hops == 1 { "wire" } else { "wires" };
    Row {
        work: format!("1,000 packets over {hops} {wires}"),
        form: "(n + h − 1)·t + h·d",
        expected: message(1_000, hops),
        took: engine.record(flow).end.unwrap().0,
        slack: 0,
    }
}

fn ring(ranks: u64, kind: CollectiveKind, directions: Directions) -> Row {
    let mut builder = NetworkBuilder::new();
    let members: Vec<_> = (0..ranks).map(|_| builder.add(VertexRole::Host)).collect();
    topology::Ring::build_into(&mut builder, &members, RingShape::Ring, |_| link());
    let mut engine = engine(builder);
    let (ways, name, slack) = match directions {
        Directions::One => (1, "one direction", 0),
        Directions::Both => (2, "both directions", 1_000 * ACKNOWLEDGEMENT / PACKET + 1),
    };
    let piece = 64;
    let size = Bytes(ranks * ways * piece * PAYLOAD);
    let ring = Ring { kind, ranks: members.len(), size, directions };
    let running = start(&ring.schedule().unwrap(), members, &mut engine);
    engine.run(LIMIT);
    let (steps, form) = match kind {
        CollectiveKind::AllReduce => (2 * (ranks - 1), "2(N − 1)·(p·t + d)"),
        _ => (ranks - 1, "(N − 1)·(p·t + d)"),
    };
    Row {
        work: format!("ring {}, {ranks} ranks, {name}, 64 packets per chunk", kind.name()),
        form,
        expected: steps * message(piece, 1),
        took: took(&running, &engine),
        slack,
    }
}

fn star(hosts: u64) -> (Engine, Vec<VertexId>) {
    let mut builder = NetworkBuilder::new();
    let switch = builder.add(VertexRole::Switch);
    let members: Vec<_> = (0..hosts).map(|_| builder.add(VertexRole::Host)).collect();
    for member in &members {
        builder.connect(*member, switch, link());
    }
    (engine(builder), members)
}

fn halving_doubling(ranks: u64) -> Row {
    let (mut engine, members) = star(ranks);
    let size = Bytes(ranks * 64 * PAYLOAD);
    let collective = HalvingDoubling { ranks: members.len(), size };
    let running = start(&collective.schedule().unwrap(), members, &mut engine);
    engine.run(LIMIT);
    let halves = (1..=ranks.ilog2()).map(|step| message((ranks * 64) >> step, 2));
    Row {
        work: format!("halving-doubling, {ranks} ranks under one switch"),
        form: "2 Σ ((n/2ᵏ + 1)·t + 2·d)",
        expected: 2 * halves.sum::<u64>(),
        took: took(&running, &engine),
        slack: 1_000 * ACKNOWLEDGEMENT / PACKET + 1,
    }
}

fn pairwise(ranks: u64) -> Row {
    let (mut engine, members) = star(ranks);
    let size = Bytes(ranks * 64 * PAYLOAD);
    let all = AllToAll { ranks: members.len(), size, exchange: Exchange::Pairwise };
    let running = start(&all.schedule().unwrap(), members, &mut engine);
    engine.run(LIMIT);
    Row {
        work: format!("pairwise all-to-all, {ranks} ranks under one switch"),
        form: "(N − 1)·((p + 1)·t + 2·d)",
        expected: (ranks - 1) * message(64, 2),
        took: took(&running, &engine),
        slack: 1_000 * ACKNOWLEDGEMENT / PACKET + 1,
    }
}

fn incast(senders: u64) -> Row {
    let (mut engine, hosts) = star(senders + 1);
    for sender in &hosts[1..] {
        engine.add_flow(FlowSpec::new(*sender, hosts[0], Bytes(100 * PAYLOAD))).unwrap();
    }
    engine.run(LIMIT);
    Row {
        work: format!("incast of 100 packets each from {senders} hosts, unbounded queue"),
        form: "(m·n + 1)·t + 2·d",
        expected: message(100 * senders, 2),
        took: engine.records().map(|record| record.end.unwrap().0).max().unwrap(),
        slack: 0,
    }
}

fn start(schedule: &Schedule, members: Vec<VertexId>, engine: &mut Engine) -> StartedCollective {
    Placement::new(members, Route::Shortest).start(schedule, engine).unwrap()
}

fn took(collective: &StartedCollective, engine: &Engine) -> u64 {
    collective.end(engine).unwrap().0
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = [1, 2, 4, 6].into_iter().map(chain).collect();
    rows.extend([4, 32, 128].map(|ranks| ring(ranks, CollectiveKind::AllReduce, Directions::One)));
    rows.extend([4, 32].map(|ranks| ring(ranks, CollectiveKind::AllReduce, Directions::Both)));
    rows.push(ring(32, CollectiveKind::ReduceScatter, Directions::One));
    rows.push(ring(32, CollectiveKind::AllGather, Directions::One));
    rows.extend([8, 64].map(halving_doubling));
    rows.push(pairwise(16));
    rows.extend([8, 32].map(incast));
    rows
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| work | closed form | form, µs | engine, µs | difference |\n| --- | --- | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let apart = match row.took == row.expected {
            true => "0 ps".to_owned(),
            false => format!("{:+.3} %", (row.took as f64 / row.expected as f64 - 1.0) * 100.0),
        };
        let [form, engine] = [row.expected, row.took].map(|time| time as f64 / 1e6);
        text += &format!("| {} | {} | {form:.3} | {engine:.3} | {apart} |\n", row.work, row.form);
    }
    text
}

#[test]
fn runs_match_every_closed_form_within_its_slack() {
    for row in rows() {
        let most = row.expected * (1_000 + row.slack) / 1_000;
        assert!(
            (row.expected..=most).contains(&row.took),
            "{}: {} {}",
            row.work,
            row.expected,
            row.took
        );
    }
}

#[test]
fn validation_page_matches_the_engine() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (kept, after) = rest.split_once(END).unwrap();
    let today = table(&rows());
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{today}{END}{after}")).unwrap();
        return;
    }
    assert!(kept == today, "docs/validation-engine.md is out of date: run with LIGHTLOOM_BLESS=1");
}

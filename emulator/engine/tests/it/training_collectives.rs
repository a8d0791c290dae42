// SPDX-License-Identifier: Apache-2.0
//! Ring all-reduce compared with published plateaus, at the documented share of the data-sheet rate.
use lightloom_collective::{CollectiveKind, Directions, Ring};
use lightloom_engine::collective::Placement;
use lightloom_engine::topology::{self, RingShape};
use lightloom_engine::{
    Engine, EngineSettings, LinkSpec, NetworkBuilder, Route, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const TABLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/collectives_measured.csv");

/// Share of the data-sheet rate that rings reach inside a node, headers included (docs/mfu.md).
const RING_EFFICIENCY: [(&str, f64); 3] =
    [("A100 NVLink3", 0.78), ("H100 NVLink4", 0.83), ("B200 NVLink5", 0.79)];

/// Bus bandwidth in GB/s of a large all-reduce in a ring of `ranks` that each send `gbytes_per_s`.
fn bus_bandwidth(ranks: usize, gbytes_per_s: f64) -> f64 {
    let mut builder = NetworkBuilder::new();
    let members: Vec<VertexId> = (0..ranks).map(|_| builder.add(VertexRole::Host)).collect();
    let one_way = BitsPerSecond((gbytes_per_s * 8e9 / 2.0) as u64);
    let link = LinkSpec::new(one_way, Picoseconds::from_nanos(500));
    topology::Ring::build_into(&mut builder, &members, RingShape::Ring, |_| link);
    let mut engine = Engine::new(builder.build().unwrap(), EngineSettings::default()).unwrap();
    let (kind, size, directions) = (CollectiveKind::AllReduce, Bytes(512 << 20), Directions::Both);
    let ring = Ring { kind, ranks, size, directions }.schedule().unwrap();
    let running = Placement::new(members, Route::Shortest).start(&ring, &mut engine).unwrap();
    engine.run(SimTime(u64::MAX));
    let took = running.end(&engine).unwrap().since(SimTime::START);
    size.0 as f64 / took.as_secs_f64() * kind.bus_factor(ranks) / 1e9
}

#[test]
fn ring_plateaus_are_within_five_percent() {
    let Ok(table) = std::fs::read_to_string(TABLE) else {
        eprintln!("skipped: no ../shared/data");
        return;
    };
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let [hardware, gpus, link, kind, algorithm, bandwidth] =
        ["hardware", "gpus", "link_GBps_per_gpu", "collective", "algo", "busbw_GBps"].map(column);
    let mut compared = 0;
    for line in lines.filter(|line| !line.contains('"')) {
        let cells: Vec<&str> = line.split(',').collect();
        if cells[kind] != "all_reduce" || cells[algorithm] != "ring" {
            continue;
        }
        let known = RING_EFFICIENCY.iter().find(|(name, _)| *name == cells[hardware]);
        let Some((name, efficiency)) = known else { continue };
        let rate: f64 = cells[link].parse().unwrap();
        let measured: f64 = cells[bandwidth].parse().unwrap();
        let ours = bus_bandwidth(cells[gpus].parse().unwrap(), rate * efficiency);
        let error = ours / measured - 1.0;
        assert!(error.abs() < 0.05, "{name}: {ours:.0} against {measured} GB/s");
        compared += 1;
    }
    assert_eq!(compared, RING_EFFICIENCY.len());
}

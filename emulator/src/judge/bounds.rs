//! What no run can beat: the closed form of a workload's messages on their paths, and what each host has to send and
//! to receive over all of its cables. The tightest is shown, by name.

use std::collections::BTreeMap;

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{Islands, Stage};
use lightloom_engine::transport::Transport;
use lightloom_engine::{Route, VertexId};
use lightloom_units::{Bytes, Picoseconds};

use crate::run::workload::Step;
use crate::substrate::Substrate;

/// A lower bound of a time, and what it comes from.
pub(super) struct Bound {
    pub(super) time: Picoseconds,
    pub(super) of: String,
}

/// The tightest lower bound of one repetition of a workload.
pub(super) fn tightest(substrate: &Substrate, engine: &Islands<Watch>, step: &Step) -> Bound {
    let transport = engine.transport();
    let (mut sends, mut receives) = (BTreeMap::new(), BTreeMap::new());
    for flow in step.flows().map(|flow| engine.record(flow)) {
        // What was given up need not arrive.
        if flow.cancelled {
            continue;
        }
        let bytes = on_wire(transport, flow.size);
        *sends.entry(flow.source).or_insert(0u128) += bytes;
        *receives.entry(flow.destination).or_insert(0u128) += bytes;
    }
    let path = Bound { time: step.ideal, of: "path".to_owned() };
    let of_host = |verb: &'static str| {
        move |(host, bytes): (&VertexId, &u128)| Bound {
            time: time_for(*bytes, rate(substrate, *host)),
            of: format!("{} {verb}", substrate.name(*host)),
        }
    };
    let all = sends.iter().map(of_host("sends")).chain(receives.iter().map(of_host("receives")));
    all.fold(path, |best, bound| if bound.time > best.time { bound } else { best })
}

/// What data of this size occupies on a wire at least: full packets and one that may be short.
fn on_wire(transport: &Transport, size: Bytes) -> u128 {
    let packets = u128::from(size.0.div_ceil(transport.payload.0.max(1)));
    u128::from(size.0) + packets * u128::from(transport.header.0)
}

/// The rates of all cables of a host that workloads may use, together, in bits a second.
fn rate(substrate: &Substrate, host: VertexId) -> u128 {
    let cables = substrate.network.outgoing(host).iter();
    let specs = cables.map(|cable| substrate.network.link(*cable).spec);
    let usable = specs.filter(|spec| match &substrate.route {
        Route::Within(plane) => spec.plane == *plane,
        _ => true,
    });
    usable.map(|spec| u128::from(spec.rate.0)).sum()
}

fn time_for(bytes: u128, rate: u128) -> Picoseconds {
    let time = bytes * 8 * 1_000_000_000_000 / rate.max(1);
    Picoseconds(u64::try_from(time).unwrap_or(u64::MAX))
}

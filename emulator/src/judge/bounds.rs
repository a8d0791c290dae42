// SPDX-License-Identifier: Apache-2.0
//! Lower bounds on a workload's time: the closed form of its messages, and traffic across network cuts.

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::transport::Transport;
use lightloom_units::{Bytes, Picoseconds};

use super::cuts::{Cut, Cuts};
use crate::run::workload::Repetition;

pub(super) struct Bound {
    pub(super) time: Picoseconds,
    pub(super) of: String,
}

#[derive(Clone, Copy, Default)]
struct CutTraffic([u128; 2]);

pub(super) fn tightest(cuts: &Cuts, engine: &IslandEngine<Watch>, step: &Repetition) -> Bound {
    let transport = engine.transport();
    let mut crossings = vec![CutTraffic::default(); cuts.all.len()];
    for flow in step.flows().map(|flow| engine.record(flow)) {
        if flow.cancelled {
            continue;
        }
        let bytes = on_wire(transport, flow.size);
        let ends = [flow.source, flow.destination].map(|end| &cuts.around[end.index()][..]);
        for (way, (inside, outside)) in [(ends[0], ends[1]), (ends[1], ends[0])].iter().enumerate()
        {
            for cut in inside.iter().filter(|cut| outside.binary_search(cut).is_err()) {
                crossings[*cut as usize].0[way] += bytes;
            }
        }
    }
    let mut best = (step.ideal, None);
    for (cut, crossing) in cuts.all.iter().zip(&crossings) {
        for (way, bytes) in crossing.0.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            let time = time_for(bytes, cut.rates[way]);
            if time > best.0 {
                best = (time, Some((cut, way)));
            }
        }
    }
    let of = best.1.map_or("path".to_owned(), |(cut, way)| says(cut, way));
    Bound { time: best.0, of }
}

fn says(cut: &Cut, way: usize) -> String {
    let verb = match (way, cut.hosts) {
        (0, 1) => "sends",
        (0, _) => "send",
        (_, 1) => "receives",
        _ => "receive",
    };
    format!("{} {verb}", cut.name)
}

fn on_wire(transport: &Transport, size: Bytes) -> u128 {
    let packets = u128::from(size.0.div_ceil(transport.payload.0.max(1)));
    u128::from(size.0) + packets * u128::from(transport.header.0)
}

/// Returns 0 if no link leaves the set, because flows that never finish have no bound.
fn time_for(bytes: u128, rate: u128) -> Picoseconds {
    let time = (bytes * 8 * 1_000_000_000_000).checked_div(rate).unwrap_or_default();
    Picoseconds(u64::try_from(time).unwrap_or(u64::MAX))
}

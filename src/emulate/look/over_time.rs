// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lightloom_emulator::run::Series;
use lightloom_emulator::substrate::Substrate;
use lightloom_engine::capture::{Counter, Watch};
use lightloom_engine::{Engine, FlowId, LinkId};
use lightloom_units::{Bytes, SimTime};

pub(super) const MOST_CURVES: usize = 64;

pub(super) fn ports_csv(series: &Series, substrate: &Substrate) -> String {
    let mut csv = String::from(
        "time_ps,link,queue_bytes,sent_bytes,rate_bits_per_s,marked,dropped,lost,paused_ps\n",
    );
    for row in &series.rows {
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{},{},{},{}",
            row.at.0,
            substrate.link_name(row.link),
            row.queue.0,
            row.sent.0,
            row.rate.0,
            row.marked,
            row.dropped,
            row.lost,
            row.paused.0,
        );
    }
    csv
}

/// The sender's state is omitted after the last byte. The pace is omitted if congestion control does not set one.
pub(super) fn flows_csv(series: &Series, engine: &Engine<Watch>, substrate: &Substrate) -> String {
    let mut csv = String::from(
        "time_ps,flow,src,dst,delivered_bytes,rate_bits_per_s,resent,in_flight_packets,window_packets,pace_bits_per_s\n",
    );
    let shown = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    for row in &series.flows {
        let record = engine.record(row.flow);
        let sending = row.sending;
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{},{},{},{},{}",
            row.at.0,
            row.flow.index(),
            substrate.name(record.source),
            substrate.name(record.destination),
            row.delivered.0,
            row.rate.0,
            row.resent,
            shown(sending.map(|end| end.in_flight.into())),
            shown(sending.map(|end| end.window.into())),
            shown(sending.and_then(|end| end.pace).map(|pace| pace.0)),
        );
    }
    csv
}

pub(super) fn curves(
    series: &Series,
    engine: &Engine<Watch>,
    substrate: &Substrate,
) -> Vec<Counter> {
    let mut curves = port_curves(series, substrate);
    curves.extend(flow_curves(series, engine, substrate));
    curves
}

fn busiest<K: Ord + Copy>(rows: impl Iterator<Item = (K, Bytes)>) -> Vec<K> {
    let mut bytes: BTreeMap<K, u64> = BTreeMap::new();
    for (whose, more) in rows {
        *bytes.entry(whose).or_default() += more.0;
    }
    let mut all: Vec<(K, u64)> = bytes.into_iter().collect();
    all.sort_by_key(|(whose, bytes)| (std::cmp::Reverse(*bytes), *whose));
    let mut kept: Vec<K> = all.into_iter().take(MOST_CURVES).map(|(whose, _)| whose).collect();
    kept.sort_unstable();
    kept
}

fn curve(
    process: &'static str,
    name: String,
    unit: &'static str,
    points: impl Iterator<Item = (SimTime, u64)>,
) -> Option<Counter> {
    let points: Vec<(SimTime, u64)> = points.collect();
    points.iter().any(|(_, value)| *value > 0).then_some(Counter { process, name, unit, points })
}

fn port_curves(series: &Series, substrate: &Substrate) -> Vec<Counter> {
    const PROCESS: &str = "ports over time";
    let links: Vec<LinkId> = busiest(series.rows.iter().map(|row| (row.link, row.sent)));
    let mut curves = Vec::new();
    for link in links {
        let rows = || series.rows.iter().filter(|row| row.link == link);
        let name = |figure: &str| format!("{} {figure}", substrate.link_name(link));
        curves.extend(curve(PROCESS, name("queue"), "bytes", rows().map(|r| (r.at, r.queue.0))));
        curves.extend(curve(PROCESS, name("rate"), "bits/s", rows().map(|r| (r.at, r.rate.0))));
        curves.extend(curve(PROCESS, name("paused"), "ps", rows().map(|r| (r.at, r.paused.0))));
        curves.extend(curve(PROCESS, name("marked"), "packets", rows().map(|r| (r.at, r.marked))));
    }
    curves
}

fn flow_curves(series: &Series, engine: &Engine<Watch>, substrate: &Substrate) -> Vec<Counter> {
    const PROCESS: &str = "flows over time";
    let flows: Vec<FlowId> = busiest(series.flows.iter().map(|row| (row.flow, row.delivered)));
    let mut curves = Vec::new();
    for flow in flows {
        let record = engine.record(flow);
        let ends = (substrate.name(record.source), substrate.name(record.destination));
        let name =
            |figure: &str| format!("flow {} {} to {} {figure}", flow.index(), ends.0, ends.1);
        let rows = || series.flows.iter().filter(|row| row.flow == flow);
        let window = rows().map(|r| (r.at, r.sending.map_or(0, |end| end.window.into())));
        curves.extend(curve(PROCESS, name("window"), "packets", window));
        curves.extend(curve(PROCESS, name("rate"), "bits/s", rows().map(|r| (r.at, r.rate.0))));
        curves.extend(curve(PROCESS, name("resent"), "packets", rows().map(|r| (r.at, r.resent))));
        let pace = rows().map(|r| (r.at, r.sending.and_then(|end| end.pace).map_or(0, |p| p.0)));
        curves.extend(curve(PROCESS, name("pace"), "bits/s", pace));
    }
    curves
}

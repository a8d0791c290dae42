// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lightloom_emulator::run::{FlowSeriesRow, Series, SeriesRow};
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
    for row in &series.flows {
        let record = engine.record(row.flow);
        let sending = row.sending;
        let [in_flight, window, pace] = [
            sending.map(|end| end.in_flight.into()),
            sending.map(|end| end.window.into()),
            sending.and_then(|end| end.pace).map(|pace| pace.0),
        ]
        .map(|number: Option<u64>| number.map_or(String::new(), |number| number.to_string()));
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{},{},{in_flight},{window},{pace}",
            row.at.0,
            row.flow.index(),
            substrate.name(record.source),
            substrate.name(record.destination),
            row.delivered.0,
            row.rate.0,
            row.resent,
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

/// A curve's name, its unit and its value in a row.
type Figure<R> = (&'static str, &'static str, fn(&R) -> u64);

const PORT_FIGURES: [Figure<SeriesRow>; 4] = [
    ("queue", "bytes", |row| row.queue.0),
    ("rate", "bits/s", |row| row.rate.0),
    ("paused", "ps", |row| row.paused.0),
    ("marked", "packets", |row| row.marked),
];

const FLOW_FIGURES: [Figure<FlowSeriesRow>; 4] = [
    ("window", "packets", |row| row.sending.map_or(0, |end| end.window.into())),
    ("rate", "bits/s", |row| row.rate.0),
    ("resent", "packets", |row| row.resent),
    ("pace", "bits/s", |row| row.sending.and_then(|end| end.pace).map_or(0, |pace| pace.0)),
];

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
        let name = substrate.link_name(link);
        let rows = series.rows.iter().filter(|row| row.link == link);
        for (figure, unit, value) in PORT_FIGURES {
            let values = rows.clone().map(|row| (row.at, value(row)));
            curves.extend(curve(PROCESS, format!("{name} {figure}"), unit, values));
        }
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
        let name = format!("flow {} {} to {}", flow.index(), ends.0, ends.1);
        let rows = series.flows.iter().filter(|row| row.flow == flow);
        for (figure, unit, value) in FLOW_FIGURES {
            let values = rows.clone().map(|row| (row.at, value(row)));
            curves.extend(curve(PROCESS, format!("{name} {figure}"), unit, values));
        }
    }
    curves
}

// SPDX-License-Identifier: Apache-2.0
//! Time series of ports: samples add up to the result, and sampling does not change it.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::run::{IslandReuse, Looks, Series, SeriesRow};
use lightloom_emulator::{RunSettings, emulate_from, scenario};
use lightloom_engine::LinkId;
use lightloom_engine::capture::Watch;
use lightloom_units::{Bytes, Picoseconds, SimTime};

fn run(switches: &str, series: Option<Picoseconds>) -> (Outcome, Series, Vec<Totals>, String) {
    let text = format!(
        "name: x\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 4}}}}\n{switches}\
         traffic: [{{name: a, run: {{incast: h0}}, bytes: 256KiB}}]\n\
         faults: [{{part: h5, at: 20us, lasts: 30us}}]\ncontrol: {{detection_delay: 10us}}\n"
    );
    let read = &mut |name: &str| Err(format!("cannot read {name}"));
    let (loaded, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    let loaded = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = scenario::plan(&loaded).unwrap();
    let series = series.map(|every| Looks { every, ports: true, flows: true });
    let settings =
        RunSettings { threads: 1, watch: Watch::default(), sharing: IslandReuse::Reuse, series };
    let finished = emulate_from(&loaded, &start, settings, &mut ()).unwrap();
    let engine = finished.engine.engine().unwrap();
    let links = (0..engine.network().links().len()).map(LinkId::from_index);
    let totals = links.map(|link| engine.port_count(link));
    let totals = totals
        .map(|count| [count.bytes, count.marked, count.dropped, count.lost, count.paused_ps])
        .collect();
    (finished.outcome, finished.series, totals, text)
}

type Totals = [u64; 5];

fn sums(rows: &[SeriesRow], links: usize) -> Vec<Totals> {
    let mut sums = vec![[0; 5]; links];
    for row in rows {
        let more = [row.sent.0, row.marked, row.dropped, row.lost, row.paused.0];
        sums[row.link.index()].iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    sums
}

/// Checks that the activity of flows between samples adds up to the result, and that only copies of
/// packets exceed the window.
fn require_flows(series: &Series, outcome: &Outcome) {
    let flows = &outcome.flow_records;
    let mut delivered = vec![0; flows.len()];
    let mut resent = vec![0; flows.len()];
    for row in &series.flows {
        delivered[row.flow.index()] += row.delivered.0;
        let again = &mut resent[row.flow.index()];
        *again += row.resent;
        if let Some(end) = row.sending {
            let copies = u64::from(end.in_flight).saturating_sub(u64::from(end.window));
            assert!(end.window > 0 && copies <= *again, "{row:?}");
        }
    }
    let sizes: Vec<u64> = flows.iter().map(|flow| flow.size.0).collect();
    assert_eq!(delivered, sizes);
    assert_eq!(resent.iter().sum::<u64>(), outcome.head.packets.retransmitted);
}

#[test]
fn port_series_add_up_and_do_not_change_the_run() {
    for switches in [
        "",
        "switches: {queue: 64KiB, mark_from: 16KiB}\n",
        "switches: {schedule: strict}\n",
        "switches: {pause: {priorities: [0], above: 32KiB}}\n",
        "switches: {queue: 32KiB, mark_from: 16KiB, trim: true}\ntransport: {recovery: {selective_repeat: {reordering: 64}}}\n",
        "switches: {buffer: {size: 256KiB}, cut_through: true}\n",
    ] {
        let (mut plain, none, totals, text) = run(switches, None);
        assert_eq!(none, Series::default());
        for every in [Picoseconds::from_micros(10), Picoseconds::from_nanos(1_700)] {
            let (mut seen, series, same, _) = run(switches, Some(every));
            plain.head.wall_seconds = 0.0;
            seen.head.wall_seconds = 0.0;
            assert_eq!((&plain, &totals), (&seen, &same), "{text}");
            assert_eq!(sums(&series.rows, totals.len()), totals, "{text}");
            let held = series.rows.iter().map(|row| row.queue).max().unwrap();
            assert!(held > Bytes::ZERO && held <= plain.queues.max_bytes * 2, "{text}{held}");
            require_flows(&series, &seen);
            let last = series.rows.last().unwrap().at;
            let is_placed = |row: &SeriesRow| {
                row.at == last || row.at.since(SimTime::START).0.is_multiple_of(every.0)
            };
            assert!(series.rows.iter().all(is_placed), "{text}");
        }
        let paused: u64 = totals.iter().map(|totals| totals[4]).sum();
        assert_eq!(plain.queues.paused.0, paused);
        assert_eq!(paused > 0, switches.contains("pause"), "{text}{paused}");
    }
}

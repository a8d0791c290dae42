// SPDX-License-Identifier: Apache-2.0
//! Records one run as a timeline for Perfetto, packets for tshark, and tables of links, ports and flows.

mod over_time;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use lightloom_emulator::outcome::{FaultResult, Outcome as Run};
use lightloom_emulator::run::{Looks, Series};
use lightloom_emulator::scenario::{Collective, Scenario};
use lightloom_emulator::substrate::Substrate;
use lightloom_engine::capture::{
    Slice, Tap, TimelineTrack, Watch, host_tracks, link_tracks, write_pcapng, write_timeline,
};
use lightloom_engine::{Engine, LinkId, PacketArrival};
use lightloom_units::Picoseconds;

use crate::files;
use crate::output::{self, WrongUsage};

const MOST_PACKETS: usize = 5_000_000;

#[derive(Debug, clap::Args)]
pub(super) struct Recordings {
    /// Write a timeline for Perfetto and Chrome: tracks for groups (collectives, faults), ranks
    /// (sent flows) and the ports of `--pcap-port`
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    timeline: Option<PathBuf>,
    /// Write the packets of the `--pcap-port` ports as pcapng, for tshark and Wireshark
    #[arg(long, value_name = "FILE", requires = "pcap_port", value_parser = files::destination)]
    pcap: Option<PathBuf>,
    /// Parts whose links are recorded: nodes `n17`, GPUs `n17/g2`, interfaces
    /// `n17/nic2`, bundles `n17/b0`, fibres `n17/b0.2`, ToRs `t3`; in a network, hosts `h3`,
    /// switches `s0` and cables `h3-s0`
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pcap_port: Vec<String>,
    /// Write the traffic of every link to this file: link,bytes,packets,dropped,marked,lost
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    links_out: Option<PathBuf>,
    /// Write samples of ports over time to this file:
    /// time_ps,link,queue_bytes,sent_bytes,rate_bits_per_s,marked,dropped,lost,paused_ps
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    series_out: Option<PathBuf>,
    /// Write samples of flows over time to this file:
    /// time_ps,flow,src,dst,delivered_bytes,rate_bits_per_s,resent,in_flight_packets,window_packets,pace_bits_per_s
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    flow_series_out: Option<PathBuf>,
    /// Sampling interval of ports and flows [default: 10us]; with `--timeline`, adds curves of the
    /// 64 busiest ports and flows
    #[arg(long, value_name = "TIME", value_parser = interval)]
    series_every: Option<Picoseconds>,
}

fn interval(text: &str) -> Result<Picoseconds, String> {
    match text.parse::<Picoseconds>() {
        Ok(Picoseconds::ZERO) => Err("the interval must be above 0, such as `10us`".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

impl Recordings {
    pub(super) fn is_asked_for(&self) -> bool {
        self.timeline.is_some()
            || self.pcap.is_some()
            || self.links_out.is_some()
            || self.series_out.is_some()
            || self.flow_series_out.is_some()
    }

    pub(super) fn refuse_idle(&self) -> anyhow::Result<()> {
        if self.series_every.is_some() && self.series().is_none() {
            let message = "--series-every is the sampling interval of ports and flows: add --series-out, \
                --flow-series-out or --timeline";
            return Err(WrongUsage(message.into()).into());
        }
        Ok(())
    }

    pub(super) fn refuse_packets(&self, scenario: &Scenario) -> anyhow::Result<()> {
        let is_scaled = scenario.phases.is_some_and(|phases| phases.scale != Some(1));
        let looks = self.pcap.is_some() || !self.pcap_port.is_empty() || self.series().is_some();
        if !is_scaled || !looks {
            return Ok(());
        }
        let message = "a run of phases is scaled down and each packet represents many, so `--pcap`, \
                       `--pcap-port` and series would mislead: use `--timeline`, `--links-out` or `--flows-out`, or set \
                       `phases: {scale: 1}`";
        Err(WrongUsage(message.into()).into())
    }

    pub(super) fn series(&self) -> Option<Looks> {
        let draws = self.timeline.is_some() && self.series_every.is_some();
        let (ports, flows) = (self.series_out.is_some(), self.flow_series_out.is_some());
        let every = self.series_every.unwrap_or(Picoseconds::from_micros(10));
        let looks = Looks { every, ports: ports || draws, flows: flows || draws };
        (looks.ports || looks.flows).then_some(looks)
    }

    pub(super) fn watch(&self, substrate: &Substrate) -> anyhow::Result<Watch> {
        if self.pcap_port.is_empty() {
            return Ok(Watch::default());
        }
        let (mut links, mut wrong) = (Vec::new(), Vec::new());
        for part in &self.pcap_port {
            match substrate.part(part) {
                Ok(found) => links.extend(found.links),
                Err(error) => wrong.push(format!("--pcap-port: {error}")),
            }
        }
        if !wrong.is_empty() {
            return Err(WrongUsage(wrong.join("\n")).into());
        }
        links.sort_unstable();
        links.dedup();
        Ok(Watch::with_tap(Tap::new(&links, MOST_PACKETS)))
    }

    pub(super) fn write(
        &self,
        result: &Run,
        engine: &Engine<Watch>,
        substrate: &Substrate,
        series: &Series,
    ) -> anyhow::Result<()> {
        let packets = Watch::packets(engine.probes());
        if let Some(path) = &self.timeline {
            let mut bytes = Vec::new();
            let curves = over_time::curves(series, engine, substrate);
            write_timeline(&mut bytes, &tracks(result, engine, substrate, &packets), &curves)?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.pcap {
            if packets.is_empty() {
                let ports = self.pcap_port.join(", ");
                output::note(&format!(
                    "note: no packet passed {ports}: {} is empty (rings leave a node over its bundles, such as n17/b0)",
                    path.display()
                ));
            }
            let mut bytes = Vec::new();
            write_pcapng(&mut bytes, engine, &packets, &|link| substrate.link_name(link))?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.links_out {
            files::write(path, links_csv(engine, substrate).as_bytes())?;
        }
        if let Some(path) = &self.series_out {
            files::write(path, over_time::ports_csv(series, substrate).as_bytes())?;
        }
        if let Some(path) = &self.flow_series_out {
            files::write(path, over_time::flows_csv(series, engine, substrate).as_bytes())?;
        }
        if let Some(at) = series.full_at {
            output::note(&format!(
                "the series ends at {at} with {} rows of ports and {} of flows: choose a longer --series-every",
                series.rows.len(),
                series.flows.len(),
            ));
        }
        Ok(())
    }
}

fn tracks(
    result: &Run,
    engine: &Engine<Watch>,
    substrate: &Substrate,
    packets: &[PacketArrival],
) -> Vec<TimelineTrack> {
    let mut tracks = workload_tracks(result);
    tracks.extend(phase_tracks(result));
    tracks.extend(result.faults.iter().filter_map(|fault| fault_track(result, fault)));
    // In a scaled-down run, the engine's clock differs from the times in the result.
    if result.scale == 1 {
        tracks.extend(host_tracks(engine, &|host| substrate.name(host).to_owned()));
    } else {
        tracks.extend(flow_tracks(result));
    }
    tracks.extend(link_tracks(engine, packets, &|link| substrate.link_name(link)));
    tracks
}

/// Each phase starts when the previous one ends, so it includes its slack.
fn phase_tracks(result: &Run) -> Vec<TimelineTrack> {
    if result.phases.is_empty() {
        return Vec::new();
    }
    let ends = result.phases.iter().skip(1).map(|phase| phase.start).chain([result.head.simulated]);
    let phases = result.phases.iter().zip(ends).map(|(phase, end)| Slice {
        name: format!("{} of step {}", phase.name, phase.step),
        begin: phase.start,
        end: end.max(phase.start),
    });
    let changed = result.phases.iter().filter(|phase| phase.transition.0 > 0);
    let changes = changed.map(|phase| Slice {
        name: format!("circuits of {}", phase.name),
        begin: phase.start,
        end: phase.start + phase.transition,
    });
    let tracks = [("phases", phases.collect()), ("changes of circuits", changes.collect())];
    let tracks = tracks.map(|(name, slices)| TimelineTrack {
        process: "phases",
        name: name.to_owned(),
        slices,
    });
    tracks.into()
}

fn flow_tracks(result: &Run) -> Vec<TimelineTrack> {
    let mut hosts: BTreeMap<&str, Vec<Slice>> = BTreeMap::new();
    for (number, flow) in result.flow_records.iter().enumerate() {
        if let Some(end) = flow.end {
            let name = format!("flow {number} to {}", flow.destination);
            hosts.entry(&flow.source).or_default().push(Slice { name, begin: flow.start, end });
        }
    }
    let tracks = hosts.into_iter().map(|(name, slices)| TimelineTrack {
        process: "hosts",
        name: name.into(),
        slices,
    });
    tracks.collect()
}

fn workload_tracks(result: &Run) -> Vec<TimelineTrack> {
    let mut tracks: Vec<TimelineTrack> = Vec::new();
    for collective in &result.workloads {
        let group = match collective.group {
            Some(group) => group.to_string(),
            None if collective.kind == Collective::BETWEEN_GROUPS => "all groups".to_owned(),
            None => collective.name.clone(),
        };
        if tracks.last().is_none_or(|track| track.name != group) {
            tracks.push(TimelineTrack { process: "groups", name: group, slices: Vec::new() });
        }
        let track = tracks.last_mut().expect("one was added");
        let name = match collective.restarts {
            0 => collective.name.clone(),
            restarts => format!("{} (restarted {restarts} times)", collective.name),
        };
        let (begin, end) = (collective.start, collective.end.unwrap_or(result.head.simulated));
        track.slices.push(Slice { name, begin, end: end.max(begin) });
    }
    tracks
}

fn fault_track(result: &Run, fault: &FaultResult) -> Option<TimelineTrack> {
    let at = fault.at?;
    let stages =
        [("not known", Some(at)), ("planning", fault.detected), ("switching", fault.replanned)];
    let ends = [fault.detected, fault.replanned, fault.restored];
    let slices = stages.into_iter().zip(ends).filter_map(|((name, begin), end)| {
        let begin = begin?;
        let end =
            end.or(fault.restored).or(fault.repaired).unwrap_or(result.head.simulated).max(begin);
        Some(Slice { name: name.to_owned(), begin, end })
    });
    Some(TimelineTrack {
        process: "faults",
        name: format!("{} {}", fault.what(), fault.effect),
        slices: slices.collect(),
    })
}

fn links_csv(engine: &Engine<Watch>, substrate: &Substrate) -> String {
    let mut csv = String::from("link,bytes,packets,dropped,marked,lost\n");
    for link in (0..engine.network().links().len()).map(LinkId::from_index) {
        let (name, count) = (substrate.link_name(link), engine.port_count(link));
        let _ = writeln!(
            csv,
            "{name},{},{},{},{},{}",
            count.bytes, count.packets, count.dropped, count.marked, count.lost
        );
    }
    csv
}

//! Looking into one run: a timeline for Perfetto, packets for tshark, a table of all links.

use std::fmt::Write as _;
use std::path::PathBuf;

use lightloom_emulator::scenario::{FaultResult, Installed, Kind, Outcome as Run, Target};
use lightloom_emulator::traffic::Plant;
use lightloom_engine::capture::{
    Slice, Tap, Track, Watch, host_tracks, link_tracks, write_pcapng, write_timeline,
};
use lightloom_engine::{Arrival, Engine, LinkId, PortCount, VertexId};
use lightloom_fabric::fabric::Fabric;
use lightloom_units::SimTime;

use crate::files;
use crate::output::WrongUsage;

/// Packets that are kept of the chosen ports at most.
const MOST_PACKETS: usize = 5_000_000;

/// What to write about one run.
#[derive(Debug, clap::Args)]
pub(super) struct Look {
    /// Write a timeline that Perfetto and Chrome open: a track for each group with its collectives and
    /// its faults, one for each rank with what it sends, and one for each port of `--pcap-port`.
    #[arg(long, value_name = "FILE")]
    pub(super) timeline: Option<PathBuf>,
    /// Write the packets of the ports of `--pcap-port` as pcapng, which tshark and Wireshark read.
    #[arg(long, value_name = "FILE", requires = "pcap_port")]
    pub(super) pcap: Option<PathBuf>,
    /// Watch all links of these parts: nodes `n17`, GPUs `n17/g2`, interfaces `n17/nic2`, bundles `n17/b0`,
    /// fibres `n17/b0.2`, ToRs `t3`; of a network, hosts `h3`, switches `s0` and cables `h3-s0`.
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub(super) pcap_port: Vec<String>,
    /// Write what every link carried to this file: link,bytes,packets,dropped,marked,lost.
    #[arg(long, value_name = "FILE")]
    pub(super) links_out: Option<PathBuf>,
}

/// How users call the parts of a run.
pub(super) struct Names<'a> {
    pub(super) host: &'a dyn Fn(VertexId) -> String,
    pub(super) link: &'a dyn Fn(LinkId) -> String,
}

impl Look {
    /// Whether anything of one run is to be written.
    pub(super) fn is_asked_for(&self) -> bool {
        self.timeline.is_some() || self.pcap.is_some() || self.links_out.is_some()
    }

    /// What to watch the run with.
    ///
    /// # Errors
    /// Every part that the fabric does not have.
    pub(super) fn watch(&self, fabric: &Fabric) -> anyhow::Result<Watch> {
        if self.pcap_port.is_empty() {
            return Ok(Watch::default());
        }
        let (network, installed) = Installed::build(fabric)?;
        self.watch_links(|part| {
            let target: Target = part.parse().map_err(|error| format!("{error}"))?;
            target.require(fabric).map_err(|error| error.to_string())?;
            Ok(installed.links_of_target(fabric, &network, target))
        })
    }

    /// What to watch a run on a network with.
    ///
    /// # Errors
    /// Every part that the network does not have.
    pub(super) fn watch_plant(&self, plant: &Plant) -> anyhow::Result<Watch> {
        self.watch_links(|part| {
            plant.spot(part).map(|spot| plant.links_of(spot)).map_err(|error| error.to_string())
        })
    }

    fn watch_links(
        &self,
        links_of: impl Fn(&str) -> Result<Vec<LinkId>, String>,
    ) -> anyhow::Result<Watch> {
        if self.pcap_port.is_empty() {
            return Ok(Watch::default());
        }
        let (mut links, mut wrong) = (Vec::new(), Vec::new());
        for part in &self.pcap_port {
            match links_of(part) {
                Ok(found) => links.extend(found),
                Err(message) => wrong.push(format!("--pcap-port: {message}")),
            }
        }
        if !wrong.is_empty() {
            return Err(WrongUsage(wrong.join("\n")).into());
        }
        links.sort_unstable();
        links.dedup();
        Ok(Watch::with_tap(Tap::new(&links, MOST_PACKETS)))
    }

    /// Writes what was asked for.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(
        &self,
        result: &Run,
        engine: &Engine<Watch>,
        names: &Names<'_>,
    ) -> anyhow::Result<()> {
        let packets = Watch::packets(engine.probes());
        if let Some(path) = &self.timeline {
            let mut bytes = Vec::new();
            write_timeline(&mut bytes, &tracks(result, engine, names, &packets))?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.pcap {
            let mut bytes = Vec::new();
            write_pcapng(&mut bytes, engine, &packets)?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.links_out {
            files::write(path, links_csv(named_links(engine, names)).as_bytes())?;
        }
        Ok(())
    }
}

/// Groups with their collectives, faults with their healing, ranks with their flows, watched ports.
fn tracks(
    result: &Run,
    engine: &Engine<Watch>,
    names: &Names<'_>,
    packets: &[Arrival],
) -> Vec<Track> {
    let mut tracks = group_tracks(result);
    tracks.extend(result.faults.iter().map(|fault| fault_track(result, fault)));
    tracks.extend(host_tracks(engine, &names.host));
    tracks.extend(link_tracks(engine, packets, &names.link));
    tracks
}

fn group_tracks(result: &Run) -> Vec<Track> {
    let mut tracks: Vec<Track> = Vec::new();
    for collective in &result.collectives {
        let between_groups = Kind::DataParallelAllReduce.name();
        let group = match collective.group {
            Some(group) => group.to_string(),
            None if collective.kind == between_groups => "all groups".to_owned(),
            None => collective.name.clone(),
        };
        if tracks.last().is_none_or(|track| track.name != group) {
            tracks.push(Track { process: "groups", name: group, slices: Vec::new() });
        }
        let track = tracks.last_mut().expect("one was added");
        let name = match collective.restarts {
            0 => collective.name.clone(),
            restarts => format!("{} (begun again {restarts} times)", collective.name),
        };
        let (begin, end) = (collective.start, collective.end.unwrap_or(result.head.simulated));
        track.slices.push(Slice { name, begin, end: end.max(begin) });
    }
    tracks
}

fn fault_track(result: &Run, fault: &FaultResult) -> Track {
    let stages = [
        ("not known", Some(fault.at)),
        ("planning", fault.detected),
        ("switching", fault.replanned),
    ];
    let ends = [fault.detected, fault.replanned, fault.restored];
    let slice = |((name, begin), end): ((&str, Option<SimTime>), Option<SimTime>)| {
        let begin = begin?;
        let end = end.or(fault.restored).unwrap_or(result.head.simulated).max(begin);
        Some(Slice { name: name.to_owned(), begin, end })
    };
    let slices = stages.into_iter().zip(ends).filter_map(slice).collect();
    Track { process: "faults", name: format!("{} {}", fault.what, fault.effect), slices }
}

fn named_links(
    engine: &Engine<Watch>,
    names: &Names<'_>,
) -> impl Iterator<Item = (String, PortCount)> {
    (0..engine.network().links().len())
        .map(LinkId::from_index)
        .map(|link| ((names.link)(link), engine.port_count(link)))
}

/// What links carried, one a line.
pub(super) fn links_csv(links: impl Iterator<Item = (String, PortCount)>) -> String {
    let mut csv = String::from("link,bytes,packets,dropped,marked,lost\n");
    for (name, count) in links {
        let _ = writeln!(
            csv,
            "{name},{},{},{},{},{}",
            count.bytes, count.packets, count.dropped, count.marked, count.lost
        );
    }
    csv
}

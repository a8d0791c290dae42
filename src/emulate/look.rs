//! Looking into one run: a timeline for Perfetto, packets for tshark, a table of all links.

use std::fmt::Write as _;
use std::path::PathBuf;

use lightloom_emulator::capture::{
    Slice, Tap, Track, Watch, host_tracks, link_tracks, write_pcapng, write_timeline,
};
use lightloom_emulator::engine::{Arrival, Engine, LinkId, Network, PortCount};
use lightloom_emulator::scenario::{FaultResult, Installed, Outcome as Run, Target};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::units::SimTime;

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
    /// fibres `n17/b0.2`, ToRs `t3`.
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub(super) pcap_port: Vec<Target>,
    /// Write what every link carried to this file: link,bytes,packets,dropped,marked,lost.
    #[arg(long, value_name = "FILE")]
    pub(super) links_out: Option<PathBuf>,
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
        let wrong: Vec<String> = self
            .pcap_port
            .iter()
            .filter_map(|target| target.require(fabric).err())
            .map(|error| format!("--pcap-port: {error}"))
            .collect();
        if !wrong.is_empty() {
            return Err(WrongUsage(wrong.join("\n")).into());
        }
        let (network, installed) = Installed::build(fabric)?;
        let links = self.links(fabric, &network, &installed);
        Ok(Watch::with_tap(Tap::new(&links, MOST_PACKETS)))
    }

    fn links(&self, fabric: &Fabric, network: &Network, installed: &Installed) -> Vec<LinkId> {
        let of = |target: &Target| installed.links_of_target(fabric, network, *target);
        let mut links: Vec<LinkId> = self.pcap_port.iter().flat_map(of).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Writes what was asked for.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(
        &self,
        result: &Run,
        engine: &Engine<Watch>,
        installed: &Installed,
    ) -> anyhow::Result<()> {
        let packets = Watch::packets(engine.probes());
        if let Some(path) = &self.timeline {
            let mut bytes = Vec::new();
            write_timeline(&mut bytes, &tracks(result, engine, installed, &packets))?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.pcap {
            let mut bytes = Vec::new();
            write_pcapng(&mut bytes, engine, &packets)?;
            files::write(path, &bytes)?;
        }
        if let Some(path) = &self.links_out {
            files::write(path, links_csv(named_links(engine, installed)).as_bytes())?;
        }
        Ok(())
    }
}

/// Groups with their collectives, faults with their healing, ranks with their flows, watched ports.
fn tracks(
    result: &Run,
    engine: &Engine<Watch>,
    installed: &Installed,
    packets: &[Arrival],
) -> Vec<Track> {
    let rank = |vertex| installed.gpu(vertex).map_or_else(String::new, |gpu| gpu.to_string());
    let port = |link| installed.link_name(engine.network(), link);
    let mut tracks = group_tracks(result);
    tracks.extend(result.faults.iter().map(|fault| fault_track(result, fault)));
    tracks.extend(host_tracks(engine, &rank));
    tracks.extend(link_tracks(engine, packets, &port));
    tracks
}

fn group_tracks(result: &Run) -> Vec<Track> {
    let mut tracks: Vec<Track> = Vec::new();
    for collective in &result.collectives {
        let group = collective.group.map_or("all groups".to_owned(), |group| group.to_string());
        if tracks.last().is_none_or(|track| track.name != group) {
            tracks.push(Track { process: "groups", name: group, slices: Vec::new() });
        }
        let track = tracks.last_mut().expect("one was added");
        let name = match collective.restarts {
            0 => collective.name.clone(),
            restarts => format!("{} (begun again {restarts} times)", collective.name),
        };
        let (begin, end) = (collective.start, collective.end.unwrap_or(result.simulated));
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
        let end = end.or(fault.restored).unwrap_or(result.simulated).max(begin);
        Some(Slice { name: name.to_owned(), begin, end })
    };
    let slices = stages.into_iter().zip(ends).filter_map(slice).collect();
    Track { process: "faults", name: format!("{} {}", fault.what, fault.effect), slices }
}

fn named_links(
    engine: &Engine<Watch>,
    installed: &Installed,
) -> impl Iterator<Item = (String, PortCount)> {
    (0..engine.network().links().len())
        .map(LinkId::from_index)
        .map(|link| (installed.link_name(engine.network(), link), engine.port_count(link)))
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

// SPDX-License-Identifier: Apache-2.0
//! Captures and timelines, read back by other programs.
use std::io::Write;
use std::process::Command;

use lightloom_engine::capture::{
    Slice, Tap, TimelineTrack, host_tracks, link_tracks, write_pcapng, write_timeline,
};
use lightloom_engine::transport::{LossRecovery, Reordering, Transport};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkId, LinkSpec, NetworkBuilder, PacketArrival, Queueing,
    VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

fn run() -> (Engine<Tap>, Vec<PacketArrival>) {
    run_with(EngineSettings::default(), 1 << 20, Bytes(100))
}

fn run_with(
    settings: EngineSettings,
    queue: u64,
    second: Bytes,
) -> (Engine<Tap>, Vec<PacketArrival>) {
    let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
        .with_queue(Bytes(queue), Bytes(0));
    let mut builder = NetworkBuilder::new();
    let hosts: Vec<_> = (0..3).map(|_| builder.add(VertexRole::Host)).collect();
    let switch = builder.add(VertexRole::Switch);
    let links: Vec<LinkId> =
        hosts.iter().map(|host| builder.connect(switch, *host, link)).collect();
    let tap = Tap::new(&[links[0], links[0].reverse()], 1_000);
    let mut engine = Engine::with_probe(builder.build().unwrap(), settings, tap).unwrap();
    engine.add_flow(FlowSpec::new(hosts[1], hosts[0], Bytes(4_032 * 3))).unwrap();
    engine.add_flow(FlowSpec::new(hosts[2], hosts[0], second).at(SimTime(5_000))).unwrap();
    engine.run(SimTime(1_000_000_000));
    let arrivals = Tap::merge(engine.probes());
    (engine, arrivals)
}

#[test]
fn tshark_reads_addresses_sizes_marks_and_times() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark (Debian package tshark)");
        return;
    }
    let (engine, arrivals) = run();
    assert_eq!(arrivals.len(), 8, "four data packets and their acknowledgements");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write_pcapng(&mut file, &engine, &arrivals, &|link| format!("port {}", link.0)).unwrap();
    file.flush().unwrap();
    let fields = ["frame.time_epoch", "ip.src", "ip.dst", "frame.len", "ip.dsfield.ecn"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args(["-T", "fields"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-Y", "ip.checksum.status == 1"]);
    for field in fields.iter().chain(&[
        "infiniband.bth.psn",
        "frame.interface_name",
        "infiniband.bth.destqp",
    ]) {
        command.args(["-e", field]);
    }
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let rows: Vec<Vec<&str>> = output.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), arrivals.len(), "{output}");
    for (row, arrival) in rows.iter().zip(&arrivals) {
        let (seconds, nanos) = row[0].split_once('.').unwrap();
        let shown: u64 = seconds.parse::<u64>().unwrap() * 1_000_000_000
            + format!("{nanos:0<9}")[..9].parse::<u64>().unwrap();
        assert_eq!(shown, arrival.at.0 / 1_000);
        let record = engine.record(engine.flow_of(arrival));
        let (from, to) = (record.source.0, record.destination.0);
        let (from, to) = if arrival.acknowledgement { (to, from) } else { (from, to) };
        assert_eq!(row[1], format!("10.0.0.{from}"));
        assert_eq!(row[2], format!("10.0.0.{to}"));
        assert_eq!(row[3], arrival.wire_bytes.to_string());
        assert_eq!(row[4], if arrival.marked { "3" } else { "2" });
        assert_eq!(row[5], arrival.sequence.to_string());
        assert_eq!(row[6], format!("port {}", arrival.link.0));
        let pair = u32::from_str_radix(row[7].trim_start_matches("0x"), 16).unwrap();
        assert_eq!(pair, 2 + engine.flow_of(arrival).0, "0 and 1 are those of management");
    }
    assert!(arrivals.iter().any(|arrival| arrival.marked));
}

/// Wireshark 4 treats records shorter than the packet on the wire, and acknowledgements without an
/// acknowledge header, as malformed.
#[test]
fn tshark_finds_no_packet_malformed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark (Debian package tshark)");
        return;
    }
    let transport = Transport {
        recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
        ..Transport::default()
    };
    let queueing = Some(Queueing { trim: true, ..Queueing::default() });
    let trims = EngineSettings { transport, queueing, ..EngineSettings::default() };
    // The queue holds one packet; further packets are trimmed.
    let cases = [(run(), false), (run_with(trims, 4_096, Bytes(4_032 * 16)), true)];
    for ((engine, arrivals), trims) in cases {
        let trimmed = arrivals.iter().filter(|at| !at.acknowledgement && at.wire_bytes == 64);
        assert_eq!((trimmed.count() > 0, engine.packets().trimmed > 0), (trims, trims));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write_pcapng(&mut file, &engine, &arrivals, &|link| format!("port {}", link.0)).unwrap();
        file.flush().unwrap();
        let output = Command::new("tshark").arg("-r").arg(file.path()).arg("-V").output().unwrap();
        let dissected = String::from_utf8(output.stdout).unwrap();
        let headers = dissected.matches("Base Transport Header").count();
        assert_eq!(headers, arrivals.len(), "{dissected}");
        let answers = arrivals.iter().filter(|arrival| arrival.acknowledgement).count();
        assert_eq!(dissected.matches("ACK Extended Transport Header").count(), answers);
        for wrong in ["Malformed", "Invalid Packet Length"] {
            assert!(!dissected.contains(wrong), "{dissected}");
        }
    }
}

#[test]
fn timeline_shows_flows_and_busy_links() {
    let (engine, arrivals) = run();
    let mut tracks = host_tracks(&engine, &|vertex| format!("v{}", vertex.0));
    tracks.extend(link_tracks(&engine, &arrivals, &|link| format!("link \"{}\"", link.0)));
    let mut text = Vec::new();
    write_timeline(&mut text, &tracks, &[]).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let tracks_of = |process: &str| -> Vec<(u64, String)> {
        let is = |event: &&serde_json::Value| {
            event["name"] == "process_name" && event["args"]["name"] == process
        };
        let pid = &events.iter().find(is).unwrap()["pid"];
        let named = events.iter().filter(|e| e["name"] == "thread_name" && e["pid"] == *pid);
        named
            .map(|e| (e["tid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap().to_owned()))
            .collect()
    };
    let slices_of =
        |thread: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == thread);
    let ranks = tracks_of("ranks");
    assert_eq!(ranks.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["v1", "v2"]);
    assert!(ranks.iter().all(|(thread, _)| slices_of(*thread).count() == 1), "a flow each");
    let ports = tracks_of("ports");
    assert_eq!(ports.len(), 2, "data one way, acknowledgements the other: {ports:?}");
    let (data, _) = ports.iter().find(|(_, name)| name == "link \"0\"").unwrap();
    let busy: f64 = slices_of(*data).map(|event| event["dur"].as_f64().unwrap()).sum();
    let sent = (3 * 4_096 + 164) as f64 * 20e-6;
    assert!((busy - sent).abs() < 1e-9, "{busy} {sent}");
}

#[test]
fn overlapping_slices_are_drawn_in_separate_rows() {
    let slice = |begin, end| Slice { name: "x".into(), begin: SimTime(begin), end: SimTime(end) };
    let slices = vec![slice(0, 10), slice(5, 15), slice(10, 20), slice(15, 16)];
    let track = TimelineTrack { process: "p", name: "t".into(), slices };
    let mut text = Vec::new();
    write_timeline(&mut text, &[track], &[]).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let threads: Vec<u64> =
        events.iter().filter(|e| e["ph"] == "X").map(|e| e["tid"].as_u64().unwrap()).collect();
    assert_eq!(threads, [1, 1, 2, 2]);
}

#[test]
fn tap_keeps_at_most_its_limit() {
    let mut tap = Tap::new(&[LinkId(3)], 2);
    let (_, arrivals) = run();
    for link in [3, 4, 3, 3] {
        use lightloom_engine::Probe;
        tap.arrived(PacketArrival { link: LinkId(link), ..arrivals[0] });
    }
    assert_eq!(Tap::merge([&tap]).len(), 2);
}

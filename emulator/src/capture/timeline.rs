//! A run as a timeline in the Trace Event Format, which Perfetto and Chrome open: a track for each host
//! with the flows it sends, and one for each watched link with the times at which it was busy.

use std::io::{self, Write};

use lightloom_fabric::units::{Bytes, SimTime};

use crate::engine::{Arrival, Engine, FlowId, LinkId, Probe};

const HOSTS: u32 = 1;
const LINKS: u32 = 2;

/// Writes all flows of `engine` that have ended, and the busy times of the links of `arrivals`, which
/// must be in order of time.
///
/// # Errors
/// What `out` reports.
pub fn write_timeline<P: Probe>(
    out: &mut impl Write,
    engine: &Engine<P>,
    arrivals: &[Arrival],
) -> io::Result<()> {
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    write_process(out, HOSTS, "hosts")?;
    write!(out, ",")?;
    write_process(out, LINKS, "links")?;
    for (index, record) in engine.records().enumerate() {
        if let Some(end) = record.end {
            let name = format!("flow {} to v{}", FlowId::from_index(index).0, record.destination.0);
            let track = (HOSTS, record.source.0);
            write_slice(out, track, &name, (record.start, end))?;
        }
    }
    for (link, begin, end, packets) in busy_times(engine, arrivals) {
        let ends = engine.network().link(link);
        let name = format!("v{} to v{}: {packets} packets", ends.from.0, ends.to.0);
        write_slice(out, (LINKS, link.0), &name, (begin, end))?;
    }
    write!(out, "]}}")
}

fn write_process(out: &mut impl Write, process: u32, name: &str) -> io::Result<()> {
    write!(
        out,
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{process},\"args\":{{\"name\":\"{name}\"}}}}"
    )
}

fn write_slice(
    out: &mut impl Write,
    (process, track): (u32, u32),
    name: &str,
    (begin, end): (SimTime, SimTime),
) -> io::Result<()> {
    write!(
        out,
        ",{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{process},\"tid\":{track},\"ts\":{},\"dur\":{}}}",
        Microseconds(begin.0),
        Microseconds(end.0 - begin.0),
    )
}

/// Picoseconds written as microseconds, exactly.
struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// When each link was sending without a pause, and how many packets: link, begin, end, packets.
fn busy_times<P: Probe>(
    engine: &Engine<P>,
    arrivals: &[Arrival],
) -> Vec<(LinkId, SimTime, SimTime, u64)> {
    let mut by_link: Vec<&Arrival> = arrivals.iter().collect();
    by_link.sort_by_key(|arrival| arrival.link);
    let mut busy: Vec<(LinkId, SimTime, SimTime, u64)> = Vec::new();
    for arrival in by_link {
        let spec = engine.network().link(arrival.link).spec;
        let sent = SimTime(arrival.at.0 - spec.delay.get());
        let occupied = spec.rate.time_for(Bytes(u64::from(arrival.wire_bytes)));
        let begun = SimTime(sent.0 - occupied.get());
        match busy.last_mut() {
            Some((link, _, end, packets)) if *link == arrival.link && *end >= begun => {
                *end = sent;
                *packets += 1;
            }
            _ => busy.push((arrival.link, begun, sent, 1)),
        }
    }
    busy
}

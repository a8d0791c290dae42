// SPDX-License-Identifier: Apache-2.0
//! Writes runs in the Trace Event Format, for Perfetto and Chrome.

use std::io::{self, Write};

use lightloom_units::{Bytes, SimTime};

use crate::engine::{Engine, LinkId, PacketArrival, Probe, VertexId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineTrack {
    pub process: &'static str,
    pub name: String,
    pub slices: Vec<Slice>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub name: String,
    pub begin: SimTime,
    pub end: SimTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub process: &'static str,
    pub name: String,
    pub unit: &'static str,
    /// Ascending times, each with the value that applies from then on.
    pub points: Vec<(SimTime, u64)>,
}

pub fn host_tracks<P: Probe>(
    engine: &Engine<P>,
    name: &dyn Fn(VertexId) -> String,
) -> Vec<TimelineTrack> {
    let mut by_host: Vec<Vec<Slice>> = vec![Vec::new(); engine.network().vertex_count()];
    for (index, record) in engine.records().enumerate() {
        if let Some(end) = record.end {
            let name = format!("flow {index} to {}", name(record.destination));
            by_host[record.source.index()].push(Slice { name, begin: record.start, end });
        }
    }
    let used = by_host.into_iter().enumerate().filter(|(_, slices)| !slices.is_empty());
    let tracks = used.map(|(index, slices)| TimelineTrack {
        process: "ranks",
        name: name(VertexId::from_index(index)),
        slices,
    });
    tracks.collect()
}

/// Shows periods of gapless transmission. `arrivals` must be in chronological order.
pub fn link_tracks<P: Probe>(
    engine: &Engine<P>,
    arrivals: &[PacketArrival],
    name: &dyn Fn(LinkId) -> String,
) -> Vec<TimelineTrack> {
    let mut by_link: Vec<&PacketArrival> = arrivals.iter().collect();
    by_link.sort_by_key(|arrival| arrival.link);
    let tracks = by_link.chunk_by(|a, b| a.link == b.link).map(|arrivals| TimelineTrack {
        process: "ports",
        name: name(arrivals[0].link),
        slices: busy_times(engine, arrivals),
    });
    tracks.collect()
}

fn busy_times<P: Probe>(engine: &Engine<P>, arrivals: &[&PacketArrival]) -> Vec<Slice> {
    let spec = engine.network().link(arrivals[0].link).spec;
    let mut busy: Vec<(SimTime, SimTime, u64)> = Vec::new();
    for arrival in arrivals {
        let sent = SimTime(arrival.at.0 - spec.delay.get());
        let occupied = spec.rate.time_for(Bytes(u64::from(arrival.wire_bytes)));
        let begun = SimTime(sent.0 - occupied.get());
        match busy.last_mut() {
            Some((_, end, packets)) if *end >= begun => {
                *end = sent;
                *packets += 1;
            }
            _ => busy.push((begun, sent, 1)),
        }
    }
    let busy = busy.into_iter();
    busy.map(|(begin, end, packets)| Slice { name: format!("{packets} packets"), begin, end })
        .collect()
}

pub fn write_timeline(
    out: &mut impl Write,
    tracks: &[TimelineTrack],
    counters: &[Counter],
) -> io::Result<()> {
    let of_counters = counters.iter().map(|counter| counter.process);
    let mut processes: Vec<&str> =
        tracks.iter().map(|track| track.process).chain(of_counters).collect();
    processes.dedup();
    let mut events = TimelineEvents { out, first: true };
    write!(events.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (number, process) in processes.iter().enumerate() {
        events.name("process_name", number + 1, 0, process)?;
    }
    let mut thread = 0;
    for track in tracks {
        let process = processes.iter().position(|name| *name == track.process);
        let process = process.expect("every process is listed") + 1;
        for row in rows(&track.slices) {
            thread += 1;
            events.name("thread_name", process, thread, &track.name)?;
            for slice in row {
                events.slice(process, thread, slice)?;
            }
        }
    }
    for counter in counters {
        let process = processes.iter().position(|name| *name == counter.process);
        let process = process.expect("every process is listed") + 1;
        for (at, value) in &counter.points {
            events.count(process, counter, *at, *value)?;
        }
    }
    write!(events.out, "]}}")
}

fn rows(slices: &[Slice]) -> Vec<Vec<&Slice>> {
    let mut sorted: Vec<&Slice> = slices.iter().collect();
    sorted.sort_by_key(|slice| (slice.begin, slice.end));
    let mut rows: Vec<Vec<&Slice>> = Vec::new();
    for slice in sorted {
        let free = rows.iter_mut().find(|row| row.last().is_none_or(|l| l.end <= slice.begin));
        match free {
            Some(row) => row.push(slice),
            None => rows.push(vec![slice]),
        }
    }
    rows
}

struct TimelineEvents<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> TimelineEvents<'_, W> {
    fn comma(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.first) { Ok(()) } else { write!(self.out, ",") }
    }

    fn name(&mut self, what: &str, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        self.comma()?;
        let name = quoted(name);
        write!(
            self.out,
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
        )
    }

    fn slice(&mut self, pid: usize, tid: usize, slice: &Slice) -> io::Result<()> {
        self.comma()?;
        write!(
            self.out,
            "{{\"ph\":\"X\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{}}}",
            quoted(&slice.name),
            Microseconds(slice.begin.0),
            Microseconds(slice.end.0 - slice.begin.0),
        )
    }
}

impl<W: Write> TimelineEvents<'_, W> {
    fn count(&mut self, pid: usize, counter: &Counter, at: SimTime, value: u64) -> io::Result<()> {
        self.comma()?;
        write!(
            self.out,
            "{{\"ph\":\"C\",\"name\":{},\"pid\":{pid},\"ts\":{},\"args\":{{\"{}\":{value}}}}}",
            quoted(&counter.name),
            Microseconds(at.0),
            counter.unit,
        )
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

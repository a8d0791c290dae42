// SPDX-License-Identifier: Apache-2.0
//! Writes pcapng files (IETF draft-ietf-opsawg-pcapng) with one interface per watched link.
//!
//! Packets are written as RoCEv2: Ethernet, IPv4 (`10.0.0.0/8`, with the vertex in the lower 24 bits), UDP port 4791, a
//! base transport header with the flow's queue pair and the packet number, and an acknowledge header if applicable. The
//! invariant checksum is zero, and congestion marks are in the ECN bits. Payloads are zeros, written in full because
//! dissectors report shorter records as malformed. Times are nanoseconds, rounded down.

use std::io::{self, Write};

use super::nanoseconds;
use crate::engine::{Engine, LinkId, PacketArrival, Probe, VertexId};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const ETHERNET: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const ROCE_PORT: u16 = 4_791;
/// Queue pairs 0 and 1 are reserved for management.
const FIRST_QUEUE_PAIR: u32 = 2;
const HEADERS: usize = 14 + 20 + 8 + 12;
const TRAILERS: usize = 4 + 4;
const SHORTEST_MESSAGE: usize = HEADERS + TRAILERS + 4;
const SEND_FIRST: u8 = 0x00;
const SEND_ONLY: u8 = 0x04;
const ACKNOWLEDGE: u8 = 0x11;

pub fn write_pcapng<P: Probe>(
    out: &mut impl Write,
    engine: &Engine<P>,
    arrivals: &[PacketArrival],
    name: &dyn Fn(LinkId) -> String,
) -> io::Result<()> {
    write_block(out, SECTION_HEADER, |body| {
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
    })?;
    let mut links: Vec<LinkId> = arrivals.iter().map(|arrival| arrival.link).collect();
    links.sort_unstable();
    links.dedup();
    for link in &links {
        let name = name(*link);
        write_block(out, INTERFACE, |body| {
            body.extend(ETHERNET.to_le_bytes());
            body.extend([0; 6]);
            write_option(body, OPTION_NAME, name.as_bytes());
            write_option(body, OPTION_TIME_RESOLUTION, &[9]);
            write_option(body, 0, &[]);
        })?;
    }
    for arrival in arrivals {
        let interface = links.binary_search(&arrival.link).expect("every link is listed") as u32;
        write_packet(out, engine, arrival, interface)?;
    }
    Ok(())
}

fn write_packet<P: Probe>(
    out: &mut impl Write,
    engine: &Engine<P>,
    arrival: &PacketArrival,
    interface: u32,
) -> io::Result<()> {
    let flow = engine.flow_of(arrival);
    let record = engine.record(flow);
    let (from, to) = if arrival.acknowledgement {
        (record.destination, record.source)
    } else {
        (record.source, record.destination)
    };
    let wire_bytes = u32::from(arrival.wire_bytes).max((HEADERS + TRAILERS) as u32);
    let mut packet = headers(arrival, from, to, flow.0, wire_bytes);
    packet.resize(wire_bytes as usize, 0);
    let time = nanoseconds(arrival.at);
    write_block(out, ENHANCED_PACKET, |body| {
        body.extend(interface.to_le_bytes());
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend(wire_bytes.to_le_bytes());
        body.extend(wire_bytes.to_le_bytes());
        body.extend(&packet);
    })
}

fn write_block(out: &mut impl Write, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let mut body = Vec::with_capacity(96);
    fill(&mut body);
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(&body)?;
    out.write_all(&length)
}

fn write_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn headers(
    arrival: &PacketArrival,
    from: VertexId,
    to: VertexId,
    flow: u32,
    wire_bytes: u32,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADERS);
    for vertex in [to, from] {
        bytes.extend([2, 0]);
        bytes.extend(vertex.0.to_be_bytes());
    }
    bytes.extend([0x08, 0x00]);
    bytes.extend(ip_header(arrival.marked, from, to, wire_bytes - 14));
    // The source port varies with the flow to provide entropy.
    bytes.extend((0xc000 | (flow as u16 & 0x3fff)).to_be_bytes());
    bytes.extend(ROCE_PORT.to_be_bytes());
    bytes.extend((wire_bytes as u16 - 34).to_be_bytes());
    bytes.extend([0, 0]);
    // Dissectors expect a single send to contain a whole message, but trimmed packets contain only a header.
    let opcode = match wire_bytes as usize {
        _ if arrival.acknowledgement => ACKNOWLEDGE,
        ..SHORTEST_MESSAGE => SEND_FIRST,
        _ => SEND_ONLY,
    };
    bytes.extend([opcode, 0x40, 0xff, 0xff]);
    bytes.extend(((FIRST_QUEUE_PAIR + flow) & 0x00ff_ffff).to_be_bytes());
    bytes.extend((arrival.sequence & 0x00ff_ffff).to_be_bytes());
    bytes
}

fn ip_header(marked: bool, from: VertexId, to: VertexId, length: u32) -> [u8; 20] {
    const UDP: u8 = 17;
    let mut header = [0u8; 20];
    header[0] = 0x45;
    header[1] = if marked { 0b11 } else { 0b10 };
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[8] = 64;
    header[9] = UDP;
    header[12..16].copy_from_slice(&address(from));
    header[16..20].copy_from_slice(&address(to));
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn address(vertex: VertexId) -> [u8; 4] {
    let [_, a, b, c] = vertex.0.to_be_bytes();
    [10, a, b, c]
}

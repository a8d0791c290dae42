// SPDX-License-Identifier: Apache-2.0
//! Driver for a Linux switch over rtnetlink: links, addresses, nexthop groups, HTB rates.
//!
//! A slot is a nexthop group, a position is one of the group's alternatives, and position 0 means
//! drained. The driver replaces groups in place, so routes through them are unaffected. It never
//! deletes objects, because the kernel silently removes a deleted nexthop from all groups. It only
//! changes objects with the daemon's protocol number and an id in the reserved range.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Text};

use super::netlink::{Body, How, Netlink, as_u32, attribute, kind};
use crate::config::linux::{GroupFile, LinkFile, LinuxFile, Prefix};
use lightloom_control::state::{Move, Observation, Op, Outcome, Position, Slot};
use lightloom_drivers::Reached;
use lightloom_drivers::conversation::Conversation;

const MEMBERS_FROM: u32 = 32_768;
const BLACKHOLE: u32 = 65_535;
/// Qdisc handle 4c4c:, "LL".
const HANDLE: u32 = 0x4c4c_0000;
/// A separate metric avoids conflicts with other routes.
const METRIC: u32 = 17_700;
const AF_INET: u8 = 2;
const ELSEWHERE: Position = Position(u32::MAX);

pub struct Linux {
    file: LinuxFile,
    netlink: Option<Netlink>,
    members: BTreeMap<(Ipv4Addr, String), u32>,
}

impl Linux {
    pub fn new(file: LinuxFile) -> Self {
        let ways = file.groups.iter().flat_map(|g| g.alternatives.iter().chain([&g.drained]));
        let ways: BTreeSet<_> = ways.flatten().map(|n| (n.via, n.dev.clone())).collect();
        let first = file.first_id + MEMBERS_FROM;
        let members = ways.into_iter().zip(first..).collect();
        Self { file, netlink: None, members }
    }

    fn netlink(&mut self) -> io::Result<&mut Netlink> {
        self.netlink.as_mut().ok_or_else(|| io::Error::other("not connected"))
    }

    fn set_up(&mut self) -> io::Result<()> {
        self.netlink = Some(Netlink::open()?);
        self.refuse_foreign_ids()?;
        let file = self.file.clone();
        for [a, b] in &file.pairs {
            self.netlink()?.change(kind::NEW_LINK, How::Ensure, &veth(a, b))?;
            for name in [a, b] {
                let index = self.index(name)?;
                self.netlink()?.change(kind::NEW_LINK, How::Change, &link_up(index))?;
            }
        }
        for link in &file.links {
            self.set_up_link(link)?;
        }
        for ((via, dev), id) in self.members.clone() {
            let index = self.index(&dev)?;
            let body = nexthop(file.protocol, id, via, index);
            self.netlink()?.change(kind::NEW_NEXTHOP, How::Replace, &body)?;
        }
        let hole = blackhole(file.protocol, file.first_id + BLACKHOLE);
        self.netlink()?.change(kind::NEW_NEXTHOP, How::Replace, &hole)?;
        let standing = self.positions()?;
        for group in &file.groups {
            // Do not change existing groups, because connecting must not move traffic.
            if !standing.contains_key(&Slot(u32::from(group.slot))) {
                self.point(group, Position(1))?;
            }
        }
        for route in &file.routes {
            let body =
                route_through(file.protocol, route.to, file.first_id + u32::from(route.group));
            self.netlink()?.change(kind::NEW_ROUTE, How::Replace, &body)?;
        }
        Ok(())
    }

    fn set_up_link(&mut self, link: &LinkFile) -> io::Result<()> {
        let index = self.index(&link.name)?;
        self.netlink()?.change(kind::NEW_LINK, How::Change, &link_up(index))?;
        if let Some(prefix) = link.address {
            self.netlink()?.change(kind::NEW_ADDRESS, How::Replace, &address(index, prefix))?;
        }
        let Some(Text(rate)) = link.rate else { return Ok(()) };
        match self.root_qdisc(index)? {
            None | Some(0) => {
                self.netlink()?.change(kind::NEW_QDISC, How::Replace, &htb_root(index))?;
            }
            // An HTB qdisc cannot be replaced in place.
            Some(HANDLE) => {}
            Some(_) => {
                let why = format!("{}: its root qdisc belongs to another program", link.name);
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        self.netlink()?.change(kind::NEW_CLASS, How::Replace, &htb_class(index, rate))
    }

    fn index(&mut self, name: &str) -> io::Result<u32> {
        let index = self.link(name)?.get(4..8).and_then(as_u32);
        index.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn link(&mut self, name: &str) -> io::Result<Vec<u8>> {
        const IFLA_IFNAME: u16 = 3;
        let mut body = Body::with_header(&[0; 16]);
        body.put_text(IFLA_IFNAME, name);
        let found = self
            .netlink()?
            .get(kind::GET_LINK, &body)
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn nexthops(&mut self) -> io::Result<Vec<Object>> {
        let dump = self.netlink()?.dump(kind::GET_NEXTHOP, &Body::with_header(&[0; 8]))?;
        Ok(dump.iter().filter_map(|(_, body)| Object::read(body)).collect())
    }

    fn refuse_foreign_ids(&mut self) -> io::Result<()> {
        let ours = self.file.first_id..=self.file.first_id + BLACKHOLE;
        let protocol = self.file.protocol;
        let objects = self.nexthops()?;
        match objects.iter().find(|o| ours.contains(&o.id) && o.protocol != protocol) {
            Some(object) => {
                let why = format!("nexthop {} has protocol {}", object.id, object.protocol);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            None => Ok(()),
        }
    }

    fn root_qdisc(&mut self, index: u32) -> io::Result<Option<u32>> {
        const ROOT: u32 = u32::MAX;
        let dump = self.netlink()?.dump(kind::GET_QDISC, &Body::with_header(&[0; 20]))?;
        let root = dump.iter().find_map(|(_, body)| {
            let [link, handle, parent] =
                [4, 8, 12].map(|at| body.get(at..at + 4).and_then(as_u32).unwrap_or(0));
            (link == index && parent == ROOT).then_some(handle)
        });
        Ok(root)
    }

    fn ways(&self, group: &GroupFile, position: Position) -> Option<Vec<(u32, u16)>> {
        let ways = match position {
            Position::DARK if group.drained.is_empty() => {
                return Some(vec![(self.file.first_id + BLACKHOLE, 1)]);
            }
            Position::DARK => &group.drained,
            Position(number) => group.alternatives.get(number as usize - 1)?,
        };
        let ids =
            ways.iter().map(|n| Some((*self.members.get(&(n.via, n.dev.clone()))?, n.weight)));
        let mut ids: Vec<(u32, u16)> = ids.collect::<Option<_>>()?;
        ids.sort_unstable();
        Some(ids)
    }

    fn positions(&mut self) -> io::Result<BTreeMap<Slot, Position>> {
        let objects = self.nexthops()?;
        let groups = self.file.groups.clone();
        let stands = groups.iter().filter_map(|group| {
            let id = self.file.first_id + u32::from(group.slot);
            let object = objects.iter().find(|object| object.id == id)?;
            let count = u32::try_from(group.alternatives.len()).unwrap_or(0);
            let found = (0..=count)
                .map(Position)
                .find(|p| self.ways(group, *p).is_some_and(|ways| ways == object.members));
            Some((Slot(u32::from(group.slot)), found.unwrap_or(ELSEWHERE)))
        });
        Ok(stands.collect())
    }

    fn point(&mut self, group: &GroupFile, to: Position) -> io::Result<()> {
        let body = self.group_body(group, to).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the group has no alternative {to}"),
            )
        })?;
        self.netlink()?.change(kind::NEW_NEXTHOP, How::Replace, &body)
    }

    fn group_body(&self, group: &GroupFile, to: Position) -> Option<Body> {
        let id = self.file.first_id + u32::from(group.slot);
        Some(nexthop_group(self.file.protocol, id, &self.ways(group, to)?))
    }

    fn group(&self, slot: Slot) -> Option<&GroupFile> {
        self.file.groups.iter().find(|group| u32::from(group.slot) == slot.0)
    }

    fn switch(&mut self, moves: &[Move]) -> Outcome {
        for m in moves {
            let Some(group) = self.group(m.slot).cloned() else {
                return Outcome::Refused(format!("it has no group {}", m.slot));
            };
            if let Err(error) = self.point(&group, m.to) {
                return Outcome::Failed(format!("group {}: {error}", m.slot));
            }
        }
        Outcome::Done(None)
    }

    fn observe(&mut self) -> Outcome {
        let read = self.positions().and_then(|positions| Ok((positions, self.unlinked()?)));
        match read {
            Ok((mut positions, unlinked)) => {
                positions.retain(|_, position| !position.is_dark());
                let unlinked = unlinked.into();
                Outcome::Done(Some(Observation { positions, unlinked, ..Observation::default() }))
            }
            Err(error) => Outcome::Unknown(error.to_string()),
        }
    }

    fn unlinked(&mut self) -> io::Result<Vec<NodeId>> {
        const IFF_LOWER_UP: u32 = 1 << 16;
        let mut linked = BTreeMap::<NodeId, bool>::new();
        for link in self.file.links.clone() {
            let Some(node) = link.node else { continue };
            let flags = self.link(&link.name)?.get(8..12).and_then(as_u32).unwrap_or_default();
            *linked.entry(node).or_default() |= flags & IFF_LOWER_UP != 0;
        }
        Ok(linked
            .into_iter()
            .filter_map(|(node, is_linked)| (!is_linked).then_some(node))
            .collect())
    }
}

// Calls are synchronous, because the kernel replies within microseconds.
impl Conversation for Linux {
    fn connected(&mut self, _out: &mut Vec<u8>) -> Option<Reached> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Some(match self.set_up() {
            Ok(()) => Reached::Ready(format!("Linux {}", release.trim())),
            Err(error) => Reached::Lost(error.to_string()),
        })
    }

    fn start(&mut self, op: &Op, _out: &mut Vec<u8>) -> Option<Outcome> {
        Some(match op {
            Op::Observe { .. } | Op::Arm { .. } => self.observe(),
            Op::Disarm { .. } => Outcome::Done(None),
            Op::Switch { moves, .. } => self.switch(moves),
        })
    }

    fn closed(&mut self) {
        self.netlink = None;
    }

    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        let moves = ops.iter().filter_map(|op| match op {
            Op::Switch { moves, .. } => Some(moves),
            _ => None,
        });
        let messages = moves.flatten().map(|m| {
            let group = self.group(m.slot).ok_or_else(|| format!("it has no group {}", m.slot))?;
            let body = self.group_body(group, m.to);
            let body = body.ok_or_else(|| format!("group {} has no {}", m.slot, m.to))?;
            Ok(super::netlink::message(kind::NEW_NEXTHOP, 0x505, 0, &body))
        });
        messages.collect()
    }
}

struct Object {
    id: u32,
    protocol: u8,
    members: Vec<(u32, u16)>,
}

impl Object {
    fn read(body: &[u8]) -> Option<Self> {
        let protocol = *body.get(2)?;
        let id = as_u32(attribute(body, 8, NHA_ID)?)?;
        let entries = attribute(body, 8, NHA_GROUP).unwrap_or_default();
        let mut members: Vec<(u32, u16)> = entries
            .chunks_exact(8)
            .filter_map(|entry| Some((as_u32(entry)?, u16::from(*entry.get(4)?) + 1)))
            .collect();
        members.sort_unstable();
        Some(Self { id, protocol, members })
    }
}

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;

/// `nhmsg {family, scope, protocol, reserved, flags}`.
fn nexthop_body(family: u8, protocol: u8, id: u32) -> Body {
    let mut body = Body::with_header(&[family, 0, protocol, 0, 0, 0, 0, 0]);
    body.put_u32(NHA_ID, id);
    body
}

fn nexthop(protocol: u8, id: u32, via: Ipv4Addr, index: u32) -> Body {
    const NHA_OIF: u16 = 5;
    const NHA_GATEWAY: u16 = 6;
    let mut body = nexthop_body(AF_INET, protocol, id);
    body.put_u32(NHA_OIF, index).put(NHA_GATEWAY, &via.octets());
    body
}

fn blackhole(protocol: u8, id: u32) -> Body {
    const NHA_BLACKHOLE: u16 = 4;
    let mut body = nexthop_body(AF_INET, protocol, id);
    body.put(NHA_BLACKHOLE, &[]);
    body
}

fn nexthop_group(protocol: u8, id: u32, members: &[(u32, u16)]) -> Body {
    let mut body = nexthop_body(0, protocol, id);
    let entries = members.iter().flat_map(|&(id, weight)| {
        let [a, b, c, d] = id.to_ne_bytes();
        [a, b, c, d, weight.saturating_sub(1).min(255) as u8, 0, 0, 0]
    });
    body.put(NHA_GROUP, &entries.collect::<Vec<u8>>());
    body
}

/// `ifinfomsg {family, pad, type, index, flags, change}`.
fn link_up(index: u32) -> Body {
    const IFF_UP: u32 = 1;
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
    header[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
    Body::with_header(&header)
}

fn veth(a: &str, b: &str) -> Body {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_LINKINFO: u16 = 18;
    const INFO_KIND: u16 = 1;
    const INFO_DATA: u16 = 2;
    const VETH_INFO_PEER: u16 = 1;
    let mut peer = Body::with_header(&[0; 16]);
    peer.put_text(IFLA_IFNAME, b);
    let mut data = Body::default();
    data.put(VETH_INFO_PEER, &peer.0);
    let mut info = Body::default();
    info.put_text(INFO_KIND, "veth").put_nested(INFO_DATA, &data);
    let mut body = Body::with_header(&[0; 16]);
    body.put_text(IFLA_IFNAME, a).put_nested(IFLA_LINKINFO, &info);
    body
}

/// `ifaddrmsg {family, length, flags, scope, index}`.
fn address(index: u32, prefix: Prefix) -> Body {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let [a, b, c, d] = index.to_ne_bytes();
    let mut body = Body::with_header(&[AF_INET, prefix.length, 0, 0, a, b, c, d]);
    let octets = prefix.address.octets();
    body.put(IFA_LOCAL, &octets).put(IFA_ADDRESS, &octets);
    body
}

/// `rtmsg {family, dst length, src length, tos, table, protocol, scope, type, flags}`.
fn route_through(protocol: u8, to: Prefix, group: u32) -> Body {
    const RTA_DST: u16 = 1;
    const RTA_PRIORITY: u16 = 6;
    const RTA_NH_ID: u16 = 30;
    const MAIN: u8 = 254;
    const UNICAST: u8 = 1;
    let header = [AF_INET, to.length, 0, 0, MAIN, protocol, 0, UNICAST, 0, 0, 0, 0];
    let mut body = Body::with_header(&header);
    body.put(RTA_DST, &to.address.octets());
    body.put_u32(RTA_PRIORITY, METRIC).put_u32(RTA_NH_ID, group);
    body
}

/// `tcmsg {family, pad, index, handle, parent, info}`.
fn traffic_control(index: u32, handle: u32, parent: u32) -> Body {
    let mut header = [0; 20];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    let mut body = Body::with_header(&header);
    body.put_text(TCA_KIND, "htb");
    body
}

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

fn htb_root(index: u32) -> Body {
    const TCA_HTB_INIT: u16 = 2;
    let mut options = Body::default();
    let init = [3_u32, 10, 1, 0, 0];
    options.put(TCA_HTB_INIT, &init.map(u32::to_ne_bytes).concat());
    let mut body = traffic_control(index, HANDLE, u32::MAX);
    body.put_nested(TCA_OPTIONS, &options);
    body
}

fn htb_class(index: u32, rate: BitsPerSecond) -> Body {
    const TCA_HTB_PARMS: u16 = 1;
    const TCA_HTB_RATE64: u16 = 6;
    const TCA_HTB_CEIL64: u16 = 7;
    let bytes_per_second = rate.get() / 8;
    // This 32-bit field saturates at 34 Gbit/s; the kernel uses the 64-bit attribute instead.
    let narrow = u32::try_from(bytes_per_second).unwrap_or(u32::MAX).to_ne_bytes();
    let spec = [&[0, 1, 0, 0, 0, 0, 0, 0][..], &narrow].concat();
    let burst_bytes = u32::try_from((bytes_per_second / 1000).max(16_000)).unwrap_or(u32::MAX);
    // The kernel expects buffer sizes in scheduler ticks of 64 ns.
    let nanos = u128::from(burst_bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    let ticks = u32::try_from(nanos / 64).unwrap_or(u32::MAX);
    let tail = [ticks, ticks, 60_000, 0, 0].map(u32::to_ne_bytes).concat();
    let mut options = Body::default();
    options.put(TCA_HTB_PARMS, &[&spec[..], &spec[..], &tail[..]].concat());
    let wide = bytes_per_second.to_ne_bytes();
    options.put(TCA_HTB_RATE64, &wide).put(TCA_HTB_CEIL64, &wide);
    let mut body = traffic_control(index, HANDLE | 1, HANDLE);
    body.put_nested(TCA_OPTIONS, &options);
    body
}

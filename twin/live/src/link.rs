// SPDX-License-Identifier: Apache-2.0

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption,
    TcActionType, TcAttribute, TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcMirror,
    TcMirrorActionType, TcOption, TcU32Key, TcU32Selector, TcU32SelectorFlags,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::address::hardware;
use crate::netlink::RequestBatch;

const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
const ALL_PROTOCOLS: u32 = 0x0003_u16.to_be() as u32;
const PRIORITY: u32 = 1;

pub(crate) struct Pair<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) peer: &'a str,
    pub(crate) peer_index: u32,
    pub(crate) peer_namespace: RawFd,
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn set_up(message: &mut LinkMessage, up: bool) {
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    message.header.change_mask = LinkFlags::Up;
}

pub(crate) fn add_pair(batch: &mut RequestBatch, pair: &Pair<'_>) {
    let mut peer = link(pair.peer_index);
    peer.attributes = vec![
        LinkAttribute::IfName(pair.peer.to_owned()),
        LinkAttribute::NetNsFd(pair.peer_namespace),
    ];
    let mut message = link(pair.index);
    message.attributes = vec![
        LinkAttribute::IfName(pair.name.to_owned()),
        LinkAttribute::Address(hardware(pair.address).to_vec()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    let what = format!("make the interface {} with its end {}", pair.name, pair.peer);
    batch.add(what, RouteNetlinkMessage::NewLink(message), NEW);
}

pub(crate) fn add_bridge(batch: &mut RequestBatch, name: &str, index: u32) {
    let mut message = link(index);
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    set_up(&mut message, true);
    batch.add(format!("make the bridge {name}"), RouteNetlinkMessage::NewLink(message), NEW);
}

/// The peer's carrier follows this state. With a `bridge`, the interface becomes a port of that bridge.
pub(crate) fn set(batch: &mut RequestBatch, index: u32, up: bool, bridge: Option<u32>) {
    let mut message = link(index);
    set_up(&mut message, up);
    message.attributes.extend(bridge.map(LinkAttribute::Controller));
    let what = format!("set interface {index} {}", if up { "up" } else { "down" });
    batch.add(what, RouteNetlinkMessage::SetLink(message), 0);
}

pub(crate) fn add_address(batch: &mut RequestBatch, index: u32, address: Ipv4Addr, prefix: u8) {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V4(address)),
        AddressAttribute::Address(IpAddr::V4(address)),
    ];
    let what = format!("give interface {index} the address {address}/{prefix}");
    batch.add(what, RouteNetlinkMessage::NewAddress(message), NEW);
}

fn route(to: Ipv4Addr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 32;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet(to))];
    message
}

/// Replaces an existing route. `own` is the source address.
pub(crate) fn set_route(
    batch: &mut RequestBatch,
    to: Ipv4Addr,
    index: u32,
    via: Ipv4Addr,
    own: Ipv4Addr,
) {
    let mut message = route(to);
    message.attributes.extend([
        RouteAttribute::PrefSource(RouteAddress::Inet(own)),
        RouteAttribute::Gateway(RouteAddress::Inet(via)),
        RouteAttribute::Oif(index),
    ]);
    let what = format!("route {to} via {via}");
    batch.add(what, RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE);
}

pub(crate) fn remove_route(batch: &mut RequestBatch, to: Ipv4Addr) {
    let what = format!("remove the route to {to}");
    batch.remove(what, RouteNetlinkMessage::DelRoute(route(to)));
}

pub(crate) fn add_far_end(batch: &mut RequestBatch, index: u32, own: Ipv4Addr, far: Ipv4Addr) {
    let mut message = route(far);
    message.header.scope = RouteScope::Link;
    message
        .attributes
        .extend([RouteAttribute::PrefSource(RouteAddress::Inet(own)), RouteAttribute::Oif(index)]);
    let what = format!("route {far} over interface {index}");
    batch.add(what, RouteNetlinkMessage::NewRoute(message), NEW);
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(far)),
        NeighbourAttribute::LinkLayerAddress(hardware(far).to_vec()),
    ];
    let what = format!("name the hardware address of {far}");
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    batch.add(what, RouteNetlinkMessage::NewNeighbour(message), flags);
}

/// With an ingress qdisc, packets that arrive on an interface can be redirected.
pub(crate) fn add_ingress(batch: &mut RequestBatch, index: u32) {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::INGRESS;
    message.header.handle = TcHandle { major: u16::MAX, minor: 0 };
    message.attributes = vec![TcAttribute::Kind("ingress".to_owned())];
    let what = format!("hook into interface {index} (tc ingress)");
    batch.add(what, RouteNetlinkMessage::NewQueueDiscipline(message), NEW);
}

fn filter(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle { major: u16::MAX, minor: 0 };
    message.header.info = PRIORITY << 16 | ALL_PROTOCOLS;
    message
}

pub(crate) fn redirect(batch: &mut RequestBatch, index: u32, to: u32) {
    let mut mirror = TcMirror::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = to;
    let mut action = TcAction::default();
    action.tab = 1;
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(
            mirror,
        ))]),
    ];
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    let mut message = filter(index);
    message.attributes = vec![
        TcAttribute::Kind(TcFilterU32::KIND.to_owned()),
        TcAttribute::Options(vec![
            TcOption::U32(TcFilterU32Option::Selector(selector)),
            TcOption::U32(TcFilterU32Option::Action(vec![action])),
        ]),
    ];
    let what = format!("join interface {index} with {to} (tc u32 and mirred)");
    batch.add(what, RouteNetlinkMessage::NewTrafficFilter(message), NEW);
}

pub(crate) fn part(batch: &mut RequestBatch, index: u32) {
    let what = format!("part interface {index}");
    batch.remove(what, RouteNetlinkMessage::DelTrafficFilter(filter(index)));
}

pub(crate) fn limit(batch: &mut RequestBatch, index: u32, bytes_per_second: u64) {
    // struct tc_tbf_qopt contains rate and peak rate (12 bytes each), limit, buffer in ticks of 64 ns, and mtu.
    let burst = (bytes_per_second / 250).clamp(128 << 10, 16 << 20);
    let ticks = burst.saturating_mul(1_000_000_000) / bytes_per_second.max(1) / 64;
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
    let mut parms = [0_u8; 36];
    parms[1] = 1; // linklayer: Ethernet
    parms[8..12].copy_from_slice(&rate.to_ne_bytes());
    parms[24..28].copy_from_slice(&u32::try_from(burst).unwrap_or(u32::MAX).to_ne_bytes());
    parms[28..32].copy_from_slice(&u32::try_from(ticks).unwrap_or(u32::MAX).to_ne_bytes());
    let mut options = vec![TcOption::Other(DefaultNla::new(1, parms.to_vec()))];
    options.push(TcOption::Other(DefaultNla::new(
        6,
        u32::try_from(burst).unwrap_or(u32::MAX).to_ne_bytes().to_vec(),
    )));
    if bytes_per_second > u64::from(u32::MAX) {
        options.push(TcOption::Other(DefaultNla::new(4, bytes_per_second.to_ne_bytes().to_vec())));
    }
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message.header.handle = TcHandle { major: 1, minor: 0 };
    message.attributes = vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Options(options)];
    let what = format!("limit interface {index} (tc tbf)");
    batch.add(what, RouteNetlinkMessage::NewQueueDiscipline(message), NEW);
}

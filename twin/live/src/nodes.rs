// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};

use lightloom_fabric::fabric::Fabric;
use nix::sched::{CloneFlags, unshare};

use crate::address::{self, DCN, LIGHT};
use crate::link::{self, Pair};
use crate::netlink::{Kernel, RequestBatch};
use crate::{Error, record::Record};

const BRIDGE: u32 = 2;
const PORTS: u32 = 100_000;
const DCN_PORTS: u32 = 8_000_000;
const LOOPBACK: u32 = 1;
/// Interface index of light in a node, followed by the indices of the bundles and of the data-centre network.
const LIGHT_INDEX: u32 = 9;
/// Up to 254 nodes may be between the ends of a line, and routes over a dark fibre must be ignored.
const FORWARDING: [(&str, &str); 3] =
    [("ip_forward", "1"), ("ip_default_ttl", "255"), ("conf/all/ignore_routes_with_linkdown", "1")];
/// More threads would only wait for the kernel's global network configuration lock.
const THREADS: u32 = 2;

pub(crate) fn port_index(node: u32, bundle: u8) -> u32 {
    PORTS + node * u32::from(address::BUNDLES_MAX) + u32::from(bundle)
}

pub(crate) fn inside_index(bundle: u8) -> u32 {
    LIGHT_INDEX + 1 + u32::from(bundle)
}

pub(crate) fn dcn_index(node: u32) -> u32 {
    DCN_PORTS + node
}

struct FarEnd {
    bundle: u8,
    address: Ipv4Addr,
}

pub(crate) fn make(record: &Record, fabric: &Fabric) -> Result<Vec<File>, Error> {
    let outside = File::open("/proc/self/ns/net")
        .map_err(Error::cannot("open the namespace of the fibres"))?;
    let mut kernel = Kernel::open()?;
    let mut batch = RequestBatch::default();
    link::set(&mut batch, LOOPBACK, true, None);
    link::add_bridge(&mut batch, "dcn", BRIDGE);
    kernel.run(batch)?;
    let mut far_ends: Vec<Vec<FarEnd>> = (0..record.nodes).map(|_| Vec::new()).collect();
    for fibre in fabric.hbd.fibres() {
        let (a, b) = fabric.hbd.ports(fibre);
        for (near, far) in [(a.bundle, b.bundle), (b.bundle, a.bundle)] {
            let address = address::port(far.node.0, far.bundle);
            if let Some(ends) = far_ends.get_mut(near.node.index()) {
                ends.push(FarEnd { bundle: near.bundle, address });
            }
        }
    }
    let (far_ends, fd) = (&far_ends, outside.as_raw_fd());
    let share = record.nodes.div_ceil(THREADS).max(1);
    let made = std::thread::scope(|scope| {
        let starts = (0..record.nodes).step_by(share as usize);
        let threads: Vec<_> = starts
            .map(|start| {
                let end = (start + share).min(record.nodes);
                let made = (start..end)
                    .map(move |node| make_one(record, node, &far_ends[node as usize], fd));
                scope.spawn(move || made.collect::<Result<Vec<_>, _>>())
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Refused("a thread ended early".into())))
        });
        joined.collect::<Result<Vec<_>, Error>>()
    })?;
    let mut batch = RequestBatch::default();
    for node in 0..record.nodes {
        for bundle in 0..record.bundles {
            link::add_ingress(&mut batch, port_index(node, bundle));
            if let Some(rate) = record.bytes_per_second {
                link::limit(&mut batch, port_index(node, bundle), rate);
            }
        }
        link::set(&mut batch, dcn_index(node), true, Some(BRIDGE));
    }
    kernel.run(batch)?;
    Ok(made.into_iter().flatten().collect())
}

fn make_one(record: &Record, node: u32, ends: &[FarEnd], outside: RawFd) -> Result<File, Error> {
    let name = format!("n{node}");
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(Error::cannot(format!("make the network namespace of {name}")))?;
    let namespace = File::open("/proc/thread-self/ns/net")
        .map_err(Error::cannot(format!("open the namespace of {name}")))?;
    let _slower_without = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let _slower_without = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for (key, value) in FORWARDING {
        std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value)
            .map_err(Error::cannot(format!("set {key} of {name}")))?;
    }
    let mut kernel = Kernel::open()?;
    let mut batch = RequestBatch::default();
    link::set(&mut batch, LOOPBACK, true, None);
    link::add_bridge(&mut batch, LIGHT, LIGHT_INDEX);
    link::add_address(&mut batch, LIGHT_INDEX, address::light(node), 32);
    let own = address::dcn(node);
    let peer = format!("{name}-{DCN}");
    let dcn = inside_index(address::BUNDLES_MAX);
    let mut add = |name: &str, index, peer: &str, peer_index, own, prefix| {
        let pair = Pair { name, index, address: own, peer, peer_index, peer_namespace: outside };
        link::add_pair(&mut batch, &pair);
        link::set(&mut batch, index, true, None);
        link::add_address(&mut batch, index, own, prefix);
    };
    add(DCN, dcn, &peer, dcn_index(node), own, 16);
    for bundle in 0..record.bundles {
        let (inside, peer) = (format!("b{bundle}"), format!("{name}-b{bundle}"));
        let own = address::port(node, bundle);
        add(&inside, inside_index(bundle), &peer, port_index(node, bundle), own, 32);
    }
    for end in ends {
        let own = address::port(node, end.bundle);
        link::add_far_end(&mut batch, inside_index(end.bundle), own, end.address);
    }
    kernel.run(batch)?;
    Ok(namespace)
}

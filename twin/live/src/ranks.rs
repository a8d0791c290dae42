// SPDX-License-Identifier: Apache-2.0
//! The rank file: the groups, their members, and the members' neighbours over light. It is
//! rewritten after every circuit change, so that jobs can adapt.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;
use serde::{Deserialize, Serialize};

use crate::record::Folder;
use crate::{Error, address, routes};

pub const FILE: &str = "ranks.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    pub generation: u64,
    pub unix_us: u64,
    pub plan: String,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: String,
    pub job: Option<String>,
    pub members: Vec<RankMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMember {
    pub node: String,
    /// Address of the next node's port; `None` at the end of the line.
    pub next: Option<Ipv4Addr>,
    /// Address of the previous node's port; `None` at the start of the line.
    pub previous: Option<Ipv4Addr>,
}

impl Ranks {
    pub fn of(plan: &Plan, generation: u64) -> Self {
        let mut far: BTreeMap<(NodeId, NodeId), Ipv4Addr> = BTreeMap::new();
        for circuit in &plan.circuits {
            let (a, b) = (circuit.a.bundle, circuit.b.bundle);
            far.insert((a.node, b.node), address::port(b.node.0, b.bundle));
            far.insert((b.node, a.node), address::port(a.node.0, a.bundle));
        }
        let groups = plan.groups.iter().map(|group| {
            let job = group.job.and_then(|job| plan.jobs.get(job as usize));
            let members = group.nodes.iter().enumerate().map(|(index, node)| RankMember {
                node: node.to_string(),
                next: group.nodes.get(index + 1).and_then(|to| far.get(&(*node, *to)).copied()),
                previous: index
                    .checked_sub(1)
                    .and_then(|before| group.nodes.get(before))
                    .and_then(|to| far.get(&(*node, *to)).copied()),
            });
            Group {
                id: group.id.to_string(),
                job: job.map(|job| job.name.clone()),
                members: members.collect(),
            }
        });
        let digest = plan.digest.clone();
        Self { generation, unix_us: crate::unix_us(), plan: digest, groups: groups.collect() }
    }

    pub fn write(folder: &Folder, plan: &Plan) -> Result<Self, Error> {
        let before: Self = folder.read(FILE)?.unwrap_or_default();
        let mut ranks = Self::of(plan, before.generation + 1);
        routes::rewrite(folder, &before, &ranks)?;
        let working = ranks.groups.iter().filter(|group| group.job.is_some());
        write_hosts(folder, "all", working.clone().flat_map(|group| &group.members))?;
        for group in working {
            write_hosts(folder, &group.id, group.members.iter())?;
        }
        ranks.unix_us = crate::unix_us();
        folder.write(FILE, &ranks)?;
        Ok(ranks)
    }

    pub fn find(&self, node: &str) -> Option<(&Group, usize)> {
        self.groups.iter().find_map(|group| {
            let index = group.members.iter().position(|member| member.node == node)?;
            Some((group, index))
        })
    }
}

fn write_hosts<'a>(
    folder: &Folder,
    name: &str,
    members: impl Iterator<Item = &'a RankMember>,
) -> Result<(), Error> {
    let hosts: String = members.map(|member| format!("{} slots=1\n", member.node)).collect();
    let file = folder.file("hostfiles").join(name);
    std::fs::write(&file, hosts).map_err(Error::cannot(format!("write {}", file.display())))
}

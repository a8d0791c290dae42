// SPDX-License-Identifier: Apache-2.0
//! Who computes with whom over which fibre, written for jobs after every change of the light.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;
use serde::{Deserialize, Serialize};

use crate::record::Folder;
use crate::{Error, address, routes};

/// The file of [`Ranks`].
pub const FILE: &str = "ranks.json";

/// Every group of the plan on the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    /// Grows with each change.
    pub generation: u64,
    /// When it was written, Unix time in microseconds.
    pub unix_us: u64,
    /// The digest of the plan.
    pub plan: String,
    /// Groups of jobs, then spare ones.
    pub groups: Vec<Group>,
}

/// Nodes in the order of their line of light.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name in the plan.
    pub id: String,
    /// The job that it works for; `None` for a spare one.
    pub job: Option<String>,
    /// Its members.
    pub members: Vec<RankMember>,
}

/// A node of a group and its neighbours over light.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMember {
    /// The node.
    pub node: String,
    /// The address of the next node's port; `None` at the end of the line.
    pub next: Option<Ipv4Addr>,
    /// The address of the previous node's port; `None` at its beginning.
    pub previous: Option<Ipv4Addr>,
}

impl Ranks {
    /// As `plan` says.
    #[must_use]
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

    /// Writes them, and host files for MPI beside them, as one generation more than those that are there, once the routes
    /// along the lines of light are theirs.
    ///
    /// # Errors
    /// A route is refused, or the folder cannot be written.
    pub fn write(folder: &Folder, plan: &Plan) -> Result<Self, Error> {
        let before: Self = folder.read(FILE)?.unwrap_or_default();
        let mut ranks = Self::of(plan, before.generation + 1);
        routes::rewrite(folder, &before, &ranks)?;
        let working = || ranks.groups.iter().filter(|group| group.job.is_some());
        write_hosts(folder, "all", working().flat_map(|group| &group.members))?;
        for group in working() {
            write_hosts(folder, &group.id, group.members.iter())?;
        }
        ranks.unix_us = crate::unix_us();
        folder.write(FILE, &ranks)?;
        Ok(ranks)
    }

    /// The group of a node, and which member it is.
    #[must_use]
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
    std::fs::write(&file, hosts)
        .map_err(|error| Error::system(format!("write {}", file.display()), error))
}

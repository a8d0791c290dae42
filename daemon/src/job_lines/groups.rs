// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const GROUPS_MAX: usize = 4_096;
const REQUESTS_MAX: usize = 64;
/// Above this number, a backend is a transfer between two pipeline stages.
const PIPELINE_BACKENDS: u32 = 10;
/// Opus's shim waits one second for the answer to a join. A later answer would end its next join.
const JOIN_WITHIN: Duration = Duration::from_millis(900);

/// A training process, which uses one connection for all its groups.
#[derive(Clone, Debug)]
pub(super) struct JobProcess {
    pub(super) number: u64,
    pub(super) host: IpAddr,
    pub(super) stream: Arc<TcpStream>,
}

impl JobProcess {
    /// Closes the connection if the process does not read its answers.
    pub(super) fn send(&self, lines: &str) {
        if self.stream.try_write(lines.as_bytes()).ok() != Some(lines.len()) {
            let _ = shutdown(&self.stream, Shutdown::Both);
        }
    }
}

/// An operation whose circuits a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupOperation {
    pub(super) backend: u32,
    pub(super) count: u64,
}

/// Returns the members when all of them have asked. It is closed if one of them has left.
pub(super) type Gathered = oneshot::Receiver<Vec<JobProcess>>;

#[derive(Debug)]
struct CircuitRequest {
    members: BTreeMap<u64, JobProcess>,
    gathered: Option<oneshot::Sender<Vec<JobProcess>>>,
}

#[derive(Debug, Default)]
struct ProcessGroup {
    job: usize,
    size: usize,
    members: BTreeMap<u64, (JobProcess, Option<Instant>)>,
    requests: BTreeMap<GroupOperation, CircuitRequest>,
    /// Failed requests, which members that ask later do not repeat.
    failed: BTreeSet<GroupOperation>,
}

fn needed(size: usize, of: GroupOperation) -> usize {
    if of.backend > PIPELINE_BACKENDS { size.min(2) } else { size }
}

/// The groups of all jobs, and the requests that wait for their members.
#[derive(Debug, Default)]
pub(super) struct ProcessGroups(BTreeMap<String, ProcessGroup>);

impl ProcessGroups {
    /// Adds a process to a group, and answers all members that wait if the group is complete.
    pub(super) fn join(&mut self, id: &str, job: usize, size: usize, process: &JobProcess) {
        let has_room = self.0.len() < GROUPS_MAX;
        let group = self.0.entry(id.to_owned()).or_insert_with(|| ProcessGroup {
            job,
            size,
            ..ProcessGroup::default()
        });
        if !has_room || group.job != job || group.members.len() >= group.size {
            process.send(&format!("CHECKIN_ACK;{id},-1\n"));
            return;
        }
        group.members.insert(process.number, (process.clone(), Some(Instant::now())));
        if group.members.len() == group.size {
            let hosts: BTreeSet<IpAddr> = group.members.values().map(|(one, _)| one.host).collect();
            let line = format!("CHECKIN_ACK;{id},{}\n", u8::from(hosts.len() == 1));
            for (member, joined) in group.members.values_mut() {
                if joined.take().is_some_and(|joined| joined.elapsed() < JOIN_WITHIN) {
                    member.send(&line);
                }
            }
        }
    }

    /// Adds a request of a member. The first one gets a receiver. The error is the code of the
    /// answer to a member that does not wait.
    pub(super) fn ask(
        &mut self,
        id: &str,
        operation: GroupOperation,
        process: &JobProcess,
    ) -> Result<Option<Gathered>, &'static str> {
        let group = self.0.get_mut(id).filter(|group| group.members.contains_key(&process.number));
        let ProcessGroup { size, requests, failed, .. } = group.ok_or("not-joined")?;
        if failed.contains(&operation) {
            return Err("late");
        }
        if requests.len() >= REQUESTS_MAX {
            return Err("too-many");
        }
        let mut first = None;
        let request = requests.entry(operation).or_insert_with(|| {
            let (sender, receiver) = oneshot::channel();
            first = Some(receiver);
            CircuitRequest { members: BTreeMap::new(), gathered: Some(sender) }
        });
        request.members.insert(process.number, process.clone());
        if request.members.len() >= needed(*size, operation)
            && let Some(CircuitRequest { members, gathered: Some(gathered) }) =
                requests.remove(&operation)
        {
            let _ = gathered.send(members.into_values().collect());
        }
        Ok(first)
    }

    /// Ends a request that failed, and returns the members to answer.
    pub(super) fn fail(&mut self, id: &str, operation: GroupOperation) -> Vec<JobProcess> {
        let Some(group) = self.0.get_mut(id) else { return Vec::new() };
        group.failed.insert(operation);
        if group.failed.len() > REQUESTS_MAX {
            group.failed.pop_first();
        }
        let request = group.requests.remove(&operation);
        request.into_iter().flat_map(|request| request.members.into_values()).collect()
    }

    /// Removes a process whose connection is closed. Requests that need all members fail.
    pub(super) fn leave(&mut self, number: u64) {
        for group in self.0.values_mut().filter(|group| group.members.contains_key(&number)) {
            group.members.remove(&number);
            for (operation, request) in &mut group.requests {
                request.members.remove(&number);
                if needed(group.size, *operation) == group.size {
                    request.gathered = None;
                }
            }
        }
        self.0.retain(|_, group| !group.members.is_empty());
    }

    pub(super) fn is_running(&self, job: usize) -> bool {
        self.0.values().any(|group| group.job == job)
    }
}

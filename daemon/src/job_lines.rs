// SPDX-License-Identifier: Apache-2.0
//! Phase requests in the line protocol of Opus's process groups.
//!
//! ```text
//!   COMM;G,n,r         join group G of n members ──▶ CHECKIN_ACK;G,d   d: 0 network, 1 one host, -1 refused
//!   CONFIG_REQ;G,b,c   all members and groups asked? ──▶ POST /v1/phase ──▶ lit? ──▶ CONFIG_ACK;G
//!                            └────── no ────────────────────────────────────┴──▶ CONFIG_NACK;G,b,c,CODE, CONFIG_ACK;G
//! ```
//!
//! Requests are sent to the router of the API, so its rate limit, leases, journal and audit log
//! apply. Lines have no sequence numbers, so a late answer would be taken for the answer to the next
//! request. Each request therefore has exactly one `CONFIG_ACK`, before the shim gives up. The shim
//! skips `CONFIG_NACK`.

mod agreements;
mod groups;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use prometheus::IntCounterVec;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::{JobLinesFile, Role, micros};
use crate::serve::Client;
use agreements::{Agreements, JobPhase};
use groups::{Gathered, GroupOperation, JobProcess, ProcessGroups};

const CONNECTIONS_MAX: usize = 4_096;
/// The longest line is a request with a group of 64 digits and two numbers.
const LINE_BYTES_MAX: usize = 128;
/// How long the members of a group wait for the last one.
const MEMBERS_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 150 } else { 5_000 });
/// Opus's shim waits 10 s.
const ANSWER_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 400 } else { 9_000 });
const LIT: &str = "lit";

struct JobServer {
    file: JobLinesFile,
    router: TowerToHyperService<Router>,
    answers: IntCounterVec,
    groups: Mutex<ProcessGroups>,
    agreements: Mutex<Agreements>,
    /// Whether each job may have a lease. A lock is held during a request of the job.
    leases: Vec<tokio::sync::Mutex<bool>>,
}

/// Starts to serve jobs. Returns the address.
pub async fn listen(
    file: JobLinesFile,
    router: Router,
    answers: IntCounterVec,
) -> anyhow::Result<SocketAddr> {
    let at = file.listen;
    let listener = TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?;
    let at = listener.local_addr()?;
    let leases = file.jobs.iter().map(|_| tokio::sync::Mutex::default()).collect();
    let router = TowerToHyperService::new(router);
    let (groups, agreements) = (Mutex::default(), Mutex::default());
    let edge = Arc::new(JobServer { file, router, answers, groups, agreements, leases });
    tokio::spawn(async move {
        for number in 0.. {
            match listener.accept().await {
                Ok((stream, peer)) => edge.admit(number, stream, peer),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    });
    Ok(at)
}

impl JobServer {
    fn groups(&self) -> MutexGuard<'_, ProcessGroups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agreements(&self) -> MutexGuard<'_, Agreements> {
        self.agreements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(self: &Arc<Self>, number: u64, stream: TcpStream, peer: SocketAddr) {
        let job = self.file.jobs.iter().position(|job| job.hosts.contains(&peer.ip()));
        let has_room = Arc::strong_count(self) <= CONNECTIONS_MAX;
        let Some(job) = job.filter(|_| has_room) else {
            tracing::warn!(%peer, has_room, "refused a connection of a job");
            return;
        };
        let edge = Arc::clone(self);
        tokio::spawn(async move {
            let process = JobProcess { number, host: peer.ip(), stream: Arc::new(stream) };
            let end = edge.serve(job, &process).await;
            tracing::info!(%peer, ?end, "a process of a job has left");
            edge.groups().leave(number);
            edge.release_if_ended(job).await;
        });
    }

    async fn serve(self: &Arc<Self>, job: usize, process: &JobProcess) -> io::Result<()> {
        process.stream.set_nodelay(true)?;
        let mut bytes = Vec::new();
        loop {
            process.stream.readable().await?;
            match process.stream.try_read_buf(&mut bytes) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                self.execute(job, process, line.trim_end()).ok_or(ErrorKind::InvalidData)?;
            }
            if bytes.len() > LINE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    /// Returns `None` if this is not a line of the protocol.
    fn execute(self: &Arc<Self>, job: usize, process: &JobProcess, line: &str) -> Option<()> {
        if line.is_empty() {
            return Some(());
        }
        let (header, body) = line.split_once(';')?;
        let fields: Vec<&str> = body.split(',').collect();
        let [group, first, second] = fields[..] else { return None };
        if group.len() != 64 || !group.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')) {
            return None;
        }
        match header {
            "COMM" => {
                let (size, _) = (first.parse().ok()?, second.parse::<u32>().ok()?);
                (1..=CONNECTIONS_MAX).contains(&size).then_some(())?;
                self.groups().join(group, job, size, process);
            }
            "CONFIG_REQ" => {
                let operation =
                    GroupOperation { backend: first.parse().ok()?, count: second.parse().ok()? };
                let asked = self.groups().ask(group, operation, process);
                let (edge, group) = (Arc::clone(self), group.to_owned());
                match asked {
                    Ok(Some(all)) => drop(tokio::spawn(edge.light(job, group, operation, all))),
                    Ok(None) => {}
                    Err(code) => self.answer(job, from_ref(process), &group, operation, code),
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Waits for the members of a group, requests the phase and answers the members.
    async fn light(
        self: Arc<Self>,
        job: usize,
        group: String,
        operation: GroupOperation,
        gathered: Gathered,
    ) {
        let until = Instant::now() + ANSWER_WITHIN;
        let phases = &self.file.jobs[job].phases;
        let phase = phases.iter().position(|phase| phase.backend == operation.backend);
        let (members, code) = match (timeout(MEMBERS_WITHIN, gathered).await, phase) {
            (Ok(Ok(members)), Some(phase)) => {
                (members, self.agree(JobPhase { job, phase }, &group, until).await)
            }
            (Ok(Ok(members)), None) => (members, "no-such-backend".into()),
            (Ok(Err(_)), _) => (self.groups().fail(&group, operation), "member-gone".into()),
            (Err(_), _) => (self.groups().fail(&group, operation), "members-missing".into()),
        };
        self.answer(job, &members, &group, operation, &code);
        self.release_if_ended(job).await;
    }

    /// Waits for the other groups of the phase, and for the request that the last one makes.
    async fn agree(self: &Arc<Self>, of: JobPhase, group: &str, until: Instant) -> String {
        let needed = self.file.jobs[of.job].phases[of.phase].groups.map_or(1, NonZeroUsize::get);
        let (mut code, complete) = self.agreements().ask(of, group, needed);
        if let Some(complete) = complete {
            // The request continues after the answer, and the next one of the job waits for it.
            let edge = Arc::clone(self);
            tokio::spawn(async move { complete.send_replace(edge.request(of, until).await) });
        }
        let waited = timeout_at(until, code.wait_for(|code| !code.is_empty())).await;
        match waited {
            Ok(code) => code.map_or("refused".into(), |code| code.clone()),
            Err(_) if self.agreements().withdraw(of, group) => "groups-missing".into(),
            Err(_) => "too-slow".into(),
        }
    }

    /// Requests a phase, waits for its end and returns its state or the code of the refusal.
    async fn request(&self, JobPhase { job, phase }: JobPhase, until: Instant) -> String {
        let mut lease = self.leases[job].lock().await;
        if Instant::now() >= until {
            return "too-slow".to_owned();
        }
        *lease = true;
        let (id, job_file) = (request_id(), &self.file.jobs[job]);
        let phase = &job_file.phases[phase];
        let ms = micros(phase.least).0.div_ceil(1000);
        let body = json!({
            "request_id": id,
            "job": job_file.name,
            "phase": phase.phase,
            "for_ms": ms,
            "lease_ms": ms,
        });
        let mut answer = self.call(job, "/v1/phase", body.to_string()).await;
        if answer["answer"] == "booked" {
            let path = format!("/v1/phase/{id}?wait_ms=55000");
            answer = self.call(job, &path, String::new()).await;
        }
        let code = answer["state"].as_str().or(answer["code"].as_str()).unwrap_or("refused");
        if code != LIT {
            tracing::warn!(job = job_file.name, %answer, "the phase is not lit");
        }
        code.to_owned()
    }

    /// Releases the lease of a job without processes. Its circuits stay lit.
    async fn release_if_ended(&self, job: usize) {
        let mut lease = self.leases[job].lock().await;
        if !self.groups().is_running(job) && std::mem::take(&mut *lease) {
            let body = json!({"request_id": request_id(), "job": self.file.jobs[job].name});
            let answer = self.call(job, "/v1/phase/release", body.to_string()).await;
            tracing::info!(job = self.file.jobs[job].name, %answer, "the job has ended");
        }
    }

    /// Calls the API: `POST` with a body, otherwise `GET`.
    async fn call(&self, job: usize, path: &str, body: String) -> Value {
        let name = format!("job-lines:{}", self.file.jobs[job].name);
        let request = Request::builder()
            .method(if body.is_empty() { "GET" } else { "POST" })
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .extension(Client { name, roles: BTreeSet::from([Role::Read, Role::Phase]) })
            .body(Body::from(body));
        let Ok(request) = request else { return Value::Null };
        let Ok(response) = self.router.call(request).await;
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        serde_json::from_slice(&body).unwrap_or_default()
    }

    fn answer(
        &self,
        job: usize,
        members: &[JobProcess],
        group: &str,
        of: GroupOperation,
        code: &str,
    ) {
        let (job, GroupOperation { backend, count }) = (&self.file.jobs[job].name, of);
        self.answers.with_label_values(&[job.as_str(), code]).inc();
        let mut lines = format!("CONFIG_ACK;{group}\n");
        if code != LIT {
            tracing::warn!(job, group, backend, count, code, "a process group has no circuits");
            lines.insert_str(0, &format!("CONFIG_NACK;{group},{backend},{count},{code}\n"));
        }
        for member in members {
            member.send(&lines);
        }
    }
}

/// A restarted daemon remembers the ids of earlier requests, so a count would not be unique. Neither
/// would group, backend and count, because a shim counts both directions between two stages alike.
fn request_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("job-lines-{}", id.trim())
}

// SPDX-License-Identifier: Apache-2.0
//! Admission checks on a request head before the daemon reads the body.
//!
//! ```text
//!   head ──▶ role? ──▶ length? ──▶ rate? ──▶ room? ──▶ body ──▶ handler
//!             403       413         429       429       408
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::{Moved, Paced, Problem};
use super::shared::{Shared, TRACE};
use crate::config::Role;
use crate::rate::{Allowance, Rates};
use crate::serve::{Answering, Busy, Client};
use crate::traces::TraceParent;
use crate::view;
use lightloom_control::record::Asked;

pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
pub(super) const PLAN_BYTES_MAX: usize = 64 << 20;
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// Larger bodies count against [`BODIES_MAX`].
const SMALL_BYTES_MAX: u64 = 64 << 10;
const BODIES_MAX: usize = 16;
const BODIES_OF_ONE_MAX: usize = 4;
/// How long a client must wait after a plan whose upload was too slow.
const NO_PLAN_FOR: Duration = Duration::from_secs(30);
const RETRY_AFTER: u64 = 1;
/// The daemon reads all reachable devices within this time after it starts.
const READ_WITHIN: Duration = Duration::from_secs(3);
const SHOWN_WITHIN: Duration = Duration::from_millis(500);
const REQUESTS_OF_EACH: Allowance = Allowance { burst: 120, per_second: 2 };
const REQUESTS_OF_ALL: Allowance = Allowance { burst: 300, per_second: 4 };

#[derive(Clone, Copy, Debug)]
struct Rule {
    path: &'static str,
    verb: &'static str,
    role: Role,
    changes: bool,
    plan: bool,
}

const fn change(path: &'static str, verb: &'static str, role: Role) -> Rule {
    Rule { path, verb, role, changes: true, plan: false }
}

const fn preview(path: &'static str) -> Rule {
    Rule { path, verb: "diff", role: Role::Plan, changes: false, plan: false }
}

const RULES: [Rule; 13] = [
    Rule { plan: true, ..change("/v1/apply", "apply", Role::Apply) },
    Rule { plan: true, ..preview("/v1/diff") },
    change("/v1/confirm", "confirm", Role::Confirm),
    change("/v1/rollback", "rollback", Role::Apply),
    change("/v1/adopt", "adopt", Role::Apply),
    change("/v1/drain", "drain", Role::Apply),
    change("/v1/undrain", "undrain", Role::Apply),
    change("/v1/resume", "resume", Role::Apply),
    change("/v1/faults", "fault", Role::Apply),
    change("/v1/phase", "phase", Role::Phase),
    change("/v1/phase/release", "release", Role::Phase),
    preview("/v1/rollback/diff"),
    preview("/v1/faults/diff"),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct AsItComes;

#[derive(Clone)]
pub(super) struct Gate {
    shared: Shared,
    began: Instant,
    plan: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    clients: Arc<Mutex<Clients>>,
    last_txn: Arc<AtomicU32>,
}

struct Clients {
    rates: Rates,
    bodies: BTreeMap<String, usize>,
    no_plan_until: BTreeMap<String, Instant>,
}

struct Room {
    gate: Gate,
    client: String,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Room {
    fn drop(&mut self) {
        let bodies = &mut self.gate.clients().bodies;
        if let Some(count) = bodies.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                bodies.remove(&self.client);
            }
        }
    }
}

impl Gate {
    pub(super) fn new(shared: Shared) -> Self {
        let clients = Clients {
            rates: Rates::new(REQUESTS_OF_EACH, REQUESTS_OF_ALL),
            bodies: BTreeMap::new(),
            no_plan_until: BTreeMap::new(),
        };
        Self {
            shared,
            began: Instant::now(),
            plan: Arc::new(Semaphore::new(1)),
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            clients: Arc::new(Mutex::new(clients)),
            last_txn: Arc::new(AtomicU32::new(0)),
        }
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_head(&self, client: &Client, rule: Rule, length: Option<u64>) -> Result<(), Problem> {
        client.must_have(rule.role).map_err(Problem::Forbidden)?;
        let most = if rule.plan { PLAN_BYTES_MAX } else { BODY_BYTES_MAX };
        if length.is_some_and(|length| length > most as u64) {
            return Err(too_long(most));
        }
        if rule.changes && !self.clients().rates.take(&client.name, self.shared.clock.now().mono) {
            let reason = format!("too many requests from {}; help: wait one second", client.name);
            return Err(Problem::Busy { reason, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    fn room(&self, client: &Client, plan: bool) -> Result<Room, Problem> {
        let mut clients = self.clients();
        clients.no_plan_until.retain(|_, until| *until > Instant::now());
        if let Some(until) = clients.no_plan_until.get(&client.name).filter(|_| plan) {
            let left = until.saturating_duration_since(Instant::now()).as_secs() + 1;
            let reason = format!("the previous plan from {} did not arrive in time", client.name);
            return Err(Problem::Busy { reason, retry_after: left });
        }
        if clients.bodies.get(&client.name).is_some_and(|count| *count >= BODIES_OF_ONE_MAX) {
            let reason =
                format!("already reading {BODIES_OF_ONE_MAX} request bodies from {}", client.name);
            return Err(Problem::Busy { reason, retry_after: RETRY_AFTER });
        }
        let (from, reason) = match plan {
            true => (&self.plan, "another plan is being uploaded; the daemon reads one at a time"),
            false => (&self.bodies, "too many request bodies are being read"),
        };
        let permit = Arc::clone(from).try_acquire_owned();
        let permit = permit
            .map_err(|_| Problem::Busy { reason: reason.to_owned(), retry_after: RETRY_AFTER })?;
        *clients.bodies.entry(client.name.clone()).or_default() += 1;
        Ok(Room { gate: self.clone(), client: client.name.clone(), _permit: permit })
    }

    async fn admit(
        &self,
        client: &Client,
        rule: Rule,
        request: Request,
    ) -> Result<(Request, Option<Room>), Problem> {
        let length = request.body().size_hint().exact();
        self.of_head(client, rule, length)?;
        let long = length.is_none_or(|length| length > BODY_BYTES_MAX as u64);
        if rule.plan && long {
            let room = self.room(client, true)?;
            let mut request = request;
            request.extensions_mut().insert(AsItComes);
            return Ok((request, Some(room)));
        }
        let short = length.is_some_and(|length| length <= SMALL_BYTES_MAX);
        let room = if short { None } else { Some(self.room(client, false)?) };
        let (head, body) = request.into_parts();
        let body = timeout(BODY_WITHIN, to_bytes(body, BODY_BYTES_MAX)).await;
        let body = body.map_err(|_| too_slow())?.map_err(|_| too_long(BODY_BYTES_MAX))?;
        Ok((Request::from_parts(head, Body::from(body)), room))
    }

    async fn until_read(&self, within: Duration) {
        let until = self.began + within;
        let mut changes = self.shared.changes.clone();
        while Instant::now() < until {
            changes.mark_unchanged();
            if self.shared.look(view::is_settled).await.unwrap_or(true) {
                return;
            }
            let _ = timeout(until - Instant::now(), changes.changed()).await;
        }
    }

    fn write_refusal(&self, client: &Client, rule: Rule, problem: &Problem) {
        let (request, digest) = (String::new(), String::new());
        let asked = Asked { actor: client.name.as_str().into(), request, digest };
        self.shared.write_refusal(rule.verb, asked, problem);
    }
}

fn too_long(most: usize) -> Problem {
    let reason = format!("the request body is limited to {} MB", most >> 20);
    Problem::Body(StatusCode::PAYLOAD_TOO_LARGE, vec![reason])
}

pub(super) fn too_slow() -> Problem {
    let reason = "the request body did not arrive in time; help: send it again without pauses";
    Problem::Body(StatusCode::REQUEST_TIMEOUT, vec![reason.into()])
}

pub(super) async fn gate(
    State(gate): State<Gate>,
    Extension(client): Extension<Client>,
    request: Request,
    next: Next,
) -> Response {
    let busy = request.extensions().get::<Busy>().cloned().unwrap_or_default();
    let path = request.uri().path();
    let rule = RULES.iter().find(|rule| rule.path == path);
    let Some(rule) = rule.filter(|_| request.method() == Method::POST).copied() else {
        let _answering = Answering::new(&busy);
        if path == "/v1/status" {
            gate.until_read(SHOWN_WITHIN).await;
        }
        return next.run(request).await;
    };
    let (request, room) = match gate.admit(&client, rule, request).await {
        Ok(admitted) => admitted,
        Err(problem) => {
            if rule.changes {
                gate.write_refusal(&client, rule, &problem);
            }
            return closing(problem.into_response());
        }
    };
    let as_it_comes = request.extensions().get::<AsItComes>().is_some();
    let _answering = Answering::new(&busy);
    gate.until_read(READ_WITHIN).await;
    let header = request.headers().get("traceparent").and_then(|header| header.to_str().ok());
    let answer = match header.and_then(TraceParent::parse) {
        Some(parent) => TRACE.scope(parent, next.run(request)).await,
        None => next.run(request).await,
    };
    drop(room);
    if let Some(Moved(txn)) = answer.extensions().get()
        && gate.last_txn.fetch_max(txn.0, Ordering::Relaxed) < txn.0
    {
        gate.clients().rates.give_back(&client.name);
    }
    if answer.extensions().get::<Paced>().is_some() {
        gate.clients().rates.give_back(&client.name);
    }
    if as_it_comes && answer.status() == StatusCode::REQUEST_TIMEOUT {
        let until = Instant::now() + NO_PLAN_FOR;
        gate.clients().no_plan_until.insert(client.name, until);
    }
    if as_it_comes && !answer.status().is_success() { closing(answer) } else { answer }
}

fn closing(mut answer: Response) -> Response {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_with_a_body_has_a_rule() {
        let document: serde_json::Value = serde_json::from_str(&super::super::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let taking: Vec<&str> =
            paths.iter().filter(|(_, m)| m.get("post").is_some()).map(|(p, _)| &**p).collect();
        for path in &taking {
            assert!(RULES.iter().any(|rule| rule.path == *path), "{path}");
        }
        assert_eq!(taking.len(), RULES.len());
    }
}

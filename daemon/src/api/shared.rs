// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{mpsc, oneshot, watch};

use super::problem::{Answered, Problem};
use crate::audit::{Audit, Entry};
use crate::clock::Clock;
use crate::config::Role;
use crate::hooks::Hooks;
use crate::journal::Stored;
use crate::metrics::Metrics;
use crate::runtime::{AnswerSender, Call, Runtime};
use crate::serve::Client;
use crate::tend::ToDevice;
use crate::traces::{Parents, TraceParent};
use crate::view;
use lightloom_control::controller::{Answer, Request};
use lightloom_control::journal::hex;
use lightloom_control::record::Asked;
use lightloom_control::state::DeviceName;

tokio::task_local! {
    pub(super) static TRACE: TraceParent;
}

const REQUEST_ID_BYTES_MAX: usize = 128;

#[derive(Clone)]
pub struct Shared {
    pub calls: mpsc::Sender<Call>,
    pub audit: Audit,
    pub metrics: Metrics,
    pub changes: watch::Receiver<u64>,
    pub clock: Clock,
    pub hooks: Hooks,
    pub parents: Parents,
    pub devices: BTreeMap<DeviceName, UnboundedSender<ToDevice>>,
}

impl Shared {
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Runtime) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |runtime: &Runtime| {
            let _ = sender.send(look(runtime));
        });
        self.calls.send(Call::Look(look)).await.map_err(|_| Problem::Gone)?;
        receiver.await.map_err(|_| Problem::Gone)
    }

    /// Runs a query only if all records are durable, because its result is an acknowledgement.
    pub(super) async fn look_stored<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Runtime) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let stored = self.look(|runtime| runtime.stored(look)).await?;
        stored.map(Stored::into_inner).map_err(Problem::NotStored)
    }

    pub(super) async fn change(
        &self,
        client: &Client,
        verb: &str,
        asked: Asked,
        role: Role,
        call: impl FnOnce(Asked, AnswerSender) -> Result<Call, Problem>,
    ) -> Result<Answered, Problem> {
        let result = match self.audit.failure().filter(|_| client.must_have(role).is_ok()) {
            Some(why) => Err(Problem::Audit(why)),
            None => match self.ask(client, asked.clone(), role, call).await {
                Ok(Answer::Refused { reasons }) => {
                    Ok(Answer::Refused { reasons: self.with_times(reasons).await })
                }
                other => other,
            },
        };
        let text = match &result {
            Ok(answer) => serde_json::to_string(answer).unwrap_or_default(),
            Err(problem) => format!("{problem:?}"),
        };
        let now = self.clock.now();
        let Asked { actor, request, digest } = asked;
        let actor = actor.to_string();
        let (verb, unix_ms) = (verb.to_owned(), now.wall_ms);
        let entry = Entry { unix_ms, actor, verb, request, digest, result: text };
        let (label, changed) = match &result {
            Ok(
                Answer::Accepted { .. }
                | Answer::Done
                | Answer::Adopted { .. }
                | Answer::Booked { .. },
            ) => ("ok", true),
            Ok(Answer::PhaseRefused { conflict: true, .. }) => ("conflict", false),
            Ok(Answer::PhaseRefused { .. }) => ("refused", false),
            Ok(Answer::NothingToDo { .. }) => ("ok", false),
            Ok(Answer::Conflict { .. }) => ("conflict", false),
            Ok(Answer::Refused { .. }) | Err(_) => ("refused", false),
        };
        self.metrics.requests.with_label_values(&[&entry.verb, label]).inc();
        if !changed {
            self.audit.write_refusal(&now, &entry);
            return result.map(Answered);
        }
        self.audit.write(&entry).map_err(|error| Problem::NotAudited {
            answer: entry.result.clone(),
            why: error.to_string(),
        })?;
        result.map(Answered)
    }

    /// Makes a change that needs no plan.
    pub(super) async fn change_by(
        &self,
        client: &Client,
        verb: &str,
        asked: Asked,
        role: Role,
        request: Result<Request, Problem>,
    ) -> Result<Answered, Problem> {
        let change = self.change(client, verb, asked, role, |asked, answer| {
            Ok(Call::Ask { asked, request: request?, plan: None, answer })
        });
        change.await
    }

    pub(super) async fn before(&self, asked: &Asked, change: Value) -> Result<(), Problem> {
        if !self.hooks.has_before() {
            return Ok(());
        }
        let request = asked.request.clone();
        let is_known = self.look(move |runtime: &Runtime| {
            runtime.control.ledger().requests.contains_key(&request)
        });
        if is_known.await? {
            return Ok(());
        }
        let (hooks, metrics) = (self.hooks.clone(), self.metrics.clone());
        aside(move || hooks.before(&change, &metrics)).await?.map_err(|error| {
            Problem::Refused(vec![format!(
                "the hook `before` refused the change: {error}; nothing was switched; help: fix \
                    the cause, or remove the hook from `hooks:` in the daemon's file"
            )])
        })
    }

    pub(super) fn write_refusal(&self, verb: &str, asked: Asked, problem: &Problem) {
        self.metrics.requests.with_label_values(&[verb, "refused"]).inc();
        let (now, verb) = (self.clock.now(), verb.to_owned());
        let Asked { actor, request, digest } = asked;
        let actor = actor.to_string();
        let (unix_ms, result) = (now.wall_ms, format!("{problem:?}"));
        self.audit.write_refusal(&now, &Entry { unix_ms, actor, verb, request, digest, result });
    }

    pub(super) async fn with_times(&self, mut reasons: Vec<String>) -> Vec<String> {
        let known = reasons.clone();
        let when =
            self.look(move |runtime: &Runtime| view::when_known(&runtime.into(), &known)).await;
        reasons.extend(when.unwrap_or_default());
        reasons
    }

    async fn ask(
        &self,
        client: &Client,
        asked: Asked,
        role: Role,
        call: impl FnOnce(Asked, AnswerSender) -> Result<Call, Problem>,
    ) -> Result<Answer, Problem> {
        client.must_have(role).map_err(Problem::Forbidden)?;
        let id = &asked.request;
        if id.is_empty() || id.len() > REQUEST_ID_BYTES_MAX {
            let reason = format!("`request_id` must have 1 to {REQUEST_ID_BYTES_MAX} bytes");
            return Err(Problem::Refused(vec![reason]));
        }
        if let Ok(parent) = TRACE.try_with(|parent| *parent) {
            self.parents.keep(id, parent);
        }
        let (sender, receiver) = oneshot::channel();
        self.calls.send(call(asked, sender)?).await.map_err(|_| Problem::Gone)?;
        let answer = receiver.await.map_err(|_| Problem::Gone)?;
        answer.map(Stored::into_inner).map_err(Problem::NotStored)
    }
}

/// Runs work that takes time on another thread, so that it does not block the API.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::Gone)
}

pub(super) fn asked(client: &Client, request_id: &str, body: &impl Serialize) -> Asked {
    Asked { actor: client.name.as_str().into(), request: request_id.into(), digest: sha256(body) }
}

pub(super) fn sha256(body: &impl Serialize) -> String {
    let mut hasher = Sha256::new();
    let _ = serde_json::to_writer(&mut hasher, body);
    hex(&hasher.finalize())
}

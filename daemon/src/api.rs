// SPDX-License-Identifier: Apache-2.0
//! The HTTP+JSON API. `daemon/openapi.json` is generated from this module.

mod body;
mod document;
mod gate;
mod phases;
mod plan;
mod problem;
mod reading;
mod responses;
mod resume;
mod shared;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::{Plan, digest};
use serde_json::json;
use tokio::sync::oneshot;
use utoipa::OpenApi;

use crate::config::Role;
use crate::runtime::{Call, Runtime};
use crate::serve::Client;
use crate::tend::{NoPreview, ToDevice};
use crate::view;
use lightloom_control::change::Mode;
use lightloom_control::controller::{Adopt, Apply, Preview, Request, Rollback};
use lightloom_control::desired::{self, Wanted};
use lightloom_control::state::{
    DeviceName, Micros, Neighbours, Op, Outcome, Position, Slot, SwitchState, Txn,
};
use lightloom_daemon_api::body::{AdoptBody, DevicesBody, FaultBody, RollbackBody, TxnBody};
use lightloom_daemon_api::diff::{DeviceBytes, Diff};
use lightloom_daemon_api::drift::DriftReport;
use lightloom_daemon_api::log::Log;
use lightloom_daemon_api::module::ModuleView;
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::transaction::{self, Transaction};

pub use body::{ApplyBody, Last, Wait};
pub use document::PlanDocument;
use gate::{BODY_BYTES_MAX, Gate, gate};
use problem::{Answered, Problem, Reply};
use reading::Posted;
use responses::InCommon;
pub use shared::Shared;
use shared::{aside, asked, sha256};

const LOG_RECORDS_SHOWN: usize = 100;
const CONFIRM_WITHIN_MS_MAX: u64 = 7 * 24 * 3_600_000;
const WAIT_MAX: Duration = Duration::from_secs(55);

#[derive(OpenApi)]
#[openapi(
    info(title = "lightloomd", description = "Drives transceivers and optical switches."),
    modifiers(&InCommon),
    paths(
        status,
        plan::plan_in_force,
        drift,
        transaction,
        journal,
        log,
        module,
        phases::phases,
        phases::phase_status,
        phases::phase,
        phases::release,
        diff,
        apply,
        confirm,
        rollback,
        rollback_diff,
        adopt,
        drain,
        undrain,
        resume::resume,
        fault,
        fault_diff
    ),
    components(schemas(
        Status,
        Diff,
        DriftReport,
        Log,
        ModuleView,
        Transaction,
        transaction::Kind,
        lightloom_daemon_api::phase::PhaseBody,
        lightloom_daemon_api::phase::ReleaseBody,
        lightloom_daemon_api::phase::PhaseStatus,
        lightloom_daemon_api::phase::Phases,
        ApplyBody,
        TxnBody,
        RollbackBody,
        AdoptBody,
        DevicesBody,
        lightloom_daemon_api::body::ResumeBody,
        FaultBody
    ))
)]
struct Document;

pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

pub fn router(shared: Shared) -> Router {
    let at_the_gate = from_fn_with_state(Gate::new(shared.clone()), gate);
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route(
            "/openapi.json",
            get(async || ([(header::CONTENT_TYPE, "application/json")], openapi())),
        )
        .route("/v1/status", get(status))
        .route("/v1/plan", get(plan::plan_in_force))
        .route("/v1/drift", get(drift))
        .route("/v1/transactions/{txn}", get(transaction))
        .route("/v1/journal", get(journal))
        .route("/v1/log", get(log))
        .route("/v1/module/{*device}", get(module))
        .route("/v1/phases", get(phases::phases))
        .route("/v1/phase", post(phases::phase))
        .route("/v1/phase/release", post(phases::release))
        .route("/v1/phase/{request_id}", get(phases::phase_status))
        .route("/v1/diff", post(diff))
        .route("/v1/apply", post(apply))
        .route("/v1/confirm", post(confirm))
        .route("/v1/rollback", post(rollback))
        .route("/v1/rollback/diff", post(rollback_diff))
        .route("/v1/adopt", post(adopt))
        .route("/v1/drain", post(drain))
        .route("/v1/undrain", post(undrain))
        .route("/v1/resume", post(resume::resume))
        .route("/v1/faults", post(fault))
        .route("/v1/faults/diff", post(fault_diff))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(at_the_gate)
        .with_state(shared)
}

async fn healthz(State(shared): State<Shared>) -> Response {
    let failure = shared
        .look(|runtime: &Runtime| {
            runtime.control.journal_failure().map(str::to_owned).or_else(|| runtime.audit.failure())
        })
        .await;
    match failure {
        Ok(None) => "ok\n".into_response(),
        Ok(Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn metrics(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
) -> Result<Response, Problem> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    shared.metrics.watched(&shared.look(view::watched).await?);
    Ok(([(header::CONTENT_TYPE, kind)], shared.metrics.text()).into_response())
}

/// Returns the status, optionally after waiting for a change.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status)),
    params(("wait_ms" = Option<u64>, Query, description = "How long to wait for a change"),
        ("since" = Option<u64>, Query, description = "`changes` value of the previous response; \
            if the state has changed since, the response is immediate")))]
async fn status(
    State(mut shared): State<Shared>,
    Extension(client): Extension<Client>,
    Query(wait): Query<Wait>,
) -> Reply<Status> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    if wait.wait_ms > 0 {
        let since = wait.since.unwrap_or(*shared.changes.borrow());
        let wait = Duration::from_millis(wait.wait_ms).min(WAIT_MAX);
        let _ = tokio::time::timeout(wait, shared.changes.wait_for(|now| *now != since)).await;
    }
    shared.look(view::status).await.map(Json)
}

/// Returns the slots that differ from the journal, and whether all devices have been read.
#[utoipa::path(get, path = "/v1/drift", responses((status = 200, body = DriftReport)))]
async fn drift(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
) -> Reply<DriftReport> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    shared.look(view::drift).await.map(Json)
}

/// Returns the result of a transaction, optionally after waiting for it to end.
#[utoipa::path(get, path = "/v1/transactions/{txn}",
    params(("txn" = u32, Path), ("wait_ms" = Option<u64>, Query)),
    responses((status = 200, body = Transaction), (status = 404)))]
async fn transaction(
    State(mut shared): State<Shared>,
    Extension(client): Extension<Client>,
    Path(txn): Path<u32>,
    Query(wait): Query<Wait>,
) -> Reply<Transaction> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let until = tokio::time::Instant::now() + Duration::from_millis(wait.wait_ms).min(WAIT_MAX);
    loop {
        shared.changes.mark_unchanged();
        let found = shared.look_stored(move |runtime: &Runtime| {
            let history = &runtime.control.ledger().history;
            let past = history.iter().find(|past| past.txn == Txn(txn));
            past.map(|past| view::transaction(&runtime.into(), past))
        });
        if let Some(past) = found.await? {
            return Ok(Json(past));
        }
        if tokio::time::timeout_at(until, shared.changes.changed()).await.is_err() {
            return Err(Problem::NotFound(format!("transaction {txn} has not ended")));
        }
    }
}

/// Returns the latest transactions in full, newest first.
#[utoipa::path(get, path = "/v1/journal", responses((status = 200, body = Vec<Transaction>)))]
async fn journal(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
) -> Reply<Vec<Transaction>> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let found = shared.look_stored(|runtime: &Runtime| {
        let history = runtime.control.ledger().history.iter().rev();
        history.map(|past| view::transaction(&runtime.into(), past)).collect()
    });
    found.await.map(Json)
}

/// Returns the journal records up to the first corrupt one, and the position of the corruption.
#[utoipa::path(get, path = "/v1/log", responses((status = 200, body = Log)),
    params(("last" = Option<usize>, Query, description = "Maximum number of records [default: 100]")))]
async fn log(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
    Query(last): Query<Last>,
) -> Reply<Log> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let place = shared.look(|runtime: &Runtime| runtime.place.clone()).await?;
    // Verifying a long journal takes time, so it must not block the runtime's task.
    let log = aside(move || {
        let read = place.read().map_err(|error| Problem::NotFound(format!("{place}: {error}")));
        let (records, damage) = read?;
        let last = last.last.unwrap_or(LOG_RECORDS_SHOWN);
        Ok(view::log(&records, damage.as_ref(), &place, last))
    });
    log.await?.map(Json)
}

/// Returns the identity, firmware, state and power-on path of a transceiver.
#[utoipa::path(get, path = "/v1/module/{device}",
    params(("device" = String, Path, description = "Such as `n17/b0`")),
    responses((status = 200, body = ModuleView), (status = 404), (status = 422)))]
async fn module(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
    Path(device): Path<String>,
) -> Reply<ModuleView> {
    client.must_have(Role::Firmware).map_err(Problem::Forbidden)?;
    let device = DeviceName::from(device.as_str());
    let Some(task) = shared.devices.get(&device) else {
        let reason = format!("{device}: no such device is configured here");
        return Err(Problem::NotFound(reason));
    };
    let (sender, receiver) = oneshot::channel();
    task.send(ToDevice::Look(sender)).map_err(|_| Problem::Gone)?;
    match receiver.await.map_err(|_| Problem::Gone)? {
        Ok(told) => Ok(Json(view::module(&device, &told))),
        Err(Outcome::Unknown(why)) => {
            let reasons = vec![format!("{device}: unreachable ({why})")];
            Err(Problem::Refused(shared.with_times(reasons).await))
        }
        Err(Outcome::Refused(why) | Outcome::Failed(why)) => {
            Err(Problem::Refused(vec![format!("{device}: {why}")]))
        }
        Err(Outcome::Done(_)) => Err(Problem::Gone),
    }
}

async fn read_apply(
    shared: &Shared,
    body: &mut ApplyBody,
) -> Result<(Apply, Option<Box<Plan>>), Problem> {
    if body.restore && body.plan.is_none() && body.target.is_none() && !body.again {
        return read_restore(shared, body).await;
    }
    let (wanted, plan_sha256, plan) = match (body.plan.take(), &body.target, body.again) {
        (None, None, true) => {
            let last = shared.look(|runtime: &Runtime| runtime.control.facts().applied_last());
            let (sha256, plan) = last.await?.map_err(Problem::Refused)?;
            wanted_by(shared, Box::new(Arc::unwrap_or_clone(plan)), Some(sha256), body).await?
        }
        (Some(PlanDocument(plan)), None, false) => {
            let plan = plan.map_err(|why| Problem::Refused(vec![why]))?;
            wanted_by(shared, plan, None, body).await?
        }
        (None, Some(target), false) => {
            let wanted = Wanted { target: read_target(target), ..Wanted::default() };
            (wanted, String::new(), None)
        }
        _ => {
            return Err(Problem::Refused(vec![
                "expected exactly one of `plan`, `target`, `again` and `restore`".into(),
            ]));
        }
    };
    let confirm_within = confirm_within(body.confirm_within_ms)?;
    if view::mode(body.mode) == Mode::Probe && (plan.is_some() || confirm_within.is_some()) {
        let reason = "a probe requires a `target` and cannot be confirmed";
        return Err(Problem::Refused(vec![reason.into()]));
    }
    let apply = Apply {
        target: wanted.target,
        plan_sha256,
        mode: view::mode(body.mode),
        version: body.expected_version,
        confirm_within,
        on_failure: body.on_failure.map(view::on_failure),
        phase: wanted.phase,
        ..Apply::default()
    };
    Ok((apply, plan))
}

/// A restore is requested because of drift, which mode `safe` would refuse, so it uses `update`.
async fn read_restore(
    shared: &Shared,
    body: &ApplyBody,
) -> Result<(Apply, Option<Box<Plan>>), Problem> {
    let confirm_within = confirm_within(body.confirm_within_ms)?;
    if body.phase.is_some() || !matches!(view::mode(body.mode), Mode::Safe | Mode::Update) {
        let reason = "`restore` cannot be combined with a phase or with mode overwrite or probe";
        return Err(Problem::Refused(vec![reason.into()]));
    }
    let home = shared.look(|runtime: &Runtime| runtime.control.controller().way_home());
    let home = home.await?.map_err(Problem::Refused)?;
    let (version, on_failure) = (body.expected_version, body.on_failure.map(view::on_failure));
    Ok((Apply { version, confirm_within, on_failure, ..home }, None))
}

async fn wanted_by(
    shared: &Shared,
    plan: Box<Plan>,
    sha256: Option<String>,
    body: &ApplyBody,
) -> Result<(Wanted, String, Option<Box<Plan>>), Problem> {
    let start = shared.look(|runtime| runtime.control.change_start()).await?;
    let (phase, mode) = (body.phase.clone(), view::mode(body.mode));
    let planned = aside(move || {
        desired::prove(&plan, start.setup.installed.as_ref())?;
        let wanted = start.wanted(&plan, phase.as_deref(), mode)?;
        Ok((wanted, sha256.unwrap_or_else(|| digest(&plan)), Some(plan)))
    });
    planned.await?.map_err(Problem::Refused)
}

fn confirm_within(ms: Option<u64>) -> Result<Option<Micros>, Problem> {
    if ms == Some(0) {
        let reason = "the time to confirm must be at least 1 ms; help: omit it if the change \
            needs no confirmation";
        return Err(Problem::Refused(vec![reason.into()]));
    }
    if ms.is_some_and(|ms| ms > CONFIRM_WITHIN_MS_MAX) {
        let reason = "the time to confirm can be at most 604,800,000 ms (one week)";
        return Err(Problem::Refused(vec![reason.into()]));
    }
    Ok(ms.map(Micros::from_millis))
}

fn read_target(target: &BTreeMap<String, BTreeMap<u32, u32>>) -> SwitchState {
    let devices = target.iter().map(|(device, slots)| {
        let slots = slots.iter().map(|(&slot, &position)| (Slot(slot), Position(position)));
        (DeviceName::from(device.as_str()), slots.collect())
    });
    devices.collect()
}

fn confirmation(apply: &Apply) -> String {
    let (count, hash) = (apply.target.len(), sha256(&apply.target));
    format!("overwrite {count} device{} {}", if count == 1 { "" } else { "s" }, &hash[..8])
}

/// Previews an apply, including the bytes for each device, without changing anything.
#[utoipa::path(post, path = "/v1/diff", request_body = ApplyBody,
    responses((status = 200, body = Diff), (status = 422)))]
async fn diff(Posted { shared, client, mut body }: Posted<ApplyBody>) -> Reply<Diff> {
    client.must_have(Role::Plan).map_err(Problem::Forbidden)?;
    let (apply, plan) = read_apply(&shared, &mut body).await?;
    previewed(&shared, move |runtime: &Runtime| {
        let mut apply = apply;
        let reasons =
            plan.as_deref().map_or_else(Vec::new, |plan| runtime.control.objections(&apply, plan));
        if !reasons.is_empty() {
            return Err(reasons);
        }
        apply.failed = plan.as_deref().map(|plan| {
            runtime
                .control
                .facts()
                .failed_parts_with(plan, &runtime.clock.now(), |_| Default::default())
        });
        Ok((apply, plan.map(|plan| Arc::new(*plan))))
    })
    .await
}

/// Previews a rollback, including the bytes for each device, without changing anything.
#[utoipa::path(post, path = "/v1/rollback/diff", request_body = RollbackBody,
    responses((status = 200, body = Diff), (status = 422)))]
async fn rollback_diff(Posted { shared, client, body }: Posted<RollbackBody>) -> Reply<Diff> {
    client.must_have(Role::Plan).map_err(Problem::Forbidden)?;
    let rollback = Rollback { txn: Txn(body.txn), ..Rollback::default() };
    previewed(&shared, move |runtime: &Runtime| runtime.control.facts().way_back(&rollback)).await
}

async fn previewed(
    shared: &Shared,
    find: impl FnOnce(&Runtime) -> Result<(Apply, Option<Arc<Plan>>), Vec<String>> + Send + 'static,
) -> Reply<Diff> {
    let previewed = shared.look(move |runtime: &Runtime| {
        let (apply, plan) = find(runtime)?;
        let next = Txn(runtime.control.ledger().last_txn.0 + 1);
        let preview = runtime.control.controller().preview(&apply)?;
        let diff =
            view::diff(&runtime.into(), &preview, &apply, plan.as_deref(), confirmation(&apply));
        Ok((preview, next, diff))
    });
    let (preview, txn, mut diff) = match previewed.await? {
        Ok(found) => found,
        Err(reasons) => return Err(Problem::Refused(shared.with_times(reasons).await)),
    };
    let mut refusals = Vec::new();
    for (device, ops) in ops_of(&preview, txn) {
        match bytes_of(shared, device, ops).await {
            Ok(bytes) => diff.bytes.push(bytes),
            Err(Problem::Refused(reasons)) => refusals.extend(reasons),
            Err(problem) => return Err(problem),
        }
    }
    if refusals.is_empty() { Ok(Json(diff)) } else { Err(Problem::Refused(refusals)) }
}

fn ops_of(preview: &Preview, txn: Txn) -> BTreeMap<DeviceName, Vec<Op>> {
    let mut ops = BTreeMap::<DeviceName, Vec<Op>>::new();
    for (device, moves) in &preview.changes {
        let want = moves.iter().map(|m| (m.slot, m.to)).collect();
        ops.entry(device.clone()).or_default().push(Op::Arm { txn, want });
    }
    for (device, step) in preview.waves.iter().flatten() {
        let ops = ops.entry(device.clone()).or_default();
        let steps = [&step.remove, &step.add].into_iter().filter(|moves| !moves.is_empty());
        ops.extend(steps.map(|moves| Op::Switch { txn, moves: moves.clone() }));
        let lit = step.end().into_iter().filter(|(_, position)| !position.is_dark());
        let power = lit.map(|(slot, _)| slot).collect();
        ops.push(Op::Observe { power, neighbours: Neighbours::Usual });
    }
    ops
}

async fn bytes_of(
    shared: &Shared,
    device: DeviceName,
    ops: Vec<Op>,
) -> Result<DeviceBytes, Problem> {
    let (sender, receiver) = oneshot::channel();
    let call = Call::Preview(device.clone(), ops, sender);
    shared.calls.send(call).await.map_err(|_| Problem::Gone)?;
    let (requests, trouble) = match receiver.await {
        Ok(Ok(requests)) => (requests.iter().map(|bytes| readable(bytes)).collect(), None),
        Ok(Err(NoPreview::NotNow(why))) => (Vec::new(), Some(why)),
        Ok(Err(NoPreview::Refused(why))) => {
            return Err(Problem::Refused(vec![format!("{device}: {why}")]));
        }
        Err(_) => (Vec::new(), Some("the device's task has ended".into())),
    };
    Ok(DeviceBytes { device: device.to_string(), requests, trouble })
}

fn readable(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r' | b'\n')) {
        String::from_utf8_lossy(bytes).trim_end().to_owned()
    } else {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    }
}

/// Applies a plan or a target. Responds as soon as the change is in the journal.
#[utoipa::path(post, path = "/v1/apply", request_body = ApplyBody,
    responses((status = 202), (status = 200), (status = 409), (status = 422)))]
async fn apply(
    Posted { shared, client, mut body }: Posted<ApplyBody>,
) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    // Check the role first, so that an unauthorized client cannot make the daemon parse a plan.
    let read = match client.must_have(Role::Apply) {
        Ok(()) => read_apply(&shared, &mut body).await,
        Err(role) => Err(Problem::Forbidden(role)),
    };
    let read = match read {
        Ok(read) => {
            let change = json!({
                "actor": asked.actor.as_str(),
                "verb": "apply",
                "plan_sha256": read.0.plan_sha256,
                "phase": read.0.phase.as_ref().map(|phase| &phase.name),
                "mode": body.mode,
                "devices": read.0.target.keys().map(DeviceName::as_str).collect::<Vec<_>>(),
            });
            shared.before(&asked, change).await.map(|()| read)
        }
        Err(problem) => Err(problem),
    };
    let change = shared.change(&client, "apply", asked, Role::Apply, move |asked, answer| {
        let (apply, plan) = read?;
        let typed = body.confirmation.as_deref();
        if apply.mode == Mode::Overwrite && typed != Some(&confirmation(&apply)) {
            let reason =
                format!("mode overwrite requires the confirmation `{}`", confirmation(&apply));
            return Err(Problem::Refused(vec![reason]));
        }
        Ok(Call::Ask { asked, request: Request::Apply(apply), plan, answer })
    });
    change.await
}

/// Confirms a pending change.
#[utoipa::path(post, path = "/v1/confirm", request_body = TxnBody,
    responses((status = 200), (status = 409)))]
async fn confirm(Posted { shared, client, body }: Posted<TxnBody>) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let request = Ok(Request::Confirm(Txn(body.txn)));
    shared.change_by(&client, "confirm", asked, Role::Confirm, request).await
}

/// Undoes a transaction and all later ones. Faults detected since then remain bypassed.
#[utoipa::path(post, path = "/v1/rollback", request_body = RollbackBody,
    responses((status = 202), (status = 409), (status = 422)))]
async fn rollback(
    Posted { shared, client, body }: Posted<RollbackBody>,
) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let change = json!({"actor": asked.actor.as_str(), "verb": "rollback", "txn": body.txn});
    let before = match client.must_have(Role::Apply) {
        Ok(()) => shared.before(&asked, change).await,
        Err(role) => Err(Problem::Forbidden(role)),
    };
    let confirm_within = before.and_then(|()| confirm_within(body.confirm_within_ms));
    let request = confirm_within.map(|confirm_within| {
        Request::Rollback(Rollback { txn: Txn(body.txn), confirm_within, avoiding: None })
    });
    shared.change_by(&client, "rollback", asked, Role::Apply, request).await
}

/// Adopts the current positions of these devices without switching any circuits.
#[utoipa::path(post, path = "/v1/adopt", request_body = AdoptBody,
    responses((status = 200), (status = 409), (status = 422)))]
async fn adopt(Posted { shared, client, body }: Posted<AdoptBody>) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let (against_plan, leave_out_unreachable) = (body.against_plan, body.devices == ["all"]);
    let adopts_all = leave_out_unreachable && client.must_have(Role::Apply).is_ok();
    let devices = shared.look(move |runtime: &Runtime| -> Vec<DeviceName> {
        if adopts_all {
            let devices = runtime.control.sightings().inventory().devices.iter();
            devices.filter(|(_, d)| !d.is_lever).map(|(name, _)| name.clone()).collect()
        } else {
            body.devices.iter().flat_map(|name| devices_named(runtime, name)).collect()
        }
    });
    let devices = devices.await?;
    let request = Ok(Request::Adopt(Adopt { devices, leave_out_unreachable, against_plan }));
    shared.change_by(&client, "adopt", asked, Role::Apply, request).await
}

/// Drains these devices and keeps them drained.
#[utoipa::path(post, path = "/v1/drain", request_body = DevicesBody,
    responses((status = 200), (status = 409), (status = 422)))]
async fn drain(Posted { shared, client, body }: Posted<DevicesBody>) -> Result<Answered, Problem> {
    hold(&shared, &client, body, true).await
}

#[utoipa::path(post, path = "/v1/undrain", request_body = DevicesBody,
    responses((status = 200), (status = 409), (status = 422)))]
async fn undrain(
    Posted { shared, client, body }: Posted<DevicesBody>,
) -> Result<Answered, Problem> {
    hold(&shared, &client, body, false).await
}

async fn hold(
    shared: &Shared,
    client: &Client,
    body: DevicesBody,
    drained: bool,
) -> Result<Answered, Problem> {
    let verb = if drained { "drain" } else { "undrain" };
    let asked = asked(client, &body.request_id, &(verb, &body));
    let names = body.devices;
    let slots = match client.must_have(Role::Apply) {
        Ok(()) => shared.look(move |runtime: &Runtime| levers_of(runtime, &names)).await?,
        Err(_) => Ok(Vec::new()),
    };
    let request = slots.map(|slots| Request::Hold { slots, drained }).map_err(Problem::Refused);
    shared.change_by(client, verb, asked, Role::Apply, request).await
}

fn devices_named(runtime: &Runtime, name: &str) -> Vec<DeviceName> {
    let devices = name.parse().map(|node| desired::devices_of_node(&runtime.config.bundles, node));
    match devices {
        Ok(devices) if !devices.is_empty() => devices,
        _ => vec![DeviceName::from(name)],
    }
}

fn levers_of(runtime: &Runtime, names: &[String]) -> Result<Vec<(DeviceName, Slot)>, Vec<String>> {
    let inventory = &runtime.control.sightings().inventory().devices;
    let (mut slots, mut reasons) = (Vec::new(), Vec::new());
    for name in names {
        let devices = devices_named(runtime, name);
        let known: Vec<_> = devices.iter().filter(|name| inventory.contains_key(*name)).collect();
        let levers = known.iter().flat_map(|device| {
            inventory[*device].levers.keys().map(|slot| ((*device).clone(), *slot))
        });
        let levers: Vec<_> = levers.collect();
        if known.is_empty() {
            reasons.push(format!("{name}: no such device or node is configured here"));
        } else if levers.is_empty() {
            reasons.push(format!(
                "{name}: no configured Linux switch can drain it; help: set `drain_controls:` of \
                    the device in the daemon's file"
            ));
        }
        slots.extend(levers);
    }
    if reasons.is_empty() { Ok(slots) } else { Err(reasons) }
}

/// Reports failed or repaired parts, then plans and applies the bypass.
#[utoipa::path(post, path = "/v1/faults", request_body = FaultBody,
    responses((status = 202), (status = 200), (status = 409), (status = 422)))]
async fn fault(Posted { shared, client, body }: Posted<FaultBody>) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let told = match client.must_have(Role::Apply) {
        Ok(()) => told(&shared, &client, &body).await,
        Err(role) => Err(Problem::Forbidden(role)),
    };
    let change = shared.change(&client, "fault", asked, Role::Apply, |asked, answer| {
        let (broken, repaired) = told?;
        Ok(Call::Fault { asked, broken, repaired, answer })
    });
    change.await
}

/// Previews a bypass or a repair, including the bytes for each device, without changing anything.
#[utoipa::path(post, path = "/v1/faults/diff", request_body = FaultBody,
    responses((status = 200, body = Diff), (status = 422)))]
async fn fault_diff(Posted { shared, client, body }: Posted<FaultBody>) -> Reply<Diff> {
    client.must_have(Role::Plan).map_err(Problem::Forbidden)?;
    let (broken, repaired) = told(&shared, &client, &body).await?;
    previewed(&shared, move |runtime: &Runtime| {
        runtime.control.facts().try_bypass(&runtime.clock.now(), &broken, &repaired)
    })
    .await
}

type Told = (Vec<(Part, String)>, Vec<Part>);

async fn told(shared: &Shared, client: &Client, body: &FaultBody) -> Result<Told, Problem> {
    let why = format!("reported by {}", client.name);
    let (broken, repaired) = (parts(&body.broken)?, parts(&body.repaired)?);
    let named = [broken.clone(), repaired.clone()].concat();
    let missing = shared.look(move |runtime| not_installed(runtime, &named)).await?;
    if !missing.is_empty() {
        return Err(Problem::Refused(missing));
    }
    Ok((broken.into_iter().map(|part| (part, why.clone())).collect(), repaired))
}

fn parts(texts: &[String]) -> Result<Vec<Part>, Problem> {
    let parts = texts.iter().map(|text| text.parse::<Part>());
    parts.collect::<Result<_, _>>().map_err(|error| Problem::Refused(vec![error.to_string()]))
}

fn not_installed(runtime: &Runtime, parts: &[Part]) -> Vec<String> {
    let Some(installed) = runtime.control.facts().installed() else { return Vec::new() };
    let errors = parts.iter().filter_map(|part| FaultSet::of(installed, [*part]).err());
    errors.map(|error| error.to_string()).collect()
}

// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use lightloom_daemon_api::phase::{PhaseBody, PhaseStatus, Phases, ReleaseBody};
use tokio::time::{Instant, timeout_at};

use super::WAIT_MAX;
use super::body::Wait;
use super::problem::{Answered, Problem, Reply};
use super::reading::Posted;
use super::shared::{Shared, asked};
use crate::config::Role;
use crate::runtime::{Call, Runtime};
use crate::serve::Client;
use crate::view;
use lightloom_control::policy::phases::Wish;
use lightloom_control::state::Micros;

/// Returns the phases of the plan in force, the current phase, the lease and the pending requests.
#[utoipa::path(get, path = "/v1/phases", responses((status = 200, body = Phases)))]
pub(super) async fn phases(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
) -> Reply<Phases> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    shared.look_stored(view::phases::phases).await.map(Json)
}

/// Returns the state of a phase request, optionally after waiting for its outcome.
#[utoipa::path(get, path = "/v1/phase/{request_id}",
    params(("request_id" = String, Path), ("wait_ms" = Option<u64>, Query)),
    responses((status = 200, body = PhaseStatus), (status = 404)))]
pub(super) async fn phase_status(
    State(mut shared): State<Shared>,
    Extension(client): Extension<Client>,
    Path(request): Path<String>,
    Query(wait): Query<Wait>,
) -> Reply<PhaseStatus> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let until = Instant::now() + Duration::from_millis(wait.wait_ms).min(WAIT_MAX);
    loop {
        let (request, is_over) = (request.clone(), Instant::now() >= until);
        shared.changes.mark_unchanged();
        // Every device that answers during the change wakes this loop, so the status is built once.
        let found = shared.look_stored(move |runtime: &Runtime| {
            let booking = runtime.control.phases().of_request(&request)?;
            let is_shown = is_over || booking.standing.is_final();
            Some(is_shown.then(|| view::phases::status(runtime, booking)))
        });
        match found.await? {
            Some(Some(status)) => return Ok(Json(status)),
            Some(None) => drop(timeout_at(until, shared.changes.changed()).await),
            None => {
                let reason = "no phase has been requested with this id since the daemon started";
                return Err(Problem::NotFound(reason.into()));
            }
        }
    }
}

/// Requests a phase of the plan in force under a lease, with its start time and minimum duration.
#[utoipa::path(post, path = "/v1/phase", request_body = PhaseBody,
    responses((status = 202), (status = 409), (status = 422)))]
pub(super) async fn phase(
    Posted { shared, client, body }: Posted<PhaseBody>,
) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let wish = Wish {
        job: body.job,
        phase: body.phase,
        within: Micros::from_millis(body.in_ms),
        least: Micros::from_millis(body.for_ms),
        lease: Micros::from_millis(body.lease_ms),
        revision: body.revision,
    };
    let change = shared.change(&client, "phase", asked, Role::Phase, |asked, answer| {
        Ok(Call::Phase { asked, wish, answer })
    });
    change.await
}

/// Releases a lease and drops its pending requests. Lit circuits stay lit.
#[utoipa::path(post, path = "/v1/phase/release", request_body = ReleaseBody,
    responses((status = 200), (status = 409)))]
pub(super) async fn release(
    Posted { shared, client, body }: Posted<ReleaseBody>,
) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &body);
    let change = shared.change(&client, "release", asked, Role::Phase, |asked, answer| {
        Ok(Call::Release { asked, job: body.job, answer })
    });
    change.await
}

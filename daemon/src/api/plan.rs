// SPDX-License-Identifier: Apache-2.0

use axum::Json;
use axum::extract::{Extension, State};
use serde_json::value::{RawValue, to_raw_value};

use super::problem::{Problem, Reply};
use super::shared::{Shared, aside};
use crate::config::Role;
use crate::runtime::Runtime;
use crate::serve::Client;

/// Returns the complete plan in force, which has the digest `plan_sha256` in the status.
#[utoipa::path(get, path = "/v1/plan", responses((status = 200, body = Object), (status = 404)))]
pub(super) async fn plan_in_force(
    State(shared): State<Shared>,
    Extension(client): Extension<Client>,
) -> Reply<Box<RawValue>> {
    client.must_have(Role::Read).map_err(Problem::Forbidden)?;
    let found = shared.look(|runtime: &Runtime| runtime.control.plan_in_force()).await?;
    let plan = found.ok_or_else(|| Problem::NotFound("no plan is in force".into()))?;
    aside(move || to_raw_value(&*plan).map_err(|_| Problem::Gone).map(Json)).await?
}

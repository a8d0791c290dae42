// SPDX-License-Identifier: Apache-2.0

use lightloom_daemon_api::body::ResumeBody;

use super::problem::{Answered, Problem};
use super::reading::Posted;
use super::shared::asked;
use crate::config::Role;
use lightloom_control::controller::Request;

/// Allows automatic changes again after the hourly limit was reached.
#[utoipa::path(post, path = "/v1/resume", request_body = ResumeBody,
    responses((status = 200), (status = 409)))]
pub(super) async fn resume(
    Posted { shared, client, body }: Posted<ResumeBody>,
) -> Result<Answered, Problem> {
    let asked = asked(&client, &body.request_id, &("resume", &body));
    shared.change_by(&client, "resume", asked, Role::Apply, Ok(Request::Resume)).await
}

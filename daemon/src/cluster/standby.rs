// SPDX-License-Identifier: Apache-2.0
//! What a daemon that does not lead answers: who leads, and that nothing is done here.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use lightloom_control::controller::Answer;

use super::seat::StandbyNews;
use crate::view;

/// Every request is refused with the leader's name.
pub fn router(known: StandbyNews) -> Router {
    Router::new().fallback(refused).with_state(known)
}

async fn refused(State(known): State<StandbyNews>) -> Response {
    let standing = known.now();
    let reason = match (standing.leader, standing.trouble) {
        (_, Some(trouble)) => format!("standing by, and {trouble}"),
        (Some(leader), None) => format!("standing by: {leader} leads; ask there"),
        (None, None) => "standing by: no daemon leads yet".to_owned(),
    };
    let body = view::answer(Answer::Refused { reasons: vec![reason] });
    (StatusCode::MISDIRECTED_REQUEST, Json(body)).into_response()
}

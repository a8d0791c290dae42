// SPDX-License-Identifier: Apache-2.0

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lightloom_control::controller::Answer;

use super::seat::StandbyNews;

pub fn router(known: StandbyNews) -> Router {
    Router::new().route("/healthz", get(healthz)).fallback(refused).with_state(known)
}

async fn healthz(State(known): State<StandbyNews>) -> Response {
    match known.now().trouble {
        None => "standing by\n".into_response(),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")).into_response(),
    }
}

async fn refused(State(known): State<StandbyNews>) -> Response {
    let standing = known.now();
    let reason = match (standing.leader, standing.trouble) {
        (_, Some(trouble)) => {
            format!("standing by, and {trouble}; circuits stay lit and are not switched")
        }
        (Some(leader), None) => format!("standing by: {leader} leads; send requests there"),
        (None, None) => "standing by: no daemon leads yet".to_owned(),
    };
    let body = Answer::Refused { reasons: vec![reason] };
    (StatusCode::MISDIRECTED_REQUEST, Json(body)).into_response()
}

// SPDX-License-Identifier: Apache-2.0

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::config::Role;
use crate::runtime::NotStored;
use lightloom_control::controller::Answer;
use lightloom_control::state::Txn;

/// Marks a response to a request that started a transaction and is exempt from the rate limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved(pub(super) Txn);

/// Marks a request that is exempt from the rate limit thanks to sufficient spacing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paced;

#[derive(Debug)]
pub(super) enum Problem {
    Forbidden(Role),
    Refused(Vec<String>),
    Body(StatusCode, Vec<String>),
    NotFound(String),
    Busy { reason: String, retry_after: u64 },
    Gone,
    NotStored(NotStored),
    Audit(String),
    NotAudited { answer: String, why: String },
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut wait = None;
        let (code, reasons) = match self {
            Self::Forbidden(role) => (
                StatusCode::FORBIDDEN,
                vec![format!("this operation requires the role {role:?}").to_lowercase()],
            ),
            Self::Body(code, reasons) => (code, reasons),
            Self::Refused(reasons) => (StatusCode::UNPROCESSABLE_ENTITY, reasons),
            Self::Busy { reason, retry_after } => {
                wait = Some(HeaderValue::from(retry_after));
                (StatusCode::TOO_MANY_REQUESTS, vec![reason])
            }
            Self::NotFound(what) => (StatusCode::NOT_FOUND, vec![what]),
            Self::Gone => (StatusCode::SERVICE_UNAVAILABLE, vec!["the daemon is stopping".into()]),
            Self::NotStored(why) => (StatusCode::SERVICE_UNAVAILABLE, vec![why.to_string()]),
            Self::Audit(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                vec![format!("the audit log is not writable, so changes are refused: {why}")],
            ),
            Self::NotAudited { answer, why } => (
                StatusCode::SERVICE_UNAVAILABLE,
                vec![format!(
                    "the request was executed with the response {answer}, but could not be \
                        written to the audit log: {why}"
                )],
            ),
        };
        let mut response = (code, Json(Answer::Refused { reasons })).into_response();
        if let Some(wait) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        response
    }
}

#[derive(Debug)]
pub(super) struct Answered(pub(super) Answer);

impl IntoResponse for Answered {
    fn into_response(self) -> Response {
        let code = match &self.0 {
            Answer::Accepted { .. } | Answer::Booked { .. } => StatusCode::ACCEPTED,
            Answer::PhaseRefused { conflict: true, .. } => StatusCode::CONFLICT,
            Answer::PhaseRefused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Answer::Done | Answer::Adopted { .. } | Answer::NothingToDo { .. } => StatusCode::OK,
            Answer::Conflict { .. } => StatusCode::CONFLICT,
            Answer::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let moved = if let Answer::Accepted { txn } = &self.0 { Some(Moved(*txn)) } else { None };
        let paced = matches!(self.0, Answer::Booked { paced: true, .. });
        let mut response = (code, Json(self.0)).into_response();
        if paced {
            response.extensions_mut().insert(Paced);
        }
        if let Some(moved) = moved {
            response.extensions_mut().insert(moved);
        }
        response
    }
}

pub(super) type Reply<T> = Result<Json<T>, Problem>;

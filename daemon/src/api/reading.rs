// SPDX-License-Identifier: Apache-2.0
//! Reads request bodies. An error lists all invalid fields and shows an example.

use std::future::poll_fn;
use std::io::{self, BufReader, Read};
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::RequestExt;
use axum::body::{Body as RawBody, Bytes, HttpBody};
use axum::extract::{Extension, FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::mpsc::{Receiver, channel};

use super::gate::{AsItComes, PLAN_BYTES_MAX, too_slow};
use super::problem::Problem;
use super::shared::Shared;
use crate::serve::Client;

#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Word(&'static [&'static str]),
    Text,
    Texts(&'static str),
    Whole(&'static str),
    Flag,
    Plan,
    Target,
}

impl Wanted {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Text => value.is_string(),
            Self::Texts(_) => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            Self::Whole(_) => value.is_u64(),
            Self::Flag => value.is_boolean(),
            Self::Plan => value.is_object(),
            Self::Target => value.as_object().is_some_and(|devices| {
                devices.values().all(|device| device.as_object().is_some_and(are_positions))
            }),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Text => "a string".into(),
            Self::Texts(example) => format!("a list of strings, such as {example}"),
            Self::Whole(of) => format!("an integer: {of}"),
            Self::Flag => "true or false".into(),
            Self::Plan => "a plan: the complete output of `lightloom plan`".into(),
            Self::Target => {
                "the position of each port or group, by device, such as {\"ocs0\": {\"1\": 25}}; \
                    0 is dark"
                    .into()
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) wanted: Wanted,
    pub(super) need: Need,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Must,
    May,
}

impl Field {
    pub(super) const fn must(name: &'static str, wanted: Wanted) -> Self {
        Self { name, wanted, need: Need::Must }
    }
    pub(super) const fn may(name: &'static str, wanted: Wanted) -> Self {
        Self { name, wanted, need: Need::May }
    }
}

pub(super) trait Described: DeserializeOwned {
    const FIELDS: &'static [Field];
    const EXAMPLE: &'static str;
    fn may_be_long(&self) -> bool {
        false
    }
}

/// A request with a body, and its client.
pub(super) struct Posted<T> {
    pub(super) shared: Shared,
    pub(super) client: Client,
    pub(super) body: T,
}

impl<T: Described + Send + 'static> FromRequest<Shared> for Posted<T> {
    type Rejection = Response;

    async fn from_request(mut request: Request, shared: &Shared) -> Result<Self, Response> {
        let client = request.extract_parts::<Extension<Client>>().await;
        let Extension(client) = client.map_err(IntoResponse::into_response)?;
        let body = body_of(request, shared).await.map_err(IntoResponse::into_response)?;
        Ok(Self { shared: shared.clone(), client, body })
    }
}

async fn body_of<T: Described + Send + 'static>(
    request: Request,
    shared: &Shared,
) -> Result<T, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        let reason = "the request body must be JSON; help: set the header `content-type: \
            application/json`";
        return Err(Problem::Body(StatusCode::UNSUPPORTED_MEDIA_TYPE, vec![reason.into()]));
    }
    if request.extensions().get::<AsItComes>().is_some() {
        return read_as_it_comes(request.into_body()).await;
    }
    let bytes = Bytes::from_request(request, shared)
        .await
        .map_err(|error| Problem::Body(error.status(), vec![error.body_text()]))?;
    read(&bytes).map_err(|(code, reasons)| Problem::Body(code, reasons))
}

/// Total idle time allowed during the upload of a plan, which received data extends.
const SILENT_MAX: Duration = Duration::from_secs(5);
const BYTES_PER_SECOND_MIN: usize = 256 << 10;
const PIECES_MAX: usize = 4;

struct Pieces {
    pieces: Receiver<Option<Bytes>>,
    piece: Bytes,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => self.ended = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Parses a body on a blocking thread as it arrives, so it is never completely in memory.
async fn read_as_it_comes<T: Described + Send + 'static>(body: RawBody) -> Result<T, Problem> {
    let (sender, pieces) = channel(PIECES_MAX);
    let parsing = tokio::task::spawn_blocking(move || {
        let pieces = Pieces { pieces, piece: Bytes::new(), ended: false };
        serde_json::from_reader::<_, T>(BufReader::with_capacity(64 << 10, pieces))
    });
    let (mut body, mut silent, mut length) = (body, Duration::ZERO, 0);
    loop {
        let may_be = SILENT_MAX + Duration::from_secs((length / BYTES_PER_SECOND_MIN) as u64);
        let since = Instant::now();
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = tokio::time::timeout(may_be.saturating_sub(silent), frame).await;
        silent += since.elapsed();
        let piece = match frame {
            Err(_) => return Err(too_slow()),
            Ok(Some(Err(error))) => {
                return Err(Problem::Body(StatusCode::BAD_REQUEST, vec![error.to_string()]));
            }
            Ok(Some(Ok(frame))) => frame.into_data().ok(),
            Ok(None) => None,
        };
        let ended = piece.is_none();
        length += piece.as_ref().map_or(0, Bytes::len);
        if length > PLAN_BYTES_MAX {
            let reason = format!("a plan is limited to {} MB", PLAN_BYTES_MAX >> 20);
            return Err(Problem::Body(StatusCode::PAYLOAD_TOO_LARGE, vec![reason]));
        }
        if sender.send(piece).await.is_err() || ended {
            break;
        }
    }
    let parsed = parsing.await.map_err(|_| Problem::Gone)?;
    let body = parsed.map_err(|error| {
        let reasons =
            vec![error.to_string(), format!("example of a complete body: {}", T::EXAMPLE)];
        Problem::Body(StatusCode::UNPROCESSABLE_ENTITY, reasons)
    })?;
    match body.may_be_long() {
        true => Ok(body),
        false => {
            let reason = "only a body with a `plan` may exceed 1 MB";
            Err(Problem::Body(StatusCode::PAYLOAD_TOO_LARGE, vec![reason.into()]))
        }
    }
}

fn read<T: Described>(bytes: &[u8]) -> Result<T, (StatusCode, Vec<String>)> {
    // Only a malformed body is parsed into a generic tree, to report all errors together.
    if let Ok(body) = serde_json::from_slice(bytes) {
        return Ok(body);
    }
    let example = format!("example of a complete body: {}", T::EXAMPLE);
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            let reasons = vec![format!("the body is not JSON: {error}"), example];
            return Err((StatusCode::BAD_REQUEST, reasons));
        }
    };
    let mut reasons = wrong(T::FIELDS, &value);
    if reasons.is_empty() {
        match serde_json::from_value(value) {
            Ok(body) => return Ok(body),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    reasons.push(example);
    Err((StatusCode::UNPROCESSABLE_ENTITY, reasons))
}

fn are_positions(slots: &Map<String, Value>) -> bool {
    slots.iter().all(|(slot, to)| {
        slot.parse::<u32>().is_ok() && to.as_u64().is_some_and(|to| u32::try_from(to).is_ok())
    })
}

fn wrong(fields: &[Field], value: &Value) -> Vec<String> {
    let Some(object) = value.as_object() else {
        return vec![format!("the body is {}; expected an object", kind(value))];
    };
    let mut reasons = Vec::new();
    for field in fields {
        let (name, wanted) = (field.name, field.wanted.words());
        match object.get(name) {
            None if field.need == Need::May => {}
            Some(Value::Null) if field.need == Need::May => {}
            None => reasons.push(format!("`{name}` is missing; expected {wanted}")),
            Some(value) if field.wanted.is(value) => {}
            Some(value) => reasons.push(format!("`{name}` is {}; expected {wanted}", kind(value))),
        }
    }
    let known: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
    let unknown = object.keys().filter(|name| fields.iter().all(|field| field.name != **name));
    reasons.extend(
        unknown.map(|name| format!("unknown field `{name}`; known fields: {}", known.join(", "))),
    );
    reasons
}

fn kind(value: &Value) -> String {
    const SHOWN: usize = 40;
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
        other => {
            let text = other.to_string();
            let short: String = text.chars().take(SHOWN).collect();
            if short.len() < text.len() { format!("{short}…") } else { short }
        }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_daemon_api::body::{DevicesBody, FaultBody, RollbackBody, TxnBody};

    use super::super::body::ApplyBody;
    use super::*;

    fn said<T: Described>(body: &str) -> String {
        let Err((_, reasons)) = read::<T>(body.as_bytes()) else { panic!("{body} is good") };
        reasons.join("\n")
    }

    #[test]
    fn invalid_body_error_shows_field_type_and_example() {
        assert_eq!(
            said::<TxnBody>(r#"{"txn": "7"}"#),
            "`request_id` is missing; expected a string\n`txn` is \"7\"; expected an integer: the \
                transaction\nexample of a complete body: {\"request_id\": \"mine-1\", \"txn\": 7}"
        );
        assert_eq!(
            said::<FaultBody>(r#"{"request_id": "a", "broken": "n17", "fixed": ["n3"]}"#),
            "`broken` is \"n17\"; expected a list of strings, such as [\"n17\", \"n9/b0\", \
                \"n3/b0.2\"]\nunknown field `fixed`; known fields: `request_id`, `broken`, \
                `repaired`\nexample of a complete body: {\"request_id\": \"mine-1\", \"broken\": \
                [\"n17\"]}"
        );
        let apply = said::<ApplyBody>(r#"{"target": {"ocs0": {"one": 25}}, "mode": "force"}"#);
        assert!(
            apply.starts_with("`target` is an object; expected the position of each"),
            "{apply}"
        );
        let mode = "`mode` is \"force\"; expected one of \"safe\", \"update\", \"overwrite\"";
        assert!(apply.contains(mode), "{apply}");
        let syntax = said::<DevicesBody>("{\"devices\": [n17]}");
        assert!(
            syntax.starts_with("the body is not JSON: expected ident at line 1 column"),
            "{syntax}"
        );
        assert!(said::<RollbackBody>("[1]").starts_with("the body is a list; expected an object"));
    }

    #[test]
    fn every_example_is_a_valid_body() {
        fn good<T: Described>() {
            assert!(read::<T>(T::EXAMPLE.as_bytes()).is_ok(), "{}", T::EXAMPLE);
        }
        good::<ApplyBody>();
        good::<TxnBody>();
        good::<RollbackBody>();
        good::<DevicesBody>();
        good::<FaultBody>();
        good::<lightloom_daemon_api::body::ResumeBody>();
        good::<lightloom_daemon_api::phase::PhaseBody>();
        good::<lightloom_daemon_api::phase::ReleaseBody>();
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_control::state::Outcome;
use lightloom_gnmi::Code;
use lightloom_gnmi::client::GnmiCall;
use lightloom_gnmi::message::{Encoding, GetRequest, Path, PathElem};
use lightloom_gnmi::path::{named, step, text};

use crate::{Awaits, Progress};

pub(super) fn refused(awaits: Awaits, status: &lightloom_gnmi::Status) -> Progress {
    let why = format!("{}: {}", status.code(), status.message());
    match (awaits, status.code()) {
        // These codes guarantee that the switch is unchanged.
        (
            Awaits::Done,
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::ResourceExhausted
            | Code::Aborted,
        ) => Progress::Ended(Outcome::Refused(why)),
        (Awaits::Done, _) => Progress::Lost(why),
        (Awaits::Errors, Code::NotFound) => Progress::Answered,
        (Awaits::Identity | Awaits::Size, _) => Progress::Lost(why),
        (
            _,
            Code::Unavailable
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Internal,
        ) => Progress::Lost(why),
        _ => Progress::Ended(Outcome::Failed(why)),
    }
}

pub(super) fn connections() -> Path {
    Path { elem: vec![step("connections")], ..Path::default() }
}

pub(super) fn connection(name: &str) -> Path {
    let mut path = connections();
    path.elem.push(named("port-connection", name));
    path
}

pub(super) fn ports(part: &str) -> Path {
    port("*", part)
}

pub(super) fn port(name: &str, part: &str) -> Path {
    let mut elem: Vec<PathElem> = vec![step("components"), named("component", name)];
    elem.extend(["ocp-ocs-port", "state"].into_iter().chain(part.split('/')).map(step));
    Path { elem, ..Path::default() }
}

pub(super) fn get(path: Vec<Path>) -> GnmiCall {
    GnmiCall::Get(GetRequest { path, encoding: Encoding::JsonIetf as i32, ..GetRequest::default() })
}

/// In 1/1000 dBm. RFC 7951 encodes decimals as strings.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
pub(super) fn millis(value: &serde_json::Value) -> Option<i32> {
    let dbm = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    dbm.is_finite().then(|| (dbm * 1000.0).clamp(-99_000.0, 99_000.0).round() as i32)
}

pub(super) fn shown(call: &GnmiCall) -> String {
    match call {
        GnmiCall::Capabilities => "Capabilities\n".into(),
        GnmiCall::Get(get) => {
            format!("Get {}\n", get.path.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        GnmiCall::Subscribe(_) => "Subscribe\n".into(),
        GnmiCall::Set(set) => {
            let deletes = set.delete.iter().map(|path| format!(" delete {}", text(path)));
            let updates = set.update.iter().map(|update| {
                let path = update.path.as_ref().map(text).unwrap_or_default();
                let value = update.val.as_ref().and_then(|value| value.to_json().ok());
                format!(" update {path} {}", value.unwrap_or_default())
            });
            let election = set.extension.iter().filter_map(|one| one.master_arbitration.as_ref());
            let election = election.filter_map(|one| one.election_id);
            let election = election.map(|id| format!(" election {}", id.number()));
            format!("Set{}\n", election.chain(deletes).chain(updates).collect::<String>())
        }
    }
}

// SPDX-License-Identifier: Apache-2.0

use super::Knowledge;
use lightloom_control::diagnosis::Culprit;
use lightloom_control::policy::Diagnosis;
use lightloom_daemon_api::diagnosis::{NamedPart, PartKind};

fn kind(culprit: &Culprit) -> PartKind {
    match culprit {
        Culprit::Node(_) => PartKind::Node,
        Culprit::Transceiver(_) => PartKind::Transceiver,
        Culprit::Lane(..) => PartKind::Lane,
        Culprit::Fibre(..) => PartKind::Fibre,
        Culprit::Connector(_) => PartKind::Connector,
        Culprit::SwitchPort(..) => PartKind::SwitchPort,
    }
}

pub(super) fn all(known: &Knowledge<'_>) -> Vec<NamedPart> {
    let diagnoses = known.control.diagnoses(&known.now).into_iter();
    let parts = diagnoses.map(|Diagnosis { named, wall_ms }| NamedPart {
        kind: kind(&named.culprit),
        part: named.culprit.to_string(),
        evidence: named.evidence.iter().map(ToString::to_string).collect(),
        second: named.second.map(|second| second.to_string()),
        since_unix_ms: wall_ms,
    });
    parts.collect()
}

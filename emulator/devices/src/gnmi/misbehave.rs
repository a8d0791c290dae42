// SPDX-License-Identifier: Apache-2.0
//! Misbehaviours of a gNMI switch in Sets and responses.

use std::collections::BTreeSet;

use lightloom_gnmi::Status;
use lightloom_gnmi::message::{CapabilityResponse, Encoding, SetRequest, Update, Value};
use lightloom_gnmi::model::MODULES;
use lightloom_gnmi::path::{bare, joined};
use serde_json::Value as Json;

use super::config::SwitchConfig;
use super::state::State;
use crate::misbehave::Misbehaviour;

impl State {
    pub(crate) fn breaks(&self, which: Misbehaviour) -> bool {
        self.matrix.faults.breaks(which)
    }

    pub(crate) fn misreport(&self, said: &mut CapabilityResponse) {
        if self.breaks(Misbehaviour::HidesModel) {
            said.supported_models.retain(|model| model.name != MODULES[1]);
        }
        if self.breaks(Misbehaviour::ClaimsAscii) {
            said.supported_encodings.push(Encoding::Ascii as i32);
        }
    }

    pub(crate) fn misread(&self, request: &mut SetRequest) {
        let prefix = request.prefix.clone();
        if self.breaks(Misbehaviour::TakesState) {
            for updates in [&mut request.replace, &mut request.update] {
                updates.retain(|update| {
                    let path = joined(prefix.as_ref(), update.path.as_ref());
                    path.elem.iter().all(|step| bare(&step.name) != "state")
                });
            }
        }
        if self.breaks(Misbehaviour::TakesAnotherName) {
            for update in request.replace.iter_mut().chain(&mut request.update) {
                drop_names(update);
            }
        }
    }

    pub(crate) fn drop_unwelcome(&self, next: &mut SwitchConfig) {
        let (unknown, alike) =
            (self.breaks(Misbehaviour::TakesUnknownPort), self.breaks(Misbehaviour::JoinsInputs));
        next.connections.retain(|_, intent| {
            let ends = [&intent.input, &intent.output].map(|end| end.as_deref().unwrap_or(""));
            let ports = ends.map(|end| self.spec.port(end));
            let is_unknown = ports.contains(&None);
            let [from, to] = ports.map(|port| port.is_some_and(|port| port <= self.spec.ingress));
            let are_alike = !is_unknown && from == to;
            !(unknown && is_unknown || alike && are_alike)
        });
    }

    pub(crate) fn do_half(&mut self, request: &SetRequest) {
        if !self.breaks(Misbehaviour::HalfASet) {
            return;
        }
        for update in request.replace.iter().chain(&request.update) {
            let part = SetRequest {
                prefix: request.prefix.clone(),
                update: vec![update.clone()],
                ..SetRequest::default()
            };
            let next = self.config.changed(&part).ok().filter(|next| self.check(next).is_ok());
            if let Some(next) = next {
                self.apply(next, &BTreeSet::new());
            }
        }
    }

    pub(crate) fn objects(&self, request: &SetRequest, next: &SwitchConfig) -> Result<(), Status> {
        let is_absent = request.delete.iter().any(|path| {
            let path = joined(request.prefix.as_ref(), Some(path));
            let name = path.elem.last().and_then(|step| step.key.get("name"));
            name.is_some_and(|name| !self.config.connections.contains_key(name))
        });
        if self.breaks(Misbehaviour::RefusesAbsentDelete) && is_absent {
            return Err(Status::not_found("the connection does not exist"));
        }
        if self.breaks(Misbehaviour::CreatesFirst) {
            for (name, intent) in &next.connections {
                let mut held = self.config.connections.values();
                let is_new = !self.config.connections.contains_key(name);
                if is_new
                    && held.any(|held| held.input == intent.input || held.output == intent.output)
                {
                    return Err(Status::failed_precondition("one of its ports is in use"));
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn named(request: &SetRequest) -> BTreeSet<String> {
    let parts = request.replace.iter().chain(&request.update).filter_map(|part| part.path.as_ref());
    let paths = request.delete.iter().chain(parts);
    let steps = paths.flat_map(|path| path.elem.iter());
    steps.filter_map(|step| step.key.get("name").cloned()).collect()
}

/// Avoids a mismatch between name and key, which would be an error.
fn drop_names(update: &mut Update) {
    let Some(Value::Json(bytes) | Value::JsonIetf(bytes)) =
        update.val.as_mut().and_then(|value| value.value.as_mut())
    else {
        return;
    };
    let Ok(Json::Object(mut object)) = serde_json::from_slice(bytes) else { return };
    object.retain(|name, _| bare(name) != "name");
    for (name, below) in &mut object {
        if let (true, Json::Object(config)) = (bare(name) == "config", below) {
            config.retain(|name, _| bare(name) != "name");
        }
    }
    *bytes = serde_json::to_vec(&object).unwrap_or_default();
}

// SPDX-License-Identifier: Apache-2.0
//! Reads referenced files and collects their errors.

use std::path::Path;
use std::sync::Arc;

use lightloom_fabric::document::{Check, Diagnostic, Severity, other_kind};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::{self, Plan};
use lightloom_fabric::trace::{FaultTrace, Observation};
use lightloom_training::mapped;

use super::codes;

/// A referenced file.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Name in messages.
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Reads a referenced file by name, or returns the reason for the failure.
pub type ReadNeighbour<'a> = dyn FnMut(&str) -> Result<NamedFile, String> + 'a;

pub(crate) struct NamedFiles<'a, 'r> {
    pub(crate) read: &'a mut ReadNeighbour<'r>,
    pub(crate) mistakes: &'a mut Vec<Diagnostic>,
}

impl NamedFiles<'_, '_> {
    pub(crate) fn read(
        &mut self,
        name: &str,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<NamedFile> {
        (self.read)(name)
            .map_err(|message| {
                const HELP: &str = "names are relative to the folder of this file";
                drop(check.error(codes::BAD_NEIGHBOUR, path, message).help(HELP));
            })
            .ok()
    }

    pub(super) fn fabric(
        &mut self,
        name: &str,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<Arc<Fabric>> {
        let NamedFile { name: file, bytes } = self.read(name, path, check)?;
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let mut beside = |other: &str| {
            let there = folder.join(other).display().to_string();
            let bytes = (self.read)(&there)?.bytes;
            String::from_utf8(bytes).map_err(|_| format!("{there} is not UTF-8 text"))
        };
        let (fabric, mistakes) =
            lightloom_planner::load_with(&file, &bytes, &mut beside, mapped::search);
        if fabric.is_none() {
            let message = format!("{file} has errors, listed separately");
            check.error(codes::BAD_NEIGHBOUR, path, message);
        }
        self.mistakes.extend(mistakes);
        fabric.map(Arc::new)
    }

    pub(super) fn plan(&mut self, name: &str, check: &mut Check<'_>) -> Option<Arc<Plan>> {
        let path = "/on/plan";
        let NamedFile { name, bytes } = self.read(name, path, check)?;
        plan::read(&bytes)
            .map_err(|error| {
                let help = "use a plan created by `lightloom plan`, `replan` or `ctl plan`";
                let other = other_kind(&name, &bytes, "a plan", help);
                let is = other.map_or_else(|| error.to_string(), |other| other.is);
                check.error(codes::BAD_NEIGHBOUR, path, format!("{name} is {is}")).help(help);
            })
            .ok()
            .map(Arc::new)
    }

    pub(super) fn trace(
        &mut self,
        name: &str,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<Arc<FaultTrace>> {
        let NamedFile { name, bytes } = self.read(name, path, check)?;
        let unknown = Observation { servers: None, gpus_per_server: None, days: None };
        let trace = FaultTrace::read(&bytes, unknown);
        let trace = trace.map_err(|errors| {
            let other = other_kind(&name, &bytes, "a fault trace", "docs/traces.md describes it");
            let first = errors.0.first().map(ToString::to_string).unwrap_or_default();
            let message = match other {
                Some(other) => other.to_string(),
                None => format!("{name} is not a fault trace: {first}"),
            };
            check.error(codes::BAD_NEIGHBOUR, path, message);
        });
        trace.ok().map(Arc::new)
    }

    pub(crate) fn have_errors(&self) -> bool {
        self.mistakes.iter().any(|mistake| mistake.severity == Severity::Error)
    }
}

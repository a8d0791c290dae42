// SPDX-License-Identifier: Apache-2.0
//! The input of a run is a scenario file, or a fabric file whose step runs once, with all referenced files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lightloom_emulator::scenario::file::LoadPurpose;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_emulator::sweep::SweepSubject;
use lightloom_fabric::document::{self, Diagnostic, OtherKind};
use lightloom_fabric::plan::{self, Plan};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_units::seed::Seed;

use crate::files;
use crate::kinds;
use crate::output;

pub struct ScenarioSource {
    path: PathBuf,
    pub(super) scenario: Scenario,
    pub(super) inputs: Inputs,
}

fn of_step(name: &str) -> String {
    format!("name: {name:?}\non: {{fabric: {name:?}}}\nphases: {{}}\n")
}

fn without_place(mistake: Diagnostic, fabric: &str) -> Diagnostic {
    const HELP: &str = "`emulate` with a fabric file runs the `step:` of its jobs once as planned; \
        for rings, other traffic and faults, use a scenario with `on: {fabric: FILE}`";
    let bare = Diagnostic::whole_file(mistake.code, fabric, mistake.message);
    Diagnostic { severity: mistake.severity, ..bare.with_help(HELP) }
}

fn read_plan(path: &Path, inputs: &mut Inputs) -> Result<Arc<Plan>, Box<Diagnostic>> {
    let bytes = files::read_document(path)?;
    let file = files::name(path);
    inputs.insert("plan".to_owned(), Input::of(file.clone(), &bytes));
    plan::read(&bytes).map(Arc::new).map_err(|error| {
        let help = "`lightloom plan`, `replan` and `ctl plan` write plans";
        let other = document::other_kind(&file, &bytes, "a plan", help);
        Box::new(other.map_or_else(
            || {
                let code = scenario::file::codes::BAD_NEIGHBOUR;
                Diagnostic::whole_file(code, &file, format!("this is {error}")).with_help(help)
            },
            OtherKind::diagnostic,
        ))
    })
}

impl ScenarioSource {
    pub fn check_faults(&self, file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
        self.scenario.check_faults(file, bytes)
    }

    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let (source, mistakes) = Self::read_under(None, None, path);
        output::diagnostics(&mistakes);
        source.ok_or(output::InputRefused.into())
    }

    /// `plan` replaces the active plan and `seed` the scenario's seed. Returns all errors without printing them.
    pub(super) fn read_under(
        plan: Option<&Path>,
        seed: Option<Seed>,
        path: &Path,
    ) -> (Option<Self>, Vec<Diagnostic>) {
        let mut inputs = Inputs::new();
        let plan = match plan.map(|plan| read_plan(plan, &mut inputs)).transpose() {
            Ok(plan) => plan,
            Err(mistake) => return (None, vec![*mistake]),
        };
        let (scenario, mistakes) = match files::read_document(path) {
            Ok(bytes) => {
                let purpose = LoadPurpose { in_force: plan, seed, is_called: false };
                Self::load(purpose, path, &bytes, &mut inputs)
            }
            Err(mistake) => (None, vec![*mistake]),
        };
        let source = scenario.map(|scenario| Self { path: path.to_owned(), scenario, inputs });
        (source, mistakes)
    }

    fn load(
        purpose: LoadPurpose,
        path: &Path,
        bytes: &[u8],
        inputs: &mut Inputs,
    ) -> (Option<Scenario>, Vec<Diagnostic>) {
        let file = files::name(path);
        let kind = kinds::of_keys(&document::top_keys(bytes));
        let is_written = document::written(bytes).is_some();
        if !is_written && kind.is_some_and(|kind| kind.name == "fabric") {
            let last = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let unwritten = format!("the step of {file}");
            let text = of_step(&last).into_bytes();
            let loaded = scenario::file::load_for(purpose, &unwritten, &text, &mut |name: &str| {
                let there = files::beside(path, name)?;
                let role = if *name == last { "fabric" } else { "matrix" };
                files::note_input(inputs, role, &there.name, &there.bytes);
                Ok(there)
            });
            let (loaded, mistakes) = loaded;
            let mistakes = mistakes.into_iter().map(|mistake| match mistake.file == unwritten {
                true => without_place(mistake, &file),
                false => mistake,
            });
            let mistakes = mistakes.collect();
            return (loaded.map(|loaded| Scenario { name: file, ..loaded }), mistakes);
        }
        inputs.insert("scenario".to_owned(), Input::of(file.clone(), bytes));
        scenario::file::load_for(purpose, &file, bytes, &mut |name: &str| {
            let there = files::beside(path, name)?;
            files::note_input(inputs, kinds::role_of(&there.bytes), &there.name, &there.bytes);
            Ok(there)
        })
    }

    pub(super) fn under(&self, seed: Seed) -> Scenario {
        Scenario { seed, ..self.scenario.clone() }
    }

    pub(super) fn subject(&self) -> SweepSubject {
        SweepSubject {
            file: files::name(&self.path),
            scenario: self.scenario.name.clone(),
            fabric_sha256: self.scenario.sha256.clone(),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rejects keys that would have no effect in this file. Keys with default values are allowed,
//! because programs write them.

use super::codes;
use super::raw::{DcnFile, FabricFile};
use super::step::{PlanningFile, StepFile};
use crate::document::Check;
use crate::model::shipped_model;

pub(super) fn refuse(raw: &FabricFile, check: &mut Check<'_>) {
    let has_circuits = matches!(raw.dcn, DcnFile::ReconfigurableFatTree(_));
    for (index, job) in raw.jobs.iter().enumerate() {
        let (key, slacks) = match &job.step {
            Some(StepFile::Training(step)) => {
                ("training", [step.gradient_slack, step.micro_batch_slack])
            }
            Some(StepFile::Search(step)) => {
                ("search", [step.gradient_slack, step.micro_batch_slack])
            }
            _ => continue,
        };
        let path = format!("/jobs/{index}/step/{key}");
        if !has_circuits {
            let slacks = ["gradient_slack", "micro_batch_slack"].into_iter().zip(slacks);
            for (key, _) in slacks.filter(|(_, slack)| slack.0.0 > 0) {
                no_circuits(&format!("{path}/{key}"), check);
            }
        }
        let Some(StepFile::Training(step)) = &job.step else { continue };
        let is_dense =
            shipped_model(&step.model).is_some_and(|model| model.feed_forward.experts.is_none());
        if step.ep > 1 && is_dense {
            let message =
                format!("{} has no experts to distribute over {} ranks", step.model, step.ep);
            check
                .error(codes::BAD_GROUP, &format!("{path}/ep"), message)
                .help("remove it, or use a mixture of experts");
        }
    }
    if !has_circuits && raw.planning != PlanningFile::default() {
        no_circuits("/planning", check);
    }
}

fn no_circuits(path: &str, check: &mut Check<'_>) {
    check
        .error(codes::WHICH_FORM, path, "the network has no circuits to change")
        .help("remove it, or choose `dcn: {reconfigurable_fat_tree: …}`")
        .also("/dcn", "the network is selected here");
}

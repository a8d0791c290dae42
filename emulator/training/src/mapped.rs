// SPDX-License-Identifier: Apache-2.0
//! Resolves mappings that a fabric file leaves open: chooses the mapping with the shortest
//! closed-form step time on the fabric, and records the search.

use lightloom_fabric::document::{Check, codes};
use lightloom_fabric::fabric::{Fabric, JobSize};
use lightloom_fabric::file::{MappingFile, SearchFile, ShardingFile, StepFile};
use lightloom_fabric::plan::Searched;

use super::calibration::{Precision, ZeroStage};
use super::cards;
use super::mapping::Batch;
use super::mfu::Convention;
use super::model::Model;
use super::network::Network;
use super::request::{Changes, Prepared, Request};
use super::search::{Found, Limits, Search};

const LARGEST_GROUP: u64 = 128;

struct NoMapping {
    key: &'static str,
    message: String,
    help: String,
}

/// Jobs without a valid mapping are reported to `check` and lose their step.
pub fn search(fabric: &mut Fabric, check: &mut Check<'_>) {
    for place in 0..fabric.jobs.len() {
        let job = &fabric.jobs[place];
        let Some(StepFile::Search(asked)) = job.step.clone() else { continue };
        let JobSize::Gpus(gpus) = job.size else {
            fabric.jobs[place].step = None;
            continue;
        };
        match searched(fabric, gpus, job.tp, &asked) {
            Ok((step, found)) => {
                let job = &mut fabric.jobs[place];
                (job.tp, job.step) = (found.tp, Some(StepFile::Training(step)));
                job.searched = Some(found);
            }
            Err(NoMapping { key, message, help }) => {
                fabric.jobs[place].step = None;
                let code = if key.is_empty() { codes::BAD_VALUE } else { codes::UNKNOWN_WORD };
                let path = format!("/jobs/{place}/step/search{key}");
                check.error(code, &path, message).help(help);
            }
        }
    }
}

fn searched(
    fabric: &Fabric,
    gpus: u64,
    tp: u32,
    asked: &SearchFile,
) -> Result<(MappingFile, Searched), NoMapping> {
    let limits =
        Limits { tensor: groups(fabric, gpus, tp), virtual_stages: vec![1], ..Limits::default() };
    let prepared = prepared(fabric, asked, limits)?;
    let network = Network::of_fabric(fabric);
    let search = prepared.search(gpus, &network);
    let outcome = search.run();
    // Fabric files require EP groups within DP and equal pipeline stages.
    let found = outcome.found.iter().find(|Found { mapping, .. }| {
        mapping.data.is_multiple_of(mapping.expert)
            && search.model.layers.is_multiple_of(mapping.pipeline)
    });
    let Some(found) = found else { return Err(none(&search, &prepared)) };
    let mapping = &found.mapping;
    let micro_batches =
        asked.sequences / (u64::from(mapping.data) * u64::from(mapping.micro_batch));
    let tokens = u64::from(mapping.micro_batch) * asked.sequence;
    let [micro_batches, tokens] =
        [micro_batches, tokens].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let request = prepared.request();
    let peak = request.card.peak_flops(request.precision).unwrap_or_default();
    let searched = Searched {
        model: asked.model.clone(),
        sequences: asked.sequences,
        sequence: asked.sequence,
        accelerator: asked.accelerator.clone(),
        constants: prepared.calibration().name.to_string(),
        tried: outcome.tried as u64,
        tp: mapping.tensor,
        cp: mapping.context,
        pp: mapping.pipeline,
        dp: mapping.data,
        ep: mapping.expert,
        micro_batch: mapping.micro_batch,
        micro_batches,
        recompute: mapping.recompute.to_string(),
        step_seconds: found.step.step_seconds,
        mfu: search.mfu(found, peak),
    };
    let step = MappingFile {
        model: asked.model.clone(),
        pp: mapping.pipeline,
        dp: Some(mapping.data),
        cp: mapping.context,
        ep: mapping.expert,
        sharding: asked.sharding,
        micro_batches,
        tokens,
        gradient_slack: asked.gradient_slack,
        micro_batch_slack: asked.micro_batch_slack,
        usable_share: prepared.calibration().network.scale_out,
    };
    Ok((step, searched))
}

fn groups(fabric: &Fabric, gpus: u64, tp: u32) -> Vec<u32> {
    if tp > 0 {
        return vec![tp];
    }
    let node = u64::from(fabric.hbd.gpus_per_node());
    let most = fabric.hbd.largest_group().clamp(1, LARGEST_GROUP).min(gpus);
    let fitting = (1..=most).filter(|group| {
        gpus.is_multiple_of(*group) && (node.is_multiple_of(*group) || group.is_multiple_of(node))
    });
    fitting.filter_map(|group| u32::try_from(group).ok()).collect()
}

fn prepared(fabric: &Fabric, asked: &SearchFile, limits: Limits) -> Result<Prepared, NoMapping> {
    let card = cards::accelerator(&asked.accelerator)
        .map_err(|error| NoMapping::unknown("/accelerator", error.to_string()))?;
    let sharding = match asked.sharding {
        ShardingFile::Sharded => Some(ZeroStage::Everything),
        ShardingFile::Replicated => None,
    };
    let request = Request {
        model: model(fabric, &asked.model).map_err(|why| NoMapping::unknown("/model", why))?,
        card,
        batch: Batch { sequences: asked.sequences, tokens: asked.sequence },
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
        convention: Convention::MfuFull,
        limits,
        constants: asked.constants.clone(),
        refitted: Default::default(),
        changes: Changes { sharding, ..Changes::default() },
    };
    request.prepare().map_err(|error| NoMapping::unknown("/constants", error.to_string()))
}

impl NoMapping {
    fn unknown(key: &'static str, message: String) -> Self {
        Self { key, message, help: "see `lightloom mfu --help`".to_owned() }
    }
}

fn model(fabric: &Fabric, name: &str) -> Result<Model, String> {
    let is_file = std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml");
    if !is_file {
        return cards::model(name).map_err(|error| error.to_string());
    }
    let text = fabric.neighbour(name)?;
    let (model, mistakes) = cards::read_model(name, text.as_bytes());
    model.ok_or_else(|| mistakes.first().map(ToString::to_string).unwrap_or_default())
}

fn none(search: &Search<'_>, prepared: &Prepared) -> NoMapping {
    let nearest = search.run().closest.map(|(_, refusal)| format!(": the nearest {refusal}"));
    let model = &prepared.request().model.name;
    let message = format!(
        "{model} has no mapping onto {} GPUs with {} sequences per step{}",
        search.gpus,
        search.batch.sequences,
        nearest.unwrap_or_default()
    );
    let help = match search.nearest_gpus() {
        Some((gpus, _)) => format!("use `gpus: {gpus}` or a different number of `sequences`"),
        None => "use more GPUs, a smaller model, or a different number of `sequences`".to_owned(),
    };
    NoMapping { key: "", message, help }
}

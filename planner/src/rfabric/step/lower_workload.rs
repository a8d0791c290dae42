// SPDX-License-Identifier: Apache-2.0
//! Converts a described workload to a demand and reports every mistake with its location.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::seed::Seed;

use super::super::demand::Demand;
use super::super::mistake::Mistake;
use super::super::workload::card::ModelCard;
use super::super::workload::generation::Generation;
use super::super::workload::place::Place;
use super::super::workload::prefill_decode;
use super::super::workload::training::Training;
use super::super::workload::weight_sync::{self, FanOut};
use super::lower::find_model;
use super::{PlaceFile, PrefillDecodeFile, TrainingFile, TrainingPart, WeightsFile, WorkloadFile};

type Refused<T> = Result<T, Vec<Mistake>>;

pub(super) fn lower(
    raw: &WorkloadFile,
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Refused<Demand> {
    let mut lower = Lower { fabric, read };
    match raw {
        WorkloadFile::Training(raw) => lower.training(raw),
        WorkloadFile::Weights(raw) => lower.weights(raw),
        WorkloadFile::PrefillDecode(raw) => lower.prefill_decode(raw),
    }
}

struct Lower<'a> {
    fabric: &'a ReconfigurableFatTree,
    read: &'a mut dyn FnMut(&str) -> Result<String, String>,
}

fn refuse<T>(field: &str, message: impl Into<String>, fix: impl Into<String>) -> Refused<T> {
    Err(Mistake::within(&format!("/{field}"), Mistake::of_whole(message, fix)))
}

fn divides(field: &str, what: &str, whole: u32, part: u32) -> Refused<u32> {
    if part > 0 && whole.is_multiple_of(part) {
        return Ok(whole / part);
    }
    let message = format!("{what}: {whole} is not a multiple of {part}");
    refuse(field, message, format!("use a divisor of {whole}"))
}

impl Lower<'_> {
    fn leaves(&self) -> usize {
        self.fabric.leaves()
    }

    fn place(&self, field: &str, raw: PlaceFile) -> Refused<Place> {
        let gpus_per_leaf = self.fabric.spec().gpus_per_leaf;
        let place = Place { first_leaf: raw.first_leaf.0, gpus_per_leaf, gpus: raw.gpus };
        let last = u64::from(place.first_leaf) + u64::from(place.leaves());
        if last <= self.leaves() as u64 {
            return Ok(place);
        }
        let message = format!(
            "{} GPUs starting at {} need {} leaves with {gpus_per_leaf} GPUs each, but the fabric ends at \
             leaf{}",
            raw.gpus,
            raw.first_leaf,
            place.leaves(),
            self.leaves() - 1
        );
        refuse(field, message, "use fewer GPUs or start at an earlier leaf")
    }

    fn model(&mut self, name: &str) -> Refused<ModelCard> {
        find_model(name, self.read).map_err(|mistakes| Mistake::within("/model", mistakes))
    }

    fn pool(&mut self, model: &str, raw: PlaceFile, replica_gpus: u32) -> Refused<Generation> {
        let place = self.place("pool", raw)?;
        divides("replica_gpus", "pool GPUs by replica GPUs", place.gpus, replica_gpus)?;
        let card = self.model(model)?;
        Ok(Generation { card, seats: place.into(), replica_gpus, tokens: 0, migrated_tokens: 0 })
    }

    fn training(&mut self, raw: &TrainingFile) -> Refused<Demand> {
        let place = self.place("place", raw.place)?;
        let dp = divides("tp", "GPUs by tp·pp", place.gpus, raw.tp * raw.pp)?;
        divides("ep", "data-parallel ranks by ep", dp, raw.ep)?;
        let training = Training {
            card: self.model(&raw.model)?,
            seats: place.into(),
            cp: 1,
            tp: raw.tp,
            pp: raw.pp,
            dp,
            ep: raw.ep,
            sharding: raw.sharding,
            micro_batches: raw.micro_batches,
            tokens: raw.tokens,
            expert_skew: raw.expert_skew,
            seed: Seed(raw.seed),
        };
        Ok(match raw.part {
            TrainingPart::MicroBatches => training.micro_batch_traffic(Demand::none(self.leaves())),
            TrainingPart::DataParallel => {
                training.data_parallel_traffic(Demand::none(self.leaves()))
            }
        })
    }

    fn weights(&mut self, raw: &WeightsFile) -> Refused<Demand> {
        let trainer = self.place("trainer", raw.trainer)?;
        let pool = self.pool(&raw.model, raw.pool, raw.replica_gpus)?;
        let fan_out = if raw.fan_out == 0 { FanOut::Star } else { FanOut::Tree(raw.fan_out) };
        Ok(weight_sync::traffic(
            self.leaves(),
            pool.card.weight_bytes(),
            &trainer.into(),
            &pool,
            fan_out,
        ))
    }

    fn prefill_decode(&mut self, raw: &PrefillDecodeFile) -> Refused<Demand> {
        let prefill = self.place("prefill", raw.prefill)?;
        let decode = self.place("decode", raw.decode)?;
        if let Some(at) = raw.prompts.iter().position(|prompt| prompt.gpu >= prefill.gpus) {
            let message = format!("prefill GPU {} does not exist", raw.prompts[at].gpu);
            let fix = format!("use 0 to {}", prefill.gpus - 1);
            return refuse(&format!("prompts/{at}/gpu"), message, fix);
        }
        let card = self.model(&raw.model)?;
        Ok(prefill_decode::pull(self.leaves(), &card, &prefill, &decode, &raw.prompts, raw.room.0)
            .0)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Turns a described workload into its demand and reports every mistake at its place.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::Picoseconds;
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;

use super::super::demand::Demand;
use super::super::workload::bytecomp::{Scheme, exchange};
use super::super::workload::card::ModelCard;
use super::super::workload::collective::all_reduce;
use super::super::workload::core_attention::Attention;
use super::super::workload::dsv::SparseAttention;
use super::super::workload::generation::Generation;
use super::super::workload::pipeweaver::Boundary;
use super::super::workload::place::Place;
use super::super::workload::prefill_decode::Prompt;
use super::super::workload::rlhfuse::Tail;
use super::super::workload::tokenlake::Hit;
use super::super::workload::training::Training;
use super::super::workload::weight_sync::FanOut;
use super::super::workload::{
    aryl, pipeweaver, prefill_decode, qsync, step3, streamrl, tokenlake, weight_sync,
};
use super::lower::{Mistake, find_model};
use super::{
    AttentionFile, CoreAttentionFile, ElasticJoinFile, PipelineFile, PlaceFile, PrefillDecodeFile,
    RanksFile, SampleMigrationFile, SparseAttentionFile, StragglersFile, TrainingFile,
    TrainingPart, WeightsFile, WorkloadFile,
};

type Refused<T> = Result<T, Vec<Mistake>>;

const ELEMENT_BYTES: u32 = 2;

/// Returns the demand of a workload, and the idle time of the network before it.
pub(super) fn lower(
    raw: WorkloadFile,
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Refused<(Demand, Picoseconds)> {
    let mut lower = Lower { fabric, read };
    let demand = match raw {
        WorkloadFile::Training(raw) => lower.training(&raw),
        WorkloadFile::Weights(raw) => lower.weights(&raw),
        WorkloadFile::Samples(raw) => {
            let (pool, trainer) =
                (lower.place("pool", raw.pool)?, lower.place("trainer", raw.trainer)?);
            Ok(streamrl::samples(lower.leaves(), &pool.into(), &trainer.into(), raw.tokens))
        }
        WorkloadFile::SampleMigration(raw) => lower.sample_migration(&raw),
        WorkloadFile::SparseAttention(raw) => lower.sparse_attention(&raw),
        WorkloadFile::CoreAttention(raw) => lower.core_attention(&raw),
        WorkloadFile::AttentionFeedForward(raw) => {
            let attention = lower.place("attention", raw.attention)?;
            let feed_forward = lower.place("feed_forward", raw.feed_forward)?;
            let leaves = lower.leaves();
            Ok(step3::traffic(
                leaves,
                &attention,
                &feed_forward,
                raw.hidden,
                raw.layers,
                raw.tokens,
            ))
        }
        WorkloadFile::PrefillDecode(raw) => lower.prefill_decode(&raw),
        WorkloadFile::PrefixPool(raw) => {
            for (at, hit) in raw.hits.iter().enumerate() {
                lower.leaf(&format!("hits/{at}/request"), hit.request)?;
                lower.leaf(&format!("hits/{at}/segment"), hit.segment)?;
            }
            let hit = |raw: &super::HitFile| Hit {
                request: raw.request,
                segment: raw.segment,
                query_tokens: raw.query_tokens,
                segment_tokens: raw.segment_tokens,
            };
            let hits: Vec<Hit> = raw.hits.iter().map(hit).collect();
            Ok(tokenlake::traffic(lower.leaves(), &attention(raw.attention), &hits))
        }
        WorkloadFile::Pipeline(raw) => lower.pipeline(&raw),
        WorkloadFile::CompressedGradients(raw) => {
            let ranks = lower.ranks("ranks", raw.ranks)?;
            let mut demand = Demand::none(lower.leaves());
            exchange(&mut demand, &ranks, raw.bytes.0, Scheme::best(raw.ratio, ranks.len()));
            Ok(demand)
        }
        WorkloadFile::Stragglers(raw) => return lower.stragglers(&raw),
        WorkloadFile::ElasticJoin(raw) => lower.elastic_join(&raw),
    }?;
    Ok((demand, Picoseconds::ZERO))
}

struct Lower<'a> {
    fabric: &'a ReconfigurableFatTree,
    read: &'a mut dyn FnMut(&str) -> Result<String, String>,
}

fn refuse<T>(field: &str, message: impl Into<String>, fix: impl Into<String>) -> Refused<T> {
    Err(vec![Mistake { place: format!("/{field}"), message: message.into(), fix: fix.into() }])
}

fn divides(field: &str, what: &str, whole: u32, part: u32) -> Refused<u32> {
    if part > 0 && whole.is_multiple_of(part) {
        return Ok(whole / part);
    }
    let message = format!("{what}: {whole} is not a multiple of {part}");
    refuse(field, message, format!("write a divisor of {whole}"))
}

fn attention(raw: AttentionFile) -> Attention {
    Attention {
        query_heads: raw.query_heads,
        key_value_heads: raw.key_value_heads,
        head_size: raw.head_size,
        element_bytes: ELEMENT_BYTES,
    }
}

impl Lower<'_> {
    fn leaves(&self) -> usize {
        self.fabric.leaves()
    }

    fn leaf(&self, field: &str, leaf: LeafId) -> Refused<()> {
        if leaf.index() < self.leaves() {
            return Ok(());
        }
        let fix = format!("leaves run from leaf0 to leaf{}", self.leaves() - 1);
        refuse(field, format!("{leaf} does not exist"), fix)
    }

    fn place(&self, field: &str, raw: PlaceFile) -> Refused<Place> {
        let gpus_per_leaf = self.fabric.spec().gpus_per_leaf;
        let place = Place { first_leaf: raw.first_leaf.0, gpus_per_leaf, gpus: raw.gpus };
        let last = u64::from(place.first_leaf) + u64::from(place.leaves());
        if last <= self.leaves() as u64 {
            return Ok(place);
        }
        let message = format!(
            "{} GPUs from {} on fill {} leaves, {gpus_per_leaf} a leaf, and the fabric ends at leaf{}",
            raw.gpus,
            raw.first_leaf,
            place.leaves(),
            self.leaves() - 1
        );
        refuse(field, message, "use fewer GPUs or begin at an earlier leaf")
    }

    fn ranks(&self, field: &str, raw: RanksFile) -> Refused<Vec<LeafId>> {
        let end = u64::from(raw.first_leaf.0) + u64::from(raw.leaves);
        if raw.leaves == 0 || end > self.leaves() as u64 {
            let message = format!(
                "the fabric has fewer than {} leaves from {} on",
                raw.leaves, raw.first_leaf
            );
            let fix = format!("stay among leaf0 to leaf{}", self.leaves() - 1);
            return refuse(field, message, fix);
        }
        Ok((raw.first_leaf.0..raw.first_leaf.0 + raw.leaves).map(LeafId).collect())
    }

    fn model(&mut self, name: &str) -> Refused<ModelCard> {
        find_model(name, self.read).map_err(|mistakes| {
            let within = |mistake| Mistake { place: "/model".into(), ..mistake };
            mistakes.into_iter().map(within).collect()
        })
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
            sharding: raw.sharding.into(),
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

    fn sample_migration(&mut self, raw: &SampleMigrationFile) -> Refused<Demand> {
        let pool = self.pool(&raw.model, raw.pool, raw.replica_gpus)?;
        let tail = Tail {
            remaining: raw.remaining,
            tokens: raw.tokens,
            batch_max: raw.batch_max,
            cache: raw.cache.0,
        };
        if tail.cache.0 == 0 {
            return refuse("cache", "an instance without cache holds no sample", "write its size");
        }
        Ok(tail.migration(self.leaves(), &pool))
    }

    fn sparse_attention(&mut self, raw: &SparseAttentionFile) -> Refused<Demand> {
        let place = self.place("place", raw.place)?;
        divides("head_ranks", "GPUs by group GPUs", place.gpus, raw.head_ranks)?;
        let layer = SparseAttention {
            heads: raw.heads,
            head_size: raw.head_size,
            sequence: raw.sequence,
            sparsity: raw.sparsity,
            remote_share: raw.remote_share,
            element_bytes: ELEMENT_BYTES,
        };
        Ok(layer.traffic(self.leaves(), &place, raw.head_ranks))
    }

    fn core_attention(&mut self, raw: &CoreAttentionFile) -> Refused<Demand> {
        const TOKENS_MAX: u64 = 1_000_000_000;
        let gpus = raw.tokens.len() as u32;
        let place = self.place("tokens", PlaceFile { first_leaf: raw.first_leaf, gpus })?;
        if raw.tokens.iter().any(|tokens| *tokens > TOKENS_MAX) {
            let fix = format!("write at most {TOKENS_MAX}");
            return refuse("tokens", "too many tokens on one GPU", fix);
        }
        Ok(attention(raw.attention).balance(self.leaves(), &place, &raw.tokens))
    }

    fn prefill_decode(&mut self, raw: &PrefillDecodeFile) -> Refused<Demand> {
        let prefill = self.place("prefill", raw.prefill)?;
        let decode = self.place("decode", raw.decode)?;
        if let Some(at) = raw.prompts.iter().position(|prompt| prompt.gpu >= prefill.gpus) {
            let message = format!("prefill GPU {} does not exist", raw.prompts[at].gpu);
            let fix = format!("they run from 0 to {}", prefill.gpus - 1);
            return refuse(&format!("prompts/{at}/gpu"), message, fix);
        }
        let card = self.model(&raw.model)?;
        let prompt = |raw: &super::PromptFile| Prompt { gpu: raw.gpu, tokens: raw.tokens };
        let prompts: Vec<Prompt> = raw.prompts.iter().map(prompt).collect();
        Ok(prefill_decode::pull(self.leaves(), &card, &prefill, &decode, &prompts, raw.room.0).0)
    }

    fn pipeline(&mut self, raw: &PipelineFile) -> Refused<Demand> {
        let place = self.place("place", raw.place)?;
        let modalities = raw.micro_batches.iter().map(Vec::len).min().unwrap_or_default();
        for (at, boundary) in raw.boundaries.iter().enumerate() {
            if boundary.before.max(boundary.after) >= place.gpus {
                let fix = format!("GPUs run from 0 to {}", place.gpus - 1);
                return refuse(
                    &format!("boundaries/{at}"),
                    "a stage on a GPU that does not exist",
                    fix,
                );
            }
            if boundary.modality as usize >= modalities {
                let message = format!("a micro-batch has no modality {}", boundary.modality);
                let fix = "give each micro-batch a token count for every modality";
                return refuse(&format!("boundaries/{at}/modality"), message, fix);
            }
        }
        let boundary = |raw: &super::BoundaryFile| Boundary {
            before: raw.before,
            after: raw.after,
            modality: raw.modality as usize,
            token_bytes: raw.token_bytes,
        };
        let boundaries: Vec<Boundary> = raw.boundaries.iter().map(boundary).collect();
        let widen = |batch: &Vec<u32>| batch.iter().map(|tokens| u64::from(*tokens)).collect();
        let batches: Vec<Vec<u64>> = raw.micro_batches.iter().map(widen).collect();
        Ok(pipeweaver::traffic(self.leaves(), &place, &boundaries, &batches))
    }

    fn stragglers(&mut self, raw: &StragglersFile) -> Refused<(Demand, Picoseconds)> {
        let count = raw.speeds.len();
        let gains = raw.low_precision_gain.clone().unwrap_or_else(|| vec![1.0; count]);
        if gains.len() != count {
            let message = format!("{} gains for {count} ranks", gains.len());
            return refuse("low_precision_gain", message, "write one for each speed");
        }
        for (field, values) in [("speeds", &raw.speeds), ("low_precision_gain", &gains)] {
            if values.iter().any(|value| !(0.001..=1000.0).contains(value)) {
                return refuse(field, "an implausible speed", "write 0.001 to 1000");
            }
        }
        let ranks = RanksFile { first_leaf: raw.first_leaf, leaves: count as u32 };
        let ranks = self.ranks("speeds", ranks)?;
        let mut demand = Demand::none(self.leaves());
        all_reduce(&mut demand, &ranks, raw.bytes.0);
        Ok((demand, qsync::arrivals(raw.compute.0, &raw.speeds, &gains).slack()))
    }

    fn elastic_join(&mut self, raw: &ElasticJoinFile) -> Refused<Demand> {
        let members = self.ranks("members", raw.members)?;
        let joining = self.ranks("joining", raw.joining)?;
        if let Some(both) = joining.iter().find(|leaf| members.contains(leaf)) {
            let fix = "let the ranks that join begin after the members";
            return refuse("joining", format!("{both} already has the weights"), fix);
        }
        let card = self.model(&raw.model)?;
        Ok(aryl::join(self.leaves(), &card, &members, &joining))
    }
}

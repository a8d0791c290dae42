// SPDX-License-Identifier: Apache-2.0
//! Preselects groups of attention and feed-forward instances by throughput at the objective.

use rayon::prelude::*;

use super::{DecodeGroups, Layout, SIZES, ServingJob};
use crate::step::{AttentionFfn, Instances, Server};

const GROUPS: [u32; 4] = [1, 2, 4, 8];
const MOST_FEED_FORWARD: u32 = 8;
const MOST_OF_A_GROUP: u32 = 16_384;
const MOST_MICRO_BATCHES: u32 = 4;

impl AttentionFfn<'_> {
    /// Returns the largest batch whose step takes at most `seconds`, and its tokens per second and
    /// GPU. Every request has `context` cached tokens, and all micro-batches are equal.
    pub fn most_tokens(&self, seconds: f64, context: f64, most: u32) -> Option<(u32, f64)> {
        let each = self.attention.count.saturating_mul(self.micro_batches.max(1));
        let room = self.cache_tokens()? as f64 / context.max(1.0);
        let step = |batch: u32| self.stages(batch).seconds(f64::from(batch) * context);
        let (mut below, mut above) = (0, most / each + 1);
        while above - below > 1 {
            let middle = below.midpoint(above);
            let fits = f64::from(middle * each) <= room && step(middle * each) <= seconds;
            *(if fits { &mut below } else { &mut above }) = middle;
        }
        let batch = below * each;
        (below > 0).then(|| (batch, f64::from(batch) / step(batch) / f64::from(self.gpus())))
    }
}

impl ServingJob {
    pub(super) fn attention_ffn_layouts(&self, sizes: &[u32]) -> Vec<Layout> {
        let shares: Vec<u32> = (1..8).map(|eighths| self.gpus * eighths / 8).collect();
        let best = shares.into_par_iter().filter_map(|prefill| {
            let decodes = self.with_server(1, |server| self.best(server, self.gpus - prefill));
            decodes.map(|decodes| (prefill, decodes))
        });
        let best: Vec<(u32, DecodeGroups)> = best.collect();
        let mut layouts = Vec::new();
        for &prefill_replica_gpus in sizes {
            for &(prefill_gpus, decodes) in &best {
                if prefill_gpus > 0 && prefill_gpus.is_multiple_of(prefill_replica_gpus) {
                    let layout =
                        Layout::AttentionFfn { prefill_gpus, prefill_replica_gpus, decodes };
                    layouts.push(layout);
                }
            }
        }
        layouts
    }

    pub(super) fn most_of(&self, group: &DecodeGroups) -> u32 {
        self.batch.saturating_mul(group.attention.count).min(MOST_OF_A_GROUP)
    }

    fn best(&self, server: &Server<'_>, gpus: u32) -> Option<DecodeGroups> {
        let [prompt, answer] = self.lengths.map(|lengths| lengths.mean);
        let rates = self.groups_of(gpus).into_iter().filter_map(|one| {
            let (bound, most) = (self.objective.token_seconds, self.most_of(&one));
            let found = one.with(server).most_tokens(bound, prompt + answer / 2.0, most);
            found.map(|(_, rate)| (rate, one))
        });
        rates.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, one)| one)
    }

    fn groups_of(&self, gpus: u32) -> Vec<DecodeGroups> {
        let heads = self.model.attention.heads();
        let mut all = Vec::new();
        for groups in GROUPS.into_iter().filter(|groups| gpus.is_multiple_of(*groups)) {
            for feed_forward in SIZES.into_iter().flat_map(|gpus| {
                (1..=MOST_FEED_FORWARD).map(move |count| Instances { count, gpus })
            }) {
                let left = (gpus / groups).saturating_sub(feed_forward.all_gpus());
                for gpus in SIZES {
                    if left == 0 || !left.is_multiple_of(gpus) || !heads.is_multiple_of(gpus) {
                        continue;
                    }
                    let attention = Instances { count: left / gpus, gpus };
                    all.extend((1..=MOST_MICRO_BATCHES).map(|micro_batches| DecodeGroups {
                        groups,
                        attention,
                        feed_forward,
                        micro_batches,
                    }));
                }
            }
        }
        all
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Serving: requests arrive by themselves, and an objective bounds how long a user waits for the first token and for each one after it.
//!
//! ```text
//! colocated      a replica works on prompts and decodes
//! disaggregated  prompt ▶ its cache over the sender's network cards, one after the other ▶ decode on other GPUs
//! attention–FFN  the same, and the GPUs that decode are attention instances and feed-forward instances
//! ```
//! Every layout of the GPUs is tried on the first minutes, and the best of each kind is run in full. Assumptions: arrivals are
//! Poisson; a network that blocks nothing; the first token comes from the prompt's replica; room for a cache is waited for at the
//! decoding side, and does not hold up the prompt's.

mod attention_ffn;
mod prefixes;

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::Serialize;

use crate::batching::{
    Prefix, PrefixSetup, PrefixSharing, ReplicaCosts, Request, Served, StagedCosts, StepCosts,
    serve, serve_prefixes,
};
use crate::cards::Accelerator;
use crate::model::Model;
use crate::network::Network;
use crate::rollout::Lengths;
use crate::step::{AttentionFfn, Formats, Instances, Replica, Server};

pub use prefixes::{PrefixResult, SharedPrefixes};

/// What is served, and on what.
#[derive(Clone, Debug)]
pub struct ServingJob {
    /// The model.
    pub model: Model,
    /// The card.
    pub card: Accelerator,
    /// What joins the GPUs.
    pub network: Network,
    /// GPUs of the pool.
    pub gpus: u32,
    /// Requests a second.
    pub rate: f64,
    /// Seconds of arrivals.
    pub seconds: f64,
    /// Tokens of prompts and of answers.
    pub lengths: [Lengths; 2],
    /// The most requests that a replica decodes at once.
    pub batch: u32,
    /// Seconds that software adds to a decode step.
    pub host_seconds: f64,
    /// Number formats.
    pub formats: Formats,
    /// Whether attention and feed-forward parts on GPUs of their own are tried, too.
    pub tries_attention_ffn: bool,
    /// What prompts begin with; `None` if they share nothing.
    pub prefixes: Option<SharedPrefixes>,
    /// What users are promised.
    pub objective: Objective,
    /// Where arrivals and lengths are drawn from.
    pub seed: Seed,
}

/// How long a user waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// For the first token.
    pub first_seconds: f64,
    /// For each further one, in the mean of a request.
    pub token_seconds: f64,
}

/// How GPUs share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "layout", rename_all = "kebab-case")]
pub enum Layout {
    /// Replicas that do both.
    Colocated {
        /// GPUs of a replica.
        replica_gpus: u32,
    },
    /// Replicas for prompts, and others that decode.
    Disaggregated {
        /// GPUs that prefill.
        prefill_gpus: u32,
        /// GPUs of a replica of them.
        prefill_replica_gpus: u32,
        /// GPUs that decode.
        decode_gpus: u32,
        /// GPUs of a replica of them.
        decode_replica_gpus: u32,
    },
    /// Replicas for prompts, and groups of attention and feed-forward instances that decode.
    AttentionFfn {
        /// GPUs that prefill.
        prefill_gpus: u32,
        /// GPUs of a replica of them.
        prefill_replica_gpus: u32,
        /// What decodes.
        #[serde(flatten)]
        decodes: DecodeGroups,
    },
}

/// Equal groups of attention and feed-forward instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecodeGroups {
    /// How many.
    pub groups: u32,
    /// Attention instances of a group.
    pub attention: Instances,
    /// Its feed-forward instances.
    pub feed_forward: Instances,
    /// The most micro-batches of its batch.
    pub micro_batches: u32,
}

impl DecodeGroups {
    fn with<'a>(&self, server: &Server<'a>) -> AttentionFfn<'a> {
        let Self { attention, feed_forward, micro_batches, .. } = *self;
        let (server, reads_while_computing) = (*server, false);
        AttentionFfn { server, attention, feed_forward, micro_batches, reads_while_computing }
    }
}

/// What users of a layout see.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServingResult {
    /// The layout.
    #[serde(flatten)]
    pub layout: Layout,
    /// Requests that ended, and those that no replica can hold.
    pub requests: usize,
    /// Of those.
    pub refused: usize,
    /// Share of requests within both bounds.
    pub within: f64,
    /// Seconds to the first token: median.
    pub ttft_p50_seconds: f64,
    /// 99th percentile.
    pub ttft_p99_seconds: f64,
    /// Seconds for each further token, with what a request waits in between, of requests with more than one: median.
    pub tpot_p50_seconds: Option<f64>,
    /// 99th percentile.
    pub tpot_p99_seconds: Option<f64>,
    /// Tokens of answers.
    pub tokens: u64,
    /// Tokens of answers a second, from the first arrival to the last token.
    pub tokens_per_second: f64,
    /// Bytes of caches that went from GPUs of prompts to those that decode.
    pub moved_bytes: u64,
    /// Bytes of hidden values between attention and feed-forward GPUs.
    pub activation_bytes: u64,
    /// Requests in the pool, in the mean over time.
    pub mean_requests: f64,
    /// What came of shared prefixes; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<PrefixResult>,
}

/// Sizes of replicas that are tried.
const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Layouts are chosen by this many seconds of arrivals.
const TRIAL_SECONDS: f64 = 120.0;

impl ServingJob {
    /// What can be asked of a replica, with what its answers borrow.
    fn with_server<T>(&self, gpus: u32, ask: impl FnOnce(&Server<'_>) -> T) -> T {
        let (compute, calibration) = (self.card.compute(), self.card.calibration());
        let replica = Replica {
            model: &self.model,
            compute: &compute,
            network: &self.network,
            calibration: &calibration,
            gpus,
            host_seconds: self.host_seconds,
        };
        ask(&Server { replica, formats: self.formats })
    }

    /// Bytes per second of a network card.
    fn card_rate(&self) -> f64 {
        self.network.scale_out_rate * self.card.calibration().network.scale_out
    }

    /// Sizes of replicas that hold the weights, and seconds that a token's cache is on its way over their cards.
    fn costs(&self) -> Vec<(ReplicaCosts, f64)> {
        let of = |gpus: u32| {
            self.with_server(gpus, |server| {
                let moves = server.cache_bytes() / (self.card_rate() * f64::from(gpus));
                Some((ReplicaCosts::of(*server, self.batch)?, moves))
            })
        };
        let heads = self.model.attention.heads();
        let fits = |gpus: &u32| *gpus <= self.gpus && heads.is_multiple_of(*gpus);
        SIZES.into_iter().filter(fits).filter_map(of).collect()
    }

    /// Requests of so many seconds, and what their prompts begin with.
    fn requests(&self, seconds: f64) -> (Vec<Request>, Vec<Prefix>) {
        let mut stream = self.seed.stream("serving.arrivals", 0);
        let mut arrivals = Vec::with_capacity((self.rate * seconds) as usize);
        let mut at = 0.0;
        loop {
            at += -(1.0 - stream.random::<f64>()).ln() / self.rate;
            if at >= seconds {
                break;
            }
            arrivals.push(at);
        }
        let [prompts, answers] = self.lengths;
        let prompts = prompts.draw(arrivals.len(), self.seed, 100);
        let answers = answers.draw(arrivals.len(), self.seed, 101);
        let lengths = prompts.into_iter().zip(answers);
        let all = arrivals.into_iter().zip(lengths);
        let request =
            |(arrives, (prompt, output))| Request { arrives, prompt, output, ..Request::default() };
        let mut requests: Vec<Request> = all.map(request).collect();
        let draw = |shared: SharedPrefixes| shared.draw(requests.len(), self.seed);
        let prefixes = self.prefixes.map_or(Vec::new(), draw);
        for (request, prefix) in requests.iter_mut().zip(&prefixes) {
            request.prompt += prefix.tokens;
        }
        (requests, prefixes)
    }

    /// Requests on replicas that work on prompts.
    fn serve(
        &self,
        (costs, moves): &(ReplicaCosts, f64),
        replicas: u32,
        (requests, prefixes): (&[Request], &[Prefix]),
        sharing: Option<PrefixSharing>,
    ) -> Served {
        let (Some(shared), Some(sharing)) = (self.prefixes, sharing) else {
            return serve(costs, replicas, requests, 0);
        };
        let tokens = (shared.room * costs.cache_tokens as f64) as u64;
        let costs = ReplicaCosts { cache_tokens: costs.cache_tokens - tokens, ..costs.clone() };
        let segment = shared.segment;
        let setup = PrefixSetup { sharing, segment, tokens, token_seconds: *moves };
        serve_prefixes(&costs, replicas, (requests, prefixes), setup)
    }

    /// The best layout of each kind, the better one first. Empty where no replica holds the model.
    #[must_use]
    pub fn report(&self) -> Vec<ServingResult> {
        let costs = self.costs();
        let trial = self.requests(self.seconds.min(TRIAL_SECONDS));
        let cost = |gpus: u32| costs.iter().find(|(costs, _)| costs.gpus == gpus);
        let run = |layout: Layout, sharing, asked: &(Vec<Request>, Vec<Prefix>)| match layout {
            Layout::Colocated { replica_gpus } => {
                let costs = cost(replica_gpus)?;
                let fits = self.gpus.is_multiple_of(replica_gpus);
                fits.then(|| self.together(costs, asked, sharing))
            }
            Layout::Disaggregated {
                prefill_gpus: all,
                prefill_replica_gpus: one,
                decode_gpus: rest,
                decode_replica_gpus: other,
            } => {
                let fits = all >= one && all.is_multiple_of(one) && rest.is_multiple_of(other);
                let (from, to) = (cost(one)?, cost(other)?);
                let decodes = (&to.0, rest / other);
                (fits && rest >= other)
                    .then(|| self.apart(layout, (from, all), decodes, (asked, sharing)))
            }
            Layout::AttentionFfn { prefill_gpus, prefill_replica_gpus, decodes } => {
                let from = cost(prefill_replica_gpus)?;
                let (costs, bytes) = self.with_server(1, |server| {
                    let group = decodes.with(server);
                    let most = self.most_of(&decodes);
                    Some((StagedCosts::of(&group, most)?, group.bytes_per_token()))
                })?;
                let to = (&costs, decodes.groups);
                let result = self.apart(layout, (from, prefill_gpus), to, (asked, sharing));
                let decoded = result.tokens - result.requests as u64;
                Some(ServingResult { activation_bytes: (bytes * decoded as f64) as u64, ..result })
            }
        };
        let sizes: Vec<u32> = costs.iter().map(|(costs, _)| costs.gpus).collect();
        let together = sizes.iter().map(|gpus| Layout::Colocated { replica_gpus: *gpus }).collect();
        let apart = || {
            let pairs = sizes.iter().flat_map(|one| sizes.iter().map(move |other| [*one, *other]));
            let shares = (1..8).map(|eighths| self.gpus * eighths / 8).filter(|gpus| *gpus > 0);
            let of = |[one, other]: [u32; 2]| {
                let shares = shares.clone();
                shares.map(move |gpus| Layout::Disaggregated {
                    prefill_gpus: gpus,
                    prefill_replica_gpus: one,
                    decode_gpus: self.gpus - gpus,
                    decode_replica_gpus: other,
                })
            };
            pairs.flat_map(of).collect::<Vec<_>>()
        };
        let better = |a: &ServingResult, b: &ServingResult| {
            let late = |one: &ServingResult| {
                one.ttft_p99_seconds + one.tpot_p99_seconds.unwrap_or_default()
            };
            // Where hardly a request is within the objective, the one that gets most done.
            let is_lost = a.within.max(b.within) < 0.5;
            let by_rate = b.tokens_per_second.total_cmp(&a.tokens_per_second);
            let by_share = b.within.total_cmp(&a.within).then(late(a).total_cmp(&late(b)));
            if is_lost { by_rate } else { by_share }
        };
        let halved =
            if self.tries_attention_ffn { self.attention_ffn_layouts(&sizes) } else { Vec::new() };
        let best = |layouts: &Vec<Layout>, sharing: Option<PrefixSharing>| {
            let tried = layouts.iter().filter_map(|layout| run(*layout, sharing, &trial));
            let best = tried.min_by(better)?;
            let is_whole = self.seconds <= TRIAL_SECONDS;
            let asked = || self.requests(self.seconds);
            if is_whole { Some(best) } else { run(best.layout, sharing, &asked()) }
        };
        let kinds: [Vec<Layout>; 3] = [together, apart(), halved];
        let sharings = self.sharings();
        let of = |layouts| sharings.iter().filter_map(move |sharing| best(layouts, *sharing));
        let mut all: Vec<ServingResult> = kinds.iter().flat_map(of).collect();
        all.sort_by(better);
        all
    }

    /// Replicas of one size that do both, for each way to hold shared prefixes. Empty where these cannot hold the model.
    #[must_use]
    pub fn colocated(&self, replica_gpus: u32) -> Vec<ServingResult> {
        let costs = self.costs();
        let Some(costs) = costs.iter().find(|(costs, _)| costs.gpus == replica_gpus) else {
            return Vec::new();
        };
        let asked = self.requests(self.seconds);
        self.sharings().iter().map(|sharing| self.together(costs, &asked, *sharing)).collect()
    }

    /// Ways to hold shared prefixes.
    fn sharings(&self) -> &'static [Option<PrefixSharing>] {
        match self.prefixes {
            Some(_) => &[Some(PrefixSharing::Local), Some(PrefixSharing::Pool)],
            None => &[None],
        }
    }

    fn together(
        &self,
        costs: &(ReplicaCosts, f64),
        (requests, prefixes): &(Vec<Request>, Vec<Prefix>),
        sharing: Option<PrefixSharing>,
    ) -> ServingResult {
        let gpus = costs.0.gpus;
        let served = self.serve(costs, self.gpus / gpus, (requests, prefixes), sharing);
        let layout = Layout::Colocated { replica_gpus: gpus };
        self.judge(
            layout,
            requests,
            [&served.first, &served.ended],
            [&served, &served],
            (0, sharing),
        )
    }

    fn apart<C: StepCosts>(
        &self,
        layout: Layout,
        (prefills, prefill_gpus): (&(ReplicaCosts, f64), u32),
        (decodes, replicas): (&C, u32),
        ((requests, prefixes), sharing): (&(Vec<Request>, Vec<Prefix>), Option<PrefixSharing>),
    ) -> ServingResult {
        let (prompts, moves) = prefills;
        let only_prompt = |one: &Request| Request { output: 1, ..*one };
        let first: Vec<Request> = requests.iter().map(only_prompt).collect();
        let first = self.serve(prefills, prefill_gpus / prompts.gpus, (&first, prefixes), sharing);
        // A replica sends one cache after the other, in the order in which prompts end there.
        let mut order: Vec<usize> =
            (0..requests.len()).filter(|one| first.first[*one].is_finite()).collect();
        order.sort_by(|a, b| first.first[*a].total_cmp(&first.first[*b]));
        let senders = (prefill_gpus / prompts.gpus) as usize;
        let mut free = vec![0.0_f64; senders];
        let mut moved = 0_u64;
        let mut ended = vec![f64::NAN; requests.len()];
        let mut arrivals: Vec<(f64, usize)> = Vec::with_capacity(order.len());
        for one in order {
            if requests[one].output == 1 {
                ended[one] = first.first[one];
                continue;
            }
            let prompt = requests[one].prompt;
            let sender = first.replica[one] as usize;
            let begin = free[sender].max(first.first[one]);
            free[sender] = begin + f64::from(prompt) * moves;
            moved += u64::from(prompt);
            arrivals.push((free[sender], one));
        }
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let decoded: Vec<Request> = arrivals
            .iter()
            .map(|(arrives, one)| Request { arrives: *arrives, done: 1, ..requests[*one] })
            .collect();
        let second = serve(decodes, replicas, &decoded, 0);
        for ((_, one), end) in arrivals.iter().zip(&second.ended) {
            ended[*one] = *end;
        }
        let rate = self.card_rate() * f64::from(prompts.gpus);
        let bytes = (moved as f64 * moves * rate).round() as u64;
        self.judge(layout, requests, [&first.first, &ended], [&first, &second], (bytes, sharing))
    }

    fn judge(
        &self,
        layout: Layout,
        requests: &[Request],
        [first, ended]: [&[f64]; 2],
        served: [&Served; 2],
        (moved_bytes, sharing): (u64, Option<PrefixSharing>),
    ) -> ServingResult {
        let (mut waits, mut tokens) = (Vec::new(), Vec::new());
        let (mut within, mut all, mut stays, mut last) = (0, 0, 0.0, 0.0_f64);
        for ((one, first), ended) in requests.iter().zip(first).zip(ended) {
            if !ended.is_finite() {
                continue;
            }
            let wait = first - one.arrives;
            let token = (one.output > 1).then(|| (ended - first) / f64::from(one.output - 1));
            let is_within = wait <= self.objective.first_seconds
                && token.is_none_or(|token| token <= self.objective.token_seconds);
            within += usize::from(is_within);
            all += u64::from(one.output);
            stays += ended - one.arrives;
            last = last.max(*ended);
            waits.push(wait);
            tokens.extend(token);
        }
        let ended_requests = waits.len();
        let both = |mut values: Vec<f64>| {
            values.sort_unstable_by(f64::total_cmp);
            let rank = |share: f64| ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
            [0.5, 0.99].map(|share| values.get(rank(share)).copied())
        };
        let ([ttft_p50, ttft_p99], [tpot_p50_seconds, tpot_p99_seconds]) =
            (both(waits), both(tokens));
        let begin = requests.first().map_or(0.0, |one| one.arrives);
        // Where none ended, nothing took any time.
        let lasts = if last > begin { last - begin } else { f64::INFINITY };
        let [one, other] = served;
        let refused =
            if std::ptr::eq(one, other) { one.refused } else { one.refused + other.refused };
        ServingResult {
            layout,
            requests: ended_requests,
            refused,
            within: within as f64 / requests.len().max(1) as f64,
            ttft_p50_seconds: ttft_p50.unwrap_or_default(),
            ttft_p99_seconds: ttft_p99.unwrap_or_default(),
            tpot_p50_seconds,
            tpot_p99_seconds,
            tokens: all,
            tokens_per_second: all as f64 / lasts,
            moved_bytes,
            activation_bytes: 0,
            mean_requests: stays / lasts,
            prefixes: sharing.zip(one.prefixes.as_ref()).map(|(sharing, counts)| {
                let bytes = self.with_server(1, |server| server.cache_bytes());
                PrefixResult::of(sharing, counts, bytes)
            }),
        }
    }
}

#[cfg(test)]
mod tests;

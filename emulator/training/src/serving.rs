// SPDX-License-Identifier: Apache-2.0
//! Simulates serving with an arrival process and latency objectives for the first and for further tokens.
//!
//! ```text
//! colocated      a replica works on prompts and decodes
//! disaggregated  prompt ▶ its cache over the sender's network cards, one after the other ▶ decode on other GPUs
//! attention–FFN  the same, and the GPUs that decode are attention instances and feed-forward instances
//! ```
//! All layouts of the GPUs are simulated for the first minutes, and the best layout of each kind is then simulated
//! in full. Assumptions: Poisson arrivals and a non-blocking network. The first token comes from the replica that
//! prefills the prompt. A cache waits for room on the decoding side without blocking the prefill side.

mod attention_ffn;

use std::cmp::Ordering;

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::Serialize;

use crate::batching::{ReplicaCosts, Request, Served, StagedCosts, StepCosts, serve, serve_closed};
use crate::cards::Accelerator;
use crate::model::Model;
use crate::network::Network;
use crate::rollout::Lengths;
use crate::step::{AttentionFfn, Formats, Instances, Replica, Server};

#[derive(Clone, Debug)]
pub struct ServingJob {
    pub model: Model,
    pub card: Accelerator,
    pub network: Network,
    pub gpus: u32,
    pub load: Load,
    pub lengths: [Lengths; 2],
    pub batch: u32,
    /// Prompt tokens between two decode steps.
    pub prompt_tokens: u64,
    pub host_seconds: f64,
    pub formats: Formats,
    pub tries_attention_ffn: bool,
    /// The only layout, if given.
    pub layout: Option<Layout>,
    pub objective: Objective,
    pub seed: Seed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Poisson arrivals: requests per second, and seconds.
    Open { rate: f64, seconds: f64 },
    /// A closed loop. Only colocated replicas support it.
    Closed { concurrency: u32, requests: u32 },
}

impl Load {
    fn trial(self) -> Self {
        match self {
            Self::Open { rate, seconds } => {
                Self::Open { rate, seconds: seconds.min(TRIAL_SECONDS) }
            }
            Self::Closed { .. } => self,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    pub first_seconds: f64,
    /// Maximum mean time per further token of a request.
    pub token_seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "layout", rename_all = "kebab-case")]
pub enum Layout {
    Colocated {
        replica_gpus: u32,
    },
    Disaggregated {
        prefill_gpus: u32,
        prefill_replica_gpus: u32,
        decode_gpus: u32,
        decode_replica_gpus: u32,
    },
    /// Replicas to prefill, and groups of attention and feed-forward instances to decode.
    AttentionFfn {
        prefill_gpus: u32,
        prefill_replica_gpus: u32,
        #[serde(flatten)]
        decodes: DecodeGroups,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecodeGroups {
    pub groups: u32,
    pub attention: Instances,
    pub feed_forward: Instances,
    pub micro_batches: u32,
}

impl DecodeGroups {
    fn with<'a>(&self, server: &Server<'a>) -> AttentionFfn<'a> {
        let Self { attention, feed_forward, micro_batches, .. } = *self;
        let (server, reads_while_computing) = (*server, false);
        AttentionFfn { server, attention, feed_forward, micro_batches, reads_while_computing }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServingResult {
    #[serde(flatten)]
    pub layout: Layout,
    pub requests: usize,
    pub refused: usize,
    pub within: f64,
    pub ttft_mean_seconds: f64,
    pub ttft_p50_seconds: f64,
    pub ttft_p99_seconds: f64,
    /// Median over requests with more than one token, including waiting time.
    pub tpot_p50_seconds: Option<f64>,
    pub tpot_p99_seconds: Option<f64>,
    pub tokens: u64,
    /// Answer tokens per second, from the first arrival to the last token.
    pub tokens_per_second: f64,
    /// Cache bytes sent from prefill to decode GPUs.
    pub moved_bytes: u64,
    pub activation_bytes: u64,
    pub mean_requests: f64,
}

const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
const TRIAL_SECONDS: f64 = 120.0;

impl ServingResult {
    /// Puts the better result first.
    fn ahead(&self, other: &Self) -> Ordering {
        // If hardly any request meets the objective, compare throughput instead.
        if self.within.max(other.within) < 0.5 {
            return other.tokens_per_second.total_cmp(&self.tokens_per_second);
        }
        let [late, other_late] =
            [self, other].map(|it| it.ttft_p99_seconds + it.tpot_p99_seconds.unwrap_or_default());
        other.within.total_cmp(&self.within).then(late.total_cmp(&other_late))
    }
}

impl ServingJob {
    /// A closure is needed because the server borrows local values.
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

    /// Replica sizes that can hold the weights, with the seconds to send the cache of one token.
    fn costs(&self) -> Vec<(ReplicaCosts, f64)> {
        let heads = self.model.attention.heads();
        let sizes = SIZES.into_iter();
        let sizes = sizes.filter(|gpus| *gpus <= self.gpus && heads.is_multiple_of(*gpus));
        let costs = sizes.filter_map(|gpus| {
            self.with_server(gpus, |server| {
                let moves = server.cache_bytes()
                    / (self.network.card_rate(&self.card.calibration().network) * f64::from(gpus));
                let costs = ReplicaCosts::of(*server, self.batch)?;
                Some((ReplicaCosts { prompt_tokens: self.prompt_tokens, ..costs }, moves))
            })
        });
        costs.collect()
    }

    /// Returns the GPUs of the smallest replica that holds the weights. `None` if even the largest replica is too small.
    pub fn smallest_replica(&self) -> Option<u32> {
        let all = Self { gpus: SIZES[SIZES.len() - 1], ..self.clone() };
        all.costs().first().map(|(costs, _)| costs.gpus)
    }

    fn requests(&self, load: Load) -> Vec<Request> {
        let arrivals = match load {
            Load::Open { rate, seconds } => self.arrivals(rate, seconds),
            Load::Closed { requests, .. } => vec![0.0; requests as usize],
        };
        let [prompts, answers] = self.lengths;
        let prompts = prompts.draw(arrivals.len(), self.seed, 100);
        let answers = answers.draw(arrivals.len(), self.seed, 101);
        let lengths = prompts.into_iter().zip(answers);
        let all = arrivals.into_iter().zip(lengths);
        let requests = all.map(|(arrives, (prompt, output))| Request {
            arrives,
            prompt,
            output,
            ..Request::default()
        });
        requests.collect()
    }

    fn arrivals(&self, rate: f64, seconds: f64) -> Vec<f64> {
        let mut stream = self.seed.stream("serving.arrivals", 0);
        let mut arrivals = Vec::with_capacity((rate * seconds) as usize);
        let mut at = 0.0;
        loop {
            at += -(1.0 - stream.random::<f64>()).ln() / rate;
            if at >= seconds {
                return arrivals;
            }
            arrivals.push(at);
        }
    }

    /// Returns the best layout of each kind, best first. Empty if the model does not fit in any replica.
    pub fn report(&self) -> Vec<ServingResult> {
        let costs = self.costs();
        let trial = self.requests(self.load.trial());
        let cost = |gpus: u32| costs.iter().find(|(costs, _)| costs.gpus == gpus);
        let run = |layout: Layout, asked: &[Request]| match layout {
            Layout::Colocated { replica_gpus } => {
                let costs = cost(replica_gpus)?;
                let fits = self.gpus.is_multiple_of(replica_gpus);
                fits.then(|| self.together(costs, asked))
            }
            Layout::Disaggregated {
                prefill_gpus: all,
                prefill_replica_gpus: one,
                decode_gpus: rest,
                decode_replica_gpus: other,
            } => {
                let fits = all >= one && all.is_multiple_of(one) && rest.is_multiple_of(other);
                let (from, (to, _)) = (cost(one)?, cost(other)?);
                (fits && rest >= other)
                    .then(|| self.apart(layout, from, all, to, rest / other, asked))
            }
            Layout::AttentionFfn { prefill_gpus, prefill_replica_gpus, decodes } => {
                let from = cost(prefill_replica_gpus)?;
                let (costs, bytes) = self.with_server(1, |server| {
                    let group = decodes.with(server);
                    let most = self.most_of(&decodes);
                    Some((StagedCosts::of(&group, most)?, group.bytes_per_token()))
                })?;
                let result = self.apart(layout, from, prefill_gpus, &costs, decodes.groups, asked);
                let decoded = result.tokens - result.requests as u64;
                Some(ServingResult { activation_bytes: (bytes * decoded as f64) as u64, ..result })
            }
        };
        let sizes: Vec<u32> = costs.iter().map(|(costs, _)| costs.gpus).collect();
        let together = sizes.iter().map(|gpus| Layout::Colocated { replica_gpus: *gpus }).collect();
        let halved =
            if self.tries_attention_ffn { self.attention_ffn_layouts(&sizes) } else { Vec::new() };
        let kinds: Vec<Vec<Layout>> = match (self.layout, self.load) {
            (Some(layout), _) => vec![vec![layout]],
            (None, Load::Closed { .. }) => vec![together],
            (None, Load::Open { .. }) => {
                vec![together, self.disaggregated_layouts(&sizes), halved]
            }
        };
        let best = kinds.iter().filter_map(|layouts| {
            let tried = layouts.iter().filter_map(|layout| run(*layout, &trial));
            let best = tried.min_by(ServingResult::ahead)?;
            let is_whole = self.load.trial() == self.load;
            if is_whole { Some(best) } else { run(best.layout, &self.requests(self.load)) }
        });
        let mut all: Vec<ServingResult> = best.collect();
        all.sort_by(ServingResult::ahead);
        all
    }

    fn disaggregated_layouts(&self, sizes: &[u32]) -> Vec<Layout> {
        let mut layouts = Vec::new();
        for prefill_replica_gpus in sizes {
            for decode_replica_gpus in sizes {
                for prefill_gpus in (1..8).map(|eighths| self.gpus * eighths / 8) {
                    if prefill_gpus > 0 {
                        layouts.push(Layout::Disaggregated {
                            prefill_gpus,
                            prefill_replica_gpus: *prefill_replica_gpus,
                            decode_gpus: self.gpus - prefill_gpus,
                            decode_replica_gpus: *decode_replica_gpus,
                        });
                    }
                }
            }
        }
        layouts
    }

    fn together(&self, (costs, _): &(ReplicaCosts, f64), requests: &[Request]) -> ServingResult {
        let replicas = self.gpus / costs.gpus;
        let served = match self.load {
            Load::Open { .. } => serve(costs, replicas, requests, 0),
            Load::Closed { concurrency, .. } => {
                serve_closed(costs, replicas, requests, concurrency)
            }
        };
        let layout = Layout::Colocated { replica_gpus: costs.gpus };
        self.judge(layout, requests, [&served.first, &served.ended], [&served, &served], 0)
    }

    fn apart<C: StepCosts>(
        &self,
        layout: Layout,
        (prompts, moves): &(ReplicaCosts, f64),
        prefill_gpus: u32,
        decodes: &C,
        replicas: u32,
        requests: &[Request],
    ) -> ServingResult {
        let first: Vec<Request> =
            requests.iter().map(|one| Request { output: 1, ..*one }).collect();
        let first = serve(prompts, prefill_gpus / prompts.gpus, &first, 0);
        // A replica sends one cache at a time, in the order in which prompts end.
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
        let rate =
            self.network.card_rate(&self.card.calibration().network) * f64::from(prompts.gpus);
        let bytes = (moved as f64 * moves * rate).round() as u64;
        self.judge(layout, requests, [&first.first, &ended], [&first, &second], bytes)
    }

    fn judge(
        &self,
        layout: Layout,
        requests: &[Request],
        [first, ended]: [&[f64]; 2],
        served: [&Served; 2],
        moved_bytes: u64,
    ) -> ServingResult {
        let (mut waits, mut tokens) = (Vec::new(), Vec::new());
        let (mut within, mut all, mut stays, mut last) = (0, 0, 0.0, 0.0_f64);
        let arrived = &served[0].arrived;
        for (((one, first), ended), arrived) in requests.iter().zip(first).zip(ended).zip(arrived) {
            if !ended.is_finite() {
                continue;
            }
            let wait = first - arrived;
            let token = (one.output > 1).then(|| (ended - first) / f64::from(one.output - 1));
            let is_within = wait <= self.objective.first_seconds
                && token.is_none_or(|token| token <= self.objective.token_seconds);
            within += usize::from(is_within);
            all += u64::from(one.output);
            stays += ended - arrived;
            last = last.max(*ended);
            waits.push(wait);
            tokens.extend(token);
        }
        let ended_requests = waits.len();
        let ttft_mean_seconds = waits.iter().sum::<f64>() / ended_requests.max(1) as f64;
        let [[ttft_p50, ttft_p99], [tpot_p50_seconds, tpot_p99_seconds]] =
            [waits, tokens].map(|mut values| {
                values.sort_unstable_by(f64::total_cmp);
                [0.5, 0.99].map(|share| {
                    let rank = (values.len() as f64 * share).ceil() as usize;
                    values.get(rank.max(1) - 1).copied()
                })
            });
        let begin = arrived.first().copied().unwrap_or_default();
        let lasts = if last > begin { last - begin } else { f64::INFINITY };
        let [one, other] = served;
        let refused =
            if std::ptr::eq(one, other) { one.refused } else { one.refused + other.refused };
        ServingResult {
            layout,
            requests: ended_requests,
            refused,
            within: within as f64 / requests.len().max(1) as f64,
            ttft_mean_seconds,
            ttft_p50_seconds: ttft_p50.unwrap_or_default(),
            ttft_p99_seconds: ttft_p99.unwrap_or_default(),
            tpot_p50_seconds,
            tpot_p99_seconds,
            tokens: all,
            tokens_per_second: all as f64 / lasts,
            moved_bytes,
            activation_bytes: 0,
            mean_requests: stays / lasts,
        }
    }
}

#[cfg(test)]
mod tests;

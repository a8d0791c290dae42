// SPDX-License-Identifier: Apache-2.0
//! Serving: requests arrive by themselves, and an objective bounds how long a user waits for the first token and for each one after it.
//!
//! ```text
//! colocated      a replica works on prompts and decodes
//! disaggregated  prompt ▶ its cache over the sender's network cards, one after the other ▶ decode on other GPUs
//! ```
//! Every layout of the GPUs is tried on the first minutes, and the best of both kinds is run in full. Assumptions: arrivals are
//! Poisson; a network that blocks nothing; the first token comes from the prompt's replica; room for a cache is waited for at the
//! decoding side, and does not hold up the prompt's.

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::Serialize;

use crate::batching::{ReplicaCosts, Request, Served, serve};
use crate::cards::Accelerator;
use crate::model::Model;
use crate::network::Network;
use crate::rollout::Lengths;
use crate::step::Replica;

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
    /// Requests in the pool, in the mean over time.
    pub mean_requests: f64,
}

/// Sizes of replicas that are tried.
const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Layouts are chosen by this many seconds of arrivals.
const TRIAL_SECONDS: f64 = 120.0;

impl ServingJob {
    /// Sizes of replicas that hold the weights.
    fn costs(&self) -> Vec<(ReplicaCosts, f64)> {
        let (compute, calibration) = (self.card.compute(), self.card.calibration());
        let of = |gpus: u32| {
            let replica = Replica {
                model: &self.model,
                compute: &compute,
                network: &self.network,
                calibration: &calibration,
                gpus,
                host_seconds: self.host_seconds,
            };
            // Seconds that a token's cache is on its way, over the cards of its replica.
            let rate = self.network.scale_out_rate * calibration.network.scale_out;
            let moves = replica.cache_bytes() / (rate * f64::from(gpus));
            Some((ReplicaCosts::of(&replica, self.batch)?, moves))
        };
        let heads = self.model.attention.heads();
        let fits = |gpus: &u32| *gpus <= self.gpus && heads.is_multiple_of(*gpus);
        SIZES.into_iter().filter(fits).filter_map(of).collect()
    }

    /// Requests of so many seconds.
    #[must_use]
    pub fn requests(&self, seconds: f64) -> Vec<Request> {
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
        all.map(request).collect()
    }

    /// The best layout of each kind, the better one first. Empty where no replica holds the model.
    #[must_use]
    pub fn report(&self) -> Vec<ServingResult> {
        let costs = self.costs();
        let trial = self.requests(self.seconds.min(TRIAL_SECONDS));
        let cost = |gpus: u32| costs.iter().find(|(costs, _)| costs.gpus == gpus);
        let run = |layout: Layout, requests: &[Request]| match layout {
            Layout::Colocated { replica_gpus } => {
                let (costs, _) = cost(replica_gpus)?;
                self.gpus.is_multiple_of(replica_gpus).then(|| self.together(costs, requests))
            }
            Layout::Disaggregated {
                prefill_gpus: all,
                prefill_replica_gpus: one,
                decode_gpus: rest,
                decode_replica_gpus: other,
            } => {
                let fits = all >= one && all.is_multiple_of(one) && rest.is_multiple_of(other);
                let (from, to) = (cost(one)?, cost(other)?);
                (fits && rest >= other).then(|| self.apart(layout, from, &to.0, requests))
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
        let mut all: Vec<ServingResult> = [together, apart()]
            .into_iter()
            .filter_map(|layouts: Vec<Layout>| {
                let tried = layouts.into_iter().filter_map(|layout| run(layout, &trial));
                let best = tried.min_by(better)?;
                let is_whole = self.seconds <= TRIAL_SECONDS;
                if is_whole { Some(best) } else { run(best.layout, &self.requests(self.seconds)) }
            })
            .collect();
        all.sort_by(better);
        all
    }

    fn together(&self, costs: &ReplicaCosts, requests: &[Request]) -> ServingResult {
        let served = serve(costs, self.gpus / costs.gpus, requests, 0);
        let layout = Layout::Colocated { replica_gpus: costs.gpus };
        self.judge(layout, requests, [&served.first, &served.ended], [&served, &served], 0)
    }

    fn apart(
        &self,
        layout: Layout,
        (prompts, moves): &(ReplicaCosts, f64),
        decodes: &ReplicaCosts,
        requests: &[Request],
    ) -> ServingResult {
        let Layout::Disaggregated { prefill_gpus, decode_gpus, .. } = layout else {
            unreachable!("it is disaggregated")
        };
        let only_prompt = |one: &Request| Request { output: 1, ..*one };
        let first: Vec<Request> = requests.iter().map(only_prompt).collect();
        let first = serve(prompts, prefill_gpus / prompts.gpus, &first, 0);
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
        let second = serve(decodes, decode_gpus / decodes.gpus, &decoded, 0);
        for ((_, one), end) in arrivals.iter().zip(&second.ended) {
            ended[*one] = *end;
        }
        let rate = self.network.scale_out_rate * self.card.calibration().network.scale_out;
        let bytes = (moved as f64 * moves * rate * f64::from(prompts.gpus)).round() as u64;
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
            tokens_per_second: all as f64 / (last - begin),
            moved_bytes,
            mean_requests: stays / (last - begin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards;

    fn job() -> ServingJob {
        let card = cards::accelerator("h100").unwrap();
        let length = |mean, most| Lengths { mean, sigma: 0.8, most };
        ServingJob {
            model: cards::model("llama-3.1-8b").unwrap(),
            network: card.network(),
            card,
            gpus: 8,
            rate: 20.0,
            seconds: 30.0,
            lengths: [length(1_000.0, 8_192), length(200.0, 2_048)],
            batch: 128,
            host_seconds: 0.0,
            objective: Objective { first_seconds: 1.0, token_seconds: 0.05 },
            seed: Seed(1),
        }
    }

    /// Tokens and cache bytes are those of the requests, whatever the layout; the pool holds what its rate and stays say.
    #[test]
    fn tokens_and_bytes_are_conserved_in_every_layout() {
        let job = job();
        let requests = job.requests(job.seconds);
        let results = job.report();
        assert_eq!(results.len(), 2);
        let tokens: u64 = requests.iter().map(|one| u64::from(one.output)).sum();
        let decoded = requests.iter().filter(|one| one.output > 1);
        let prompts: u64 = decoded.map(|one| u64::from(one.prompt)).sum();
        for one in &results {
            assert_eq!((one.requests, one.refused, one.tokens), (requests.len(), 0, tokens));
            let bytes = match one.layout {
                Layout::Colocated { .. } => 0,
                // 128 KiB a token.
                Layout::Disaggregated { .. } => prompts * 131_072,
            };
            assert!(one.moved_bytes.abs_diff(bytes) <= bytes / 1_000_000, "{one:?}");
            assert!(one.within > 0.9, "{one:?}");
        }
        // Little's law against the engine's own integral.
        let Some(Layout::Colocated { replica_gpus }) = results
            .iter()
            .map(|one| one.layout)
            .find(|one| matches!(one, Layout::Colocated { .. }))
        else {
            panic!("one is together")
        };
        let costs = job.costs();
        let (costs, _) = costs.iter().find(|(costs, _)| costs.gpus == replica_gpus).unwrap();
        let served = serve(costs, job.gpus / replica_gpus, &requests, 0);
        let seconds = served.seconds - requests[0].arrives;
        let of = results.iter().find(|one| one.moved_bytes == 0).unwrap();
        assert!((served.waited / seconds / of.mean_requests - 1.0).abs() < 1e-6);
    }

    /// A token alone has no time per further token, and its cache goes nowhere.
    #[test]
    fn responses_of_one_token_are_neither_decoded_nor_moved() {
        let one = Lengths { mean: 1.0, sigma: 0.0, most: 1 };
        let job = ServingJob { lengths: [job().lengths[0], one], ..job() };
        for result in job.report() {
            assert_eq!((result.tpot_p50_seconds, result.moved_bytes), (None, 0));
        }
    }

    /// A mixture's prompt costs what it computes and reads, not what a trainer's host launches.
    #[test]
    fn a_mixture_prefills_by_its_active_weights() {
        let model = cards::model("qwen3-30b-a3b").unwrap();
        for (name, memory_rate) in [("h100", 3.35e12), ("a100", 2.04e12)] {
            let card = cards::accelerator(name).unwrap();
            let job = ServingJob { model: model.clone(), network: card.network(), card, ..job() };
            let prompt = job.costs()[0].0.prompt_seconds(726);
            // Of 726 tokens with 8 of 128 experts each, all weights are read: 61 GB.
            let least = 61e9 / memory_rate;
            assert!(prompt > least && prompt < 4.0 * least, "{name}: {prompt} s, least {least} s");
        }
    }

    /// One request, alone: its prompt, its cache on the way, and its decode steps.
    #[test]
    fn a_request_alone_takes_its_closed_form_together_and_apart() {
        let job = job();
        let costs = job.costs();
        let one = Request { prompt: 1_000, output: 101, ..Request::default() };
        let (two, _) = &costs[1];
        let together = job.together(two, &[one]);
        let prompt = two.prompt_seconds(1_000);
        let steps = two.steps_seconds(100, 1, 1_001);
        assert!((together.ttft_p50_seconds - prompt).abs() < 1e-12);
        assert!((together.tpot_p50_seconds.unwrap() - steps / 100.0).abs() < 1e-12);
        let layout = Layout::Disaggregated {
            prefill_gpus: 4,
            prefill_replica_gpus: 2,
            decode_gpus: 4,
            decode_replica_gpus: 2,
        };
        let apart = job.apart(layout, &costs[1], two, &[one]);
        let moves = 1_000.0 * 131_072.0 / (2.0 * 50e9 * 0.85);
        assert!((apart.ttft_p50_seconds - prompt).abs() < 1e-12);
        let expected = (moves + steps) / 100.0;
        assert!((apart.tpot_p50_seconds.unwrap() - expected).abs() < 1e-9, "{apart:?} {expected}");
    }
}

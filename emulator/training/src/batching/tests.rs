// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::cards;
use crate::step::{Replica, Server};

fn costs(most: u32) -> ReplicaCosts {
    ReplicaCosts {
        gpus: 8,
        decode: (0..=most).map(|batch| 0.01 + 0.0001 * f64::from(batch)).collect(),
        cached_token: 1e-7,
        cache_tokens: 20_000,
        prompt: [0.002, 1e-5, 1e-10],
        prompt_tokens: u64::MAX,
    }
}

fn request(arrives: f64, prompt: u32, output: u32) -> Request {
    Request { arrives, prompt, output, ..Request::default() }
}

#[test]
fn batch_of_equal_lengths_takes_its_closed_form() {
    let costs = costs(64);
    let served = serve(&costs, 1, &[request(0.0, 100, 50); 8], 0);
    let prompts = 8.0 * costs.prompt_seconds(100);
    let steps: f64 = (0..49).map(|step| costs.decode[8] + 1e-7 * 8.0 * f64::from(101 + step)).sum();
    assert!((served.seconds - prompts - steps).abs() < 1e-9, "{}", served.seconds);
    assert_eq!(served.tokens, 8 * 50);
    assert_eq!(served.most_reserved, 8 * 150);
    assert!((served.busy - served.seconds).abs() < 1e-9, "it was never idle");
}

/// `None` if two replicas could admit the next request at the same instant.
fn oracle(costs: &ReplicaCosts, replicas: usize, requests: &[Request]) -> Option<Vec<f64>> {
    let mut queue: VecDeque<usize> = (0..requests.len()).collect();
    let mut running: Vec<Vec<(usize, u32)>> = vec![Vec::new(); replicas];
    let mut clock = vec![0.0; replicas];
    let mut ended = vec![f64::NAN; requests.len()];
    let tokens = |running: &[(usize, u32)]| -> u64 {
        running.iter().map(|(one, _)| requests[*one].tokens()).sum()
    };
    let has_room = |running: &[(usize, u32)], one: usize| {
        running.len() < costs.most()
            && tokens(running) + requests[one].tokens() <= costs.cache_tokens
    };
    // All requests arrive at the start and go one by one to the replica with the smallest batch.
    while let Some(one) = queue.front().copied() {
        let free = (0..replicas).filter(|at| has_room(&running[*at], one));
        let Some(at) = free.min_by_key(|at| running[*at].len()) else { break };
        queue.pop_front();
        clock[at] += costs.prompt_seconds(requests[one].prompt);
        running[at].push((one, 1));
    }
    while running.iter().any(|batch| !batch.is_empty()) {
        // The replica whose next step ends first runs it, but first releases a finished request.
        let is_over = |(one, done): &(usize, u32)| *done >= requests[*one].output;
        let step = |at: usize| {
            if running[at].iter().any(is_over) {
                return clock[at];
            }
            let cached: u64 = running[at]
                .iter()
                .map(|(one, done)| u64::from(requests[*one].prompt) + u64::from(*done))
                .sum();
            clock[at] + costs.steps_seconds(1, running[at].len(), cached)
        };
        let busy = (0..replicas).filter(|at| !running[*at].is_empty());
        let mut order: Vec<usize> = busy.collect();
        order.sort_by(|a, b| step(*a).total_cmp(&step(*b)));
        let at = order[0];
        let is_tied = order.get(1).is_some_and(|next| step(*next) - step(at) < 1e-9);
        if is_tied && !queue.is_empty() {
            return None;
        }
        if !running[at].iter().any(is_over) {
            clock[at] = step(at);
            running[at].iter_mut().for_each(|(_, done)| *done += 1);
        }
        let over: Vec<(usize, u32)> = running[at].iter().copied().filter(is_over).collect();
        for (one, _) in &over {
            ended[*one] = clock[at];
        }
        running[at].retain(|one| !is_over(one));
        while let Some(one) = queue.front().copied().filter(|_| !over.is_empty()) {
            if !has_room(&running[at], one) {
                break;
            }
            queue.pop_front();
            clock[at] += costs.prompt_seconds(requests[one].prompt);
            running[at].push((one, 1));
        }
    }
    Some(ended)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn jumps_match_single_steps(
        lengths in proptest::collection::vec((1_u32..200, 1_u32..300), 1..40),
        replicas in 1_u32..4,
        most in 1_u32..9,
    ) {
        let costs = costs(most);
        let requests: Vec<Request> =
            lengths.iter().map(|(prompt, output)| request(0.0, *prompt, *output)).collect();
        let served = serve(&costs, replicas, &requests, 0);
        let expected = oracle(&costs, replicas as usize, &requests);
        for (ours, expected) in served.ended.iter().zip(expected.iter().flatten()) {
            prop_assert!((ours - expected).abs() < 1e-6, "{ours} against {expected}");
        }
        prop_assert_eq!(served.tokens, lengths.iter().map(|(_, output)| u64::from(*output)).sum::<u64>());
        prop_assert!(served.most_reserved <= costs.cache_tokens);
    }

    #[test]
    fn run_in_two_parts_generates_the_same_tokens(
        outputs in proptest::collection::vec(2_u32..300, 4..40),
        stop in 0_usize..40,
    ) {
        let costs = costs(8);
        let requests: Vec<Request> =
            outputs.iter().map(|output| request(0.0, 50, *output)).collect();
        let first = serve(&costs, 2, &requests, stop.min(outputs.len()));
        let ended = first.ended.iter().filter(|ended| ended.is_finite()).count();
        prop_assert_eq!(ended + first.left.len(), outputs.len());
        let second = serve(&costs, 2, &first.left, 0);
        let all: u64 = outputs.iter().map(|output| u64::from(*output)).sum();
        prop_assert_eq!(first.tokens + second.tokens, all);
        let whole = serve(&costs, 2, &requests, 0);
        prop_assert!(first.seconds <= whole.seconds + 1e-6);
    }

    /// Little's law: the integral of the pool size is the total time of requests in the pool.
    #[test]
    fn pool_occupancy_follows_littles_law(gaps in proptest::collection::vec(0.0_f64..0.2, 1..200)) {
        let costs = costs(8);
        let mut at = 0.0;
        let requests: Vec<Request> = gaps
            .iter()
            .enumerate()
            .map(|(one, gap)| {
                at += gap;
                request(at, 20, 10 + (one as u32 * 37) % 90)
            })
            .collect();
        let served = serve(&costs, 2, &requests, 0);
        let stays: f64 =
            requests.iter().zip(&served.ended).map(|(one, ended)| ended - one.arrives).sum();
        prop_assert!((served.waited / stays - 1.0).abs() < 1e-9, "{} {stays}", served.waited);
        for (one, first) in requests.iter().zip(&served.first) {
            prop_assert!(*first > one.arrives);
        }
    }
}

#[test]
fn refuses_and_counts_requests_too_large_for_any_replica() {
    let served = serve(&costs(8), 1, &[request(0.0, 20_000, 1), request(0.0, 10, 10)], 0);
    assert_eq!(served.refused, 1);
    assert!(served.ended[0].is_nan() && served.ended[1].is_finite());
}

/// With one request, a decode step reads the weights once; caches fill the remaining memory.
#[test]
fn llama_70b_replica_is_bound_by_memory() {
    let (model, card) =
        (cards::model("llama-3.1-70b").unwrap(), cards::accelerator("h100").unwrap());
    let (compute, network, calibration) = (card.compute(), card.network(), card.calibration());
    let replica = Replica {
        model: &model,
        compute: &compute,
        network: &network,
        calibration: &calibration,
        gpus: 8,
        host_seconds: 0.0,
    };
    let weights = 2.0 * 70.55e9 / 8.0 / 3.35e12;
    let server = Server::from(&replica);
    let step = server.decode_seconds(1);
    assert!(step > weights && step < 3.0 * weights, "{step} s; weights alone {weights} s");
    // 90 % of 640 GB minus 141 GB of weights, at 320 KiB per token.
    let tokens = server.cache_tokens().unwrap() as f64;
    assert!((tokens / 1.45e6 - 1.0).abs() < 0.05, "{tokens}");
    let costs = ReplicaCosts::of(&replica, 4).unwrap();
    for prompt in [512, 2_048, 8_192] {
        let exact = server.prompt_seconds(prompt);
        assert!((costs.prompt_seconds(prompt) / exact - 1.0).abs() < 0.05, "{prompt}: {exact}");
    }
}

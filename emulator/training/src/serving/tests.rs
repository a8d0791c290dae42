// SPDX-License-Identifier: Apache-2.0

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
        load: Load::Open { rate: 20.0, seconds: 30.0 },
        lengths: [length(1_000.0, 8_192), length(200.0, 2_048)],
        batch: 128,
        prompt_tokens: 8192,
        host_seconds: 0.0,
        formats: Formats::SIXTEEN_BITS,
        tries_attention_ffn: false,
        layout: None,
        objective: Objective { first_seconds: 1.0, token_seconds: 0.05 },
        seed: Seed(1),
    }
}

#[test]
fn every_layout_conserves_tokens_and_bytes() {
    let job = ServingJob { tries_attention_ffn: true, ..job() };
    let requests = job.requests(job.load);
    let results = job.report();
    assert_eq!(results.len(), 3);
    let tokens: u64 = requests.iter().map(|one| u64::from(one.output)).sum();
    let decoded = requests.iter().filter(|one| one.output > 1);
    let prompts: u64 = decoded.map(|one| u64::from(one.prompt)).sum();
    for one in &results {
        assert_eq!((one.requests, one.refused, one.tokens), (requests.len(), 0, tokens));
        let bytes = match one.layout {
            Layout::Colocated { .. } => 0,
            // 128 KiB per token.
            Layout::Disaggregated { .. } | Layout::AttentionFfn { .. } => prompts * 131_072,
        };
        // 32 layers, 4096 values of two bytes in each direction, to every feed-forward instance.
        let each = match one.layout {
            Layout::AttentionFfn { decodes, .. } => decodes.feed_forward.count * 32 * 4096 * 4,
            _ => 0,
        };
        let decoded = tokens - requests.len() as u64;
        assert_eq!(one.activation_bytes, decoded * u64::from(each));
        assert!(one.moved_bytes.abs_diff(bytes) <= bytes / 1_000_000, "{one:?}");
        assert!(one.within > 0.9, "{one:?}");
    }
    // Little's law, compared with the simulated integral.
    let Some(Layout::Colocated { replica_gpus }) =
        results.iter().map(|one| one.layout).find(|one| matches!(one, Layout::Colocated { .. }))
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

#[test]
fn single_token_responses_are_neither_decoded_nor_moved() {
    let one = Lengths { mean: 1.0, sigma: 0.0, most: 1 };
    let job = ServingJob { lengths: [job().lengths[0], one], ..job() };
    for result in job.report() {
        assert_eq!((result.tpot_p50_seconds, result.moved_bytes), (None, 0));
    }
}

/// Prefill costs operations and memory reads, without the launch overhead of training software.
#[test]
fn mixture_prefill_cost_follows_active_weights() {
    let model = cards::model("qwen3-30b-a3b").unwrap();
    for (name, memory_rate) in [("h100", 3.35e12), ("a100", 2.04e12)] {
        let card = cards::accelerator(name).unwrap();
        let job = ServingJob { model: model.clone(), network: card.network(), card, ..job() };
        let prompt = job.costs()[0].0.prompt_seconds(726);
        // 726 tokens use every one of the 128 experts, so all 61 GB of weights are read.
        let least = 61e9 / memory_rate;
        assert!(prompt > least && prompt < 4.0 * least, "{name}: {prompt} s, least {least} s");
    }
}

#[test]
fn single_request_matches_its_closed_form_in_both_layouts() {
    let job = job();
    let costs = job.costs();
    let one = Request { prompt: 1_000, output: 101, ..Request::default() };
    let (two, _) = &costs[1];
    let alone = [one];
    let together = job.together(&costs[1], &alone);
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
    let apart = job.apart(layout, &costs[1], 4, two, 2, &alone);
    let moves = 1_000.0 * 131_072.0 / (2.0 * 50e9 * 0.85);
    assert!((apart.ttft_p50_seconds - prompt).abs() < 1e-12);
    let expected = (moves + steps) / 100.0;
    assert!((apart.tpot_p50_seconds.unwrap() - expected).abs() < 1e-9, "{apart:?} {expected}");
}

/// Regression test: the rate was a negative zero.
#[test]
fn pool_that_rejects_all_requests_generates_no_tokens() {
    let long = Lengths { mean: 1e9, sigma: 0.0, most: 1_000_000_000 };
    let job = ServingJob { lengths: [long, job().lengths[1]], ..job() };
    for one in job.report() {
        assert_eq!((one.requests, one.tokens_per_second, one.mean_requests), (0, 0.0, 0.0));
        assert!(one.tokens_per_second.is_sign_positive() && one.refused > 0);
    }
}

/// The request fits into eight attention instances together, but not into one.
#[test]
fn refuses_requests_too_large_for_one_attention_instance() {
    let job = job();
    let decodes = DecodeGroups {
        groups: 1,
        attention: Instances { count: 8, gpus: 1 },
        feed_forward: Instances { count: 1, gpus: 1 },
        micro_batches: 1,
    };
    let costs = job.with_server(1, |server| StagedCosts::of(&decodes.with(server), 8).unwrap());
    let of = |tokens: u64| {
        let prompt = tokens as u32 - 2;
        serve(&costs, 1, &[Request { prompt, output: 2, done: 1, ..Request::default() }], 0).refused
    };
    let one = costs.cache_tokens / 8;
    assert_eq!([one, one + 1].map(of), [0, 1]);
}

#[test]
fn closed_loop_of_equal_requests_has_its_closed_form() {
    let equal = |mean| Lengths { mean, sigma: 0.0, most: 8_192 };
    let job = ServingJob {
        gpus: 2,
        load: Load::Closed { concurrency: 2, requests: 12 },
        lengths: [equal(1_000.0), equal(101.0)],
        layout: Some(Layout::Colocated { replica_gpus: 1 }),
        ..job()
    };
    let [result] = &job.report()[..] else { panic!("one layout") };
    let (costs, _) = &job.costs()[0];
    // Each of the two replicas serves six requests, one after the other.
    let decode = costs.steps_seconds(100, 1, 1_001);
    let one = costs.prompt_seconds(1_000) + decode;
    assert!((result.tpot_p50_seconds.unwrap() / (decode / 100.0) - 1.0).abs() < 1e-9, "{result:?}");
    assert!((result.tokens_per_second * 6.0 * one / (12.0 * 101.0) - 1.0).abs() < 1e-9);
    assert!((result.mean_requests - 2.0).abs() < 1e-9, "{result:?}");
}

#[test]
fn closed_loop_keeps_its_number_of_requests() {
    let load = Load::Closed { concurrency: 64, requests: 2_000 };
    let job = ServingJob { load, ..job() };
    let [result] = &job.report()[..] else { panic!("only colocated layouts") };
    let tokens: u64 = job.requests(load).iter().map(|one| u64::from(one.output)).sum();
    assert_eq!((result.requests, result.refused, result.tokens), (2_000, 0, tokens));
    // At the end, fewer requests are left.
    assert!((60.0..=64.0).contains(&result.mean_requests), "{result:?}");
}

// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;

fn best_fixed(pool: &Pool, samples: &[Request], dispatch: Dispatch) -> Option<Generation> {
    let all = pool.able(samples).filter_map(|size| fixed(pool, size, samples, dispatch));
    all.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// Replicas of 1, 2, 4 and 8 GPUs. Larger ones are faster but less efficient for many samples.
fn pool(gpus: u32) -> Pool {
    let size = |gpus: u32| ReplicaCosts {
        gpus,
        decode: (0..=64)
            .map(|batch| 0.016 / f64::from(gpus) + 0.001 + 2e-4 * f64::from(batch))
            .collect(),
        cached_token: 2e-7 / f64::from(gpus),
        cache_tokens: 60_000 * u64::from(gpus),
        prompt: [0.001, 1e-5 / f64::from(gpus), 0.0],
        prompt_tokens: u64::MAX,
    };
    let change = ChangeCost {
        weight_bytes: 30e9,
        cache_bytes: 1e5,
        inside_rate: 100e9,
        across_rate: 40e9,
        software_seconds: 0.1,
    };
    let sizes = [1, 2, 4, 8].into_iter().filter(|size| gpus >= *size).map(size).collect();
    Pool { gpus, sizes, change }
}

const LONG: Lengths = Lengths { mean: 1_000.0, sigma: 1.0, most: 16_000 };

#[test]
fn equal_lengths_match_the_closed_form_without_resizing() {
    let pool = pool(8);
    let samples = samples(100, &[500; 32]);
    let alone = fixed(&pool, 3, &samples, Dispatch::Shared).unwrap();
    let costs = &pool.sizes[3];
    let closed = 32.0 * costs.prompt_seconds(100) + costs.steps_seconds(499, 32, 32 * 101);
    assert!((alone.seconds - closed).abs() < 1e-9);
    let decided = adaptive(&pool, &samples, &[500; 32]).unwrap();
    assert_eq!(decided.stages.len(), 1, "{decided:?}");
    let best = best_fixed(&pool, &samples, Dispatch::Shared).unwrap();
    assert_eq!(decided.seconds, best.seconds);
}

#[test]
fn long_tail_favours_larger_replicas() {
    let pool = pool(16);
    let lengths = LONG.draw(256, Seed(1), 0);
    let samples = samples(100, &lengths);
    let best = best_fixed(&pool, &samples, Dispatch::Shared).unwrap();
    let decided = adaptive(&pool, &samples, &LONG.draw(256, Seed(1), 1)).unwrap();
    assert!(decided.seconds < 0.95 * best.seconds, "{decided:?} against {best:?}");
    let sizes: Vec<u32> = decided.stages.iter().map(|stage| stage.replica_gpus).collect();
    assert!(sizes.is_sorted() && sizes.len() > 1, "{sizes:?}");
    let all: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    assert_eq!((best.tokens, decided.tokens), (all, all));
}

#[test]
fn resize_transfers_each_gpu_its_missing_weights() {
    let pool = pool(8);
    assert_eq!(pool.lacks([4, 4]), 0.0);
    assert_eq!(pool.lacks([1, 8]), 0.0, "each has all of it");
    // With replicas of four, GPU 1 has the second quarter and needs the second half.
    assert_eq!(pool.lacks([4, 2]), 0.5);
    assert_eq!(pool.lacks([8, 1]), 0.875);
    // Two samples of 100 tokens are on the first of two replicas, so one of them moves.
    let held = |at| Request { prompt: 60, output: 90, done: 40, replica: Some(at), arrives: 0.0 };
    let (placed, stage) = pool.change([2, 2], &[held(0), held(0)]);
    assert_eq!((placed[0].replica, placed[1].replica), (Some(0), Some(1)));
    assert_eq!(stage.moved_bytes, 100.0 * 1e5);
    assert!((stage.change_seconds - 0.1 - 100.0 * 1e5 / 4.0 / 40e9).abs() < 1e-12);
}

#[test]
fn early_fault_halves_the_pool_and_a_late_one_costs_its_samples() {
    let pool = pool(16);
    let samples = samples(100, &[500; 32]);
    let half = Pool { gpus: 8, ..pool.clone() };
    let alone = fixed(&half, 3, &samples, Dispatch::Shared).unwrap().seconds;
    let early = death(&pool, 3, &samples, 0.0).unwrap();
    let prompts = 16.0 * pool.sizes[3].prompt_seconds(101);
    assert!((early.seconds - alone).abs() < prompts + 0.1, "{early:?} {alone}");
    assert_eq!(early.samples, 16);
    let late = death(&pool, 3, &samples, 1.0).unwrap();
    assert!(late.later_seconds > 0.0 && late.tokens > 16 * 100, "{late:?}");
    assert!(death(&pool, 3, &samples, 1e6).is_none(), "it is over by then");
    assert!(death(&half, 3, &samples, 1.0).is_none(), "there is no other");
}

/// Exhaustive search over the first `count` points with known lengths.
fn exact(pool: &Pool, samples: &[Request], count: u32) -> Option<Generation> {
    let mut stops = points(samples.len(), count);
    stops.push(0);
    let mut best: Option<Generation> = None;
    try_all(pool, &stops, &Course::begin(samples), &mut best);
    best
}

fn try_all(pool: &Pool, stops: &[usize], course: &Course, best: &mut Option<Generation>) {
    let [stop, later @ ..] = stops else { return };
    for (size, is_spread) in course.moves(pool) {
        let mut course = course.clone();
        course.go_on(pool, size, *stop, is_spread);
        if best.as_ref().is_some_and(|best| best.seconds <= course.so_far.seconds) {
            continue;
        }
        if course.left.is_empty() {
            *best = Some(course.end());
        } else {
            try_all(pool, later, &course, best);
        }
    }
}

/// Returns the longer of the times for the longest sample and for the total work.
fn least_seconds(pool: &Pool, samples: &[Request]) -> f64 {
    longest_seconds(pool, samples).max(least_work_seconds(pool, samples))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_schedule_beats_the_bound_and_exact_order_is_fastest(
        seed in 0_u64..1_000,
        count in 4_usize..60,
        sigma in 0.0_f64..1.5,
    ) {
        let pool = pool(8);
        let lengths = Lengths { sigma, ..LONG }.draw(count, Seed(seed), 0);
        let samples = samples(50, &lengths);
        let bound = least_seconds(&pool, &samples);
        let best = best_fixed(&pool, &samples, Dispatch::Shared).unwrap();
        let decided = adaptive(&pool, &samples, &lengths).unwrap();
        let known = exact(&pool, &samples, 2).unwrap();
        let all: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        for one in [&best, &decided, &known] {
            prop_assert!(one.seconds >= bound * (1.0 - 1e-9), "{one:?} below {bound}");
            prop_assert_eq!(one.tokens, all);
            prop_assert!(one.busy_share <= 1.0 + 1e-9);
        }
        // Steps in progress end before a change, so an order may be up to a step longer.
        prop_assert!(known.seconds <= best.seconds + 0.2, "{known:?} {best:?}");
    }
}

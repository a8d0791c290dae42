// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::calibration::{Calibration, Precision};
use crate::cards::{self, Accelerator};
use crate::model::Model;
use crate::network::Network;
use crate::step::{Compute, Formats};

struct World {
    model: Model,
    compute: Compute,
    network: Network,
    calibration: Calibration,
}

fn world(model: &str) -> World {
    let card: Accelerator = cards::accelerator("h800").unwrap();
    World {
        model: cards::model(model).unwrap(),
        compute: card.compute(),
        network: card.network(),
        calibration: card.calibration(),
    }
}

impl World {
    fn server(&self, gpus: u32, weights: Precision) -> Server<'_> {
        let replica = Replica {
            model: &self.model,
            compute: &self.compute,
            network: &self.network,
            calibration: &self.calibration,
            gpus,
            host_seconds: 0.0,
        };
        Server { replica, formats: Formats { weights, cache_value_bytes: 1.0 } }
    }

    fn apart(&self, counts: [u32; 2], gpus: [u32; 2], micro_batches: u32) -> AttentionFfn<'_> {
        let [attention, feed_forward] =
            [0, 1].map(|side| Instances { count: counts[side], gpus: gpus[side] });
        let server = self.server(1, Precision::Fp8);
        AttentionFfn {
            server,
            attention,
            feed_forward,
            micro_batches,
            reads_while_computing: false,
        }
    }
}

/// Simulates micro-batches over five stations per layer. Returns steady-state seconds per layer.
fn played(stations: [f64; 5], micro_batches: usize) -> f64 {
    let mut free = [0.0_f64; 5];
    let mut ready = vec![0.0_f64; micro_batches];
    let mut ends = Vec::new();
    for _ in 0..200 {
        for ready in &mut ready {
            for (free, seconds) in free.iter_mut().zip(stations) {
                *ready = ready.max(*free) + seconds;
                *free = *ready;
            }
        }
        ends.push(ready[micro_batches - 1]);
    }
    (ends[199] - ends[99]) / 100.0
}

proptest! {
    #[test]
    fn pipeline_time_is_its_slowest_stage_or_one_round(
        seconds in proptest::array::uniform5(0.0_f64..1.0),
        micro_batches in 1_u32..8,
        cached in 0.0_f64..1e6,
    ) {
        let [attention, there, inside, feed_forward, back] = seconds;
        let cached_token = 1e-6;
        let stages = LayerStages { attention, cached_token, there, inside, feed_forward, back };
        let stations = [attention + 1e-6 * cached, there, inside, feed_forward, back];
        let ours = stages.seconds(micro_batches, cached);
        let played = played(stations, micro_batches as usize);
        prop_assert!((ours - played).abs() < 1e-9, "{ours} against {played}");
        let sum: f64 = stations.iter().sum();
        let slowest = stations.iter().copied().fold(0.0, f64::max);
        prop_assert!((stages.seconds(1, cached) - sum).abs() < 1e-12);
        prop_assert!((stages.seconds(5, cached) - 5.0 * slowest).abs() < 1e-12);
    }

    #[test]
    fn attention_and_feed_forward_bytes_balance(
        counts in proptest::array::uniform2(1_u32..20),
        gpus in proptest::array::uniform2(1_u32..9),
        tokens in 1_u32..500,
    ) {
        let world = world("step-3");
        let apart = world.apart(counts, gpus, 3);
        let all = f64::from(tokens * counts[0]);
        let mut sent = 0.0;
        for bytes in apart.token_bytes() {
            let [one, other] = apart.bytes_per_gpu(tokens.into(), all, bytes);
            let ends = [(one, apart.attention), (other, apart.feed_forward)];
            let [from, to] = ends.map(|(bytes, side)| bytes * f64::from(side.all_gpus()));
            prop_assert!((from / to - 1.0).abs() < 1e-12, "{from} {to}");
            sent += from;
        }
        let expected = all * apart.bytes_per_token() / 61.0;
        prop_assert!((sent / expected - 1.0).abs() < 1e-12, "{sent} {expected}");
    }
}

#[test]
fn zero_network_cost_matches_a_combined_replica() {
    for model in ["step-3", "deepseek-v3", "llama-3.1-70b", "nemotron-h-56b"] {
        for weights in [Precision::Fp8, Precision::Bf16] {
            let mut world = world(model);
            world.network.scale_out_rate = f64::INFINITY;
            world.calibration.network.scale_out_step_seconds = 0.0;
            let eight = Instances { count: 1, gpus: 8 };
            let together = world.server(8, weights);
            let apart = AttentionFfn {
                server: together,
                attention: eight,
                feed_forward: eight,
                micro_batches: 1,
                reads_while_computing: false,
            };
            // The combined replica gathers with 16 bits instead of 8.
            let gathered = match weights {
                Precision::Bf16 => 0.0,
                _ => 0.25 * f64::from(world.model.layers) * world.model.shares().feed_forward,
            };
            for (batch, cached) in [(1, 0), (32, 100_000), (256, 1_000_000)] {
                let step = together.decode_seconds(batch)
                    + f64::from(cached) * together.cached_token_seconds()
                    - gathered * DecodePass { job: &together.job(batch, 1) }.decode_exchange();
                let ours = apart.stages(batch).seconds(cached.into());
                assert!((ours / step - 1.0).abs() < 1e-9, "{model}: {ours} against {step}");
            }
        }
    }
}

/// With 128 tokens per attention GPU and two nodes of each kind, 2 × 128 × 7168 values are sent
/// with 8 bits and returned with 16, as in StepMesh's introduction.
#[test]
fn message_sizes_match_the_published_library() {
    let world = world("step-3");
    let apart = world.apart([16, 2], [1, 8], 3);
    let [there, back] = apart.token_bytes();
    let of = |bytes| apart.bytes_per_gpu(128.0, 16.0 * 128.0, bytes);
    assert_eq!(of(there), [1_835_008.0; 2]);
    assert_eq!(of(back), [3_670_016.0; 2]);
}

#[test]
fn micro_batches_cover_the_whole_batch() {
    let world = world("step-3");
    for counts in [[1, 1], [3, 2], [16, 2]] {
        let apart = world.apart(counts, [1, 8], 3);
        for batch in 1..200 {
            let stages = apart.stages(batch);
            assert!(stages.micro_batches <= 3 && stages.cached_share <= 1.0);
            let shares = stages.cached_share * f64::from(stages.micro_batches * counts[0]);
            assert!(shares >= 1.0 - 1e-12, "{batch}: {shares}");
        }
    }
}

#[test]
fn overlap_at_most_halves_the_kernel_time() {
    let world = world("step-3");
    for batch in [1, 48, 480, 4_800] {
        let apart = world.apart([16, 2], [1, 8], 1);
        let overlapped = AttentionFfn { reads_while_computing: true, ..apart };
        let [one, other] = [apart, overlapped].map(|group| group.stages(batch).layers[1].1);
        for (sum, most) in [
            (one.attention, other.attention),
            (one.cached_token, other.cached_token),
            (one.feed_forward, other.feed_forward),
        ] {
            assert!(most < sum && most > sum / 2.0 - 1e-15, "{batch}: {sum} {most}");
        }
        assert_eq!((one.there, one.inside, one.back), (other.there, other.inside, other.back));
    }
}

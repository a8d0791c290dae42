// SPDX-License-Identifier: Apache-2.0
//! Duration of a pipeline, possibly with uneven stages.
//!
//! [`pipeline_bubble`] is a closed form, which tests compare with a simulation of every pass.

use serde::{Deserialize, Serialize};

/// Order of forward and backward passes on a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One forward, one backward; interleaved if a stage has several model chunks.
    OneForwardOneBackward,
    /// Weight gradients are computed separately and fill the end of the bubble (ZB-H1).
    ZeroBubble,
}

impl Schedule {
    pub fn label(self) -> &'static str {
        match self {
            Self::OneForwardOneBackward => "1f1b",
            Self::ZeroBubble => "zero-bubble",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    pub forward_seconds: f64,
    pub input_gradient_seconds: f64,
    pub weight_gradient_seconds: f64,
}

impl StageTime {
    pub fn total_seconds(&self) -> f64 {
        self.forward_seconds + self.input_gradient_seconds + self.weight_gradient_seconds
    }
}

/// Returns the seconds for which the slowest stage of a pipeline is idle, if all others are like `typical`.
///
/// 1F1B takes `(m−1)·slowest + Σ stages`. With `v` interleaved chunks per stage, the part of the
/// other stages is divided by `v`, and an incomplete last round adds `(v−1)·(p − m mod p)` chunks.
///
/// In ZB-H1, every other stage costs `F + B − W` instead of `F + B + W`, but at least `F` and `B`,
/// where `B` is only the input gradient (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", table
/// 2; DeepSeek-V3's `F + B − 2W` includes both gradients in `B`). With fewer micro-batches than
/// stages, only `m − 1` weight gradients are available to fill the bubble.
pub fn pipeline_bubble(
    schedule: Schedule,
    stages: u32,
    virtual_stages: u32,
    micro_batches: u64,
    typical: StageTime,
) -> f64 {
    let (p, v, m) = (f64::from(stages), f64::from(virtual_stages), micro_batches as f64);
    match schedule {
        Schedule::OneForwardOneBackward => {
            let partial = if virtual_stages > 1 && !micro_batches.is_multiple_of(stages.into()) {
                (v - 1.0) * (p - (micro_batches % u64::from(stages)) as f64)
            } else {
                0.0
            };
            (p - 1.0 + partial) / v * typical.total_seconds()
        }
        Schedule::ZeroBubble => {
            let (forward, input) = (typical.forward_seconds, typical.input_gradient_seconds);
            let (others, missing) = (p - 1.0, (p - m).max(0.0));
            let filled = (m.min(p) - 1.0) * typical.weight_gradient_seconds;
            (others * (forward + input) - filled)
                .max(others * input + missing * forward)
                .max(others * forward + missing * input)
        }
    }
}

/// Bubble of a stage in DualPipe, `(p/2 − 1)·(F + 2B − 3W)`, where `B` includes both gradients
/// (DeepSeek-V3, arXiv 2412.19437, table 2, with overlapped passes that take `F + B`).
pub fn dual_pipe_bubble(stages: u32, typical: StageTime) -> f64 {
    let StageTime { forward_seconds, input_gradient_seconds, weight_gradient_seconds } = typical;
    let wait = forward_seconds + 2.0 * input_gradient_seconds - weight_gradient_seconds;
    (f64::from(stages) / 2.0 - 1.0).max(0.0) * wait.max(0.0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    Forward,
    Backward,
    /// Input gradients only. The previous stage waits for them.
    InputGradient,
    /// Weight gradients only. No other stage waits for them.
    WeightGradient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    pub kind: PassKind,
    pub piece: usize,
    pub micro_batch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    pub schedule: Schedule,
    pub stages: usize,
    /// Model chunks per stage; more than one means interleaved 1F1B.
    pub pieces: usize,
    pub micro_batches: usize,
}

impl Pipeline {
    pub fn order(&self, stage: usize) -> Vec<Pass> {
        let total = self.micro_batches * self.pieces;
        let behind = self.stages - 1 - stage;
        let warm_up = match self.pieces {
            1 => behind,
            // As in Megatron-LM's `forward_backward_pipelining_with_interleaving`.
            pieces => 2 * behind + (pieces - 1) * self.stages,
        };
        let warm_up = warm_up.min(total);
        // In ZB-H1, each stage delays as many weight gradients as there are preceding stages, so
        // that all stages store the same number of micro-batches.
        let (backward, waiting) = match self.schedule {
            Schedule::OneForwardOneBackward => (PassKind::Backward, None),
            Schedule::ZeroBubble => (PassKind::InputGradient, Some(stage.min(self.micro_batches))),
        };
        let mut order: Vec<Pass> = (0..warm_up).map(|k| self.nth(PassKind::Forward, k)).collect();
        for k in 0..total {
            if warm_up + k < total {
                order.push(self.nth(PassKind::Forward, warm_up + k));
            }
            order.push(self.nth(backward, k));
            if let Some(done) = waiting.and_then(|waiting| k.checked_sub(waiting)) {
                order.push(self.nth(PassKind::WeightGradient, done));
            }
        }
        let late = total - waiting.unwrap_or(0)..total;
        order.extend(late.map(|k| self.nth(PassKind::WeightGradient, k)));
        order
    }

    /// A round has one micro-batch per stage and is executed chunk by chunk.
    fn nth(&self, kind: PassKind, k: usize) -> Pass {
        let round = self.stages * self.pieces;
        let first = k / round * self.stages;
        let width = self.stages.min(self.micro_batches - first);
        let (piece, within) = (k % round / width, k % round % width);
        let piece = if kind == PassKind::Forward { piece } else { self.pieces - 1 - piece };
        Pass { kind, piece, micro_batch: first + within }
    }

    fn place(&self, stage: usize, pass: Pass) -> usize {
        pass.piece * self.stages + stage
    }

    /// Calls `run` for each pass in a valid order. Returns false if some never run because stages wait for each other.
    pub fn walk(&self, mut run: impl FnMut(usize, Pass)) -> bool {
        let places = self.stages * self.pieces;
        let orders: Vec<Vec<Pass>> = (0..self.stages).map(|stage| self.order(stage)).collect();
        let mut forward = vec![vec![false; self.micro_batches]; places];
        let mut backward = forward.clone();
        let (mut next, mut moved) = (vec![0; self.stages], true);
        while moved {
            moved = false;
            for stage in 0..self.stages {
                while let Some(&pass) = orders[stage].get(next[stage]) {
                    let (place, micro) = (self.place(stage, pass), pass.micro_batch);
                    let is_ready = match pass.kind {
                        PassKind::Forward => place == 0 || forward[place - 1][micro],
                        PassKind::WeightGradient => backward[place][micro],
                        _ if place + 1 == places => forward[place][micro],
                        _ => backward[place + 1][micro],
                    };
                    if !is_ready {
                        break;
                    }
                    run(stage, pass);
                    match pass.kind {
                        PassKind::Forward => forward[place][micro] = true,
                        _ => backward[place][micro] = true,
                    }
                    next[stage] += 1;
                    moved = true;
                }
            }
        }
        next.iter().zip(&orders).all(|(next, order)| *next == order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Pipeline {
        /// Returns the simulated total time, or `None` if stages wait for each other.
        fn play(&self, stages: &[StageTime]) -> Option<f64> {
            let places = self.stages * self.pieces;
            let mut forward = vec![vec![0.0_f64; self.micro_batches]; places];
            let mut backward = forward.clone();
            let mut free = vec![0.0_f64; self.stages];
            let is_whole = self.walk(|stage, pass| {
                let (place, micro) = (self.place(stage, pass), pass.micro_batch);
                let time = &stages[stage];
                let gradients = time.input_gradient_seconds + time.weight_gradient_seconds;
                let (ready, span) = match pass.kind {
                    PassKind::Forward if place == 0 => (0.0, time.forward_seconds),
                    PassKind::Forward => (forward[place - 1][micro], time.forward_seconds),
                    PassKind::WeightGradient => (0.0, time.weight_gradient_seconds),
                    kind => {
                        let last = place + 1 == places;
                        let from =
                            if last { forward[place][micro] } else { backward[place + 1][micro] };
                        let both = kind == PassKind::Backward;
                        (from, if both { gradients } else { time.input_gradient_seconds })
                    }
                };
                free[stage] = free[stage].max(ready) + span / self.pieces as f64;
                match pass.kind {
                    PassKind::Forward => forward[place][micro] = free[stage],
                    PassKind::WeightGradient => {}
                    _ => backward[place][micro] = free[stage],
                }
            });
            is_whole.then(|| free.into_iter().fold(0.0, f64::max))
        }
    }

    fn stage(forward_seconds: f64) -> StageTime {
        StageTime {
            forward_seconds,
            input_gradient_seconds: forward_seconds,
            weight_gradient_seconds: forward_seconds,
        }
    }

    fn closed_form(
        schedule: Schedule,
        stages: u32,
        pieces: u32,
        micro_batches: u64,
        typical: StageTime,
        slowest: StageTime,
    ) -> f64 {
        micro_batches as f64 * slowest.total_seconds()
            + pipeline_bubble(schedule, stages, pieces, micro_batches, typical)
    }

    fn pipeline(schedule: Schedule, stages: u32, pieces: u32, micro_batches: u64) -> Pipeline {
        let micro_batches = usize::try_from(micro_batches).unwrap();
        Pipeline { schedule, stages: stages as usize, pieces: pieces as usize, micro_batches }
    }

    proptest! {
        #[test]
        fn closed_form_matches_simulated_schedule(p in 1u32..9, extra in 0u64..20, slow in 1.0f64..1.5) {
            let m = u64::from(p) + extra;
            let (typical, slowest) = (stage(1.0), stage(slow));
            let mut stages = vec![typical; p as usize - 1];
            stages.push(slowest);
            let schedule = Schedule::OneForwardOneBackward;
            let closed = closed_form(schedule, p, 1, m, typical, slowest);
            let played = pipeline(schedule, p, 1, m).play(&stages).unwrap();
            prop_assert!((closed - played).abs() < 1e-9 * played, "{} {}", closed, played);
        }

        #[test]
        fn interleaved_stages_take_the_closed_form(p in 2u32..7, v in 2u32..5, rounds in 1u64..5) {
            let m = u64::from(p) * rounds;
            let schedule = Schedule::OneForwardOneBackward;
            let closed = closed_form(schedule, p, v, m, stage(1.0), stage(1.0));
            let played = pipeline(schedule, p, v, m).play(&vec![stage(1.0); p as usize]).unwrap();
            prop_assert!((closed - played).abs() < 1e-9 * played, "{} {}", closed, played);
        }

        #[test]
        fn zero_bubble_pipeline_takes_the_closed_form(
            p in 1u32..9, m in 1u64..28, input in 0.3f64..1.6, weight in 0.3f64..1.6,
        ) {
            let time = StageTime {
                forward_seconds: 1.0,
                input_gradient_seconds: input,
                weight_gradient_seconds: weight,
            };
            let closed = closed_form(Schedule::ZeroBubble, p, 1, m, time, time);
            let played = pipeline(Schedule::ZeroBubble, p, 1, m).play(&vec![time; p as usize]).unwrap();
            prop_assert!((closed - played).abs() < 1e-9 * played, "{} {}", closed, played);
        }
    }

    #[test]
    fn zero_bubble_fills_little_with_fewer_micro_batches_than_stages() {
        let time = StageTime { weight_gradient_seconds: 0.5, ..stage(1.0) };
        let closed = |m| closed_form(Schedule::ZeroBubble, 4, 1, m, time, time);
        // The only micro-batch passes all stages and returns; the first stage's weight gradient remains.
        assert!((closed(1) - (4.0 * 2.0 + 0.5)).abs() < 1e-12, "{}", closed(1));
        assert!((closed(2) - (8.0 + 2.5)).abs() < 1e-12, "{}", closed(2));
    }

    #[test]
    fn interleaving_divides_the_bubble_and_zero_bubble_shrinks_it() {
        let bubble = |schedule, v| pipeline_bubble(schedule, 8, v, 64, stage(1.0));
        let one = bubble(Schedule::OneForwardOneBackward, 1);
        assert!((one / (64.0 * stage(1.0).total_seconds()) - 7.0 / 64.0).abs() < 1e-12);
        let four = bubble(Schedule::OneForwardOneBackward, 4);
        assert!((four * 4.0 - one).abs() < 1e-9);
        // With three equal passes, ZB-H1 leaves a third of the bubble (Qi et al. 2023, section 2.3).
        let zero = bubble(Schedule::ZeroBubble, 1);
        assert!((zero * 3.0 - one).abs() < 1e-9);
    }
}

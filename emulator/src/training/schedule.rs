//! How long a pipeline takes when its stages are uneven.
//!
//! A schedule says how the micro-batches of a step pass the stages. Closed forms here; the exact time of
//! a schedule, operation by operation, comes from [`simulate`], which shares no code with them.

use serde::{Deserialize, Serialize};

/// The order in which a stage takes forward and backward passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One forward, one backward; interleaved when a stage holds several pieces.
    OneForwardOneBackward,
    /// The weight gradients are split off and fill the end of the bubble (ZB-H1).
    ZeroBubble,
}

/// One stage's time for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Forward.
    pub forward_seconds: f64,
    /// Gradient of the inputs.
    pub input_gradient_seconds: f64,
    /// Gradient of the weights.
    pub weight_gradient_seconds: f64,
}

impl StageTime {
    /// All three.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.forward_seconds + self.input_gradient_seconds + self.weight_gradient_seconds
    }
}

/// Where the time of a pipeline goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PipelineTime {
    /// Work of the slowest stage.
    pub busy_seconds: f64,
    /// What the slowest stage waits for the others.
    pub bubble_seconds: f64,
}

impl PipelineTime {
    /// From the first forward to the last backward.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.busy_seconds + self.bubble_seconds
    }
}

/// The time of `micro_batches` through stages that are all like `typical` but the slowest, which is like
/// `slowest`.
///
/// 1F1B: `(m−1)·slowest + Σ stages`; interleaved, the other stages' part is divided by the `v` pieces of a
/// stage, and a last round that is not full costs `(v−1)·(p − m mod p)` pieces more. ZB-H1: each other
/// stage costs `F + B − 2W` instead of `F + B + W`.
#[must_use]
pub fn pipeline_time(
    schedule: Schedule,
    stages: u32,
    virtual_stages: u32,
    micro_batches: u64,
    typical: StageTime,
    slowest: StageTime,
) -> PipelineTime {
    let (p, v, m) = (f64::from(stages), f64::from(virtual_stages), micro_batches as f64);
    let busy_seconds = m * slowest.total_seconds();
    let bubble_seconds = match schedule {
        Schedule::OneForwardOneBackward => {
            let partial = if virtual_stages > 1 && !micro_batches.is_multiple_of(stages.into()) {
                (v - 1.0) * (p - (micro_batches % u64::from(stages)) as f64)
            } else {
                0.0
            };
            (p - 1.0 + partial) / v * typical.total_seconds()
        }
        Schedule::ZeroBubble => {
            let stage = typical.forward_seconds + typical.input_gradient_seconds
                - 2.0 * typical.weight_gradient_seconds;
            (p - 1.0) * stage.max(0.0)
        }
    };
    PipelineTime { busy_seconds, bubble_seconds }
}

/// The time of plain 1F1B, found by playing every operation of every stage in order.
#[must_use]
pub fn simulate(stages: &[StageTime], micro_batches: usize) -> f64 {
    let (p, m) = (stages.len(), micro_batches);
    let orders: Vec<Vec<(bool, usize)>> = (0..p).map(|stage| stage_order(p, stage, m)).collect();
    let mut forward_end = vec![vec![f64::NAN; m]; p];
    let mut backward_end = vec![vec![f64::NAN; m]; p];
    let (mut next, mut free) = (vec![0; p], vec![0.0_f64; p]);
    loop {
        let mut moved = false;
        for stage in 0..p {
            while let Some(&(is_forward, micro)) = orders[stage].get(next[stage]) {
                let ready = match (is_forward, stage) {
                    (true, 0) => 0.0,
                    (true, _) => forward_end[stage - 1][micro],
                    (false, _) if stage + 1 == p => forward_end[stage][micro],
                    (false, _) => backward_end[stage + 1][micro],
                };
                if ready.is_nan() {
                    break;
                }
                let time = &stages[stage];
                let span = if is_forward {
                    time.forward_seconds
                } else {
                    time.input_gradient_seconds + time.weight_gradient_seconds
                };
                free[stage] = free[stage].max(ready) + span;
                let ends = if is_forward { &mut forward_end } else { &mut backward_end };
                ends[stage][micro] = free[stage];
                next[stage] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    free.into_iter().fold(0.0, f64::max)
}

/// Forward (true) and backward (false) passes of a stage in 1F1B order, with their micro-batch.
pub(super) fn stage_order(stages: usize, stage: usize, micro_batches: usize) -> Vec<(bool, usize)> {
    let warm_up = (stages - 1 - stage).min(micro_batches);
    let mut order: Vec<_> = (0..warm_up).map(|micro| (true, micro)).collect();
    for micro in warm_up..micro_batches {
        order.push((true, micro));
        order.push((false, micro - warm_up));
    }
    order.extend((micro_batches - warm_up..micro_batches).map(|micro| (false, micro)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stage(forward_seconds: f64) -> StageTime {
        StageTime {
            forward_seconds,
            input_gradient_seconds: forward_seconds,
            weight_gradient_seconds: forward_seconds,
        }
    }

    proptest! {
        #[test]
        fn the_closed_form_is_the_played_schedule(p in 1u32..9, extra in 0u64..20, slow in 1.0f64..1.5) {
            let m = u64::from(p) + extra;
            let (typical, slowest) = (stage(1.0), stage(slow));
            let mut stages = vec![typical; p as usize - 1];
            stages.push(slowest);
            let schedule = Schedule::OneForwardOneBackward;
            let closed = pipeline_time(schedule, p, 1, m, typical, slowest).total_seconds();
            let played = simulate(&stages, usize::try_from(m).unwrap());
            prop_assert!((closed - played).abs() < 1e-9 * played, "{} {}", closed, played);
        }
    }

    #[test]
    fn interleaving_divides_the_bubble_and_zero_bubble_shrinks_it() {
        let plain = |schedule, v| pipeline_time(schedule, 8, v, 64, stage(1.0), stage(1.0));
        let one = plain(Schedule::OneForwardOneBackward, 1);
        assert!((one.bubble_seconds / one.busy_seconds - 7.0 / 64.0).abs() < 1e-12);
        let four = plain(Schedule::OneForwardOneBackward, 4);
        assert!((four.bubble_seconds * 4.0 - one.bubble_seconds).abs() < 1e-9);
        assert!(plain(Schedule::ZeroBubble, 1).bubble_seconds.abs() < 1e-12);
    }
}

// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_fabric::trace::{Health, Timeline, TraceTime};
use lightloom_units::id::NodeId;

use crate::architecture::{Architecture, CannotHold, Cluster, UsableGpus};

/// Milliseconds spent at each number of GPUs, exact over all samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    gpus: u32,
    pub(super) wasted_without_faults: u32,
    ms_by_wasted: Vec<u64>,
    ms_by_usable: Vec<u64>,
    by_sample: Vec<(u64, u64)>,
}

impl Tally {
    pub(super) fn of(
        architecture: &dyn Architecture,
        cluster: Cluster,
        tp: u32,
        samples: &[Timeline],
    ) -> Result<Self, CannotHold> {
        let gpus = cluster.gpus();
        let failed = architecture.failed_nodes();
        let healthy = gpus - failed.len() as u32 * cluster.gpus_per_node;
        let mut tally = Self {
            gpus,
            wasted_without_faults: healthy - architecture.usable(cluster, tp)?.usable_gpus(),
            ms_by_wasted: vec![0; gpus as usize + 1],
            ms_by_usable: vec![0; gpus as usize + 1],
            by_sample: Vec::with_capacity(samples.len()),
        };
        for timeline in samples {
            let mut state = architecture.usable(cluster, tp)?;
            tally.replay(state.as_mut(), cluster, &failed, timeline);
        }
        Ok(tally)
    }

    fn replay(
        &mut self,
        state: &mut dyn UsableGpus,
        Cluster { gpus_per_node, .. }: Cluster,
        failed: &BTreeSet<NodeId>,
        timeline: &Timeline,
    ) {
        let mut healthy = self.gpus - failed.len() as u32 * gpus_per_node;
        let mut since = TraceTime::START;
        let mut wasted_gpu_ms = 0;
        for change in timeline.changes().iter().filter(|change| !failed.contains(&change.node)) {
            if change.at > since {
                let spent_ms = change.at.ms_since(since);
                wasted_gpu_ms += self.spend(healthy, state.usable_gpus(), spent_ms);
                since = change.at;
            }
            match change.health {
                Health::Faulty => {
                    state.fail(change.node);
                    healthy -= gpus_per_node;
                }
                Health::Healthy => {
                    state.repair(change.node);
                    healthy += gpus_per_node;
                }
            }
        }
        let rest_ms = timeline.window().ms_since(since);
        wasted_gpu_ms += self.spend(healthy, state.usable_gpus(), rest_ms);
        self.by_sample.push((wasted_gpu_ms, timeline.window().0));
    }

    fn spend(&mut self, healthy: u32, usable: u32, ms: u64) -> u64 {
        let wasted = healthy.checked_sub(usable).expect("only healthy GPUs are usable");
        self.ms_by_wasted[wasted as usize] += ms;
        self.ms_by_usable[usable as usize] += ms;
        u64::from(wasted) * ms
    }

    pub(super) fn absorb(&mut self, later: Self) {
        self.ms_by_wasted.iter_mut().zip(later.ms_by_wasted).for_each(|(sum, ms)| *sum += ms);
        self.ms_by_usable.iter_mut().zip(later.ms_by_usable).for_each(|(sum, ms)| *sum += ms);
        self.by_sample.extend(later.by_sample);
    }

    fn total_ms(&self) -> u64 {
        self.ms_by_wasted.iter().sum()
    }

    fn mean_of(&self, ms_by_gpus: &[u64]) -> f64 {
        let spent = ms_by_gpus.iter().zip(0_u32..);
        let sum: u128 = spent.map(|(ms, gpus)| u128::from(*ms) * u128::from(gpus)).sum();
        sum as f64 / self.total_ms() as f64
    }

    pub(super) fn waste_mean(&self) -> f64 {
        self.mean_of(&self.ms_by_wasted) / f64::from(self.gpus)
    }

    pub(super) fn usable_mean(&self) -> f64 {
        self.mean_of(&self.ms_by_usable)
    }

    pub(super) fn waste_stddev(&self) -> f64 {
        let count = self.by_sample.len() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let samples = self.by_sample.iter();
        let ratios = samples.map(|(gpu_ms, ms)| *gpu_ms as f64 / *ms as f64 / f64::from(self.gpus));
        let mean = ratios.clone().sum::<f64>() / count;
        let squares: f64 = ratios.map(|ratio| (ratio - mean).powi(2)).sum();
        (squares / (count - 1.0)).sqrt()
    }

    /// Number of wasted GPUs that is not exceeded during the given share of the time.
    pub(super) fn wasted_at(&self, share: f64) -> u32 {
        let wanted = (share * self.total_ms() as f64).ceil() as u64;
        reached(self.ms_by_wasted.iter().zip(0..), wanted.max(1))
    }

    pub(super) fn largest_job(&self, share: f64) -> u32 {
        let may_wait = (share * self.total_ms() as f64).floor() as u64;
        reached(self.ms_by_usable.iter().zip(0..), may_wait + 1)
    }

    pub(super) fn waiting_share(&self, job_gpus: u32) -> f64 {
        let below = (job_gpus as usize).min(self.ms_by_usable.len());
        self.ms_by_usable[..below].iter().sum::<u64>() as f64 / self.total_ms() as f64
    }
}

fn reached<'a>(ms_by_gpus: impl Iterator<Item = (&'a u64, u32)>, wanted_ms: u64) -> u32 {
    let mut so_far = 0;
    let mut last = 0;
    for (ms, gpus) in ms_by_gpus.filter(|(ms, _)| **ms > 0) {
        so_far += ms;
        last = gpus;
        if so_far >= wanted_ms {
            break;
        }
    }
    last
}

// SPDX-License-Identifier: Apache-2.0
//! Starts waiting jobs in order of arrival. A later job may start first if it does not delay the first (EASY backfill).
//!
//! End times assume no further faults.

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) id: u32,
    pub(super) gpus: u32,
    pub(super) takes: i128,
}

/// `waiting` is in order of arrival; `running` lists the end and GPUs of each job.
pub(super) fn starts(
    waiting: impl IntoIterator<Item = Waiting>,
    mut running: impl Iterator<Item = (i128, u32)>,
    mut free: u32,
    now: i128,
) -> Vec<u32> {
    let mut started = Vec::new();
    let mut new_ends: Vec<(i128, u32)> = Vec::new();
    let mut reserved: Option<(i128, u32)> = None;
    for job in waiting {
        if free == 0 {
            break;
        }
        let fits = job.gpus <= free;
        match &mut reserved {
            None if fits => new_ends.push((now + job.takes, job.gpus)),
            None => {
                new_ends.extend(running.by_ref());
                new_ends.sort_unstable();
                reserved = Some(reservation(&new_ends, free, job.gpus));
                continue;
            }
            Some(_) if !fits => continue,
            Some((at, _)) if now + job.takes <= *at => {}
            Some((_, spare)) if job.gpus <= *spare => *spare -= job.gpus,
            Some(_) => continue,
        }
        free -= job.gpus;
        started.push(job.id);
    }
    started
}

/// Returns when `gpus` are free and how many more are free then.
fn reservation(ends: &[(i128, u32)], free: u32, gpus: u32) -> (i128, u32) {
    let mut then = free;
    for (end, more) in ends {
        then += more;
        if then >= gpus {
            return (*end, then - gpus);
        }
    }
    (i128::MAX, free)
}

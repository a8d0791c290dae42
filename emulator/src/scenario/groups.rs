//! What faults did to each group: how late it was, for how long it stood still, what is left of its time.

use lightloom_units::id::GroupId;
use lightloom_units::{Picoseconds, SimTime};

use super::head::share;
use super::outcome::GroupResult;
use super::story::{Lane, StepRun, Told};

/// One result for each group.
pub(super) fn results(told: &Told, calm: &Told) -> Vec<GroupResult> {
    let result = |(index, lane): (usize, &Lane)| {
        let end = end(told, lane);
        let end_without_faults = calm.lanes.get(index).and_then(|lane| self::end(calm, lane));
        GroupResult {
            group: GroupId::from_index(index),
            gpus: lane.gpus,
            end,
            end_without_faults,
            delay: end
                .zip(end_without_faults)
                .map(|(end, calm)| Picoseconds(end.0.saturating_sub(calm.0))),
            down: lane.down,
            lost: lane.lost,
        }
    };
    told.lanes.iter().enumerate().map(result).collect()
}

/// The collectives of a group and those between it and others, in order.
fn steps<'a>(told: &'a Told, lane: &'a Lane) -> impl Iterator<Item = &'a StepRun> {
    lane.steps.iter().chain(&told.between[lane.job as usize].steps)
}

/// When everything a group had to do was done; nothing if it is not.
fn end(told: &Told, lane: &Lane) -> Option<SimTime> {
    let all_done = !lane.lost && lane.is_through(told.program_length);
    all_done.then(|| steps(told, lane).filter_map(|step| step.end).max()).flatten()
}

/// Until when a group's time counts: its end, or that of the run if it has work left.
fn counted_until(told: &Told, lane: &Lane) -> SimTime {
    end(told, lane).unwrap_or(told.ended)
}

/// Share of the groups' time, weighted by their GPUs, in which no fault kept them still.
pub(super) fn availability(groups: &[GroupResult], told: &Told) -> f64 {
    let (mut up, mut all) = (0.0, 0.0);
    for (group, lane) in groups.iter().zip(&told.lanes) {
        let time = counted_until(told, lane).since(SimTime::START).as_secs_f64();
        let weight = f64::from(group.gpus);
        all += weight * time;
        up += weight * (time - group.down.as_secs_f64()).max(0.0);
    }
    share(up, all)
}

/// Share of the groups' time, weighted by their GPUs, that the same work takes without faults.
pub(super) fn goodput(told: &Told, calm: &Told) -> f64 {
    let (mut useful, mut all) = (0.0, 0.0);
    for (lane, calm_lane) in told.lanes.iter().zip(&calm.lanes) {
        let last = steps(told, lane).filter(|step| step.end.is_some()).map(|step| step.place).max();
        let without = last.and_then(|last| {
            steps(calm, calm_lane).filter(|step| step.place <= last).filter_map(|s| s.end).max()
        });
        let weight = f64::from(lane.gpus);
        useful += weight * without.unwrap_or_default().since(SimTime::START).as_secs_f64();
        all += weight * counted_until(told, lane).since(SimTime::START).as_secs_f64();
    }
    share(useful, all)
}

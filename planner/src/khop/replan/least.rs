// SPDX-License-Identifier: Apache-2.0
//! Keeps groups that a small change would lose, by moving as few rings without a fault as possible.
//!
//! If a failed group does not fit between the other groups, some of them must make room. This
//! module decides how many groups can be kept and which rings may move, and `region` finds the
//! least change. On a line of up to [`MOST_PLACES`] nodes, the search covers the whole line and its
//! result is optimal. On a longer line, each lost group is placed separately where the fewest rings
//! move. All moves for one group then lie within [`MOST_PLACES`] places. If a search runs out of
//! steps, a second search takes the sets of moving rings one after the other, smallest first. A set
//! of a few rings leaves few nodes to search, so it also finds long chains of displacements. If that
//! runs out of steps, too, narrower sections are searched.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::file::StepFile;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::{Position, Shape};
use lightloom_units::id::{GroupId, NodeId};

use super::super::{Layout, RingGroup, Survey};
use super::region::{Limit, MOST_PLACES, MoveCost, Pick, Region, RegionClass, RegionOutcome};

/// Takes about 0.2 s. In tests, no search on 40 nodes needed more than a sixth of these steps.
const MOST_STEPS: u32 = 200_000;

const MOST_JOBS: usize = 8;

/// Rings without a fault in the largest set that the second search moves.
const LARGEST_SET: usize = 3;

const STEPS_OF_SET: u32 = 50;

/// Numbers of places to search, one after the other, if a wider search ran out of steps.
const NARROWER: [usize; 3] = [64, 48, 32];

pub(super) struct Rearranged {
    pub(super) groups: Vec<RingGroup>,
    pub(super) given: BTreeMap<usize, usize>,
    pub(super) at_least: u32,
}

pub(super) enum Nothing {
    CanBeKept,
    /// The search does not apply or ran out of steps. At least this many rings must move.
    InSight {
        at_least: u32,
    },
}

/// A job that takes all nodes continues with fewer groups, so no rings move for it.
pub(super) fn is_sized(job: &Job) -> bool {
    job.is_placed() && job.size != JobSize::All
}

pub(super) fn unit(job: &Job) -> usize {
    match &job.step {
        Some(StepFile::Training(raw)) => (raw.pp * raw.cp * raw.ep).max(1) as usize,
        _ => 1,
    }
}

/// `is_hit` states for each former place whether the group there lost a part.
pub(super) fn rearranged(
    fabric: &Fabric,
    survey: &Survey<'_>,
    before: &Layout,
    mended: &Layout,
    is_hit: Vec<bool>,
) -> Result<Rearranged, Nothing> {
    let of_jobs = before.groups.iter().filter(|group| group.job.is_some());
    let of_jobs: Vec<&RingGroup> = of_jobs.collect();
    let jobs: BTreeSet<u32> = of_jobs.iter().filter_map(|group| group.job).collect();
    let is_on_line = fabric.hbd.grouping() == Grouping::Line && jobs.len() <= MOST_JOBS;
    if !is_on_line || of_jobs.iter().any(|group| group.segment.is_some()) {
        return Err(Nothing::InSight { at_least: 0 });
    }
    let known: BTreeSet<GroupId> = of_jobs.iter().map(|group| group.id).collect();
    let kept = mended.groups.iter().filter(|group| known.contains(&group.id));
    let now: BTreeMap<GroupId, RingGroup> = kept.map(|group| (group.id, group.clone())).collect();
    let lost = before.groups.iter().enumerate();
    let lost = lost.filter(|(_, group)| group.job.is_some() && !now.contains_key(&group.id));
    let lost: Vec<usize> = lost.map(|(at, _)| at).collect();
    let jobs = jobs.into_iter().collect();
    let mut task = Task { fabric, survey, before, is_hit, jobs, now, at_least: 0 };
    let placed = match fabric.hbd.nodes() as usize <= MOST_PLACES {
        true => task.place_together(&lost),
        false => task.place_in_turn(&lost, MOST_PLACES),
    };
    if let Err(Nothing::InSight { at_least }) = placed {
        task.place_within_less(&lost, at_least)?;
    } else {
        placed?;
    }
    Ok(task.finish())
}

fn is_next_set(set: &mut [usize], most: usize) -> bool {
    let size = set.len();
    let Some(at) = (0..size).rfind(|at| set[*at] + size - at < most) else { return false };
    set[at] += 1;
    for next in at + 1..size {
        set[next] = set[next - 1] + 1;
    }
    true
}

struct Task<'a> {
    fabric: &'a Fabric,
    survey: &'a Survey<'a>,
    before: &'a Layout,
    is_hit: Vec<bool>,
    jobs: Vec<u32>,
    now: BTreeMap<GroupId, RingGroup>,
    at_least: u32,
}

impl<'a> Task<'a> {
    fn place_together(&mut self, lost: &[usize]) -> Result<(), Nothing> {
        let all = (0..self.fabric.hbd.nodes()).map(Position).collect();
        let regions = [self.region(all, lost, |_| true)];
        for required in self.levels(&regions[0], lost) {
            match self.place(&regions, |_| required.clone()) {
                Err(Nothing::CanBeKept) => {}
                Err(Nothing::InSight { at_least }) => {
                    return self.place_by_sets(&regions[0], lost, &required, at_least);
                }
                Ok(()) => return Ok(()),
            }
        }
        Err(Nothing::CanBeKept)
    }

    fn place_by_sets(
        &mut self,
        whole: &Region<'a>,
        lost: &[usize],
        required: &[u32],
        mut at_least: u32,
    ) -> Result<(), Nothing> {
        let healthy = whole.olds.iter().filter(|old| !old.is_hit).map(|old| old.place);
        let healthy: Vec<usize> = healthy.collect();
        let mut steps = MOST_STEPS;
        for size in at_least as usize..=LARGEST_SET.min(healthy.len()) {
            let (mut best, mut set) = (None, (0..size).collect::<Vec<usize>>());
            let mut limit = Limit { rings: at_least, below: MoveCost::most() };
            let is_done = loop {
                let Some(left) = steps.checked_sub(STEPS_OF_SET) else { break false };
                steps = left;
                let all = (0..self.fabric.hbd.nodes()).map(Position).collect();
                let region =
                    self.region(all, lost, |place| set.iter().any(|at| healthy[*at] == place));
                let missing = required.iter().enumerate().map(|(class, required)| {
                    let stay = whole.classes[class].rings - region.classes[class].rings;
                    required.saturating_sub(stay)
                });
                let required: Vec<u32> = missing.collect();
                match region.pack(&required, limit, &mut steps) {
                    RegionOutcome::Found(cost, picks) => {
                        limit.below = cost;
                        best = Some((region, picks));
                    }
                    RegionOutcome::Nothing { .. } => {}
                    RegionOutcome::OutOfSteps => break false,
                }
                if !is_next_set(&mut set, healthy.len()) {
                    break true;
                }
            };
            if let Some((region, picks)) = best {
                self.at_least += at_least;
                self.take(&region, picks);
                return Ok(());
            }
            if !is_done {
                break;
            }
            at_least += 1;
        }
        Err(Nothing::InSight { at_least })
    }

    fn place_within_less(&mut self, lost: &[usize], at_least: u32) -> Result<(), Nothing> {
        let nodes = self.fabric.hbd.nodes() as usize;
        for width in NARROWER.into_iter().filter(|width| *width < nodes) {
            let is_placed = self.place_in_turn(lost, width).is_ok();
            let is_whole = self.jobs.iter().all(|job| {
                !is_sized(&self.fabric.jobs[*job as usize])
                    || self.count(*job) == self.before.groups_of(*job).count()
            });
            if is_placed && is_whole {
                self.at_least = self.at_least.min(at_least);
                return Ok(());
            }
        }
        Err(Nothing::InSight { at_least })
    }

    fn place_in_turn(&mut self, lost: &[usize], width: usize) -> Result<(), Nothing> {
        let (before, mut nothing) = (self.gpus_in_use(), Nothing::CanBeKept);
        for place in lost {
            let job = self.before.groups[*place].job;
            if !job.is_some_and(|job| is_sized(&self.fabric.jobs[job as usize])) {
                continue;
            }
            let regions = self.regions(*place, width);
            let placed =
                self.place(&regions, |region| region.classes.iter().map(|own| own.rings).collect());
            if let Err(why) = placed {
                nothing = why;
            }
        }
        if self.gpus_in_use() > before { Ok(()) } else { Err(nothing) }
    }

    fn count(&self, job: u32) -> usize {
        self.now.values().filter(|group| group.job == Some(job)).count()
    }

    fn gpus_in_use(&self) -> usize {
        let gpus = self.jobs.iter().map(|job| {
            let own = &self.fabric.jobs[*job as usize];
            self.count(*job) / unit(own) * unit(own) * own.tp as usize
        });
        gpus.sum()
    }

    /// Nearest first. Together they cover every possible place for a lost group.
    fn regions(&self, lost: usize, width: usize) -> Vec<Region<'a>> {
        let nodes = self.fabric.hbd.nodes() as usize;
        let at = self.fabric.hbd.position_of(self.before.groups[lost].nodes[0]).index();
        let is_closed = self.fabric.hbd.shape() == Shape::Ring;
        let nearest = if is_closed { at + nodes } else { at.max(width / 2) } - width / 2;
        let mut firsts: Vec<usize> = (0..nodes).step_by(width / 2).collect();
        firsts.sort_by_key(|first| first.abs_diff(nearest % nodes));
        let firsts = std::iter::once(nearest % nodes).chain(firsts);
        let regions = firsts.map(|first| {
            let places = (first..first + width).filter(|place| is_closed || *place < nodes);
            let places = places.map(|place| Position((place % nodes) as u32)).collect();
            self.region(places, &[lost], |_| true)
        });
        regions.collect()
    }

    fn can_be_set(&self, position: Position) -> bool {
        self.survey.is_whole(position) && self.survey.in_reach()[position.index()]
    }

    /// Only the rings without a fault for which `moves` is true may move.
    fn region(
        &self,
        places: Vec<Position>,
        lost: &[usize],
        moves: impl Fn(usize) -> bool,
    ) -> Region<'a> {
        let hbd = &self.fabric.hbd;
        let nodes = (0..).zip(&places).filter(|(_, at)| self.can_be_set(**at));
        let mut nodes: Vec<(u64, NodeId)> = nodes.map(|(at, on)| (at, hbd.node_at(*on))).collect();
        let here: BTreeSet<NodeId> = nodes.iter().map(|(_, node)| *node).collect();
        let (mut olds, mut fixed) = (Vec::new(), BTreeSet::new());
        for (place, group) in self.before.groups.iter().enumerate() {
            let (is_hit, now) = (self.is_hit[place], self.now.get(&group.id));
            let may_move = now.is_some()
                && group.job.is_some_and(|job| is_hit || moves(place) && self.survey.may_move(job))
                && group.nodes.iter().all(|node| {
                    here.contains(node) || is_hit && !self.can_be_set(hbd.position_of(*node))
                });
            if lost.contains(&place) || may_move {
                let class = self.jobs.iter().position(|job| Some(*job) == group.job);
                olds.push((place, class.expect("a job with rings"), is_hit));
            } else if let Some(now) = now {
                fixed.extend(now.nodes.iter().copied());
            }
        }
        let classes = self.jobs.iter().enumerate().map(|(index, job)| {
            let rings = olds.iter().filter(|(_, class, _)| *class == index).count();
            let length = self.before.groups_of(*job).next().map_or(1, |group| group.ranks.len());
            RegionClass { length, rings: u32::try_from(rings).expect("at most 128") }
        });
        let classes = classes.collect();
        nodes.retain(|(_, node)| !fixed.contains(node));
        Region::new(self.survey, self.before, places.len(), nodes, &olds, classes)
    }

    /// Returns numbers of rings per job to try, most GPUs first. Each uses more GPUs than now.
    fn levels(&self, region: &Region<'_>, lost: &[usize]) -> Vec<Vec<u32>> {
        let mut levels = vec![(0, Vec::new())];
        for (job, class) in self.jobs.iter().zip(&region.classes) {
            let (own, kept) = (&self.fabric.jobs[*job as usize], self.count(*job));
            let own_lost =
                lost.iter().filter(|place| self.before.groups[**place].job == Some(*job));
            let lost = own_lost.count();
            let most = if is_sized(own) { kept + lost } else { kept };
            let elsewhere = kept + lost - class.rings as usize;
            let steps = kept / unit(own)..=most / unit(own);
            let extended = levels.iter().flat_map(|(gpus, level)| {
                let (gpus, level) = (*gpus, level.clone());
                steps.clone().map(move |units| {
                    let rings = units * unit(own);
                    let here = u32::try_from(rings.saturating_sub(elsewhere)).expect("at most 128");
                    (gpus + rings * own.tp as usize, [level.as_slice(), &[here]].concat())
                })
            });
            levels = extended.collect();
        }
        let kept = self.gpus_in_use();
        levels.retain(|(gpus, _)| *gpus > kept);
        levels.sort_by_key(|(gpus, _)| std::cmp::Reverse(*gpus));
        levels.into_iter().map(|(_, level)| level).collect()
    }

    fn place(
        &mut self,
        regions: &[Region<'a>],
        required: impl Fn(&Region<'a>) -> Vec<u32>,
    ) -> Result<(), Nothing> {
        let mut below = MoveCost::most();
        let (mut best, mut proven, mut steps) = (None, None, MOST_STEPS);
        let is_part = regions.len() > 1;
        // Search the nearest region first, because its result limits the search in the others.
        for regions in [&regions[..1], &regions[1..]] {
            let mut limit = Limit { rings: 0, below };
            while proven.is_none() && limit.rings <= below.rings {
                let mut is_cut = false;
                for region in regions {
                    limit.below = below;
                    match region.pack(&required(region), limit, &mut steps) {
                        RegionOutcome::Found(cost, picks) => {
                            below = cost;
                            best = Some((region, picks));
                        }
                        RegionOutcome::Nothing { is_cut: cut } => is_cut |= cut,
                        // The other sections have not been searched.
                        RegionOutcome::OutOfSteps if is_part => proven = Some(0),
                        RegionOutcome::OutOfSteps => proven = Some(limit.rings),
                    }
                }
                if !is_cut || best.is_some() && limit.rings == below.rings {
                    break;
                }
                limit.rings += 1;
            }
        }
        match (best, proven) {
            (Some((region, picks)), _) => {
                self.at_least += proven.unwrap_or(below.rings);
                self.take(region, picks);
                Ok(())
            }
            (None, None) => Err(Nothing::CanBeKept),
            (None, Some(at_least)) => Err(Nothing::InSight { at_least }),
        }
    }

    fn take(&mut self, region: &Region<'a>, picks: Vec<Pick>) {
        let mut olds: Vec<Option<usize>> = region.olds.iter().map(|old| Some(old.place)).collect();
        for old in &region.olds {
            self.now.remove(&self.before.groups[old.place].id);
        }
        // Assign the chains without nodes of the job's old rings last, to the rings that have no
        // chain yet.
        let mut picks = picks;
        picks.sort_by_key(|pick| matches!(pick, Pick::Chain { old: None, .. }));
        for pick in picks {
            let group = match pick {
                Pick::Stays { old } => {
                    olds[old] = None;
                    let place = region.olds[old].place;
                    self.before.groups[place].clone()
                }
                Pick::Chain { nodes, hops, class, old } => {
                    let old = old.or_else(|| {
                        let mut olds = region.olds.iter().zip(&olds);
                        olds.position(|(old, place)| old.class == class && place.is_some())
                    });
                    let place =
                        old.and_then(|old| olds[old].take()).expect("no more rings than before");
                    self.is_hit[place] = true;
                    let was = &self.before.groups[place];
                    let ranks = nodes.clone();
                    RingGroup { nodes, hops, ranks, passing: None, ..was.clone() }
                }
            };
            self.now.insert(group.id, group);
        }
    }

    fn finish(self) -> Rearranged {
        let used: BTreeSet<NodeId> =
            self.now.values().flat_map(|group| group.nodes.iter().copied()).collect();
        let (mut groups, mut given) = (Vec::new(), BTreeMap::new());
        for (place, was) in self.before.groups.iter().enumerate() {
            let is_left = was.job.is_none()
                && !self.is_hit[place]
                && !was.nodes.iter().any(|node| used.contains(node));
            let now = self.now.get(&was.id).or(is_left.then_some(was));
            if let Some(now) = now {
                given.insert(place, groups.len());
                groups.push(now.clone());
            }
        }
        Rearranged { groups, given, at_least: self.at_least }
    }
}

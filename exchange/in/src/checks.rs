// SPDX-License-Identifier: Apache-2.0
//! Checks that files belong to the same cluster, period and clock.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::shown;
use super::logs::{HostOutage, HostShape, LoggedJob, Logs};
use super::problem::LogPlace;

/// Smaller differences do not indicate different time zones.
const SAME_CLOCK_S: i64 = 10 * 60;
const AGREEING: usize = 2;

pub(super) fn check(logs: &mut Logs) {
    logs.outages.sort_by(|a, b| (a.start, &a.host).cmp(&(b.start, &b.host)));
    hosts_are_of_the_topology(logs);
    clocks_agree(logs);
    periods_overlap(logs);
    jobs_fit(logs);
    hosts_are_alike(logs);
}

/// If files contradict each other, the first file takes precedence.
fn hosts_are_alike(logs: &mut Logs) {
    let Some(first) = logs.shapes.first() else { return };
    let of_hosts = logs.hosts.values().find_map(|host| Some((host.gpus?, host.place.as_ref()?)));
    let (others, other) = of_hosts.unwrap_or((first.gpus, &first.place));
    let troubles: Vec<_> = logs
        .shapes
        .iter()
        .filter(|shape: &&HostShape| shape.gpus != others && shape.place.file != other.file)
        .map(|shape| {
            let (gpus, other) = (shape.gpus, &other.file);
            let trouble = format!("the host has {gpus} GPUs, but hosts in {other} have {others}");
            (shape.place.clone(), trouble)
        })
        .collect();
    for (place, trouble) in troubles {
        logs.problem(place, trouble, format!("{others} is used"));
    }
}

fn by_file<T>(records: &[T], place: fn(&T) -> &LogPlace) -> BTreeMap<String, Vec<&T>> {
    let mut files: BTreeMap<String, Vec<&T>> = BTreeMap::new();
    for record in records {
        files.entry(place(record).file.clone()).or_default().push(record);
    }
    files
}

fn hosts_are_of_the_topology(logs: &mut Logs) {
    let Some(topology) = logs.topology().map(str::to_owned) else { return };
    let mut named: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for job in &logs.jobs {
        named.entry(&job.place.file).or_default().extend(&job.hosts);
    }
    for outage in logs.outages.iter().filter(|outage| !is_unnamed(outage)) {
        named.entry(&outage.place.file).or_default().insert(&outage.host);
    }
    let mut troubles = Vec::new();
    let mut strangers: BTreeSet<String> = BTreeSet::new();
    for (file, hosts) in named {
        let unknown = hosts
            .iter()
            .copied()
            .filter(|host| logs.hosts.get(*host).is_none_or(|host| host.place.is_none()));
        let unknown: Vec<&String> = unknown.collect();
        let Some(first) = unknown.first() else { continue };
        if unknown.len() == hosts.len() {
            let count = hosts.len();
            let trouble = format!(
                "none of the {count} hosts ({first}, …) is in {topology}: logs of different clusters"
            );
            let still = "fault rates and durations are still used";
            troubles.push((LogPlace { file: file.to_owned(), line: None }, trouble, still));
            continue;
        }
        for host in unknown {
            let jobs = logs.jobs.iter().filter(|job| job.hosts.contains(host));
            let outages = logs.outages.iter().filter(|outage| outage.host == *host);
            let mut places = jobs.map(|job| &job.place).chain(outages.map(|out| &out.place));
            let place = places.find(|place| place.file == file);
            let trouble = format!("host {host} is not in {topology}");
            let still =
                "its faults are omitted; if it belongs to this cluster, add it to the topology";
            troubles.extend(place.map(|place| (place.clone(), trouble, still)));
            strangers.insert(host.clone());
        }
    }
    logs.outages.retain(|outage| !strangers.contains(&outage.host));
    for (place, trouble, still) in troubles {
        logs.problem(place, trouble, still);
    }
}

pub(super) fn is_unnamed(outage: &HostOutage) -> bool {
    outage.host.starts_with("unnamed-")
}

/// A fault has different times in two files only if their clocks differ. Most hosts must agree on the difference.
fn clocks_agree(logs: &mut Logs) {
    let files = by_file(&logs.outages, |outage| &outage.place);
    let files: Vec<(&String, &Vec<&HostOutage>)> = files.iter().collect();
    let mut troubles = Vec::new();
    for (index, (_, outages)) in files.iter().enumerate() {
        for (other, others) in &files[index + 1..] {
            let Some(seconds) = offset(outages, others) else { continue };
            if seconds.abs() < SAME_CLOCK_S {
                continue;
            }
            let direction = if seconds > 0 { "after" } else { "before" };
            let minutes = (seconds.abs() + 30) / 60;
            let trouble = format!(
                "faults are {minutes} min {direction} those of {other} on the same hosts: the clocks differ"
            );
            troubles.push((outages[0].place.clone(), trouble));
        }
    }
    let still = "outage durations are correct, but faults in both files are counted twice: remove one of the files, or correct its times";
    for (place, trouble) in troubles {
        logs.problem(place, trouble, still);
    }
}

/// Seconds by which faults in `a` follow those in `b` on the same hosts, if enough of them agree.
fn offset(a: &[&HostOutage], b: &[&HostOutage]) -> Option<i64> {
    let mut nearest: Vec<i64> = Vec::new();
    for outage in a {
        let same = b.iter().filter(|other| other.host == outage.host);
        nearest.extend(same.map(|other| outage.start - other.start).min_by_key(|by| by.abs()));
    }
    nearest.sort_unstable();
    let middle = *nearest.get(nearest.len() / 2)?;
    let agreeing = nearest.iter().filter(|by| (**by - middle).abs() < SAME_CLOCK_S / 2).count();
    (agreeing >= AGREEING && 2 * agreeing > nearest.len()).then_some(middle)
}

type Period = (i64, i64);

fn periods_overlap(logs: &mut Logs) {
    let files: Vec<(String, Period)> =
        periods(logs).into_iter().map(|(file, period)| (file.to_owned(), period)).collect();
    for (index, (file, period)) in files.iter().enumerate() {
        for (other, others) in &files[index + 1..] {
            if period.1 < others.0 || others.1 < period.0 {
                let [period, others] = [period, others]
                    .map(|(from, to)| format!("{} to {}", shown(*from), shown(*to)));
                let trouble = format!(
                    "the period is {period}, but {other} covers {others}: they do not overlap"
                );
                let still = "the fault trace uses the files with the most faults, so job losses in the other files cannot be attributed to faults";
                logs.problem(LogPlace { file: file.clone(), line: None }, trouble, still);
            }
        }
    }
}

pub(super) fn watched(logs: &Logs) -> Option<(Period, BTreeSet<&str>)> {
    let mut parts: Vec<(Period, BTreeSet<&str>)> = Vec::new();
    for (file, period) in periods(logs) {
        let mut joined = (period, BTreeSet::from([file]));
        parts.retain(|(other, files)| {
            let is_apart = other.1 < joined.0.0 || joined.0.1 < other.0;
            if !is_apart {
                joined.0 = (joined.0.0.min(other.0), joined.0.1.max(other.1));
                joined.1.extend(files);
            }
            is_apart
        });
        parts.push(joined);
    }
    let counted = parts.into_iter().map(|part| {
        let faults = logs.outages.iter().filter(|outage| part.1.contains(&*outage.place.file));
        (faults.count(), part)
    });
    let most = counted.filter(|(faults, _)| *faults > 0).max_by_key(|(faults, _)| *faults);
    most.map(|(_, part)| part)
}

fn periods(logs: &Logs) -> BTreeMap<&str, Period> {
    let jobs = logs.jobs.iter().map(|job| (&job.place, job.start, job.end));
    let outages = logs.outages.iter().map(|outage| (&outage.place, outage.start, outage.end));
    let mut periods: BTreeMap<&str, Period> = BTreeMap::new();
    for (place, from, to) in jobs.chain(outages) {
        let period = periods.entry(&place.file).or_insert((from, from));
        *period = (period.0.min(from), period.1.max(to.unwrap_or(from)));
    }
    periods
}

fn jobs_fit(logs: &mut Logs) {
    let total: u64 = logs.hosts.values().filter_map(|host| host.gpus).map(u64::from).sum();
    let covered = watched(logs).map(|((from, to), _)| to - from);
    let mut troubles = Vec::new();
    let lasts = logs.jobs.iter().map(|job| (job.end.map_or(0, |end| end - job.start), job));
    let longest = lasts.max_by_key(|(seconds, _)| *seconds);
    if let (Some((seconds, job)), Some(covered)) = (longest, covered)
        && seconds > covered
    {
        let [days, covered] = [seconds, covered].map(|seconds| (seconds / 3600) as f64 / 24.0);
        let trouble = format!(
            "job {} ran for {days:.1} days, but faults are logged for only {covered:.1}",
            job.id
        );
        troubles.push((job.place.clone(), trouble, "the fault rate refers to the logged time"));
    }
    let largest = logs.jobs.iter().max_by_key(|job| job.gpus);
    if let Some(job) = largest.filter(|job| total > 0 && job.gpus > total) {
        let LoggedJob { id, gpus, .. } = job;
        let trouble = format!("job {id} uses {gpus} GPUs, but the topology contains only {total}");
        troubles.push((job.place.clone(), trouble, "the drafted job uses the existing GPUs"));
    }
    for (place, trouble, still) in troubles {
        logs.problem(place, trouble, still);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The machines and the main job, as far as logs describe them.

use std::collections::BTreeMap;

use super::{GuessConfidence, Sourced};
use crate::logs::{HostRecord, LoggedJob, Logs, TrainingProfile, most_common};
use crate::mentions::Fact;

#[derive(Debug)]
pub(super) struct ClusterDraft {
    pub(super) nodes: Sourced<u32>,
    pub(super) gpus_per_node: Sourced<u32>,
    pub(super) domain: Sourced<u32>,
    pub(super) nodes_per_tor: Sourced<u32>,
    pub(super) tors_per_domain: Option<Sourced<u32>>,
    pub(super) link_rate: Sourced<String>,
    pub(super) job: Sourced<String>,
    pub(super) job_gpus: Sourced<u32>,
    pub(super) tp: Sourced<u32>,
    pub(super) accelerator: Sourced<&'static str>,
    pub(super) edge_rate: Sourced<String>,
}

const USUAL_NODES: u32 = 16;
const USUAL_GPUS: u32 = 8;
const USUAL_NODES_PER_TOR: u32 = 4;

impl ClusterDraft {
    pub(super) fn of(logs: &Logs) -> Self {
        let gpus_per_node = gpus_per_node(logs);
        let (domain, hosts_per_domain) = domain(logs, gpus_per_node.value);
        let mut nodes = nodes(logs, gpus_per_node.value);
        if !nodes.value.is_multiple_of(hosts_per_domain) {
            let whole = nodes.value.next_multiple_of(hosts_per_domain);
            nodes = Sourced::derived(whole, format!("{}, rounded up to whole domains", nodes.why));
        }
        let total = nodes.value * gpus_per_node.value;
        let tp = tensor_parallel(logs, total, gpus_per_node.value, domain.value);
        let job_gpus = job_gpus(logs, total, tp.value);
        let accelerator = accelerator(logs);
        Self {
            job: job_name(logs),
            job_gpus,
            tp,
            nodes_per_tor: nodes_per_tor(logs),
            tors_per_domain: tors_per_domain(logs),
            edge_rate: edge_rate(logs, &accelerator),
            accelerator,
            link_rate: link_rate(logs),
            nodes,
            gpus_per_node,
            domain,
        }
    }

    pub(super) fn gpus(&self) -> u32 {
        self.nodes.value * self.gpus_per_node.value
    }
}

/// Returns the most frequent value (the largest in a tie), its count and the total.
fn usual<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<(T, usize, usize)> {
    let values: Vec<T> = values.collect();
    let value = most_common(values.iter().copied())?;
    let count = values.iter().filter(|other| **other == value).count();
    Some((value, count, values.len()))
}

fn share(count: usize, all: usize, what: &str) -> String {
    format!("{what}: {count} of {all}")
}

fn seen(logs: &Logs, has: impl Fn(&HostRecord) -> bool) -> String {
    let place = logs.hosts.values().filter(|host| has(host)).find_map(|host| host.place.as_ref());
    place.map_or(String::new(), |place| format!(", from {place}"))
}

fn nodes(logs: &Logs, gpus_per_node: u32) -> Sourced<u32> {
    let placed = logs.hosts.values().filter(|host| host.place.is_some()).count() as u32;
    if placed > 0 {
        let file = logs.hosts.values().find_map(|host| host.place.as_ref());
        let file = file.map_or("", |place| &place.file);
        return Sourced::stated(placed, format!("hosts in {file}"));
    }
    let named = logs.named_hosts().len().max(logs.hosts.len()) as u32;
    let most = most_at_once(&logs.jobs);
    let world = logs.profiles.iter().filter_map(|profile| profile.world).max().unwrap_or(0);
    let of_world = world.div_ceil(gpus_per_node);
    if named > 0 && named >= most && named >= of_world {
        return Sourced::derived(named, "hosts in job and fault logs; idle ones are missing");
    }
    if most > 0 && most >= of_world {
        return Sourced::derived(most, "most hosts in use at one time; there may be more");
    }
    if of_world > 1 {
        return Sourced::derived(of_world, format!("{world} ranks of the profile"));
    }
    Sourced::assumed(USUAL_NODES, logs.lacks(Fact::Hosts, "no log says how many hosts there are"))
}

fn most_at_once(jobs: &[LoggedJob]) -> u32 {
    let begins = jobs.iter().map(|job| (job.start, 1, job.nodes as i64));
    let ends = jobs.iter().filter_map(|job| Some((job.end?, 0, -(job.nodes as i64))));
    let mut changes: Vec<(i64, u8, i64)> = begins.chain(ends).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, _, by) in changes {
        now += by;
        most = most.max(now);
    }
    u32::try_from(most).unwrap_or(0)
}

fn gpus_per_node(logs: &Logs) -> Sourced<u32> {
    if let Some((gpus, count, all)) = usual(logs.hosts.values().filter_map(|host| host.gpus)) {
        let place = seen(logs, |host| host.gpus == Some(gpus));
        return Sourced::stated(gpus, share(count, all, "hosts") + &place);
    }
    if let Some(shape) = logs.shapes.first() {
        return Sourced::stated(shape.gpus, format!("GPUs of the host in {}", shape.place));
    }
    let shown = logs.profiles.iter().filter_map(|profile| Some((profile, profile.accelerators?)));
    if let Some((profile, gpus)) = shown.max_by_key(|(_, gpus)| *gpus) {
        return Sourced::stated(gpus, format!("`deviceProperties` of {}", profile.place));
    }
    let of_profiles = logs.profiles.iter().filter_map(|profile| profile.ranks_per_host).max();
    if let Some(gpus) = of_profiles {
        return Sourced::derived(gpus, "most ranks on one host according to NCCL");
    }
    // A job on one host may use part of it; jobs on several hosts mostly use whole hosts.
    let of_jobs =
        logs.jobs.iter().filter(|job| job.nodes > 1 && job.gpus.is_multiple_of(job.nodes));
    let of_jobs = of_jobs.map(|job| (job.gpus / job.nodes) as u32).filter(|gpus| *gpus > 0);
    if let Some((gpus, count, all)) = usual(of_jobs) {
        return Sourced::derived(gpus, share(count, all, "jobs of several hosts"));
    }
    let absent = "no log says how many GPUs a host has";
    Sourced::assumed(USUAL_GPUS, logs.lacks(Fact::GpusPerHost, absent))
}

fn domain(logs: &Logs, gpus_per_node: u32) -> (Sourced<u32>, u32) {
    let mut sizes: BTreeMap<&str, u32> = BTreeMap::new();
    for domain in logs.hosts.values().filter_map(|host| host.domain.as_deref()) {
        *sizes.entry(domain).or_default() += 1;
    }
    match usual(sizes.values().copied()) {
        Some((hosts, count, all)) => {
            let share = share(count, all, "of them");
            let place = seen(logs, |host| host.domain.is_some());
            let why = format!("{hosts} hosts in a domain or block, {share}{place}");
            (Sourced::stated(hosts * gpus_per_node, why), hosts)
        }
        None => (Sourced::assumed(gpus_per_node, "only GPUs in the same host share a switch"), 1),
    }
}

fn nodes_per_tor(logs: &Logs) -> Sourced<u32> {
    let mut below: BTreeMap<&str, u32> = BTreeMap::new();
    for switch in logs.hosts.values().filter_map(|host| host.switches.first()) {
        *below.entry(switch).or_default() += 1;
    }
    match usual(below.values().copied()) {
        Some((hosts, count, all)) => {
            let place = seen(logs, |host| !host.switches.is_empty());
            Sourced::stated(hosts, share(count, all, "leaf switches") + &place)
        }
        None => {
            let why = logs.lacks(Fact::Switches, "no log describes switches");
            Sourced::assumed(USUAL_NODES_PER_TOR, why)
        }
    }
}

fn tors_per_domain(logs: &Logs) -> Option<Sourced<u32>> {
    let pairs: std::collections::BTreeSet<(&String, &String)> = logs
        .hosts
        .values()
        .filter_map(|host| Some((host.switches.get(1)?, host.switches.first()?)))
        .collect();
    let mut below: BTreeMap<&String, u32> = BTreeMap::new();
    for (above, _) in pairs {
        *below.entry(above).or_default() += 1;
    }
    let (tors, count, all) = usual(below.values().copied())?;
    let place = seen(logs, |host| host.switches.len() > 1);
    Some(Sourced::stated(tors, share(count, all, "switches above leaves") + &place))
}

fn largest(logs: &Logs) -> Option<&TrainingProfile> {
    logs.profiles.iter().max_by_key(|profile| profile.world)
}

fn tensor_parallel(logs: &Logs, total: u32, gpus_per_node: u32, domain: u32) -> Sourced<u32> {
    let holders = [gpus_per_node, domain];
    let groups = logs.profiles.iter().flat_map(|profile| &profile.groups);
    let named = groups.filter(|(name, size)| is_tensor(name) && divides(**size, holders));
    if let Some((name, size)) = named.max_by_key(|(_, size)| **size) {
        return Sourced::stated(*size, format!("the process group `{name}`"));
    }
    let world = own_world(logs, total);
    match world.filter(|world| *world < gpus_per_node && divides(*world, holders)) {
        Some(world) => Sourced::assumed(world, "all ranks of the profile, which fit on one host"),
        None => Sourced::assumed(
            gpus_per_node,
            "no tensor-parallel process group found: the GPUs of a host",
        ),
    }
}

fn largest_job(logs: &Logs, total: u32) -> Option<&LoggedJob> {
    let fitting = logs.jobs.iter().filter(|job| job.gpus > 0 && job.gpus <= u64::from(total));
    fitting.max_by_key(|job| (job.gpus, job.end.unwrap_or(job.start) - job.start))
}

/// Returns `None` if the logs contain a larger job, because the profile is then only a sample.
fn own_world(logs: &Logs, total: u32) -> Option<u32> {
    let world = largest(logs).and_then(|profile| profile.world).filter(|world| *world > 1)?;
    let job = largest_job(logs, total);
    job.is_none_or(|job| job.gpus <= u64::from(world)).then_some(world)
}

fn is_tensor(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("tensor") || name.split(|c: char| !c.is_alphanumeric()).any(|word| word == "tp")
}

fn divides(size: u32, holders: [u32; 2]) -> bool {
    size > 0 && holders.iter().any(|holder| holder.is_multiple_of(size))
}

fn job_gpus(logs: &Logs, total: u32, tp: u32) -> Sourced<u32> {
    let (gpus, why) = match (own_world(logs, total), largest_job(logs, total)) {
        (Some(world), _) => (world, format!("{world} ranks of the profile")),
        (None, Some(job)) => {
            let why = format!("the largest job, {} ({})", job.id, job.place);
            (u32::try_from(job.gpus).unwrap_or(total), why)
        }
        _ => {
            let why = logs.lacks(Fact::Jobs, "no log contains a job");
            let why = format!("{why}; a sixteenth is reserved for failures");
            return Sourced::assumed(in_groups(total - total / 16, total, tp), why);
        }
    };
    match in_groups(gpus, total, tp) {
        all if all == gpus => Sourced::stated(all, why),
        whole => Sourced::derived(whole, why + ", in whole groups"),
    }
}

fn in_groups(gpus: u32, total: u32, tp: u32) -> u32 {
    (gpus.min(total) / tp).max(1) * tp
}

fn job_name(logs: &Logs) -> Sourced<String> {
    let named =
        largest_job(logs, u32::MAX).and_then(|job| job.name.as_deref().map(|name| (name, job)));
    let Some((name, job)) = named else {
        return Sourced::assumed(
            "training".to_owned(),
            logs.lacks(Fact::Jobs, "no log contains a job name"),
        );
    };
    let allowed = name.chars().take(40).map(|c| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '-',
    });
    let name = allowed.collect::<String>().trim_matches('-').to_owned();
    let name = if name.is_empty() { "training".to_owned() } else { name };
    Sourced::stated(name, format!("job {} ({})", job.id, job.place))
}

fn link_rate(logs: &Logs) -> Sourced<String> {
    let said = logs.shapes.iter().find_map(|shape| Some((shape.bits_per_second?, &shape.place)));
    if let Some((bits, place)) = said {
        return Sourced::stated(
            format!("{}Gbps", bits as f64 / 1e9),
            format!("interfaces in {place}"),
        );
    }
    let measured = fastest(logs).map_or(String::new(), |fastest| format!("; {fastest}"));
    let why = logs.lacks(Fact::Rate, "no log contains the rate of an interface") + &measured;
    Sourced::assumed("400Gbps".to_owned(), why)
}

fn fastest(logs: &Logs) -> Option<String> {
    let rates = logs.profiles.iter().flat_map(|profile| &profile.bandwidth);
    let (ranks, rate) = rates.max_by(|a, b| a.1.total_cmp(b.1))?;
    Some(format!("measured bus bandwidth: {:.0} GB/s among {ranks} ranks", rate / 1e9))
}

/// Part of the product name, accelerator in lightloom, and its link rate within a domain in Tb/s per direction.
const ACCELERATORS: &[(&str, &str, f64)] = &[
    ("gb300", "gb300", 7.2),
    ("gb200", "gb200", 7.2),
    ("b300", "b300", 7.2),
    ("b200", "b200", 7.2),
    ("h200", "h200", 3.6),
    ("h100", "h100", 3.6),
    ("h800", "h800", 1.6),
    ("h20", "h20", 3.6),
    ("a100", "a100", 2.4),
];

fn products(logs: &Logs) -> impl Iterator<Item = &str> {
    let of_hosts = logs.hosts.values().filter_map(|host| host.product.as_deref());
    let of_shapes = logs.shapes.iter().filter_map(|shape| shape.product.as_deref());
    let of_profiles = logs.profiles.iter().filter_map(|profile| profile.product.as_deref());
    of_hosts.chain(of_shapes).chain(of_profiles)
}

fn accelerator(logs: &Logs) -> Sourced<&'static str> {
    for product in products(logs) {
        let product = product.to_ascii_lowercase();
        if let Some((_, card, _)) = ACCELERATORS.iter().find(|(piece, ..)| product.contains(piece))
        {
            return Sourced::stated(*card, format!("the product is {product}"));
        }
    }
    let why = match products(logs).find(|product| !product.is_empty()) {
        Some(product) => format!("unknown product `{product}`"),
        None => logs.lacks(Fact::Accelerators, "no log names the accelerators"),
    };
    Sourced::assumed("h100", why)
}

fn edge_rate(logs: &Logs, accelerator: &Sourced<&'static str>) -> Sourced<String> {
    let rates = ACCELERATORS.iter().find(|(_, card, _)| *card == accelerator.value);
    let rate = rates.map_or(3.6, |(.., rate)| *rate);
    let counted = logs.shapes.iter().find_map(|shape| Some((shape, shape.domain_links?)));
    if let Some((shape, links)) = counted {
        // Per direction, NVLink 3 and 4 transfer 25 GB/s, and NVLink 5 transfers twice as much.
        let gigabytes = if rate > 3.6 { 50 } else { 25 };
        let why = format!("{links} NVLinks of {gigabytes} GB/s in {}", shape.place);
        return Sourced::derived(terabits(f64::from(links * gigabytes) * 0.008), why);
    }
    let why = format!("NVLink of {} in one direction", accelerator.value);
    match accelerator.confidence {
        GuessConfidence::Assumed => Sourced::assumed(terabits(rate), why),
        _ => Sourced::derived(terabits(rate), why),
    }
}

fn terabits(rate: f64) -> String {
    format!("{}Tbps", (rate * 1000.0).round() / 1000.0)
}

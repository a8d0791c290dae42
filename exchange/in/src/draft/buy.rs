// SPDX-License-Identifier: Apache-2.0
//! `buy.yaml` compares designs with the logged jobs and faults; `runs.csv` has the step for `lightloom calibrate`.

use std::collections::BTreeMap;

use super::cluster::ClusterDraft;
use super::{Draft, DraftFile, DraftPage, Guess, GuessConfidence, Sourced, fabric, trace};
use crate::logs::{LoggedJob, Logs};
use crate::mentions::Fact;

const KINDS: usize = 4;
const SHORTEST_S: i64 = 600;
/// Logs of fewer days are repeated.
const FEWEST_DAYS: u32 = 30;

struct JobSize {
    gpus: u32,
    days: f64,
    every_days: f64,
    count: usize,
}

pub(super) fn write(logs: &Logs, cluster: &ClusterDraft, days: Option<u32>, draft: &mut Draft) {
    let mut page = DraftPage::new(
        "buy.yaml",
        "The cost of the logged jobs under the logged faults: lightloom buy buy.yaml. Keys: docs/buy.md.",
    );
    let total = Sourced::derived(cluster.gpus(), "hosts × GPUs per host, as in fabric.yaml");
    page.guess("gpus", &total);
    let window = days.unwrap_or(FEWEST_DAYS).max(FEWEST_DAYS);
    page.put(&format!(
        "name: own-cluster\ngpus: {}\ngpus_per_node: {}\ndays: {window}\nnetwork: fat-tree:128\nnic_gbps: 400",
        total.value, cluster.gpus_per_node.value
    ));
    let own = fabric::NAME;
    page.put(&format!("designs:\n- {{design: {own}}}"));
    page.put("- {design: nvl:72}\n- {design: tpuv4}\n- {design: khop:2}\n- {design: khop:3}");
    put_workload(&mut page, cluster);
    put_jobs(&mut page, cluster, &job_kinds(logs, cluster), window);
    let checkpoint =
        Sourced::assumed("30 min, 30 s, 10 min", "checkpoints and restarts are not read from logs");
    page.guess("checkpoint", &checkpoint);
    page.put("checkpoint: {every_minutes: 30, seconds: 30, restart_minutes: 10}");
    if days.is_some() {
        page.put(&format!("faults: {{trace: {}}}", trace::NAME));
    } else {
        let published = Sourced::assumed(
            "published",
            logs.lacks(Fact::Faults, "no log contains a fault") + ": those of a public trace",
        );
        page.guess("faults", &published);
        page.put("faults: {published: {}}");
    }
    page.put("running: {service_years: 4, gpu_watts: 1000, usd_per_kwh: 0.08, pue: 1.2}");
    page.end(draft);
}

fn put_workload(page: &mut DraftPage, cluster: &ClusterDraft) {
    page.guess("workload.tp", &cluster.tp);
    page.guess("workload.peak_tflops", &peak(cluster.accelerator.value, &cluster.accelerator.why));
    let mfu =
        Sourced::assumed("0.4", "not read from logs: `lightloom mfu` computes it for a model");
    page.guess("workload.mfu", &mfu);
    let shares = Sourced::assumed(
        "0.2 and 0.05",
        "shares of a step in tensor- and data-parallel communication",
    );
    page.guess("workload.step", &shares);
    let peak = peak(cluster.accelerator.value, "");
    page.put(&format!(
        "workload:\n  tp: {}\n  peak_tflops: {}\n  mfu: {}\n  step: {{at_gbytes_per_s: 900, tensor_parallel: 0.2, data_parallel: 0.05, \
         cross_tor_slowdown: 3, nodes_per_tor: {}}}",
        cluster.tp.value, peak.value, mfu.value, cluster.nodes_per_tor.value
    ));
}

fn put_jobs(page: &mut DraftPage, cluster: &ClusterDraft, kinds: &[JobSize], window: u32) {
    let jobs = match kinds.iter().map(|kind| kind.count).sum::<usize>() {
        0 => Sourced::assumed(
            "1 kind".to_owned(),
            "no log contains a job with several groups, so the draft assumes one job that runs \
             for the whole period",
        ),
        count => Sourced::derived(
            format!("{} kinds", kinds.len()),
            format!(
                "{count} jobs of at least {} min, by size, with their mean duration",
                SHORTEST_S / 60
            ),
        ),
    };
    page.guess("workload.jobs", &jobs);
    page.put("  jobs:");
    if kinds.is_empty() {
        page.put(&format!(
            "  - {{name: {}, gpus: {}, days: {window}, every_days: {window}}}",
            cluster.job.value, cluster.job_gpus.value
        ));
    }
    for (number, JobSize { gpus, days, every_days, .. }) in kinds.iter().enumerate() {
        page.put(&format!(
            "  - {{name: size-{}, gpus: {gpus}, days: {days:.3}, every_days: {every_days:.3}}}",
            number + 1
        ));
    }
}

fn peak(card: &str, why: &str) -> Sourced<u32> {
    let tflops = match card {
        "a100" => 312,
        "h20" => 148,
        "b200" => 2250,
        "gb200" | "gb300" | "b300" => 2500,
        _ => 989,
    };
    Sourced::assumed(tflops, format!("of {card}: {why}"))
}

fn job_kinds(logs: &Logs, cluster: &ClusterDraft) -> Vec<JobSize> {
    let tp = cluster.tp.value;
    let mut jobs: Vec<&LoggedJob> = logs.jobs.iter().collect();
    jobs.retain(|job| job.end.is_some_and(|end| end - job.start >= SHORTEST_S));
    // Job tables may cover different periods, so use only the largest.
    let mut tables: BTreeMap<&String, usize> = BTreeMap::new();
    for job in &jobs {
        *tables.entry(&job.place.file).or_default() += 1;
    }
    let table = tables.into_iter().max_by_key(|(_, count)| *count).map(|(file, _)| file.clone());
    jobs.retain(|job| Some(&job.place.file) == table.as_ref());
    jobs.retain(|job| job.gpus >= u64::from(tp) && job.gpus <= u64::from(cluster.gpus()));
    let (Some(from), Some(to)) =
        (jobs.iter().map(|job| job.start).min(), jobs.iter().filter_map(|job| job.end).max())
    else {
        return Vec::new();
    };
    let span = ((to - from) as f64 / 86_400.0).max(1.0);
    let mut by_size: BTreeMap<u32, Vec<&LoggedJob>> = BTreeMap::new();
    for job in jobs {
        by_size.entry(job.gpus.ilog2()).or_default().push(job);
    }
    by_size
        .into_values()
        .rev()
        .take(KINDS)
        .map(|jobs| {
            let seconds: i64 = jobs.iter().filter_map(|job| Some(job.end? - job.start)).sum();
            let gpus: u64 = jobs.iter().map(|job| job.gpus).sum::<u64>() / jobs.len() as u64;
            JobSize {
                gpus: (gpus as u32 / tp).max(1) * tp,
                days: seconds as f64 / 86_400.0 / jobs.len() as f64,
                every_days: span / jobs.len() as f64,
                count: jobs.len(),
            }
        })
        .collect()
}

pub(super) fn write_runs(logs: &Logs, cluster: &ClusterDraft, draft: &mut Draft) {
    let measured = logs.profiles.iter().find_map(|profile| Some((profile, profile.step_seconds?)));
    let Some((profile, seconds)) = measured else { return };
    let ranks = profile.world.unwrap_or(cluster.job_gpus.value);
    let text = format!(
        "id,accelerator,num_accel,model,precision,seq,gbs_seqs,software,tp,step_time_s\n\
         own,{},{ranks},,bf16,{},{},,{},{seconds:.6}\n",
        cluster.accelerator.value,
        profile.sequence.map_or(String::new(), |tokens| tokens.to_string()),
        profile.batch.map_or(String::new(), |samples| samples.to_string()),
        cluster.tp.value
    );
    draft.files.push(DraftFile { name: "runs.csv", text });
    let why = format!(
        "{} of {}; fill in the empty columns, then: lightloom mfu --runs runs.csv",
        profile.step_rule.unwrap_or("the median step"),
        profile.place
    );
    let confidence = match profile.step_rule {
        Some(_) => GuessConfidence::Derived,
        None => GuessConfidence::Stated,
    };
    let value = format!("{seconds:.6}");
    draft.guesses.push(Guess { file: "runs.csv", key: "step_time_s", value, confidence, why });
}

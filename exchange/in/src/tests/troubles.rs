// SPDX-License-Identifier: Apache-2.0

use super::{SACCT, TOPOLOGY, logs, problems};

/// Each host fails at its hour on 4 March 2026 and is healthy an hour later.
fn health(faults: &[(&str, u32)]) -> String {
    let event = |host: &str, hour: u32, word: &str| {
        format!(
            "{{\"nodeName\": \"{host}\", \"checkName\": \"c\", \"{word}\": true, \"generatedTimestamp\": \"2026-03-04T{hour:02}:00:00Z\"}}\n"
        )
    };
    let both = |(host, hour): &(&str, u32)| {
        event(host, *hour, "isFatal") + &event(host, hour + 1, "isHealthy")
    };
    faults.iter().map(both).collect()
}

fn has(logs: &crate::Logs, wanted: &str) {
    let all = problems(logs).join("\n");
    assert!(all.contains(wanted), "{wanted}\n--\n{all}");
}

#[test]
fn names_logs_of_another_cluster_and_keeps_their_rates() {
    let logs =
        logs(&[("topology.conf", TOPOLOGY), ("health", &health(&[("other1", 3), ("other2", 5)]))]);
    has(
        &logs,
        "health: none of the 2 hosts (other1, …) is in topology.conf: logs of different clusters; fault rates and durations",
    );
    assert_eq!(logs.outages.len(), 2);
}

#[test]
fn omits_faults_of_hosts_missing_from_the_topology() {
    let logs =
        logs(&[("topology.conf", TOPOLOGY), ("health", &health(&[("gpu001", 3), ("gpu099", 5)]))]);
    has(&logs, "health:3: host gpu099 is not in topology.conf; its faults are omitted");
    assert_eq!(logs.outages.len(), 1);
}

#[test]
fn detects_clock_offsets_from_faults_in_both_logs() {
    let dead = |id: u32, hour: u32, host: &str| {
        format!("{id}|NODE_FAIL|2026-03-01T00:00:00|2026-03-04T{hour:02}:00:00|1|{host}\n")
    };
    let jobs = "JobID|State|Start|End|NNodes|NodeList\n".to_owned()
        + &dead(1, 13, "gpu001")
        + &dead(2, 15, "gpu002")
        + &dead(3, 17, "gpu003");
    let seen = health(&[("gpu001", 5), ("gpu002", 7), ("gpu003", 9)]);
    let logs = logs(&[("health", &seen), ("jobs", &jobs)]);
    has(
        &logs,
        "faults are 480 min before those of jobs on the same hosts: the clocks differ; outage durations are correct",
    );
    let same = health(&[("gpu001", 13), ("gpu002", 15), ("gpu003", 17)]);
    let logs = super::logs(&[("health", &same), ("jobs", &jobs)]);
    assert!(
        !problems(&logs).iter().any(|line| line.contains("clocks differ")),
        "{:?}",
        problems(&logs)
    );
}

#[test]
fn names_jobs_longer_than_the_trace_or_larger_than_the_cluster() {
    let jobs = "JobID|State|Start|End|NNodes|NodeList|AllocTRES\n\
                7|COMPLETED|2026-03-04T00:00:00Z|2026-04-13T00:00:00Z|2|gpu[001-002]|gres/gpu=64\n";
    let nodes = "{\"kind\": \"Node\", \"metadata\": {\"name\": \"gpu001\", \"labels\": {\"fabric.topograph.run/tier-0\": \"l\"}}, \
                 \"status\": {\"capacity\": {\"nvidia.com/gpu\": \"8\"}}}\n\
                 {\"kind\": \"Node\", \"metadata\": {\"name\": \"gpu002\", \"labels\": {}}, \"status\": {\"capacity\": {\"nvidia.com/gpu\": \"8\"}}}";
    let logs = logs(&[("health", &health(&[("gpu001", 3)])), ("jobs", jobs), ("nodes", nodes)]);
    has(
        &logs,
        "jobs:2: job 7 uses 64 GPUs, but the topology contains only 16; the drafted job uses the existing GPUs",
    );
    let alone = "JobID|State|Start|End|NNodes|NodeList|AllocTRES\n\
                 7|COMPLETED|2026-01-01T00:00:00Z|2026-02-10T00:00:00Z|2|gpu[001-002]|gres/gpu=16\n";
    let logs = super::logs(&[("health", &health(&[("gpu001", 3)])), ("jobs", alone)]);
    has(
        &logs,
        "jobs:2: job 7 ran for 40.0 days, but faults are logged for only 0.0; the fault rate refers to the logged time",
    );
    has(
        &logs,
        "health: the period is 2026-03-04 03:00 to 2026-03-04 04:00, but jobs covers 2026-01-01 00:00 to 2026-02-10 00:00",
    );
}

#[test]
fn locates_unreadable_records_and_keeps_the_others() {
    let jobs = SACCT
        .replace("2026-03-05T02:00:00", "soon")
        .replace("2026-03-11T09:00:00", "2026-03-01T09:00:00");
    let found = logs(&[("jobs", &jobs)]);
    has(&found, "jobs:4: the end is 259200 s before the start; only this record is skipped");
    has(&found, "jobs:5: `soon` is not a time");
    has(&found, "jobs:1: the timestamps have no time zone");
    assert_eq!(found.jobs.len(), 2);

    let broken = "{\"nodeName\": \"a\", \"checkName\": \"c\"}\n{\"nodeName\": x}\n";
    has(&logs(&[("health", broken)]), "health:2: not JSON from here on");
    has(&logs(&[("t", "SwitchName=a Nodes=n[1-\n")]), "t:1: `n[1-` has no closing bracket");
    has(
        &logs(&[("t", "SwitchName=s Switches=a,b\nSwitchName=a Nodes=n1\n")]),
        "t:1: switch b is referenced but not defined",
    );
    let twice = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n";
    has(&logs(&[("t", twice)]), "t:2: host n1 is attached to both a and b; a is used");
    has(
        &logs(&[("j", "JobID|State\n1|COMPLETED\n")]),
        "j:1: no column `start`; the file is skipped: add",
    );
    let nameless =
        "JobID|State|Start|End|NNodes|NodeList\n1|NODE_FAIL|1772359200|1772362800|2|a[1-2]\n";
    let found = logs(&[("j", nameless)]);
    has(
        &found,
        "j: jobs ended by the failure of an unnamed node: 1; each is assigned to a host of the job",
    );
    assert_eq!(found.outages[0].host, "a1");
}

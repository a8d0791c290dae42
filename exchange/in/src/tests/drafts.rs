// SPDX-License-Identifier: Apache-2.0
//! Checks that drafts load and that each value in them states its origin.

use lightloom_fabric::trace::{FaultTrace, Observation};

use super::{SACCT, TOPOLOGY, logs};
use crate::{Draft, GuessConfidence};

fn draft(logs: &crate::Logs) -> Draft {
    crate::draft(logs, &|file| format!("../{file}"))
}

fn text<'d>(draft: &'d Draft, name: &str) -> &'d str {
    &draft.files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}")).text
}

fn value<'d>(draft: &'d Draft, file: &str, key: &str) -> (&'d str, GuessConfidence) {
    let is = |guess: &&crate::Guess| guess.file == file && guess.key == key;
    let guess = draft.guesses.iter().find(is).unwrap_or_else(|| panic!("no {file} {key}"));
    (&guess.value, guess.confidence)
}

#[test]
fn drafts_cluster_job_and_fault_trace_from_logs() {
    let draft = draft(&logs(&[("topology.conf", TOPOLOGY), ("jobs", SACCT)]));
    let fabric = "fabric.yaml";
    assert_eq!(value(&draft, fabric, "hbd.switch.nodes"), ("8", GuessConfidence::Stated));
    assert_eq!(value(&draft, fabric, "hbd.switch.gpus_per_node"), ("8", GuessConfidence::Derived));
    assert_eq!(value(&draft, fabric, "dcn.fat_tree.nodes_per_tor"), ("4", GuessConfidence::Stated));
    assert_eq!(
        value(&draft, fabric, "dcn.fat_tree.tors_per_domain"),
        ("2", GuessConfidence::Stated)
    );
    assert_eq!(value(&draft, fabric, "dcn.fat_tree.link_rate").1, GuessConfidence::Assumed);
    assert_eq!(value(&draft, fabric, "jobs[0].name"), ("pretrain-70b", GuessConfidence::Stated));
    assert_eq!(value(&draft, fabric, "jobs[0].gpus"), ("48", GuessConfidence::Stated));

    let trace =
        FaultTrace::read(text(&draft, "fault-trace.json").as_bytes(), Observation::default());
    let trace = trace.unwrap();
    assert_eq!((trace.servers, trace.gpus_per_server, trace.faults.len()), (8, 8, 1));
    // From 1 March, 0:00: the host is out of service from 4 March, 6:00, for 18 hours.
    assert_eq!(trace.faults[0].start.as_days(), 3.25);
    assert_eq!(trace.faults[0].end.as_days(), 4.0);
    assert_eq!(trace.names, ["gpu003"]);
    assert_eq!(trace.window.as_days(), 11.0);
}

/// `--hostnames` reads this file; hosts of a switch are next to each other, and numbers are in order.
#[test]
fn drafts_the_names_of_nodes_in_the_order_of_switches() {
    let topology = "SwitchName=b Nodes=gpu[1-2]\nSwitchName=a Nodes=gpu[9-10]\n";
    let draft = draft(&logs(&[("topology.conf", topology)]));
    let names: Vec<&str> =
        text(&draft, "hostnames.txt").lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(names, ["n0 gpu9", "n1 gpu10", "n2 gpu1", "n3 gpu2"]);
}

/// The keys are those of MLPerf Training 3.1 and 5.1.
#[test]
fn drafts_a_measured_step_from_an_mlperf_log() {
    let head = ":::MLLOG {\"key\": \"submission_platform\", \"value\": \"4xNVIDIA DGX H100\"}\n\
        :::MLLOG {\"key\": \"global_batch_size\", \"value\": 512}\n";
    let stat = |stats: &str| {
        format!("0: :::MLLOG {{\"key\": \"tracked_stats\", \"value\": {{{stats}}}}} more\n")
    };
    let times =
        ["90.0", "2.0", "3.0", "2.5"].map(|time| stat(&format!("\"train_step_time\": {time}")));
    let rates = ["1.0", "256.0"].map(|rate| stat(&format!("\"throughput\": {rate}")));
    for (stats, seconds, confidence) in [
        (times.concat(), "2.500000", GuessConfidence::Stated),
        (rates.concat(), "2.000000", GuessConfidence::Derived),
    ] {
        let draft = draft(&logs(&[("result_0.txt", &format!("{head}{stats}"))]));
        assert_eq!(value(&draft, "runs.csv", "step_time_s"), (seconds, confidence));
        let row = text(&draft, "runs.csv").lines().nth(1).unwrap();
        assert!(row.starts_with("own,h100,32,,bf16,,512,,"), "{row}");
    }
}

#[test]
fn each_guess_is_a_comment_in_its_file() {
    let draft = draft(&logs(&[("topology.conf", TOPOLOGY), ("jobs", SACCT)]));
    for guess in draft.guesses.iter().filter(|guess| guess.file.ends_with(".yaml")) {
        let line =
            format!("# {}: {}, {}: {}\n", guess.key, guess.value, guess.confidence, guess.why);
        assert!(text(&draft, guess.file).contains(&line), "{line}");
    }
}

#[test]
fn every_drafted_fabric_loads_and_plans() {
    let one_gpu = SACCT
        .replace("gpu=48", "gpu=6")
        .replace("gpu:h100=48", "gpu:h100=6")
        .replace("gpu=8", "gpu=1");
    let blocks = "BlockName=b1 Nodes=gpu[001-003]\nBlockName=b2 Nodes=gpu[004-006]\nBlockName=b3 Nodes=gpu007\n";
    for files in [
        vec![],
        vec![("t", TOPOLOGY)],
        vec![("j", SACCT)],
        vec![("t", TOPOLOGY), ("j", &*one_gpu)],
        vec![("t", blocks), ("j", SACCT)],
    ] {
        let draft = draft(&logs(&files));
        let (fabric, mistakes) =
            lightloom_fabric::file::load("fabric.yaml", text(&draft, "fabric.yaml").as_bytes());
        let fabric =
            fabric.unwrap_or_else(|| panic!("{mistakes:?}\n{}", text(&draft, "fabric.yaml")));
        let none = lightloom_fabric::fault::FaultSet::none();
        let plan =
            lightloom_planner::plan(&fabric, &none, lightloom_planner::Options::default()).unwrap();
        assert!(plan.metrics.gpus_used > 0);
    }
}

/// Other months determine the mix of jobs; the logs with the most faults determine the period.
#[test]
fn job_table_of_another_year_does_not_stretch_the_fault_trace() {
    let acme = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n\
                1,u1,2,16,256,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:10:00+08:00,2023-03-02 00:10:00+08:00,86400,600,1.0\n";
    let rows: String = (2..9)
        .map(|id| acme.lines().nth(1).unwrap().replacen('1', &id.to_string(), 1) + "\n")
        .collect();
    let draft =
        draft(&logs(&[("acme.csv", &(acme.to_owned() + &rows)), ("jobs", SACCT), ("t", TOPOLOGY)]));
    assert_eq!(value(&draft, "fault-trace.json", "days"), ("11", GuessConfidence::Derived));
    let buy = text(&draft, "buy.yaml");
    assert!(buy.contains("{name: size-1, gpus: 16, days: 1.000, every_days: 0.125}"), "{buy}");
}

/// The steps of this public profile, read by hand, take 222.4, 219.7 and 224.9 ms.
#[test]
fn reads_the_middle_step_of_the_public_profile() {
    let packed = std::path::Path::new("../../../shared/data/traces/kineto_nccl_2gpu.json.gz");
    let Ok(output) = std::process::Command::new("gzip").arg("-dc").arg(packed).output() else {
        return;
    };
    if !output.status.success() {
        #[expect(clippy::print_stdout, reason = "a skipped test says so")]
        {
            println!("skipped: no ../shared/data");
        }
        return;
    }
    let files = [crate::LogFile { name: "rank0.json", bytes: &output.stdout }];
    let logs = crate::read(&files);
    let profile = &logs.profiles[0];
    let step = profile.step_seconds.unwrap();
    assert!((step - 0.222_442_191).abs() < 1e-9, "{step}");
    assert_eq!(profile.world, Some(2));
    // The gradients of three steps, and a broadcast.
    assert_eq!(profile.exchanged.keys().copied().collect::<Vec<_>>(), [2]);
    let draft = draft(&logs);
    assert!(
        text(&draft, "runs.csv").ends_with("own,a100,2,,bf16,,,,2,0.222442\n"),
        "{}",
        text(&draft, "runs.csv")
    );
}

#[test]
fn drafts_a_step_from_a_complete_set_of_profiles() {
    let profile = |rank: u32| {
        format!(
            "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"rank\": {rank}, \"world_size\": 2}}, \"traceEvents\": [{{\"ph\": \"X\", \"cat\": \"kernel\", \
             \"name\": \"gemm\", \"tid\": 7, \"ts\": 0, \"dur\": 100}}]}}"
        )
    };
    let (a, b) = (profile(0), profile(1));
    let both = draft(&logs(&[("r0.json", &a), ("r1.json", &b)]));
    let step = text(&both, "step.yaml");
    assert!(step.contains("recorded: [\"../r0.json\", \"../r1.json\"]"), "{step}");
    assert!(step.contains("hosts: [n0/g0, n0/g1]"), "{step}");
    let alone = draft(&logs(&[("r0.json", &a)]));
    assert!(alone.files.iter().all(|file| file.name != "step.yaml"));
}

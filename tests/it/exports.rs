// SPDX-License-Identifier: Apache-2.0
//! Reads exports with the programs that they are made for, and skips programs that are not
//! installed; `.ci/run` installs those that are available as packages.

use crate::consumers;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use consumers::consumer;
use serde_json::Value;

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn shipped(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("topologies").join(name).display().to_string()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

fn plan(folder: &Path, fabric: &str, more: &[&str]) {
    let made = lightloom(folder, &[&["plan", fabric, "-o", "plan.json"], more].concat());
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
}

fn export(folder: &Path, fabric: &str, more: &[&str]) -> Output {
    lightloom(folder, &[&["export", "plan.json", "--fabric", fabric, "--to"], more].concat())
}

fn exported(folder: &Path, fabric: &str, more: &[&str]) -> String {
    let output = export(folder, fabric, more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn export_writes_format_to_stdout_and_losses_to_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    plan(folder.path(), &fabric, &["--fault", "n17,n42"]);
    let output = export(folder.path(), &fabric, &["slurm", "--hostname", "gpu{:04}"]);
    assert!(text(&output.stdout).contains("nodes: \"gpu[0000,"), "{}", text(&output.stdout));
    let lost = text(&output.stderr);
    assert!(
        lost.contains("note: slurm cannot express the neighbours of a node in its ring"),
        "{lost}"
    );
    assert!(lost.contains("failed nodes (2)"), "{lost}");
    assert_eq!(
        output.stdout,
        export(folder.path(), &fabric, &["slurm", "--hostname", "gpu{:04}"]).stdout,
        "the same plan gives the same bytes"
    );

    let json = export(folder.path(), &fabric, &["slurm", "--format", "json", "-o", "t.yaml"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["files"][0]["path"], "t.yaml");
    assert!(json["lost"].as_array().is_some_and(|lost| !lost.is_empty()));
}

#[test]
fn unsupported_export_names_a_suitable_format() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    plan(folder.path(), &fabric, &[]);
    let refused = |more: &[&str]| {
        let output = export(folder.path(), &fabric, more);
        assert!(output.stdout.is_empty(), "a failure prints no result");
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, message) = refused(&["sonic-ocs"]);
    assert!(code == Some(1) && message.contains("this fabric contains none"), "{message}");
    assert!(message.contains("use one of: slurm, slurm-ring, slurm-tree, topograph"), "{message}");
    let (code, message) = refused(&["slurm", "--hostname", "gpu"]);
    assert!(code == Some(1) && message.contains("`{:04}`"), "{message}");
    let (code, message) = refused(&["slurm", "--job", "x"]);
    assert!(code == Some(1) && message.contains("unknown job `x`; the plan contains"), "{message}");
    let (code, message) = refused(&["slurm", "--phase", "x"]);
    assert!(code == Some(2) && message.contains("has no phases"), "{message}");
    let (code, message) = refused(&["slrum"]);
    assert!(code == Some(2) && message.contains("a similar value exists: 'slurm'"), "{message}");

    let other = export(folder.path(), &shipped("ring-32.yaml"), &["dot"]);
    assert!(text(&other.stderr).contains("the plan is for fabric"), "{}", text(&other.stderr));
    let other = export(folder.path(), &shipped("rfabric-shapes.yaml"), &["dot"]);
    assert!(text(&other.stderr).contains("the plan is for fabric"), "{}", text(&other.stderr));
}

#[test]
fn rings_without_circuits_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("job-64-circuits.yaml");
    plan(folder.path(), &fabric, &[]);
    let note = "cannot express the optical circuits of micro-batches, gradients: ";
    for (format, fix) in
        [("dot", "select a phase (`--phase micro-batches`)"), ("slurm", "`sonic-ocs` can")]
    {
        let output = export(folder.path(), &fabric, &[format]);
        let notes = text(&output.stderr);
        assert!(notes.contains(&format!("{format} {note}{fix}")), "{notes}");
    }
}

#[test]
fn each_switch_gets_a_file_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("rfabric-shapes.yaml");
    plan(folder.path(), &fabric, &[]);
    let output = export(folder.path(), &fabric, &["sonic-ocs"]);
    assert!(text(&output.stderr).contains("set their folder"), "{}", text(&output.stderr));
    let written = exported(folder.path(), &fabric, &["sonic-ocs", "-o", "switches"]);
    assert_eq!(written.lines().next(), Some("switches/ocs0.json"));
    for path in written.lines() {
        let config: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join(path)).unwrap()).unwrap();
        assert!(config["OCS_CROSS_CONNECT"].is_object(), "{path}");
    }
}

const SMALL: &str = "kind: fabric
version: 2
name: small
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 2, shape: line}}
jobs: [{name: a, gpus: 16, tp: 8}, {name: b, gpus: all, tp: 16}]
";

fn small_plan(folder: &Path) -> Value {
    std::fs::write(folder.join("small.yaml"), SMALL).unwrap();
    plan(folder, "small.yaml", &["--fault", "n3,n10/b1"]);
    serde_json::from_slice(&std::fs::read(folder.join("plan.json")).unwrap()).unwrap()
}

fn circuits(plan: &Value) -> Vec<(String, String)> {
    let end = |circuit: &Value, end: &str| circuit[end].as_str().unwrap().to_owned();
    let circuits = plan["circuits"].as_array().unwrap();
    let mut pairs: Vec<_> = circuits.iter().map(|c| (end(c, "a"), end(c, "b"))).collect();
    pairs.sort();
    pairs
}

#[test]
fn graphviz_reads_the_rings_and_the_lit_fibres() {
    let folder = tempfile::tempdir().unwrap();
    let plan = small_plan(folder.path());
    exported(folder.path(), "small.yaml", &["dot", "-o", "plan.dot"]);
    let graph = ["dot", "-Tdot_json", "plan.dot"];
    let Some(read) = consumer("dot", &["dot", "-V"], &graph, folder.path()) else { return };
    let read: Value = serde_json::from_str(&read).unwrap();
    let objects = read["objects"].as_array().unwrap();
    let mut rings: Vec<Vec<&str>> = objects
        .iter()
        .filter_map(|object| object["nodes"].as_array())
        .map(|nodes| {
            let mut names: Vec<&str> = nodes
                .iter()
                .map(|node| objects[node.as_u64().unwrap() as usize]["name"].as_str().unwrap())
                .collect();
            names.sort_unstable();
            names
        })
        .collect();
    rings.sort();
    let groups = plan["groups"].as_array().unwrap();
    let mut planned: Vec<Vec<&str>> = groups
        .iter()
        .map(|group| {
            let nodes = group["nodes"].as_array().unwrap();
            let mut names: Vec<&str> = nodes.iter().map(|node| node.as_str().unwrap()).collect();
            names.sort_unstable();
            names
        })
        .collect();
    planned.sort();
    assert_eq!(rings, planned);
    let edges = read["edges"].as_array().unwrap().iter();
    let end = |edge: &Value, end: &str| edge[end].as_str().unwrap().to_owned();
    let mut lit: Vec<_> = edges.map(|edge| (end(edge, "a"), end(edge, "b"))).collect();
    lit.sort();
    assert_eq!(lit, circuits(&plan));

    let fabric = shipped("rfabric-shapes.yaml");
    self::plan(folder.path(), &fabric, &[]);
    exported(folder.path(), &fabric, &["dot", "-o", "phases.dot"]);
    let picture = ["dot", "-Tsvg", "phases.dot"];
    let svg = consumer("dot", &["dot", "-V"], &picture, folder.path()).unwrap();
    assert_eq!(svg.matches("class=\"node\"").count(), 16);
}

#[test]
fn dot_lists_the_cables_of_a_dragonfly() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("dragonfly-72.yaml");
    plan(folder.path(), &fabric, &[]);
    let dot = exported(folder.path(), &fabric, &["dot"]);
    assert_eq!(dot.matches(" -- ").count(), 72 + 90);
}

#[test]
fn infragraph_reads_lit_fibres_and_init_imports_them() {
    let folder = tempfile::tempdir().unwrap();
    let plan = small_plan(folder.path());
    std::fs::create_dir(folder.path().join("logs")).unwrap();
    exported(folder.path(), "small.yaml", &["infragraph", "-o", "logs/infra.yaml"]);
    let program = "import json, yaml, warnings
warnings.simplefilter('ignore')
from infragraph.infragraph_service import InfraGraphService
service = InfraGraphService()
service.set_graph(json.dumps(yaml.safe_load(open('logs/infra.yaml'))))
graph = service.get_networkx_graph()
lit = [sorted([a, b]) for a, b, data in graph.edges(data=True) if data.get('link') == 'lit']
cards = sum(1 for node in graph if '.nic.' in node and any(other.startswith('t.') for other in graph[node]))
print(json.dumps({'lit': lit, 'gpus': sum('.gpu.' in node for node in graph), 'cards': cards}))";
    let probe = ["python3", "-c", "import infragraph"];
    let Some(read) = consumer("infragraph", &probe, &["python3", "-c", program], folder.path())
    else {
        return;
    };
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!((&read["gpus"], &read["cards"]), (&96.into(), &96.into()));
    let node = |port: &str| port.split_once('/').unwrap().0.replace('n', "n.");
    let mut lit: Vec<[String; 2]> = serde_json::from_value(read["lit"].clone()).unwrap();
    for ends in &mut lit {
        *ends = ends.each_ref().map(|end| end.rsplitn(3, '.').last().unwrap().to_owned());
        ends.sort();
    }
    let mut wanted: Vec<[String; 2]> =
        circuits(&plan).iter().map(|(a, b)| [node(a), node(b)]).collect();
    wanted.iter_mut().for_each(|ends| ends.sort());
    lit.sort();
    wanted.sort();
    assert_eq!(lit, wanted);
    let made = lightloom(folder.path(), &["init", "--from", "logs", "-o", "mine"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let fabric = std::fs::read_to_string(folder.path().join("mine/fabric.yaml")).unwrap();
    assert!(fabric.contains("nodes: 24, gpus_per_node: 4"), "{fabric}");
    assert!(fabric.contains("nodes_per_tor: 4"), "{fabric}");
}

/// Regression: GPUs with only a network card got 400 GB/s, and a domain became a ring.
#[test]
fn astra_sim_gets_the_links_of_the_fabric() {
    let folder = tempfile::tempdir().unwrap();
    for (hbd, wanted) in [
        ("none: {nodes: 16, gpus_per_node: 8}", ["[ Switch ]", "[ 128 ]", "[ 50.0 ]"]),
        (
            "switch: {nodes: 16, gpus_per_node: 8, gpus: 64}",
            ["[ Switch, Switch ]", "[ 8, 16 ]", "[ 800.0, 50.0 ]"],
        ),
        (
            "khop: {nodes: 16, gpus_per_node: 8, k: 2}",
            ["[ Ring, Switch ]", "[ 8, 16 ]", "[ 400.0, 50.0 ]"],
        ),
    ] {
        let fabric = format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{{hbd}}}\n\
             dcn: {{fat_tree: {{nodes_per_tor: 4}}}}\njobs: [{{name: a, gpus: 128, tp: 8}}]\n"
        );
        std::fs::write(folder.path().join("x.yaml"), &fabric).unwrap();
        plan(folder.path(), "x.yaml", &[]);
        let network = exported(folder.path(), "x.yaml", &["astra-sim"]);
        for text in wanted {
            assert!(network.contains(text), "{hbd}: {network}");
        }
    }
}

#[test]
fn kubernetes_accepts_the_node_labels() {
    let folder = tempfile::tempdir().unwrap();
    small_plan(folder.path());
    let labels = exported(folder.path(), "small.yaml", &["kubernetes"]);
    std::fs::write(folder.path().join("labels.yaml"), &labels).unwrap();
    let probe = ["python3", "-m", "kubernetes_validate", "--version"];
    let check = ["python3", "-m", "kubernetes_validate", "--strict", "labels.yaml"];
    let name = "kubernetes-validate";
    let Some(read) = consumer(name, &probe, &check, folder.path()) else { return };
    assert_eq!(read.matches("passed for resource node/").count(), 24, "{read}");

    let broken = labels.replacen("  labels:", "  lables:", 1);
    std::fs::write(folder.path().join("labels.yaml"), broken).unwrap();
    let refused = Command::new(check[0]).args(&check[1..]).current_dir(folder.path()).output();
    assert!(!refused.unwrap().status.success(), "it refuses what is no node");
}

/// The 720 nodes exist only in this file.
const SLURM_CONF: &str = "ClusterName=lightloom
SlurmctldHost=localhost(10.9.9.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=FOLDER/state
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmctldLogFile=FOLDER/slurmctld.log
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
TopologyPlugin=topology/tree
SwitchType=switch/none
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
NodeName=n[0-719] CPUs=4 RealMemory=1000 State=CLOUD
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
";

/// In a network namespace, the controller's port is free; without an address, its name would not
/// resolve.
const SLURM: &str =
    "ip link set lo up; ip addr add 10.9.9.1/32 dev lo; export SLURM_CONF=$PWD/slurm.conf
slurmctld -D -c 2> errors & CONTROLLER=$!
for _ in $(seq 100); do scontrol ping 2> /dev/null | grep -q UP && break; sleep 0.1; done
JOBS
kill $CONTROLLER; wait $CONTROLLER";

pub(crate) fn hosts(list: &str) -> BTreeSet<u32> {
    let numbers = list.trim_start_matches('n').trim_matches(['[', ']']);
    let ranges = numbers.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| first.parse::<u32>().unwrap()..=last.parse().unwrap()).collect()
}

/// Starts slurmctld in a network namespace with the plan of a ring with faults, and returns the nodes for each
/// `srun`. `None` without Slurm.
fn slurm_places(prefix: &str, format: &str, name: &str, jobs: &[&str]) -> Option<SlurmPlaces> {
    let folder = tempfile::tempdir().unwrap();
    let fabric = shipped("ring-2880.yaml");
    plan(folder.path(), &fabric, &["--fault", "n17,n42"]);
    let topology = exported(folder.path(), &fabric, &[format]);
    std::fs::write(folder.path().join(name), &topology).unwrap();
    let mut own = SLURM_CONF.replace("FOLDER", &folder.path().display().to_string());
    if name == "topology.yaml" {
        own = own.replace("TopologyPlugin=topology/tree\nSwitchType=switch/none\n", "");
    }
    if format == "slurm-ring" {
        own += "PartitionName=rings Nodes=ALL MaxTime=INFINITE State=UP Topology=tp32-ring\n";
    }
    std::fs::write(folder.path().join("slurm.conf"), own).unwrap();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    let paths = format!(
        "export PATH={prefix}/sbin:{prefix}/bin:$PATH; export LD_LIBRARY_PATH={prefix}/lib:{prefix}/lib/slurm"
    );
    let paths = if prefix.is_empty() { String::new() } else { paths };
    let probe =
        format!("{paths}\nslurmctld -V && command -v srun && test $(id -u) = 0 && unshare -n true");
    // The controller is killed by a signal, so its status is not checked.
    let probed = consumer("slurmctld as root", &["sh", "-c", &probe], &["true"], folder.path())?;
    assert!(probed.is_empty());
    let asked: String = jobs
        .iter()
        .map(|job| format!("srun --test-only --exclusive {job} true 2>&1 || true; echo END\n"))
        .collect();
    let script = format!("{paths}\n{}", SLURM.replace("JOBS", &asked));
    let run = ["60", "unshare", "-n", "bash", "-c", &script];
    let output = Command::new("timeout").args(run).current_dir(folder.path()).output().unwrap();
    let said = text(&output.stdout).to_owned();
    let place = |answer: &str| {
        let rest = answer.split(" on nodes ").nth(1)?;
        Some(hosts(rest.split(' ').next().unwrap()))
    };
    let places: Vec<Option<BTreeSet<u32>>> =
        said.split("END\n").take(jobs.len()).map(place).collect();
    assert_eq!(places.len(), jobs.len(), "{said}{}", text(&output.stderr));
    let nodes = |line: &str| {
        let list = line.split(" Nodes=").nth(1).or_else(|| line.trim().strip_prefix("nodes: "))?;
        Some(hosts(list.trim_matches('"')))
    };
    let rings = topology.lines().filter_map(nodes);
    let rings = rings.filter(|ring| ring.len() == 8).collect();
    Some(SlurmPlaces { places, rings, said })
}

struct SlurmPlaces {
    places: Vec<Option<BTreeSet<u32>>>,
    rings: BTreeSet<BTreeSet<u32>>,
    said: String,
}

impl SlurmPlaces {
    fn are_whole_rings(&self, rings: &[usize]) {
        for (place, whole) in self.places.iter().zip(rings) {
            let place = place.as_ref().unwrap_or_else(|| panic!("no place: {}", self.said));
            let inside = self.rings.iter().filter(|ring| ring.is_subset(place)).count();
            assert_eq!((inside, place.len()), (*whole, 8 * whole), "{place:?}: {}", self.said);
        }
    }
}

#[test]
fn slurmctld_places_jobs_on_whole_rings() {
    let jobs = ["-N8", "-N8 --switches=1", "-N64"];
    let Some(found) = slurm_places("", "slurm-tree", "topology.conf", &jobs) else { return };
    found.are_whole_rings(&[1, 1, 8]);
}

/// Needs Slurm 25.05 or later in `LIGHTLOOM_SLURM`; Debian 12 has no package.
#[test]
fn newer_slurm_places_jobs_on_whole_rings() {
    let Ok(prefix) = std::env::var("LIGHTLOOM_SLURM") else {
        eprintln!("skipped: no LIGHTLOOM_SLURM, the folder of a Slurm of 25.05 or later");
        return;
    };
    let jobs = ["-N8", "-N64", "-N8 --segment=8"];
    let found = slurm_places(&prefix, "slurm", "topology.yaml", &jobs).unwrap();
    found.are_whole_rings(&[1, 8, 1]);
    let jobs = ["-p rings -N8", "-p rings -N9", "-N64"];
    let found = slurm_places(&prefix, "slurm-ring", "topology.yaml", &jobs).unwrap();
    assert!(found.places[1].is_none(), "nine nodes are no ring: {}", found.said);
    let [one, _, eight] = found.places.clone().try_into().unwrap();
    SlurmPlaces { places: vec![one, eight], ..found }.are_whole_rings(&[1, 8]);
}

/// Open MPI starts its daemons with this script, here locally under each host's name, with separate temporary
/// files, because the daemons would otherwise share a session.
const START_HERE: &str =
    "#!/bin/sh\nexport ON_HOST=$1 TMPDIR=$PWD/$1; shift\nmkdir -p $TMPDIR\nexec sh -c \"$*\"\n";

/// Each rank runs on its planned host and GPU slot, even after a bypass.
#[test]
fn open_mpi_starts_every_rank_on_its_planned_host() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = "kind: fabric\nversion: 2\nname: two\nhbd: {khop: {nodes: 12, gpus_per_node: 2, k: 2}}\n\
                  jobs: [{name: a, gpus: 16, tp: 8}]\n";
    std::fs::write(folder.path().join("two.yaml"), fabric).unwrap();
    plan(folder.path(), "two.yaml", &[]);
    let arguments =
        ["replan", "plan.json", "--fabric", "two.yaml", "--fault", "n1", "-o", "p.json"];
    let replanned = lightloom(folder.path(), &arguments);
    assert_eq!(replanned.status.code(), Some(0), "{}", text(&replanned.stderr));
    std::fs::rename(folder.path().join("p.json"), folder.path().join("plan.json")).unwrap();
    exported(folder.path(), "two.yaml", &["ranks", "-o", "ranks"]);
    std::fs::write(folder.path().join("here"), START_HERE).unwrap();

    let probe = ["sh", "-c", "chmod +x here 2> /dev/null; mpirun --version && test $(nproc) -ge 2"];
    let run = "timeout 60 mpirun --allow-run-as-root --mca plm rsh --mca plm_rsh_agent $PWD/here \
               --hostfile ranks/hostfile --rankfile ranks/rankfile -np 16 sh -c \
               'echo $OMPI_COMM_WORLD_RANK $ON_HOST $(taskset -cp $$ | sed s/.*:.//)'";
    let name = "mpirun with two processors";
    let Some(said) = consumer(name, &probe, &["sh", "-c", run], folder.path()) else { return };
    let mut started: Vec<(usize, &str)> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(rank, rest)| (rank.parse().unwrap(), rest))
        .collect();
    started.sort_unstable();
    let plan = std::fs::read(folder.path().join("plan.json")).unwrap();
    let plan: Value = serde_json::from_slice(&plan).unwrap();
    let mut planned: Vec<(usize, String)> = Vec::new();
    for rank in plan["ranks"].as_array().unwrap().iter().filter(|rank| rank["job"] == 0) {
        let number = |key: &str| rank[key].as_u64().unwrap() as usize;
        let (node, gpu) = rank["gpu"].as_str().unwrap().split_once("/g").unwrap();
        planned.push((number("dp") * 8 + number("tp"), format!("{node} {gpu}")));
    }
    planned.sort_unstable();
    assert!(planned.iter().all(|(_, place)| !place.starts_with("n1 ")), "n1 is bypassed");
    let planned: Vec<(usize, &str)> = planned.iter().map(|(rank, at)| (*rank, &**at)).collect();
    assert_eq!(started, planned);
}

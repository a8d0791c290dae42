// SPDX-License-Identifier: Apache-2.0
//! `lightloom twin`: namespaces come up, programs run in them, light moves links, and nothing is left behind.
//!
//! Skipped by name where the kernel makes no namespaces for this user.

use crate::programs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const FABRIC: &str = "kind: fabric\nversion: 2\nname: ring-17\n\
    hbd: {khop: {nodes: 17, gpus_per_node: 4, k: 2}}\njobs:\n  - {name: pretrain, gpus: 64, tp: 16}\n";

fn lightloom(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::lightloom());
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// A twin that ends with its test.
struct Twin {
    folder: tempfile::TempDir,
}

impl Twin {
    /// `None` where this machine allows none.
    fn up() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let twin = Self { folder };
        std::fs::write(twin.file("ring.yaml"), FABRIC).unwrap();
        let output = twin.run("up", &[&twin.file("ring.yaml")]);
        let said = text(&output.stderr);
        if said.contains("namespaces (") || said.contains("this kernel has no") {
            println!("skipped: {said}");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some(twin)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, verb: &str, rest: &[&str]) -> Output {
        let folder = self.file("twin");
        let mut arguments = vec!["twin", verb, "--dir", &folder];
        arguments.extend(rest);
        lightloom(&arguments).output().unwrap()
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("twin").join(name)).unwrap())
            .unwrap()
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.run("down", &[]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Processes whose arguments name this folder.
fn processes_of(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let named = commands.map(|command| text(&command)).filter(|command| command.contains(folder));
    named.collect()
}

#[test]
fn a_program_runs_in_every_node_with_its_name_its_log_and_its_status() {
    let Some(twin) = Twin::up() else { return };
    let script = "hostname; test $LIGHTLOOM_NODE != n3 || exit 7; grep -c : /proc/net/dev; grep n5-b1 /etc/hosts";
    let output = twin.run("exec", &["--all", "--name", "look", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("n3: exit status 7"), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("16 of 17 ended with status 0"));
    let said = std::fs::read_to_string(twin.file("twin/log/look/n5.out")).unwrap();
    assert_eq!(said, "n5\n4\n10.66.0.6 n5-b1\n", "its name, four interfaces and the hosts");
    assert_eq!(twin.run("exec", &["n2", "--", "sh", "-c", "exit 42"]).status.code(), Some(42));
    let late = twin.run("exec", &["n2", "--timeout", "300ms", "--", "sleep", "20"]);
    assert!(text(&late.stderr).contains("did not end within 0.3 s"), "{}", text(&late.stderr));
    let unknown = twin.run("exec", &["n17", "--", "true"]);
    assert!(text(&unknown.stderr).contains("write n0 to n16"), "{}", text(&unknown.stderr));
}

#[test]
fn nothing_is_left_behind_also_when_the_holder_is_killed() {
    let Some(twin) = Twin::up() else { return };
    let folder = twin.file("twin");
    let background = ["n1", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 &"];
    assert!(twin.run("exec", &background).status.success());
    assert!(twin.run("status", &[]).status.success());
    let again = twin.run("up", &[&twin.file("ring.yaml")]);
    assert!(text(&again.stderr).contains("there is a twin in"), "{}", text(&again.stderr));
    let init = twin.read("holder.json")["init"]["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &init]).status().unwrap().success());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !processes_of(&folder).is_empty() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(processes_of(&folder), Vec::<String>::new(), "all end with the first process");
    let ended = twin.run("exec", &["n1", "--", "true"]);
    assert!(text(&ended.stderr).contains("is not up"), "{}", text(&ended.stderr));
    let down = twin.run("down", &[]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(!Path::new(&folder).exists(), "files and ptys' links are gone");
}

#[test]
fn what_cannot_be_carried_is_said_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (ring, twin) = (at("ring.yaml"), at("twin"));
    std::fs::write(&ring, FABRIC).unwrap();
    let up = |rest: &[&str]| {
        let mut arguments = vec!["twin", "up", "--dir", &twin];
        arguments.extend(rest);
        let output = lightloom(&arguments).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    let said = up(&[&ring, "--nodes", "18"]);
    assert!(said.contains("ring-17 has 17 nodes: write --nodes 1 to 17"), "{said}");
    let said = up(&["topologies/rfabric-2048.yaml"]);
    assert!(said.contains("the twin takes fabrics with"), "{said}");
    assert!(!Path::new(&twin).exists(), "nothing was made");
    std::fs::create_dir(&twin).unwrap();
    std::fs::write(at("twin/state"), "of another program").unwrap();
    let said = up(&[&ring]);
    assert!(said.contains("name an empty folder with --dir"), "{said}");
    assert_eq!(std::fs::read_to_string(at("twin/state")).unwrap(), "of another program");
}

#[test]
fn a_ring_goes_on_around_a_node_that_died_with_light_that_the_daemon_moved() {
    let Some(twin) = Twin::up() else { return };
    let lab = programs::lightloom().with_file_name("lightloom-lab");
    let lab = lab.display().to_string();
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let ring = ["ring", "--steps", "150", "--size", "64KiB", "--pause", "10ms"];
            let mut arguments =
                vec!["--all", "--name", "ring", "--timeout", "60s", "--", &lab, "twin"];
            arguments.extend(ring);
            twin.run("exec", &arguments)
        });
        let log = twin.file("twin/log/ring/n4.out");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while std::fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 20 {
            assert!(std::time::Instant::now() < until, "n4 begins");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let fault = twin.run("fault", &["n4", "dead"]);
        assert!(fault.status.success(), "{}", text(&fault.stderr));
        let ended = job.join().unwrap();
        assert!(text(&ended.stdout).contains("16 of 17 ended"), "{}", text(&ended.stdout));
    });
    let ranks = twin.read("ranks.json");
    assert!(!ranks["groups"].to_string().contains("\"n4\""), "the ranks go around it: {ranks}");
    let report = twin.run("report", &["--name", "ring", "--format", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 4);
    assert!(groups.iter().all(|group| group["steps"] == 150), "no step is missing: {groups:?}");
    assert!(report["dark_ms"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["modelled"][0]["restored_ms"].as_f64().unwrap() > 0.0, "{report}");
    // What the job's own clock says is no less than what the kernel's work took.
    assert!(groups[0]["gap_ms"].as_f64().unwrap() >= report["rewired_ms"].as_f64().unwrap());
    let strict = ["--name", "ring", "--within", "1us", "--junit", &twin.file("twin.xml")];
    assert_eq!(twin.run("report", &strict).status.code(), Some(1));
    let junit = std::fs::read_to_string(twin.file("twin.xml")).unwrap();
    assert!(junit.contains("failures=\"4\"") && junit.contains("no step for"), "{junit}");
}

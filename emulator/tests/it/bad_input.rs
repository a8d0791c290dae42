// SPDX-License-Identifier: Apache-2.0
//! Bad scenarios: expectations about missing things are rejected, and every error of a file is
//! reported once, together and at its location.

use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_fabric::document::Diagnostic;

const FABRIC: &str = "
kind: fabric
version: 2
name: small
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
jobs: [{name: train, gpus: 64, tp: 16}]
";

const ON_FABRIC: &str = "name: bad
on: {fabric: fabric.yaml}
collectives:
  - all_reduce: {name: tensor, bytes: 64KiB}
";

const OF_TRAFFIC: &str = "name: bad
on: {leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 4}}
";

fn read(name: &str) -> Result<NamedFile, String> {
    Ok(NamedFile { name: name.to_owned(), bytes: FABRIC.as_bytes().to_vec() })
}

fn on_fabric(more: &str) -> Vec<Diagnostic> {
    scenario::file::load("s.yaml", format!("{ON_FABRIC}{more}").as_bytes(), &mut read).1
}

fn of_traffic(more: &str) -> Vec<Diagnostic> {
    scenario::file::load("t.yaml", format!("{OF_TRAFFIC}{more}").as_bytes(), &mut read).1
}

fn lines(mistakes: &[Diagnostic]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

fn require_idle(more: &str, wanted: &str, mistakes: &[Diagnostic]) {
    let [mistake] = mistakes else { panic!("{more}: {:?}", lines(mistakes)) };
    assert_eq!(mistake.code.id, "LL0309", "{more}: {mistake}");
    assert!(mistake.message.contains(wanted), "{more}: {mistake}");
    assert!(mistake.place.is_some() && mistake.help.is_some(), "{more}: {mistake}");
}

/// Regression test: the place was a fault that the scenario does not have.
#[test]
fn rejects_fault_in_another_file_without_the_shipped_daemon() {
    let faults = "faults: [{part: control, at: 1us, effect: {slow_disk: 50ms}}]\n";
    let mut read = |name: &str| match name {
        "faults.yaml" => Ok(NamedFile { name: name.to_owned(), bytes: faults.as_bytes().to_vec() }),
        _ => read(name),
    };
    let text = format!("{ON_FABRIC}faults: [{{part: n1, at: 1us}}]\nfaults_in: faults.yaml\n");
    let mistakes = scenario::file::load("s.yaml", text.as_bytes(), &mut read).1;
    let lines = lines(&mistakes);
    let found = lines.iter().find(|line| line.contains("requires the shipped daemon"));
    assert!(found.is_some_and(|line| line.contains("s.yaml:6:")), "{lines:?}");
}

#[test]
fn rejects_fabric_expectations_that_no_run_could_decide() {
    let fault = "faults: [{part: n4, at: 20us}]\n";
    let between = "  - data_parallel_all_reduce: {name: between, bytes: 64KiB, priority: 2}\n";
    for (more, wanted) in [
        ("expect: [group g0 unaffected]".to_owned(), "no fault occurs"),
        ("expect: [gpus_affected == 0]".to_owned(), "no fault occurs"),
        ("expect: [availability > 0.5]".to_owned(), "no fault occurs"),
        ("expect: [no drops]".to_owned(), "crosses a switch"),
        ("expect: [drops == 0]".to_owned(), "crosses a switch"),
        (
            format!("{between}switches: {{schedule: strict}}\nexpect: [no drops on priority 5]"),
            "no data is sent on priority 5",
        ),
        (format!("{fault}expect: [availability >= 0]"), "always true"),
        (format!("{fault}expect: [availability > 1]"), "never true"),
        (format!("{fault}expect: [waste_ratio < 1.5]"), "always true"),
        (format!("{fault}expect: [gpus_lost < 0]"), "never true"),
        (format!("{fault}expect: [gpus_lost == 1.5]"), "never true"),
        (
            "faults: [{part: n4, at: 20us, probability: 0}]\nexpect: [restored within 1ms]"
                .to_owned(),
            "no fault occurs",
        ),
        (
            "faults: [{part: control, at: 20us, lasts: 1ms}]\nexpect: [restored within 1ms]"
                .to_owned(),
            "requires restoration",
        ),
    ] {
        require_idle(&more, wanted, &on_fabric(&more));
    }
    let nan = on_fabric(&format!("{fault}expect: [availability > nan, goodput < inf]"));
    assert_eq!(nan.len(), 2, "{:?}", lines(&nan));
    assert!(nan.iter().all(|mistake| mistake.code.id == "LL0301"), "{:?}", lines(&nan));
    let good = format!(
        "{between}switches: {{schedule: strict}}\n{fault}expect: [no drops, no drops on priority 2, \
         availability > 0.5, restored within 1ms, drops == 0, group g0 unaffected]"
    );
    assert!(on_fabric(&good).is_empty(), "{:?}", lines(&on_fabric(&good)));
}

#[test]
fn rejects_traffic_expectations_that_no_run_could_decide() {
    let send = "traffic: [{name: a, run: permutation, bytes: 4KiB, priority: 3}]\n";
    let plain = "traffic: [{name: a, run: permutation, bytes: 4KiB}]\n";
    let lossless = "switches: {pause: {priorities: [3, 5], above: 64KiB}}\n";
    let fault = "faults: [{part: h3, at: 1us}]\n";
    for (more, wanted) in [
        (format!("{send}{lossless}expect: [no drops on priority 5]"), "data that crosses"),
        (format!("{plain}expect: [workload a unaffected]"), "no fault occurs"),
        (format!("{plain}expect: [goodput > 0.5]"), "no fault occurs"),
        (format!("{plain}expect: [restored within 1ms]"), "no fault occurs"),
        (
            format!(
                "traffic: [{{name: a, run: permutation, bytes: 4KiB}}, {{name: c, run: {{compute: 1us}}}}]\n\
                 {fault}expect: [workload c unaffected]"
            ),
            "has no flows",
        ),
    ] {
        let mistakes = of_traffic(&more);
        let wanted =
            if wanted == "data that crosses" { "no data is sent on priority 5" } else { wanted };
        require_idle(&more, wanted, &mistakes);
    }
    let ring = "name: bad\non: {ring: {hosts: 8}}\n";
    let text = format!("{ring}{plain}expect: [no drops]\n");
    require_idle(
        "ring",
        "crosses a switch",
        &scenario::file::load("t.yaml", text.as_bytes(), &mut read).1,
    );
}

#[test]
fn reports_unknown_names_together_with_all_other_mistakes() {
    let mistakes = of_traffic(
        "links: {delay: 0ns}
switches: {queue: 1KiB, pause: [9]}
transport: {timeout: 0ns, dcqcn: {timer: 0ns}, window_percent: many}
traffic:
  - {name: a, run: {incast: h390}, hosts: [h0..h7], bytes: 1KiB}
  - {name: b, run: permutation, hosts: [h0, h390], bytes: 1KiB, after: [q]}
  - {name: b, run: {shift: 0}, byte: 1KiB}
faults:
  - {part: h390, at: 1us}
  - {part: h0/nic5, at: 1us}
  - {part: h0, at: 1us, effect: {pause_storm: 3}}
  - {part: h0, at: 1us, effect: {bit_errors: 2}}
  - {part: h0, att: 1us}
expect: [no drops on priority 3, all is well, workload q unaffected]
",
    );
    let found = lines(&mistakes);
    for (place, what) in [
        ("t.yaml:3:16", "propagation delay"),
        ("t.yaml:4:19", "does not fit"),
        ("t.yaml:4:32", "expected"),
        ("t.yaml:5:22", "forever"),
        ("t.yaml:5:34", "is not selected"),
        ("t.yaml:5:64", "expected"),
        ("t.yaml:7:29", "h390"),
        ("t.yaml:8:45", "h390"),
        ("t.yaml:8:73", "`q`"),
        ("t.yaml:9:12", "another workload"),
        ("t.yaml:11:12", "h390"),
        ("t.yaml:12:12", "nic0"),
        ("t.yaml:14:33", "between 0 and"),
        ("t.yaml:9:28", "maps every host to itself"),
        ("t.yaml:9:32", "unknown key"),
        ("t.yaml:15:16", "unknown key"),
        ("t.yaml:16:34", "not an expectation"),
        ("t.yaml:16:47", "workload `q`"),
    ] {
        let is_it = |line: &&String| line.starts_with(place) && line.contains(what);
        assert_eq!(found.iter().filter(is_it).count(), 1, "{place} {what} in {found:#?}");
    }
    // The pause storm and the drop expectation depend on the unreadable `pause`, and the number of
    // hosts on a missing host, so these errors are not reported.
    assert_eq!(found.len(), 18, "{found:#?}");
}

#[test]
fn reports_parts_missing_from_the_fabric_with_all_other_mistakes() {
    let mistakes = on_fabric(
        "broken: [n3, n99]
faults:
  - {part: n390, at: 1us}
  - {part: n3/nic5, at: 1us, lasts: soon}
  - {part: n3/b0, at: 1us, effect: {pause_storm: 3}}
transport: {timeout: 0ns}
expect: [group g9 unaffected, restored within 5]
",
    );
    let found = lines(&mistakes);
    for (place, what) in [
        ("s.yaml:5:14", "n99"),
        ("s.yaml:7:12", "n390"),
        ("s.yaml:8:12", "nic0 to nic3"),
        ("s.yaml:8:37", "soon"),
        ("s.yaml:9:12", "pause storm"),
        ("s.yaml:10:22", "forever"),
        ("s.yaml:11:10", "g0 to g3"),
        ("s.yaml:11:31", "60us"),
    ] {
        let is_it = |line: &&String| line.starts_with(place) && line.contains(what);
        assert_eq!(found.iter().filter(is_it).count(), 1, "{place} {what} in {found:#?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
}

/// Regression: `fat_tree` itself was reported as an unknown key, and `fabric` as missing.
#[test]
fn reports_unknown_network_key_instead_of_the_network() {
    let text = OF_TRAFFIC.replace("hosts_per_leaf", "hosts_per_leave");
    let mistakes = scenario::file::load("t.yaml", text.as_bytes(), &mut read).1;
    let lines = lines(&mistakes);
    assert!(lines.iter().any(|line| line.contains("unknown key `hosts_per_leave`")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("`fabric`")), "{lines:?}");
}

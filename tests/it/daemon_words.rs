// SPDX-License-Identifier: Apache-2.0
//! Tests the texts of `lightloom ctl` while the daemon drives emulated devices on real ptys.

use crate::daemon_rig;
use std::path::{Path, PathBuf};
use std::process::Command;

use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::state::DeviceName;
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::{api, serve};
use tokio::net::UnixListener;

const NODES: u32 = 16;

struct House {
    rig: Rig,
    modules: Modules,
    socket: PathBuf,
}

impl House {
    async fn with(policies: &str, folder: &Path) -> Self {
        let links = folder.join("links");
        let names = format!("n{{0..{}}}/b{{0..1}}", NODES - 1);
        let list = format!(
            "fabric: ring.yaml\ntransceivers:\n  - {{names: \"{names}\", powered_for: 2s}}\n"
        );
        let modules = Modules::of_list(&list, &links).0;
        let file = format!(
            "policies: {{{policies}, poll_every: 200ms}}\nmodules:\n- {{nodes: [0, {}], bundles: 2, \
             serial: \"{}/n{{node}}-b{{bundle}}\", limits: {{reply_within: 300ms}}}}\n",
            NODES - 1,
            links.display()
        );
        let mut rig = Rig::of_devices(&file, folder, Some(installed(NODES))).await;
        let socket = folder.join("lightloomd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(serve::unix(listener, api::router(rig.shared.clone())));
        rig.adopt_all().await;
        rig.apply_plan(&first_plan(&installed(NODES))).await;
        Self { rig, modules, socket }
    }

    async fn ctl(&self, words: &str) -> (i32, String) {
        let mut command = Command::new(crate::programs::lightloom());
        command.arg("ctl").args(words.split(' ')).arg("--socket").arg(&self.socket);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }

    async fn shows(&self, words: &str, wanted: &str) -> String {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let (_, shown) = self.ctl(words).await;
            if shown.contains(wanted) {
                return shown;
            }
            assert!(std::time::Instant::now() < until, "no `{wanted}` in\n{shown}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    async fn is_read(&self, device: &str) {
        let name = DeviceName::from(device);
        let read = move |runtime: &Runtime| {
            let seen = &runtime.control.sightings().devices()[&name];
            (seen.is_read()).then_some(())
        };
        self.rig.find("the device", read).await;
    }
}

fn node_in_use() -> String {
    first_plan(&installed(NODES)).circuits[1].a.bundle.node.to_string()
}

fn has(shown: &str, lines: &[&str]) {
    for line in lines {
        assert!(shown.contains(line), "no `{line}` in\n{shown}");
    }
}

#[test]
fn rollback_preview_lists_undone_and_remaining_changes() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        let node = node_in_use();
        let (code, shown) = house.ctl(&format!("fault {node}")).await;
        assert_eq!(code, 0, "{shown}");
        let (code, shown) = house.ctl("rollback 1 --dry-run").await;
        assert_eq!(code, 0, "{shown}");
        let undone = format!("undoes: 2 (bypass of {node}, by uid:");
        let now = house.rig.look(lightloom_daemon::view::status).await;
        let now = now.circuits.iter().filter(|circuit| circuit.stands).count();
        assert!(now > 0);
        let count = format!("circuits up: {now} now, 0 afterwards\n");
        let none = "NO PLAN remains afterwards: faults are not bypassed until a plan is applied\n";
        has(&shown, &[&undone, "; 1 (apply of plan ", ", by test)\n", none, &count]);

        let (_, shown) = house.ctl("rollback 2 --dry-run").await;
        let count = format!("circuits up: {now} now, ");
        has(&shown, &["plan afterwards: ", &count]);
        assert!(!shown.contains("1 (apply") && !shown.contains("NO PLAN"), "{shown}");

        let (code, shown) = house.ctl("rollback 1 --cut-light").await;
        assert_eq!(code, 0, "{shown}");
        let (_, shown) = house.ctl("status").await;
        has(&shown, &["NO PLAN is applied", "rollback to before 1 (back to no plan)"]);
        let (_, shown) = house.ctl("rollback 3 --dry-run").await;
        has(&shown, &["undoes: 3 (rollback to before 1", "restores: 2 (bypass of "]);

        let (_, shown) = house.ctl("journal").await;
        has(&shown, &["apply of plan ", &format!("bypass of {node}"), "undone by 3"]);
        let (_, shown) = house.ctl("journal --records").await;
        let end = format!("committed: bypass of {node}, by uid:");
        has(
            &shown,
            &[
                "committed: apply of plan ",
                &end,
                "paths and cross-connects adopted; no circuit switched",
            ],
        );
    });
}

#[test]
fn commands_suggested_next_to_a_failed_device_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        let circuits = first_plan(&installed(NODES)).circuits;
        let drifts = circuits[1].a.bundle.to_string();
        let plan = folder.path().join("plan.json");
        let plan_text = serde_json::to_vec(&first_plan(&installed(NODES))).unwrap();
        std::fs::write(&plan, plan_text).unwrap();
        let apply = format!("apply {} --dry-run", plan.display());

        house.modules.fault(&format!("{drifts} reboot"));
        let shown = house.shows("status", "RESTARTED, 1 device").await;
        let put_back =
            "  restore the positions in plan and journal: lightloom ctl apply --restore\n";
        has(&shown, &[&format!("; no device has moved since: {drifts}\n{put_back}")]);
        assert!(!shown.contains("PROBABLY AT FAULT"), "{shown}");
        let (code, shown) = house.ctl(&apply).await;
        has(
            &shown,
            &[
                &format!("{drifts} group 0: "),
                "with `lightloom ctl apply --restore`, or apply with `--mode update`",
            ],
        );
        assert_eq!(code, 1);

        let far = circuits[circuits.len() - 1].a.bundle.to_string();
        assert_ne!(far, drifts);
        house.modules.fault(&format!("{far} dead"));
        let shown = house.shows("status", "UNSEEN, 1 device").await;
        assert!(!shown.contains("--mode update"), "{shown}");
        has(&shown, &[put_back]);
        // The refusal contains a time instead of a command that would also be refused.
        let (_, shown) = house.ctl(&apply).await;
        assert!(!shown.contains("--mode update"), "{shown}");
        has(
            &shown,
            // Loss of light is more important than the duration.
            &[&format!("{far}: unresponsive"), "`on_fault: report`", "lightloom ctl fault "],
        );
        let (code, shown) = house.ctl("wait --for 500ms").await;
        assert!(code == 1 && shown.contains(&format!("not read within 1 s: {far}")), "{shown}");

        // After the bypass of the failed module, drift is restored without it.
        let (code, shown) = house.ctl(&format!("fault {far}")).await;
        assert_eq!(code, 0, "{shown}");
        house.is_read(&drifts).await;
        let (code, shown) = house.ctl("wait").await;
        let read = format!(
            "{} devices read; {far} cannot be read, but the plan bypasses it\n",
            NODES * 2 - 1
        );
        assert_eq!((code, shown), (0, read));
    });
}

#[test]
fn refusal_explains_that_a_silent_module_is_not_treated_as_failed() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: bypass, heartbeat: 60s", folder.path()).await;
        let spare = installed(NODES);
        // In loopback, the module has no far end that could report loss of light.
        let plan = first_plan(&spare);
        let lit = |bundle: &str| {
            plan.circuits.iter().any(|c| [c.a, c.b].iter().any(|p| p.bundle.to_string() == bundle))
        };
        let silent = plan.transceivers.iter().map(|t| t.bundle.to_string()).find(|b| !lit(b));
        let silent = silent.unwrap();
        house.modules.fault(&format!("{silent} dead"));
        house.shows("status", "UNSEEN, 1 device").await;
        let (code, shown) = house.ctl(&format!("adopt {silent}")).await;
        let times =
            "not treated as a fault: it is bypassed only if neighbours report its light missing";
        has(&shown, &[&format!("{silent}: unresponsive for "), times]);
        has(&shown, &[&format!("or bypass it: lightloom ctl fault {silent}\n")]);
        assert_eq!(code, 1);
    });
}

#[test]
fn unknown_and_healthy_parts_get_different_answers() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        for (words, why) in [
            ("fault --repaired n99", "n99 does not exist: the fabric has nodes n0 to n15"),
            ("fault n99 --dry-run", "n99 does not exist: the fabric has nodes n0 to n15"),
            ("fault n3/b7", "n3/b7 does not exist: a node has bundles b0 to b1"),
            ("fault --repaired n3", "n3 is not a known fault"),
        ] {
            let (code, shown) = house.ctl(words).await;
            assert_eq!((code, shown), (1, format!("refused: {why}\n")));
        }
    });
}

#[test]
fn dry_run_reports_crossed_cables_of_the_planned_devices() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        let circuits = first_plan(&installed(NODES)).circuits;
        let [one, other] = [&circuits[0], &circuits[1]].map(|circuit| circuit.a);
        house.modules.fault(&format!("{} cross {} {other}", one.bundle, one.path));
        // Both ends must be read before the cables to swap are known.
        house.shows("status", "swap the cables of ").await;
        let plan = folder.path().join("plan.json");
        std::fs::write(&plan, serde_json::to_vec(&first_plan(&installed(NODES))).unwrap()).unwrap();
        let (_, shown) = house.ctl(&format!("apply {} --dry-run", plan.display())).await;
        has(&shown, &["CROSSED CABLES? ", &format!("{one} is lit by "), "swap the cables of "]);
        std::fs::write(&plan, r#"{"target": {}}"#).unwrap();
        let (_, shown) = house.ctl(&format!("apply {} --dry-run", plan.display())).await;
        assert!(!shown.contains("CROSSED"), "{shown}");
    });
}

#[test]
fn module_page_shows_identity_and_power_on_path() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        let port = first_plan(&installed(NODES)).circuits[0].a;
        let module = port.bundle.to_string();
        let (code, shown) = house.ctl(&format!("module {module}")).await;
        assert_eq!(code, 0, "{shown}");
        let group = format!("group 0: external-{}; after power-on: loopback\n", port.path);
        has(&shown, &[&format!("{module}: "), "firmware ", "CMIS 5.", "ready, ", &group]);
        let (_, shown) = house.ctl(&format!("module {module} --format json")).await;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let page = shown["registers"]["page b0h 128"].as_str().unwrap();
        // Page B0h starts with its magic at 192 (docs/firmware-api.md).
        assert_eq!(page.split(' ').skip(192 - 128).take(4).collect::<String>(), "4f435331");

        // An unanswered query must not disturb others, and its error must state when to retry.
        let (code, shown) = house.ctl("drift").await;
        assert_eq!(code, 0, "{shown}");
        house.modules.fault(&format!("{module} dead"));
        let (code, shown) = house.ctl(&format!("module {module}")).await;
        assert!(code == 1 && shown.contains("unreachable ("), "{shown}");
        has(&shown, &[&format!("{module}: unresponsive for ")]);
        let (code, shown) = house.ctl("module ocs9").await;
        assert!(code == 1 && shown.contains("ocs9: no such device is configured here"), "{shown}");
    });
}

/// The status contains each failed part, its evidence and alternative causes.
#[test]
fn failed_part_is_named_with_its_evidence() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: report", folder.path()).await;
        let circuit = first_plan(&installed(NODES)).circuits[1];
        let [one, other] = [circuit.a, circuit.b].map(|port| port.bundle.to_string());
        let path = circuit.a.path;
        let named = |part: &str| format!("PROBABLY AT FAULT, {part}");

        house.modules.fault(&format!("{one} unplug {path}"));
        let shown = house.shows("status", &named("fibre between")).await;
        let [there, back] = [(&one, &other), (&other, &one)]
            .map(|(at, from)| format!("no light from {from} arrives at {at}"));
        has(
            &shown,
            &[
                &there,
                &back,
                "lightloom ctl commission ",
                "measure the fibre, then replace it; if not, ",
            ],
        );
        house.modules.fault(&format!("{one} clear"));
        house.shows("status", "ALL IS WELL").await;

        house.modules.fault(&format!("{one} droop 3"));
        let shown = house.shows("status", &named("connector at")).await;
        has(&shown, &[&format!("less light from {other} arrives at {one}"), "clean the connector"]);
        house.modules.fault(&format!("{one} clear"));
        house.shows("status", "ALL IS WELL").await;

        house.modules.fault(&format!("{one} dead"));
        let shown = house.shows("status", &named(&format!("transceiver {one}"))).await;
        has(&shown, &[&format!("{one} does not answer"), &back]);
        let (_, shown) = house.ctl("status --format json").await;
        let status: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(status["named_parts"][0]["kind"], "transceiver", "{shown}");
    });
}

#[test]
fn failed_node_stays_listed_while_bypassed() {
    let folder = tempfile::tempdir().unwrap();
    on_a_runtime(async {
        let house = House::with("on_fault: bypass", folder.path()).await;
        let node = node_in_use();
        house.modules.fault(&format!("{node} dead"));
        house.shows("status", "DEGRADED, 2 parts bypassed").await;
        let shown = house.shows("status", &format!("PROBABLY AT FAULT, node {node}: ")).await;
        has(&shown, &["does not answer", "check the node's power"]);
        house.modules.fault(&format!("{node} clear"));
        for bundle in ["b0", "b1"] {
            house.is_read(&format!("{node}/{bundle}")).await;
        }
        let (code, shown) = house.ctl(&format!("fault --repaired {node}")).await;
        assert_eq!(code, 0, "{shown}");
        let (_, shown) = house.ctl("status").await;
        assert!(!shown.contains("PROBABLY AT FAULT"), "{shown}");
    });
}

// SPDX-License-Identifier: Apache-2.0
//! Checks the alert rules and the dashboard against the metrics of the daemon.

use std::collections::BTreeSet;
use std::process::Command;

use lightloom_daemon::metrics::{Metrics, Watched};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../monitoring/alerts.yaml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../monitoring/dashboard.json");

fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("lightloomd_")).map(ToOwned::to_owned).collect()
}

fn served() -> String {
    let metrics = Metrics::new().unwrap();
    for by_device in [
        &metrics.device_up,
        &metrics.drifted_slots,
        &metrics.contended,
        &metrics.crossed_ends,
        &metrics.device_noise,
    ] {
        by_device.with_label_values(&["n0/b0"]).set(0.0);
    }
    metrics.transactions.with_label_values(&["committed"]).inc();
    metrics.requests.with_label_values(&["apply", "accepted"]).inc();
    metrics.watched(&Watched {
        dark_circuits: 1,
        own_changes_left: 9,
        power_dbm: vec![("n0/b0".into(), "0".into(), -2.5)],
        attention: vec!["n3/b0".into()],
        bypassed: 2,
        not_bypassed: 1,
        phase: Some("experts".into()),
    });
    metrics.text()
}

#[test]
fn rules_and_dashboard_use_only_served_metrics() {
    let served = named(&served());
    for file in [RULES, DASHBOARD] {
        let text = std::fs::read_to_string(file).unwrap();
        let unknown: Vec<String> = named(&text).difference(&served).cloned().collect();
        assert!(unknown.is_empty(), "{file} speaks of {unknown:?}, and /metrics serves {served:?}");
        assert!(named(&text).len() > 10, "{file} speaks of little");
    }
    let _: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(DASHBOARD).unwrap()).unwrap();
}

#[test]
fn serves_watched_values_and_drops_resolved_ones() {
    let text = served();
    for line in [
        "lightloomd_port_power_dbm{device=\"n0/b0\",slot=\"0\"} -2.5",
        "lightloomd_device_attention{device=\"n3/b0\"} 1",
        "lightloomd_broken_parts{bypassed=\"no\"} 1",
        "lightloomd_broken_parts{bypassed=\"yes\"} 2",
        "lightloomd_own_changes_left 9",
        "lightloomd_phase{phase=\"experts\"} 1",
    ] {
        assert!(text.lines().any(|served| served == line), "{line} is not in\n{text}");
    }
    let metrics = Metrics::new().unwrap();
    metrics.watched(&Watched { attention: vec!["n3/b0".into()], ..Watched::default() });
    metrics.watched(&Watched::default());
    assert!(!metrics.text().contains("n3/b0"), "nobody is needed any more");
}

#[test]
fn every_alert_rule_has_severity_summary_and_action() {
    let text = std::fs::read_to_string(RULES).unwrap();
    let count =
        |word: &str| text.lines().filter(|line| line.trim_start().starts_with(word)).count();
    let rules = count("- alert:");
    assert!(rules > 10);
    for word in ["expr:", "for:", "labels: {severity:", "summary:", "action:"] {
        assert_eq!(count(word), rules, "{word}");
    }
    match Command::new("promtool").args(["check", "rules", RULES]).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => println!("skipped: no promtool"),
    }
}

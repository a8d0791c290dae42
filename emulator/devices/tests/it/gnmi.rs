// SPDX-License-Identifier: Apache-2.0
//! Compares the emulated gNMI switch with explicit expectations and with a small independent model.

use crate::gnmi_bench;
use std::collections::{BTreeMap, BTreeSet};

use gnmi_bench::{Bench, FIRST, adds, both, deletes, part, small};
use lightloom_devices::{EmulatedDevice, GnmiSpec, Line, Port};
use lightloom_gnmi::Code;
use lightloom_gnmi::client::{Answer, GnmiCall, GnmiClient};
use lightloom_gnmi::message::{
    Encoding, GetRequest, ListMode, SetRequest, SubscribeAnswer, Subscription, SubscriptionList,
    SubscriptionMode,
};
use lightloom_gnmi::model::ColdStartRecovery;
use lightloom_gnmi::path::{parse, text};
use lightloom_units::seed::Seed;
use rand::RngExt;
use serde_json::{Value as Json, json};

#[test]
fn reports_supported_models_and_encodings() {
    let mut bench = Bench::new(small());
    let Answer::Capabilities(said) = bench.ask(GnmiCall::Capabilities) else { panic!() };
    let models: Vec<_> =
        said.supported_models.iter().map(|m| (m.name.as_str(), m.version.as_str())).collect();
    assert_eq!(
        models[..3],
        [
            ("ocp-ocs-optical-switch", "0.8.0"),
            ("ocp-ocs-optical-switch-connections", "0.8.0"),
            ("ocp-ocs-optical-switch-port", "0.8.0"),
        ]
    );
    assert_eq!((said.supported_encodings, said.gnmi_version.as_str()), (vec![0, 4, 2], "0.10.0"));
}

#[test]
fn connection_is_pending_until_light_settles() {
    let mut bench = Bench::new(small());
    assert_eq!(
        bench.get("/optical-switch/config"),
        json!({"bidirectional": true, "cold-boot-recovery": "REMOVE"})
    );
    bench.set(adds(&[("a", "in-3", "out-7")])).unwrap();
    assert_eq!(bench.status("a"), "PENDING_CONNECTION");
    assert_eq!(bench.get("/components/component[name=in-3]/ocp-ocs-port/state/status"), "TUNING");
    bench.run_for(30);
    assert_eq!(bench.status("a"), "CONNECTED");
    let port = bench.get("/components/component[name=out-7]/ocp-ocs-port/state");
    assert_eq!(port["connection"]["peer"], "in-3");
    assert_eq!(
        (&port["connection"]["connected"], &port["status"]),
        (&json!(true), &json!("TUNED"))
    );
    assert_eq!((&port["group"], &port["index"]), (&json!("out"), &json!(7)));
    let power: f64 = port["output-optical-power"].as_str().unwrap().parse().unwrap();
    assert!((-6.0..-2.0).contains(&power), "{power} dBm");
    bench.set(deletes(&["a"])).unwrap();
    assert_eq!(bench.status("a"), "PENDING_DELETION");
    bench.run_for(30);
    let (code, why) = bench.refused_get("/connections/port-connection[name=a]");
    assert_eq!(code, Code::NotFound, "{why}");
    assert_eq!(bench.get("/components/component[name=in-3]/ocp-ocs-port/state/status"), "BLOCKED");
}

#[test]
fn ietf_json_names_the_module_at_each_boundary() {
    let mut bench = Bench::new(small());
    let component = bench.get("/components/component[name=in-1]");
    assert!(component.get("ocp-ocs-optical-switch-port:ocp-ocs-port").is_some(), "{component}");
    let all = bench.get("/");
    for top in [
        "ocp-ocs-optical-switch:optical-switch",
        "ocp-ocs-optical-switch-connections:connections",
        "openconfig-platform:components",
    ] {
        assert!(all.get(top).is_some(), "{top}");
    }
}

/// A single invalid part must cancel the whole Set.
#[test]
fn set_with_one_invalid_part_is_rejected_as_a_whole() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1"), ("b", "in-2", "out-2")]);
    let before = bench.get("/");
    let config =
        |input: &str, output: &str| json!({"input-port-name": input, "output-port-name": output});
    let at = |name: &str| format!("/connections/port-connection[name={name}]/config");
    let long = "x".repeat(300);
    for (path, value, expected) in [
        (
            at("c"),
            config("in-9", "out-4"),
            "port `in-9` does not exist: this switch has in-1 to in-8",
        ),
        (at("c"), config("in-01", "out-4"), "port `in-01` does not exist"),
        (at("c"), config("in-4\u{0}", "out-4"), "does not exist: this switch has"),
        (at("c"), config("in-4", "in-5"), "in the same port group"),
        (at("c"), config("out-4", "in-4"), "swap them"),
        (at("c"), config("in-1", "out-4"), "`in-1` is in connection `"),
        (at("c"), config("in-4", "out-2"), "`out-2` is in connection `"),
        (at("c"), json!({"input-port-name": "in-4"}), "`config/output-port-name` is missing"),
        (at("c"), json!({"name": "d"}), "`config/name` is `d`, but the key is `c`"),
        (at("c"), json!({"lambda": 3}), "has no `lambda`"),
        (at("c"), json!({"input-port-name": 3}), "`input-port-name` must be text, not 3"),
        (at("c"), json!([1]), "expected a JSON object"),
        (at(&long), config("in-4", "out-4"), "1 to 256 bytes"),
        (at("a\u{7}"), config("in-4", "out-4"), "no control characters"),
        (
            "/connections/port-connection[name=a]/state".into(),
            json!({"status": "CONNECTED"}),
            "read only",
        ),
        (
            "/connections/port-connection[id=a]/config".into(),
            json!({}),
            "the key of `port-connection` is `name`",
        ),
        (
            "/connections/circuit[name=a]".into(),
            json!({}),
            "`circuit` in `connections` cannot be set",
        ),
        ("/connection".into(), json!({}), "`connection` does not exist in the model"),
        (
            "/optical-switch/config".into(),
            json!({"cold-boot-recovery": "MAINTAIN"}),
            "this switch does not support MAINTAIN: use RESTORE",
        ),
        (
            "/optical-switch/config".into(),
            json!({"cold-boot-recovery": "KEEP"}),
            "REMOVE, RESTORE, MAINTAIN",
        ),
        (
            "/components/component[name=in-1]/ocp-ocs-port/config".into(),
            json!({"enabled": false}),
            "`in-1` is disabled",
        ),
        (
            "/components/component[name=fan]/ocp-ocs-port/config".into(),
            json!({"enabled": true}),
            "port `fan` does not exist",
        ),
    ] {
        let mut set = adds(&[("right", "in-3", "out-3")]);
        set.update.push(part(&path, &value));
        let why = bench.set(set).expect_err(&path);
        assert!(why.contains(expected), "{path} {value}: {why}");
    }
    let mut no_value = adds(&[("right", "in-3", "out-3")]);
    no_value.update[0].val = None;
    assert!(bench.set(no_value).unwrap_err().contains("a value is missing"));
    let after = bench.get("/");
    assert_eq!(before, after, "nothing was changed");
}

#[test]
fn rejects_unknown_paths_and_reports_missing_entries() {
    let mut bench = Bench::new(small());
    for (path, code, expected) in [
        ("/connection", Code::InvalidArgument, "`connection` does not exist in the model"),
        ("/connections/port-connection[name=x]", Code::NotFound, "no data at this path"),
        ("/connections/port-connection[id=x]", Code::InvalidArgument, "is `name`, not `id`"),
        ("/connections/last-change-time/x", Code::InvalidArgument, "below a leaf"),
        ("/optical-switch[name=x]", Code::InvalidArgument, "is not a list"),
        ("/components/.../state", Code::InvalidArgument, "`...` is not supported"),
        ("/components/component[name=in-1]/ocp-ocs-port/config/alias", Code::NotFound, "no data"),
    ] {
        let (got, why) = bench.refused_get(path);
        assert!(got == code && why.contains(expected), "{path}: {got:?} {why}");
    }
    let many =
        GnmiCall::Get(GetRequest { encoding: Encoding::Ascii as i32, ..GetRequest::default() });
    assert!(
        matches!(bench.ask(many), Answer::Refused(status) if status.code() == Code::Unimplemented)
    );
}

#[test]
fn applies_deletes_then_replaces_then_updates() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1"), ("b", "in-2", "out-2"), ("c", "in-3", "out-3")]);
    // Crossed in one Set, which requires removals before additions.
    let crossed =
        both(deletes(&["a", "b"]), adds(&[("x", "in-1", "out-2"), ("y", "in-2", "out-1")]));
    bench.set(crossed).unwrap();
    bench.run_for(100);
    assert_eq!(bench.switch.true_pairs(), [(1, 10), (2, 9), (3, 11)]);
    // A replace of the list removes connections that are not listed; a following update adds one.
    let list = json!({"port-connection": [{"name": "c", "config": {"input-port-name": "in-3", "output-port-name": "out-3"}}]});
    let replace = vec![part("/connections", &list)];
    let set = SetRequest { replace, ..adds(&[("z", "in-4", "out-4")]) };
    let before = bench.get("/connections/port-connection[name=c]/state/last-updated");
    bench.set(set).unwrap();
    bench.run_for(100);
    assert_eq!(bench.switch.true_pairs(), [(3, 11), (4, 12)]);
    let after = bench.get("/connections/port-connection[name=c]/state/last-updated");
    assert_eq!(before, after, "an unchanged connection is not interrupted");
}

#[test]
fn cold_start_follows_the_recovery_setting() {
    for (word, best, at_once, later) in [
        ("REMOVE", ColdStartRecovery::Restore, false, false),
        ("RESTORE", ColdStartRecovery::Restore, false, true),
        ("MAINTAIN", ColdStartRecovery::Maintain, true, true),
    ] {
        let mut bench = Bench::new(GnmiSpec { recovery: best, ..small() });
        bench.must_add(&[("a", "in-1", "out-1")]);
        let policy = part("/optical-switch/config/cold-boot-recovery", &json!(word));
        bench.set(SetRequest { update: vec![policy], ..SetRequest::default() }).unwrap();
        bench.fault("reboot");
        assert!(bench.clients.is_empty(), "{word}: connections end");
        assert_eq!(!bench.switch.true_pairs().is_empty(), at_once, "{word}");
        bench.run_for(2_100);
        bench.connect(FIRST);
        assert_eq!(!bench.switch.true_pairs().is_empty(), later, "{word}");
        assert_eq!(bench.get("/optical-switch/state/cold-boot-recovery"), word);
        if later {
            assert_eq!(bench.status("a"), "CONNECTED", "{word}: the tree is unchanged");
        }
    }
}

#[test]
fn warm_restart_keeps_light_and_state() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1")]);
    let before = bench.get("/");
    bench.fault("warm-restart");
    assert_eq!(bench.switch.true_pairs(), [(1, 9)]);
    bench.run_for(2_100);
    bench.connect(FIRST);
    assert_eq!(bench.get("/"), before);
}

#[test]
fn late_checking_switch_accepts_the_set_and_marks_it_invalid() {
    let mut bench = Bench::new(GnmiSpec { checks_late: true, ..small() });
    bench.must_add(&[("a", "in-1", "out-1")]);
    bench.must_add(&[("b", "in-1", "out-2")]);
    assert_eq!(bench.status("b"), "INVALID");
    let why = bench.get("/connections/port-connection[name=b]/state/status-reason");
    assert_eq!(why, "one of its ports is in connection `a`");
    assert_eq!(bench.status("a"), "CONNECTED");
    assert_eq!(bench.switch.true_pairs(), [(1, 9)]);
}

#[test]
fn stuck_mirror_fails_the_connection_with_a_reason() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1")]);
    bench.fault("stuck 2");
    bench.must_add(&[("b", "in-2", "out-2")]);
    assert_eq!(bench.status("b"), "FAILED");
    let why = bench.get("/connections/port-connection[name=b]/state/status-reason");
    assert_eq!(why, "the mirror of `in-2` is stuck");
    bench.fault("clear");
    bench.fault("stuck");
    bench.set(deletes(&["a"])).unwrap();
    bench.run_for(100);
    assert_eq!((bench.status("a").as_str(), bench.switch.true_pairs().len()), ("FAILED", 1));
}

#[test]
fn connects_ports_of_any_direction_in_either_order() {
    let mut bench = Bench::new(GnmiSpec { any_direction: true, ..small() });
    bench.must_add(&[("x", "b-2", "a-1"), ("y", "a-2", "b-1")]);
    assert_eq!(bench.switch.true_pairs(), [(1, 10), (2, 9)]);
    let state = bench.get("/connections/port-connection[name=x]/state");
    assert_eq!(
        (&state["input-port-name"], &state["output-port-name"]),
        (&json!("b-2"), &json!("a-1"))
    );
    let groups = bench.get("/optical-switch/state/port-groups[name=a]");
    assert_eq!(groups["direction"], "ANY");
    assert_eq!(groups["connection-groups"], json!([{"peer-name": "b"}]));
}

/// Found by the random Sets below: `b` lost its light when `a` was removed.
#[test]
fn connection_reusing_a_name_keeps_its_light() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1"), ("b", "in-2", "out-2")]);
    bench.set(both(deletes(&["a"]), adds(&[("b", "in-1", "out-1")]))).unwrap();
    bench.run_for(100);
    assert_eq!((bench.switch.true_pairs(), bench.status("b")), (vec![(1, 9)], "CONNECTED".into()));
    bench.set(deletes(&["b"])).unwrap();
    bench.run_for(100);
    assert_eq!(bench.switch.true_pairs(), []);
}

fn naive(
    model: &BTreeMap<String, (u16, u16)>,
    gone: &[String],
    fresh: &[(String, u16, u16)],
) -> Option<BTreeMap<String, (u16, u16)>> {
    let mut next = model.clone();
    next.retain(|name, _| !gone.contains(name));
    next.extend(fresh.iter().map(|(name, a, b)| (name.clone(), (*a, *b))));
    let exist = next.values().all(|(a, b)| (1..=8).contains(a) && (1..=8).contains(b));
    let inputs: BTreeSet<u16> = next.values().map(|pair| pair.0).collect();
    let outputs: BTreeSet<u16> = next.values().map(|pair| pair.1).collect();
    (exist && inputs.len() == next.len() && outputs.len() == next.len()).then_some(next)
}

#[test]
fn ten_thousand_random_sets_match_a_naive_model() {
    let mut bench = Bench::new(small());
    let mut model = BTreeMap::<String, (u16, u16)>::new();
    let mut updated = BTreeMap::<String, Json>::new();
    let mut draws = Seed(7).stream("random Sets", 0);
    let (mut taken, mut refused) = (0, 0);
    for turn in 0..10_000 {
        let name = |number: u32| format!("c{number}");
        let gone: Vec<String> =
            (0..draws.random_range(0..4)).map(|_| name(draws.random_range(0..12))).collect();
        let fresh: Vec<(String, u16, u16)> = (0..draws.random_range(0..4))
            .map(|_| {
                let name = name(draws.random_range(0..12));
                (
                    name,
                    draws.random_range(1..=8),
                    draws.random_range(1..=8) + u16::from(draws.random_ratio(1, 40)) * 8,
                )
            })
            .collect();
        let names: Vec<&str> = gone.iter().map(String::as_str).collect();
        let parts: Vec<_> = fresh
            .iter()
            .map(|(n, a, b)| (n.clone(), format!("in-{a}"), format!("out-{b}")))
            .collect();
        let parts: Vec<_> =
            parts.iter().map(|(n, a, b)| (n.as_str(), a.as_str(), b.as_str())).collect();
        let said = bench.set(both(deletes(&names), adds(&parts)));
        let expected = naive(&model, &gone, &fresh);
        assert_eq!(
            said.is_ok(),
            expected.is_some(),
            "turn {turn}: -{gone:?} +{fresh:?} on {model:?}: {said:?}"
        );
        let before: BTreeSet<(u16, u16)> = model.values().copied().collect();
        if let Some(next) = expected {
            taken += 1;
            let kept: Vec<_> = next.values().filter(|pair| before.contains(pair)).collect();
            let there = bench.switch.true_pairs();
            assert!(
                kept.iter().all(|(a, b)| there.contains(&(*a, b + 8))),
                "turn {turn}: unchanged connections keep their light"
            );
            model = next;
        } else {
            refused += 1;
        }
        bench.run_for(60);
        let pairs: BTreeSet<(u16, u16)> = model.values().map(|(a, b)| (*a, b + 8)).collect();
        assert_eq!(
            bench.switch.true_pairs().into_iter().collect::<BTreeSet<_>>(),
            pairs,
            "turn {turn}"
        );
        if turn % 20 == 0 {
            let list = bench.get("/connections");
            let list = list["port-connection"].as_array().unwrap();
            assert_eq!(list.len(), model.len());
            for entry in list {
                let (a, b) = model[entry["name"].as_str().unwrap()];
                assert_eq!(entry["state"]["status"], "CONNECTED");
                assert_eq!(entry["config"]["input-port-name"], format!("in-{a}"));
                assert_eq!(entry["config"]["output-port-name"], format!("out-{b}"));
            }
            updated.clear();
        }
    }
    println!("10,000 random Sets: {taken} taken, {refused} refused, 0 other than the naive model");
    assert!(taken > 1_000 && refused > 1_000);
}

fn list(path: &str, mode: ListMode, when: SubscriptionMode, millis: u64) -> GnmiCall {
    let subscription = Subscription {
        path: Some(parse(path).unwrap()),
        mode: when as i32,
        sample_interval: millis * 1_000_000,
        ..Subscription::default()
    };
    GnmiCall::Subscribe(SubscriptionList {
        subscription: vec![subscription],
        mode: mode as i32,
        encoding: Encoding::JsonIetf as i32,
        ..SubscriptionList::default()
    })
}

fn heard(bench: &mut Bench, line: Line) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((_, answer)) = bench.clients.get_mut(&line).and_then(GnmiClient::next_answer) {
        let Answer::Heard(response) = answer else {
            all.push(format!("{answer:?}"));
            continue;
        };
        match response.response.unwrap() {
            SubscribeAnswer::Sync(_) => all.push("sync".into()),
            SubscribeAnswer::Update(notification) => {
                all.extend(notification.update.iter().map(|update| {
                    let value = update.val.as_ref().unwrap().to_json().unwrap();
                    format!("{} {value}", text(update.path.as_ref().unwrap()))
                }));
                all.extend(notification.delete.iter().map(|path| format!("{} gone", text(path))));
            }
        }
    }
    all
}

const STATUS: &str = "/connections/port-connection[name=*]/state/status";

#[test]
fn subscribers_receive_changes_samples_and_deletes() {
    let mut bench = Bench::new(small());
    bench.must_add(&[("a", "in-1", "out-1")]);
    let of = |name: &str, status: &str| {
        format!("/connections/port-connection[name={name}]/state/status {status}")
    };
    assert!(matches!(
        bench.ask(list(STATUS, ListMode::Once, SubscriptionMode::OnChange, 0)),
        Answer::Subscribed
    ));
    let once = heard(&mut bench, FIRST);
    assert_eq!(once, [of("a", "\"CONNECTED\""), "sync".into(), "SubscriptionEnded".into()]);

    bench.ask(list(STATUS, ListMode::Stream, SubscriptionMode::OnChange, 0));
    assert_eq!(heard(&mut bench, FIRST), [of("a", "\"CONNECTED\""), "sync".into()]);
    bench.connect(Line(2));
    bench.ask_on(Line(2), GnmiCall::Set(both(deletes(&["a"]), adds(&[("b", "in-2", "out-2")]))));
    bench.run_for(100);
    assert_eq!(
        heard(&mut bench, FIRST),
        [
            of("a", "\"PENDING_DELETION\""),
            of("b", "\"PENDING_CONNECTION\""),
            of("a", "gone"),
            of("b", "\"CONNECTED\""),
        ]
    );

    bench.connect(Line(3));
    let power = "/components/component[name=out-2]/ocp-ocs-port/state/output-optical-power";
    bench.ask_on(Line(3), list(power, ListMode::Stream, SubscriptionMode::Sample, 200));
    heard(&mut bench, Line(3));
    bench.run_for(1_050);
    assert_eq!(heard(&mut bench, Line(3)).len(), 5, "each 200 ms");
}

#[test]
fn rejects_invalid_subscriptions_with_a_reason() {
    let mut bench = Bench::new(small());
    let mut why = |call| match bench.ask(call) {
        Answer::Refused(status) => status.message().to_owned(),
        other => panic!("{other:?}"),
    };
    let sample = list(STATUS, ListMode::Stream, SubscriptionMode::Sample, 10);
    assert!(why(sample).contains("too short: the minimum is 100 ms"));
    let unknown = list("/fans", ListMode::Stream, SubscriptionMode::OnChange, 0);
    assert!(why(unknown).contains("`fans` does not exist in the model"));
    let none = GnmiCall::Subscribe(SubscriptionList { encoding: 4, ..SubscriptionList::default() });
    assert!(why(none).contains("at least one path"));
}

#[test]
fn one_hundred_subscribers_receive_every_change() {
    let mut bench = Bench::new(small());
    for line in 2..102 {
        bench.connect(Line(line));
        bench.ask_on(Line(line), list(STATUS, ListMode::Stream, SubscriptionMode::OnChange, 0));
        assert_eq!(heard(&mut bench, Line(line)), ["sync"]);
    }
    bench.must_add(&[("a", "in-1", "out-1")]);
    for line in 2..102 {
        let heard = heard(&mut bench, Line(line));
        assert_eq!(heard.len(), 2, "pending, then connected: {heard:?}");
    }
    let mut refused = 0;
    for line in 102..400 {
        let mut out = Vec::new();
        bench.switch.open(bench.now, Line(line), Port::Gnmi, &mut out);
        refused += out.len();
    }
    assert!(refused > 0, "the number of clients is limited");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a time is measured")]
fn sets_and_reads_back_512_circuits_within_a_second() {
    let mut bench = Bench::new(GnmiSpec { ingress: 512, egress: 512, ..GnmiSpec::default() });
    let names: Vec<_> = (1..=512)
        .map(|n| (format!("c{n}"), format!("in-{n}"), format!("out-{}", 513 - n)))
        .collect();
    let parts: Vec<_> =
        names.iter().map(|(n, a, b)| (n.as_str(), a.as_str(), b.as_str())).collect();
    let started = std::time::Instant::now();
    bench.must_add(&parts);
    let list = bench.get("/connections");
    let took = started.elapsed();
    let list = list["port-connection"].as_array().unwrap();
    assert!(list.len() == 512 && list.iter().all(|entry| entry["state"]["status"] == "CONNECTED"));
    println!("1,024 ports, 512 circuits in one Set and read back: {took:?} of processor time");
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

#[test]
fn restart_during_a_set_leaves_half_of_it_visible() {
    let mut bench = Bench::new(GnmiSpec { recovery: ColdStartRecovery::Maintain, ..small() });
    let policy = part("/optical-switch/config/cold-boot-recovery", &json!("MAINTAIN"));
    bench.set(SetRequest { update: vec![policy], ..SetRequest::default() }).unwrap();
    bench.fault("reboot-in-commit");
    let set = adds(&[
        ("a", "in-1", "out-1"),
        ("b", "in-2", "out-2"),
        ("c", "in-3", "out-3"),
        ("d", "in-4", "out-4"),
    ]);
    assert!(bench.ask_on(FIRST, GnmiCall::Set(set)).is_none(), "no answer");
    bench.run_for(2_100);
    bench.connect(FIRST);
    assert_eq!(bench.switch.true_pairs(), [(1, 9), (2, 10)]);
    assert_eq!(
        bench.get("/components/component[name=in-4]/ocp-ocs-port/state/connection/connected"),
        false
    );
}

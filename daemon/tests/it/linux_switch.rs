// SPDX-License-Identifier: Apache-2.0
//! Tests the Linux driver against the kernel in a network namespace, with `ip -j` and `tc -j`.
//! Skipped with a note unless run as root or with unprivileged user namespaces.

use std::collections::BTreeMap;
use std::process::Command;

use lightloom_control::state::{Move, Neighbours, Op, Outcome, Position, Slot, Txn, at};
use lightloom_daemon::config::linux::LinuxFile;
use lightloom_daemon::driver::Endpoint;
use lightloom_daemon::driver::alone::Alone;
use lightloom_daemon::driver::linux::Linux;
use lightloom_testkit::{alone, passed_alone};
use lightloom_units::seed::Seed;
use rand::RngExt;
use serde_json::{Value, json};

const INSIDE: &str = "LIGHTLOOM_INSIDE_NAMESPACE";

#[test]
fn kernel_state_matches_random_plans() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    for namespace in [&["-n"][..], &["-rn"][..]] {
        if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|s| s.success())
        {
            continue;
        }
        let inside = Command::new("unshare")
            .args(namespace)
            .arg(&this)
            .args(alone(module_path!(), "drives_the_kernel_inside_a_namespace"))
            .env(INSIDE, "1")
            .output()
            .unwrap();
        return passed_alone(&inside);
    }
    println!("skipped: neither root nor unprivileged user namespaces, so no namespace to test in");
}

#[test]
#[ignore = "runs inside a namespace that the other test makes"]
fn drives_the_kernel_inside_a_namespace() {
    assert!(std::env::var_os(INSIDE).is_some(), "run the other test");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        foreign_objects();
        let before =
            (ip(&["nexthop", "show", "protocol", "11"]), ip(&["route", "show", "10.99.0.0/16"]));
        let file = linux_file();
        let mut first = driver(file.clone());
        let connected = first.connect().await;
        assert!(connected.is_ok(), "{connected:?}, {}", run("ip", &["link"]));
        check_standing(&file);
        random_plans(&mut first, 300).await;
        rates(&file);
        let after =
            (ip(&["nexthop", "show", "protocol", "11"]), ip(&["route", "show", "10.99.0.0/16"]));
        assert_eq!(before, after, "foreign objects were touched");
        // A reconnection must not move traffic.
        let standing = groups();
        let mut again = driver(file.clone());
        again.connect().await.unwrap();
        assert_eq!(standing, groups());
        refuses_foreign_ids(&file).await;
        nodes_without_a_link().await;
    });
}

async fn nodes_without_a_link() {
    let pair = |n: u32| json!([format!("nic{n}"), format!("host{n}")]);
    let link = |n: u32, node: &str| json!({"name": format!("nic{n}"), "node": node});
    let file = serde_json::from_value(json!({
        "first_id": 3_000_000,
        "pairs": [pair(0), pair(1), pair(2)],
        "links": [link(0, "n9"), link(1, "n9"), link(2, "n10")],
    }));
    let mut driver = driver(file.unwrap());
    driver.connect().await.unwrap();
    let mut without = async || {
        let seen = driver.run(&Op::Observe { power: vec![], neighbours: Neighbours::Usual }).await;
        let Outcome::Done(Some(seen)) = seen else { panic!("no observation: {seen:?}") };
        seen.unlinked.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(without().await, "");
    run("ip", &["link", "set", "host0", "down"]);
    assert_eq!(without().await, "", "its other link is up");
    run("ip", &["link", "set", "host1", "down"]);
    assert_eq!(without().await, "n9");
    run("ip", &["link", "set", "host0", "up"]);
    run("ip", &["link", "set", "host2", "down"]);
    assert_eq!(without().await, "n10");
}

fn driver(file: LinuxFile) -> Alone {
    Alone::new(Endpoint::local(Linux::new(file)))
}

fn linux_file() -> LinuxFile {
    let links: Vec<Value> = (0..4)
        .map(|i| {
            let address = format!("10.0.{i}.1/24");
            let rate = ["50Gbps", "400Gbps", "1Gbps", "10Gbps"][i];
            json!({"name": format!("ll{i}"), "address": address, "rate": rate})
        })
        .collect();
    let way = |i: usize, weight: u16| json!({"via": format!("10.0.{i}.2"), "dev": format!("ll{i}"), "weight": weight});
    let groups: Vec<Value> = (0..8_usize)
        .map(|slot| {
            let one = json!([way(slot % 4, 1)]);
            let two = json!([way(slot % 4, 3), way((slot + 1) % 4, 1)]);
            let all = json!([way(0, 1), way(1, 2), way(2, 256), way(3, 4)]);
            let drained = if slot % 2 == 0 { json!([]) } else { json!([way((slot + 2) % 4, 1)]) };
            json!({"slot": slot, "alternatives": [one, two, all], "drained": drained})
        })
        .collect();
    let routes: Vec<Value> =
        (0..64).map(|i| json!({"to": format!("10.1.{i}.0/24"), "group": i % 8})).collect();
    let pairs: Vec<Value> = (0..4).map(|i| json!([format!("ll{i}"), format!("peer{i}")])).collect();
    serde_json::from_value(
        json!({"pairs": pairs, "links": links, "groups": groups, "routes": routes}),
    )
    .unwrap()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn ip(arguments: &[&str]) -> Value {
    let text = run("ip", &[&["-j"], arguments].concat());
    if text.trim().is_empty() { json!([]) } else { serde_json::from_str(&text).unwrap() }
}

fn foreign_objects() {
    // A blackhole route requires the loopback device to be up.
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["link", "add", "other0", "type", "veth", "peer", "name", "other1"]);
    run("ip", &["link", "set", "other0", "up"]);
    run("ip", &["link", "set", "other1", "up"]);
    run("ip", &["addr", "add", "10.98.0.1/24", "dev", "other0"]);
    run("ip", &["nexthop", "add", "id", "77", "via", "10.98.0.2", "dev", "other0", "proto", "11"]);
    run("ip", &["route", "add", "10.99.0.0/16", "nhid", "77", "proto", "11"]);
    run("ip", &["route", "add", "10.1.5.0/24", "nhid", "77", "proto", "11", "metric", "20"]);
}

fn groups() -> BTreeMap<u64, Vec<(String, u64)>> {
    let objects = ip(&["nexthop", "show"]);
    let objects = objects.as_array().unwrap();
    let way = |id: u64| {
        let object = objects.iter().find(|o| o["id"] == id).unwrap();
        if object.get("blackhole").is_some() {
            return "blackhole".to_owned();
        }
        format!("{} {}", object["gateway"].as_str().unwrap(), object["dev"].as_str().unwrap())
    };
    let member = |m: &Value| (way(m["id"].as_u64().unwrap()), m["weight"].as_u64().unwrap_or(1));
    objects
        .iter()
        .filter_map(|object| {
            let mut members: Vec<_> = object.get("group")?.as_array()?.iter().map(member).collect();
            members.sort();
            Some((object["id"].as_u64()?, members))
        })
        .collect()
}

fn wanted(file: &LinuxFile, slot: u16, position: Position) -> Vec<(String, u64)> {
    let group = file.groups.iter().find(|g| g.slot == slot).unwrap();
    let ways = match position {
        Position::DARK if group.drained.is_empty() => return vec![("blackhole".into(), 1)],
        Position::DARK => &group.drained,
        Position(n) => &group.alternatives[n as usize - 1],
    };
    let mut ways: Vec<_> =
        ways.iter().map(|n| (format!("{} {}", n.via, n.dev), u64::from(n.weight))).collect();
    ways.sort();
    ways
}

fn check_standing(file: &LinuxFile) {
    for link in ip(&["addr", "show"]).as_array().unwrap() {
        let Some(named) = file.links.iter().find(|l| l.name == link["ifname"]) else { continue };
        assert!(link["flags"].as_array().unwrap().contains(&json!("UP")));
        let prefix = named.address.unwrap();
        let found = &link["addr_info"].as_array().unwrap()[0];
        assert_eq!(found["local"], prefix.address.to_string());
        assert_eq!(found["prefixlen"], prefix.length);
    }
    let routes = ip(&["route", "show", "proto", "177"]);
    assert_eq!(routes.as_array().unwrap().len(), file.routes.len());
    for route in &file.routes {
        let to = format!("{}/{}", route.to.address, route.to.length);
        let found = routes.as_array().unwrap().iter().find(|r| r["dst"] == to).unwrap();
        assert_eq!(found["nhid"], u64::from(file.first_id) + u64::from(route.group));
    }
}

async fn random_plans(driver: &mut Alone, plans: u32) {
    let file = linux_file();
    let mut rng = Seed(1).stream("linux", 0);
    let mut stands: BTreeMap<u16, Position> = (0..8).map(|slot| (slot, Position(1))).collect();
    for plan in 0..plans {
        let count = rng.random_range(1..4);
        let moves: Vec<Move> = (0..count)
            .map(|_| {
                let slot = rng.random_range(0..8_u16);
                let to = Position(rng.random_range(0..4));
                let from = stands.insert(slot, to).unwrap();
                Move { slot: Slot(u32::from(slot)), from, to }
            })
            .collect();
        let outcome = driver.run(&Op::Switch { txn: Txn(plan), moves }).await;
        assert_eq!(outcome, Outcome::Done(None));
        let Outcome::Done(Some(seen)) =
            driver.run(&Op::Observe { power: vec![], neighbours: Neighbours::Usual }).await
        else {
            panic!("no observation");
        };
        for (&slot, &position) in &stands {
            assert_eq!(at(&seen.positions, Slot(u32::from(slot))), position);
        }
        if plan % 10 == 0 {
            let groups = groups();
            for (&slot, &position) in &stands {
                let id = u64::from(file.first_id) + u64::from(slot);
                assert_eq!(
                    groups[&id],
                    wanted(&file, slot, position),
                    "group {slot} at {position}"
                );
            }
            let routes = ip(&["route", "show", "proto", "177"]);
            assert_eq!(routes.as_array().unwrap().len(), 64, "routes stay through every replace");
        }
    }
    println!("{plans} random plans, equal to `ip -j` each time");
}

/// `tc` of Debian 12 prints classes as text even when asked for JSON.
fn rates(file: &LinuxFile) {
    for link in &file.links {
        let text = run("tc", &["class", "show", "dev", &link.name]);
        let words: Vec<&str> = text.split_whitespace().collect();
        let after = |word| words[words.iter().position(|w| *w == word).unwrap() + 1];
        let wanted = link.rate.unwrap().0.get();
        assert_eq!(after("rate"), format!("{}Gbit", wanted / 1_000_000_000), "{text}");
        assert_eq!(after("ceil"), after("rate"));
        assert_eq!(after("htb"), "4c4c:1");
    }
}

async fn refuses_foreign_ids(file: &LinuxFile) {
    let mut file = file.clone();
    file.first_id = 60;
    let refused = driver(file).connect().await;
    assert!(refused.as_ref().is_err_and(|why| why.contains("nexthop 77")), "{refused:?}");
}

// SPDX-License-Identifier: Apache-2.0

use crate::scenes;
use scenes::{read, ring, scene};

fn refused(text: &str, with: &str) {
    let why = read(&ring(32, 96), text).unwrap_err();
    assert!(why.contains(with), "{why}\nlacks: {with}");
}

#[test]
fn rejects_settings_the_daemon_cannot_run() {
    refused(&scene(1, 1, "nobody", ""), "`nobody` is not an allowed value");
    refused(&scene(1, 1, "{lightloomd: {poll_every: 10us}}", ""), "use at least 1ms");
    refused(&scene(1, 1, "{lightloomd: {bits_per_second: 300}}", ""), "9600 to 50000000");
    refused(
        &scene(1, 1, "{lightloomd: {}, detection_delay: 1ms}", ""),
        "the scenario specifies more than one control plane",
    );
    refused(
        &scene(1, 1, "{assumed: {}, lightloomd: {}}", ""),
        "the scenario specifies more than one control plane",
    );
    refused(
        &scene(1, 1, "lightloomd", "{part: control, effect: {slower: 2}, at: 0us}"),
        "is supported only for assumed delays",
    );
    let effects = ["lies", "{late: 1ms}"].map(|effect| ("n9/b0", effect));
    for (part, effect) in effects.into_iter().chain([("control", "{slow_disk: 50ms}")]) {
        let faults = format!("{{part: {part}, effect: {effect}, at: 0us}}");
        read(&ring(32, 96), &scene(1, 1, "lightloomd", &faults)).unwrap();
        refused(&scene(1, 1, "{assumed: {}}", &faults), "requires the shipped daemon");
    }
    let wrong = [("n9", "lies"), ("n9/b0.1", "{late: 1ms}"), ("n9/b0", "{slow_disk: 50ms}")];
    for (part, effect) in wrong {
        let faults = format!("{{part: {part}, effect: {effect}, at: 0us}}");
        assert!(read(&ring(32, 96), &scene(1, 1, "lightloomd", &faults)).is_err());
    }
    let days = "replay: {trace: t.json, from_day: 0, to_day: 1, day_takes: 1ms}\nseed: 1";
    let replay = scene(1, 1, "lightloomd", "").replace("seed: 1", days);
    refused(&replay, "cannot respond to days in compressed time");
}

#[test]
fn rejects_the_daemon_on_a_network_without_transceivers() {
    let text = "kind: scenario\nversion: 2\nname: twin\non: {ring: {hosts: 8}}\nseed: 1\ntraffic:\n  \
                - {name: all, pattern: permutation, bytes: 1MiB}\ncontrol: lightloomd\n";
    refused(text, "k-hop ring");
}

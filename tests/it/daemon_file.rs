// SPDX-License-Identifier: Apache-2.0
//! Initial daemon files, from the package and from `lightloom init --daemon`.

use std::path::Path;

use lightloom_daemon::start::read_files;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn packaged_daemon_file_is_valid_and_names_no_device() {
    let (config, _) = read_files(&root().join("packaging/etc/daemon.yaml")).expect("it is read");
    assert!(config.inventory.devices.is_empty());
    let unit = std::fs::read_to_string(root().join("systemd/lightloomd.service")).unwrap();
    let build = std::fs::read_to_string(root().join("packaging/build")).unwrap();
    assert!(unit.contains("--config /etc/lightloom/daemon.yaml"));
    assert!(build.contains("\"$root/etc/lightloom\" packaging/etc/daemon.yaml"));
}

#[test]
fn init_writes_a_daemon_file_for_a_fabric() {
    let folder = tempfile::tempdir().unwrap();
    for (fabric, devices) in
        [("ring-32.yaml", 32 * 2), ("pod-64.yaml", 16 * 2 + 2), ("rfabric-slow-links.yaml", 16)]
    {
        let written = folder.path().join(format!("daemon-{fabric}"));
        let from = root().join("topologies").join(fabric);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_lightloom"))
            .args(["init", "--daemon"])
            .arg(&from)
            .arg("-o")
            .arg(&written)
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && says.contains("--check --config"), "{says}");
        let (config, _) =
            read_files(&written).unwrap_or_else(|error| panic!("{fabric}: {error:#}"));
        assert_eq!(config.inventory.devices.len(), devices, "{fabric}");
    }
}

#[test]
fn init_rejects_a_fabric_without_devices() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_lightloom"))
        .args(["init", "--daemon"])
        .arg(root().join("topologies/dragonfly-72.yaml"))
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && says.contains("would have no devices"), "{says}");
}

// SPDX-License-Identifier: Apache-2.0
//! Tests the daemon's messages to the socket in `NOTIFY_SOCKET`.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn systemd_receives_ready_watchdog_and_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("daemon.yaml"), format!("state_dir: {}\n", folder.path().display())).unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_lightloomd"));
    daemon.arg("--config").arg(at("daemon.yaml")).stderr(Stdio::null()).stdout(Stdio::null());
    daemon.env("NOTIFY_SOCKET", at("notify")).env("WATCHDOG_USEC", "200000");
    let daemon = Running(daemon.spawn().unwrap());
    let heard = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    assert_eq!(heard(), "READY=1\nSTATUS=serving\n");
    assert_eq!(heard(), "WATCHDOG=1\n");
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!((0..1_000).any(|_| heard() == "STOPPING=1\n"));
}

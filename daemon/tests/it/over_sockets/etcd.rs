// SPDX-License-Identifier: Apache-2.0
//! A real etcd with one member on loopback, if installed.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STARTS_WITHIN: Duration = Duration::from_secs(30);

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts etcd, or prints a note and returns `None` if etcd is not installed.
pub(crate) fn etcd(folder: &Path) -> Option<(Child, String)> {
    if Command::new("etcd").arg("--version").output().is_err() {
        println!("skipped: no etcd");
        return None;
    }
    // Retry, because another program may use the free port before etcd does.
    for _ in 0..5 {
        let [client, peer] = [(); 2].map(|()| format!("http://127.0.0.1:{}", free_port()));
        std::fs::write(folder.join("peer"), &peer).unwrap();
        let mut child = start(folder, &client, &peer);
        let until = Instant::now() + STARTS_WITHIN;
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            let url = client.trim_start_matches("http://");
            if TcpStream::connect(url).is_ok() {
                return Some((child, client));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("etcd does not start");
}

#[allow(dead_code, reason = "not every program that has this file ends one")]
pub(crate) fn again(folder: &Path, client: &str) -> Child {
    start(folder, client, &std::fs::read_to_string(folder.join("peer")).unwrap())
}

fn start(folder: &Path, client: &str, peer: &str) -> Child {
    Command::new("etcd")
        .args(["--data-dir", &folder.join("etcd").display().to_string()])
        .args(["--listen-client-urls", client, "--advertise-client-urls", client])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

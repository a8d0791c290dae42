// SPDX-License-Identifier: Apache-2.0
//! Starts a real Redis on loopback for tests of the SONiC driver.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Redis {
    child: Child,
    pub(crate) address: String,
}

impl Redis {
    /// Starts Redis with additional options. Returns `None` if `redis-server` is not installed.
    ///
    /// If another program uses the port first, Redis exits and another port is tried.
    pub(crate) fn start(more: &[&str]) -> Option<Self> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--port", &port.to_string()])
                .args(more)
                .stdout(Stdio::piped())
                .spawn();
            let Ok(child) = child else {
                eprintln!("skipped: no redis-server");
                return None;
            };
            let mut redis = Self { child, address: format!("127.0.0.1:{port}") };
            if redis.wait_until_ready() {
                return Some(redis);
            }
        }
        panic!("redis-server does not listen")
    }

    /// Waits for the server's output, because a connection could reach another server.
    fn wait_until_ready(&mut self) -> bool {
        let said = BufReader::new(self.child.stdout.take().unwrap());
        let mut lines = said.lines().map_while(Result::ok);
        let ready = lines.any(|line| line.contains("Ready to accept connections"));
        // Read and discard later output, so that the server never blocks.
        std::thread::spawn(move || lines.count());
        ready
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Tests the real daemon on a small disk that fills up and becomes free again, without a restart.
//! Requires root for a mount namespace.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Daemon {
    process: Child,
    socket: PathBuf,
    state: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Daemon {
    /// Starts a daemon on a disk of 16 MiB. Returns `None` if namespaces are not available.
    fn start(folder: &Path) -> Option<Self> {
        let namespace = Command::new("unshare").args(["-m", "true"]).status();
        if !namespace.is_ok_and(|status| status.success()) {
            println!("skipped: no mount namespace can be had here");
            return None;
        }
        let (file, state) = (folder.join("daemon.yaml"), folder.join("state"));
        let socket = folder.join("socket");
        std::fs::create_dir(&state).unwrap();
        let text = format!("state_dir: {}\nsocket: {}\n", state.display(), socket.display());
        std::fs::write(&file, text).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=16m none {} && exec {} --config {}",
            state.display(),
            env!("CARGO_BIN_EXE_lightloomd"),
            file.display()
        );
        let process = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let root = PathBuf::from(format!("/proc/{}/root", process.id()));
        let state = root.join(state.strip_prefix("/").unwrap());
        let daemon = Self { process, socket, state };
        let until = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&daemon.socket).is_err() {
            assert!(Instant::now() < until, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(daemon)
    }

    fn talk(&self, request: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn status(&self) -> Value {
        let head = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let (code, status) = self.talk(head);
        assert_eq!(code, 200);
        status
    }

    fn change(&self, id: &str) -> (u16, String) {
        let body = format!("{{\"request_id\": \"{id}\", \"devices\": []}}");
        let (code, answer) = self.talk(&format!(
            "POST /v1/adopt HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        (code, answer.to_string())
    }

    fn fill(&self) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.state.join("fill")).unwrap();
        for piece in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.state.join("fill")).unwrap();
    }

    fn wait_until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Duration {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is(&status) {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(30), "waited in vain: {what}: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn status_reports_a_full_disk_and_writing_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(daemon) = Daemon::start(folder.path()) else { return };
    let well =
        |status: &Value| status["journal_failure"].is_null() && status["audit_failure"].is_null();
    for round in 0..3 {
        assert_eq!(daemon.change(&format!("{round}-before")).0, 200);
        daemon.fill();
        // Lines fit until the last page of each file is full; then the daemon releases the reserve.
        let mut line = 0;
        let refused = loop {
            let (code, answer) = daemon.change(&format!("{round}-{line}"));
            line += 1;
            if code != 200 {
                break answer;
            }
            assert!(line < 60, "nothing is refused on a full disk");
        };
        assert!(refused.contains("the disk is full"), "{refused}");
        let status = daemon.status();
        assert!(!well(&status), "all is not well: {status}");
        daemon.fill();
        assert_eq!(daemon.change(&format!("{round}-refused")).0, 422);
        assert!(!well(&daemon.status()));
        daemon.empty();
        let after = daemon.wait_until("room is noticed", well);
        let (code, answer) = daemon.change(&format!("{round}-after"));
        assert_eq!(code, 200, "{answer}");
        println!(
            "refused after {line} lines on a full disk; accepted {after:.1?} after there was room"
        );
    }
    for file in ["journal.log", "audit.log"] {
        let text = std::fs::read_to_string(daemon.state.join(file)).unwrap();
        for round in 0..3 {
            for what in ["before", "after"] {
                let id = format!("\"{round}-{what}\"");
                assert!(text.contains(&id), "{file}: what was accepted is on the record: {id}");
            }
        }
    }
}

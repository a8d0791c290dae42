// SPDX-License-Identifier: Apache-2.0
//! Runs the real daemon in a separate process, with an API client and a small SCPI switch.

pub(crate) mod etcd;
pub(crate) mod relay;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A 320 x 320 switch with a switching time of `switch_millis`.
#[derive(Default)]
pub(crate) struct Switch {
    pub circuits: Mutex<BTreeMap<u32, u32>>,
    pub switch_millis: AtomicU64,
    pub lies: AtomicBool,
    pub babbles: AtomicBool,
    pub received: Mutex<Vec<String>>,
}

impl Switch {
    pub(crate) fn serve() -> (Arc<Self>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let switch = Arc::new(Self::default());
        let serving = switch.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let switch = serving.clone();
                thread::spawn(move || switch.client(&stream));
            }
        });
        (switch, port)
    }

    fn client(&self, stream: &TcpStream) {
        stream.set_nodelay(true).unwrap();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            self.received.lock().unwrap().push(line.clone());
            let answer = self.answer(&line);
            let mut out = stream;
            if self.babbles.load(Ordering::Relaxed) {
                let _ = out.write_all(b"\xff\x00(@@,;1\n\n\n\"no\"\r\n");
            }
            if out.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, line: &str) -> String {
        let list = |text: &str| -> Vec<u32> {
            text.trim_matches(['(', ')', '@']).split(',').filter_map(|p| p.parse().ok()).collect()
        };
        if let Some(change) = line.strip_prefix("*cls;:oxc:swit:conn:") {
            let (verb, rest) = change.split_once(' ').unwrap();
            let rest = rest.strip_suffix(";:syst:err?").unwrap();
            let (lists, barrier) = rest.split_once(";*OPC?").map_or((rest, ""), |(l, _)| (l, "1;"));
            let (a, b) = lists.split_once("),(").unwrap();
            thread::sleep(Duration::from_millis(self.switch_millis.load(Ordering::Relaxed)));
            if !self.lies.load(Ordering::Relaxed) {
                let mut circuits = self.circuits.lock().unwrap();
                for (a, b) in list(a).into_iter().zip(list(b)) {
                    if verb == "sub" {
                        assert_eq!(circuits.remove(&a), Some(b));
                    } else {
                        assert!(!circuits.values().any(|held| *held == b), "{b} held twice");
                        assert!(circuits.insert(a, b).is_none(), "{a} held twice");
                    }
                }
            }
            return format!("{barrier}0, \"No error\"");
        }
        if let Some((first, second)) = line.split_once(';') {
            return format!("{};{}", self.answer(first), self.answer(second));
        }
        match line {
            "*idn?" => "Polatis,N-OST-320x320,0001,6.5".into(),
            ":oxc:swit:size?" => "320,320".into(),
            ":oxc:swit:conn:stat?" => {
                let circuits = self.circuits.lock().unwrap();
                let join = |ports: Vec<&u32>| {
                    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
                };
                let (a, b) = (circuits.keys().collect(), circuits.values().collect());
                format!("(@{}),(@{})", join(a), join(b))
            }
            _ => {
                let ports = list(line.strip_prefix(":pmon:pow? ").unwrap());
                format!("({})", vec!["-3.2"; ports.len()].join(","))
            }
        }
    }
}

pub(crate) struct Daemon {
    pub child: Child,
    pub folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn file(folder: &Path, port: u16) -> String {
        format!(
            "state_dir: {}\npolicies: {{poll_every: 200ms}}\ndevices:\n\
             - name: ocs0\n  driver: {{scpi: {{tcp: \"127.0.0.1:{port}\"}}}}\n",
            folder.display()
        )
    }

    pub(crate) fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("daemon.yaml"), Self::file(folder.path(), port)).unwrap();
        let child = Self::spawn(folder.path());
        let daemon = Self { child, folder };
        daemon.wait_until_up();
        daemon
    }

    pub(crate) fn spawn(folder: &Path) -> Child {
        Command::new(env!("CARGO_BIN_EXE_lightloomd"))
            .arg("--config")
            .arg(folder.join("daemon.yaml"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub(crate) fn wait_until_up(&self) {
        wait_for("every device to be seen", || {
            let status = self.try_get("/v1/status")?;
            let devices = status["devices"].as_array()?;
            devices.iter().all(|device| device["state"] != "unseen").then_some(())
        });
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = Self::spawn(self.folder.path());
        self.wait_until_up();
    }

    pub(crate) fn talk(&self, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let stream = UnixStream::connect(self.folder.path().join("lightloomd.sock")).ok()?;
        talk(stream, head, body)
    }

    pub(crate) fn try_get(&self, path: &str) -> Option<Value> {
        let (code, body) = self
            .talk(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), &[])?;
        (code == 200).then(|| serde_json::from_slice(&body).ok())?
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.try_get(path).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let (code, body) = self.talk(&head, body.as_bytes()).unwrap();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn apply(&self, id: &str, target: &Value, more: &Value) -> (u16, Value) {
        let mut body = json!({"request_id": id, "target": {"ocs0": target}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("/v1/apply", &body)
    }

    pub(crate) fn ends(&self, answer: &Value) -> Value {
        let txn = answer["txn"].as_u64().unwrap_or_else(|| panic!("not accepted: {answer}"));
        self.get(&format!("/v1/transactions/{txn}?wait_ms=20000"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn talk(mut stream: UnixStream, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|b| b == b"\r\n\r\n")?;
    let code = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1)?.parse().ok()?;
    Some((code, answer[end + 4..].to_vec()))
}

#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn circuits(shift: u32, count: u32) -> BTreeMap<u32, u32> {
    (0..count).map(|i| (i + 1, 321 + (i + shift) % count)).collect()
}

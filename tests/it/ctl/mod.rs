// SPDX-License-Identifier: Apache-2.0
//! Tests `lightloom ctl` with a simulated daemon.

mod changes;
mod status;
mod waiting;

use crate::programs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

struct Daemon {
    socket: PathBuf,
    heard: Arc<Mutex<Vec<u8>>>,
    answers: Arc<Mutex<Vec<(String, u16, Value)>>>,
}

impl Daemon {
    fn plays(folder: &Path, answers: &[(&str, u16, Value)]) -> Self {
        let socket = folder.join("lightloomd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let own =
            |(path, code, body): &(&str, u16, Value)| ((*path).to_owned(), *code, body.clone());
        let answers = Arc::new(Mutex::new(answers.iter().map(own).collect()));
        let kept = Arc::clone(&answers);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let last = Arc::clone(&heard);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                answer(&client.unwrap(), &kept, &last);
            }
        });
        Self { socket, heard, answers }
    }

    fn heard(&self) -> Value {
        serde_json::from_slice(&self.heard.lock().unwrap()).unwrap()
    }

    fn says(&self, path: &str, code: u16, body: Value) {
        let mut answers = self.answers.lock().unwrap();
        answers.retain(|(known, ..)| known != path);
        answers.push((path.to_owned(), code, body));
    }

    fn goes_away(&self) {
        std::fs::remove_file(&self.socket).unwrap();
    }
}

fn answer(
    mut client: &UnixStream,
    answers: &Mutex<Vec<(String, u16, Value)>>,
    heard: &Mutex<Vec<u8>>,
) {
    let mut reader = BufReader::new(client);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    if !first.contains("HTTP/") {
        let _ = write!(client, "HTTP/1.1 400 Bad Request\r\n\r\n");
        return;
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(bytes) = line.strip_prefix("Content-Length: ") {
            length = bytes.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).unwrap();
    *heard.lock().unwrap() = body;
    let path = first.split(' ').nth(1).unwrap();
    let path = path.split('?').next().unwrap();
    let known = answers.lock().unwrap();
    let found = known.iter().find(|(known, ..)| known == path);
    let (code, body) = found.map_or((404, json!("nothing here")), |(_, c, b)| (*c, b.clone()));
    let _ = write!(client, "HTTP/1.1 {code} x\r\nConnection: close\r\n\r\n{body}");
}

fn ctl(daemon: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::lightloom());
    command.arg("ctl").args(arguments).arg("--socket").arg(daemon).env("TZ", "UTC");
    command
}

fn run(daemon: &Daemon, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = ctl(&daemon.socket, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn device(name: &str, state: &str, trouble: Option<&str>) -> Value {
    json!({
        "name": name, "identity": "maker,module", "up": state != "unseen", "trouble": trouble,
        "state": state, "slots": {"0": 1}, "power_dbm": {}, "drift": [],
    })
}

fn quiet() -> Value {
    json!({
        "daemon": "0.1.0", "version": 7, "plan_sha256": "0123456789abcdef", "transaction": null,
        "pending": null, "attention": {}, "held": [], "journal_records": 12,
        "journal_failure": null, "circuits": [{"a": "n1/b0.1", "b": "n2/b1.1", "stands": true}],
        "journal_damage": null, "broken": [], "broken_parts": [], "unseen": [],
        "bypass_budget": {"used": 0, "per_hour": 10}, "devices": [device("n1/b0", "as-wanted", None)], "transactions": [],
    })
}

fn status(changes: Value) -> Value {
    let mut status = quiet();
    for (key, value) in changes.as_object().unwrap() {
        status[key] = value.clone();
    }
    status
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

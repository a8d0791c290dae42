// SPDX-License-Identifier: Apache-2.0
//! Six hostile clients of the real daemon, three of them without the role for changes, endlessly
//! send long bodies, truncated bodies, and requests that are valid or refused. The daemon's memory
//! and files must stay small, and it must respond to status requests.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lightloom_testkit::{alone, passed_alone};

const RSS_KB_MAX: u64 = 128 << 10;
const GROWTH_BYTES_MAX: u64 = 1 << 20;
const STATUS_WITHIN: Duration = Duration::from_secs(1);
/// Environment variable with the duration (in milliseconds) and socket of an attack.
const HOSTILE: &str = "LIGHTLOOM_TEST_HOSTILE";
const NOBODY: u32 = 65_534;

struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (file, state) = (folder.path().join("daemon.yaml"), folder.path().join("state"));
        let socket = folder.path().join("socket");
        let text = format!("state_dir: {}\nsocket: {}\n", state.display(), socket.display());
        std::fs::write(&file, text).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_lightloomd"))
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self { process, folder };
        let until = Instant::now() + Duration::from_secs(30);
        while status(&daemon.socket()).is_none() {
            assert!(Instant::now() < until, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::set_permissions(daemon.socket(), PermissionsExt::from_mode(0o666)).unwrap();
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn rss_kb(&self, what: &str) -> u64 {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn written(&self) -> u64 {
        let length = |name: &str| {
            std::fs::metadata(self.folder.path().join("state").join(name)).unwrap().len()
        };
        length("journal.log") + length("audit.log")
    }
}

fn status(socket: &Path) -> Option<Duration> {
    let began = Instant::now();
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    answer.starts_with(b"HTTP/1.1 200").then(|| began.elapsed())
}

/// Sends `length` bytes, `start` and copies of `again`, and returns the status code.
fn send(socket: &Path, path: &str, length: usize, start: &str, again: &str) -> Option<u16> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(2))).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{start}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let (piece, mut left) = (again.repeat(65_536 / again.len().max(1)), length - start.len());
    while left > 0 && !piece.is_empty() {
        let count = left.min(piece.len());
        if stream.write_all(&piece.as_bytes()[..count]).is_err() {
            break;
        }
        left -= count;
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
}

fn hostile(socket: &Path, client: usize, until: Instant) -> usize {
    let (mut answered, mut turn, mut halves) = (0, client, Vec::new());
    while Instant::now() < until {
        turn += 1;
        let id = format!("{}-{client}-{turn}", std::process::id());
        let code = match turn % 8 {
            0 => send(socket, "/v1/apply", 20 << 20, "{\"plan\": {\"faults\": [", "\"n1\","),
            1 => send(socket, "/v1/confirm", 40 << 20, "{\"request_id\": \"", "x"),
            2 => send(socket, "/v1/diff", 20 << 20, "{\"plan\": {\"phases\": [", "[[0],[0]],"),
            3 => send(socket, "/v1/adopt", 900 << 10, "{\"devices\": [", "0,"),
            4 => send(socket, "/v1/drain", 60 << 10, "{\"request_id\": \"", "x"),
            5 => {
                for _ in 0..50 {
                    let Ok(mut half) = UnixStream::connect(socket) else { break };
                    let _ = half.write_all(
                        b"POST /v1/diff HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                          content-length: 50000\r\n\r\n{",
                    );
                    halves.push(half);
                }
                let many = halves.len().saturating_sub(100);
                drop(halves.drain(..many));
                None
            }
            6 => (0..50).fold(None, |_, more| {
                let body = format!("{{\"request_id\": \"{id}-{more}\", \"devices\": []}}");
                send(socket, "/v1/adopt", body.len(), &body, "")
            }),
            _ => (0..50).fold(None, |_, _| send(socket, "/v1/confirm", 2, "{}", "")),
        };
        answered += usize::from(code.is_some());
    }
    answered
}

fn six_for(time: Duration) {
    let daemon = Daemon::start();
    let (socket, before, until) = (daemon.socket(), daemon.written(), Instant::now() + time);
    // Another local user may read and preview. Only root can start a process as another user.
    let another = std::env::current_exe().unwrap();
    let mut without_role = Command::new(another);
    without_role
        .args(alone(module_path!(), "hostile_client_process"))
        .env(HOSTILE, format!("{} {}", time.as_millis(), socket.display()))
        .stdout(Stdio::piped())
        .uid(NOBODY);
    let without_role = without_role.spawn();
    let others = if without_role.is_ok() { 3 } else { 6 };
    if others == 6 {
        println!("skipped: clients of another user, for that takes root");
    }
    let clients: Vec<_> = (0..others)
        .map(|client| {
            let socket = socket.clone();
            std::thread::spawn(move || hostile(&socket, client, until))
        })
        .collect();
    let (mut waits, mut most) = (Vec::new(), 0);
    while Instant::now() < until {
        let began = Instant::now();
        waits.push(status(&socket).unwrap_or_else(|| began.elapsed() + Duration::from_secs(10)));
        most = most.max(daemon.rss_kb("VmRSS:"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let answered: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    if let Ok(other) = without_role {
        passed_alone(&other.wait_with_output().unwrap());
    }
    waits.sort();
    let (peak, grown) = (daemon.rss_kb("VmHWM:").max(most), daemon.written() - before);
    let most_of = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    println!(
        "six hostile clients for {time:.0?}: {:.1} MB resident at most, {:.1} kB written, {} statuses within {:.1?} \
         at the median, {:.1?} at p95, {:.1?} at most; {answered} rounds of those with the role answered",
        peak as f64 / 1e3,
        grown as f64 / 1e3,
        waits.len(),
        most_of(0.5),
        most_of(0.95),
        most_of(1.0)
    );
    assert!(peak <= RSS_KB_MAX, "{peak} kB");
    assert!(grown <= GROWTH_BYTES_MAX, "{grown} bytes");
    assert!(most_of(0.95) <= STATUS_WITHIN, "{waits:?}");
    assert!(answered > 0);
    assert!(status(&socket).is_some(), "it is well afterwards");
}

#[test]
fn hostile_clients_exhaust_no_disk_memory_or_connections() {
    six_for(Duration::from_secs(5));
}

#[test]
#[ignore = "takes a minute"]
fn hostile_clients_exhaust_nothing_within_a_minute() {
    six_for(Duration::from_secs(60));
}

#[test]
fn hostile_client_process() {
    let Ok(order) = std::env::var(HOSTILE) else { return };
    let (ms, socket) = order.split_once(' ').unwrap();
    let until = Instant::now() + Duration::from_millis(ms.parse().unwrap());
    let clients: Vec<_> = (3..6)
        .map(|client| {
            let socket = PathBuf::from(socket);
            std::thread::spawn(move || hostile(&socket, client, until))
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn truncated_bodies_are_dropped_within_seconds() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let halves: Vec<UnixStream> = (0..600)
        .map_while(|_| {
            let mut half = UnixStream::connect(&socket).ok()?;
            let head = "POST /v1/diff HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                        content-length: 1000\r\n\r\n{";
            half.write_all(head.as_bytes()).ok()?;
            Some(half)
        })
        .collect();
    assert_eq!(halves.len(), 600);
    for _ in 0..20 {
        let took = status(&socket).unwrap();
        assert!(took <= STATUS_WITHIN, "{took:?}");
    }
    let (began, mut last) = (Instant::now(), halves.into_iter().next_back().unwrap());
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    let _ = last.read_to_string(&mut answer);
    println!("hung up on after {:.1?}: {}", began.elapsed(), answer.lines().next().unwrap_or(""));
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.1 429"), "{answer}");
}

#[test]
fn rejects_a_request_by_its_head_before_reading_the_body() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let before = daemon.rss_kb("VmHWM:");
    // The daemon must respond to the head, because the body never arrives.
    let head_only = |path: &str, length: usize| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let long = head_only("/v1/confirm", (1 << 20) + 1);
    assert!(long.starts_with("HTTP/1.1 413") && long.contains("limited to 1 MB"), "{long}");
    let plan = head_only("/v1/apply", 65 << 20);
    assert!(plan.starts_with("HTTP/1.1 413") && plan.contains("limited to 64 MB"), "{plan}");
    // The client sends a second plan during the upload of the first one.
    let mut first = UnixStream::connect(&socket).unwrap();
    let head = "POST /v1/apply HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 20000000\r\n\r\n{\"plan\": {";
    first.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let second = head_only("/v1/diff", 20 << 20);
    assert!(second.starts_with("HTTP/1.1 429"), "{second}");
    assert!(second.to_lowercase().contains("retry-after: "), "{second}");
    assert!(daemon.rss_kb("VmHWM:") < before + (8 << 10), "nothing was read");
}

// SPDX-License-Identifier: Apache-2.0
//! Three optical switches, the daemon that drives them, and raw clients that read their circuits.

#[path = "../../../daemon/tests/it/redis_server/mod.rs"]
pub(crate) mod redis_server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::Storage;
use lightloom_daemon::{api, serve, start};
use lightloom_devices as device;
use lightloom_devices::serve::{Options, Server, Stopper};
use lightloom_gnmi::client::{Answer, GnmiCall, GnmiClient};
use lightloom_gnmi::message::GetRequest;
use redis_server::Redis;
use serde_json::Value;

/// A raw client must be able to read in between, even on a busy machine.
const SWITCHING: &str = "150ms";

/// Kind of `ocs2`; `ocs0` uses SCPI and `ocs1` TL1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Third {
    Tl1,
    Sonic,
    Gnmi,
    OtherSize,
}

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    judges: [Judge; 3],
    scpi: [String; 2],
    /// The daemon is dropped before its devices.
    daemon: std::sync::Mutex<Option<Daemon>>,
    _switches: Switches,
    _redis: Option<Redis>,
}

#[derive(Clone)]
enum Judge {
    Tl1(String),
    Redis(String),
    Gnmi(String),
}

pub(crate) fn write_fabric(folder: &Path) {
    let fabric = "kind: fabric
version: 2
name: small
dcn:
  reconfigurable_fat_tree:
    leaves: 4
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 3.2Tbps, oversubscription: 16}
    banks:
      - {name: core, switches: 3, ports_per_switch: 8, ports_per_leaf: 2, insertion_loss_db: 1.5}
    timing: {control: 5ms, switching: 10ms}
    failure_domains: 3
jobs:
  - name: small
    step:
      phases:
        - {name: experts, slack: 100ms, demand: {csv: experts.csv}}
        - {name: weights, slack: 100ms, demand: {csv: weights.csv}}
";
    let experts = "0, 8e10, 0, 0\n8e10, 0, 1e10, 0\n0, 1e10, 0, 8e10\n0, 0, 8e10, 0\n";
    let weights = "0, 0, 8e10, 0\n0, 0, 0, 8e10\n8e10, 0, 0, 1e10\n0, 8e10, 1e10, 0\n";
    for (name, text) in [("small.yaml", fabric), ("experts.csv", experts), ("weights.csv", weights)]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

pub(crate) fn lightloom(arguments: &[&str]) -> Output {
    Command::new(crate::programs::lightloom()).args(arguments).output().unwrap()
}

fn plan(folder: &Path) {
    let path = |name: &str| folder.join(name).display().to_string();
    let planned = lightloom(&["plan", &path("small.yaml"), "-o", &path("PLAN")]);
    assert!(planned.status.success(), "{planned:?}");
}

pub(crate) fn exported(folder: &Path, phase: &str, ocs: &str) -> Value {
    plan(folder);
    let path = |name: &str| folder.join(name).display().to_string();
    let (fabric, to) = (path("small.yaml"), path("export"));
    let export = ["export", &path("PLAN"), "--fabric", &fabric, "--to", "sonic-ocs"];
    let output = lightloom(&[&export[..], &["--phase", phase, "-o", &to]].concat());
    assert!(output.status.success(), "{output:?}");
    let file = folder.join("export").join(format!("{ocs}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

impl Rig {
    pub(crate) fn start(third: Third) -> Option<Self> {
        let redis = match third {
            Third::Sonic => Some(Redis::start(&[])?),
            Third::Tl1 | Third::Gnmi | Third::OtherSize => None,
        };
        let folder = tempfile::tempdir().unwrap();
        write_fabric(folder.path());
        let path = |name: &str| folder.path().join(name).display().to_string();
        plan(folder.path());
        let ports = if third == Third::OtherSize { 9 } else { 8 };
        let (switches, at) = Switches::serve(ports);
        let of = |name: &str, speaks: &str| -> String {
            let found = at.iter().find(|a| a.name == name && a.speaks == speaks);
            found.unwrap().at.clone()
        };
        std::fs::write(path("password"), "root").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path("password"), mode).unwrap();
        let tl1 = |name: &str| {
            let (at, password) = (of(name, "tl1"), path("password"));
            format!(
                "{{tl1: {{tcp: \"{at}\", user: root, password_file: {password}, allow_default_password: true}}}}"
            )
        };
        let driver = match &redis {
            Some(redis) => format!("{{sonic: {{tcp: \"{}\", read_config: true}}}}", redis.address),
            None if third == Third::Gnmi => {
                format!("{{gnmi: {{tcp: \"{}\", plaintext: true}}}}", of("ocs3", "gnmi"))
            }
            None => tl1("ocs2"),
        };
        let file = format!(
            "state_dir: {}\nfabric: small.yaml\npolicies: {{poll_every: 200ms}}\ndevices:\n\
             - {{name: ocs0, driver: {{scpi: {{tcp: \"{}\"}}}}, limits: {{reply_within: 10s}}}}\n\
             - {{name: ocs1, driver: {}, limits: {{reply_within: 10s}}}}\n\
             - {{name: ocs2, driver: {driver}, limits: {{reply_within: 10s}}}}\n",
            path("state"),
            of("ocs0", "scpi"),
            tl1("ocs1"),
        );
        std::fs::write(path("daemon.yaml"), file).unwrap();
        let judges = [
            Judge::Tl1(of("ocs0", "tl1")),
            Judge::Tl1(of("ocs1", "tl1")),
            match &redis {
                Some(redis) => Judge::Redis(redis.address.clone()),
                None if third == Third::Gnmi => Judge::Gnmi(of("ocs3", "gnmi")),
                None => Judge::Tl1(of("ocs2", "tl1")),
            },
        ];
        let daemon = Daemon::start(folder.path());
        let scpi = ["ocs0", "ocs1"].map(|name| of(name, "scpi"));
        let daemon = std::sync::Mutex::new(Some(daemon));
        let rig = Self { folder, judges, scpi, daemon, _switches: switches, _redis: redis };
        rig.ctl(&["wait", "--for", "60s"]);
        Some(rig)
    }

    pub(crate) fn plan(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("PLAN")).unwrap()).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let (plan, socket) =
            (self.folder.path().join("PLAN"), self.folder.path().join("state/lightloomd.sock"));
        let (plan, socket) = (plan.display().to_string(), socket.display().to_string());
        let arguments = arguments.iter().map(|a| if *a == "PLAN" { &*plan } else { *a });
        let mut all: Vec<&str> = ["ctl"].into_iter().chain(arguments).collect();
        if all[1] == "apply" && !all.contains(&"--dry-run") {
            all.push("--cut-light");
        }
        lightloom(&[&all[..], &["--socket", &socket]].concat())
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        Self::done(arguments, self.run(arguments))
    }

    fn done(arguments: &[&str], output: Output) -> String {
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}\n{out}{err}");
        out.into_owned()
    }

    pub(crate) fn ctl_in_vain(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}\n{out}{err}");
        format!("{out}{err}")
    }

    pub(crate) fn http(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        http(&self.folder.path().join("state/lightloomd.sock"), method, path, body)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("state/lightloomd.sock")
    }

    pub(crate) fn refused(&self, plan: &Value, more: &[&str]) -> String {
        let other = self.folder.path().join("other");
        std::fs::write(&other, plan.to_string()).unwrap();
        let other = other.display().to_string();
        let output = self.run(&[&["apply", &*other], more].concat());
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        format!("{out}{err}")
    }

    pub(crate) fn ctl_watched(&self, arguments: &[&str]) -> (String, Vec<[String; 3]>) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let [zero, one, two] = &self.judges;
                    let (two, one) = (two.lit(), one.lit());
                    seen.push([zero.lit(), one, two]);
                }
                seen
            });
            let output = self.run(arguments);
            over.store(true, Ordering::Relaxed);
            let seen = watcher.join().unwrap();
            let said = Self::done(arguments, output);
            seen.iter().flatten().for_each(|lit| no_port_is_in_two_circuits(lit));
            (said, seen)
        })
    }

    pub(crate) fn lit(&self) -> [String; 3] {
        self.judges.each_ref().map(Judge::lit)
    }

    pub(crate) fn waves(&self, said: &str) -> Vec<String> {
        let rows = said.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (wave, device) = (words.next()?, words.next()?);
            (wave.parse::<u32>().is_ok() && device.starts_with("ocs"))
                .then(|| format!("{wave} {device}"))
        });
        let mut rows: Vec<String> = rows.collect();
        rows.dedup();
        rows
    }

    pub(crate) fn restart(&self) {
        let mut daemon = self.daemon.lock().unwrap();
        drop(daemon.take());
        let _ = std::fs::remove_file(self.socket());
        *daemon = Some(Daemon::start(self.folder.path()));
    }

    pub(crate) fn restart_on(&self, open: Open) {
        self.stop();
        let _ = std::fs::remove_file(self.socket());
        *self.daemon.lock().unwrap() = Some(Daemon::start_on(self.folder.path(), open));
        self.ctl(&["wait", "--for", "60s"]);
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn with(&self, lines: &str) {
        let (file, first) = (self.path("daemon.yaml"), self.path("first.yaml"));
        if !Path::new(&first).exists() {
            std::fs::copy(&file, &first).unwrap();
        }
        std::fs::write(file, lines.to_owned() + &std::fs::read_to_string(first).unwrap()).unwrap();
        self.restart();
        self.ctl(&["wait", "--for", "60s"]);
    }

    pub(crate) fn stop(&self) {
        drop(self.daemon.lock().unwrap().take());
    }

    pub(crate) fn scpi(&self, ocs: usize) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            // The switch accepts one SCPI client, and the previous one may still be connected.
            let socket = TcpStream::connect(&self.scpi[ocs]).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut answer = String::new();
            let asked = (&socket).write_all(b":OXC:SWIT:CONN:STAT?\n");
            let read = BufReader::new(&socket).read_line(&mut answer);
            if asked.is_ok() && read.is_ok_and(|bytes| bytes > 0) {
                return answer.trim().to_owned();
            }
            assert!(Instant::now() < until, "the switch takes no SCPI client");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Judge {
    fn lit(&self) -> String {
        match self {
            Self::Tl1(at) => {
                let socket = talk(at, b"ACT-USER::root:1::root;\nRTRV-PATCH:::2:;\n");
                tl1_lines(&socket).expect("it answers").join(" ")
            }
            Self::Redis(at) => {
                let socket = talk(at, b"SELECT 4\r\nKEYS OCS_CROSS_CONNECT|*\r\nPING\r\n");
                let lines = BufReader::new(&socket).lines().map(Result::unwrap);
                let lines: Vec<String> = lines.take_while(|line| line != "+PONG").collect();
                let keys = lines.iter().filter_map(|l| l.strip_prefix("OCS_CROSS_CONNECT|"));
                let mut keys: Vec<&str> = keys.collect();
                keys.sort_unstable();
                keys.join(" ")
            }
            Self::Gnmi(at) => gnmi_pairs(at),
        }
    }
}

fn gnmi_pairs(at: &str) -> String {
    let path = "/components/component[name=*]/ocp-ocs-port/state/connection/peer";
    let path = vec![lightloom_gnmi::path::parse(path).unwrap()];
    let get = GetRequest { path, encoding: 2, ..GetRequest::default() };
    let mut client = GnmiClient::new(at).unwrap();
    client.call(1, GnmiCall::Get(get));
    let mut socket = talk(at, b"");
    let mut buffer = [0; 65_536];
    let said = loop {
        socket.write_all(&client.take_output()).unwrap();
        let count = socket.read(&mut buffer).unwrap();
        client.receive(&buffer[..count]);
        match client.next_answer() {
            Some((_, Answer::Got(said))) => break said,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    };
    let number = |name: &str, side: &str| name.strip_prefix(side)?.parse::<u32>().ok();
    let pair = |update: &lightloom_gnmi::message::Update| {
        let port = update.path.as_ref()?.elem[1].key["name"].clone();
        let peer = update.val.as_ref()?.to_json().ok()?;
        Some((number(&port, "in-")?, number(peer.as_str()?, "out-")? + 8))
    };
    let mut pairs: Vec<_> = said.notification[0].update.iter().filter_map(pair).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(a, b)| format!("{a},{b}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn http(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (code, body) = http_text(socket, method, path, body);
    (code, serde_json::from_str(&body).unwrap_or(Value::Null))
}

pub(crate) fn http_text(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, String) {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let code = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (code, body.to_owned())
}

pub(crate) fn talk(at: &str, words: &[u8]) -> TcpStream {
    let socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A peer that disconnects immediately is detected by the reader.
    let _ = (&socket).write_all(words);
    socket
}

pub(crate) fn tl1_lines(mut socket: &TcpStream) -> Option<Vec<String>> {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let count = socket.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            return None;
        }
        text += std::str::from_utf8(&buffer[..count]).unwrap();
        let Some((_, reply)) = text.split_once("M  2 COMPLD") else { continue };
        let Some((body, _)) = reply.split_once(';') else { continue };
        let quoted = body.split('"').skip(1).step_by(2);
        return Some(quoted.map(str::to_owned).collect());
    }
}

/// Port 0 is connected to port 2 by `1,11` on an 8 × 8 switch and by `1A-3B` on SONiC.
fn no_port_is_in_two_circuits(lit: &str) {
    let way = |words: &str| -> (u32, u32) {
        match words.split_once(',') {
            Some((from, to)) => (from.parse::<u32>().unwrap() - 1, to.parse::<u32>().unwrap() - 9),
            None => {
                let (from, to) = words.split_once('-').unwrap();
                let port = |side: &str| side[..side.len() - 1].parse::<u32>().unwrap() - 1;
                (port(from), port(to))
            }
        }
    };
    let ways: Vec<(u32, u32)> = lit.split_whitespace().map(way).collect();
    for (from, to) in &ways {
        for (other_from, other_to) in &ways {
            let shares = [from, to].iter().any(|port| [other_from, other_to].contains(port));
            let same = (from, to) == (other_from, other_to) || (from, to) == (other_to, other_from);
            assert!(!shares || same, "ports {from} and {to} are in two circuits: {lit}");
        }
    }
}

pub(crate) struct Switches {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Switches {
    fn serve(third_ports: u32) -> (Self, Vec<device::serve::ServedAddress>) {
        let switch = |name: &str, ports: u32| {
            format!(
                "  - {{name: {name}, ingress: {ports}, egress: {ports}, scpi: '127.0.0.1:0', \
                 tl1: '127.0.0.1:0', switching: {SWITCHING}}}\n"
            )
        };
        let gnmi = format!(
            "  - {{name: ocs3, ingress: 8, egress: 8, gnmi: {{listen: '127.0.0.1:0'}}, switching: {SWITCHING}}}\n"
        );
        let list = [switch("ocs0", 8), switch("ocs1", 8), switch("ocs2", third_ports), gnmi];
        let list = list.concat();
        let file = format!("seed: 1\nswitches:\n{list}");
        let (devices, mistakes) = device::load("devices.yaml", file.as_bytes());
        Self::of(devices.unwrap_or_else(|| panic!("{mistakes:?}")), None)
    }

    pub(crate) fn of(
        devices: device::DeviceList,
        control: Option<PathBuf>,
    ) -> (Self, Vec<device::serve::ServedAddress>) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let options = Options { control, ..Options::default() };
            let mut server = Server::start(devices, &options).unwrap();
            sender.send((server.stopper(), server.addresses().to_vec())).unwrap();
            server.run().unwrap();
        });
        let (stopper, at) = receiver.recv().unwrap();
        (Self { stopper, thread: Some(thread) }, at)
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        self.stopper.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

pub(crate) type Open = Box<dyn FnOnce(&Path) -> std::io::Result<Box<dyn Storage + Send>> + Send>;

fn usual(file: &Path) -> std::io::Result<Box<dyn Storage + Send>> {
    Ok(Box::new(FileStorage::open(file)?))
}

pub(crate) struct Daemon {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_on(folder, Box::new(usual))
    }

    fn start_on(folder: &Path, open: Open) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, wait) = std::sync::mpsc::channel();
        let file: PathBuf = folder.join("daemon.yaml");
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (config, installed) = start::read_files(&file).unwrap();
                let socket = start::socket_path(&config);
                let daemon = start::start_on(config, installed, open).unwrap();
                let socket = tokio::net::UnixListener::bind(socket).unwrap();
                tokio::spawn(serve::unix(socket, api::router(daemon.shared)));
                ready.send(()).unwrap();
                tokio::select! {
                    () = daemon.runtime.run(daemon.calls, daemon.events) => {}
                    _ = stopped => {}
                }
            });
        });
        wait.recv().unwrap();
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

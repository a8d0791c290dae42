// SPDX-License-Identifier: Apache-2.0
//! Sixteen optical switches of three kinds, the daemon that drives them, and raw clients that read their
//! circuits.

use crate::phases_rig as small;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lightloom_devices as device;
use serde_json::Value;
use small::redis_server::Redis;
use small::{Daemon, Switches, lightloom, talk, tl1_lines};

pub(crate) const SWITCHES: usize = 16;
const SCPI: usize = 6;
const TL1: usize = 5;
const PORTS: u64 = 16;
const LEAVES: usize = 8;
const PHASES: [&str; 4] = ["forward", "experts", "backward", "weights"];

pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The expected reading of a switch in a phase. Plans number ports from 0, and circuits carry both directions.
pub(crate) fn expected(plan: &Value, phase: &str, ocs: usize) -> String {
    let phases = plan["phases"].as_array().unwrap();
    let phase = phases.iter().find(|found| found["name"] == phase).unwrap();
    let name = format!("ocs{ocs}");
    let none = Vec::new();
    let circuits = phase["circuits"].as_array().unwrap_or(&none);
    let mut ways: Vec<(u64, u64)> = Vec::new();
    for circuit in circuits.iter().filter(|circuit| circuit["ocs"] == name.as_str()) {
        let (a, b) = (circuit["a_port"].as_u64().unwrap(), circuit["b_port"].as_u64().unwrap());
        ways.extend([(a, b), (b, a)]);
    }
    ways.sort_unstable();
    let words = |way: &(u64, u64)| match ocs >= SCPI + TL1 {
        true => format!("{}A-{}B", way.0 + 1, way.1 + 1),
        false => format!("{},{}", way.0 + 1, way.1 + 1 + PORTS),
    };
    ways.iter().map(words).collect::<Vec<_>>().join(" ")
}

pub(crate) fn ports_shared(lit: &str) -> Vec<u64> {
    let way = |words: &str| -> (u64, u64) {
        let number = |text: &str| text.trim_end_matches(['A', 'B']).parse::<u64>().unwrap();
        match (words.split_once(','), words.split_once('-')) {
            (Some((from, to)), _) => (number(from) - 1, number(to) - 1 - PORTS),
            (_, Some((from, to))) => (number(from) - 1, number(to) - 1),
            _ => panic!("{words}"),
        }
    };
    let mut with: BTreeMap<u64, u64> = BTreeMap::new();
    let mut shared = Vec::new();
    for (from, to) in lit.split_whitespace().map(way) {
        for (port, other) in [(from, to), (to, from)] {
            if with.insert(port, other).is_some_and(|before| before != other) {
                shared.push(port);
            }
        }
    }
    shared
}

enum Reach {
    /// The daemon and the test use different protocols, because a switch accepts one SCPI client.
    Switch {
        scpi: String,
        tl1: String,
    },
    Redis(Redis),
}

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    reach: Vec<Reach>,
    _daemon: Daemon,
    _switches: Switches,
}

fn write_fabric(folder: &Path) {
    let mut phases = String::new();
    let mut draws = Draws::new(3);
    for name in PHASES {
        let _ = writeln!(
            phases,
            "        - {{name: {name}, slack: 100ms, demand: {{csv: {name}.csv}}}}"
        );
        let mut rows = String::new();
        for from in 0..LEAVES {
            let bytes = |to: usize, draws: &mut Draws| match from == to {
                true => "0".to_owned(),
                false => format!("{}e9", 1 + draws.below(4) * draws.below(20)),
            };
            let row: Vec<String> = (0..LEAVES).map(|to| bytes(to, &mut draws)).collect();
            rows += &format!("{}\n", row.join(", "));
        }
        std::fs::write(folder.join(format!("{name}.csv")), rows).unwrap();
    }
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: sixteen\ndcn:\n  reconfigurable_fat_tree:\n    leaves: {LEAVES}\n    gpus_per_leaf: 64\n    \
         circuit_rate: 400Gbps\n    electrical: {{rate_per_leaf: 25.6Tbps, oversubscription: 16}}\n    banks:\n      \
         - {{name: core, switches: {SWITCHES}, ports_per_switch: {PORTS}, ports_per_leaf: 2, insertion_loss_db: 1.5}}\n    \
         timing: {{control: 5ms, switching: 10ms}}\n    failure_domains: 4\njobs:\n  - name: sixteen\n    step:\n      phases:\n{phases}"
    );
    std::fs::write(folder.join("fabric.yaml"), fabric).unwrap();
}

impl Rig {
    pub(crate) fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        write_fabric(folder.path());
        let planned = lightloom(&["plan", &path("fabric.yaml"), "-o", &path("PLAN")]);
        assert!(planned.status.success(), "{planned:?}");
        let list: String = (0..SCPI + TL1)
            .map(|ocs| {
                format!(
                    "  - {{name: ocs{ocs}, ingress: {PORTS}, egress: {PORTS}, scpi: '127.0.0.1:0', \
                     tl1: '127.0.0.1:0', switching: 10ms, boot: 300ms}}\n"
                )
            })
            .collect();
        let file = format!("seed: 1\nswitches:\n{list}");
        let (devices, mistakes) = device::load("devices.yaml", file.as_bytes());
        let devices = devices.unwrap_or_else(|| panic!("{mistakes:?}"));
        let control = folder.path().join("control.sock");
        let (switches, at) = Switches::of(devices, Some(control));
        let of = |ocs: usize, speaks: &str| {
            let name = format!("ocs{ocs}");
            at.iter().find(|at| at.name == name && at.speaks == speaks).unwrap().at.clone()
        };
        let mut reach = Vec::new();
        for ocs in 0..SWITCHES {
            reach.push(match ocs < SCPI + TL1 {
                true => Reach::Switch { scpi: of(ocs, "scpi"), tl1: of(ocs, "tl1") },
                false => Reach::Redis(Redis::start(&[])?),
            });
        }
        std::fs::write(path("password"), "root").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path("password"), mode).unwrap();
        let mut file = format!(
            "state_dir: {}\nfabric: fabric.yaml\npolicies: {{poll_every: 500ms}}\ndevices:\n",
            path("state")
        );
        let limits = "limits: {reply_within: 2s, reconcile_within: 4s, settle_within: 1s, late_within: 300ms}";
        for (ocs, reach) in reach.iter().enumerate() {
            let driver = match reach {
                Reach::Switch { scpi, .. } if ocs < SCPI => {
                    format!("{{scpi: {{tcp: \"{scpi}\"}}}}")
                }
                Reach::Switch { tl1, .. } => format!(
                    "{{tl1: {{tcp: \"{tl1}\", user: root, password_file: {}, allow_default_password: true}}}}",
                    path("password")
                ),
                Reach::Redis(redis) => {
                    format!("{{sonic: {{tcp: \"{}\", read_config: true}}}}", redis.address)
                }
            };
            file += &format!("- {{name: ocs{ocs}, driver: {driver}, {limits}}}\n");
        }
        std::fs::write(path("daemon.yaml"), file).unwrap();
        let daemon = Daemon::start(folder.path());
        let rig = Self { folder, reach, _daemon: daemon, _switches: switches };
        rig.ctl(&["wait", "--for", "60s"]);
        Some(rig)
    }

    pub(crate) fn plan(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("PLAN")).unwrap()).unwrap()
    }

    pub(crate) fn http(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        small::http(&self.folder.path().join("state/lightloomd.sock"), method, path, body)
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let (good, said) = self.try_ctl(arguments);
        assert!(good, "{arguments:?}\n{said}");
        said
    }

    pub(crate) fn try_ctl(&self, arguments: &[&str]) -> (bool, String) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (plan, socket) = (path("PLAN"), path("state/lightloomd.sock"));
        let arguments = arguments.iter().map(|a| if *a == "PLAN" { &*plan } else { *a });
        let all: Vec<&str> = ["ctl"].into_iter().chain(arguments).collect();
        let output = lightloom(&[&all[..], &["--socket", &socket]].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub(crate) fn lit(&self, ocs: usize) -> String {
        match &self.reach[ocs] {
            Reach::Switch { tl1, .. } if ocs < SCPI => tl1_text(tl1),
            Reach::Switch { scpi, .. } => scpi_text(scpi),
            Reach::Redis(redis) => redis_text(&redis.address),
        }
    }

    pub(crate) fn disturb(&self, ocs: usize, fault: &str) -> String {
        match &self.reach[ocs] {
            Reach::Switch { .. } => {
                self.control(ocs, fault);
                fault.to_owned()
            }
            Reach::Redis(redis) => {
                // Disconnects all clients of the database, or pauses their answers.
                let words: &[&[&str]] = match fault {
                    "lie" | "stuck" | "half-open" | "reboot" | "reboot-in-commit" => {
                        &[&["CLIENT", "KILL", "TYPE", "normal"]]
                    }
                    _ => &[&["CLIENT", "PAUSE", "150", "ALL"]],
                };
                resp(&redis.address, words);
                words[0].join(" ").to_lowercase()
            }
        }
    }

    pub(crate) fn mend(&self, ocs: usize) {
        if matches!(self.reach[ocs], Reach::Switch { .. }) {
            self.control(ocs, "clear");
        }
    }

    fn control(&self, ocs: usize, fault: &str) {
        let mut socket = UnixStream::connect(self.folder.path().join("control.sock")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        writeln!(socket, "ocs{ocs} {fault}").unwrap();
        let mut said = String::new();
        BufReader::new(socket).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "ok", "ocs{ocs} {fault}");
    }

    pub(crate) fn device_times(&self) -> String {
        let socket = self.folder.path().join("state/lightloomd.sock");
        let text = small::http_text(&socket, "GET", "/metrics", &Value::Null).1;
        let wanted = [
            "operation_seconds_sum",
            "operation_seconds_count",
            "journal_seconds_sum",
            "journal_seconds_count",
            "transaction_seconds_sum",
        ];
        let lines = text.lines().filter(|line| wanted.iter().any(|wanted| line.contains(wanted)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The connection to an unresponsive switch may be half-open, so it is then queried again.
const SILENT_FOR: Duration = Duration::from_secs(1);

fn tl1_text(at: &str) -> String {
    loop {
        let socket = talk(at, b"ACT-USER::root:1::root;\nRTRV-PATCH:::2:;\n");
        socket.set_read_timeout(Some(SILENT_FOR)).unwrap();
        if let Some(lines) = tl1_lines(&socket) {
            return lines.join(" ");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn scpi_text(at: &str) -> String {
    loop {
        let socket = talk(at, b":OXC:SWIT:CONN:STAT?\n");
        socket.set_read_timeout(Some(SILENT_FOR)).unwrap();
        let mut answer = String::new();
        let read = BufReader::new(&socket).read_line(&mut answer);
        if read.is_ok_and(|bytes| bytes > 0) && answer.starts_with('(') {
            let sides = answer.trim().trim_matches(['(', ')']).trim_start_matches('@');
            let (from, to) = sides.split_once("),(@").unwrap_or(("", ""));
            let pairs = from.split(',').zip(to.split(',')).filter(|(from, _)| !from.is_empty());
            let mut pairs: Vec<(u64, String)> =
                pairs.map(|(from, to)| (from.parse().unwrap(), format!("{from},{to}"))).collect();
            pairs.sort_unstable();
            return pairs.into_iter().map(|(_, pair)| pair).collect::<Vec<_>>().join(" ");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resp(at: &str, commands: &[&[&str]]) -> Vec<String> {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut words = String::new();
    for command in commands.iter().chain(&[&["PING"][..]]) {
        let _ = write!(words, "*{}\r\n", command.len());
        for word in *command {
            let _ = write!(words, "${}\r\n{word}\r\n", word.len());
        }
    }
    socket.write_all(words.as_bytes()).unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(&socket).lines() {
        // A client that disconnects itself gets no more lines.
        let Ok(line) = line else { break };
        if line == "+PONG" {
            break;
        }
        lines.push(line);
    }
    lines
}

fn redis_text(at: &str) -> String {
    let lines = resp(at, &[&["SELECT", "4"], &["KEYS", "OCS_CROSS_CONNECT|*"]]);
    let keys = lines.iter().filter_map(|line| line.strip_prefix("OCS_CROSS_CONNECT|"));
    let number = |key: &str| key.split_once('A').unwrap().0.parse::<u64>().unwrap();
    let mut keys: Vec<(u64, &str)> = keys.map(|key| (number(key), key)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, key)| key).collect::<Vec<_>>().join(" ")
}

// SPDX-License-Identifier: Apache-2.0
//! Three daemons, a real etcd and devices of five protocols: optical switches with TL1, SCPI, gNMI and
//! SONiC's Redis, and a module on a serial device. Independent raw sessions verify the light paths.

#[path = "../../daemon/tests/it/over_sockets/etcd.rs"]
mod etcd;
#[path = "../../daemon/tests/it/over_sockets/relay.rs"]
mod relay;

use crate::daemon_rig::Modules;
use crate::phases_rig::redis_server::Redis;
use crate::programs;
use relay::{Passes, Relay};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const STATUS: &str = "GET /v1/status HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const DEVICES: [&str; 5] = ["ocs0", "ocs1", "ocs2", "n0/b0", "ocs4"];

pub(crate) struct Hall {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) etcd: Child,
    _devices: Modules,
    /// Addresses of SCPI on `ocs0` and TL1 on `ocs1`; the daemons use the other protocol of each
    /// switch.
    raw: [String; 2],
    redis: Option<Redis>,
    pub(crate) daemons: BTreeMap<&'static str, Child>,
    ways: BTreeMap<&'static str, Relay>,
}

impl Drop for Hall {
    fn drop(&mut self) {
        for child in self.daemons.values_mut().chain([&mut self.etcd]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Hall {
    pub(crate) fn open() -> Option<Self> {
        Self::open_with(|_| String::new())
    }

    pub(crate) fn open_with(more: impl FnOnce(&Path) -> String) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let more = more(folder.path());
        let (etcd, url) = etcd::etcd(folder.path())?;
        let list = "transceivers:\n  - {names: \"n{0..0}/b{0..0}\", powered_for: 2s}\nswitches:\n  - {name: ocs0, ingress: 8, \
                    egress: 8, tl1: '127.0.0.1:0', scpi: '127.0.0.1:0', switching: 20ms}\n  - {name: ocs1, ingress: 8, egress: 8, \
                    scpi: '127.0.0.1:0', tl1: '127.0.0.1:0', switching: 20ms}\n  - {name: ocs2, ingress: 8, egress: 8, switching: 20ms, gnmi: {listen: \
                    '127.0.0.1:0', ports: sides}}\n";
        let links = folder.path().join("links");
        let (devices, at) = Modules::of_list_named(list, &links);
        let at = |name: &str, speaks: &str| {
            let found = at.iter().find(|one| one.name == name && one.speaks == speaks);
            found.unwrap_or_else(|| panic!("{name} speaks {speaks}")).at.clone()
        };
        let redis = Redis::start(&[]);
        let password = folder.path().join("password");
        std::fs::write(&password, "root\n").unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
        let sonic = redis.as_ref().map_or_else(String::new, |redis| {
            format!(
                "- {{name: ocs4, driver: {{sonic: {{tcp: \"{}\", read_config: true}}}}}}\n",
                redis.address
            )
        });
        let mut ways = BTreeMap::new();
        for name in ["a", "b", "c"] {
            let way = Relay::to(url.trim_start_matches("http://"));
            let file = format!(
                "state_dir: {0}/{name}\npolicies: {{poll_every: 100ms}}\netcd: {{endpoints: [\"http://{5}\"], prefix: /lightloom/t, \
                 name: {name}, lease: 2s}}\nmodules:\n- {{nodes: [0, 0], bundles: 1, serial: \"{1}/n{{node}}-b{{bundle}}\"}}\ndevices:\n- \
                 name: ocs0\n  driver:\n    tl1: {{tcp: \"{2}\", user: root, password_file: {0}/password, allow_default_password: \
                 true}}\n- {{name: ocs1, driver: {{scpi: {{tcp: \"{3}\"}}}}}}\n- {{name: ocs2, driver: {{gnmi: {{tcp: \"{4}\", plaintext: true, \
                 election: {{}}}}}}}}\n{sonic}{more}",
                folder.path().display(),
                links.display(),
                at("ocs0", "tl1"),
                at("ocs1", "scpi"),
                at("ocs2", "gnmi"),
                way.at,
            );
            ways.insert(name, way);
            std::fs::write(folder.path().join(format!("{name}.yaml")), file).unwrap();
        }
        let raw = [at("ocs0", "scpi"), at("ocs1", "tl1")];
        let mut hall = Self {
            folder,
            url,
            etcd,
            _devices: devices,
            raw,
            redis,
            daemons: BTreeMap::new(),
            ways,
        };
        ["a", "b", "c"].into_iter().for_each(|name| hall.start(name));
        hall.leader(None);
        Some(hall)
    }

    pub(crate) fn start(&mut self, name: &'static str) {
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join(format!("{name}.log")))
            .unwrap();
        let child = Command::new(programs::folder().join("lightloomd"))
            .args([
                "--config",
                &self.folder.path().join(format!("{name}.yaml")).display().to_string(),
            ])
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.insert(name, child);
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("lightloomd.sock")
    }

    pub(crate) fn ask(&self, name: &str, request: &str) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(self.socket(name)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).ok()?;
        answer(&mut stream)
    }

    pub(crate) fn status(&self, name: &str) -> Option<Value> {
        let (code, body) = self.ask(name, STATUS)?;
        (code == 200).then_some(body)
    }

    pub(crate) fn leader(&self, not: Option<&str>) -> (&'static str, Duration) {
        let began = Instant::now();
        loop {
            let mut others = self.daemons.keys().filter(|name| Some(**name) != not);
            if let Some(name) = others.find(|name| self.status(name).is_some()) {
                return (name, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "no daemon leads: {}", self.logs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn logs(&self) -> String {
        let log = |name: &&str| {
            std::fs::read_to_string(self.folder.path().join(format!("{name}.log")))
                .unwrap_or_default()
        };
        self.daemons.keys().map(log).collect()
    }

    /// Passes the sockets of all daemons, one of which is the leader.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> std::process::Output {
        let sockets: Vec<String> =
            self.daemons.keys().map(|name| self.socket(name).display().to_string()).collect();
        Self::ctl_at(&sockets, arguments)
    }

    pub(crate) fn ctl_at(sockets: &[String], arguments: &[&str]) -> std::process::Output {
        Command::new(programs::lightloom())
            .args(["ctl", "--socket", &sockets.join(",")])
            .args(arguments)
            .output()
            .unwrap()
    }

    pub(crate) fn apply(&self, egress: u32) -> bool {
        self.apply_to(&self.devices(), egress)
    }

    pub(crate) fn apply_to(&self, devices: &[&str], egress: u32) -> bool {
        let file = self.folder.path().join(format!("to-{egress}.json"));
        let target: Vec<String> = devices
            .iter()
            .map(|device| match *device {
                "n0/b0" => format!("\"n0/b0\": {{\"0\": {}}}", 1 + egress % 2),
                switch => format!("\"{switch}\": {{\"1\": {egress}}}"),
            })
            .collect();
        std::fs::write(&file, format!("{{\"target\": {{{}}}}}", target.join(", "))).unwrap();
        let output =
            self.ctl(&["apply", &file.display().to_string(), "--cut-light", "--mode", "update"]);
        if !output.status.success() {
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
        output.status.success()
    }

    pub(crate) fn devices(&self) -> Vec<&'static str> {
        let has = |device: &&str| *device != "ocs4" || self.redis.is_some();
        DEVICES.into_iter().filter(has).collect()
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        kill_process(Pid::from_child(&self.daemons[name]), signal).unwrap();
    }

    pub(crate) fn cut(&self, name: &str, is_cut: bool) {
        self.ways[name].set(if is_cut { Passes::Late } else { Passes::AtOnce });
    }

    pub(crate) fn kill(&mut self, name: &str) {
        let child = self.daemons.get_mut(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn light(&self) -> u32 {
        by_scpi(&self.raw[0])
    }

    /// Returns the outputs of port 1 on all switches except the gNMI switch, which raw sessions
    /// cannot query.
    pub(crate) fn lights(&self) -> Vec<u32> {
        let by_redis = self.redis.iter().map(|redis| by_redis(&redis.address));
        [by_scpi(&self.raw[0]), by_tl1(&self.raw[1])].into_iter().chain(by_redis).collect()
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "not {what}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn by_scpi(at: &str) -> u32 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b":oxc:swit:conn:port? 1\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim().trim_matches('"').parse().unwrap_or_else(|_| panic!("{line}"))
}

fn by_tl1(at: &str) -> u32 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ACT-USER::root:1::root;RTRV-PATCH:::2:;").unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !(text.contains("M  2 ") && text.ends_with(';')) {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{text}");
        text.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
    let pairs = text.lines().map(|line| line.trim().trim_matches('"'));
    let joined = pairs.filter_map(|line| line.strip_prefix("1,")).next_back();
    joined.and_then(|egress| egress.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn by_redis(at: &str) -> u32 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"SELECT 4\r\nKEYS OCS_CROSS_CONNECT|1A-*\r\nPING\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let lines: Vec<String> = lines.take_while(|line| line != "+PONG").collect();
    let joined = lines.iter().find_map(|line| line.strip_prefix("OCS_CROSS_CONNECT|1A-"));
    let number = joined.and_then(|port| port.trim_end_matches('B').parse().ok());
    number.unwrap_or_else(|| panic!("{lines:?}"))
}

pub(crate) fn answer(stream: &mut UnixStream) -> Option<(u16, Value)> {
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let code = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n")?.1;
    Some((code, serde_json::from_str(body).unwrap_or_default()))
}

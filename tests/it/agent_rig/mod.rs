// SPDX-License-Identifier: Apache-2.0
//! Emulated modules as files, and agents in separate processes that end with the test. Every wait
//! has a limit. Tests may read the files directly, because the kernel returns an error if their
//! server ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::programs;

pub(crate) const WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn cannot() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting the modules' files needs root");
    }
    (!Path::new("/dev/fuse").exists()).then_some("there is no /dev/fuse")
}

pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
}

impl Running {
    fn start(command: &mut Command, is_error: bool) -> Self {
        let (out, error) = match is_error {
            true => (Stdio::null(), Stdio::piped()),
            false => (Stdio::piped(), Stdio::null()),
        };
        let mut child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn().unwrap();
        let source: Box<dyn Read + Send> = match is_error {
            true => Box::new(child.stderr.take().unwrap()),
            false => Box::new(child.stdout.take().unwrap()),
        };
        let (sender, lines) = channel();
        let said = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                all.lock().unwrap().push_str(&format!("{line}\n"));
                let _ = sender.send(line);
            }
        });
        Self { child, lines, said }
    }

    fn wait_for(&self, words: &str) -> String {
        let until = Instant::now() + WITHIN;
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if line.contains(words) {
                return line;
            }
        }
        panic!("no `{words}` in: {}", self.said());
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Processor time in hundredths of a second: fields 14 and 15 of `stat`.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) struct Modules {
    pub(crate) program: Running,
    place: PathBuf,
    control: PathBuf,
}

impl Modules {
    pub(crate) fn serve(folder: &Path, list: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let (file, place) = (folder.join("devices.yaml"), folder.join("eeproms"));
        let control = folder.join("control");
        std::fs::write(&file, list).unwrap();
        let mut command = Command::new(programs::lightloom());
        command.args(["device", "serve"]).arg(&file).arg("--eeproms").arg(&place);
        command.arg("--control").arg(&control);
        let program = Running::start(&mut command, false);
        program.wait_for("eeprom");
        Self { program, place, control }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.join(name.replace('/', "-"))
    }

    pub(crate) fn byte(&self, name: &str, offset: u64) -> u8 {
        let mut byte = [0];
        let file = std::fs::File::open(self.file(name)).unwrap();
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    }

    pub(crate) fn path(&self, name: &str) -> u8 {
        self.byte(name, 68) & 0x0f
    }

    pub(crate) fn fault(&self, device: &str, fault: &str) {
        let mut command = Command::new(programs::lightloom());
        command.args(["device", "fault", "--control"]).arg(&self.control).arg(device);
        assert!(command.args(fault.split(' ')).status().unwrap().success());
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        self.program.kill();
        let _ =
            Command::new("umount").arg("--lazy").arg(&self.place).stderr(Stdio::null()).status();
    }
}

pub(crate) struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    pub(crate) fn sign(&self, folder: &Path, name: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        std::fs::write(folder.join(format!("{name}.pem")), certificate).unwrap();
        std::fs::write(folder.join(format!("{name}-ca.pem")), &self.1).unwrap();
        let path = folder.join(format!("{name}.key"));
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

pub(crate) struct Agent {
    pub(crate) program: Running,
    pub(crate) port: u16,
}

pub(crate) type Places<'a> = &'a [(String, PathBuf, &'a str)];

pub(crate) fn write_agent(folder: &Path, name: &str, more: &str, modules: Places<'_>) -> PathBuf {
    let mut file = format!(
        "listen: 127.0.0.1:0\ntls: {{certificate: {name}.pem, key: {name}.key, client_ca: {name}-ca.pem}}\n\
         state_dir: {name}-state\n{more}cages:\n"
    );
    for (module, eeprom, profile) in modules {
        let eeprom = eeprom.display();
        file += &format!("- {{name: {module}, eeprom: {eeprom}, profile: \"{profile}\"}}\n");
    }
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, file).unwrap();
    path
}

impl Agent {
    pub(crate) fn start(file: &Path) -> Self {
        let mut command = Command::new(programs::agent());
        command.arg("--config").arg(file).env("RUST_LOG", "info");
        let program = Running::start(&mut command, true);
        let line = program.wait_for("serving");
        let at = line.split("at=").nth(1).unwrap().split(' ').next().unwrap();
        Self { port: at.rsplit(':').next().unwrap().parse().unwrap(), program }
    }

    pub(crate) fn device(&self, folder: &Path, device: &str, module: &str) -> String {
        let (folder, port) = (folder.display(), self.port);
        format!(
            "- name: {device}\n  driver:\n    agent:\n      tcp: \"127.0.0.1:{port}\"\n      module: {module}\n\
             \x20     tls: {{ca: {folder}/daemon-ca.pem, name: localhost, certificate: {folder}/daemon.pem, \
             key: {folder}/daemon.key}}\n"
        )
    }
}

pub(crate) fn profile(name: &str) -> String {
    format!("{}/topologies/modules/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

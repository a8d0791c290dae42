// SPDX-License-Identifier: Apache-2.0
//! A record of everything that belongs to a twin, written before the twin is created, so that `twin
//! down` can always remove everything.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;

pub(crate) const AGENT: &str = "mpi-agent";

pub const RECORD: &str = "twin.json";
const SCHEMA: &str = "lightloom.live-twin/v1";

#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(path: &Path) -> Result<Self, Error> {
        let absolute = std::path::absolute(path);
        Ok(Self(absolute.map_err(Error::cannot("find the current folder"))?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn daemon_socket(&self) -> PathBuf {
        self.file("lightloomd.sock")
    }

    pub fn device_socket(&self) -> PathBuf {
        self.file("devices.sock")
    }

    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let file = self.file(name);
        match fs::read(&file) {
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                read.map(Some).map_err(|error| Error::File { file, error })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::system(format!("read {}", file.display()), error)),
        }
    }

    pub fn write(&self, name: &str, document: &impl Serialize) -> Result<(), Error> {
        self.write_in(&self.0, name, document)
    }

    pub fn write_in(
        &self,
        folder: &Path,
        name: &str,
        document: &impl Serialize,
    ) -> Result<(), Error> {
        let file = folder.join(name);
        let new = folder.join(format!(".{name}.{}", std::process::id()));
        let what = format!("write {}", file.display());
        let bytes = serde_json::to_vec_pretty(document)
            .map_err(|error| Error::File { file: file.clone(), error })?;
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &file));
        written.map_err(Error::cannot(what))
    }

    /// Returns the new log twice, for the output and the errors of a process.
    pub(crate) fn log(&self, name: &str) -> Result<[fs::File; 2], Error> {
        let file = self.file("log").join(name);
        let both = fs::File::create(&file).and_then(|log| Ok([log.try_clone()?, log]));
        both.map_err(Error::cannot(format!("write {}", file.display())))
    }

    pub fn add_line(&self, name: &str, line: &impl Serialize) -> Result<(), Error> {
        let file = self.file(name);
        let mut text = serde_json::to_string(line)
            .map_err(|error| Error::File { file: file.clone(), error })?;
        text.push('\n');
        let opened = fs::OpenOptions::new().create(true).append(true).open(&file);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(Error::cannot(format!("write {}", file.display())))
    }

    pub fn record(&self) -> Result<Record, Error> {
        let record: Option<Record> = self.read(RECORD)?;
        record.ok_or_else(|| {
            Error::Refused(format!(
                "no twin in {}: start one with `lightloom twin up FABRIC --dir {}`",
                self.0.display(),
                self.0.display()
            ))
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub schema: String,
    pub unix_us: u64,
    pub fabric: String,
    pub nodes: u32,
    pub fabric_nodes: u32,
    pub bundles: u8,
    /// Rate limit of a fibre; `None` means as fast as the host allows.
    pub bytes_per_second: Option<u64>,
    /// The only files that `twin down` removes.
    pub files: Vec<String>,
}

impl Record {
    pub fn new(fabric: &str, nodes: u32, fabric_nodes: u32, bundles: u8) -> Self {
        let files = [
            "daemon.yaml",
            "devices.yaml",
            "fabric.yaml",
            "hosts",
            AGENT,
            "plan.json",
            "holder.json",
            "ready.json",
            "ranks.json",
            "wiring.jsonl",
            "faults.jsonl",
            "devices.sock",
            "lightloomd.sock",
            "modules",
            "state",
            "log",
            "hostfiles",
            "done",
        ];
        Self {
            schema: SCHEMA.to_owned(),
            unix_us: crate::unix_us(),
            fabric: fabric.to_owned(),
            nodes,
            fabric_nodes,
            bundles,
            bytes_per_second: None,
            files: files.map(str::to_owned).to_vec(),
        }
    }

    pub fn node(&self, name: &str) -> Result<u32, Error> {
        let number = name.strip_prefix('n').and_then(|digits| digits.parse().ok());
        number.filter(|number| *number < self.nodes).ok_or_else(|| {
            let last = self.nodes.saturating_sub(1);
            Error::Refused(format!("unknown node `{name}`: the nodes are n0 to n{last}"))
        })
    }
}

/// A process, identified by id and start time, because ids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub started: u64,
}

impl Process {
    pub fn find(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain any characters.
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let state = rest.next()?;
        let started = rest.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, started })
    }

    pub fn runs(self) -> bool {
        Self::find(self.pid) == Some(self)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Holder {
    pub parent: Process,
    pub init: Process,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    pub way: String,
    pub user_namespace: u64,
    pub namespaces: Vec<i32>,
    pub namespaces_ms: f64,
    pub devices_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_identified_by_pid_and_start_time() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.runs());
        assert!(!Process { started: own.started + 1, ..own }.runs());
    }

    #[test]
    fn documents_are_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path()).unwrap();
        assert!(folder.record().unwrap_err().to_string().contains("no twin in"));
        folder.write(RECORD, &Record::new("ring", 4, 8, 2)).unwrap();
        let record = folder.record().unwrap();
        assert_eq!(record.node("n3").unwrap(), 3);
        assert!(record.node("n4").unwrap_err().to_string().contains("the nodes are n0 to n3"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

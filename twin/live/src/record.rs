// SPDX-License-Identifier: Apache-2.0
//! What a twin consists of, written down before it is made, so that `twin down` can always undo it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The file that Open MPI starts a node's ranks with, in the folder.
pub(crate) const AGENT: &str = "mpi-agent";

/// The mark of a folder that holds a twin.
pub const RECORD: &str = "twin.json";
const SCHEMA: &str = "lightloom.live-twin/v1";

/// The folder of a twin and what is where in it.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// At an absolute path.
    ///
    /// # Errors
    /// The current folder cannot be found.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let absolute = std::path::absolute(path);
        Ok(Self(absolute.map_err(|error| Error::system("find the current folder", error))?))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The API of the twin's daemon.
    #[must_use]
    pub fn daemon_socket(&self) -> PathBuf {
        self.file("lightloomd.sock")
    }

    /// What takes faults of the emulated transceivers.
    #[must_use]
    pub fn device_socket(&self) -> PathBuf {
        self.file("devices.sock")
    }

    /// Reads a document in it; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read or understood.
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

    /// Writes a document whole or not at all.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, name: &str, document: &impl Serialize) -> Result<(), Error> {
        self.write_in(&self.0, name, document)
    }

    /// The same in a folder of it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_in(
        &self,
        folder: &Path,
        name: &str,
        document: &impl Serialize,
    ) -> Result<(), Error> {
        let file = folder.join(name);
        let new = folder.join(format!(".{name}.{}", std::process::id()));
        let failed = |error| Error::system(format!("write {}", file.display()), error);
        let bytes = serde_json::to_vec_pretty(document)
            .map_err(|error| Error::File { file: file.clone(), error })?;
        fs::write(&new, bytes).map_err(failed)?;
        fs::rename(&new, &file).map_err(failed)
    }

    /// Adds a line to a file of it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn add_line(&self, name: &str, line: &impl Serialize) -> Result<(), Error> {
        let file = self.file(name);
        let mut text = serde_json::to_string(line)
            .map_err(|error| Error::File { file: file.clone(), error })?;
        text.push('\n');
        let append = || {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&file)?;
            file.write_all(text.as_bytes())
        };
        append().map_err(|error| Error::system(format!("write {}", file.display()), error))
    }

    /// The record of the twin here.
    ///
    /// # Errors
    /// There is none, or it is of another version.
    pub fn record(&self) -> Result<Record, Error> {
        let record: Option<Record> = self.read(RECORD)?;
        record.ok_or_else(|| {
            Error::Refused(format!(
                "there is no twin in {}: `lightloom twin up FABRIC --dir {}` makes one",
                self.0.display(),
                self.0.display()
            ))
        })
    }
}

/// What is about to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// What kind of document it is.
    pub schema: String,
    /// When it was asked for, Unix time in microseconds.
    pub unix_us: u64,
    /// The name of the fabric.
    pub fabric: String,
    /// Nodes that get a namespace: the first so many.
    pub nodes: u32,
    /// Nodes of the fabric, each with its transceivers.
    pub fabric_nodes: u32,
    /// Transceivers of a node.
    pub bundles: u8,
    /// What a fibre carries at most; `None`: as much as the machine can.
    pub bytes_per_second: Option<u64>,
    /// What of the folder `twin down` removes: only what is named here.
    pub files: Vec<String>,
}

impl Record {
    /// Of a twin that is about to be made.
    #[must_use]
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

    /// The number of a node by its name, `n3`.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node(&self, name: &str) -> Result<u32, Error> {
        let number = name.strip_prefix('n').and_then(|digits| digits.parse().ok());
        number.filter(|number| *number < self.nodes).ok_or_else(|| {
            let last = self.nodes.saturating_sub(1);
            Error::Refused(format!("there is no node `{name}`: write n0 to n{last}"))
        })
    }
}

/// A process, known by its number and when it started, so that no other process is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's ticks.
    pub started: u64,
}

impl Process {
    /// The process of this number, if it runs.
    #[must_use]
    pub fn find(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let state = rest.next()?;
        let started = rest.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, started })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn runs(self) -> bool {
        Self::find(self.pid) == Some(self)
    }
}

/// Who holds the namespaces.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The parent of `init`, outside.
    pub parent: Process,
    /// The first process inside.
    pub init: Process,
}

/// A twin that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// How fibres are joined.
    pub way: String,
    /// The user namespace that holds everything, by its inode: a process of it is inside the twin.
    pub user_namespace: u64,
    /// The holder's file that is the namespace of each node.
    pub namespaces: Vec<i32>,
    /// How long the namespaces and their interfaces took, in milliseconds.
    pub namespaces_ms: f64,
    /// How long the emulated transceivers took, in milliseconds.
    pub devices_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_too() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.runs());
        assert!(!Process { started: own.started + 1, ..own }.runs());
    }

    #[test]
    fn documents_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path()).unwrap();
        assert!(folder.record().unwrap_err().to_string().contains("there is no twin in"));
        folder.write(RECORD, &Record::new("ring", 4, 8, 2)).unwrap();
        let record = folder.record().unwrap();
        assert_eq!(record.node("n3").unwrap(), 3);
        assert!(record.node("n4").unwrap_err().to_string().contains("write n0 to n3"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

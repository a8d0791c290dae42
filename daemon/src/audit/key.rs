// SPDX-License-Identifier: Apache-2.0
//! The key of the audit log: 32 random bytes in a file that only the daemon's user can read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::Entry;
use crate::config::Config;
use crate::disk::{Disk, DiskFile, Real};
use crate::journal::{Damage, Key, read_keyed};

const KEY_FILE: &str = "audit.key";
pub const AUDIT_FILE: &str = "audit.log";

pub fn path(config: &Config) -> PathBuf {
    config.file.audit_key.clone().unwrap_or_else(|| config.file.state_dir.join(KEY_FILE))
}

pub fn read(path: &Path) -> anyhow::Result<Option<Key>> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!("{shown} is readable by other users (mode {mode:04o}); help: chmod 600 {shown}");
    }
    let key = Key::from_hex(text.trim());
    key.map(Some).with_context(|| {
        format!(
            "{shown} is not a key of 64 hex digits; help: restore it from a \
            backup"
        )
    })
}

pub fn read_or_make(path: &Path) -> anyhow::Result<(Key, bool)> {
    if let Some(key) = read(path)? {
        return Ok((key, false));
    }
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes))?;
    let key = Key::new(bytes);
    make(&Real, path, &key).with_context(|| format!("cannot create {}", path.display()))?;
    Ok((key, true))
}

pub fn make(disk: &impl Disk, path: &Path, key: &Key) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let _left_by_a_crash = disk.remove(&new);
    let mut file = disk.open(&new, 0o600, true)?;
    file.write_at(format!("{}\n", key.to_hex()).as_bytes(), 0)?;
    file.sync()?;
    disk.rename(&new, path)?;
    disk.sync_names(path)
}

#[derive(Debug)]
pub struct Verified {
    pub lines: usize,
    /// Number of the first keyed line, from 1. Earlier lines are chained without a key.
    pub keyed_from: Option<u64>,
}

impl Verified {
    pub fn summary(&self) -> String {
        let lines = self.lines;
        match self.keyed_from {
            _ if lines == 0 => "no lines yet".into(),
            Some(1) => format!("{lines} lines, all keyed; none was modified without the key"),
            Some(from) => format!(
                "{lines} lines; lines 1 to {} are unkeyed and could have been forged before line \
                    {from} was written; later lines are keyed, and none was modified without the \
                    key",
                from - 1
            ),
            None => format!(
                "{lines} lines, all unkeyed; anyone who can write the file could have forged them"
            ),
        }
    }
}

pub fn not_the_one(path: &Path, key: Option<&Key>, known: Option<&str>) -> Option<String> {
    let (shown, known) = (path.display(), known?);
    match key {
        Some(key) if key.sha256() == known => None,
        Some(_) => Some(format!("{shown} is not the key of this log")),
        None => Some(format!("the key {shown} is missing, so the log cannot be verified")),
    }
}

pub fn verify(config: &Config, known: Option<&str>) -> anyhow::Result<Verified> {
    let file = config.file.state_dir.join(AUDIT_FILE);
    let key_file = path(config);
    let key = read(&key_file)?;
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let has_key = key.is_some();
    let wrong = not_the_one(&key_file, key.as_ref(), known).filter(|_| !bytes.is_empty());
    if let Some(wrong) = wrong {
        bail!("{}: {wrong}; restore the key from a backup, or {WHAT_TO_DO}", file.display());
    }
    let read = read_keyed::<Entry>(&bytes, key);
    let lines = read.records.len();
    if let Some(Damage { line, reason, .. }) = read.damage {
        bail!("{} line {line}: {reason}; {}", file.display(), WHAT_TO_DO);
    }
    if has_key && lines > 0 && read.keyed_from.is_none() {
        bail!("{}: {}; {WHAT_TO_DO}", file.display(), unkeyed(lines as u64, &key_file));
    }
    Ok(Verified { lines, keyed_from: read.keyed_from })
}

pub fn unkeyed(lines: u64, key: &Path) -> String {
    format!(
        "all {lines} lines are unkeyed although the key {} is older, so the log was rewritten \
            without the key",
        key.display()
    )
}

pub const WHAT_TO_DO: &str = "stop the daemon and keep the file elsewhere as evidence, then \
    restore a backup or start without the file";

// SPDX-License-Identifier: Apache-2.0
//! The audit log's key: 32 random bytes in a file that only the daemon's user reads, made at the first start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::Entry;
use crate::config::Config;
use crate::journal::{Damage, Key, read_keyed};

/// The key in the daemon's folder, where the file names no other place.
const KEY_FILE: &str = "audit.key";
/// The audit log in the daemon's folder.
pub const AUDIT_FILE: &str = "audit.log";

/// Where the key is.
#[must_use]
pub fn path(config: &Config) -> PathBuf {
    config.file.audit_key.clone().unwrap_or_else(|| config.file.state_dir.join(KEY_FILE))
}

/// Reads the key.
///
/// # Errors
/// A file that cannot be read, that others can read, or that is no key. `None` where there is none.
pub fn read(path: &Path) -> anyhow::Result<Option<Key>> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!("{shown} can be read by others (mode {mode:04o}): chmod 600 {shown}");
    }
    let key = Key::from_hex(text.trim());
    key.map(Some)
        .with_context(|| format!("{shown} is no key of 64 hex digits: put it back from a copy"))
}

/// Reads the key, or makes one; and whether it was made now.
///
/// # Errors
/// As for [`read`], and a folder that cannot be written.
pub fn read_or_make(path: &Path) -> anyhow::Result<(Key, bool)> {
    if let Some(key) = read(path)? {
        return Ok((key, false));
    }
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes))?;
    let key = Key::new(bytes);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{}\n", key.to_hex()).as_bytes())?;
        file.sync_all()?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().with_context(|| format!("cannot make {}", path.display()))?;
    Ok((key, true))
}

/// What an audit log is worth.
#[derive(Debug)]
pub struct Verified {
    /// Its lines, all of them good.
    pub lines: usize,
    /// The first keyed line, from 1; the chain of those before it has no key.
    pub keyed_from: Option<u64>,
}

impl Verified {
    /// The same for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let lines = self.lines;
        match self.keyed_from {
            _ if lines == 0 => "no lines yet".into(),
            Some(1) => format!("{lines} lines, all keyed: none was changed without the key"),
            Some(from) => format!(
                "{lines} lines; unkeyed from line 1 to {}, which anybody could have written before line {from}; keyed \
                 from line {from}: none of these was changed without the key",
                from - 1
            ),
            None => format!(
                "{lines} lines, unkeyed from line 1: anybody who can write the file could have written them"
            ),
        }
    }
}

/// Reads the whole audit log of a daemon and proves its chain. Changes nothing.
///
/// # Errors
/// Where it is damaged, and what to do.
pub fn verify(config: &Config) -> anyhow::Result<Verified> {
    let file = config.file.state_dir.join(AUDIT_FILE);
    let key_file = path(config);
    let key = read(&key_file)?;
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let has_key = key.is_some();
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

/// What is wrong with a log without a keyed line beside a key.
#[must_use]
pub fn unkeyed(lines: u64, key: &Path) -> String {
    format!(
        "none of its {lines} lines is keyed, and the key {} was made before: it was written anew without the key",
        key.display()
    )
}

/// What a person can do about a damaged audit log.
pub const WHAT_TO_DO: &str = "stop the daemon, move the file away and keep it as evidence, put it back from a copy or start without it";

// SPDX-License-Identifier: Apache-2.0
//! Journal storage in a locked file. The file reserves space beyond the journal's end, so that open
//! transactions can be completed when the disk is full.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile, Real};
use crate::journal::Storage;

/// Enough for the records of about ten transactions over 1,440 modules.
pub const SET_ASIDE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: u64 = 4096;
const MODE: u32 = 0o640;

#[derive(Debug)]
pub struct FileStorage<D: Disk = Real> {
    disk: D,
    file: D::File,
    path: PathBuf,
    end: u64,
    allocated: u64,
    astray: bool,
    short: Option<String>,
}

impl FileStorage {
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_on(Real, path)
    }
}

impl<D: Disk> FileStorage<D> {
    pub fn open_on(disk: D, path: &Path) -> io::Result<Self> {
        let file = held(&disk, path)?;
        // Sync the directory too, so that a new file does not disappear in a crash.
        disk.sync_names(path)?;
        let end = file.length()?;
        let mut storage = Self {
            disk,
            file,
            path: path.to_owned(),
            end,
            allocated: end,
            astray: false,
            short: None,
        };
        if let Err(error) = storage.set_aside() {
            tracing::warn!(%error, file = %path.display(), "cannot reserve space in the file");
        }
        Ok(storage)
    }

    pub fn has_bytes(&self) -> bool {
        self.end > 0
    }

    fn allocate(&mut self, until: u64) -> io::Result<()> {
        let until = until.next_multiple_of(BLOCK_BYTES);
        if until > self.allocated {
            self.file.allocate(self.allocated, until)?;
            self.allocated = until;
        }
        Ok(())
    }

    fn beside(&self, more: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(more);
        name.into()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

const LOCK_WITHIN: Duration = Duration::from_secs(2);

fn held<D: Disk>(disk: &D, path: &Path) -> io::Result<D::File> {
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match disk.open(path, MODE, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= until {
                    let why = format!("{} is locked by another daemon ({error})", path.display());
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

impl<D: Disk> Storage for FileStorage<D> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        self.file.read_all()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.astray {
            return Err(io::Error::other(
                "it is unknown which file will have this name after a \
                crash",
            ));
        }
        let end = self.end;
        if let Err(error) = self.file.write_at(bytes, end) {
            // Truncating also releases the reserved space, so reserve it again.
            let _ = self.file.cut(end);
            self.allocated = end;
            let _still_full = self.set_aside();
            return Err(error);
        }
        self.end += bytes.len() as u64;
        self.allocated = self.allocated.max(self.end);
        let _kept_in_short = self.set_aside();
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (new, old) = (self.beside(".new"), self.beside(".old"));
        let _left_by_a_crash = self.disk.remove(&new);
        let mut file = self.disk.open(&new, MODE, true)?;
        let end = bytes.len() as u64;
        let allocated = end + SET_ASIDE_BYTES;
        let written = file
            .allocate(0, allocated)
            .and_then(|()| file.write_at(bytes, 0))
            .and_then(|()| file.sync());
        if let Err(error) = written {
            let _ = self.disk.remove(&new);
            return Err(error);
        }
        let _of_the_time_before = self.disk.remove(&old);
        self.disk.link(&self.path, &old)?;
        self.disk.rename(&new, &self.path)?;
        if let Err(error) = self.disk.sync_names(&self.path) {
            // After a crash, the name may refer to either file, so neither may be extended yet.
            self.astray = true;
            let _ = self.disk.rename(&old, &self.path);
            return Err(error);
        }
        (self.file, self.end, self.allocated) = (file, end, allocated);
        Ok(())
    }
    /// Rewrites the file in place, with identical bytes where the data are intact. This needs no
    /// additional space, and an interruption cannot make the damage worse.
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.astray {
            self.disk.sync_names(&self.path)?;
            self.astray = false;
        }
        self.file.write_at(bytes, 0)?;
        let (end, length) = (bytes.len() as u64, self.file.length()?);
        if length > end {
            let zeros = vec![0; usize::try_from(length - end).map_err(io::Error::other)?];
            self.file.write_at(&zeros, end)?;
        }
        self.end = end;
        self.file.sync()
    }
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        self.allocate(self.end + bytes)
    }
    fn short_of_space(&self) -> Option<String> {
        self.short.clone()
    }
    fn set_aside(&mut self) -> io::Result<()> {
        let result = self.allocate(self.end + SET_ASIDE_BYTES);
        // Other failures to reserve space are ignored unless the next write also fails.
        self.short = result.as_ref().err().filter(|error| is_full(error)).map(ToString::to_string);
        result
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.cut(length)?;
        (self.end, self.allocated) = (length, length);
        self.file.sync()?;
        let _kept_in_short = self.set_aside();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_daemon_waits_for_the_old_lock_and_a_third_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.log");
        let first = FileStorage::open(&path).unwrap();
        let dying = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(first);
        });
        let second = FileStorage::open(&path).unwrap();
        dying.join().unwrap();
        let third = FileStorage::open(&path).unwrap_err();
        assert_eq!(third.kind(), io::ErrorKind::WouldBlock);
        drop(second);
    }

    #[test]
    fn replaced_journal_keeps_its_lock_and_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.log");
        let mut storage = FileStorage::open(&path).unwrap();
        storage.append(b"old").unwrap();
        storage.replace(b"new").unwrap();
        storage.append(b" and more").unwrap();
        assert_eq!(storage.load().unwrap(), b"new and more");
        assert_eq!(std::fs::read(folder.path().join("journal.log.old")).unwrap(), b"old");
        assert!(FileStorage::open(&path).is_err(), "the new file is locked");
        drop(storage);
        assert_eq!(FileStorage::open(&path).unwrap().load().unwrap(), b"new and more");
    }
}

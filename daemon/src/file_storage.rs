// SPDX-License-Identifier: Apache-2.0
//! The journal's bytes in a file that one daemon holds at a time. Beside it space is set aside: on a full disk it
//! is given up, so that what is on its way can still be written to its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use crate::journal::Storage;

/// How much is set aside: the records of some ten transactions over 1,440 modules.
const SET_ASIDE_BYTES: u64 = 4 << 20;

/// An append-only file.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    path: PathBuf,
    /// Why nothing is set aside, if so.
    short: Option<String>,
}

impl FileStorage {
    /// Opens or makes the file, and locks it.
    ///
    /// # Errors
    /// The file system's; `WouldBlock` when another daemon holds it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640);
        let file = options.open(path)?;
        lock(&file, path)?;
        let mut storage = Self { file, path: path.to_owned(), short: None };
        // The name of a new file must be durable too.
        storage.sync_folder()?;
        if let Err(error) = storage.set_aside() {
            tracing::warn!(%error, file = %path.display(), "no space could be set aside beside it");
        }
        Ok(storage)
    }

    /// Gives up what was set aside, if anything is.
    fn give_up_space(&mut self, error: &io::Error) -> bool {
        let gone = is_full(error)
            && self.short.is_none()
            && std::fs::remove_file(self.beside(".reserve")).is_ok();
        if gone {
            self.short = Some(error.to_string());
        }
        gone
    }

    /// Writes at the end, all or nothing.
    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        self.file.write_all(bytes).inspect_err(|_| {
            let _ = self.file.set_len(before);
        })
    }

    /// Writes a file beside this one and puts it in its place.
    fn put_in_place(&mut self, bytes: &[u8], keep_old: bool) -> io::Result<()> {
        let (new, old) = (self.beside(".new"), self.beside(".old"));
        let mut options = OpenOptions::new();
        let _left_by_a_crash = std::fs::remove_file(&new);
        let mut file = options.read(true).append(true).create_new(true).mode(0o640).open(&new)?;
        lock(&file, &new)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = std::fs::remove_file(&new);
            return Err(error);
        }
        if keep_old {
            let _of_the_time_before = std::fs::remove_file(&old);
            std::fs::hard_link(&self.path, &old)?;
        }
        std::fs::rename(&new, &self.path)?;
        self.file = file;
        self.sync_folder()
    }

    fn sync_folder(&self) -> io::Result<()> {
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    /// The file's name with something behind it.
    fn beside(&self, more: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(more);
        name.into()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// How long a daemon that is just going away may still hold a file.
const LOCK_WITHIN: Duration = Duration::from_secs(2);

fn lock(file: &File, path: &Path) -> io::Result<()> {
    let until = Instant::now() + LOCK_WITHIN;
    while let Err(error) = file.try_lock() {
        if Instant::now() >= until {
            let why = format!("{}: another daemon holds it ({error})", path.display());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Storage for FileStorage {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.write_whole(bytes) {
            Err(error) if self.give_up_space(&error) => self.write_whole(bytes),
            result => result,
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
    /// The file as it was stays beside the new one with `.old` behind its name.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put_in_place(bytes, true)
    }
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.put_in_place(bytes, false) {
            Err(error) if self.give_up_space(&error) => self.put_in_place(bytes, false),
            result => result,
        }
    }
    fn short_of_space(&self) -> Option<String> {
        self.short.clone()
    }
    fn set_aside(&mut self) -> io::Result<()> {
        let beside = self.beside(".reserve");
        let set_aside = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o640).open(&beside)?;
            match fallocate(&file, FallocateFlags::empty(), 0, SET_ASIDE_BYTES) {
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    file.write_all(&vec![0; SET_ASIDE_BYTES as usize])?;
                }
                result => result?,
            }
            file.sync_all()
        };
        let result = set_aside();
        // Where it cannot be set aside for another reason, writing shows what can be written.
        self.short = result.as_ref().err().filter(|error| is_full(error)).map(ToString::to_string);
        if result.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        result
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_started_before_the_last_one_is_gone_waits_for_it_and_a_second_one_is_refused() {
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
    fn what_is_replaced_is_locked_as_before_and_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.log");
        let mut storage = FileStorage::open(&path).unwrap();
        storage.append(b"old").unwrap();
        storage.replace(b"new").unwrap();
        storage.append(b" and more").unwrap();
        assert_eq!(storage.load().unwrap(), b"new and more");
        assert_eq!(std::fs::read(folder.path().join("journal.log.old")).unwrap(), b"old");
        assert!(FileStorage::open(&path).is_err(), "the new file is held");
        drop(storage);
        assert_eq!(FileStorage::open(&path).unwrap().load().unwrap(), b"new and more");
    }
}

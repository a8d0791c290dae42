//! The journal's bytes in a file that one daemon holds at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::journal::Storage;

/// An append-only file.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    path: PathBuf,
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
        let storage = Self { file, path: path.to_owned() };
        // The name of a new file must be durable too.
        storage.sync_folder()?;
        Ok(storage)
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
        self.file.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
    /// The file as it was stays beside the new one with `.old` behind its name.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (new, old) = (self.beside(".new"), self.beside(".old"));
        let mut options = OpenOptions::new();
        let _left_by_a_crash = std::fs::remove_file(&new);
        let mut file = options.read(true).append(true).create_new(true).mode(0o640).open(&new)?;
        lock(&file, &new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        let _of_the_time_before = std::fs::remove_file(&old);
        std::fs::hard_link(&self.path, &old)?;
        std::fs::rename(&new, &self.path)?;
        self.file = file;
        self.sync_folder()
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

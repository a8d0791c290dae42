//! The journal's bytes in a file that one daemon holds at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::journal::Storage;

/// An append-only file.
#[derive(Debug)]
pub struct FileStorage(File);

impl FileStorage {
    /// Opens or makes the file, and locks it.
    ///
    /// # Errors
    /// The file system's; `WouldBlock` when another daemon holds it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640);
        let file = options.open(path)?;
        file.try_lock().map_err(|error| {
            let why = format!("{}: another daemon holds it ({error})", path.display());
            io::Error::new(io::ErrorKind::WouldBlock, why)
        })?;
        // The name of a new file must be durable too.
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self(file))
    }
}

impl Storage for FileStorage {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)?;
        self.0.sync_all()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the daemon asks of the disk under its state folder. Tests put one here that loses what was not synced.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

/// A file that is open.
pub trait DiskFile: Debug + Send {
    /// Everything there is.
    ///
    /// # Errors
    /// The device's.
    fn read_all(&mut self) -> io::Result<Vec<u8>>;
    /// How many bytes there are.
    ///
    /// # Errors
    /// The device's.
    fn length(&self) -> io::Result<u64>;
    /// Writes all of these bytes from here on.
    ///
    /// # Errors
    /// The device's; some of them may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file to this length, with everything that was allocated behind it.
    ///
    /// # Errors
    /// The device's.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Allocates blocks for these bytes without changing the file's length; where the file system cannot, zeros
    /// are written.
    ///
    /// # Errors
    /// The device's: it is full.
    fn allocate(&mut self, from: u64, until: u64) -> io::Result<()>;
    /// Returns when its bytes and its length are durable.
    ///
    /// # Errors
    /// The device's; nothing may be assumed about what is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The names in a folder, and the files behind them.
pub trait Disk: Clone + Debug + Send {
    /// A file of this disk.
    type File: DiskFile;
    /// Opens a file, or makes it, and holds it alone.
    ///
    /// # Errors
    /// The device's; `WouldBlock` where another process holds it.
    fn open(&self, path: &Path, mode: u32, new: bool) -> io::Result<Self::File>;
    /// Gives a file another name, which takes the place of what had it.
    ///
    /// # Errors
    /// The device's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name.
    ///
    /// # Errors
    /// The device's.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a name away.
    ///
    /// # Errors
    /// The device's.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Whether the name of a file or folder is there.
    fn has(&self, path: &Path) -> bool;
    /// Makes a folder in one that is there.
    ///
    /// # Errors
    /// The device's.
    fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Returns when the names in the folder of this file are durable.
    ///
    /// # Errors
    /// The device's.
    fn sync_names(&self, path: &Path) -> io::Result<()>;
}

/// Makes a folder and those it lies in, where they are not there, and returns when their names are durable: what is synced in a
/// folder whose own name is not, is gone with it.
///
/// # Errors
/// The device's.
pub fn make_folders(disk: &impl Disk, path: &Path, mode: u32) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !disk.has(path)).collect();
    for folder in missing.into_iter().rev() {
        match disk.make_folder(folder, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
        disk.sync_names(folder)?;
    }
    Ok(())
}

/// The machine's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    type File = File;
    fn open(&self, path: &Path, mode: u32, new: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).create_new(new).truncate(false).mode(mode);
        let file = options.open(path)?;
        file.try_lock()?;
        Ok(file)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    fn has(&self, path: &Path) -> bool {
        path.exists()
    }
    fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(mode).create(path)
    }
    fn sync_names(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl DiskFile for File {
    fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.rewind()?;
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
    fn allocate(&mut self, from: u64, until: u64) -> io::Result<()> {
        match fallocate(&*self, FallocateFlags::KEEP_SIZE, from, until - from) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeros = vec![0; usize::try_from(until - from).map_err(io::Error::other)?];
                self.write_all_at(&zeros, from)
            }
            result => Ok(result?),
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

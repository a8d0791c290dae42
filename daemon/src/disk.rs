// SPDX-License-Identifier: Apache-2.0
//! File system interface of the daemon. Tests replace it with a disk that loses unsynced data.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

pub trait DiskFile: Debug + Send {
    fn read_all(&mut self) -> io::Result<Vec<u8>>;
    fn length(&self) -> io::Result<u64>;
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Allocates blocks without changing the file's length. Writes zeros if the file system cannot allocate.
    fn allocate(&mut self, from: u64, until: u64) -> io::Result<()>;
    /// After an error, the data may or may not be durable.
    fn sync(&mut self) -> io::Result<()>;
}

pub trait Disk: Clone + Debug + Send {
    type File: DiskFile;
    fn open(&self, path: &Path, mode: u32, new: bool) -> io::Result<Self::File>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn has(&self, path: &Path) -> bool;
    fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()>;
    fn sync_names(&self, path: &Path) -> io::Result<()>;
}

/// Creates missing directories and syncs their parents, so that a crash does not remove them.
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

// SPDX-License-Identifier: Apache-2.0
//! The storage under a journal: a file, etcd, or a disk of a test.

use std::io;

/// The storage of the bytes. Tests use a disk that tears, lies and fills up.
pub trait Storage {
    /// Reads everything.
    ///
    /// # Errors
    /// The device's error.
    fn load(&mut self) -> io::Result<Vec<u8>>;
    /// Appends bytes, which are durable only after [`Storage::sync`].
    ///
    /// # Errors
    /// The device's error. Some bytes may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// The device's error. Durability is then unknown.
    fn sync(&mut self) -> io::Result<()>;
    /// Replaces everything with `bytes`, durably, and either completely or not at all.
    ///
    /// # Errors
    /// The device's error. The earlier bytes are then unchanged.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to `length` bytes, durably.
    ///
    /// # Errors
    /// The device's error.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Writes everything again after a failure, because the existing bytes may not be durable.
    ///
    /// # Errors
    /// The device's error.
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replace(bytes)
    }
    /// Ensures that this many bytes can still be appended, whatever else fills the disk. Writes
    /// nothing.
    ///
    /// # Errors
    /// The device is full.
    fn make_room(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    /// Returns an error text while the disk is full and only the reserved space is left.
    fn short_of_space(&self) -> Option<String> {
        None
    }
    /// Reserves space again for a full disk.
    ///
    /// # Errors
    /// The device is still full.
    fn set_aside(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Returns why a write would fail, if that is known in advance.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// Returns why records after the [loaded](Storage::load) bytes are missing. `None` if all are
    /// present.
    fn missing(&self) -> Option<String> {
        None
    }
}

impl<S: Storage + ?Sized> Storage for Box<S> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        (**self).load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).replace(bytes)
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        (**self).truncate(length)
    }
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).rewrite(bytes)
    }
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        (**self).make_room(bytes)
    }
    fn short_of_space(&self) -> Option<String> {
        (**self).short_of_space()
    }
    fn set_aside(&mut self) -> io::Result<()> {
        (**self).set_aside()
    }
    fn trouble(&self) -> Option<String> {
        (**self).trouble()
    }
    fn missing(&self) -> Option<String> {
        (**self).missing()
    }
}

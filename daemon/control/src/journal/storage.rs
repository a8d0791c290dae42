// SPDX-License-Identifier: Apache-2.0

use std::io;

/// Storage of the journal's bytes. Tests use a disk that tears writes, ignores syncs and fills up.
pub trait Storage {
    fn load(&mut self) -> io::Result<Vec<u8>>;
    /// Appends bytes, durable after [`Storage::sync`]. After an error, some may be stored.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// After an error, the bytes may or may not be durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Replaces all bytes atomically and durably.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Rewrites all bytes after a failure, because existing bytes may not be durable.
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replace(bytes)
    }
    fn make_room(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    fn short_of_space(&self) -> Option<String> {
        None
    }
    fn set_aside(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn trouble(&self) -> Option<String> {
        None
    }
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

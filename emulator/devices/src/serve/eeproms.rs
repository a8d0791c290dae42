// SPDX-License-Identifier: Apache-2.0
//! Presents modules as files in a mounted folder, like the `optoe` driver.
//!
//! When the process ends for any reason, the kernel returns an error to every reader. The stale
//! mount remains until the next server unmounts it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use lightloom_units::SimTime;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::fuse::{self, EepromFolder, KernelAsks, REQUEST_BYTES_MAX, errno};
use crate::Output;
use crate::optoe::{AccessDone, EepromAccess, FILE_BYTES, Failed, Optoe};
use crate::rack::{Rack, RackSlot};

const REQUESTS_PER_TURN: usize = 256;

pub(super) struct Eeproms {
    connection: File,
    folder: EepromFolder,
    modules: Vec<(RackSlot, Optoe)>,
    place: PathBuf,
    buffer: Box<[u8]>,
}

impl Eeproms {
    pub(super) fn mount(place: &Path, modules: Vec<(String, RackSlot)>) -> io::Result<Self> {
        let said = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {what}: {error}", place.display()))
        };
        if let Err(error) = std::fs::metadata(place)
            && error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
        {
            umount2(place, MntFlags::MNT_DETACH).map_err(|error| said("unmount", error.into()))?;
        }
        std::fs::create_dir_all(place).map_err(|error| said("cannot be created", error))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let connection = rustix::fs::open("/dev/fuse", flags, Mode::empty())
            .map_err(|error| said("serving modules as files requires /dev/fuse", error.into()))?;
        let connection = File::from(connection);
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},allow_other,default_permissions",
            connection.as_raw_fd(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("lightloom"), place, Some("fuse.lightloom"), flags, Some(options.as_str()))
            .map_err(|error| said("cannot be mounted (root permission required)", error.into()))?;
        let names = modules.iter().map(|(name, _)| name.replace('/', "-")).collect();
        Ok(Self {
            connection,
            folder: EepromFolder { names, file_bytes: FILE_BYTES },
            modules: modules.into_iter().map(|(_, slot)| (slot, Optoe::default())).collect(),
            place: place.to_owned(),
            buffer: vec![0; REQUEST_BYTES_MAX].into_boxed_slice(),
        })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.place.join(name.replace('/', "-"))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    pub(super) fn next_wakeup(&self) -> Option<SimTime> {
        self.modules.iter().filter_map(|(_, optoe)| optoe.next_wakeup()).min()
    }

    pub(super) fn take(&mut self) -> bool {
        for _ in 0..REQUESTS_PER_TURN {
            match rustix::io::read(&self.connection, &mut *self.buffer) {
                Ok(length) => self.take_one(length),
                // The request was interrupted before it was read. There may be another one.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => return error == Errno::AGAIN,
            }
        }
        true
    }

    fn take_one(&mut self, length: usize) {
        let (unique, file, access) = match self.folder.asked(&self.buffer[..length]) {
            KernelAsks::Nothing => return,
            KernelAsks::Reply(reply) => return self.reply(&reply),
            KernelAsks::Read { unique, file, offset, length } => {
                (unique, file, EepromAccess::Read { offset, length })
            }
            KernelAsks::Write { unique, file, offset, bytes } => {
                (unique, file, EepromAccess::Write { offset, bytes })
            }
        };
        let (_, optoe) = &mut self.modules[file.0];
        if optoe.ask(unique, access).is_err() {
            self.reply(&fuse::failure(unique, errno::AGAIN));
        }
    }

    pub(super) fn advance(&mut self, now: SimTime, rack: &mut Rack, out: &mut Vec<Output>) {
        let mut replies = Vec::new();
        for (slot, optoe) in &mut self.modules {
            if optoe.next_wakeup().is_some_and(|at| at <= now) {
                rack.on_bus(now, *slot, optoe, out, |unique, done| {
                    replies.push(match done {
                        Ok(AccessDone::Read(bytes)) => fuse::success(unique, &bytes),
                        Ok(AccessDone::Written(count)) => fuse::written(unique, count),
                        Err(Failed::TimedOut) => fuse::failure(unique, errno::TIMED_OUT),
                        Err(Failed::NoSuchOffset) => fuse::failure(unique, errno::INVALID),
                        Err(Failed::Busy) => fuse::failure(unique, errno::AGAIN),
                    });
                });
            }
        }
        replies.iter().for_each(|reply| self.reply(reply));
    }

    fn reply(&self, reply: &[u8]) {
        let _whoever_asked_is_gone = rustix::io::write(&self.connection, reply);
    }
}

impl Drop for Eeproms {
    fn drop(&mut self) {
        let _it_may_be_unmounted = umount2(&self.place, MntFlags::MNT_DETACH);
    }
}

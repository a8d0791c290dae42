// SPDX-License-Identifier: Apache-2.0
//! An in-memory disk for all files of the daemon. A power failure loses all or some of the unsynced
//! data and file names. The disk can fill up, fail, and stop at any operation.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lightloom_daemon::disk::{Disk as Names, DiskFile};
use lightloom_daemon::file_storage::FileStorage;
use rand::RngExt;

const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: u64 = 4096;
const PAGE_BYTES: usize = 4096;
const FOLDER: usize = usize::MAX;
pub(crate) const JOURNAL: &str = "/state/journal.log";

#[derive(Clone, Debug, Default)]
struct Bytes {
    written: Vec<u8>,
    durable: Vec<u8>,
    dirty: Vec<Range<usize>>,
    /// End of the allocated blocks, which are usable even if the disk is full.
    allocated: u64,
}

#[derive(Clone, Debug)]
enum Renaming {
    Is(PathBuf, usize),
    Gone(PathBuf),
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Whether the disk initially has no folders; otherwise every folder exists.
    is_bare: bool,
    files: Vec<Bytes>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Changes of file names since the last sync, in order.
    renamed: Vec<Vec<Renaming>>,
    fail_sync: bool,
    fail_write: Option<io::ErrorKind>,
    full: bool,
    capacity_bytes: Option<usize>,
    /// Whether syncs succeed without effect.
    lies: bool,
    /// Number of operations so far, and the number after which the machine stops.
    operations: u64,
    stops_after: Option<u64>,
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.stops_after {
            Some(last) if self.operations > last => Err(io::Error::other("the machine stopped")),
            _ => Ok(()),
        }
    }

    fn changes_names(&mut self, changes: Vec<Renaming>) {
        for change in &changes {
            apply(&mut self.names, change);
        }
        self.renamed.push(changes);
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &Renaming) {
    match change {
        Renaming::Is(path, file) => {
            names.insert(path.clone(), *file);
        }
        Renaming::Gone(path) => {
            names.remove(path);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct Handle {
    disk: Disk,
    file: usize,
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn journal(&self) -> io::Result<FileStorage<Self>> {
        FileStorage::open_on(self.clone(), Path::new(JOURNAL))
    }

    /// Loses unsynced data of each file: all of it, everything after a byte or sector, or single
    /// sectors. Of the name changes, only the first ones are kept.
    pub(crate) fn lose_power(&self, rng: &mut impl RngExt) {
        let mut state = self.state();
        let kept = rng.random_range(0..=state.renamed.len());
        state.reset_names(|number| number < kept);
        for file in &mut state.files {
            let bytes = file.torn(rng);
            file.holds(bytes);
        }
    }

    pub(crate) fn lose_all(&self) {
        let mut state = self.state();
        state.reset_names(|_| false);
        for file in &mut state.files {
            let durable = file.durable.clone();
            file.holds(durable);
        }
    }

    pub(crate) fn bare() -> Self {
        let disk = Self::default();
        disk.state().is_bare = true;
        disk
    }

    pub(crate) fn copied(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Returns the number of unsynced name changes, pages and file lengths.
    pub(crate) fn unsynced(&self) -> usize {
        let state = self.state();
        state.renamed.len() + state.files.iter().map(|file| file.pages().len() + 1).sum::<usize>()
    }

    pub(crate) fn lose_power_but(&self, mut keeps: impl FnMut() -> bool) {
        let mut state = self.state();
        state.reset_names(|_| keeps());
        for file in &mut state.files {
            let bytes = file.kept(&mut keeps);
            file.holds(bytes);
        }
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.state().fail_sync = fail;
    }

    /// Makes every write fail with this error, as on a defective or read-only disk.
    pub(crate) fn fail_writes(&self, kind: Option<io::ErrorKind>) {
        self.state().fail_write = kind;
    }

    pub(crate) fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity_bytes = bytes;
    }

    pub(crate) fn fill(&self, full: bool) {
        self.state().full = full;
    }

    /// Makes syncs succeed without effect, as if the daemon crashed before they returned.
    pub(crate) fn lie(&self, lies: bool) {
        self.state().lies = lies;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    pub(crate) fn stop_after(&self, operations: Option<u64>) {
        let mut state = self.state();
        state.operations = 0;
        state.stops_after = operations;
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        let state = self.state();
        let file = state.durable_names.get(Path::new(path));
        file.map(|file| state.files[*file].durable.clone()).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.read(JOURNAL)
    }

    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        let mut file = Bytes::default();
        file.holds(bytes);
        let mut state = disk.state();
        state.files.push(file);
        state.names.insert(JOURNAL.into(), 0);
        state.durable_names.insert(JOURNAL.into(), 0);
        drop(state);
        disk
    }
}

impl State {
    /// Keeps only these name changes, each as a whole. Files in a lost folder are also lost.
    fn reset_names(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        let mut names = std::mem::take(&mut self.durable_names);
        for (number, changes) in self.renamed.drain(..).enumerate() {
            if keeps(number) {
                changes.iter().for_each(|change| apply(&mut names, change));
            }
        }
        if self.is_bare {
            let all = names.clone();
            names.retain(|path, _| {
                let mut folders = path.ancestors().skip(1).filter(|path| path.parent().is_some());
                folders.all(|folder| all.contains_key(folder))
            });
        }
        self.names = names.clone();
        self.durable_names = names;
    }

    fn sync_folder(&mut self, folder: Option<&Path>) {
        let is_there = |changes: &Vec<Renaming>| {
            changes.iter().any(|change| match change {
                Renaming::Is(path, _) | Renaming::Gone(path) => path.parent() == folder,
            })
        };
        let (synced, left) = self.renamed.drain(..).partition(is_there);
        self.renamed = left;
        let synced: Vec<Vec<Renaming>> = synced;
        synced.iter().flatten().for_each(|change| apply(&mut self.durable_names, change));
    }
}

impl Bytes {
    fn holds(&mut self, bytes: Vec<u8>) {
        self.allocated = bytes.len() as u64;
        self.written = bytes.clone();
        self.durable = bytes;
        self.dirty.clear();
    }

    fn pages(&self) -> BTreeSet<usize> {
        let pages = |dirty: &Range<usize>| dirty.start / PAGE_BYTES..dirty.end.div_ceil(PAGE_BYTES);
        self.dirty.iter().flat_map(pages).collect()
    }

    fn kept(&self, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        if keeps() {
            bytes.resize(self.written.len(), 0);
        }
        for page in self.pages() {
            let end = ((page + 1) * PAGE_BYTES).min(bytes.len()).min(self.written.len());
            let page = (page * PAGE_BYTES).min(end)..end;
            if keeps() {
                bytes[page.clone()].copy_from_slice(&self.written[page]);
            }
        }
        bytes
    }

    fn torn(&self, rng: &mut impl RngExt) -> Vec<u8> {
        let (from, to) = (self.durable.len(), self.written.len());
        let sectors = || {
            self.dirty
                .iter()
                .flat_map(|dirty| dirty.start / SECTOR_BYTES..dirty.end.div_ceil(SECTOR_BYTES))
        };
        let mut torn = self.durable.clone();
        let (shorter, longer) = (from.min(to), from.max(to));
        let length = match rng.random_range(0..4) {
            0 => return torn,
            1 => rng.random_range(shorter..=longer),
            2 => (rng.random_range(shorter..=longer) / SECTOR_BYTES * SECTOR_BYTES).max(shorter),
            _ => to,
        };
        let holes = rng.random_bool(0.5);
        torn.resize(length, 0);
        for sector in sectors() {
            if holes && rng.random_bool(0.5) {
                continue;
            }
            let end = ((sector + 1) * SECTOR_BYTES).min(length).min(to);
            if let Some(written) = self.written.get(sector * SECTOR_BYTES..end) {
                torn[sector * SECTOR_BYTES..end].copy_from_slice(written);
            }
        }
        torn
    }
}

impl Names for Disk {
    type File = Handle;
    fn open(&self, path: &Path, _mode: u32, new: bool) -> io::Result<Handle> {
        let mut state = self.state();
        state.step()?;
        if state.is_bare && path.parent().is_some_and(|folder| !state.names.contains_key(folder)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let known = state.names.get(path).copied();
        if known.is_some() && new {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = known.unwrap_or_else(|| {
            state.files.push(Bytes::default());
            let file = state.files.len() - 1;
            state.changes_names(vec![Renaming::Is(path.to_owned(), file)]);
            file
        });
        drop(state);
        Ok(Handle { disk: self.clone(), file })
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let changes = vec![Renaming::Gone(from.to_owned()), Renaming::Is(to.to_owned(), file)];
        state.changes_names(changes);
        Ok(())
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.changes_names(vec![Renaming::Is(to.to_owned(), file)]);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.changes_names(vec![Renaming::Gone(path.to_owned())]);
        Ok(())
    }
    fn has(&self, path: &Path) -> bool {
        let state = self.state();
        !state.is_bare || path.parent().is_none() || state.names.contains_key(path)
    }
    fn make_folder(&self, path: &Path, _mode: u32) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.changes_names(vec![Renaming::Is(path.to_owned(), FOLDER)]);
        Ok(())
    }
    fn sync_names(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        if state.fail_sync {
            return Err(io::Error::other("input/output error"));
        }
        if !state.lies {
            state.sync_folder(path.parent());
        }
        Ok(())
    }
}

impl Handle {
    fn on<T>(&self, act: impl FnOnce(&mut State, usize) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        state.step()?;
        act(&mut state, self.file)
    }
}

impl DiskFile for Handle {
    fn read_all(&mut self) -> io::Result<Vec<u8>> {
        self.on(|state, file| Ok(state.files[file].written.clone()))
    }
    fn length(&self) -> io::Result<u64> {
        self.on(|state, file| Ok(state.files[file].written.len() as u64))
    }
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.on(|state, index| {
            if let Some(kind) = state.fail_write {
                return Err(kind.into());
            }
            let (full, capacity) = (state.full, state.capacity_bytes);
            let file = &mut state.files[index];
            let from = usize::try_from(offset).unwrap();
            let room = match full {
                true => usize::try_from(file.allocated.next_multiple_of(BLOCK_BYTES)).unwrap(),
                false => usize::MAX,
            };
            let room = room.min(capacity.unwrap_or(usize::MAX));
            let fits = bytes.len().min(room.saturating_sub(from));
            let end = from + fits;
            if file.written.len() < end {
                file.written.resize(end, 0);
            }
            file.written[from..end].copy_from_slice(&bytes[..fits]);
            file.dirty.push(from..end);
            file.allocated = file.allocated.max(end as u64);
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.on(|state, file| {
            if let Some(kind) = state.fail_write {
                return Err(kind.into());
            }
            let file = &mut state.files[file];
            file.written.truncate(usize::try_from(length).unwrap());
            file.allocated = length;
            Ok(())
        })
    }
    fn allocate(&mut self, _from: u64, until: u64) -> io::Result<()> {
        self.on(|state, file| {
            if let Some(kind) = state.fail_write {
                return Err(kind.into());
            }
            let file = &mut state.files[file];
            if until <= file.allocated.next_multiple_of(BLOCK_BYTES) {
                return Ok(());
            }
            if state.full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.allocated = until;
            Ok(())
        })
    }
    fn sync(&mut self) -> io::Result<()> {
        self.on(|state, file| {
            if state.fail_sync {
                return Err(io::Error::other("input/output error"));
            }
            if state.lies {
                return Ok(());
            }
            let file = &mut state.files[file];
            let length = file.written.len();
            file.durable.resize(length, 0);
            for dirty in std::mem::take(&mut file.dirty) {
                let dirty = dirty.start.min(length)..dirty.end.min(length);
                let bytes = &file.written[dirty.clone()];
                file.durable[dirty].copy_from_slice(bytes);
            }
            Ok(())
        })
    }
}

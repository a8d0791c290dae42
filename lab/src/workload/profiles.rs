// SPDX-License-Identifier: Apache-2.0
//! Reads PyTorch profiles as a stream, because ten million events take gigabytes of JSON.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use lightloom::files;
use lightloom::progress::Progress;
use lightloom_training::kineto::{self, ProfiledStep, Profiles};

const HEAD: usize = 1 << 16;
const BUFFER: usize = 1 << 20;

struct CountedFile<'p> {
    file: File,
    progress: &'p Progress,
}

impl Read for CountedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress.advance(count as u64);
        Ok(count)
    }
}

pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Option<ProfiledStep>> {
    let mut sizes = 0;
    for (place, path) in paths.iter().enumerate() {
        let (_, mut file, size) = open(path)?;
        sizes += size;
        let mut head = Vec::new();
        if place == 0 {
            let mut tail = file.try_clone()?;
            // A damaged file is reported when it is read whole.
            let _ = files::unpacked(&mut file)?.take(HEAD as u64).read_to_end(&mut head);
            tail.seek(SeekFrom::Start(size.saturating_sub(HEAD as u64)))?;
            tail.read_to_end(&mut head)?;
            if !kineto::is_kineto(&head) {
                return Ok(None);
            }
        }
    }
    let progress = Progress::new("bytes of the profiles read", sizes);
    let mut profiles = Profiles::default();
    for path in paths {
        let (name, file, _) = open(path)?;
        let file = files::unpacked(CountedFile { file, progress: &progress })?;
        profiles.read(&name, BufReader::with_capacity(BUFFER, file), paths.len())?;
    }
    Ok(Some(profiles.finish()?))
}

fn open(path: &Path) -> anyhow::Result<(String, File, u64)> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let size = file.metadata().with_context(|| format!("cannot read {name}"))?.len();
    Ok((name, file, size))
}

pub(super) fn ranges(ranks: &[u32]) -> String {
    let rows = ranks.chunk_by(|a, b| a + 1 == *b).map(|row| match row {
        [first, .., last] => format!("{first}-{last}"),
        _ => row.iter().map(u32::to_string).collect(),
    });
    rows.collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_are_printed_as_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
    }
}

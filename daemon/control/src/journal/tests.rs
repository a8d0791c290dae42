// SPDX-License-Identifier: Apache-2.0

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

#[derive(Default)]
struct Memory(Vec<u8>);
impl Storage for Memory {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0 = bytes.to_vec();
        Ok(())
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

fn written(records: &[&str]) -> Vec<u8> {
    let (mut journal, _) = Journal::<String, _>::open(Memory::default()).unwrap();
    for record in records {
        journal.append([&(*record).to_owned()]).unwrap();
    }
    journal.storage.0
}

#[test]
fn reads_back_appended_records() {
    let bytes = written(&["one", "two\nlines", "three"]);
    let (journal, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
    assert_eq!(opened.records, ["one", "two\nlines", "three"]);
    assert_eq!((opened.torn_bytes, journal.length()), (0, 3));
}

#[test]
fn tail_cut_at_any_byte_loses_only_the_last_record() {
    let whole = written(&["one", "two", "three"]);
    let two = written(&["one", "two"]).len();
    for length in two..whole.len() {
        let (mut journal, opened) =
            Journal::<String, _>::open(Memory(whole[..length].to_vec())).unwrap();
        assert!(opened.damage.is_none(), "cut at {length}: {:?}", opened.damage);
        assert_eq!(opened.records, ["one", "two"]);
        assert_eq!(opened.torn_bytes, length - two);
        journal.append([&"again".to_owned()]).unwrap();
        let (again, _, damage) = read_all::<String>(&journal.storage.0);
        assert!(damage.is_none());
        assert_eq!(again, ["one", "two", "again"]);
    }
}

#[test]
fn detects_every_bit_flip_and_refuses_to_append_after_it() {
    let whole = written(&["one", "two", "three {\"a\": [1, 2]} JJJ ***"]);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (mut journal, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
        assert!(opened.damage.is_some(), "flip of bit {bit} went unnoticed");
        assert!(journal.append([&"more".to_owned()]).is_err());
    }
}

/// Computed with `printf '%064d1"one"' 0 | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07`.
#[test]
fn keyed_line_matches_openssl() {
    let mut chain = Chain::new(Some(Key::new([7; 32])));
    let mut line = String::new();
    chain.push("\"one\"", &mut line);
    assert_eq!(
        line,
        "1 259313b2a64fe5ee55daf9d13c5ff97961697596ee4e7c6ff64983df534d42bd \"one\"\n"
    );
}

#[test]
fn keyed_chain_requires_its_key() {
    let key = || Some(Key::new([7; 32]));
    let lines = |bytes: Vec<u8>, key: Option<Key>, records: &[&str]| {
        let (mut journal, _) = Journal::<String, _>::open_keyed(Memory(bytes), key).unwrap();
        for record in records {
            journal.append([&(*record).to_owned()]).unwrap();
        }
        journal.storage.0
    };
    let old = lines(Vec::new(), None, &["one", "two"]);
    let both = lines(old.clone(), key(), &["three", "four"]);
    let read = read_keyed::<String>(&both, key());
    assert_eq!((read.records.len(), read.keyed_from), (4, Some(3)));
    assert!(read.damage.is_none());

    let forged = lines(Vec::new(), None, &["one", "two", "three", "nothing"]);
    let read = read_keyed::<String>(&forged, key());
    assert_eq!((read.records.len(), read.keyed_from), (4, None), "known by the key beside it");
    let cut = both.iter().rposition(|byte| *byte == b' ').unwrap();
    let head = both[..both[..cut].iter().rposition(|byte| *byte == b'\n').unwrap() + 1].to_vec();
    let mut chain = Chain::new(None);
    chain.seq = 3;
    chain.hash = String::from_utf8_lossy(&head).lines().last().unwrap()[2..66].to_owned();
    let mut line = String::new();
    chain.push("\"nothing\"", &mut line);
    let tail = [head, line.into_bytes()].concat();
    let damage = read_keyed::<String>(&tail, key()).damage.unwrap();
    assert_eq!((damage.line, damage.reason.as_str()), (4, "was written without the key"));
    let swapped = String::from_utf8(both).unwrap().replacen("one", "eno", 1).into_bytes();
    assert_eq!(read_keyed::<String>(&swapped, key()).damage.unwrap().line, 1);
    let other = Some(Key::new([8; 32]));
    let keyed = lines(Vec::new(), key(), &["one"]);
    assert_eq!(read_keyed::<String>(&keyed, other).damage.unwrap().line, 1);
}

#[test]
fn restarted_journal_continues_from_its_new_start() {
    let (mut journal, _) = Journal::<String, _>::open(Memory::default()).unwrap();
    journal.append([&"one".to_owned(), &"two".to_owned()]).unwrap();
    journal.restart([&"both".to_owned()]).unwrap();
    journal.append([&"three".to_owned()]).unwrap();
    let (again, _, damage) = read_all::<String>(&journal.storage.0);
    assert!(damage.is_none());
    assert_eq!((again.len(), journal.length()), (2, 2));
    assert_eq!(again, ["both", "three"]);
}

#[test]
fn missing_sector_in_the_last_line_is_a_torn_tail() {
    let long = "x".repeat(3000);
    let mut bytes = written(&["one", &long]);
    let first = written(&["one"]).len();
    let sector = (first / 512 + 1) * 512;
    bytes[sector..sector + 512].fill(0);
    let (_, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
    assert!(opened.damage.is_none() && opened.torn_bytes > 0);
    assert_eq!(opened.records, ["one"]);
}

#[test]
fn trailing_zeros_hide_neither_a_torn_line_nor_damage() {
    let whole = written(&["one", "two", "three"]);
    let two = written(&["one", "two"]).len();
    let zeros = vec![0; 5000];
    let read = |bytes: &[u8]| {
        let bytes = [bytes, &zeros].concat();
        let (journal, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
        (opened, journal.storage.0)
    };
    let (opened, bytes) = read(&whole);
    assert_eq!((opened.torn_bytes, bytes), (0, whole.clone()));
    assert_eq!(opened.records, ["one", "two", "three"]);
    for length in two..whole.len() {
        let (opened, bytes) = read(&whole[..length]);
        assert!(opened.damage.is_none(), "cut at {length}: {:?}", opened.damage);
        assert_eq!((opened.torn_bytes, bytes), (length - two, whole[..two].to_vec()));
    }
    for bit in 0..two * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (opened, _) = read(&bytes);
        assert!(opened.damage.is_some(), "flip of bit {bit} went unnoticed");
    }
}

#[test]
fn sector_lost_before_acknowledged_lines_is_damage() {
    let long = "x".repeat(3000);
    let whole = written(&["one", &long, "three", "four"]);
    let first = written(&["one"]).len();
    for lost in [first, (first / 512 + 1) * 512] {
        let mut bytes = whole.clone();
        bytes[lost..lost + 512].fill(0);
        let (mut journal, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
        assert_eq!(opened.records, ["one"]);
        assert_eq!(opened.damage.unwrap().line, 2);
        assert!(journal.append([&"more".to_owned()]).is_err());
    }
}

#[test]
fn missing_page_is_a_torn_tail_wherever_the_line_starts() {
    let long = "x".repeat(3000);
    for before in 1..60 {
        let first = "y".repeat(before);
        let mut bytes = written(&[&first, &long]);
        let begins = written(&[&first]).len();
        let missing = 1 + before % 7;
        bytes[begins..begins + missing].fill(0);
        let (_, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
        assert!(opened.damage.is_none(), "{missing} bytes: {:?}", opened.damage);
        assert_eq!(opened.records, [first]);
    }
}

#[test]
fn tail_that_does_not_start_like_the_next_line_is_damage() {
    let two = written(&["one", "two"]);
    for garbage in [
        &b"garbage garbage"[..],
        b"x",
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        b"4 ab",
        b"garb\0\0\0\0\0\0\0\0age",
    ] {
        for before in [Vec::new(), two.clone()] {
            let bytes = [&before[..], garbage].concat();
            let (_, opened) = Journal::<String, _>::open(Memory(bytes)).unwrap();
            let damage = opened.damage.map(|damage| damage.byte);
            assert_eq!(damage, Some(before.len()), "{garbage:?}");
        }
    }
}

#[derive(Default)]
struct Fails {
    written: Vec<u8>,
    durable: Vec<u8>,
    keeps: bool,
    fails: bool,
}
impl Storage for Fails {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.written.clone())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        if self.fails {
            if !self.keeps {
                self.written.clone_from(&self.durable);
            }
            return Err(io::Error::from_raw_os_error(5));
        }
        self.durable.clone_from(&self.written);
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written = bytes.to_vec();
        self.sync()
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.written.truncate(usize::try_from(length).unwrap());
        self.sync()
    }
}

fn failed(keeps: bool) -> Journal<String, Fails> {
    let disk = Fails { keeps, ..Fails::default() };
    let (mut journal, _) = Journal::<String, _>::open(disk).unwrap();
    journal.append([&"one".to_owned(), &"two".to_owned()]).unwrap();
    journal.write([&"three".to_owned()]).unwrap();
    journal.storage.fails = true;
    journal.append([&"four".to_owned()]).unwrap_err();
    journal
}

#[test]
fn only_durable_records_are_served_after_a_failed_sync() {
    for keeps in [true, false] {
        assert_eq!(failed(keeps).read_back().unwrap().0, ["one", "two"], "keeps: {keeps}");
    }
}

#[test]
fn continues_after_a_sync_that_lost_unsynced_records() {
    for keeps in [true, false] {
        let mut journal = failed(keeps);
        assert!(journal.reopen().is_err(), "the disk still fails");
        journal.storage.fails = false;
        let kept: &[&str] = if keeps { &["one", "two", "three"] } else { &["one", "two"] };
        assert_eq!(journal.reopen().unwrap().0, kept);
        journal.append([&"five".to_owned()]).unwrap();
        let (records, _, damage) = read_all::<String>(&journal.storage.durable);
        assert_eq!(
            (records, damage),
            ([kept, &["five"]].concat().iter().map(ToString::to_string).collect(), None)
        );
    }
}

#[test]
fn lost_durable_records_are_damage() {
    let mut journal = failed(false);
    (journal.storage.fails, journal.storage.written) = (false, written(&["one"]));
    let Err(JournalError::Lost(damage)) = journal.reopen() else { panic!("it lost a record") };
    assert_eq!(damage.line, 2);
    assert!(journal.append([&"five".to_owned()]).is_err());
}

#[test]
fn reopening_without_a_failed_write_syncs() {
    let (mut journal, _) = Journal::<String, _>::open(Fails::default()).unwrap();
    journal.append([&"one".to_owned()]).unwrap();
    journal.write([&"two".to_owned()]).unwrap();
    journal.storage.fails = true;
    assert!(journal.reopen().is_err());
    journal.storage.fails = false;
    assert_eq!(journal.reopen().unwrap().0, ["one"], "the failed sync dropped the other");
}

// SPDX-License-Identifier: Apache-2.0
//! Writes canonical JSON, so that equal documents have equal bytes and therefore equal digests.
//!
//! The format is RFC 8785 (JSON Canonicalization Scheme), with no white space, members sorted by
//! name in UTF-16 code units, minimal escapes, and ECMAScript numbers (`1.0` becomes `1`). The only
//! exception is that integers beyond 2^53 keep all digits, because seeds are 64-bit.

mod number;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Returns a document's canonical bytes without the members at these paths, such as `["metrics", "plan_seconds"]`.
///
/// # Errors
/// Fails if an object has keys that are not strings.
pub fn bytes(document: &impl Serialize, without: &[&[&str]]) -> serde_json::Result<Vec<u8>> {
    let out = RefCell::default();
    let spelling = Spelling { out: &out, open: vec![], members: vec![], scratch: vec![], without };
    document.serialize(&mut Serializer::with_formatter(Written(&out), spelling))?;
    Ok(out.into_inner())
}

/// What the serialiser has written, which the formatter sorts at the end of each object.
struct Written<'a>(&'a RefCell<Vec<u8>>);

impl io::Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Spelling<'a> {
    out: &'a RefCell<Vec<u8>>,
    open: Vec<Open>,
    members: Vec<Member>,
    scratch: Vec<u8>,
    without: &'a [&'a [&'a str]],
}

struct Open {
    start: usize,
    first: usize,
}

#[derive(Clone)]
struct Member {
    name: Range<usize>,
    /// In names without escapes and beyond-ASCII characters, byte order is UTF-16 code unit order.
    is_plain: bool,
    end: usize,
}

impl Member {
    fn compare(&self, other: &Self, out: &[u8]) -> Ordering {
        let (a, b) = (&out[self.name.clone()], &out[other.name.clone()]);
        if self.is_plain && other.is_plain {
            return a[..a.len() - 1].cmp(&b[..b.len() - 1]);
        }
        let [a, b] = [a, b].map(|name| serde_json::from_slice::<String>(name).unwrap_or_default());
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

impl Spelling<'_> {
    fn length(&self) -> usize {
        self.out.borrow().len()
    }

    /// Returns whether the innermost object already has members.
    fn has_members(&self) -> bool {
        self.open.last().is_some_and(|open| open.first < self.members.len())
    }

    fn is_left_out(&self) -> bool {
        let (depth, out) = (self.open.len(), self.out.borrow());
        self.without.iter().filter(|path| path.len() == depth).any(|path| {
            let mut parts = path.iter().enumerate();
            parts.all(|(level, part)| self.open_name(level, &out) == part.as_bytes())
        })
    }

    /// Returns the name of the open member of an object.
    fn open_name<'o>(&self, level: usize, out: &'o [u8]) -> &'o [u8] {
        let next = self.open.get(level + 1).map_or(self.members.len(), |inner| inner.first);
        let quoted = &out[self.members[next - 1].name.clone()];
        &quoted[1..quoted.len() - 1]
    }

    fn close(&mut self) {
        let Some(Open { start, first }) = self.open.pop() else { return };
        let Self { members, scratch, .. } = self;
        let out = &mut *self.out.borrow_mut();
        let of_object = &mut members[first..];
        if !of_object.is_sorted_by(|a, b| a.compare(b, out).is_le()) {
            of_object.sort_by(|a, b| a.compare(b, out));
            scratch.clear();
            for (index, member) in of_object.iter().enumerate() {
                if index > 0 {
                    scratch.push(b',');
                }
                scratch.extend_from_slice(&out[member.name.start..member.end]);
            }
            out.truncate(start);
            out.append(scratch);
        }
        out.push(b'}');
        members.truncate(first);
    }
}

impl Formatter for Spelling<'_> {
    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        self.write_f64(writer, f64::from(value))
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(number::spelled(value).as_bytes())
    }

    fn write_raw_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, _: &str) -> io::Result<()> {
        Err(io::Error::other("raw JSON fragments have no canonical form"))
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"{")?;
        self.open.push(Open { start: self.length(), first: self.members.len() });
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.close();
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, _: bool) -> io::Result<()> {
        // Omit the comma before the first member that is kept, which need not be the first member.
        if self.has_members() {
            to.write_all(b",")?;
        }
        let start = self.length();
        self.members.push(Member { name: start..start, is_plain: false, end: start });
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let out = self.out.borrow();
        if let Some(member) = self.members.last_mut() {
            member.name.end = out.len();
            let name = &out[member.name.clone()];
            member.is_plain = name.is_ascii() && !name.contains(&b'\\');
        }
        Ok(())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        if self.is_left_out() {
            let start = self.members.pop().map_or(0, |member| member.name.start);
            self.out.borrow_mut().truncate(start - usize::from(self.has_members()));
            return Ok(());
        }
        let end = self.length();
        if let Some(member) = self.members.last_mut() {
            member.end = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

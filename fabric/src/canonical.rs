// SPDX-License-Identifier: Apache-2.0
//! Writes canonical JSON, so that equal documents have equal bytes and therefore equal digests.
//!
//! The format is RFC 8785 (JSON Canonicalization Scheme), with no white space, members sorted by
//! name in UTF-16 code units, minimal escapes, and ECMAScript numbers (`1.0` becomes `1`). The only
//! exception is that integers beyond 2^53 keep all digits, because seeds are 64-bit.

mod number;

use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Returns a document's canonical bytes without the members at these paths, such as `["metrics", "plan_seconds"]`.
///
/// # Errors
/// Fails if an object has keys that are not strings.
pub fn bytes(document: &impl Serialize, without: &[&[&str]]) -> serde_json::Result<Vec<u8>> {
    let mut spelling = Spelling { without, ..Spelling::default() };
    document.serialize(&mut Serializer::with_formatter(io::sink(), &mut spelling))?;
    Ok(spelling.out)
}

/// Members can be sorted only after the last one, so the serialiser's writer is not used.
#[derive(Default)]
struct Spelling<'a> {
    out: Vec<u8>,
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
    end: usize,
}

impl Member {
    fn compare(&self, other: &Self, out: &[u8]) -> Ordering {
        compare(&out[self.name.clone()], &out[other.name.clone()])
    }
}

impl Spelling<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn put_number(&mut self, number: impl std::fmt::Display) {
        use io::Write;
        let _ = write!(self.out, "{number}");
    }

    fn is_left_out(&self) -> bool {
        let depth = self.open.len();
        self.without.iter().filter(|path| path.len() == depth).any(|path| {
            path.iter().enumerate().all(|(level, part)| self.open_name(level) == part.as_bytes())
        })
    }

    /// Returns the name of the open member of an object.
    fn open_name(&self, level: usize) -> &[u8] {
        let next = self.open.get(level + 1).map_or(self.members.len(), |inner| inner.first);
        let quoted = &self.out[self.members[next - 1].name.clone()];
        &quoted[1..quoted.len() - 1]
    }

    fn close(&mut self) {
        let Some(Open { start, first }) = self.open.pop() else { return };
        let Self { out, members, scratch, .. } = self;
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

/// UTF-16 code unit order is byte order for ASCII.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if [a, b].iter().all(|name| name.is_ascii() && !name.contains(&b'\\')) {
        return a[..a.len() - 1].cmp(&b[..b.len() - 1]);
    }
    let [a, b] = [a, b].map(|name| serde_json::from_slice::<String>(name).unwrap_or_default());
    a.encode_utf16().cmp(b.encode_utf16())
}

macro_rules! integers {
    ($($method:ident: $kind:ty),*) => {$(
        fn $method<W: ?Sized + io::Write>(&mut self, _: &mut W, value: $kind) -> io::Result<()> {
            self.put_number(value);
            Ok(())
        }
    )*};
}

macro_rules! signs {
    ($($method:ident => $sign:expr),*) => {$(
        fn $method<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.put($sign);
            Ok(())
        }
    )*};
}

impl Formatter for &mut Spelling<'_> {
    integers!(write_i8: i8, write_i16: i16, write_i32: i32, write_i64: i64, write_i128: i128);
    integers!(write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128);
    signs!(write_null => b"null", begin_string => b"\"", end_string => b"\"");
    signs!(begin_array => b"[", end_array => b"]", end_array_value => b"");
    signs!(begin_object_value => b":");

    fn write_bool<W: ?Sized + io::Write>(&mut self, _: &mut W, value: bool) -> io::Result<()> {
        self.put(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f32) -> io::Result<()> {
        self.put_number(number::spelled(f64::from(value)));
        Ok(())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, _: &mut W, value: f64) -> io::Result<()> {
        self.put_number(number::spelled(value));
        Ok(())
    }

    fn write_number_str<W: ?Sized + io::Write>(&mut self, _: &mut W, v: &str) -> io::Result<()> {
        self.put(v.as_bytes());
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        _: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.put(fragment.as_bytes());
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        _: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Quote => self.put(b"\\\""),
            CharEscape::ReverseSolidus => self.put(b"\\\\"),
            CharEscape::Solidus => self.put(b"/"),
            CharEscape::Backspace => self.put(b"\\b"),
            CharEscape::FormFeed => self.put(b"\\f"),
            CharEscape::LineFeed => self.put(b"\\n"),
            CharEscape::CarriageReturn => self.put(b"\\r"),
            CharEscape::Tab => self.put(b"\\t"),
            CharEscape::AsciiControl(byte) => self.put_number(format_args!("\\u{byte:04x}")),
        }
        Ok(())
    }

    fn write_raw_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, _: &str) -> io::Result<()> {
        Err(io::Error::other("raw JSON fragments have no canonical form"))
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        _: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.put(if first { b"" } else { b"," });
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.put(b"{");
        self.open.push(Open { start: self.out.len(), first: self.members.len() });
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.close();
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W, _: bool) -> io::Result<()> {
        // Omit the comma before the first member that is kept, which need not be the first member.
        if self.open.last().is_some_and(|open| open.first < self.members.len()) {
            self.put(b",");
        }
        let start = self.out.len();
        self.members.push(Member { name: start..start, end: start });
        Ok(())
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        let end = self.out.len();
        if let Some(member) = self.members.last_mut() {
            member.name.end = end;
        }
        Ok(())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        if self.is_left_out() {
            let start = self.members.pop().map_or(0, |member| member.name.start);
            let comma = self.open.last().is_some_and(|open| open.first < self.members.len());
            self.out.truncate(start - usize::from(comma));
            return Ok(());
        }
        let end = self.out.len();
        if let Some(member) = self.members.last_mut() {
            member.end = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! Checks the size, encoding and control characters of a file.

use std::io::Read;

use super::codes;
use super::diagnostic::{Code, Diagnostic, Place};
use super::tree::Span;

/// Limits for a file. Messages state the exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum file size in bytes.
    pub bytes: usize,
    /// Maximum nesting of lists and mappings.
    pub depth: usize,
    /// Maximum number of keys and values.
    pub nodes: usize,
    /// Maximum number of anchors (`&name`).
    pub anchors: usize,
    /// Maximum number of values in the expansion of all aliases together.
    pub alias_nodes: usize,
}

impl Default for Limits {
    /// The limits allow a million GPUs with one link per line. Rejecting a file takes up to 0.5 s and 64 MB.
    fn default() -> Self {
        Self { bytes: 16 << 20, depth: 64, nodes: 1_000_000, anchors: 10_000, alias_nodes: 100_000 }
    }
}

/// Reads `reader` to the end, or to one byte beyond the limit. If `size` is known (for a regular
/// file), an oversized file is rejected without reading it.
///
/// # Errors
/// Fails if reading fails or the input exceeds the default [`Limits::bytes`].
pub fn take(file: &str, size: Option<u64>, reader: impl Read) -> Result<Vec<u8>, Box<Diagnostic>> {
    let limit = Limits::default().bytes;
    if size.is_some_and(|size| size > limit as u64) {
        return Err(too_large(file, limit));
    }
    let mut bytes = Vec::new();
    let read = reader.take(limit as u64 + 1).read_to_end(&mut bytes);
    if let Err(error) = read {
        let message = format!("cannot read: {error}");
        return Err(Box::new(Diagnostic::whole_file(codes::UNREADABLE, file, message)));
    }
    if bytes.len() > limit {
        return Err(too_large(file, limit));
    }
    Ok(bytes)
}

fn too_large(file: &str, limit: usize) -> Box<Diagnostic> {
    let message = format!("the file is larger than the limit of {} MiB", limit >> 20);
    refuse(file, codes::TOO_LARGE, message, "describe large fabrics in the generator form")
}

fn refuse(file: &str, code: Code, message: impl Into<String>, help: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::whole_file(code, file, message).with_help(help))
}

pub(crate) fn enter<'s>(
    file: &str,
    bytes: &'s [u8],
    limits: &Limits,
) -> Result<&'s str, Box<Diagnostic>> {
    if bytes.len() > limits.bytes {
        return Err(too_large(file, limits.bytes));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let message = "the file is UTF-16, not UTF-8";
        return Err(refuse(file, codes::NOT_UTF8, message, "save it as UTF-8"));
    }
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        let message = "the file begins with a byte-order mark (BOM)";
        return Err(refuse(file, codes::BYTE_ORDER_MARK, message, "save it as UTF-8 without BOM"));
    }
    let source = std::str::from_utf8(bytes).map_err(|error| {
        let valid = error.valid_up_to();
        let message = format!("byte 0x{:02x} is not UTF-8 text", bytes[valid]);
        let mut diagnostic = refuse(file, codes::NOT_UTF8, message, "save it as UTF-8");
        let before = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
        diagnostic.place = Some(Place::of(before, at(valid, 0)));
        diagnostic
    })?;
    let control = bytes
        .iter()
        .position(|byte| *byte == 0x7f || *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r'));
    if let Some(position) = control {
        let message = format!("the file contains the control character U+{:04X}", bytes[position]);
        let mut diagnostic = refuse(file, codes::CONTROL_CHARACTER, message, "remove it");
        diagnostic.place = Some(Place::of(source, at(position, 1)));
        return Err(diagnostic);
    }
    Ok(source)
}

fn at(position: usize, length: usize) -> Span {
    let [start, end] =
        [position, position + length].map(|index| u32::try_from(index).unwrap_or(u32::MAX));
    Span { start, end }
}

// SPDX-License-Identifier: Apache-2.0
//! `liblightloom` offers the packet engine as a network backend for other simulators.
//! `include/lightloom.h` documents its C functions.
//!
//! ```text
//!   front end ── lightloom_send, _receive, _schedule ──▶ desk (matches bytes) ──▶ session (the run of all scenarios)
//!       ▲                                                                              │
//!       └───────────────── callbacks, only from lightloom_run ◀────────────────────────┘
//! ```
//!
//! A handle is an index into the thread's networks, so handles that are closed, invalid or from
//! another thread are rejected. No call unwinds into C.

mod desk;
mod failure;
mod network;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::rc::Rc;

use lightloom_units::Picoseconds;

use desk::{MessageStream, ProgramCall};
use failure::{CallFailure, answer};
use network::OpenNetwork;

pub use desk::Callback;
pub use failure::ErrorCode;

/// `LIGHTLOOM_ABI_VERSION` of `lightloom.h`.
pub const ABI_VERSION: u32 = 1;

/// The type behind `lightloom_network *`, which is never instantiated.
#[repr(C)]
pub struct Handle {
    _private: [u8; 0],
}

#[derive(Default)]
struct Networks {
    opened: usize,
    open: BTreeMap<usize, Rc<OpenNetwork>>,
}

thread_local! {
    static NETWORKS: RefCell<Networks> = RefCell::default();
}

fn network(handle: *mut Handle) -> Result<Rc<OpenNetwork>, CallFailure> {
    let found = NETWORKS.with_borrow(|all| all.open.get(&(handle as usize)).cloned());
    found.ok_or_else(|| CallFailure::argument("this thread has no network with this handle"))
}

fn sound(handle: *mut Handle) -> Result<Rc<OpenNetwork>, CallFailure> {
    let network = network(handle)?;
    match network.is_broken.get() && !network.is_running() {
        true => Err(CallFailure::broken()),
        false => Ok(network),
    }
}

fn text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, CallFailure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees NUL-terminated text that stays valid during the call.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| CallFailure::argument(format!("{what} is not UTF-8 text")))
}

fn write<T>(there: *mut T, value: T) -> Result<(), CallFailure> {
    if there.is_null() {
        return Err(CallFailure::argument("the result pointer is null"));
    }
    // SAFETY: the caller guarantees that a value of this type can be written there.
    unsafe { there.write(value) };
    Ok(())
}

fn open(
    there: *mut *mut Handle,
    read: impl FnOnce() -> Result<OpenNetwork, CallFailure>,
) -> Result<(), CallFailure> {
    write(there, std::ptr::null_mut())?;
    let network = Rc::new(read()?);
    let handle = NETWORKS.with_borrow_mut(|all| {
        all.opened += 1;
        all.open.insert(all.opened, network);
        all.opened
    });
    write(there, std::ptr::without_provenance_mut(handle))
}

fn stream(
    network: &OpenNetwork,
    stream: MessageStream,
    bytes: u64,
) -> Result<MessageStream, CallFailure> {
    for rank in [stream.source, stream.destination] {
        if rank >= network.ranks {
            let ranks = network.ranks;
            return Err(CallFailure::argument(format!(
                "unknown rank {rank}: the network has {ranks} ranks"
            )));
        }
    }
    match bytes {
        0 => Err(CallFailure::argument("a message must have at least one byte")),
        _ => Ok(stream),
    }
}

fn call(callback: Option<Callback>, argument: *mut c_void) -> Option<ProgramCall> {
    callback.map(|callback| ProgramCall { callback, argument })
}

/// See `lightloom.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lightloom_abi_version() -> u32 {
    ABI_VERSION
}

/// See `lightloom.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lightloom_time_resolution() -> u64 {
    1
}

/// See `lightloom.h`.
///
/// # Safety
/// `buffer` must be null or have room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_last_error(buffer: *mut c_char, size: usize) -> usize {
    failure::last(|text| {
        if !buffer.is_null() && size > 0 {
            let mut lengths = (0..=text.len().min(size - 1)).rev();
            let copied = lengths.find(|length| text.is_char_boundary(*length)).unwrap_or(0);
            // SAFETY: the caller guarantees room for `size` bytes, and no more are copied.
            unsafe {
                text.as_ptr().copy_to_nonoverlapping(buffer.cast(), copied);
                buffer.add(copied).write(0);
            }
        }
        text.len()
    })
}

/// See `lightloom.h`.
///
/// # Safety
/// `path` must be null or NUL-terminated text; `network` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_open(path: *const c_char, network: *mut *mut Handle) -> c_int {
    answer(|| {
        let path =
            text(path, "the path")?.ok_or_else(|| CallFailure::argument("the path is null"))?;
        open(network, || OpenNetwork::open(path))
    })
}

/// See `lightloom.h`.
///
/// # Safety
/// `contents` and `folder` must be null or NUL-terminated text; `network` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_open_text(
    contents: *const c_char,
    folder: *const c_char,
    network: *mut *mut Handle,
) -> c_int {
    answer(|| {
        let contents = text(contents, "the file")?;
        let contents = contents.ok_or_else(|| CallFailure::argument("the text is null"))?;
        let folder = Path::new(text(folder, "the folder")?.unwrap_or(""));
        open(network, || OpenNetwork::read("<text>", contents.as_bytes(), folder))
    })
}

/// See `lightloom.h`.
///
/// # Safety
/// `ranks` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_ranks(network: *mut Handle, ranks: *mut u32) -> c_int {
    answer(|| write(ranks, self::network(network)?.ranks))
}

/// See `lightloom.h`.
///
/// # Safety
/// `picoseconds` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_time(network: *mut Handle, picoseconds: *mut u64) -> c_int {
    answer(|| write(picoseconds, self::network(network)?.desk.borrow().now.0))
}

/// See `lightloom.h`.
///
/// # Safety
/// It must be sound to call `callback` with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_schedule(
    network: *mut Handle,
    picoseconds: u64,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    answer(|| {
        let after = Picoseconds(picoseconds);
        sound(network)?.desk.borrow_mut().schedule(after, call(callback, argument));
        Ok(())
    })
}

/// See `lightloom.h`.
///
/// # Safety
/// It must be sound to call `callback` with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_send(
    network: *mut Handle,
    source: u32,
    destination: u32,
    bytes: u64,
    tag: u64,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    answer(|| {
        let network = sound(network)?;
        let stream = stream(&network, MessageStream { source, destination, tag }, bytes)?;
        network.desk.borrow_mut().send(stream, bytes, call(callback, argument));
        Ok(())
    })
}

/// See `lightloom.h`.
///
/// # Safety
/// It must be sound to call `callback` with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_receive(
    network: *mut Handle,
    destination: u32,
    source: u32,
    bytes: u64,
    tag: u64,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    answer(|| {
        let network = sound(network)?;
        let stream = stream(&network, MessageStream { source, destination, tag }, bytes)?;
        network.desk.borrow_mut().receive(stream, bytes, call(callback, argument));
        Ok(())
    })
}

/// See `lightloom.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lightloom_run(network: *mut Handle) -> c_int {
    answer(|| sound(network)?.run())
}

/// See `lightloom.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lightloom_finish(network: *mut Handle) -> c_int {
    answer(|| sound(network)?.finish())
}

/// See `lightloom.h`.
///
/// # Safety
/// `hops` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lightloom_packet_hops(network: *mut Handle, hops: *mut u64) -> c_int {
    answer(|| {
        write(hops, sound(network)?.ask(lightloom_emulator::called::ProgramSession::packet_hops)?)
    })
}

/// See `lightloom.h`.
#[unsafe(no_mangle)]
pub extern "C" fn lightloom_close(network: *mut Handle) -> c_int {
    answer(|| {
        if self::network(network)?.is_running() {
            return Err(CallFailure::runs());
        }
        let closed = NETWORKS.with_borrow_mut(|all| all.open.remove(&(network as usize)));
        drop(closed);
        Ok(())
    })
}

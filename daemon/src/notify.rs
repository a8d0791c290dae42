// SPDX-License-Identifier: Apache-2.0
//! What systemd is told: ready, status, still alive, stopping.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends `state` to the socket that `NOTIFY_SOCKET` names; without one there is nobody to tell.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let address = match name.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(std::ffi::OsStr::new(&*String::from_utf8_lossy(name))),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// How often the watchdog wants to hear from us: half of what it asks for.
#[must_use]
pub fn watchdog_every() -> Option<Duration> {
    let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(micros / 2).max(Duration::from_millis(10)))
}

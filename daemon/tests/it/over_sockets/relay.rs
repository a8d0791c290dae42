// SPDX-License-Identifier: Apache-2.0
//! A relay between two programs on loopback that can delay or drop their data.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Passes {
    AtOnce,
    /// Delivers the data when the relay is open again, with a different delay for each connection.
    Late,
    Never,
    Slowly,
}

pub(crate) struct Relay {
    pub(crate) at: String,
    passes: Arc<AtomicU8>,
}

impl Relay {
    pub(crate) fn to(far: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let passes = Arc::new(AtomicU8::new(Passes::AtOnce as u8));
        let (way, far) = (Arc::clone(&passes), far.to_owned());
        std::thread::spawn(move || {
            for (number, near) in (0..).zip(listener.incoming().map_while(Result::ok)) {
                let Ok(far) = TcpStream::connect(&far) else { continue };
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                for (from, to) in [(near, far), back] {
                    let way = Arc::clone(&way);
                    std::thread::spawn(move || hand_on(from, to, &way, number));
                }
            }
        });
        Self { at, passes }
    }

    pub(crate) fn set(&self, passes: Passes) {
        self.passes.store(passes as u8, Ordering::SeqCst);
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, passes: &AtomicU8, number: u64) {
    let mut piece = [0; 65_536];
    let is = |what: Passes| passes.load(Ordering::SeqCst) == what as u8;
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if is(Passes::Slowly) {
            std::thread::sleep(Duration::from_millis(400));
        }
        let waits = is(Passes::Late);
        while is(Passes::Late) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if waits {
            // Sometimes later connections overtake an earlier one.
            std::thread::sleep(Duration::from_millis(number * 397 % 4 / 3 * 1_500));
        }
        if !is(Passes::Never) && to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

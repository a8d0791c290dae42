// SPDX-License-Identifier: Apache-2.0

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) const STOPS: [SignalKind; 2] = [SignalKind::interrupt(), SignalKind::terminate()];

/// Calls `heard` on a separate thread.
pub(crate) fn watch(
    kinds: &[SignalKind],
    mut heard: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let signals = kinds.iter().map(|kind| signal(*kind)).collect::<io::Result<Vec<_>>>();
    drop(inside);
    let mut signals: Vec<Signal> = signals?;
    std::thread::spawn(move || {
        loop {
            runtime.block_on(poll_fn(|context| {
                let mut arrived = signals.iter_mut().map(|one| one.poll_recv(context));
                if arrived.any(|one| one.is_ready()) { Poll::Ready(()) } else { Poll::Pending }
            }));
            heard();
        }
    });
    Ok(())
}

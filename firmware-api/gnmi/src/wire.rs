// SPDX-License-Identifier: Apache-2.0
//! Runs HTTP/2 without a socket.
//!
//! hyper and tonic expect a runtime that owns sockets. With this module, the caller instead pushes bytes into
//! a pipe, runs all tasks that can make progress, and takes bytes out. The order of execution is
//! deterministic, because there are no clocks or threads.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::{Executor, Read, ReadBufCursor, Write};

/// Maximum number of bytes buffered for a peer that does not read. Above it, the connection ends.
pub const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Locks a mutex. Poisoning is not possible, because no code panics while it holds a lock.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct WireEnds {
    arrived: VecDeque<u8>,
    leaving: Vec<u8>,
    is_closed: bool,
    reader: Option<Waker>,
}

/// A connection, shared by its caller and the tasks.
#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<WireEnds>>);

impl Pipe {
    /// Adds received bytes.
    pub fn push(&self, bytes: &[u8]) {
        let mut ends = locked(&self.0);
        ends.arrived.extend(bytes);
        if let Some(reader) = ends.reader.take() {
            reader.wake();
        }
    }

    /// Marks the end of the received bytes.
    pub fn close(&self) {
        let mut ends = locked(&self.0);
        ends.is_closed = true;
        if let Some(reader) = ends.reader.take() {
            reader.wake();
        }
    }

    /// Returns the bytes to send.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut locked(&self.0).leaving)
    }
}

impl Read for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut ends = locked(&self.0);
        if ends.arrived.is_empty() {
            if ends.is_closed {
                return Poll::Ready(Ok(()));
            }
            ends.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let (first, _) = ends.arrived.as_slices();
        let length = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..length]);
        ends.arrived.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let mut ends = locked(&self.0);
        if ends.leaving.len() + bytes.len() > UNREAD_BYTES_MAX {
            return Poll::Ready(Err(std::io::Error::other("the send buffer is full")));
        }
        ends.leaving.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A task that runs when its waker fires.
pub type WireTask = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Adds tasks to a [`Tasks`].
#[derive(Clone, Default)]
pub struct Spawner(Arc<Mutex<Vec<WireTask>>>);

impl Spawner {
    /// Adds a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // A runtime's cooperative budgeting would pause the task, and it would never be woken.
        locked(&self.0).push(Box::pin(tokio::task::unconstrained(task)));
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// Tasks that the caller runs.
#[derive(Default)]
pub struct Tasks {
    spawner: Spawner,
    running: Vec<(WireTask, Arc<Flag>)>,
}

impl Tasks {
    /// Returns a handle that adds tasks.
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Returns whether a task can make progress.
    pub fn are_woken(&self) -> bool {
        !locked(&self.spawner.0).is_empty()
            || self.running.iter().any(|(_, flag)| flag.0.load(Ordering::Acquire))
    }

    /// Runs all tasks until none can make progress.
    pub fn run(&mut self) {
        while self.are_woken() {
            let new = std::mem::take(&mut *locked(&self.spawner.0));
            let woken = new.into_iter().map(|task| (task, Arc::new(Flag(AtomicBool::new(true)))));
            self.running.extend(woken);
            self.running.retain_mut(|(task, flag)| {
                if !flag.0.swap(false, Ordering::AcqRel) {
                    return true;
                }
                let waker = Waker::from(Arc::clone(flag));
                task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").finish_non_exhaustive()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

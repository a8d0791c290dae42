// SPDX-License-Identifier: Apache-2.0
//! A timer with sub-millisecond accuracy. The async runtime's timers round up to 1 ms, which is a
//! third of the detection time of a node failure.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const SHORT: Duration = Duration::from_millis(20);
const NEAR: Duration = Duration::from_micros(50);

pub(super) struct Alarm {
    set: Sender<Instant>,
    rings: UnboundedReceiver<Instant>,
    until: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> Self {
        let (set, sets) = channel::<Instant>();
        let (ring, rings) = unbounded_channel();
        let _ = std::thread::Builder::new().name("alarm".into()).spawn(move || {
            let mut next: Option<Instant> = None;
            loop {
                let heard = match next {
                    None => sets.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    Some(at) => sets.recv_timeout(at.saturating_duration_since(Instant::now())),
                };
                match heard {
                    Ok(at) => next = Some(at),
                    Err(RecvTimeoutError::Timeout) => {
                        if next.take().is_some_and(|at| ring.send(at).is_err()) {
                            return;
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { set, rings, until: None }
    }

    /// Returns after `wait`, or up to 1 ms later if `wait` exceeds [`SHORT`].
    pub(super) async fn sleep(&mut self, wait: Duration) {
        if wait.is_zero() || wait > SHORT {
            return tokio::time::sleep(wait).await;
        }
        let until = Instant::now() + wait;
        if self.until.is_none_or(|set: Instant| set.max(until) - set.min(until) > NEAR) {
            self.until = self.set.send(until).ok().map(|()| until);
        }
        let late = tokio::time::sleep(wait + Duration::from_millis(1));
        tokio::pin!(late);
        loop {
            tokio::select! {
                () = &mut late => break,
                rang = self.rings.recv() => match rang {
                    Some(at) if at + NEAR >= until => break,
                    Some(_) => {}
                    None => return late.await,
                }
            }
        }
        self.until = None;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Child processes that end with this one, including all their descendants.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::SignalKind;

use crate::signals;

const LOOK_EVERY: Duration = Duration::from_millis(5);
const END_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Processes {
    stopped: Arc<AtomicBool>,
    children: Vec<(String, Child)>,
}

impl Processes {
    pub(super) fn new() -> anyhow::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&stopped);
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        signals::watch(&kinds, move || heard.store(true, Ordering::Relaxed))?;
        Ok(Self { stopped, children: Vec::new() })
    }

    pub(super) fn start(
        &mut self,
        name: &str,
        command: &mut Command,
        [out, err]: [&Path; 2],
    ) -> anyhow::Result<()> {
        let [out, err] = [out, err]
            .map(|path| File::create(path).with_context(|| format!("write {}", path.display())));
        let command = command.stdin(Stdio::null()).stdout(out?).stderr(err?);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.children.push((name.to_owned(), child));
        Ok(())
    }

    pub(super) fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let place = self.children.iter().position(|(of, _)| of == name);
        let (_, mut child) = self.children.remove(place.context("no such process")?);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn check(&mut self, what: &str) -> anyhow::Result<()> {
        ensure!(!self.is_stopped(), "interrupted");
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended ({status}) while waiting for {what}: see {name}.err");
            }
        }
        std::thread::sleep(LOOK_EVERY);
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let until = Instant::now() + END_WITHIN;
        loop {
            let left = descendants();
            if left.is_empty() || Instant::now() > until {
                return;
            }
            for pid in left {
                let _ended_meanwhile = rustix::process::kill_process(pid, Signal::KILL);
            }
            while matches!(rustix::process::waitpid(None, WaitOptions::NOHANG), Ok(Some(_))) {}
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn descendants() -> Vec<Pid> {
    let all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            let stat = String::from_utf8_lossy(&stat);
            let (state, rest) = stat.rsplit_once(") ")?.1.split_once(' ')?;
            let parent = rest.split(' ').next().filter(|_| state != "Z")?;
            Some((pid, parent.parse().ok()?))
        })
        .collect();
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

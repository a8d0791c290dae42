// SPDX-License-Identifier: Apache-2.0
//! Operator commands that run before a change, after it, or when it has failed.
//!
//! `before` does not run before bypasses, repairs and automatic rollbacks, which must restore light without delay, or
//! before phases, whose timing the job determines. `after` and `failed` run one at a time, in the order of the changes,
//! on a separate thread that changes never wait for. Each command receives JSON on standard input.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::config::{HookFile, HooksFile};
use crate::metrics::Metrics;

const WAITING_MAX: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SAID_BYTES_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    Before,
    After,
    Failed,
}

impl Hook {
    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("`{command}` cannot be started: {error}")]
    NotStarted { command: String, error: std::io::Error },
    #[error("`{command}` did not finish within {} ms and was killed", .within.as_millis())]
    Late { command: String, within: Duration },
    #[error("`{command}` ended with {status}{said}")]
    Refused { command: String, status: std::process::ExitStatus, said: String },
}

#[derive(Clone, Debug, Default)]
pub struct Hooks {
    file: HooksFile,
    waiting: Option<SyncSender<(Hook, Vec<u8>)>>,
}

impl Hooks {
    pub fn start(file: HooksFile, metrics: &Metrics) -> Self {
        if file.after.is_none() && file.failed.is_none() {
            return Self { file, waiting: None };
        }
        let (sender, receiver) = sync_channel::<(Hook, Vec<u8>)>(WAITING_MAX);
        let (hooks, metrics) = (file.clone(), metrics.clone());
        std::thread::spawn(move || {
            for (hook, document) in receiver {
                let of = match hook {
                    Hook::Failed => &hooks.failed,
                    _ => &hooks.after,
                };
                let Some(of) = of else { continue };
                let result = match run(of, &document) {
                    Ok(()) => "ok",
                    Err(error) => {
                        tracing::error!(hook = hook.name(), %error, "a hook failed");
                        "failed"
                    }
                };
                metrics.hooks.with_label_values(&[hook.name(), result]).inc();
            }
        });
        Self { file, waiting: Some(sender) }
    }

    pub fn has_before(&self) -> bool {
        self.file.before.is_some()
    }

    pub fn before(&self, change: &impl Serialize, metrics: &Metrics) -> Result<(), HookError> {
        let Some(before) = &self.file.before else { return Ok(()) };
        let result = run(before, &document(Hook::Before, "change", change));
        let label = if result.is_ok() { "ok" } else { "failed" };
        metrics.hooks.with_label_values(&[Hook::Before.name(), label]).inc();
        result
    }

    pub fn afterwards(&self, hook: Hook, transaction: &impl Serialize, metrics: &Metrics) {
        let is_there = match hook {
            Hook::Before => false,
            Hook::After => self.file.after.is_some(),
            Hook::Failed => self.file.failed.is_some(),
        };
        let Some(waiting) = self.waiting.as_ref().filter(|_| is_there) else { return };
        match waiting.try_send((hook, document(hook, "transaction", transaction))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                tracing::error!(
                    hook = hook.name(),
                    "too many hook runs are queued, so this one is skipped"
                );
                metrics.hooks.with_label_values(&[hook.name(), "left-out"]).inc();
            }
        }
    }
}

fn document(hook: Hook, key: &str, what: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::json!({"hook": hook, key: what}).to_string();
    text.push('\n');
    text.into_bytes()
}

fn run(hook: &HookFile, document: &[u8]) -> Result<(), HookError> {
    let shown = hook.command.join(" ");
    let (program, arguments) = hook.command.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
    let within = Duration::from_secs_f64(hook.within.0.as_secs_f64());
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| HookError::NotStarted { command: shown.clone(), error })?;
    let (input, errors) = (child.stdin.take(), child.stderr.take());
    let document = document.to_vec();
    // Write on a separate thread, so that a command that does not read its input cannot block the
    // daemon. Killing the command ends the thread.
    std::thread::spawn(move || input.map(|mut input| input.write_all(&document)));
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        errors.map(|errors| errors.take(64 << 10).read_to_end(&mut said));
        said
    });
    let until = Instant::now() + within;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            _ => {
                kill(&mut child);
                return Err(HookError::Late { command: shown, within });
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    // A background process of the command may keep standard error open.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let said = said.join().unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let said = match line {
        "" => String::new(),
        line => format!(": {}", line.chars().take(SAID_BYTES_MAX).collect::<String>()),
    };
    Err(HookError::Refused { command: shown, status, said })
}

fn kill(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::{Picoseconds, Text};

    fn shell(script: &str, within_ms: u64) -> HookFile {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        HookFile { command, within: Text(Picoseconds::from_millis(within_ms)) }
    }

    #[test]
    fn hook_reads_json_and_refuses_by_exit_status() {
        let document = document(Hook::Before, "change", &serde_json::json!({"actor": "uid:0"}));
        let good = shell(r#"grep -q '"hook":"before"' && exit 0; exit 3"#, 10_000);
        run(&good, &document).expect("it finds its hook");
        let no =
            run(&shell("cat > /dev/null; echo the job is busy >&2; exit 3", 10_000), &document);
        let said = no.expect_err("it says no").to_string();
        assert!(said.ends_with("ended with exit status: 3: the job is busy"), "{said}");
        let file = HookFile { command: vec!["/nowhere".into()], ..shell("", 1) };
        let said = run(&file, &document).expect_err("there is none").to_string();
        assert!(said.starts_with("`/nowhere` cannot be started: "), "{said}");
    }

    #[test]
    fn slow_hook_is_killed_with_its_children() {
        let began = Instant::now();
        let late = run(&shell("sleep 100 & sleep 100", 100), &vec![b'x'; 1 << 20]);
        assert!(matches!(late, Err(HookError::Late { .. })), "{late:?}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

// SPDX-License-Identifier: Apache-2.0

use std::future::Future;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use sd_notify::NotifyState;
use tracing_subscriber::EnvFilter;

pub fn main(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    start_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("cannot start").and_then(|runtime| runtime.block_on(work)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(1)
        }
    }
}

fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    log.with_writer(std::io::stderr).init();
}

pub fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

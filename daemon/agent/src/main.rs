// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use lightloom_agent::file::{self, AgentFile};
use lightloom_agent::serve::{self, AgentServer};
use lightloom_daemon::service::{self, notify};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Give lightloomd access to the modules of this host, and switch them where allowed.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  lightloom-agent --config /etc/lightloom/agent.yaml")]
struct AgentArguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration, profiles, certificates and key, then exit.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = AgentArguments::parse();
    service::main(run(&arguments))
}

async fn run(arguments: &AgentArguments) -> anyhow::Result<()> {
    let file = read(&arguments.config)?;
    let acceptor = serve::acceptor(&file.tls)?;
    if arguments.check {
        serve::profiles(&file)?;
        tracing::info!(modules = file.cages.len(), "the file is good");
        return Ok(());
    }
    let agent = AgentServer::start(&file)?;
    let listener = TcpListener::bind(file.listen)
        .await
        .with_context(|| format!("cannot listen on {}", file.listen))?;
    let (at, modules) = (listener.local_addr()?, file.cages.len());
    tracing::info!(%at, modules, allow_moves = file.allow_moves, "serving");
    notify(&[NotifyState::Ready]);
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = agent.serve(listener, acceptor) => ended?,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    notify(&[NotifyState::Stopping]);
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<AgentFile> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let (file, mistakes) = file::load(&shown, &bytes);
    for mistake in &mistakes {
        tracing::error!("{mistake}");
    }
    let mut file = file.with_context(|| format!("{shown} is invalid"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let tls = &mut file.tls;
    for named in [&mut tls.certificate, &mut tls.key, &mut tls.client_ca, &mut file.state_dir] {
        *named = folder.join(&*named);
    }
    for module in &mut file.cages {
        module.profile = folder.join(&module.profile);
        module.eeprom = module.eeprom.take().map(|eeprom| folder.join(eeprom));
    }
    Ok(file)
}

// SPDX-License-Identifier: Apache-2.0

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use axum::Router;
use clap::Parser;
use lightloom_daemon::cluster::{
    ClusterIdentity, LeaderSeat, StandbyNews, check_identity, standby, take_seat,
};
use lightloom_daemon::config::{Config, EtcdFile, TlsFile};
use lightloom_daemon::disk::{Real, make_folders};
use lightloom_daemon::service::{self, notify};
use lightloom_daemon::{api, audit, check, job_lines, serve, start};
use sd_notify::{NotifyState, watchdog_enabled};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Drive transceivers, optical switches and Linux switches; circuits stay lit when it stops.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  lightloomd --config topologies/daemon.yaml")]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration, fabric, journal, audit log, keys and password files, then exit.
    #[arg(long)]
    check: bool,
    /// Verify the hash chain of the audit log, print its first keyed line, then exit.
    #[arg(long, conflicts_with = "check")]
    verify_audit: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    service::main(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (config, installed) = start::read_files(&arguments.config)?;
    if arguments.check {
        if let Some(etcd) = &config.file.etcd {
            check_identity(etcd, &ClusterIdentity::of(&config, installed.as_ref()))?;
        }
        return check_all(&config);
    }
    if arguments.verify_audit {
        let known = start::check_journal(&config).ok().and_then(|(_, ledger)| ledger.audit_key);
        let verified = audit::key::verify(&config, known.as_deref())?;
        tracing::info!("the audit log is intact: {}", verified.summary());
        return Ok(());
    }
    let (tls, job_lines) = (config.file.tls.clone(), config.file.job_lines.clone());
    let path = start::socket_path(&config);
    // Lock the journal first, because a second daemon must not take over the socket.
    let devices = config.inventory.devices.len();
    let (daemon, seat, listeners) = match config.file.etcd.clone() {
        None => (start::start(config, installed)?, None, Listeners::open(&path, tls)?),
        Some(etcd) => {
            let is_passed = std::env::var_os("LISTEN_FDS").is_some();
            if !is_passed && std::os::unix::net::UnixStream::connect(&path).is_ok() {
                let path = path.display();
                anyhow::bail!(
                    "another daemon already serves {path}; help: give each daemon its \
                    own `state_dir`"
                );
            }
            let listeners = Listeners::open(&path, tls)?;
            let identity = ClusterIdentity::of(&config, installed.as_ref());
            let Some(seat) = stand_by(&etcd, &listeners, identity).await? else {
                return Ok(());
            };
            (start::lead(config, installed, &seat)?, Some(seat), listeners)
        }
    };
    let lost = seat.as_ref().map(|seat| seat.lost.clone());
    tracing::info!(devices, socket = %path.display(), "serving");
    let answers = daemon.shared.metrics.job_lines.clone();
    let router = api::router(daemon.shared);
    listeners.serve(&router)?;
    if let Some(file) = job_lines {
        job_lines::listen(file, router, answers).await?;
    }
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    if let Some(within) = watchdog_enabled() {
        tokio::spawn(async move {
            loop {
                notify(&[NotifyState::Watchdog]);
                tokio::time::sleep(within / 2).await;
            }
        });
    }
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        () = daemon.runtime.run(daemon.calls, daemon.events) => {}
        () = is_lost(lost) => {
            anyhow::bail!("lost the lease in etcd, so another daemon leads; this one exits and \
                becomes a standby when restarted")
        }
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    if let Some(seat) = seat {
        tokio::task::spawn_blocking(|| seat.give_up()).await?;
    }
    notify(&[NotifyState::Stopping]);
    Ok(())
}

struct Listeners {
    socket: std::os::unix::net::UnixListener,
    tls: Option<(std::net::TcpListener, TlsFile)>,
}

impl Listeners {
    fn open(socket: &Path, tls: Option<TlsFile>) -> anyhow::Result<Self> {
        let tls = tls.map(|tls| -> anyhow::Result<_> {
            let listener = std::net::TcpListener::bind(tls.listen)
                .with_context(|| format!("cannot listen on {}", tls.listen))?;
            listener.set_nonblocking(true)?;
            tracing::info!(tls = %listener.local_addr()?, "listening");
            Ok((listener, tls))
        });
        Ok(Self { socket: bound(socket)?, tls: tls.transpose()? })
    }

    fn serve(&self, router: &Router) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let socket = UnixListener::from_std(self.socket.try_clone()?)?;
        let mut serving = vec![tokio::spawn(serve::unix(socket, router.clone()))];
        if let Some((listener, tls)) = &self.tls {
            let (listener, config) = (listener.try_clone()?, serve::tls_config(tls)?);
            let listener = TcpListener::from_std(listener)?;
            let tls = serve::tls(listener, tls.clone(), config, router.clone());
            serving.push(tokio::spawn(tls));
        }
        Ok(serving)
    }
}

async fn stand_by(
    etcd: &EtcdFile,
    listeners: &Listeners,
    identity: ClusterIdentity,
) -> anyhow::Result<Option<LeaderSeat>> {
    let known = StandbyNews::default();
    let serving = listeners.serve(&standby::router(known.clone()))?;
    notify(&[NotifyState::Ready, NotifyState::Status("standing by")]);
    let (etcd, mut terminate) = (etcd.clone(), signal(SignalKind::terminate())?);
    let (taken, seat) = oneshot::channel();
    // The thread can be detached, because it needs no cleanup until this daemon is the leader.
    std::thread::spawn(move || drop(taken.send(take_seat(&etcd, &identity, &known))));
    let seat = tokio::select! {
        seat = seat => seat??,
        _ = terminate.recv() => return Ok(None),
        _ = tokio::signal::ctrl_c() => return Ok(None),
    };
    serving.iter().for_each(JoinHandle::abort);
    Ok(Some(seat))
}

async fn is_lost(lost: Option<watch::Receiver<bool>>) {
    match lost {
        Some(mut lost) => drop(lost.wait_for(|lost| *lost).await),
        None => std::future::pending().await,
    }
}

fn check_all(config: &Config) -> anyhow::Result<()> {
    let checked = check::check(config);
    let Some((last, others)) = checked.findings.split_last() else {
        let devices = config.inventory.devices.len();
        let (journal_records, audit) = (checked.journal_records, checked.audit);
        tracing::info!(devices, journal_records, audit, "the file is good");
        return Ok(());
    };
    for finding in others {
        tracing::error!("{finding}");
    }
    anyhow::bail!("{last}")
}

fn bound(path: &Path) -> anyhow::Result<std::os::unix::net::UnixListener> {
    let passed = listenfd::ListenFd::from_env().take_unix_listener(0).ok().flatten();
    let listener = match passed {
        Some(listener) => listener,
        None => {
            if let Some(folder) = path.parent() {
                make_folders(&Real, folder, 0o777)?;
            }
            let _ = std::fs::remove_file(path);
            let listener = std::os::unix::net::UnixListener::bind(path)
                .with_context(|| format!("cannot listen on {}", path.display()))?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
            listener
        }
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

// SPDX-License-Identifier: Apache-2.0
//! Serves the daemon's live page to browsers, which cannot open a Unix socket. Only GET requests
//! from this machine are forwarded, with the permissions of the user who runs the command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};

use super::client::DaemonClient;
use lightloom::output::{self, VerbOutcome};

const HEAD_BYTES_MAX: u64 = 16 << 10;
const CLIENTS_MAX: usize = 64;
const HEAD_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn serve(client: &DaemonClient, listen: SocketAddr) -> anyhow::Result<VerbOutcome> {
    if !listen.ip().is_loopback() {
        bail!(
            "{listen} is reachable from other machines: serve them with `lightloomd` over TLS (`tls:`)"
        );
    }
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr()?;
    output::print(&format!("http://{address}/\n"))?;
    let places = Arc::new(AtomicUsize::new(0));
    for browser in listener.incoming() {
        let Ok(browser) = browser else { continue };
        let (client, places) = (client.clone(), Arc::clone(&places));
        if places.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            places.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        std::thread::spawn(move || {
            let _ = answer(&client, &browser, address);
            places.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(VerbOutcome::Good)
}

fn answer(
    client: &DaemonClient,
    mut browser: &TcpStream,
    address: SocketAddr,
) -> anyhow::Result<()> {
    browser.set_read_timeout(Some(HEAD_WITHIN))?;
    let answer = match asked(browser, address)? {
        Ok(path) => client.raw_get(&path).unwrap_or_else(|error| {
            let why = format!("{error:#}\n");
            refusal("502 Bad Gateway", &why)
        }),
        Err(why) => refusal("403 Forbidden", why),
    };
    browser.write_all(&answer)?;
    Ok(())
}

/// Returns the path, or a refusal if the `Host` header names another site.
fn asked(browser: &TcpStream, address: SocketAddr) -> anyhow::Result<Result<String, &'static str>> {
    let mut lines = BufReader::new(browser.take(HEAD_BYTES_MAX)).lines();
    let first = lines.next().context("no request")??;
    let mut host = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_owned();
        }
    }
    let mut words = first.split(' ');
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let local = host == address.to_string() || host == format!("localhost:{}", address.port());
    Ok(match (verb, local) {
        _ if !local => Err("this page is only for browsers on this machine\n"),
        ("GET", _) if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err("this page is read-only: make changes with `lightloom ctl`\n"),
    })
}

fn refusal(status: &str, why: &str) -> Vec<u8> {
    let length = why.len();
    let head = "Content-Type: text/plain; charset=utf-8\r\nConnection: close";
    format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{why}").into_bytes()
}

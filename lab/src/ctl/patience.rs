// SPDX-License-Identifier: Apache-2.0
//! Waits until the daemon is up, all devices have been read, or a transaction has ended.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::bail;
use lightloom_daemon_api::alarm::unreachable_names;
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::text;
use lightloom_daemon_api::transaction::{Transaction, TransactionResult};

use super::client::Response;
use super::{CtlSession, print, show, time};
use lightloom::output::{self, VerbOutcome};
use lightloom::result::ResultFormat;

const DAEMON_BACK_WITHIN: Duration = Duration::from_secs(60);
const CHANGE_WITHIN_MS: u64 = 30_000;
const SAY_AFTER: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(100);

struct WaitNotice {
    since: Instant,
    say_at: Instant,
}

impl WaitNotice {
    fn begins() -> Self {
        let now = Instant::now();
        Self { since: now, say_at: now + SAY_AFTER }
    }

    fn say(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.say_at {
            self.say_at = now + SAY_EVERY;
            output::note(&text());
        }
    }
}

impl CtlSession {
    pub(super) fn present(&self, path: &str) -> anyhow::Result<Response> {
        let response = self.client.get(path)?;
        match response.code {
            503 | 421 => anyhow::bail!(show::refusal(&response.body)),
            _ => Ok(response),
        }
    }

    /// Continues across restarts of the daemon, until interrupted.
    pub(super) fn watch(&self) -> anyhow::Result<VerbOutcome> {
        let (mut asked, mut away, mut last) = ("/v1/status".to_owned(), None, String::new());
        loop {
            match self.present(&asked) {
                Ok(response) if !response.is_good() => return self.refused(&response),
                Ok(response) => {
                    if away.take().is_some() && !redraws() {
                        output::note("lightloomd is reachable again");
                    }
                    let since = response.body["changes"].as_u64();
                    let since = since.map(|since| format!("&since={since}")).unwrap_or_default();
                    asked = format!("/v1/status?wait_ms={CHANGE_WITHIN_MS}{since}");
                    last = self.draw(&response, last)?;
                    std::thread::sleep(Duration::from_millis(200));
                }
                Err(error) => {
                    let since = away.is_none().then(time::clock_now);
                    if let Some(since) = since {
                        self.draw_away(&error, &since, &last)?;
                        away = Some(since);
                    }
                    asked = "/v1/status".to_owned();
                    std::thread::sleep(TRY_EVERY);
                }
            }
        }
    }

    fn draw(&self, response: &Response, last: String) -> anyhow::Result<String> {
        let page = match self.format {
            ResultFormat::Json => {
                let mut said = response.body.clone();
                // Ignore the counter, which changes with every reading.
                said.as_object_mut().map(|fields| fields.remove("changes"));
                format!("{said}\n")
            }
            _ => show::status(&status_of(response)?),
        };
        if redraws() && self.format == ResultFormat::Text {
            draw_page(&page)?;
        } else if page != last {
            match self.format {
                ResultFormat::Json => output::print(&page)?,
                _ => draw_page(&format!("at {}\n{page}", time::clock_now()))?,
            }
        }
        Ok(page)
    }

    fn draw_away(&self, error: &anyhow::Error, since: &str, last: &str) -> anyhow::Result<()> {
        let away = format!(
            "DAEMON UNREACHABLE since {since}: {error:#}\n  circuits stay up; retrying until the daemon is back\n"
        );
        if self.format == ResultFormat::Text && redraws() {
            let before =
                if last.is_empty() { String::new() } else { format!("\nBefore that:\n{last}") };
            draw_page(&format!("{away}{before}"))
        } else {
            output::note(away.trim_end());
            Ok(())
        }
    }

    /// Retries without a socket, which a daemon may not have created yet.
    pub(super) fn wait(&self, named: &[&str], within: Duration) -> anyhow::Result<VerbOutcome> {
        let mut waiting = WaitNotice::begins();
        loop {
            let present = match self.present("/v1/status") {
                Ok(response) if !response.is_good() => return self.refused(&response),
                Ok(response) => status_of(&response).map(|status| Ok((response, status)))?,
                Err(error) => Err(error),
            };
            if let Ok((response, status)) = &present {
                if show::is_deaf(status) {
                    return self.show(response, show::status).map(|_| VerbOutcome::Bad);
                }
                if let Some(stranger) = show::not_a_device(named, status) {
                    bail!("{stranger}: unknown device or node");
                }
                if show::waited_for(named, status).is_empty() {
                    return self.show(response, |status| show::all_read(named, status));
                }
            }
            let left = within.saturating_sub(waiting.since.elapsed());
            if left.is_zero() {
                let (response, status) = present?;
                let names = not_read(named, &status);
                output::note(&format!("not read within {}: {names}", span(within)));
                return self.show(&response, show::status).map(|_| VerbOutcome::Bad);
            }
            waiting.say(|| {
                let what = match &present {
                    Err(error) => format!("{error:#}"),
                    Ok((_, status)) => format!("not read yet: {}", not_read(named, status)),
                };
                format!("waiting, {} left: {what}", span(left))
            });
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Keeps waiting if the daemon stops, because it completes the transaction after its restart.
    pub(super) fn wait_for(&self, txn: u32) -> anyhow::Result<VerbOutcome> {
        output::note(&format!("transaction {txn} started"));
        let (began, mut away) = (Instant::now(), None);
        let path = format!("/v1/transactions/{txn}?wait_ms={}", SAY_EVERY.as_millis());
        loop {
            match self.present(&path) {
                Ok(response) if response.code == 404 => {
                    away = None;
                    self.say_on_its_way(txn, began.elapsed());
                }
                Ok(response) => return self.ended(&response),
                Err(error) => {
                    let gone = away.get_or_insert_with(|| {
                        let promise = "the daemon completes it from the journal after its restart";
                        output::note(&format!("{error:#}; transaction {txn}: {promise}"));
                        WaitNotice { since: Instant::now(), say_at: Instant::now() + SAY_EVERY }
                    });
                    let left = DAEMON_BACK_WITHIN.saturating_sub(gone.since.elapsed());
                    if left.is_zero() {
                        return Err(error.context(format!(
                            "lightloomd did not return within {}: start it, then check how \
                                transaction {txn} ended with `lightloom ctl journal`",
                            span(DAEMON_BACK_WITHIN)
                        )));
                    }
                    gone.say(|| format!("lightloomd is still down; waiting, {} left", span(left)));
                    std::thread::sleep(TRY_EVERY);
                }
            }
        }
    }

    fn say_on_its_way(&self, txn: u32, elapsed: Duration) {
        if let Ok(status) = self.present("/v1/status").and_then(|now| status_of(&now)) {
            output::note(&show::on_its_way(txn, &status, &span(elapsed)));
        }
    }

    fn ended(&self, response: &Response) -> anyhow::Result<VerbOutcome> {
        let shown = self.show(response, show::transaction)?;
        if !response.is_good() {
            return Ok(shown);
        }
        let past: Transaction = response.read()?;
        if self.format == ResultFormat::Json
            && let Some(confirm) = show::confirm_by(&past)
        {
            output::note(&confirm);
        }
        let is_good = past.result == TransactionResult::Committed && past.crossed.is_empty();
        Ok(if is_good { shown } else { VerbOutcome::Bad })
    }
}

fn status_of(response: &Response) -> anyhow::Result<Status> {
    let status: Status = response.read()?;
    if status.daemon.is_empty() {
        bail!("the daemon returned no status");
    }
    Ok(status)
}

fn not_read(named: &[&str], status: &Status) -> String {
    unreachable_names(&show::waited_for(named, status))
}

fn span(time: Duration) -> String {
    text::span(time.as_secs_f64())
}

fn redraws() -> bool {
    std::io::stdout().is_terminal()
}

fn draw_page(page: &str) -> anyhow::Result<()> {
    if redraws() { print(&format!("\u{1b}[H\u{1b}[2J{page}")) } else { print(&format!("{page}\n")) }
}

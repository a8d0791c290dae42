// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use clap::Args;
use lightloom_daemon_api::answer::Answer;
use lightloom_daemon_api::phase::{PhaseBody, PhaseState, PhaseStatus, Phases, ReleaseBody};

use super::client::Response;
use super::wanted::millis;
use super::{CtlSession, fresh_id, show, time};
use lightloom::output::{self, VerbOutcome, WrongUsage};
use lightloom::result::ResultFormat;
use lightloom::table::TextTable;

const WAIT_MS: u64 = 30_000;
const DIGITS: usize = 12;

#[derive(Debug, Args)]
pub(super) struct Phase {
    /// Name of the phase; if omitted, show the phases and scheduled requests.
    phase: Option<String>,
    /// Time from now until the circuits are needed.
    #[arg(long = "in", value_name = "TIME", value_parser = time::duration, default_value = "0ms")]
    within: Duration,
    /// Minimum time of use.
    #[arg(long = "for", value_name = "TIME", value_parser = time::duration, requires = "phase")]
    least: Option<Duration>,
    /// How long to exclude other jobs' requests [default: until the phase is over].
    #[arg(long, value_name = "TIME", value_parser = time::duration)]
    lease: Option<Duration>,
    /// Job that holds the lease.
    #[arg(long, value_name = "NAME", default_value = "ctl")]
    job: String,
    /// Refuse unless this plan is in force, given by its digest or at least 8 digits of it.
    #[arg(long, value_name = "DIGEST")]
    revision: Option<String>,
    /// Release the job's lease and drop requests waiting under it.
    #[arg(long, conflicts_with = "phase")]
    release: bool,
}

pub(super) fn run(session: &CtlSession, asked: &Phase) -> anyhow::Result<VerbOutcome> {
    match (&asked.phase, asked.release) {
        (_, true) => release(session, asked),
        (None, false) => session.look("/v1/phases", listed),
        (Some(phase), false) => ask_for(session, asked, phase),
    }
}

fn release(session: &CtlSession, asked: &Phase) -> anyhow::Result<VerbOutcome> {
    let body = ReleaseBody { request_id: fresh_id("release"), job: asked.job.clone() };
    let response = session.client.post("/v1/phase/release", &body)?;
    session.show(&response, |answer| show::done(&show::DoneAtOnce::Released, answer))
}

fn ask_for(session: &CtlSession, asked: &Phase, phase: &str) -> anyhow::Result<VerbOutcome> {
    let Some(least) = asked.least else {
        return Err(WrongUsage(
            "`--for` is missing: set the minimum time of use, such as `--for 800ms`".into(),
        )
        .into());
    };
    let (in_ms, for_ms) = (millis(asked.within)?, millis(least)?);
    let lease_ms = asked.lease.map(millis).transpose()?.unwrap_or(in_ms + for_ms);
    let body = PhaseBody {
        request_id: fresh_id("phase"),
        phase: phase.to_owned(),
        in_ms,
        for_ms,
        lease_ms,
        job: asked.job.clone(),
        revision: asked.revision.clone(),
    };
    let response = session.client.post("/v1/phase", &body)?;
    if !response.is_good() {
        return phase_refused(session, &response);
    }
    loop {
        let path = format!("/v1/phase/{}?wait_ms={WAIT_MS}", body.request_id);
        let response = session.client.get(&path)?;
        if !response.is_good() {
            return session.refused(&response);
        }
        let status: PhaseStatus = response.read()?;
        if matches!(status.state, PhaseState::Waiting | PhaseState::Moving) {
            continue;
        }
        session.format.print(&response.body, "", || became(&status))?;
        let is_lit = status.state == PhaseState::Lit;
        return Ok(if is_lit { VerbOutcome::Good } else { VerbOutcome::Bad });
    }
}

fn phase_refused(session: &CtlSession, response: &Response) -> anyhow::Result<VerbOutcome> {
    let Ok(Answer::PhaseRefused { code, reason, fix, .. }) = response.read() else {
        return session.refused(response);
    };
    if session.format == ResultFormat::Json {
        output::print_json(&response.body)?;
    }
    output::note(&format!("refused ({code}): {reason}\n         {fix}"));
    Ok(VerbOutcome::Bad)
}

fn became(status: &PhaseStatus) -> String {
    let PhaseStatus { phase, reason, fix, .. } = status;
    let reason = reason.as_deref().unwrap_or_default();
    let mut text = match (&status.state, status.txn) {
        (PhaseState::Lit, Some(txn)) => {
            let dark = status.dark_ms.map(|dark| format!(", dark for {dark:.1} ms"));
            let stated =
                status.stated_ms.map(|stated| format!(" (the plan states {stated:.1} ms)"));
            let (dark, stated) = (dark.unwrap_or_default(), stated.unwrap_or_default());
            format!("phase {phase} has light: transaction {txn}{dark}{stated}\n")
        }
        (PhaseState::Lit, None) => {
            format!("phase {phase} already has light: no change needed\n")
        }
        (PhaseState::Kept, _) => {
            let lit = status.lit.as_deref().unwrap_or("other circuits");
            format!("phase {phase} was not set up, {lit} stays up: {reason}\n")
        }
        (PhaseState::Other(word), _) => {
            format!(
                "phase {phase} is in the unknown state `{word}`: use the same version of `lightloom ctl` as the daemon\n"
            )
        }
        _ => format!("phase {phase} was not set up: {reason}\n"),
    };
    if let Some(fix) = fix {
        text += &format!("  {fix}\n");
    }
    if let Some(next) = status.next.as_ref().filter(|_| status.state == PhaseState::Lit) {
        text += &format!(
            "the next phase is {}: its transition takes {:.1} ms, so request it that long in \
             advance\n",
            next.phase, next.expected_ms
        );
    }
    text
}

fn listed(phases: &Phases) -> String {
    if phases.phases.is_empty() {
        return "no plan with phases is in force: lightloom ctl apply PLAN --phase NAME\n".into();
    }
    let revision = phases.revision.get(..DIGITS).unwrap_or(&phases.revision);
    let lit = match &phases.lit {
        Some(lit) => format!("phase {lit} has light"),
        None => "no phase has light".into(),
    };
    let mut text = format!("plan {revision}: {lit}\n\n");
    let mut table = TextTable::new(["phase", "circuits"]).verbatim();
    for phase in &phases.phases {
        table.row([phase.name.clone(), phase.circuits.to_string()]);
    }
    text += &table.to_string();
    if !phases.ways.is_empty() {
        let mut table =
            TextTable::new(["from", "to", "stages", "dark, stated", "took at most"]).verbatim();
        for way in &phases.ways {
            let took = way.measured_ms.map_or_else(|| "-".into(), |took| format!("{took:.1} ms"));
            table.row([
                way.from.clone(),
                way.to.clone(),
                way.stages.to_string(),
                format!("{:.1} ms", way.stated_ms),
                took,
            ]);
        }
        text += &format!("\n{table}");
    }
    if let Some(lease) = &phases.lease {
        let left = lease.left_ms / 1e3;
        text += &format!("\nlease: job {} of {}, {left:.1} s left\n", lease.job, lease.actor);
    }
    for waiting in &phases.waiting {
        let state = match waiting.state {
            PhaseState::Moving => "is being set up",
            _ => "waits",
        };
        text += &format!("{} {state} for job {}\n", waiting.phase, waiting.job);
    }
    text
}

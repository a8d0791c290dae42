// SPDX-License-Identifier: Apache-2.0
//! Which of several daemons leads: the one whose key, which hangs on a lease of its own, is in etcd. The revision in
//! which the key was made is the epoch: it grows with every leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use tokio::sync::watch;

use super::etcd::{Etcd, EtcdError, coded, made_in, put};
use super::fence::Fence;
use super::storage::EtcdStorage;
use crate::config::EtcdFile;

/// What is in the journal, and how: daemons that write another do not lead beside this one.
const FORMAT: &str = "1";
/// How long it waits where etcd does not answer.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long a change of the leader is waited for before it is asked again.
const WATCH_WITHIN: Duration = Duration::from_secs(5);

/// The key that the leader holds.
pub(super) fn leader_key(prefix: &str) -> String {
    format!("{prefix}/leader")
}

/// How things stand while another daemon leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyView {
    /// What the leader is called. `None` where that is not known.
    pub leader: Option<String>,
    /// Why it cannot lead even if none does.
    pub trouble: Option<String>,
}

/// What a daemon that does not lead knows, for those who ask it.
#[derive(Clone, Debug, Default)]
pub struct StandbyNews(Arc<Mutex<StandbyView>>);

impl StandbyNews {
    /// A copy.
    #[must_use]
    pub fn now(&self) -> StandbyView {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, standing: StandbyView) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != standing {
            match (&standing.leader, &standing.trouble) {
                (_, Some(trouble)) => tracing::warn!(trouble, "standing by"),
                (Some(leader), None) => tracing::info!(leader, "standing by"),
                (None, None) => {}
            }
        }
        *known = standing;
    }
}

/// The leader's seat.
#[derive(Debug)]
pub struct LeaderSeat {
    etcd: Etcd,
    prefix: String,
    lease: u64,
    /// Grows with each leader.
    pub epoch: u64,
    /// Open while the lease is certainly its own.
    pub fence: Fence,
    /// Turns true once the seat is lost.
    pub lost: watch::Receiver<bool>,
}

/// Waits until no other daemon leads, and leads.
///
/// # Errors
/// A prefix that belongs to another fabric or to daemons of another version.
pub fn take_seat(file: &EtcdFile, fabric: &str, known: &StandbyNews) -> anyhow::Result<LeaderSeat> {
    let etcd = Etcd::new(file)?;
    let name = file.own_name();
    loop {
        match run(&etcd, file, fabric, &name) {
            Ok(ElectionTurn::Leads { epoch, lease, asked }) => {
                let fence = Fence::closed();
                fence.renewed(asked, file.lasts());
                let (lost_in, lost) = watch::channel(false);
                let seat =
                    LeaderSeat { etcd, prefix: file.prefix.clone(), lease, epoch, fence, lost };
                seat.keep(file.lasts(), lost_in);
                tracing::info!(epoch, name, "leads");
                return Ok(seat);
            }
            Ok(ElectionTurn::Waits { leader, revision }) => {
                known.set(StandbyView { leader: Some(leader), trouble: None });
                etcd.wait_for_change(&leader_key(&file.prefix), revision, WATCH_WITHIN);
            }
            Err(error) => match error.downcast::<EtcdError>() {
                Ok(error) => {
                    known.set(StandbyView { leader: None, trouble: Some(error.to_string()) });
                    std::thread::sleep(AGAIN_AFTER);
                }
                Err(error) => return Err(error),
            },
        }
    }
}

enum ElectionTurn {
    Leads { epoch: u64, lease: u64, asked: Instant },
    Waits { leader: String, revision: u64 },
}

fn run(etcd: &Etcd, file: &EtcdFile, fabric: &str, name: &str) -> anyhow::Result<ElectionTurn> {
    belongs(etcd, &file.prefix, fabric)?;
    let asked = Instant::now();
    let lease = etcd.grant(file.lasts().as_secs())?;
    let key = leader_key(&file.prefix);
    let own = json!({"request_put": {
        "key": coded(key.as_bytes()), "value": coded(name.as_bytes()), "lease": lease.to_string(),
    }});
    let answer = etcd.txn(&[made_in(&key, 0)], &[own], Some(&key));
    let answer = match answer {
        Ok(answer) if answer.succeeded => {
            return Ok(ElectionTurn::Leads { epoch: answer.revision, lease, asked });
        }
        answer => answer,
    };
    // It may have been done where nothing was heard: the key goes with its lease.
    etcd.revoke(lease)?;
    let answer = answer?;
    let leader = answer.found.first().map(|leader| String::from_utf8_lossy(&leader.value).into());
    Ok(ElectionTurn::Waits { leader: leader.unwrap_or_default(), revision: answer.revision })
}

/// Whether the prefix is of another fabric, for those who only read.
///
/// # Errors
/// That it is, or etcd's.
pub fn check_fabric(file: &EtcdFile, fabric: &str) -> anyhow::Result<()> {
    let found = Etcd::new(file)?.get(&format!("{}/fabric", file.prefix))?;
    found.map_or(Ok(()), |found| is_ours(&file.prefix, "fabric", &found.value, fabric))
}

/// Whether what is in etcd is what this daemon has.
fn is_ours(prefix: &str, what: &str, theirs: &[u8], ours: &str) -> anyhow::Result<()> {
    let theirs = String::from_utf8_lossy(theirs);
    if theirs == ours {
        return Ok(());
    }
    let or = match what {
        "fabric" => "the fabric file of that daemon",
        _ => "run one version of lightloomd",
    };
    bail!(
        "`{prefix}` in etcd is of {what} `{theirs}`, and this daemon's is `{ours}`: write another `etcd.prefix`, or {or}"
    )
}

/// Whether the prefix is of this fabric and of daemons like this one; it is from the first one on.
fn belongs(etcd: &Etcd, prefix: &str, fabric: &str) -> anyhow::Result<()> {
    for (what, ours) in [("format", FORMAT), ("fabric", fabric)] {
        let key = format!("{prefix}/{what}");
        let answer = etcd.txn(&[made_in(&key, 0)], &[put(&key, ours.as_bytes())], Some(&key))?;
        if answer.succeeded {
            continue;
        }
        let found = answer.found.first().context("etcd took it and has it not")?;
        is_ours(prefix, what, &found.value, ours)?;
    }
    Ok(())
}

impl LeaderSeat {
    /// The journal, which this leader alone can write.
    ///
    /// # Errors
    /// etcd's.
    pub fn journal(&self) -> std::io::Result<EtcdStorage> {
        EtcdStorage::open(self.etcd.clone(), &self.prefix, self.epoch, self.fence.clone())
    }

    /// Renews the lease until it is gone, in a thread of its own: nothing else holds it up.
    fn keep(&self, lasts: Duration, lost: watch::Sender<bool>) {
        let (etcd, lease, fence) = (self.etcd.clone(), self.lease, self.fence.clone());
        let own = made_in(&leader_key(&self.prefix), self.epoch);
        let renew = move || -> Result<bool, EtcdError> {
            // A lease without the key that hung on it is no seat.
            Ok(etcd.keep_alive(lease)?
                && etcd.txn(std::slice::from_ref(&own), &[], None)?.succeeded)
        };
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(lasts / 4);
                if lost.is_closed() {
                    return;
                }
                let asked = Instant::now();
                match renew() {
                    Ok(true) => fence.renewed(asked, lasts),
                    Ok(false) => {
                        fence.close();
                        let _ = lost.send(true);
                        return;
                    }
                    // The fence closes by itself; whether the lease is gone is known when etcd answers.
                    Err(error) => tracing::warn!(%error, "the lease is not renewed"),
                }
            }
        });
    }

    /// Sends nothing any more, and lets another daemon lead at once.
    pub fn give_up(self) {
        self.fence.close();
        if let Err(error) = self.etcd.revoke(self.lease) {
            tracing::warn!(%error, "the lease runs out by itself");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Leader election: a daemon is the leader while its leader key, which is attached to its lease,
//! exists in etcd. The epoch is the key's creation revision, so it increases with each leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lightloom_control::state::DeviceName;
use lightloom_fabric::fabric::Fabric;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::etcd::{Etcd, EtcdError, all_under, coded, made_in, on_lease, put};
use super::storage::{EtcdStorage, JournalTail};
use crate::config::{Config, EtcdFile};
use crate::fence::Fence;
use lightloom_control::journal::hex;

const FORMAT: &str = "1";
const AGAIN_AFTER: Duration = Duration::from_millis(200);

pub(super) fn leader_key(prefix: &str) -> String {
    format!("{prefix}/leader")
}

fn daemons(prefix: &str) -> String {
    format!("{prefix}/daemons/")
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyView {
    pub leader: Option<String>,
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct StandbyNews(Arc<Mutex<StandbyView>>);

impl StandbyNews {
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

#[derive(Clone, Debug)]
pub struct ClusterIdentity {
    pub fabric: String,
    pub devices: String,
}

impl ClusterIdentity {
    pub fn of(config: &Config, fabric: Option<&Fabric>) -> Self {
        let names: Vec<&str> = config.inventory.devices.keys().map(DeviceName::as_str).collect();
        let digest = Sha256::digest(names.join("\n"));
        let digest = hex(&digest[..6]);
        Self {
            fabric: fabric.map_or_else(String::new, |fabric| fabric.name.clone()),
            devices: format!("{} devices, {digest}", names.len()),
        }
    }
}

#[derive(Debug)]
pub struct LeaderSeat {
    etcd: Etcd,
    prefix: String,
    lease: Lease,
    pub name: String,
    pub epoch: u64,
    pub fence: Fence,
    tail: JournalTail,
    pub lost: watch::Receiver<bool>,
    pub standbys: watch::Receiver<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: u64,
    asked: Instant,
    lasts: Duration,
}

impl Lease {
    fn granted(etcd: &Etcd, wished: Duration) -> Result<Self, EtcdError> {
        let asked = Instant::now();
        let (id, lasts) = etcd.grant(wished.as_secs())?;
        if lasts > wished {
            tracing::warn!(?wished, ?lasts, "etcd's election timeout requires a longer lease");
        }
        Ok(Self { id, asked, lasts })
    }

    fn renew(&mut self, etcd: &Etcd) -> Result<bool, EtcdError> {
        let asked = Instant::now();
        let is_there = etcd.keep_alive(self.id)?;
        if is_there {
            self.asked = asked;
        }
        Ok(is_there)
    }

    fn put(&self, key: &str, value: &str) -> Value {
        json!({"request_put": {
            "key": coded(key.as_bytes()), "value": coded(value.as_bytes()), "lease": self.id.to_string(),
        }})
    }
}

pub fn take_seat(
    file: &EtcdFile,
    identity: &ClusterIdentity,
    known: &StandbyNews,
) -> anyhow::Result<LeaderSeat> {
    let mut etcd = Etcd::new(file)?;
    let (name, mut lease) = (file.own_name(), None);
    loop {
        match turn(&etcd, file, identity, &name, &mut lease) {
            Ok(ElectionTurn::Leads { epoch, lease }) => {
                let fence = Fence::closed();
                fence.renewed(lease.asked, lease.lasts);
                let (lost_in, lost) = watch::channel(false);
                let (standbys_in, standbys) = watch::channel(Vec::new());
                let prefix = file.prefix.clone();
                tracing::info!(epoch, name, "leads");
                let tail = JournalTail::default();
                let seat =
                    LeaderSeat { etcd, prefix, lease, name, epoch, fence, tail, lost, standbys };
                seat.keep(lost_in, standbys_in);
                return Ok(seat);
            }
            Ok(ElectionTurn::Waits { leader, revision, lasts }) => {
                known.set(StandbyView { leader: Some(leader), trouble: None });
                etcd.wait_for_change(&leader_key(&file.prefix), revision, lasts / 4);
            }
            Ok(ElectionTurn::NameTaken) => {
                let trouble = format!(
                    "the name `{name}` is in use by another daemon, or was until a moment ago; \
                        help: give each daemon a unique `etcd.name`"
                );
                known.set(StandbyView { leader: None, trouble: Some(trouble) });
                std::thread::sleep(AGAIN_AFTER);
            }
            Ok(ElectionTurn::Stuck { key, leader }) => {
                let trouble = format!(
                    "`{key}` in etcd contains `{leader}` but has no lease, so no daemon wrote it; \
                        help: make sure that no daemon leads, then run `etcdctl del {key}`"
                );
                known.set(StandbyView { leader: None, trouble: Some(trouble) });
                std::thread::sleep(AGAIN_AFTER);
            }
            Err(error) => {
                known.set(StandbyView { leader: None, trouble: Some(error.to_string()) });
                std::thread::sleep(AGAIN_AFTER);
                if matches!(error.downcast_ref(), Some(EtcdError::OtherCluster(_))) {
                    // A cluster restored from a backup has a new id.
                    (etcd, lease) = (Etcd::new(file)?, None);
                }
            }
        }
    }
}

enum ElectionTurn {
    Leads {
        epoch: u64,
        lease: Lease,
    },
    Waits {
        leader: String,
        revision: u64,
        lasts: Duration,
    },
    NameTaken,
    /// The leader's key has no lease, so it never expires.
    Stuck {
        key: String,
        leader: String,
    },
}

fn turn(
    etcd: &Etcd,
    file: &EtcdFile,
    identity: &ClusterIdentity,
    name: &str,
    held: &mut Option<Lease>,
) -> anyhow::Result<ElectionTurn> {
    if let Some(lease) = held
        && !lease.renew(etcd)?
    {
        *held = None;
    }
    let own = format!("{}{name}", daemons(&file.prefix));
    let lease = match held {
        Some(lease) => *lease,
        None => {
            belongs(etcd, &file.prefix, identity)?;
            let lease = Lease::granted(etcd, file.lasts())?;
            let answer = etcd.txn(&[made_in(&own, 0)], &[lease.put(&own, "")], None);
            if !answer.as_ref().is_ok_and(|answer| answer.succeeded) {
                // etcd may have executed the transaction. Revoking the lease removes the key.
                etcd.revoke(lease.id)?;
                answer?;
                return Ok(ElectionTurn::NameTaken);
            }
            *held.insert(lease)
        }
    };
    let key = leader_key(&file.prefix);
    let answer = etcd.txn(&[made_in(&key, 0)], &[lease.put(&key, name)], Some(&key));
    let answer = match answer {
        Ok(answer) if answer.succeeded => {
            return Ok(ElectionTurn::Leads { epoch: answer.revision, lease });
        }
        Err(error) => {
            *held = None;
            etcd.revoke(lease.id)?;
            return Err(error.into());
        }
        Ok(answer) => answer,
    };
    let found = answer.found.first();
    let leader: String =
        found.map(|leader| String::from_utf8_lossy(&leader.value).into()).unwrap_or_default();
    if let Some(own) = found.filter(|leader| leader.lease == lease.id) {
        return Ok(ElectionTurn::Leads { epoch: own.create_revision, lease });
    }
    if found.is_some_and(|leader| leader.lease == 0) {
        return Ok(ElectionTurn::Stuck { key, leader });
    }
    // Another client may have deleted the key with this daemon's name.
    etcd.txn(&[made_in(&own, 0)], &[lease.put(&own, "")], None)?;
    let (revision, lasts) = (answer.revision, lease.lasts);
    Ok(ElectionTurn::Waits { leader, revision, lasts })
}

pub fn check_identity(file: &EtcdFile, identity: &ClusterIdentity) -> anyhow::Result<()> {
    let etcd = Etcd::new(file)?;
    for (what, ours) in [("fabric", &identity.fabric), ("devices", &identity.devices)] {
        if let Some(found) = etcd.get(&format!("{}/{what}", file.prefix))? {
            check_same(&file.prefix, what, &found.value, ours)?;
        }
    }
    Ok(())
}

fn check_same(prefix: &str, what: &str, theirs: &[u8], ours: &str) -> anyhow::Result<()> {
    let theirs = String::from_utf8_lossy(theirs);
    if theirs == ours {
        return Ok(());
    }
    let or = match what {
        "fabric" => "the fabric file of that daemon".to_owned(),
        "devices" => format!(
            "configure the same devices on all daemons; if the change is intended, stop all \
                daemons, run `etcdctl del {prefix}/devices` and start them again"
        ),
        _ => "the same version of lightloomd everywhere".to_owned(),
    };
    bail!(
        "`{prefix}` in etcd has {what} `{theirs}`, but this daemon has `{ours}`; help: use a \
            different `etcd.prefix`, or {or}"
    )
}

fn belongs(etcd: &Etcd, prefix: &str, identity: &ClusterIdentity) -> anyhow::Result<()> {
    let ours = [("format", FORMAT), ("fabric", &identity.fabric), ("devices", &identity.devices)];
    for (what, ours) in ours {
        let key = format!("{prefix}/{what}");
        let answer = etcd.txn(&[made_in(&key, 0)], &[put(&key, ours.as_bytes())], Some(&key))?;
        if answer.succeeded {
            continue;
        }
        let found = answer.found.first().context("etcd accepted the key but does not return it")?;
        check_same(prefix, what, &found.value, ours)?;
    }
    Ok(())
}

impl LeaderSeat {
    pub fn journal(&self) -> std::io::Result<EtcdStorage> {
        let (fence, tail) = (self.fence.clone(), self.tail.clone());
        EtcdStorage::open(self.etcd.clone(), &self.prefix, self.epoch, fence, tail)
    }

    /// Renews the lease on a separate thread, so that other work cannot delay the renewal.
    fn keep(&self, lost: watch::Sender<bool>, standbys: watch::Sender<Vec<String>>) {
        let (etcd, mut lease, fence) = (self.etcd.clone(), self.lease, self.fence.clone());
        let (key, tail) = (leader_key(&self.prefix), self.tail.clone());
        let own = [made_in(&key, self.epoch), on_lease(&key, self.lease.id)];
        let (folder, name, mut was_alone) = (daemons(&self.prefix), self.name.clone(), false);
        let mut renew = move || -> Result<Option<Lease>, EtcdError> {
            if !lease.renew(&etcd)? {
                return Ok(None);
            }
            // The renewed lease is useless if the leader key is no longer attached to it.
            let answer = etcd.txn(&own, &[all_under(&folder)], None)?;
            tail.look(&etcd)?;
            let named = answer
                .found
                .iter()
                .filter(|key| key.lease > 0)
                .map(|key| String::from_utf8_lossy(&key.key[folder.len()..]).into_owned());
            let others: Vec<String> = named.filter(|other| *other != name).collect();
            // A standby soon replaces a lost lease, so ignore a single reading without standbys.
            if !others.is_empty() || was_alone {
                standbys
                    .send_if_modified(|known| std::mem::replace(known, others.clone()) != others);
            }
            was_alone = others.is_empty();
            Ok(answer.succeeded.then_some(lease))
        };
        let every = self.lease.lasts / 4;
        std::thread::spawn(move || {
            loop {
                if lost.is_closed() {
                    return;
                }
                match renew() {
                    Ok(Some(lease)) => fence.renewed(lease.asked, lease.lasts),
                    Ok(None) | Err(EtcdError::OtherCluster(_)) => {
                        fence.close();
                        let _ = lost.send(true);
                        return;
                    }
                    // Only a response from etcd shows that the lease is lost.
                    Err(error) => tracing::warn!(%error, "cannot renew the lease"),
                }
                std::thread::sleep(every);
            }
        });
    }

    pub fn give_up(self) {
        self.fence.close();
        if let Err(error) = self.etcd.revoke(self.lease.id) {
            tracing::warn!(%error, "the lease will expire");
        }
    }
}

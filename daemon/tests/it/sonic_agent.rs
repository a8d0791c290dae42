// SPDX-License-Identifier: Apache-2.0
//! Tests the SONiC driver with an emulated agent on a real Redis. The agent applies CONFIG_DB with
//! a delay, one circuit after another, with tuning, failures and crashes. It fills STATE_DB as the
//! design or the image of July 2026 does.
//!
//! Prints "skipped" without a `redis-server` (Debian: `apt-get install redis-server`).

use crate::redis_server;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lightloom_control::change::Step;
use lightloom_control::mover::{Limits, Mover, Next, StepEnd};
use lightloom_control::state::{
    Micros, Move, Neighbours, Observation, Op, Outcome, Position, Positions, Sharing, Slot, Txn, at,
};
use lightloom_daemon::driver::alone::Alone;
use lightloom_daemon::driver::stream::Address;
use lightloom_drivers::sonic::{ReadFrom, Sonic};
use redis_server::Redis;

/// A minimal client that does not share code with the driver.
struct Raw(TcpStream);

impl Raw {
    fn to(redis: &Redis) -> Self {
        Self(TcpStream::connect(&redis.address).unwrap())
    }

    /// Returns the words of the reply, which ends with the reply to a `PING`.
    fn say(&mut self, command: &str) -> Vec<String> {
        self.0.write_all(format!("{command}\r\nPING\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        let mut piece = [0; 65_536];
        while !text.ends_with("+PONG\r\n") {
            let length = self.0.read(&mut piece).unwrap();
            assert!(length > 0, "Redis hung up");
            text.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
        let lines = text.trim_end_matches("+PONG\r\n").split("\r\n");
        let counts = |line: &&str| !line.is_empty() && !line.starts_with(['$', '*', '+', ':']);
        lines.filter(counts).map(str::to_owned).collect()
    }

    fn circuits(&mut self, db: u8, table: &str) -> BTreeSet<String> {
        self.say(&format!("SELECT {db}"));
        let keys = self.say(&format!("KEYS {table}|*"));
        keys.iter().map(|key| key[table.len() + 1..].to_owned()).collect()
    }

    fn config(&mut self) -> Vec<String> {
        self.circuits(4, "OCS_CROSS_CONNECT").into_iter().collect()
    }
}

#[derive(Clone, Copy)]
struct Kind {
    delay: Duration,
    /// Time from the row in STATE_DB until it is `tuned`.
    tunes: Duration,
    ends: &'static str,
    /// Fills STATE_DB as the image of July 2026 does.
    is_image: bool,
}

const USUAL: Kind = Kind {
    delay: Duration::from_millis(80),
    tunes: Duration::from_millis(120),
    ends: "tuned",
    is_image: false,
};

struct Agent {
    stop: Arc<AtomicBool>,
    dead: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(redis: &Redis, kind: Kind) -> Self {
        let (stop, dead) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stopped, died, mut raw) = (Arc::clone(&stop), Arc::clone(&dead), Raw::to(redis));
        let thread = std::thread::spawn(move || {
            let mut since: BTreeMap<String, Instant> = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                if !died.load(Ordering::Relaxed) {
                    look(&mut raw, &mut since, kind);
                }
            }
        });
        Self { stop, dead, thread: Some(thread) }
    }

    fn is_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::Relaxed);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

/// Runs one round of the agent. After a delay, added circuits are lit and deleted circuits go dark.
fn look(raw: &mut Raw, since: &mut BTreeMap<String, Instant>, kind: Kind) {
    let table = if kind.is_image { "OCS_CROSS_CONNECT_TABLE" } else { "OCS_CROSS_CONNECT" };
    let asked = raw.circuits(4, "OCS_CROSS_CONNECT");
    let lit = raw.circuits(6, table);
    since.retain(|name, _| asked.contains(name) || lit.contains(name.trim_end_matches(" gone")));
    for name in &asked {
        since.remove(&format!("{name} gone"));
        let age = since.entry(name.clone()).or_insert_with(Instant::now).elapsed();
        if age < kind.delay {
            continue;
        }
        let state = if age < kind.delay + kind.tunes { "tuning" } else { kind.ends };
        let words = match (kind.is_image, state) {
            (true, "tuned") => "physical_path \"\" status enabled".to_owned(),
            (true, _) => "physical_path \"\" status \"\"".to_owned(),
            (false, state) => format!("a_side_status tuned b_side_status {state}"),
        };
        raw.say(&format!("HSET {table}|{name} {words}"));
    }
    for name in lit.difference(&asked) {
        since.remove(name);
        let gone = since.entry(format!("{name} gone")).or_insert_with(Instant::now);
        if gone.elapsed() >= kind.delay {
            raw.say(&format!("DEL {table}|{name}"));
        }
    }
}

async fn driver(redis: &Redis) -> Alone {
    let address = Address::Tcp(redis.address.clone());
    let mut driver = Alone::speaking(address, Sonic::new(ReadFrom::State, None));
    assert_eq!(driver.connect().await, Ok("SONiC database".into()));
    driver
}

async fn read(driver: &mut Alone) -> Observation {
    match driver.run(&Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual }).await {
        Outcome::Done(Some(seen)) => seen,
        other => panic!("{other:?}"),
    }
}

/// Brings the switch to `goal` as a change does, with an arm and one step including its reads.
async fn bring(driver: &mut Alone, goal: &[(u32, u32)], within_ms: u64) -> StepEnd {
    let goal: Positions = goal.iter().map(|&(slot, to)| (Slot(slot), Position(to))).collect();
    let before = match driver.run(&Op::Arm { txn: Txn(1), want: goal.clone() }).await {
        Outcome::Done(Some(seen)) => seen,
        Outcome::Refused(why) => return StepEnd::Refused(why, None),
        other => panic!("{other:?}"),
    };
    let moves =
        goal.iter().map(|(&slot, &to)| Move { slot, from: at(&before.positions, slot), to });
    let moves: Vec<Move> = moves.filter(|m| m.from != m.to).collect();
    let limits = Limits {
        settle_within: Micros::from_millis(within_ms),
        settle_poll: Micros::from_millis(20),
        ..Limits::default()
    };
    let step = Step::of(Sharing::Exclusive, &moves);
    let mut mover =
        Mover::new(Txn(1), step, Sharing::Exclusive, limits, Some(before), BTreeMap::new());
    let began = Instant::now();
    let now = || Micros(u64::try_from(began.elapsed().as_micros()).unwrap());
    let mut next = mover.start();
    loop {
        next = match next {
            Next::Send(op) => {
                let outcome = driver.run(&op).await;
                mover.reply(now(), outcome)
            }
            Next::Sleep(until) => {
                tokio::time::sleep(Duration::from_micros((until - now()).0)).await;
                mover.wake()
            }
            Next::Finished(end) => return *end,
        };
    }
}

async fn rest() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

fn applied(end: &StepEnd) -> bool {
    matches!(end, StepEnd::Applied(_))
}

#[tokio::test]
async fn does_not_commit_a_circuit_while_it_tunes() {
    let Some(redis) = Redis::start(&[]) else { return };
    for is_image in [false, true] {
        Raw::to(&redis).say("FLUSHALL");
        let _agent = Agent::start(&redis, Kind { is_image, ..USUAL });
        let mut driver = driver(&redis).await;
        let began = Instant::now();
        let end = bring(&mut driver, &[(1, 7), (2, 8)], 5_000).await;
        assert!(applied(&end), "{end:?}");
        assert!(began.elapsed() >= USUAL.delay + USUAL.tunes, "{:?}", began.elapsed());
        assert_eq!(read(&mut driver).await.tuning, BTreeSet::new());

        // Both circuits swap ports and then go dark, which the driver sees only in STATE_DB.
        let end = bring(&mut driver, &[(1, 8), (2, 7)], 5_000).await;
        assert!(applied(&end), "{end:?}");
        let table = if is_image { "OCS_CROSS_CONNECT_TABLE" } else { "OCS_CROSS_CONNECT" };
        let lit = Raw::to(&redis).circuits(6, table);
        assert_eq!(lit, BTreeSet::from(["1A-8B".into(), "2A-7B".into()]));
        let end = bring(&mut driver, &[(1, 0), (2, 0)], 5_000).await;
        assert!(applied(&end), "{end:?}");
        assert!(Raw::to(&redis).circuits(6, table).is_empty());
    }
}

#[tokio::test]
async fn undo_removes_the_configuration_and_lights_nothing_later() {
    let Some(redis) = Redis::start(&[]) else { return };
    for is_image in [false, true] {
        let mut raw = Raw::to(&redis);
        raw.say("FLUSHALL");
        let agent = Agent::start(&redis, Kind { is_image, ..USUAL });
        let mut driver = driver(&redis).await;
        let end = bring(&mut driver, &[(1, 7)], 5_000).await;
        assert!(applied(&end), "{end:?}");
        // The agent has crashed, so the requested change is not executed.
        agent.is_dead(true);
        let end = bring(&mut driver, &[(1, 9), (2, 8)], 300).await;
        assert!(matches!(&end, StepEnd::Failed(why, _) if why.contains("still tuning")), "{end:?}");
        let end = bring(&mut driver, &[(1, 7), (2, 0)], 300).await;
        assert!(applied(&end), "{end:?}");
        assert_eq!(raw.config(), ["1A-7B"]);
        // The agent restarts and lights the earlier circuit.
        agent.is_dead(false);
        rest().await;
        let seen = read(&mut driver).await;
        assert_eq!(seen.positions, Positions::from([(Slot(1), Position(7))]));
        assert!(seen.tuning.is_empty(), "{seen:?}");
        assert_eq!(raw.config(), ["1A-7B"]);
    }
}

#[tokio::test]
async fn failed_side_ends_the_change_immediately_and_is_undone() {
    let Some(redis) = Redis::start(&[]) else { return };
    let mut raw = Raw::to(&redis);
    let _agent = Agent::start(&redis, Kind { ends: "failed", ..USUAL });
    let mut driver = driver(&redis).await;
    let began = Instant::now();
    let end = bring(&mut driver, &[(3, 4)], 60_000).await;
    let named = |why: &str| why.contains("the circuit has failed");
    assert!(matches!(&end, StepEnd::Failed(why, _) if named(why)), "{end:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "it does not wait for tuning");
    let end = bring(&mut driver, &[(3, 0)], 5_000).await;
    assert!(applied(&end), "{end:?}");
    assert!(raw.config().is_empty());
}

#[tokio::test]
async fn reads_circuits_present_in_only_one_database() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (mut raw, mut driver) = (Raw::to(&redis), driver(&redis).await);
    raw.say("SELECT 4");
    raw.say("HSET OCS_CROSS_CONNECT|1A-7B a_side 1A b_side 7B");
    raw.say("SELECT 6");
    raw.say("HSET OCS_CROSS_CONNECT_TABLE|2A-8B status enabled");
    raw.say("HSET OCS_CROSS_CONNECT_TABLE|3A-7B status enabled");
    let seen = read(&mut driver).await;
    assert_eq!(seen.positions, Positions::from([(Slot(1), Position(7)), (Slot(2), Position(8))]));
    assert_eq!(seen.tuning, BTreeSet::from([Slot(1), Slot(2), Slot(3)]));
}

#[tokio::test]
async fn numbers_module_ports_in_order() {
    let Some(redis) = Redis::start(&[]) else { return };
    let _agent = Agent::start(&redis, USUAL);
    let mut raw = Raw::to(&redis);
    raw.say("SELECT 4");
    for port in ["1-1", "1-2", "1-10", "2-1"] {
        raw.say(&format!("HSET OCS_PORT|{port}A state normal"));
        raw.say(&format!("HSET OCS_PORT|{port}B state normal"));
    }
    let mut driver = driver(&redis).await;
    let end = bring(&mut driver, &[(1, 4), (3, 2)], 5_000).await;
    assert!(applied(&end), "{end:?}");
    assert_eq!(raw.config(), ["1-10A-1-2B", "1-1A-2-1B"]);
    raw.say("SELECT 4");
    assert_eq!(raw.say("HGET OCS_CROSS_CONNECT|1-1A-2-1B b_side"), ["2-1B"]);
    raw.say("HSET OCS_CROSS_CONNECT|9-9A-1-1B a_side 9-9A b_side 1-1B");
    let outcome =
        driver.run(&Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual }).await;
    assert!(
        matches!(&outcome, Outcome::Unknown(why) if why.contains("9-9A-1-1B")),
        "named, and no circuit is guessed: {outcome:?}"
    );
}

#[tokio::test]
async fn refuses_blocked_ports_and_packet_switches() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (mut raw, mut driver) = (Raw::to(&redis), driver(&redis).await);
    raw.say("SELECT 4");
    raw.say("HSET OCS_PORT|1A state normal");
    raw.say("HSET OCS_PORT|7B config_status force_blocked");
    let end = bring(&mut driver, &[(1, 7)], 300).await;
    let named = |why: &str| why.contains("port 7B is `force_blocked`");
    assert!(matches!(&end, StepEnd::Refused(why, _) if named(why)), "{end:?}");
    raw.say("DEL OCS_PORT|7B");
    raw.say("HSET DEVICE_METADATA|localhost type LeafRouter switch_type switch");
    let end = bring(&mut driver, &[(1, 7)], 300).await;
    let named = |why: &str| why.contains("`switch_type: switch`, not `ocs`");
    assert!(matches!(&end, StepEnd::Refused(why, _) if named(why)), "{end:?}");
    assert!(raw.config().is_empty());
}

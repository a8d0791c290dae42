//! The SONiC driver against a real Redis on loopback: 320 cross-connects are one transaction, a
//! permutation goes dark and comes back, and what Redis refuses changes nothing.
//!
//! Prints "skipped" where there is no `redis-server` (Debian: `apt-get install redis-server`).

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lightloom_daemon::driver::Driver;
use lightloom_daemon::driver::sonic::{ReadFrom, Sonic};
use lightloom_daemon::driver::stream::{Address, StreamDriver};
use lightloom_daemon::state::{Move, Op, Outcome, Position, Positions, Slot, Txn};

const CIRCUITS: u32 = 320;

/// A Redis of our own, ended with the test.
struct Redis {
    child: Child,
    address: String,
}

impl Redis {
    fn start(more: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("skipped: no redis-server");
            return None;
        };
        let redis = Self { child, address: format!("127.0.0.1:{port}") };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&redis.address).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(redis)
    }

    fn driver(&self, password: Option<&str>) -> StreamDriver<Sonic> {
        let dialect = Sonic::new(ReadFrom::Config, password.map(str::to_owned));
        StreamDriver::new(Address::Tcp(self.address.clone()), dialect)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn positions(driver: &mut StreamDriver<Sonic>) -> Positions {
    match driver.run(&Op::Observe { power: Vec::new(), neighbours: false }).await {
        Outcome::Done(Some(seen)) => seen.positions,
        other => panic!("{other:?}"),
    }
}

async fn switch(driver: &mut StreamDriver<Sonic>, moves: Vec<Move>) -> Outcome {
    driver.run(&Op::Switch { txn: Txn(1), moves }).await
}

/// Slot n from where `before` has it to where `after` has it.
fn moves(before: impl Fn(u32) -> u32, after: impl Fn(u32) -> u32) -> Vec<Move> {
    let one =
        |slot| Move { slot: Slot(slot), from: Position(before(slot)), to: Position(after(slot)) };
    (1..=CIRCUITS).map(one).collect()
}

#[tokio::test]
async fn three_hundred_and_twenty_circuits_are_one_transaction_of_redis() {
    let Some(redis) = Redis::start(&[]) else { return };
    let mut driver = redis.driver(None);
    assert_eq!(driver.connect().await, Ok("SONiC database".into()));
    assert!(positions(&mut driver).await.is_empty());

    let straight = |slot| slot + CIRCUITS;
    let turned = |slot| straight(slot % CIRCUITS + 1);
    let dark = |_| 0;
    assert_eq!(switch(&mut driver, moves(dark, straight)).await, Outcome::Done(None));
    let lit = positions(&mut driver).await;
    assert_eq!(lit.len(), CIRCUITS as usize);
    assert!(lit.iter().all(|(slot, to)| to.0 == straight(slot.0)));

    assert_eq!(switch(&mut driver, moves(straight, dark)).await, Outcome::Done(None));
    assert_eq!(switch(&mut driver, moves(dark, turned)).await, Outcome::Done(None));
    let lit = positions(&mut driver).await;
    assert_eq!(lit.len(), CIRCUITS as usize);
    assert!(lit.iter().all(|(slot, to)| to.0 == turned(slot.0)));
}

#[tokio::test]
async fn what_redis_refuses_changes_nothing() {
    let Some(redis) = Redis::start(&["--requirepass", "light", "--min-replicas-to-write", "1"])
    else {
        return;
    };
    let wrong = redis.driver(Some("dark")).connect().await;
    assert!(wrong.is_err(), "{wrong:?}");

    // Without the replica that it is told to want, this Redis takes no writes.
    let mut driver = redis.driver(Some("light"));
    assert!(driver.connect().await.is_ok());
    let refused = switch(&mut driver, moves(|_| 0, |slot| slot)).await;
    assert!(matches!(&refused, Outcome::Refused(why) if why.contains("NOREPLICAS")), "{refused:?}");
    // The connection is not left inside the transaction.
    assert!(positions(&mut driver).await.is_empty());
}

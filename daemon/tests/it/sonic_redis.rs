// SPDX-License-Identifier: Apache-2.0
//! Tests the SONiC driver against a real Redis on loopback.
//!
//! Prints "skipped" without a `redis-server` (Debian: `apt-get install redis-server`).

use crate::redis_server;
use std::net::TcpStream;

use lightloom_control::controller::Foreign;
use lightloom_control::state::{Move, Neighbours, Op, Outcome, Position, Positions, Slot, Txn};
use lightloom_daemon::driver::alone::Alone;
use lightloom_daemon::driver::stream::Address;
use lightloom_drivers::sonic::{ReadFrom, Sonic};
use redis_server::Redis;

const CIRCUITS: u32 = 320;

fn driver(redis: &Redis, password: Option<&str>) -> Alone {
    let dialect = Sonic::new(ReadFrom::Config, password.map(str::to_owned));
    Alone::speaking(Address::Tcp(redis.address.clone()), dialect)
}

async fn positions(driver: &mut Alone) -> Positions {
    match driver.run(&Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual }).await {
        Outcome::Done(Some(seen)) => seen.positions,
        other => panic!("{other:?}"),
    }
}

async fn switch(driver: &mut Alone, moves: Vec<Move>) -> Outcome {
    driver.run(&Op::Switch { txn: Txn(1), moves }).await
}

fn moves(before: impl Fn(u32) -> u32, after: impl Fn(u32) -> u32) -> Vec<Move> {
    let one =
        |slot| Move { slot: Slot(slot), from: Position(before(slot)), to: Position(after(slot)) };
    (1..=CIRCUITS).map(one).collect()
}

#[tokio::test]
async fn sets_320_circuits_in_one_redis_transaction() {
    let Some(redis) = Redis::start(&[]) else { return };
    let mut driver = driver(&redis, None);
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
async fn only_the_claiming_session_changes_circuits() {
    let Some(redis) = Redis::start(&[]) else { return };
    let claiming = |owner: &str| {
        let dialect = Sonic::new(ReadFrom::Config, None).claiming(owner, 7);
        Alone::speaking(Address::Tcp(redis.address.clone()), dialect)
    };
    let lit = |slot| Move { slot: Slot(slot), from: Position(0), to: Position(slot + CIRCUITS) };
    let (mut one, mut other) = (claiming("lightloomd@one"), claiming("lightloomd@other"));
    assert!(one.connect().await.is_ok() && other.connect().await.is_ok());
    assert_eq!(other.foreign(), [Foreign::Claimed(Some("lightloomd@one".into()))]);
    assert_eq!(one.foreign(), []);
    let refused = switch(&mut other, vec![lit(1)]).await;
    assert!(
        matches!(&refused, Outcome::Refused(why) if why.contains("lightloomd@one")),
        "{refused:?}"
    );
    assert_eq!(switch(&mut one, vec![lit(1)]).await, Outcome::Done(None));
    assert_eq!(positions(&mut other).await.len(), 1, "it reads all the same");

    // Only the latest session of a controller may change circuits.
    let mut later = claiming("lightloomd@one");
    assert!(later.connect().await.is_ok());
    assert!(later.connect().await.is_ok(), "its second session");
    let refused = switch(&mut one, vec![lit(2)]).await;
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    assert_eq!(switch(&mut later, vec![lit(2)]).await, Outcome::Done(None));
    assert_eq!(positions(&mut later).await.len(), 2);
}

/// Imitates a session that has watched the claim and sends a late `EXEC`.
#[tokio::test]
async fn late_transaction_of_an_abandoned_session_changes_nothing() {
    use std::io::{Read, Write};
    let Some(redis) = Redis::start(&[]) else { return };
    let claiming = || {
        let dialect = Sonic::new(ReadFrom::Config, None).claiming("lightloomd@one", 7);
        Alone::speaking(Address::Tcp(redis.address.clone()), dialect)
    };
    let mut first = claiming();
    assert!(first.connect().await.is_ok());
    let lit = Move { slot: Slot(1), from: Position(0), to: Position(9) };
    let bytes = first.preview(&[Op::Switch { txn: Txn(1), moves: vec![lit] }]).unwrap();
    let mut late = TcpStream::connect(&redis.address).unwrap();
    let (exec, before) = bytes.split_last().unwrap();
    for request in before {
        late.write_all(request).unwrap();
        assert!(late.read(&mut [0; 512]).unwrap() > 0);
    }
    first.disconnect();
    assert!(first.connect().await.is_ok(), "its next session");
    late.write_all(exec).unwrap();
    let mut reply = [0; 64];
    let length = late.read(&mut reply).unwrap();
    assert_eq!(&reply[..length], b"*-1\r\n", "Redis dropped it");
    assert!(positions(&mut first).await.is_empty());
}

#[tokio::test]
async fn redis_refusal_changes_nothing() {
    let Some(redis) = Redis::start(&["--requirepass", "light", "--min-replicas-to-write", "1"])
    else {
        return;
    };
    let wrong = driver(&redis, Some("dark")).connect().await;
    assert!(wrong.is_err(), "{wrong:?}");

    // This Redis requires a replica and has none, so it refuses writes.
    let mut driver = driver(&redis, Some("light"));
    assert!(driver.connect().await.is_ok());
    let refused = switch(&mut driver, moves(|_| 0, |slot| slot)).await;
    assert!(matches!(&refused, Outcome::Refused(why) if why.contains("NOREPLICAS")), "{refused:?}");
    // The connection must not remain inside the transaction.
    assert!(positions(&mut driver).await.is_empty());
}

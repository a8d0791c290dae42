// SPDX-License-Identifier: Apache-2.0
//! Tests every parser of the daemon with random and nearly valid input. The parser must return a
//! result or a counted error, never panic, use excessive memory or return a position that the
//! device did not send. Each run uses new random cases; proptest prints and saves failing ones.

use lightloom_control::record::Record;
use lightloom_control::state::{Neighbours, Observation, Op, Outcome, Position, Slot};
use lightloom_daemon::journal::read_all;
use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::ocstrx::OcsTrx;
use lightloom_drivers::scpi::Scpi;
use lightloom_drivers::sonic::{ReadFrom, Sonic};
use lightloom_drivers::tl1::Tl1;
use lightloom_drivers::{Dialect, INPUT_BYTES_MAX, Reached, Session};
use lightloom_firmware_api::path::DataPathPolicy;
use proptest::prelude::*;

/// Advances a session with `replies` until it expects the positions.
fn observed<D: Dialect + Clone>(
    dialect: D,
    replies: &[&[u8]],
    last: &[u8],
    cut: usize,
) -> Option<Reached> {
    let mut session = Session::new(dialect);
    let mut out = Vec::new();
    session.connected(&mut out);
    for reply in replies {
        session.received(reply, &mut out);
    }
    let op = Op::Observe { power: vec![], neighbours: Neighbours::Usual };
    if let Some(outcome) = session.start(&op, &mut out) {
        return Some(Reached::Ended(outcome));
    }
    let mut reached = None;
    for piece in last.chunks(cut.max(1)) {
        reached = reached.or(session.received(piece, &mut out));
    }
    reached
}

const SCPI_HELLO: [&[u8]; 2] = [b"Polatis,x,1,6.5\n", b"8,8\n"];
const TL1_HELLO: [&[u8]; 3] = [
    b"\r\n\n   POLATIS 24-09-01 12:00:00\r\nM  1 COMPLD\r\n;",
    b"\r\n\n   POLATIS 24-09-01 12:00:00\r\nM  2 COMPLD\r\n   \"Polatis,x,1,6.5\"\r\n;",
    b"\r\n\n   POLATIS 24-09-01 12:00:00\r\nM  3 COMPLD\r\n   \"SYSTEM:SIZE=8x8\"\r\n;",
];
const TL1_PATCHES: &[u8] =
    b"\r\n\n   POLATIS 24-09-01 12:00:00\r\nM  4 COMPLD\r\n   \"1,9\"\r\n   \"2,10\"\r\n;";

fn positions(reached: Option<Reached>) -> Option<Observation> {
    match reached {
        Some(Reached::Ended(Outcome::Done(seen))) => seen,
        _ => None,
    }
}

#[test]
fn parses_replies_split_at_any_size() {
    for cut in 1..40 {
        let scpi = observed(Scpi::new(false), &SCPI_HELLO, b"(@1,2),(@9,10)\r\n", cut);
        let tl1 = observed(Tl1::new("u", "p", false), &TL1_HELLO, TL1_PATCHES, cut);
        let keys = b"+OK\r\n*2\r\n$25\r\nOCS_CROSS_CONNECT|1A-9B__\r\n$1\r\nx\r\n";
        let _ = observed(Sonic::new(ReadFrom::Config, None), &[b"+PONG\r\n"], keys, cut);
        let keys =
            b"+OK\r\n*2\r\n$23\r\nOCS_CROSS_CONNECT|1A-9B\r\n$24\r\nOCS_CROSS_CONNECT|2A-10B\r\n";
        let sonic = observed(Sonic::new(ReadFrom::Config, None), &[b"+PONG\r\n"], keys, cut);
        for seen in [scpi, tl1, sonic] {
            let seen = positions(seen).unwrap();
            assert_eq!(seen.positions[&Slot(1)], Position(9));
            assert_eq!(seen.positions[&Slot(2)], Position(10));
        }
    }
}

/// Proof 7 of the TL1 grammar covers messages between command and reply, and replies of every kind.
#[test]
fn matches_tl1_replies_by_ctag_and_distinguishes_denials() {
    let auto = b"\r\n\n   ( nil ) 24-09-01 12:00:00\r\n*C 17 REPT ALM EQPT\r\n   \"PORT 3\"\r\n;";
    let ack = b"IP 4\r\n<";
    let wrong = b"\r\n\n   X 24-09-01 12:00:00\r\nM  999 COMPLD\r\n   \"5,13\"\r\n;";
    let mixed = [&auto[..], ack, wrong, TL1_PATCHES].concat();
    let seen = positions(observed(Tl1::new("u", "p", false), &TL1_HELLO, &mixed, 1)).unwrap();
    assert_eq!(seen.positions.len(), 2, "the circuit of another ctag is not ours");
    let more = b"\r\n\n   X 24-09-01 12:00:00\r\nM  4 COMPLD\r\n   \"1,9\"\r\n>\r\n\n   X 24-09-01 12:00:00\r\nM  4 COMPLD\r\n   \"2,10\"\r\n;";
    let seen = positions(observed(Tl1::new("u", "p", false), &TL1_HELLO, more, 7)).unwrap();
    assert_eq!(seen.positions.len(), 2, "blocks that end with > go on");
    let reply = |status: &str| format!("\r\n\n   X 24-09-01 12:00:00\r\nM  4 {status}\r\n;");
    let outcome = |status: &str| {
        let reply = reply(status);
        match observed(Tl1::new("u", "p", false), &TL1_HELLO, reply.as_bytes(), 3) {
            Some(Reached::Ended(outcome)) => outcome,
            other => panic!("{status}: {other:?}"),
        }
    };
    assert!(matches!(outcome("DENY\r\n   SROF\r\n   /* failed */"), Outcome::Failed(_)));
    assert!(matches!(outcome("DENY\r\n   SARB"), Outcome::Failed(_)));
    assert!(matches!(outcome("DENY\r\n   IIAC"), Outcome::Refused(_)));
    assert!(matches!(outcome("PRTL"), Outcome::Failed(_)));
}

#[test]
fn rejects_contradictory_scpi_positions() {
    for wrong in [
        "(@1,1),(@9,10)",
        "(@1,2),(@9,9)",
        "(@1),(@9,10)",
        "(@0),(@9)",
        "(@1),(@1)",
        "(@9),(@1)",
        "(@1),(@17)",
        "@1,@9",
        "(@1),(@x)",
        "1",
        "",
    ] {
        let line = format!("{wrong}\n");
        let reached = observed(Scpi::new(false), &SCPI_HELLO, line.as_bytes(), 5);
        assert!(positions(reached).is_none(), "`{wrong}` was believed");
    }
}

#[test]
fn bounds_a_reply_without_an_end() {
    let endless = vec![b'7'; INPUT_BYTES_MAX + 2];
    let reached = observed(Scpi::new(false), &SCPI_HELLO, &endless, 4096);
    assert!(matches!(reached, Some(Reached::Lost(_))));
}

/// Generates a valid reply with one byte lost, duplicated or changed, or with a range removed.
fn damaged(good: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    (0..good.len(), 0..4_u8, any::<u8>(), 1..8_usize).prop_map(move |(at, how, byte, run)| {
        let mut bytes = good.to_vec();
        match how {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, bytes[at]),
            2 => bytes[at] = byte,
            _ => drop(bytes.drain(at..(at + run).min(good.len()))),
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsers_survive_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 1..64_usize) {
        observed(Scpi::new(true), &[], &bytes, cut);
        observed(Scpi::new(true), &SCPI_HELLO, &bytes, cut);
        observed(Tl1::new("u", "p", true), &TL1_HELLO, &bytes, cut);
        observed(Sonic::new(ReadFrom::State, None), &[b"+PONG\r\n"], &bytes, cut);
        observed(OcsTrx::new(DataPathPolicy::Hot, 0), &[], &bytes, cut);
        let (records, good, _) = read_all::<Record>(&bytes);
        prop_assert!(records.is_empty() && good == 0);
        let _ = lightloom_daemon::config::load("x", &bytes);
    }

    #[test]
    fn damaged_replies_never_map_two_slots_to_one_position(
        scpi in damaged(b"(@1,2,3),(@9,10,11)\n"), tl1 in damaged(TL1_PATCHES), cut in 1..16_usize,
    ) {
        let scpi = positions(observed(Scpi::new(false), &SCPI_HELLO, &scpi, cut));
        let tl1 = positions(observed(Tl1::new("u", "p", false), &TL1_HELLO, &tl1, cut));
        for seen in [scpi, tl1].into_iter().flatten() {
            let held: std::collections::BTreeSet<_> = seen.positions.values().collect();
            prop_assert_eq!(held.len(), seen.positions.len());
            prop_assert!(seen.positions.iter().all(|(s, p)| (1..=8).contains(&s.0) && (9..=16).contains(&p.0)));
        }
    }
}

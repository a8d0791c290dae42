// SPDX-License-Identifier: Apache-2.0
//! Master arbitration and authentication of the emulated gNMI switch.

use lightloom_devices::{GnmiSpec, Line};
use lightloom_gnmi::Code;
use lightloom_gnmi::client::{Answer, GnmiCall};
use lightloom_gnmi::extension::Extension;
use lightloom_gnmi::message::SetRequest;

use crate::gnmi_bench::{Bench, FIRST, adds, small};

const SECOND: Line = Line(2);

fn by(role: Option<&str>, id: Option<u128>, set: SetRequest) -> SetRequest {
    SetRequest { extension: vec![Extension::arbitration(role, id)], ..set }
}

fn code(bench: &mut Bench, line: Line, set: SetRequest) -> Code {
    match bench.ask_on(line, GnmiCall::Set(set)).unwrap() {
        Answer::Set(_) => Code::Ok,
        Answer::Refused(status) => status.code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn controller_with_the_larger_election_id_is_master() {
    let mut bench = Bench::new(small());
    bench.connect(SECOND);
    let first = || adds(&[("a", "in-1", "out-1")]);
    let other = || adds(&[("b", "in-2", "out-2")]);
    assert_eq!(code(&mut bench, FIRST, by(None, Some(7), first())), Code::Ok);
    let larger = 1 << 64;
    assert_eq!(code(&mut bench, SECOND, by(None, Some(larger), other())), Code::Ok);
    bench.run_for(100);
    assert_eq!(bench.switch.true_pairs(), [(1, 9), (2, 10)]);
    let late = || adds(&[("c", "in-3", "out-3")]);
    assert_eq!(code(&mut bench, FIRST, by(None, Some(7), late())), Code::PermissionDenied);
    assert_eq!(code(&mut bench, FIRST, by(None, None, late())), Code::InvalidArgument);
    bench.run_for(100);
    assert_eq!(bench.switch.true_pairs(), [(1, 9), (2, 10)], "no circuit changes");
    // The same id remains master, each role has its own master, and a Set without an id is not
    // arbitrated.
    assert_eq!(code(&mut bench, FIRST, by(None, Some(larger), late())), Code::Ok);
    let another = by(Some("other"), Some(1), adds(&[("d", "in-4", "out-4")]));
    assert_eq!(code(&mut bench, FIRST, another), Code::Ok);
    assert_eq!(code(&mut bench, FIRST, adds(&[("e", "in-5", "out-5")])), Code::Ok);
    // Election ids are not persistent.
    bench.fault("warm-restart");
    bench.run_for(2_100);
    bench.connect(FIRST);
    assert_eq!(code(&mut bench, FIRST, by(None, Some(7), SetRequest::default())), Code::Ok);
}

#[test]
fn required_arbitration_denies_sets_without_an_id() {
    let mut bench = Bench::new(GnmiSpec { needs_election: true, ..small() });
    assert_eq!(code(&mut bench, FIRST, adds(&[("a", "in-1", "out-1")])), Code::Ok);
    assert_eq!(code(&mut bench, FIRST, by(None, Some(7), SetRequest::default())), Code::Ok);
    let late = adds(&[("b", "in-2", "out-2")]);
    assert_eq!(code(&mut bench, FIRST, late), Code::PermissionDenied);
    assert_eq!(bench.switch.true_pairs(), [(1, 9)]);
}

#[test]
fn unauthenticated_client_gets_capabilities_only() {
    let login = Some(("me".to_owned(), "secret".to_owned()));
    let mut bench = Bench::new(GnmiSpec { login, ..small() });
    assert!(matches!(bench.ask(GnmiCall::Capabilities), Answer::Capabilities(_)));
    assert_eq!(bench.refused_get("/optical-switch").0, Code::Unauthenticated);
    let set = adds(&[("a", "in-1", "out-1")]);
    assert_eq!(code(&mut bench, FIRST, set), Code::Unauthenticated);
    assert_eq!(bench.switch.true_pairs(), []);
}

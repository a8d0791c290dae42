// SPDX-License-Identifier: Apache-2.0

use std::cell::RefCell;
use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};

use lightloom_capi::*;

const RING: &str = "name: it\non: {ring: {hosts: 8}}\n";

fn opened(text: &str) -> (c_int, *mut Handle) {
    let (text, mut network) = (CString::new(text).unwrap(), null_mut());
    let code = unsafe { lightloom_open_text(text.as_ptr(), null(), &mut network) };
    (code, network)
}

fn ring() -> *mut Handle {
    let (code, network) = opened(RING);
    assert_eq!(code, 0, "{}", said());
    network
}

fn said() -> String {
    let mut buffer = [0_u8; 2_000];
    let length = unsafe { lightloom_last_error(buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn time(network: *mut Handle) -> u64 {
    let mut time = 0;
    assert_eq!(unsafe { lightloom_time(network, &mut time) }, 0);
    time
}

struct Log {
    network: *mut Handle,
    lines: RefCell<Vec<(u64, u32)>>,
}

impl Log {
    fn of(network: *mut Handle) -> Self {
        Self { network, lines: RefCell::default() }
    }

    fn line(&self, number: u32) -> (Option<Callback>, *mut c_void) {
        let line = Box::new((std::ptr::from_ref(self), number));
        (Some(note), Box::into_raw(line).cast())
    }

    fn send(&self, number: u32, [from, to]: [u32; 2], bytes: u64, tag: u64) -> c_int {
        let (callback, argument) = self.line(number);
        unsafe { lightloom_send(self.network, from, to, bytes, tag, callback, argument) }
    }

    fn receive(&self, number: u32, [from, to]: [u32; 2], bytes: u64, tag: u64) -> c_int {
        let (callback, argument) = self.line(number);
        unsafe { lightloom_receive(self.network, to, from, bytes, tag, callback, argument) }
    }

    fn numbers(&self) -> Vec<u32> {
        self.lines.borrow().iter().map(|(_, number)| *number).collect()
    }
}

unsafe extern "C-unwind" fn note(argument: *mut c_void) {
    let line: Box<(*const Log, u32)> = unsafe { Box::from_raw(argument.cast()) };
    let log = unsafe { &*line.0 };
    log.lines.borrow_mut().push((time(log.network), line.1));
}

unsafe extern "C-unwind" fn panics(_: *mut c_void) {
    panic!("a mistake of the program");
}

/// Logs the results of calls that callbacks must not make.
unsafe extern "C-unwind" fn forbidden(argument: *mut c_void) {
    let log = unsafe { &*argument.cast::<Log>() };
    let codes =
        [lightloom_run(log.network), lightloom_finish(log.network), lightloom_close(log.network)];
    log.lines.borrow_mut().extend(codes.map(|code| (0, code as u32)));
}

#[test]
fn receives_match_bytes_in_send_order() {
    let network = ring();
    let log = Log::of(network);
    // The shorter second message uses another flow, but is delivered after the first.
    assert_eq!(log.receive(10, [0, 1], 400_000, 1), 0);
    assert_eq!(log.receive(11, [0, 1], 101_000, 1), 0);
    assert_eq!(log.send(1, [0, 1], 500_000, 1), 0);
    assert_eq!(log.send(2, [0, 1], 1_000, 1), 0);
    assert_eq!(log.send(3, [0, 1], 1_000, 2), 0);
    assert_eq!(lightloom_run(network), 0);
    let numbers = log.numbers();
    let place = |of| numbers.iter().position(|number| *number == of).unwrap();
    assert!(place(2) < place(1) && place(3) < place(1), "{numbers:?}");
    assert!(place(1) < place(10) && place(10) < place(11), "{numbers:?}");
    // Arrived bytes wait for a receive; excess bytes remain for the next one.
    assert_eq!(log.receive(12, [0, 1], 400, 2), 0);
    assert_eq!(log.receive(13, [0, 1], 600, 2), 0);
    let before = time(network);
    assert_eq!(lightloom_finish(network), 0);
    assert_eq!(log.lines.borrow()[numbers.len()..], [(before, 12), (before, 13)]);
    assert!(log.lines.borrow().is_sorted_by_key(|(time, _)| *time));
    assert_eq!(lightloom_close(network), 0);
}

#[test]
fn receive_without_message_stays_pending_across_runs() {
    let network = ring();
    let log = Log::of(network);
    assert_eq!(log.receive(1, [3, 3], 64, 9), 0);
    assert_eq!(lightloom_run(network), 0);
    assert_eq!(lightloom_finish(network), ErrorCode::Stalled as c_int);
    assert!(
        said().contains("rank 3 from rank 3, tag 9: 1, the first lacks 64 bytes"),
        "{}",
        said()
    );
    assert_eq!(log.send(2, [3, 3], 64, 9), 0);
    assert_eq!(lightloom_finish(network), 0);
    assert_eq!(log.lines.take(), [(0, 2), (0, 1)], "nothing leaves the host");
    assert_eq!(lightloom_close(network), 0);
}

#[test]
fn rejects_bad_arguments_by_name_without_side_effects() {
    let network = ring();
    let bad = ErrorCode::BadArgument as c_int;
    unsafe {
        assert_eq!(lightloom_open(null(), &mut null_mut()), bad);
        assert_eq!(lightloom_open_text(null(), null(), &mut null_mut()), bad);
        assert_eq!(lightloom_open(c"x.yaml".as_ptr(), null_mut()), bad);
        assert_eq!(lightloom_open(c"\xff".as_ptr(), &mut null_mut()), bad);
        assert_eq!(lightloom_ranks(network, null_mut()), bad);
        assert_eq!(lightloom_time(network, null_mut()), bad);
        assert_eq!(lightloom_packet_hops(network, null_mut()), bad);
        assert_eq!(lightloom_send(network, 0, 8, 1, 0, None, null_mut()), bad);
        assert!(said().contains("unknown rank 8"), "{}", said());
        assert_eq!(lightloom_receive(network, 0, 1, 0, 0, None, null_mut()), bad);
        for none in [null_mut(), network.wrapping_byte_add(1_000)] {
            assert_eq!(lightloom_ranks(none, &mut 0), bad);
            assert_eq!(lightloom_send(none, 0, 1, 1, 0, None, null_mut()), bad);
            assert_eq!(lightloom_schedule(none, 1, None, null_mut()), bad);
            assert_eq!(lightloom_run(none), bad);
            assert_eq!(lightloom_close(none), bad);
        }
        assert!(lightloom_last_error(null_mut(), 0) > 0);
        let mut small = [1; 3];
        lightloom_last_error(small.as_mut_ptr(), 3);
        assert_eq!(small[2], 0);
    }
    let other = network as usize;
    let elsewhere = std::thread::spawn(move || lightloom_run(other as *mut Handle));
    assert_eq!(elsewhere.join().unwrap(), bad, "a network belongs to its thread");
    assert_eq!(lightloom_finish(network), 0);
    assert_eq!((time(network), lightloom_close(network), lightloom_close(network)), (0, 0, bad));
}

#[test]
fn reports_every_mistake_of_a_file() {
    let (code, network) = opened("name: it\non: {ring: {hosts: 4}}\nseed: x\nexpect: [no drops]\n");
    assert_eq!((code, network), (ErrorCode::BadFile as c_int, null_mut()));
    assert!(said().contains("<text>:3:7: error[LL0104]"), "{}", said());
    let (code, _) = opened("name: it\non: {ring: {hosts: 4}}\nexpect: [no drops]\n");
    assert_eq!(code, ErrorCode::BadFile as c_int);
    assert!(said().contains("<text>:3:"), "{}", said());
    let mut network = null_mut();
    let code = unsafe { lightloom_open(c"no/such.yaml".as_ptr(), &mut network) };
    assert_eq!((code, network), (ErrorCode::BadFile as c_int, null_mut()));
    assert!(said().contains("no/such.yaml"), "{}", said());
}

#[test]
fn callback_panic_fails_the_run_but_not_the_program() {
    let network = ring();
    unsafe { lightloom_schedule(network, 5, Some(panics), null_mut()) };
    assert_eq!(lightloom_run(network), ErrorCode::Panicked as c_int);
    assert_eq!(said(), "a mistake of the program");
    assert_eq!(lightloom_run(network), ErrorCode::BadState as c_int);
    assert_eq!(unsafe { lightloom_packet_hops(network, &mut 0) }, ErrorCode::BadState as c_int);
    assert_eq!(lightloom_close(network), 0);
}

#[test]
fn refuses_run_and_close_inside_a_callback() {
    let network = ring();
    let log = Log::of(network);
    let argument = std::ptr::from_ref(&log).cast_mut().cast();
    unsafe { lightloom_schedule(network, 5, Some(forbidden), argument) };
    assert_eq!(lightloom_run(network), 0);
    assert_eq!(log.numbers(), [ErrorCode::BadState as u32; 3]);
    assert_eq!(lightloom_close(network), 0);
}

#[test]
fn opens_fabric_file_and_stalls_on_failed_hosts() {
    let fabric = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/ring-256.yaml");
    let (path, mut network, mut ranks) = (CString::new(fabric).unwrap(), null_mut(), 0);
    unsafe {
        assert_eq!(lightloom_open(path.as_ptr(), &mut network), 0, "{}", said());
        assert_eq!((lightloom_ranks(network, &mut ranks), ranks), (0, 256));
    }
    let log = Log::of(network);
    assert_eq!(log.send(1, [0, 255], 1_000_000, 0), 0);
    assert_eq!((lightloom_run(network), log.numbers(), lightloom_close(network)), (0, vec![1], 0));
    let (code, network) = opened(&format!("{RING}faults: [{{part: h1, at: 1us}}]\n"));
    assert_eq!(code, 0, "{}", said());
    let log = Log::of(network);
    assert_eq!(log.send(1, [0, 1], 4_000_000, 0), 0);
    assert_eq!(lightloom_run(network), ErrorCode::Stalled as c_int);
    assert!(said().contains("h0 to h1: has no route"), "{}", said());
    assert_eq!((log.numbers(), lightloom_close(network)), (vec![], 0));
}

#[test]
fn times_beyond_the_engine_range_fail_without_panic() {
    let network = ring();
    unsafe { lightloom_schedule(network, u64::MAX, None, null_mut()) };
    assert_eq!(lightloom_run(network), ErrorCode::Stalled as c_int, "{}", said());
    assert_eq!(lightloom_close(network), 0);
    for bytes in [u64::MAX, 1 << 50] {
        let network = ring();
        assert_eq!(unsafe { lightloom_send(network, 0, 1, bytes, 0, None, null_mut()) }, 0);
        assert_eq!(lightloom_run(network), ErrorCode::Failed as c_int, "{}", said());
        assert!(said().contains("packets"), "{}", said());
        assert_eq!(lightloom_run(network), ErrorCode::BadState as c_int);
        assert_eq!(lightloom_close(network), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{BitsPerSecond, Picoseconds};

use super::*;
use crate::engine::SendingEnd;
use crate::engine::packet::Contents;
use crate::transport::{Balance, CongestionControl, IdlePath, Nscc, Reordering};

fn sender(recovery: LossRecovery) -> Sender {
    let load = Load { messages: 2, per_message: 3, full_bytes: 100, last_bytes: 40 };
    let timer = RetransmissionTimer::new(Some(Picoseconds(1_000)), Picoseconds::ZERO, 10, 4);
    let mut sender = Sender::new(0, 0, load, 4, recovery, timer, None);
    sender.release(2);
    sender
}

fn burst(sender: &mut Sender, now: u64) -> Vec<(u32, u16)> {
    std::iter::from_fn(|| sender.poll(now, 0)).map(|out| (out.sequence, out.wire_bytes)).collect()
}

/// `ahead` of the first missing packet; 0 means in order.
fn acknowledgement(sequence: u32, ahead: u16) -> Packet {
    let gap = if ahead > 0 { flag::GAP } else { 0 };
    let extra = ahead;
    let flags = flag::ACKNOWLEDGEMENT | gap;
    Packet::new(Contents { cursor: 0, sequence, extra, flags })
}

#[test]
fn acknowledgements_open_the_window_and_last_packets_are_short() {
    let mut sender = sender(LossRecovery::GoBackN);
    assert_eq!(burst(&mut sender, 0), [(0, 100), (1, 100), (2, 40), (3, 100)]);
    sender.acknowledged(&acknowledgement(2, 0), 10);
    assert_eq!(burst(&mut sender, 10), [(4, 100), (5, 40)]);
    assert_eq!(sender.deadline, 1_010);
    sender.acknowledged(&acknowledgement(6, 0), 20);
    assert!(sender.is_done());
    assert_eq!(sender.deadline, u64::MAX);
}

#[test]
fn gap_is_resent_once() {
    let mut sender = sender(LossRecovery::GoBackN);
    burst(&mut sender, 0);
    sender.acknowledged(&acknowledgement(1, 1), 10);
    sender.acknowledged(&acknowledgement(1, 2), 11);
    assert_eq!(burst(&mut sender, 11).len(), 4, "packets 1 to 4");
    sender.acknowledged(&acknowledgement(1, 3), 12);
    assert_eq!(burst(&mut sender, 12), []);
    assert_eq!(sender.resent, 3);
}

#[test]
fn selective_repeat_sends_only_missing_packets() {
    let mut sender = sender(LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(1) });
    burst(&mut sender, 0);
    sender.acknowledged(&acknowledgement(0, 1), 10);
    assert_eq!(burst(&mut sender, 10), [(0, 100)]);
    sender.acknowledged(&acknowledgement(0, 3), 11);
    assert_eq!(burst(&mut sender, 11), [(2, 40)], "0 has been sent again, 1 has arrived");
    sender.timed_out(2_000);
    assert_eq!(burst(&mut sender, 2_000), [(0, 100), (2, 40)]);
}

#[test]
fn timeouts_back_off_exponentially() {
    let mut sender = sender(LossRecovery::GoBackN);
    burst(&mut sender, 0);
    assert_eq!(sender.deadline, 1_000);
    sender.timed_out(1_000);
    assert_eq!(sender.deadline, 3_000);
    sender.timed_out(3_000);
    assert_eq!(sender.deadline, 7_000);
    assert_eq!(sender.silent_since(), Some(0));
    let mut deadline = sender.deadline;
    for _ in 0..10 {
        sender.timed_out(deadline);
        deadline = sender.deadline;
    }
    assert_eq!(sender.silent_since(), Some(0), "also after the longest backoff");
}

/// A queued packet may have been acknowledged before its turn at the port.
#[test]
fn probe_takes_the_turn_of_a_packet() {
    let mut sender = sender(LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(1) });
    let lane = SenderLane::new(0, 0..2);
    let balancer = Balancer::new(Balance::Spray { paths: 2 }, vec![10, 20], vec![lane], 4, 0);
    sender.balancer = Some(Box::new(balancer));
    burst(&mut sender, 0);
    sender.balancer.as_mut().unwrap().lost(10, 3);
    let later = 1_000_000_000;
    assert_eq!(sender.poll(later, 0), None, "the window is full");
    sender.acknowledged(&acknowledgement(1, 0), later);
    assert!(sender.poll(later, 0).unwrap().probe);
    assert!(!sender.poll(later, 0).unwrap().probe);
}

fn header_of(sequence: u32) -> Packet {
    let flags = flag::ACKNOWLEDGEMENT | flag::GAP | flag::TRIMMED;
    Packet::new(Contents { cursor: 0, sequence, extra: 0, flags })
}

/// It used to be sent a third time, when packets sent before it had arrived.
#[test]
fn resent_trimmed_packet_is_lost_only_if_later_packets_arrive() {
    let recovery = LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(1) };
    let mut sender = sender(recovery);
    (sender.window, sender.span, sender.released) = (6, 6, 3);
    burst(&mut sender, 0);
    sender.acknowledged(&header_of(0), 10);
    assert_eq!(burst(&mut sender, 10), [(0, 100)]);
    assert_eq!(sender.deadline, 1_010, "the timeout starts again");
    sender.acknowledged(&acknowledgement(0, 1), 11);
    sender.acknowledged(&acknowledgement(0, 2), 12);
    assert_eq!(burst(&mut sender, 12), []);
    sender.release(2);
    assert_eq!(burst(&mut sender, 20), [(3, 100), (4, 100), (5, 40)]);
    sender.acknowledged(&acknowledgement(0, 3), 30);
    assert_eq!(burst(&mut sender, 30), [(0, 100)], "3 was sent after it");
}

fn controlled(control: CongestionControl) -> Sender {
    let recovery = LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(4) };
    let mut sender = sender(recovery);
    let rate = BitsPerSecond::from_gbps(400);
    let path = IdlePath { round_trip: 1_000_000, hops: 2, rate, window: 3 };
    (sender.span, sender.total, sender.released) = (9, 12, 12);
    sender.control_by(CongestionController::new(control, path, 12, None));
    sender
}

/// A missing packet used to block all packets from its number plus the window on.
#[test]
fn window_of_congestion_control_limits_packets_in_flight() {
    let mut sender = controlled(CongestionControl::Nscc(Nscc::default()));
    assert_eq!(burst(&mut sender, 0).len(), 3);
    sender.acknowledged(&acknowledgement(0, 1), 10);
    sender.acknowledged(&acknowledgement(0, 2), 10);
    assert_eq!(burst(&mut sender, 10), [(3, 100), (4, 100)]);
    assert_eq!(SendingEnd::from(&sender).window, 3);
    sender.acknowledged(&header_of(0), 20);
    assert_eq!(
        burst(&mut sender, 20),
        [],
        "the trim shrinks the window to the two packets in flight"
    );
    sender.acknowledged(&acknowledgement(0, 3), 30);
    assert_eq!(burst(&mut sender, 30), [(0, 100)]);
}

/// The window used to stay as large as if the packets before the missing one were still unacknowledged.
#[test]
fn late_acknowledgement_that_fills_a_gap_starts_no_burst() {
    let mut sender = controlled(CongestionControl::Nscc(Nscc::default()));
    burst(&mut sender, 0);
    sender.acknowledged(&acknowledgement(1, 0), 10);
    sender.acknowledged(&acknowledgement(1, 1), 11);
    sender.acknowledged(&acknowledgement(1, 2), 12);
    assert_eq!(burst(&mut sender, 12).last(), Some(&(5, 40)));
    let of_packet_0 = Contents { cursor: 0, sequence: 4, extra: 3, flags: flag::ACKNOWLEDGEMENT };
    sender.acknowledged(&Packet::new(of_packet_0), 20);
    assert_eq!(burst(&mut sender, 20), [(6, 100)]);
}

#[test]
fn header_from_before_a_timeout_neither_underflows_nor_sends_a_packet_twice() {
    let mut sender = controlled(CongestionControl::Nscc(Nscc::default()));
    burst(&mut sender, 0);
    (1..3).for_each(|ahead| sender.acknowledged(&acknowledgement(0, ahead), 10));
    burst(&mut sender, 10);
    sender.timed_out(2_000);
    let again = sender.poll(2_000, 0).map(|out| out.sequence);
    assert_eq!(again, Some(0));
    sender.acknowledged(&header_of(0), 2_010);
    sender.acknowledged(
        &Packet::new(Contents {
            cursor: 0,
            sequence: 0,
            extra: 4,
            flags: flag::ACKNOWLEDGEMENT | flag::GAP | flag::TRIMMED,
        }),
        2_011,
    );
    assert_eq!(
        burst(&mut sender, 2_020),
        [(0, 100)],
        "1 and 2 have arrived, and nothing is in flight"
    );
    sender.acknowledged(&acknowledgement(3, 0), 2_030);
    assert_eq!(burst(&mut sender, 2_030)[0], (3, 100));
    sender.acknowledged(&acknowledgement(4, 0), 2_040);
    let sent = burst(&mut sender, 2_040);
    assert_eq!(sent.iter().filter(|(sequence, _)| *sequence == 4).count(), 1, "{sent:?}");
}

/// It used to wait for a credit that no receiver sends.
#[test]
fn lost_copy_of_a_trimmed_packet_keeps_its_credit() {
    let mut sender = controlled(CongestionControl::ReceiverCredit);
    sender.reordering = 1;
    let credit = |packet: Packet| packet.with(flag::CREDIT);
    assert_eq!(burst(&mut sender, 0), [(0, 100), (1, 100), (2, 40)]);
    sender.acknowledged(&credit(header_of(0)), 10);
    assert_eq!(burst(&mut sender, 10), [(0, 100)]);
    sender.acknowledged(&credit(acknowledgement(0, 1)), 11);
    assert_eq!(burst(&mut sender, 11), [(3, 100)]);
    sender.acknowledged(&acknowledgement(0, 3), 20);
    assert_eq!(burst(&mut sender, 20), [(0, 100), (2, 40)]);
}

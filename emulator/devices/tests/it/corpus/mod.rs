// SPDX-License-Identifier: Apache-2.0
//! Bodies of the fuzz targets for the emulated switch, also used by `device_replay.rs`.

use lightloom_devices::{EmulatedDevice, Line, OpticalSwitch, Output, Port, SwitchSpec};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;

const LINE: Line = Line(0);

pub(crate) fn scpi(bytes: &[u8]) {
    let out = talk(Port::Scpi, &[bytes, b"\n"]);
    assert!(String::from_utf8(out).is_ok(), "responses are text");
}

pub(crate) fn tl1(bytes: &[u8]) {
    let out = talk(Port::Tl1, &[b"ACT-USER::root:1::root;", bytes, b";"]);
    let text = String::from_utf8(out).expect("replies are text");
    // `;` ends a reply, although a refusal may quote the request.
    assert!(text.ends_with(";"), "the last reply is complete");
}

fn talk(port: Port, pieces: &[&[u8]]) -> Vec<u8> {
    let mut switch = OpticalSwitch::new(SwitchSpec::default(), Seed(1), 0);
    let mut now = SimTime::START;
    let mut out = Vec::new();
    switch.open(now, LINE, port, &mut out);
    for piece in pieces {
        // Split in the middle, as a network might.
        for part in [&piece[..piece.len() / 2], &piece[piece.len() / 2..]] {
            switch.on_bytes(now, LINE, part, &mut out);
            while let Some(at) = switch.next_wakeup() {
                now = now.max(at);
                switch.on_time(now, &mut out);
            }
        }
    }
    assert_no_port_is_used_twice(&switch);
    out.into_iter()
        .flat_map(|output| match output {
            Output::Bytes(_, bytes) => bytes,
            Output::Close(_) => Vec::new(),
        })
        .collect()
}

fn assert_no_port_is_used_twice(switch: &OpticalSwitch) {
    let pairs = switch.true_pairs();
    let mut egress: Vec<u16> = pairs.iter().map(|pair| pair.1).collect();
    egress.sort_unstable();
    egress.dedup();
    assert_eq!(egress.len(), pairs.len());
}

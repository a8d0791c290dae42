// SPDX-License-Identifier: Apache-2.0
//! Arbitrary input must not cause a panic, an endless loop or a wrong circuit.

use crate::bench;
use bench::{Bench, PROFILE, module};
use lightloom_firmware_api::device::SerialModule;
use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
use lightloom_firmware_api::host::Host;
use lightloom_firmware_api::message::Request;
use lightloom_firmware_api::module::Module;
use lightloom_firmware_api::path::{DataPathPolicy, Path};
use lightloom_firmware_api::time::Micros;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Wait(u32),
    Read(u8, usize),
    Write(u8, Vec<u8>),
    Pin(bool),
    FollowTime,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0u32..200_000).prop_map(Act::Wait),
        (any::<u8>(), 1usize..20).prop_map(|(offset, length)| Act::Read(offset, length)),
        (any::<u8>(), prop::collection::vec(any::<u8>(), 1..12))
            .prop_map(|(offset, bytes)| Act::Write(offset, bytes)),
        // Pages that exist and that the writes above can select.
        prop::sample::select(vec![0x00u8, 0x10, 0x11, 0x9f, 0xb0])
            .prop_map(|page| Act::Write(127, vec![page])),
        any::<bool>().prop_map(Act::Pin),
        Just(Act::FollowTime),
    ]
}

fn play(module: &mut Module<Bench>, acts: &[Act]) {
    let mut now = Micros::ZERO;
    for act in acts {
        match act {
            Act::Wait(span) => now = now + Micros(u64::from(*span)),
            Act::Read(offset, length) => {
                let _ = module.bus_read(now, *offset, &mut vec![0; *length]);
            }
            Act::Write(offset, bytes) => {
                let _ = module.bus_write(now, *offset, bytes);
            }
            Act::Pin(low) => module.set_low_power_pin(now, *low),
            Act::FollowTime => {
                for _ in 0..100 {
                    let Some(next) = module.next_wakeup() else { break };
                    assert!(next >= now || module.next_wakeup() == Some(next));
                    now = now.max(next);
                    module.poll(now);
                    assert!(
                        module.next_wakeup().is_none_or(|again| again > now),
                        "what is due is done"
                    );
                }
            }
        }
    }
}

#[test]
fn serial_module_fits_in_3_kib() {
    // The limit excludes the optics, as in docs/firmware-api.md.
    assert!(size_of::<SerialModule<()>>() <= 3 * 1024, "{} bytes", size_of::<SerialModule<()>>());
}

proptest! {
    #[test]
    fn bus_garbage_neither_panics_nor_stalls(acts in prop::collection::vec(act(), 0..60)) {
        play(&mut module(), &acts);
    }

    #[test]
    fn garbage_on_the_line_never_switches_paths(noise in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut device = SerialModule::new(module());
        let now = Micros(u64::from(PROFILE.timing.boot_us));
        device.poll(now, |_| {});
        let drives = device.module().hardware().drives;
        let mut replies = 0;
        device.on_bytes(now, &noise, |_| replies += 1);
        prop_assert_eq!(device.module().hardware().drives, drives);
        prop_assert_eq!(replies, device.counters().requests);
    }

    #[test]
    fn request_with_a_flipped_bit_gets_no_reply(bit in 0usize..200) {
        let mut device = SerialModule::new(module());
        let now = bench::activated_at();
        device.poll(now, |_| {});
        let mut line = [0; ENCODED_BYTES_MAX];
        let request = Request::Arm(bench::arm_to(1, Path::LOOPBACK, DataPathPolicy::Hot));
        let (_, length) = Host::new().request(&request, &mut line);
        let bit = 8 + bit % ((length - 2) * 8);
        line[bit / 8] ^= 1 << (bit % 8);
        let mut replies = 0;
        device.on_bytes(now, &line[..length], |_| replies += 1);
        prop_assert_eq!(replies, 0);
        prop_assert!(device.counters().errors > 0);
    }
}

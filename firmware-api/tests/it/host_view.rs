// SPDX-License-Identifier: Apache-2.0
//! Tests the registers that a CMIS host reads before bring-up. Offsets and codes come from public host
//! software, not from this crate.

use crate::bench;
use bench::{Bench, PROFILE, activated_at, module};
use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::cmis::page00::power_class;
use lightloom_firmware_api::module::{Hardware, Module, Profile};
use lightloom_firmware_api::time::Micros;

fn bytes<const N: usize>(module: &mut Module<Bench>, at: RegisterAddress) -> [u8; N] {
    let mut bytes = [0; N];
    module.read(activated_at(), at, &mut bytes).unwrap();
    bytes
}

#[test]
fn host_finds_applications_by_media_type() {
    let mut module = module();
    // Single-mode fibre; 800GAUI-8 over 800GBASE-DR8, 400GAUI-4 over 400GBASE-DR4, 100GAUI-1 over 100GBASE-DR.
    let seen = bytes::<17>(&mut module, RegisterAddress::lower(85));
    let applications = [0x51, 0x56, 0x88, 0x01, 0x4f, 0x1c, 0x44, 0x11, 0x4b, 0x14, 0x11, 0xff];
    assert_eq!((seen[0], &seen[1..13], seen[13]), (2, &applications[..], 0xff));
    assert_eq!(bytes(&mut module, RegisterAddress::page(1, 176)), [0x01, 0x11, 0xff]);
}

#[test]
fn host_reads_the_manufacturer_and_power() {
    let mut module = module();
    assert_eq!(&bytes::<2>(&mut module, RegisterAddress::page(0, 164)), b"01");
    assert_eq!(&bytes::<8>(&mut module, RegisterAddress::page(0, 182)), b"260901  ");
    // The three high bits contain power class 6, the next byte 12 W in quarter watts.
    assert_eq!(bytes(&mut module, RegisterAddress::page(0, 200)), [5 << 5, 48]);
    assert_eq!(bytes(&mut module, RegisterAddress::page(0, 203)), [13], "MPO 2x16");
    assert_eq!(bytes(&mut module, RegisterAddress::page(0, 212)), [6], "1310 nm EML");
    let page = bytes::<95>(&mut module, RegisterAddress::page(0, 128));
    let sum = page[..94].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!(page[94], sum);
}

#[test]
fn power_class_allows_the_maximum_power() {
    // Limits of the QSFP-DD and OSFP power classes in quarter watts.
    let limits = [6, 14, 28, 32, 40, 48, 56];
    for watts in 0..=63u8 {
        let class = limits.iter().position(|&limit| u16::from(watts) * 4 <= limit).unwrap_or(7);
        assert_eq!(usize::from(power_class(watts)), class, "{watts} W");
    }
    let mut small =
        Module::new(Profile { power_max_watts: 1, ..PROFILE }, Bench::default(), Micros::ZERO);
    assert_eq!(bytes(&mut small, RegisterAddress::page(0, 200)), [0, 4]);
}

#[test]
fn host_reads_supported_controls_flags_and_monitors() {
    let mut module = module();
    // Controls and flags of both directions, module monitors, lane monitors (without bias).
    assert_eq!(
        bytes(&mut module, RegisterAddress::page(1, 155)),
        [0x02, 0x02, 0x00, 0x02, 0x03, 0x06]
    );
    let page = bytes::<128>(&mut module, RegisterAddress::page(1, 128));
    let sum = page[2..127].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!(page[127], sum);
    assert_eq!(Bench::default().bias(Micros::ZERO, 0), None);
}

#[test]
fn thresholds_bracket_the_measured_values() {
    let mut module = module();
    let page = bytes::<128>(&mut module, RegisterAddress::page(2, 128));
    let at =
        |offset: usize| i32::from(u16::from_be_bytes([page[offset - 128], page[offset - 127]]));
    let signed = |offset| at(offset) - if at(offset) > 0x7fff { 0x1_0000 } else { 0 };
    // Four thresholds each for temperature (signed), supply, transmitted power, bias and received power.
    for (first, usual) in
        [(128, 40 * 256), (136, 33_000), (176, 10_000), (184, 35_000), (192, 5_000)]
    {
        let [high, low, warns_high, warns_low] = [0, 2, 4, 6]
            .map(|next| if first == 128 { signed(first + next) } else { at(first + next) });
        assert!(high > warns_high && warns_high > usual, "{first}");
        assert!(usual > warns_low && warns_low > low, "{first}");
    }
    assert_eq!(at(194), i32::from(PROFILE.los.0), "alarm where a lane has lost its signal");
}

#[test]
fn disabled_receiver_output_is_off() {
    let mut module = module();
    assert_eq!(bytes(&mut module, RegisterAddress::page(0x11, 132)), [0xff]);
    module.write(activated_at(), RegisterAddress::page(0x10, 138), &[0x05]).unwrap();
    assert_eq!(bytes(&mut module, RegisterAddress::page(0x11, 132)), [0xfa]);
}

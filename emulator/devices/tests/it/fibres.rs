// SPDX-License-Identifier: Apache-2.0
//! Light arrives only from far ends that send it, over the fibres of the fabric.

use lightloom_devices::{
    AnyDevice, DeviceFault, EmulatedDevice, Line, Port, Rack, RackSlot, load_beside,
};
use lightloom_firmware_api::message::LinkName;
use lightloom_firmware_api::module::Hardware;
use lightloom_firmware_api::time::Micros;
use lightloom_units::{Picoseconds, SimTime};

fn rack() -> Rack {
    let list =
        "fabric: f.yaml\ntransceivers:\n  - names: n{0..3}/b{0..1}\n    power_on: external-1\n";
    let fabric =
        "kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 4, gpus_per_node: 4, k: 2}}\n";
    let (list, mistakes) = load_beside("d.yaml", list.as_bytes(), &mut |_| Ok(fabric.to_owned()));
    list.unwrap_or_else(|| panic!("{mistakes:?}")).rack
}

fn light(rack: &mut Rack, name: &str, number: u8) -> u16 {
    let slot = rack.slot(name).expect("a device");
    let AnyDevice::Transceiver(module) = rack.device_mut(slot) else { panic!("a module") };
    module.device_mut().optics_mut().tap(Micros(2_000_000), number).0
}

#[test]
fn light_arrives_only_while_both_ends_select_a_working_fibre() {
    let mut rack = rack();
    // +1 of n1 is path 1 of b0; -1 of n2 is path 1 of b1.
    assert!(light(&mut rack, "n1/b0", 1) > 0 && light(&mut rack, "n2/b1", 1) > 0);
    assert_eq!(light(&mut rack, "n1/b0", 2), 0, "no light over +2");
    let now = SimTime::START + Picoseconds::from_millis(10);
    for slot in rack.slots_of("n2") {
        rack.apply(now, slot, DeviceFault::Dead, &mut Vec::new());
    }
    assert_eq!(light(&mut rack, "n1/b0", 1), 0);
    assert!(light(&mut rack, "n0/b0", 1) > 0, "a different fibre");
    for slot in rack.slots_of("n2") {
        rack.apply(now, slot, DeviceFault::Clear, &mut Vec::new());
    }
    assert!(light(&mut rack, "n1/b0", 1) > 0);
}

#[test]
fn connects_transceivers_of_a_fabric() {
    let list =
        "fabric: f.yaml\ntransceivers:\n  - {names: \"n{0..3}/b{0..1}\", power_on: external-1}\n";
    let fabric = "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 4, gpus_per_node: 4, k: 2}}\n\
                  jobs:\n  - {name: pretrain, gpus: 8, tp: 8}\n";
    let (list, mistakes) = load_beside("d.yaml", list.as_bytes(), &mut |_| Ok(fabric.to_owned()));
    let mut rack = list.unwrap_or_else(|| panic!("{mistakes:?}")).rack;
    assert!(light(&mut rack, "n1/b0", 1) > 0 && light(&mut rack, "n2/b1", 1) > 0);
}

#[test]
fn node_name_selects_exactly_its_devices() {
    let rack = rack();
    assert_eq!(rack.slots_of("n1").len(), 2);
    assert_eq!(rack.slots_of("n1/b0").len(), 1);
    assert!(rack.slots_of("n").is_empty() && rack.slots_of("n7").is_empty());
}

#[test]
fn failed_module_does_not_answer() {
    let mut rack = rack();
    let slot = rack.slot("n0/b0").expect("a device");
    let (now, mut out) = (SimTime::START, Vec::new());
    rack.open(now, slot, Line(0), Port::Frames, &mut out);
    rack.apply(now, slot, DeviceFault::Dead, &mut out);
    rack.on_bytes(now, slot, Line(0), b"\x00hello\x00", &mut out);
    assert!(out.is_empty());
    let AnyDevice::Transceiver(module) = rack.device_mut(slot) else { panic!("a module") };
    let _ = module.next_wakeup();
}

fn names(rack: &mut Rack) {
    for index in 0..rack.devices().count() {
        let AnyDevice::Transceiver(module) = rack.device_mut(RackSlot(index)) else { continue };
        module.device_mut().optics_mut().set_link_name(LinkName(index as u32 + 1));
    }
    for index in 0..rack.devices().count() {
        rack.apply(SimTime::START, RackSlot(index), DeviceFault::Clear, &mut Vec::new());
    }
}

fn neighbour(rack: &mut Rack, name: &str) -> (u32, u8) {
    let slot = rack.slot(name).expect("a device");
    let AnyDevice::Transceiver(module) = rack.device_mut(slot) else { panic!("a module") };
    let seen = module.device_mut().optics_mut().neighbour(Micros(2_000_000), 0);
    (seen.name.0, seen.path)
}

#[test]
fn module_reports_sender_and_crossed_cables() {
    let mut rack = rack();
    names(&mut rack);
    let name = |rack: &Rack, name: &str| rack.slot(name).expect("a device").0 as u32 + 1;
    let (n1, n2, n3) = (name(&rack, "n1/b0"), name(&rack, "n2/b1"), name(&rack, "n3/b1"));
    assert_eq!(neighbour(&mut rack, "n1/b0"), (n2, 1));
    assert_eq!(neighbour(&mut rack, "n2/b1"), (n1, 1));
    let slot = rack.slot("n1/b0").expect("a device");
    let crossed: DeviceFault = "cross 1 n2/b0.1".parse().expect("a fault");
    assert_eq!(rack.objection(slot, crossed), None);
    rack.apply(SimTime::START, slot, crossed, &mut Vec::new());
    assert_eq!(neighbour(&mut rack, "n1/b0"), (n3, 1), "light from a wrong module");
    rack.apply(SimTime::START, slot, crossed, &mut Vec::new());
    assert_eq!(neighbour(&mut rack, "n1/b0"), (n2, 1), "crossing twice restores the cables");
    for wrong in ["cross 1 n2/b1.1", "cross 1 n9/b0.1", "cross 7 n2/b0.1", "cross 1 n1/b0.1"] {
        let fault = wrong.parse().expect("a fault");
        assert!(rack.objection(slot, fault).is_some(), "{wrong}");
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_agent::memory::ModuleMemory as _;
use lightloom_agent::profile::PathOrder;
use lightloom_devices::EmulatedDevice;
use lightloom_firmware_api::path::{GroupOutcome, Groups, Path};

use crate::bench::{Bare, Held, shipped};

fn order(transaction: u32, path: Path) -> PathOrder {
    let mut paths = [Path::DARK; 8];
    paths[0] = path;
    PathOrder { transaction, policy: 2, paths, groups: Groups(1) }
}

#[test]
fn shipped_profiles_move_light_along_every_path() {
    for name in ["registers", "commands"] {
        let profile = shipped(name, &[]).unwrap();
        let mut memory = Held::new("A1");
        assert!(profile.is_marked(&mut memory).unwrap());
        let paths = [Some(Path::DARK), Path::external(1), Path::external(2), Some(Path::LOOPBACK)];
        for (number, path) in paths.into_iter().flatten().enumerate() {
            let order = order(number as u32 + 1, path);
            let began = memory.now();
            let armed = profile.arm(&mut memory, &order).unwrap();
            assert_eq!(armed[0], GroupOutcome::Success, "{name} {path}");
            assert_ne!(memory.path(), Some(path.code()), "arming moves nothing");
            let (outcomes, active) = profile.fire(&mut memory, &order).unwrap();
            assert_eq!((outcomes[0], active[0]), (GroupOutcome::Success, path), "{name}");
            assert_eq!(memory.path(), Some(path.code()));
            println!("{name}: {path} in {:?} of the module's time", memory.now() - began);
        }
    }
}

#[test]
fn shipped_profiles_drive_a_module_on_a_bare_bus() {
    use lightloom_agent::i2c::I2c;
    for name in ["registers", "commands"] {
        let profile = shipped(name, &[]).unwrap();
        let held = Held::new("A1");
        let mut memory = I2c::new(Bare(held.clone()));
        for (number, path) in
            [Path::external(1), Path::external(2)].into_iter().flatten().enumerate()
        {
            let (order, began) = (order(number as u32 + 1, path), held.now());
            assert_eq!(profile.arm(&mut memory, &order).unwrap()[0], GroupOutcome::Success);
            let (outcomes, active) = profile.fire(&mut memory, &order).unwrap();
            assert_eq!((outcomes[0], active[0]), (GroupOutcome::Success, path), "{name}");
            assert_eq!(held.path(), Some(path.code()));
            println!("{name}: {path} in {:?} of the module's time", held.now() - began);
        }
    }
}

#[test]
fn rejects_unsupported_paths_and_used_transactions() {
    for name in ["registers", "commands"] {
        let profile = shipped(name, &[]).unwrap();
        let mut memory = Held::new("A1");
        let third = Path::external(3).unwrap();
        assert_eq!(profile.arm(&mut memory, &order(1, third)).unwrap()[0], GroupOutcome::Invalid);
        let more = shipped(name, &[("[1, 2]", "[1, 2, 3]")]).unwrap();
        assert_eq!(more.arm(&mut memory, &order(2, third)).unwrap()[0], GroupOutcome::Invalid);
        assert_eq!(memory.path(), Some(15));
        let first = order(3, Path::external(1).unwrap());
        profile.arm(&mut memory, &first).unwrap();
        profile.fire(&mut memory, &first).unwrap();
        let again = order(3, Path::external(2).unwrap());
        assert_eq!(profile.arm(&mut memory, &again).unwrap()[0], GroupOutcome::Rejected, "{name}");
        assert_eq!(memory.path(), Some(1));
    }
}

#[test]
fn module_that_misses_its_path_reports_failure() {
    use lightloom_units::SimTime;
    for (fault, expected) in
        [("stuck", GroupOutcome::HardwareFault), ("slow 50", GroupOutcome::SettleTimeout)]
    {
        for name in ["registers", "commands"] {
            let profile = shipped(name, &[]).unwrap();
            let mut memory = Held::new("A1");
            {
                let mut bench = memory.0.lock().unwrap();
                bench.module.apply(SimTime::START, fault.parse().unwrap(), &mut Vec::new());
            }
            let order = order(1, Path::external(1).unwrap());
            profile.arm(&mut memory, &order).unwrap();
            let (outcomes, _) = profile.fire(&mut memory, &order).unwrap();
            assert_eq!(outcomes[0], expected, "{name} {fault}");
        }
    }
}

#[test]
fn rejects_every_profile_mistake_with_its_location() {
    for (before, after, said) in [
        ("[B0h]", "[B0h, 9Fh]", ["LL0701", "page 9Fh is not reserved for vendors"]),
        ("\"B0h:136\"", "\"10h:143\"", ["LL0701", "10h:143 is on a page"]),
        ("\"B0h:212\"", "\"B5h:212\"", ["LL0701", "not listed in `pages`"]),
        ("\"B0h:212\"", "\"B0h:253\"", ["LL0701", "past the end of the page"]),
        ("{at: \"64\",", "{at: \"82\",", ["LL0701", "82 to 85 of the lower memory"]),
        ("{at: \"68\", bits", "{at: \"3\", bits", ["LL0701", "bytes 3 to 3"]),
        ("taps: \"B0h:217\"", "taps: \"11h:186\"", ["LL0701", "11h:186"]),
        ("groups: 1", "groups: 9", ["LL0702", "9 switch groups"]),
        ("loopback: 15", "loopback: 2", ["LL0702", "two paths have the code 2"]),
        ("loopback: 15", "loopback: 31", ["LL0702", "31 cannot be read back"]),
        ("bytes: [paths]", "bytes: [7]", ["LL0702", "no step writes `paths`"]),
        ("bits: 4", "bits: 5", ["LL0702", "5 bits per group"]),
        ("means: [{code: 1, is: success}, ", "means: [", ["LL0702", "no code means success"]),
        ("{code: 2, is: in-progress}", "{code: 1, is: rejected}", ["LL0702", "two meanings"]),
        ("within: 1s", "within: 0s", ["LL0703", "0, or longer than a minute"]),
        ("dwell: 1ms", "dwell: 2min", ["LL0703", "longer than a minute"]),
    ] {
        let mistakes = shipped("registers", &[(before, after)]).expect_err(after);
        let shown = mistakes.join("\n");
        assert!(said.iter().all(|words| shown.contains(words)), "{after}: {shown}");
        assert!(shown.contains("profile.yaml:"), "{shown}");
    }
    let low = shipped("commands", &[("8001h", "0001h")]).expect_err("a standard command");
    assert!(low[0].contains("LL0701") && low[0].contains("0001h"), "{low:?}");
}

// SPDX-License-Identifier: Apache-2.0
//! A thousand modules in one process on real ptys: one change each, then idle. This test has a
//! separate file, and therefore a separate process, for CPU time measurements.
#![cfg(target_os = "linux")]
#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a measurement reports, and asks the system for its limits"
)]

#[path = "it/live/mod.rs"]
#[allow(dead_code, reason = "it uses a part of it")]
mod live;

use std::time::Duration;

use lightloom_devices::serve::Options;
use lightloom_firmware_api::message::{Arm, Reply, Request, TransactionId};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};
use live::{Framed, Served, now};

const MODULES: usize = 1_000;

fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn exchange(modules: &mut [Framed], request: &Request<'_>, is_good: fn(Reply<'_>) -> bool) {
    for module in modules.iter_mut() {
        module.send(request);
    }
    for (index, module) in modules.iter_mut().enumerate() {
        let good = module.reply(Duration::from_secs(20), is_good);
        assert_eq!(good, Some(true), "module {index}");
    }
}

#[test]
fn one_thousand_modules_switch_then_idle() {
    let room = std::fs::File::open("/proc/sys/kernel/pty/max")
        .and_then(std::io::read_to_string)
        .map_or(0, |text| text.trim().parse().unwrap_or(0));
    if room < MODULES + 200 {
        eprintln!("skipped: the system allows {room} ptys");
        return;
    }
    let served =
        Served::start("transceivers:\n  - names: n{0..499}/b{0..1}\n", &Options::default());
    assert_eq!(served.addresses.len(), MODULES);
    let mut modules: Vec<Framed> =
        served.addresses.iter().map(|address| Framed::open(&address.at)).collect();

    let (began, cpu_before) = (now(), cpu_time());
    let mut paths = [Path::DARK; 8];
    paths[0] = Path::external(1).expect("path 1 exists");
    let transaction = TransactionId(1);
    let arm = Request::Arm(Arm { transaction, policy: DataPathPolicy::Hot, paths });
    exchange(&mut modules, &arm, |reply| matches!(reply, Reply::Armed(_)));
    let fire = Request::Fire { transaction, groups: Groups(1) };
    exchange(
        &mut modules,
        &fire,
        |reply| matches!(reply, Reply::Fired(report) if report.outcomes[0] == GroupOutcome::Success),
    );
    exchange(
        &mut modules,
        &Request::Status,
        |reply| matches!(reply, Reply::Status(report) if report.generation == 1),
    );
    let (took, cpu) = (began.elapsed(), cpu_time() - cpu_before);
    eprintln!(
        "{MODULES} modules armed, fired and read back in {took:?}, {cpu:?} of processor time"
    );
    assert!(cpu < Duration::from_secs(10), "{cpu:?}");

    let cpu_before = cpu_time();
    std::thread::sleep(Duration::from_millis(1_000));
    let idle = cpu_time() - cpu_before;
    eprintln!("idle for a second: {idle:?} of processor time");
    assert!(idle < Duration::from_millis(20), "an idle rack uses no CPU: {idle:?}");
}

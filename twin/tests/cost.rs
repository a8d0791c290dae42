// SPDX-License-Identifier: Apache-2.0
//! What the constants of the cost model are measured by: processor time of reads of transceivers, with the emulated
//! transceivers' share in it, so an upper bound; and of plans around a dead node.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod scenes;

use cpu_time::ProcessTime;
use lightloom_control::bypass;
use lightloom_emulator::scenario::On;
use lightloom_emulator::shipped::{ControlSide, Daemon};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_twin::World;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use scenes::{read, ring, scene};

#[test]
#[ignore = "measures time"]
fn what_reads_and_plans_take() {
    for (nodes, gpus) in [(32, 96), (720, 2_816)] {
        let scenario = read(&ring(nodes, gpus), &scene(1, 1, "lightloomd", "")).unwrap();
        let On::Fabric(fabric) = &scenario.on else { panic!("it runs on a fabric") };
        let plan = bypass::plan_anew(fabric, &FaultSet::none(), Seed(1)).unwrap();
        let mut times: Vec<f64> = (0..20)
            .map(|turn| {
                let began = ProcessTime::now();
                let dead = Part::Node(NodeId(turn * 7 % nodes));
                bypass::next_plan(fabric, &plan, &[dead], &[]).unwrap();
                began.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{nodes} nodes: a plan takes {:.0} us at the median", times[10]);
        let mut world = World::new(fabric, &plan, &Daemon::default(), Seed(1)).unwrap();
        let (began, seconds) = (ProcessTime::now(), 5);
        world.advance(SimTime::START + Picoseconds::from_millis(1_000 * seconds), &mut Vec::new());
        let reads = seconds * u64::from(nodes) * 2;
        let took = began.elapsed().as_secs_f64() * 1e6 / reads as f64;
        println!("{nodes} nodes: a read takes {took:.1} us, its transceiver among it");
    }
}

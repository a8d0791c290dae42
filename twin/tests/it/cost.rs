// SPDX-License-Identifier: Apache-2.0
//! Measures the constants of the cost model: CPU times of plans around a failed node and of
//! transceiver reads, an upper bound because they include the emulated transceivers.

use crate::scenes;
use cpu_time::ProcessTime;
use lightloom_control::replan;
use lightloom_emulator::scenario::On;
use lightloom_emulator::shipped::{ControlSide, DaemonSetup, Happened};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_twin::World;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use scenes::{read, ring, scene};

/// Returns the CPU times in microseconds to start and to complete a bypass.
fn bypass(nodes: u32, gpus: u32, kills: u64) -> [f64; 2] {
    let scenario = read(&ring(nodes, gpus), &scene(1, 1, "lightloomd", "")).unwrap();
    let On::Fabric(fabric) = &scenario.on else { panic!("it runs on a fabric") };
    let plan = replan::plan_anew(fabric, &FaultSet::none(), Seed(1)).unwrap();
    let mut all = [Vec::new(), Vec::new()];
    for kill in 0..kills {
        let dead = format!("{{part: n{}, at: 1us}}", kill * 7 % u64::from(nodes));
        let fault = read(&ring(nodes, gpus), &scene(1, 1, "lightloomd", &dead)).unwrap();
        let fault = lightloom_emulator::scenario::plan(&fault).unwrap();
        let mut world = World::new(fabric, &plan, &DaemonSetup::default(), Seed(kill)).unwrap();
        let (mut now, mut out) = (SimTime::START, Vec::new());
        world.fault(now, &fault.events[0], true, &mut out);
        for _ in 0..4_000 {
            now = now + Picoseconds::from_micros(10);
            out.clear();
            let began = ProcessTime::now();
            world.advance(now, &mut out);
            let took = began.elapsed().as_secs_f64() * 1e6;
            for (_, what) in &out {
                match what {
                    Happened::Bypassing(_) => all[0].push(took),
                    Happened::Ended(_) => all[1].push(took),
                    _ => {}
                }
            }
        }
    }
    all.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    })
}

#[test]
#[ignore = "measures time"]
fn measures_start_and_end_of_a_bypass() {
    for (nodes, gpus, kills) in [(32, 96, 15), (64, 240, 7), (720, 2_816, 3)] {
        let [begin, end] = bypass(nodes, gpus, kills);
        println!(
            "{nodes} nodes: a bypass begins in {begin:.0} us and ends in {end:.0} us, medians of {kills}"
        );
    }
}

#[test]
#[ignore = "measures time"]
fn measures_reads_and_plans() {
    for (nodes, gpus) in [(32, 96), (720, 2_816)] {
        let scenario = read(&ring(nodes, gpus), &scene(1, 1, "lightloomd", "")).unwrap();
        let On::Fabric(fabric) = &scenario.on else { panic!("it runs on a fabric") };
        let plan = replan::plan_anew(fabric, &FaultSet::none(), Seed(1)).unwrap();
        let mut times: Vec<f64> = (0..20)
            .map(|turn| {
                let began = ProcessTime::now();
                let dead = Part::Node(NodeId(turn * 7 % nodes));
                replan::next_plan(fabric, &plan, &[dead], &[]).unwrap();
                began.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{nodes} nodes: a plan takes {:.0} us at the median", times[10]);
        let mut world = World::new(fabric, &plan, &DaemonSetup::default(), Seed(1)).unwrap();
        let (began, seconds) = (ProcessTime::now(), 5);
        world.advance(SimTime::START + Picoseconds::from_millis(1_000 * seconds), &mut Vec::new());
        let reads = seconds * u64::from(nodes) * 2;
        let took = began.elapsed().as_secs_f64() * 1e6 / reads as f64;
        println!("{nodes} nodes: a read takes {took:.1} us, its transceiver among it");
    }
}

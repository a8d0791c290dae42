// SPDX-License-Identifier: Apache-2.0
//! Claims about reconfigurable data-centre fabrics from [`crate::rfabric::claims`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::claims::{Claim, Label, Published, Section, Unit, near};
use super::why::{PublishedRange, Why, assumption, explain};
use crate::architecture::NicRate;
use crate::cost::Level;
use crate::cost::PriceList;
use crate::rfabric::claims::{
    OneShot, Open, PerCost, RfabricClaim, Source, break_even_seconds, forced_seconds,
    rfabric as acceptance_list,
};
use lightloom_fabric::fat_tree::{FatTreeSpec, ReconfigurableFatTree};
use lightloom_planner::rfabric::phases::Phase;
use lightloom_units::{Bytes, Picoseconds};

pub fn rfabric(
    network: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Vec<Claim> {
    let mut read = Section::new("Reconfigurable fabrics, as papers report them", Label::Read);
    let mut bands = Section::new("Reconfigurable fabrics, verbal claims", Label::ReadBandOurs);
    for claim in acceptance_list(network, phases, prices) {
        let section = match claim.source {
            Source::Read => &mut read,
            Source::BandOurs => &mut bands,
        };
        add(section, claim);
    }
    [read.claims, bands.claims].concat()
}

fn add(section: &mut Section, claim: RfabricClaim) {
    let RfabricClaim { claim, low, high, ours, note, .. } = claim;
    let published = match high {
        Some(high) if low > 0.0 => near(f64::midpoint(low, high), (high - low) / 2.0),
        Some(high) => Published::AtMost { value: high },
        None => Published::AtLeast { value: low },
    };
    let is_ratio = claim.contains('÷') || claim.contains("per cost") || claim.contains("the same");
    let unit = if is_ratio { Unit::Times } else { Unit::Count };
    section.stands_for(sentence_of(&claim));
    section.add(claim, unit, published, ours).note = Some(note);
}

/// RFabric compares itself only with fat-trees, and MixNet reports a single setting.
fn sentence_of(claim: &str) -> Option<&'static str> {
    const SENTENCES: [(&str, &str, &str); 4] = [
        (
            "RFabric: ",
            "fat-tree",
            "RFabric: 2.2 to 3.1 times the performance per cost of fat-trees",
        ),
        (
            "MixNet: ",
            "",
            "MixNet: circuits that follow each layer are 1.3 to 1.5 times as fast as one topology per job",
        ),
        ("MixNet's ", "", "MixNet: a step is hardly longer with a delay of 25 ms"),
        ("ACTINA: ", "", "ACTINA: changes inside a collective pay off below 100 µs"),
    ];
    let is =
        |(begins, has, _): &&(&str, &str, &str)| claim.starts_with(begins) && claim.contains(has);
    SENTENCES.iter().find(is).map(|(.., sentence)| *sentence)
}

/// Evaluates all combinations of open parameters; each first choice is ours. `None` if the price file lacks a part.
pub fn why(
    network: &ReconfigurableFatTree,
    phases: &[Phase],
    prices: &PriceList,
) -> Option<Vec<Why>> {
    let spec = network.spec();
    Some(vec![per_cost(network, phases, prices)?, one_shot(), delay(spec), shifts(spec)])
}

fn per_cost(network: &ReconfigurableFatTree, phases: &[Phase], prices: &PriceList) -> Option<Why> {
    let nic = [(true, "in the bill"), (false, "not in the bill")];
    let hosts = [(false, "two modules"), (true, "copper")];
    let core = [(4.0, "4:1"), (2.0, "2:1"), (8.0, "8:1"), (16.0, "16:1")];
    let ocs = [(Level::Mean, "mean"), (Level::Low, "low"), (Level::High, "high")];
    let tiers = [(3, "three tiers"), (2, "two tiers")];
    let communication = [(1.0, "100 %"), (0.5, "50 %"), (0.2, "20 %")];
    let rate = [
        (NicRate::G400, "400 Gb/s"),
        (NicRate::G100, "100 Gb/s"),
        (NicRate::G200, "200 Gb/s"),
        (NicRate::G800, "800 Gb/s"),
    ];
    let assumptions = vec![
        assumption("network card", &nic),
        assumption("hosts to leaves", &hosts),
        assumption("oversubscription of our core", &core),
        assumption("price of an optical port", &ocs),
        assumption("the fat-tree", &tiers),
        assumption("communication in its step", &communication),
        assumption("rate", &rate),
    ];
    let figures = Mutex::new(PerCost::new(network, phases, prices));
    let lacks = AtomicBool::new(false);
    let why = explain(
        "RFabric: performance per cost compared with fat-trees",
        sentence_of("RFabric: fat-tree"),
        PublishedRange::times(2.2, 3.1),
        assumptions,
        |choice| {
            let open = Open {
                bills_nic: nic[choice[0]].0,
                copper_to_hosts: hosts[choice[1]].0,
                core: core[choice[2]].0,
                ocs: ocs[choice[3]].0,
                tiers: tiers[choice[4]].0,
                communication: communication[choice[5]].0,
                rate: rate[choice[6]].0,
            };
            let figure = figures.lock().map_or(None, |mut figures| figures.figure(open));
            figure.unwrap_or_else(|| {
                lacks.store(true, Ordering::Relaxed);
                f64::NAN
            })
        },
    );
    (!lacks.into_inner()).then_some(why)
}

fn one_shot() -> Why {
    let spread = [(0.6, "0.6"), (0.3, "0.3"), (0.9, "0.9"), (1.2, "1.2")];
    let layers = [(8, "8"), (2, "2"), (4, "4"), (16, "16")];
    let compute = [(100, "100 ms"), (25, "25 ms"), (0, "none")];
    let assumptions = vec![
        assumption("spread of the gates (σ of the logarithm)", &spread),
        assumption("layers that one topology serves", &layers),
        assumption("computation before each layer", &compute),
    ];
    explain(
        "MixNet: one topology per job (TopoOpt) ÷ one per layer, mixture",
        sentence_of("MixNet: "),
        PublishedRange::times(1.3, 1.5),
        assumptions,
        |choice| {
            let open = OneShot {
                spread: spread[choice[0]].0,
                layers: layers[choice[1]].0,
                compute_ms: compute[choice[2]].0,
            };
            open.figure()
        },
    )
}

/// MixNet's models compute for 100 ms before each layer; for other claims, the compute time is open.
fn delay(spec: &FatTreeSpec) -> Why {
    let compute = [(100, "100 ms"), (50, "50 ms"), (25, "25 ms"), (0, "none")];
    explain(
        "MixNet: step at a delay of 25 ms ÷ step without delay",
        sentence_of("MixNet's "),
        PublishedRange { no_effect: None, ..PublishedRange::times(1.0, 1.05) },
        vec![assumption("computation before each layer", &compute)],
        |choice| {
            let compute = Picoseconds::from_millis(compute[choice[0]].0);
            let at = |ms| forced_seconds(spec, Picoseconds::from_millis(ms), compute);
            at(25) / at(0)
        },
    )
}

/// The longest switching time that pays off grows with the bytes per shift, which are not stated.
fn shifts(spec: &FatTreeSpec) -> Why {
    let sizes = [(4_096, "4 MiB"), (256, "256 KiB"), (1_024, "1 MiB"), (16_384, "16 MiB")];
    explain(
        "ACTINA: switching time at which changes inside a collective stop paying off",
        sentence_of("ACTINA: "),
        PublishedRange { low: 0.0, high: 100.0, no_effect: None, unit: " µs" },
        vec![assumption("bytes of a shift", &sizes)],
        |choice| 1e6 * break_even_seconds(spec, Bytes(sizes[choice[0]].0 << 10)),
    )
}

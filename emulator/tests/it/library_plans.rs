// SPDX-License-Identifier: Apache-2.0
//! A library's collectives in packets against their closed forms.
use lightloom_collective::{Algorithm, CollectiveKind, Generation, Shape, Site};
use lightloom_emulator::training::library;

const MEBIBYTE: f64 = 1_048_576.0;

/// Runs every plan of `kind` and returns the largest difference, in percent.
fn largest(site: Site, kind: CollectiveKind, mebibytes: f64, algorithms: &[Algorithm]) -> f64 {
    let bytes = mebibytes * MEBIBYTE;
    let ways = site.ways(kind, bytes).into_iter();
    let percent = ways.filter(|way| algorithms.contains(&way.algorithm)).filter_map(|way| {
        let packets = library::seconds(&site, kind, bytes, way)?;
        let percent = 100.0 * (way.seconds / packets - 1.0);
        println!(
            "{} ranks in {}, {mebibytes} MiB, {:?} {:?}: formula {:.1} us, packets {:.1} us, {percent:+.1} %",
            site.ranks, site.domains, way.algorithm, way.protocol, 1e6 * way.seconds, 1e6 * packets,
        );
        Some(percent.abs())
    });
    percent.fold(0.0, f64::max)
}

fn hopper(ranks: u64, domains: u64) -> Site {
    let (generation, shape) = (Generation::Hopper, Shape::Switch);
    let (domain_rate, card_rate) = (450e9, 50e9);
    Site { generation, ranks, domains, shape, domain_rate, card_rate, is_queued: false }
}

#[test]
fn rings_take_their_closed_form_in_packets() {
    for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather] {
        // The closed form counts the steps between domains as NCCL does, `domains - 1` a round; a chunk crosses more.
        for (ranks, domains, within) in [(8, 1, 1.0), (32, 4, 8.0), (16, 16, 1.0)] {
            for mebibytes in [0.125, 1.0, 16.0] {
                let site = hopper(ranks, domains);
                let percent = largest(site, kind, mebibytes, &[Algorithm::Ring]);
                assert!(percent < within, "{percent} %");
            }
        }
    }
}

#[test]
fn trees_take_nearly_their_closed_form_in_packets() {
    let trees = [Algorithm::Tree, Algorithm::NvlsTree];
    for (ranks, domains) in [(32, 4), (128, 16)] {
        for mebibytes in [1.0, 8.0, 32.0] {
            let site = hopper(ranks, domains);
            let percent = largest(site, CollectiveKind::AllReduce, mebibytes, &trees);
            assert!(percent < 25.0, "{percent} %");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Collectives of a communication library, packet by packet and in closed form.
use lightloom_collective::{
    Algorithm, CollectiveKind, Generation, Launch, LibraryTime, Protocol, Site,
};
use lightloom_emulator::training::library;

const MEBIBYTE: f64 = 1_048_576.0;

fn largest(site: Site, kind: CollectiveKind, mebibytes: f64, algorithms: &[Algorithm]) -> f64 {
    // Trees above a mebibyte are not run in LL, because their many small pieces queue behind each
    // other.
    let is_meant = |way: &LibraryTime| {
        let is_late = way.algorithm == Algorithm::Tree && mebibytes > 1.0;
        algorithms.contains(&way.algorithm) && !(is_late && way.protocol == Protocol::Ll)
    };
    let bytes = mebibytes * MEBIBYTE;
    let ways = site.ways(kind, bytes).into_iter();
    let percent = ways.filter(is_meant).filter_map(|way| {
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
    let domain = Site::of_domain(Generation::Hopper, ranks, 450e9);
    Site { domains, card_rate: 50e9, launch: Launch::Host, ..domain }
}

#[test]
fn rings_match_their_closed_form_in_packets() {
    for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather] {
        for (ranks, domains) in [(8, 1), (32, 4), (16, 16)] {
            for mebibytes in [0.125, 1.0, 16.0] {
                let site = hopper(ranks, domains);
                let percent = largest(site, kind, mebibytes, &[Algorithm::Ring]);
                assert!(percent < 0.2, "{percent} %");
            }
        }
    }
}

#[test]
fn trees_between_many_domains_are_not_run() {
    let site = hopper(64, 8);
    let ways = site.ways(CollectiveKind::AllReduce, MEBIBYTE).into_iter();
    let (rings, trees): (Vec<_>, Vec<_>) = ways.partition(|way| way.algorithm == Algorithm::Ring);
    let runs = |way: &LibraryTime| {
        library::seconds(&site, CollectiveKind::AllReduce, MEBIBYTE, *way).is_some()
    };
    assert!(rings.iter().all(runs) && !trees.iter().any(runs));
}

/// Regression test: the formula counted each byte between two domains twice, like a tree with more.
#[test]
fn trees_between_two_domains_send_each_byte_once() {
    let trees = [Algorithm::Tree, Algorithm::NvlsTree];
    for mebibytes in [8.0, 32.0] {
        let percent = largest(hopper(16, 2), CollectiveKind::AllReduce, mebibytes, &trees);
        assert!(percent < 2.0, "{percent} %");
    }
}

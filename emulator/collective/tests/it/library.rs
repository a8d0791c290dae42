// SPDX-License-Identifier: Apache-2.0
//! The library's choices, and pipelines limited by their slowest stage.
use lightloom_collective::{
    Algorithm, CollectiveKind, Generation, Launch, LibraryTime, Protocol, Shape, Site,
};

const MEBIBYTE: f64 = 1_048_576.0;

fn hopper(ranks: u64, domains: u64) -> Site {
    let domain = Site::of_domain(Generation::Hopper, ranks, 450e9);
    Site { domains, card_rate: 50e9, launch: Launch::Host, ..domain }
}

fn chosen(site: Site, kind: CollectiveKind, mebibytes: f64) -> LibraryTime {
    let no_sharp = |way, _| way != Algorithm::Sharp;
    site.choose(kind, mebibytes * MEBIBYTE, no_sharp).unwrap()
}

#[test]
fn large_all_reduce_pipelines_its_stages() {
    // Measured: 255.5 GB/s on average from 64 MiB; sequential stages would give 53.5 GB/s.
    let time = chosen(hopper(4096, 512), CollectiveKind::AllReduce, 1024.0);
    let bus = CollectiveKind::AllReduce.bus_factor(4096) * 1024.0 * MEBIBYTE / time.seconds;
    assert_eq!(time.algorithm, Algorithm::NvlsTree);
    assert!((280e9..370e9).contains(&bus), "{bus}");
}

#[test]
fn one_hopper_node_switches_from_ll_to_nvls_above_one_mebibyte() {
    // Observed on H200 (stas00/ml-engineering): LL up to 1 MiB, NVLS from 2 MiB and above four
    // GPUs.
    let chosen = |ranks, mebibytes| {
        let time = chosen(hopper(ranks, 1), CollectiveKind::AllReduce, mebibytes);
        (time.algorithm, time.protocol)
    };
    assert_eq!(chosen(8, 1.0), (Algorithm::Ring, Protocol::Ll));
    assert_eq!(chosen(8, 2.0), (Algorithm::Nvls, Protocol::Simple));
    assert_eq!(chosen(4, 8192.0), (Algorithm::Ring, Protocol::Simple));
}

/// On a ring of 64 at 800 GB/s, the model chose NVLS with 1083 GB/s.
#[test]
fn domain_without_switch_uses_rings_below_its_link_rate() {
    let bytes = 16_384.0 * MEBIBYTE;
    for (shape, domain_rate, links) in [(Shape::Ring, 800e9, 16.0), (Shape::Torus, 270e9, 3.0)] {
        let site = Site { shape, domain_rate, ..hopper(64, 1) };
        let ways = site.ways(CollectiveKind::AllReduce, bytes);
        assert!(ways.iter().all(|way| way.algorithm == Algorithm::Ring), "{ways:?}");
        let bus =
            |way: &LibraryTime| CollectiveKind::AllReduce.bus_factor(64) * bytes / way.seconds;
        assert!(ways.iter().all(|way| bus(way) <= domain_rate), "{ways:?}");
        let seconds = |site: Site| chosen(site, CollectiveKind::AllToAll, 16_384.0).seconds;
        let ratio = seconds(site) / seconds(Site { shape: Shape::Switch, ..site });
        assert!((ratio / links - 1.0).abs() < 0.01, "{shape:?}: {ratio}");
    }
}

#[test]
fn collective_time_grows_with_size() {
    for kind in [CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll] {
        for (ranks, domains) in [(2, 1), (8, 1), (16, 2), (64, 8), (64, 64), (4096, 512)] {
            let time = |power: i32| chosen(hopper(ranks, domains), kind, 2f64.powi(power)).seconds;
            assert!((-10..14).all(|power| time(power) < time(power + 1)), "{kind:?} {ranks}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Checks prefix caching against closed forms and conservation laws.

use proptest::prelude::*;

use super::super::{ReplicaCosts, Request, StepCosts, serve, serve_prefixes};
use super::*;

fn costs() -> ReplicaCosts {
    ReplicaCosts {
        gpus: 8,
        decode: (0..=8).map(|batch| 0.01 + 0.0001 * f64::from(batch)).collect(),
        cached_token: 1e-7,
        cache_tokens: 20_000,
        prompt: [0.002, 1e-5, 1e-10],
    }
}

fn setup(sharing: PrefixSharing, tokens: u64) -> PrefixSetup {
    PrefixSetup { sharing, segment: 100, tokens, token_seconds: 1e-6 }
}

fn asked(parts: &[(f64, u32, u32, u32)]) -> (Vec<Request>, Vec<Prefix>) {
    let mut at = 0.0;
    let of = |(gap, id, shared, own): &(f64, u32, u32, u32)| {
        at += gap;
        let prompt = shared + own;
        let request = Request { arrives: at, prompt, output: 5, ..Request::default() };
        (request, Prefix { id: *id, tokens: *shared })
    };
    parts.iter().map(of).unzip()
}

/// All requests share one segment. The first computes it; the others find it locally or fetch it
/// over the network.
#[test]
fn endless_pool_of_one_segment_matches_its_closed_form() {
    let (costs, setup) = (costs(), setup(PrefixSharing::Pool, u64::MAX));
    // The requests are far enough apart that none overlap.
    let parts: Vec<_> = (0..10).map(|_| (10.0, 7, 100, 30)).collect();
    let (requests, prefixes) = asked(&parts);
    let served = serve_prefixes(&costs, 1, (&requests, &prefixes), setup);
    let counts = served.prefixes.unwrap();
    assert_eq!((counts.hit, counts.moved, counts.prefilled), (900, 0, vec![100 + 10 * 30]));
    for (at, (request, first)) in requests.iter().zip(&served.first).enumerate() {
        let seconds = costs.prompt_seconds(130);
        let saved = if at == 0 { 0.0 } else { 100.0 * (1e-5 + 100.0 * 1e-10) };
        assert!((first - request.arrives - seconds + saved).abs() < 1e-9, "{at}: {first}");
    }
    // Requests in simultaneous pairs: one of each pair is on the other replica and fetches the
    // segment.
    let gap = |at| if at % 2 == 0 { 10.0 } else { 0.0 };
    let parts: Vec<_> = (0..10).map(|at| (gap(at), 7, 100, 30)).collect();
    let (requests, prefixes) = asked(&parts);
    let served = serve_prefixes(&costs, 2, (&requests, &prefixes), setup);
    let counts = served.prefixes.unwrap();
    // The first pair finds nothing, and the pool keeps only one of its two copies.
    assert_eq!((counts.hit, counts.moved, counts.sent), (800, 400, vec![400, 0]));
    let waits = |at: usize| served.first[at] - requests[at].arrives;
    assert!((waits(9) - waits(8) - 100.0 * 1e-6).abs() < 1e-9, "{}", waits(9) - waits(8));
}

/// One of four prefixes has most of the requests, more than one replica can serve. With local
/// caches both replicas store it and have no room for the others; the pool has room.
#[test]
fn pool_stores_once_what_replicas_store_separately() {
    let ids = |at: u32| if at % 10 < 7 { 0 } else { 1 + at % 3 };
    let parts: Vec<_> = (0..1_000).map(|at| (0.003, ids(at), 100, 30)).collect();
    let (requests, prefixes) = asked(&parts);
    let hit = |sharing| {
        let served = serve_prefixes(&costs(), 2, (&requests, &prefixes), setup(sharing, 200));
        served.prefixes.unwrap().hit / 100
    };
    let [pool, local] = [PrefixSharing::Pool, PrefixSharing::Local].map(hit);
    assert!(pool >= 990 && local < 950, "{pool} {local}");
}

/// A segment requested far more often than the others ends up with a copy on every replica that
/// uses it.
#[test]
fn popular_segments_stay_where_they_are_fetched() {
    let ids = |at: u32| if at.is_multiple_of(10) { 1 + at / 10 } else { 0 };
    let moved = |count| {
        let parts: Vec<_> = (0..count).map(|at| (0.01, ids(at), 100, 30)).collect();
        let (requests, prefixes) = asked(&parts);
        let setup = setup(PrefixSharing::Pool, u64::MAX);
        let counts = serve_prefixes(&costs(), 4, (&requests, &prefixes), setup).prefixes.unwrap();
        assert!(counts.hit > u64::from(count) * 80, "{counts:?}");
        counts.moved
    };
    let [early, late] = [300, 600].map(moved);
    assert!(early > 0 && early == late, "{early} and {late} tokens");
}

proptest! {
    /// Tokens found plus tokens prefilled equal the prompt tokens, and tokens sent equal tokens
    /// moved.
    #[test]
    fn every_sharing_mode_conserves_tokens(
        parts in proptest::collection::vec((0.0_f64..0.05, 0_u32..6, 0_u32..500, 1_u32..200), 1..120),
        replicas in 1_u32..5,
        room in 0_u64..1_500,
        is_pool in any::<bool>(),
    ) {
        let sharing = if is_pool { PrefixSharing::Pool } else { PrefixSharing::Local };
        let (requests, prefixes) = asked(&parts);
        let served = serve_prefixes(&costs(), replicas, (&requests, &prefixes), setup(sharing, room));
        let counts = served.prefixes.unwrap();
        let all: u64 = requests.iter().map(|one| u64::from(one.prompt)).sum();
        prop_assert_eq!(counts.hit + counts.prefilled.iter().sum::<u64>(), all);
        prop_assert_eq!(counts.sent.iter().sum::<u64>(), counts.moved);
        prop_assert!(is_pool || counts.moved == 0);
        prop_assert!(served.ended.iter().all(|end| end.is_finite()));
    }

    #[test]
    fn caches_change_nothing_without_shared_prefixes(
        parts in proptest::collection::vec((0.0_f64..0.05, 0_u32..1, 0_u32..1, 1_u32..200), 1..80),
        replicas in 1_u32..5,
        is_pool in any::<bool>(),
    ) {
        let sharing = if is_pool { PrefixSharing::Pool } else { PrefixSharing::Local };
        let (requests, prefixes) = asked(&parts);
        let setup = setup(sharing, 1_000);
        let shared = serve_prefixes(&costs(), replicas, (&requests, &prefixes), setup);
        let plain = serve(&costs(), replicas, &requests, 0);
        prop_assert_eq!(&shared.ended, &plain.ended);
        prop_assert_eq!(shared.first, plain.first);
    }

    #[test]
    fn stores_agree_with_their_segments_and_capacity(
        uses in proptest::collection::vec((0_usize..3, 0_u32..5, 0_u32..400), 1..200),
        room in 0_u64..900,
        is_pool in any::<bool>(),
    ) {
        let sharing = if is_pool { PrefixSharing::Pool } else { PrefixSharing::Local };
        let mut caches = PrefixCaches::new(setup(sharing, room), 3);
        for (at, (replica, id, tokens)) in uses.iter().enumerate() {
            let (prefix, at) = (Prefix { id: *id, tokens: *tokens }, at as f64);
            let (found, there) = caches.take(*replica, prefix, [at, at]);
            prop_assert!(found <= *tokens && there >= at);
            caches.keep(*replica, prefix, found, there);
            let held: usize = caches.segments.values().map(|copies| copies.held.len()).sum();
            prop_assert_eq!(held, caches.stores.iter().map(BTreeMap::len).sum::<usize>());
            for store in &caches.stores {
                prop_assert!(store.len() as u64 * 100 <= room);
            }
            for (segment, copies) in &caches.segments {
                prop_assert!(is_pool || copies.held.len() <= 3);
                for one in &copies.held {
                    prop_assert_eq!(caches.stores[one.replica].get(&one.used), Some(segment));
                }
            }
        }
    }
}

#[test]
fn prompt_remainder_costs_the_whole_minus_its_prefix() {
    let costs = costs();
    let rest = StepCosts::prompt_seconds(&costs, 1_000, 400);
    let (whole, beginning) = (costs.prompt_seconds(1_000), costs.prompt_seconds(400));
    assert!((rest - (whole - beginning + costs.prompt[0])).abs() < 1e-12);
}

// SPDX-License-Identifier: Apache-2.0
//! Packs the chains of several jobs, which may differ in length, along one line. Ignores ToRs.
//!
//! Usable nodes form runs. If all fibres work, a run of L nodes holds any chains with at most L
//! nodes in total, and a dynamic program divides the runs among the jobs. If fibres are missing,
//! the longest chains are placed first.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;

use super::grouping::chains_on_line;
use super::{Chain, Survey, spare};

pub(super) type Need = (usize, usize);

const MOST_STEPS: usize = 2_000_000;

/// If the needs do not all fit, places as many chains as possible, longest first.
pub(super) fn pack(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    needs: &[Need],
) -> Vec<Vec<Chain>> {
    let laid = lay(fabric, survey, free, needs, &by_length(needs));
    if is_enough(&laid, needs) {
        return laid;
    }
    let exact = match spare::are_wanted(fabric) {
        true => None,
        false => divide(survey, free, needs).filter(|chains| is_enough(chains, needs)),
    };
    exact.unwrap_or_else(|| {
        let mut order: Vec<usize> = by_length(needs);
        order.reverse();
        let other = lay(fabric, survey, free, needs, &order);
        if is_enough(&other, needs) { other } else { laid }
    })
}

/// `length` includes a ring's spare.
pub(super) fn most_chains(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    length: usize,
) -> Vec<Chain> {
    if spare::are_wanted(fabric) {
        return spare::most(survey, free, length);
    }
    chains_on_line(survey, free, length)
}

fn is_enough(chains: &[Vec<Chain>], needs: &[Need]) -> bool {
    chains.iter().zip(needs).all(|(chains, need)| chains.len() >= need.1)
}

fn by_length(needs: &[Need]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|need| std::cmp::Reverse(needs[*need].0));
    order
}

fn lay(
    fabric: &Fabric,
    survey: &Survey<'_>,
    free: &[bool],
    needs: &[Need],
    order: &[usize],
) -> Vec<Vec<Chain>> {
    let mut free = free.to_vec();
    let mut laid = vec![Vec::new(); needs.len()];
    for need in order {
        let (length, count) = needs[*need];
        if count == 0 {
            continue;
        }
        let mut chains = most_chains(fabric, survey, &free, length);
        chains.truncate(count);
        for position in chains.iter().flatten() {
            free[position.index()] = false;
        }
        laid[*need] = chains;
    }
    laid
}

fn divide(survey: &Survey<'_>, free: &[bool], needs: &[Need]) -> Option<Vec<Vec<Chain>>> {
    if !survey.all_fibres_work() {
        return None;
    }
    let runs = runs(survey, free);
    let mut wanted: BTreeMap<usize, usize> = BTreeMap::new();
    for (length, groups) in needs {
        *wanted.entry(*length).or_default() += groups;
    }
    let (lengths, counts): (Vec<usize>, Vec<usize>) = wanted.into_iter().unzip();
    let (last, tracked) = counts.split_last()?;
    let states: usize = tracked.iter().map(|count| count + 1).product();
    if states.saturating_mul(states).saturating_mul(runs.len()) > MOST_STEPS {
        return None;
    }
    let shares = Division { lengths: &lengths, counts: tracked }.solve(&runs, *last)?;
    let dealt = deal(&runs, &lengths, &shares, needs);
    dealt.iter().flatten().all(|chain| is_possible(survey, chain)).then_some(dealt)
}

fn is_possible(survey: &Survey<'_>, chain: &Chain) -> bool {
    let (nodes, k) = (survey.hbd().nodes(), survey.hbd().k());
    let pairs = chain.windows(2).map(|pair| (pair[1].0 + nodes - pair[0].0) % nodes);
    let is_long: Vec<bool> = pairs.map(|hop| hop == u32::from(k)).collect();
    k.is_multiple_of(2) || !is_long.windows(2).any(|two| two[0] && two[1])
}

fn runs(survey: &Survey<'_>, free: &[bool]) -> Vec<Chain> {
    let single = chains_on_line(survey, free, 1);
    let nodes = survey.hbd().nodes();
    let reach = u32::from(survey.hbd().k());
    let mut runs: Vec<Chain> = Vec::new();
    for position in single.into_iter().flatten() {
        let near = runs.last().and_then(|run| run.last()).is_some_and(|last| {
            (position.0 + nodes - last.0) % nodes <= reach && position != *last
        });
        match runs.last_mut() {
            Some(run) if near => run.push(position),
            _ => runs.push(vec![position]),
        }
    }
    runs
}

struct Division<'a> {
    /// Chain lengths in ascending order. The number of chains of the last length is maximised.
    lengths: &'a [usize],
    counts: &'a [usize],
}

impl Division<'_> {
    fn solve(&self, runs: &[Chain], last: usize) -> Option<Vec<Vec<usize>>> {
        let states: usize = self.counts.iter().map(|count| count + 1).product();
        let mut most: Vec<Vec<Option<usize>>> = vec![vec![None; states]];
        most[0][0] = Some(0);
        for run in runs {
            let before = most.last().expect("the empty start");
            let mut after = vec![None; states];
            for (state, longest) in before.iter().enumerate() {
                let Some(longest) = longest else { continue };
                for more in 0..states {
                    if let Some((to, fit)) = self.step(state, more, run.len()) {
                        after[to] = after[to].max(Some(longest + fit));
                    }
                }
            }
            most.push(after);
        }
        let mut state = states - 1;
        if most.last()?.get(state).copied().flatten()? < last {
            return None;
        }
        let mut shares = Vec::new();
        for (index, run) in runs.iter().enumerate().rev() {
            let target = most[index + 1][state]?;
            let (from, more, fit) = (0..states)
                .flat_map(|from| (0..states).map(move |more| (from, more)))
                .find_map(|(from, more)| {
                    let (to, fit) = self.step(from, more, run.len())?;
                    (to == state && most[index][from]? + fit == target).then_some((from, more, fit))
                })?;
            let mut share = self.digits(more);
            share.push(fit);
            shares.push(share);
            state = from;
        }
        shares.reverse();
        Some(shares)
    }

    fn digits(&self, mut state: usize) -> Vec<usize> {
        let mut digits = Vec::with_capacity(self.counts.len());
        for count in self.counts {
            digits.push(state % (count + 1));
            state /= count + 1;
        }
        digits
    }

    fn step(&self, state: usize, more: usize, nodes: usize) -> Option<(usize, usize)> {
        let (have, add) = (self.digits(state), self.digits(more));
        let taken: usize = add.iter().zip(self.lengths).map(|(count, length)| count * length).sum();
        let fits = have.iter().zip(&add).zip(self.counts).all(|((a, b), most)| a + b <= *most);
        let room = nodes.checked_sub(taken).filter(|_| fits)?;
        Some((state + more, room / self.lengths.last()?))
    }
}

fn deal(
    runs: &[Chain],
    lengths: &[usize],
    shares: &[Vec<usize>],
    needs: &[Need],
) -> Vec<Vec<Chain>> {
    let mut pools: Vec<Vec<Chain>> = vec![Vec::new(); lengths.len()];
    for (run, share) in runs.iter().zip(shares) {
        let mut rest = run.as_slice();
        for ((length, count), pool) in lengths.iter().zip(share).zip(&mut pools) {
            for _ in 0..*count {
                let (chain, after) = rest.split_at(*length);
                pool.push(chain.to_vec());
                rest = after;
            }
        }
    }
    let dealt = needs.iter().map(|(length, count)| {
        let place = lengths.iter().position(|known| known == length).expect("a known length");
        let pool = &mut pools[place];
        pool.drain(..(*count).min(pool.len())).collect()
    });
    dealt.collect()
}

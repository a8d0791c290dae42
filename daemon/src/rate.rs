// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_control::state::Micros;

/// Maximum number of clients that are tracked individually. All other clients share one limit.
pub(crate) const CLIENTS_MAX: usize = 64;
pub(crate) const OTHERS: &str = "others";

#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub burst: u32,
    pub per_second: u32,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    millionths: u64,
    at: Micros,
}

impl Left {
    fn full(of: Allowance, at: Micros) -> Self {
        Self { millionths: u64::from(of.burst) * 1_000_000, at }
    }

    fn refill(&mut self, of: Allowance, now: Micros) {
        let more = (now - self.at).0.saturating_mul(u64::from(of.per_second));
        let most = u64::from(of.burst) * 1_000_000;
        self.millionths = self.millionths.saturating_add(more).min(most);
        self.at = self.at.max(now);
    }

    fn has_one(&self) -> bool {
        self.millionths >= 1_000_000
    }
}

#[derive(Clone, Debug)]
pub struct Rates {
    each: Allowance,
    all: Allowance,
    clients: BTreeMap<String, Left>,
    together: Option<Left>,
}

impl Rates {
    pub fn new(each: Allowance, all: Allowance) -> Self {
        Self { each, all, clients: BTreeMap::new(), together: None }
    }

    pub fn take(&mut self, client: &str, now: Micros) -> bool {
        let (each, all) = (self.each, self.all);
        let together = self.together.get_or_insert(Left::full(all, now));
        together.refill(all, now);
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(client) {
            self.clients.retain(|_, left| {
                left.refill(each, now);
                left.millionths < u64::from(each.burst) * 1_000_000
            });
        }
        let known = self.clients.len() < CLIENTS_MAX || self.clients.contains_key(client);
        let name = if known { client } else { OTHERS };
        let left = self.clients.entry(name.to_owned()).or_insert(Left::full(each, now));
        left.refill(each, now);
        let there = left.has_one() && together.has_one();
        if there {
            left.millionths -= 1_000_000;
            together.millionths -= 1_000_000;
        }
        there
    }

    pub fn give_back(&mut self, client: &str) {
        let name = if self.clients.contains_key(client) { client } else { OTHERS };
        let of_client = self.clients.get_mut(name).map(|left| (left, self.each));
        let of_all = self.together.as_mut().map(|left| (left, self.all));
        for (left, of) in of_client.into_iter().chain(of_all) {
            let most = u64::from(of.burst) * 1_000_000;
            left.millionths = left.millionths.saturating_add(1_000_000).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        let each = Allowance { burst: 3, per_second: 1 };
        Rates::new(each, Allowance { burst: 5, per_second: 2 })
    }

    fn taken(rates: &mut Rates, client: &str, at: Micros) -> usize {
        (0..100).filter(|_| rates.take(client, at)).count()
    }

    #[test]
    fn each_client_has_a_burst_then_a_fixed_rate() {
        let mut rates = rates();
        assert_eq!(taken(&mut rates, "a", Micros(0)), 3);
        assert_eq!(taken(&mut rates, "b", Micros(0)), 2, "five in total");
        assert_eq!(taken(&mut rates, "a", Micros::from_millis(999)), 0);
        assert_eq!(taken(&mut rates, "a", Micros::from_millis(1000)), 1);
        assert_eq!(
            taken(&mut rates, "a", Micros::from_secs(3600)),
            3,
            "at most the burst is granted"
        );
    }

    #[test]
    fn returned_tokens_are_reusable_and_client_buckets_are_bounded() {
        let mut rates = rates();
        assert_eq!(taken(&mut rates, "a", Micros(0)), 3);
        rates.give_back("a");
        assert_eq!(taken(&mut rates, "a", Micros(0)), 1);
        let mut at = Micros(0);
        for stranger in 0..10_000 {
            at = at + Micros::from_millis(500);
            rates.take(&stranger.to_string(), at);
        }
        assert!(rates.clients.len() <= CLIENTS_MAX + 1, "{}", rates.clients.len());
    }
}

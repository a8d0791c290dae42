// SPDX-License-Identifier: Apache-2.0
//! A network of arcs that share resources. Resource prices grow exponentially with fill.
//!
//! The fill of a resource is the time in seconds that it needs for one round of all flows, so the
//! largest fill is the phase time. The unit of traffic is arbitrary.

#[derive(Clone, Debug)]
pub(super) struct PricedArc {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Pairs of a resource and its seconds per unit of traffic.
    pub(super) uses: Vec<(usize, f64)>,
    /// The reverse arc, if both directions share ports. In this case, only the heavier direction is relevant.
    pub(super) back: Option<usize>,
    pub(super) flow: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Congestion {
    pub(super) arcs: Vec<PricedArc>,
    /// The arcs from each node, with their ends.
    pub(super) arcs_from: Vec<Vec<(usize, usize)>>,
    fill: Vec<f64>,
    /// Price per second of each resource. Unused resources are free.
    prices: Vec<f64>,
    is_used: Vec<bool>,
    /// Additional fill in seconds that raises a price by a factor of e.
    slack: f64,
    top: f64,
}

impl Congestion {
    pub(super) fn new(nodes: usize, things: usize) -> Self {
        let arcs_from = vec![Vec::new(); nodes];
        let (fill, prices) = (vec![0.0; things], vec![1.0; things]);
        let (is_used, slack) = (vec![false; things], f64::INFINITY);
        Self { arcs: Vec::new(), arcs_from, fill, prices, is_used, slack, top: 0.0 }
    }

    pub(super) fn add(&mut self, from: usize, to: usize, uses: Vec<(usize, f64)>) -> usize {
        let index = self.arcs.len();
        uses.iter().for_each(|(thing, _)| self.is_used[*thing] = true);
        self.arcs.push(PricedArc { from, to, uses, back: None, flow: 0.0 });
        self.arcs_from[from].push((index, to));
        index
    }

    pub(super) fn add_both_ways(&mut self, a: usize, b: usize, uses: &[(usize, f64)]) {
        let there = self.add(a, b, uses.to_vec());
        let back = self.add(b, a, uses.to_vec());
        self.arcs[there].back = Some(back);
        self.arcs[back].back = Some(there);
    }

    pub(super) fn nodes(&self) -> usize {
        self.arcs_from.len()
    }

    pub(super) fn seconds(&self) -> f64 {
        let mut fill = vec![0.0_f64; self.fill.len()];
        for (index, arc) in self.arcs.iter().enumerate() {
            let counted = match arc.back {
                None => arc.flow,
                Some(back) if index < back => arc.flow.max(self.arcs[back].flow),
                Some(_) => continue,
            };
            arc.uses.iter().for_each(|(thing, each)| fill[*thing] += counted * each);
        }
        fill.into_iter().fold(0.0, f64::max)
    }

    /// Prices rise by a factor of e whenever the fill grows by `share` of the current time.
    pub(super) fn sharpen(&mut self, share: f64) {
        self.slack = (self.seconds() * share).max(f64::MIN_POSITIVE);
        self.refill();
    }

    fn refill(&mut self) {
        self.fill.fill(0.0);
        for index in 0..self.arcs.len() {
            let counted = match self.arcs[index].back {
                None => self.arcs[index].flow,
                Some(back) if index < back => self.heavier(index, back),
                Some(_) => continue,
            };
            for at in 0..self.arcs[index].uses.len() {
                let (thing, each) = self.arcs[index].uses[at];
                self.fill[thing] += counted * each;
            }
        }
        self.top = self.fill.iter().copied().fold(0.0, f64::max);
        (0..self.fill.len()).for_each(|thing| self.set_price(thing));
    }

    fn set_price(&mut self, thing: usize) {
        let price = ((self.fill[thing] - self.top) / self.slack).exp();
        self.prices[thing] = if self.is_used[thing] { price } else { 0.0 };
    }

    fn turn(&self, arc: usize) -> f64 {
        let most = self.arcs[arc].uses.iter().map(|(_, each)| *each).fold(0.0, f64::max);
        self.slack / most.max(f64::MIN_POSITIVE)
    }

    /// A smooth maximum of both directions that is exact if they are equal, so that unused arcs fill no ports.
    fn heavier(&self, there: usize, back: usize) -> f64 {
        let (a, b, turn) = (self.arcs[there].flow, self.arcs[back].flow, self.turn(there));
        a.max(b) + turn * ((-(a - b).abs() / turn).exp().ln_1p() - std::f64::consts::LN_2)
    }

    /// The share of the price for this direction, from 1 if it is much heavier to 0 if it is much lighter.
    pub(super) fn share(&self, arc: usize) -> f64 {
        match self.arcs[arc].back {
            None => 1.0,
            Some(back) => {
                let more = self.arcs[arc].flow - self.arcs[back].flow;
                1.0 / (1.0 + (-more / self.turn(arc)).exp())
            }
        }
    }

    pub(super) fn prices(&self) -> &[f64] {
        &self.prices
    }

    pub(super) fn arc_prices(&self) -> Vec<f64> {
        (0..self.arcs.len()).map(|arc| self.price(arc)).collect()
    }

    /// Returns the gap to the optimum that flows in balance at these prices have, as a fraction of `seconds`.
    pub(super) fn gap_by_slack(&self, seconds: f64) -> f64 {
        let paid: f64 = self.fill.iter().zip(&self.prices).map(|(fill, price)| fill * price).sum();
        1.0 - paid / (seconds * self.prices.iter().sum::<f64>())
    }

    pub(super) fn price(&self, arc: usize) -> f64 {
        let uses = self.arcs[arc].uses.iter();
        self.share(arc) * uses.map(|(thing, each)| each * self.prices[*thing]).sum::<f64>()
    }

    pub(super) fn rise(&self, arc: usize) -> f64 {
        let share = self.share(arc);
        let uses = || self.arcs[arc].uses.iter().map(|(thing, each)| (each, self.prices[*thing]));
        let by_fill: f64 = uses().map(|(each, price)| each * each * price).sum();
        let by_share: f64 = uses().map(|(each, price)| each * price).sum();
        let turning = match self.arcs[arc].back {
            None => 0.0,
            Some(_) => share * (1.0 - share) * by_share / self.turn(arc),
        };
        share * share * by_fill / self.slack + turning
    }

    pub(super) fn load(&mut self, arc: usize, more: f64) {
        let counted = |this: &Self| match this.arcs[arc].back {
            None => this.arcs[arc].flow,
            Some(back) => this.heavier(arc, back),
        };
        let is_priced = self.slack.is_finite();
        let before = if is_priced { counted(self) } else { 0.0 };
        self.arcs[arc].flow = (self.arcs[arc].flow + more).max(0.0);
        if !is_priced {
            return;
        }
        let change = counted(self) - before;
        for at in 0..self.arcs[arc].uses.len() {
            let (thing, each) = self.arcs[arc].uses[at];
            self.fill[thing] += change * each;
            self.set_price(thing);
        }
    }
}

//! What joins the GPUs, as far as the analytic step sees it, and the closed forms of collectives on it.
//!
//! GPUs that are neighbours in rank order share a high-bandwidth domain of `domain_gpus`; beyond it each
//! GPU has its share of a scale-out network. Rates are what one GPU sends in one direction. Formulas: ring
//! collectives `(n−1)α + (n−1)/n · S/B`, hierarchical ones as ring inside and ring across with `1/g` of the
//! bytes for each GPU.

use serde::Serialize;

/// The shape of the high-bandwidth domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Any GPU reaches any other at full rate.
    Switch,
    /// A ring: full rate to neighbours in the ring, all-to-all crosses `n/4` links on average.
    Ring,
    /// A three-dimensional torus: the rate is split over three dimensions.
    Torus,
}

/// A network as the analytic step sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// Name as users write it.
    pub name: String,
    /// Shape of the high-bandwidth domain.
    pub shape: Shape,
    /// GPUs of a high-bandwidth domain that one group may span.
    pub domain_gpus: u32,
    /// Bytes per second that a GPU sends into the domain, one way, as the data sheet says.
    pub domain_rate: f64,
    /// Bytes per second that a GPU sends into the scale-out network, one way, as the data sheet says.
    pub scale_out_rate: f64,
}

/// Shares of the data-sheet rates that large transfers reach, and what a step of a collective costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Efficiency {
    /// Share of the domain's rate.
    pub domain: f64,
    /// Share of the scale-out rate.
    pub scale_out: f64,
    /// Seconds per ring step inside the domain.
    pub domain_step_seconds: f64,
    /// Seconds per ring step across the scale-out network.
    pub scale_out_step_seconds: f64,
}

/// A set of ranks that communicate: `size` of them, `stride` apart in rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Ranks.
    pub size: u64,
    /// Distance between neighbouring ranks of the group.
    pub stride: u64,
}

impl Network {
    /// How many ranks of `group` share a domain.
    #[must_use]
    pub fn inside(&self, group: Group) -> u64 {
        // A ring joins neighbours; ranks that are apart meet in the scale-out network.
        if self.shape == Shape::Ring && group.stride != 1 {
            return 1;
        }
        let fitting = u64::from(self.domain_gpus) / group.stride.max(1);
        (1..=group.size.min(fitting.max(1)))
            .rev()
            .find(|inside| group.size.is_multiple_of(*inside))
            .unwrap_or(1)
    }

    /// Seconds of a ring all-gather (or reduce-scatter) of an array of `bytes` in all.
    #[must_use]
    pub fn all_gather(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> f64 {
        self.all_gather_parts(group, bytes, efficiency).iter().sum()
    }

    /// The same: inside the domain, and through network cards.
    #[must_use]
    pub fn all_gather_parts(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> [f64; 2] {
        let inside = self.inside(group) as f64;
        let outside = group.size as f64 / inside;
        let within = (inside - 1.0) * efficiency.domain_step_seconds
            + (inside - 1.0) / inside * bytes / (self.domain_rate * efficiency.domain);
        let across = (outside - 1.0) * efficiency.scale_out_step_seconds
            + (outside - 1.0) / outside * bytes
                / inside
                / (self.scale_out_rate * efficiency.scale_out);
        [within, across]
    }

    /// Seconds of an all-reduce of an array of `bytes`: reduce-scatter, then all-gather.
    #[must_use]
    pub fn all_reduce(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> f64 {
        2.0 * self.all_gather(group, bytes, efficiency)
    }

    /// Seconds of an all-to-all in which each rank holds `bytes` and keeps `1/n` of it.
    #[must_use]
    pub fn all_to_all(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> f64 {
        self.all_to_all_parts(group, bytes, efficiency).iter().sum()
    }

    /// The same: inside the domain, and through network cards.
    #[must_use]
    pub fn all_to_all_parts(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> [f64; 2] {
        let inside = self.inside(group) as f64;
        let n = group.size as f64;
        let detour = match self.shape {
            Shape::Switch => 1.0,
            // The mean way round a ring is n/4 links, over two directions.
            Shape::Ring => (inside / 4.0).max(1.0),
            // Three dimensions of side n^(1/3), each with two directions.
            Shape::Torus => (inside.cbrt() * 3.0 / 4.0).max(1.0),
        };
        let within = (inside - 1.0) * efficiency.domain_step_seconds
            + (inside - 1.0) / n * bytes * detour / (self.domain_rate * efficiency.domain);
        let across =
            if inside < n { efficiency.scale_out_step_seconds * (n / inside - 1.0) } else { 0.0 }
                + (n - inside) / n * bytes / (self.scale_out_rate * efficiency.scale_out);
        [within, across]
    }

    /// Seconds for `bytes` from one rank to the next of `group`.
    #[must_use]
    pub fn neighbour(&self, group: Group, bytes: f64, efficiency: &Efficiency) -> f64 {
        if self.inside(group) == group.size {
            return efficiency.domain_step_seconds + bytes / (self.domain_rate * efficiency.domain);
        }
        efficiency.scale_out_step_seconds + bytes / (self.scale_out_rate * efficiency.scale_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dgx() -> Network {
        Network {
            name: "dgx".into(),
            shape: Shape::Switch,
            domain_gpus: 8,
            domain_rate: 450e9,
            scale_out_rate: 50e9,
        }
    }

    const IDEAL: Efficiency = Efficiency {
        domain: 1.0,
        scale_out: 1.0,
        domain_step_seconds: 0.0,
        scale_out_step_seconds: 0.0,
    };

    #[test]
    fn a_ring_alone_takes_its_closed_form() {
        let seconds = dgx().all_reduce(Group { size: 8, stride: 1 }, 450e9, &IDEAL);
        assert!((seconds - 2.0 * 7.0 / 8.0).abs() < 1e-12);
    }

    #[test]
    fn a_group_that_spans_domains_sends_its_share_through_every_card() {
        let group = Group { size: 32, stride: 1 };
        assert_eq!(dgx().inside(group), 8);
        let expected = 7.0 / 8.0 + 3.0 / 4.0 * (450.0 / 8.0 / 50.0);
        assert!((dgx().all_gather(group, 450e9, &IDEAL) - expected).abs() < 1e-9);
        assert_eq!(dgx().inside(Group { size: 32, stride: 8 }), 1);
        assert_eq!(dgx().inside(Group { size: 32, stride: 4 }), 2);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Optical loss between nodes on a k-hop line. Hops that exceed the budget are removed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::codes;
use crate::document::Check;
use crate::fabric::LightBudget;
use crate::khop::{Fibre, KhopRing};

/// Optical loss between transceivers, for each hop length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpticsFile {
    /// Launch power of a transceiver, in dBm.
    pub launch_dbm: f64,
    /// Receiver sensitivity, in dBm.
    pub sensitivity_dbm: f64,
    /// Loss of one pass through the switch inside a transceiver, in dB. Each hop has two passes.
    pub switch_db: f64,
    /// Loss of one connector, in dB.
    #[serde(default)]
    pub connector_db: f64,
    /// Loss of fibre, in dB per kilometre.
    #[serde(default = "fibre_db_per_km")]
    pub fibre_db_per_km: f64,
    /// Fibre of each hop length from 1 to k, shortest first.
    pub hops: Vec<HopFile>,
}

/// The fibre of one hop length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HopFile {
    /// Fibre length in metres.
    pub fibre_m: f64,
    /// Number of connectors along the fibre.
    #[serde(default)]
    pub connectors: u32,
}

/// Single-mode fibre at 1,310 nm.
fn fibre_db_per_km() -> f64 {
    0.4
}

const OPTICS: &str = "/transceiver/optics";

impl OpticsFile {
    fn budget_db(&self) -> f64 {
        self.launch_dbm - self.sensitivity_dbm
    }

    pub(super) fn light(&self) -> LightBudget {
        let hops_dbm = self.hops.iter().map(|hop| self.launch_dbm - self.loss_db(hop)).collect();
        LightBudget { hops_dbm, sensitivity_dbm: self.sensitivity_dbm }
    }

    fn loss_db(&self, hop: &HopFile) -> f64 {
        2.0 * self.switch_db
            + f64::from(hop.connectors) * self.connector_db
            + hop.fibre_m / 1000.0 * self.fibre_db_per_km
    }
}

pub(super) fn cut(ring: &mut KhopRing, optics: &OpticsFile, check: &mut Check<'_>) {
    if !is_sound(ring.k(), optics, check) {
        return;
    }
    let budget = optics.budget_db();
    let mut closed = Vec::new();
    for (hop, place) in (1_u8..).zip(0..optics.hops.len()) {
        let loss = optics.loss_db(&optics.hops[place]);
        if loss <= budget {
            continue;
        }
        closed.push(hop);
        let message =
            format!("a hop over {hop} loses {loss:.2} dB, but {budget:.2} dB are allowed");
        let place = format!("{OPTICS}/hops/{place}");
        match hop {
            1 => check.error(codes::OPTICAL_BUDGET, &place, message).help(
                "neighbours cannot be connected: use a higher launch power or fewer \
                    connectors",
            ),
            _ => check
                .warning(codes::OPTICAL_BUDGET, &place, message)
                .help("rings are not planned over such hops, so fewer bypasses are available"),
        };
    }
    let beyond: Vec<Fibre> = ring.fibres().filter(|fibre| closed.contains(&fibre.hops)).collect();
    beyond.into_iter().for_each(|fibre| ring.remove_fibre(fibre));
}

fn is_sound(k: u8, optics: &OpticsFile, check: &mut Check<'_>) -> bool {
    let mut is_sound = true;
    let mut refuse = |path: String, message: String, help: String| {
        check.error(codes::OPTICAL_BUDGET, &path, message).help(help);
        is_sound = false;
    };
    if optics.hops.len() != usize::from(k) {
        let message = format!("{} hop lengths are listed, but k is {k}", optics.hops.len());
        refuse(
            format!("{OPTICS}/hops"),
            message,
            format!("list {k} entries, the shortest hop first"),
        );
    }
    let losses = [
        ("switch_db", optics.switch_db),
        ("connector_db", optics.connector_db),
        ("fibre_db_per_km", optics.fibre_db_per_km),
    ];
    for (key, loss) in losses.into_iter().filter(|(_, loss)| !(loss.is_finite() && *loss >= 0.0)) {
        let message = format!("{loss} dB is not a valid loss");
        refuse(format!("{OPTICS}/{key}"), message, "use 0 or more".to_owned());
    }
    for (at, hop) in optics.hops.iter().enumerate() {
        if !(hop.fibre_m.is_finite() && hop.fibre_m >= 0.0) {
            let message = format!("{} m is not a valid length", hop.fibre_m);
            refuse(format!("{OPTICS}/hops/{at}/fibre_m"), message, "use 0 or more".to_owned());
        }
    }
    let budget = optics.budget_db();
    if !(budget.is_finite() && budget > 0.0) {
        let message = "the receiver needs more power than the transmitter launches".to_owned();
        let help = "use a power below `launch_dbm`, such as -6".to_owned();
        refuse(format!("{OPTICS}/sensitivity_dbm"), message, help);
    }
    is_sound
}

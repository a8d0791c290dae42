// SPDX-License-Identifier: Apache-2.0
//! What flows do about congestion, as scenario files say it: which scheme, and its figures where they are not
//! those of its source.
//!
//! ```yaml
//! transport:
//!   congestion: dcqcn
//!   dcqcn: {timer: 300us, additive: 400Mbps}
//! ```

use lightloom_engine::transport::{CongestionControl, Dcqcn, Dctcp, Nscc, Swift};
use lightloom_fabric::document::Check;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::transport::TransportFile;

/// What flows do about congestion. Marks come from `switches`: `mark_from` (Kmin) and `mark_ramp` (Kmax, Pmax).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionFile {
    /// Nothing: the window is always open.
    #[default]
    None,
    /// Window by the share of marked packets.
    Dctcp,
    /// Rate by marks, for lossless networks.
    Dcqcn,
    /// Window by delay.
    Swift,
    /// Window by marks and delay, in the style of NSCC; not conforming to Ultra Ethernet.
    Nscc,
    /// Credits that the receiving host gives at the pace of its interfaces, as NDP and EQDS do: the window is what a flow
    /// begins with. Meant for `switches.trim`.
    ReceiverCredit,
}

/// DCTCP's figure; the default is the paper's (Alizadeh et al., SIGCOMM 2010, section 3.4).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DctcpFile {
    /// `1/g`: the share of marked packets is averaged over about so many windows.
    #[schemars(range(min = 1, max = 65536))]
    pub inverse_gain: u32,
}

impl Default for DctcpFile {
    fn default() -> Self {
        Self { inverse_gain: Dctcp::default().inverse_gain }
    }
}

/// DCQCN's figures; the defaults are the paper's (Zhu et al., SIGCOMM 2015), whose rate steps, meant for 40 Gb/s, grow
/// with the rate of the interface.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DcqcnFile {
    /// `1/g` of the average that says how much to cut.
    #[schemars(range(min = 1, max = 65536))]
    pub inverse_gain: u32,
    /// A flow is notified at most once in this time.
    pub notification_interval: Text<Picoseconds>,
    /// Without notifications the rate is raised every so often.
    pub timer: Text<Picoseconds>,
    /// Without notifications the average decays every so often; as `timer` if not written.
    pub alpha_timer: Option<Text<Picoseconds>>,
    /// So many raises go halfway back to the rate before the cut; later ones raise that rate.
    #[schemars(range(min = 1, max = 1000))]
    pub fast_steps: u32,
    /// The rate is raised as well after so many bytes.
    pub byte_counter: Text<Bytes>,
    /// By how much the target rate is raised at first. A thousandth of the interface's rate if not written.
    pub additive: Option<Text<BitsPerSecond>>,
    /// By how much it is raised later. A two-hundredth if not written.
    pub hyper: Option<Text<BitsPerSecond>>,
}

impl Default for DcqcnFile {
    fn default() -> Self {
        let Dcqcn { inverse_gain, notification_interval, timer, fast_steps, byte_counter, .. } =
            Dcqcn::default();
        Self {
            inverse_gain,
            notification_interval: Text(notification_interval),
            timer: Text(timer),
            alpha_timer: None,
            fast_steps,
            byte_counter: Text(byte_counter),
            additive: None,
            hyper: None,
        }
    }
}

/// Swift's figures (Kumar et al., SIGCOMM 2020, algorithm 1); the delays are those of no particular network: an
/// assumption.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwiftFile {
    /// Delay that is aimed for beyond that of the empty path.
    pub queueing_target: Text<Picoseconds>,
    /// More of it for each link of the path.
    pub per_hop: Text<Picoseconds>,
    /// Packets added to the window a round trip (`ai`).
    #[schemars(range(min = 1, max = 1000))]
    pub increase: u32,
    /// How sharply too much delay shrinks the window (`β`), in per cent.
    #[schemars(range(min = 1, max = 100))]
    pub decrease_percent: u32,
    /// The window shrinks by no more at once (`max_mdf`), in per cent.
    #[schemars(range(min = 1, max = 99))]
    pub largest_decrease_percent: u32,
}

impl Default for SwiftFile {
    fn default() -> Self {
        let Swift {
            queueing_target,
            per_hop,
            increase,
            decrease_percent,
            largest_decrease_percent,
        } = Swift::default();
        Self {
            queueing_target: Text(queueing_target),
            per_hop: Text(per_hop),
            increase,
            decrease_percent,
            largest_decrease_percent,
        }
    }
}

/// Figures of the control in the style of NSCC: assumptions.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NsccFile {
    /// Delay that is aimed for beyond that of the empty path.
    pub queueing_target: Text<Picoseconds>,
    /// Packets added to the window a round trip where nothing is marked.
    #[schemars(range(min = 1, max = 1000))]
    pub fair_increase: u32,
    /// Packets added a round trip on top while the path is empty; less the nearer the target.
    #[schemars(range(min = 0, max = 1000))]
    pub proportional_increase: u32,
    /// By how much the window shrinks a round trip at twice the target delay, in per cent.
    #[schemars(range(min = 1, max = 99))]
    pub decrease_percent: u32,
}

impl Default for NsccFile {
    fn default() -> Self {
        let Nscc { queueing_target, fair_increase, proportional_increase, decrease_percent } =
            Nscc::default();
        Self {
            queueing_target: Text(queueing_target),
            fair_increase,
            proportional_increase,
            decrease_percent,
        }
    }
}

/// What flows do about congestion, by what the file says.
pub(super) fn lower_congestion(
    raw: &TransportFile,
    rate: Option<BitsPerSecond>,
    check: &mut Check<'_>,
) -> CongestionControl {
    refuse_others(raw, check);
    match raw.congestion {
        CongestionFile::None => CongestionControl::FixedWindow,
        CongestionFile::Dctcp => {
            let DctcpFile { inverse_gain } = raw.dctcp.unwrap_or_default();
            CongestionControl::Dctcp(Dctcp { inverse_gain })
        }
        CongestionFile::Dcqcn => {
            CongestionControl::Dcqcn(dcqcn(&raw.dcqcn.unwrap_or_default(), rate, check))
        }
        CongestionFile::Swift => {
            CongestionControl::Swift(swift(&raw.swift.unwrap_or_default(), check))
        }
        CongestionFile::Nscc => CongestionControl::Nscc(nscc(&raw.nscc.unwrap_or_default(), check)),
        CongestionFile::ReceiverCredit => CongestionControl::ReceiverCredit,
    }
}

/// Refuses the figures of schemes that are not the one chosen.
fn refuse_others(raw: &TransportFile, check: &mut Check<'_>) {
    let written = [
        ("dctcp", raw.dctcp.is_some(), CongestionFile::Dctcp),
        ("dcqcn", raw.dcqcn.is_some(), CongestionFile::Dcqcn),
        ("swift", raw.swift.is_some(), CongestionFile::Swift),
        ("nscc", raw.nscc.is_some(), CongestionFile::Nscc),
    ];
    for (name, is_written, scheme) in written {
        if is_written && scheme != raw.congestion {
            check
                .error(
                    codes::BAD_CONGESTION,
                    &format!("/transport/{name}"),
                    format!("these are the figures of `{name}`, which flows do not use"),
                )
                .help(format!("write `congestion: {name}`, or leave them out"))
                .depends_on("/transport/congestion");
        }
    }
}

/// Refuses a time, size or rate of nothing.
fn require_some(is_nothing: bool, key: &str, example: &str, check: &mut Check<'_>) {
    if is_nothing {
        let path = format!("/transport/{key}");
        let message = "with nothing here the scheme never moves, or never stops";
        check.error(codes::BAD_CONGESTION, &path, message).help(format!("write `{example}`"));
    }
}

/// Half of the rate has to come back within this by additive raises alone.
const SLOWEST_RETURN: Picoseconds = Picoseconds::from_millis(1_000);

fn dcqcn(raw: &DcqcnFile, rate: Option<BitsPerSecond>, check: &mut Check<'_>) -> Dcqcn {
    let (interval, timer) = (raw.notification_interval.0, raw.timer.0);
    let zero = Picoseconds::ZERO;
    require_some(interval == zero, "dcqcn/notification_interval", "50us", check);
    require_some(timer == zero, "dcqcn/timer", "55us", check);
    require_some(raw.byte_counter.0 == Bytes::ZERO, "dcqcn/byte_counter", "10MB", check);
    let none = |rate: Option<Text<BitsPerSecond>>| rate.is_some_and(|rate| rate.0.get() == 0);
    require_some(none(raw.additive), "dcqcn/additive", "400Mbps", check);
    require_some(none(raw.hyper), "dcqcn/hyper", "2Gbps", check);
    let no_decay = raw.alpha_timer.is_some_and(|timer| timer.0 == zero);
    require_some(no_decay, "dcqcn/alpha_timer", "55us", check);
    if let (Some(rate), Some(additive)) = (rate, raw.additive.filter(|step| step.0.get() > 0)) {
        let steps = rate.get() / 2 / additive.0.get();
        let takes = Picoseconds(steps.saturating_mul(timer.get()));
        if takes > SLOWEST_RETURN {
            let message = format!(
                "at {rate} half of the rate takes {takes} to come back by raises of {} every {timer}",
                additive.0
            );
            let scaled = BitsPerSecond(rate.get() / 1_000);
            // Published figures for slower links are like this, and are run as they are.
            check
                .warning(codes::BAD_CONGESTION, "/transport/dcqcn/additive", message)
                .help(format!("write `{scaled}`, or leave it out"));
        }
    }
    Dcqcn {
        inverse_gain: raw.inverse_gain,
        notification_interval: interval,
        timer,
        alpha_timer: raw.alpha_timer.map(|timer| timer.0),
        fast_steps: raw.fast_steps,
        byte_counter: raw.byte_counter.0,
        additive: raw.additive.map(|rate| rate.0),
        hyper: raw.hyper.map(|rate| rate.0),
    }
}

fn swift(raw: &SwiftFile, check: &mut Check<'_>) -> Swift {
    let target = raw.queueing_target.0;
    require_some(target == Picoseconds::ZERO, "swift/queueing_target", "4us", check);
    Swift {
        queueing_target: target,
        per_hop: raw.per_hop.0,
        increase: raw.increase,
        decrease_percent: raw.decrease_percent,
        largest_decrease_percent: raw.largest_decrease_percent,
    }
}

fn nscc(raw: &NsccFile, check: &mut Check<'_>) -> Nscc {
    let target = raw.queueing_target.0;
    require_some(target == Picoseconds::ZERO, "nscc/queueing_target", "6us", check);
    Nscc {
        queueing_target: target,
        fair_increase: raw.fair_increase,
        proportional_increase: raw.proportional_increase,
        decrease_percent: raw.decrease_percent,
    }
}

// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::transport::{CongestionControl, Dcqcn, RateStep};
use lightloom_fabric::document::Check;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::transport::TransportFile;

/// Congestion control of flows. `switches` configures marking: `mark_from` (Kmin) and `mark_ramp`
/// (Kmax, Pmax).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionFile {
    /// No congestion control: the window is constant.
    #[default]
    None,
    /// Window controlled by the fraction of marked packets.
    Dctcp,
    /// Rate controlled by ECN marks, for lossless networks.
    Dcqcn,
    /// Window controlled by delay.
    Swift,
    /// Window controlled by marks and delay, in the style of NSCC but without conformance to Ultra Ethernet.
    Nscc,
    /// Rate controlled by the load that switch ports report in packets, for lossless networks.
    Hpcc,
    /// Credits issued by the receiving host at the rate of its interfaces, as in NDP and EQDS; the
    /// window is a flow's initial credit. Intended for `switches.trim`.
    ReceiverCredit,
}

/// DCQCN parameters; omitted parameters come from the preset.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DcqcnFile {
    /// Source of omitted parameters.
    pub preset: DcqcnPreset,
    /// `1/g` of the average that determines the size of a rate cut.
    #[schemars(range(min = 1, max = 65536))]
    pub inverse_gain: Option<u32>,
    /// Minimum interval between congestion notifications of a flow.
    pub notification_interval: Option<Text<Picoseconds>>,
    /// Interval between rate increases while no notification arrives.
    pub timer: Option<Text<Picoseconds>>,
    /// Update interval of the average; equals `timer` in the paper.
    pub alpha_timer: Option<Text<Picoseconds>>,
    /// Number of increases that halve the distance to the rate before the cut; later increases raise that rate.
    #[schemars(range(min = 1, max = 1000))]
    pub fast_steps: Option<u32>,
    /// Number of bytes after which the rate also increases.
    pub byte_counter: Option<Text<Bytes>>,
    /// Initial increase of the target rate; a thousandth of the interface rate in the paper.
    pub additive: Option<Text<BitsPerSecond>>,
    /// Later increase of the target rate; a two-hundredth of the interface rate in the paper.
    pub hyper: Option<Text<BitsPerSecond>>,
    /// Minimum interval between rate cuts, as in NVIDIA adapters; the first notification has no
    /// effect. Without it, every notification cuts the rate, as in the paper.
    pub decrease_interval: Option<Text<Picoseconds>>,
    /// With `decrease_interval`, every cut lowers the target to the previous rate, not only the
    /// first cut after an increase.
    pub clamp_target: Option<bool>,
    /// Minimum rate.
    pub least_rate: Option<Text<BitsPerSecond>>,
    /// Whether the window shrinks with the rate.
    pub window_follows_rate: Option<bool>,
}

/// Published parameter sets of DCQCN.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DcqcnPreset {
    /// The paper (Zhu et al., SIGCOMM 2015), with its rate steps for 40 Gb/s scaled to the
    /// interface rate.
    #[default]
    Paper,
    /// Defaults of NVIDIA adapters.
    Nvidia,
    /// `SimAI.conf` of SimAI's ns-3 version.
    Simai,
    /// `dcqcn.cpp` of csg-htsim.
    Htsim,
}

impl DcqcnPreset {
    fn figures(self) -> Dcqcn {
        match self {
            Self::Paper => Dcqcn::default(),
            Self::Nvidia => Dcqcn::NVIDIA,
            Self::Simai => Dcqcn::SIMAI,
            Self::Htsim => Dcqcn::htsim(),
        }
    }
}

pub(super) fn lower_congestion(
    raw: &TransportFile,
    rate: Option<BitsPerSecond>,
    check: &mut Check<'_>,
) -> CongestionControl {
    refuse_others(raw, check);
    match raw.congestion {
        CongestionFile::None => CongestionControl::FixedWindow,
        CongestionFile::Dctcp => CongestionControl::Dctcp(raw.dctcp.unwrap_or_default()),
        CongestionFile::Dcqcn => {
            CongestionControl::Dcqcn(dcqcn(&raw.dcqcn.unwrap_or_default(), rate, check))
        }
        CongestionFile::Swift => {
            let swift = raw.swift.unwrap_or_default();
            require_some(swift.queueing_target.0.0 == 0, "swift/queueing_target", "4us", check);
            CongestionControl::Swift(swift)
        }
        CongestionFile::Nscc => {
            let nscc = raw.nscc.unwrap_or_default();
            let is_nothing = nscc.queueing_target == Some(Text(Picoseconds::ZERO));
            require_some(is_nothing, "nscc/queueing_target", "6us", check);
            CongestionControl::Nscc(nscc)
        }
        CongestionFile::Hpcc => CongestionControl::Hpcc(raw.hpcc.unwrap_or_default()),
        CongestionFile::ReceiverCredit => CongestionControl::ReceiverCredit,
    }
}

fn refuse_others(raw: &TransportFile, check: &mut Check<'_>) {
    let written = [
        ("dctcp", raw.dctcp.is_some(), CongestionFile::Dctcp),
        ("dcqcn", raw.dcqcn.is_some(), CongestionFile::Dcqcn),
        ("swift", raw.swift.is_some(), CongestionFile::Swift),
        ("nscc", raw.nscc.is_some(), CongestionFile::Nscc),
        ("hpcc", raw.hpcc.is_some(), CongestionFile::Hpcc),
    ];
    for (name, is_written, scheme) in written {
        if is_written && scheme != raw.congestion {
            check
                .error(
                    codes::BAD_CONGESTION,
                    &format!("/transport/{name}"),
                    format!(
                        "these settings apply only to `congestion: {name}`, which is not selected"
                    ),
                )
                .help(format!("write `congestion: {name}`, or leave them out"))
                .depends_on("/transport/congestion");
        }
    }
}

fn require_some(is_nothing: bool, key: &str, example: &str, check: &mut Check<'_>) {
    if is_nothing {
        let path = format!("/transport/{key}");
        let message =
            "with 0, congestion control never changes the rate, or never stops changing it";
        check.error(codes::BAD_CONGESTION, &path, message).help(format!("write `{example}`"));
    }
}

/// Maximum time that additive increases may take to restore half of the rate.
const SLOWEST_RETURN: Picoseconds = Picoseconds::from_millis(1_000);

fn dcqcn(raw: &DcqcnFile, rate: Option<BitsPerSecond>, check: &mut Check<'_>) -> Dcqcn {
    for (amount, key, example) in [
        (raw.notification_interval.map(|time| time.0.0), "notification_interval", "50us"),
        (raw.timer.map(|time| time.0.0), "timer", "55us"),
        (raw.alpha_timer.map(|time| time.0.0), "alpha_timer", "55us"),
        (raw.decrease_interval.map(|time| time.0.0), "decrease_interval", "4us"),
        (raw.byte_counter.map(|bytes| bytes.0.0), "byte_counter", "10MB"),
        (raw.additive.map(|rate| rate.0.0), "additive", "400Mbps"),
        (raw.hyper.map(|rate| rate.0.0), "hyper", "2Gbps"),
        (raw.least_rate.map(|rate| rate.0.0), "least_rate", "100Mbps"),
    ] {
        require_some(amount == Some(0), &format!("dcqcn/{key}"), example, check);
    }
    let preset = raw.preset.figures();
    let figures = Dcqcn {
        inverse_gain: raw.inverse_gain.unwrap_or(preset.inverse_gain),
        notification_interval: raw
            .notification_interval
            .map_or(preset.notification_interval, |time| time.0),
        timer: raw.timer.map_or(preset.timer, |time| time.0),
        alpha_timer: raw.alpha_timer.map(|time| time.0).or(preset.alpha_timer),
        fast_steps: raw.fast_steps.unwrap_or(preset.fast_steps),
        byte_counter: raw.byte_counter.map(|bytes| bytes.0).or(preset.byte_counter),
        additive: raw.additive.map_or(preset.additive, |rate| RateStep::Rate(rate.0)),
        hyper: raw.hyper.map_or(preset.hyper, |rate| RateStep::Rate(rate.0)),
        decrease_interval: raw.decrease_interval.map(|time| time.0).or(preset.decrease_interval),
        clamp_target: raw.clamp_target.unwrap_or(preset.clamp_target),
        least_rate: raw.least_rate.map_or(preset.least_rate, |rate| rate.0),
        window_follows_rate: raw.window_follows_rate.unwrap_or(preset.window_follows_rate),
    };
    if raw.clamp_target.is_some() && figures.decrease_interval.is_none() {
        let message = "without `decrease_interval`, every notification lowers the target";
        check
            .error(codes::NO_EFFECT, "/transport/dcqcn/clamp_target", message)
            .help("add `decrease_interval: 4us`, or leave it out");
    }
    warn_of_slow_return(&figures, rate, raw.additive.is_some(), check);
    figures
}

/// Warns about published parameters that were intended for slower links. They are used unchanged.
fn warn_of_slow_return(
    figures: &Dcqcn,
    rate: Option<BitsPerSecond>,
    is_written: bool,
    check: &mut Check<'_>,
) {
    let (Some(rate), RateStep::Rate(additive)) = (rate, figures.additive) else { return };
    let steps = rate.get() / 2 / additive.get().max(1);
    let timer = figures.timer;
    let takes = Picoseconds(steps.saturating_mul(timer.get()));
    if !is_written || takes <= SLOWEST_RETURN {
        return;
    }
    let message = format!(
        "at {rate}, increases of {additive} every {timer} take {takes} to restore half of the rate"
    );
    let scaled = BitsPerSecond(rate.get() / 1_000);
    check
        .warning(codes::BAD_CONGESTION, "/transport/dcqcn/additive", message)
        .help(format!("write `{scaled}`, or leave it out"));
}

#[cfg(test)]
mod tests {
    use lightloom_engine::transport::{Hpcc, Swift};

    use super::*;
    use crate::scenario::Scenario;
    use crate::scenario::file::load;

    fn scenario(transport: &str) -> (Option<Scenario>, String) {
        let text = format!(
            "name: x\non: {{fat_tree: {{radix: 4}}}}\ntransport: {{{transport}}}\n\
             traffic: [{{name: all, run: permutation, bytes: 64KiB}}]\n"
        );
        let (scenario, said) = load("scenario.yaml", text.as_bytes(), &mut |_| unreachable!());
        (scenario, format!("{said:?}"))
    }

    #[test]
    fn reads_parameters_of_hpcc_and_swift() {
        let (read, said) = scenario("congestion: hpcc, hpcc: {target_percent: 90, flows: 8}");
        let hpcc = Hpcc { target_percent: 90, flows: 8, ..Hpcc::default() };
        let transport = read.unwrap_or_else(|| panic!("{said}")).transport;
        assert_eq!(transport.congestion, CongestionControl::Hpcc(hpcc), "{said}");
        let (read, said) = scenario("congestion: swift, swift: {flow_scaling: 0us}");
        let swift = Swift { flow_scaling: Text(Picoseconds::ZERO), ..Swift::default() };
        let transport = read.unwrap_or_else(|| panic!("{said}")).transport;
        assert_eq!(transport.congestion, CongestionControl::Swift(swift), "{said}");
    }

    #[test]
    fn refuses_unusable_and_unselected_hpcc() {
        let (read, said) = scenario("congestion: hpcc, hpcc: {target_percent: 100}");
        assert!(read.is_none(), "{said}");
        let (read, said) = scenario("congestion: nscc, hpcc: {flows: 8}");
        assert!(read.is_none() && said.contains("LL0314"), "{said}");
    }
}

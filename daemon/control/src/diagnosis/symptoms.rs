// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use super::{Link, OverSwitch, PortReading, Symptom};

/// Minimum power that is treated as light, in 1/1000 dBm.
const DARK: i32 = -25_000;
/// Minimum loss relative to the usual power that is not noise, in 1/1000 dB.
const LESS: i32 = 1_200;
/// Excess loss of one lane over the others, or of the last lanes over the first, in 1/1000 dB.
const LANE_LESS: i32 = 2_000;
const TILT: i32 = 1_500;
/// Excess error rate over the usual rate and the effect of missing light, in 1/1000 of a decade.
const MORE_ERRORS: i32 = 1_000;
/// Increase in error rate per decibel of missing light, in 1/1000 of a decade.
const ERRORS_OF_LIGHT: i32 = 500;

pub(super) fn of(links: &[Link]) -> BTreeSet<Symptom> {
    let mut symptoms = BTreeSet::new();
    for link in links {
        for (at, from) in [(0, 1), (1, 0)] {
            of_direction(link, at, from, &mut symptoms);
        }
        if let Some(over) = &link.over {
            of_switch(over, &mut symptoms);
        }
    }
    symptoms
}

fn of_direction(link: &Link, at: usize, from: usize, symptoms: &mut BTreeSet<Symptom>) {
    let (end, far) = (&link.ends[at], &link.ends[from]);
    let (device, sender) = (&end.device, &far.device);
    if !end.now.reachable {
        symptoms.insert(Symptom::Unreachable(device.clone()));
        return;
    }
    if !end.now.stands {
        symptoms.insert(Symptom::Strayed(device.clone()));
    }
    of_sender(&end.now, &mut |lane| {
        symptoms.insert(match lane {
            None => Symptom::SendsNothing(device.clone()),
            Some(lane) => Symptom::LaneSendsNothing(device.clone(), lane),
        });
    });
    let Some((tap, usual)) = end.now.tap.zip(end.usual.tap) else { return };
    if tap < DARK {
        symptoms.insert(Symptom::Dark(device.clone(), sender.clone()));
        return;
    }
    let losses = differences(&end.usual.received, &end.now.received);
    let deaf = !losses.is_empty() && end.now.received.iter().all(|lane| *lane < DARK);
    if deaf {
        symptoms.insert(Symptom::Deaf(device.clone()));
        return;
    }
    let lane = lonely(&losses, LANE_LESS);
    if let Some(lane) = lane {
        symptoms.insert(Symptom::LaneWeak(device.clone(), sender.clone(), lane));
    } else if usual - tap > LESS {
        symptoms.insert(match tilt(&losses) > TILT {
            true => Symptom::Tilted(device.clone(), sender.clone()),
            false => Symptom::Weak(device.clone(), sender.clone()),
        });
    }
    let more_errors = differences(&end.now.errors, &end.usual.errors);
    let unexplained = more_errors.iter().enumerate().map(|(lane, more)| {
        let light = losses.get(lane).map_or(0, |loss| (*loss).max(0));
        more - light * ERRORS_OF_LIGHT / 1_000
    });
    let errors: Vec<i32> = unexplained.collect();
    if !errors.is_empty() && median(&errors) > MORE_ERRORS {
        symptoms.insert(Symptom::Errors(device.clone()));
    } else if lane.is_none()
        && let Some(lane) = lonely(&errors, MORE_ERRORS)
    {
        symptoms.insert(Symptom::LaneErrors(device.clone(), lane));
    }
}

fn of_sender(now: &PortReading, on: &mut impl FnMut(Option<usize>)) {
    let dark: Vec<usize> =
        now.sent.iter().enumerate().filter(|(_, power)| **power < DARK).map(|(n, _)| n).collect();
    if dark.len() == now.sent.len() && !dark.is_empty() {
        return on(None);
    }
    for lane in dark {
        on(Some(lane));
    }
}

fn of_switch(over: &OverSwitch, symptoms: &mut BTreeSet<Symptom>) {
    for (index, port) in over.ports.iter().enumerate() {
        if !port.stands {
            symptoms.insert(Symptom::PortStrayed(over.switch.clone(), port.slot));
        }
        let other = &over.ports[1 - index];
        let [missing, before, left] = [port.arrives, other.arrives, port.leaves]
            .map(|light| light.map_or(0, |(now, usual)| usual - now));
        if missing > LESS {
            symptoms.insert(Symptom::PortMisses(over.switch.clone(), port.slot));
        }
        if left - before > LESS {
            symptoms.insert(Symptom::PortLoses(over.switch.clone(), port.slot));
        }
    }
}

fn differences(more: &[i32], less: &[i32]) -> Vec<i32> {
    match more.len() == less.len() {
        true => more.iter().zip(less).map(|(more, less)| more - less).collect(),
        false => Vec::new(),
    }
}

fn median(values: &[i32]) -> i32 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

fn lonely(values: &[i32], above: i32) -> Option<usize> {
    let middle = median(values);
    let (lane, highest) = values.iter().enumerate().max_by_key(|(_, value)| **value)?;
    // If the adjacent lane is also far above the median, the cause is a slope, not a single lane.
    let others = values.iter().enumerate().filter(|(other, _)| *other != lane);
    let next = others.map(|(_, value)| *value).max()?;
    (highest - middle > above && next - middle <= above / 2).then_some(lane)
}

fn tilt(losses: &[i32]) -> i32 {
    let (first, last) = losses.split_at(losses.len() / 2);
    mean(last) - mean(first)
}

fn mean(values: &[i32]) -> i32 {
    let count = i32::try_from(values.len()).unwrap_or(i32::MAX).max(1);
    values.iter().sum::<i32>() / count
}

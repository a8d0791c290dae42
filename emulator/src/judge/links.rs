// SPDX-License-Identifier: Apache-2.0

use hdrhistogram::Histogram;
use lightloom_engine::capture::{QueueHistograms as Histograms, Watch};
use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkId, PortCount};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::JudgedRun;
use crate::outcome::{LinkClass, LinkResult, QueueFigures, QueueResult, QueueRow};

const BUSIEST: usize = 10;

pub(super) fn results(ran: &JudgedRun<'_>) -> (Vec<LinkClass>, QueueFigures) {
    let substrate = &ran.start.substrate;
    let (classes, names) = (substrate.classes(), substrate.class_names());
    let histograms = Histograms::merge(ran.log.engine().probes().map(Watch::queues));
    let mut all: Option<Histogram<u64>> = None;
    let mut results = Vec::new();
    for (index, class) in names.iter().enumerate() {
        let links = (0..classes.len()).filter(|link| usize::from(classes[*link]) == index);
        let links: Vec<LinkId> = links.map(LinkId::from_index).collect();
        let histogram = histograms.of_class(index);
        let queue = histogram.as_ref().map(queue_result).unwrap_or_default();
        match (&mut all, histogram) {
            (Some(all), Some(more)) => {
                all.add(more).expect("histograms of one run have the same buckets")
            }
            (None, Some(first)) => all = Some(first.clone()),
            (_, None) => {}
        }
        results.push(class_result(ran, class, &links, queue));
    }
    results.retain(|class| class.links_used > 0);
    let paused = (0..classes.len()).map(|link| ran.paused(LinkId::from_index(link)));
    let queues = QueueFigures {
        paused: paused.clone().fold(Picoseconds::ZERO, |sum, paused| sum + paused),
        paused_max: paused.max().unwrap_or_default(),
        ..all.as_ref().map(queues).unwrap_or_default()
    };
    (results, queues)
}

fn queues(histogram: &Histogram<u64>) -> QueueFigures {
    let [p50_bytes, p99_bytes] =
        [0.5, 0.99].map(|quantile| Bytes(histogram.value_at_quantile(quantile)));
    QueueFigures {
        p50_bytes,
        p99_bytes,
        max_bytes: Bytes(histogram.max()),
        ..QueueFigures::default()
    }
}

fn queue_result(histogram: &Histogram<u64>) -> QueueResult {
    let [p50_bytes, p99_bytes, p999_bytes] =
        [0.5, 0.99, 0.999].map(|quantile| Bytes(histogram.value_at_quantile(quantile)));
    QueueResult {
        packets: histogram.len(),
        p50_bytes,
        p99_bytes,
        p999_bytes,
        max_bytes: Bytes(histogram.max()),
        histogram: histogram
            .iter_log(1, 2.0)
            .map(|row| QueueRow {
                at_most_bytes: Bytes(row.value_iterated_to()),
                packets: row.count_since_last_iteration(),
            })
            .filter(|row| row.packets > 0)
            .collect(),
    }
}

fn class_result(
    ran: &JudgedRun<'_>,
    class: &'static str,
    links: &[LinkId],
    queue: QueueResult,
) -> LinkClass {
    let time = ran.log.ended.since(SimTime::START);
    let mut used: Vec<(f64, LinkId)> = links
        .iter()
        .map(|link| (*link, ran.log.engine().port_count(*link)))
        .filter(|(_, count)| count.packets > 0)
        .map(|(link, count)| (utilisation(ran, link, &count, time), link))
        .collect();
    used.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let sum: f64 = used.iter().map(|(utilisation, _)| utilisation).sum();
    LinkClass {
        class,
        links: links.len(),
        links_used: used.len(),
        utilisation_mean: if used.is_empty() { 0.0 } else { sum / used.len() as f64 },
        utilisation_max: used.first().map_or(0.0, |(utilisation, _)| *utilisation),
        queue,
        busiest: used
            .iter()
            .take(BUSIEST)
            .map(|(utilisation, link)| link_result(ran, *utilisation, *link))
            .collect(),
    }
}

fn utilisation(ran: &JudgedRun<'_>, link: LinkId, count: &PortCount, time: Picoseconds) -> f64 {
    let busy = ran.start.substrate.network.link(link).spec.rate.time_for(Bytes(count.bytes));
    if time == Picoseconds::ZERO { 0.0 } else { busy.as_secs_f64() / time.as_secs_f64() }
}

fn link_result(ran: &JudgedRun<'_>, utilisation: f64, link: LinkId) -> LinkResult {
    let count = ran.log.engine().port_count(link);
    LinkResult {
        link: ran.start.substrate.link_name(link),
        utilisation,
        bytes: Bytes(count.bytes),
        dropped: count.dropped,
        marked: count.marked,
        lost: count.lost,
        paused: ran.paused(link),
    }
}

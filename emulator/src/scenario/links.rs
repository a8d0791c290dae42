//! How busy the links were, and how full the queues before them.

use hdrhistogram::Histogram;
use lightloom_engine::capture::{Queues, Watch};
use lightloom_engine::steady::Stage;
use lightloom_engine::{Link, LinkId, Network, PortCount, Role};
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::Serialize;

use super::installed::{Carrier, Installed};
use super::story::Told;

/// Links that are listed one by one in each class.
const BUSIEST: usize = 10;

/// Links of one kind together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkClass {
    /// `gpu-gpu` copper, `fibre`, `gpu-tor`, `tor-gpu`, `switch-switch`.
    pub class: &'static str,
    /// How many there are, each direction counted.
    pub links: usize,
    /// How many carried packets.
    pub links_used: usize,
    /// Mean over the links that carried packets, of the whole run.
    pub utilisation_mean: f64,
    /// That of the busiest.
    pub utilisation_max: f64,
    /// What packets found before them in the queue.
    pub queue: QueueResult,
    /// The busiest links, busiest first.
    pub busiest: Vec<LinkResult>,
}

/// What packets found before them in the queues of a class of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueResult {
    /// Packets counted. Hosts hold their data back in memory: only their acknowledgements queue.
    pub packets: u64,
    /// Half of the packets found no more.
    pub p50_bytes: Bytes,
    /// 99 of 100 packets found no more.
    pub p99_bytes: Bytes,
    /// 999 of 1,000 packets found no more.
    pub p999_bytes: Bytes,
    /// None found more, to three digits.
    pub max_bytes: Bytes,
    /// Packets by the queue they found: at most so many bytes, and more than the row before; powers of two.
    pub histogram: Vec<QueueRow>,
}

/// One row of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// At most so many bytes.
    pub at_most_bytes: Bytes,
    /// So many packets.
    pub packets: u64,
}

/// One link, one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkResult {
    /// Its ends.
    pub link: String,
    /// Share of the run in which it was sending.
    pub utilisation: f64,
    /// Bytes put on the wire.
    pub bytes: Bytes,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets lost on it while it was dark or wrong.
    pub lost: u64,
}

/// The kinds of links.
pub(super) const CLASSES: [&str; 5] = ["gpu-gpu", "fibre", "gpu-tor", "tor-gpu", "switch-switch"];

/// The class of every link, by link.
pub(super) fn classes(network: &Network, installed: &Installed) -> Vec<u8> {
    let class = |index: usize| {
        let link = LinkId::from_index(index);
        let Link { from, to, .. } = *network.link(link);
        match (network.role(from), network.role(to)) {
            (Role::Switch, Role::Switch) => 4,
            (Role::Switch, _) => 3,
            (_, Role::Switch) => 2,
            _ => u8::from(matches!(installed.carrier(link), Carrier::Fibre(..))),
        }
    };
    (0..network.links().len()).map(class).collect()
}

/// A run whose links are looked at.
pub(crate) struct Watched<'a, S> {
    pub(crate) engine: &'a S,
    pub(crate) ended: SimTime,
    /// By link: its class.
    pub(crate) classes: &'a [u8],
    /// By class.
    pub(crate) names: &'a [&'static str],
    pub(crate) link_name: &'a dyn Fn(LinkId) -> String,
}

/// The links of a run on a fabric.
pub(super) fn of_fabric(told: &Told) -> Vec<LinkClass> {
    let network = told.engine.network();
    let link_name = |link| told.installed.link_name(network, link);
    results(&Watched {
        engine: &told.engine,
        ended: told.ended,
        classes: &classes(network, &told.installed),
        names: &CLASSES,
        link_name: &link_name,
    })
}

/// The links of a run, class by class; classes that no packet used are left out.
pub(crate) fn results<S: Stage<Probe = Watch>>(run: &Watched<'_, S>) -> Vec<LinkClass> {
    let queues = Queues::merge(run.engine.probes().map(Watch::queues));
    let result = |(index, class): (usize, &&'static str)| {
        let links = (0..run.classes.len()).filter(|link| usize::from(run.classes[*link]) == index);
        let links: Vec<LinkId> = links.map(LinkId::from_index).collect();
        let queue = queues.of_class(index).as_ref().map(queue_result).unwrap_or_default();
        class_result(run, class, &links, queue)
    };
    let all = run.names.iter().enumerate().map(result);
    all.filter(|class| class.links_used > 0).collect()
}

fn queue_result(histogram: &Histogram<u64>) -> QueueResult {
    let at = |quantile: f64| Bytes(histogram.value_at_quantile(quantile));
    QueueResult {
        packets: histogram.len(),
        p50_bytes: at(0.5),
        p99_bytes: at(0.99),
        p999_bytes: at(0.999),
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

fn class_result<S: Stage>(
    run: &Watched<'_, S>,
    class: &'static str,
    links: &[LinkId],
    queue: QueueResult,
) -> LinkClass {
    let time = run.ended.since(SimTime::START);
    let mut used: Vec<(f64, LinkId, PortCount)> = links
        .iter()
        .map(|link| (*link, run.engine.port_count(*link)))
        .filter(|(_, count)| count.packets > 0)
        .map(|(link, count)| (utilisation(run, link, &count, time), link, count))
        .collect();
    used.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let sum: f64 = used.iter().map(|(utilisation, ..)| utilisation).sum();
    LinkClass {
        class,
        links: links.len(),
        links_used: used.len(),
        utilisation_mean: if used.is_empty() { 0.0 } else { sum / used.len() as f64 },
        utilisation_max: used.first().map_or(0.0, |(utilisation, ..)| *utilisation),
        queue,
        busiest: used.iter().take(BUSIEST).map(|used| link_result(run, used)).collect(),
    }
}

/// Share of `time` that the bytes of a link take at its rate.
fn utilisation<S: Stage>(
    run: &Watched<'_, S>,
    link: LinkId,
    count: &PortCount,
    time: Picoseconds,
) -> f64 {
    let busy = run.engine.network().link(link).spec.rate.time_for(Bytes(count.bytes));
    if time == Picoseconds::ZERO { 0.0 } else { busy.as_secs_f64() / time.as_secs_f64() }
}

fn link_result<S: Stage>(
    run: &Watched<'_, S>,
    (utilisation, link, count): &(f64, LinkId, PortCount),
) -> LinkResult {
    LinkResult {
        link: (run.link_name)(*link),
        utilisation: *utilisation,
        bytes: Bytes(count.bytes),
        dropped: count.dropped,
        marked: count.marked,
        lost: count.lost,
    }
}

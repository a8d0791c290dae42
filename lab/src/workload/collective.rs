// SPDX-License-Identifier: Apache-2.0
//! `lightloom workload collective` computes the duration of a collective as run by NCCL.

use lightloom_emulator::training::library;
use lightloom_training::architecture::architecture;
use lightloom_training::cards;
use lightloom_training::collectives::{
    Algorithm, CollectiveKind, Delivery, Launch, LibraryTime, Protocol, Site,
};
use lightloom_training::network::Group;
use lightloom_units::Bytes;
use serde::Serialize;

use lightloom::choice::{OptionValue, one_of};
use lightloom::output::{VerbOutcome, WrongUsage};
use lightloom::result::ResultArguments;
use lightloom::table::TextTable;

/// Compute how long one collective takes, with the algorithm and protocol used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom workload collective all-reduce --accelerator h100 --gpus 4096 --size 1MiB,64MiB,1GiB
  lightloom workload collective all-reduce --accelerator b200 --gpus 8 --size 64MiB --all
  lightloom workload collective all-reduce --gpus 64 --size 1MiB,64MiB --packets")]
pub(super) struct CollectiveArguments {
    /// Collective to compute.
    #[arg(value_parser = one_of(KINDS))]
    kind: CollectiveKind,
    /// Accelerator, which determines the link rates.
    #[arg(long, value_name = "NAME", default_value = "h100")]
    accelerator: String,
    /// Number of GPUs.
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u64>(2..=1 << 24))]
    gpus: u64,
    /// Data per rank, as in NCCL's tests: before an all-reduce or after an all-gather.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1MiB,64MiB,1GiB")]
    size: Vec<Bytes>,
    /// Domain instead of the GPUs' usual one: khop:2|3|4, nvl:36|72|576, dgx, tpuv4, big-switch.
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Distance between ranks in GPUs, such as 8 outside TP 8.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(1..=1 << 16))]
    stride: u64,
    /// Network between domains.
    #[arg(long, value_name = "NETWORK", default_value = "infiniband", value_parser = ["infiniband", "roce", "efa"])]
    network: String,
    /// Start of the kernel: while the previous one runs, as in NCCL's tests, in a graph, or by the waiting host.
    #[arg(long, value_name = "LAUNCH", default_value = "back-to-back", value_parser = ["back-to-back", "graph", "host"])]
    launch: String,
    /// Show every algorithm and protocol, not only those chosen.
    #[arg(long)]
    all: bool,
    /// Also simulate rings, and trees between two domains, packet by packet (at most 3e8 packets).
    #[arg(long)]
    packets: bool,
    #[command(flatten)]
    result: ResultArguments,
}

/// Libraries have no times for a broadcast.
const KINDS: &[OptionValue<CollectiveKind>] = {
    let [reduce, gather, scatter, pairwise, _] = CollectiveKind::NAMED;
    &[option(reduce), option(gather), option(scatter), option(pairwise)]
};

const fn option(kind: CollectiveKind) -> OptionValue<CollectiveKind> {
    (kind, kind.name(), "")
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    gpus: u64,
    domains: u64,
    rows: Vec<CollectiveRow>,
}

#[derive(Serialize)]
struct CollectiveRow {
    bytes: u64,
    #[serde(flatten)]
    time: LibraryTime,
    bus_gigabytes_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_seconds: Option<f64>,
}

pub(super) fn run(arguments: &CollectiveArguments) -> anyhow::Result<VerbOutcome> {
    let card = cards::accelerator(&arguments.accelerator)?;
    let generation = card.generation().ok_or_else(|| {
        let name = &card.name;
        WrongUsage(format!("no library times for `{name}`: use a100, h100, h200, b200 or gb200"))
    })?;
    let network = match &arguments.arch {
        Some(arch) => architecture(arch)?,
        None => card.network(),
    };
    let group = Group::new(arguments.gpus, arguments.stride);
    let site = Site {
        domains: network.even_domains(group).map_err(|uneven| WrongUsage(uneven.to_string()))?,
        shape: network.shape,
        card_rate: network.scale_out_rate,
        delivery: if arguments.network == "efa" { Delivery::Unordered } else { Delivery::Ordered },
        launch: match &*arguments.launch {
            "host" => Launch::Host,
            "graph" => Launch::Graph,
            _ => Launch::BackToBack,
        },
        ..Site::of_domain(generation, group.size, network.domain_rate)
    };
    let kind = arguments.kind;
    let mut rows = Vec::new();
    for size in &arguments.size {
        let bytes = size.0 as f64;
        let factor = kind.bus_factor(usize::try_from(site.ranks).unwrap_or(usize::MAX));
        let times = if arguments.all {
            site.ways(kind, bytes)
        } else {
            site.choose(kind, bytes, |way, _| way != Algorithm::Sharp).into_iter().collect()
        };
        rows.extend(times.into_iter().map(|time| CollectiveRow {
            bytes: size.0,
            bus_gigabytes_per_second: factor * bytes / time.seconds / 1e9,
            packets_seconds:
                arguments.packets.then(|| library::seconds(&site, kind, bytes, time)).flatten(),
            time,
        }));
    }
    let document = Document {
        schema: "lightloom.collective/v1",
        gpus: site.ranks,
        domains: site.domains,
        rows,
    };
    arguments.result.show(&document, "rows", || text(&document))?;
    Ok(VerbOutcome::Good)
}

fn text(document: &Document) -> String {
    let mut table =
        TextTable::new(["size", "algorithm", "protocol", "µs", "bus GB/s", "packets µs"]);
    for row in &document.rows {
        let algorithm = match row.time.algorithm {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Nvls => "NVLS",
            Algorithm::NvlsTree => "NVLS tree",
            Algorithm::Sharp => "SHARP",
            Algorithm::Pairwise => "pairwise",
        };
        let protocol = match row.time.protocol {
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
            Protocol::Simple => "Simple",
        };
        table.row([
            Bytes(row.bytes).to_string(),
            algorithm.to_owned(),
            protocol.to_owned(),
            format!("{:.1}", 1e6 * row.time.seconds),
            format!("{:.1}", row.bus_gigabytes_per_second),
            row.packets_seconds.map_or("–".to_owned(), |seconds| format!("{:.1}", 1e6 * seconds)),
        ]);
    }
    let s = if document.domains == 1 { "" } else { "s" };
    format!("{} GPUs in {} domain{s}\n\n{table}", document.gpus, document.domains)
}

#[cfg(test)]
mod tests {
    use clap::Args;
    use lightloom_training::architecture::ARCHITECTURES;

    use super::*;

    /// Regression test: the help omitted the supported values khop, tpuv4 and big-switch.
    #[test]
    fn help_lists_every_accepted_architecture() {
        let command = CollectiveArguments::augment_args(clap::Command::new("collective"));
        let option = command.get_arguments().find(|option| option.get_id() == "arch").unwrap();
        let help = option.get_help().unwrap().to_string();
        for name in ARCHITECTURES {
            let (family, size) = name.split_once(':').unwrap_or((name, ""));
            assert!(help.contains(family) && help.contains(size), "{name}: {help}");
        }
    }

    #[test]
    fn prints_one_domain_in_the_singular() {
        let document = |domains| Document { schema: "", gpus: 8, domains, rows: Vec::new() };
        assert!(text(&document(1)).starts_with("8 GPUs in 1 domain\n"));
        assert!(text(&document(2)).starts_with("8 GPUs in 2 domains\n"));
    }
}

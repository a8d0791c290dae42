// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::fault::Part;
use lightloom_planner::why::{Cause, Change, WastedGpus};
use lightloom_units::id::NodeId;

use crate::table::TextTable;

pub(super) fn text(rows: &[WastedGpus]) -> String {
    if rows.is_empty() {
        return "\nNo GPU is wasted.\n".to_owned();
    }
    let mut table =
        TextTable::new(["wasted GPUs", "nodes", "cause", "remedy, cheapest first", "GPUs gained"]);
    for row in rows {
        let cause = match row.cause {
            Cause::Fault => "fault",
            Cause::Drained => "drained",
            Cause::Limit => "limit",
            Cause::Shape => "shape",
        };
        let mut cells = [row.gpus_wasted.to_string(), nodes(&row.nodes), cause.to_owned()];
        let none = [("none found".to_owned(), "-".to_owned())];
        let remedies = row.remedies.iter();
        let remedies: Vec<(String, String)> =
            remedies.map(|one| (spelled(&one.change), one.gpus_gained.to_string())).collect();
        for (change, gained) in if remedies.is_empty() { &none[..] } else { &remedies } {
            let [gpus, nodes, cause] = std::mem::take(&mut cells);
            table.row([gpus, nodes, cause, change.clone(), gained.clone()]);
        }
    }
    format!(
        "\nCauses of the waste. Each remedy was planned; its gain counts all additional GPUs in groups:\n\n{table}"
    )
}

fn spelled(change: &Change) -> String {
    match change {
        Change::Repair { parts } => {
            let parts: Vec<String> = parts.iter().map(Part::to_string).collect();
            format!("repair or return {}", parts.join(" "))
        }
        Change::IgnoreTors => "plan with --separately".to_owned(),
        Change::NoSpares => "spare_per_ring: 0".to_owned(),
        Change::GroupSize { job, tp } => format!("job {job}: tp: {tp}"),
        Change::Reach { k } => format!("k: {k}"),
    }
}

fn nodes(nodes: &[NodeId]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = nodes.iter().take(SHOWN).map(NodeId::to_string).collect();
    match nodes.len().saturating_sub(SHOWN) {
        0 => shown.join(" "),
        more => format!("{} and {more} more", shown.join(" ")),
    }
}

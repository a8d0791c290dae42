// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::fault::Part;
use lightloom_planner::why::{WasteChange, WasteRemedy, WastedGpus};
use lightloom_units::id::NodeId;

use crate::table::TextTable;

pub(super) fn text(rows: &[WastedGpus]) -> String {
    if rows.is_empty() {
        return "\nNo GPU is wasted.\n".to_owned();
    }
    let mut table =
        TextTable::new(["wasted GPUs", "nodes", "cause", "remedy, cheapest first", "GPUs gained"]);
    for row in rows {
        let cause = format!("{:?}", row.cause).to_lowercase();
        let shown: Vec<String> = row.nodes.iter().take(8).map(NodeId::to_string).collect();
        let more = if row.nodes.len() > shown.len() { " …" } else { "" };
        let mut cells = [row.gpus_wasted.to_string(), shown.join(" ") + more, cause];
        let mut remedies: Vec<[String; 2]> = row.remedies.iter().map(spelled).collect();
        if remedies.is_empty() {
            remedies.push(["none found", "-"].map(str::to_owned));
        }
        for remedy in remedies {
            table.row(std::mem::take(&mut cells).into_iter().chain(remedy));
        }
    }
    format!(
        "\nCauses of the waste. Each remedy was planned; its gain counts all additional GPUs in groups:\n\n{table}"
    )
}

fn spelled(remedy: &WasteRemedy) -> [String; 2] {
    let change = match &remedy.change {
        WasteChange::Repair { parts } => {
            let parts: Vec<String> = parts.iter().map(Part::to_string).collect();
            format!("repair or return {}", parts.join(" "))
        }
        WasteChange::IgnoreTors => "plan with --separately".to_owned(),
        WasteChange::NoSpares => "spare_per_ring: 0".to_owned(),
        WasteChange::GroupSize { job, tp } => format!("job {job}: tp: {tp}"),
        WasteChange::Reach { k } => format!("k: {k}"),
    };
    [change, remedy.gpus_gained.to_string()]
}

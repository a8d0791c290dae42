// SPDX-License-Identifier: Apache-2.0
//! Resolves dependencies between the flows of a table and rejects cycles.

use std::collections::BTreeMap;

use lightloom_fabric::document::Diagnostic;

use super::{CsvCell, FlowDependency, ListedFlow, codes};

#[derive(Default)]
pub(super) struct CellOrder<'a> {
    rows: Vec<Vec<CsvCell<'a>>>,
}

impl<'a> CellOrder<'a> {
    pub(super) fn note(&mut self, cells: Vec<CsvCell<'a>>) {
        self.rows.push(cells);
    }

    pub(super) fn settle(&self, flows: &mut [ListedFlow], more: &[&str]) -> Vec<Diagnostic> {
        let [id, after] = ["id", "after"].map(|name| more.iter().position(|at| *at == name));
        let (mut names, mut mistakes) = (BTreeMap::new(), Vec::new());
        if let Some(id) = id {
            for (place, cell) in self.rows.iter().map(|row| &row[id]).enumerate() {
                let name = cell.text();
                if !name.is_empty() && names.insert(name, place).is_some() {
                    let message = format!("another flow also has the id `{name}`");
                    mistakes.push(cell.mistake(codes::BAD_FLOW, message));
                }
            }
        }
        let Some(after) = after else { return mistakes };
        let cells: Vec<&CsvCell<'a>> = self.rows.iter().map(|row| &row[after]).collect();
        for (place, cell) in cells.iter().enumerate() {
            for text in cell.text().split_whitespace() {
                match awaited(text, place, flows, &names) {
                    Ok(found) => flows[place].after.push(found),
                    Err((message, help)) => {
                        let mistake = cell.mistake(codes::BAD_FLOW, message);
                        mistakes.push(mistake.with_help(help));
                    }
                }
            }
        }
        if mistakes.is_empty()
            && let Some(circle) = circle(flows)
        {
            let path = circle.iter().chain(circle.first()).map(|place| {
                let known = names.iter().find(|(_, at)| *at == place);
                known.map_or("", |(name, _)| *name)
            });
            let path: Vec<&str> = path.collect();
            let message = format!("cyclic dependency between flows: {}", path.join(", "));
            let mistake = cells[circle[0]].mistake(codes::BAD_FLOW, message);
            mistakes.push(mistake.with_help("remove one of these dependencies"));
        }
        mistakes
    }
}

fn awaited(
    text: &str,
    place: usize,
    flows: &[ListedFlow],
    names: &BTreeMap<&str, usize>,
) -> Result<FlowDependency, (String, String)> {
    let (name, what) = text.split_once(':').unwrap_or((text, "received"));
    let acknowledged = match what {
        "received" => false,
        "acknowledged" => true,
        _ => {
            let help = format!("use `{name}`, `{name}:received` or `{name}:acknowledged`");
            return Err((format!("`{text}` is not a valid dependency"), help));
        }
    };
    let Some(&flow) = names.get(name) else {
        return Err((
            format!("no flow has the id `{name}`"),
            "use an id from the table".to_owned(),
        ));
    };
    let (own, other) = (&flows[place], &flows[flow]);
    if acknowledged && own.source != other.source {
        let message = format!(
            "flow `{name}` has a different source, so this host does not receive its acknowledgements"
        );
        return Err((message, "use a flow with the same `src`".to_owned()));
    }
    if !acknowledged && own.source != other.destination && flow != place {
        let message = format!(
            "flow `{name}` has a different destination than this flow's source, so this host does not receive its data"
        );
        let help =
            "use a flow whose `dst` is this `src`, or `ID:acknowledged` of one with the same `src`";
        return Err((message, help.to_owned()));
    }
    Ok(FlowDependency { flow, acknowledged })
}

fn circle(flows: &[ListedFlow]) -> Option<Vec<usize>> {
    // 0: unvisited; 1: on the current path; 2: not part of a cycle.
    let mut state = vec![0_u8; flows.len()];
    for begin in 0..flows.len() {
        let mut way: Vec<(usize, usize)> = Vec::new();
        if state[begin] == 0 {
            state[begin] = 1;
            way.push((begin, 0));
        }
        while let Some((flow, next)) = way.last_mut() {
            let Some(awaited) = flows[*flow].after.get(*next) else {
                state[*flow] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            match state[awaited.flow] {
                0 => {
                    state[awaited.flow] = 1;
                    way.push((awaited.flow, 0));
                }
                1 => {
                    let from = way.iter().position(|(at, _)| *at == awaited.flow)?;
                    return Some(way[from..].iter().map(|(at, _)| *at).collect());
                }
                _ => {}
            }
        }
    }
    None
}

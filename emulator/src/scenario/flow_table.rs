// SPDX-License-Identifier: Apache-2.0
//! Flow tables with the columns `start,src,dst,bytes` and optionally `priority`, `id` and `after`.

mod order;

use lightloom_engine::{CONTROL_PRIORITY, VertexId};
use lightloom_fabric::document::{Code, Diagnostic, Excerpt, Place};
use lightloom_units::{Bytes, Picoseconds};

use self::order::CellOrder;
use super::file::codes;

/// A row of a flow table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFlow {
    /// Start time relative to the workload.
    pub start: Picoseconds,
    /// Source host.
    pub source: VertexId,
    /// Destination host.
    pub destination: VertexId,
    /// Data size.
    pub bytes: Bytes,
    /// Priority. `None` uses the workload's priority.
    pub priority: Option<u8>,
    /// Dependencies.
    pub after: Vec<FlowDependency>,
}

/// A dependency on another flow of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDependency {
    /// Index in the table.
    pub flow: usize,
    /// Whether to wait for the acknowledgement rather than the arrival of the data.
    pub acknowledged: bool,
}

const COLUMNS: [&str; 4] = ["start", "src", "dst", "bytes"];
const MORE: [&str; 3] = ["priority", "id", "after"];

const MOST_SHOWN: usize = 20;

/// Reads a flow table. Returns the flows or all errors. `host` looks up a host by name.
pub fn read_flows(
    file: &str,
    bytes: &[u8],
    host: impl Fn(&str) -> Option<VertexId>,
) -> (Vec<ListedFlow>, Vec<Diagnostic>) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let message = "a flow table must be UTF-8 text";
        return (Vec::new(), vec![Diagnostic::whole_file(codes::BAD_FLOW, file, message)]);
    };
    let (mut flows, mut mistakes) = (Vec::new(), Vec::new());
    let mut lines = (1..).zip(text.lines());
    let header = lines.next().map_or("", |(_, line)| line.trim_end());
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let more = columns.strip_prefix(&COLUMNS[..]).filter(|more| {
        let places: Vec<_> =
            more.iter().map(|name| MORE.iter().position(|at| at == name)).collect();
        places.iter().all(Option::is_some) && places.is_sorted_by(|one, other| one < other)
    });
    let Some(more) = more else {
        let at = CsvCell { file, number: 1, line: header, begin: 0, end: header.len() };
        let message = "the first line is not a valid header";
        let help =
            "use `start,src,dst,bytes`, followed by any of `priority`, `id`, `after` in this order";
        return (flows, vec![at.mistake(codes::BAD_FLOW, message).with_help(help)]);
    };
    let mut order = CellOrder::default();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        match row(file, number, line, more, &host) {
            Ok((flow, cells)) => {
                flows.push(flow);
                order.note(cells);
            }
            Err(mistake) => mistakes.push(*mistake),
        }
        if mistakes.len() == MOST_SHOWN {
            break;
        }
    }
    if mistakes.is_empty() {
        mistakes = order.settle(&mut flows, more);
        mistakes.truncate(MOST_SHOWN);
    }
    (flows, mistakes)
}

#[derive(Clone, Copy)]
struct CsvCell<'a> {
    file: &'a str,
    number: u32,
    line: &'a str,
    begin: usize,
    end: usize,
}

impl CsvCell<'_> {
    fn text(&self) -> &str {
        self.line[self.begin..self.end].trim()
    }

    fn mistake(&self, code: Code, message: impl Into<String>) -> Diagnostic {
        let [column, end_column] =
            [self.begin, self.end].map(|byte| self.line[..byte].chars().count() as u32 + 1);
        let excerpt = Excerpt { text: self.line.to_owned(), marked: self.begin..self.end };
        let place = Place { line: self.number, column, end_column, excerpt };
        Diagnostic { place: Some(place), ..Diagnostic::whole_file(code, self.file, message) }
    }
}

fn row<'a>(
    file: &'a str,
    number: u32,
    line: &'a str,
    more: &[&str],
    host: &impl Fn(&str) -> Option<VertexId>,
) -> Result<(ListedFlow, Vec<CsvCell<'a>>), Box<Diagnostic>> {
    let mut cells = Vec::new();
    let mut begin = 0;
    for text in line.split(',') {
        cells.push(CsvCell { file, number, line, begin, end: begin + text.len() });
        begin += text.len() + 1;
    }
    let whole = CsvCell { file, number, line, begin: 0, end: line.len() };
    let columns = COLUMNS.len() + more.len();
    if cells.len() != columns {
        let message = format!("{} cells, but the header has {columns}", cells.len());
        let named: Vec<&str> = COLUMNS.iter().chain(more).copied().collect();
        let help = format!("write all of {}", named.join(","));
        return Err(Box::new(whole.mistake(codes::BAD_FLOW, message).with_help(help)));
    }
    let start = quantity(&cells[0], Picoseconds, "a time such as `10us`")?;
    let bytes = quantity(&cells[3], Bytes, "a size such as `64KiB`")?;
    if bytes == Bytes::ZERO {
        return Err(Box::new(cells[3].mistake(codes::BAD_FLOW, "the flow has a size of 0 bytes")));
    }
    let [source, destination] = [&cells[1], &cells[2]].map(|cell| {
        host(cell.text()).ok_or_else(|| {
            let message = format!("unknown host `{}`", cell.text());
            let help =
                "hosts are the GPUs of a fabric, such as `n0/g0`, or the hosts of the network";
            Box::new(cell.mistake(codes::BAD_FLOW, message).with_help(help))
        })
    });
    let (source, destination) = (source?, destination?);
    if source == destination {
        let message = "source and destination are the same host";
        return Err(Box::new(cells[2].mistake(codes::BAD_FLOW, message)));
    }
    let rest = cells.split_off(COLUMNS.len());
    let first = more.first() == Some(&MORE[0]);
    let priority = rest.first().filter(|_| first).map(priority).transpose()?;
    Ok((ListedFlow { start, source, destination, bytes, priority, after: Vec::new() }, rest))
}

/// A plain number is in the smallest unit.
fn quantity<Q: std::str::FromStr>(
    cell: &CsvCell<'_>,
    bare: impl Fn(u64) -> Q,
    wanted: &str,
) -> Result<Q, Box<Diagnostic>> {
    let text = cell.text();
    let value = text.parse::<u64>().ok().map(bare).or_else(|| text.parse::<Q>().ok());
    value
        .ok_or_else(|| Box::new(cell.mistake(codes::BAD_FLOW, format!("`{text}` is not {wanted}"))))
}

fn priority(cell: &CsvCell<'_>) -> Result<u8, Box<Diagnostic>> {
    let known = cell.text().parse().ok().filter(|priority| *priority < CONTROL_PRIORITY);
    known.ok_or_else(|| {
        let message = format!("`{}` is not a priority; help: use 0 to 6", cell.text());
        Box::new(cell.mistake(codes::BAD_FLOW, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<ListedFlow>, Vec<Diagnostic>) {
        let host = |name: &str| name.strip_prefix('h')?.parse().ok().map(VertexId);
        read_flows("flows.csv", text.as_bytes(), host)
    }

    #[test]
    fn rows_become_flows() {
        let (flows, mistakes) =
            read("start,src,dst,bytes,priority\n10us,h0,h1,64KiB,3\n0, h2, h0, 100, 0\n");
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert_eq!(flows[0].start, Picoseconds::from_micros(10));
        assert_eq!((flows[0].bytes, flows[0].priority), (Bytes(65_536), Some(3)));
        assert_eq!((flows[1].source, flows[1].bytes), (VertexId(2), Bytes(100)));
    }

    #[test]
    fn locates_every_mistake_by_line_and_column() {
        let text = "start,src,dst,bytes\nsoon,h0,h1,1\n0,x,h1,1\n0,h1,h1,1\n0,h0,h1,0\n0,h0,h1\n0,h0,h1,9\n";
        let (flows, mistakes) = read(text);
        assert_eq!(flows.len(), 1);
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        for (lines, wanted) in lines.iter().zip([
            "flows.csv:2:1: error[LL0323]: `soon` is not a time such as `10us`",
            "flows.csv:3:3: error[LL0323]: unknown host `x`",
            "flows.csv:4:6: error[LL0323]: source and destination are the same host",
            "flows.csv:5:9: error[LL0323]: the flow has a size of 0 bytes",
            "flows.csv:6:1: error[LL0323]: 3 cells, but the header has 4",
        ]) {
            assert_eq!(lines, wanted);
        }
        let wrong = read("start,src,dst,bytes,after,id\n").1.remove(0);
        assert!(wrong.help.is_some_and(|help| help.contains("in this order")));
        assert!(read("src,dst\n").1[0].to_string().contains("flows.csv:1:1"));
        assert!(read("").1[0].to_string().contains("is not a valid header"));
    }

    #[test]
    fn flows_wait_for_others_by_name() {
        let text = "start,src,dst,bytes,id,after\n0,h0,h1,9,a,\n0,h1,h2,9,b,a\n0,h1,h3,9,,b:acknowledged a\n";
        let (flows, mistakes) = read(text);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let after = |flow: usize| flows[flow].after.clone();
        let wait = |flow, acknowledged| FlowDependency { flow, acknowledged };
        assert_eq!([after(0), after(1)], [vec![], vec![wait(0, false)]]);
        assert_eq!(after(2), [wait(1, true), wait(0, false)]);
    }

    #[test]
    fn rejects_impossible_flow_dependencies_with_location() {
        let says = |text: &str| {
            let text = format!("start,src,dst,bytes,id,after\n{text}");
            let (_, mistakes) = read(&text);
            mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let circle = says("0,h0,h1,9,a,c\n0,h1,h2,9,b,a\n0,h2,h0,9,c,b\n");
        assert!(
            circle.starts_with(
                "flows.csv:2:13: error[LL0323]: cyclic dependency between flows: a, c, b, a"
            ),
            "{circle}"
        );
        assert!(
            says("0,h0,h1,9,a,x\n")
                .contains("flows.csv:2:13: error[LL0323]: no flow has the id `x`")
        );
        assert!(says("0,h0,h1,9,a,a\n").contains("between flows: a, a"));
        let far = says("0,h0,h1,9,a,\n0,h2,h3,9,b,a\n");
        assert!(
            far.contains("flows.csv:3:13") && far.contains("has a different destination"),
            "{far}"
        );
        let far = says("0,h0,h1,9,a,\n0,h1,h3,9,b,a:acknowledged\n");
        assert!(far.contains("has a different source"), "{far}");
        assert!(
            says("0,h0,h1,9,a,\n0,h1,h2,9,a,\n")
                .contains("flows.csv:3:11: error[LL0323]: another flow also has the id `a`")
        );
        assert!(says("0,h0,h1,9,a,\n0,h1,h2,9,b,a:sent\n").contains("`a:sent`"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Aligned text tables. Columns without values are omitted, and numbers have thousands separators.

use std::fmt;

use comfy_table::{CellAlignment, TableStyle};
use lightloom_units::{Picoseconds, thousands};

/// Text is aligned left and numbers right. `-` represents a missing value.
pub struct TextTable {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    is_verbatim: bool,
}

impl TextTable {
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::with_headings(headings.map(str::to_owned))
    }

    pub fn with_headings(headings: impl IntoIterator<Item = String>) -> Self {
        Self { headings: headings.into_iter().collect(), rows: Vec::new(), is_verbatim: false }
    }

    /// Starts a table with one line per row, without columns.
    pub fn of<R>(rows: impl IntoIterator<Item = R>) -> TableColumns<R> {
        let rows: Vec<R> = rows.into_iter().collect();
        let mut table = Self::with_headings([]);
        table.rows.resize(rows.len(), Vec::new());
        TableColumns { rows, table }
    }

    /// Omits separators, for seeds, ports and other numbers that readers type or search for.
    #[must_use]
    pub fn verbatim(mut self) -> Self {
        self.is_verbatim = true;
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn values(&self, column: usize) -> Option<Vec<&str>> {
        let cells: Vec<&str> =
            self.rows.iter().map(|row| row.get(column).map_or("", String::as_str)).collect();
        let is_empty =
            column > 0 && !cells.is_empty() && cells.iter().all(|cell| matches!(*cell, "" | "-"));
        (!is_empty).then_some(cells)
    }
}

/// A table of `rows` whose columns are added one by one.
#[must_use]
pub struct TableColumns<R> {
    rows: Vec<R>,
    table: TextTable,
}

impl<R> TableColumns<R> {
    /// Adds a column with a cell for each row.
    pub fn column<C: ToString>(mut self, heading: &str, cell: impl Fn(&R) -> C) -> Self {
        self.table.headings.push(heading.to_owned());
        for (cells, row) in self.table.rows.iter_mut().zip(&self.rows) {
            cells.push(cell(row).to_string());
        }
        self
    }

    pub fn table(self) -> TextTable {
        self.table
    }
}

/// Adds thousands separators to numbers of five or more digits, except digits within a word such as a name.
pub fn separated(text: &str) -> String {
    text.split_inclusive([' ', '\n']).map(separated_word).collect()
}

fn separated_word(word: &str) -> String {
    let start = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
    let (sign, number) = word.split_at(start);
    let (whole, rest) =
        number.split_at(number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len()));
    let is_number = sign.chars().all(|c| "$(+-±".contains(c))
        && rest.chars().all(|c| c.is_ascii_digit() || ".,;:)% \n".contains(c));
    if whole.len() < 5 || !is_number {
        return word.to_owned();
    }
    format!("{sign}{}{rest}", thousands(whole))
}

pub fn rounded(time: Picoseconds) -> String {
    let scale = [(1e12, "s"), (1e9, "ms"), (1e6, "µs"), (1e3, "ns"), (1.0, "ps")];
    let value = time.0 as f64;
    let largest = scale.into_iter().find(|(factor, _)| value / factor >= 0.999_95);
    let (factor, unit) = largest.unwrap_or((1.0, "ps"));
    let shown = value / factor;
    match unit {
        "ps" => format!("{shown} ps"),
        _ if shown >= 999.95 => format!("{shown:.0} {unit}"),
        _ if shown >= 99.995 => format!("{shown:.1} {unit}"),
        _ if shown >= 9.9995 => format!("{shown:.2} {unit}"),
        _ => format!("{shown:.3} {unit}"),
    }
}

fn is_numeric(cell: &str) -> bool {
    cell == "-" || cell.trim_start_matches(['-', '$']).starts_with(|c: char| c.is_ascii_digit())
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = (0..self.headings.len()).filter_map(|at| Some((at, self.values(at)?)));
        let columns: Vec<(usize, Vec<&str>)> = columns.collect();
        let mut table = comfy_table::Table::new();
        let headings = columns.iter().map(|(at, _)| &self.headings[*at]);
        table.load_style(TableStyle::new()).set_header(headings);
        for row in 0..self.rows.len() {
            table.add_row(columns.iter().map(|(_, cells)| match self.is_verbatim {
                true => cells[row].to_owned(),
                false => separated(cells[row]),
            }));
        }
        for (column, (_, cells)) in table.column_iter_mut().zip(&columns) {
            column.set_padding((0, 2));
            if !cells.is_empty() && cells.iter().all(|cell| is_numeric(cell)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_text_left_and_numbers_right() {
        let mut table = TextTable::new(["what", "GPUs"]);
        table.row(["used".to_owned(), "64".to_owned()]);
        table.row(["wasted µ".to_owned(), "131072".to_owned()]);
        assert_eq!(table.to_string(), "what         GPUs\nused           64\nwasted µ  131,072\n");
        let verbatim = table.verbatim().to_string();
        assert_eq!(verbatim, "what        GPUs\nused          64\nwasted µ  131072\n");
    }

    #[test]
    fn leaves_out_columns_without_a_value() {
        let mut table = TextTable::new(["job", "CP", "restarts", "note"]);
        table.row(["a", "-", "0", ""].map(str::to_owned));
        table.row(["b", "-", "2", ""].map(str::to_owned));
        assert_eq!(table.to_string(), "job  restarts\na           0\nb           2\n");
    }

    #[test]
    fn separates_thousands_in_numbers_only() {
        let text = "ring-131072 has 131072 GPUs (33024 nodes), $1234567.50; 9999 of 10000";
        let wanted = "ring-131072 has 131,072 GPUs (33,024 nodes), $1,234,567.50; 9999 of 10,000";
        assert_eq!(separated(text), wanted);
    }

    #[test]
    fn rounds_durations_to_four_digits() {
        let shown =
            [0, 950, 999_960, 1_234_567, 10_893_400_000, 999_950_000_000, 3_122_749_000_000]
                .map(|time| rounded(Picoseconds(time)));
        assert_eq!(
            shown,
            ["0 ps", "950 ps", "1.000 µs", "1.235 µs", "10.89 ms", "1.000 s", "3.123 s"]
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Aligned tables for text output, with text on the left and numbers on the right.

use std::fmt;

use comfy_table::{CellAlignment, TableStyle};

pub struct TextTable(comfy_table::Table);

impl TextTable {
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::with_headings(headings.map(str::to_owned))
    }

    /// Creates an empty table with one column per heading.
    pub fn with_headings(headings: impl IntoIterator<Item = String>) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new()).set_header(headings);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self(table)
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells);
    }
}

/// Returns whether a cell begins like a number or is a single dash.
fn is_numeric(cell: &str) -> bool {
    cell == "-" || cell.trim_start_matches(['-', '$']).starts_with(|c: char| c.is_ascii_digit())
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = self.0.clone();
        for column in table.column_iter_mut() {
            let cells = || self.0.column_cells_iter(column.index).flatten();
            if cells().count() > 0 && cells().all(|cell| is_numeric(&cell.content())) {
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
        assert_eq!(table.to_string(), "what        GPUs\nused          64\nwasted µ  131072\n");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Aligned tables for people: text to the left, numbers to the right.

use std::fmt;

/// A table with a heading a column.
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::with_headings(headings.map(str::to_owned))
    }

    /// An empty table with as many columns as there are headings.
    pub fn with_headings(headings: impl IntoIterator<Item = String>) -> Self {
        Self { headings: headings.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell a column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.headings.len(), "a row has one cell a column");
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]).chain([&self.headings[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// A column is numeric when every cell begins like a number or is a lone dash.
    fn is_numeric(&self, column: usize) -> bool {
        let numeric = |cell: &str| {
            cell == "-"
                || cell.trim_start_matches(['-', '$']).starts_with(|c: char| c.is_ascii_digit())
        };
        !self.rows.is_empty() && self.rows.iter().all(|row| numeric(&row[column]))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, bool)> =
            (0..self.headings.len()).map(|c| (self.width(c), self.is_numeric(c))).collect();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let mut line = String::new();
            for (cell, &(width, numeric)) in row.iter().zip(&columns) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) =
                    if numeric { (padding, String::new()) } else { (String::new(), padding) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_left_and_numbers_right() {
        let mut table = Table::new(["what", "GPUs"]);
        table.row(["used".to_owned(), "64".to_owned()]);
        table.row(["wasted µ".to_owned(), "131072".to_owned()]);
        assert_eq!(table.to_string(), "what        GPUs\nused          64\nwasted µ  131072\n");
    }
}

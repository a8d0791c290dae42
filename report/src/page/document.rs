// SPDX-License-Identifier: Apache-2.0
//! The content of a page, from which the three output formats are rendered.

use super::quantity::{ShownQuantity, ShownUnit};

#[derive(Debug, Default)]
pub(super) struct PageDocument {
    pub(super) title: String,
    pub(super) lead: String,
    /// The answer to a question, as a short sentence. Empty if there was none.
    pub(super) answer: String,
    pub(super) headlines: Vec<Headline>,
    pub(super) sections: Vec<PageSection>,
    pub(super) footer: String,
}

#[derive(Debug)]
pub(super) struct Headline {
    pub(super) label: &'static str,
    pub(super) quantity: ShownQuantity,
    /// Comparison: the bound, the share or the spread.
    pub(super) beside: String,
    pub(super) definition: &'static str,
}

#[derive(Debug)]
pub(super) struct PageSection {
    pub(super) id: &'static str,
    pub(super) title: String,
    /// Conclusion in one or two sentences.
    pub(super) conclusion: String,
    pub(super) blocks: Vec<PageBlock>,
}

#[derive(Debug)]
pub(super) enum PageBlock {
    Figure(Figure),
    Table(FigureTable),
    Note(String),
    /// Tables that are collapsed on screen and expanded in print.
    Folded {
        summary: String,
        tables: Vec<FigureTable>,
    },
}

#[derive(Debug)]
pub(super) struct Figure {
    pub(super) id: &'static str,
    /// One `<svg>` element, or one each for wide and narrow screens.
    pub(super) svg: String,
    /// Content and how to read it.
    pub(super) caption: String,
    /// The drawn numbers, for the CSV.
    pub(super) data: Vec<FigureTable>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FigureTable {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A column with its heading and the anchor of its definition, if any.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) heading: String,
    pub(super) definition: Option<&'static str>,
    pub(super) is_numeric: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(ShownQuantity),
    /// A figure with custom text: the plain number for the CSV, its unit, the text.
    Shown {
        value: Option<f64>,
        unit: &'static str,
        text: String,
    },
    Missing,
}

impl FigureTable {
    pub(super) fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), ..Self::default() }
    }

    pub(super) fn words(mut self, heading: &str) -> Self {
        self.columns.push(Column {
            heading: heading.to_owned(),
            definition: None,
            is_numeric: false,
        });
        self
    }

    pub(super) fn numbers(mut self, heading: &str) -> Self {
        self.columns.push(Column {
            heading: heading.to_owned(),
            definition: None,
            is_numeric: true,
        });
        self
    }

    /// Adds a numeric column whose definition is on the page.
    pub(super) fn defined(mut self, heading: &str, definition: &'static str) -> Self {
        let column =
            Column { heading: heading.to_owned(), definition: Some(definition), is_numeric: true };
        self.columns.push(column);
        self
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "{}: a row has one cell a column", self.id);
        self.rows.push(cells);
    }
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) const fn number(value: f64, unit: ShownUnit) -> Self {
        Self::Number(ShownQuantity::new(value, unit))
    }

    pub(super) const fn share(value: f64) -> Self {
        Self::Number(ShownQuantity::share(value))
    }

    pub(super) fn maybe(value: Option<f64>, unit: ShownUnit) -> Self {
        value.map_or(Self::Missing, |value| Self::number(value, unit))
    }

    pub(super) fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::Shown { text, .. } => text.clone(),
            Self::Number(quantity) => quantity.show(),
            Self::Missing => "–".to_owned(),
        }
    }
}

impl PageSection {
    pub(super) fn new(
        id: &'static str,
        title: impl Into<String>,
        conclusion: impl Into<String>,
    ) -> Self {
        Self { id, title: title.into(), conclusion: conclusion.into(), blocks: Vec::new() }
    }
}

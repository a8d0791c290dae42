// SPDX-License-Identifier: Apache-2.0
//! What a page consists of, before it is a page: the three forms are made from this.

use super::quantity::{ShownQuantity, ShownUnit};

/// The whole page.
#[derive(Debug, Default)]
pub(super) struct PageDocument {
    pub(super) title: String,
    /// What this is, in a sentence.
    pub(super) lead: String,
    /// The answer to what was asked, in a short sentence. Empty: nothing was.
    pub(super) answer: String,
    pub(super) headlines: Vec<Headline>,
    pub(super) sections: Vec<PageSection>,
    /// What the page was made from and by.
    pub(super) footer: String,
}

/// A number that is seen first.
#[derive(Debug)]
pub(super) struct Headline {
    pub(super) label: &'static str,
    pub(super) quantity: ShownQuantity,
    /// What it is held against: the bound, the share, the spread.
    pub(super) beside: String,
    /// Anchor of its definition.
    pub(super) definition: &'static str,
}

/// A part of the page.
#[derive(Debug)]
pub(super) struct PageSection {
    /// Anchor.
    pub(super) id: &'static str,
    pub(super) title: String,
    /// What to conclude, in a sentence or two.
    pub(super) conclusion: String,
    pub(super) blocks: Vec<PageBlock>,
}

/// What stands in a section.
#[derive(Debug)]
pub(super) enum PageBlock {
    Figure(Figure),
    Table(FigureTable),
    /// A remark in small print.
    Note(String),
    /// Tables that are folded away on a screen, and shown on paper.
    Folded {
        summary: String,
        tables: Vec<FigureTable>,
    },
}

/// A drawing.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) id: &'static str,
    /// One `<svg>` element, or one for wide and one for narrow screens.
    pub(super) svg: String,
    /// What it shows and how to read it.
    pub(super) caption: String,
    /// The numbers that are drawn: for the CSV.
    pub(super) data: Vec<FigureTable>,
}

/// Numbers in rows.
#[derive(Clone, Debug, Default)]
pub(super) struct FigureTable {
    /// Names it in the CSV.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A column: its heading and, where it has one, the anchor of its definition.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) heading: String,
    pub(super) definition: Option<&'static str>,
    pub(super) is_numeric: bool,
}

/// What stands in a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(ShownQuantity),
    /// A figure that is shown in its own way: the bare number for the CSV, its unit, the text.
    Shown {
        value: Option<f64>,
        unit: &'static str,
        text: String,
    },
    /// Nothing is known.
    Missing,
}

impl FigureTable {
    pub(super) fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), ..Self::default() }
    }

    /// A column of words.
    pub(super) fn words(mut self, heading: &str) -> Self {
        self.columns.push(Column {
            heading: heading.to_owned(),
            definition: None,
            is_numeric: false,
        });
        self
    }

    /// A column of numbers.
    pub(super) fn numbers(mut self, heading: &str) -> Self {
        self.columns.push(Column {
            heading: heading.to_owned(),
            definition: None,
            is_numeric: true,
        });
        self
    }

    /// A column of numbers whose definition stands on the page.
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

    /// For people.
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

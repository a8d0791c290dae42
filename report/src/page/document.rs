// SPDX-License-Identifier: Apache-2.0
//! The content of a page, which the three output formats render.

use super::quantity::{ShownQuantity, ShownUnit};

#[derive(Debug, Default)]
pub(super) struct PageDocument {
    pub(super) title: String,
    pub(super) lead: String,
    pub(super) first: FirstScreen,
    pub(super) sections: Vec<PageSection>,
    pub(super) footer: String,
}

#[derive(Debug, Default)]
pub(super) struct FirstScreen {
    /// A verdict has at most 25 words, including the range of validity.
    pub(super) verdict: String,
    pub(super) figures: Vec<Headline>,
    pub(super) picture: Option<Picture>,
}

#[derive(Debug)]
pub(super) struct Headline {
    pub(super) label: &'static str,
    pub(super) quantity: ShownQuantity,
    pub(super) beside: String,
    pub(super) definition: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(super) struct PageSection {
    pub(super) id: String,
    pub(super) title: String,
    /// Shown while the section is closed; empty for the section on the first screen.
    pub(super) verdict: String,
    pub(super) blocks: Vec<PageBlock>,
}

#[derive(Debug)]
pub(super) enum PageBlock {
    Picture(Picture),
    Table(FigureTable),
    Note(String),
    Data(FigureTable),
}

#[derive(Debug)]
pub(super) struct Picture {
    pub(super) id: String,
    pub(super) caption: String,
    pub(super) kind: PictureKind,
}

#[derive(Debug)]
pub(super) enum PictureKind {
    Bars(Bars),
    Drawn { drawings: Vec<Drawing>, legend: Vec<LegendRow> },
}

#[derive(Debug)]
pub(super) struct Bars {
    pub(super) title: &'static str,
    pub(super) bars: Vec<Bar>,
}

#[derive(Debug, Default)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) tone: Tone,
    /// Start of the bar; 0 unless it is part of a timeline.
    pub(super) start: f64,
    pub(super) length: f64,
    pub(super) spread: Option<[f64; 2]>,
    pub(super) label: String,
}

impl Bar {
    /// Creates a bar as long as `length`, which is also its label.
    pub(super) fn new(name: impl Into<String>, tone: Tone, length: ShownQuantity) -> Self {
        let (name, label) = (name.into(), length.show());
        Self { name, tone, length: length.value, label, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Own,
    Other,
    Bound,
    Lost,
}

#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) caption: String,
    pub(super) svg: String,
}

#[derive(Debug)]
pub(super) struct LegendRow {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) gpus: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FigureTable {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

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
    /// The CSV contains the plain number and its unit instead of the text.
    Shown {
        value: Option<f64>,
        unit: String,
        text: String,
    },
    Missing,
}

impl PageDocument {
    /// Ids are numbered if a kind occurs several times. The first section with a verdict provides the first screen.
    pub(super) fn add(&mut self, first: FirstScreen, mut section: PageSection) {
        let sections = self.sections.iter();
        let alike = sections.filter(|other| other.id.split('-').next() == Some(&*section.id));
        let before = alike.count();
        if before > 0 {
            section.id = format!("{}-{}", section.id, before + 1);
        }
        if self.first.verdict.is_empty() {
            self.first = first;
        } else {
            section.verdict = first.verdict;
            section.blocks.splice(0..0, first.picture.map(PageBlock::Picture));
        }
        self.sections.push(section);
    }
}

impl PageSection {
    pub(super) fn new(id: &str, title: impl Into<String>) -> Self {
        Self { id: id.to_owned(), title: title.into(), ..Self::default() }
    }

    pub(super) fn table(&mut self, table: FigureTable) {
        if !table.rows.is_empty() {
            self.blocks.push(PageBlock::Table(table));
        }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.blocks.push(PageBlock::Note(note.into()));
    }
}

impl Picture {
    pub(super) fn bars(
        id: &str,
        title: &'static str,
        bars: impl IntoIterator<Item = Bar>,
        caption: impl Into<String>,
    ) -> Option<Self> {
        let bars: Vec<Bar> = bars.into_iter().collect();
        let is_visible = bars.iter().any(|bar| bar.length > 0.0);
        is_visible.then(|| Self {
            id: id.to_owned(),
            caption: caption.into(),
            kind: PictureKind::Bars(Bars { title, bars }),
        })
    }
}

impl Bars {
    pub(super) fn track(&self, bar: &Bar) -> String {
        self.span(bar.start, bar.length)
    }

    pub(super) fn whisker(&self, [low, high]: &[f64; 2]) -> String {
        self.span(*low, high - low)
    }

    fn span(&self, start: f64, length: f64) -> String {
        let ends = self.bars.iter().flat_map(|bar| {
            [bar.start + bar.length].into_iter().chain(bar.spread.map(|[_, high]| high))
        });
        let most = ends.fold(f64::MIN_POSITIVE, f64::max);
        let [start, length] = [start, length].map(|value| 100.0 * value / most);
        format!("left:{start:.2}%;width:{length:.2}%")
    }
}

impl Tone {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Other => "other",
            Self::Bound => "bound",
            Self::Lost => "lost",
        }
    }
}

impl Headline {
    pub(super) fn new(
        label: &'static str,
        quantity: ShownQuantity,
        beside: impl Into<String>,
        definition: Option<&'static str>,
    ) -> Self {
        Self { label, quantity, beside: beside.into(), definition }
    }
}

impl FigureTable {
    pub(super) fn column(&mut self, heading: String, definition: Option<&'static str>) {
        self.columns.push(Column { heading, definition, is_numeric: true });
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "{}: a row needs one cell per column", self.id);
        self.rows.push(cells);
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Cell {
    pub(super) const fn number(value: f64, unit: ShownUnit) -> Self {
        Self::Number(ShownQuantity::new(value, unit))
    }

    pub(super) const fn share(value: f64) -> Self {
        Self::number(value, ShownUnit::Share)
    }

    pub(super) const fn count(value: u64) -> Self {
        Self::number(value as f64, ShownUnit::Count)
    }

    pub(super) fn maybe(value: Option<f64>, unit: ShownUnit) -> Self {
        value.map_or(Self::Missing, |value| Self::number(value, unit))
    }

    pub(super) fn time(ps: impl Into<Option<u64>>) -> Self {
        ps.into().map_or(Self::Missing, |ps| Self::Number(ShownQuantity::time(ps)))
    }

    pub(super) fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::Shown { text, .. } => text.clone(),
            Self::Number(quantity) => quantity.show(),
            Self::Missing => "–".to_owned(),
        }
    }
}

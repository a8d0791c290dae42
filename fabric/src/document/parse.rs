// SPDX-License-Identifier: Apache-2.0

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError};
use rustc_hash::FxHashMap;

use super::codes;
use super::problem::Problem;
use super::tree::{Kind, Node, Repairs, Span, Tree};
use super::{Limits, quote};

fn options(limits: &Limits) -> granit_parser::Options {
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
        disallow_directives: true,
    };
    options.set_emit_comments(false);
    options
}

const MOST_TOP_KEYS: usize = 64;
const MOST_EVENTS: usize = 200_000;

pub(crate) fn top_keys(source: &str, limits: &Limits) -> Vec<String> {
    let mut keys = Vec::new();
    let mut depth = 0;
    let mut is_key = true;
    let events = Parser::new_from_str_with_options(source, options(limits));
    for event in events.map_while(Result::ok).take(MOST_EVENTS) {
        match event.0 {
            Event::SequenceStart(..) if depth == 0 => break,
            Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
            Event::MappingEnd | Event::SequenceEnd => {
                depth -= 1;
                is_key |= depth == 1;
            }
            Event::Scalar(text, ..) if depth == 1 => {
                if is_key {
                    keys.push(text.into_owned());
                }
                is_key = !is_key;
            }
            Event::Alias(_) if depth == 1 => is_key = !is_key,
            Event::DocumentEnd => break,
            _ => {}
        }
        if keys.len() == MOST_TOP_KEYS {
            break;
        }
    }
    keys
}

/// The length of `source` must fit in 32 bits.
pub(crate) fn parse<'s>(source: &'s str, limits: &Limits) -> Result<Tree<'s>, Box<Problem>> {
    let mut builder = Builder::new(source, limits);
    let mut read = 0;
    for event in Parser::new_from_str_with_options(source, options(limits)) {
        let (event, span) = event.map_err(|error| match error.kind() {
            ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
                Box::new(open_quote(source, read))
            }
            _ => Box::new(describe(&error, source, limits)),
        })?;
        let span = span.byte_range().map_or(Span::default(), |range| Span {
            start: index_of(range.start),
            end: index_of(range.end),
        });
        read = span.end as usize;
        builder.take(event, span)?;
    }
    builder.finish()
}

struct Builder<'s, 'l> {
    tree: Tree<'s>,
    limits: &'l Limits,
    open: Vec<u32>,
    anchors: FxHashMap<usize, u32>,
    alias_nodes: usize,
    documents: usize,
}

impl<'s, 'l> Builder<'s, 'l> {
    fn new(source: &'s str, limits: &'l Limits) -> Self {
        Self {
            tree: Tree {
                source,
                nodes: Vec::new(),
                decoded: String::new(),
                repairs: Repairs::default(),
            },
            limits,
            open: Vec::new(),
            anchors: FxHashMap::default(),
            alias_nodes: 0,
            documents: 0,
        }
    }

    fn take(&mut self, event: Event<'s>, span: Span) -> Result<(), Box<Problem>> {
        match event {
            Event::DocumentStart(..) => return self.start_document(span),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.is_some(), span)?;
                self.scalar(&text, style, span, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                refuse_tag(tag.is_some(), span)?;
                self.open_collection(Kind::Sequence, span, anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                refuse_tag(tag.is_some(), span)?;
                self.open_collection(Kind::Mapping, span, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_collection(span),
            Event::Alias(anchor) => self.alias(anchor, span)?,
            _ => {}
        }
        Ok(())
    }

    fn start_document(&mut self, span: Span) -> Result<(), Box<Problem>> {
        self.documents += 1;
        if self.documents > 1 {
            let message = "a second YAML document begins here, but a file may contain only one";
            return Err(Problem::new(codes::SEVERAL_DOCUMENTS, span, message)
                .with_help("split the file at `---`")
                .into());
        }
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<u32, Box<Problem>> {
        if self.tree.nodes.len() >= self.limits.nodes {
            let message = format!("the file contains more than {} values", self.limits.nodes);
            return Err(Problem::new(codes::TOO_MANY_VALUES, node.span, message)
                .with_help("describe large fabrics in the generator form")
                .into());
        }
        self.tree.nodes.push(node);
        Ok(index_of(self.tree.nodes.len() - 1))
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        span: Span,
        anchor: usize,
    ) -> Result<(), Box<Problem>> {
        let kind = if style == ScalarStyle::Plain { Kind::Plain } else { Kind::Quoted };
        let place = self.place_in_source(text, kind, span);
        let (decoded, text) = match place {
            Some(place) => (false, place),
            None => (true, self.decode(text)),
        };
        let end = index_of(self.tree.nodes.len() + 1);
        let index = self.push(Node { kind, decoded, span, text, end })?;
        self.remember(anchor, index)
    }

    fn place_in_source(&self, text: &str, kind: Kind, span: Span) -> Option<Span> {
        let inner = match kind {
            Kind::Plain if span.start == span.end => return Some(span),
            Kind::Plain => span,
            _ => Span { start: span.start + 1, end: span.end.saturating_sub(1) },
        };
        let spelled = self.tree.source.get(inner.start as usize..inner.end as usize)?;
        (spelled == text).then_some(inner)
    }

    fn decode(&mut self, text: &str) -> Span {
        let start = index_of(self.tree.decoded.len());
        self.tree.decoded.push_str(text);
        Span { start, end: index_of(self.tree.decoded.len()) }
    }

    fn open_collection(
        &mut self,
        kind: Kind,
        span: Span,
        anchor: usize,
    ) -> Result<(), Box<Problem>> {
        if self.open.len() >= self.limits.depth {
            return Err(too_deep(span, self.limits).into());
        }
        let node = Node { kind, decoded: false, span, text: Span::default(), end: 0 };
        let index = self.push(node)?;
        self.remember(anchor, index)?;
        self.open.push(index);
        Ok(())
    }

    fn close_collection(&mut self, span: Span) {
        let index = self.open.pop().expect("the parser closes each list and mapping");
        let end = index_of(self.tree.nodes.len());
        let node = &mut self.tree.nodes[index as usize];
        node.end = end;
        let in_brackets = node.span.end > node.span.start;
        if in_brackets {
            node.span.end = span.end;
        }
    }

    fn remember(&mut self, anchor: usize, index: u32) -> Result<(), Box<Problem>> {
        if anchor == 0 {
            return Ok(());
        }
        let limit = self.limits.anchors;
        if self.anchors.len() >= limit {
            let span = self.tree.nodes[index as usize].span;
            let message = format!("the file defines more than {limit} anchors");
            return Err(Problem::new(codes::ALIAS_EXPANSION, span, message)
                .with_help("repeat the values")
                .into());
        }
        self.anchors.insert(anchor, index);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Box<Problem>> {
        let index = self.anchors.get(&anchor).copied();
        let finished = index.filter(|&index| self.tree.nodes[index as usize].end != 0);
        let Some(first) = finished else {
            return Err(Problem::new(codes::BAD_ALIAS, span, "the alias is inside its own anchor")
                .with_help("repeat the value")
                .into());
        };
        let subtree = first as usize..self.tree.nodes[first as usize].end as usize;
        self.alias_nodes += subtree.len();
        if self.alias_nodes > self.limits.alias_nodes {
            let limit = self.limits.alias_nodes;
            let message = format!("aliases expand to more than {limit} values");
            return Err(Problem::new(codes::ALIAS_EXPANSION, span, message)
                .with_help("repeat the values, or use fewer aliases")
                .into());
        }
        let shift = index_of(self.tree.nodes.len()) - first;
        for index in subtree {
            let node = self.tree.nodes[index];
            self.push(Node { end: node.end + shift, ..node })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Tree<'s>, Box<Problem>> {
        let nothing = match self.tree.nodes.first() {
            None => true,
            Some(node) => node.kind == Kind::Plain && node.span.start == node.span.end,
        };
        if nothing {
            return Err(Problem::new(codes::EMPTY, Span::default(), "the file is empty")
                .with_help("`lightloom init` writes a first fabric file; `lightloom schema` lists the kinds of files")
                .into());
        }
        Ok(self.tree)
    }
}

fn refuse_tag(tagged: bool, span: Span) -> Result<(), Box<Problem>> {
    if !tagged {
        return Ok(());
    }
    let message = "YAML tags (`!name`) are not used in these files";
    Err(Problem::new(codes::TAG, span, message).with_help("remove the tag").into())
}

fn too_deep(span: Span, limits: &Limits) -> Problem {
    let message = format!("lists and mappings are nested more than {} deep", limits.depth);
    Problem::new(codes::TOO_DEEP, span, message)
}

/// The parser reports the line on which it noticed the mistake. The quotation mark is the first one after the text that
/// was `read`; an apostrophe in a word of a comment is not one.
fn open_quote(source: &str, read: usize) -> Problem {
    let rest = source.get(read..).unwrap_or_default();
    let mut marks = rest.match_indices(['"', '\'']).map(|(at, _)| at);
    let start = marks.find(|at| !rest[..*at].ends_with(char::is_alphanumeric)).unwrap_or(0) + read;
    let span = Span { start: index_of(start), end: index_of(start + 1) };
    Problem::new(codes::SYNTAX, span, "the quotation mark opened here is not closed")
        .with_help("close it on the same line")
}

fn describe(error: &ScanError, source: &str, limits: &Limits) -> Problem {
    let mut start = error.marker().byte_offset().unwrap_or(source.len()).min(source.len());
    if matches!(error.kind(), ErrorKind::TabInPlainScalar) {
        // The parser reports the start of the text before the tab.
        start += source.get(start..).and_then(|rest| rest.find('\t')).unwrap_or(0);
    }
    let width = source.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    let span = Span { start: index_of(start), end: index_of(start + width) };
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => too_deep(span, limits),
        ErrorKind::UnknownAnchor => Problem::new(
            codes::BAD_ALIAS,
            span,
            "the alias refers to an anchor that is not \
                defined before it",
        )
        .with_help(
            "quote text that begins with `*`, or define the anchor with `&name` \
                    first",
        ),
        kind => {
            let problem = Problem::new(codes::SYNTAX, span, format!("not YAML: {}", error.info()));
            match advice(kind) {
                Some(help) => problem.with_help(help),
                None => problem,
            }
        }
    }
}

fn advice(kind: &ErrorKind) -> Option<String> {
    Some(match kind {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => "indent with spaces".to_owned(),
        ErrorKind::UnexpectedCharacter { character } => {
            format!("quote text that begins with {}", quote(&character.to_string()))
        }
        ErrorKind::UnclosedFlowCollection { open } => format!("close the `{open}`"),
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::UnexpectedEofFlowMapping => {
            "close the `{` before this line, or put a `,` between its entries".to_owned()
        }
        ErrorKind::ExpectedFlowSequenceSeparator | ErrorKind::UnexpectedEofFlowSequence => {
            "close the `[` before this line, or put a `,` between its entries".to_owned()
        }
        ErrorKind::BlockEntryInFlowCollection => {
            "close the `[` or `{` before this line, or remove the `-`".to_owned()
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            "write `key: value`, with a space after the colon".to_owned()
        }
        ErrorKind::MisplacedFlowCollectionEnd | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            "remove the bracket, or open it before".to_owned()
        }
        ErrorKind::DirectiveDisallowed => "remove the line that begins with `%`".to_owned(),
        ErrorKind::MappingValueNotAllowed => {
            "check the indentation, or quote text that contains `: `".to_owned()
        }
        ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidIndentation => {
            "check the indentation: all entries of a list or mapping start in the same column"
                .to_owned()
        }
        _ => return None,
    })
}

fn index_of(index: usize) -> u32 {
    u32::try_from(index).expect("limits keep sources and trees below 2^32")
}

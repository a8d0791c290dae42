// SPDX-License-Identifier: Apache-2.0
//! SCPI of Polatis optical switches.
//!
//! Syntax and replies follow public drivers. Error numbers are from SCPI-99; the vendor's numbers are unknown.

use lightloom_units::SimTime;

use super::matrix::{Matrix, MatrixRefusal, Pair, Progress};
use crate::misbehave::{Misbehaviour, Misbehaviours};

const POWER_PORTS_MAX: usize = 256;

const ERRORS_MAX: usize = 32;

/// Capitals are the short form, and `?` marks a query.
const HEADERS: [(&str, Verb); 24] = [
    ("*IDN?", Verb::Identify),
    ("*OPC?", Verb::AllDone),
    ("*OPC", Verb::Nothing),
    ("*CLS", Verb::ClearErrors),
    ("*STB?", Verb::StatusByte),
    ("*RST", Verb::Nothing),
    ("OXC:SWITch:SIZE?", Verb::Size),
    ("OXC:SWITch:CONNect:ADD", Verb::Add),
    ("OXC:SWITch:CONNect:SUBtract", Verb::Subtract),
    ("OXC:SWITch:CONNect:ONLY", Verb::Only),
    ("OXC:SWITch:CONNect:STATe?", Verb::Connections),
    ("OXC:SWITch:CONNect:PORT?", Verb::Peer),
    ("OXC:SWITch:DISConnect:ALL", Verb::DisconnectAll),
    ("OXC:SWITch:DISConnect", Verb::DisconnectAll),
    ("OXC:SWITch:PORT:DISable", Verb::Disable),
    ("OXC:SWITch:PORT:ENABle", Verb::Enable),
    ("OXC:SWITch:PORT:STATe?", Verb::PortStates),
    ("PMONitor:POWer?", Verb::Power),
    ("PMON:POWer?", Verb::Power),
    ("SYSTem:ERRor?", Verb::Error),
    ("SYSTem:ERRor:NEXT?", Verb::Error),
    ("SYSTem:ERRor:ALL?", Verb::Errors),
    ("SYSTem:COMMunicate:NETWork:ADDRess?", Verb::Network),
    ("SYSTem:VERSion?", Verb::Version),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Identify,
    AllDone,
    Nothing,
    ClearErrors,
    StatusByte,
    Size,
    Add,
    Subtract,
    Only,
    Connections,
    Peer,
    DisconnectAll,
    Disable,
    Enable,
    PortStates,
    Power,
    Error,
    Errors,
    Network,
    Version,
}

type ScpiError = (i16, &'static str);

const SYNTAX: ScpiError = (-102, "Syntax error");
const UNDEFINED: ScpiError = (-113, "Undefined header");
const PARAMETER: ScpiError = (-220, "Parameter error");
const CONFLICT: ScpiError = (-221, "Settings conflict");
const RANGE: ScpiError = (-222, "Data out of range");
const HARDWARE: ScpiError = (-240, "Hardware error");
const LOST: ScpiError = (-350, "Queue overflow");
pub(crate) const OVERRUN: ScpiError = (-363, "Input buffer overrun");

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    pub(crate) reply: Option<String>,
    pub(crate) waits_for_light: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ScpiState {
    identity: String,
    has_power_monitors: bool,
    errors: Vec<ScpiError>,
    pub(crate) misbehaves: Misbehaviours,
}

impl ScpiState {
    pub(crate) fn new(identity: String, has_power_monitors: bool) -> Self {
        let misbehaves = Misbehaviours::default();
        Self { identity, has_power_monitors, errors: Vec::new(), misbehaves }
    }

    pub(crate) const fn breaks(&self, which: Misbehaviour) -> bool {
        self.misbehaves.has(which)
    }

    pub(crate) fn push_error(&mut self, error: ScpiError) {
        let is_quiet = error == RANGE && self.breaks(Misbehaviour::QuietAboutPorts);
        if is_quiet || error == UNDEFINED && self.breaks(Misbehaviour::SwallowsErrors) {
            return;
        }
        match self.errors.len() {
            ERRORS_MAX => {}
            length if length == ERRORS_MAX - 1 => self.errors.push(LOST),
            _ => self.errors.push(error),
        }
    }

    /// A header without a leading colon continues the branch of the preceding unit.
    pub(crate) fn absolute(unit: &str, before: &str) -> String {
        let unit = unit.trim();
        if let Some(absolute) = unit.strip_prefix(':') {
            return absolute.to_owned();
        }
        let (header, arguments) = split_header(unit);
        let branch = split_header(before).0.rsplit_once(':').map_or("", |(branch, _)| branch);
        let relative = format!("{branch}:{header}");
        if header.starts_with('*') || branch.is_empty() || verb_of(&relative).is_none() {
            return unit.to_owned();
        }
        format!("{relative} {arguments}").trim_end().to_owned()
    }

    pub(crate) fn execute(&mut self, now: SimTime, matrix: &mut Matrix, unit: &str) -> Executed {
        let (header, arguments) = split_header(unit);
        let is_short = !self.breaks(Misbehaviour::ShortFormsOnly)
            || !header.split(':').any(|word| word.trim_end_matches('?').len() > 4);
        let Some(verb) = verb_of(header).filter(|_| is_short) else {
            self.push_error(UNDEFINED);
            return Executed::default();
        };
        match self.run(now, matrix, verb, arguments) {
            Ok(mut executed) => {
                if executed.reply.is_none() && self.breaks(Misbehaviour::AnswersSets) {
                    executed.reply = Some("OK".to_owned());
                }
                executed
            }
            Err(error) => {
                self.push_error(error);
                Executed::default()
            }
        }
    }

    fn run(
        &mut self,
        now: SimTime,
        matrix: &mut Matrix,
        verb: Verb,
        arguments: &str,
    ) -> Result<Executed, ScpiError> {
        let reply = match verb {
            Verb::Add | Verb::Only | Verb::Subtract => {
                return self.change(now, matrix, verb, arguments);
            }
            Verb::DisconnectAll => {
                let progress = matrix.disconnect_all(now);
                return Ok(self.changed(&progress));
            }
            Verb::Disable | Verb::Enable => {
                for port in list(arguments)? {
                    matrix.set_enabled(port, verb == Verb::Enable).map_err(error_of)?;
                }
                return Ok(Executed::default());
            }
            Verb::Nothing => return Ok(Executed::default()),
            Verb::ClearErrors => {
                if !self.breaks(Misbehaviour::KeepsErrors) {
                    self.errors.clear();
                }
                return Ok(Executed::default());
            }
            Verb::AllDone => {
                let reply = Some("1".to_owned());
                let waits_for_light = !self.breaks(Misbehaviour::BarrierAtOnce);
                return Ok(Executed { reply, waits_for_light });
            }
            Verb::Identify if self.breaks(Misbehaviour::ShortIdentity) => "Polatis".to_owned(),
            Verb::Identify => self.identity.clone(),
            Verb::StatusByte => {
                let waits = !self.errors.is_empty() && !self.breaks(Misbehaviour::StatusByteZero);
                if waits { "4" } else { "0" }.to_owned()
            }
            Verb::Size if self.breaks(Misbehaviour::WrongSize) => {
                format!("{},{}", matrix.ingress, matrix.egress + 1)
            }
            Verb::Size => format!("{},{}", matrix.ingress, matrix.egress),
            Verb::Connections => connections(&matrix.pairs()),
            Verb::Peer => self.peer(matrix, arguments)?,
            Verb::PortStates => each_port(matrix, arguments, |port| {
                if matrix.is_enabled(port) { "E".to_owned() } else { "D".to_owned() }
            })?,
            Verb::Power if !self.has_power_monitors => return Err(UNDEFINED),
            Verb::Power => self.power(now, matrix, arguments)?,
            Verb::Error => shown(self.take_error()),
            Verb::Errors => {
                let mut all = vec![shown(self.take_error())];
                while !self.errors.is_empty() {
                    all.push(shown(self.take_error()));
                }
                all.join(",")
            }
            Verb::Network => "\"192.0.2.10\"".to_owned(),
            Verb::Version => "1999.0".to_owned(),
        };
        Ok(Executed { reply: Some(reply), ..Executed::default() })
    }

    fn peer(&self, matrix: &Matrix, arguments: &str) -> Result<String, ScpiError> {
        let port = arguments.trim().parse().map_err(|_| SYNTAX)?;
        let mut port = known(matrix, port)?;
        if self.breaks(Misbehaviour::WrongPeer) {
            port = port % matrix.ingress + 1;
        }
        Ok(format!("\"{}\"", matrix.peer(port).map_or(String::new(), |peer| peer.to_string())))
    }

    fn power(&self, now: SimTime, matrix: &Matrix, arguments: &str) -> Result<String, ScpiError> {
        let all =
            each_port(matrix, arguments, |port| format!("{:.1}", matrix.power_dbm(now, port)))?;
        Ok(match all.rsplit_once(',') {
            Some((all, _)) if self.breaks(Misbehaviour::ShortPowerList) => format!("{all})"),
            _ => all,
        })
    }

    fn change(
        &mut self,
        now: SimTime,
        matrix: &mut Matrix,
        verb: Verb,
        arguments: &str,
    ) -> Result<Executed, ScpiError> {
        if self.breaks(Misbehaviour::NoRanges) && arguments.contains(':') {
            return Err(SYNTAX);
        }
        let (from, to) = two_lists(arguments)?;
        let any_end = verb == Verb::Subtract && to.is_empty();
        let lopsided = from.len() != to.len() && !any_end;
        if lopsided && !self.breaks(Misbehaviour::LopsidedLists) {
            return Err(PARAMETER);
        }
        let pairs: Vec<Pair> = from.iter().copied().zip(to.iter().copied()).collect();
        if verb == Verb::Subtract && self.breaks(Misbehaviour::SubtractsAll) {
            return Ok(self.changed(&matrix.disconnect_all(now)));
        }
        if verb == Verb::Add && self.breaks(Misbehaviour::StealsPorts) {
            matrix.free(now, &pairs);
        }
        let progress = match verb {
            Verb::Subtract => {
                let ends = to.iter().copied().map(Some).chain(std::iter::repeat(None));
                let parted: Vec<_> = from.iter().copied().zip(ends).collect();
                matrix.disconnect(now, &parted)
            }
            Verb::Add | Verb::Only
                if verb == Verb::Only || self.breaks(Misbehaviour::AddsAsOnly) =>
            {
                let mut progress = matrix.disconnect_all(now);
                let connected = matrix.connect(now, &pairs);
                progress.done.extend(connected.done);
                progress.refusal = progress.refusal.or(connected.refusal);
                progress
            }
            _ => matrix.connect(now, &pairs),
        };
        Ok(self.changed(&progress))
    }

    fn changed(&mut self, progress: &Progress) -> Executed {
        if let Some(refusal) = progress.refusal {
            self.push_error(error_of(refusal));
        }
        Executed::default()
    }

    fn take_error(&mut self) -> ScpiError {
        if self.errors.is_empty() { (0, "No error") } else { self.errors.remove(0) }
    }
}

pub(crate) fn changes_circuits(unit: &str) -> bool {
    let verb = verb_of(split_header(unit).0);
    matches!(verb, Some(Verb::Add | Verb::Subtract | Verb::Only | Verb::DisconnectAll))
}

fn shown((number, text): ScpiError) -> String {
    format!("{number}, \"{text}\"")
}

const fn error_of(refusal: MatrixRefusal) -> ScpiError {
    match refusal {
        MatrixRefusal::NoSuchPort(_) => RANGE,
        MatrixRefusal::InUse(_) | MatrixRefusal::Disabled(_) | MatrixRefusal::NotConnected(_) => {
            CONFLICT
        }
        MatrixRefusal::Hardware(_) => HARDWARE,
    }
}

fn split_header(unit: &str) -> (&str, &str) {
    let unit = unit.trim();
    unit.split_once(char::is_whitespace)
        .or_else(|| unit.find('(').map(|at| unit.split_at(at)))
        .unwrap_or((unit, ""))
}

fn verb_of(header: &str) -> Option<Verb> {
    let header = header.strip_prefix(':').unwrap_or(header);
    HEADERS.iter().find(|(pattern, _)| header_fits(header, pattern)).map(|&(_, verb)| verb)
}

fn header_fits(header: &str, pattern: &str) -> bool {
    let (mut words, mut patterns) = (header.split(':'), pattern.split(':'));
    loop {
        match (words.next(), patterns.next()) {
            (None, None) => return true,
            (Some(word), Some(pattern)) if word_fits(word, pattern) => {}
            _ => return false,
        }
    }
}

fn word_fits(word: &str, pattern: &str) -> bool {
    let short = pattern.chars().filter(|c| !c.is_ascii_lowercase());
    word.eq_ignore_ascii_case(pattern) || word.chars().map(|c| c.to_ascii_uppercase()).eq(short)
}

/// Parses `(@1,2,5:8)`. An empty list is `(@)`.
fn list(text: &str) -> Result<Vec<u16>, ScpiError> {
    let inner = text.trim().strip_prefix("(@").and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.ok_or(SYNTAX)?.trim();
    let mut ports = Vec::new();
    for item in inner.split(',').map(str::trim).filter(|_| !inner.is_empty()) {
        let (first, last) = item.split_once(':').unwrap_or((item, item));
        let first: u16 = first.trim().parse().map_err(|_| SYNTAX)?;
        let last: u16 = last.trim().parse().map_err(|_| SYNTAX)?;
        ports.extend(first..=last);
        if ports.len() > usize::from(u16::MAX) {
            return Err(RANGE);
        }
    }
    Ok(ports)
}

fn two_lists(arguments: &str) -> Result<(Vec<u16>, Vec<u16>), ScpiError> {
    let end = arguments.find(')').ok_or(SYNTAX)?;
    let (first, rest) = arguments.split_at(end + 1);
    let second = rest.trim_start().strip_prefix(',').ok_or(SYNTAX)?;
    Ok((list(first)?, list(second)?))
}

fn known(matrix: &Matrix, port: u16) -> Result<u16, ScpiError> {
    if matrix.is_port(port) { Ok(port) } else { Err(RANGE) }
}

fn each_port(
    matrix: &Matrix,
    arguments: &str,
    show: impl Fn(u16) -> String,
) -> Result<String, ScpiError> {
    let ports = list(arguments)?;
    if ports.len() > POWER_PORTS_MAX {
        return Err(RANGE);
    }
    let mut shown = Vec::with_capacity(ports.len());
    for port in ports {
        shown.push(show(known(matrix, port)?));
    }
    Ok(format!("({})", shown.join(",")))
}

fn connections(pairs: &[Pair]) -> String {
    let (inputs, outputs): (Vec<String>, Vec<String>) =
        pairs.iter().map(|pair| (pair.0.to_string(), pair.1.to_string())).unzip();
    format!("(@{}),(@{})", inputs.join(","), outputs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_keywords_in_short_and_long_form_and_any_case() {
        for header in [":oxc:swit:conn:add", "OXC:SWITCH:CONNECT:ADD", "Oxc:Swit:Connect:Add"] {
            assert_eq!(verb_of(header), Some(Verb::Add), "{header}");
        }
        for header in ["oxc:switc:conn:add", "oxc:conn:add", "oxc:swit:conn", "", "add"] {
            assert_eq!(verb_of(header), None, "{header}");
        }
    }

    #[test]
    fn parses_channel_lists() {
        assert_eq!(list("(@1,2,5:7)"), Ok(vec![1, 2, 5, 6, 7]));
        assert_eq!(list("(@)"), Ok(vec![]));
        assert_eq!(two_lists("(@1),(@25)"), Ok((vec![1], vec![25])));
        for wrong in ["", "1,2", "(1)", "(@1", "(@a)", "(@1,,2)", "(@99999)"] {
            assert_eq!(list(wrong), Err(SYNTAX), "{wrong}");
        }
    }

    #[test]
    fn unit_without_colon_continues_the_previous_branch() {
        let before = "oxc:swit:conn:add (@1),(@5)";
        assert_eq!(ScpiState::absolute("sub (@1),(@5)", before), "oxc:swit:conn:sub (@1),(@5)");
        assert_eq!(ScpiState::absolute("*OPC?", before), "*OPC?");
        assert_eq!(ScpiState::absolute(":syst:err?", before), "syst:err?");
        assert_eq!(ScpiState::absolute("syst:err?", before), "syst:err?");
    }

    #[test]
    fn error_queue_reports_its_overflow() {
        let mut scpi = ScpiState::new(String::new(), true);
        for _ in 0..100 {
            scpi.push_error(SYNTAX);
        }
        assert_eq!(scpi.errors.len(), ERRORS_MAX);
        assert_eq!(scpi.errors.last(), Some(&LOST));
    }
}

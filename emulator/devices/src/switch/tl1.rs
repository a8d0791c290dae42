// SPDX-License-Identifier: Apache-2.0
//! TL1 of Polatis optical switches. Autonomous messages may precede the reply to a command.
//!
//! ```text
//! > ENT-PATCH::1&2,25&26:124:;
//! <
//! <
//! <    POLATIS 24-09-01 12:00:00
//! < M  124 COMPLD
//! < ;
//! ```
//!
//! Grammar and codes follow replies in public drivers. Other details (the code for a port in use, the
//! body of PRTL) are our choice and are marked in docs/devices.md.

use chrono::DateTime;
use lightloom_units::SimTime;

use super::matrix::{Matrix, MatrixRefusal, Pair, Progress};
use super::scpi::Executed;
use crate::misbehave::Misbehaviour;

/// Prevents a hostile range from exhausting memory.
const PORTS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Denial {
    code: &'static str,
    text: String,
}

fn denial(code: &'static str, text: impl Into<String>) -> Denial {
    Denial { code, text: text.into() }
}

enum End {
    Completed(Vec<String>),
    Partly(Denial),
}

#[derive(Clone, Debug)]
pub(crate) struct Tl1State {
    pub(crate) name: String,
    pub(crate) net_type: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) autonomous_count: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) is_in: bool,
}

struct Tl1Command<'a> {
    verb: String,
    tid: &'a str,
    aid: &'a str,
    tag: &'a str,
    payload: Vec<&'a str>,
}

impl Tl1State {
    pub(crate) fn execute(
        &self,
        now: SimTime,
        matrix: &mut Matrix,
        login: &mut Login,
        text: &str,
    ) -> Executed {
        let command = cut(text);
        let faults = matrix.faults;
        let tag = match command.tag {
            _ if faults.breaks(Misbehaviour::WrongTag) => "9999",
            "" => "0",
            tag => tag,
        };
        let waits = matches!(command.verb.as_str(), "ENT-PATCH" | "DLT-PATCH");
        let (word, body) = match self.run(now, matrix, login, &command) {
            Ok(End::Completed(lines)) if faults.breaks(Misbehaviour::Unquoted) => {
                ("COMPLD", quoted(&lines).replace('"', ""))
            }
            Ok(End::Completed(lines)) => ("COMPLD", quoted(&lines)),
            Ok(End::Partly(_)) if faults.breaks(Misbehaviour::PartlyIsComplete) => {
                ("COMPLD", String::new())
            }
            Ok(End::Partly(denial)) => ("PRTL", explained(&denial)),
            Err(denial) => ("DENY", explained(&denial)),
        };
        let mut header = self.header(now);
        if faults.breaks(Misbehaviour::NoDate) {
            header = format!("\r\n\n   {}\r\n", self.name);
        }
        let reply = format!("{header}M  {tag} {word}\r\n{body};");
        Executed { reply: Some(reply), waits_for_light: waits && word != "DENY" }
    }

    /// `grade` is `A ` for an event and `*C` for a critical alarm.
    pub(crate) fn autonomous(&mut self, now: SimTime, grade: &str, text: &str) -> String {
        self.autonomous_count += 1;
        let tag = self.autonomous_count;
        format!("{}{grade} {tag} {text}\r\n;", self.header(now))
    }

    pub(crate) fn acknowledgement(text: &str) -> Option<String> {
        let command = cut(text);
        let long = matches!(command.verb.as_str(), "ENT-PATCH" | "DLT-PATCH");
        long.then(|| format!("\r\nIP {}\r\n<", command.tag))
    }

    fn header(&self, now: SimTime) -> String {
        let name = if self.name.is_empty() { "( nil )" } else { &self.name };
        format!("\r\n\n   {name} {}\r\n", date_and_time(now))
    }

    fn run(
        &self,
        now: SimTime,
        matrix: &mut Matrix,
        login: &mut Login,
        command: &Tl1Command<'_>,
    ) -> Result<End, Denial> {
        if command.tag.is_empty() || !command.tag.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(denial("IICT", "Input, invalid correlation tag"));
        }
        let tid = command.tid.trim_matches('"');
        let is_ours = tid.is_empty() || tid.eq_ignore_ascii_case(&self.name);
        if !is_ours && !matrix.faults.breaks(Misbehaviour::OtherTarget) {
            return Err(denial("IITA", "Input, invalid target identifier"));
        }
        match command.verb.as_str() {
            "ACT-USER" => return self.log_in(login, command),
            "CANC-USER" => {
                *login = Login::default();
                return Ok(End::Completed(Vec::new()));
            }
            "RTRV-HDR" => return Ok(End::Completed(Vec::new())),
            _ if !login.is_in && !matrix.faults.breaks(Misbehaviour::NoLogIn) => {
                return Err(denial("PLNA", "Privilege, login not active"));
            }
            _ => {}
        }
        match command.verb.as_str() {
            "ENT-PATCH" => Self::enter_patch(now, matrix, command),
            "DLT-PATCH" => Self::delete_patch(now, matrix, command),
            _ => self.retrieve(now, matrix, command),
        }
    }

    fn log_in(&self, login: &mut Login, command: &Tl1Command<'_>) -> Result<End, Denial> {
        let password = command.payload.first().copied().unwrap_or("");
        login.is_in = command.aid == self.user && password == self.password;
        if login.is_in {
            Ok(End::Completed(Vec::new()))
        } else {
            Err(denial("PIUI", "Privilege, illegal user identity"))
        }
    }

    fn enter_patch(
        now: SimTime,
        matrix: &mut Matrix,
        command: &Tl1Command<'_>,
    ) -> Result<End, Denial> {
        let (from, to) = command
            .aid
            .split_once(',')
            .ok_or_else(|| denial("IPNV", "two lists of ports are needed"))?;
        let (from, to) = (ports(from)?, ports(to)?);
        if from.len() != to.len() {
            return Err(denial("IPNV", "the lists differ in length"));
        }
        let pairs: Vec<Pair> = from.into_iter().zip(to).collect();
        if matrix.faults.breaks(Misbehaviour::StealsPatches) {
            matrix.free(now, &pairs);
        }
        ended(pairs.len(), &matrix.connect(now, &pairs))
    }

    /// Deployed drivers clear both ends sequentially, so a port without a patch is not an error.
    fn delete_patch(
        now: SimTime,
        matrix: &mut Matrix,
        command: &Tl1Command<'_>,
    ) -> Result<End, Denial> {
        let all = matrix.faults.breaks(Misbehaviour::DeletesAllPatches);
        if all || command.aid.eq_ignore_ascii_case("ALL") {
            let count = matrix.pairs().len();
            return ended(count, &matrix.disconnect_all(now));
        }
        let named = ports(command.aid)?;
        if let Some(&port) = named.iter().find(|&&port| !matrix.is_port(port)) {
            return Err(denial_of(MatrixRefusal::NoSuchPort(port)));
        }
        let mut parted: Vec<(u16, Option<u16>)> = Vec::new();
        for port in named {
            let mut pairs = matrix.pairs().into_iter();
            let patch = pairs.find(|pair| pair.0 == port || pair.1 == port);
            let patch = patch.map(|pair| (pair.0, None));
            parted.extend(patch.filter(|patch| !parted.contains(patch)));
        }
        ended(parted.len(), &matrix.disconnect(now, &parted))
    }

    fn retrieve(
        &self,
        now: SimTime,
        matrix: &mut Matrix,
        command: &Tl1Command<'_>,
    ) -> Result<End, Denial> {
        let lines = match command.verb.as_str() {
            "RTRV-PATCH" => {
                let wanted = wanted_ports(matrix, command.aid)?;
                let mut pairs = matrix.pairs();
                if matrix.faults.breaks(Misbehaviour::HidesPatch) {
                    pairs.pop();
                }
                pairs.retain(|(from, to)| wanted.contains(from) || wanted.contains(to));
                pairs.iter().map(|(from, to)| format!("{from},{to}")).collect()
            }
            "RTRV-EQPT" => vec![format!("SYSTEM:SIZE={}x{}", matrix.ingress, matrix.egress)],
            "RTRV-NETYPE" => vec![self.net_type.clone()],
            "RTRV-INV" if matches!(command.aid, "" | "OCS" | "ALL") => {
                let serial = if self.name.is_empty() { "0" } else { &self.name };
                vec![format!("OCS:SN={serial}")]
            }
            "RTRV-INV" => return Err(denial("IIAC", "use OCS: the switch has no other parts")),
            "RTRV-PORT-SHUTTER" => Self::each(matrix, command, |port| {
                let state = match matrix.is_enabled(port) {
                    true if matrix.faults.breaks(Misbehaviour::StrangeShutter) => "AJAR",
                    true => "OPEN",
                    false => "CLOSED",
                };
                format!("{port}:{state}")
            })?,
            "RTRV-PORT-POWER" => Self::each(matrix, command, |port| {
                format!("{port}:{:.2}", matrix.power_dbm(now, port))
            })?,
            "RTRV-PORT-PMON" => Self::each(matrix, command, |port| format!("{port}:1550.0,0.0,4"))?,
            "OPR-PORT-SHUTTER" | "RLS-PORT-SHUTTER" => {
                let opens = command.verb.starts_with("RLS");
                for port in wanted_ports(matrix, command.aid)? {
                    matrix.set_enabled(port, opens).map_err(denial_of)?;
                }
                Vec::new()
            }
            _ if matrix.faults.breaks(Misbehaviour::CompletesUnknown) => Vec::new(),
            _ => return Err(denial("ICNV", "Input, command not valid")),
        };
        Ok(End::Completed(lines))
    }

    fn each(
        matrix: &Matrix,
        command: &Tl1Command<'_>,
        show: impl Fn(u16) -> String,
    ) -> Result<Vec<String>, Denial> {
        Ok(wanted_ports(matrix, command.aid)?.into_iter().map(show).collect())
    }
}

pub(crate) fn changes_circuits(text: &str) -> bool {
    matches!(cut(text).verb.as_str(), "ENT-PATCH" | "DLT-PATCH")
}

/// Splits at colons outside quotation marks. A deployed driver uses blanks around hyphens in verbs.
fn cut(text: &str) -> Tl1Command<'_> {
    let mut quoted = false;
    let blocks = text.trim().split(|c: char| {
        quoted ^= c == '"';
        c == ':' && !quoted
    });
    let mut blocks = blocks.map(str::trim);
    let [verb, tid, aid, tag, _general_block] =
        std::array::from_fn(|_| blocks.next().unwrap_or(""));
    let verb: String = verb.to_ascii_uppercase().split_whitespace().collect();
    Tl1Command { verb, tid, aid, tag, payload: blocks.collect() }
}

/// Parses `1&2&5&&8`: single ports and ranges.
fn ports(text: &str) -> Result<Vec<u16>, Denial> {
    port_list(text)
        .ok_or_else(|| denial("IIAC", format!("`{}` is not a list of ports", shortened(text))))
}

fn port_list(text: &str) -> Option<Vec<u16>> {
    let mut found: Vec<u16> = Vec::new();
    let mut is_range_end = false;
    for item in text.split('&') {
        if item.is_empty() {
            is_range_end = true;
            continue;
        }
        let port: u16 = item.trim().parse().ok()?;
        match found.last() {
            Some(&first) if is_range_end && first < port => found.extend(first + 1..=port),
            _ if is_range_end => return None,
            _ => found.push(port),
        }
        is_range_end = false;
        if found.len() > PORTS_MAX {
            return None;
        }
    }
    Some(found).filter(|found| !found.is_empty() && !is_range_end)
}

fn shortened(text: &str) -> String {
    text.chars().take(40).filter(|c| !c.is_control() && *c != '*').collect()
}

fn wanted_ports(matrix: &Matrix, aid: &str) -> Result<Vec<u16>, Denial> {
    if aid.is_empty() || aid.eq_ignore_ascii_case("ALL") {
        return Ok((1..=matrix.ingress + matrix.egress).collect());
    }
    let wanted = ports(aid)?;
    match wanted.iter().find(|&&port| !matrix.is_port(port)) {
        Some(&port) => Err(denial_of(MatrixRefusal::NoSuchPort(port))),
        None => Ok(wanted),
    }
}

fn ended(asked: usize, progress: &Progress) -> Result<End, Denial> {
    match progress.refusal {
        None => Ok(End::Completed(Vec::new())),
        Some(refusal) if progress.done.is_empty() => Err(denial_of(refusal)),
        Some(refusal) => {
            let mut why = denial_of(refusal);
            why.text = format!("{} of {asked} done: {}", progress.done.len(), why.text);
            Ok(End::Partly(why))
        }
    }
}

fn denial_of(refusal: MatrixRefusal) -> Denial {
    match refusal {
        MatrixRefusal::NoSuchPort(port) => denial("IIAC", format!("no port {port} on that side")),
        MatrixRefusal::InUse(port) => denial("SNVS", format!("port {port} is in use")),
        MatrixRefusal::Disabled(port) => denial("SNVS", format!("port {port} is closed")),
        MatrixRefusal::NotConnected(port) => {
            denial("SNVS", format!("port {port} is not part of this patch"))
        }
        MatrixRefusal::Hardware(port) => denial("SROF", format!("port {port} did not move")),
    }
}

fn quoted(lines: &[String]) -> String {
    lines.iter().map(|line| format!("   \"{line}\"\r\n")).collect()
}

fn explained(denial: &Denial) -> String {
    format!("   {}\r\n   /* {} */\r\n", denial.code, denial.text)
}

/// The start of September 2024 in Unix seconds.
const STARTED: u64 = 1_725_148_800;

fn date_and_time(now: SimTime) -> String {
    let seconds = STARTED + now.0 / 1_000_000_000_000;
    let date = DateTime::from_timestamp(seconds as i64, 0).unwrap_or_default();
    date.format("%y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use lightloom_units::Picoseconds;

    use super::*;

    #[test]
    fn splits_commands_at_colons_outside_quotation_marks() {
        let command = cut("ent-patch:\"a:b\":1&2,25&26:124::X=1:Y");
        assert_eq!(command.verb, "ENT-PATCH");
        assert_eq!((command.tid, command.aid, command.tag), ("\"a:b\"", "1&2,25&26", "124"));
        assert_eq!(command.payload, ["X=1", "Y"]);
        assert_eq!(cut("").tag, "");
    }

    #[test]
    fn port_lists_have_ranges_and_bounds() {
        assert_eq!(ports("1&2&5&&8").ok(), Some(vec![1, 2, 5, 6, 7, 8]));
        for wrong in ["", "&", "1&", "1&&", "&&3", "8&&5", "a", "1&65536", "1&&65535"] {
            assert_eq!(ports(wrong).map_err(|denial| denial.code), Err("IIAC"), "{wrong}");
        }
    }

    #[test]
    fn formats_time_as_calendar_dates() {
        let at = |seconds: u64| {
            date_and_time(SimTime::START + Picoseconds::from_millis(seconds * 1_000))
        };
        assert_eq!(at(0), "24-09-01 00:00:00");
        assert_eq!(at(86_399), "24-09-01 23:59:59");
        assert_eq!(at(30 * 86_400), "24-10-01 00:00:00");
        assert_eq!(at(122 * 86_400), "25-01-01 00:00:00");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! An emulated Polatis-style switch in virtual time: syntax and its pitfalls.

use lightloom_devices::{
    DeviceFault, EmulatedDevice, Faulty, Line, OpticalSwitch, Output, Port, SwitchSpec,
};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use proptest::prelude::*;

const SCPI: Line = Line(1);
const TL1: Line = Line(2);

struct Rig {
    device: Faulty<OpticalSwitch>,
    now: SimTime,
    closed: Vec<Line>,
}

impl Rig {
    fn new(spec: SwitchSpec) -> Self {
        let device = Faulty::new(OpticalSwitch::new(spec, Seed(1), 0), Seed(1), 0);
        let mut rig = Self { device, now: SimTime::START, closed: Vec::new() };
        rig.open(SCPI, Port::Scpi);
        rig.open(TL1, Port::Tl1);
        rig
    }

    fn plain() -> Self {
        Self::new(SwitchSpec { is_autonomous: false, ..SwitchSpec::default() })
    }

    fn open(&mut self, line: Line, port: Port) {
        let mut out = Vec::new();
        self.device.open(self.now, line, port, &mut out);
        self.take(&out, line);
    }

    fn take(&mut self, out: &[Output], from: Line) -> String {
        let mut text = Vec::new();
        for output in out {
            match output {
                Output::Bytes(line, bytes) if *line == from => text.extend(bytes),
                Output::Bytes(..) => {}
                Output::Close(line) => self.closed.push(*line),
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn say(&mut self, line: Line, text: &str) -> String {
        let mut out = Vec::new();
        self.device.on_bytes(self.now, line, text.as_bytes(), &mut out);
        while let Some(at) = self.device.next_wakeup() {
            self.now = self.now.max(at);
            self.device.on_time(self.now, &mut out);
        }
        self.take(&out, line)
    }

    fn scpi(&mut self, text: &str) -> String {
        self.say(SCPI, &format!("{text}\n"))
    }

    fn error(&mut self) -> String {
        self.scpi(":syst:err?")
    }

    fn tl1(&mut self, text: &str) -> String {
        let reply = self.say(TL1, text);
        reply.split_once("\r\nM  ").map_or(reply.clone(), |(_, body)| body.to_owned())
    }

    fn log_in(&mut self) {
        assert_eq!(self.tl1("ACT-USER::root:1::root;"), "1 COMPLD\r\n;");
    }

    fn pairs(&self) -> Vec<(u16, u16)> {
        self.device.device().true_pairs()
    }

    fn fault(&mut self, fault: &str) {
        let mut out = Vec::new();
        self.device.apply(self.now, fault.parse().unwrap(), &mut out);
    }
}

mod scpi {
    use super::*;

    #[test]
    fn answers_the_dialogue_of_public_drivers() {
        let mut rig = Rig::plain();
        assert_eq!(rig.scpi("*idn?"), "Polatis,N-OST-24x24-LA1-DMHNS,POLATIS,6.5.2.18\n");
        assert_eq!(rig.scpi(":oxc:swit:size?"), "24,24\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:stat?"), "(@),(@)\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1,2,3),(@25,26,27);*OPC?"), "1\n");
        assert_eq!(rig.error(), "0, \"No error\"\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:port? 2"), "\"26\"\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:port? 9"), "\"\"\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:stat?"), "(@1,2,3),(@25,26,27)\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:sub (@2),(@26);*OPC?"), "1\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:sub (@1,3),(@);*OPC?"), "1\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:stat?"), "(@),(@)\n");
        rig.scpi(":oxc:swit:port:dis (@4)");
        assert_eq!(rig.scpi(":oxc:swit:port:stat? (@3,4)"), "(E,D)\n");
        let power = rig.scpi(":pmon:pow? (@1,25)");
        assert!(power.starts_with("(-") && power.ends_with(",-60.0)\n"), "{power}");
    }

    #[test]
    fn set_commands_never_reply() {
        let mut rig = Rig::plain();
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25)"), "");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@26)"), "");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@99),(@25)"), "");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@2,3),(@26)"), "");
        assert_eq!(rig.scpi("rubbish"), "");
        assert_eq!(rig.scpi("*stb?"), "4\n");
        let errors = "-221, \"Settings conflict\",-222, \"Data out of range\",\
                      -220, \"Parameter error\",-113, \"Undefined header\"\n";
        assert_eq!(rig.scpi(":syst:err:all?"), errors);
        assert_eq!(rig.error(), "0, \"No error\"\n");
        assert_eq!(rig.pairs(), [(1, 25)]);
    }

    #[test]
    fn only_command_drops_all_other_connections() {
        let mut rig = Rig::plain();
        rig.scpi(":oxc:swit:conn:add (@1,2,3),(@25,26,27)");
        rig.scpi(":oxc:swit:conn:only (@5),(@30)");
        assert_eq!(rig.pairs(), [(5, 30)]);
    }

    #[test]
    fn list_with_an_invalid_port_is_applied_in_part() {
        let mut rig = Rig::plain();
        rig.scpi(":oxc:swit:conn:add (@1,2,3),(@25,77,27)");
        assert_eq!(rig.error(), "-222, \"Data out of range\"\n");
        assert_eq!(rig.pairs(), [(1, 25)]);
    }

    #[test]
    fn opc_query_waits_for_the_mirrors() {
        let mut rig = Rig::plain();
        let began = rig.now;
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25);:pmon:pow? (@25)"), "(-60.0)\n");
        assert!(rig.now.since(began) < Picoseconds::from_millis(2));
        assert_eq!(rig.scpi("*OPC?"), "1\n");
        let took = rig.now.since(began);
        assert!(
            took >= Picoseconds::from_millis(18) && took <= Picoseconds::from_millis(23),
            "{took}"
        );
        assert!(!rig.scpi(":pmon:pow? (@25)").contains("-60.0"));
    }

    #[test]
    fn accepts_long_and_relative_headers_crlf_and_single_bytes() {
        let mut rig = Rig::plain();
        let text = ":OXC:SWITCH:CONNECT:ADD (@1),(@25);STATE?;:SYSTem:ERRor?\r\n";
        let mut reply = String::new();
        for byte in text.chars() {
            reply += &rig.say(SCPI, &byte.to_string());
        }
        assert_eq!(reply, "(@1),(@25);0, \"No error\"\n");
    }

    #[test]
    fn accepts_one_client_at_a_time() {
        let mut rig = Rig::plain();
        rig.open(Line(7), Port::Scpi);
        assert_eq!(rig.closed, [Line(7)]);
        let now = rig.now;
        rig.device.close(now, SCPI);
        rig.open(Line(8), Port::Scpi);
        assert_eq!(rig.closed, [Line(7)]);
        assert_eq!(rig.say(Line(8), "*opc?\n"), "1\n");
    }

    #[test]
    fn serial_line_ends_replies_with_carriage_returns() {
        let mut rig = Rig::plain();
        rig.open(Line(9), Port::ScpiSerial);
        assert_eq!(rig.say(Line(9), ":oxc:swit:size?\r"), "24,24\r");
    }

    #[test]
    fn endless_line_overruns_a_bounded_buffer() {
        let mut rig = Rig::plain();
        for _ in 0..40 {
            rig.say(SCPI, &"x".repeat(1 << 16));
        }
        rig.scpi("");
        assert_eq!(rig.error(), "-363, \"Input buffer overrun\"\n");
        assert_eq!(rig.scpi("*opc?"), "1\n");
    }

    #[test]
    fn error_queue_read_back_and_power_show_faults() {
        let mut rig = Rig::plain();
        rig.fault("stuck 1");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25);*OPC?"), "1\n");
        assert_eq!(rig.error(), "-240, \"Hardware error\"\n");
        rig.fault("clear");

        rig.fault("lie");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25);*OPC?"), "1\n");
        assert_eq!(rig.error(), "0, \"No error\"\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:stat?"), "(@),(@)\n");
        rig.fault("clear");

        rig.fault("misdirect");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25);*OPC?"), "1\n");
        assert_eq!(rig.error(), "0, \"No error\"\n");
        assert_eq!(rig.scpi(":oxc:swit:conn:stat?"), "(@1),(@26)\n");
        rig.fault("clear");

        let before: f64 = power(&rig.scpi(":pmon:pow? (@26)"));
        rig.fault("droop 10");
        let after: f64 = power(&rig.scpi(":pmon:pow? (@26)"));
        assert!((before - after - 10.0).abs() < 0.15, "{before} {after}");
    }

    fn power(reply: &str) -> f64 {
        reply.trim().trim_matches(['(', ')']).parse().unwrap()
    }

    #[test]
    fn reboot_during_a_list_leaves_half_of_it_and_closes_connections() {
        let mut rig = Rig::plain();
        rig.fault("reboot-in-commit");
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1,2,3,4),(@25,26,27,28);*OPC?"), "");
        assert_eq!(rig.closed, [SCPI, TL1]);
        assert_eq!(rig.pairs(), [(1, 25), (2, 26)]);
        rig.open(Line(5), Port::Scpi);
        assert_eq!(rig.closed.pop(), Some(Line(5)), "still starting");
        rig.now = rig.now + Picoseconds::from_millis(2_000);
        rig.open(Line(6), Port::Scpi);
        assert_eq!(rig.say(Line(6), ":oxc:swit:conn:stat?\n"), "(@1,2),(@25,26)\n");
    }

    #[test]
    fn slow_fault_multiplies_the_switching_time() {
        let mut rig = Rig::plain();
        rig.fault("slow 10");
        let began = rig.now;
        assert_eq!(rig.scpi(":oxc:swit:conn:add (@1),(@25);*OPC?"), "1\n");
        assert!(rig.now.since(began) >= Picoseconds::from_millis(180));
    }
}

mod tl1 {
    use super::*;

    #[test]
    fn answers_the_dialogue_of_public_drivers() {
        let mut rig = Rig::plain();
        let reply = rig.say(TL1, "ACT-USER::root:123::root;");
        assert_eq!(reply, "\r\n\n   POLATIS 24-09-01 00:00:00\r\nM  123 COMPLD\r\n;");
        assert_eq!(rig.tl1("ENT-PATCH::1&2&3,25&26&27:124:;"), "124 COMPLD\r\n;");
        let patches = "125 COMPLD\r\n   \"1,25\"\r\n   \"2,26\"\r\n   \"3,27\"\r\n;";
        assert_eq!(rig.tl1("RTRV-PATCH:::125:;"), patches);
        assert_eq!(rig.tl1("DLT-PATCH::1:126:;"), "126 COMPLD\r\n;");
        assert_eq!(rig.tl1("DLT-PATCH::ALL:127:;"), "127 COMPLD\r\n;");
        let size = "128 COMPLD\r\n   \"SYSTEM:SIZE=24x24\"\r\n;";
        assert_eq!(rig.tl1("RTRV-EQPT::SYSTEM:128:::PARAMETER=SIZE;"), size);
        let kind = "129 COMPLD\r\n   \"Polatis,N-OST-24x24-LA1-DMHNS,OST,6.5.2.18\"\r\n;";
        assert_eq!(rig.tl1("RTRV-NETYPE:::129:;"), kind);
        assert_eq!(rig.tl1("RTRV-PORT-SHUTTER::1:130:;"), "130 COMPLD\r\n   \"1:OPEN\"\r\n;");
        rig.tl1("OPR-PORT-SHUTTER::1:131:;");
        assert_eq!(rig.tl1("RTRV-PORT-SHUTTER::1:132:;"), "132 COMPLD\r\n   \"1:CLOSED\"\r\n;");
        assert!(rig.tl1("RTRV-PORT-POWER::2:133:;").contains("\"2:-"));
        assert_eq!(rig.tl1("RTRV-PORT-PMON::2:134:;"), "134 COMPLD\r\n   \"2:1550.0,0.0,4\"\r\n;");
        assert_eq!(rig.tl1("CANC-USER::root:135:;"), "135 COMPLD\r\n;");
        assert!(rig.tl1("RTRV-PATCH:::136:;").starts_with("136 DENY\r\n   PLNA\r\n"));
    }

    #[test]
    fn refusals_return_their_error_codes() {
        let mut rig = Rig::plain();
        assert!(rig.tl1("ACT-USER::root:1::wrong;").starts_with("1 DENY\r\n   PIUI\r\n"));
        assert!(rig.tl1("ENT-PATCH::1,25:2:;").starts_with("2 DENY\r\n   PLNA\r\n"));
        rig.log_in();
        for (command, code) in [
            ("ENT-PATCH::1,99:3:;", "IIAC"),
            ("ENT-PATCH::x,25:3:;", "IIAC"),
            ("ENT-PATCH::1&2,25:3:;", "IPNV"),
            ("DLT-PATCH::49:3:;", "IIAC"),
            ("RTRV-INV::FAN:3:;", "IIAC"),
            ("SING-SONG:::3:;", "ICNV"),
            ("RTRV-PATCH:OTHER::3:;", "IITA"),
        ] {
            let reply = rig.tl1(command);
            assert!(
                reply.starts_with(&format!("3 DENY\r\n   {code}\r\n   /* ")),
                "{command}: {reply}"
            );
        }
        assert!(rig.tl1("RTRV-PATCH;").starts_with("0 DENY\r\n   IICT\r\n"));
        rig.tl1("ENT-PATCH::1,25:4:;");
        assert!(rig.tl1("ENT-PATCH::1,26:5:;").starts_with("5 DENY\r\n   SNVS\r\n"));
        rig.fault("stuck 2");
        assert!(rig.tl1("ENT-PATCH::2,26:6:;").starts_with("6 DENY\r\n   SROF\r\n"));
    }

    #[test]
    fn reports_a_partially_applied_list() {
        let mut rig = Rig::plain();
        rig.log_in();
        let reply = rig.tl1("ENT-PATCH::1&2&3,25&26&99:7:;");
        assert!(reply.starts_with("7 PRTL\r\n   IIAC\r\n   /* 2 of 3 done: "), "{reply}");
        assert_eq!(rig.pairs(), [(1, 25), (2, 26)]);
    }

    /// Spelling of three generations of a public driver: log in, identify, read, connect, clear.
    #[test]
    fn answers_requests_of_deployed_drivers() {
        for (log_in, name) in
            [("ACT-USER", "POLATIS"), ("ACT - USER", "POLATIS"), ("ACT-USER", "\"POLATIS\"")]
        {
            let mut rig = Rig::plain();
            assert_eq!(rig.tl1(&format!("{log_in}::root:1::root;\n")), "1 COMPLD\r\n;");
            let header = rig.say(TL1, "RTRV-HDR:::2:;\n");
            // The older drivers parse the name as the first word, or as the only word between
            // blanks.
            assert_eq!(header.split_whitespace().next(), Some("POLATIS"));
            assert!(header.ends_with("M  2 COMPLD\r\n;"), "{header}");
            let mut ask = |verb: &str, rest: &str| {
                let reply = rig.tl1(&format!("{verb}:{name}:{rest}\n"));
                let body = reply.strip_prefix("3 COMPLD\r\n").unwrap_or(&reply);
                body.strip_suffix(";").unwrap_or(body).replace("\r\n", "|").replace("   ", "")
            };
            assert_eq!(ask("RTRV-INV", "OCS:3:;"), "\"OCS:SN=POLATIS\"|");
            assert!(ask("RTRV-NETYPE", ":3:;").starts_with("\"Polatis,N-OST-24x24-LA1-DMHNS,OST,"));
            assert_eq!(ask("RTRV-EQPT", "SYSTEM:3:::PARAMETER=SIZE;"), "\"SYSTEM:SIZE=24x24\"|");
            let shutters = ask("RTRV-PORT-SHUTTER", "1&&48:3:;");
            assert!(shutters.starts_with("\"1:OPEN\"|\"2:OPEN\"|"), "{shutters}");
            assert_eq!(ask("RTRV-PORT-POWER", "1&&48:3:;").matches('|').count(), 48);
            assert!(ask("RTRV-PORT-PMON", "1&&48:3:;").starts_with("\"1:1550.0,"));
            // Logical ports 3 and 7 in both directions; both ends are cleared, as `port` and as
            // `port & its egress`.
            assert_eq!(ask("ENT-PATCH", "7,27:3:;"), "");
            assert_eq!(ask("ENT-PATCH", "3,31:3:;"), "");
            assert_eq!(ask("RTRV-PATCH", ":3:;"), "\"3,31\"|\"7,27\"|");
            assert_eq!(ask("DLT-PATCH", "3&27:3:;"), "");
            assert_eq!(ask("DLT-PATCH", "7&31:3:;"), "");
            assert_eq!(ask("DLT-PATCH", "3:3:;"), "");
            assert_eq!(ask("RTRV-PATCH", ":3:;"), "");
        }
        let mut unknown = Rig::new(SwitchSpec { name: String::new(), ..SwitchSpec::default() });
        assert!(unknown.say(TL1, "RTRV-HDR:::1:;").contains("( nil )"), "and without a log-in");
        unknown.log_in();
        assert_eq!(unknown.tl1("RTRV-INV:\"\":OCS:2:;"), "2 COMPLD\r\n   \"OCS:SN=0\"\r\n;");
    }

    #[test]
    fn sends_autonomous_messages_before_the_reply() {
        let mut rig = Rig::new(SwitchSpec::default());
        rig.log_in();
        let reply = rig.say(TL1, "ENT-PATCH::1,25:8:;");
        let event = "A  1 REPT EVT PATCH\r\n   \"1,25:JOINED\"\r\n;";
        let (before, after) = reply.split_once(event).unwrap();
        assert!(before.starts_with("\r\n\n   POLATIS 24-09-01 "), "{before}");
        assert!(after.ends_with("M  8 COMPLD\r\n;"), "{after}");
        // Changes by other clients and alarms are also reported.
        let mut out = Vec::new();
        rig.device.on_bytes(rig.now, SCPI, b":oxc:swit:conn:sub (@1),(@25)\n", &mut out);
        while let Some(at) = rig.device.next_wakeup() {
            rig.now = rig.now.max(at);
            rig.device.on_time(rig.now, &mut out);
        }
        assert!(rig.take(&out, TL1).contains("A  2 REPT EVT PATCH\r\n   \"1,25:PARTED\"\r\n;"));
        let mut out = Vec::new();
        rig.device.apply(rig.now, DeviceFault::Droop(300), &mut out);
        assert!(rig.take(&out, TL1).contains("*C 3 REPT ALM PORT"));
    }

    #[test]
    fn nameless_switch_shows_nil_and_acknowledges_slow_commands() {
        let mut rig = Rig::new(SwitchSpec {
            name: String::new(),
            is_autonomous: false,
            acknowledges: true,
            ..SwitchSpec::default()
        });
        rig.log_in();
        let reply = rig.say(TL1, "ENT-PATCH::1,25:8:;");
        assert!(reply.starts_with("\r\nIP 8\r\n<\r\n\n   ( nil ) 24-09-01 "), "{reply:?}");
    }

    #[test]
    fn replies_after_the_mirrors_settle() {
        let mut rig = Rig::plain();
        rig.log_in();
        let began = rig.now;
        rig.tl1("ENT-PATCH::1,25:8:;");
        assert!(rig.now.since(began) >= Picoseconds::from_millis(18));
    }

    #[test]
    fn accepts_single_bytes_and_awaits_the_terminator() {
        let mut rig = Rig::plain();
        rig.log_in();
        let mut reply = String::new();
        for byte in "rtrv-eqpt::SYSTEM:9:::PARAMETER=SIZE;".chars() {
            reply += &rig.say(TL1, &byte.to_string());
        }
        assert!(reply.contains("M  9 COMPLD"));
        assert_eq!(rig.say(TL1, "RTRV-PATCH:::10:"), "", "no terminator, no reply");
    }
}

#[test]
fn scpi_and_tl1_share_one_matrix() {
    let (mut by_scpi, mut by_tl1) = (Rig::plain(), Rig::plain());
    by_tl1.log_in();
    for step in 1..=12u16 {
        let (from, to) = (step, 24 + 25 - step);
        by_scpi.scpi(&format!(":oxc:swit:conn:add (@{from}),(@{to});*opc?"));
        by_tl1.tl1(&format!("ENT-PATCH::{from},{to}:{step}:;"));
    }
    by_scpi.scpi(":oxc:swit:conn:sub (@3),(@)");
    by_tl1.tl1("DLT-PATCH::3:99:;");
    assert_eq!(by_scpi.pairs(), by_tl1.pairs());
    assert_eq!(by_scpi.pairs().len(), 11);
}

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        ":oxc:swit:conn:add",
        "(@1,2)",
        "(@25,26)",
        ",",
        ";",
        "\n",
        "*opc?",
        "only",
        "sub",
        "(@)",
        "ENT-PATCH::1,25:1:;",
        "DLT-PATCH::ALL:2:;",
        "ACT-USER::root:1::root;",
        ":",
        "&&",
        "\"",
        "RTRV-PATCH:::3:;",
        "(@1:65535)",
        "syst:err:all?",
        "\r\n",
        "65536",
        "-1",
        "é",
    ]);
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn arbitrary_text_never_connects_a_port_twice(text in words(), raw in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut rig = Rig::new(SwitchSpec::default());
        rig.say(TL1, "ACT-USER::root:1::root;");
        for line in [SCPI, TL1] {
            rig.say(line, &text);
            let mut out = Vec::new();
            rig.device.on_bytes(rig.now, line, &raw, &mut out);
        }
        rig.say(SCPI, "\n");
        let pairs = rig.pairs();
        let mut egress: Vec<u16> = pairs.iter().map(|pair| pair.1).collect();
        egress.sort_unstable();
        egress.dedup();
        prop_assert_eq!(egress.len(), pairs.len());
    }
}

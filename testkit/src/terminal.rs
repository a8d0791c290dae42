// SPDX-License-Identifier: Apache-2.0
//! Plays the text that a switch's terminal adds to a conversation: a greeting, echoes, prompts and alarms.

#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    pub greeting: &'static str,
    pub echoes: bool,
    pub prompt: &'static str,
    /// An autonomous message that arrives between a request and its reply.
    pub alarm: &'static str,
}

const ALARM: &str =
    "\r\n\n   OCS1 26-11-28 10:00:00\r\n*C 17 REPT ALM ENV\r\n   \"FAN:CR,TEMP;SA\"\r\n;";

impl Terminal {
    /// Returns terminals of TL1 switches. The greetings resemble alarms and replies.
    #[must_use]
    pub fn tl1() -> Vec<Self> {
        let greetings = [
            "\r\n*** Authorised users only ***\r\nA TL1 session; type HELP.\r\n",
            "\r\nM 1 switch of 26-11-28\r\nLast login: 26-11-27 09:00:00\r\n",
            "\u{2}TL1> ",
        ];
        let quiet = greetings.map(|greeting| Self { greeting, ..Self::default() });
        let loud =
            quiet.map(|one| Self { echoes: true, prompt: "\r\nTL1>> ", alarm: ALARM, ..one });
        [quiet, loud].concat()
    }

    /// Returns terminals of SCPI switches.
    #[must_use]
    pub fn scpi() -> Vec<Self> {
        let of = |greeting, echoes, prompt| Self { greeting, echoes, prompt, alarm: "" };
        vec![
            of("", false, ""),
            of("Polatis switch, SCPI ready\r\n\r\na,b\r\n", false, ""),
            of("hi\n", true, "SCPI> "),
        ]
    }

    /// Returns the bytes between a request and its reply.
    #[must_use]
    pub fn before(&self, request: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.echoes {
            // A TL1 prompt follows the reply.
            let prompt = if self.alarm.is_empty() { self.prompt } else { "" };
            bytes.extend(prompt.bytes().chain(request.trim_ascii().iter().copied()));
            bytes.extend(b"\r\n");
        }
        bytes.extend(self.alarm.bytes());
        bytes
    }

    /// Returns a TL1 reply with the prompt after it.
    #[must_use]
    pub fn after(&self, mut reply: Vec<u8>) -> Vec<u8> {
        if reply.trim_ascii_end().ends_with(b";") {
            reply.extend(self.prompt.bytes());
        }
        reply
    }
}

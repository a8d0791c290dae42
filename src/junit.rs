// SPDX-License-Identifier: Apache-2.0
//! JUnit XML for CI systems.
//!
//! Characters that XML cannot represent are omitted.

use std::fmt::Write as _;
use std::time::Duration;

pub fn document(name: &str, suites: &[Suite]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let counts = counts(suites.iter().flat_map(|suite| &suite.cases), false);
    let _ = writeln!(xml, "<testsuites name=\"{}\"{counts}>", escaped(name));
    for suite in suites {
        suite.write(&mut xml);
    }
    xml.push_str("</testsuites>\n");
    xml
}

#[derive(Clone, Debug, Default)]
pub struct Suite {
    name: String,
    time: Option<Duration>,
    properties: Vec<(String, String)>,
    cases: Vec<JunitCase>,
}

impl Suite {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub fn took(&mut self, time: Duration) {
        self.time = Some(time);
    }

    pub fn property(&mut self, name: &str, value: &str) {
        self.properties.push((name.to_owned(), value.to_owned()));
    }

    pub fn add(&mut self, case: JunitCase) {
        self.cases.push(case);
    }

    fn write(&self, xml: &mut String) {
        let name = escaped(&self.name);
        let time = self.time.map_or(String::new(), |time| format!(" time=\"{}\"", seconds(time)));
        let _ =
            write!(xml, "    <testsuite name=\"{name}\"{}{time}", counts(self.cases.iter(), true));
        xml.push_str(">\n");
        if !self.properties.is_empty() {
            xml.push_str("        <properties>\n");
            for (name, value) in &self.properties {
                let (name, value) = (escaped(name), escaped(value));
                let _ = writeln!(xml, "            <property name=\"{name}\" value=\"{value}\"/>");
            }
            xml.push_str("        </properties>\n");
        }
        self.cases.iter().for_each(|case| case.write(xml));
        xml.push_str("    </testsuite>\n");
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JunitEnd {
    Well,
    Failed(String, String),
    Error(String),
    Skipped(String),
}

#[derive(Clone, Debug)]
pub struct JunitCase {
    name: String,
    class: String,
    time: Option<Duration>,
    ended: JunitEnd,
    output: String,
}

impl JunitCase {
    pub fn new(name: impl Into<String>, class: impl Into<String>, ended: JunitEnd) -> Self {
        let (name, class, output) = (name.into(), class.into(), String::new());
        Self { name, class, time: None, ended, output }
    }

    #[must_use]
    pub fn took(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    #[must_use]
    pub fn printed(self, output: impl Into<String>) -> Self {
        Self { output: output.into(), ..self }
    }

    fn write(&self, xml: &mut String) {
        let (name, class) = (escaped(&self.name), escaped(&self.class));
        let time = self.time.map_or(String::new(), |time| format!(" time=\"{}\"", seconds(time)));
        let _ = write!(xml, "        <testcase name=\"{name}\" classname=\"{class}\"{time}");
        let (element, message, detail) = match &self.ended {
            JunitEnd::Well => ("", "", ""),
            JunitEnd::Failed(message, detail) => ("failure", message.as_str(), detail.as_str()),
            JunitEnd::Error(message) => ("error", message.as_str(), ""),
            JunitEnd::Skipped(message) => ("skipped", message.as_str(), ""),
        };
        xml.push_str(">\n");
        if !element.is_empty() {
            let message = match message {
                "" => String::new(),
                message => format!(" message=\"{}\"", escaped(message)),
            };
            let _ = match detail {
                "" => writeln!(xml, "            <{element}{message}/>"),
                detail => {
                    let detail = escaped(detail);
                    writeln!(xml, "            <{element}{message}>{detail}</{element}>")
                }
            };
        }
        if !self.output.is_empty() {
            let output = escaped(&self.output);
            let _ = writeln!(xml, "            <system-out>{output}</system-out>");
        }
        xml.push_str("        </testcase>\n");
    }
}

fn counts<'c>(cases: impl Iterator<Item = &'c JunitCase>, names_skipped: bool) -> String {
    let (mut tests, mut skipped, mut errors, mut failures) = (0, 0, 0, 0);
    for case in cases {
        tests += 1;
        match case.ended {
            JunitEnd::Well => {}
            JunitEnd::Failed(..) => failures += 1,
            JunitEnd::Error(_) => errors += 1,
            JunitEnd::Skipped(_) => skipped += 1,
        }
    }
    if names_skipped {
        format!(
            " tests=\"{tests}\" disabled=\"{skipped}\" errors=\"{errors}\" failures=\"{failures}\""
        )
    } else {
        format!(" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"")
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// Line breaks remain where XML preserves them and become character references in attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\t' => escaped.push(character),
            other if other.is_control() || matches!(other, '\u{fffe}' | '\u{ffff}') => {}
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_and_document_count_their_cases_and_escape_text() {
        let mut suite = Suite::new("a \"b\" (seed 1)");
        suite.took(Duration::from_millis(1_500));
        suite.property("replay", "lightloom emulate 'a & b.yaml'");
        let failed = JunitEnd::Failed("1 < 2".to_owned(), "1 < 2\nseed: 1\n".to_owned());
        suite.add(JunitCase::new("expect x", "c", failed).printed("x\u{1b}"));
        suite.add(JunitCase::new("fault 0", "c", JunitEnd::Well).took(Duration::ZERO));
        suite.add(JunitCase::new("z", "c", JunitEnd::Skipped(String::new())));
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
<testsuites name=\"lightloom\" tests=\"3\" failures=\"1\" errors=\"0\">
    <testsuite name=\"a &quot;b&quot; (seed 1)\" tests=\"3\" disabled=\"1\" errors=\"0\" failures=\"1\" time=\"1.500\">
        <properties>
            <property name=\"replay\" value=\"lightloom emulate &apos;a &amp; b.yaml&apos;\"/>
        </properties>
        <testcase name=\"expect x\" classname=\"c\">
            <failure message=\"1 &lt; 2\">1 &lt; 2\nseed: 1\n</failure>
            <system-out>x</system-out>
        </testcase>
        <testcase name=\"fault 0\" classname=\"c\" time=\"0.000\">
        </testcase>
        <testcase name=\"z\" classname=\"c\">
            <skipped/>
        </testcase>
    </testsuite>
</testsuites>
";
        assert_eq!(document("lightloom", &[suite]), expected);
    }
}

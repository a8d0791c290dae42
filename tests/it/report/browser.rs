// SPDX-License-Identifier: Apache-2.0

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const HEIGHT: u32 = 3600;

pub(super) fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: no chromium");
    }
    found
}

#[derive(Debug)]
pub(super) struct Look {
    pub(super) found: Vec<String>,
    pub(super) opened_ms: f64,
}

pub(super) struct Sheet<'a> {
    pub(super) html: &'a str,
    pub(super) required: &'a [&'a str],
    pub(super) width: u32,
}

pub(super) struct Browser {
    pub(super) program: PathBuf,
    pub(super) is_dark: bool,
}

impl Browser {
    pub(super) fn look(&self, sheets: &[Sheet<'_>], name: &str) -> Vec<Look> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
        fs::create_dir_all(&folder).unwrap();
        let theme = if self.is_dark { "dark" } else { "light" };
        let stem = format!("{name}-{theme}");
        let mut frames = String::from(
            "<!doctype html><meta name=\"color-scheme\" content=\"light dark\"><body style=\"margin: 0\">",
        );
        for (index, sheet) in sheets.iter().enumerate() {
            let copy = format!("{stem}.{index}.checked.html");
            fs::write(folder.join(&copy), with_checks(sheet.html, sheet.required)).unwrap();
            // A frame can be as narrow as a phone, but a browser window cannot.
            let width = sheet.width;
            frames += &format!(
                "<iframe name=\"{index}\" src=\"{copy}\" style=\"display: block; border: 0; width: {width}px; \
                 height: {HEIGHT}px\"></iframe>"
            );
        }
        let frame = folder.join(format!("{stem}.frame.html"));
        fs::write(&frame, frames).unwrap();
        let picture = folder.join(format!("{stem}.png"));
        let _ = fs::remove_file(&picture);
        let widest = sheets.iter().map(|sheet| sheet.width).max().unwrap();
        let dump = self.run((&folder, &stem), &frame, &picture, widest);
        assert_is_picture(&fs::read(&picture).unwrap(), widest);
        let verdicts = verdicts(&dump);
        let look = |(index, sheet): (usize, &Sheet<'_>)| {
            let verdict = verdicts.iter().find(|verdict| verdict["frame"] == index);
            let verdict =
                verdict.unwrap_or_else(|| panic!("{stem}: page {index} did not load: {dump:.400}"));
            assert_eq!(verdict["width"], sheet.width, "{stem}");
            assert_eq!(verdict["dark"], self.is_dark, "{stem}");
            Look {
                found: serde_json::from_value(verdict["found"].clone()).unwrap(),
                opened_ms: verdict["opened_ms"].as_f64().unwrap(),
            }
        };
        sheets.iter().enumerate().map(look).collect()
    }

    fn run(
        &self,
        (folder, stem): (&Path, &str),
        page: &Path,
        picture: &Path,
        width: u32,
    ) -> String {
        let profile = tempfile::tempdir().unwrap();
        let dump = folder.join(format!("{stem}.dump.html"));
        let scheme = if self.is_dark { 0 } else { 1 };
        let mut child = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--dump-dom",
            ])
            .arg("--allow-file-access-from-files")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},{HEIGHT}"))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("file://{}", page.display()))
            .stdout(File::create(&dump).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let start = Instant::now();
        loop {
            if child.try_wait().unwrap().is_some() {
                return fs::read_to_string(&dump).unwrap();
            }
            if start.elapsed() > Duration::from_secs(60) {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the browser took more than a minute for {stem}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn with_checks(html: &str, required: &[&str]) -> String {
    let required = serde_json::to_string(required).unwrap();
    let before = format!(
        "<head><script>window.lightloomRequired = {required}; window.lightloomErrors = [];
         addEventListener('error', (event) => lightloomErrors.push('script error: ' + (event.message
           || 'cannot load ' + (event.target.src || event.target.href))), true);</script>"
    );
    let checks = format!("<script>{}</script></body>", include_str!("../report_check.js"));
    assert!(html.contains("<head>") && html.contains("</body>"), "a whole page");
    html.replacen("<head>", &before, 1).replacen("</body>", &checks, 1)
}

fn verdicts(dump: &str) -> Vec<Value> {
    let each = dump.split("<pre id=\"lightloom-verdict\">").skip(1);
    let texts = each.filter_map(|rest| rest.split("</pre>").next());
    let plain = |text: &str| {
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    texts.map(|text| serde_json::from_str(&plain(text)).unwrap()).collect()
}

fn assert_is_picture(bytes: &[u8], width: u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes[16..20], width.to_be_bytes());
    assert!(bytes.len() > 20_000, "{} bytes of picture", bytes.len());
}

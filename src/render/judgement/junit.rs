//! JUnit's XML, which GitLab, Jenkins and others show as tests: one for each limit.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::{Checked, sentence};
use crate::analyze::{Unusable, Verdict};

type Out = Writer<Vec<u8>>;

/// A suite for each profile.
pub fn junit(all: &[Checked]) -> io::Result<Vec<u8>> {
    let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    out.create_element("testsuites")
        .with_attribute(("name", "taskheap check"))
        .write_inner_content(|out| all.iter().try_for_each(|checked| suite(out, checked)))?;
    let mut bytes = out.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

fn suite(out: &mut Out, checked: &Checked) -> io::Result<()> {
    let judgement = &checked.judgement;
    let tests = judgement.verdicts.len() + judgement.unusable.len();
    out.create_element("testsuite")
        .with_attribute(("name", plain(&checked.profile).as_str()))
        .with_attribute(("tests", tests.to_string().as_str()))
        .with_attribute(("failures", judgement.over().to_string().as_str()))
        .with_attribute(("errors", judgement.unusable.len().to_string().as_str()))
        .write_inner_content(|out| {
            for verdict in &judgement.verdicts {
                limit(out, &checked.profile, verdict)?;
            }
            let unusable = judgement.unusable.iter();
            for unusable in unusable {
                not_judged(out, &checked.profile, unusable)?;
            }
            Ok(())
        })?;
    Ok(())
}

fn limit(out: &mut Out, profile: &str, verdict: &Verdict) -> io::Result<()> {
    let against = if verdict.baseline.is_some() {
        " against the baseline"
    } else {
        ""
    };
    let name = plain(&format!(
        "{} of {}{against}",
        verdict.measure, verdict.subject
    ));
    let case = out
        .create_element("testcase")
        .with_attribute(("classname", plain(profile).as_str()))
        .with_attribute(("name", name.as_str()));
    if verdict.within {
        case.write_empty()?;
        return Ok(());
    }
    let message = plain(&sentence(verdict));
    case.write_inner_content(|out| {
        out.create_element("failure")
            .with_attribute(("message", message.as_str()))
            .with_attribute(("type", "over budget"))
            .write_empty()?;
        Ok(())
    })?;
    Ok(())
}

fn not_judged(out: &mut Out, profile: &str, unusable: &Unusable) -> io::Result<()> {
    let what = plain(&unusable.what);
    let hint = plain(&unusable.hint);
    out.create_element("testcase")
        .with_attribute(("classname", plain(profile).as_str()))
        .with_attribute(("name", what.as_str()))
        .write_inner_content(|out| {
            out.create_element("error")
                .with_attribute(("message", what.as_str()))
                .with_attribute(("type", "not judged"))
                .write_text_content(BytesText::new(&hint))?;
            Ok(())
        })?;
    Ok(())
}

/// XML has no place for control characters, escaped or not.
fn plain(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(shown).collect()
}

//! The first screen of a report, made for one look: findings, how the program ended, totals,
//! who owns the heap, where it is made, and what to type next.

use std::fmt::Write;

use super::findings;
use super::tables::{self, Options};
use super::text::{
    ALARM, COMMAND, ERROR, FAINT, HEADING, WIDTH, clean, quoted, shorten, styled, wrap,
};
use super::units::{UNITS_NOTE, bytes, counted, percent, seconds};
use crate::analyze::{RecordingRow, Report};

/// Rows of each table, unless the person says otherwise.
pub const ROWS: usize = 8;

/// `profile` is how the person named the file.
pub fn render(report: &Report, profile: &str, options: &Options) -> String {
    let profile = quoted(profile);
    let mut out = String::new();
    out.push_str(&ending(report));
    out.push_str(&warnings(report));
    for block in [findings::render(report, &profile), totals(report)] {
        if !block.is_empty() {
            out.push('\n');
            out.push_str(&block);
        }
    }
    out.push_str(&owners(report, options));
    out.push_str(&places(report, options));
    out.push_str(&next(report, &profile));
    out
}

fn section(out: &mut String, title: &str, body: &str) {
    let _ = write!(out, "\n{}\n{body}", styled(HEADING, title));
}

/// `server --port 80, pid 12: exited with code 0 after 1.20 s`.
fn ending(report: &Report) -> String {
    let program = &report.program;
    let name = program.path.rsplit('/').next().unwrap_or(&program.path);
    let mut command = clean(name);
    for arg in &program.args {
        command.push(' ');
        command.push_str(&quoted(arg));
    }
    let (style, end) = match (program.exit.code, program.exit.signal) {
        _ if program.replaced => (HEADING, "became another program (exec)".to_owned()),
        (_, Some(signal)) => (ERROR, format!("killed by {}", signal_name(signal))),
        (Some(0), None) => (HEADING, "exited with code 0".to_owned()),
        (Some(code), None) => (ALARM, format!("exited with code {code}")),
        (None, None) => (HEADING, "still running".to_owned()),
    };
    let tail = format!(
        " (pid {}) {} {}",
        program.pid,
        styled(style, &end),
        format_args!("after {}", seconds(program.duration_s)),
    );
    let room = WIDTH.saturating_sub(super::text::width(&end) + 32).max(20);
    format!("{}{tail}\n", styled(HEADING, &shorten(&command, room)))
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("{name} (signal {signal})")
}

/// What a reader has to know before the figures.
fn warnings(report: &Report) -> String {
    let mut lines: Vec<String> = report.program.warnings.clone();
    lines.extend(limits(&report.recording));
    let (seen, peak) = (report.moment.live_bytes, report.totals.peak_live_bytes);
    if report.moment.walk.is_some() && !report.moment.saw_most {
        lines.push(format!(
            "the fullest look at the heap saw {} of the peak's bytes: who is alive and what is \
             held is told of that moment, {}",
            percent(seen, peak),
            seconds(report.moment.at_s)
        ));
    }
    let mut out = String::new();
    for line in lines {
        let text = wrap(&clean(&line), WIDTH - 2, 2);
        let _ = writeln!(out, "{} {text}", styled(ALARM, "!"));
    }
    out
}

fn limits(recording: &RecordingRow) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |count: u64, one: &str, what: &str| {
        if count > 0 {
            lines.push(format!("{} {what}", counted(count, one)));
        }
    };
    say(
        recording.lost_events,
        "event",
        "could not be recorded: the figures are too small",
    );
    say(
        recording.failed_allocations,
        "allocation",
        "failed: the program ran out of memory",
    );
    say(
        recording.torn_events,
        "event",
        "was under way when the program was killed",
    );
    say(
        recording.truncated_stacks,
        "allocation",
        "with a stack that was cut",
    );
    say(recording.missing_stacks, "allocation", "without a stack");
    if recording.task_ids == "none" && recording.runtime_seen {
        lines.push("tokio's task ids could not be found: tasks are not told apart".to_owned());
    }
    if recording.sample_bytes > 0 {
        lines.push(format!(
            "sampled, about one allocation in {}: bytes and blocks are estimates, ± is their \
             standard error. Single tasks are not told, and the heap was not looked at",
            bytes(recording.sample_bytes)
        ));
    }
    lines
}

fn totals(report: &Report) -> String {
    let totals = &report.totals;
    let mut out = format!("{}\n", styled(HEADING, "HEAP"));
    let blocks = |count| counted(count, "block");
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<12}{}", wrap(&text, WIDTH - 14, 14));
    };
    line(
        "peak",
        format!(
            "{} in {}, at {}",
            bytes(totals.peak_live_bytes),
            blocks(totals.peak_live_blocks),
            seconds(totals.peak_at_s)
        ),
    );
    let exit = &report.program.exit;
    let goes_on = exit.code.is_none() && exit.signal.is_none() && !report.program.replaced;
    line(
        if goes_on { "now" } else { "at the end" },
        format!(
            "{} in {}",
            bytes(totals.live_bytes),
            blocks(totals.live_blocks)
        ),
    );
    line(
        "allocated",
        format!(
            "{} in {}, {} temporary",
            bytes(totals.allocated_bytes),
            blocks(totals.allocations),
            percent(totals.temporary_blocks, totals.allocations)
        ),
    );
    if let (Some(rss), Some(moment)) = (report.memory.rss_bytes, &report.memory.moment) {
        line("resident", format!("{} at {}", bytes(rss), clean(moment)));
    }
    for row in &report.growth {
        line("growth", super::growth::sentence(row));
    }
    if let Some(looks) = looks(report) {
        line("looks", looks);
    }
    if let Some(error) = report.recording.peak_error_bytes {
        line(
            "exactness",
            format!("the peak to within {} (standard error)", bytes(error)),
        );
    } else if report.recording.peak_bound_bytes > 0 {
        let bound = bytes(report.recording.peak_bound_bytes);
        line(
            "exactness",
            format!("the peak to within {bound}, all else to the byte"),
        );
    }
    out
}

/// How often the program stood still to be looked at, and for how long.
fn looks(report: &Report) -> Option<String> {
    let walks = &report.walks;
    let longest = walks.iter().map(|walk| walk.pause_s).fold(0.0, f64::max);
    let paused: f64 = walks.iter().map(|walk| walk.pause_s).sum();
    let read: u64 = walks.iter().map(|walk| walk.bytes_read).sum();
    let per_second = read as f64 / paused.max(1e-6);
    (!walks.is_empty()).then(|| {
        format!(
            "{}, the program stood still for {} in all ({} at most); {} read per second",
            counted(walks.len() as u64, "walk"),
            seconds(paused),
            seconds(longest),
            bytes(per_second as u64),
        )
    })
}

fn owners(report: &Report, options: &Options) -> String {
    let mut out = String::new();
    if !report.tasks.is_empty() {
        let title = format!("TASK TYPES{}", options.part(&report.tasks));
        section(&mut out, &title, &tables::tasks(&report.tasks, options));
        let note = format!(
            "alive, done, each, keeps: {}; each: made by one; keeps: held by these only, whoever made \
             it; done: finished, but its cell is not freed; future: size of one cell",
            report.moment.text
        );
        let note = format!("  {}", wrap(&note, WIDTH - 2, 2));
        let _ = writeln!(out, "{}", styled(FAINT, &note));
    }
    if !report.threads.is_empty() {
        let title = format!("THREADS{}", options.part(&report.threads));
        section(&mut out, &title, &tables::threads(&report.threads, options));
    }
    if !report.others.is_empty() {
        section(
            &mut out,
            "NEITHER",
            &tables::others(&report.others, options),
        );
    }
    out
}

fn places(report: &Report, options: &Options) -> String {
    let mut out = String::new();
    if !report.sites.is_empty() {
        let title = format!(
            "SITES in the program's own code{}",
            options.part(&report.sites)
        );
        section(
            &mut out,
            &title,
            &tables::sites_short(&report.sites, options),
        );
    }
    out
}

fn next(report: &Report, profile: &str) -> String {
    let by = if report.tasks.is_empty() {
        ""
    } else {
        " --by task"
    };
    let mut commands = vec![(format!("taskheap flamegraph {profile}{by}"), "draws it")];
    if report.tasks.is_empty() {
        commands.push((format!("taskheap report {profile} --sites"), "all sites"));
    } else {
        commands.push((
            format!("taskheap report {profile} --tasks"),
            "all task types",
        ));
    }
    let mut out = String::new();
    let longest = commands
        .iter()
        .map(|(c, _)| super::text::width(c))
        .max()
        .unwrap_or(0);
    for (command, what) in commands {
        let padding = " ".repeat(longest - super::text::width(&command));
        let _ = writeln!(out, "  {}{padding}  {what}", styled(COMMAND, &command));
    }
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {UNITS_NOTE}")));
    format!("\n{}\n{out}", styled(HEADING, "NEXT"))
}

//! `taskheap report`: the first screen, one table whole, or everything as JSON.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::{Error, Outcome, print, print_raw};
use crate::analyze::{Order, Report};
use crate::profile::{self, Output};
use crate::render::tables::{self, Options};
use crate::render::text::{FAINT, HEADING, WIDTH, styled, wrap};
use crate::render::units::UNITS_NOTE;
use crate::render::{first_screen, growth, stacks_svg, units, workers};

/// Show who owns the heap: one screen, one table whole, or JSON
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap report FILE                      one screen, findings first
  taskheap report FILE --tasks --sort mean  the types that hold most each
  taskheap report FILE --sites --limit 20   the 20 lines of code that hold most
  taskheap report FILE --json               everything, for a program to read

Next: taskheap flamegraph FILE, taskheap diff BASE FILE, taskheap check FILE.")]
pub struct Args {
    /// What `taskheap run` wrote
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    tables: Tables,

    /// Order of the tables of tasks, threads and sites
    #[arg(long, value_enum, value_name = "BY", default_value = "peak")]
    sort: Sort,

    /// Rows of each table [default: 8 on the first screen, else all]
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

    /// Don't shorten names to fit 80 columns
    #[arg(long)]
    wide: bool,

    /// Draw the stacks into this file, a bar for each kind of task and thread
    #[arg(long, value_name = "FILE", requires = "stacks")]
    svg: Option<PathBuf>,

    /// Overwrite that file if it exists
    #[arg(long, requires = "svg")]
    force: bool,
}

/// Which tables to show whole, instead of the first screen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tables, shown whole")]
struct Tables {
    /// Task types: how many, what each holds, where they are spawned
    #[arg(long, conflicts_with = "json")]
    tasks: bool,
    /// Threads, by name
    #[arg(long, conflicts_with = "json")]
    threads: bool,
    /// Lines of the program's own code that allocate
    #[arg(long, conflicts_with = "json")]
    sites: bool,
    /// Where the resident memory (RSS) goes
    #[arg(long, conflicts_with = "json")]
    memory: bool,
    /// Structures that exist several times over
    #[arg(long, conflicts_with = "json")]
    copies: bool,
    /// What each thread-local keeps
    #[arg(long, conflicts_with = "json")]
    thread_locals: bool,
    /// What statics keep, and who touched them first
    #[arg(long, conflicts_with = "json")]
    shared: bool,
    /// Blocks that nothing reaches
    #[arg(long, conflicts_with = "json")]
    leaks: bool,
    /// What a waiting task costs beside a waiting thread
    #[arg(long, conflicts_with = "json")]
    stacks: bool,
    /// How the heap grew with the tasks or threads of this one run
    #[arg(long, conflicts_with = "json")]
    growth: bool,
    /// Runtime workers: how busy, and which tasks held them
    #[arg(long, conflicts_with = "json")]
    workers: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    /// Bytes at the peak
    Peak,
    /// Live bytes
    Live,
    /// Bytes allocated in the whole run
    Allocated,
    /// Number of allocations
    Blocks,
    /// Tasks spawned, threads started
    Count,
    /// Bytes per task
    Mean,
    /// Alphabet
    Name,
}

impl From<Sort> for Order {
    fn from(sort: Sort) -> Order {
        match sort {
            Sort::Peak => Order::Peak,
            Sort::Live => Order::Live,
            Sort::Allocated => Order::Allocated,
            Sort::Blocks => Order::Blocks,
            Sort::Count => Order::Count,
            Sort::Mean => Order::Mean,
            Sort::Name => Order::Name,
        }
    }
}

impl Tables {
    fn any(&self) -> bool {
        self.tasks
            || self.threads
            || self.sites
            || self.memory
            || self.copies
            || self.thread_locals
            || self.shared
            || self.leaks
            || self.stacks
            || self.growth
            || self.workers
    }
}

pub fn run(args: &Args) -> Outcome {
    let profile = profile::read(&args.profile)?;
    let mut report = crate::analyze::report(&profile);
    if !matches!(args.sort, Sort::Peak) {
        report.sort(args.sort.into());
    }
    if args.json {
        let mut text = serde_json::to_vec_pretty(&report).map_err(|e| Error::Print(e.into()))?;
        text.push(b'\n');
        print_raw(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let drawn = match &args.svg {
        Some(path) => Some(draw_stacks(&report, path, args.force)?),
        None => None,
    };
    let width = (!args.wide).then_some(WIDTH);
    if args.tables.any() {
        let limit = args.limit;
        print(&whole(&report, &args.tables, &Options { limit, width }))?;
    } else {
        let limit = Some(args.limit.unwrap_or(first_screen::ROWS));
        let name = args.profile.display().to_string();
        print(&first_screen::render(
            &report,
            &name,
            &Options { limit, width },
        ))?;
    }
    if let (Some(path), Some(size)) = (&args.svg, drawn) {
        print(&format!(
            "wrote {} ({})\n",
            path.display(),
            units::bytes(size)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns how large it became.
fn draw_stacks(report: &Report, path: &Path, force: bool) -> Result<u64, Error> {
    let output = Output::create(path, profile::Options { force })?;
    let drawn = stacks_svg::draw(&report.stacks).map_err(|what| Error::Refused {
        what: format!("the stacks can't be drawn: {what}"),
        hint: "--stacks alone shows them as a table".to_owned(),
    })?;
    let svg = drawn.ok_or_else(|| Error::Nothing {
        what: "there are no stacks to draw".to_owned(),
        hint: "they are seen at a walk: record without --no-walk".to_owned(),
    })?;
    Ok(output.finish_with(svg.as_bytes())?)
}

/// The tables that were asked for, each with what its figures mean.
fn whole(report: &Report, tables: &Tables, options: &Options) -> String {
    let mut out = String::new();
    let moment = report.moment.text.as_str();
    let walked = !report.walks.is_empty();
    let mut show =
        |wanted: bool, title: &str, rows: usize, note: &str, body: &dyn Fn() -> String| {
            if !wanted {
                return;
            }
            let blank = if out.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{blank}{}", styled(HEADING, title));
            let body = if rows == 0 {
                nothing(title, walked)
            } else {
                body()
            };
            out.push_str(&body);
            let _ = writeln!(
                out,
                "{}",
                styled(FAINT, &format!("  {}", wrap(note, WIDTH - 2, 2)))
            );
        };
    show(
        tables.tasks,
        "TASK TYPES",
        report.tasks.len(),
        &task_note(moment),
        &|| {
            let rows = &report.tasks;
            format!(
                "{}\n{}",
                tables::tasks(rows, options),
                tables::task_details(rows, options)
            )
        },
    );
    let note = format!("alive, live, stack: {moment}; left: by threads that are gone");
    show(
        tables.threads,
        "THREADS",
        report.threads.len(),
        &note,
        &|| tables::threads(&report.threads, options),
    );
    let note = "innermost frame of the program's own code; through: the library it calls";
    show(tables.sites, "SITES", report.sites.len(), note, &|| {
        tables::sites(&report.sites, options)
    });
    show_walked(report, tables, options, moment, &mut show);
    let _ = writeln!(out, "{}", styled(FAINT, &format!("  {UNITS_NOTE}")));
    out
}

type Show<'a> = dyn FnMut(bool, &str, usize, &str, &dyn Fn() -> String) + 'a;

/// Those that need a walk.
fn show_walked(report: &Report, tables: &Tables, options: &Options, moment: &str, show: &mut Show) {
    let note = format!("{moment}; equal: share of the bytes; waste: all copies but one");
    show(tables.copies, "COPIES", report.copies.len(), &note, &|| {
        tables::copies(&report.copies, options)
    });
    let note = format!("{moment}; bytes: reachable from this thread-local only");
    show(
        tables.thread_locals,
        "THREAD-LOCALS",
        report.thread_locals.len(),
        &note,
        &|| tables::thread_locals(&report.thread_locals, options),
    );
    let basis = report.shared.first().map_or("reachable", |row| row.basis);
    let note = match basis {
        "made" => "the end of the run; bytes: made by the static's initialiser and live".to_owned(),
        _ => format!("{moment}; bytes: reachable from this static only"),
    };
    show(tables.shared, "SHARED", report.shared.len(), &note, &|| {
        tables::shared(&report.shared, options)
    });
    let note = "the last walk; indirect: reached from another leaked block only";
    show(tables.leaks, "LEAKS", report.leaks.len(), note, &|| {
        tables::leaks(&report.leaks, options)
    });
    let possible = tables.leaks && !report.possible_leaks.is_empty();
    let note = "something that may be a hidden pointer leads to these";
    show(
        possible,
        "POSSIBLE LEAKS",
        report.possible_leaks.len(),
        note,
        &|| tables::leaks(&report.possible_leaks, options),
    );
    let memory = &report.memory;
    let known = usize::from(memory.rss_bytes.is_some());
    let note = format!(
        "{}; largest RSS of the run: {}",
        memory.moment.as_deref().unwrap_or("no look was taken"),
        memory
            .rss_peak_bytes
            .map_or("not known".to_owned(), units::bytes),
    );
    show(tables.memory, "MEMORY", known, &note, &|| {
        tables::memory(memory, options)
    });
    let told = memory.allocators.iter().find_map(|row| row.told_at_s);
    let note = match told {
        Some(at) => format!(
            "with blocks, dirty (free, kept), muzzy (free, the system may take it), thread caches \
             and its own: as the allocator said at {at:.1} s"
        ),
        None => "as seen from outside; it was not asked".to_owned(),
    };
    let rows = memory.allocators.len();
    let shown = tables.memory && rows > 0;
    show(shown, "LINKED ALLOCATORS", rows, &note, &|| {
        tables::allocators(memory, options)
    });
    let stacks = report.stacks.tasks.len() + report.stacks.threads.len();
    let note = format!("{moment}; a task's bytes are its cell: future and header");
    show(tables.stacks, "STACKS", stacks, &note, &|| {
        tables::stacks(&report.stacks, options)
    });
    let rows = &report.growth;
    let why = report.growth_note.as_deref();
    // That it was not seen is said with its reason, in the place of the table.
    show(tables.growth, "GROWTH", 1, growth::OF_ONE_RUN_NOTE, &|| {
        growth::of_one_run(rows, why, options)
    });
    let note = "seen from outside every few milliseconds; a stay: one poll of one task; busy: share \
                of the looks at which a task ran";
    let rows = report.workers.len();
    show(tables.workers, "WORKERS", rows, note, &|| {
        workers::render(&report.workers, options)
    });
}

fn task_note(moment: &str) -> String {
    format!(
        "at peak, allocated, blocks: the whole run; alive, done, each, live, keeps, left, \
         idle: {moment}. done: finished, but the cell is not freed; future: size of one \
         cell; keeps: reachable from these tasks only; left: made by tasks that are gone"
    )
}

fn nothing(title: &str, walked: bool) -> String {
    match title {
        "TASK TYPES" | "THREADS" | "SITES" | "STACKS" | "WORKERS" => "  none\n".to_owned(),
        _ if walked => "  none\n".to_owned(),
        _ => "  not known: nobody looked into the heap while it ran (no walk)\n".to_owned(),
    }
}

//! `taskheap sweep`: records a program at several loads, and says what grows.
//!
//! Each run is a profile of its own, as `taskheap run` writes it, so every other command can look
//! at any of them. A run that fails counts for nothing and is told: a fit through a run that
//! died half-way would be a fit through nothing.

mod folder;
mod grid;
mod server;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;

use super::run::{self, Plan, Recorded, Surroundings, launch, signals};
use super::{Error, Outcome, print, print_raw};
use crate::analyze::growth::fit::LEAST_DISTINCT;
use crate::analyze::growth::{self, Limit, Run, Sample, Sweep, Variable};
use crate::profile;
use crate::render::chart::Chart;
use crate::render::tables::Options;
use crate::render::text::WIDTH;
use crate::render::{chart_svg, growth as screen, units};
use crate::sys::installed;
pub use folder::Folder;
use folder::{CHART, RESULTS};
use grid::Cell;
use server::Load;

/// Record a program at several loads, and say what grows with what
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taskheap sweep --vary n=1,10,100,1000 -- ./worker --tasks {n}
  taskheap sweep --vary n=4,8,16 --vary mode=copied,shared -- ./worker {n} {mode}
  taskheap sweep --vary n=10,100,1000 --server --ready localhost:8080 \\
      --load 'wrk -c {n} -d 5 http://localhost:8080/' -- ./server --port 8080

A value goes where the arguments have {n}; the program also has it as the
environment variables n and N. Bytes are fitted by a line that stands a few
wrong runs, for each task type, thread-local and line of code: per task, per
thread, or per step of n. The folder gets a profile of each run, sweep.json and
growth.svg.

Exit codes: 0 done; 2 fewer than three values of a variable could be measured.
Next: taskheap report FOLDER/n=1000.taskheap")]
pub struct Args {
    /// A variable and its values; several are combined, each value with each other
    #[arg(long, required = true, value_name = "NAME=V1,V2,…", value_parser = grid::variable)]
    vary: Vec<Variable>,

    /// Run every value so many times
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Say where this is reached (such as 2GB) [default: the memory of the machine]
    #[arg(long, value_name = "SIZE", value_parser = NonEmptyStringValueParser::new())]
    memory_limit: Option<String>,

    /// Where to write [default: taskheap.PROGRAM.sweep]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Overwrite the results of another sweep in the folder
    #[arg(long)]
    force: bool,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: Server,

    /// The program and its arguments, with {NAME} where a value goes
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// For a program that does not end by itself.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Servers")]
struct Server {
    /// The program is a server: end it by SIGTERM when it has had its load
    #[arg(long, requires = "load", requires = "ready")]
    server: bool,

    /// Shell command that gives the server its load, with {NAME} where a value goes
    #[arg(long, value_name = "COMMAND", requires = "server")]
    load: Option<String>,

    /// HOST:PORT that takes connections, or a shell command that succeeds, once it is ready
    #[arg(long, value_name = "CHECK", requires = "server")]
    ready: Option<String>,

    /// How long it may take to be ready
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        requires = "server"
    )]
    ready_timeout: u64,
}

impl Args {
    /// For a command that sweeps a program of its own.
    pub fn of(command: Vec<OsString>, vary: Vec<Variable>, output: PathBuf) -> Args {
        Args {
            vary,
            repeat: 1,
            memory_limit: None,
            output: Some(output),
            force: true,
            json: false,
            server: Server::default(),
            command,
        }
    }

    pub fn with_limit(self, memory_limit: Option<String>) -> Args {
        Args {
            memory_limit,
            ..self
        }
    }
}

pub fn run(args: &Args) -> Outcome {
    let Measured {
        folder,
        sweep,
        samples,
    } = measure(args)?;
    finish(args, &folder, &sweep, &samples)
}

/// What was measured, and where its profiles are.
pub struct Measured {
    pub folder: Folder,
    pub sweep: Sweep,
    samples: Vec<Sample>,
}

/// Every run, with the results written after each.
pub fn measure(args: &Args) -> Result<Measured, Error> {
    let sweeper = Sweeper::new(args)?;
    let mut samples = Vec::new();
    let mut results = sweeper.results();
    let count = sweeper.cells.len();
    for (at, cell) in sweeper.cells.iter().enumerate() {
        if signals::asked_to_end() {
            anstream::eprintln!("taskheap: interrupted after {at} of {count} runs");
            break;
        }
        let shown = grid::shown(&cell.settings);
        anstream::eprintln!("taskheap: run {} of {count}, {shown}", at + 1);
        let OneRun {
            run,
            sample,
            warnings,
        } = sweeper.measure(cell)?;
        tell(&run, &warnings, &sweeper.folder, cell);
        results.runs.push(run);
        samples.extend(sample);
        conclude(&mut results, &samples);
        sweeper.folder.write(RESULTS, &json(&results)?)?;
    }
    Ok(Measured {
        folder: sweeper.folder,
        sweep: results,
        samples,
    })
}

/// What is fixed for the whole sweep.
struct Sweeper<'a> {
    args: &'a Args,
    program: PathBuf,
    cells: Vec<Cell>,
    folder: Folder,
    limit: Option<Limit>,
}

impl Sweeper<'_> {
    fn new(args: &Args) -> Result<Sweeper<'_>, Error> {
        let program = launch::find(name(args))?;
        refuse_twice(&args.vary)?;
        let cells = grid::cells(&args.vary, args.repeat)?;
        let texts: Vec<OsString> = args
            .command
            .iter()
            .cloned()
            .chain(args.server.load.iter().map(Into::into))
            .collect();
        for name in grid::without_place(&args.vary, &texts) {
            anstream::eprintln!(
                "taskheap: no argument has {{{name}}}: the program has it in its environment only"
            );
        }
        let file = program.file_name().unwrap_or_default().display();
        let default = PathBuf::from(format!("taskheap.{file}.sweep"));
        let folder = Folder::create(args.output.as_ref().unwrap_or(&default), args.force)?;
        Ok(Sweeper {
            args,
            program,
            cells,
            folder,
            limit: limit(args)?,
        })
    }

    fn results(&self) -> Sweep {
        let shown = |text: &OsString| text.to_string_lossy().into_owned();
        Sweep {
            schema: 1,
            command: self.args.command.iter().map(shown).collect(),
            variables: self.args.vary.clone(),
            limit: self.limit,
            runs: Vec::new(),
            growth: Vec::new(),
            findings: Vec::new(),
            threshold: growth::looked_for(),
        }
    }

    /// One run. What goes wrong with it is part of the result; an error ends the sweep.
    fn measure(&self, cell: &Cell) -> Result<OneRun, Error> {
        let mut run = Run {
            settings: cell.settings.clone(),
            profile: None,
            exit_code: 0,
            peak_live_bytes: None,
            tasks: None,
            threads: None,
            error: None,
        };
        let recorded = match self.record(cell)? {
            Ok(recorded) => recorded,
            Err(failure) => {
                run.error = Some(failure);
                return Ok(OneRun::failed(run));
            }
        };
        run.exit_code = recorded.recorded.exit_code;
        run.error = recorded.failure;
        if let Some(error) = &recorded.recorded.error {
            run.error.get_or_insert(error.to_string());
        }
        if recorded.recorded.written.is_empty() {
            run.error.get_or_insert("its profile misses".to_owned());
            return Ok(OneRun::failed(run));
        }
        let name = format!("{}.taskheap", cell.name);
        let profile = profile::read(&self.folder.file(&name))?;
        if profile.program.replaced {
            let text = "it became another program (exec), and what that does is not recorded: \
                        give that program itself";
            run.error.get_or_insert(text.to_owned());
        }
        let facts = growth::facts(&profile);
        run.profile = Some(name);
        let process = facts.measures.get(&growth::Subject::Process);
        run.peak_live_bytes = process.map(|measure| measure.bytes);
        (run.tasks, run.threads) = (facts.tasks, facts.threads);
        let settings = cell.settings.clone();
        let sample = Sample { settings, facts };
        let counts = run.error.is_none();
        Ok(OneRun {
            run,
            sample: counts.then_some(sample),
            warnings: profile.program.warnings,
        })
    }

    fn record(&self, cell: &Cell) -> Result<Result<Driven, String>, Error> {
        let load = self.load(cell)?;
        if load.as_ref().is_some_and(Load::answers_already) {
            let text = "something answers already where the server should";
            return Ok(Err(text.to_owned()));
        }
        let (tell, started) = mpsc::channel();
        let mut plan = self.plan(cell)?;
        let Some(load) = load else {
            let recorded = run::record(&plan)?;
            let failure = failure(recorded.exit_code);
            return Ok(Ok(Driven { recorded, failure }));
        };
        plan.surroundings.started = Some(tell);
        std::thread::scope(|scope| {
            let driver = scope.spawn(move || load.drive(&started));
            let recorded = run::record(&plan);
            // If it never started, nobody else would end the wait.
            drop(plan);
            let driven = driver.join();
            let recorded = recorded?;
            let failure = match driven {
                Ok(Err(failure)) => Some(failure),
                Ok(Ok(())) => {
                    failure(recorded.exit_code).filter(|_| recorded.exit_code != ENDED_BY_US)
                }
                Err(_) => Some("the load could not be driven".to_owned()),
            };
            Ok(Ok(Driven { recorded, failure }))
        })
    }

    fn plan(&self, cell: &Cell) -> Result<Plan, Error> {
        let fill = |arg: &OsString| grid::filled(arg, &cell.settings);
        let output = self.folder.file(&format!("{}.taskheap", cell.name));
        Ok(Plan {
            program: self.program.clone(),
            from_path: !name(self.args).as_encoded_bytes().contains(&b'/'),
            args: self.args.command.iter().skip(1).map(fill).collect(),
            output: Some(output),
            force: self.args.force,
            follow: false,
            walks: true,
            memory_limit: self.limit.filter(|l| l.what == "given").map(|l| l.bytes),
            held_after: None,
            sample_bytes: 0,
            surroundings: Surroundings {
                variables: grid::environment(&cell.settings),
                log: Some(self.folder.log(&format!("{}.log", cell.name))?),
                started: None,
            },
        })
    }

    fn load(&self, cell: &Cell) -> Result<Option<Load>, Error> {
        let server = &self.args.server;
        let (Some(command), Some(ready)) = (&server.load, &server.ready) else {
            return Ok(None);
        };
        let fill = |text: &str| {
            let filled = grid::filled(OsStr::new(text), &cell.settings);
            filled.to_string_lossy().into_owned()
        };
        Ok(Some(Load {
            ready: fill(ready),
            ready_within: Duration::from_secs(server.ready_timeout),
            command: fill(command),
            variables: grid::environment(&cell.settings),
            log: self.folder.log(&format!("{}.load.log", cell.name))?,
        }))
    }
}

/// 128 + SIGTERM.
const ENDED_BY_US: u8 = 143;

/// One run, with what its profile has to say before anything else.
struct OneRun {
    run: Run,
    /// None if it does not count.
    sample: Option<Sample>,
    warnings: Vec<String>,
}

impl OneRun {
    fn failed(run: Run) -> OneRun {
        OneRun {
            run,
            sample: None,
            warnings: Vec::new(),
        }
    }
}

struct Driven {
    recorded: Recorded,
    failure: Option<String>,
}

fn failure(exit_code: u8) -> Option<String> {
    match exit_code {
        0 => None,
        129.. => Some(format!("it was ended by signal {}", exit_code - 128)),
        _ => Some(format!("it ended with exit code {exit_code}")),
    }
}

fn name(args: &Args) -> &OsStr {
    args.command
        .first()
        .map_or(OsStr::new(""), OsString::as_os_str)
}

fn refuse_twice(variables: &[Variable]) -> Result<(), Error> {
    let twice = (variables.iter().enumerate())
        .find(|(at, v)| variables[..*at].iter().any(|other| other.name == v.name));
    match twice {
        None => Ok(()),
        Some((_, variable)) => Err(Error::Refused {
            what: format!("{} is given twice", variable.name),
            hint: format!("give all its values in one --vary {}=1,2,3", variable.name),
        }),
    }
}

fn limit(args: &Args) -> Result<Option<Limit>, Error> {
    if let Some(text) = &args.memory_limit {
        let bytes = run::parse_size(text)?;
        let what = "given";
        return Ok(Some(Limit { bytes, what }));
    }
    Ok(installed::memory().map(|(bytes, of_group)| Limit {
        bytes,
        what: if of_group { "cgroup" } else { "machine" },
    }))
}

fn tell(run: &Run, warnings: &[String], folder: &Folder, cell: &Cell) {
    for warning in warnings {
        anstream::eprintln!("taskheap:   warning: {warning}");
    }
    match (&run.error, run.peak_live_bytes) {
        (Some(error), _) => {
            let log = folder.shown(&format!("{}.log", cell.name));
            anstream::eprintln!("taskheap:   not counted: {error}; its output is in {log}");
        }
        (None, Some(peak)) => anstream::eprintln!("taskheap:   peak {}", units::bytes(peak)),
        (None, None) => {}
    }
}

/// What can be said so far.
fn conclude(results: &mut Sweep, samples: &[Sample]) {
    let limit = results.limit;
    results.growth = growth::rows(samples, limit.map(|limit| limit.bytes));
    results.findings = growth::findings(&results.growth, limit.as_ref());
}

fn json(results: &Sweep) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec_pretty(results).map_err(|e| Error::Print(e.into()))?;
    text.push(b'\n');
    Ok(text)
}

fn finish(args: &Args, folder: &Folder, results: &Sweep, samples: &[Sample]) -> Outcome {
    let chart = Chart::of(results);
    if let Some(chart) = &chart {
        let svg = chart_svg::draw(chart).map_err(|what| Error::Refused {
            what: format!("the chart can't be drawn: {what}"),
            hint: format!("{RESULTS} has all of it"),
        })?;
        folder.write(CHART, svg.as_bytes())?;
    }
    if args.json {
        print_raw(&json(results)?)?;
    } else {
        let options = Options {
            limit: Some(screen::ROWS),
            width: Some(WIDTH),
        };
        print(&screen::screen(
            results,
            chart.as_ref(),
            &folder.shown(""),
            &options,
        ))?;
    }
    let values = growth::most_distinct(samples);
    if values < LEAST_DISTINCT {
        return Err(Error::Nothing {
            what: format!(
                "{} could be measured, and a line needs {LEAST_DISTINCT}",
                units::counted(values as u64, "value")
            ),
            hint: "give more values with --vary, and see above for the runs that failed".to_owned(),
        });
    }
    Ok(ExitCode::SUCCESS)
}

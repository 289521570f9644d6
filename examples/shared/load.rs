//! Load on a closed loop, and the row that tells how it went.
#![allow(dead_code)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::process;

/// How long each answered request took.
#[derive(Default)]
pub struct Answers(Mutex<Vec<Duration>>);

impl Answers {
    pub fn note(&self, asked: Instant) {
        let mut all = self.0.lock().expect("not poisoned");
        all.push(asked.elapsed());
    }

    /// One row, of what was answered until now. `tasks` are those alive.
    pub fn tell(&self, name: &str, started: Instant, tasks: usize) {
        // The time is read under the lock: on a busy machine it may be long in coming.
        let answers = self.0.lock().expect("not poisoned");
        let seconds = started.elapsed().as_secs_f64();
        let mut all = answers.clone();
        drop(answers);
        all.sort_unstable();
        let at = |share: f64| match all.len() {
            0 => "-".to_owned(),
            count => {
                let place = ((count as f64 * share) as usize).min(count - 1);
                format!("{:.1}", all[place].as_secs_f64() * 1000.0)
            }
        };
        println!(
            "{name:20}{:>10.0}{:>9}{:>9}{:>9}{:>8}{tasks:>8}{:>7.1}",
            all.len() as f64 / seconds,
            at(0.5),
            at(0.95),
            at(0.99),
            process::threads(),
            process::resident() as f64 / 1e6,
        );
    }
}

pub fn heading() {
    println!("mode                requests/s   p50 ms   p95 ms   p99 ms threads   tasks RSS MB");
}

/// A runtime of two workers.
pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(2).enable_time();
    builder.build().expect("a runtime")
}

/// `count` requests are in flight all the time, each a task of its own; a row after `length`.
pub fn tasks<F>(name: &str, count: usize, length: Duration, request: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime();
    let answers = Arc::new(Answers::default());
    let (done, next) = channel();
    let started = Instant::now();
    let start = |number: usize| {
        let (request, done, answers) = (request(number), done.clone(), answers.clone());
        let asked = Instant::now();
        runtime.spawn(async move {
            request.await;
            answers.note(asked);
            // Nobody listens any more once the time is over.
            let _ = done.send(number);
        });
    };
    (0..count).for_each(&start);
    while let Some(left) = length.checked_sub(started.elapsed()) {
        if let Ok(number) = next.recv_timeout(left) {
            start(number);
        }
    }
    answers.tell(name, started, runtime.metrics().num_alive_tasks());
    runtime.shutdown_background();
}

/// The same on so many threads, with a queue before them.
pub fn pool(name: &str, threads: usize, count: usize, length: Duration, request: fn(usize)) {
    let answers = Arc::new(Answers::default());
    let (sender, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    let started = Instant::now();
    for number in 0..count {
        sender.send((number, Instant::now())).expect("a queue");
    }
    for _ in 0..threads {
        let (queue, sender, answers) = (queue.clone(), sender.clone(), answers.clone());
        std::thread::spawn(move || serve(&queue, &sender, &answers, request));
    }
    std::thread::sleep(length);
    answers.tell(name, started, 0);
}

type Asked = (usize, Instant);

fn serve(
    queue: &Mutex<Receiver<Asked>>,
    sender: &Sender<Asked>,
    answers: &Answers,
    request: fn(usize),
) {
    loop {
        let next = queue.lock().expect("not poisoned").recv();
        let Ok((number, asked)) = next else { return };
        request(number);
        answers.note(asked);
        let _ = sender.send((number, Instant::now()));
    }
}

/// About this much arithmetic on an idle core of 3 GHz: a fixed number of steps, so that other
/// load makes it take longer, as it would a service.
pub fn compute(milliseconds: f64) {
    let mut value = 1_u64;
    for step in 0..(milliseconds * 750_000.0) as u64 {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005) ^ step);
    }
}

/// The whole of a program: its modes, each in a process of its own.
pub fn each(modes: &[&str], run: impl Fn(&str)) {
    match std::env::args().nth(1) {
        Some(mode) => run(&mode),
        None => {
            heading();
            modes.iter().for_each(|mode| process::again(&[mode]));
        }
    }
}

//! A guest that runs: its console is read line by line, and QEMU is killed when it takes too long.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rigs::steps::Steps;

/// A line of the guest for the host.
pub enum Said {
    /// A step, and whether it was well.
    Step(String, Result<(), String>),
    /// A word in capitals, and what follows it.
    Word(String, String),
    /// The guest is done, and powers off.
    End,
}

/// A guest that runs. It is killed when it is dropped.
pub struct RunningGuest {
    qemu: Arc<Mutex<Child>>,
    console: Lines<BufReader<ChildStdout>>,
    keyboard: Option<ChildStdin>,
    others: Vec<String>,
    started: Instant,
    limit: Duration,
}

impl RunningGuest {
    /// Starts QEMU, which is killed after `limit`.
    pub fn start(mut qemu: Command, limit: Duration) -> Result<Self, String> {
        let mut qemu = qemu
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let console = qemu.stdout.take().ok_or("QEMU has no console")?;
        let keyboard = qemu.stdin.take();
        let qemu = Arc::new(Mutex::new(qemu));
        watch(qemu.clone(), limit);
        Ok(Self {
            qemu,
            console: BufReader::new(console).lines(),
            keyboard,
            others: Vec::new(),
            started: Instant::now(),
            limit,
        })
    }

    /// The next line for the host; `None` once the console is closed.
    pub fn next(&mut self) -> Option<Said> {
        loop {
            // A line that is no text is the firmware's.
            let line = match self.console.next()? {
                Ok(line) => line,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Err(_) => return None,
            };
            if let Some(said) = understood(line.trim_end()) {
                return Some(said);
            }
            self.others.push(line);
        }
    }

    /// Types a line on the guest's console.
    pub fn write_line(&mut self, line: &str) -> Result<(), String> {
        let keyboard = self.keyboard.as_mut().ok_or("QEMU has no keyboard")?;
        writeln!(keyboard, "{line}").map_err(|error| format!("the guest's console: {error}"))
    }

    /// Runs the guest to its end: tells its steps, and returns its other words. Lines of a step that hangs are printed
    /// as they come.
    pub fn tell(mut self, steps: &mut Steps) -> Vec<(String, String)> {
        let mut words = Vec::new();
        let mut has_ended = false;
        while let Some(said) = self.next() {
            match said {
                Said::Step(name, done) => steps.tell(&name, done),
                Said::Word(word, rest) if word == "HANG" => println!("      {rest}"),
                Said::Word(word, rest) => words.push((word, rest)),
                Said::End => has_ended = true,
            }
        }
        if !has_ended {
            steps.tell("the guest runs to its end", Err(self.last_words()));
        }
        words
    }

    /// The last lines of the console that were not for the host.
    pub fn last_words(&self) -> String {
        let last: Vec<_> = self.others.iter().rev().take(8).rev().cloned().collect();
        let last = last.join(" | ");
        if self.started.elapsed() >= self.limit {
            format!("killed after {} s: {last}", self.limit.as_secs())
        } else {
            last
        }
    }

    /// Stops the guest as a power cut does.
    pub fn kill(&mut self) {
        if let Ok(mut qemu) = self.qemu.lock() {
            let _ = qemu.kill();
            let _ = qemu.wait();
        }
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills a guest that takes longer than `limit`, so that its console ends. Tells of a QEMU that a signal has stopped:
/// its guest looks idle, and the time of its steps goes on.
fn watch(qemu: Arc<Mutex<Child>>, limit: Duration) {
    let started = Instant::now();
    std::thread::spawn(move || {
        let mut was_stopped = false;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(mut qemu) = qemu.lock() else { return };
            let is_stopped = is_stopped(qemu.id());
            if is_stopped && !was_stopped {
                println!(
                    "   QEMU is stopped by a signal (kill -CONT {} ends that)",
                    qemu.id()
                );
            }
            was_stopped = is_stopped;
            match qemu.try_wait() {
                Ok(None) if started.elapsed() < limit => {}
                Ok(None) => drop(qemu.kill()),
                _ => return,
            }
        }
    });
}

/// Whether a signal has stopped the process.
fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| state.starts_with('T'))
}

/// The words of a line for the host, which may stand behind the firmware's own.
fn understood(line: &str) -> Option<Said> {
    if let Some((_, step)) = line.split_once("STEP ") {
        return Some(match step.split_once(' ') {
            Some(("ok", name)) => Said::Step(name.to_owned(), Ok(())),
            Some(("FAIL", name)) => {
                let (name, why) = name.split_once(" ## ").unwrap_or((name, "failed"));
                Said::Step(name.to_owned(), Err(why.to_owned()))
            }
            _ => Said::End,
        });
    }
    let (word, rest) = line.split_once(' ')?;
    let is_word = word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    is_word.then(|| Said::Word(word.to_owned(), rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_the_host_are_told_from_others() {
        let step = understood("\u{1b}[2JSTEP FAIL ublk, xfs: create ## no device|");
        assert!(matches!(step, Some(Said::Step(name, Err(_))) if name == "ublk, xfs: create"));
        assert!(matches!(
            understood("STEP ok 3 s  x: y"),
            Some(Said::Step(_, Ok(())))
        ));
        assert!(matches!(understood("STEP end 9.1"), Some(Said::End)));
        assert!(matches!(understood("SYNCED 7"), Some(Said::Word(_, n)) if n == "7"));
        assert!(understood("insmod nbd.ko failed").is_none());
    }

    #[test]
    fn a_guest_that_takes_too_long_is_killed_and_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo booting; exec sleep 1000"]);
        let mut steps = Steps::default();
        let running = RunningGuest::start(command, Duration::from_secs(1)).expect("there is sh");
        assert!(running.tell(&mut steps).is_empty());
        assert_eq!(steps.failed, 1);
    }

    #[test]
    fn a_process_that_a_signal_has_stopped_is_known() {
        let mut child = Command::new("sh")
            .args(["-c", "kill -STOP $$"])
            .spawn()
            .expect("there is sh");
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        assert!(!is_stopped(std::process::id()));
        child.kill().expect("it lives");
        child.wait().expect("it ends");
    }
}

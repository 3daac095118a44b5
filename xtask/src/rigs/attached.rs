//! A depot that is attached in a folder of a rig's own, and shell commands there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::steps::Steps;

/// The folder, in which the depot is `depot` and the file system is mounted at `mnt`. What is left at the end is taken
/// away.
pub struct Attached {
    program: PathBuf,
    work: PathBuf,
}

impl Attached {
    /// In the folder `work`.
    pub fn new(program: &Path, work: &Path) -> Self {
        Self {
            program: program.to_owned(),
            work: work.to_owned(),
        }
    }

    /// Shell commands in the folder that must succeed. `$(device)` is the device, which may be another after each
    /// `attach`.
    pub fn step(&self, steps: &mut Steps, what: &str, script: &str) {
        steps.shell(what, &self.script(script));
    }

    /// The same, where the commands may take the time given.
    pub fn step_within(&self, steps: &mut Steps, seconds: u32, what: &str, script: &str) {
        steps.shell_within(seconds, what, &self.script(script));
    }

    fn script(&self, script: &str) -> String {
        format!("{}{script}", self.begin())
    }

    fn begin(&self) -> String {
        let (onefold, work) = (self.program.display(), self.work.display());
        format!(
            "cd {work}; export PATH=$PATH:/usr/sbin:/sbin; \
             device() {{ {onefold} volume list --json | python3 -c \"import json,sys; print([d['device'] for d in json.load(sys.stdin) if d['source']=='{work}/depot'][0])\"; }}; \
             attach() {{ {onefold} volume attach {work}/depot \"$@\" >/dev/null; }}; \
             process() {{ {onefold} volume list --json | python3 -c \"import json,sys; print([d['process'] for d in json.load(sys.stdin) if d['source']=='{work}/depot'][0])\"; }}; "
        )
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let script = format!(
            "{} umount -l mnt; {} volume detach {}/depot",
            self.begin(),
            self.program.display(),
            self.work.display()
        );
        let _ = Command::new("bash").args(["-c", &script]).output();
    }
}

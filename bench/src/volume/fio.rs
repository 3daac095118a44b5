//! fio, and its figures.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A load on a device.
#[derive(Clone, Copy)]
pub struct Load {
    /// Name in tables.
    pub name: &'static str,
    /// fio's `rw`.
    pub rw: &'static str,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests in flight.
    pub depth: u32,
}

/// All loads, in the order of the table.
pub const LOADS: [Load; 6] = [
    Load {
        name: "read 4k QD1",
        rw: "randread",
        bytes: 4096,
        depth: 1,
    },
    Load {
        name: "read 4k QD32",
        rw: "randread",
        bytes: 4096,
        depth: 32,
    },
    Load {
        name: "write 4k QD1",
        rw: "randwrite",
        bytes: 4096,
        depth: 1,
    },
    Load {
        name: "write 4k QD32",
        rw: "randwrite",
        bytes: 4096,
        depth: 32,
    },
    Load {
        name: "read 640k",
        rw: "read",
        bytes: 640 << 10,
        depth: 4,
    },
    Load {
        name: "write 640k",
        rw: "write",
        bytes: 640 << 10,
        depth: 4,
    },
];

/// The target of a load.
pub enum LoadTarget<'a> {
    /// A file, past the page cache.
    File(&'a Path),
    /// An NBD server.
    Uri(&'a str),
}

impl Load {
    /// Runs the load for some seconds and returns requests a second.
    pub fn run(
        &self,
        target: &LoadTarget<'_>,
        mib: u64,
        seconds: u32,
        seed: u64,
    ) -> Result<f64, String> {
        let time = format!("--runtime={seconds}");
        self.run_with(target, mib, seed, &["--time_based", &time])
    }

    /// Runs the load once over `mib` MiB, or as `more` arguments say, and returns requests a second.
    pub fn run_with(
        &self,
        target: &LoadTarget<'_>,
        mib: u64,
        seed: u64,
        more: &[&str],
    ) -> Result<f64, String> {
        let mut command = Command::new("fio");
        command.args(["--name=load", "--output-format=json", "--randrepeat=1"]);
        command.arg(format!("--rw={}", self.rw));
        command.arg(format!("--bs={}", self.bytes));
        command.arg(format!("--iodepth={}", self.depth));
        command.arg(format!("--size={mib}m"));
        command.arg(format!("--randseed={seed}"));
        command.args(more);
        match target {
            LoadTarget::File(path) => command
                .args(["--ioengine=libaio", "--direct=1"])
                .arg(format!("--filename={}", path.display())),
            LoadTarget::Uri(uri) => command.arg("--ioengine=nbd").arg(format!("--uri={uri}")),
        };
        let output = command.output().map_err(|error| format!("fio: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "fio {}: {}",
                self.name,
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let json = text.find('{').map_or("", |at| &text[at..]);
        let report: Value = serde_json::from_str(json).map_err(|error| format!("fio: {error}"))?;
        let way = if self.rw.contains("read") {
            "read"
        } else {
            "write"
        };
        report["jobs"][0][way]["iops"]
            .as_f64()
            .ok_or_else(|| "fio tells no rate".to_string())
    }
}

//! What CI runs, in the order in which failures are cheapest to hear of.

use std::process::Command;

/// Debian packages that the tests use, and a program of each by which it is known to be there.
const PACKAGES: &[(&str, &str)] = &[
    ("diffutils", "diff"),
    ("tar", "tar"),
    ("bsdutils", "script"),
    ("util-linux", "setpriv"),
];

/// For each fuzz target: some ten thousand inputs.
const FUZZ_SECONDS: &str = "0.5";

/// Installs the packages that are missing.
pub fn install() -> Result<(), String> {
    let missing: Vec<_> = PACKAGES
        .iter()
        .filter(|(_, program)| !on_path(program))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    let apt = |args: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        step(&format!("apt-get {}", args.join(" ")), &mut command)
    };
    apt(&["-qq", "update"])?;
    apt(&[
        &["-qq", "-y", "--no-install-recommends", "install"],
        &missing[..],
    ]
    .concat())
}

/// Format, clippy, tidy, tests, a short fuzz, documentation, licences.
pub fn run() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])?;
    crate::tidy::run()?;
    bare_chunkers()?;
    cargo(&["test", "--workspace"])?;
    fuzz(&["--seconds".into(), FUZZ_SECONDS.into()])?;
    step(
        "cargo doc",
        Command::new("cargo")
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    if on_path("cargo-deny") {
        cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    } else {
        println!(
            "cargo-deny is not installed: licences were not checked (cargo install cargo-deny)"
        );
    }
    Ok(())
}

/// The chunkers without the standard library, and, where the target is installed, for a machine that has none.
fn bare_chunkers() -> Result<(), String> {
    let bare = ["clippy", "-p", "onefold-chunk", "--no-default-features"];
    let lint = |target: &[&str]| cargo(&[&bare, target, &["--", "-D", "warnings"]].concat());
    lint(&[])?;
    if rust_target_is_there(BARE) {
        lint(&["--target", BARE])
    } else {
        println!(
            "no Rust target {BARE}: a dependency's use of the standard library was not looked for (rustup target add {BARE})"
        );
        Ok(())
    }
}

/// A machine without an operating system.
const BARE: &str = "x86_64-unknown-none";

fn rust_target_is_there(target: &str) -> bool {
    let found = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    found.is_ok_and(|found| {
        let folder = String::from_utf8_lossy(&found.stdout).into_owned();
        std::path::Path::new(folder.trim()).is_dir()
    })
}

/// One fuzz target per decoder, with `args` as `onefold-fuzz` takes them.
pub fn fuzz(args: &[String]) -> Result<(), String> {
    let mut all = vec!["run", "--quiet", "--package", "onefold-fuzz", "--"];
    all.extend(args.iter().map(String::as_str));
    cargo(&all)
}

/// Runs cargo and says so.
pub fn cargo(args: &[&str]) -> Result<(), String> {
    step(
        &format!("cargo {}", args.join(" ")),
        Command::new("cargo").args(args),
    )
}

fn step(what: &str, command: &mut Command) -> Result<(), String> {
    println!("── {what}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

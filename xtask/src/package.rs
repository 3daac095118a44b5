//! `cargo xtask package`: a static program, and a Debian package with the program, manual pages, completions and a
//! systemd timer for a nightly backup.

mod clean_root;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tidy;
use xtask::program::{on_path, step};

/// Files of the repository that go into the package: source, destination and mode.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/nightly", "usr/lib/onefold/nightly", 0o755),
    ("packaging/nightly.conf", "etc/onefold/nightly.conf", 0o644),
    (
        "packaging/onefold-nightly.service",
        "lib/systemd/system/onefold-nightly.service",
        0o644,
    ),
    (
        "packaging/onefold-nightly.timer",
        "lib/systemd/system/onefold-nightly.timer",
        0o644,
    ),
    (
        "packaging/onefold-volume@.service",
        "lib/systemd/system/onefold-volume@.service",
        0o644,
    ),
    (
        "packaging/volume.fstab",
        "usr/share/doc/onefold/volume.fstab",
        0o644,
    ),
    ("README.md", "usr/share/doc/onefold/README.md", 0o644),
    ("CHANGELOG.md", "usr/share/doc/onefold/changelog.md", 0o644),
    ("LICENSE-MIT", "usr/share/doc/onefold/copyright", 0o644),
];

/// Pages of `docs/` for users. They lie beside each other in the package, as they do here, so that their links work.
const PAGES: &[&str] = &[
    "backup",
    "copies",
    "estimate",
    "limits",
    "mount",
    "object-storage",
    "repository",
    "restic",
    "restore",
    "schedule",
    "scripts",
    "volume",
];

/// Shells, and the file where each looks for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/onefold"),
    ("zsh", "usr/share/zsh/vendor-completions/_onefold"),
    ("fish", "usr/share/fish/vendor_completions.d/onefold.fish"),
];

/// Makes program and package; with `try_it` installs the package in a clean Debian and runs it there.
pub fn run(try_it: bool) -> Result<(), String> {
    let root = tidy::root();
    let out = target_folder(&root).join("package");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let program = build_static(&root)?;
    let alone = out.join(format!("onefold-{VERSION}-{}", std::env::consts::ARCH));
    copy(&program, &alone, 0o755)?;
    let package = debian_package(&root, &out, &program)?;
    println!("made {}\nmade {}", alone.display(), package.display());
    if try_it {
        clean_root::try_package(&package, &out)?;
    }
    Ok(())
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder for cargo's output.
fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Builds the program so that it needs no library of the system: for musl where Rust has it, otherwise with glibc
/// linked in.
fn build_static(root: &Path) -> Result<PathBuf, String> {
    let arch = std::env::consts::ARCH;
    let musl = format!("{arch}-unknown-linux-musl");
    let is_musl = crate::ci::rust_target_is_there(&musl) && on_path("musl-gcc");
    let target = if is_musl {
        musl
    } else {
        format!("{arch}-unknown-linux-gnu")
    };
    println!("builds for {target}, linked statically");
    let mut command = Command::new("cargo");
    command
        .args([
            "build",
            "--release",
            "--locked",
            "-p",
            "onefold",
            "--target",
            &target,
        ])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(root);
    step("cargo build", &mut command)?;
    Ok(target_folder(root).join(target).join("release/onefold"))
}

/// Copies the package's files into a folder and packs it.
fn debian_package(root: &Path, out: &Path, program: &Path) -> Result<PathBuf, String> {
    let staged = out.join("deb");
    if staged.exists() {
        fs::remove_dir_all(&staged).map_err(|error| format!("{}: {error}", staged.display()))?;
    }
    copy(program, &staged.join("usr/bin/onefold"), 0o755)?;
    for (from, to, mode) in FILES {
        copy(&root.join(from), &staged.join(to), *mode)?;
    }
    for page in PAGES {
        let to = format!("usr/share/doc/onefold/{page}.md");
        copy(
            &root.join(format!("docs/{page}.md")),
            &staged.join(to),
            0o644,
        )?;
    }
    manual_pages(program, &staged.join("usr/share/man/man1"))?;
    for (shell, to) in COMPLETIONS {
        let script = printed_by(Command::new(program).args(["completions", shell]))?;
        write(&staged.join(to), &script, 0o644)?;
    }
    let architecture = printed_by(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    write(
        &staged.join("DEBIAN/control"),
        &control(&staged, architecture)?,
        0o644,
    )?;
    write(
        &staged.join("DEBIAN/conffiles"),
        "/etc/onefold/nightly.conf\n",
        0o644,
    )?;
    let package = out.join(format!("onefold_{VERSION}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group"])
        .arg(&staged)
        .arg(&package);
    step("dpkg-deb --build", &mut pack)?;
    Ok(package)
}

fn manual_pages(program: &Path, folder: &Path) -> Result<(), String> {
    step("onefold man", Command::new(program).arg("man").arg(folder))?;
    let pages = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for page in pages {
        let page = page.map_err(|error| error.to_string())?.path();
        // Without name and time, so that a package built twice is the same.
        step("gzip", Command::new("gzip").args(["-9", "-n"]).arg(&page))?;
    }
    Ok(())
}

/// Debian's description of the package. The installed size is in KiB.
fn control(staged: &Path, architecture: &str) -> Result<String, String> {
    let size = printed_by(Command::new("du").arg("-sk").arg(staged))?;
    let kib = size.split_whitespace().next().unwrap_or("0");
    Ok(format!(
        "Package: onefold\nVersion: {VERSION}\nArchitecture: {architecture}\nInstalled-Size: {kib}\n\
         Maintainer: The Onefold developers <onefold@localhost>\nSection: admin\nPriority: optional\n\
         Description: deduplicating backup: every byte once\n \
         Onefold keeps snapshots of folders in a repository that stores every byte once:\n \
         deduplicated, compressed, encrypted. A systemd timer for a nightly backup is\n \
         included and switched off; /usr/share/doc/onefold/schedule.md tells how to use it.\n"
    ))
}

fn printed_by(command: &mut Command) -> Result<String, String> {
    let what = format!("{command:?}");
    let done = command.stderr(Stdio::inherit()).output();
    let done = done.map_err(|error| format!("{what}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{what}: {}", done.status));
    }
    String::from_utf8(done.stdout).map_err(|error| format!("{what}: {error}"))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    write_bytes(to, &bytes, mode)
}

fn write(to: &Path, text: &str, mode: u32) -> Result<(), String> {
    write_bytes(to, text.as_bytes(), mode)
}

fn write_bytes(to: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let folder = to.parent().expect("files of the package lie in folders");
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(to, bytes).map_err(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(failed)
}

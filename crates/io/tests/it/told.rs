//! Reports what was not tested.

use std::io::Write;

/// Reports that something was not tested, on standard error, which a test run shows though the test passes, and in the
/// file that `ONEFOLD_UNTESTED` names.
pub fn not_tested(what: &str) {
    let mut said = String::from(what);
    if let Some(test) = std::thread::current().name() {
        said = format!("{test}: {what}");
    }
    // Not `eprintln`, whose output a test run keeps back.
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {said}");
    if let Some(path) = std::env::var_os("ONEFOLD_UNTESTED") {
        let file = std::fs::File::options().append(true).open(path);
        let line = format!("{said}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file that ONEFOLD_UNTESTED names");
    }
}

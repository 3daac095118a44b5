//! Random things that a front would do with one volume.

use super::*;

/// Fate of a twin's older versions after an act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// They may come back after a crash.
    Work,
    /// They may not.
    Commit,
}

/// One random thing that a front would do.
pub fn act(
    engine: &mut LogEngine,
    twin: &mut Twin,
    random: &mut Random,
    contents: u64,
) -> Result<Act> {
    match random.below(20) {
        0 | 1 => {
            engine.commit()?;
            twin.commit();
            return Ok(Act::Commit);
        }
        2 => {
            let (lbn, chunks) = (random.below(LBNS), random.below(40));
            let end = (lbn + chunks).min(LBNS);
            (lbn..end).for_each(|lbn| twin.set(lbn, 0));
            engine.discard(twin.head, lbn..end)?;
        }
        3 => {
            engine.write_out()?;
        }
        4 => {
            engine.collect(Effort::Step)?;
        }
        _ => {
            let start = random.below(LBNS);
            let writes: Vec<(u64, u64)> = (0..1 + random.below(30))
                .map(|ahead| ((start + ahead) % LBNS, random.below(contents)))
                .collect();
            writes
                .iter()
                .for_each(|(lbn, content)| twin.set(*lbn, *content));
            write_to(engine, twin.head, &writes)?;
        }
    }
    Ok(Act::Work)
}

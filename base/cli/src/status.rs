//! The end of a program: its last message and its exit status.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, Command, Parser};
use signal_hook::consts::SIGXFSZ;

use crate::failure::Failure;
use crate::messages::{print_error, print_styled, styled};
use crate::output::print;
use crate::stop::end_as_first_process;

/// Parses the arguments of the process, which `--help` and wrong ones end. From then on a write beyond the limit of file sizes (`ulimit -f`)
/// is an error of that write, where it would end the process with all that it does besides, and signals end also the first process of a
/// container.
pub fn parse<T: Parser>() -> T {
    // Where the system refuses the handler, the process ends at such a write, as any other.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    end_as_first_process();
    let mut command = without_empty_variables(T::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let answer = match parsed.and_then(|mut found| T::from_arg_matches_mut(&mut found)) {
        Ok(parsed) => return parsed,
        Err(answer) => answer.format(&mut command),
    };
    let text = answer.render();
    if answer.use_stderr() {
        print_styled(&text);
    } else if let Err(Failure::Failed(message)) = print(styled(&text, &io::stdout())) {
        print_error(command.get_name(), message);
        std::process::exit(1);
    }
    std::process::exit(answer.exit_code())
}

/// The command without the variables that are empty: files of variables have such lines for what is not set.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |arg: &Arg| {
        arg.get_env().is_some_and(|name| std::env::var_os(name).is_some_and(|value| value.is_empty()))
    };
    let command = command.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg });
    command.mut_subcommands(without_empty_variables)
}

/// The exit status of a program with these arguments, after its message on standard error. `command` is only called after a
/// failure.
pub fn status(command: impl FnOnce() -> Command, result: Result<(), Failure>) -> ExitCode {
    let (message, status) = match result {
        Ok(()) | Err(Failure::OutputClosed) => return ExitCode::SUCCESS,
        Err(Failure::Usage(name, message)) => return wrong_usage(command(), name, message),
        Err(Failure::Failed(message)) => (message, 1),
        Err(Failure::Incomplete(message)) => (message, 3),
    };
    print_error(command().get_name(), &message);
    ExitCode::from(status)
}

/// Prints the message with the usage of a subcommand, or of the program if there is no such subcommand.
fn wrong_usage(mut all: Command, name: &str, message: String) -> ExitCode {
    // The usage of a subcommand has the name of the program only after this.
    all.build();
    let found = all.find_subcommand(name).cloned();
    print_styled(&found.unwrap_or(all).error(ErrorKind::ArgumentConflict, message).render());
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(result: Result<(), Failure>) -> ExitCode {
        status(|| Command::new("test").subcommand(Command::new("run")), result)
    }

    #[test]
    fn each_failure_has_its_status() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        let text = || "a test prints this".to_owned();
        for (result, status) in [
            (Ok(()), 0),
            (Err(Failure::output(&closed)), 0),
            (Err(Failure::failed("a test prints this")), 1),
            (Err(Failure::from(io::Error::from(io::ErrorKind::NotFound))), 1),
            (Err(Failure::output(&io::Error::from(io::ErrorKind::StorageFull))), 1),
            (Err(Failure::Usage("run", text())), 2),
            (Err(Failure::Usage("no such", text())), 2),
            (Err(Failure::Incomplete(text())), 3),
        ] {
            assert_eq!(end(result), ExitCode::from(status));
        }
    }
}

//! The list of figures, and the page made of rows.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use commands::Stop;
use reproduce::{
    list::{List, Run},
    page,
    run::Place,
};

/// All figures and tables with results that the papers number.
const NUMBERED: [&str; 22] = [
    "paper1 fig5a",
    "paper1 fig5b",
    "paper1 fig5c",
    "paper1 fig5d",
    "paper1 fig5e",
    "paper1 fig5f",
    "paper1 table1",
    "paper1 fig6",
    "paper1 fig7",
    "paper1 fig9",
    "paper2 fig1",
    "paper2 fig2",
    "paper2 fig3",
    "paper3 fig4",
    "paper3 fig5",
    "paper3 fig6",
    "paper4 fig12",
    "paper4 fig13",
    "paper4 fig14",
    "paper4 fig15",
    "paper5 fig5",
    "paper5 fig6",
];
/// All others.
const OTHERS: [&str; 3] = ["paper4 table2", "paper4 table3", "paper5 fig7"];

/// The longest that everything may take.
const MOST_MINUTES: f64 = 120.0;

#[test]
fn every_figure_is_measured_or_says_why_not() {
    let list = List::own();
    let names: Vec<&str> = list.figure.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name comes once");
    for name in NUMBERED.iter().chain(&OTHERS) {
        assert!(names.contains(name), "{name}");
    }
    let runs: BTreeSet<&str> = list.run.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(runs.len(), list.run.len(), "a run comes once");
    for figure in &list.figure {
        let whole = !figure.claim.is_empty() && !figure.differs.is_empty() && !figure.title.is_empty();
        assert!(whole && figure.runs.is_empty() == figure.view.is_none(), "{}", figure.name);
        assert!(figure.runs.iter().all(|run| runs.contains(run.as_str())), "{}", figure.name);
        let figures = figure.view.as_ref().map_or(&[][..], |view| &view.figures);
        let known = |of: &Option<String>| of.as_ref().is_none_or(|of| figures.contains(of));
        assert!(figure.numbers.iter().all(|number| known(&number.figure)), "{}", figure.name);
    }
    for run in &list.run {
        assert!(
            list.figure.iter().any(|figure| figure.runs.contains(&run.name)),
            "{} shows nothing",
            run.name
        );
        assert!(list.program.iter().any(|program| program.name == run.program), "{}", run.name);
        assert!(run.args.iter().any(|arg| arg == "--json {rows}"), "{} has no rows", run.name);
    }
    let minutes: f64 = list.run.iter().map(|run| run.minutes).sum();
    assert!(minutes <= MOST_MINUTES, "{minutes} minutes");
}

#[test]
fn figures_are_chosen_by_the_beginning_of_their_names() {
    let list = List::own();
    let chosen = list.chosen("paper1  fig5, paper5 keys").expect("figures");
    assert!(chosen.len() > 6 && chosen.iter().any(|figure| figure.name == "paper5 keys"));
    assert_eq!(list.chosen("").expect("all").len(), list.figure.len());
    assert_eq!(list.runs(&list.chosen("paper5 fig7").expect("one")).len(), 1);
    assert!(list.chosen("paper6").expect_err("none").contains("there is no figure \"paper6\""));
}

/// A bench of a shell, whose first word of the script is the file for the rows.
fn run(name: &str, script: &str) -> Run {
    let text =
        format!("name = '{name}'\nprogram = 'sh'\nargs = ['-c {script}', '{{rows}}']\nminutes = 0.1\n");
    toml::from_str(&text).expect("a run")
}

/// A bench ends all children of this process: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// How a bench ends that is measured in this place.
fn measured(place: &Place, run: &Run) -> Option<String> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stop = Stop::install().expect("handlers");
    place.measure(run, &stop).expect("a folder").expect("not asked to end").failed
}

const ROW: &str = r#"echo "[{\"rep\":7}]" >$0"#;

#[test]
fn a_run_keeps_its_rows_and_says_why_it_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, good) = (place(folder.path()), run("good", ROW));
    assert!(!place.has(&good));
    assert_eq!((measured(&place, &good), place.rows("good")[0]["rep"].as_u64()), (None, Some(7)));
    assert!(place.has(&good) && !place.has(&run("good", "true")));
    let bad = run("bad", r#"echo "[{\"rep\":8}]" >$0; exit 3"#);
    assert!(measured(&place, &bad).expect("a reason").contains("exit status: 3"));
    assert!(
        place.rows("bad")[0]["rep"] == 8 && !place.has(&bad),
        "rows of a failure are shown, and no whole ones"
    );
    let missing = Run { program: "no-such-bench".into(), ..bad };
    assert!(measured(&place, &missing).expect("a reason").starts_with("no-such-bench: "));
    assert!(place.rows("bad").is_empty());
}

#[test]
fn whole_rows_stay_where_measuring_again_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, good) = (place(folder.path()), run("good", ROW));
    measured(&place, &good);
    assert!(measured(&place, &run("good", r#"echo "[]" >$0; exit 3"#)).is_some());
    assert!(place.has(&good) && place.rows("good")[0]["rep"] == 7);
}

#[test]
fn a_short_form_leaves_whole_rows_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, good) = (place(folder.path()), run("good", ROW));
    measured(&place, &good);
    let quick = Place::new(folder.path(), folder.path(), "c".into(), Some(List::own().quick));
    assert!(!quick.has(&good));
    assert_eq!(measured(&quick, &run("good", r#"echo "[]" >$0"#)), None);
    assert!(place.has(&good) && place.rows("good")[0]["rep"] == 7 && quick.rows("good").is_empty());
}

#[test]
fn rows_of_another_commit_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, good) = (place(folder.path()), run("good", ROW));
    assert!(!place.is_stale(&good));
    measured(&place, &good);
    assert!(!place.is_stale(&good));
    assert!(Place::new(folder.path(), folder.path(), "d".into(), None).is_stale(&good));
}

#[test]
fn what_a_bench_leaves_behind_is_ended_in_any_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    assert_eq!(measured(&place, &run("leaves", "setsid sleep 60 2>/dev/null & echo [$!] >$0")), None);
    let left = place.rows("leaves")[0].as_u64().expect("an id");
    assert!(!Path::new(&format!("/proc/{left}")).exists());
}

fn place(folder: &Path) -> Place {
    Place::new(folder, folder, "c".into(), None)
}

#[test]
fn the_page_has_the_papers_numbers_ours_and_where_we_are_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let row = |system: &str, size: u32, rep: u32, rate: f64| {
        format!(
            "{{\"system\":\"{system}\",\"api\":\"batch\",\"size_bytes\":{size},\"rep\":{rep},\"subscribers\":0,\"published_per_s\":{rate},\
             \"system_version\":\"7\"}}"
        )
    };
    let rows: Vec<String> = (0..3)
        .flat_map(|rep| {
            let slow = f64::from(rep + 1);
            let of = |system, size, rate: f64| row(system, size, rep, rate / slow);
            [of("rbmq", 256, 3e6), of("redis", 256, 2e6), of("rbmq", 1024, 1e6), of("redis", 1024, 4e6)]
        })
        .collect();
    fs::write(folder.path().join("ingest.json"), format!("[{}]", rows.join(","))).expect("rows");
    for (run, commit) in [("ingest", "c1"), ("fanout", "c2")] {
        let kept = format!(
            "{{\"command\":\"x\",\"at\":0,\"seconds\":1,\"is_short\":false,\"failed\":null,\"commit\":\"{commit}\",\
             \"cpu\":\"p\",\"kernel\":\"k\"}}"
        );
        fs::write(folder.path().join(format!("{run}.run.json")), kept).expect("what is kept");
    }
    let page = page::write(&place(folder.path()), &List::own()).expect("a page");
    let html = fs::read_to_string(page).expect("text");
    let markdown = fs::read_to_string(folder.path().join("README.md")).expect("text");
    assert!(
        markdown.contains("| RBMQ, of Redis, at 256 B | 1.67 | 1.50 (1.50..1.50) at 256 |"),
        "{markdown}"
    );
    assert!(
        markdown.contains(
            "redis batch: 0.25 to 1.50, behind at 1024 (0.250 (0.250..0.250)), ahead at 1 of 2 places."
        ) && markdown.contains("| measured; somewhere behind redis batch |"),
        "{markdown}"
    );
    assert!(
        markdown.contains(
            "several commits or machines, and each run names its own: p, k, commit c1; p, k, commit c2."
        ),
        "{markdown}"
    );
    assert!(markdown.contains("| paper4 table3 | Resources of the NIC's part | not measured: No FPGA"));
    assert!(
        markdown.contains("![paper2-fig1.svg](paper2-fig1.svg)")
            && folder.path().join("paper2-fig1.svg").exists()
    );
    let old =
        "head\n<!-- paper2 fig1:begin -->\nold\n<!-- paper2 fig1:end -->\ntail <!-- paper5 fig5:begin -->\n";
    let new = page::between_marks(&place(folder.path()), &List::own(), old);
    assert!(
        new.starts_with(
            "head\n<!-- paper2 fig1:begin -->\n| size bytes | rbmq batch | redis batch |\n| --- |"
        ),
        "{new}"
    );
    assert!(
        new.ends_with("<!-- paper2 fig1:end -->\ntail <!-- paper5 fig5:begin -->\n") && !new.contains("old"),
        "{new}"
    );
    assert!(html.contains("<svg ") && html.contains("<td>1.67</td>") && html.ends_with("</html>\n"));
}

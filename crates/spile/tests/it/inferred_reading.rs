//! What is read without a manifest where an export leaves only one reading: missing values, thousands, totals, names in two rows.

use serde_json::json;

use crate::declared_reading::{check, folder};
use crate::harness::TestProject;

const NO_VALUES: &str = "car,mpg,cyl,tested\nFiat,NA,4,2026-01-05\nMini,20.5,NA,NA\nSeat,19.5,6,2026-02-01\nAudi,17,8,2026-02-03\n";

#[test]
fn a_text_for_no_value_among_numbers_or_dates_is_no_value() {
    let folder = folder(&[("cars.csv", NO_VALUES)]);
    check(
        &folder.path().join("cars.csv"),
        &[
            (
                "aggregate_cars",
                json!({"measures": ["sum_mpg", "avg_cyl", "max_tested"]}),
                &["sum_mpg", "avg_cyl", "max_tested"],
                "57 6 2026-02-03",
            ),
            ("list_cars", json!({"mpg_null": true}), &["car"], "Fiat"),
            ("list_cars", json!({"mpg_min": 19, "sort": "mpg"}), &["car", "mpg"], "Seat 19.5; Mini 20.5"),
        ],
    );
}

#[test]
fn a_text_that_may_be_a_value_stays_one() {
    let data = "country,code,price,size\nNamibia,NA,-,1\nGermany,DE,5.50,unknown\nFrance,FR,6.25,3\nSpain,ES,7.00,4\n";
    let folder = folder(&[("countries.csv", data)]);
    check(
        &folder.path().join("countries.csv"),
        &[
            ("list_countries", json!({"code": "NA"}), &["country"], "Namibia"),
            ("list_countries", json!({"price": "-"}), &["country"], "Namibia"),
            ("list_countries", json!({"size": "unknown"}), &["country"], "Germany"),
        ],
    );
}

#[test]
fn the_written_manifest_says_what_is_assumed_and_reads_the_same() {
    let project = TestProject::new(&[("cars.csv", NO_VALUES.as_bytes())]);
    assert_eq!(project.run(&["init", "cars.csv"]).code, Some(0));
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("a manifest");
    for line in ["mpg = { null = \"NA\" }", "cyl = { null = \"NA\" }", "tested = { null = \"NA\" }"] {
        assert!(manifest.lines().any(|one| one == line), "{line}\n{manifest}");
    }
    check(&project.folder, &[("aggregate_cars", json!({"measures": ["sum_mpg"]}), &["sum_mpg"], "57")]);
}

#[test]
fn the_written_manifest_of_a_file_with_short_lines_works() {
    let project = TestProject::new(&[("people.csv", b"name,city,age\nAnna,Bonn,31\nBert,Ulm\nCarl\n")]);
    assert_eq!(project.run(&["serve", "people.csv"]).code, Some(1));
    assert_eq!(project.run(&["init", "people.csv"]).code, Some(0));
    check(
        &project.folder,
        &[("list_people", json!({"age_null": true, "sort": "name"}), &["name", "city"], "Bert Ulm; Carl ")],
    );
}

#[test]
fn a_total_without_a_label_beside_rates_is_left_out() {
    let pages = "Page,Views,Visits,Bounce Rate\n/a,\"1,200\",\"1,100\",40.00%\n/b,\"2,300\",\"1,900\",60.00%\n/c,\"3,100\",\"2,600\",35.00%\n\
                 /d,\"1,400\",\"1,050\",45.00%\n,\"8,000\",\"6,650\",45.00%\n";
    let folder = folder(&[("pages.csv", pages)]);
    check(
        &folder.path().join("pages.csv"),
        &[(
            "aggregate_pages",
            json!({"measures": ["count", "sum_views", "max_visits"]}),
            &["count", "sum_views", "max_visits"],
            "4 8000 2600",
        )],
    );
}

#[test]
fn a_comma_stays_ambiguous_without_points_and_in_a_file_of_semicolons() {
    let fuel = "station;lat;price\nA;52.51;1,459\nB;48.13;1,519\nC;50.94;1,489\n";
    let plain = "name,amount\na,\"1,459\"\nb,\"1,519\"\n";
    let folder = folder(&[("fuel.csv", fuel), ("plain.csv", plain)]);
    check(&folder.path().join("fuel.csv"), &[("list_fuel", json!({"price": "1,519"}), &["station"], "B")]);
    check(&folder.path().join("plain.csv"), &[("list_plain", json!({"amount": "1,519"}), &["name"], "b")]);
}

#[test]
fn averages_below_the_table_are_left_out() {
    let grades =
        "student,quiz,final,grade\nAnna,7,80,B\nBert,9,91,A\nCarl,5,60,D\n\nAverage,7,77,\nMedian,7,80,\n";
    let folder = folder(&[("grades.csv", grades)]);
    check(
        &folder.path().join("grades.csv"),
        &[(
            "aggregate_grades",
            json!({"measures": ["count", "sum_final"]}),
            &["count", "sum_final"],
            "3 231",
        )],
    );
}

#[test]
fn a_student_named_mean_is_not_an_average() {
    let grades = "student,quiz,final\nAnna,7,80\nBert,9,91\nMean,5,60\n";
    let folder = folder(&[("grades.csv", grades)]);
    check(&folder.path().join("grades.csv"), &[("aggregate_grades", json!({}), &["count"], "3")]);
}

#[test]
fn names_of_two_levels_are_joined() {
    let sales = ",2025,2025,2026,2026\n,Q1,Q2,Q1,Q2\nNorth,1,2,3,4\nSouth,5,6,7,8\n";
    let folder = folder(&[("sales.csv", sales)]);
    check(
        &folder.path().join("sales.csv"),
        &[(
            "aggregate_sales",
            json!({"measures": ["count", "sum_c_2026_q1"]}),
            &["count", "sum_c_2026_q1"],
            "2 10",
        )],
    );
}

#[test]
fn a_first_row_without_values_is_not_a_row_of_names() {
    let growth = "year,change,share\n2024,n/a,-\n2025,1.5,0.2\n2026,2.5,0.3\n";
    let folder = folder(&[("growth.csv", growth)]);
    check(&folder.path().join("growth.csv"), &[("aggregate_growth", json!({}), &["count"], "3")]);
}

#[test]
fn a_least_or_greatest_value_among_values_of_several_types_is_refused() {
    let prices = br#"[{"id":1,"price":12},{"id":2,"price":"1,000"},{"id":3,"price":7}]"#;
    let project = TestProject::new(&[("prices.json", prices)]);
    for measure in ["max_price", "min_price", "sum_price"] {
        let measures = format!("measures={measure}");
        let refused = project.run(&["call", "aggregate_prices", &measures, "--from", "prices.json"]);
        assert_eq!(refused.code, Some(1), "{measure}: {refused:?}");
        let text = format!("{}{}", refused.stdout, refused.stderr);
        assert!(text.contains("with a range of the column, by its `_min` or `_max`"), "{text}");
    }
    check(
        &project.folder.join("prices.json"),
        &[(
            "aggregate_prices",
            json!({"measures": ["max_price", "min_price"], "price_min": 0}),
            &["max_price", "min_price"],
            "12 7",
        )],
    );
}

#[test]
fn an_ambiguous_column_is_shown_by_a_value_that_has_two_readings() {
    let sheet = ("sales.csv", &b"id,amount\n1,2\n2,15\n3,\"1,846\"\n4,\"2,004\"\n"[..]);
    let project = TestProject::new(&[sheet]);
    let checked = project.run(&["check", "sales.csv"]);
    assert!(checked.stdout.contains("its values are ambiguous: first `1,846` in line 4"), "{checked}");
    // The same day in both readings.
    let project =
        TestProject::new(&[("days.csv", &b"id,day\n1,01/01/2026\n2,02/02/2026\n3,03/03/2026\n"[..])]);
    let checked = project.run(&["check", "days.csv"]);
    assert!(checked.stdout.contains("its values are ambiguous: first `01/01/2026` in line 2"), "{checked}");
}

/// With `header_rows = 0`, which `check` proposes, no column has the name of the guessed key.
#[test]
fn the_guessed_key_of_a_doubtful_table_does_not_contradict_what_check_proposes() {
    let rows = b"\
        CN010010,01,001,\"Autauga County, AL\",2009,\"23,288  \",\"21,025  \",\"2,263  \",9.7\n\
        PA011000,01,003,\"Baldwin County, AL\",2009,\"81,706  \",\"74,238  \",\"7,468  \",9.1\n\
        CN010050,01,005,\"Barbour County, AL\",2009,\"9,703  \",\"8,401  \",\"1,302  \",13.4\n\
        CN010070,01,007,\"Bibb County, AL\",2009,\"8,475  \",\"7,453  \",\"1,022  \",12.1\n\
        CN010090,01,009,\"Blount County, AL\",2009,\"25,306  \",\"22,789  \",\"2,517  \",9.9\n\
        CN010110,01,011,\"Bullock County, AL\",2009,\"3,527  \",\"2,948  \",579  ,16.4\n\
        CN010130,01,013,\"Butler County, AL\",2009,\"8,884  \",\"7,403  \",\"1,481  \",16.7\n\
        PA010250,01,015,\"Calhoun County, AL\",2009,\"52,055  \",\"46,422  \",\"5,633  \",10.8\n\
    ";
    let project = TestProject::new(&[("counties.csv", rows)]);
    let checked = project.run(&["check", "counties.csv"]);
    assert!(checked.stdout.contains("`header_rows = 0`"), "{checked}");
    assert_eq!(project.run(&["init", "counties.csv"]).code, Some(0));
    let path = project.folder.join("spile.toml");
    let manifest = std::fs::read_to_string(&path).expect("a manifest");
    assert!(manifest.contains("\n#key = "), "{manifest}");
    let table = "[collections.counties]\n";
    assert!(manifest.contains(table), "{manifest}");
    std::fs::write(&path, manifest.replace(table, &format!("{table}header_rows = 0\n"))).expect("written");
    let checked = project.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(checked.stdout.contains("8 rows"), "{checked}");
}

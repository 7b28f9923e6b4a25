"""Makes the files of the corpus that LibreOffice writes: `python make_libreoffice.py` after `make.py`.

A workbook is built with openpyxl, as somebody would type it, and LibreOffice saves it in another format: as an OpenDocument or an
old Excel sheet, as its own kind of XLSX, or as CSV. The files are committed, so that tests need neither. What is expected is
described in `make.py`. Needs openpyxl and `soffice` to run.
"""

import datetime
import json
import pathlib
import subprocess
import tempfile

import openpyxl

HERE = pathlib.Path(__file__).parent
# Semicolons, quotes, UTF-8, from the first line, cells as they are shown.
CSV_FILTER = "csv:Text - txt - csv (StarCalc):59,34,76,1,,1031,false,true,true"


def table(columns, rows):
    split = [part.strip().rsplit(":", 1) for part in columns.split("|")]
    return {"columns": [[name, kind] for name, kind in split], "rows": rows}


def case(name, build, tables, named=(), fix=None, fixed=None):
    """A workbook that LibreOffice saves under this name, and what a careful person reads from it."""
    ending = name.rsplit(".", 1)[1]
    book = openpyxl.Workbook()
    build(book)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = folder / "in" / (name.rsplit(".", 1)[0] + ".xlsx")
        source.parent.mkdir()
        book.save(source)
        profile = f"-env:UserInstallation=file://{folder}/profile"
        target = CSV_FILTER if ending == "csv" else ending
        command = ["soffice", profile, "--headless", "--convert-to", target, "--outdir", str(folder), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        (HERE / "files" / name).write_bytes((folder / name).read_bytes())
    expected = {"tables": tables if isinstance(tables, list) else [tables], "named": list(named)}
    if fix:
        expected["fix"], expected["fixed"] = fix, [fixed]
    (HERE / "expected" / f"{name}.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


def day(year, month, number):
    return datetime.date(year, month, number)


def append(sheet, *rows):
    for row in rows:
        sheet.append(row)


def invoices(book):
    """Titles, German dates and amounts as numbers with a format, a total with a formula, a note."""
    sheet = book.active
    sheet.title = "Rechnungen"
    append(
        sheet,
        ["Rechnungsausgang 2026"],
        ["Stand: 31.03.2026"],
        [],
        ["Rechnung", "Kunde", "Datum", "Netto", "Bezahlt"],
        ["R-001", "Bäckerei Groß", day(2026, 1, 12), 1234.5, "ja"],
        ["R-002", "Dépôt Lafleur", day(2026, 2, 3), 99.9, "nein"],
        ["R-003", "Gasthof Rössli", day(2026, 3, 28), -15, "ja"],
        ["Summe", None, None, "=SUM(D5:D7)", None],
    )
    for row in range(5, 9):
        sheet.cell(row, 3).number_format = "[$-407]DD.MM.YYYY"
        sheet.cell(row, 4).number_format = '#,##0.00 [$€-407]'


INVOICES = "Rechnung:text|Kunde:text|Datum:date|Netto:{}|Bezahlt:boolean"
INVOICE_ROWS = [
    ["R-001", "Bäckerei Groß", "2026-01-12", 1234.5, True],
    ["R-002", "Dépôt Lafleur", "2026-02-03", 99.9, False],
    ["R-003", "Gasthof Rössli", "2026-03-28", -15, True],
]
for kind in ["ods", "xls", "xlsx"]:
    case(
        f"libreoffice_invoices.{kind}",
        invoices,
        table(INVOICES.format("number"), INVOICE_ROWS),
        named=["has 2 rows above the table (rows 1 to 2", "has a row of totals (row 8: `Summe`)"],
    )


def quarters(book):
    """Names in two rows, the upper ones in merged cells, subtotals in between."""
    sheet = book.active
    sheet.title = "Quarters"
    append(
        sheet,
        ["Team", "Person", "2025", None, "2026", None],
        [None, None, "Plan", "Actual", "Plan", "Actual"],
        ["North", "Ann", 100, 90, 110, 120],
        ["North", "Bo", 50, 60, 70, 65],
        ["Total North", None, 150, 150, 180, 185],
        ["South", "Cy", 10, 12, 14, 16],
        ["South", "Di", 20, 21, 22, 23],
        ["Total South", None, 30, 33, 36, 39],
        ["Grand Total", None, 180, 183, 216, 224],
    )
    sheet.merge_cells("C1:D1")
    sheet.merge_cells("E1:F1")


case(
    "libreoffice_quarters.ods",
    quarters,
    table(
        "Team:text|Person:text|2025 Plan:integer|2025 Actual:integer|2026 Plan:integer|2026 Actual:integer",
        [
            ["North", "Ann", 100, 90, 110, 120],
            ["North", "Bo", 50, 60, 70, 65],
            ["South", "Cy", 10, 12, 14, 16],
            ["South", "Di", 20, 21, 22, 23],
        ],
    ),
    named=["has names of columns in two rows", "has 3 rows of totals (rows 5, 8, 9, first `Total North`)"],
)


def pasted(book):
    """Texts pasted from a German bank: amounts, dates and percentages are not numbers for the program."""
    sheet = book.active
    sheet.title = "Umsätze"
    append(
        sheet,
        ["Buchung", "Empfänger", "Betrag", "Anteil"],
        ["13.02.2026", "Total Energies", "-1.250,00", "45,5 %"],
        ["28.02.2026", "Summe GmbH", "80,50", "12,25 %"],
        ["01.03.2026", "Stadtwerke", "2.345,99", "42,25 %"],
    )


case(
    "libreoffice_pasted.ods",
    pasted,
    table(
        "Buchung:date|Empfänger:text|Betrag:decimal|Anteil:decimal",
        [
            ["2026-02-13", "Total Energies", "-1250.00", "45.5"],
            ["2026-02-28", "Summe GmbH", "80.50", "12.25"],
            ["2026-03-01", "Stadtwerke", "2345.99", "42.25"],
        ],
    ),
)
case(
    "libreoffice_invoices.csv",
    invoices,
    table(
        INVOICES.format("decimal"),
        [
            ["R-001", "Bäckerei Groß", "2026-01-12", "1234.50", True],
            ["R-002", "Dépôt Lafleur", "2026-02-03", "99.90", False],
            ["R-003", "Gasthof Rössli", "2026-03-28", "-15.00", True],
        ],
    ),
    named=["above the table", "has a row of totals (line 8: `Summe`)"],
)


def hours(book):
    """Durations, times of a day, a percentage, checked boxes, and a text of numbers."""
    sheet = book.active
    sheet.title = "Hours"
    append(
        sheet,
        ["Day", "Begin", "Hours", "Done", "Billable", "Code"],
        [day(2026, 1, 5), datetime.time(8, 30), datetime.timedelta(hours=8), True, 0.75, "007"],
        [day(2026, 1, 6), datetime.time(9, 0), datetime.timedelta(hours=7.5), False, 1, "042"],
        [day(2026, 1, 7), None, None, None, None, "100"],
        ["Total", None, datetime.timedelta(hours=15.5), None, None, None],
    )
    for row in range(2, 6):
        sheet.cell(row, 1).number_format = "YYYY-MM-DD"
        sheet.cell(row, 3).number_format = "[h]:mm"
        sheet.cell(row, 5).number_format = "0%"


case(
    "libreoffice_hours.ods",
    hours,
    table(
        "Day:date|Begin:text|Hours:text|Done:boolean|Billable:number|Code:text",
        [
            ["2026-01-05", "08:30:00", "08:00:00", True, 0.75, "007"],
            ["2026-01-06", "09:00:00", "07:30:00", False, 1, "042"],
            ["2026-01-07", None, None, None, None, "100"],
        ],
    ),
    named=["has a row of totals (row 5: `Total`)"],
)

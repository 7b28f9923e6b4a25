"""Makes the workbooks with Excel tables in this folder: `python make.py`, with openpyxl 3.1 and XlsxWriter 3.3.

They are committed, because they change only when this script does.
"""

import datetime
import pathlib

import openpyxl
import xlsxwriter
from openpyxl.worksheet.table import Table, TableStyleInfo

HERE = pathlib.Path(__file__).parent
HEADER = ["item", "qty", "price", "total"]
ROWS = [["apple", 2, 0.5], ["pear", 1, 1.25], ["plum", 10, 0.1]]
# Reproducible files.
CREATED = datetime.datetime(2026, 1, 1)


def book(name):
    workbook = xlsxwriter.Workbook(HERE / name)
    workbook.set_properties({"created": CREATED})
    return workbook, workbook.add_worksheet("Orders")


def table(sheet, **options):
    """Rows 2 to 4; `total` is calculated, with its values."""
    columns = [{"header": name} for name in HEADER]
    columns[3]["formula"] = "=Orders[[#This Row],[qty]]*Orders[[#This Row],[price]]"
    options = {"name": "Orders", "columns": columns, **options}
    last = 4 if options.get("total_row") else 3
    sheet.add_table(0, 0, last, 3, options)
    for at, (item, qty, price) in enumerate(ROWS, start=1):
        sheet.write_row(at, 0, [item, qty, price])
        sheet.write_formula(at, 3, "Orders[[#This Row],[qty]]*Orders[[#This Row],[price]]", None, qty * price)


def xlsxwriter_table():
    workbook, sheet = book("xlsxwriter.xlsx")
    table(sheet)
    sheet.data_validation("B2:B4", {"validate": "integer", "criteria": ">", "value": 0})
    sheet.conditional_format("D2:D4", {"type": "cell", "criteria": ">", "value": 1, "format": workbook.add_format({"bold": True})})
    sheet.write("G2", "a note beside the table")
    sheet.write("G9", "and one further down")
    summary = workbook.add_worksheet("Summary")
    summary.write_row(0, 0, ["what", "value"])
    summary.write(1, 0, "total")
    summary.write_formula(1, 1, "SUM(Orders[total])", None, 3.25)
    workbook.close()


def totals_row():
    workbook, sheet = book("totals.xlsx")
    table(sheet, total_row=True)
    workbook.close()


def covered():
    workbook, sheet = book("covered.xlsx")
    table(sheet)
    sheet.write_formula("H1", "SUM(Orders[qty])", None, 13)
    workbook.close()


def chart():
    workbook, sheet = book("chart.xlsx")
    table(sheet)
    line = workbook.add_chart({"type": "line"})
    line.add_series({"values": "=Orders!$B$2:$B$4"})
    sheet.insert_chart("H2", line)
    workbook.close()


def below():
    workbook, sheet = book("below.xlsx")
    table(sheet)
    sheet.write("A7", "checked by Ada")
    workbook.close()


def two_tables():
    workbook, sheet = book("two.xlsx")
    table(sheet)
    sheet.add_table(0, 6, 2, 7, {"name": "Other", "columns": [{"header": "a"}, {"header": "b"}]})
    workbook.close()


def openpyxl_table():
    """A table without calculated columns, and formulas in cells all the same; openpyxl writes no values for them."""
    workbook = openpyxl.Workbook()
    workbook.properties.created = workbook.properties.modified = CREATED
    sheet = workbook.active
    sheet.title = "Orders"
    sheet.append(HEADER)
    for at, row in enumerate(ROWS, start=2):
        sheet.append([*row, f"=B{at}*$C{at}"])
    orders = Table(displayName="Orders", ref="A1:D4")
    orders.tableStyleInfo = TableStyleInfo(name="TableStyleMedium9", showRowStripes=True)
    sheet.add_table(orders)
    workbook.save(HERE / "openpyxl.xlsx")


for make in [xlsxwriter_table, totals_row, covered, chart, below, two_tables, openpyxl_table]:
    make()

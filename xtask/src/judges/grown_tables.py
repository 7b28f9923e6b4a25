"""Adds rows to Excel tables with Spile and reads the workbooks with openpyxl: `grown_tables.py SPILE FOLDER`.

FOLDER holds workbooks whose sheet `Orders` has the Excel table `Orders`: item, qty, price and the calculated total.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import openpyxl
from openpyxl.worksheet.formula import ArrayFormula

# What openpyxl does not understand, and would drop, it warns about.
warnings.simplefilter("error")

spile, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
MANIFEST = """\
[sources.book]
path = "orders.xlsx"

[collections.orders]
sheet = "Orders"
description = "Orders."
key = "item"
operations = ["list", "create"]
"""
NEW_ROWS = [("fig", 4, 2.5), ('<&> "kiwi" – ä', 1, 3), ("=1+1", 7, 0.001)] + [(f"item {n}", n, 0.25) for n in range(1, 40)]


def expect(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, found {actual!r}")


def formula(cell):
    value = cell.value
    return value.text if isinstance(value, ArrayFormula) else value


def grow(name):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        book = folder / "orders.xlsx"
        shutil.copy(fixtures / name, book)
        (folder / "spile.toml").write_text(MANIFEST)
        before = openpyxl.load_workbook(book)["Orders"]
        for item, qty, price in NEW_ROWS:
            call = [spile, "call", "create_orders", "--from", str(folder)]
            call += [f"item={item}", f"qty={qty}", f"price={price}"]
            done = subprocess.run(call, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{name}: {item}: {done.stdout}{done.stderr}")
        after = openpyxl.load_workbook(book)
        sheet = after["Orders"]
        last = before.max_row if name == "openpyxl.xlsx" else 4
        end = last + len(NEW_ROWS)
        for row in before.iter_rows():
            for cell in (cell for cell in row if cell.value is not None):
                expect(f"{name} {cell.coordinate}", formula(sheet[cell.coordinate]), formula(cell))
        for at, row in enumerate(NEW_ROWS, start=last + 1):
            expect(f"{name} row {at}", tuple(sheet.cell(at, column).value for column in (1, 2, 3)), row)
            expect(f"{name} A{at} is a text", sheet.cell(at, 1).data_type, "s")
            first = formula(sheet.cell(2, 4))
            expected = f"=B{at}*$C{at}" if first == "=B2*$C2" else first
            expect(f"{name} D{at}", formula(sheet.cell(at, 4)), expected)
        orders = sheet.tables["Orders"]
        expect(f"{name} table", orders.ref, f"A1:D{end}")
        if orders.autoFilter is not None:
            expect(f"{name} filter", orders.autoFilter.ref, f"A1:D{end}")
        rules = sorted(str(range_.sqref) for range_ in sheet.conditional_formatting)
        expect(f"{name} conditional formats", rules, [f"D2:D{end}"] if name == "xlsxwriter.xlsx" else [])
        checks = [str(check.sqref) for check in sheet.data_validations.dataValidation]
        expect(f"{name} validation rules", checks, [f"B2:B{end}"] if name == "xlsxwriter.xlsx" else [])
        expect(f"{name} sheets", after.sheetnames, openpyxl.load_workbook(fixtures / name).sheetnames)
        # What openpyxl writes, Spile reads: nothing in the file is only half understood.
        after.save(book)
        call = [spile, "call", "list_orders", "--from", str(folder), "item=fig"]
        listed = subprocess.run(call, capture_output=True, text=True)
        if listed.returncode != 0 or "fig" not in listed.stdout:
            sys.exit(f"{name}: after openpyxl saved it: {listed.stdout}{listed.stderr}")
        print(f"{name}: {len(NEW_ROWS)} rows added, {orders.ref}")


for name in ["xlsxwriter.xlsx", "openpyxl.xlsx"]:
    grow(name)

"""Makes `examples/sales/sales.xlsx`: `python sales.py`, with openpyxl.

A workbook as an office sends it around: titles above the tables, totals below them, amounts as texts with decimal commas
and a currency sign, dates as texts with dots, `ja` and `nein`, `-` where there is nothing, and three sheets that belong
together.
"""

import datetime
import pathlib

import openpyxl
from make import Numbers

HERE = pathlib.Path(__file__).parent


def euros(cents):
    whole = f"{cents // 100:,}".replace(",", ".")
    return f"{whole},{cents % 100:02} €"


random = Numbers(3)
customers = [
    ("K-001", "Bäckerei Groß", "Köln", "DE", "ja"), ("K-002", "Café Löwe", "Wien", "AT", "nein"),
    ("K-003", "Dépôt Lafleur", "Lyon", "FR", "ja"), ("K-004", "Bistro Øst", "Aarhus", "DK", "nein"),
    ("K-005", "Gasthof Rössli", "Bern", "CH", "nein"), ("K-006", "Hotel am See", "Konstanz", "DE", "ja"),
    ("K-007", "Osteria Verdi", "Bologna", "IT", "nein"), ("K-008", "Kantine Nord", "Kiel", "DE", "nein"),
]
products = [
    (10, "Espresso 1 kg", "Kaffee", 1890), (20, "Filterkaffee 1 kg", "Kaffee", 1450),
    (30, "Darjeeling 500 g", "Tee", 2250), (40, "Minze 250 g", "Tee", 890),
    (50, "Kakao 1 kg", "Schokolade", 1275), (60, "Trinkschokolade 500 g", "Schokolade", 990),
]
book = openpyxl.Workbook()
book.properties.created = book.properties.modified = datetime.datetime(2026, 1, 1)
sheet = book.active
sheet.title = "Aufträge"
sheet.append(["Rösterei Hanse GmbH – Aufträge 2025"])
sheet.append(["Stand: 31.12.2025, alle Beträge brutto"])
sheet.append([])
sheet.append(["Auftrag", "Datum", "Kunde", "Artikel", "Menge", "Betrag", "Bezahlt am", "Storniert"])
total = 0
for at in range(1, 61):
    customer, product = customers[random.below(7)], products[random.below(6)]
    amount = 1 + random.below(24)
    cents = product[3] * amount
    ordered = datetime.date(2025, 1, 3) + datetime.timedelta(days=at * 6 - random.below(5))
    paid = ordered + datetime.timedelta(days=5 + random.below(30))
    is_open = random.below(6) == 0
    total += cents
    sheet.append([
        f"A-{1000 + at}", ordered.strftime("%d.%m.%Y"), customer[0], product[0], amount, euros(cents),
        "-" if is_open else paid.strftime("%d.%m.%Y"), "ja" if random.below(15) == 0 else "nein",
    ])
sheet.append(["Summe", None, None, None, None, euros(total)])
other = book.create_sheet("Kunden")
other.append(["Kundenliste"])
other.append([])
other.append(["Kundennr.", "Firma", "Ort", "Land", "Stammkunde"])
for customer in customers:
    other.append(customer)
third = book.create_sheet("Artikel")
third.append(["Artikelnr.", "Bezeichnung", "Gruppe", "Preis"])
for product in products:
    third.append([*product[:3], euros(product[3])])
book.save(HERE / "../../../examples/sales/sales.xlsx")

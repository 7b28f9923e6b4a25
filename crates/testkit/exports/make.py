"""Makes the corpus of messy exports: `python make.py` writes `files/` and `expected/`.

Each file is what some program really exports, made small. Beside it, as JSON, is what a careful person reads from it:

- `tables`: for each collection the columns with their types, and the rows, read without a manifest;
- `named`: texts that `spile check` must say, one for each doubtful thing;
- `fix` and `fixed`: for a file that is not read right by itself, the lines for the manifest that `check` proposes,
  under `collection` or under `fields`, and the tables that result.

The files are committed, so that tests need no Python. Needs openpyxl, xlsxwriter, pandas and pyarrow to run. Those that LibreOffice
writes are made by `make_libreoffice.py`.
"""

import datetime
import decimal
import io
import json
import pathlib

import openpyxl
import pandas
import xlsxwriter
from openpyxl.utils import get_column_letter

HERE = pathlib.Path(__file__).parent
CASES = []


def table(columns, rows):
    """`columns` is `name:type name:type`, with `|` between them where names have blanks."""
    parts = columns.split("|") if "|" in columns else columns.split()
    split = [part.strip().rsplit(":", 1) for part in parts]
    return {"columns": [[name, kind] for name, kind in split], "rows": rows}


def case(name, data, tables, named=(), fix=None, fixed=None):
    if isinstance(data, str):
        data = data.encode()
    CASES.append(name)
    (HERE / "files" / name).write_bytes(data)
    expected = {"tables": tables if isinstance(tables, list) else [tables], "named": list(named)}
    if fix:
        expected["fix"] = fix
        expected["fixed"] = [fixed]
    (HERE / "expected" / f"{name}.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


def lines(*rows, end="\r\n"):
    return end.join(rows) + end


def xlsx(build):
    """A workbook by xlsxwriter, which can give formulas their computed values."""
    out = io.BytesIO()
    book = xlsxwriter.Workbook(out, {"in_memory": True})
    book.set_properties({"created": __import__("datetime").datetime(2026, 1, 1)})
    build(book)
    book.close()
    return out.getvalue()


def openpyxl_book(build):
    book = openpyxl.Workbook()
    book.properties.created = book.properties.modified = __import__("datetime").datetime(2026, 1, 1)
    build(book)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def write_rows(sheet, rows, start=0):
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            if value is not None:
                sheet.write(start + at, column, value)


# Banks ---------------------------------------------------------------------------------------------------------------

case(
    "sparkasse.csv",
    lines(
        '"Auftragskonto";"Buchungstag";"Valutadatum";"Buchungstext";"Verwendungszweck";"Betrag";"Waehrung"',
        '"DE02120300000000202051";"13.02.26";"13.02.26";"KARTENZAHLUNG";"REWE SAGT DANKE";"-12,50";"EUR"',
        '"DE02120300000000202051";"02.03.26";"03.03.26";"LOHN GEHALT";"Gehalt Mörz";"2.345,00";"EUR"',
        '"DE02120300000000202051";"04.03.26";"04.03.26";"DAUERAUFTRAG";"Miete";"-980,00";"EUR"',
    ).encode("cp1252"),
    table(
        "Auftragskonto:text Buchungstag:date Valutadatum:date Buchungstext:text Verwendungszweck:text Betrag:decimal "
        "Waehrung:text",
        [
            ["DE02120300000000202051", "2026-02-13", "2026-02-13", "KARTENZAHLUNG", "REWE SAGT DANKE", "-12.50", "EUR"],
            ["DE02120300000000202051", "2026-03-02", "2026-03-03", "LOHN GEHALT", "Gehalt Mörz", "2345.00", "EUR"],
            ["DE02120300000000202051", "2026-03-04", "2026-03-04", "DAUERAUFTRAG", "Miete", "-980.00", "EUR"],
        ],
    ),
)
case(
    "dkb.csv",
    lines(
        '"Girokonto";"DE02120300000000202051"',
        '""',
        '"Kontostand vom 13.02.2026:";"1.234,56 €"',
        '""',
        '"Buchungsdatum";"Zahlungspflichtige*r";"Verwendungszweck";"Betrag (€)";"Status"',
        '"13.02.26";"Stadtwerke";"Abschlag Strom";"-78,00";"Gebucht"',
        '"01.02.26";"Arbeitgeber GmbH";"Gehalt";"3.210,99";"Gebucht"',
        end="\n",
    ),
    table(
        "Buchungsdatum:date|Zahlungspflichtige*r:text|Verwendungszweck:text|Betrag (€):decimal|Status:text",
        [
            ["2026-02-13", "Stadtwerke", "Abschlag Strom", "-78.00", "Gebucht"],
            ["2026-02-01", "Arbeitgeber GmbH", "Gehalt", "3210.99", "Gebucht"],
        ],
    ),
    named=["above the table"],
)
case(
    "ing.csv",
    lines(
        "Umsatzanzeige;Datei erstellt am: 14.02.2026 10:11",
        "",
        "IBAN;DE02 1203 0000 0000 2020 51",
        "Kontoname;Girokonto",
        "Zeitraum;01.01.2026 - 14.02.2026",
        "Saldo;1.234,56;EUR",
        "",
        "Buchung;Wertstellungsdatum;Auftraggeber/Empfänger;Buchungstext;Saldo;Währung;Betrag;Währung",
        "13.02.2026;13.02.2026;BVG;Lastschrift;1.234,56;EUR;-86,00;EUR",
        "12.02.2026;12.02.2026;Anna Berg;Gutschrift;1.320,56;EUR;100,00;EUR",
    ).encode("cp1252"),
    table(
        "Buchung:date|Wertstellungsdatum:date|Auftraggeber/Empfänger:text|Buchungstext:text|Saldo:decimal|Währung:text"
        "|Betrag:decimal|Währung:text",
        [
            ["2026-02-13", "2026-02-13", "BVG", "Lastschrift", "1234.56", "EUR", "-86.00", "EUR"],
            ["2026-02-12", "2026-02-12", "Anna Berg", "Gutschrift", "1320.56", "EUR", "100.00", "EUR"],
        ],
    ),
    named=["above the table", "are named `Währung`"],
)
case(
    "revolut.csv",
    lines(
        "Type,Product,Started Date,Completed Date,Description,Amount,Fee,Currency,State,Balance",
        "CARD_PAYMENT,Current,2026-02-13 10:30:05,2026-02-14 08:00:00,Lidl,-12.40,0.00,EUR,COMPLETED,87.60",
        "TOPUP,Current,2026-02-15 09:00:00,,Top-Up,100.00,0.00,EUR,PENDING,",
    ),
    table(
        "Type:text|Product:text|Started Date:local_timestamp|Completed Date:local_timestamp|Description:text"
        "|Amount:decimal|Fee:decimal|Currency:text|State:text|Balance:decimal",
        [
            ["CARD_PAYMENT", "Current", "2026-02-13 10:30:05", "2026-02-14 08:00:00", "Lidl", "-12.40", "0.00", "EUR",
             "COMPLETED", "87.60"],
            ["TOPUP", "Current", "2026-02-15 09:00:00", None, "Top-Up", "100.00", "0.00", "EUR", "PENDING", None],
        ],
    ),
)
case(
    "paypal_de.csv",
    "\ufeff"
    + lines(
        '"Datum","Uhrzeit","Zeitzone","Name","Brutto","Gebühr","Netto"',
        '"13/02/2026","10:11:12","CET","Anna Berg","1.234,50","-35,20","1.199,30"',
        '"01/03/2026","08:00:00","CET","Bo Ek","-12,00","0,00","-12,00"',
    ),
    table(
        "Datum:date Uhrzeit:text Zeitzone:text Name:text Brutto:decimal Gebühr:decimal Netto:decimal",
        [
            ["2026-02-13", "10:11:12", "CET", "Anna Berg", "1234.50", "-35.20", "1199.30"],
            ["2026-03-01", "08:00:00", "CET", "Bo Ek", "-12.00", "0.00", "-12.00"],
        ],
    ),
)
case(
    "paypal_ambiguous.csv",
    lines(
        '"Date","Time","Name","Gross"',
        '"01/02/2026","10:11:12","Anna Berg","1,234.50"',
        '"03/04/2026","08:00:00","Bo Ek","-12.00"',
    ),
    table(
        "Date:text Time:text Name:text Gross:decimal",
        [["01/02/2026", "10:11:12", "Anna Berg", "1234.50"], ["03/04/2026", "08:00:00", "Bo Ek", "-12.00"]],
    ),
    named=["`Date` is text, because its values are ambiguous"],
    fix={"fields": ['Date = { date_format = "dd/mm/yyyy" }']},
    fixed=table(
        "Date:date Time:text Name:text Gross:decimal",
        [["2026-02-01", "10:11:12", "Anna Berg", "1234.50"], ["2026-04-03", "08:00:00", "Bo Ek", "-12.00"]],
    ),
)
case(
    "mt940.csv",
    lines(
        "Kontonummer;Valuta;S/H;Betrag;Zweck",
        "202051;260213;S;1234,50;Rechnung 17",
        "202051;260214;H;99,00;Erstattung",
    ),
    table(
        "Kontonummer:integer Valuta:integer S/H:text Betrag:decimal Zweck:text",
        [[202051, 260213, "S", "1234.50", "Rechnung 17"], [202051, 260214, "H", "99.00", "Erstattung"]],
    ),
    named=["has integers in `Valuta` that may all be dates (first `260213` in line 2)"],
    fix={"fields": ['Valuta = { date_format = "yymmdd" }']},
    fixed=table(
        "Kontonummer:integer Valuta:date S/H:text Betrag:decimal Zweck:text",
        [[202051, "2026-02-13", "S", "1234.50", "Rechnung 17"], [202051, "2026-02-14", "H", "99.00", "Erstattung"]],
    ),
)
case(
    "french_bank.csv",
    lines(
        "Compte courant n° 00012345678",
        "Solde au 13/02/2026 : 1 234,50 €",
        "",
        "Date;Libellé;Débit;Crédit",
        "13/02/2026;CB CARREFOUR;-45,90 €;",
        "01/02/2026;VIREMENT SALAIRE;;2\u00a0345,00 €",
        "28/01/2026;LOYER;-1\u00a0100,00 €;",
    ),
    table(
        "Date:date Libellé:text Débit:decimal Crédit:decimal",
        [
            ["2026-02-13", "CB CARREFOUR", "-45.90", None],
            ["2026-02-01", "VIREMENT SALAIRE", None, "2345.00"],
            ["2026-01-28", "LOYER", "-1100.00", None],
        ],
    ),
    named=["above the table"],
)
case(
    "swiss_bank.csv",
    lines(
        "Datum;Text;Betrag;Saldo",
        "13.02.2026;Migros;-45.90;CHF 1'234.50",
        "14.02.2026;Lohn;5400.00;CHF 6'634.50",
    ),
    table(
        "Datum:date Text:text Betrag:decimal Saldo:decimal",
        [["2026-02-13", "Migros", "-45.90", "1234.50"], ["2026-02-14", "Lohn", "5400.00", "6634.50"]],
    ),
)

# Shops ---------------------------------------------------------------------------------------------------------------

case(
    "shopify_orders.csv",
    lines(
        "Name,Email,Financial Status,Paid at,Accepts Marketing,Currency,Subtotal,Total,Lineitem quantity,Lineitem name",
        "#1001,anna@example.com,paid,2026-02-13 10:30:00 -0500,yes,USD,30.00,35.50,1,Mug",
        "#1001,anna@example.com,,,,,,,2,Plate",
        "#1002,bo@example.com,refunded,2026-02-14 09:00:00 -0500,no,USD,12.00,12.00,1,Mug",
    ),
    table(
        "Name:text|Email:text|Financial Status:text|Paid at:timestamp|Accepts Marketing:boolean|Currency:text"
        "|Subtotal:decimal|Total:decimal|Lineitem quantity:integer|Lineitem name:text",
        [
            ["#1001", "anna@example.com", "paid", "2026-02-13T10:30:00-05:00", True, "USD", "30.00", "35.50", 1, "Mug"],
            ["#1001", "anna@example.com", "", None, None, "", None, None, 2, "Plate"],
            ["#1002", "bo@example.com", "refunded", "2026-02-14T09:00:00-05:00", False, "USD", "12.00", "12.00", 1,
             "Mug"],
        ],
    ),
)
case(
    "stripe_payments.csv",
    lines(
        "id,Created (UTC),Amount,Amount Refunded,Currency,Captured,Status",
        'ch_1,2026-02-13 10:30,"1,234.50",0.00,usd,true,Paid',
        "ch_2,2026-02-13 11:05,20.00,20.00,usd,true,Refunded",
        "ch_3,2026-02-14 00:15,7.00,0.00,usd,false,Failed",
    ),
    table(
        "id:text|Created (UTC):local_timestamp|Amount:decimal|Amount Refunded:decimal|Currency:text|Captured:boolean"
        "|Status:text",
        [
            ["ch_1", "2026-02-13T10:30:00", "1234.50", "0.00", "usd", True, "Paid"],
            ["ch_2", "2026-02-13T11:05:00", "20.00", "20.00", "usd", True, "Refunded"],
            ["ch_3", "2026-02-14T00:15:00", "7.00", "0.00", "usd", False, "Failed"],
        ],
    ),
)
case(
    "amazon_settlement.csv",
    lines(
        '"Includes Amazon Marketplace, Fulfillment by Amazon (FBA), and Amazon Webstore transactions"',
        '"All amounts in USD, unless specified"',
        '"Definitions:"',
        '"Sales tax collected: Includes sales tax collected from buyers for product sales."',
        '"date/time","settlement id","type","order id","quantity","product sales","total"',
        '"Feb 13, 2026 1:05:22 AM","18437","Order","112-1","1","1,019.99","865.12"',
        '"Dec 3, 2025 11:15:00 PM","18437","Refund","112-2","1","-19.99","-17.00"',
    ),
    table(
        "date/time:local_timestamp|settlement id:integer|type:text|order id:text|quantity:integer"
        "|product sales:decimal|total:decimal",
        [
            ["2026-02-13T01:05:22", 18437, "Order", "112-1", 1, "1019.99", "865.12"],
            ["2025-12-03T23:15:00", 18437, "Refund", "112-2", 1, "-19.99", "-17.00"],
        ],
    ),
    named=["has 4 rows above the table"],
)
case(
    "amazon_orders.tsv",
    lines(
        "order-id\tpurchase-date\tquantity-shipped\titem-price\tis-business-order",
        "112-1\t2026-02-13T10:30:00+00:00\t1\t19.99\tfalse",
        "112-2\t2026-02-14T09:00:00+00:00\t2\t5.00\ttrue",
    ),
    table(
        "order-id:text purchase-date:timestamp quantity-shipped:integer item-price:decimal is-business-order:boolean",
        [
            ["112-1", "2026-02-13T10:30:00+00:00", 1, "19.99", False],
            ["112-2", "2026-02-14T09:00:00+00:00", 2, "5.00", True],
        ],
    ),
)

# Business software ---------------------------------------------------------------------------------------------------

case(
    "hubspot_contacts.csv",
    lines(
        "Record ID,First Name,Email,Create Date,Lifecycle Stage,Email,Marketing contact status,",
        "101,Anna,anna@example.com,2026-02-13 10:30,Lead,anna@work.example,Yes,",
        "102,Bo,bo@example.com,2026-02-14 09:00,Customer,,No,",
    ),
    table(
        "Record ID:integer|First Name:text|Email:text|Create Date:local_timestamp|Lifecycle Stage:text|Email:text"
        "|Marketing contact status:boolean",
        [
            [101, "Anna", "anna@example.com", "2026-02-13T10:30:00", "Lead", "anna@work.example", True],
            [102, "Bo", "bo@example.com", "2026-02-14T09:00:00", "Customer", "", False],
        ],
    ),
    named=["are named `Email`"],
)
case(
    "jira.csv",
    lines(
        "Summary,Issue key,Issue id,Status,Created,Labels,Labels,Labels,Story Points",
        "Fix login,WEB-12,10012,Done,13/Feb/26 9:05 AM,auth,urgent,,3.0",
        '"Ship it, now",WEB-13,10013,To Do,01/Mar/26 4:30 PM,,,,5.0',
    ),
    table(
        "Summary:text|Issue key:text|Issue id:integer|Status:text|Created:local_timestamp|Labels:text|Labels:text"
        "|Labels:text|Story Points:decimal",
        [
            ["Fix login", "WEB-12", 10012, "Done", "2026-02-13T09:05:00", "auth", "urgent", "", "3.0"],
            ["Ship it, now", "WEB-13", 10013, "To Do", "2026-03-01T16:30:00", "", "", "", "5.0"],
        ],
    ),
    named=["are named `Labels`"],
)
case(
    "google_forms.csv",
    lines(
        'Timestamp,"What is your name?","How satisfied are you?\n(1 = not at all, 5 = very)",May we contact you?',
        "2/13/2026 10:30:00,Anna,5,Yes",
        "2/3/2026 9:05:59,Bo,3,No",
        end="\n",
    ),
    table(
        "Timestamp:local_timestamp|What is your name?:text|How satisfied are you?\n(1 = not at all, 5 = very):integer"
        "|May we contact you?:boolean",
        [["2026-02-13T10:30:00", "Anna", 5, True], ["2026-02-03T09:05:59", "Bo", 3, False]],
    ),
)
case(
    "google_forms_de.csv",
    lines(
        "Zeitstempel,Name,Teilnahme,Anzahl Personen",
        "13.02.2026 10:30:00,Anna,Ja,2",
        "14.02.2026 09:05:59,Bo,Nein,",
    ),
    table(
        "Zeitstempel:local_timestamp|Name:text|Teilnahme:boolean|Anzahl Personen:integer",
        [["2026-02-13T10:30:00", "Anna", True, 2], ["2026-02-14T09:05:59", "Bo", False, None]],
    ),
)
case(
    "sap_list.csv",
    lines(
        "Einzelpostenliste Kreditoren",
        "Stand: 28.02.2026",
        "",
        "Belegnr;Buch.dat.;Betrag in HW;Währg;Text",
        "1900000001;13.02.2026;1.234,50-;EUR;Rechnung",
        "1900000002;20.02.2026;20,00;EUR;Gutschrift",
        "1900000003;27.02.2026;7,10-;EUR;Skonto",
    ),
    table(
        "Belegnr:integer|Buch.dat.:date|Betrag in HW:decimal|Währg:text|Text:text",
        [
            [1900000001, "2026-02-13", "-1234.50", "EUR", "Rechnung"],
            [1900000002, "2026-02-20", "20.00", "EUR", "Gutschrift"],
            [1900000003, "2026-02-27", "-7.10", "EUR", "Skonto"],
        ],
    ),
    named=["has 2 rows above the table"],
)
case(
    "datev.csv",
    lines(
        '"EXTF";700;21;"Buchungsstapel";13;20260228103000000;;"RE";"Muster";;1001;10001',
        "Umsatz (ohne Soll/Haben-Kz);Soll/Haben-Kennzeichen;WKZ Umsatz;Konto;Gegenkonto;Belegdatum;Belegfeld 1",
        '1234,50;"S";"EUR";4400;10001;1302;"RE-17"',
        '20,00;"H";"EUR";4400;10002;0103;"RE-18"',
        '7,10;"S";"EUR";4930;1200;2802;"B-3"',
    ).encode("cp1252"),
    table(
        "Umsatz (ohne Soll/Haben-Kz):decimal|Soll/Haben-Kennzeichen:text|WKZ Umsatz:text|Konto:integer"
        "|Gegenkonto:integer|Belegdatum:text|Belegfeld 1:text",
        [
            ["1234.50", "S", "EUR", 4400, 10001, "1302", "RE-17"],
            ["20.00", "H", "EUR", 4400, 10002, "0103", "RE-18"],
            ["7.10", "S", "EUR", 4930, 1200, "2802", "B-3"],
        ],
    ),
    named=["above the table"],
)
case(
    "ledger.csv",
    lines(
        "Account,Opening,Movement,Closing",
        'Cash,"12,500.00","(1,234.50)","11,265.50"',
        'Receivables,"3,000.00",250.00,"3,250.00"',
        'Payables,"(900.00)","(100.00)","(1,000.00)"',
    ),
    table(
        "Account:text Opening:decimal Movement:decimal Closing:decimal",
        [
            ["Cash", "12500.00", "-1234.50", "11265.50"],
            ["Receivables", "3000.00", "250.00", "3250.00"],
            ["Payables", "-900.00", "-100.00", "-1000.00"],
        ],
    ),
)
case(
    "dollars.csv",
    lines("Item,Price,Change", 'Desk,"$1,299.00",+2.5%', "Lamp,$39.90,-0.5%", "Chair,-$5.00,+1.0%"),
    table(
        "Item:text Price:decimal Change:decimal",
        [["Desk", "1299.00", "2.5"], ["Lamp", "39.90", "-0.5"], ["Chair", "-5.00", "1.0"]],
    ),
)
case(
    "percent_de.csv",
    lines("Jahr;Anteil;Wachstum", "2024;12,5 %;-0,3 %", "2025;13,0 %;0,5 %"),
    table("Jahr:integer Anteil:decimal Wachstum:decimal", [[2024, "12.5", "-0.3"], [2025, "13.0", "0.5"]]),
)

# Doubtful values -----------------------------------------------------------------------------------------------------

case(
    "nulls.csv",
    lines("Station,Temperatur,Wind", "A,12.5,3", "B,-,n/a", "C,9.0,5", "D,n/a,#N/A", "E,10.1,7", "F,8.8,2"),
    table(
        "Station:text Temperatur:text Wind:text",
        [["A", "12.5", "3"], ["B", "-", "n/a"], ["C", "9.0", "5"], ["D", "n/a", "#N/A"], ["E", "10.1", "7"],
         ["F", "8.8", "2"]],
    ),
    named=["`Temperatur` is text: 4 of 6 values are numbers", "`Wind` is text: 4 of 6 values are numbers"],
    fix={"fields": ['Temperatur = { null = ["-", "n/a"] }', 'Wind = { null = ["n/a", "#N/A"] }']},
    fixed=table(
        "Station:text Temperatur:decimal Wind:integer",
        [["A", "12.5", 3], ["B", None, None], ["C", "9.0", 5], ["D", None, None], ["E", "10.1", 7], ["F", "8.8", 2]],
    ),
)
case(
    "nulls_formatted.csv",
    lines("Artikel;Preis", "A;1.234,50", "B;-", "C;17,00", "D;9,90"),
    table("Artikel:text Preis:text", [["A", "1.234,50"], ["B", "-"], ["C", "17,00"], ["D", "9,90"]]),
    named=["`Preis` is text"],
    fix={"fields": ['Preis = { null = "-" }']},
    fixed=table("Artikel:text Preis:decimal", [["A", "1234.50"], ["B", None], ["C", "17.00"], ["D", "9.90"]]),
)
case(
    "thousands.csv",
    lines("City,Population", 'Ulm,"128,928"', 'Bonn,"336,465"'),
    table("City:text Population:text", [["Ulm", "128,928"], ["Bonn", "336,465"]]),
    named=["`Population` is text, because its values are ambiguous"],
    fix={"fields": ['Population = { number_format = "1,234" }']},
    fixed=table("City:text Population:integer", [["Ulm", 128928], ["Bonn", 336465]]),
)
case(
    "thousands_de.csv",
    lines("Ort;Einwohner;Fläche", "Ulm;128.928;118,69", "Bonn;336.465;141,06"),
    table("Ort:text Einwohner:text Fläche:decimal", [["Ulm", "128.928", "118.69"], ["Bonn", "336.465", "141.06"]]),
    named=["`Einwohner` is text, because its values are ambiguous"],
    fix={"fields": ['Einwohner = { number_format = "1.234" }']},
    fixed=table("Ort:text Einwohner:integer Fläche:decimal", [["Ulm", 128928, "118.69"], ["Bonn", 336465, "141.06"]]),
)
case(
    "file_wide_format.csv",
    lines("Ort;Einwohner;Haushalte", "Ulm;128.928;67.110", "Bonn;336.465;180.020"),
    table("Ort:text Einwohner:decimal Haushalte:decimal", [["Ulm", "128.928", "67.110"], ["Bonn", "336.465", "180.020"]]),
    named=["has three digits behind every decimal point, which may separate thousands (first `128.928` in `Einwohner`, line 2)"],
    fix={"collection": ['number_format = "1.234"']},
    fixed=table("Ort:text Einwohner:integer Haushalte:integer", [["Ulm", 128928, 67110], ["Bonn", 336465, 180020]]),
)
case(
    "mixed.csv",
    lines("Artikel;Preis", "Tisch;199,00", "Lampe;auf Anfrage", "Stuhl;49,90", "Regal;89,00"),
    table(
        "Artikel:text Preis:text",
        [["Tisch", "199,00"], ["Lampe", "auf Anfrage"], ["Stuhl", "49,90"], ["Regal", "89,00"]],
    ),
    named=["`Preis` is text"],
    fix={"fields": ['Preis = { null = "auf Anfrage" }'], "is_free": True},
    fixed=table(
        "Artikel:text Preis:decimal",
        [["Tisch", "199.00"], ["Lampe", None], ["Stuhl", "49.90"], ["Regal", "89.00"]],
    ),
)
case(
    "codes.csv",
    lines(
        "PLZ;Telefon;IP;Version;Kundennr",
        "01067;+49 151 2345678;192.168.100.101;1.2.3;0017",
        "10115;+49 30 123456;192.168.100.102;1.10.0;0018",
    ),
    table(
        "PLZ:text Telefon:text IP:text Version:text Kundennr:text",
        [
            ["01067", "+49 151 2345678", "192.168.100.101", "1.2.3", "0017"],
            ["10115", "+49 30 123456", "192.168.100.102", "1.10.0", "0018"],
        ],
    ),
)
case(
    "two_date_orders.csv",
    lines("Id,Due", "1,13/02/2026", "2,02/13/2026", "3,05/01/2026"),
    table("Id:integer Due:text", [[1, "13/02/2026"], [2, "02/13/2026"], [3, "05/01/2026"]]),
    named=["`Due` is text: 3 of 3 values look like dates"],
    fix={"fields": ['Due = { as = "text" }']},
    fixed=table("Id:integer Due:text", [[1, "13/02/2026"], [2, "02/13/2026"], [3, "05/01/2026"]]),
)
case(
    "us_dates.csv",
    lines("Invoice,Issued,Paid", "1,1/5/2026,Y", "2,2/13/2026,N", "3,12/31/2025,Y"),
    table(
        "Invoice:integer Issued:date Paid:boolean",
        [[1, "2026-01-05", True], [2, "2026-02-13", False], [3, "2025-12-31", True]],
    ),
)
case(
    "month_names.csv",
    lines(
        "Nr;Datum;Fecha;Échéance",
        "1;13. Februar 2026;13 de febrero de 2026;13 févr. 2026",
        "2;1. März 2026;1 de marzo de 2026;01 mars 2026",
    ),
    table(
        "Nr:integer Datum:date Fecha:date Échéance:date",
        [[1, "2026-02-13", "2026-02-13", "2026-02-13"], [2, "2026-03-01", "2026-03-01", "2026-03-01"]],
    ),
)
case(
    "words.csv",
    lines("Nom;Actif;Activo;Aktiv", "A;oui;sí;wahr", "B;non;no;falsch", "C;oui;no;wahr"),
    table(
        "Nom:text Actif:boolean Activo:boolean Aktiv:boolean",
        [["A", True, True, True], ["B", False, False, False], ["C", True, False, True]],
    ),
)
case(
    "padded.csv",
    lines("Name ,Menge ,Preis", "Schraube , 12 , 0.05", "Mutter ,  7 , 0.03", "Bolzen , 120 , 1.10"),
    table(
        "Name |Menge |Preis:decimal".replace("Name |Menge |", "Name :text|Menge :integer|"),
        [["Schraube ", 12, "0.05"], ["Mutter ", 7, "0.03"], ["Bolzen ", 120, "1.10"]],
    ),
)

# Rows that are not data ----------------------------------------------------------------------------------------------

case(
    "total_row.csv",
    lines("Region,Orders,Revenue", "North,12,1200.50", "South,8,799.50", "West,5,500.00", "Total,25,2500.00"),
    table(
        "Region:text Orders:integer Revenue:decimal",
        [["North", 12, "1200.50"], ["South", 8, "799.50"], ["West", 5, "500.00"]],
    ),
    named=["has a row of totals (line 5: `Total`)"],
    fix={"collection": ["footer_rows = 0"]},
    fixed=table(
        "Region:text Orders:integer Revenue:decimal",
        [["North", 12, "1200.50"], ["South", 8, "799.50"], ["West", 5, "500.00"], ["Total", 25, "2500.00"]],
    ),
)
case(
    "total_that_is_data.csv",
    lines("Product,Brand,Price", "Cereal,Total,4.99", "Soap,Dove,1.99", "Total,Kellogg,5.49"),
    table(
        "Product:text Brand:text Price:decimal",
        [["Cereal", "Total", "4.99"], ["Soap", "Dove", "1.99"], ["Total", "Kellogg", "5.49"]],
    ),
    named=["may be a total and is read as data (line 4: `Total`)"],
    fix={"collection": ['stop_at = "Total"']},
    fixed=table("Product:text Brand:text Price:decimal", [["Cereal", "Total", "4.99"], ["Soap", "Dove", "1.99"]]),
)
case(
    "subtotals.csv",
    lines(
        "Filiale;Monat;Umsatz",
        "Berlin;Januar;1.000,00",
        "Berlin;Februar;500,50",
        "Summe Berlin;;1.500,50",
        "Ulm;Januar;200,00",
        "Ulm;Februar;100,00",
        "Summe Ulm;;300,00",
        "Gesamtsumme;;1.800,50",
    ),
    table(
        "Filiale:text Monat:text Umsatz:decimal",
        [["Berlin", "Januar", "1000.00"], ["Berlin", "Februar", "500.50"], ["Ulm", "Januar", "200.00"],
         ["Ulm", "Februar", "100.00"]],
    ),
    named=["has 3 rows of totals (lines 4, 7, 8"],
)
VENDORS = [["Acme", "Berlin", 10], ["Total Gas & Power", "", 120], ["Beta", "Rome", 30]]
case(
    "vendors.csv",
    lines("Vendor,City,Amount", "Acme,Berlin,10", "Total Gas & Power,,120", "Beta,Rome,30"),
    table("Vendor:text City:text Amount:integer", VENDORS),
    named=["has a row that may be a total and is read as data (line 3: `Total Gas & Power`)", "`…_not=Total Gas & Power`"],
)
# The total counts it, so there is no doubt.
case(
    "vendors_with_total.csv",
    lines("Vendor,City,Amount", "Acme,Berlin,10", "Total Gas & Power,,120", "Beta,Rome,30", "Total,,160"),
    table("Vendor:text City:text Amount:integer", VENDORS),
    named=["has a row of totals (line 5: `Total`), which is left out"],
)
SUPPLIERS = [
    ["Acme", "Berlin", "20.00"], ["Grand Total Ltd", "", "1250.00"], ["Blum", "Ulm", "7.45"],
    ["Summe GmbH", "Ulm", "80.50"], ["Cook & Co", "Rome", "60.00"], ["Total", "", "99.95"], ["Dim Sum", "", "45.00"],
    ["Yum Foods", "Bonn", "12.30"], ["Zoo", "Bonn", "19.99"], ["Average Joe's Gym", "", "50.00"],
]


def suppliers(book):
    sheet = book.add_worksheet("Suppliers")
    rows = [[name, city or None, float(amount)] for name, city, amount in SUPPLIERS]
    write_rows(sheet, [["Supplier", "City", "Amount"], *rows])


case(
    "suppliers.csv",
    lines("Supplier,City,Amount", *[f"{name},{city},{amount}" for name, city, amount in SUPPLIERS]),
    table("Supplier:text City:text Amount:decimal", SUPPLIERS),
    named=["has 4 rows that may be totals and are read as data (lines 3, 5, 7, 8, first `Grand Total Ltd`)"],
)
case(
    "suppliers.xlsx",
    xlsx(suppliers),
    table(
        "Supplier:text City:text Amount:number",
        [[name, city or None, float(amount)] for name, city, amount in SUPPLIERS],
    ),
    named=["has 4 rows that may be totals and are read as data (rows 3, 5, 7, 8, first `Grand Total Ltd`)"],
)
case(
    "total_rounded.csv",
    lines("Konto;Betrag", "Miete;1.234,57", "Strom;345,68", "Wasser;78,91", "Summe;1.659,15", end="\n"),
    table("Konto:text Betrag:decimal", [["Miete", "1234.57"], ["Strom", "345.68"], ["Wasser", "78.91"]]),
    named=["has a row of totals (line 5: `Summe`)"],
)
case(
    "subtotals_nested.csv",
    lines(
        "Category,Account,Name,Amount",
        "Travel,6300,Rail,90.00",
        "Travel,6300,Hotel,210.00",
        "Total for Travel,,,300.00",
        "Rent,6100,Landlord,800.00",
        "Total for Rent,,,800.00",
        "Power,6200,City Works,120.00",
        "Power,6200,Total Energies,30.00",
        "Total for Power,,,150.00",
        "Total for Premises,,,950.00",
        "Total,,,1250.00",
    ),
    table(
        "Category:text Account:integer Name:text Amount:decimal",
        [
            ["Rent", 6100, "Landlord", "800.00"], ["Power", 6200, "City Works", "120.00"],
            ["Power", 6200, "Total Energies", "30.00"], ["Travel", 6300, "Rail", "90.00"],
            ["Travel", 6300, "Hotel", "210.00"],
        ],
    ),
    named=["has 5 rows of totals (lines 4, 6, 9, 10, 11, first `Total for Travel`)"],
)
BLANKS = '"PublicHousingStarts" "Households" "CouncilTax"'
case(
    "r_blanks.csv",
    lines(BLANKS, '"Aberdeen_City" 136 96.8 712', '"Angus" 167 46.2 NA', '"East_Ayrshire" 30 50.1 779', end="\n"),
    {
        "columns": [['PublicHousingStarts "Households" "CouncilTax"', "text"]],
        "rows": [["Aberdeen_City 136 96.8 712"], ["Angus 167 46.2 NA"], ["East_Ayrshire 30 50.1 779"]],
    },
    named=["each line is one field; if blanks separate its fields, set `delimiter = \" \"`"],
)
case(
    "footer.csv",
    lines(
        "Id,Name,Amount", "1,Anna,5.00", "2,Bo,7.50", "3,Cy,1.25", "Rows: 3", "Exported 2026-02-13 by admin",
    ),
    table("Id:integer Name:text Amount:decimal", [[1, "Anna", "5.00"], [2, "Bo", "7.50"], [3, "Cy", "1.25"]]),
    named=["has 2 rows below the table (from line 5: `Rows: 3`)"],
)
case(
    "footer_padded.csv",
    lines(
        "Date;Customer;Amount", "2026-02-13;Anna;5.00", "2026-02-14;Bo;7.50", ";;", "* preliminary figures;;",
    ),
    table("Date:date Customer:text Amount:decimal", [["2026-02-13", "Anna", "5.00"], ["2026-02-14", "Bo", "7.50"]]),
    named=["has a note below the table"],
)
case(
    "titles_padded.csv",
    lines(
        "Sales report 2026,,,", ",,,", "Region,Q1,Q2,Q3", "North,10,20,30", "South,1,2,3",
    ),
    table("Region:text Q1:integer Q2:integer Q3:integer", [["North", 10, 20, 30], ["South", 1, 2, 3]]),
    named=["has a title above the table (line 1: `Sales report 2026`)"],
    fix={"collection": ["header_row = 3"], "is_free": True},
    fixed=table("Region:text Q1:integer Q2:integer Q3:integer", [["North", 10, 20, 30], ["South", 1, 2, 3]]),
)
case(
    "two_row_header.csv",
    lines(
        "Region,2025,,2026,", ",Q3,Q4,Q1,Q2", "North,10,20,30,40", "South,1,2,3,4",
    ),
    table(
        "Region:integer|2025 Q3:integer|2025 Q4:integer|2026 Q1:integer|2026 Q2:integer".replace(
            "Region:integer", "Region:text"
        ),
        [["North", 10, 20, 30, 40], ["South", 1, 2, 3, 4]],
    ),
    named=["names of columns in two rows"],
)
case(
    "units_row.csv",
    lines("Time,Speed,Mass", "(s),(m/s),(kg)", "0,1.5,10", "1,2.5,9", "2,3.0,8"),
    table(
        "Time (s):integer|Speed (m/s):decimal|Mass (kg):integer",
        [[0, "1.5", 10], [1, "2.5", 9], [2, "3.0", 8]],
    ),
    named=["names of columns in two rows"],
)
case(
    "repeated_header.csv",
    lines("Nr;Name;Ort", "1;Anna;Ulm", "2;Bo;Bonn", "Nr;Name;Ort", "3;Cy;Köln"),
    table("Nr:integer Name:text Ort:text", [[1, "Anna", "Ulm"], [2, "Bo", "Bonn"], [3, "Cy", "Köln"]]),
    named=["repeats its column names (line 4)"],
)
case(
    "blank_columns.csv",
    lines(",Name,,Amount,,", ",Anna,,5,,", ",Bo,,7,,"),
    table("Name:text Amount:integer", [["Anna", 5], ["Bo", 7]]),
)
case(
    "trailing_delimiter.csv",
    lines("Name;Amount", "Anna;5;", "Bo;7;"),
    table("Name:text Amount:integer", [["Anna", 5], ["Bo", 7]]),
)
case(
    "sep_line.csv",
    lines("sep=;", "Name;Betrag", "Anna;5,5", "Bo;7,25"),
    table("Name:text Betrag:decimal", [["Anna", "5.5"], ["Bo", "7.25"]]),
)
case(
    "excel_unicode_text.csv",
    lines("Name\tBetrag\tDatum", "Änna\t1.234,50\t13.02.2026", "Bø\t7,00\t14.02.2026").encode("utf-16"),
    table("Name:text Betrag:decimal Datum:date", [["Änna", "1234.50", "2026-02-13"], ["Bø", "7.00", "2026-02-14"]]),
)
case(
    "notes_in_cells.csv",
    lines('Id,Note,Amount', '1,"first\nsecond, with comma",5.00', '2,"say ""hi""",7.00'),
    table("Id:integer Note:text Amount:decimal", [[1, "first\nsecond, with comma", "5.00"], [2, 'say "hi"', "7.00"]]),
)
frame = pandas.DataFrame({"name": ["Anna", "Bo"], "ok": [True, False], "score": [1.5, float("nan")]})
case(
    "pandas_index.csv",
    frame.to_csv(),
    table(":integer|name:text|ok:boolean|score:decimal", [[0, "Anna", True, "1.5"], [1, "Bo", False, None]]),
    named=["has no name"],
)

# Workbooks -----------------------------------------------------------------------------------------------------------


def title_rows(book):
    sheet = book.add_worksheet("Umsatz")
    bold = book.add_format({"bold": True})
    sheet.merge_range("A1:D1", "Umsatzbericht 2026", bold)
    sheet.write("A2", "Stand: 28.02.2026")
    write_rows(sheet, [["Kunde", "Rechnung", "Betrag", "Bezahlt"], ["Anna", "R-1", 120.5, "ja"], ["Bo", "R-2", 80, "nein"]], 3)
    sheet.write("A7", "Summe")
    sheet.write_formula("C7", "=SUM(C5:C6)", None, 200.5)


case(
    "title_rows.xlsx",
    xlsx(title_rows),
    table("Kunde:text Rechnung:text Betrag:number Bezahlt:boolean", [["Anna", "R-1", 120.5, True], ["Bo", "R-2", 80, False]]),
    named=["has 2 rows above the table", "has a row of totals (row 7: `Summe`)"],
)


def merged_header(book):
    sheet = book.add_worksheet("Plan")
    sheet.merge_range("A1:A2", "Region")
    sheet.merge_range("B1:C1", "2025")
    sheet.merge_range("D1:E1", "2026")
    write_rows(sheet, [[None, "Plan", "Ist", "Plan", "Ist"], ["Nord", 10, 11, 12, 13], ["Süd", 20, 21, 22, 23]], 1)


case(
    "merged_header.xlsx",
    xlsx(merged_header),
    table(
        "Region:text|2025 Plan:integer|2025 Ist:integer|2026 Plan:integer|2026 Ist:integer",
        [["Nord", 10, 11, 12, 13], ["Süd", 20, 21, 22, 23]],
    ),
    named=["names of columns in two rows"],
)


def text_amounts(book):
    sheet = book.add_worksheet("Export")
    rows = [["Datum", "Betrag", "PLZ"], ["13.02.2026", "1.234,50 €", "01067"], ["14.02.2026", "7,00 €", "10115"]]
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            sheet.write_string(at, column, value)


case(
    "text_amounts.xlsx",
    xlsx(text_amounts),
    table("Datum:date Betrag:decimal PLZ:text", [["2026-02-13", "1234.50", "01067"], ["2026-02-14", "7.00", "10115"]]),
)


def pivot(book):
    sheet = book.add_worksheet("Pivot")
    rows = [
        ["Summe von Umsatz", "Spaltenbeschriftungen"],
        ["Zeilenbeschriftungen", "Jan", "Feb", "Gesamtergebnis"],
        ["Nord", 10, 20, 30],
        ["Süd", 5, 6, 11],
        ["Gesamtergebnis", 15, 26, 41],
    ]
    write_rows(sheet, rows, 2)


case(
    "pivot.xlsx",
    xlsx(pivot),
    table(
        "Zeilenbeschriftungen:text|Jan:integer|Feb:integer|Gesamtergebnis:integer",
        [["Nord", 10, 20, 30], ["Süd", 5, 6, 11]],
    ),
    named=["above the table", "has a row of totals (row 7: `Gesamtergebnis`)"],
)


def hidden_rows(book):
    sheet = book.active
    sheet.title = "Stock"
    for row in [["Item", "Stock"], ["Mug", 5], ["Plate", 0], ["Cup", 7]]:
        sheet.append(row)
    sheet.row_dimensions[3].hidden = True


case(
    "hidden_rows.xlsx",
    openpyxl_book(hidden_rows),
    table("Item:text Stock:integer", [["Mug", 5], ["Plate", 0], ["Cup", 7]]),
    named=["1 hidden row"],
)


def stacked(book):
    sheet = book.active
    sheet.title = "Report"
    rows = [["Region", "Orders"], ["North", 12], ["South", 8], [], ["Returns"], ["Region", "Items"], ["North", 1], ["South", 2]]
    for at, row in enumerate(rows, 1):
        for column, value in enumerate(row, 1):
            sheet[f"{get_column_letter(column)}{at}"] = value


case(
    "stacked_tables.xlsx",
    openpyxl_book(stacked),
    table("Region:text Orders:integer", [["North", 12], ["South", 8]]),
    named=["has a second table from row 5"],
    fix={"collection": ["header_row = 6"]},
    fixed=table("Region:text Items:integer", [["North", 1], ["South", 2]]),
)


def several_sheets(book):
    orders = book.active
    orders.title = "Bestellungen"
    for row in [["Nr", "Kunde", "Summe"], [1, "K1", 10.5], [2, "K2", 20.25]]:
        orders.append(row)
    customers = book.create_sheet("Kunden")
    for row in [["Kunde", "Name"], ["K1", "Anna"], ["K2", "Bo"]]:
        customers.append(row)
    book.create_sheet("Leer")


case(
    "several_sheets.xlsx",
    openpyxl_book(several_sheets),
    [
        table("Nr:integer Kunde:text Summe:number", [[1, "K1", 10.5], [2, "K2", 20.25]]),
        table("Kunde:text Name:text", [["K1", "Anna"], ["K2", "Bo"]]),
    ],
)


def excel_table(book):
    sheet = book.add_worksheet("Data")
    sheet.write("A1", "Inventory 2026")
    columns = [{"header": "Item", "total_string": "Total"}, {"header": "Count", "total_function": "sum", "total_value": 12}]
    sheet.add_table("B3:C6", {"data": [["Mug", 5], ["Cup", 7]], "total_row": True, "columns": columns, "name": "Items"})


case("excel_table.xlsx", xlsx(excel_table), table("Item:text Count:integer", [["Mug", 5], ["Cup", 7]]))


def sheet_subtotals(book):
    sheet = book.add_worksheet("Hours")
    rows = [
        ["Team", "Person", "Hours"],
        ["A", "Anna", 3],
        ["A", "Bo", 5],
        ["A Total", None, 8],
        ["B", "Cy", 2],
        ["B", "Di", 4],
        ["B Total", None, 6],
        ["Grand Total", None, 14],
    ]
    write_rows(sheet, rows)


case(
    "subtotals.xlsx",
    xlsx(sheet_subtotals),
    table("Team:text Person:text Hours:integer", [["A", "Anna", 3], ["A", "Bo", 5], ["B", "Cy", 2], ["B", "Di", 4]]),
    named=["has 3 rows of totals (rows 4, 7, 8"],
)

columns = pandas.MultiIndex.from_product([["2025", "2026"], ["Plan", "Ist"]])
frame = pandas.DataFrame([[1, 2, 3, 4], [5, 6, 7, 8]], columns=columns, index=pandas.Index(["Nord", "Süd"]))
out = io.BytesIO()
with pandas.ExcelWriter(out, engine="openpyxl") as writer:
    frame.to_excel(writer, sheet_name="Frame")
case(
    "pandas_multiindex.xlsx",
    out.getvalue(),
    table(
        ":text|2025 Plan:integer|2025 Ist:integer|2026 Plan:integer|2026 Ist:integer",
        [["Nord", 1, 2, 3, 4], ["Süd", 5, 6, 7, 8]],
    ),
    named=["names of columns in two rows", "has no name"],
)

# JSON ----------------------------------------------------------------------------------------------------------------

case(
    "export.json",
    json.dumps(
        [
            {"nr": "R-1", "betrag": "1.234,50 €", "datum": "13.02.2026", "bezahlt": "ja"},
            {"nr": "R-2", "betrag": "-7,00 €", "datum": "01.03.2026", "bezahlt": "nein"},
        ],
        ensure_ascii=False,
        indent=2,
    ),
    table("nr:text betrag:decimal datum:date bezahlt:boolean", [["R-1", "1234.50", "2026-02-13", True], ["R-2", "-7.00", "2026-03-01", False]]),
)
case(
    "events.jsonl",
    lines(
        '{"at":"2/13/2026 1:05 PM","size":"1,024.5","user":"anna"}',
        '{"at":"2/3/2026 11:15 AM","size":"12.0","user":null}',
        end="\n",
    ),
    table("at:local_timestamp size:decimal user:text", [["2026-02-13T13:05:00", "1024.5", "anna"], ["2026-02-03T11:15:00", "12.0", None]]),
)
case(
    "ambiguous.json",
    json.dumps([{"id": 1, "due": "01/02/2026", "qty": "1,234"}, {"id": 2, "due": "03/04/2026", "qty": "2,500"}]),
    table("id:integer due:text qty:text", [[1, "01/02/2026", "1,234"], [2, "03/04/2026", "2,500"]]),
    named=["`due` is text, because its values are ambiguous", "`qty` is text, because its values are ambiguous"],
    fix={"fields": ['due = { date_format = "mm/dd/yyyy" }', 'qty = { number_format = "1,234" }']},
    fixed=table("id:integer due:date qty:integer", [[1, "2026-01-02", 1234], [2, "2026-03-04", 2500]]),
)

# What data people export ---------------------------------------------------------------------------------------------

case(
    "scientific.csv",
    lines("id,p_value,cusum,code", "a,0.5,.1908335,12E4", "b,1.42e-07,.0000102,7E1", "c,2E-3,2.44e-06,3E9", end="\n"),
    table(
        "id:text p_value:number cusum:number code:text",
        [["a", 0.5, 0.1908335, "12E4"], ["b", 1.42e-07, 0.0000102, "7E1"], ["c", 0.002, 2.44e-06, "3E9"]],
    ),
    named=["`code` is text: 3 of 3 values look like numbers", 'set `code = { as = "number" }`'],
)
case(
    "scientific_de.csv",
    lines("Probe;Wert", "a;1,23E-07", "b;0,5", "c;4E-02", end="\n"),
    table("Probe:text Wert:number", [["a", 1.23e-07], ["b", 0.5], ["c", 0.04]]),
)
case(
    "pivot_blank_corner.csv",
    lines(',1940,1945,1950', "Food,22.2,44.5,59.6", "Household,10.5,15.5,29.0", "Health,3.53,5.76,9.71", end="\n"),
    table(
        ":text 1940:decimal 1945:decimal 1950:decimal",
        [["Food", "22.2", "44.5", "59.6"], ["Household", "10.5", "15.5", "29.0"], ["Health", "3.53", "5.76", "9.71"]],
    ),
)


def sheet_blank_corner(book):
    sheet = book.add_worksheet("Pivot")
    write_rows(sheet, [[None, 1955, 1960], ["Chad", 38.5, 40.5], ["Peru", 46.5, 49.5]])


case(
    "pivot_blank_corner.xlsx",
    xlsx(sheet_blank_corner),
    table(":text 1955:number 1960:number", [["Chad", 38.5, 40.5], ["Peru", 46.5, 49.5]]),
)
case(
    "no_header.csv",
    lines(".064,1.15,.059", "-.326,-5.84,-.853", ".064,1.15,.059", ".901,16.15,.491", end="\n"),
    table(".064:decimal 1.15:decimal .059:decimal", [["-0.326", "-5.84", "-0.853"], ["0.064", "1.15", "0.059"], ["0.901", "16.15", "0.491"]]),
    named=["takes its first line for column names, though it looks like data (line 1: `.064`)"],
    fix={"collection": ["header_rows = 0"]},
    fixed=table(
        "column_1:decimal column_2:decimal column_3:decimal",
        [["0.064", "1.15", "0.059"], ["-0.326", "-5.84", "-0.853"], ["0.064", "1.15", "0.059"], ["0.901", "16.15", "0.491"]],
    ),
)
case(
    "crosstab.csv",
    lines("State,Large,Small,All", "Arizona,8,60,68", "California,87,403,490", "Colorado,13,108,121", "All,108,571,679", end="\n"),
    table("State:text Large:integer Small:integer All:integer", [["Arizona", 8, 60, 68], ["California", 87, 403, 490], ["Colorado", 13, 108, 121]]),
    named=["has a row of totals (line 5: `All`), which is left out"],
)
case(
    "total_in_russian.csv",
    lines("Товар,Сумма", "Чай,10", "Кофе,20", "Итого,30", end="\n"),
    table("Товар:text Сумма:integer", [["Чай", 10], ["Кофе", 20]]),
    named=["has a row of totals (line 4: `Итого`)"],
)
case(
    "blank_rows.csv",
    lines("name,size,mass", "a, 39.1, 10", " , , ", "b, , 12", end="\n"),
    table("name:text size:decimal mass:integer", [["a", "39.1", 10], ["b", None, 12]]),
)
case(
    "two_digit_years.csv",
    lines("name,born", "Ann,25/11/63", "Bob,03/02/05", end="\n"),
    table("name:text born:date", [["Ann", "2063-11-25"], ["Bob", "2005-02-03"]]),
    named=["`born` in line 2 is `25/11/63`, read as 2063-11-25"],
    fix={"fields": ['born = { date_format = "dd/mm/yy (from 1940)" }']},
    fixed=table("name:text born:date", [["Ann", "1963-11-25"], ["Bob", "2005-02-03"]]),
)
case(
    "times.csv",
    lines("shift,start,ip", "a,9:05,190.37.72.226", "b,10:30,10.0.0.1", "c,8:45,192.168.100.101", end="\n"),
    table("shift:text start:text ip:text", [["a", "9:05", "190.37.72.226"], ["b", "10:30", "10.0.0.1"], ["c", "8:45", "192.168.100.101"]]),
    named=["`start` is text: 1 of 3 values are times and 2 look like times, line 2 is `9:05`"],
)

frame = pandas.DataFrame(
    {"y": [2012, 2012, 2013], "weather": ["rain", "sun", "rain"], "rain": [1.5, 0.25, 2.5], "temp": [7.5, 20.5, 8.5]}
)
out = io.BytesIO()
with pandas.ExcelWriter(out, engine="openpyxl") as writer:
    frame.groupby(["weather"])[["rain", "temp"]].agg(["min", "max"]).to_excel(writer, sheet_name="Agg")
case(
    "pandas_agg.xlsx",
    out.getvalue(),
    table(
        "weather:text|rain min:number|rain max:number|temp min:number|temp max:number",
        [["rain", 1.5, 2.5, 7.5, 8.5], ["sun", 0.25, 0.25, 20.5, 20.5]],
    ),
    named=["names of columns in three rows (rows 1 to 3)"],
)


def sheet_groups(book):
    sheet = book.add_worksheet("Chart")
    sheet.merge_range("B1:D1", "Group1")
    sheet.merge_range("E1:F1", "Group2")
    for row, values in enumerate([[None, "P1", "P2", "P3", "Q1", "Q2"], ["x", 1, 2, 3, 4, 5], ["y", 6, 7, 8, 9, 10]], 1):
        sheet.write_row(row, 0, values)


case(
    "merged_groups.xlsx",
    xlsx(sheet_groups),
    table(
        ":text|Group1 P1:integer|Group1 P2:integer|Group1 P3:integer|Group2 Q1:integer|Group2 Q2:integer",
        [["x", 1, 2, 3, 4, 5], ["y", 6, 7, 8, 9, 10]],
    ),
    named=["names of columns in two rows"],
)

case(
    "r_write_table.csv",
    lines('"mpg","cyl"', '"Mazda RX4",21,6', '"Datsun 710",22.8,4', '"Hornet 4 Drive",21.4,6'),
    table(":text|mpg:decimal|cyl:integer", [["Mazda RX4", "21", 6], ["Datsun 710", "22.8", 4], ["Hornet 4 Drive", "21.4", 6]]),
    named=["there is one column more than names, as in tables of R"],
)

case(
    "report_by_group.csv",
    lines("Region,Product,Units", "North,A,1", ",B,2", ",C,3", "South,A,4", ",B,5"),
    table(
        "Region:text Product:text Units:integer",
        [["North", "A", 1], ["", "B", 2], ["", "C", 3], ["South", "A", 4], ["", "B", 5]],
    ),
    named=["has a value of `Region` only in some rows (the second in line 5)"],
    fix={"fields": ["Region = { fill_down = true }"]},
    fixed=table(
        "Region:text Product:text Units:integer",
        [["North", "A", 1], ["North", "B", 2], ["North", "C", 3], ["South", "A", 4], ["South", "B", 5]],
    ),
)

# Totals without a label, ends of tables, doubtful notations ------------------------------------------------------------

CHANNELS = [["Organic", 100, "10.50"], ["Direct", 50, "2.25"], ["Referral", 7, "1.00"], ["Social", 3, "0.25"]]
case(
    "total_without_label.csv",
    lines("Channel,Users,Revenue", "Organic,100,10.50", "Direct,50,2.25", "Referral,7,1.00", "Social,3,0.25", ",160,14.00"),
    table("Channel:text Users:integer Revenue:decimal", CHANNELS),
    named=["has a row of totals (line 6: `160`)"],
)


def sheet_total_without_label(book):
    sheet = book.add_worksheet("Channels")
    for at, row in enumerate([["Channel", "Users", "Revenue"], ["Organic", 100, 10.5], ["Direct", 50, 2.25], ["Referral", 7, 1], ["Social", 3, 0.25]]):
        sheet.write_row(at, 0, row)
    sheet.write_row(5, 1, [160, 14])


case(
    "total_without_label.xlsx",
    xlsx(sheet_total_without_label),
    table("Channel:text Users:integer Revenue:number", [["Organic", 100, 10.5], ["Direct", 50, 2.25], ["Referral", 7, 1], ["Social", 3, 0.25]]),
    named=["has a row of totals (row 6: `160`)"],
)
case(
    "analytics.csv",
    lines(
        "Channel,Users,Bounce Rate,Revenue",
        "Organic,12345,45.67%,$1234.56",
        "Direct,4567,55.10%,$200.00",
        "Referral,890,30.00%,$0.00",
        ",17802,47.50%,$1434.56",
    ),
    table(
        "Channel:text|Users:integer|Bounce Rate:decimal|Revenue:decimal",
        [["Organic", 12345, "45.67", "1234.56"], ["Direct", 4567, "55.10", "200.00"], ["Referral", 890, "30.00", "0.00"]],
    ),
    named=["has a row of totals (line 5: `17802`)"],
)
case(
    "quickbooks.csv",
    lines(
        "Acme Inc.,,,,",
        "Transaction Detail by Account,,,,",
        "January - March 2026,,,,",
        ",,,,",
        "Account,Date,Type,Name,Amount",
        'Sales,01/15/2026,Invoice,Ann,"1,200.00"',
        "Sales,02/20/2026,Invoice,Bob,300.00",
        "Sales,03/05/2026,Credit Memo,Bob,(50.00)",
        'Total for Sales,,,,"$1,450.00"',
        "Rent,01/31/2026,Bill,Landlord,(800.00)",
        "Rent,02/28/2026,Bill,Landlord,(800.00)",
        'Total for Rent,,,,"$(1,600.00)"',
        'TOTAL,,,,"$(150.00)"',
        ",,,,",
        ",,,,",
        '"Friday, Apr 03, 2026 10:11:12 AM GMT-7 - Accrual Basis",,,,',
    ),
    table(
        "Account:text Date:date Type:text Name:text Amount:decimal",
        [
            ["Sales", "2026-01-15", "Invoice", "Ann", "1200.00"],
            ["Sales", "2026-02-20", "Invoice", "Bob", "300.00"],
            ["Sales", "2026-03-05", "Credit Memo", "Bob", "-50.00"],
            ["Rent", "2026-01-31", "Bill", "Landlord", "-800.00"],
            ["Rent", "2026-02-28", "Bill", "Landlord", "-800.00"],
        ],
    ),
    named=["has 3 rows of totals (lines 9, 12, 13, first `Total for Sales`)"],
)
ACCOUNTS = [["Sales", "2026-01-05", 10], ["Sales", "2026-01-06", 20], ["Rent", "2026-02-05", 5], ["Rent", "2026-02-06", 6]]
case(
    "total_after_subtotals.csv",
    lines(
        "Account,Date,Amount",
        "Sales,2026-01-05,10",
        "Sales,2026-01-06,20",
        "Total Sales,,30",
        "Rent,2026-02-05,5",
        "Rent,2026-02-06,6",
        "Total Rent,,11",
        "Total,2026-03-31,19",
    ),
    table("Account:text Date:date Amount:integer", [*ACCOUNTS, ["Total", "2026-03-31", 19]]),
    named=["has 2 rows of totals (lines 4, 7", "may be a total and is read as data (line 8: `Total`)"],
    fix={"collection": ['stop_at = "Total"']},
    fixed=table("Account:text Date:date Amount:integer", ACCOUNTS),
)
case(
    "mixed_case.csv",
    lines("Name,Vollzeit", "a,ja", "b,nein", "c,Ja", "d,NEIN"),
    table("Name:text Vollzeit:boolean", [["a", True], ["b", False], ["c", True], ["d", False]]),
)
case(
    "directions.csv",
    lines("id,region", "1,N", "2,S", "3,N"),
    table("id:integer region:text", [[1, "N"], [2, "S"], [3, "N"]]),
    named=["`region` is text, because `S` and `N` may mean yes and no, or be codes"],
    fix={"fields": ['region = { boolean_format = "S/N" }']},
    fixed=table("id:integer region:boolean", [[1, False], [2, True], [3, False]]),
)
case(
    "rupees.csv",
    lines("Invoice,Amount", 'A-1,"₹1,23,456.50"', "A-2,₹500.00", 'A-3,"₹12,34,567.00"'),
    table("Invoice:text Amount:decimal", [["A-1", "123456.50"], ["A-2", "500.00"], ["A-3", "1234567.00"]]),
)
case(
    "some_currencies.csv",
    lines("Beleg,Betrag", "A-1,1'234.50", "A-2,CHF 12.00", "A-3,7.25"),
    table("Beleg:text Betrag:text", [["A-1", "1'234.50"], ["A-2", "CHF 12.00"], ["A-3", "7.25"]]),
    named=["`Betrag` is text, because some values have a currency and others have none"],
    fix={"fields": ["Betrag = { number_format = \"CHF 1'234.50\" }"]},
    fixed=table("Beleg:text Betrag:decimal", [["A-1", "1234.50"], ["A-2", "12.00"], ["A-3", "7.25"]]),
)
case(
    "months_and_zones.csv",
    lines("id,month,at", '1,Jan 2026,"Jan 1, 2026 12:03:04 AM PST"', '2,Mrz 2026,"Feb 13, 2026 1:00:00 PM PST"'),
    table("id:integer month:text at:text", [[1, "Jan 2026", "Jan 1, 2026 12:03:04 AM PST"], [2, "Mrz 2026", "Feb 13, 2026 1:00:00 PM PST"]]),
    named=["`month` is text: 2 of 2 values look like dates", "`at` is text: 2 of 2 values look like dates"],
)

# Reports whose table ends, begins or is divided in ways of their own ---------------------------------------------------

case(
    "comdirect.csv",
    lines(
        ";",
        '"Umsätze Girokonto";"Zeitraum: 30 Tage";',
        '"Neuer Kontostand";"1.234,56 EUR";',
        "",
        '"Buchungstag";"Wertstellung (Valuta)";"Vorgang";"Buchungstext";"Umsatz in EUR";',
        '"30.01.2026";"30.01.2026";"Lastschrift";"STADTWERKE Strom";"-89,00";',
        '"29.01.2026";"30.01.2026";"Überweisung";"ACME GMBH Gehalt";"2.500,00";',
        '"05.01.2026";"05.01.2026";"Lastschrift";"Miete";"-1.153,00";',
        '"Alter Kontostand";"0,01 EUR";',
    ).encode("cp1252"),
    table(
        "Buchungstag:date|Wertstellung (Valuta):date|Vorgang:text|Buchungstext:text|Umsatz in EUR:decimal",
        [
            ["2026-01-30", "2026-01-30", "Lastschrift", "STADTWERKE Strom", "-89.00"],
            ["2026-01-29", "2026-01-30", "Überweisung", "ACME GMBH Gehalt", "2500.00"],
            ["2026-01-05", "2026-01-05", "Lastschrift", "Miete", "-1153.00"],
        ],
    ),
    named=["has 2 rows above the table (lines 2 to 3", "has 1 line below the table (from line 9: `Alter Kontostand`)"],
)
case(
    "ebay_orders.csv",
    lines(
        "",
        '"Sales Record Number","Buyer Username","Item Title","Quantity","Sold For","Sale Date","Paid On Date"',
        "",
        '"1001","buyer_a","Vintage lens 50mm","1","$120.00","Jan-05-26","Jan-05-26"',
        '"1002","buyer_b","Camera strap","2","$15.00","Jan-12-26","Jan-13-26"',
        '"1003","buyer_c","Tripod","1","$45.00","Feb-02-26",""',
        "",
        '"3","record(s) downloaded","from Jan-01-26 00:00:00 to Feb-05-26 23:59:59"',
        '"Seller ID: lens_shop"',
    ),
    table(
        "Sales Record Number:integer|Buyer Username:text|Item Title:text|Quantity:integer|Sold For:decimal"
        "|Sale Date:date|Paid On Date:date",
        [
            [1001, "buyer_a", "Vintage lens 50mm", 1, "120.00", "2026-01-05", "2026-01-05"],
            [1002, "buyer_b", "Camera strap", 2, "15.00", "2026-01-12", "2026-01-13"],
            [1003, "buyer_c", "Tripod", 1, "45.00", "2026-02-02", None],
        ],
    ),
    named=["has 2 lines below the table (from line 8: `3`), which are left out"],
)
case(
    "salesforce_report.csv",
    lines(
        '"Opportunity Name","Stage","Amount","Close Date","Probability (%)"',
        '"Acme - 200 Widgets","Closed Won","12000.00","1/15/2026","100"',
        '"Globex - Renewal","Negotiation/Review","4500.50","2/28/2026","90"',
        '"Initech - TPS","Closed Lost","","12/31/2025","0"',
        '"Grand Totals (3 records)"',
        '"\n"',
        '"Open Opportunities by Owner"',
        '"Copyright (c) 2000-2026 salesforce.com, inc. All rights reserved."',
        '"Confidential Information - Do Not Distribute"',
        '"Generated By:  Dana Fox  1/31/2026 9:00 AM"',
        '"Acme Holding"',
        end="\n",
    ),
    table(
        "Opportunity Name:text|Stage:text|Amount:decimal|Close Date:date|Probability (%):integer",
        [
            ["Acme - 200 Widgets", "Closed Won", "12000.00", "2026-01-15", 100],
            ["Globex - Renewal", "Negotiation/Review", "4500.50", "2026-02-28", 90],
            ["Initech - TPS", "Closed Lost", None, "2025-12-31", 0],
        ],
    ),
    named=["has 6 lines below the table (from line 5: `Grand Totals (3 records)`), which are left out"],
)
case(
    "destatis.csv",
    lines(
        "GENESIS-Tabelle: 12411-0010",
        "Bevölkerung: Bundesländer, Stichtag;;;",
        "Fortschreibung des Bevölkerungsstandes;;;",
        "Bevölkerung (Anzahl);;;",
        "Bundesländer;31.12.2021;31.12.2022;31.12.2023",
        "Baden-Württemberg;11124642;11280257;11230740",
        "Bayern;13176989;13369393;13176426",
        "Berlin;3677472;3755251;3662381",
        "Saarland;982348;-;1014047",
        "Insgesamt;28961451;28404901;29083594",
        "__________",
        "Ab 2022: Ergebnisse auf Grundlage des Zensus 2022.",
        "(C)opyright Statistisches Bundesamt (Destatis), 2026",
        "Stand: 30.01.2026 / 09:12:33",
    ).encode("cp1252"),
    table(
        "Bundesländer:text|31.12.2021:integer|31.12.2022:text|31.12.2023:integer",
        [
            ["Baden-Württemberg", 11124642, "11280257", 11230740],
            ["Bayern", 13176989, "13369393", 13176426],
            ["Berlin", 3677472, "3755251", 3662381],
            ["Saarland", 982348, "-", 1014047],
        ],
    ),
    named=["has 4 rows above the table (lines 1 to 4", "has a row of totals (line 10: `Insgesamt`)", "below the table (from line 11"],
    fix={"fields": ['"31.12.2022" = { null = "-" }']},
    fixed=table(
        "Bundesländer:text|31.12.2021:integer|31.12.2022:integer|31.12.2023:integer",
        [
            ["Baden-Württemberg", 11124642, 11280257, 11230740],
            ["Bayern", 13176989, 13369393, 13176426],
            ["Berlin", 3677472, 3755251, 3662381],
            ["Saarland", 982348, None, 1014047],
        ],
    ),
)
case(
    "plate_reader.csv",
    lines(
        "Plate Reader Export v3.2",
        "Protocol,ELISA IgG",
        "Date,2026-01-05 10:12",
        "Wavelength (nm),450",
        "",
        ",1,2,3,4",
        "A,0.051,0.049,1.203,1.198",
        "B,0.050,0.048,0.840,0.851",
        "C,2.901,3.912,0.120,0.119",
    ),
    table(
        ":text|1:decimal|2:decimal|3:decimal|4:decimal",
        [
            ["A", "0.051", "0.049", "1.203", "1.198"],
            ["B", "0.050", "0.048", "0.840", "0.851"],
            ["C", "2.901", "3.912", "0.120", "0.119"],
        ],
    ),
    named=["has 4 rows above the table (lines 1 to 4, first `Plate Reader Export v3.2`)"],
)
case(
    "qualtrics.csv",
    lines(
        "StartDate,EndDate,Status,Progress,Finished,ResponseId,Q1,Q2_1,Q3",
        'Start Date,End Date,Response Type,Progress,Finished,Response ID,"How satisfied are you?\nOverall.",Rate us - Speed,Comments?',
        ",".join(f'"{{""ImportId"":""{name}""}}"' for name in ["startDate", "endDate", "status", "progress", "finished", "_recordId", "QID1", "QID2_1", "QID3_TEXT"]),
        "2026-01-05 09:00:01,2026-01-05 09:03:20,IP Address,100,True,R_1abc,Very satisfied,5,Great",
        "2026-01-05 10:12:00,2026-01-05 10:20:00,IP Address,100,True,R_2def,Neutral,3,",
        "2026-01-06 08:00:00,2026-01-06 08:00:30,IP Address,40,False,R_3ghi,,,",
        end="\n",
    ),
    table(
        "StartDate:local_timestamp|EndDate:local_timestamp|Status Response Type:text|Progress:integer|Finished:boolean"
        "|ResponseId:text|Q1 How satisfied are you?\nOverall.:text|Q2_1 Rate us - Speed:integer|Q3 Comments?:text",
        [
            ["2026-01-05 09:00:01", "2026-01-05 09:03:20", "IP Address", 100, True, "R_1abc", "Very satisfied", 5, "Great"],
            ["2026-01-05 10:12:00", "2026-01-05 10:20:00", "IP Address", 100, True, "R_2def", "Neutral", 3, ""],
            ["2026-01-06 08:00:00", "2026-01-06 08:00:30", "IP Address", 40, False, "R_3ghi", "", None, ""],
        ],
    ),
    named=["has names of columns in three rows (lines 1 to 4), which are joined"],
)
case(
    "sage.csv",
    lines(
        "Date: 31/01/2026,,,Example Ltd,,,Page: 1",
        "Time: 10:11:12,,,Nominal Activity - Excluding No Transactions,,,",
        ",,,,,,",
        "Date From:,01/01/2026,,,,N/C From:,",
        "Date To:,31/01/2026,,,,N/C To:,99999999",
        ",,,,,,",
        'N/C:,4000,Name:,Sales North,Account Balance:,"1,785.00",CR',
        ",,,,,,",
        "No,Type,Date,Account,Ref,Debit,Credit",
        '1,SI,05/01/2026,A1D001,1001,,"1,190.00"',
        "2,SI,22/01/2026,B2,1002,,595.00",
        ',,,,Totals:,0.00,"1,785.00"',
    ),
    table(
        "No:integer Type:text Date:date Account:text Ref:integer Debit:text Credit:decimal",
        [
            [1, "SI", "2026-01-05", "A1D001", 1001, "", "1190.00"],
            [2, "SI", "2026-01-22", "B2", 1002, "", "595.00"],
        ],
    ),
    named=["has 5 rows above the table (lines 1 to 7", "has a row of totals (line 12: `Totals:`)"],
)
case(
    "spend_over_25k.csv",
    lines(
        "Entity,Date,Supplier,Transaction Number,Amount,,",
        'DfX HQ,31/01/2026,Acme Ltd,5100001,"26,000.00",,',
        'DfX HQ,30/01/2026,Globex plc,5100002,"125,500.50",,',
        'DfX HQ,02/01/2026,Acme Ltd,5100003,"-1,200.00",,',
        ",,,,,,",
        ',,,,"150,300.50",,',
    ),
    table(
        "Entity:text|Date:date|Supplier:text|Transaction Number:integer|Amount:decimal",
        [
            ["DfX HQ", "2026-01-31", "Acme Ltd", 5100001, "26000.00"],
            ["DfX HQ", "2026-01-30", "Globex plc", 5100002, "125500.50"],
            ["DfX HQ", "2026-01-02", "Acme Ltd", 5100003, "-1200.00"],
        ],
    ),
    named=["has a row of totals (line 6: `150,300.50`)"],
)
case(
    "broker_statement.csv",
    lines(
        "Trades,Kind,Symbol,Date,Quantity,Proceeds",
        "Trades,Order,AAPL,2026-01-05,10,-1855",
        "Trades,Order,MSFT,2026-01-06,-5,2000",
        "Trades,SubTotal,MSFT,,-5,2000",
        "Trades,Total,,,,145",
    ),
    table(
        "Trades:text Kind:text Symbol:text Date:date Quantity:integer Proceeds:integer",
        [
            ["Trades", "Order", "AAPL", "2026-01-05", 10, -1855],
            ["Trades", "Order", "MSFT", "2026-01-06", -5, 2000],
            ["Trades", "SubTotal", "MSFT", None, -5, 2000],
            ["Trades", "Total", "", None, None, 145],
        ],
    ),
    named=["has 2 rows with a word for a total in `Kind` (first `SubTotal` in line 4), which may be totals of other rows"],
)
# Names with blanks around them, as the file has them.
STATION = [["STATIONS_ID", "integer"], ["MESS_DATUM", "integer"], ["  FX", "decimal"], [" RSK", "decimal"], [" TMK", "decimal"], ["eor", "text"]]
case(
    "weather_station.csv",
    lines(
        "STATIONS_ID;MESS_DATUM;  FX; RSK; TMK;eor",
        "        433;20260101;  12.3;   0.0;   3.2;eor",
        "        433;20260102;  15.0;   3.4;   4.8;eor",
        "        433;20260103;-999;   1.1;-999;eor",
        "        433;20260104;   9.8;   0.0;  -1.5;eor",
    ),
    {"columns": STATION, "rows": [
        [433, 20260101, "12.3", "0.0", "3.2", "eor"],
        [433, 20260102, "15.0", "3.4", "4.8", "eor"],
        [433, 20260103, "-999", "1.1", "-999", "eor"],
        [433, 20260104, "9.8", "0.0", "-1.5", "eor"],
    ]},
    named=["has `-999` in `FX` (first in line 4), far below all other values", "has `-999` in `TMK` (first in line 4)"],
    fix={"fields": ['"  FX" = { null = "-999" }', '" TMK" = { null = "-999" }']},
    fixed={"columns": STATION, "rows": [
        [433, 20260101, "12.3", "0.0", "3.2", "eor"],
        [433, 20260102, "15.0", "3.4", "4.8", "eor"],
        [433, 20260103, None, "1.1", None, "eor"],
        [433, 20260104, "9.8", "0.0", "-1.5", "eor"],
    ]},
)
case(
    "postgres_copy.csv",
    lines(
        "id,is_active,created_at,balance",
        "1,t,2026-01-05 09:00:00.123456+00,12.50",
        "2,f,2026-01-06 10:00:00+00,\\N",
        "3,t,2026-02-06 10:00:00.5+01,100.00",
        end="\n",
    ),
    table(
        "id:integer is_active:text created_at:timestamp balance:decimal",
        [
            [1, "t", "2026-01-05T09:00:00.123456Z", "12.50"],
            [2, "f", "2026-01-06T10:00:00Z", None],
            [3, "t", "2026-02-06T10:00:00.5+01:00", "100.00"],
        ],
    ),
    named=["`is_active` is text, because `t` and `f` may mean yes and no", "has `\\N` in `balance`"],
    fix={"fields": ['is_active = { boolean_format = "t/f" }']},
    fixed=table(
        "id:integer is_active:boolean created_at:timestamp balance:decimal",
        [
            [1, True, "2026-01-05T09:00:00.123456Z", "12.50"],
            [2, False, "2026-01-06T10:00:00Z", None],
            [3, True, "2026-02-06T10:00:00.5+01:00", "100.00"],
        ],
    ),
)
case(
    "google_forms_zone.csv",
    lines(
        '"Timestamp","The course was useful","Age group"',
        '"2026/01/05 9:12:33 AM GMT+1","5 - Strongly agree","18-24"',
        '"2026/07/05 9:15:02 PM GMT+2","3 - Neutral","25-34"',
        end="\n",
    ),
    table(
        "Timestamp:timestamp|The course was useful:text|Age group:text",
        [
            ["2026-01-05T09:12:33+01:00", "5 - Strongly agree", "18-24"],
            ["2026-07-05T21:15:02+02:00", "3 - Neutral", "25-34"],
        ],
    ),
)
STOCK = [["Hammer", "T-1", 12, 114], ["Saw", "T-2", 5, 71], ["Screw", "F-1", 1200, 24], ["Nail", "F-2", 800, 8], ["Anchor", "F-3", 60, 30]]


def inventory(book):
    sheet = book.active
    sheet.title = "Inventory"
    rows = [["Item", "SKU", "Counted", "Value"], ["Tools"], *STOCK[:2], ["Fasteners"], *STOCK[2:], ["Total", None, 2077, 247]]
    for row in rows:
        sheet.append(row)
    sheet.merge_cells("A2:D2")
    sheet.merge_cells("A5:D5")


case(
    "inventory_sections.xlsx",
    openpyxl_book(inventory),
    table("Item:text SKU:text Counted:integer Value:integer", STOCK),
    named=["has 2 headings among its rows (rows 2, 5, first `Tools`), which are left out", "has a row of totals (row 9: `Total`)"],
)
case(
    "inventory_sections.csv",
    lines("Item,SKU,Counted,Value", "Tools,,,", "Hammer,T-1,12,114", "Saw,T-2,5,71", "Fasteners,,,", "Screw,F-1,1200,24", "Nail,F-2,800,8"),
    table(
        "Item:text SKU:text Counted:integer Value:integer",
        [["Tools", "", None, None], *STOCK[:2], ["Fasteners", "", None, None], *STOCK[2:4]],
    ),
    named=["perhaps has 2 headings among its rows (lines 2, 5, first `Tools`), which are read as data"],
)


def timesheet(book):
    sheet = book.active
    sheet.title = "Januar"
    sheet.append(["Datum", "Tag", "Stunden", "Projekt"])
    days = [(5, "Mo", 8, "Alpha"), (6, "Di", 7.5, "Beta"), (7, "Mi", None, None)]
    for day, name, hours, project in days:
        sheet.append([datetime.date(2026, 1, day), name, datetime.timedelta(hours=hours) if hours else None, project])
        sheet.cell(sheet.max_row, 1).number_format = "DD.MM.YYYY"
        sheet.cell(sheet.max_row, 3).number_format = "[h]:mm"
    sheet.append(["Summe", None, datetime.timedelta(hours=15.5), None])
    sheet.cell(sheet.max_row, 3).number_format = "[h]:mm"


case(
    "timesheet.xlsx",
    openpyxl_book(timesheet),
    table(
        "Datum:date Tag:text Stunden:text Projekt:text",
        [["2026-01-05", "Mo", "08:00:00", "Alpha"], ["2026-01-06", "Di", "07:30:00", "Beta"], ["2026-01-07", "Mi", None, None]],
    ),
    named=["has a row of totals (row 5: `Summe`)"],
)


def pivot_compact(book):
    sheet = book.add_worksheet("Pivot")
    rows = [
        ["Sum of Amount", "Column Labels"],
        ["Row Labels", "Q1", "Q2", "Grand Total"],
        ["North", 100, 200, 300],
        ["Desk", 60, 120, 180],
        ["Chair", 40, 80, 120],
        ["South", 50, 70, 120],
        ["Desk", 20, 30, 50],
        ["Chair", 30, 40, 70],
        ["Grand Total", 150, 270, 420],
    ]
    write_rows(sheet, rows)


case(
    "pivot_compact.xlsx",
    xlsx(pivot_compact),
    table(
        "Row Labels:text|Q1:integer|Q2:integer|Grand Total:integer",
        [["Desk", 60, 120, 180], ["Chair", 40, 80, 120], ["Desk", 20, 30, 50], ["Chair", 30, 40, 70]],
    ),
    named=["has 3 rows of totals (rows 3, 6, 9, first `North`), which are left out"],
)


def side_by_side(book):
    sheet = book.add_worksheet("Q1")
    write_rows(sheet, [["Product", "Units", None, "Region", "Revenue"], ["Desk", 3, None, "North", 1000], ["Chair", 10, None, "South", 1400], ["Lamp", 4]])


case(
    "side_by_side.xlsx",
    xlsx(side_by_side),
    table(
        "Product:text Units:integer Region:text Revenue:integer",
        [["Desk", 3, "North", 1000], ["Chair", 10, "South", 1400], ["Lamp", 4, None, None]],
    ),
    named=["has columns on both sides of the blank column C, which may be two tables and are read as one"],
)

parquet = io.BytesIO()
pandas.DataFrame(
    {
        "order": [9007199254740993, 2],
        "placed": pandas.to_datetime(["2026-02-11T10:00:00.123456Z", None]),
        "day": [datetime.date(2026, 2, 11), datetime.date(2026, 2, 12)],
        "total": [decimal.Decimal("1234567890123456.78"), decimal.Decimal("-0.05")],
        "paid": [True, None],
        "weight": [0.1, None],
        "tags": [["a", "b"], None],
        "local": pandas.to_datetime(["2026-02-11 10:00:00", "2026-02-11 10:00:00.000000001"], format="ISO8601"),
    }
).to_parquet(parquet)
case(
    "orders.parquet",
    parquet.getvalue(),
    table(
        "order:int64 placed:timestamp day:date total:decimal paid:boolean weight:number tags:json local:local_timestamp",
        [
            ["9007199254740993", "2026-02-11T10:00:00.123456Z", "2026-02-11", "1234567890123456.78", True, 0.1, ["a", "b"], "2026-02-11T10:00:00"],
            ["2", None, "2026-02-12", "-0.05", None, None, None, "2026-02-11T10:00:00.000000001"],
        ],
    ),
)

# Tables that are easily read wrong ------------------------------------------------------------------------------------

# A blank line in the middle, and below it a row with a text where the others have numbers: still one table.
KUNDEN = [["Kunde 1", "Nord", "3.50"], ["Kunde 2", "Süd", "6.50"], ["Kunde 3", "Nord", "9.50"]]
SPÄTERE = [["Kunde 30", "Süd", "90.50"], ["Kunde 31", "Nord", "93.50"]]


def with_gap(row, end="\n", names="customer,region,amount"):
    rows = lambda all: [",".join(one) for one in all]
    return lines(names, *rows(KUNDEN), "", row, *rows(SPÄTERE), end=end)


case(
    "gap_then_dash.csv",
    with_gap("Kunde 77,Nord,-"),
    table("customer:text region:text amount:text", [*KUNDEN, ["Kunde 77", "Nord", "-"], *SPÄTERE]),
)
case(
    "gap_then_word.csv",
    with_gap("Kunde 77,Nord,see below", end="\r\n"),
    table("customer:text region:text amount:text", [*KUNDEN, ["Kunde 77", "Nord", "see below"], *SPÄTERE]),
)
case(
    "gap_then_word_alone.csv",
    lines("id;Betrag", "A1;1", "A2;2", "A3;3", ";", "A77;k.A.", "A8;8", "A9;9"),
    table("id:text Betrag:text", [["A1", "1"], ["A2", "2"], ["A3", "3"], ["A77", "k.A."], ["A8", "8"], ["A9", "9"]]),
)
case(
    "gap_then_postcode.csv",
    lines("code,name,postcode", "C1,Person 1,20001", "C2,Person 2,20002", "C3,Person 3,20003", "", "C4,Person 4,01067", "C5,Person 5,20005", "C6,Person 6,20006"),
    table(
        "code:text name:text postcode:text",
        [["C1", "Person 1", "20001"], ["C2", "Person 2", "20002"], ["C3", "Person 3", "20003"], ["C4", "Person 4", "01067"], ["C5", "Person 5", "20005"], ["C6", "Person 6", "20006"]],
    ),
)

case(
    "gap_then_codes.csv",
    lines("id,name,room", "1,Ada,101", "2,Bo,102", "3,Cem,103", "", "x1,Jones,B12", "30,Dora,230", "31,Eli,231", end="\n"),
    table(
        "id:text name:text room:text",
        [["1", "Ada", "101"], ["2", "Bo", "102"], ["3", "Cem", "103"], ["x1", "Jones", "B12"], ["30", "Dora", "230"], ["31", "Eli", "231"]],
    ),
)


def gap_then_word(book):
    sheet = book.add_worksheet("Bestellungen")
    rows = [["Kunde", "Region", "Betrag"], ["K1", "Nord", 3], ["K2", "Süd", 6], ["K3", "Nord", 9], [], ["K77", "Nord", "offen"], ["K30", "Süd", 90], ["K31", "Nord", 93]]
    write_rows(sheet, rows)


case(
    "gap_then_word.xlsx",
    xlsx(gap_then_word),
    table(
        "Kunde:text Region:text Betrag:integer",
        [["K1", "Nord", 3], ["K2", "Süd", 6], ["K3", "Nord", 9], ["K77", "Nord", "offen"], ["K30", "Süd", 90], ["K31", "Nord", 93]],
    ),
)
case(
    "second_table.csv",
    lines("Region,Orders,Returns", "North,12,1", "South,8,2", "West,5,0", "", "Region,Head,Since", "North,Anna,2019", "South,Bo,2021", end="\n"),
    table("Region:text Orders:integer Returns:integer", [["North", 12, 1], ["South", 8, 2], ["West", 5, 0]]),
    named=["has a second table from line 6", "if its rows belong to the first table, set `footer_rows = 0`"],
    fix={"collection": ["header_row = 6"]},
    fixed=table("Region:text Head:text Since:integer", [["North", "Anna", 2019], ["South", "Bo", 2021]]),
)

# Names of groups above the names of columns.
case(
    "group_names.csv",
    lines(",,Inland,,Ausland,", "Nr,Kunde,Plan,Ist,Plan,Ist", "1,Anna,10,9,11,8", "2,Bo,20,18,22,16", "3,Cem,30,27,33,24", end="\n"),
    table(
        "Nr:integer|Kunde:text|Inland Plan:integer|Inland Ist:integer|Ausland Plan:integer|Ausland Ist:integer",
        [[1, "Anna", 10, 9, 11, 8], [2, "Bo", 20, 18, 22, 16], [3, "Cem", 30, 27, 33, 24]],
    ),
    named=["has names of columns in two rows (lines 1 and 2), which are joined"],
)
case(
    "group_names_beside_a_name.csv",
    lines("Fan survey", "", "Team,,Democrat,,Republican,", ",Total,Asian,Black,Asian,Black", "Bears,58,1,4,2,3", "Bills,86,2,5,4,5", "Colts,98,3,6,6,7"),
    table(
        "Team:text|Total:integer|Democrat Asian:integer|Democrat Black:integer|Republican Asian:integer|Republican Black:integer",
        [["Bears", 58, 1, 4, 2, 3], ["Bills", 86, 2, 5, 4, 5], ["Colts", 98, 3, 6, 6, 7]],
    ),
    named=["has names of columns in two rows (lines 3 and 4), which are joined"],
)


def group_names(book):
    sheet = book.add_worksheet("Fans")
    rows = [[None, None, "Democrat", None, "Republican"], ["Team", "All", "Asian", "Black", "Asian", "Black"], ["Bears", 58, 1, 4, 2, 3], ["Bills", 86, 2, 5, 4, 5], ["Colts", 98, 3, 6, 6, 7]]
    write_rows(sheet, rows)


case(
    "group_names.xlsx",
    xlsx(group_names),
    table(
        "Team:text|All:integer|Democrat Asian:integer|Democrat Black:integer|Republican Asian:integer|Republican Black:integer",
        [["Bears", 58, 1, 4, 2, 3], ["Bills", 86, 2, 5, 4, 5], ["Colts", 98, 3, 6, 6, 7]],
    ),
)
GROUPS = [[1, "Anna", 10, 9, 11, 8], [2, "Bo", 20, 18, 22, 16]]
case(
    "group_names_doubtful.csv",
    lines(",,Inland,,Ausland,", "Nr,Kunde,Umsatz,Kosten,Fracht,Zoll", "1,Anna,10,9,11,8", "2,Bo,20,18,22,16", end="\n"),
    table("Nr:integer Kunde:text Umsatz:integer Kosten:integer Fracht:integer Zoll:integer", GROUPS),
    named=["may have names of columns in two rows (lines 1 and 2)"],
    fix={"collection": ["header_row = 1", "header_rows = 2"]},
    fixed=table("Nr:integer|Kunde:text|Inland Umsatz:integer|Inland Kosten:integer|Ausland Fracht:integer|Ausland Zoll:integer", GROUPS),
)
ANSWERS = [[1, "Yes", "Film A", "", "Film C"], [2, "Maybe", "", "Film B", ""], [3, "Yes", "Film A", "Film B", ""]]
case(
    "group_names_of_a_survey.csv",
    lines("Id,Seen any?,Which films have you seen?,,", ",Response,Film A,Film B,Film C", "1,Yes,Film A,,Film C", "2,Maybe,,Film B,", "3,Yes,Film A,Film B,", end="\n"),
    table(
        "Id:integer|Seen any?:text|Which films have you seen?:text|:text|:text",
        [[None, "Response", "Film A", "Film B", "Film C"], *ANSWERS],
    ),
    named=["may have names of columns in two rows (lines 1 and 2)"],
    fix={"collection": ["header_row = 1", "header_rows = 2"]},
    fixed=table(
        "Id:integer|Seen any? Response:text|Which films have you seen? Film A:text|Which films have you seen? Film B:text|Which films have you seen? Film C:text",
        ANSWERS,
    ),
)

# A count above shares is within rounding of its own sum with them, and is no total.
POLL = [
    ["Do you approve?", "Unweighted n", 7128, 409],
    [None, "Approve", 0.4235437284742122, 0.7359685555656279],
    [None, "Disapprove", 0.5605019716447915, 0.2621072547531110],
    [None, "No answer", 0.0159542998810031, 0.0019241896812604],
    ["Trump Approval Totals", "Unweighted n", 7128, 409],
    [None, "For", 0.4235437284742122, 0.7359685555656279],
    [None, "Against", 0.5605019716447915, 0.2621072547531110],
]


def shares(book):
    write_rows(book.add_worksheet("Poll"), [["Question", "Answer", "All", "Voters"], *POLL])


case(
    "counts_and_shares.xlsx",
    xlsx(shares),
    table("Question:text Answer:text All:number Voters:number", POLL),
    named=["has a row that may be a total and is read as data (row 6: `Trump Approval Totals`)"],
)
case(
    "notes_around.csv",
    lines(
        "Lots of people,,,",
        "cannot resist writing,,,some notes",
        "at,the,,top",
        "of,,,spreadsheets",
        "Name,Profession,Age,Born",
        "David Bowie,musician,69,1947-01-08",
        "Carrie Fisher,actor,60,1956-10-21",
        "Chuck Berry,musician,90,1926-10-18",
        "Some,,,",
        ",also write,,",
        ",,at the,bottom",
        ",,,too!",
        end="\n",
    ),
    table(
        "Name:text Profession:text Age:integer Born:date",
        [["David Bowie", "musician", 69, "1947-01-08"], ["Carrie Fisher", "actor", 60, "1956-10-21"], ["Chuck Berry", "musician", 90, "1926-10-18"]],
    ),
    named=["has 4 rows above the table (lines 1 to 4", "has 4 rows below the table (from line 9: `Some`)"],
)


def merged_note(book):
    sheet = book.add_worksheet("Arts")
    rows = [
        ["Lots of people", None, None, None],
        ["at", "the", None, "top"],
        ["or", None, None, "cells"],
        ["Name", "Profession", "Age", "Films"],
        ["David Bowie", "musician", 69, 20],
        ["Carrie Fisher", "actor", 60, 90],
    ]
    write_rows(sheet, rows)
    sheet.merge_range("B3:C3", "merging")


case(
    "notes_merged.xlsx",
    xlsx(merged_note),
    table("Name:text Profession:text Age:integer Films:integer", [["David Bowie", "musician", 69, 20], ["Carrie Fisher", "actor", 60, 90]]),
    named=["has 3 rows above the table (rows 1 to 3"],
)


def number_among_names(book):
    sheet = book.add_worksheet("Teams")
    rows = [
        ["Houston Rockets", None, "https://example.com/HOU.html"],
        ["Player", "Minutes", "Guard", "Forward", "Center", "Total", "Slope", None, "Factor", 1.17],
        ["Chris Paul", 25.8, 30, 0, 0, 30, 0.18],
        ["James Harden", 30.4, 10, 25, 0, 35, 0.21],
        ["Eric Gordon", 24.5, 0, 0, 12, 12, 0.05],
    ]
    write_rows(sheet, rows)


case(
    "number_among_names.xlsx",
    xlsx(number_among_names),
    table(
        "Player:text Minutes:number Guard:integer Forward:integer Center:integer Total:integer Slope:number Factor:text 1.17:text",
        [
            ["Chris Paul", 25.8, 30, 0, 0, 30, 0.18, None, None],
            ["James Harden", 30.4, 10, 25, 0, 35, 0.21, None, None],
            ["Eric Gordon", 24.5, 0, 0, 12, 12, 0.05, None, None],
        ],
    ),
)

print(f"{len(CASES)} files")

"""National identification numbers: tax, health, insurance, identity; validated by their checksums.

python-stdnum verifies check digits, dates and places. A number whose form or check is
strong stands for itself; the others need their name beside them. Numbers of companies count only where one
number serves both.
"""

from __future__ import annotations

from stdnum.ar import cuit
from stdnum.at import vnr
from stdnum.au import tfn
from stdnum.be import nn
from stdnum.bg import egn
from stdnum.br import cnpj, cpf
from stdnum.ca import sin
from stdnum.ch import ssn as ahv
from stdnum.cl import rut
from stdnum.cn import ric
from stdnum.cz import rc
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.ee import ik
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.gr import amka
from stdnum.hr import oib
from stdnum.ie import pps
from stdnum.il import idnr as teudat
from stdnum.in_ import aadhaar, pan
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.lt import asmens
from stdnum.mx import curp
from stdnum.my import nric
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pk import cnic
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.ro import cnp
from stdnum.ru import inn
from stdnum.se import personnummer
from stdnum.th import pin
from stdnum.tr import tckimlik
from stdnum.za import idnr as south_african

from apps.guardrails.pii.keyword_number import digits_of
from apps.guardrails.pii.national_form import NumberForm, NumberName, patterns_of


def _is_nino(number: str) -> bool:
    """National insurance number (HMRC manual NIM39110): prefixes that are never given out. It has no check digit."""
    letters = number[:2].upper()
    return letters not in {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}


def _is_snils(number: str) -> bool:
    """Russian insurance number: nine digits weighted 9 to 1, modulo 101."""
    digits = digits_of(number)
    total = sum(int(digit) * weight for digit, weight in zip(digits, range(9, 0, -1), strict=False)) % 101
    return len(digits) == 11 and total % 100 == int(digits[9:])


def _is_singaporean(number: str) -> bool:
    """Singapore's NRIC and FIN: seven digits weighted 2 7 6 5 4 3 2, modulo 11, a letter by series."""
    total = sum(int(digit) * weight for digit, weight in zip(number[1:8], (2, 7, 6, 5, 4, 3, 2), strict=True))
    offset = {"S": 0, "T": 4, "F": 0, "G": 4}[number[0]]
    letters = "JZIHGFEDCBA" if number[0] in "ST" else "XWUTRQPNMLK"
    return letters[(total + offset) % 11] == number[8]


def _is_hong_kong(number: str) -> bool:
    """Hong Kong's identity card: letter and digits weighted 9 8 7 ..., modulo 11."""
    values = [36] + [int(character, 36) for character in number if character.isalnum()]
    return sum(value * weight for value, weight in zip(values, (9, 8, 7, 6, 5, 4, 3, 2, 1), strict=True)) % 11 == 0


def _is_taiwanese(number: str) -> bool:
    """Taiwan's identity card: the letter stands for two digits, weights 1 9 8 ... 1, modulo 10."""
    letter = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    digits = [letter // 10, letter % 10, *map(int, number[1:])]
    return (
        sum(value * weight for value, weight in zip(digits, (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1), strict=True)) % 10 == 0
    )


_FORMS = (
    NumberForm("uk_nino", r"\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] \d\d \d\d \d\d [A-D]\b", _is_nino),
    NumberForm("de_tax_id", r"\b[1-9]\d \d{3} \d{3} \d{3}\b", idnr.is_valid),
    NumberForm("fr_nir", r"\b[12] ?\d\d ?[0-9]\d ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d\b", nir.is_valid),
    NumberForm("es_dni", r"\b\d{8}[- ]?[A-HJ-NP-TV-Z]\b|\b\d\d\.\d{3}\.\d{3}[- ]?[A-HJ-NP-TV-Z]\b", dni.is_valid),
    NumberForm("es_nie", r"\b[XYZ][- ]?\d{7}[- ]?[A-HJ-NP-TV-Z]\b", nie.is_valid),
    NumberForm(
        "it_codice_fiscale",
        r"(?i)\b[A-Z]{6} ?[0-9LMNP-V]{2}[A-EHLMPR-T][0-9LMNP-V]{2} ?[A-Z][0-9LMNP-V]{3}[A-Z]\b",
        lambda number: codicefiscale.is_valid(number.upper()),
    ),
    NumberForm("be_nn", r"\b\d\d\.\d\d\.\d\d-\d{3}\.\d\d\b", nn.is_valid),
    NumberForm("br_cpf", r"\b\d{3}\.\d{3}\.\d{3}-\d\d\b", cpf.is_valid),
    NumberForm("br_cnpj", r"\b\d\d\.\d{3}\.\d{3}/\d{4}-\d\d\b", cnpj.is_valid),
    NumberForm("ar_cuit", r"\b\d\d-\d{8}-\d\b", cuit.is_valid),
    NumberForm("cl_rut", r"\b\d{1,2}\.\d{3}\.\d{3}-[0-9Kk]\b", rut.is_valid),
    NumberForm("mx_curp", r"(?i)\b[A-Z]{4}\d{6}[HM][A-Z]{5}[0-9A-Z]\d\b", curp.is_valid),
    NumberForm("in_pan", r"\b[A-Z]{3}P[A-Z]\d{4}[A-Z]\b", pan.is_valid),
    NumberForm("se_personnummer", r"\b(?:19|20)?\d{6}[-+]\d{4}\b", personnummer.is_valid),
    NumberForm("fi_hetu", r"(?i)\b\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]\b", lambda number: hetu.is_valid(number, True)),
    NumberForm("ch_ahv", r"\b756\.?\d{4}\.?\d{4}\.?\d\d\b", ahv.is_valid),
    NumberForm("kr_rrn", r"\b\d{6}-[1-8]\d{6}\b", rrn.is_valid),
    NumberForm("cn_ric", r"\b[1-8]\d{5}(?:18|19|20)\d{9}[0-9Xx]\b", lambda number: ric.is_valid(number.upper())),
    NumberForm("sg_nric", r"\b[STFG]\d{7}[A-Z]\b", _is_singaporean),
    NumberForm("hk_id", r"\b[A-Z]\d{6}\([0-9A]\)", _is_hong_kong),
    NumberForm("cz_rc", r"\b\d{6}/\d{4}\b", rc.is_valid),
    NumberForm("ru_snils", r"\b\d{3}-\d{3}-\d{3} \d\d\b", _is_snils),
    NumberForm("th_pin", r"\b\d-\d{4}-\d{5}-\d\d-\d\b", pin.is_valid),
    NumberForm("my_nric", r"\b\d{6}-\d\d-\d{4}\b", nric.is_valid),
    NumberForm("pk_cnic", r"\b[1-7]\d{4}-\d{7}-\d\b", cnic.is_valid),
)
_GROUPED = r"\d(?:[ .-]?\d){7,13}"
_NAMES = (
    NumberName(
        "uk_nino",
        r"(?i:national insurance|\bnino\b|\bni (?:no|number)\b)",
        r"(?i:[A-Z]{2}) ?\d\d ?\d\d ?\d\d ?(?i:[A-D])",
        _is_nino,
    ),
    NumberName("uk_nhs", r"(?i:\bnhs\b)", r"\d{3}[ -]?\d{3}[ -]?\d{4}", nhs.is_valid),
    NumberName(
        "de_tax_id",
        r"(?i:\bsteuer[- ]?(?:id\w*|nummer)|\bid-?nr\b|\bidentifikationsnummer|\btax id\b|\btin\b)",
        r"\d\d ?\d{3} ?\d{3} ?\d{3}",
        idnr.is_valid,
    ),
    NumberName("es_nie", r"(?i:\bnie\b)", r"(?i:[XYZ])[- ]?\d{7}[- ]?(?i:[A-Z])", nie.is_valid),
    NumberName(
        "nl_bsn",
        r"(?i:\bbsn\b|burgerservicenummer|sofinummer)",
        r"\d{4}[ .]?\d{2}[ .]?\d{3}|\d{3}[ .]\d{3}[ .]\d{3}|\d{8}",
        bsn.is_valid,
    ),
    NumberName(
        "be_nn", r"(?i:rijksregister\w*|registre national|national register|\bniss\b|\binsz\b)", _GROUPED, nn.is_valid
    ),
    NumberName("pl_pesel", r"(?i:\bpesel\w*)", r"\d{11}", pesel.is_valid),
    NumberName("pt_nif", r"(?i:\bnif\b|contribuinte)", r"\d{3} ?\d{3} ?\d{3}", nif.is_valid),
    NumberName("br_cpf", r"(?i:\bcpfs?\b)", r"\d{3}\.?\d{3}\.?\d{3}[-/ ]?\d\d", cpf.is_valid),
    NumberName("br_cnpj", r"(?i:\bcnpjs?\b)", r"\d{14}", cnpj.is_valid),
    NumberName("ar_cuit", r"(?i:\bcuit\b|\bcuil\b)", r"\d{11}", cuit.is_valid),
    NumberName("cl_rut", r"(?i:\brut\b)", r"\d{7,8}-?[0-9Kk]", rut.is_valid),
    NumberName(
        "in_aadhaar", r"(?i:\ba+dha+r\b|\buidai\b|\buid\b)|आधार", r"[2-9]\d{3}[ -]?\d{4}[ -]?\d{4}", aadhaar.is_valid
    ),
    NumberName("in_pan", r"(?i:\bpan (?:card|no|number)\b|\bpan:)", r"(?i:[A-Z]{5})\d{4}(?i:[A-Z])", pan.is_valid),
    NumberName(
        "se_personnummer",
        r"(?i:personnummer|samordningsnummer|\bpnr\b|\bpersonal identity (?:code|number)|\bswedish id\b)",
        r"(?:18|19|20)?\d{6}[-+]?\d{4}",
        personnummer.is_valid,
    ),
    NumberName(
        "no_fodselsnummer",
        r"(?i:f[øo]dselsnummer|personnummer|\bfnr\b|d-nummer)",
        r"\d{6} ?\d{5}",
        fodselsnummer.is_valid,
    ),
    NumberName("dk_cpr", r"(?i:\bcpr\b|\bcpr-?(?:nr|nummer)|personnummer)", r"\d{6}[- ]?\d{4}", cpr.is_valid),
    NumberName(
        "at_svnr", r"(?i:\bsvnr\b|sozialversicherungsnummer|versicherungsnummer)", r"\d{4} ?\d{6}", vnr.is_valid
    ),
    NumberName("ch_ahv", r"(?i:\bahv\b|\bavs\b)", r"756\.?\d{4}\.?\d{4}\.?\d\d", ahv.is_valid),
    NumberName("ie_pps", r"(?i:\bppsn?\b)", r"\d{7} ?(?i:[A-W][A-IW]?)", pps.is_valid),
    NumberName(
        "ca_sin", r"(?i:\bsin\b|social insurance|assurance sociale|\bnas\b)", r"\d{3}[ -]?\d{3}[ -]?\d{3}", sin.is_valid
    ),
    NumberName("au_tfn", r"(?i:\btfn\b|tax file)", r"\d{3}[ -]?\d{3}[ -]?\d{3}", tfn.is_valid),
    NumberName("kr_rrn", r"주민등록번호|주민번호", r"\d{6}-?[1-8]\d{6}", rrn.is_valid),
    NumberName("tw_id", r"身分證|身份證|(?i:\bnational id\b)", r"[A-Z][12]\d{8}", _is_taiwanese),
    NumberName(
        "za_id",
        r"(?i:\b(?:sa|rsa|south african) id\b|\bid (?:no|number)\b|\bidentity (?:no|number|document)\b)",
        r"\d{6} ?\d{4} ?\d{3}",
        south_african.is_valid,
    ),
    NumberName(
        "tr_tckimlik",
        r"(?i:\bt\.?c\.? ?(?:kimlik|no)|kimlik|\btckn\b|\bturkish id\b)",
        r"[1-9]\d{10}",
        tckimlik.is_valid,
    ),
    NumberName("il_id", r"(?i:teudat zehut|israeli id)|תעודת זהות", r"\d{8,9}", teudat.is_valid),
    NumberName("ro_cnp", r"(?i:\bcnp\b)", r"[1-9]\d{12}", cnp.is_valid),
    NumberName("cz_rc", r"(?i:rodn[ée] [čc][íi]slo)|\bR[ČC]\b", r"\d{6}/?\d{3,4}", rc.is_valid),
    NumberName("bg_egn", r"(?i:\begn\b)|(?i:\bЕГН)|ЕГН", r"\d{10}", egn.is_valid),  # noqa: RUF001 - these letters are meant
    NumberName("ru_snils", r"(?i:снилс|\bsnils\b)", r"\d{3}[- ]?\d{3}[- ]?\d{3}[- ]?\d\d", _is_snils),
    NumberName("ru_inn", r"(?i:\binn\b)|ИНН", r"\d{12}", inn.is_valid),
    NumberName("gr_amka", r"(?i:\bamka\b)|ΑΜΚΑ", r"\d{11}", amka.is_valid),  # noqa: RUF001 - these letters are meant
    NumberName("hr_oib", r"(?i:\boib\b)", r"\d{11}", oib.is_valid),
    NumberName("ee_ik", r"(?i:isikukood)", r"[1-8]\d{10}", ik.is_valid),
    NumberName("lt_asmens", r"(?i:asmens kod)", r"[3-6]\d{10}", asmens.is_valid),
    NumberName(
        "th_pin",
        r"เลขประจำตัวประชาชน|บัตรประชาชน|(?i:\bthai (?:national )?id\b|\btnin\b)",
        r"\d[- ]?\d{4}[- ]?\d{5}[- ]?\d\d[- ]?\d",
        pin.is_valid,
    ),
    NumberName("my_nric", r"(?i:\bmykad\b|\bnric\b)", r"\d{6}-?\d\d-?\d{4}", nric.is_valid),
)


PATTERNS = tuple(patterns_of(_FORMS, _NAMES))

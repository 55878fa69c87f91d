"""National numbers of further countries: of the forty largest, those that `national` does not have, and neighbours.

A number with no check digit counts only right behind a word that means nothing else.
"""

from __future__ import annotations

from stdnum.bg import pnf
from stdnum.cu import ni
from stdnum.do import cedula
from stdnum.ec import ci
from stdnum.fr import nif
from stdnum.gb import utr
from stdnum.id import nik, npwp
from stdnum.in_ import epic, vid
from stdnum.is_ import kennitala
from stdnum.ke import pin as kra
from stdnum.mu import nid
from stdnum.mx import rfc
from stdnum.nz import ird
from stdnum.si import emso
from stdnum.sv import nit
from stdnum.ua import rntrc
from stdnum.us import atin, ptin
from stdnum.ve import rif

from apps.guardrails.pii import national_checks as checks
from apps.guardrails.pii.national_form import NumberForm, NumberName, patterns_of

_FORMS = (
    NumberForm("ae_id", r"\b784-\d{4}-\d{7}-\d\b", checks.is_emirati),
    NumberForm("gh_card", r"\bGHA-\d{9}-\d\b", checks.is_varied),
    NumberForm("kr_rrn", r"\b\d{6}-[1-8]\d{6}\b", checks.is_korean),
)
_ID = r"(?:id|identity|identification)(?: card)?(?: no\.?| number)?"
_NAMES = (
    NumberName(
        "jp_my_number",
        r"マイナンバー|個人番号|(?i:\bmy ?number\b|\bindividual number\b)",
        r"\d{4}[ -]?\d{4}[ -]?\d{4}",
        checks.is_my_number,
    ),
    NumberName(
        "ir_melli",
        r"کد ?ملی|(?i:\b(?:melli|meli) code\b|\bcode melli\b|\biranian national (?:id|code|number)\b)",
        r"\d{3}-?\d{6}-?\d",
        checks.is_melli,
    ),
    NumberName(
        "sa_id", rf"الهوية|الإقامة|(?i:\biqama\b|\bsaudi (?:national )?{_ID})", r"[12]\d{9}", checks.is_checked_by_luhn
    ),
    NumberName("eg_id", rf"الرقم القومي|(?i:\begypt\w* (?:national )?{_ID})", r"[23]\d{13}", checks.is_egyptian),
    NumberName("ng_nin", r"\bNIN\b|(?i:\bnational identification number\b)", r"\d{11}", checks.is_varied),
    NumberName("ng_bvn", r"\bBVN\b|(?i:\bbank verification number\b)", r"\d{11}", checks.is_varied),
    NumberName(
        "ph_id",
        r"(?i:\bphil(?:sys|health|id)\b|\bpagibig\b|\bpag-ibig\b|\bumid\b|\bsss (?:no\.?|number)\b|\bpsn\b)",
        r"\d{4}-?\d{4}-?\d{4}(?:-?\d{4})?|\d{2}-?\d{7,9}-?\d",
        checks.is_varied,
    ),
    NumberName("ph_tin", r"\bTIN\b", r"\d{3}-\d{3}-\d{3}(?:-\d{3,5})?", checks.is_varied),
    NumberName(
        "bd_nid",
        r"(?i:\bnid\b|\bbangladesh\w* (?:national )?id\b)|জাতীয় পরিচয়পত্র",
        r"\d{17}|\d{13}|\d{10}",
        checks.is_varied,
    ),
    NumberName("vn_cccd", r"(?i:\bcccd\b|căn cước(?: công dân)?)", r"\d{12}", checks.is_vietnamese),
    NumberName("vn_cmnd", r"(?i:\bcmnd\b|chứng minh nhân dân)", r"\d{9}", checks.is_varied),
    NumberName("id_nik", r"(?i:\bnik\b|\bktp\b|nomor induk kependudukan)", r"\d{16}", nik.is_valid),
    NumberName("id_npwp", r"(?i:\bnpwp\b)", r"\d{2}\.?\d{3}\.?\d{3}\.?\d-?\d{3}\.?\d{3}", npwp.is_valid),
    NumberName("ke_pin", r"(?i:\bkra\b|\bkenya\w* pin\b)", r"[AP]\d{9}[A-Z]", kra.is_valid),
    NumberName("tz_nida", r"(?i:\bnida\b)", r"\d{8}-?\d{5}-?\d{5}-?\d{2}", checks.is_varied),
    NumberName(
        "co_cedula",
        r"(?i:\bc[ée]dula(?: de ciudadan[íi]a)?\b)",
        r"\d{1,3}\.\d{3}\.\d{3}|\d{8}|1\d{9}",
        checks.is_varied,
    ),
    NumberName("do_cedula", r"(?i:\bc[ée]dula\b)", r"\d{3}-?\d{7}-?\d", cedula.is_valid),
    NumberName("ec_ci", r"(?i:\bc[ée]dula\b|\bci\b)", r"\d{9}-?\d", ci.is_valid),
    NumberName("cu_ni", r"(?i:\bcarn[ée] de identidad\b)", r"\d{11}", ni.is_valid),
    NumberName(
        "latin_dni", r"(?i:\bdni\b|documento nacional de identidad)", r"\d{1,2}\.\d{3}\.\d{3}|\d{8}", checks.is_varied
    ),
    NumberName("ve_rif", r"(?i:\brif\b)", r"[VE]-?\d{8}-?\d", rif.is_valid),
    NumberName(
        "mx_rfc", r"(?i:\brfc\b)", r"(?i:[A-ZÑ&]{4}\d{6}[A-Z0-9]{3})", lambda number: rfc.is_valid(number.upper())
    ),
    NumberName("mx_nss", r"(?i:\bnss\b|\bimss\b|n[úu]mero de seguro social)", r"\d{11}", checks.is_checked_by_luhn),
    NumberName("br_pis", r"(?i:\bpis\b|\bpasep\b|\bnis\b)", r"\d{3}\.?\d{5}\.?\d\d[-.]?\d", checks.is_pis),
    NumberName("br_rg", r"\bRG\b|(?i:registro geral)", r"\d{1,2}\.\d{3}\.\d{3}-[0-9Xx]", checks.is_varied),
    NumberName("ua_rntrc", r"(?i:рнокпп|іпн|\brnokpp\b)|ідентифікаційн\w+ (?:код|номер)", r"\d{10}", rntrc.is_valid),
    NumberName("kz_iin", r"(?i:\biin\b)|ИИН|ЖСН", r"\d{12}", checks.is_kazakh),
    NumberName("uz_pinfl", r"(?i:\bpinfl\b|\bjshshir\b)|ПИНФЛ", r"\d{14}", checks.is_uzbek),
    NumberName("hu_tax", r"(?i:adóazonosító)", r"\d{10}", checks.is_hungarian_tax),
    NumberName("hu_taj", r"(?i:\btaj\b)", r"\d{3}[ -]?\d{3}[ -]?\d{3}", checks.is_hungarian_insurance),
    NumberName("lv_pk", r"(?i:personas kod\w*)", r"\d{6}-?\d{5}", checks.is_latvian),
    NumberName("jmbg", r"(?i:\bjmbg\b|\bem[sš]o\b)|ЈМБГ|ЕМБГ|матичн\w+ број", r"\d{13}", emso.is_valid),  # noqa: RUF001 - these letters are meant
    NumberName("is_kennitala", r"(?i:kennitala\w*)", r"\d{6}-?\d{4}", kennitala.is_valid),
    NumberName("lu_matricule", r"(?i:\bmatricule\b)", r"(?:19|20)\d{11}", checks.is_luxembourgish),
    NumberName("au_medicare", r"(?i:\bmedicare\b)", r"\d{4}[ -]?\d{5}[ -]?\d(?:[ /-]?\d)?", checks.is_medicare),
    NumberName("nz_ird", r"\bIRD\b", r"\d{2,3}[ -]?\d{3}[ -]?\d{3}", ird.is_valid),
    NumberName("nz_nhi", r"\bNHI\b", r"[A-HJ-NP-Z]{3}\d{4}", checks.is_varied),
    NumberName(
        "in_epic", r"(?i:\bvoter\w*\b|\bepic\b)", r"(?i:[A-Z]{3})\d{7}", lambda number: epic.is_valid(number.upper())
    ),
    NumberName("in_vid", r"(?i:\bvid\b|\bvirtual id\b)", r"\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}", vid.is_valid),
    NumberName(
        "de_rvnr",
        r"(?i:\brvnr\b|rentenversicherungs\w*|sozialversicherungs\w*|versicherungsnummer)",
        r"\d{2} ?\d{6} ?(?i:[A-Z]) ?\d{3}",
        checks.is_german_insurance,
    ),
    NumberName(
        "de_kvnr",
        r"(?i:\bkvnr\b|krankenversicherten\w*|versichertennummer|\begk\b)",
        r"(?i:[A-Z])\d{9}",
        checks.is_german_health,
    ),
    NumberName(
        "de_id_card",
        r"(?i:personalausweis\w*|\bausweis(?:nummer|-?nr)?\b)",
        r"[LMNPRTVWXY0-9][CFGHJKLMNPRTVWXYZ0-9]{8}",
        checks.is_varied,
    ),
    NumberName("fr_nif", r"(?i:num[ée]ro fiscal|\bspi\b|\bnif\b)", r"[0-3]\d(?: ?\d\d){1}(?: ?\d{3}){3}", nif.is_valid),
    NumberName(
        "it_id_card",
        r"(?i:carta d'identit[àa]|carta identit[àa])",
        r"C[A-Z]\d{5}[A-Z]{2}|[A-Z]{2} ?\d{7}",
        checks.is_varied,
    ),
    NumberName("uk_utr", r"(?i:\butr\b|unique taxpayer)", r"\d{5} ?\d{5}", utr.is_valid),
    NumberName("us_atin", r"(?i:\batin\b)", r"9\d\d-?93-?\d{4}", atin.is_valid),
    NumberName("us_ptin", r"(?i:\bptin\b)", r"P-?\d{8}", ptin.is_valid),
    NumberName("sv_nit", r"\bNIT\b", r"\d{4}-?\d{6}-?\d{3}-?\d", nit.is_valid),
    NumberName("bg_pnf", r"\bPNF\b|ЛНЧ", r"\d{4} ?\d{3} ?\d{3}", pnf.is_valid),
    NumberName("mu_nid", r"(?i:mauriti\w+ (?:national )?id)", r"[A-Z]\d{13}|[A-Z]\d{12}[A-Z0-9]", nid.is_valid),
    NumberName("lk_nic", r"\bNIC\b", r"\d{9}[VvXx]|(?:19|20)\d{10}", checks.is_varied),
    NumberName("ma_cin", r"\bCN?IE?\b", r"[A-Z]{1,2}\d{5,6}", checks.is_varied),
    NumberName("kw_civil", r"(?i:\bcivil id\b)|الرقم المدني", r"[23]\d{11}", checks.is_varied),
    NumberName("qa_qid", r"\bQID\b", r"[23]\d{10}", checks.is_varied),
    NumberName(
        "kr_rrn", r"(?i:\brrn\b|\bfrn\b)|외국인등록번호|주민등록번호|주민번호", r"\d{6}-?[1-8]\d{6}", checks.is_korean
    ),
)

PATTERNS = tuple(patterns_of(_FORMS, _NAMES))
